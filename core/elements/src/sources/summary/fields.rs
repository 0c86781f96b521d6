//! The fields of summaries, and their texts.

use super::headers::{ICMP, SummaryHeaders, TCP, UDP, long, number};
use super::options::{TcpOptions, write as write_options};
use crate::values::seconds;
use core::net::Ipv4Addr;
use std::fmt::Write as _;
use weir_graph::arguments::EthernetAddress;
use weir_graph::arguments::text::quote;
use weir_graph::engine::{AGGREGATE, Annotation, EXTRA_PACKETS, FIRST_TIMESTAMP, PAINT};
use weir_units::Timestamp;

/// A field of a summary.
pub struct SummaryField {
    pub name: &'static str,
    /// Writes the value; `None` if the packet has none.
    pub write: fn(&SummaryHeaders<'_>, &mut String) -> Option<()>,
}

/// The letters of TCP flags, from the lowest bit on.
pub const FLAGS: &str = "FSRPAUECN";

macro_rules! fields {
    ($($name:literal: |$it:ident, $out:ident| $value:expr;)*) => {
        /// All fields.
        pub static FIELDS: &[SummaryField] = &[$(SummaryField {
            name: $name,
            write: |$it, $out| {
                $value;
                Some(())
            },
        }),*];
    };
}

/// Writes a value.
fn put(out: &mut String, value: impl std::fmt::Display) {
    _ = write!(out, "{value}");
}

fn annotation(it: &SummaryHeaders<'_>, annotation: Annotation) -> u32 {
    it.packet.annotation(annotation).try_into().map_or(0, u32::from_ne_bytes)
}

fn ethernet(it: &SummaryHeaders<'_>, at: usize) -> Option<EthernetAddress> {
    Some(EthernetAddress(it.packet.link_bytes()?.get(at..at + 6)?.try_into().ok()?))
}

fn flags(bits: u16, out: &mut String) {
    let before = out.len();
    for (index, letter) in FLAGS.chars().enumerate() {
        if bits & (1 << index) != 0 {
            out.push(letter);
        }
    }
    if out.len() == before {
        out.push('.');
    }
}

fields! {
    "timestamp": |it, out| out.push_str(&seconds(it.packet.time()));
    "ntimestamp": |it, out| {
        let nanos = it.packet.time().0;
        put(out, format_args!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000))
    };
    "ts_sec": |it, out| put(out, it.packet.time().0 / 1_000_000_000);
    "ts_usec": |it, out| put(out, it.packet.time().0 % 1_000_000_000 / 1000);
    "ts_usec1": |it, out| put(out, it.packet.time().0 / 1000);
    "ip_src": |it, out| put(out, Ipv4Addr::from(long(it.ip?, 12)?));
    "ip_dst": |it, out| put(out, Ipv4Addr::from(long(it.ip?, 16)?));
    "ip_hl": |it, out| put(out, it.ip?.len());
    "ip_tos": |it, out| put(out, it.ip?[1]);
    "ip_dscp": |it, out| put(out, it.ip?[1] >> 2);
    "ip_ecn": |it, out| put(out, ["no", "ect1", "ect2", "ce"][usize::from(it.ip?[1] & 3)]);
    "ip_len": |it, out| put(out, it.length()?);
    "ip_id": |it, out| put(out, number(it.ip?, 4)?);
    "ip_frag": |it, out| put(out, match it.fragment()? {
        fragment if fragment & 0x1fff != 0 => 'f',
        fragment if fragment & 0x2000 != 0 => 'F',
        fragment if fragment & 0x4000 != 0 => '!',
        _ => '.',
    });
    "ip_fragoff": |it, out| {
        let fragment = it.fragment()?;
        let more = if fragment & 0x2000 != 0 { "+" } else { "" };
        let whole = if fragment & 0x4000 != 0 { "!" } else { "" };
        put(out, format_args!("{}{more}{whole}", (fragment & 0x1fff) << 3))
    };
    "ip_ttl": |it, out| put(out, it.ip?[8]);
    "ip_proto": |it, out| match it.protocol()? {
        TCP => out.push('T'),
        UDP => out.push('U'),
        ICMP => out.push('I'),
        other => put(out, other),
    };
    "ip_sum": |it, out| put(out, number(it.ip?, 10)?);
    "ip_opt": |it, out| super::ip_options::write(it.ip?, out);
    "ip_capture_len": |it, out| put(out, it.ip?.len() + it.body.len());
    "sport": |it, out| put(out, number(it.ports()?, 0)?);
    "dport": |it, out| put(out, number(it.ports()?, 2)?);
    "tcp_seq": |it, out| put(out, long(it.transport(TCP)?, 4)?);
    "tcp_ack": |it, out| put(out, long(it.transport(TCP)?, 8)?);
    "tcp_off": |it, out| put(out, u32::from(*it.transport(TCP)?.get(12)? >> 4) * 4);
    "tcp_flags": |it, out| flags(number(it.transport(TCP)?, 12)? & 0x1ff, out);
    "tcp_window": |it, out| put(out, number(it.transport(TCP)?, 14)?);
    "tcp_urp": |it, out| put(out, number(it.transport(TCP)?, 18)?);
    "tcp_opt": |it, out| write_options(it.tcp_header()?, TcpOptions::All, out);
    "tcp_ntopt": |it, out| write_options(it.tcp_header()?, TcpOptions::NoTimes, out);
    "tcp_sack": |it, out| write_options(it.tcp_header()?, TcpOptions::Sack, out);
    "udp_len": |it, out| put(out, number(it.transport(UDP)?, 4)?);
    "icmp_type": |it, out| put(out, it.transport(ICMP)?.first()?);
    "icmp_code": |it, out| put(out, it.transport(ICMP)?.get(1)?);
    "icmp_flowid": |it, out| put(out, number(it.transport(ICMP)?, 4)?);
    "icmp_seq": |it, out| put(out, number(it.transport(ICMP)?, 6)?);
    "icmp_nextmtu": |it, out| {
        let icmp = it.transport(ICMP)?;
        // Fragmentation was needed.
        (icmp.get(..2)? == [3, 4]).then_some(())?;
        put(out, number(icmp, 6)?)
    };
    "payload": |it, out| out.push_str(&quote(it.payload()?));
    "payload_len": |it, out| put(out, it.payload_length()?);
    "count": |it, out| put(out, u64::from(annotation(it, EXTRA_PACKETS)) + 1);
    "link": |it, out| put(out, it.packet.annotation(PAINT)[0]);
    "direction": |it, out| match it.packet.annotation(PAINT)[0] {
        0 => out.push('>'),
        1 => out.push('<'),
        other => put(out, other),
    };
    "aggregate": |it, out| put(out, annotation(it, AGGREGATE));
    "first_timestamp": |it, out| {
        let time = u64::from_ne_bytes(it.packet.annotation(FIRST_TIMESTAMP).try_into().ok()?);
        out.push_str(&seconds(Timestamp(time)))
    };
    "eth_src": |it, out| put(out, ethernet(it, 6)?);
    "eth_dst": |it, out| put(out, ethernet(it, 0)?);
    "eth_type": |it, out| put(out, format_args!("{:04x}", number(it.packet.link_bytes()?, 12)?));
    "wire_len": |it, out| {
        let bytes = it.packet.link_bytes().map_or(it.packet.len(), <[u8]>::len);
        put(out, bytes as u64 + u64::from(it.extra))
    };
}

/// Other names of fields.
const ALIASES: &[(&str, &str)] = &[
    ("ts", "timestamp"),
    ("utimestamp", "timestamp"),
    ("sec", "ts_sec"),
    ("usec", "ts_usec"),
    ("usec1", "ts_usec1"),
    ("src", "ip_src"),
    ("dst", "ip_dst"),
    ("len", "ip_len"),
    ("length", "ip_len"),
    ("id", "ip_id"),
    ("proto", "ip_proto"),
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
