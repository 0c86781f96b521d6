//! Requested views.

use super::text::defaults_for;
use super::{Addresses, Exposure, PacketView, Payload, ZeroedField, ZeroedFields};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// A view that a session requests, with the same text form as a [`PacketView`]. A component that the request does not
/// name is as granted. There is one exception: if the request hides addresses, it also hides payload and hardware
/// addresses that it does not name. So `ports=zeroed` removes the ports from any granted view, and `payload=all`
/// requests all payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RequestedView {
    pub(super) payload: Option<Payload>,
    pub(super) addresses: Option<Addresses>,
    pub(super) macs: Option<Exposure>,
    pub(super) ports: Option<Exposure>,
    /// The fields that the request names.
    pub(super) named: ZeroedFields,
    /// The named fields that are zeroed.
    pub(super) zeroed: ZeroedFields,
}

impl RequestedView {
    /// Every component is named and visible: `all`.
    pub(super) const EVERYTHING: Self = Self {
        payload: Some(Payload::All),
        addresses: Some(Addresses::Visible),
        macs: Some(Exposure::Visible),
        ports: Some(Exposure::Visible),
        named: ZeroedFields::ALL,
        zeroed: ZeroedFields::NONE,
    };

    /// The view that the request gives a session that may see everything.
    pub fn unrestricted(&self) -> PacketView {
        let addresses = self.addresses.unwrap_or(Addresses::Visible);
        let (payload, macs) = defaults_for(addresses);
        PacketView {
            payload: self.payload.unwrap_or(payload),
            addresses,
            macs: self.macs.unwrap_or(macs),
            ports: self.ports.unwrap_or(Exposure::Visible),
            zeroed: self.zeroed,
        }
    }

    /// The view that the request gives a session that may see `granted`. It never shows more than `granted`. `None` if
    /// the request names a component that would show more.
    pub fn within(&self, granted: &PacketView) -> Option<PacketView> {
        let exceeds_grant = self.payload.is_some_and(|payload| payload > granted.payload)
            || self.addresses.is_some_and(|addresses| addresses > granted.addresses)
            || self.macs.is_some_and(|macs| macs > granted.macs)
            || self.ports.is_some_and(|ports| ports > granted.ports)
            || granted.zeroed.iter().any(|field| self.named.has(field) && !self.zeroed.has(field));
        (!exceeds_grant).then(|| self.unrestricted().meet(granted))
    }
}

impl From<PacketView> for RequestedView {
    /// Names every component.
    fn from(view: PacketView) -> Self {
        Self {
            payload: Some(view.payload),
            addresses: Some(view.addresses),
            macs: Some(view.macs),
            ports: Some(view.ports),
            named: ZeroedFields::ALL,
            zeroed: view.zeroed,
        }
    }
}

impl fmt::Display for RequestedView {
    /// Writes a text that parses to the same request.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::EVERYTHING {
            return f.write_str("all");
        }
        let exposure = |exposure| if exposure == Exposure::Visible { "visible" } else { "zeroed" };
        let mut parts = Vec::new();
        parts.extend(self.payload.map(|payload| match payload {
            Payload::All => "payload=all".to_owned(),
            Payload::NONE => "payload=none".to_owned(),
            Payload::First(bytes) => format!("payload={bytes}"),
        }));
        parts.extend(self.addresses.map(|addresses| match addresses {
            Addresses::Visible => "addresses=visible".to_owned(),
            Addresses::Anonymised => "addresses=anonymised".to_owned(),
            Addresses::CryptoPan => "addresses=crypto-pan".to_owned(),
            Addresses::Zeroed => "addresses=zeroed".to_owned(),
        }));
        parts.extend(self.macs.map(|macs| format!("macs={}", exposure(macs))));
        parts.extend(self.ports.map(|ports| format!("ports={}", exposure(ports))));
        for field in self.named.iter() {
            let shown = if self.zeroed.has(field) { Exposure::Zeroed } else { Exposure::Visible };
            parts.push(format!("{}={}", field.name(), exposure(shown)));
        }
        f.write_str(&parts.join(","))
    }
}

impl Serialize for RequestedView {
    /// Serialises the text.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RequestedView {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl ZeroedFields {
    /// All fields.
    const ALL: Self = Self::first(ZeroedField::ALL.len());
}

#[cfg(test)]
mod tests {
    use super::super::tests::views;
    use super::*;
    use proptest::prelude::*;

    fn requested() -> impl Strategy<Value = RequestedView> {
        (views(), any::<[bool; 4]>(), prop::collection::vec(prop::sample::select(ZeroedField::ALL), 0..5))
            .prop_map(|(view, [payload, addresses, macs, ports], named)| {
                let named: ZeroedFields = named.into_iter().collect();
                let zeroed = view.zeroed.iter().filter(|field| named.has(*field)).collect();
                RequestedView {
                    payload: payload.then_some(view.payload),
                    addresses: addresses.then_some(view.addresses),
                    macs: macs.then_some(view.macs),
                    ports: ports.then_some(view.ports),
                    named,
                    zeroed,
                }
            })
            .prop_filter("nothing is no text", |requested| *requested != RequestedView::default())
    }

    proptest! {
        #[test]
        fn a_view_never_exceeds_the_granted_one_whatever_is_requested(requested in requested(), granted in views()) {
            match requested.within(&granted) {
                Some(view) => {
                    prop_assert!(view.is_at_most(&granted), "{requested} of {granted} is {view}");
                    prop_assert_eq!(view, requested.unrestricted().meet(&granted));
                }
                // A named component shows more than granted.
                None => prop_assert!(!requested.unrestricted().is_at_most(&granted), "{requested} of {granted}"),
            }
            prop_assert_eq!(requested.within(&PacketView::ALL), Some(requested.unrestricted()));
        }

        #[test]
        fn a_complete_view_is_refused_if_it_shows_more_and_else_is_as_requested(view in views(), granted in views()) {
            let whole = RequestedView::from(view).within(&granted);
            prop_assert_eq!(whole, view.is_at_most(&granted).then_some(view));
        }

        #[test]
        fn a_request_is_parsed_from_its_own_text(requested in requested(), view in views()) {
            prop_assert_eq!(requested.to_string().parse::<RequestedView>(), Ok(requested));
            prop_assert_eq!(view.to_string().parse::<RequestedView>().unwrap().unrestricted(), view);
            let whole = RequestedView::from(view);
            prop_assert_eq!(whole.to_string().parse::<RequestedView>(), Ok(whole));
        }
    }

    #[test]
    fn components_not_named_are_as_granted_and_named_ones_must_not_show_more() {
        let granted: PacketView = "payload=16,ttl=zeroed".parse().unwrap();
        let under =
            |text: &str| text.parse::<RequestedView>().unwrap().within(&granted).map(|view| view.to_string());
        assert_eq!(under("ports=zeroed").as_deref(), Some("payload=16,ports=zeroed,ttl=zeroed"));
        assert_eq!(under("payload=8").as_deref(), Some("payload=8,ttl=zeroed"));
        assert_eq!(
            under("addresses=anonymised").as_deref(),
            Some("payload=none,addresses=anonymised,macs=zeroed,ttl=zeroed")
        );
        for more in ["all", "payload=all", "payload=17", "ports=zeroed,ttl=visible"] {
            assert_eq!(under(more), None, "{more}");
        }
    }
}
