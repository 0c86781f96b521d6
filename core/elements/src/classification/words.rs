//! Words of IP patterns, and what they name.

use super::fields::named_field;
use super::primitive::{Data, Kind};
use core::net::Ipv4Addr;
use weir_graph::arguments::protocols::icmp_type_number;
use weir_graph::arguments::{
    ArgumentContext, ArgumentValue, IpProtocol, Ipv4Prefix, TcpPort, UdpPort, parse_unsigned,
};

pub const ICMP: u16 = 1;
pub const TCP: u16 = 6;
pub const UDP: u16 = 17;
pub const DCCP: u16 = 33;
/// TCP and UDP.
pub const TCP_OR_UDP: u16 = 256;
/// Any protocol.
pub const TRANSPORT: u16 = 258;

/// Splits a pattern into its words.
pub fn split(pattern: &str) -> Vec<&str> {
    let bytes = pattern.as_bytes();
    let mut words = Vec::new();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        if byte.is_ascii_whitespace() {
            at += 1;
            continue;
        }
        let next = bytes.get(at + 1);
        let length = match byte {
            b'&' | b'|' if next == Some(byte) => 2,
            b'<' | b'>' | b'!' | b'=' if next == Some(&b'=') => 2,
            _ => {
                let is_inner = |byte: &&u8| byte.is_ascii_alphanumeric() || b"-./@_:".contains(byte);
                // A letter that is not of ASCII is a word, which is none of the language.
                let other = pattern[at..].chars().next().map_or(1, char::len_utf8);
                bytes[at..].iter().take_while(is_inner).count().max(other)
            }
        };
        words.push(&pattern[at..at + length]);
        at += length;
    }
    words
}

const KINDS: &[(&str, Kind)] = &[
    ("ce", Kind::Ce),
    ("ect", Kind::Ect),
    ("frag", Kind::Fragment),
    ("host", Kind::Host),
    ("net", Kind::Net),
    ("opt", Kind::TcpOption),
    ("port", Kind::Port),
    ("proto", Kind::Protocol),
    ("unfrag", Kind::Unfragmented),
];

/// The names of fields that patterns know, and the headers that these are in.
const FIELD_WORDS: &[(&str, Option<u16>)] = &[
    ("dscp", None),
    ("hl", None),
    ("id", None),
    ("len", None),
    ("tos", None),
    ("ttl", None),
    ("type", Some(ICMP)),
    ("vers", None),
    ("win", Some(TCP)),
];

const PROTOCOLS: &[(&str, u16)] = &[("tcpudp", TCP_OR_UDP), ("transp", TRANSPORT)];

const TCP_FLAGS: &[(&str, u32)] = &[("fin", 1), ("syn", 2), ("rst", 4), ("psh", 8), ("ack", 16), ("urg", 32)];

fn in_table<T: Copy>(table: &[(&str, T)], word: &str) -> Option<T> {
    table.iter().find(|(name, _)| *name == word).map(|(_, value)| *value)
}

/// Returns the kind of primitive that a word names.
pub fn kind(word: &str) -> Option<Kind> {
    let field = || named_field(in_table(FIELD_WORDS, word)?, word).map(Kind::Field);
    in_table(KINDS, word).or_else(field)
}

/// A word that is a name of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// A value of one kind.
    Value(Kind, Data),
    /// No value, or none that fits, with the reason.
    Misfit(String),
}

/// Returns what a word names, for a primitive of a kind and a protocol as far as these are known. `None` if the word is no
/// name.
pub fn named(
    word: &str,
    kind: Option<Kind>,
    protocol: Option<u16>,
    context: &ArgumentContext<'_>,
) -> Option<Named> {
    if parse_unsigned(word).is_some() {
        return None;
    }
    let of_protocol = |allowed: &[u16]| protocol.is_none_or(|protocol| allowed.contains(&protocol));
    let ip = in_table(PROTOCOLS, word)
        .or_else(|| IpProtocol::parse_argument(word, context).ok().map(|IpProtocol(it)| u16::from(it)));
    let tcp = TcpPort::parse_argument(word, context).ok().map(|TcpPort(port)| u32::from(port));
    let udp = UdpPort::parse_argument(word, context).ok().map(|UdpPort(port)| u32::from(port));
    let icmp_kind = self::kind("type").unwrap_or(Kind::Protocol);
    let icmp_type = icmp_type_number(word);
    let candidates = [
        (ip.map(u32::from), Kind::Protocol, "ip proto", true),
        (tcp, Kind::Port, "port", of_protocol(&[TCP, TCP_OR_UDP])),
        (udp, Kind::Port, "port", of_protocol(&[UDP, TCP_OR_UDP])),
        (in_table(TCP_FLAGS, word), Kind::TcpOption, "tcp opt", of_protocol(&[TCP, TCP_OR_UDP])),
        (icmp_type.map(u32::from), icmp_kind, "icmp type", of_protocol(&[ICMP])),
    ];
    let found =
        candidates.iter().filter_map(|(value, of, text, fits)| Some((((*value)?), *of, *text, *fits)));
    let mut choices: Vec<&str> = Vec::new();
    let mut fitting: Vec<(u32, Kind)> = Vec::new();
    for (value, of, text, fits) in found {
        if !choices.contains(&text) {
            choices.push(text);
        }
        if fits && kind.is_none_or(|kind| kind == of) && !fitting.contains(&(value, of)) {
            fitting.push((value, of));
        }
    }
    if choices.is_empty() {
        return None;
    }
    if let [(value, of)] = fitting[..] {
        return Some(Named::Value(of, Data::Number(value)));
    }
    let fault = if fitting.is_empty() { "has no meaning here" } else { "can mean several things" };
    let choices: Vec<String> = choices.iter().map(|it| format!("'{it} {word}'")).collect();
    Some(Named::Misfit(format!("'{word}' {fault}: write {}", choices.join(" or "))))
}

/// Returns the number that a word is.
pub fn number(word: &str) -> Option<u32> {
    u32::try_from(parse_unsigned(word)?).ok()
}

/// Returns the address or prefix that a word is or names.
pub fn address(word: &str, wants_prefix: bool, context: &ArgumentContext<'_>) -> Option<Data> {
    let prefix = || {
        let Ipv4Prefix { address, mask } = Ipv4Prefix::parse_argument(word, context).ok()?;
        Some(Data::Net(address.to_bits(), mask.to_bits()))
    };
    let host = || Some(Data::Host(Ipv4Addr::parse_argument(word, context).ok()?.to_bits()));
    if wants_prefix { prefix() } else { host().or_else(prefix) }
}
