//! The options of TCP headers as texts.

use super::headers::{long, number};
use std::fmt::Write as _;

/// A choice of options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOptions {
    All,
    /// All but time stamps.
    NoTimes,
    /// The options of selective acknowledgement.
    Sack,
}

impl TcpOptions {
    fn has(self, kind: u8) -> bool {
        match self {
            Self::All => true,
            Self::NoTimes => kind != 8,
            Self::Sack => kind == 4 || kind == 5,
        }
    }
}

/// Returns the bytes of the chosen options, up to the first wrong one. Padding is kept with all of them only.
pub fn keep(mut bytes: &[u8], choice: TcpOptions) -> Vec<u8> {
    if choice == TcpOptions::All {
        return bytes.to_vec();
    }
    let mut kept = Vec::new();
    while let [kind, rest @ ..] = bytes {
        let length = match (kind, rest.first()) {
            (0, _) => break,
            (1, _) => 1,
            (_, Some(length)) if *length >= 2 => usize::from(*length),
            _ => break,
        };
        let Some((option, rest)) = bytes.split_at_checked(length) else { break };
        if *kind > 1 && choice.has(*kind) {
            kept.extend_from_slice(option);
        }
        bytes = rest;
    }
    kept
}

/// Writes the options of a TCP header: `.` if there are none, `?` if one is wrong.
pub fn write(bytes: &[u8], choice: TcpOptions, out: &mut String) {
    match options(bytes, choice) {
        Some(text) if text.is_empty() => out.push('.'),
        Some(text) => out.push_str(&text),
        None => out.push('?'),
    }
}

fn options(mut bytes: &[u8], choice: TcpOptions) -> Option<String> {
    let mut out = String::new();
    while let Some(kind) = bytes.first().copied() {
        match kind {
            0 => break,
            1 => bytes = &bytes[1..],
            _ => {
                let length = usize::from(*bytes.get(1)?);
                let option = bytes.get(..length).filter(|option| option.len() >= 2)?;
                bytes = &bytes[length..];
                if choice.has(kind) {
                    option_text(kind, option, &mut out)?;
                }
            }
        }
    }
    Some(out)
}

fn option_text(kind: u8, option: &[u8], out: &mut String) -> Option<()> {
    if !out.is_empty() {
        out.push(';');
    }
    _ = match (kind, option.len()) {
        (2, 4) => write!(out, "mss{}", number(option, 2)?),
        (3, 3) => write!(out, "wscale{}", option[2]),
        (4, 2) => write!(out, "sackok"),
        (5, length) if length % 8 == 2 && length > 2 => {
            for (index, block) in option[2..].chunks_exact(8).enumerate() {
                let gap = if index == 0 { "" } else { ";" };
                _ = write!(out, "{gap}sack{}-{}", long(block, 0)?, long(block, 4)?);
            }
            Ok(())
        }
        (8, 10) => write!(out, "ts{}:{}", long(option, 2)?, long(option, 6)?),
        (2 | 3 | 4 | 5 | 8, _) => return None,
        _ => {
            _ = write!(out, "{kind}");
            for (index, byte) in option[2..].iter().enumerate() {
                _ = write!(out, "{}{byte}", if index == 0 { '=' } else { ':' });
            }
            Ok(())
        }
    };
    Some(())
}
