//! Which address stands for which: [Crypto-PAn](super::crypto_pan), with what is precomputed and remembered to make it fast, and the addresses that
//! name nobody.
//!
//! Addresses that mean the same everywhere are left as they are (RFC 6235, section 7.2, recommends it: what stood for them would be recognised by when it
//! occurs, and would so tell how the addresses were made that have a prefix in common with them): in IPv4 0.0.0.0, 127.0.0.1, 255.255.255.255 and
//! 224.0.0.0/24; in IPv6 ::, ::1 and the permanently assigned groups ff0x::0 to ff0x::1:ffff. An IPv6 group stays one of its kind and scope, with
//! anonymised rest, since groups can have a network's prefix in them; of a solicited-node group the last three bytes, which are those of an address,
//! become 0. fe80::/64 stays, with anonymised interface. All others are anonymised as they are: private ones, link-local and multicast ones of
//! IPv4, and those that have another address in them (6to4, Teredo, NAT64, EUI-64).
//!
//! So that no two addresses become one, what would become one of those of IPv4 that stay is anonymised once more. That concerns 259 of 2^32
//! addresses, and only they have no prefix in common with their neighbours.

use super::crypto_pan::CryptoPan;
use super::key::ViewKey;
use weir_units::Bytes;

/// Addresses of IPv4 that are remembered: 128 KiB.
const RECENT_V4: usize = 1 << 14;
/// Addresses of IPv6 that are remembered: 128 KiB.
const RECENT_V6: usize = 1 << 12;
/// Upper halves of IPv6 addresses that are remembered: 32 KiB.
const NETWORKS_V6: usize = 1 << 11;

/// Fractional digits of the golden ratio: spreads neighbours over a table.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Anonymises addresses. What it remembers has a fixed size, so that no sequence of addresses makes it grow: see the constants.
#[derive(Clone, Debug)]
pub(super) struct Anonymiser {
    v4: CryptoPan,
    /// The flips of the first 16 bits of IPv4 addresses: 128 KiB.
    upper_v4: Box<[u16]>,
    recent_v4: Box<[(u32, u32)]>,
    v6: CryptoPan,
    networks_v6: Box<[(u64, u64)]>,
    recent_v6: Box<[(u128, u128)]>,
}

impl Anonymiser {
    pub(super) fn new(key: &ViewKey) -> Self {
        let (v4, v6) = (CryptoPan::new(&key.v4), CryptoPan::new(&key.v6));
        // Every place of a table holds a true pair from the start on, so that none has to be marked as empty. 0.0.0.0 and :: are never looked up.
        let network = (0, high_half(v6.flips::<64>(0, 0) << 64));
        Self {
            upper_v4: v4.upper_halves(),
            recent_v4: vec![(0, 0); RECENT_V4].into_boxed_slice(),
            networks_v6: vec![network; NETWORKS_V6].into_boxed_slice(),
            recent_v6: vec![(0, 0); RECENT_V6].into_boxed_slice(),
            v4,
            v6,
        }
    }

    /// What its tables take.
    pub(super) fn memory(&self) -> Bytes {
        let bytes = size_of_val(&*self.upper_v4)
            + size_of_val(&*self.recent_v4)
            + size_of_val(&*self.networks_v6)
            + size_of_val(&*self.recent_v6);
        Bytes(bytes as u64)
    }

    /// What stands for an IPv4 address.
    #[inline(always)]
    pub(super) fn ipv4(&mut self, address: u32) -> u32 {
        let place = slot::<RECENT_V4>(u64::from(address));
        match self.recent_v4.get(place) {
            Some(&(known, anonymised)) if known == address => anonymised,
            _ => self.new_ipv4(address, place),
        }
    }

    #[cold]
    #[inline(never)]
    fn new_ipv4(&mut self, address: u32, place: usize) -> u32 {
        let mut anonymised = address;
        if !stays_v4(address) {
            anonymised = self.flipped_v4(address);
            // No address has two predecessors, so this ends: at the latest where it began, which is none that stays.
            while stays_v4(anonymised) {
                anonymised = self.flipped_v4(anonymised);
            }
        }
        if let Some(place) = self.recent_v4.get_mut(place) {
            *place = (address, anonymised);
        }
        anonymised
    }

    fn flipped_v4(&self, address: u32) -> u32 {
        let [.., a, b] = self.v4.flips::<16>(u128::from(address) << 96, 16).to_be_bytes();
        let [c, d, ..] = address.to_be_bytes();
        let upper = self.upper_v4.get(usize::from(u16::from_be_bytes([c, d]))).copied().unwrap_or(0);
        address ^ (u32::from(upper) << 16 | u32::from(u16::from_be_bytes([a, b])))
    }

