//! The fields of summaries, and their values.

use super::form::{FieldForm, SummaryValue};
use super::headers::{ICMP, SummaryHeaders, TCP, UDP, long, number};
use super::options::TcpOptions;
use weir_graph::engine::{AGGREGATE, Annotation, EXTRA_PACKETS, FIRST_TIMESTAMP, PAINT};

/// A field of a summary.
pub struct SummaryField {
    pub name: &'static str,
    /// The way in which the value is written.
    pub form: FieldForm,
    /// Returns the value; `None` if the packet has none.
    pub value: for<'p> fn(&SummaryHeaders<'p>) -> Option<SummaryValue<'p>>,
}

macro_rules! fields {
    ($($name:literal: $form:expr, |$it:ident| $value:expr;)*) => {
        /// All fields.
        pub static FIELDS: &[SummaryField] = &[$(SummaryField {
            name: $name,
            form: $form,
            value: |$it| Some(SummaryValue::from($value)),
        }),*];
    };
}

fn annotation(it: &SummaryHeaders<'_>, annotation: Annotation) -> u32 {
    it.packet.annotation(annotation).try_into().map_or(0, u32::from_ne_bytes)
}

fn first_time(it: &SummaryHeaders<'_>) -> Option<u64> {
    Some(u64::from_ne_bytes(it.packet.annotation(FIRST_TIMESTAMP).try_into().ok()?))
}

/// Returns a word of an ICMP header that only some types have.
fn icmp_word(it: &SummaryHeaders<'_>, at: usize) -> Option<u16> {
    number(it.transport(ICMP)?, at)
}

fn options(header: Option<&[u8]>) -> Option<&[u8]> {
    header?.get(20..)
}

use FieldForm::{
    Address, Digest, Direction, Ecn, Ethernet, Flags, Fragment, FragmentOffset, Hexadecimal,
    HexadecimalDigest, IcmpCode, IcmpType, IpOptions, Microseconds, Nanoseconds, Number, Payload, Protocol,
    TcpOptionList,
};

