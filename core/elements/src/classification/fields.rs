//! The fields of headers: their names, and their places.

use super::primitive::Field;
use super::words::{ICMP, TCP, TCP_OR_UDP, UDP};

const fn field(protocol: Option<u16>, first_bit: u16, bits: u8) -> Field {
    Field { protocol, first_bit, bits }
}

const fn ip(first_bit: u16, bits: u8) -> Field {
    field(None, first_bit, bits)
}

const fn tcp(first_bit: u16, bits: u8) -> Field {
    field(Some(TCP), first_bit, bits)
}

const fn udp(first_bit: u16, bits: u8) -> Field {
    field(Some(UDP), first_bit, bits)
}

const fn icmp(first_bit: u16, bits: u8) -> Field {
    field(Some(ICMP), first_bit, bits)
}

const fn tcp_or_udp(first_bit: u16, bits: u8) -> Field {
    field(Some(TCP_OR_UDP), first_bit, bits)
}

/// All fields with a name. A name can be one in several headers, and a place can have several names.
pub const FIELDS: &[(&str, Field)] = &[
    ("vers", ip(0, 4)),
    ("hl", ip(4, 4)),
    ("tos", ip(8, 8)),
    ("dscp", ip(8, 6)),
    ("ecn", ip(14, 2)),
    ("len", ip(16, 16)),
    ("id", ip(32, 16)),
    ("off", ip(48, 16)),
    ("rf", ip(48, 1)),
    ("df", ip(49, 1)),
    ("mf", ip(50, 1)),
    ("fragoff", ip(51, 13)),
    ("ttl", ip(64, 8)),
    ("proto", ip(72, 8)),
    ("sum", ip(80, 16)),
    ("src", ip(96, 32)),
    ("dst", ip(128, 32)),
    ("sport", tcp_or_udp(0, 16)),
    ("dport", tcp_or_udp(16, 16)),
    ("sport", udp(0, 16)),
    ("dport", udp(16, 16)),
    ("len", udp(32, 16)),
    ("sum", udp(48, 16)),
    ("sport", tcp(0, 16)),
    ("dport", tcp(16, 16)),
    ("seq", tcp(32, 32)),
    ("seqno", tcp(32, 32)),
    ("ackno", tcp(64, 32)),
    ("hl", tcp(96, 4)),
    ("flags", tcp(104, 8)),
    ("urg", tcp(106, 1)),
    ("ack", tcp(107, 1)),
    ("ackf", tcp(107, 1)),
    ("psh", tcp(108, 1)),
    ("push", tcp(108, 1)),
    ("rst", tcp(109, 1)),
    ("syn", tcp(110, 1)),
    ("fin", tcp(111, 1)),
    ("win", tcp(112, 16)),
    ("sum", tcp(128, 16)),
    ("urp", tcp(144, 16)),
    ("type", icmp(0, 8)),
    ("code", icmp(8, 8)),
    ("sum", icmp(16, 16)),
];

/// Returns the field with a name in a header.
pub fn named_field(protocol: Option<u16>, name: &str) -> Option<Field> {
    let mut all = FIELDS.iter().filter(|(_, field)| field.protocol == protocol);
    all.find(|(known, _)| *known == name).map(|(_, field)| *field)
}

/// Returns the name of a field; `None` for a place without one.
pub fn field_name(field: Field) -> Option<&'static str> {
    FIELDS.iter().find(|(_, known)| *known == field).map(|(name, _)| *name)
}
