//! Grants in files of a policy: the limit of a root, and the grants of test cases. The keys are those of
//! the options of `weir grant`, in the plural where the value is a list; `nodes` is `--at`.

use super::PolicyProblem;
use crate::control::ShippedModules;
use crate::control::quantity::AsText;
use crate::control::resource_keys::{self, AmountKeys};
use serde::Deserialize;
use std::collections::BTreeSet;
use weir_admission::Name;
use weir_trust::grant::{
    Amounts, Grant, GrantError, GrantFilter, InterfaceName, ModuleHash, ModuleSet, Modules, NodePattern,
    PacketView, UnixSecond,
};
use weir_trust::key::PublicKey;
use weir_wire::WriteFields;

type OptionalSet<T> = Option<BTreeSet<AsText<T>>>;

/// A grant or a limit. Missing keys restrict nothing; a missing `unmetered` gives nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub(super) struct GrantText {
    profiles: OptionalSet<Name>,
    /// Names of modules that come with weir, and hashes of other modules.
    modules: Option<BTreeSet<String>>,
    signers: OptionalSet<PublicKey>,
    filter: Option<AsText<GrantFilter>>,
    interfaces: OptionalSet<InterfaceName>,
    view: Option<AsText<PacketView>>,
    writes: OptionalSet<Name>,
    /// Keys, whose signed modules may run without a meter.
    #[serde(default)]
    unmetered: BTreeSet<AsText<PublicKey>>,
    /// Amounts, with a key for each resource.
    #[serde(skip)]
    amounts: Amounts,
    nodes: OptionalSet<NodePattern>,
    from: Option<AsText<UnixSecond>>,
    until: Option<AsText<UnixSecond>>,
    delegations: Option<u32>,
}

resource_keys::deserialize_with_amounts!(GrantText, amounts, AmountKeys::Grant);

impl GrantText {
    /// Converts the text to a grant. A policy's grant may name several profiles, of which a session uses one.
    pub(super) fn grant(&self, shipped: ShippedModules) -> Result<Grant, PolicyProblem> {
        fn all<T: Clone + Ord>(list: &OptionalSet<T>) -> Option<BTreeSet<T>> {
            list.as_ref().map(|list| list.iter().map(|AsText(item)| item.clone()).collect())
        }
        let modules = if self.modules.is_none() && self.signers.is_none() {
            Modules::any()
        } else {
            let hashes = self.modules.iter().flatten().map(|module| hash_of(module, shipped));
            let signers = all(&self.signers).unwrap_or_default();
            Modules::from(ModuleSet { hashes: hashes.collect::<Result<_, _>>()?, signers })
        };
        let writes = all(&self.writes);
        // A misspelt field is an error here: otherwise the grant would silently not allow the intended field.
        for field in writes.iter().flatten() {
            WriteFields::find_field(field.as_str())?;
        }
        let grant = Grant {
            profiles: None,
            modules,
            filters: self.filter.iter().map(|AsText(filter)| filter.clone()).collect(),
            interfaces: all(&self.interfaces),
            view: self.view.as_ref().map(|AsText(view)| *view),
            writes,
            unmetered: self.unmetered.iter().map(|AsText(key)| *key).collect(),
            ceilings: self.amounts.ceilings(),
            nodes: self.nodes.as_ref().map(|nodes| nodes.iter().map(|AsText(node)| node.clone()).collect()),
            not_before: self.from.as_ref().map(|AsText(from)| *from),
            expires: self.until.as_ref().map(|AsText(until)| *until),
            delegations: self.delegations,
        };
        grant.check()?;
        let profiles = all(&self.profiles);
        if profiles.as_ref().is_some_and(BTreeSet::is_empty) {
            return Err(GrantError::NoProfile.into());
        }
        // Added after the check, which permits only one profile, as in a block of a credential.
        Ok(Grant { profiles, ..grant })
    }
}

