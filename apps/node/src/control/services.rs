//! Offers and uses of services in a session's description. A service is a request that a module answers for modules of
//! other sessions.

use crate::control::bounded_list;
use crate::control::quantity;
use crate::control::spec::{LIST_ENTRIES_MAX, SessionSpec, SpecError};
use serde::{Deserialize, Serialize};
use weir_admission::{DeclaredService, Name};
use weir_session::services::{Payer, ServiceOffer, ServiceUse};
use weir_units::{Bytes, Nanos};

/// A service that a session offers. The first module of the session whose manifest has a service of this name serves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfferSpec {
    /// Name of the service.
    #[serde(with = "quantity::text")]
    pub service: Name,
    /// Sessions that may call the service.
    #[serde(with = "bounded_list::texts")]
    pub callers: Vec<Name>,
    /// Maximum number of waiting calls of each calling session.
    #[serde(default = "queue_default")]
    pub queue: u32,
    /// Session that pays for a call's CPU time.
    #[serde(default)]
    pub payer: CallPayer,
}

fn queue_default() -> u32 {
    16
}

/// The session that pays for the CPU time of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallPayer {
    /// The called session.
    #[default]
    Callee,
    /// The calling session, up to the `cost_max` of its use.
    Caller,
}

/// A service that a session uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UseSpec {
    /// Name of the service in the caller's manifest and in the offer.
    #[serde(with = "quantity::text")]
    pub service: Name,
    /// Session that offers the service.
    #[serde(with = "quantity::text")]
    pub session: Name,
    /// The most CPU time that the calling session pays for a call; nothing by default.
    #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
    pub cost_max: Option<Nanos>,
}

impl SessionSpec {
    /// Returns the session's use of a service: the providing session, and the most CPU time that this session pays for a
    /// call. `None` if the session does not use the service.
    pub fn service_use(&self, service: &Name) -> Option<ServiceUse> {
        let used = self.uses.iter().find(|used| used.service == *service)?;
        Some(ServiceUse { provider: used.session.clone(), service: service.clone(), pays: used.cost_max })
    }

    /// Returns the offers of a module whose manifest has these services: name, index in the manifest, and terms of each.
    pub fn module_offers(&self, services: &[DeclaredService]) -> Vec<(Name, u32, ServiceOffer)> {
        let bytes = |bytes: Bytes| u32::try_from(bytes.0).unwrap_or(u32::MAX);
        let terms = |(number, service): (u32, &DeclaredService)| {
            let offer = self.offers.iter().find(|offer| offer.service == service.name)?;
            let payer = match offer.payer {
                CallPayer::Callee => Payer::Callee,
                CallPayer::Caller => Payer::Caller,
            };
            let (callers, queue) = (offer.callers.clone(), offer.queue);
            let (request, answer) = (bytes(service.request), bytes(service.answer));
            Some((service.name.clone(), number, ServiceOffer { callers, queue, request, answer, payer }))
        };
        (0..).zip(services).filter_map(terms).collect()
    }
}

impl OfferSpec {
    pub(crate) fn check(&self, session: &Name) -> Result<(), SpecError> {
        if (1..=weir_abi::limit::CALLS).contains(&self.queue) && self.callers.len() <= LIST_ENTRIES_MAX {
            return Ok(());
        }
        let is_queue_wrong = self.callers.len() <= LIST_ENTRIES_MAX;
        Err(SpecError::Range {
            session: session.clone(),
            what: "offer",
            name: self.service.clone(),
            key: if is_queue_wrong { "queue" } else { "callers" },
            given: if is_queue_wrong { self.queue.to_string() } else { self.callers.len().to_string() },
            wanted: if is_queue_wrong {
                format!("between 1 and {} calls", weir_abi::limit::CALLS)
            } else {
                format!("at most {LIST_ENTRIES_MAX} sessions")
            },
        })
    }
}

/// Returns the reason why a session cannot call a service that it uses, or `None` if it can. `sessions` are all
/// sessions. A session that is created later may offer the service.
pub fn reason_service_unavailable(
    user: &SessionSpec,
    used: &UseSpec,
    sessions: &[SessionSpec],
) -> Option<String> {
    let UseSpec { service, session: provider, .. } = used;
    let Some(offering) = sessions.iter().find(|session| session.name == *provider) else {
        return Some(format!(
            "it uses service `{service}` of session `{provider}`, but there is no session `{provider}`"
        ));
    };
    let Some(offer) = offering.offers.iter().find(|offer| offer.service == *service) else {
        return Some(format!("it uses service `{service}` of session `{provider}`, which does not offer it"));
    };
    if !offer.callers.contains(&user.name) {
        return Some(format!(
            "it uses service `{service}`, which session `{provider}` offers only to the sessions in its `callers`"
        ));
    }
    (offer.payer == CallPayer::Caller && used.cost_max.is_none()).then(|| {
        format!(
            "it uses service `{service}` of session `{provider}`, whose callers pay, and states no `cost_max`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::spec::Change;

    fn session(text: &str) -> SessionSpec {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn the_reason_why_a_service_is_unavailable_is_found() {
        let alice = |of: &str, more: &str| {
            session(&format!(
                "name = \"alice\"\nuse = [{{ service = \"lookup\", session = \"{of}\"{more} }}]"
            ))
        };
        let offers = |name: &str, more: &str| {
            session(&format!("name = \"{name}\"\noffer = [{{ service = \"lookup\", {more} }}]"))
        };
        let all = [
            offers("free", "callers = [\"bob\", \"alice\"]"),
            offers("dear", "callers = [\"alice\"], payer = \"caller\""),
            offers("closed", "callers = [\"bob\"]"),
            session("name = \"silent\""),
        ];
        for (user, says) in [
            (alice("free", ""), None),
            (alice("dear", ", cost_max = \"1ms\""), None),
            (alice("dear", ""), Some("whose callers pay")),
            (alice("closed", ""), Some("offers only to the sessions in its `callers`")),
            (alice("silent", ""), Some("which does not offer it")),
            (alice("missing", ""), Some("but there is no session `missing`")),
        ] {
            let found = reason_service_unavailable(&user, &user.uses[0], &all);
            assert_eq!(found.is_some(), says.is_some(), "{found:?}");
            assert!(found.unwrap_or_default().contains(says.unwrap_or_default()));
        }
    }

    #[test]
    fn services_are_added_changed_and_withdrawn_and_a_missing_one_is_an_error() {
        let mut spec = session(
            "name = \"a\"\noffer = [{ service = \"old\", callers = [] }, { service = \"s\", callers = [] }]",
        );
        let change = |text: &str| serde_json::from_str::<Change>(text).unwrap();
        let first = r#"{"session": "a", "offer": [{"service": "s", "callers": ["b"], "queue": 3}, {"service": "new", "callers": []}],
            "remove_offer": ["old"], "use": [{"service": "s", "session": "b"}]}"#;
        spec = spec.changed(&change(first)).unwrap();
        let offers: Vec<_> = spec.offers.iter().map(|offer| (offer.service.as_str(), offer.queue)).collect();
        assert_eq!((offers, spec.uses.len()), (vec![("s", 3), ("new", 16)], 1));
        spec = spec.changed(&change(r#"{"session": "a", "remove_use": ["s"]}"#)).unwrap();
        assert!(spec.uses.is_empty());
        let error = spec.changed(&change(r#"{"session": "a", "remove_offer": ["old"]}"#)).unwrap_err();
        assert!(error.to_string().contains("there is no offer `old`; there is s, new"), "{error}");
    }
}
