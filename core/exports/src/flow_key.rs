//! Addresses, ports and protocol of a row, and the identifiers of its connection that are made from them.

use crate::{RowKind, fields, protocol};
use core::net::Ipv6Addr;
use weir_admission::{DeclaredStream, StreamField};
use weir_session::Record;

/// The digits of Zeek's identifiers.
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// The digits of an identifier, after its first letter. 62^16 is below 2^96.
const UID_DIGITS: usize = 16;
/// The bits of `flow_id` in `eve.json`. Numbers of up to 53 bits are exact in every JSON reader.
const FLOW_ID_BITS: u32 = 51;

/// The fields that identify the connection of a row.
#[derive(Debug)]
pub(crate) struct FlowKeyFields {
    source: StreamField,
    destination: StreamField,
    ports: [Option<StreamField>; 2],
    /// The number or name of the protocol above IP.
    protocol: Option<StreamField>,
    /// The protocol of rows without such a field.
    default_protocol: u64,
}

/// Addresses, ports and protocol of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowKey {
    pub(crate) source: (Ipv6Addr, u16),
    pub(crate) destination: (Ipv6Addr, u16),
    pub(crate) protocol: u64,
}

impl FlowKeyFields {
    /// Finds the fields; `None` if a row has not both addresses.
    pub(crate) fn of(stream: &DeclaredStream) -> Option<Self> {
        let field =
            |name: &str| fields::first(stream, name).and_then(|index| stream.fields.get(index)).cloned();
        let default_protocol = match RowKind::of(stream) {
            RowKind::Tls | RowKind::Http => protocol::TCP,
            RowKind::Quic | RowKind::Dns => protocol::UDP,
            RowKind::Connection | RowKind::Finding | RowKind::Other => 0,
        };
        Some(Self {
            source: field("source.ip")?,
            destination: field("destination.ip")?,
            ports: [field("source.port"), field("destination.port")],
            protocol: field("network.iana_number").or_else(|| field("network.transport")),
            default_protocol,
        })
    }

    /// Reads the key of a row; `None` if an address is null.
    pub(crate) fn read(&self, record: &Record<'_>) -> Option<FlowKey> {
        let port = |field: &Option<StreamField>| {
            let port = field.as_ref().and_then(|field| fields::unsigned(field, record));
            port.and_then(|port| u16::try_from(port).ok()).unwrap_or(0)
        };
        let [source_port, destination_port] = &self.ports;
        let protocol = self.protocol.as_ref().and_then(|field| {
            fields::unsigned(field, record).or_else(|| protocol_number(&fields::text(field, record)?))
        });
        Some(FlowKey {
            source: (fields::address(&self.source, record)?, port(source_port)),
            destination: (fields::address(&self.destination, record)?, port(destination_port)),
            protocol: protocol.unwrap_or(self.default_protocol),
        })
    }
}

/// Returns the number of a protocol by its name.
fn protocol_number(name: &str) -> Option<u64> {
    match name {
        "tcp" => Some(protocol::TCP),
        "udp" => Some(protocol::UDP),
        "icmp" => Some(protocol::ICMP),
        "icmp6" => Some(protocol::ICMP6),
        "sctp" => Some(protocol::SCTP),
        _ => None,
    }
}

impl FlowKey {
    /// Returns Zeek's identifier of the connection. It depends on addresses, ports and protocol alone, not on the
    /// direction, so that the rows of all logs about a connection have the same one.
    pub(crate) fn uid(&self) -> String {
        let mut rest = self.hash() >> (128 - 96);
        let mut uid = String::from("C");
        for _ in 0..UID_DIGITS {
            let digit = usize::try_from(rest % 62).unwrap_or(0);
            uid.push(char::from(DIGITS.get(digit).copied().unwrap_or(b'0')));
            rest /= 62;
        }
        uid
    }

    /// Returns Suricata's identifier of the flow, by the same rule as [`Self::uid`].
    pub(crate) fn flow_id(&self) -> u64 {
        u64::try_from(self.hash() >> (128 - FLOW_ID_BITS)).unwrap_or(0)
    }

    /// Returns a hash that is the same in both directions (FNV-1a of 128 bits, with the high bits mixed at the end).
    fn hash(&self) -> u128 {
        const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
        let (low, high) = if self.source <= self.destination {
            (self.source, self.destination)
        } else {
            (self.destination, self.source)
        };
        let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        let ends = [low, high];
        let bytes =
            ends.iter().flat_map(|(address, port)| address.octets().into_iter().chain(port.to_be_bytes()));
        for byte in bytes.chain(self.protocol.to_be_bytes()) {
            hash = (hash ^ u128::from(byte)).wrapping_mul(PRIME);
        }
        // The last bytes of FNV-1a reach only some of the bits.
        for _ in 0..2 {
            hash = (hash ^ (hash >> 67)).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        }
        hash ^ (hash >> 61)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn both_directions_have_one_identifier_and_other_connections_have_others() {
        let host = |last: u16| Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0xc000, 0x0200 + last);
        let mut uids = BTreeSet::new();
        let mut flow_ids = BTreeSet::new();
        let mut keys = 0;
        for port in 1000..1100 {
            for last in 1..20 {
                for protocol in [protocol::TCP, protocol::UDP] {
                    let key = FlowKey { source: (host(last), port), destination: (host(0), 53), protocol };
                    let answer = FlowKey { source: key.destination, destination: key.source, protocol };
                    assert_eq!((key.uid(), key.flow_id()), (answer.uid(), answer.flow_id()));
                    assert_eq!(key.uid().len(), 1 + UID_DIGITS);
                    assert!(key.flow_id() < 1 << FLOW_ID_BITS);
                    uids.insert(key.uid());
                    flow_ids.insert(key.flow_id());
                    keys += 1;
                }
            }
        }
        assert_eq!((uids.len(), flow_ids.len()), (keys, keys));
    }
}
