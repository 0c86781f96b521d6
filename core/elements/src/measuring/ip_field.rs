//! Fields of headers in the words of `AggregateIP`, such as `ip src/8` or `tcp[0:2]`.

use crate::classification::{Field, TCP, TCP_OR_UDP, TRANSPORT, UDP, field_name, named_field};
use weir_graph::arguments::parse_unsigned;
use weir_graph::arguments::protocols::{protocol_name, protocol_number};
use weir_graph::engine::Reason;

/// The data behind the header of TCP or UDP. Protocols have 8 bits.
const PAYLOAD: u16 = 259;

/// The words for several protocols, or none.
const HEADERS: &[(&str, Option<u16>)] = &[
    ("ip", None),
    ("tcpudp", Some(TCP_OR_UDP)),
    ("transp", Some(TRANSPORT)),
    ("payload", Some(PAYLOAD)),
    ("data", Some(PAYLOAD)),
];

/// The place from which the bits of a field count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldStart {
    IpHeader,
    /// The transport header of one protocol, of TCP or UDP, or of any.
    Transport(u8),
    TcpOrUdp,
    AnyTransport,
    Payload,
}

/// Returns the start from which a field counts.
pub fn field_start(field: Field) -> FieldStart {
    match field.protocol {
        None => FieldStart::IpHeader,
        Some(TCP_OR_UDP) => FieldStart::TcpOrUdp,
        Some(PAYLOAD) => FieldStart::Payload,
        Some(protocol) => u8::try_from(protocol).map_or(FieldStart::AnyTransport, FieldStart::Transport),
    }
}

/// Returns the name of the header in which a field is.
pub fn header_name(field: Field) -> String {
    if let Some((name, _)) = HEADERS.iter().find(|(_, protocol)| *protocol == field.protocol) {
        return (*name).to_owned();
    }
    let protocol = u8::try_from(field.protocol.unwrap_or(0)).unwrap_or(0);
    protocol_name(protocol).map_or(format!("ip proto {protocol}"), str::to_owned)
}

/// Returns a field in words, as it is read.
pub fn field_text(field: Field) -> String {
    let header = header_name(field);
    if let Some(name) = field_name(field) {
        return format!("{header} {name}");
    }
    let Field { protocol, first_bit, bits } = field;
    for container in [8_u8, 16, 32] {
        let inner = first_bit % u16::from(container);
        let whole = Field { protocol, first_bit: first_bit - inner, bits: container };
        let fits = inner + u16::from(bits) <= u16::from(container);
        if let Some(name) = field_name(whole).filter(|_| fits) {
            return match inner {
                0 => format!("{header} {name}/{bits}"),
                _ => format!("{header} {name}{}", place(inner, bits)),
            };
        }
    }
    format!("{header}{}", place(first_bit, bits))
}

fn place(first_bit: u16, bits: u8) -> String {
    let (byte, is_whole) = (first_bit / 8, first_bit.is_multiple_of(8) && bits.is_multiple_of(8));
    match bits {
        8 if is_whole => format!("[{byte}]"),
        _ if is_whole => format!("[{byte}:{}]", bits / 8),
        1 => format!("{{{first_bit}}}"),
        _ => format!("{{{first_bit}:{bits}}}"),
    }
}

/// Splits a text into words, and characters between them.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_inner = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = match is_inner(first) {
            true => rest.find(|c| !is_inner(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        let (word, behind) = rest.split_at(length);
        words.push(word);
        rest = behind.trim_start();
    }
    words
}

/// The form of a field, for errors.
const FORM: &str = "expected 'HEADER [NAME] [{OFFSET:LENGTH}] [/PREFIX] [& MASK]'";

fn number(word: &str) -> Result<u32, Reason> {
    parse_unsigned(word).and_then(|number| u32::try_from(number).ok()).ok_or_else(|| FORM.to_owned())
}

/// Reads a field.
///
/// # Errors
///
/// Fails with a reason if the text names none, or one that does not fit into 32 bits.
pub fn read_field(text: &str) -> Result<Field, Reason> {
    let all = words(text);
    let (protocol, mut rest) = read_header(&all)?;
    let mut named = None;
    if let [name, behind @ ..] = rest
        && let Some(field) = named_field(protocol, name)
    {
        (named, rest) = (Some(field), behind);
    }
    let mut bits = match named {
        Some(field) => (u32::from(field.first_bit), u32::from(field.bits)),
        // The place is relative to the header.
        None => (0, u32::from(u16::MAX)),
    };
    let place = read_place(&mut rest)?;
    if place.is_none() && named.is_none() {
        return Err(FORM.to_owned());
    }
    if let Some((first, length)) = place {
        if length == 0 || first.checked_add(length).is_none_or(|end| end > bits.1) {
            return Err("bad offset or length in TCP/IP field".to_owned());
        }
        bits = (bits.0 + first, length);
    }
    if let ["/", length, behind @ ..] = rest {
        let length = number(length)?;
        if length == 0 || length > bits.1 {
            return Err("bad prefix or mask in TCP/IP field".to_owned());
        }
        (bits.1, rest) = (length, behind);
    }
    if let ["&", mask, behind @ ..] = rest {
        let mask = number(mask)?;
        let width = mask.count_ones();
        let low = mask.trailing_zeros();
        if mask == 0 || 32 - mask.leading_zeros() != low + width || low + width > bits.1 {
            return Err("bad prefix or mask in TCP/IP field".to_owned());
        }
        (bits, rest) = ((bits.0 + bits.1 - low - width, width), behind);
    }
    if !rest.is_empty() {
        return Err("garbage after field specification".to_owned());
    }
    let (first_bit, length) = bits;
    if length > 32 {
        return Err("field length too large, max 32".to_owned());
    }
    if first_bit / 32 != (first_bit + length - 1) / 32 {
        return Err("field specification does not fit within a single word".to_owned());
    }
    let first_bit = u16::try_from(first_bit).map_err(|_| "bad offset or length in TCP/IP field")?;
    Ok(Field { protocol, first_bit, bits: u8::try_from(length).unwrap_or(32) })
}

