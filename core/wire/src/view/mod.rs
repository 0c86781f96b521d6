//! Views: what the holder of a channel may see of a packet.
//!
//! A [`PacketView`] says which parts of a packet are shown, hidden or anonymised. It can be written down, said in words, and held against
//! another one: of two views there is the most restrictive of both, so what is passed on is never more than what was given. A [`Transform`] applies it
//! to packets.

mod anonymise;
mod asked;
mod control;
mod crypto_pan;
mod field;
mod ipcrypt_pfx;
mod key;
mod multipath;
mod network;
mod scene;
mod text;
mod transform;
mod tunnel;
mod upper;
mod words;

pub use asked::RequestedView;
pub use field::{Fields, ZeroedField};
pub use key::ViewKey;
pub use text::ViewError;
pub use transform::{ShownPart, Transform};

/// What may be seen of a packet. Its parts are independent; of each, what is less is smaller.
///
/// As text it is `all`, or a list such as `payload=none,addresses=anonymised,macs=zeroed,ttl=zeroed`: see the implementation of
/// [`FromStr`](std::str::FromStr).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PacketView {
    /// What is above the last header.
    pub payload: Payload,
    /// IP addresses, wherever there are any in headers.
    pub addresses: Addresses,
    /// Hardware addresses, wherever there are any in headers.
    pub macs: Exposure,
    /// TCP and UDP ports, also those that multipath TCP announces.
    pub ports: Exposure,
    /// Fields of headers that are zeroed.
    pub zeroed: Fields,
}

/// What is shown of the payload: of everything above the last header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Payload {
    /// At most so many bytes.
    First(u32),
    /// All of it.
    All,
}

impl Payload {
    /// Nothing but headers.
    pub const NONE: Self = Self::First(0);
}

/// What is shown of IP addresses.
///
/// [`CryptoPan`](Self::CryptoPan) shows more than [`Anonymised`](Self::Anonymised): parts of addresses can be computed from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Addresses {
    /// Zeros stand for them.
    Zeroed,
    /// Others stand for them: two that have their first n bits in common have others that have so too (ipcrypt-pfx).
    Anonymised,
    /// The same by an earlier construction, Crypto-PAn, of which eight known addresses reveal the better part of a secret pad.
    CryptoPan,
    /// They are as they are.
    Visible,
}

/// Whether something is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Exposure {
    /// Zeros stand for it.
    Zeroed,
    /// It is as it is.
    Visible,
}

impl PacketView {
    /// Everything, as it is.
    pub const ALL: Self = Self {
        payload: Payload::All,
        addresses: Addresses::Visible,
        macs: Exposure::Visible,
        ports: Exposure::Visible,
        zeroed: Fields::NONE,
    };

    /// Headers as they are, and nothing else.
    pub const HEADERS: Self = Self { payload: Payload::NONE, ..Self::ALL };

    /// Headers with other IP addresses and without hardware addresses: what can be given to people who are to learn about traffic, and nothing
    /// about those who send it.
    pub const ANONYMISED: Self =
        Self { addresses: Addresses::Anonymised, macs: Exposure::Zeroed, ..Self::HEADERS };

    /// The most restrictive of both: what may be seen of a packet by somebody whom both views bind. Which of them comes first, and how
    /// several are put together, makes no difference.
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

    /// Whether this view shows nothing that `other` does not show.
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
            .prop_map(|fields| fields.into_iter().collect::<Fields>());
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
        /// A meet-semilattice with [`PacketView::ALL`] on top, ordered by `is_at_most`.
        #[test]
        fn the_most_restrictive_of_both_is_what_mathematics_calls_a_meet(a in views(), b in views(), c in views()) {
            prop_assert_eq!(a.meet(&b), b.meet(&a));
            prop_assert_eq!(a.meet(&b).meet(&c), a.meet(&b.meet(&c)));
            prop_assert_eq!(a.meet(&a), a);
            prop_assert_eq!(a.meet(&PacketView::ALL), a);
            prop_assert!(a.meet(&b).is_at_most(&a) && a.meet(&b).is_at_most(&b));
            prop_assert_eq!(c.is_at_most(&a) && c.is_at_most(&b), c.is_at_most(&a.meet(&b)));
            prop_assert_eq!(a.is_at_most(&b) && b.is_at_most(&a), a == b);
        }

        /// Each part alone decides.
        #[test]
        fn what_shows_more_in_one_part_is_not_at_most_the_other(view in views()) {
            let wider = [
                PacketView { payload: Payload::All, ..view },
                PacketView { addresses: Addresses::Visible, ..view },
                PacketView { macs: Exposure::Visible, ..view },
                PacketView { ports: Exposure::Visible, ..view },
                PacketView { zeroed: Fields::NONE, ..view },
            ];
            for wider in wider.into_iter().filter(|wider| *wider != view) {
                prop_assert!(view.is_at_most(&wider) && !wider.is_at_most(&view), "{wider} and {view}");
            }
        }
    }

    #[test]
    fn a_meet_takes_the_less_of_each_part() {
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
