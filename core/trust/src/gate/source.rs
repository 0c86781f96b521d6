//! Where strangers come from, as far as limits go.

use core::net::IpAddr;

/// Who is counted as one: an IPv4 address, or an IPv6 /64. (Whoever has one IPv6 address has the 2^64 beside it.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerSource {
    /// An address.
    V4(u32),
    /// The upper half of an address.
    V6(u64),
}

/// Sources that are likely to be one party's: an IPv4 /24, or an IPv6 /48.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum SourceNetwork {
    V4(u32),
    V6(u64),
}

impl PeerSource {
    /// The source that an address belongs to. An IPv4 address in an IPv6 one (::ffff:0:0/96), as sockets for both show it, is an IPv4 address:
    /// else all of IPv4 were one source.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.to_bits()),
            IpAddr::V6(address) => {
                let [a, b, c, d, e, f, g, h, ..] = address.octets();
                Self::V6(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
            }
        }
    }

    pub(super) fn network(self) -> SourceNetwork {
        match self {
            Self::V4(address) => SourceNetwork::V4(address >> 8),
            Self::V6(half) => SourceNetwork::V6(half >> 16),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_party_is_one_source_and_ipv4_is_ipv4_however_it_is_written() {
        let of = |text: &str| PeerSource::of(text.parse().unwrap());
        assert_eq!(of("192.0.2.7"), of("::ffff:192.0.2.7"));
        assert_ne!(of("192.0.2.7"), of("192.0.2.8"));
        assert_eq!(of("192.0.2.7").network(), of("192.0.2.8").network());
        assert_ne!(of("192.0.2.7").network(), of("192.0.3.7").network());
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("2001:db8:1:2::1").network(), of("2001:db8:1:3::1").network());
        assert_ne!(of("2001:db8:1::1").network(), of("2001:db8:2::1").network());
    }
}
