//! A datagram of which fragments have arrived.

use crate::ipv4::{HEADER_BYTES, Ipv4Header, MORE_FRAGMENTS, OFFSET, finish_header};
use std::collections::BTreeMap;
use weir_graph::engine::{ANNOTATION_BYTES, GraphPacket, HEADROOM, PacketPool, PacketType};
use weir_units::Timestamp;

/// The most bytes of an IPv4 packet.
const TOTAL_MAX: usize = 65_535;

/// The part of a datagram that a fragment has.
#[derive(Clone, Copy, Debug)]
pub struct FragmentPart<'a> {
    pub header: Ipv4Header<'a>,
    pub payload: &'a [u8],
    pub is_last: bool,
}

impl<'a> FragmentPart<'a> {
    /// Reads a fragment from its IP header on; `None` if its length or its offset is wrong, or not all of it is there.
    pub fn read(header: Ipv4Header<'a>) -> Option<Self> {
        let payload = header.segment()?;
        let is_last = header.fragment_field() & MORE_FRAGMENTS == 0;
        let end = header.offset() + payload.len();
        let is_right = !payload.is_empty()
            && (is_last || payload.len().is_multiple_of(8))
            && header.header_bytes + end <= TOTAL_MAX;
        is_right.then_some(Self { header, payload, is_last })
    }

    fn end(&self) -> usize {
        self.header.offset() + self.payload.len()
    }
}

/// The properties of a packet beside its bytes.
#[derive(Clone, Copy, Debug)]
struct PacketFacts {
    annotations: [u8; ANNOTATION_BYTES],
    device: u16,
    packet_type: PacketType,
}

impl PacketFacts {
    fn of(packet: &GraphPacket) -> Self {
        Self {
            annotations: *packet.annotations(),
            device: packet.device(),
            packet_type: packet.packet_type(),
        }
    }
}

/// A datagram.
pub struct PartialDatagram {
    /// The link header and the IP header: those of the first fragment, or else an IP header without options.
    head: Vec<u8>,
    /// The bytes of `head` before the IP header.
    link_bytes: usize,
    facts: PacketFacts,
    /// The payload so far, with zeros where it is missing.
    payload: Vec<u8>,
    /// The parts that have arrived: their starts and ends.
    parts: BTreeMap<usize, usize>,
    has_last: bool,
    /// The most bytes of a fragment, from the IP header on.
    pub longest: u16,
    pub seen_at: Timestamp,
    /// The key in the order of ages.
    pub age: (Timestamp, u64),
}

/// The result of a further fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentResult {
    /// The datagram is complete.
    Complete,
    /// Fragments are missing.
    Incomplete,
    /// The fragment contradicts an earlier one about the end of the datagram, and is not used.
    Wrong,
}

impl PartialDatagram {
    /// Returns a datagram without fragments, with the header of one.
    pub fn new(packet: &GraphPacket, part: &FragmentPart<'_>, age: (Timestamp, u64)) -> Self {
        let mut head = part.header.header()[..HEADER_BYTES].to_vec();
        head[0] = 0x45;
        Self {
            head,
            link_bytes: 0,
            facts: PacketFacts::of(packet),
            payload: Vec::new(),
            parts: BTreeMap::new(),
            has_last: false,
            longest: 0,
            seen_at: age.0,
            age,
        }
    }

    /// Returns the memory in the unit of the limit: the payload, and 40 bytes or a longer head.
    pub fn memory(&self) -> usize {
        self.head.len().max(40) + self.payload.len()
    }

    /// Returns the payload so far.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Returns the parts that have arrived.
    pub fn parts(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.parts.iter().map(|(start, end)| (*start, *end))
    }

    /// Adds a fragment. Where it overlaps earlier ones, its bytes replace theirs.
    pub fn add(&mut self, packet: &GraphPacket, part: &FragmentPart<'_>) -> FragmentResult {
        let (start, end) = (part.header.offset(), part.end());
        let longest = self.payload.len();
        if (self.has_last && end > longest)
            || (part.is_last && end < longest)
            || self.head.len() - self.link_bytes + end.max(longest) > TOTAL_MAX
        {
            return FragmentResult::Wrong;
        }
        self.has_last |= part.is_last;
        if end > longest {
            self.payload.resize(end, 0);
        }
        self.payload[start..end].copy_from_slice(part.payload);
        self.note_part(start, end);
        let length = part.header.header_bytes + part.payload.len();
        self.longest = self.longest.max(u16::try_from(length).unwrap_or(u16::MAX));
        if start == 0 {
            let link_bytes = packet.network_offset().unwrap_or(0).min(packet.len());
            if part.header.header_bytes + self.payload.len() <= TOTAL_MAX {
                self.head = packet.bytes()[..link_bytes].to_vec();
                self.head.extend_from_slice(part.header.header());
                self.link_bytes = link_bytes;
                self.facts = PacketFacts::of(packet);
            }
        }
        if self.has_last && self.parts.get(&0) == Some(&self.payload.len()) {
            FragmentResult::Complete
        } else {
            FragmentResult::Incomplete
        }
    }

    /// Joins a part with those that it touches.
    fn note_part(&mut self, mut start: usize, mut end: usize) {
        while let Some((other_start, other_end)) = self.parts.range(..=end).next_back().map(|(s, e)| (*s, *e))
            && other_end >= start
        {
            self.parts.remove(&other_start);
            start = start.min(other_start);
            end = end.max(other_end);
        }
        self.parts.insert(start, end);
    }

    /// Returns the datagram as a packet: with everything that has arrived, at its place.
    pub fn packet(&self, time: Timestamp, is_complete: bool, pool: &mut PacketPool) -> GraphPacket {
        let head_bytes = self.head.len();
        let header_bytes = head_bytes - self.link_bytes;
        let mut packet = pool.of_length(head_bytes + self.payload.len(), HEADROOM);
        let bytes = packet.bytes_mut();
        bytes[..head_bytes].copy_from_slice(&self.head);
        bytes[head_bytes..].copy_from_slice(&self.payload);
        let header = &mut bytes[self.link_bytes..head_bytes];
        let total = u16::try_from(header_bytes + self.payload.len()).unwrap_or(u16::MAX);
        let flags = u16::from_be_bytes([header[6], header[7]]) & !OFFSET & !MORE_FRAGMENTS;
        finish_header(header, total, if is_complete { flags } else { flags | MORE_FRAGMENTS });
        packet.set_link_header(0);
        packet.set_network_header(self.link_bytes, header_bytes);
        packet.set_time(time);
        packet.set_device(self.facts.device);
        packet.set_packet_type(self.facts.packet_type);
        *packet.annotations_mut() = self.facts.annotations;
        packet
    }
}
