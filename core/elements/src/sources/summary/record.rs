//! A line of a summary, and the packet that it describes.

use super::form::{ECN_NAMES, FLAGS};
use super::headers::{ICMP, TCP, UDP};
use super::read_options::{self, OPTIONS_MAX};
use core::net::Ipv4Addr;
use weir_graph::arguments::protocols::{icmp_code_number, icmp_type_number};
use weir_graph::arguments::text::unquote;
use weir_graph::engine::{
    AGGREGATE, EXTRA_LENGTH, EXTRA_PACKETS, FIRST_TIMESTAMP, GraphPacket, PAINT, PacketPool,
};
use weir_units::Timestamp;
use weir_wire::checksum::{add_bytes, fold_sum, internet_checksum};

/// The values that a line, or the file before it, states about a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SummaryRecord {
    pub time: Option<u64>,
    pub seconds: Option<u64>,
    pub microseconds: Option<u64>,
    pub first_time: Option<u64>,
    pub source: Option<Ipv4Addr>,
    pub destination: Option<Ipv4Addr>,
    pub source_port: Option<u16>,
    pub destination_port: Option<u16>,
    pub protocol: Option<u8>,
    pub length: Option<u16>,
    pub id: Option<u16>,
    pub tos: Option<u8>,
    pub ttl: Option<u8>,
    pub checksum: Option<u16>,
    pub fragment: Option<u16>,
    pub sequence: Option<u32>,
    pub acknowledgement: Option<u32>,
    pub flags: Option<u16>,
    pub window: Option<u16>,
    pub urgent: Option<u16>,
    pub udp_length: Option<u16>,
    pub icmp: [Option<u8>; 2],
    /// The name of the ICMP code, which depends on the type.
    pub icmp_code_name: Option<String>,
    pub ip_options: Vec<u8>,
    /// The options of TCP, with the rank of the field that they come from.
    pub tcp_options: (u8, Vec<u8>),
    pub ip_header: Option<u8>,
    pub tcp_header: Option<u8>,
    pub icmp_words: [Option<u16>; 2],
    pub payload: Option<Vec<u8>>,
    pub payload_length: Option<u16>,
    pub count: Option<u32>,
    pub link: Option<u8>,
    pub aggregate: Option<u32>,
}

fn value<T: weir_graph::arguments::ArgumentValue>(word: &str) -> Option<T> {
    crate::values::read(word).ok()
}

fn time(word: &str) -> Option<u64> {
    value::<Timestamp>(word).map(|time| time.0)
}

fn protocol(word: &str) -> Option<u8> {
    match word {
        "T" => Some(TCP),
        "U" => Some(UDP),
        "I" => Some(ICMP),
        _ => value::<weir_graph::arguments::IpProtocol>(word).map(|it| it.0),
    }
}

fn flags(word: &str) -> Option<u16> {
    if word == "." {
        return Some(0);
    }
    if word.starts_with(|first: char| first.is_ascii_digit()) {
        return value(word);
    }
    word.chars().try_fold(0, |bits, letter| {
        let letter = match letter {
            'W' | 'Y' => 'C',
            'X' => 'E',
            other => other,
        };
        FLAGS.chars().position(|it| it == letter).map(|bit| bits | 1 << bit)
    })
}

fn fragment_offset(word: &str) -> Option<u16> {
    let offset = word.trim_end_matches(['+', '!']);
    let marks = &word[offset.len()..];
    let offset: u16 = value(offset)?;
    let bit = |mark, bit| if marks.contains(mark) { bit } else { 0 };
    Some(offset >> 3 | bit('+', 0x2000) | bit('!', 0x4000))
}

/// The offset of a fragment of which only this is known: it is not the first one.
const LATER_FRAGMENT: u16 = 1;