    /// What stands for an IPv6 address.
    #[inline(always)]
    pub(super) fn ipv6(&mut self, address: u128) -> u128 {
        let place = slot::<RECENT_V6>(high_half(address) ^ low_half(address).rotate_left(29));
        match self.recent_v6.get(place) {
            Some(&(known, anonymised)) if known == address => anonymised,
            _ => self.new_ipv6(address, place),
        }
    }

    #[cold]
    #[inline(never)]
    fn new_ipv6(&mut self, address: u128, place: usize) -> u128 {
        let anonymised = match kind_v6(address) {
            KindV6::Stays => address,
            KindV6::Solicited => address & !0xff_ffff,
            KindV6::Keeps(bits) => {
                let kept = !(u128::MAX >> bits);
                address & kept | self.flipped_v6(address) & !kept
            }
        };
        if let Some(place) = self.recent_v6.get_mut(place) {
            *place = (address, anonymised);
        }
        anonymised
    }

    fn flipped_v6(&mut self, address: u128) -> u128 {
        let network = high_half(address);
        let place = slot::<NETWORKS_V6>(network);
        let upper = match self.networks_v6.get(place) {
            Some(&(known, flips)) if known == network => flips,
            _ => {
                let flips = high_half(self.v6.flips::<64>(address, 0) << 64);
                if let Some(place) = self.networks_v6.get_mut(place) {
                    *place = (network, flips);
                }
                flips
            }
        };
        address ^ (u128::from(upper) << 64 | self.v6.flips::<64>(address, 64))
    }
}

/// A place in a table with `N` places, a power of two.
#[inline(always)]
fn slot<const N: usize>(value: u64) -> usize {
    const { assert!(N.is_power_of_two()) }
    let hash = value.wrapping_mul(SPREAD) >> (64 - N.trailing_zeros());
    usize::try_from(hash).unwrap_or(0)
}

#[inline(always)]
fn high_half(value: u128) -> u64 {
    low_half(value >> 64)
}

#[inline(always)]
fn low_half(value: u128) -> u64 {
    u64::try_from(value & u128::from(u64::MAX)).unwrap_or(0)
}

/// Whether an IPv4 address means the same everywhere.
#[inline(always)]
fn stays_v4(address: u32) -> bool {
    matches!(address, 0 | 0x7f00_0001 | 0xe000_0000..=0xe000_00ff | u32::MAX)
}

/// The prefix of the groups that [`KindV6::Solicited`] means, of 104 bits.
const SOLICITED_NODE: u128 = 0xff02_0000_0000_0000_0000_0001_ff00_0000;

enum KindV6 {
    /// It means the same everywhere.
    Stays,
    /// The group of all whose addresses end in the same three bytes (RFC 4291, 2.7.1).
    Solicited,
    /// So many bits say what kind of an address it is.
    Keeps(u32),
}

