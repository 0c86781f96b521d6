//! Who may ask for what. Every request is held against what its asker may do before anything of it is done, whichever way it came.
//!
//! - [`Asker`]: the operator, who may do anything; or the holder of a credential ([`weir_trust::credential`]), who may do what its grants allow.
//! - [`permit`] turns a holder's request into one for this node: names become the node's own, and packets those of the credential's filters. What it does not
//!   know it refuses.
//! - [`ceilings`] holds what sessions use together against each prefix of a chain: ten who got their credentials from one share what that one has.

pub(crate) mod ceilings;
pub(crate) mod explain;
mod permit;
mod refusal;
mod snapshot;

pub(crate) use permit::{Permitted, permit};
pub use refusal::Refusal;
pub(crate) use snapshot::snapshot_of;

use std::sync::Arc;
use weir_session::Name;
use weir_trust::credential::{Verified, resource_name};

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) enum Asker {
    /// Whoever the system lets use the node's own socket.
    Operator,
    /// The holder of a credential, who has proven to be that.
    Holder(Arc<Verified>),
}

/// Whom a session belongs to, where it is not the operator's.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    /// By what it was created.
    pub(crate) credential: Arc<Verified>,
    /// What its owner calls it.
    pub(crate) given: Name,
}

impl Owner {
    /// What the node calls what this holder calls `given`.
    pub(crate) fn name_of(credential: &Verified, given: &Name) -> Name {
        resource_name(credential.id(), credential.holder(), given)
    }