impl SummaryRecord {
    /// Takes the value of a field. Returns false if it has none.
    pub fn take(&mut self, field: &str, word: &str) -> bool {
        macro_rules! set {
            ($place:expr, $value:expr) => {{
                let found = $value;
                let is_there = found.is_some();
                if is_there {
                    $place = found;
                }
                is_there
            }};
        }
        if word == "-" {
            return false;
        }
        match field {
            "timestamp" | "ntimestamp" => set!(self.time, time(word)),
            "ts_sec" => set!(self.seconds, value(word)),
            "ts_usec" => set!(self.microseconds, value(word)),
            "ts_usec1" => set!(self.time, value::<u64>(word).and_then(|it| it.checked_mul(1000))),
            "first_timestamp" | "first_ntimestamp" => set!(self.first_time, time(word)),
            "ip_src" => set!(self.source, value(word)),
            "ip_dst" => set!(self.destination, value(word)),
            "sport" => set!(self.source_port, value(word)),
            "dport" => set!(self.destination_port, value(word)),
            "ip_proto" => set!(self.protocol, protocol(word)),
            "ip_len" => set!(self.length, value(word)),
            "ip_id" => set!(self.id, value(word)),
            "ip_tos" => set!(self.tos, value(word)),
            "ip_dscp" => set!(self.tos, value::<u8>(word).map(|it| it << 2 | self.tos.unwrap_or(0) & 3)),
            "ip_ecn" => {
                let names = [ECN_NAMES, ["0", "ECT(1)", "ECT(0)", "CE"], ["", "1", "2", "3"]];
                let found = names.iter().find_map(|names| names.iter().position(|name| *name == word));
                set!(
                    self.tos,
                    found.and_then(|ecn| Some(self.tos.unwrap_or(0) & !3 | u8::try_from(ecn).ok()?))
                )
            }
            "ip_hl" => set!(self.ip_header, value(word)),
            "ip_opt" => self.take_options(field, read_options::ip(word)),
            "tcp_opt" | "tcp_ntopt" | "tcp_sack" => self.take_options(field, read_options::tcp(word)),
            "tcp_off" => set!(self.tcp_header, value(word)),
            "ip_ttl" => set!(self.ttl, value(word)),
            "ip_sum" => set!(self.checksum, value(word)),
            "ip_fragoff" => set!(self.fragment, fragment_offset(word)),
            "ip_frag" => {
                let fragment = match word {
                    "F" => Some(0x2000),
                    "f" => Some(LATER_FRAGMENT),
                    "!" => Some(0x4000),
                    "." => Some(0),
                    _ => None,
                };
                // The offset says more.
                let is_there = fragment.is_some();
                self.fragment = self.fragment.or(fragment);
                is_there
            }
            "tcp_seq" => set!(self.sequence, value(word)),
            "tcp_ack" => set!(self.acknowledgement, value(word)),
            "tcp_flags" => set!(self.flags, flags(word)),
            "tcp_window" => set!(self.window, value(word)),
            "tcp_urp" => set!(self.urgent, value(word)),
            "udp_len" => set!(self.udp_length, value(word)),
            "icmp_type" => set!(self.icmp[0], value(word)),
            "icmp_code" => set!(self.icmp[1], value(word)),
            "icmp_type_name" => set!(self.icmp[0], icmp_type_number(word).or_else(|| value(word))),
            "icmp_code_name" => match value(word) {
                Some(code) => set!(self.icmp[1], Some(code)),
                None => set!(self.icmp_code_name, Some(word.to_owned())),
            },
            "icmp_flowid" => set!(self.icmp_words[0], value(word)),
            "icmp_seq" | "icmp_nextmtu" => set!(self.icmp_words[1], value(word)),
            "payload" => set!(self.payload, Some(unquote(word))),
            "payload_len" => set!(self.payload_length, value(word)),
            "count" => set!(self.count, value(word)),
            "link" | "direction" => set!(
                self.link,
                match word {
                    ">" | "L" => Some(0),
                    "<" | "R" | "X" => Some(1),
                    _ => value(word),
                }
            ),
            "aggregate" => set!(self.aggregate, value(word)),
            _ => false,
        }
    }

