//! Generated packets that cost a module as much as possible: headers of all lengths, payloads in formats that modules
//! parse, and recurring flows. [`crate::worst_case`] runs modules on them to find the most expensive packet.

use crate::random::Random;
use std::ops::Range;
use weir_abi::Descriptor;
use weir_admission::ParameterValue;
use weir_units::Timestamp;
use weir_wire::{LinkType, Meta};

/// A packet, with the fields of its descriptor that do not follow from its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CraftedPacket {
    /// The frame from its Ethernet header on.
    pub bytes: Vec<u8>,
    /// The time stamp less that of the previous packet, in nanoseconds. Negative if time goes backwards.
    pub gap_ns: i64,
    /// A flow hash in place of the computed one: an attacker who knows the hash function can find packets for each value.
    pub flow_hash: Option<u64>,
}

impl CraftedPacket {
    /// The packet's descriptor, with the time stamp `ts` in nanoseconds, the address `data`, and a packet number.
    pub fn descriptor(&self, ts: u64, data: u32, number: u64) -> Descriptor {
        let len = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        let link_type = LinkType::Ethernet;
        let meta =
            Meta { ts: Timestamp(ts), cap_len: len, wire_len: len, link_type, interface: 0, number, data };
        let mut descriptor = weir_wire::classify(&self.bytes, &meta).unwrap_or_default();
        if let Some(hash) = self.flow_hash {
            descriptor.flow_hash = hash;
        }
        descriptor
    }
}

/// Sets of captured lengths. All packets of a [`TrafficProfile`] have lengths from one set.
const LENGTHS: &[&[usize]] = &[&[60, 90], &[60, 200, 600, 1514], &[1514], &[1514, 9018], &[100, 65_549]];

/// The common properties of the packets that are generated in one phase of a search.
#[derive(Clone, Debug)]
pub struct TrafficProfile {
    /// The number of flows; 0 if each packet is a new flow.
    flows: usize,
    /// The bits of the flow hash that are equal for all packets, so that entries of hash tables collide. `None` for the
    /// computed hash.
    same_hash: Option<u64>,
    /// The range of nanoseconds between packets.
    gap: Range<i64>,
    /// The captured lengths of packets.
    lengths: &'static [usize],
    /// Packets come from the capture, in their order and with short gaps, so that conversations are complete.
    replayed: bool,
}

impl TrafficProfile {
    /// Returns true if the packets come from the capture.
    pub fn is_replayed(&self) -> bool {
        self.replayed
    }

    /// A random profile.
    pub fn random(random: &mut Random) -> Self {
        let same = [0, 0xFFFF, 0xFFFF_FFFF, 0xFFFF_FFFF << 32, 0xFFFF << 48, 0xFFF_FFFF << 16, !0xFF, !1];
        let gaps =
            [0..1, 1..2000, 1_000_000..2_000_000, -1_000_000..1_000_000, 1_000_000_000..90_000_000_000];
        Self {
            flows: *random.choose(&[0, 0, 1, 2, 16, 300]),
            same_hash: if random.once_in(2) { Some(*random.choose(&same)) } else { None },
            gap: random.choose(&gaps).clone(),
            lengths: *random.choose(LENGTHS),
            replayed: random.once_in(3),
        }
    }
}

/// A generator of packets for one module.
#[derive(Debug)]
pub struct PacketGenerator {
    random: Random,
    /// Byte strings that the module may search for.
    words: Vec<Vec<u8>>,
    /// Ports that the module may test for.
    ports: Vec<u16>,
    /// Packets of a capture.
    recorded: Vec<Vec<u8>>,
    /// The index of the next packet of `recorded`.
    next_recorded: usize,
}

/// Ports of protocols that modules parse.
const PORTS: [u16; 14] = [53, 80, 443, 22, 161, 1812, 67, 68, 69, 111, 666, 8080, 0, 65_535];

