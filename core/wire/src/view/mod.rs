//! Views: the part of a packet that the holder of a channel may see.
//!
//! A [`PacketView`] defines which parts of a packet are visible, hidden or anonymised. It has a text form and a
//! description in words, and views can be compared. The *meet* of two views shows only the parts of a packet that both
//! show. The view of a delegated grant is the meet of the views of all grants in the chain, so it never shows
//! more than the delegating holder sees. A [`Transform`] applies a view to packets.

mod anonymise;
mod control;
mod crypto_pan;
mod field;
mod in_words;
mod ipcrypt_pfx;
mod key;
mod multipath;
mod network;
mod packet_rewriter;
mod requested;
mod text;
mod transform;
mod tunnel;
mod upper;

pub use field::{ZeroedField, ZeroedFields};
pub use key::ViewKey;
pub use requested::RequestedView;
pub use text::ViewError;
pub use transform::{ShownPart, Transform};

/// The visible part of a packet. Its components are independent, and each is ordered from less to more visible.
///
/// Its text is `all`, or a list such as `payload=none,addresses=anonymised,macs=zeroed,ttl=zeroed`: see the
/// implementation of [`FromStr`](std::str::FromStr).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PacketView {
    /// The bytes above the last header.
    pub payload: Payload,
    /// IP addresses, wherever headers contain them.
    pub addresses: Addresses,
    /// Hardware addresses, wherever headers contain them.
    pub macs: Exposure,
    /// TCP and UDP ports, including those that multipath TCP announces.
    pub ports: Exposure,
    /// Header fields that are zeroed.
    pub zeroed: ZeroedFields,
}

/// The visibility of the payload, which is everything above the last header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Payload {
    /// At most this many bytes are visible.
    First(u32),
    /// All bytes are visible.
    All,
}

impl Payload {
    /// No payload is visible.
    pub const NONE: Self = Self::First(0);
}

/// The visibility of IP addresses.
///
/// [`CryptoPan`](Self::CryptoPan) reveals more than [`Anonymised`](Self::Anonymised): parts of addresses can be
/// computed from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Addresses {
    /// Addresses are replaced by zeros.
    Zeroed,
    /// Addresses are replaced by others, and common prefixes are preserved: two addresses with exactly their first n
    /// bits in common get replacements with exactly their first n bits in common (ipcrypt-pfx).
    Anonymised,
    /// Addresses are replaced by Crypto-PAn, an older construction that preserves prefixes, too. Most of its
    /// secret pad can be computed from eight addresses that are known together with their replacements.
    CryptoPan,
    /// Addresses stay unchanged.
    Visible,
}

/// The visibility of a component that is shown or zeroed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Exposure {
    /// The component is replaced by zeros.
    Zeroed,
    /// The component stays unchanged.
    Visible,
}

impl PacketView {
    /// Everything is visible.
    pub const ALL: Self = Self {
        payload: Payload::All,
        addresses: Addresses::Visible,
        macs: Exposure::Visible,
        ports: Exposure::Visible,
        zeroed: ZeroedFields::NONE,
    };

    /// All headers are visible, and no payload.
    pub const HEADERS: Self = Self { payload: Payload::NONE, ..Self::ALL };

    /// Headers with anonymised IP addresses and without hardware addresses: a view for recipients who study traffic,
    /// but must learn nothing about its senders and receivers.
    pub const ANONYMISED: Self =
        Self { addresses: Addresses::Anonymised, macs: Exposure::Zeroed, ..Self::HEADERS };

    /// The meet of two views, the most restrictive of both: the part of a packet that is visible under both. It is
    /// commutative and associative.
    #[must_use]
    pub fn meet(&self, other: &Self) -> Self {
        Self {
            payload: self.payload.min(other.payload),
            addresses: self.addresses.min(other.addresses),
            macs: self.macs.min(other.macs),
            ports: self.ports.min(other.ports),
            zeroed: self.zeroed | other.zeroed,
        }
    }

    /// Returns true if this view shows nothing that `other` does not show.
    pub fn is_at_most(&self, other: &Self) -> bool {
        self.meet(other) == *self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(super) fn views() -> impl Strategy<Value = PacketView> {
        let payload = prop_oneof![
            Just(Payload::All),
            Just(Payload::NONE),
            (0..200u32).prop_map(Payload::First),
            any::<u32>().prop_map(Payload::First),
        ];
        let addresses = prop_oneof![
            Just(Addresses::Zeroed),
            Just(Addresses::Anonymised),
            Just(Addresses::CryptoPan),
            Just(Addresses::Visible)
        ];
        let exposure = || prop_oneof![Just(Exposure::Zeroed), Just(Exposure::Visible)];
        let zeroed = prop::collection::vec(prop::sample::select(ZeroedField::ALL), 0..5)
            .prop_map(|fields| fields.into_iter().collect::<ZeroedFields>());
        (payload, addresses, exposure(), exposure(), zeroed).prop_map(
            |(payload, addresses, macs, ports, zeroed)| PacketView {
                payload,
                addresses,
                macs,
                ports,
                zeroed,
            },
        )
    }

    proptest! {
        /// A meet-semilattice with [`PacketView::ALL`] as its top, ordered by `is_at_most`.
        #[test]
        fn the_meet_of_two_views_is_a_meet_in_the_mathematical_sense(a in views(), b in views(), c in views()) {
            prop_assert_eq!(a.meet(&b), b.meet(&a));
            prop_assert_eq!(a.meet(&b).meet(&c), a.meet(&b.meet(&c)));
            prop_assert_eq!(a.meet(&a), a);
            prop_assert_eq!(a.meet(&PacketView::ALL), a);
            prop_assert!(a.meet(&b).is_at_most(&a) && a.meet(&b).is_at_most(&b));
            prop_assert_eq!(c.is_at_most(&a) && c.is_at_most(&b), c.is_at_most(&a.meet(&b)));
            prop_assert_eq!(a.is_at_most(&b) && b.is_at_most(&a), a == b);
        }

        /// Each component alone decides.
        #[test]
        fn a_view_that_shows_more_in_one_component_is_not_at_most_the_other(view in views()) {
            let wider = [
                PacketView { payload: Payload::All, ..view },
                PacketView { addresses: Addresses::Visible, ..view },
                PacketView { macs: Exposure::Visible, ..view },
                PacketView { ports: Exposure::Visible, ..view },
                PacketView { zeroed: ZeroedFields::NONE, ..view },
            ];
            for wider in wider.into_iter().filter(|wider| *wider != view) {
                prop_assert!(view.is_at_most(&wider) && !wider.is_at_most(&view), "{wider} and {view}");
            }
        }
    }

    #[test]
    fn a_meet_takes_the_lesser_of_each_component() {
        let both =
            PacketView { payload: Payload::First(64), addresses: Addresses::Zeroed, ..PacketView::ALL }
                .meet(&PacketView { zeroed: ZeroedField::Ttl.into(), ..PacketView::ANONYMISED });
        assert_eq!(
            both,
            PacketView {
                addresses: Addresses::Zeroed,
                zeroed: ZeroedField::Ttl.into(),
                ..PacketView::ANONYMISED
            }
        );
        assert!(PacketView::ANONYMISED.is_at_most(&PacketView::HEADERS));
        assert!(!PacketView::HEADERS.is_at_most(&PacketView::ANONYMISED));
        let weaker = PacketView { addresses: Addresses::CryptoPan, ..PacketView::ANONYMISED };
        assert!(PacketView::ANONYMISED.is_at_most(&weaker) && !weaker.is_at_most(&PacketView::ANONYMISED));
    }
}
