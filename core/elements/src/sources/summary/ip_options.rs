//! The options of IPv4 headers as texts.

use super::headers::long;
use core::net::Ipv4Addr;
use std::fmt::Write as _;

/// The numbers of options.
const END: u8 = 0;
const NO_OPERATION: u8 = 1;
pub const RECORD_ROUTE: u8 = 7;
pub const TIME_STAMPS: u8 = 68;
pub const LOOSE_ROUTE: u8 = 131;
pub const STRICT_ROUTE: u8 = 137;

/// Writes the options of an IP header: `.` if there are none, `?` if one is wrong.
pub fn write(bytes: &[u8], out: &mut String) {
    match options(bytes) {
        Some(text) if text.is_empty() => out.push('.'),
        Some(text) => out.push_str(&text),
        None => out.push('?'),
    }
}

fn options(mut bytes: &[u8]) -> Option<String> {
    let mut out = String::new();
    while let Some(kind) = bytes.first().copied() {
        match kind {
            END => break,
            NO_OPERATION => bytes = &bytes[1..],
            _ => {
                let length = usize::from(*bytes.get(1)?);
                let option = bytes.get(..length).filter(|option| option.len() >= 2)?;
                bytes = &bytes[length..];
                if !out.is_empty() {
                    out.push(';');
                }
                match kind {
                    RECORD_ROUTE => route("rr", option, &mut out)?,
                    LOOSE_ROUTE => route("lsrr", option, &mut out)?,
                    STRICT_ROUTE => route("ssrr", option, &mut out)?,
                    TIME_STAMPS => times(option, &mut out)?,
                    _ => other(kind, &option[2..], &mut out),
                }
            }
        }
    }
    Some(out)
}

fn address(option: &[u8], at: usize) -> Option<Ipv4Addr> {
    Some(Ipv4Addr::from_bits(long(option, at)?))
}

/// Writes addresses. In a recorded route, those from the pointer on are room; in a source route, a mark shows the
/// pointer.
fn route(name: &str, option: &[u8], out: &mut String) -> Option<()> {
    let pointer = usize::from(*option.get(2).filter(|pointer| **pointer >= 4)?) - 1;
    let has_room = option[0] == RECORD_ROUTE;
    _ = write!(out, "{name}{{");
    let (mut at, mut gap) = (3, "");
    while at + 4 <= option.len() {
        if at == pointer {
            if has_room {
                break;
            }
            gap = "^";
        }
        _ = write!(out, "{gap}{}", address(option, at)?);
        (at, gap) = (at + 4, ",");
    }
    let is_at_end = at == pointer && at == option.len();
    out.push_str(if is_at_end && !has_room { "^}" } else { "}" });
    if has_room && at == pointer && at + 4 <= option.len() {
        _ = write!(out, "+{}", (option.len() - at) / 4);
    }
    Some(())
}

/// Writes time stamps, with addresses if there are some. From the pointer on, there is room, or the addresses of those
/// that are to add time stamps.
fn times(option: &[u8], out: &mut String) -> Option<()> {
    let pointer = usize::from(*option.get(2).filter(|pointer| **pointer >= 5)?) - 1;
    let (flag, overflow) = (option.get(3)? & 0xf, option[3] >> 4);
    let (has_addresses, is_prespecified) = ((1..=3).contains(&flag), flag == 3);
    let size = if has_addresses { 8 } else { 4 };
    _ = match flag {
        0 => write!(out, "ts{{"),
        1 => write!(out, "ts.ip{{"),
        3 => write!(out, "ts.preip{{"),
        other => write!(out, "ts.{other}{{"),
    };
    let (mut at, mut gap) = (4, "");
    while at + size <= option.len() {
        if at == pointer {
            if !is_prespecified {
                break;
            }
            gap = "^";
        }
        out.push_str(gap);
        let is_open = is_prespecified && at >= pointer;
        if has_addresses {
            _ = write!(out, "{}{}", address(option, at)?, if is_open { "" } else { "=" });
        }
        if !is_open {
            let time = long(option, at + size - 4)?;
            // The upper bit stands for a time that is not since midnight.
            _ = write!(out, "{}{}", if time >> 31 == 1 { "!" } else { "" }, time & 0x7fff_ffff);
        }
        (at, gap) = (at + size, ",");
    }
    out.push_str(if at == pointer && at == option.len() { "^}" } else { "}" });
    if at == pointer && at + size <= option.len() {
        _ = write!(out, "+{}", (option.len() - at) / size);
    }
    if overflow > 0 {
        _ = write!(out, "++{overflow}");
    }
    Some(())
}

fn other(kind: u8, data: &[u8], out: &mut String) {
    _ = write!(out, "{kind}");
    for (index, byte) in data.iter().enumerate() {
        _ = write!(out, "{}{byte}", if index == 0 { '=' } else { ':' });
    }
}
