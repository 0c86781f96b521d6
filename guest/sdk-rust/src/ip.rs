//! Addresses and prefixes.

use crate::bytes::at;

/// An IPv6 address, or an IPv4 address as ::ffff:a.b.c.d: the value of a field of type `ip`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Ip(pub [u8; 16]);

impl Ip {
    /// Makes an address of the four bytes of an IPv4 address.
    #[inline(always)]
    pub const fn v4(address: [u8; 4]) -> Self {
        let [a, b, c, d] = address;
        Self([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d])
    }

    /// Makes an address of the sixteen bytes of an IPv6 address.
    #[inline(always)]
    pub const fn v6(address: [u8; 16]) -> Self {
        Self(address)
    }

    /// Returns the four bytes, if it is an IPv4 address.
    pub fn to_v4(self) -> Option<[u8; 4]> {
        match self.0 {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => Some([a, b, c, d]),
            _ => None,
        }
    }

    /// Returns the address as two words, for hashing: [`hash_words`](crate::hash_words)`(&ip.words())`.
    #[inline(always)]
    pub fn words(self) -> [u64; 2] {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = self.0;
        [u64::from_le_bytes([a, b, c, d, e, f, g, h]), u64::from_le_bytes([i, j, k, l, m, n, o, p])]
    }
}

/// The address as people write it: IPv4 with dots, IPv6 as RFC 5952 says.
impl core::fmt::Display for Ip {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.to_v4() {
            Some(v4) => core::net::Ipv4Addr::from(v4).fmt(f),
            None => core::net::Ipv6Addr::from(self.0).fmt(f),
        }
    }
}

/// A parameter of type `prefix`. An IPv6 prefix contains no IPv4 address, even if its bits are those of ::ffff:0:0/96,
/// as in ::/0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    address: u128,
    mask: u128,
    is_ipv6: bool,
}

impl Prefix {
    /// All addresses, of IPv4 and IPv6. No parameter has this value: `0.0.0.0/0` and `::/0` have one family each.
    pub const ALL: Prefix = Prefix { address: 0, mask: 0, is_ipv6: false };

    /// The addresses that begin with the first `bits` of 128 bits of `address`; for IPv4, 96 more than the usual prefix
    /// length. Fewer than 96 bits make an IPv6 prefix.
    pub const fn new(address: Ip, bits: u8) -> Self {
        let mask = if bits == 0 {
            0
        } else if bits >= 128 {
            u128::MAX
        } else {
            u128::MAX << (128 - bits)
        };
        Self { address: u128::from_be_bytes(address.0) & mask, mask, is_ipv6: bits < 96 }
    }

    /// Returns the first address of the prefix.
    pub const fn address(&self) -> Ip {
        Ip(self.address.to_be_bytes())
    }

    /// Returns the length counted in 128 bits; for IPv4, 96 more than the usual prefix length.
    pub const fn bits(&self) -> u8 {
        self.mask.count_ones() as u8
    }

    /// Returns true if the prefix contains the address.
    #[inline(always)]
    pub fn contains(&self, ip: Ip) -> bool {
        let ip = u128::from_be_bytes(ip.0);
        ip & self.mask == self.address && !(self.is_ipv6 && ip >> 32 == 0xffff)
    }

    /// Makes a prefix of a parameter's value: 16 bytes of address, and the length in bits.
    pub(crate) fn from_value(value: &[u8; 17]) -> Self {
        Self::new(Ip(at(value, 0).unwrap_or_default()), value[16])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_has_the_addresses_that_begin_with_it() {
        let ten = Prefix::new(Ip::v4([10, 1, 2, 3]), 104);
        assert!(ten.contains(Ip::v4([10, 255, 0, 0])));
        assert!(!ten.contains(Ip::v4([11, 0, 0, 0])));
        assert!(!ten.contains(Ip::v6([10; 16])));
        assert!(Prefix::ALL.contains(Ip::v6([7; 16])) && Prefix::ALL.contains(Ip::v4([7; 4])));
        let one = Prefix::new(Ip::v6([7; 16]), 128);
        assert!(one.contains(Ip([7; 16])) && !one.contains(Ip([8; 16])));
    }

    #[test]
    fn an_ipv6_prefix_has_no_ipv4_address() {
        let mapped = Ip::v4([0; 4]);
        for bits in 0..96 {
            let prefix = Prefix::new(mapped, bits);
            assert!(!prefix.contains(Ip::v4([10, 1, 2, 3])), "{bits}");
            // Addresses beside the mapped ones, also in the last bit.
            assert!(prefix.contains(Ip::v6([0; 16])) || bits > 80, "{bits}");
            assert!(prefix.contains(Ip(0xfffe_0000_0000u128.to_be_bytes())), "{bits}");
        }
        assert!(Prefix::new(mapped, 96).contains(Ip::v4([10, 1, 2, 3])));
        assert!(!Prefix::new(mapped, 96).contains(Ip::v6([0; 16])));
    }

    #[test]
    fn an_ipv4_address_comes_back_out_of_its_mapped_form() {
        assert_eq!(Ip::v4([1, 2, 3, 4]).to_v4(), Some([1, 2, 3, 4]));
        assert_eq!(Ip([1; 16]).to_v4(), None);
        assert_eq!(Ip::v4([1, 2, 3, 4]).words(), [0, 0x0403_0201_ffff_0000]);
    }
}
