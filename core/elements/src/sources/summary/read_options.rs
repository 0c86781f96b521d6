//! The bytes of IP and TCP options, from their texts in summaries.

use super::ip_options::{LOOSE_ROUTE, RECORD_ROUTE, STRICT_ROUTE, TIME_STAMPS};
use core::net::Ipv4Addr;

/// The most bytes of options in a header of IPv4 or TCP.
pub const OPTIONS_MAX: usize = 40;

const END: u8 = 0;
const NO_OPERATION: u8 = 1;

/// Returns the bytes of IP options; `None` for a text that is none.
pub fn ip(text: &str) -> Option<Vec<u8>> {
    list(text, |rest, bytes| {
        let routes = [("rr{", RECORD_ROUTE), ("lsrr{", LOOSE_ROUTE), ("ssrr{", STRICT_ROUTE)];
        if let Some((after, kind)) =
            routes.iter().find_map(|(name, kind)| Some((rest.strip_prefix(name)?, *kind)))
        {
            return route(after, kind, bytes);
        }
        if let Some(after) = rest.strip_prefix("ts{") {
            return times(after, None, bytes);
        }
        if let Some((flag, after)) = rest.strip_prefix("ts.").and_then(|it| it.split_once('{')) {
            let flag = match flag {
                "ip" => 1,
                "preip" => 3,
                number => number.parse().ok().filter(|number| *number < 16)?,
            };
            return times(after, Some(flag), bytes);
        }
        unknown(rest, bytes)
    })
}

/// Returns the bytes of TCP options; `None` for a text that is none.
pub fn tcp(text: &str) -> Option<Vec<u8>> {
    list(text, |rest, bytes| {
        if let Some(after) = rest.strip_prefix("mss") {
            let (value, after) = number::<u16>(after)?;
            bytes.extend_from_slice(&[2, 4]);
            bytes.extend_from_slice(&value.to_be_bytes());
            return Some(after);
        }
        if let Some(after) = rest.strip_prefix("wscale") {
            let (value, after) = number::<u8>(after)?;
            bytes.extend_from_slice(&[3, 3, value]);
            return Some(after);
        }
        if let Some(after) = rest.strip_prefix("sackok") {
            bytes.extend_from_slice(&[4, 2]);
            return Some(after);
        }
        if rest.starts_with("sack") {
            return blocks(rest, bytes);
        }
        if let Some(after) = rest.strip_prefix("ts") {
            let (value, after) = number::<u32>(after)?;
            let (echo, after) = number::<u32>(after.strip_prefix(':')?)?;
            bytes.extend_from_slice(&[8, 10]);
            bytes.extend_from_slice(&value.to_be_bytes());
            bytes.extend_from_slice(&echo.to_be_bytes());
            return Some(after);
        }
        unknown(rest, bytes)
    })
}

/// Reads options with separators between them. Each call of `read` gets the text from an option on, adds its bytes, and
/// returns the text behind it.
fn list(text: &str, read: impl for<'t> Fn(&'t str, &mut Vec<u8>) -> Option<&'t str>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    if text == "." {
        return Some(bytes);
    }
    let mut rest = text;
    loop {
        rest = match (rest.strip_prefix("nop"), rest.strip_prefix("eol")) {
            (Some(after), _) => {
                bytes.push(NO_OPERATION);
                after
            }
            (_, Some(after)) => {
                bytes.push(END);
                after
            }
            _ => read(rest, &mut bytes)?,
        };
        if bytes.len() > OPTIONS_MAX {
            return None;
        }
        if rest.is_empty() {
            return Some(bytes);
        }
        rest = rest.strip_prefix([';', ','])?;
    }
}

/// Returns the number at the start of a text, and the text behind it.
fn number<T: std::str::FromStr>(text: &str) -> Option<(T, &str)> {
    let end = text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

fn address(text: &str) -> Option<(Ipv4Addr, &str)> {
    let end = text.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

/// Reads the rest of an option with addresses, and its room.
fn route<'t>(text: &'t str, kind: u8, bytes: &mut Vec<u8>) -> Option<&'t str> {
    let start = bytes.len();
    bytes.extend_from_slice(&[kind, 0, 0]);
    let (mut rest, mut pointer) = (text, None);
    while !rest.starts_with('}') {
        if let Some(after) = rest.strip_prefix('^') {
            pointer = pointer.or(Some(bytes.len() - start + 1));
            rest = after;
            continue;
        }
        let (found, after) = address(rest)?;
        bytes.extend_from_slice(&found.octets());
        rest = after.strip_prefix(',').unwrap_or(after);
    }
    let here = bytes.len() - start + 1;
    let rest = room(&rest[1..], 4, bytes)?;
    finish(bytes, start, pointer.unwrap_or(here))?;
    Some(rest)
}

/// Reads `+N` for the room of so many entries.
fn room<'t>(text: &'t str, size: usize, bytes: &mut Vec<u8>) -> Option<&'t str> {
    match text.strip_prefix('+').filter(|after| !after.starts_with('+')) {
        Some(after) => {
            let (count, after) = number::<usize>(after)?;
            bytes.resize(bytes.len() + count.min(OPTIONS_MAX) * size, 0);
            Some(after)
        }
        None => Some(text),
    }
}

/// Sets the length and the pointer of an option.
fn finish(bytes: &mut [u8], start: usize, pointer: usize) -> Option<()> {
    let length = bytes.len() - start;
    bytes[start + 1] = u8::try_from(length).ok()?;
    bytes[start + 2] = u8::try_from(pointer).ok()?;
    Some(())
}