fn kind_v6(address: u128) -> KindV6 {
    let is_assigned_group = address >> 116 == 0xff0 && address << 16 >> 33 == 0;
    if address <= 1 || is_assigned_group {
        KindV6::Stays
    } else if address >> 24 == SOLICITED_NODE >> 24 {
        KindV6::Solicited
    } else if address >> 120 == 0xff {
        KindV6::Keeps(16)
    } else if address >> 64 == 0xfe80_0000_0000_0000 {
        KindV6::Keeps(64)
    } else {
        KindV6::Keeps(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn anonymiser() -> Anonymiser {
        Anonymiser::new(&ViewKey::derive(&[7; 32], b"test"))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Random pairs that have their first bits in common, and pairs that have none: what they have in common is the same afterwards. Each is looked
        /// at twice, when it is new and when it is remembered.
        #[test]
        fn prefixes_are_preserved(pairs in prop::collection::vec((any::<u128>(), any::<u128>(), 0..128u32), 200)) {
            let mut anonymiser = anonymiser();
            for _ in 0..2 {
                for &(first, other, common) in &pairs {
                    let other = first ^ (other >> common);
                    let (a, b) = (first >> 96, other >> 96);
                    let (a, b) = (u32::try_from(a).unwrap(), u32::try_from(b).unwrap());
                    if !stays_v4(a) && !stays_v4(b) {
                        let after = anonymiser.ipv4(a) ^ anonymiser.ipv4(b);
                        prop_assert_eq!(after.leading_zeros(), (a ^ b).leading_zeros());
                    }
                    if first >> 120 != 0xff && other >> 120 != 0xff {
                        let after = anonymiser.ipv6(first) ^ anonymiser.ipv6(other);
                        prop_assert_eq!(after.leading_zeros(), (first ^ other).leading_zeros());
                    }
                }
            }
        }

        /// What is remembered changes nothing.
        #[test]
        fn it_is_crypto_pan(v4: u32, v6: u128) {
            let key = ViewKey::derive(&[7; 32], b"test");
            let mut anonymiser = Anonymiser::new(&key);
            let v6 = v6 >> 1;
            let flips = CryptoPan::new(&key.v6).flips::<128>(v6, 0);
            prop_assert_eq!(anonymiser.ipv6(v6), v6 ^ flips);
            let flips = CryptoPan::new(&key.v4).flips::<32>(u128::from(v4) << 96, 0);
            let plain = v4 ^ u32::try_from(flips).unwrap();
            prop_assume!(!stays_v4(v4) && !stays_v4(plain));
            prop_assert_eq!(anonymiser.ipv4(v4), plain);
        }
    }

    #[test]
    fn addresses_that_name_nobody_stay_and_nothing_becomes_one_of_them() {
        let mut anonymiser = anonymiser();
        for stays in ["0.0.0.0", "127.0.0.1", "255.255.255.255", "224.0.0.0", "224.0.0.251", "224.0.0.255"] {
            let address = u32::from(stays.parse::<Ipv4Addr>().unwrap());
            assert_eq!(anonymiser.ipv4(address), address, "{stays}");
            // Whatever would become it becomes something else.
            let before = (0..32).fold(address, |before, bit| {
                let flips = anonymiser.v4.flips::<32>(u128::from(before) << 96, 0);
                before ^ (u32::try_from(flips).unwrap() ^ before ^ address) & 1 << (31 - bit)
            });
            assert_eq!(
                before ^ address,
                u32::try_from(anonymiser.v4.flips::<32>(u128::from(before) << 96, 0)).unwrap()
            );
            assert!(stays_v4(before) || !stays_v4(anonymiser.ipv4(before)), "{stays}");
        }
        for stays in ["::", "::1", "ff02::1", "ff02::fb", "ff05::1:3", "ff02::1:2"] {
            let address = u128::from(stays.parse::<Ipv6Addr>().unwrap());
            assert_eq!(anonymiser.ipv6(address), address, "{stays}");
        }
        for changes in ["10.0.0.1", "169.254.1.1", "239.1.2.3", "224.0.1.1", "127.0.0.2", "1.2.3.4"] {
            let address = u32::from(changes.parse::<Ipv4Addr>().unwrap());
            assert_ne!(anonymiser.ipv4(address), address, "{changes}");
        }
    }

    #[test]
    fn groups_stay_groups_and_link_local_stays_so_without_what_they_tell_of_a_host() {
        let mut anonymiser = anonymiser();
        let mut of = |text: &str| Ipv6Addr::from(anonymiser.ipv6(text.parse::<Ipv6Addr>().unwrap().into()));
        assert_eq!(of("ff02::1:ff12:3456"), "ff02::1:ff00:0".parse::<Ipv6Addr>().unwrap());
        let group = of("ff3e:40:2001:db8:1:2:8000:1");
        assert_eq!(group.segments()[0], 0xff3e);
        assert!((1..8).all(|i| group.segments()[i]
            != "ff3e:40:2001:db8:1:2:8000:1".parse::<Ipv6Addr>().unwrap().segments()[i]));
        let local = of("fe80::0211:22ff:fe33:4455");
        assert_eq!(local.segments()[..4], [0xfe80, 0, 0, 0]);
        assert!(!local.to_string().contains("ff:fe"), "{local}");
    }

    #[test]
    fn no_two_addresses_become_one() {
        let mut anonymiser = anonymiser();
        let v4: HashSet<u32> =
            (0..200_000_u32).map(|i| anonymiser.ipv4(i.wrapping_mul(0x9e37_79b1))).collect();
        assert_eq!(v4.len(), 200_000);
        let v6: HashSet<u128> =
            (0..20_000_u128).map(|i| anonymiser.ipv6(0x2001_0db8 << 96 | i << 60 | i)).collect();
        assert_eq!(v6.len(), 20_000);
    }

    #[test]
    fn another_key_or_label_gives_other_addresses() {
        let keys = [
            ViewKey::derive(&[7; 32], b"test"),
            ViewKey::derive(&[8; 32], b"test"),
            ViewKey::derive(&[7; 32], b"tess"),
        ];
        let all: HashSet<(u32, u128)> = keys
            .iter()
            .map(|key| {
                let mut anonymiser = Anonymiser::new(key);
                (anonymiser.ipv4(0x0102_0304), anonymiser.ipv6(0x2001_0db8 << 96 | 1))
            })
            .collect();
        assert_eq!(all.len(), 3);
    }
}
