//! Options for amounts of resources: one for each record of the table of resources.

use clap::error::Error;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use std::marker::PhantomData;
use weir_trust::grant::{Amounts, Ceilings, Resource, UNLIMITED};

/// Options of one kind for amounts. They stand in a command line by `#[command(flatten)]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct AmountOptions<K> {
    /// The amounts that were given.
    pub amounts: Amounts,
    kind: PhantomData<K>,
}

/// A kind of options for amounts.
pub trait AmountKind {
    /// The option for a resource, if there is one.
    fn option(resource: Resource) -> Option<Arg>;
}

/// Options for the limits of a session.
#[derive(Clone, Copy, Debug, Default)]
pub struct OfSession;
/// Options for the amounts that a new credential grants: each has a value unless another one is given, or `unlimited`.
#[derive(Clone, Copy, Debug, Default)]
pub struct GrantedAmounts;
/// Options for the amounts that a credential passes on.
#[derive(Clone, Copy, Debug, Default)]
pub struct PassedOn;

/// An option with the name and the unit of a resource.
fn option(resource: Resource, help: impl Into<clap::builder::StyledStr>) -> Arg {
    let row = resource.row();
    Arg::new(row.name).long(row.name).value_name(row.unit.placeholder()).help(help)
}

impl AmountKind for OfSession {
    fn option(resource: Resource) -> Option<Arg> {
        let row = resource.row();
        let limit = row.limit.as_ref()?;
        let read = move |text: &str| resource.read_limit(text).map(Some);
        Some(option(resource, limit.help).value_parser(read))
    }
}

impl AmountKind for GrantedAmounts {
    fn option(resource: Resource) -> Option<Arg> {
        let row = resource.row();
        let [help, usual] = row.granted;
        let read = move |text: &str| match text {
            UNLIMITED => Ok(None),
            text => row.unit.read(text).map(Some),
        };
        Some(option(resource, format!("{help}; or unlimited")).value_parser(read).default_value(usual))
    }
}

impl AmountKind for PassedOn {
    fn option(resource: Resource) -> Option<Arg> {
        let row = resource.row();
        let read = move |text: &str| row.unit.read(text).map(Some);
        Some(option(resource, row.granted[0]).value_parser(read))
    }
}

impl<K> AmountOptions<K> {
    /// The amounts as ceilings of a grant.
    pub fn ceilings(&self) -> Ceilings {
        self.amounts.ceilings()
    }
}

impl<K: AmountKind> Args for AmountOptions<K> {
    fn augment_args(command: Command) -> Command {
        command.args(Resource::ALL.iter().filter_map(|resource| K::option(*resource)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<K: AmountKind> FromArgMatches for AmountOptions<K> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = |resource: &Resource| {
            let amount = matches.try_get_one::<Option<u64>>(resource.row().name).ok()?;
            Some((*resource, (*amount?)?))
        };
        let with_option = Resource::ALL.iter().filter(|resource| K::option(**resource).is_some());
        Ok(Self { amounts: with_option.filter_map(given).collect(), kind: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