    /// Takes the bytes of options. Returns false if there are none, or they are too long.
    pub fn take_options(&mut self, field: &str, options: Option<Vec<u8>>) -> bool {
        let Some(options) = options.filter(|options| options.len() <= OPTIONS_MAX) else { return false };
        let rank = match field {
            "tcp_sack" => 1,
            "tcp_ntopt" => 2,
            "tcp_opt" => 3,
            _ => {
                self.ip_options = options;
                return true;
            }
        };
        // All options say more than some of them.
        if rank >= self.tcp_options.0 {
            self.tcp_options = (rank, options);
        }
        true
    }

    /// Returns the bytes of the packet, from the IP header on. With `is_whole`, they are all there, with checksums.
    fn bytes(&self, default_protocol: u8, is_whole: bool) -> Vec<u8> {
        let protocol = self.protocol.unwrap_or(default_protocol);
        let fragment = self.fragment.unwrap_or(0);
        let mut bytes = vec![0; HEADER_BYTES];
        add_options(&mut bytes, 0, &self.ip_options, self.ip_header);
        let header = bytes.len();
        if fragment & 0x1fff == 0 {
            self.transport(protocol, &mut bytes);
        }
        // The payload of other protocols includes their headers.
        let headers = if matches!(protocol, TCP | UDP) { bytes.len() } else { header };
        let payload = self.payload.as_deref().unwrap_or_default();
        bytes.resize(bytes.len().max(headers + payload.len()), 0);
        bytes[headers..][..payload.len()].copy_from_slice(payload);
        // The length field has 16 bits.
        let by_payload = match (self.payload_length, &self.payload) {
            (Some(length), _) => headers + usize::from(length),
            (None, Some(payload)) => headers + payload.len(),
            (None, None) => bytes.len(),
        };
        let length = self.length.map_or(by_payload.min(usize::from(u16::MAX)), usize::from);
        bytes.truncate(length.max(header));
        if is_whole && bytes.len() < length {
            bytes.resize(length, 0);
        }
        let length = u16::try_from(length).unwrap_or(u16::MAX);
        bytes[0] = 0x40 | header_words(header);
        bytes[1] = self.tos.unwrap_or(0);
        bytes[2..4].copy_from_slice(&length.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.id.unwrap_or(0).to_be_bytes());
        bytes[6..8].copy_from_slice(&fragment.to_be_bytes());
        bytes[8] = self.ttl.unwrap_or(TTL_DEFAULT);
        bytes[9] = protocol;
        bytes[10..12].copy_from_slice(&self.checksum.unwrap_or(0).to_be_bytes());
        bytes[12..16].copy_from_slice(&self.source.unwrap_or(Ipv4Addr::UNSPECIFIED).octets());
        bytes[16..20].copy_from_slice(&self.destination.unwrap_or(Ipv4Addr::UNSPECIFIED).octets());
        if protocol == UDP && fragment & 0x1fff == 0 && bytes.len() >= header + 6 {
            let ip_header = u16::try_from(header).unwrap_or(0);
            let udp_length = self.udp_length.unwrap_or(length.saturating_sub(ip_header));
            bytes[header + 4..header + 6].copy_from_slice(&udp_length.to_be_bytes());
        }
        if is_whole {
            set_checksums(&mut bytes, header, protocol, fragment);
        }
        bytes
    }

    fn transport(&self, protocol: u8, bytes: &mut Vec<u8>) {
        match protocol {
            TCP | UDP => {
                let start = bytes.len();
                let mut add = |part: &[u8]| bytes.extend_from_slice(part);
                add(&self.source_port.unwrap_or(0).to_be_bytes());
                add(&self.destination_port.unwrap_or(0).to_be_bytes());
                if protocol == UDP {
                    add(&[0; 4]);
                    return;
                }
                add(&self.sequence.unwrap_or(0).to_be_bytes());
                add(&self.acknowledgement.unwrap_or(0).to_be_bytes());
                add(&(self.flags.unwrap_or(0) & 0x1ff).to_be_bytes());
                add(&self.window.unwrap_or(0).to_be_bytes());
                add(&[0; 2]);
                add(&self.urgent.unwrap_or(0).to_be_bytes());
                add_options(bytes, start, &self.tcp_options.1, self.tcp_header);
                bytes[start + 12] |= header_words(bytes.len() - start) << 4;
            }
            ICMP => {
                let mut add = |part: &[u8]| bytes.extend_from_slice(part);
                let kind = self.icmp[0].unwrap_or(0);
                let named = self.icmp_code_name.as_deref().and_then(|name| icmp_code_number(kind, name));
                add(&[kind, self.icmp[1].or(named).unwrap_or(0)]);
                add(&[0; 2]);
                self.icmp_words.iter().for_each(|word| add(&word.unwrap_or(0).to_be_bytes()));
            }
            _ => {}
        }
    }