fields! {
    "timestamp": Microseconds, |it| it.packet.time().0;
    "ntimestamp": Nanoseconds, |it| it.packet.time().0;
    "ts_sec": Number(4), |it| it.packet.time().0 / 1_000_000_000;
    "ts_usec": Number(4), |it| it.packet.time().0 % 1_000_000_000 / 1000;
    "ts_usec1": Number(8), |it| it.packet.time().0 / 1000;
    "ip_src": Address, |it| long(it.ip?, 12)?;
    "ip_dst": Address, |it| long(it.ip?, 16)?;
    "ip_hl": Number(1), |it| it.ip?.len();
    "ip_tos": Number(1), |it| it.ip?[1];
    "ip_dscp": Number(1), |it| it.ip?[1] >> 2;
    "ip_ecn": Ecn, |it| it.ip?[1] & 3;
    "ip_len": Number(4), |it| it.length()?;
    "ip_id": Number(2), |it| number(it.ip?, 4)?;
    "ip_frag": Fragment, |it| match it.fragment()? {
        fragment if fragment & 0x1fff != 0 => b'f',
        fragment if fragment & 0x2000 != 0 => b'F',
        fragment if fragment & 0x4000 != 0 => b'!',
        _ => b'.',
    };
    "ip_fragoff": FragmentOffset, |it| it.fragment()?;
    "ip_ttl": Number(1), |it| it.ip?[8];
    "ip_proto": Protocol, |it| it.protocol()?;
    "ip_sum": Number(2), |it| number(it.ip?, 10)?;
    "ip_opt": IpOptions, |it| options(it.ip)?;
    "ip_capture_len": Number(4), |it| it.ip?.len() + it.body.len();
    "sport": Number(2), |it| number(it.ports()?, 0)?;
    "dport": Number(2), |it| number(it.ports()?, 2)?;
    "tcp_seq": Number(4), |it| long(it.transport(TCP)?, 4)?;
    "tcp_ack": Number(4), |it| long(it.transport(TCP)?, 8)?;
    "tcp_off": Number(1), |it| u32::from(*it.transport(TCP)?.get(12)? >> 4) * 4;
    "tcp_flags": Flags, |it| number(it.transport(TCP)?, 12)? & 0x1ff;
    "tcp_window": Number(2), |it| number(it.transport(TCP)?, 14)?;
    "tcp_urp": Number(2), |it| number(it.transport(TCP)?, 18)?;
    "tcp_opt": TcpOptionList(TcpOptions::All), |it| options(it.tcp_header())?;
    "tcp_ntopt": TcpOptionList(TcpOptions::NoTimes), |it| options(it.tcp_header())?;
    "tcp_sack": TcpOptionList(TcpOptions::Sack), |it| options(it.tcp_header())?;
    "udp_len": Number(4), |it| number(it.transport(UDP)?, 4)?;
    "icmp_type": Number(1), |it| *it.transport(ICMP)?.first()?;
    "icmp_code": Number(1), |it| *it.transport(ICMP)?.get(1)?;
    "icmp_type_name": IcmpType, |it| *it.transport(ICMP)?.first()?;
    "icmp_code_name": IcmpCode, |it| icmp_word(it, 0)?;
    "icmp_flowid": Number(2), |it| icmp_word(it, 4)?;
    "icmp_seq": Number(2), |it| icmp_word(it, 6)?;
    "icmp_nextmtu": Number(2), |it| {
        // Fragmentation was needed.
        (it.transport(ICMP)?.get(..2)? == [3, 4]).then_some(())?;
        icmp_word(it, 6)?
    };
    "payload": Payload, |it| it.payload()?;
    "payload_len": Number(4), |it| it.payload_length()?;
    "payload_md5": Digest, |it| it.payload()?;
    "payload_md5_hex": HexadecimalDigest, |it| it.payload()?;
    "count": Number(4), |it| u64::from(annotation(it, EXTRA_PACKETS)) + 1;
    "link": Number(1), |it| it.packet.annotation(PAINT)[0];
    "direction": Direction, |it| it.packet.annotation(PAINT)[0];
    "aggregate": Number(4), |it| annotation(it, AGGREGATE);
    "first_timestamp": Microseconds, |it| first_time(it)?;
    "first_ntimestamp": Nanoseconds, |it| first_time(it)?;
    "eth_src": Ethernet, |it| it.packet.link_bytes()?.get(6..12)?;
    "eth_dst": Ethernet, |it| it.packet.link_bytes()?.get(..6)?;
    "eth_type": Hexadecimal, |it| number(it.packet.link_bytes()?, 12)?;
    "wire_len": Number(4), |it| {
        let bytes = it.packet.link_bytes().map_or(it.packet.len(), <[u8]>::len);
        bytes as u64 + u64::from(it.extra)
    };
}

/// Other names of fields.
const ALIASES: &[(&str, &str)] = &[
    ("ts", "timestamp"),
    ("utimestamp", "timestamp"),
    ("sec", "ts_sec"),
    ("usec", "ts_usec"),
    ("usec1", "ts_usec1"),
    ("first_ts", "first_timestamp"),
    ("first_utimestamp", "first_timestamp"),
    ("agg", "aggregate"),
    ("wire_length", "wire_len"),
    ("ether_src", "eth_src"),
    ("ether_dst", "eth_dst"),
    ("ether_type", "eth_type"),
    ("tcp_seqno", "tcp_seq"),
    ("tcp_ackno", "tcp_ack"),
    ("tcp_win", "tcp_window"),
    ("src", "ip_src"),
    ("dst", "ip_dst"),
    ("len", "ip_len"),
    ("length", "ip_len"),
    ("id", "ip_id"),
    ("proto", "ip_proto"),
    ("ip_p", "ip_proto"),
    ("frag", "ip_frag"),
    ("fragoff", "ip_fragoff"),
    ("paint", "link"),
    ("payload_length", "payload_len"),
    ("pkt_count", "count"),
    ("packet_count", "count"),
];

/// Returns a field by its name. Spaces stand for underscores.
pub fn find(name: &str) -> Option<&'static SummaryField> {
    let name = name.replace(' ', "_");
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name.as_str(), |(_, name)| name);
    FIELDS.iter().find(|field| field.name == name)
}
