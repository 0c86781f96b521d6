//! Services between sessions: what a session offers and uses, and how that changes while it runs.

use crate::control::counted;
use crate::control::quantity;
use crate::control::spec::{PARTS_MAX, SessionSpec, SpecError};
use crate::error::NodeError;
use crate::sessions::node::Node;
use serde::{Deserialize, Serialize};
use weir_admission::{DeclaredService, Name};
use weir_session::services::{Offer, Payer, ServiceUse};
use weir_units::{Bytes, Nanos};

/// A service that a session offers: of the first of its modules whose manifest has one of this name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfferSpec {
    /// The service.
    #[serde(with = "quantity::text")]
    pub service: Name,
    /// The sessions that may call it.
    #[serde(with = "counted::texts")]
    pub callers: Vec<Name>,
    /// Calls of each of them that wait at most.
    #[serde(default = "calls_default")]
    pub queue: u32,
    /// Whose processor time a call is.
    #[serde(default)]
    pub pays: CompileBilling,
}

fn calls_default() -> u32 {
    16
}

/// Whose processor time a call of a service is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CompileBilling {
    /// Of the session that is called.
    #[default]
    Callee,
    /// Of the session that calls, up to what it agreed to.
    Caller,
}

/// A service that a session uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UseSpec {
    /// The service, as its modules' manifests name it, and whoever offers it.
    #[serde(with = "quantity::text")]
    pub service: Name,
    /// The session that offers it.
    #[serde(with = "quantity::text")]
    pub of: Name,
    /// The most processor time that a call may cost who calls; nothing, where it is not said.
    #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
    pub pays: Option<Nanos>,
}

impl SessionSpec {
    /// Where a service is that its modules call by this name.
    pub fn used(&self, service: &Name) -> Option<ServiceUse> {
        let used = self.uses.iter().find(|used| used.service == *service)?;
        Some(ServiceUse { of: used.of.clone(), service: service.clone(), pays: used.pays })
    }

    /// What it offers of a module that has these services: names, numbers and terms.
    pub fn offered(&self, services: &[DeclaredService]) -> Vec<(Name, u32, Offer)> {
        let bytes = |bytes: Bytes| u32::try_from(bytes.0).unwrap_or(u32::MAX);
        let terms = |(number, service): (u32, &DeclaredService)| {
            let offer = self.offers.iter().find(|offer| offer.service == service.name)?;
            let payer = match offer.pays {
                CompileBilling::Callee => Payer::Callee,
                CompileBilling::Caller => Payer::Caller,
            };
            let (callers, queue) = (offer.callers.clone(), offer.queue);
            let (request, answer) = (bytes(service.request), bytes(service.answer));
            Some((service.name.clone(), number, Offer { callers, queue, request, answer, payer }))
        };
        (0..).zip(services).filter_map(terms).collect()
    }
}

impl OfferSpec {
    pub(crate) fn check(&self, session: &Name) -> Result<(), SpecError> {
        if (1..=weir_abi::limit::CALLS).contains(&self.queue) && self.callers.len() <= PARTS_MAX {
            return Ok(());
        }
        let is_queue = self.callers.len() <= PARTS_MAX;
        Err(SpecError::Range {
            session: session.clone(),
            what: "offer",
            name: self.service.clone(),
            key: if is_queue { "queue" } else { "callers" },
            given: if is_queue { self.queue.to_string() } else { self.callers.len().to_string() },
            wanted: if is_queue {
                format!("between 1 and {} calls", weir_abi::limit::CALLS)
            } else {
                format!("at most {PARTS_MAX} sessions")
            },
        })
    }
}

/// What keeps a session from calling a service that it uses, as far as these sessions say. Others can come later.
pub fn obstacle(user: &SessionSpec, used: &UseSpec, sessions: &[SessionSpec]) -> Option<String> {
    let UseSpec { service, of, .. } = used;
    let Some(offering) = sessions.iter().find(|session| session.name == *of) else {
        return Some(format!(
            "it uses service `{service}` of session `{of}`, and there is none of that name"
        ));
    };
    let Some(offer) = offering.offers.iter().find(|offer| offer.service == *service) else {
        return Some(format!("it uses service `{service}` of session `{of}`, which does not offer it"));
    };
    if !offer.callers.contains(&user.name) {
        return Some(format!(
            "it uses service `{service}`, which session `{of}` does not offer to it (`callers`)"
        ));
    }
    (offer.pays == CompileBilling::Caller && used.pays.is_none()).then(|| {
        format!("it uses service `{service}` of session `{of}`, whose callers pay, and does not agree to that (`pays`)")
    })
}

impl Node {
    /// Has the modules of a session offer and use what the session does now. Calls that are under way go on.
    pub(crate) fn tell_services(&self, session: &Name) -> Result<(), NodeError> {
        let there = self.sessions.get(session).ok_or_else(|| NodeError::NoSession(session.clone()))?;
        for module in there.modules.values() {
            let uses = module.calls.iter().map(|name| there.spec.used(name)).collect();
            module.desk.change(uses, there.spec.offered(&module.services));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::spec::Change;

    fn session(text: &str) -> SessionSpec {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn what_keeps_a_session_from_calling_is_found() {
        let alice = |of: &str, more: &str| {
            session(&format!("name = \"alice\"\nuse = [{{ service = \"lookup\", of = \"{of}\"{more} }}]"))
        };
        let offers = |name: &str, more: &str| {
            session(&format!("name = \"{name}\"\noffer = [{{ service = \"lookup\", {more} }}]"))
        };
        let all = [
            offers("free", "callers = [\"bob\", \"alice\"]"),
            offers("dear", "callers = [\"alice\"], pays = \"caller\""),
            offers("closed", "callers = [\"bob\"]"),
            session("name = \"silent\""),
        ];
        for (user, says) in [
            (alice("free", ""), None),
            (alice("dear", ", pays = \"1ms\""), None),
            (alice("dear", ""), Some("whose callers pay")),
            (alice("closed", ""), Some("does not offer to it (`callers`)")),
            (alice("silent", ""), Some("which does not offer it")),
            (alice("nobody", ""), Some("there is none of that name")),
        ] {
            let found = obstacle(&user, &user.uses[0], &all);
            assert_eq!(found.is_some(), says.is_some(), "{found:?}");
            assert!(found.unwrap_or_default().contains(says.unwrap_or_default()));
        }
    }

    #[test]
    fn services_come_change_and_go_and_what_is_not_there_cannot_go() {
        let mut spec = session(
            "name = \"a\"\noffer = [{ service = \"old\", callers = [] }, { service = \"s\", callers = [] }]",
        );
        let change = |text: &str| serde_json::from_str::<Change>(text).unwrap();
        let first = r#"{"session": "a", "offer": [{"service": "s", "callers": ["b"], "queue": 3}, {"service": "new", "callers": []}],
            "withdraw": ["old"], "use": [{"service": "s", "of": "b"}]}"#;
        spec = spec.changed(&change(first)).unwrap();
        let offers: Vec<_> = spec.offers.iter().map(|offer| (offer.service.as_str(), offer.queue)).collect();
        assert_eq!((offers, spec.uses.len()), (vec![("s", 3), ("new", 16)], 1));
        spec = spec.changed(&change(r#"{"session": "a", "forgo": ["s"]}"#)).unwrap();
        assert!(spec.uses.is_empty());
        let error = spec.changed(&change(r#"{"session": "a", "withdraw": ["old"]}"#)).unwrap_err();
        assert!(error.to_string().contains("there is no offer `old`; there is s, new"), "{error}");
    }
}
