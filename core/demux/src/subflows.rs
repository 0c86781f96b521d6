//! Sub-flows: a channel's packets are distributed by the values of chosen header fields to parts of each of its queues.

use weir_abi::{Descriptor, flag};

/// A header field that packets can be distributed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyField {
    /// Source address.
    Source,
    /// Destination address.
    Destination,
    /// TCP or UDP source port. It is ignored for fragments, so that all fragments of a datagram are in one sub-flow.
    SourcePort,
    /// TCP or UDP destination port. It is ignored for fragments.
    DestinationPort,
    /// The protocol above IP.
    Protocol,
    /// The VLAN identifier of the outermost tag.
    Vlan,
}

/// The fields that a channel's packets are distributed by, and the number of sub-flows. Each sub-flow is one part of the
/// queue of every module that reads the channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubFlows {
    /// The fields, sorted.
    fields: Vec<KeyField>,
    queues: u16,
    /// The key of the hash function.
    key: u64,
}

impl SubFlows {
    /// Creates a distribution by these fields to `queues` queues; 0 counts as 1. The order of the fields does not
    /// matter. Each `key` gives another distribution, so with a random key a sender cannot choose the flows that share
    /// its sub-flow.
    pub fn new(fields: &[KeyField], queues: u16, key: u64) -> Self {
        let mut fields = fields.to_vec();
        fields.sort_unstable();
        fields.dedup();
        Self { fields, queues: queues.max(1), key }
    }

    /// The number of queues.
    pub fn queues(&self) -> u16 {
        self.queues
    }

    /// The index of a packet's queue. `head` holds the first bytes of the packet that `descriptor` describes.
    pub fn queue(&self, descriptor: &Descriptor, head: &[u8]) -> u16 {
        let mut hash = self.key;
        for field in &self.fields {
            let value = field_value(*field, descriptor, head);
            // Each half of the value is mixed with the hash so far, which depends on the key, before the multiplication. So a
            // sender does not know the product.
            for word in [value >> 64, value & u128::from(u64::MAX)] {
                let word = u64::try_from(word).unwrap_or(0);
                let (low, high) =
                    (hash ^ word ^ 0x243f_6a88_85a3_08d3).carrying_mul(0xa409_3822_299f_31d1, hash);
                hash = low ^ high.rotate_left(29);
            }
        }
        let (low, high) = (hash ^ 0x4528_21e6_38d0_1377).carrying_mul(0x1319_8a2e_0370_7345, 0);
        u16::try_from((low ^ high).carrying_mul(u64::from(self.queues), 0).1).unwrap_or(0)
    }
}

/// The value of a field in a packet.
fn field_value(field: KeyField, descriptor: &Descriptor, head: &[u8]) -> u128 {
    let (is_v4, is_v6) = (descriptor.flags & flag::IPV4 != 0, descriptor.flags & flag::IPV6 != 0);
    let addresses = || weir_wire::addresses(head, descriptor);
    let port = |port: u16| (descriptor.flags & flag::FRAGMENT == 0).then_some(u128::from(port));
    let found = match field {
        KeyField::Source => addresses().map(|(src, _)| src),
        KeyField::Destination => addresses().map(|(_, dst)| dst),
        KeyField::SourcePort => port(descriptor.src_port),
        KeyField::DestinationPort => port(descriptor.dst_port),
        KeyField::Protocol => (is_v4 || is_v6).then_some(u128::from(descriptor.ip_proto)),
        KeyField::Vlan => {
            (descriptor.flags & flag::VLAN != 0).then_some(u128::from(descriptor.vlan_tci & 0xfff))
        }
    };
    // For a packet without the field, a value that the field never has.
    found.unwrap_or(u128::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(src: [u8; 4], port: u16) -> (Descriptor, Vec<u8>) {
        let mut head = vec![0; 34];
        head[26..30].copy_from_slice(&src);
        head[30..].copy_from_slice(&[10, 0, 0, 1]);
        let flags = flag::IPV4 | flag::UDP | flag::L4;
        (
            Descriptor {
                flags,
                l3_offset: 14,
                ip_proto: 17,
                src_port: port,
                dst_port: 53,
                ..Descriptor::default()
            },
            head,
        )
    }

    #[test]
    fn packets_with_equal_fields_share_a_queue() {
        let by_source = SubFlows::new(&[KeyField::Source], 16, 1);
        let queue = |src, port| {
            let (descriptor, head) = packet(src, port);
            by_source.queue(&descriptor, &head)
        };
        assert_eq!(queue([1, 2, 3, 4], 1000), queue([1, 2, 3, 4], 2000));
        let (descriptor, head) = packet([1, 2, 3, 4], 1000);
        let both = [KeyField::Source, KeyField::SourcePort];
        let [one, other] =
            [[both[0], both[1]], [both[1], both[0]]].map(|fields| SubFlows::new(&fields, 1000, 1));
        assert_eq!(one.queue(&descriptor, &head), other.queue(&descriptor, &head));
        assert_eq!(SubFlows::new(&both, 0, 1).queue(&descriptor, &head), 0);
        // A packet whose addresses are beyond `head` counts as one without addresses.
        assert!(one.queue(&descriptor, &head[..20]) < 1000);
    }

    #[test]
    fn all_fragments_of_a_datagram_share_a_queue() {
        let flows =
            SubFlows::new(&[KeyField::Source, KeyField::SourcePort, KeyField::DestinationPort], 1000, 3);
        let (mut first, head) = packet([1, 2, 3, 4], 1000);
        first.flags |= flag::FRAGMENT;
        let later = Descriptor {
            src_port: 0,
            dst_port: 0,
            flags: flag::IPV4 | flag::FRAGMENT | flag::LATER_FRAGMENT,
            ..first
        };
        assert_eq!(flows.queue(&first, &head), flows.queue(&later, &head));
    }

    #[test]
    fn neighbouring_flows_fill_the_queues_evenly() {
        for key in [0, 1, 0xdead_beef] {
            let flows = SubFlows::new(&[KeyField::Source, KeyField::SourcePort], 64, key);
            let mut counts = [0_u32; 64];
            for host in 0..64 {
                for port in 0..256 {
                    let (descriptor, head) = packet([10, 0, 0, host], 40_000 + port);
                    counts[usize::from(flows.queue(&descriptor, &head))] += 1;
                }
            }
            // 256 expected in each: chi squared has mean 63 and standard deviation 11.2.
            let chi: f64 = counts.iter().map(|&n| (f64::from(n) - 256.0).powi(2) / 256.0).sum();
            assert!(chi < 120.0, "chi squared {chi:.0} of 63 with key {key:#x}");
        }
    }
}