    /// Whether whoever holds `credential` may ask for something about its session: it is his own, or was made by somebody who got the right from him.
    pub(crate) fn is_under(&self, credential: &Verified) -> bool {
        self.credential.chain().iter().any(|link| link.id == credential.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Change, Request};
    use crate::spec::{ModuleSpec, SessionSpec};
    use std::collections::BTreeMap;
    use weir_trust::credential::{Credential, Situation};
    use weir_trust::grant::{Ceilings, CpuShare, Grant, Part, Second, View};
    use weir_trust::key::Identity;
    use weir_trust::revocation::Revocations;
    use weir_units::Bytes;

    /// No randomness is needed for what is tested here.
    struct Counting(u8);

    impl rand_core::RngCore for Counting {
        fn next_u32(&mut self) -> u32 {
            rand_core::impls::next_u32_via_fill(self)
        }
        fn next_u64(&mut self) -> u64 {
            rand_core::impls::next_u64_via_fill(self)
        }
        fn fill_bytes(&mut self, to: &mut [u8]) {
            for byte in to {
                self.0 = self.0.wrapping_add(1);
                *byte = self.0;
            }
        }
        fn try_fill_bytes(&mut self, to: &mut [u8]) -> Result<(), rand_core::Error> {
            self.fill_bytes(to);
            Ok(())
        }
    }

    impl rand_core::CryptoRng for Counting {}

    fn person(number: u8) -> Identity {
        Identity::from_seed(&[number; 32])
    }

    /// What the operator grants to person 1, and each passes on to the next one.
    fn chain(grants: &[Grant]) -> Arc<Verified> {
        let (operator, mut random) = (person(0), Counting(0));
        let first = Grant { expires: Some(Second::MAX), ..grants[0].clone() };
        let mut credential = Credential::mint(&operator, person(1).public(), first, &mut random).unwrap();
        for (number, grant) in (1..).zip(&grants[1..]) {
            let next = person(number + 1).public();
            credential = credential.delegate(&person(number), next, grant.clone(), &mut random).unwrap();
        }
        let (roots, revocations, node) =
            ([operator.public()], Revocations::default(), "node".parse().unwrap());
        let peer = *credential.claimed_holder();
        let situation = Situation {
            roots: &roots,
            revocations: &revocations,
            peer: &peer,
            node: &node,
            now: Second::default(),
        };
        Arc::new(credential.verify(&situation).unwrap())
    }

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn spec(text: &str) -> SessionSpec {
        toml::from_str(&format!("name = \"s\"\n{text}")).unwrap()
    }

    fn ceilings(memory: u64) -> Grant {
        Grant {
            ceilings: Ceilings { memory: Some(Bytes(memory)), ..Ceilings::default() },
            ..Grant::default()
        }
    }

    /// What becomes of a request where there are these sessions.
    fn asked(
        credential: &Arc<Verified>,
        ask: Request,
        sessions: &BTreeMap<Name, Owner>,
    ) -> Result<Permitted, Refusal> {
        let asker = Asker::Holder(Arc::clone(credential));
        permit(&asker, ask, None, &|name| sessions.get(name).cloned(), &|_| None)
    }

    fn created(credential: &Arc<Verified>, spec: SessionSpec) -> (SessionSpec, Owner) {
        match asked(credential, Request::Create(spec), &BTreeMap::new()).unwrap() {
            Permitted { ask: Request::Create(spec), owner: Some(owner) } => (spec, owner),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn ten_delegates_share_what_one_was_given() {
        let delegates: Vec<_> = (0..10)
            .map(|number| {
                let own = Grant { expires: Second::new(1000 + number), ..Grant::default() };
                created(&chain(&[ceilings(10 << 20), own]), spec("memory = \"2 MiB\""))
            })
            .map(|(spec, owner)| (owner, spec))
            .collect();
        let mut there: Vec<&(Owner, SessionSpec)> = Vec::new();
        let mut refused = 0;
        for delegate in &delegates {
            let others = there.iter().map(|(owner, spec)| (owner, spec));
            match ceilings::hold(&delegate.0, &delegate.1, others) {
                Ok(()) => there.push(delegate),
                Err(Refusal::UsedUp { part: Part::Memory, left, .. }) => {
                    refused += 1;
                    assert_eq!(left, "0 B");
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!((there.len(), refused), (5, 5));
    }

    #[test]
    fn records_are_counted_together_and_without_a_number_all_are_asked_for() {
        let granted = Grant {
            ceilings: Ceilings { records_per_second: Some(10), ..Ceilings::default() },
            ..Grant::default()
        };
        let parent = chain(std::slice::from_ref(&granted));
        let child = chain(&[granted, Grant { expires: Second::new(1000), ..Grant::default() }]);
        let (whole, owner) = created(&parent, spec(""));
        assert_eq!(whole.records_per_second, Some(10));
        let (part, other) = created(&child, spec("records_per_second = 4"));
        let hold = |spec: &SessionSpec| ceilings::hold(&owner, spec, std::iter::once((&other, &part)));
        let refusal = hold(&whole).unwrap_err();
        assert!(
            matches!(&refusal, Refusal::UsedUp { part: Part::Records, asked, left, .. } if asked == "10" && left == "6"),
            "{refusal}"
        );
        assert_eq!(hold(&SessionSpec { records_per_second: Some(6), ..whole.clone() }), Ok(()));
        // However it came about.
        let refusal = hold(&SessionSpec { records_per_second: None, ..whole }).unwrap_err();
        assert!(matches!(refusal, Refusal::Never { .. }), "{refusal}");
    }

    #[test]
    fn names_of_different_holders_never_meet_and_only_who_passed_a_right_on_reaches_below() {
        let parent = chain(&[ceilings(1 << 30)]);
        let child = chain(&[ceilings(1 << 30), Grant::default()]);
        let (own, parents) = (created(&child, spec("")), created(&parent, spec("")));
        assert_ne!(own.0.name, parents.0.name);
        let sessions = BTreeMap::from([(own.0.name.clone(), own.1), (parents.0.name.clone(), parents.1)]);
        let close = |who: &Arc<Verified>, session: &Name| {
            let permitted = asked(who, Request::Close { session: session.clone() }, &sessions);
            permitted.map(|permitted| permitted.ask)
        };
        let done = |session: &Name| Ok(Request::Close { session: session.clone() });
        // Each by its own name, and the node's.
        assert_eq!(close(&child, &name("s")), done(&own.0.name));
        assert_eq!(close(&parent, &name("s")), done(&parents.0.name));
        assert_eq!(close(&parent, &own.0.name), done(&own.0.name));
        assert_eq!(close(&child, &parents.0.name), Err(Refusal::NoSession(parents.0.name.clone())));
        // The operator's is nobody's.
        assert_eq!(close(&parent, &name("monitoring")), Err(Refusal::NoSession(name("monitoring"))));
    }

    #[test]
    fn packets_stay_those_of_the_owner_whoever_changes_a_session() {
        let udp = Grant { filters: ["udp".parse().unwrap()].into(), ..Grant::default() };
        let dns = Grant { filters: ["port 53".parse().unwrap()].into(), ..Grant::default() };
        let (parent, child) = (chain(std::slice::from_ref(&udp)), chain(&[udp, dns]));
        let (made, owner) =
            created(&child, spec("channel = [{ interface = \"e\", filter = \"host 192.0.2.1\" }]"));
        assert_eq!(made.channels[0].within.len(), 2);
        assert_eq!(ceilings::hold(&owner, &made, std::iter::empty()), Ok(()));
        let sessions = BTreeMap::from([(made.name.clone(), owner.clone())]);
        let change: Change = serde_json::from_value(
            serde_json::json!({"session": made.name.as_str(), "channel": [{"interface": "e"}]}),
        )
        .unwrap();
        let Permitted { ask: Request::Change(change), .. } =
            asked(&parent, Request::Change(change), &sessions).unwrap()
        else {
            panic!("another request")
        };
        assert_eq!(change.channels[0].within, made.channels[0].within);
        // Without them it is not held to be right, however it came about.
        let mut bare = made;
        bare.channels[0].within.pop();
        let refusal = ceilings::hold(&owner, &bare, std::iter::empty()).unwrap_err();
        assert!(
            matches!(&refusal, Refusal::Excess(excesses) if excesses[0].part == Part::Traffic),
            "{refusal}"
        );
    }

    #[test]
    fn a_request_cannot_say_which_filters_of_a_credential_hold() {
        let text = r#"{"interface": "e", "within": []}"#;
        let error = serde_json::from_str::<crate::spec::ChannelSpec>(text).unwrap_err();
        assert!(error.to_string().contains("unknown field `within`"), "{error}");
    }

    #[test]
    fn what_no_credential_allows_and_what_this_node_cannot_see_to_is_refused() {
        let share = Grant {
            ceilings: Ceilings { cpu: Some(CpuShare(50_000)), ..Ceilings::default() },
            ..Grant::default()
        };
        let (held, owner) = created(&chain(std::slice::from_ref(&share)), spec(""));
        // Nothing said, all that there is: 5 % of a core.
        assert_eq!(
            held.processors[0].reservation().map(|(period, slice)| (period.0, slice.0)),
            Some((10_000_000, 500_000))
        );
        for (text, says) in [
            (
                "cpu = [{ period = \"10ms\", slice = \"1ms\" }]",
                "processor time: asked for 10%; of the 5% given to",
            ),
            ("cpu = [{}]", "beyond what is granted"),
            ("cpu = [{ period = \"10ms\", slice = \"500us\", spare = true }]", "beyond what is granted"),
            ("priority = 1", "priority 1"),
            ("read = [\"t\"]", "named tables"),
            ("offer = [{ service = \"s\", callers = [\"t\"] }]", "services"),
        ] {
            let asked = spec(text);
            let asked = SessionSpec {
                processors: if asked.processors.is_empty() {
                    held.processors.clone()
                } else {
                    asked.processors
                },
                ..asked
            };
            let error = ceilings::hold(&owner, &asked, std::iter::empty()).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
        let view: View = "payload=none".parse().unwrap();
        for grant in [
            Grant { view: Some(view), ..Grant::default() },
            Grant { writes: Some([name("ttl")].into()), ..Grant::default() },
            Grant { ceilings: Ceilings { kept_packets: Some(1), ..Ceilings::default() }, ..Grant::default() },
        ] {
            let refusal = asked(&chain(&[grant]), Request::Show, &BTreeMap::new()).unwrap_err();
            assert!(matches!(refusal, Refusal::Unable(_)), "{refusal}");
        }
        let holder = chain(&[share]);
        for ask in [
            Request::Reload,
            Request::RemoveTable { table: name("t") },
            Request::PutTable { table: name("t") },
        ] {
            assert!(matches!(asked(&holder, ask, &BTreeMap::new()), Err(Refusal::Operator(_))));
        }
        let module: ModuleSpec = toml::from_str("module = \"m\"").unwrap();
        let load = Request::Load { session: name("s"), module };
        assert_eq!(asked(&holder, load, &BTreeMap::new()).unwrap_err(), Refusal::NoSession(name("s")));
    }
}
