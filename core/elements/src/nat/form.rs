//! The forms of rewriters: the packets that they rewrite, and how.

use super::flow_id::FlowId;
use super::mapping::{FlowMapping, FlowTracking, MappingEnd};
use super::mapping_table::{MappingIndex, MappingTable};
use crate::ipv4::{
    ChecksumChange, HEADER_BYTES, ICMP, Ipv4Header, OFFSET, TCP, UDP, half, set_half, set_word, word,
};

/// The number of the protocol DCCP.
const DCCP: u8 = 33;
/// The bytes of a TCP header up to the end of the checksum.
const TCP_CHECKSUM_END: usize = 18;
/// The least bytes behind the IP header of packets with ports, and of ICMP echo messages.
const PORTS_BYTES: usize = 8;
const ECHO_BYTES: usize = 6;
const ECHO_REPLY: u8 = 0;
pub const ECHO_REQUEST: u8 = 8;
/// The option of TCP with selective acknowledgements (RFC 2018).
const SELECTIVE_ACKNOWLEDGEMENT: u8 = 5;

/// A form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RewriterForm {
    /// TCP and UDP, each in a map of its own.
    TcpAndUdp,
    /// TCP.
    Tcp,
    /// Protocols with ports in one map, without sequence numbers.
    Ports,
    /// Source addresses.
    Address,
    /// Pairs of addresses.
    AddressPair,
    /// ICMP echo messages, by addresses and identifiers. Requests and replies have a map each.
    Ping,
}

/// A packet, as a rewriter knows it.
#[derive(Clone, Copy, Debug)]
pub struct IdentifiedPacket {
    pub flow: FlowId,
    pub protocol: u8,
    /// The number of the map, from that of the rewriter on.
    pub map: u32,
    /// The packet can begin a mapping.
    pub begins: bool,
}

/// The number of maps of a rewriter.
pub const MAPS: u32 = 2;

impl RewriterForm {
    /// Returns the flow of a packet; `None` for one that this form does not rewrite.
    #[inline]
    pub fn identify(self, header: &Ipv4Header<'_>) -> Option<IdentifiedPacket> {
        let protocol = header.protocol();
        match self {
            Self::Address | Self::AddressPair => {}
            _ if !header.is_first() => return None,
            Self::Ping => {
                let transport = header.transport();
                let kind = *transport.first()?;
                let is_echo = protocol == ICMP && matches!(kind, ECHO_REQUEST | ECHO_REPLY);
                if !is_echo || transport.len() < ECHO_BYTES {
                    return None;
                }
            }
            _ if header.transport().len() < PORTS_BYTES => return None,
            Self::TcpAndUdp if protocol == TCP || protocol == UDP => {}
            Self::Tcp if protocol == TCP => {}
            Self::Ports if matches!(protocol, TCP | UDP | DCCP) => {}
            _ => return None,
        }
        Some(match self {
            Self::Address | Self::AddressPair => {
                self.identified(protocol, FlowId::of_addresses(header), true)
            }
            Self::Ping => {
                let transport = header.transport();
                let flow = FlowId { source_port: half(transport, 4), ..FlowId::of_addresses(header) };
                self.identified(protocol, flow, transport[0] == ECHO_REQUEST)
            }
            _ => self.identified(protocol, FlowId::of(header), true),
        })
    }

    /// Returns a packet by its addresses and ports. The identifier of an echo message is the source port here.
    #[inline]
    pub fn identified(self, protocol: u8, flow: FlowId, is_request: bool) -> IdentifiedPacket {
        let FlowId { source, destination, source_port: identifier, .. } = flow;
        let ports =
            |source_port, destination_port| FlowId { source, destination, source_port, destination_port };
        let (flow, map) = match self {
            Self::TcpAndUdp => (flow, u32::from(protocol == UDP)),
            Self::Tcp | Self::Ports => (flow, 0),
            Self::AddressPair => (ports(0, 0), 0),
            Self::Address => (FlowId { source, ..FlowId::default() }, 0),
            Self::Ping if is_request => (ports(identifier, 0), 0),
            Self::Ping => (ports(0, identifier), 1),
        };
        IdentifiedPacket { flow, protocol, map, begins: is_request || self != Self::Ping }
    }

    /// Returns the mapping of a packet in the maps of a rewriter, and true if the packet is a reply.
    #[inline]
    pub fn find(
        self,
        packet: &IdentifiedPacket,
        destination: u32,
        first_map: u32,
        table: &MappingTable,
    ) -> Option<(MappingIndex, bool)> {
        let found = table.find(first_map + packet.map, packet.flow);
        if self == Self::Address && found.is_none() {
            return table.find(first_map, FlowId { destination, ..FlowId::default() });
        }
        found
    }