/// Messages with as many elements as possible, in formats that modules parse: a beginning, and an element that is
/// repeated.
const FORMATS: &[(&[u8], &[u8])] = &[
    (b"", b"\n"),
    (b"", b"\r\n"),
    (b"GET / HTTP/1.1\r\n", b"x\r\n"),
    (b"GET / HTTP/1.1\r\n", b"x-forwarded-fox: 1\r\n"),
    (b"GET /", b" "),
    (b"", b"0\r\n\n"),
    (b"", b"1\r\nx\n"),
    (b"", b"\x08\x00"),
    (b"", b"\x88\x80\x00\xff\x80"),
    (b"", b"\x80"),
    (b"", b"\x30\x00"),
    (b"", b"\x30\x84\x00\x00\x00\x00"),
    (b"", b"\x02\x81\x00"),
    // DNS with as many questions as fit, with labels of one byte, and with pointers to themselves.
    (b"\x12\x34\x01\x00\xff\xff\x00\x00\x00\x00\x00\x00", b"\x00\x00\x01\x00\x01"),
    (b"\x12\x34\x01\x00\xff\xff\x00\x00\x00\x00\x00\x00", b"\x01a"),
    (b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00", b"\xc0\x0c"),
    (b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x3f", b"a"),
    // RADIUS, its length and its authenticator.
    (b"\x01\x01\x05\x00\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", b"\x01\x02"),
    // A ClientHello without session, with one cipher, and extensions without contents.
    (b"\x16\x03\x01\x05\x00\x01\x00\x04\xfc\x03\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x00\x00\x02\x13\x01\x01\x00\x04\x00", b"\x00\x17\x00\x00"),
    (b"\x16\x03\x01\x05\x00\x01\x00\x04\xfc\x03\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x00\x00\x02\x13\x01\x01\x00\x04\x00\x00\x00\x03\xff\x03\xfd\x00\x03\xfa", b"."),
    (b"SSH-2.0-", b" "),
];

impl PacketGenerator {
    /// A generator for a module. The strings in its bytes and the values of its parameters occur in the payloads. The same
    /// seed gives the same packets.
    pub fn new(seed: u64, wasm: &[u8], parameters: &[ParameterValue], recorded: Vec<Vec<u8>>) -> Self {
        let mut words: Vec<Vec<u8>> = wasm
            .split(|byte| !(b' '..=b'~').contains(byte))
            .filter(|word| word.len() >= 4)
            .map(<[u8]>::to_vec)
            .collect();
        let mut ports = PORTS.to_vec();
        for value in parameters {
            match value {
                ParameterValue::String(word) => words.push(word.clone()),
                ParameterValue::StringList(list) => words.extend(list.iter().cloned()),
                ParameterValue::U64List(list) => {
                    ports.extend(list.iter().filter_map(|port| u16::try_from(*port).ok()))
                }
                ParameterValue::U64(port) => ports.extend(u16::try_from(*port).ok()),
                _ => {}
            }
        }
        words.retain(|word| !word.is_empty());
        // Each word once, the longest first: long words cost a search most.
        words.sort_by_key(|word| std::cmp::Reverse(word.len()));
        words.dedup();
        words.truncate(64);
        Self { random: Random::new(seed), words, ports, recorded, next_recorded: 0 }
    }

    /// The source of randomness.
    pub fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// The next packet with this profile.
    pub fn packet(&mut self, profile: &TrafficProfile) -> CraftedPacket {
        let flow = match profile.flows {
            0 => self.random.word(),
            flows => u64::try_from(self.random.below(flows)).unwrap_or(0),
        };
        let len = *self.random.choose(profile.lengths);
        if let Some(bytes) = self.recorded.get(self.next_recorded).filter(|_| profile.replayed) {
            self.next_recorded = (self.next_recorded + 1) % self.recorded.len();
            let bytes = bytes.clone();
            return CraftedPacket { bytes, gap_ns: profile.gap.start.max(1000), flow_hash: None };
        }
        let bytes = if self.random.once_in(5) && !self.recorded.is_empty() {
            let mut bytes = self.random.choose(&self.recorded).clone();
            bytes.truncate(len);
            bytes
        } else {
            self.headers(flow, len)
        };
        let span = profile.gap.end.abs_diff(profile.gap.start);
        let extra = i64::try_from(self.random.word() % span.max(1)).unwrap_or(0);
        let varying = self.random.word();
        CraftedPacket {
            bytes,
            gap_ns: profile.gap.start + extra,
            flow_hash: profile.same_hash.map(|same| (0x1234_5678_9ABC_DEF1 & same) | (varying & !same)),
        }
    }

    /// A packet of a flow: its headers, and a payload that fills the packet to a length.
    fn headers(&mut self, flow: u64, len: usize) -> Vec<u8> {
        let mut out = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        match self.random.below(24) {
            0 => {
                // LLDP with empty values.
                out.extend([0x88, 0xCC]);
                out.extend([2, 0].into_iter().cycle().take(len.saturating_sub(14)));
                return out;
            }
            1 => {
                // An unknown EtherType.
                out.extend([self.random.byte(), self.random.byte()]);
                self.fill(&mut out, len);
                return out;
            }
            2..=4 => out.extend([0x81, 0x00, 0x00, 0x07]),
            _ => {}
        }
        let protocol = *self.random.choose(&[6u8, 6, 6, 17, 17, 1]);
        let begin = if self.random.once_in(6) {
            self.ipv6(&mut out, flow, protocol)
        } else {
            self.ipv4(&mut out, flow, protocol)
        };
        self.transport_header(&mut out, flow, protocol);
        self.fill(&mut out, len);
        fix_lengths(&mut out, begin);
        out
    }

    /// Appends an IPv4 header. Returns its offset.
    fn ipv4(&mut self, out: &mut Vec<u8>, flow: u64, protocol: u8) -> usize {
        let options = if self.random.once_in(6) { self.random.below(11) } else { 0 };
        out.extend([0x08, 0x00]);
        let begin = out.len();
        let address = (flow.wrapping_mul(0x9E37_79B1) >> 8).to_le_bytes();
        out.extend([
            0x45 + u8::try_from(options).unwrap_or(0),
            self.random.byte() & 0xFC,
            0,
            0,
            0,
            1,
            0x40,
            0,
        ]);
        out.extend([
            64, protocol, 0, 0, 10, address[0], address[1], address[2], 192, address[3], 2, address[4],
        ]);
        let kind = *self.random.choose(&[1u8, 1, 7, 0]);
        for _ in 0..options * 2 {
            out.extend(if kind == 7 { [7, 2] } else { [kind, kind] });
        }
        begin
    }

    /// Appends an IPv6 header with extension headers. Returns its offset.
    fn ipv6(&mut self, out: &mut Vec<u8>, flow: u64, protocol: u8) -> usize {
        out.extend([0x86, 0xDD]);
        let begin = out.len();
        let chain = if self.random.once_in(2) { self.random.below(12) } else { 0 };
        out.extend([0x60, 0, 0, 0, 0, 0, if chain > 0 { 60 } else { protocol }, 64]);
        for side in 0..2u8 {
            out.extend([0x20, 0x01, 0x0d, 0xb8, side, 0, 0, 0]);
            out.extend(flow.to_be_bytes());
        }
        for remaining in (0..chain).rev() {
            out.extend([if remaining > 0 { 60 } else { protocol }, 0, 1, 4, 0, 0, 0, 0]);
        }
        begin
    }

    /// Appends the header of TCP, UDP or ICMP.
    fn transport_header(&mut self, out: &mut Vec<u8>, flow: u64, protocol: u8) {
        let tested = *self.random.choose(&self.ports);
        let other = if self.random.once_in(3) {
            self.random.half_word()
        } else {
            1024 + flow.to_le_bytes()[5] as u16
        };
        let (from, to) = if self.random.once_in(2) { (tested, other) } else { (other, tested) };
        if protocol == 1 {
            out.extend([8, 0, 0, 0, 0, 1, 0, 1]);
            return;
        }
        out.extend(from.to_be_bytes());
        out.extend(to.to_be_bytes());
        if protocol == 17 {
            out.extend([0, 0, 0, 0]);
            return;
        }
        // Small sequence numbers, so that acknowledgements match segments.
        let number = |random: &mut Random| u32::try_from(random.below(64)).unwrap_or(0) * 100;
        out.extend(number(&mut self.random).to_be_bytes());
        out.extend(number(&mut self.random).to_be_bytes());
        let options = if self.random.once_in(3) { self.random.below(11) } else { 0 };
        let flags = *self.random.choose(&[0x02u8, 0x12, 0x10, 0x18, 0x11, 0x04, 0x02, 0x10]);
        out.extend([u8::try_from(5 + options).unwrap_or(5) << 4, flags, 0xFF, 0xFF, 0, 0, 0, 0]);
        let kind = *self.random.choose(&[1u8, 1, 4, 0]);
        for _ in 0..options * 2 {
            out.extend(if kind == 4 { [4, 2] } else { [kind, kind] });
        }
    }

    /// Appends a payload that fills the packet to a length.
    fn fill(&mut self, out: &mut Vec<u8>, len: usize) {
        let room = len.saturating_sub(out.len());
        match self.random.below(8) {
            0 => out.extend(std::iter::repeat_n(*self.random.choose(&[0u8, 0xFF, b'A', 0x90]), room)),
            1 => out.extend((0..room).map(|_| self.random.byte())),
            2 | 3 if !self.words.is_empty() => {
                // A word repeated: whole, without its last byte, or only its first bytes.
                let word = self.random.choose(&self.words).clone();
                let cut = match self.random.below(3) {
                    0 => word.len(),
                    1 => word.len() - 1,
                    _ => 1 + self.random.below(word.len()),
                };
                out.extend(word[..cut].iter().copied().cycle().take(room));
            }
            _ => {
                let (begin, unit) = *self.random.choose(FORMATS);
                out.extend(begin.iter().take(room));
                let room = len.saturating_sub(out.len());
                out.extend(unit.iter().copied().cycle().take(room));
            }
        }
    }

    /// A mutation of the packet `one`, with parts of the packet `other`.
    pub fn mutate(&mut self, one: &CraftedPacket, other: &CraftedPacket) -> CraftedPacket {
        let mut mutant = one.clone();
        for _ in 0..=self.random.below(4) {
            self.change(&mut mutant, other);
        }
        if !self.random.once_in(6) && mutant.bytes.get(12..14) == Some(&[0x08, 0x00]) {
            fix_lengths(&mut mutant.bytes, 14);
        }
        mutant
    }

    /// Makes one random change to `mutant`.
    fn change(&mut self, mutant: &mut CraftedPacket, other: &CraftedPacket) {
        let len = mutant.bytes.len();
        // Half of the changes are in the headers, which modules read most.
        let reach = if self.random.once_in(2) { len.min(80) } else { len };
        let at = self.random.below(reach);
        match self.random.below(10) {
            0 | 1 if len > 0 => mutant.bytes[at] ^= 1 << self.random.below(8),
            2 if len > 0 => mutant.bytes[at] = *self.random.choose(&[0, 1, 2, 0x7F, 0x80, 0xFF, b'\n', b' ']),
            3 if len > 0 => mutant.bytes[at] = self.random.byte(),
            4 => {
                let take = self.random.below(64);
                for (to, from) in mutant.bytes.iter_mut().zip(&other.bytes).skip(at).take(take) {
                    *to = *from;
                }
            }
            5 => {
                let wanted = *self.random.choose(&[at, 54, 60, 1514, 600, 9018]);
                let filler = mutant.bytes.last().copied().unwrap_or(0);
                mutant.bytes.resize(wanted, filler);
            }
            6 => {
                // A part of the packet, repeated to its end.
                let part: Vec<u8> =
                    mutant.bytes.iter().skip(at).take(1 + self.random.below(24)).copied().collect();
                let end = (at + part.len()).min(len);
                let repeated: Vec<u8> = part.iter().copied().cycle().take(len.saturating_sub(end)).collect();
                mutant.bytes.truncate(end);
                mutant.bytes.extend(repeated);
            }
            7 => {
                mutant.flow_hash = match self.random.below(4) {
                    0 => None,
                    1 => other.flow_hash,
                    2 => mutant.flow_hash.map(|hash| hash ^ 1 << self.random.below(64)),
                    _ => Some(self.random.word()),
                }
            }
            8 => {
                mutant.gap_ns = *self.random.choose(&[
                    0,
                    1,
                    1000,
                    1_000_000,
                    1_000_000_000,
                    -1,
                    -1_000_000_000,
                    90_000_000_000,
                ])
            }
            _ if !self.words.is_empty() => {
                let word = self.random.choose(&self.words).clone();
                let end = len.min(at + word.len());
                mutant.bytes.splice(at..end.max(at), word);
            }
            _ => {}
        }
    }
}

/// Sets the lengths in the headers to those of the packet, whose IP header is at `begin`.
fn fix_lengths(packet: &mut [u8], begin: usize) {
    let len = u16::try_from(packet.len().saturating_sub(begin)).unwrap_or(u16::MAX);
    let Some(header) = packet.get_mut(begin..) else { return };
    let udp = match header.first().map(|byte| byte >> 4) {
        Some(4) => {
            write_u16(header, 2, len);
            (header.get(9) == Some(&17)).then(|| usize::from(header[0] & 15) * 4)
        }
        Some(6) => {
            write_u16(header, 4, len.saturating_sub(40));
            (header.get(6) == Some(&17)).then_some(40)
        }
        _ => None,
    };
    if let Some(udp) = udp {
        write_u16(header, udp + 4, len.saturating_sub(u16::try_from(udp).unwrap_or(0)));
    }
}

fn write_u16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(place) = bytes.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_abi::flag;

    fn generator() -> PacketGenerator {
        let value = ParameterValue::U64(7);
        PacketGenerator::new(1, b"\0\0User-Agent: evil\0\0", &[value], Vec::new())
    }

    #[test]
    fn the_same_seed_makes_the_same_packets() {
        let make = || {
            let mut generator = generator();
            let profile = TrafficProfile::random(generator.random());
            (0..50).map(|_| generator.packet(&profile)).collect::<Vec<_>>()
        };
        assert_eq!(make(), make());
    }

    #[test]
    fn most_packets_have_valid_headers_and_every_kind_of_header_occurs() {
        let mut generator = generator();
        let mut seen = 0;
        let mut malformed = 0;
        for _ in 0..40 {
            let profile = TrafficProfile::random(generator.random());
            for _ in 0..50 {
                let descriptor = generator.packet(&profile).descriptor(1, weir_abi::ARENA_BASE, 0);
                seen |= descriptor.flags;
                malformed += u32::from(descriptor.flags & flag::MALFORMED != 0);
            }
        }
        let wanted = flag::IPV4
            | flag::IPV6
            | flag::TCP
            | flag::UDP
            | flag::ICMP
            | flag::L4
            | flag::VLAN
            | flag::OPTIONS;
        assert_eq!(seen & wanted, wanted, "flags {seen:x}");
        assert!(malformed < 400, "{malformed} of 2000");
    }
}
