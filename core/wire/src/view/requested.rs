//! A view as somebody asks for it.

use super::text::unnamed;
use super::{Addresses, Exposure, Fields, PacketView, Payload, ZeroedField};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// A view as somebody asks for it who may see a part of packets: of a part that is not named, he gets what he may see. So `ports=zeroed` takes the ports away
/// from whatever view he has, and `payload=all` asks for all payload. As text it is what a [`PacketView`] is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RequestedView {
    pub(super) payload: Option<Payload>,
    pub(super) addresses: Option<Addresses>,
    pub(super) macs: Option<Exposure>,
    pub(super) ports: Option<Exposure>,
    /// Fields that are named, and
    pub(super) named: Fields,
    /// of these, what is zeroed.
    pub(super) zeroed: Fields,
}

impl RequestedView {
    /// Every part is named, and visible: `all`.
    pub(super) const EVERYTHING: Self = Self {
        payload: Some(Payload::All),
        addresses: Some(Addresses::Visible),
        macs: Some(Exposure::Visible),
        ports: Some(Exposure::Visible),
        named: Fields::ALL,
        zeroed: Fields::NONE,
    };

    /// What it is for somebody who may see everything.
    pub fn alone(&self) -> PacketView {
        let addresses = self.addresses.unwrap_or(Addresses::Visible);
        let (payload, macs) = unnamed(addresses);
        PacketView {
            payload: self.payload.unwrap_or(payload),
            addresses,
            macs: self.macs.unwrap_or(macs),
            ports: self.ports.unwrap_or(Exposure::Visible),
            zeroed: self.zeroed,
        }
    }

    /// What it is for somebody who may see `given`, never more than that; nothing where a part is named that shows more.
    pub fn under(&self, given: &PacketView) -> Option<PacketView> {
        let is_more = self.payload.is_some_and(|payload| payload > given.payload)
            || self.addresses.is_some_and(|addresses| addresses > given.addresses)
            || self.macs.is_some_and(|macs| macs > given.macs)
            || self.ports.is_some_and(|ports| ports > given.ports)
            || given.zeroed.iter().any(|field| self.named.has(field) && !self.zeroed.has(field));
        (!is_more).then(|| self.alone().meet(given))
    }
}

impl From<PacketView> for RequestedView {
    /// Every part is named.
    fn from(view: PacketView) -> Self {
        Self {
            payload: Some(view.payload),
            addresses: Some(view.addresses),
            macs: Some(view.macs),
            ports: Some(view.ports),
            named: Fields::ALL,
            zeroed: view.zeroed,
        }
    }
}

impl fmt::Display for RequestedView {
    /// A text that is this again.
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
    /// As its text.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RequestedView {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Fields {
    /// All of them.
    const ALL: Self = Self::first(ZeroedField::ALL.len());
}

#[cfg(test)]
mod tests {
    use super::super::tests::views;
    use super::*;
    use proptest::prelude::*;

    fn asked() -> impl Strategy<Value = RequestedView> {
        (views(), any::<[bool; 4]>(), prop::collection::vec(prop::sample::select(ZeroedField::ALL), 0..5))
            .prop_map(|(view, [payload, addresses, macs, ports], named)| {
                let named: Fields = named.into_iter().collect();
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
            .prop_filter("nothing is no text", |asked| *asked != RequestedView::default())
    }

    proptest! {
        #[test]
        fn nobody_gets_more_than_is_given_whatever_is_asked(asked in asked(), given in views()) {
            match asked.under(&given) {
                Some(view) => {
                    prop_assert!(view.is_at_most(&given), "{asked} of {given} is {view}");
                    prop_assert_eq!(view, asked.alone().meet(&given));
                }
                // Something is named that is not given.
                None => prop_assert!(!asked.alone().is_at_most(&given), "{asked} of {given}"),
            }
            prop_assert_eq!(asked.under(&PacketView::ALL), Some(asked.alone()));
        }

        #[test]
        fn a_whole_view_is_refused_where_it_is_more_and_else_is_what_was_asked(view in views(), given in views()) {
            let whole = RequestedView::from(view).under(&given);
            prop_assert_eq!(whole, view.is_at_most(&given).then_some(view));
        }

        #[test]
        fn what_is_asked_is_written_as_it_is_read(asked in asked(), view in views()) {
            prop_assert_eq!(asked.to_string().parse::<RequestedView>(), Ok(asked));
            prop_assert_eq!(view.to_string().parse::<RequestedView>().unwrap().alone(), view);
            let whole = RequestedView::from(view);
            prop_assert_eq!(whole.to_string().parse::<RequestedView>(), Ok(whole));
        }
    }

    #[test]
    fn what_is_not_named_is_as_it_is_given_and_what_is_named_must_not_be_more() {
        let given: PacketView = "payload=16,ttl=zeroed".parse().unwrap();
        let under =
            |text: &str| text.parse::<RequestedView>().unwrap().under(&given).map(|view| view.to_string());
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