    /// Returns the map in which the replies to a packet are looked up.
    pub fn reply_map(self, packet: &IdentifiedPacket) -> u32 {
        if self == Self::Ping { 1 } else { packet.map }
    }

    /// Returns a mapping of a packet's flow to other addresses and ports; `None` if this form does not change them.
    pub fn mapping(
        self,
        packet: &IdentifiedPacket,
        mut chosen: FlowId,
        outputs: [u16; 2],
        (owner, input): (u32, u16),
    ) -> Option<FlowMapping> {
        let has_ports = chosen.ports() != 0;
        match self {
            Self::Address if has_ports || chosen.destination != 0 => return None,
            Self::AddressPair if has_ports => return None,
            Self::Ping => chosen.destination_port = 0,
            _ => {}
        }
        let tracking = match self {
            Self::TcpAndUdp | Self::Tcp if packet.protocol == TCP => FlowTracking::Tcp,
            Self::TcpAndUdp | Self::Tcp | Self::Ports => FlowTracking::Streaming,
            Self::Address | Self::AddressPair | Self::Ping => FlowTracking::Plain,
        };
        let first_map = owner * MAPS;
        let ends = [
            MappingEnd::new(packet.flow, first_map + packet.map, outputs[0]),
            MappingEnd::new(chosen.reversed(), first_map + self.reply_map(packet), outputs[1]),
        ];
        let mut mapping = FlowMapping::new(ends, owner, input, packet.protocol, tracking);
        if self == Self::Ping {
            // ICMP has no pseudo-header, so its checksum covers the identifier alone.
            let identifiers = (packet.flow.source_port.into(), chosen.source_port.into());
            mapping.changes[1] = ChecksumChange::of([identifiers]);
        }
        Some(mapping)
    }

    /// Rewrites a packet, whose bytes begin with a complete IP header.
    #[inline]
    pub fn rewrite(self, mapping: &FlowMapping, is_reply: bool, bytes: &mut [u8]) {
        let Some(header_bytes) = Ipv4Header::read(bytes).map(|header| header.header_bytes) else { return };
        let (header, transport) = bytes.split_at_mut(header_bytes);
        let Some(header) = header.first_chunk_mut::<HEADER_BYTES>() else { return };
        let flow = mapping.rewritten(is_reply);
        let [of_header, of_transport] = mapping.changes_of(is_reply);
        if self != Self::Address || !is_reply {
            header[12..16].copy_from_slice(&flow.source.to_be_bytes());
        }
        if self != Self::Address || is_reply {
            header[16..20].copy_from_slice(&flow.destination.to_be_bytes());
        }
        let sum = of_header.apply(u16::from_be_bytes([header[10], header[11]]));
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        if u16::from_be_bytes([header[6], header[7]]) & OFFSET != 0 {
            return;
        }
        let protocol = header[9];
        let has_ports = matches!(self, Self::TcpAndUdp | Self::Tcp | Self::Ports);
        let has_tcp = protocol == TCP && transport.len() >= TCP_CHECKSUM_END;
        if has_ports
            && (has_tcp || protocol == UDP || self == Self::Ports)
            && let Some(ports) = transport.first_chunk_mut::<4>()
        {
            *ports = flow.ports().to_be_bytes();
        }
        if self == Self::Ping {
            set_half(transport, 4, if is_reply { flow.destination_port } else { flow.source_port });
            update_icmp(of_transport, transport);
        } else if has_tcp {
            of_transport.apply_at(transport, 16);
        } else if protocol == UDP && transport.len() >= PORTS_BYTES {
            of_transport.apply_udp(transport, 6);
        }
    }
}

/// Updates the checksum of an ICMP message.
pub fn update_icmp(change: ChecksumChange, message: &mut [u8]) {
    change.apply_at(message, 2);
    // The sum of zeros alone has the other zero as its checksum.
    if half(message, 2) == 0 && message.iter().all(|byte| *byte == 0) {
        set_half(message, 2, u16::MAX);
    }
}

/// Takes note of the flags and the data of a segment in its mapping.
#[inline]
pub fn note_segment(mapping: &mut FlowMapping, is_reply: bool, header: &Ipv4Header<'_>) {
    let Some(tcp) = header.transport().first_chunk::<TCP_CHECKSUM_END>() else { return };
    let data_at = header.header_bytes + usize::from(tcp[12] >> 4) * 4;
    mapping.note_segment(is_reply, tcp[13], data_at < header.length());
}

