//! A line of a summary, and the packet that it describes.

use super::fields::FLAGS;
use super::headers::{ICMP, TCP, UDP};
use core::net::Ipv4Addr;
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
            "first_timestamp" => set!(self.first_time, time(word)),
            "ip_src" => set!(self.source, value(word)),
            "ip_dst" => set!(self.destination, value(word)),
            "sport" => set!(self.source_port, value(word)),
            "dport" => set!(self.destination_port, value(word)),
            "ip_proto" => set!(self.protocol, protocol(word)),
            "ip_len" => set!(self.length, value(word)),
            "ip_id" => set!(self.id, value(word)),
            "ip_tos" => set!(self.tos, value(word)),
            "ip_dscp" => set!(self.tos, value::<u8>(word).map(|it| it << 2 | self.tos.unwrap_or(0) & 3)),
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

    /// Returns the bytes of the packet, from the IP header on. With `is_whole`, they are all there, with checksums.
    fn bytes(&self, default_protocol: u8, is_whole: bool) -> Vec<u8> {
        let protocol = self.protocol.unwrap_or(default_protocol);
        let fragment = self.fragment.unwrap_or(0);
        let mut bytes = vec![0; 20];
        if fragment & 0x1fff == 0 {
            self.transport(protocol, &mut bytes);
        }
        let headers = bytes.len();
        let payload = self.payload.as_deref().unwrap_or_default();
        bytes.extend_from_slice(payload);
        // The length field has 16 bits.
        let by_payload = headers + self.payload_length.map_or(payload.len(), usize::from);
        let length = self.length.map_or(by_payload.min(usize::from(u16::MAX)), usize::from);
        bytes.truncate(length.max(20));
        if is_whole && bytes.len() < length {
            bytes.resize(length, 0);
        }
        let length = u16::try_from(length).unwrap_or(u16::MAX);
        bytes[0] = 0x45;
        bytes[1] = self.tos.unwrap_or(0);
        bytes[2..4].copy_from_slice(&length.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.id.unwrap_or(0).to_be_bytes());
        bytes[6..8].copy_from_slice(&fragment.to_be_bytes());
        bytes[8] = self.ttl.unwrap_or(TTL_DEFAULT);
        bytes[9] = protocol;
        bytes[10..12].copy_from_slice(&self.checksum.unwrap_or(0).to_be_bytes());
        bytes[12..16].copy_from_slice(&self.source.unwrap_or(Ipv4Addr::UNSPECIFIED).octets());
        bytes[16..20].copy_from_slice(&self.destination.unwrap_or(Ipv4Addr::UNSPECIFIED).octets());
        if protocol == UDP && fragment & 0x1fff == 0 && bytes.len() >= 26 {
            let udp_length = self.udp_length.unwrap_or(length.saturating_sub(20));
            bytes[24..26].copy_from_slice(&udp_length.to_be_bytes());
        }
        if is_whole {
            set_checksums(&mut bytes, protocol, fragment);
        }
        bytes
    }

    fn transport(&self, protocol: u8, bytes: &mut Vec<u8>) {
        let mut add = |part: &[u8]| bytes.extend_from_slice(part);
        match protocol {
            TCP | UDP => {
                add(&self.source_port.unwrap_or(0).to_be_bytes());
                add(&self.destination_port.unwrap_or(0).to_be_bytes());
                if protocol == UDP {
                    add(&[0; 4]);
                    return;
                }
                add(&self.sequence.unwrap_or(0).to_be_bytes());
                add(&self.acknowledgement.unwrap_or(0).to_be_bytes());
                // Five words of header.
                add(&(0x5000 | self.flags.unwrap_or(0) & 0x1ff).to_be_bytes());
                add(&self.window.unwrap_or(0).to_be_bytes());
                add(&[0; 2]);
                add(&self.urgent.unwrap_or(0).to_be_bytes());
            }
            ICMP => {
                add(&self.icmp.map(|it| it.unwrap_or(0)));
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
        packet.set_network_header(0, 20);
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

/// The time to live of a packet without a stated one.
const TTL_DEFAULT: u8 = 100;

fn set_checksums(bytes: &mut [u8], protocol: u8, fragment: u16) {
    bytes[10..12].fill(0);
    let header = internet_checksum(&bytes[..20]);
    bytes[10..12].copy_from_slice(&header.to_be_bytes());
    // A fragment has a part of what the checksum is about.
    if fragment & 0x3fff != 0 {
        return;
    }
    let (at, has_addresses) = match protocol {
        TCP => (36, true),
        UDP => (26, true),
        ICMP => (22, false),
        _ => return,
    };
    if bytes.len() < at + 2 {
        return;
    }
    bytes[at..at + 2].fill(0);
    let mut total = add_bytes(0, &bytes[20..]);
    if has_addresses {
        total = add_bytes(total, &bytes[12..20]) + u64::from(protocol) + (bytes.len() - 20) as u64;
    }
    let value = match !fold_sum(total) {
        // A checksum of 0 would say that there is none.
        0 if protocol == UDP => u16::MAX,
        value => value,
    };
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
