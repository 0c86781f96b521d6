//! Command-line options for amounts of resources, such as `--memory 64MiB`, generated from the table of resources
//! ([`Resource`]).

use clap::error::Error;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use std::marker::PhantomData;
use weir_trust::grant::{Amounts, Ceilings, Resource, UNLIMITED};

/// The amounts given on a command line by options of the kind `K`. A clap structure includes these options by
/// `#[command(flatten)]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct AmountOptions<K> {
    /// The given amounts.
    pub amounts: Amounts,
    kind: PhantomData<K>,
}

/// A kind of amount options: the set of options that a command has for resources.
pub trait AmountKind {
    /// Returns the option for a resource, if this kind has one.
    fn option(resource: Resource) -> Option<Arg>;
}

/// Options for the limits of a session.
#[derive(Clone, Copy, Debug, Default)]
pub struct SessionLimitAmounts;
/// Options for the amounts that a new credential grants. Each option has a default, and accepts `unlimited`.
#[derive(Clone, Copy, Debug, Default)]
pub struct GrantedAmounts;
/// Options for the amounts that a delegated credential grants.
#[derive(Clone, Copy, Debug, Default)]
pub struct DelegatedAmounts;

/// Returns an option with the name and unit of a resource.
fn resource_option(resource: Resource, help: impl Into<clap::builder::StyledStr>) -> Arg {
    let definition = resource.definition();
    Arg::new(definition.name).long(definition.name).value_name(definition.unit.placeholder()).help(help)
}

impl AmountKind for SessionLimitAmounts {
    fn option(resource: Resource) -> Option<Arg> {
        let definition = resource.definition();
        let limit = definition.limit.as_ref()?;
        let parse = move |text: &str| resource.read_limit(text).map(Some);
        Some(resource_option(resource, limit.help).value_parser(parse))
    }
}

impl AmountKind for GrantedAmounts {
    fn option(resource: Resource) -> Option<Arg> {
        let definition = resource.definition();
        let [help, default] = definition.grant_option;
        let parse = move |text: &str| match text {
            UNLIMITED => Ok(None),
            text => definition.unit.read(text).map(Some),
        };
        Some(
            resource_option(resource, format!("{help}; or unlimited"))
                .value_parser(parse)
                .default_value(default),
        )
    }
}

impl AmountKind for DelegatedAmounts {
    fn option(resource: Resource) -> Option<Arg> {
        let definition = resource.definition();
        let parse = move |text: &str| definition.unit.read(text).map(Some);
        Some(resource_option(resource, definition.grant_option[0]).value_parser(parse))
    }
}

impl<K> AmountOptions<K> {
    /// Returns the amounts as the ceilings of a grant.
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
        let amount_of = |resource: &Resource| {
            let amount = matches.try_get_one::<Option<u64>>(resource.definition().name).ok()?;
            Some((*resource, (*amount?)?))
        };
        let with_option = Resource::ALL.iter().filter(|resource| K::option(**resource).is_some());
        Ok(Self { amounts: with_option.filter_map(amount_of).collect(), kind: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