/// Reads the rest of an option with time stamps. Without a flag, the first entry shows if there are addresses.
fn times<'t>(text: &'t str, flag: Option<u8>, bytes: &mut Vec<u8>) -> Option<&'t str> {
    let start = bytes.len();
    bytes.extend_from_slice(&[TIME_STAMPS, 0, 0, 0]);
    let (mut rest, mut pointer) = (text, None);
    let flag = flag.unwrap_or_else(|| match text.split_once('}') {
        Some((entries, _)) if entries.contains('^') && entries.contains('.') => 3,
        Some((entries, _)) if entries.contains('.') => 1,
        _ => 0,
    });
    let has_addresses = (1..=3).contains(&flag);
    while !rest.starts_with('}') {
        if let Some(after) = rest.strip_prefix('^') {
            pointer = pointer.or(Some(bytes.len() - start + 1));
            rest = after;
            continue;
        }
        let mut has_time = true;
        if has_addresses {
            let (found, after) = address(rest)?;
            bytes.extend_from_slice(&found.octets());
            has_time = after.starts_with('=') && !after.starts_with("=?");
            // Behind the pointer, addresses wait for their time stamps.
            if !has_time && pointer.is_none() {
                return None;
            }
            rest = after.strip_prefix("=?").or(after.strip_prefix('=')).unwrap_or(after);
        }
        let mut time = 0;
        if has_time {
            let (bit, after) = rest.strip_prefix('!').map_or((0, rest), |after| (1 << 31, after));
            let (value, after) = number::<u32>(after)?;
            (time, rest) = (value | bit, after);
        }
        bytes.extend_from_slice(&time.to_be_bytes());
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    let here = bytes.len() - start + 1;
    rest = room(&rest[1..], if has_addresses { 8 } else { 4 }, bytes)?;
    let mut overflow = 0_u8;
    if let Some(after) = rest.strip_prefix("++") {
        (overflow, rest) = number(after)?;
        if overflow > 15 {
            return None;
        }
    }
    bytes[start + 3] = overflow << 4 | flag;
    finish(bytes, start, pointer.unwrap_or(here))?;
    Some(rest)
}

/// Reads blocks of selective acknowledgement, which are one option.
fn blocks<'t>(text: &'t str, bytes: &mut Vec<u8>) -> Option<&'t str> {
    let start = bytes.len();
    bytes.extend_from_slice(&[5, 0]);
    let mut rest = text;
    let mut behind = text;
    while let Some(after) = rest.strip_prefix("sack").filter(|after| !after.starts_with("ok")) {
        let (left, after) = number::<u32>(after)?;
        let (right, after) = number::<u32>(after.strip_prefix('-')?)?;
        bytes.extend_from_slice(&left.to_be_bytes());
        bytes.extend_from_slice(&right.to_be_bytes());
        behind = after;
        rest = after.strip_prefix([';', ',']).unwrap_or("");
    }
    bytes[start + 1] = u8::try_from(bytes.len() - start).ok()?;
    Some(behind)
}

/// Reads an option by its number, and its data.
fn unknown<'t>(text: &'t str, bytes: &mut Vec<u8>) -> Option<&'t str> {
    let (kind, mut rest) = number::<u8>(text)?;
    let start = bytes.len();
    bytes.extend_from_slice(&[kind, 2]);
    let mut separator = '=';
    while let Some(after) = rest.strip_prefix(separator) {
        let (byte, after) = number::<u8>(after)?;
        bytes.push(byte);
        rest = after;
        separator = ':';
    }
    bytes[start + 1] = u8::try_from(bytes.len() - start).ok()?;
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::super::form::FieldForm;
    use super::super::options::TcpOptions;
    use super::*;

    #[test]
    fn options_read_as_they_were_written() {
        let written = |form: FieldForm, bytes: &[u8]| {
            let mut text = String::new();
            form.write_text(bytes.into(), &mut text);
            text
        };
        for text in [
            "rr{10.0.0.1,20.0.0.2}+5",
            "ssrr{1.0.0.1,1.0.0.2^1.0.0.3}",
            "lsrr{^1.0.0.3}",
            "ts{1,10000,!45}+2++3",
            "ts.ip{1.0.0.1=1,1.0.0.2=2}+1",
            "ts.preip{1.0.0.1=1^1.0.0.2,1.0.0.3}",
            "98;99=0:5:10;rr{}+1",
        ] {
            assert_eq!(written(FieldForm::IpOptions, &ip(text).unwrap()), text);
        }
        for text in
            ["mss1400;wscale10;sackok;ts669063908:38382731", "sack95-98;sack100-200;30=7", "98;99=0:5:10"]
        {
            assert_eq!(written(FieldForm::TcpOptionList(TcpOptions::All), &tcp(text).unwrap()), text);
        }
        assert_eq!((ip("nop,nop;eol"), tcp(".")), (Some(vec![1, 1, 0]), Some(Vec::new())));
    }

    #[test]
    fn wrong_options_are_none() {
        for text in [
            "",
            "?",
            "rr{1.2.3}",
            "rr{1.2.3.4",
            "rr{}+99",
            "ts{1,x}",
            "ts{1}++16",
            "ts.16{1}",
            "256",
            "1=256",
            "nop nop",
        ] {
            assert_eq!(ip(text), None, "{text}");
        }
        for text in
            ["mss65536", "mss", "sack1", "sack1-", "ts1", "sack1-2;sack3-4;sack5-6;sack7-8;sack9-10", "é"]
        {
            assert_eq!(tcp(text), None, "{text}");
        }
    }
}
