//! Pseudonyms of addresses, by [ipcrypt-pfx](super::ipcrypt_pfx) or [Crypto-PAn](super::crypto_pan). Tables of
//! precomputed and recent results make this fast. The *flips* of an address are the XOR of the address and its
//! pseudonym: the bits in which they differ. Addresses that do not identify a host have rules of their own.
//!
//! Addresses with the same meaning everywhere stay unchanged, as RFC 6235, section 7.2, recommends: their pseudonyms
//! could be recognised by the traffic in which they occur, and would reveal the pseudonyms of addresses with common
//! prefixes. In IPv4 these are 0.0.0.0, 127.0.0.1, 255.255.255.255 and 224.0.0.0/24; in IPv6 ::, ::1 and the
//! permanently assigned groups ff0x::0 to ff0x::1:ffff.
//!
//! An IPv6 multicast group keeps its first 16 bits, which state flags and scope. Its other bits are anonymised, since
//! groups can contain a network's prefix. In a solicited-node group the last three bytes, which are those of a host's
//! address, become 0. A link-local address keeps the prefix fe80::/64, and its interface identifier is anonymised. All
//! other addresses are anonymised as a whole: private ones, link-local and multicast ones of IPv4, and those that
//! contain another address (6to4, Teredo, NAT64, EUI-64). An IPv4-mapped IPv6 address (::ffff:0:0/96) gets the mapped
//! pseudonym of the IPv4 address under ipcrypt-pfx, as the specification of ipcrypt-pfx demands; under
//! Crypto-PAn it is anonymised as a whole.
//!
//! An IPv4 address whose pseudonym would be one of the unchanged addresses is anonymised once more, so that no two
//! addresses get the same pseudonym. This second step concerns 259 of 2^32 addresses. Only the pseudonyms of these
//! addresses do not preserve common prefixes.
//!
//! The slot of an address in a cache depends on a key. Two addresses with the same slot displace each other, so looking
//! them up in turn takes longer. Without a key, these delays would reveal information about the addresses.

use super::Addresses;
use super::crypto_pan::CryptoPan;
use super::ipcrypt_pfx::{IpcryptPfx, MAPPED};
use super::key::ViewKey;
use weir_units::Bytes;

/// The number of IPv4 addresses that are cached: 128 KiB.
const RECENT_V4: usize = 1 << 14;
/// The number of IPv6 addresses that are cached: 128 KiB.
const RECENT_V6: usize = 1 << 12;
/// The number of upper halves of IPv6 addresses that are cached: 32 KiB.
const NETWORKS_V6: usize = 1 << 11;

/// The construction that decides which bits of an address are flipped.
#[derive(Clone, Debug)]
enum Scheme {
    IpcryptPfx(IpcryptPfx),
    CryptoPan { v4: CryptoPan, v6: CryptoPan },
}

impl Scheme {
    /// The flips of the first 16 bits of every IPv4 address, indexed by these bits.
    fn upper_halves_v4(&self) -> Box<[u16]> {
        match self {
            Self::IpcryptPfx(scheme) => scheme.upper_halves(),
            Self::CryptoPan { v4, .. } => v4.upper_halves(),
        }
    }

    /// The flips of the last 16 bits of an IPv4 address.
    #[inline(always)]
    fn lower_half_v4(&self, address: u32) -> u16 {
        let flips = match self {
            Self::IpcryptPfx(scheme) => scheme.flips::<16>(MAPPED | u128::from(address), 112),
            Self::CryptoPan { v4, .. } => v4.flips::<16>(u128::from(address) << 96, 16),
        };
        let [.., a, b] = flips.to_be_bytes();
        u16::from_be_bytes([a, b])
    }

    /// The flips of 64 bits of an IPv6 address: of the first ones if `from` is 0, of the last ones if it is 64.
    fn half_v6(&self, address: u128, from: u32) -> u64 {
        low_half(match self {
            Self::IpcryptPfx(scheme) => scheme.flips::<64>(address, from),
            Self::CryptoPan { v6, .. } => v6.flips::<64>(address, from),
        })
    }
}

/// An anonymiser of addresses with its caches. The caches have a fixed size, so no sequence of addresses makes them
/// grow.
#[derive(Clone, Debug)]
pub(super) struct Anonymiser {
    scheme: Scheme,
    /// The flips of the first 16 bits of IPv4 addresses: 128 KiB.
    upper_v4: Box<[u16]>,
    /// Recent IPv4 addresses, each with its pseudonym.
    recent_v4: Box<[(u32, u32)]>,
    /// Recent upper halves of IPv6 addresses, each with its flips.
    networks_v6: Box<[(u64, u64)]>,
    /// Recent IPv6 addresses, each with its pseudonym.
    recent_v6: Box<[(u128, u128)]>,
    /// The factor that spreads addresses over the slots of the caches; odd.
    spread: u64,
}

