//! Grants as the options of `weir grant` and `weir delegate`, for commands that users copy.

use super::{Grant, GrantPart, ModuleSet, Modules, Nodes, Resource, UNLIMITED};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::str::FromStr;

/// The option of `weir grant` that allows any module. It has no value.
pub const ANY_MODULE: &str = "any-module";
/// The option that allows the modules of a signer.
const SIGNER: &str = "signer";
/// The value of `--view` and `--write` for no restriction.
const ALL: &str = "all";
/// The value of `--write` for no field.
const NONE: &str = "none";
/// The value of `--at` for all nodes.
const EVERYWHERE: &str = "*";
/// The value of a delegation's option for the delegator's own part.
pub const SAME: &str = "same";

/// An option of a command without its dashes, and its value. The value is empty for an option without a value.
pub type GrantOption = (&'static str, String);

/// The command whose options state a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantCommand {
    /// `weir grant`, where each option has a default that allows little.
    Grant,
    /// `weir delegate`, where a part that is not restricted is the delegator's.
    Delegate,
}

impl GrantCommand {
    /// Returns the command for a block of a credential: the root signs the first one, and a delegator each later one.
    pub fn of_block(index: usize) -> Self {
        if index == 0 { Self::Grant } else { Self::Delegate }
    }

    /// Returns the value for a part without restriction; `None` if it is left out.
    fn unrestricted(self, value: &'static str) -> Option<&'static str> {
        match self {
            Self::Grant => Some(value),
            Self::Delegate => matches!(value, ALL | UNLIMITED).then_some(SAME),
        }
    }
}

impl Grant {
    /// Returns the options that state the grant of a block; `None` if no options do.
    pub fn options(&self, command: GrantCommand) -> Option<Vec<GrantOption>> {
        self.check().ok()?;
        let mut all: Vec<GrantOption> = Vec::new();
        let mut add = |option, value: String| all.push((option, value));
        for profile in self.profiles.iter().flatten() {
            add(GrantPart::Profile.grant_option(), profile.to_string());
        }
        for ModuleSet { hashes, signers } in self.modules.iter() {
            hashes.iter().for_each(|hash| add(GrantPart::Modules.grant_option(), hash.to_string()));
            signers.iter().for_each(|signer| add(SIGNER, signer.to_string()));
            if hashes.is_empty() && signers.is_empty() {
                return None;
            }
        }
        if self.modules.is_any() && command == GrantCommand::Grant {
            add(ANY_MODULE, String::new());
        }
        self.filters.iter().for_each(|filter| add(GrantPart::Traffic.grant_option(), filter.to_string()));
        if let Some(interfaces) = &self.interfaces {
            let option = GrantPart::Interfaces.grant_option();
            (!interfaces.is_empty()).then_some(())?;
            interfaces.iter().for_each(|interface| add(option, interface.to_string()));
        }
        let view = self.view.map(|view| view.to_string());
        let view = view.or_else(|| command.unrestricted(ALL).map(str::to_owned));
        view.into_iter().for_each(|view| add(GrantPart::View.grant_option(), view));
        let writes = match &self.writes {
            Some(fields) if fields.is_empty() => Some(NONE.to_owned()),
            Some(fields) if fields.iter().any(|field| [ALL, NONE, SAME].contains(&field.as_str())) => {
                return None;
            }
            Some(fields) => Some(fields.iter().map(|field| field.as_str()).collect::<Vec<_>>().join(",")),
            None => command.unrestricted(ALL).map(str::to_owned),
        };
        writes.into_iter().for_each(|fields| add(GrantPart::Writes.grant_option(), fields));
        self.unmetered.iter().for_each(|key| add(GrantPart::Unmetered.grant_option(), key.to_string()));
        for resource in Resource::ALL {
            let part = GrantPart::Resource(*resource);
            match self.ceilings.get(*resource) {
                Some(amount) => add(part.grant_option(), resource.definition().unit.typed(amount)),
                // A delegation without the option gets the delegator's ceiling.
                None if command == GrantCommand::Grant => add(part.grant_option(), UNLIMITED.to_owned()),
                None => {}
            }
        }
        match &self.nodes {
            Some(nodes) if nodes.iter().len() == 0 => return None,
            Some(nodes) => {
                nodes.iter().for_each(|node| add(GrantPart::Nodes.grant_option(), node.to_string()))
            }
            None => command
                .unrestricted(EVERYWHERE)
                .into_iter()
                .for_each(|nodes| add(GrantPart::Nodes.grant_option(), nodes.to_owned())),
        }
        self.not_before.iter().for_each(|time| add(GrantPart::NotBefore.grant_option(), time.to_string()));
        self.expires.iter().for_each(|time| add(GrantPart::Expires.grant_option(), time.to_string()));
        let delegations = self.delegations.map(|count| count.to_string());
        let delegations = delegations.or_else(|| command.unrestricted(UNLIMITED).map(str::to_owned));
        delegations.into_iter().for_each(|count| add(GrantPart::Delegations.grant_option(), count));
        Some(all)
    }