/// Returns the hash of a module that comes with weir, or parses the text as a hash.
fn hash_of(module: &str, shipped: ShippedModules) -> Result<ModuleHash, PolicyProblem> {
    match shipped(module) {
        Some(bytes) => Ok(ModuleHash::of_bytes(bytes)),
        None => module.parse().map_err(|_| PolicyProblem::UnknownModule(weir_units::escaped(module))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_trust::grant::{Ceilings, CpuShare};
    use weir_units::{BitsPerSecond, Bytes};

    fn shipped(name: &str) -> Option<&'static [u8]> {
        (name == "rtt").then_some(b"rtt".as_slice())
    }

    #[test]
    fn the_keys_of_a_grant_restrict_and_missing_keys_do_not() {
        let text = r#"
            profiles = ["strict", "wide"]
            modules = ["rtt", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"]
            filter = "udp"
            interfaces = ["eth0"]
            view = "payload=none"
            writes = ["ttl"]
            unmetered = ["KEY"]
            cpu = "20%"
            memory = "64 MiB"
            bandwidth = "1 Mbit/s"
            records-per-second = 10
            kept-packets = 11
            sessions = 2
            nodes = ["*.example"]
            from = "2026-01-01"
            until = "2027-01-01"
            delegations = 1
        "#;
        let signer = weir_trust::key::Identity::from_seed(&[1; 32]).public();
        let text = text.replace("KEY", &signer.to_string());
        let grant = toml::from_str::<GrantText>(&text).unwrap().grant(shipped).unwrap();
        let name = |text: &str| Name::new(text).unwrap();
        let hashes = [ModuleHash::of_bytes(b"rtt"), ModuleHash::of_bytes(b"")].into();
        let expected = Grant {
            profiles: Some([name("strict"), name("wide")].into()),
            modules: ModuleSet { hashes, ..ModuleSet::default() }.into(),
            filters: ["udp".parse().unwrap()].into(),
            interfaces: Some(["eth0".parse().unwrap()].into()),
            view: Some("payload=none".parse().unwrap()),
            writes: Some([name("ttl")].into()),
            unmetered: [signer].into(),
            ceilings: Ceilings {
                cpu: Some(CpuShare(200_000)),
                memory: Some(Bytes(64 << 20)),
                bandwidth: Some(BitsPerSecond(1_000_000)),
                records_per_second: Some(10),
                kept_packets: Some(11),
                sessions: Some(2),
                ..Ceilings::NONE
            },
            nodes: Some(["*.example".parse().unwrap()].into_iter().collect()),
            not_before: Some("2026-01-01".parse().unwrap()),
            expires: Some("2027-01-01".parse().unwrap()),
            delegations: Some(1),
        };
        assert_eq!(grant, expected);
        assert_eq!(toml::from_str::<GrantText>("").unwrap().grant(shipped).unwrap(), Grant::default());
        let none = toml::from_str::<GrantText>("modules = []").unwrap().grant(shipped).unwrap();
        assert!(!none.modules.is_any() && !none.modules.contains(&ModuleHash::of_bytes(b"rtt"), &[]));
    }

    #[test]
    fn errors_of_a_grant_name_their_cause() {
        for (text, says) in [
            ("modules = [\"mine.wasm\"]", "`mine.wasm`"),
            ("profiles = []", "without a profile no module could be admitted"),
            ("until = \"2026-01-01\"\nfrom = \"2026-01-02\"", "its end has to be after its beginning"),
            ("sessions = 9223372036854775807", ""),
            ("memory = \"9223372036854775808\"", "more than can be granted"),
        ] {
            let read = toml::from_str::<GrantText>(text).unwrap().grant(shipped);
            match says {
                "" => assert!(read.is_ok()),
                says => assert!(read.unwrap_err().to_string().contains(says), "{text}"),
            }
        }
        for text in ["memory = 5", "cpu = \"20\"", "until = \"soon\"", "mode = 1", "interfaces = [\"a b\"]"] {
            assert!(toml::from_str::<GrantText>(text).is_err(), "{text}");
        }
    }
}