impl Anonymiser {
    /// Creates the anonymiser for a view with this visibility of addresses; `None` if they are visible or zeroed.
    pub(super) fn for_view(addresses: Addresses, key: &ViewKey) -> Option<Self> {
        match addresses {
            Addresses::Anonymised => Some(Scheme::IpcryptPfx(IpcryptPfx::new(&key.ipcrypt_pfx))),
            Addresses::CryptoPan => Some(Scheme::CryptoPan {
                v4: CryptoPan::new(&key.crypto_pan_v4),
                v6: CryptoPan::new(&key.crypto_pan_v6),
            }),
            Addresses::Zeroed | Addresses::Visible => None,
        }
        .map(|scheme| Self::new(scheme, key))
    }

    fn new(scheme: Scheme, key: &ViewKey) -> Self {
        // Every slot of a cache holds a valid pair from the start, so that no slot has to be marked as empty. 0.0.0.0
        // and :: are never looked up.
        let network = (0, scheme.half_v6(0, 0));
        let spread = key.spread.first_chunk().map_or(1, |bytes| u64::from_le_bytes(*bytes));
        Self {
            upper_v4: scheme.upper_halves_v4(),
            recent_v4: vec![(0, 0); RECENT_V4].into_boxed_slice(),
            networks_v6: vec![network; NETWORKS_V6].into_boxed_slice(),
            recent_v6: vec![(0, 0); RECENT_V6].into_boxed_slice(),
            spread: spread | 1,
            scheme,
        }
    }

    /// The memory of the tables.
    pub(super) fn memory(&self) -> Bytes {
        let bytes = size_of_val(&*self.upper_v4)
            + size_of_val(&*self.recent_v4)
            + size_of_val(&*self.networks_v6)
            + size_of_val(&*self.recent_v6);
        Bytes(bytes as u64)
    }

    /// The pseudonym of an IPv4 address.
    #[inline(always)]
    pub(super) fn ipv4(&mut self, address: u32) -> u32 {
        let slot = slot::<RECENT_V4>(u64::from(address), self.spread);
        match self.recent_v4.get(slot) {
            Some(&(known, anonymised)) if known == address => anonymised,
            _ => self.compute_ipv4(address, slot),
        }
    }

    #[cold]
    #[inline(never)]
    fn compute_ipv4(&mut self, address: u32, slot: usize) -> u32 {
        let mut anonymised = address;
        if !is_unchanged_v4(address) {
            anonymised = self.flipped_v4(address);
            // `flipped_v4` is a permutation. So the loop ends at `address` at the latest, which is not one of the
            // unchanged addresses.
            while is_unchanged_v4(anonymised) {
                anonymised = self.flipped_v4(anonymised);
            }
        }
        if let Some(entry) = self.recent_v4.get_mut(slot) {
            *entry = (address, anonymised);
        }
        anonymised
    }

    fn flipped_v4(&self, address: u32) -> u32 {
        let [a, b, ..] = address.to_be_bytes();
        let upper = self.upper_v4.get(usize::from(u16::from_be_bytes([a, b]))).copied().unwrap_or(0);
        address ^ (u32::from(upper) << 16 | u32::from(self.scheme.lower_half_v4(address)))
    }

    /// The pseudonym of an IPv6 address.
    #[inline(always)]
    pub(super) fn ipv6(&mut self, address: u128) -> u128 {
        let mixed = high_half(address).wrapping_mul(self.spread) ^ low_half(address).rotate_left(29);
        let slot = slot::<RECENT_V6>(mixed, self.spread);
        match self.recent_v6.get(slot) {
            Some(&(known, anonymised)) if known == address => anonymised,
            _ => self.compute_ipv6(address, slot),
        }
    }

    #[cold]
    #[inline(never)]
    fn compute_ipv6(&mut self, address: u128, slot: usize) -> u128 {
        let anonymised = match kind_v6(address) {
            KindV6::Stays => address,
            KindV6::Mapped(v4) if matches!(self.scheme, Scheme::IpcryptPfx(_)) => {
                MAPPED | u128::from(self.ipv4(v4))
            }
            KindV6::Mapped(_) => self.flipped_v6(address),
            KindV6::Solicited => address & !0xff_ffff,
            KindV6::Keeps(bits) => {
                let kept = !(u128::MAX >> bits);
                address & kept | self.flipped_v6(address) & !kept
            }
        };
        if let Some(entry) = self.recent_v6.get_mut(slot) {
            *entry = (address, anonymised);
        }
        anonymised
    }