    /// Reads the options that [`Self::options`] writes. They can come from another party, so each value is read as a value
    /// of its kind. Returns `None` for other options, and for values that are not valid.
    pub fn from_options<T: AsRef<str>>(options: &[(T, T)]) -> Option<Self> {
        let mut grant = Self::default();
        let mut modules: Option<ModuleSet> = None;
        let mut nodes = BTreeSet::new();
        for (option, value) in options {
            let (option, value) = (option.as_ref(), value.as_ref());
            let set = |sets: &mut Option<ModuleSet>, add: &dyn Fn(&mut ModuleSet)| {
                add(sets.get_or_insert_default());
            };
            match option {
                ANY_MODULE => continue,
                SIGNER => {
                    let signer = read(value)?;
                    set(&mut modules, &|set| _ = set.signers.insert(signer));
                    continue;
                }
                _ => {}
            }
            match GrantPart::all().find(|part| part.grant_option() == option)? {
                GrantPart::Profile => _ = grant.profiles.get_or_insert_default().insert(read(value)?),
                GrantPart::Modules => {
                    let hash = read(value)?;
                    set(&mut modules, &|set| _ = set.hashes.insert(hash));
                }
                GrantPart::Traffic => _ = grant.filters.insert(read(value)?),
                GrantPart::Interfaces => _ = grant.interfaces.get_or_insert_default().insert(read(value)?),
                GrantPart::View => grant.view = unless(value, &[ALL, SAME])?,
                GrantPart::Writes if matches!(value, ALL | SAME) => {}
                GrantPart::Writes => {
                    let fields = grant.writes.get_or_insert_default();
                    for field in value.split(',').filter(|_| value != NONE) {
                        fields.insert(read(field)?);
                    }
                }
                GrantPart::Unmetered => _ = grant.unmetered.insert(read(value)?),
                GrantPart::Resource(_) if value == UNLIMITED => {}
                GrantPart::Resource(resource) => {
                    grant.ceilings.set(resource, Some(resource.definition().unit.read(value).ok()?));
                }
                GrantPart::Nodes if value == EVERYWHERE => {}
                GrantPart::Nodes => _ = nodes.insert(read(value)?),
                GrantPart::NotBefore => grant.not_before = Some(read(value)?),
                GrantPart::Expires => grant.expires = Some(read(value)?),
                GrantPart::Delegations => grant.delegations = unless(value, &[UNLIMITED, SAME])?,
            }
        }
        grant.modules = modules.map_or_else(Modules::any, Modules::from);
        grant.nodes = (!nodes.is_empty()).then(|| nodes.into_iter().collect::<Nodes>());
        grant.check().ok()?;
        Some(grant)
    }
}

/// Reads a value. A text that the value would not have been written as is none, so that a command never states more than
/// the options do.
fn read<T: FromStr + Display>(text: &str) -> Option<T> {
    text.parse().ok().filter(|value: &T| value.to_string() == text)
}

/// Reads a value; `Some(None)` for a word that stands for no restriction.
#[expect(clippy::option_option, reason = "a part without restriction is no error")]
fn unless<T: FromStr + Display>(text: &str, words: &[&str]) -> Option<Option<T>> {
    if words.contains(&text) { Some(None) } else { read(text).map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grant::tests::grants;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn options_read_back_as_the_grant_that_they_state(grant in grants()) {
            for command in [GrantCommand::Grant, GrantCommand::Delegate] {
                let Some(options) = grant.options(command) else { continue };
                let read = Grant::from_options(&owned(&options)).unwrap();
                prop_assert_eq!(read, normal(&grant), "{:?}", options);
            }
        }
    }

    fn owned(options: &[GrantOption]) -> Vec<(String, String)> {
        options.iter().map(|(option, value)| ((*option).to_owned(), value.clone())).collect()
    }

    /// The options state a view of everything like no restriction.
    fn normal(grant: &Grant) -> Grant {
        let view = grant.view.filter(|view| view.to_string() != ALL);
        Grant { view, ..grant.clone() }
    }

    #[test]
    fn a_grant_without_restriction_states_each_part() {
        let options = Grant::default().options(GrantCommand::Grant).unwrap();
        let text: Vec<String> = options.iter().map(|(option, value)| format!("{option} {value}")).collect();
        for part in
            ["any-module ", "view all", "write all", "memory unlimited", "at *", "delegations unlimited"]
        {
            assert!(text.iter().any(|it| it == part), "{part}: {text:?}");
        }
        let delegated = Grant::default().options(GrantCommand::Delegate).unwrap();
        let same = |option: &'static str| (option, SAME.to_owned());
        assert_eq!(delegated, [same("view"), same("write"), same("delegations")]);
    }

    #[test]
    fn options_that_state_no_grant_are_refused() {
        for (option, value) in [
            ("out", "/etc/passwd"),
            ("key", "x"),
            ("module", "$(reboot)"),
            ("module", "rtt"),
            ("memory", "much"),
            ("view", "payload=none; reboot"),
            ("interface", "a b"),
            ("write", "ttl,,dscp"),
            ("until", "tomorrow"),
            ("at", "--any-module"),
            ("memory", "9223372036854775808"),
        ] {
            assert_eq!(Grant::from_options(&[(option, value)]), None, "{option} {value}");
        }
        let none = Grant { interfaces: Some(BTreeSet::new()), ..Grant::default() };
        assert_eq!(none.options(GrantCommand::Grant), None);
        let none = Grant { modules: ModuleSet::default().into(), ..Grant::default() };
        assert_eq!(none.options(GrantCommand::Delegate), None);
    }
}