/// Reads the header: returns its protocol, and the words behind it.
fn read_header<'w, 't>(words: &'w [&'t str]) -> Result<(Option<u16>, &'w [&'t str]), Reason> {
    match words {
        ["ip", "proto", protocol, rest @ ..] if parse_unsigned(protocol).is_some() => {
            let protocol = u8::try_from(number(protocol)?).map_err(|_| FORM)?;
            Ok((Some(protocol.into()), rest))
        }
        // Ports of both protocols need no header.
        ["sport" | "dport", ..] => Ok((Some(TCP_OR_UDP), words)),
        [header, rest @ ..] => {
            let known = HEADERS.iter().find(|(name, _)| name == header).map(|(_, protocol)| *protocol);
            let protocol = known.or_else(|| Some(Some(u16::from(protocol_number(header)?))));
            protocol.map(|protocol| (protocol, rest)).ok_or_else(|| FORM.to_owned())
        }
        [] => Err(FORM.to_owned()),
    }
}

/// Reads a place such as `[4:2]`, `[4-5]`, `[4]` or `{32:16}`, in bits: the first one, and their number.
fn read_place(rest: &mut &[&str]) -> Result<Option<(u32, u32)>, Reason> {
    let (unit, close) = match rest.first() {
        Some(&"[") => (8, "]"),
        Some(&"{") => (1, "}"),
        _ => return Ok(None),
    };
    let (first, length, behind) = match rest {
        [_, first, end, behind @ ..] if *end == close => (number(first)?, Some(1), behind),
        [_, first, ":" | ",", length, end, behind @ ..] if *end == close => {
            (number(first)?, Some(number(length)?), behind)
        }
        [_, first, "-", last, end, behind @ ..] if *end == close => {
            let first = number(first)?;
            (first, number(last)?.checked_sub(first).and_then(|length| length.checked_add(1)), behind)
        }
        _ => return Err(FORM.to_owned()),
    };
    let scaled = |value: u32| value.checked_mul(unit);
    let place = length.and_then(|length| Some((scaled(first)?, scaled(length)?)));
    *rest = behind;
    place.map(Some).ok_or_else(|| "bad offset or length in TCP/IP field".to_owned())
}

/// Returns true if a field of this protocol is in packets of TCP or UDP only.
pub fn is_tcp_or_udp(protocol: u8) -> bool {
    [TCP, UDP].contains(&u16::from(protocol))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_and_written() {
        for (text, protocol, first_bit, bits, written) in [
            ("ip src/8", None, 96, 8, "ip src/8"),
            ("ip[12]", None, 96, 8, "ip src/8"),
            ("ip[12, 1]", None, 96, 8, "ip src/8"),
            ("ip{96-103}", None, 96, 8, "ip src/8"),
            ("ip src & 0xFF000000", None, 96, 8, "ip src/8"),
            ("tcp sport", Some(6), 0, 16, "tcp sport"),
            ("ip proto 17 [0:2]", Some(17), 0, 16, "udp sport"),
            ("ip dst & 0xff00", None, 144, 8, "ip dst[2]"),
            ("icmp type", Some(1), 0, 8, "icmp type"),
            ("ip tos{2:3}", None, 10, 3, "ip tos{2:3}"),
            ("ip fragoff", None, 51, 13, "ip fragoff"),
            ("transp[0:2]", Some(258), 0, 16, "transp[0:2]"),
            ("tcpudp sport", Some(256), 0, 16, "tcpudp sport"),
            ("dport", Some(256), 16, 16, "tcpudp dport"),
            ("tcp [0:2]/4", Some(6), 0, 4, "tcp sport/4"),
            ("data[4:4]", Some(259), 32, 32, "payload[4:4]"),
            ("ip proto 200 {7}", Some(200), 7, 1, "ip proto 200{7}"),
        ] {
            let field = Field { protocol, first_bit, bits };
            assert_eq!(read_field(text), Ok(field), "{text}");
            assert_eq!(field_text(field), written, "{text}");
            assert_eq!(read_field(written), Ok(field), "{written}");
        }
    }

    #[test]
    fn texts_that_name_no_field_are_refused() {
        for text in [
            "",
            "ip",
            "ip foo",
            "foo src",
            "ip src/0",
            "ip src/33",
            "ip src & 0",
            "ip src & 5",
            "ip tos & 0x100",
            "ip[3:2]x",
            "ip[3:2",
            "ip[3-1]",
            "ip[2:4]",
            "ip{30:4}",
            "ip[0:5]",
            "ip[0:0]",
            "ip[99999999999:1]",
            "ip[536870912]",
            "ip[0:536870912]",
            "ip{0-4294967295}",
            "ip src[4]",
            "ip[8191]",
            "ip proto 300 [0]",
            "é[1]",
        ] {
            assert!(read_field(text).is_err(), "{text}");
        }
    }
}