    fn flipped_v6(&mut self, address: u128) -> u128 {
        let network = high_half(address);
        let slot = slot::<NETWORKS_V6>(network, self.spread);
        let upper = match self.networks_v6.get(slot) {
            Some(&(known, flips)) if known == network => flips,
            _ => {
                let flips = self.scheme.half_v6(address, 0);
                if let Some(entry) = self.networks_v6.get_mut(slot) {
                    *entry = (network, flips);
                }
                flips
            }
        };
        address ^ (u128::from(upper) << 64 | u128::from(self.scheme.half_v6(address, 64)))
    }
}

/// The slot of a value in a cache with `N` slots, a power of two.
#[inline(always)]
fn slot<const N: usize>(value: u64, spread: u64) -> usize {
    const { assert!(N.is_power_of_two()) }
    let hash = value.wrapping_mul(spread) >> (64 - N.trailing_zeros());
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

/// Returns true if an IPv4 address has the same meaning everywhere.
#[inline(always)]
fn is_unchanged_v4(address: u32) -> bool {
    matches!(address, 0 | 0x7f00_0001 | 0xe000_0000..=0xe000_00ff | u32::MAX)
}

/// The prefix of 104 bits of the groups that [`KindV6::Solicited`] stands for.
const SOLICITED_NODE: u128 = 0xff02_0000_0000_0000_0000_0001_ff00_0000;

/// The rule by which an IPv6 address is anonymised.
enum KindV6 {
    /// The address has the same meaning everywhere and stays unchanged.
    Stays,
    /// The group of all nodes whose addresses end in the same three bytes (RFC 4291, 2.7.1).
    Solicited,
    /// An IPv4-mapped address (RFC 4291, 2.5.5.2), with its IPv4 address.
    Mapped(u32),
    /// This many leading bits state the kind of the address and stay; the other bits are anonymised.
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
    } else if address >> 32 == 0xffff {
        let [.., a, b, c, d] = address.to_be_bytes();
        KindV6::Mapped(u32::from_be_bytes([a, b, c, d]))
    } else if address >> 64 == 0xfe80_0000_0000_0000 {
        KindV6::Keeps(64)
    } else {
        KindV6::Keeps(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    use proptest::prelude::*;
    use std::collections::HashSet;

    const SCHEMES: [Addresses; 2] = [Addresses::Anonymised, Addresses::CryptoPan];

    fn anonymiser(addresses: Addresses) -> Anonymiser {
        Anonymiser::for_view(addresses, &ViewKey::derive(&[7; 32], b"test")).unwrap()
    }

    fn is_mapped(address: u128) -> bool {
        address >> 32 == 0xffff
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Random pairs with some first bits in common, and pairs with none: the pseudonyms have the same number in
        /// common. Each address is anonymised twice, first uncached and then cached.
        #[test]
        fn prefixes_are_preserved(pairs in prop::collection::vec((any::<u128>(), any::<u128>(), 0..128u32), 200)) {
            for (scheme, mut anonymiser) in SCHEMES.map(|addresses| (addresses, anonymiser(addresses))) {
              for _ in 0..2 {
                for &(first, other, common) in &pairs {
                    let other = first ^ (other >> common);
                    let (a, b) = (first >> 96, other >> 96);
                    let (a, b) = (u32::try_from(a).unwrap(), u32::try_from(b).unwrap());
                    if !is_unchanged_v4(a) && !is_unchanged_v4(b) {
                        let after = anonymiser.ipv4(a) ^ anonymiser.ipv4(b);
                        prop_assert_eq!(after.leading_zeros(), (a ^ b).leading_zeros());
                    }
                    let is_split = scheme == Addresses::Anonymised && is_mapped(first) != is_mapped(other);
                    if first >> 120 != 0xff && other >> 120 != 0xff && !is_split {
                        let after = anonymiser.ipv6(first) ^ anonymiser.ipv6(other);
                        prop_assert_eq!(after.leading_zeros(), (first ^ other).leading_zeros());
                    }
                }
              }
            }
        }

        /// Caching changes no result.
        #[test]
        fn crypto_pan_views_use_crypto_pan(v4: u32, v6: u128) {
            let key = ViewKey::derive(&[7; 32], b"test");
            let mut anonymiser = anonymiser(Addresses::CryptoPan);
            let v6 = v6 >> 1;
            let flips = CryptoPan::new(&key.crypto_pan_v6).flips::<128>(v6, 0);
            prop_assert_eq!(anonymiser.ipv6(v6), v6 ^ flips);
            let flips = CryptoPan::new(&key.crypto_pan_v4).flips::<32>(u128::from(v4) << 96, 0);
            let plain = v4 ^ u32::try_from(flips).unwrap();
            prop_assume!(!is_unchanged_v4(v4) && !is_unchanged_v4(plain));
            prop_assert_eq!(anonymiser.ipv4(v4), plain);
        }

        /// Results equal those of another implementation, also if cached.
        #[test]
        fn anonymised_views_use_ipcrypt_pfx(v4: u32, v6: u128) {
            let key = ViewKey::derive(&[7; 32], b"test");
            let oracle = ipcrypt_rs::IpcryptPfx::new(key.ipcrypt_pfx);
            let mut anonymiser = anonymiser(Addresses::Anonymised);
            let v6 = v6 >> 1;
            let expected = oracle.encrypt_ipaddr(Ipv6Addr::from(v6).into());
            let plain = oracle.encrypt_ipaddr(Ipv4Addr::from(v4).into());
            for _ in 0..2 {
                prop_assert_eq!(IpAddr::from(Ipv6Addr::from(anonymiser.ipv6(v6))), expected);
                let IpAddr::V4(plain) = plain else { panic!("IPv4 stays IPv4") };
                prop_assume!(!is_unchanged_v4(v4) && !is_unchanged_v4(plain.into()));
                prop_assert_eq!(anonymiser.ipv4(v4), u32::from(plain));
                // Its mapped form has the mapped pseudonym.
                prop_assert_eq!(anonymiser.ipv6(MAPPED | u128::from(v4)), MAPPED | u128::from(u32::from(plain)));
            }
        }
    }

    #[test]
    fn addresses_without_a_host_stay_and_no_pseudonym_is_one_of_them() {
        for mut anonymiser in SCHEMES.map(anonymiser) {
            let flips = |anonymiser: &Anonymiser, address: u32| {
                let [a, b, ..] = address.to_be_bytes();
                let upper = anonymiser.upper_v4[usize::from(u16::from_be_bytes([a, b]))];
                u32::from(upper) << 16 | u32::from(anonymiser.scheme.lower_half_v4(address))
            };
            for stays in
                ["0.0.0.0", "127.0.0.1", "255.255.255.255", "224.0.0.0", "224.0.0.251", "224.0.0.255"]
            {
                let address = u32::from(stays.parse::<Ipv4Addr>().unwrap());
                assert_eq!(anonymiser.ipv4(address), address, "{stays}");
                // An address whose pseudonym would be this one gets another.
                let before = (0..32).fold(address, |before, bit| {
                    before ^ (flips(&anonymiser, before) ^ before ^ address) & 1 << (31 - bit)
                });
                assert_eq!(before ^ address, flips(&anonymiser, before));
                assert!(is_unchanged_v4(before) || !is_unchanged_v4(anonymiser.ipv4(before)), "{stays}");
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
    }

    #[test]
    fn groups_stay_groups_and_link_local_addresses_stay_so_without_revealing_a_host() {
        for mut anonymiser in SCHEMES.map(anonymiser) {
            let mut of =
                |text: &str| Ipv6Addr::from(anonymiser.ipv6(text.parse::<Ipv6Addr>().unwrap().into()));
            assert_eq!(of("ff02::1:ff12:3456"), "ff02::1:ff00:0".parse::<Ipv6Addr>().unwrap());
            let group = of("ff3e:40:2001:db8:1:2:8000:1");
            assert_eq!(group.segments()[0], 0xff3e);
            assert!((1..8).all(|i| group.segments()[i]
                != "ff3e:40:2001:db8:1:2:8000:1".parse::<Ipv6Addr>().unwrap().segments()[i]));
            let local = of("fe80::0211:22ff:fe33:4455");
            assert_eq!(local.segments()[..4], [0xfe80, 0, 0, 0]);
            assert!(!local.to_string().contains("ff:fe"), "{local}");
        }
    }

    #[test]
    fn no_two_addresses_get_the_same_pseudonym() {
        for mut anonymiser in SCHEMES.map(anonymiser) {
            let v4: HashSet<u32> =
                (0..200_000_u32).map(|i| anonymiser.ipv4(i.wrapping_mul(0x9e37_79b1))).collect();
            assert_eq!(v4.len(), 200_000);
            let v6: HashSet<u128> =
                (0..20_000_u128).map(|i| anonymiser.ipv6(0x2001_0db8 << 96 | i << 60 | i)).collect();
            assert_eq!(v6.len(), 20_000);
        }
    }

    #[test]
    fn another_key_or_label_gives_other_pseudonyms() {
        let keys = [
            ViewKey::derive(&[7; 32], b"test"),
            ViewKey::derive(&[8; 32], b"test"),
            ViewKey::derive(&[7; 32], b"tess"),
        ];
        let all: HashSet<(u32, u128)> = keys
            .iter()
            .flat_map(|key| {
                SCHEMES.map(|addresses| {
                    let mut anonymiser = Anonymiser::for_view(addresses, key).unwrap();
                    (anonymiser.ipv4(0x0102_0304), anonymiser.ipv6(0x2001_0db8 << 96 | 1))
                })
            })
            .collect();
        assert_eq!(all.len(), 6);
    }
}