/// Sets the numbers of a segment that follow from the edits of its streams. The bytes begin with the IP header.
pub fn renumber(mapping: &mut FlowMapping, is_reply: bool, bytes: &mut [u8]) {
    let Some(header) = Ipv4Header::read(bytes) else { return };
    let (at, transport) = (header.header_bytes, header.transport());
    if transport.len() < TCP_CHECKSUM_END {
        return;
    }
    let header_bytes = usize::from(transport[12] >> 4) * 4;
    if transport.len() < header_bytes || header_bytes < 20 {
        return;
    }
    let Some(edits) = mapping.edits.as_deref_mut() else { return };
    let [forward, reply] = edits;
    let (own, peer) = if is_reply { (reply, forward) } else { (forward, reply) };
    let segment = &mut bytes[at..];
    let sequence = word(segment, 4);
    own.end_before(sequence);
    if !own.is_empty() {
        set_covered(segment, 4, own.sequence(sequence));
    }
    if !peer.is_empty() {
        let number = peer.acknowledgement(word(segment, 8));
        set_covered(segment, 8, number);
        each_selective(segment, header_bytes, |segment, at| {
            let number = peer.acknowledgement(word(segment, at));
            set_covered(segment, at, number);
        });
    }
}

/// Writes four bytes of a segment, and updates its checksum.
fn set_covered(segment: &mut [u8], at: usize, new: u32) {
    let old = word(segment, at);
    let (mut before, mut after) = (old, new);
    if !at.is_multiple_of(2) {
        // The checksum's words begin at even offsets.
        (before, after) = (before.rotate_left(8), after.rotate_left(8));
    }
    set_word(segment, at, new);
    ChecksumChange::of([(before, after)]).apply_at(segment, 16);
}

/// Calls a function for the place of each number in the selective acknowledgements of a segment.
fn each_selective(segment: &mut [u8], header_bytes: usize, mut each: impl FnMut(&mut [u8], usize)) {
    let mut at = 20;
    while at < header_bytes {
        match segment[at] {
            0 => return,
            1 => at += 1,
            kind => {
                let length = segment.get(at + 1).copied().map_or(0, usize::from);
                if length < 2 || at + length > header_bytes {
                    return;
                }
                if kind == SELECTIVE_ACKNOWLEDGEMENT && length % 8 == 2 {
                    (at + 2..at + length).step_by(4).for_each(|place| each(segment, place));
                }
                at += length;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::stream_edits::StreamEdits;
    use super::*;
    use weir_wire::checksum::internet_checksum;

    #[test]
    fn selective_acknowledgements_follow_edits_at_any_offset() {
        for padding in 0..4 {
            let mut segment = vec![0; 20];
            segment.extend(std::iter::repeat_n(1, padding));
            segment.extend([5, 10]);
            segment.extend([106_u32, 200].map(u32::to_be_bytes).concat());
            segment.resize(segment.len().next_multiple_of(4), 0);
            let sum = internet_checksum(&segment);
            set_half(&mut segment, 16, sum);
            let mut edits = StreamEdits::default();
            edits.replace(100, 102, Some(b"abcd".to_vec()));
            let length = segment.len();
            each_selective(&mut segment, length, |segment, at| {
                let number = edits.acknowledgement(word(segment, at));
                set_covered(segment, at, number);
            });
            let found = [word(&segment, 22 + padding), word(&segment, 26 + padding)];
            assert_eq!(found, [104, 198], "{padding}");
            assert_eq!(internet_checksum(&segment), 0, "{padding}");
        }
        // Options that are cut or too short end the search.
        for wrong in [[5, 255, 0, 0], [5, 0, 0, 0], [5, 1, 0, 0], [7, 4, 5, 10]] {
            let mut segment = [vec![0; 20], wrong.to_vec()].concat();
            each_selective(&mut segment, 24, |_, _| panic!("no complete option"));
        }
    }

    #[test]
    fn zeros_have_a_checksum_that_is_not_zero() {
        let mut message = [0, 0, 0, 0, 0, 7, 0, 0];
        let sum = internet_checksum(&message);
        set_half(&mut message, 2, sum);
        message[5] = 0;
        update_icmp(ChecksumChange::of([(7, 0)]), &mut message);
        assert_eq!(internet_checksum(&message), 0);
        assert_eq!(half(&message, 2), u16::MAX);
    }
}
