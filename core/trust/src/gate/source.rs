//! Sources of connections. The gate counts handshakes, debts and rates for each source, and handshakes for each network
//! of sources.

use core::net::IpAddr;

/// The source of a connection: an IPv4 address, or an IPv6 /64, as one host or one customer usually has a whole /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerSource {
    /// An IPv4 address.
    V4(u32),
    /// The upper half of an IPv6 address.
    V6(u64),
}

/// A network whose sources probably belong to one party: an IPv4 /24, or an IPv6 /48.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum SourceNetwork {
    V4(u32),
    V6(u64),
}

impl PeerSource {
    /// Returns the source of an address. An IPv4-mapped IPv6 address (::ffff:0:0/96), as dual-stack sockets report it,
    /// is an IPv4 address: otherwise all of IPv4 would be one source.
    pub fn from_address(address: IpAddr) -> Self {
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
    fn addresses_of_one_party_are_one_source_and_mapped_ipv4_is_ipv4() {
        let of = |text: &str| PeerSource::from_address(text.parse().unwrap());
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
