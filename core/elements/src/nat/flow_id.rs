//! The addresses and ports by which rewriters know flows.

use crate::flow_hash::hash_flow;
use crate::ipv4::{HEADER_BYTES, Ipv4Header, word};
use core::net::Ipv4Addr;
use std::fmt;

/// The addresses and ports of a packet. Fields that a rewriter does not look at are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowId {
    pub source: u32,
    pub destination: u32,
    pub source_port: u16,
    pub destination_port: u16,
}

impl FlowId {
    /// Returns the addresses and ports of a packet whose transport header has ports.
    #[inline]
    pub fn of(header: &Ipv4Header<'_>) -> Self {
        let addresses = Self::of_addresses(header);
        match header.transport().first_chunk::<4>() {
            Some([a, b, c, d]) => Self {
                source_port: u16::from_be_bytes([*a, *b]),
                destination_port: u16::from_be_bytes([*c, *d]),
                ..addresses
            },
            None => addresses,
        }
    }

    /// Returns the addresses of a packet.
    #[inline]
    pub fn of_addresses(header: &Ipv4Header<'_>) -> Self {
        let Some(bytes) = header.bytes.first_chunk::<HEADER_BYTES>() else { return Self::default() };
        Self { source: word(bytes, 12), destination: word(bytes, 16), source_port: 0, destination_port: 0 }
    }

    /// Returns the identifier of packets in the other direction.
    #[inline]
    pub fn reversed(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
        }
    }

    /// Returns both ports, that of the source in the upper half.
    #[inline]
    pub fn ports(self) -> u32 {
        u32::from(self.source_port) << 16 | u32::from(self.destination_port)
    }

    /// Returns the hash of the identifier in a map.
    #[inline]
    pub fn hash_in(self, map: u32) -> u32 {
        let addresses = u64::from(self.source) << 32 | u64::from(self.destination);
        hash_flow(addresses, u64::from(self.ports()) << 32 | u64::from(map))
    }
}

/// Writes the identifier as Click does: `(192.0.2.1, 1024, 198.51.100.1, 80)`.
impl fmt::Display for FlowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, destination) = (Ipv4Addr::from_bits(self.source), Ipv4Addr::from_bits(self.destination));
        write!(f, "({source}, {}, {destination}, {})", self.source_port, self.destination_port)
    }
}