    /// Returns the packet.
    pub fn packet(&self, default_protocol: u8, is_whole: bool, pool: &mut PacketPool) -> GraphPacket {
        let bytes = self.bytes(default_protocol, is_whole);
        let mut packet = pool.of_bytes(&bytes);
        let parts = self.seconds.map(|seconds| {
            seconds
                .saturating_mul(1_000_000_000)
                .saturating_add(self.microseconds.unwrap_or(0).saturating_mul(1000))
        });
        packet.set_time(Timestamp(self.time.or(parts).unwrap_or(0)));
        packet.set_network_header(0, usize::from(bytes[0] & 0xf) * 4);
        let length = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
        let extra = u32::try_from(length.saturating_sub(bytes.len())).unwrap_or(0);
        packet.annotation_mut(EXTRA_LENGTH).copy_from_slice(&extra.to_ne_bytes());
        let more = self.count.unwrap_or(1).saturating_sub(1);
        packet.annotation_mut(EXTRA_PACKETS).copy_from_slice(&more.to_ne_bytes());
        if let Some(link) = self.link {
            packet.annotation_mut(PAINT)[0] = link;
        }
        if let Some(aggregate) = self.aggregate {
            packet.annotation_mut(AGGREGATE).copy_from_slice(&aggregate.to_ne_bytes());
        }
        if let Some(first) = self.first_time {
            packet.annotation_mut(FIRST_TIMESTAMP).copy_from_slice(&first.to_ne_bytes());
        }
        packet
    }
}

/// The bytes of a header of IPv4 or TCP without options.
const HEADER_BYTES: usize = 20;

/// Returns the length of a header in words of four bytes. With all options, there are fifteen of them.
fn header_words(bytes: usize) -> u8 {
    u8::try_from(bytes / 4).unwrap_or(15)
}

/// Adds options to the header that begins at `start`, and zeros up to its stated length, or to the next word.
fn add_options(bytes: &mut Vec<u8>, start: usize, options: &[u8], stated: Option<u8>) {
    bytes.extend_from_slice(options);
    let stated = usize::from(stated.unwrap_or(0)).min(HEADER_BYTES + OPTIONS_MAX);
    let length = (bytes.len() - start).max(stated).next_multiple_of(4);
    bytes.resize(start + length, 0);
}

/// The time to live of a packet without a stated one.
const TTL_DEFAULT: u8 = 100;

fn set_checksums(bytes: &mut [u8], header: usize, protocol: u8, fragment: u16) {
    bytes[10..12].fill(0);
    let checksum = internet_checksum(&bytes[..header]);
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
    // A fragment has a part of what the checksum is about.
    if fragment & 0x3fff != 0 {
        return;
    }
    let (at, has_addresses) = match protocol {
        TCP => (header + 16, true),
        UDP => (header + 6, true),
        ICMP => (header + 2, false),
        _ => return,
    };
    if bytes.len() < at + 2 {
        return;
    }
    bytes[at..at + 2].fill(0);
    let mut total = add_bytes(0, &bytes[header..]);
    if has_addresses {
        total = add_bytes(total, &bytes[12..20]) + u64::from(protocol) + (bytes.len() - header) as u64;
    }
    let value = match !fold_sum(total) {
        // A checksum of 0 would say that there is none.
        0 if protocol == UDP => u16::MAX,
        value => value,
    };
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
