//! Quantities as types, so that every number has a stated unit; names; points in time as text; and the escaping of
//! untrusted text for display.

#![forbid(unsafe_code)]

mod address;
mod amount;
mod bytes;
mod name;
mod nanos;
mod rate;
mod shell;
mod text;
mod time;

pub use address::AddressText;
pub use amount::{Amount, display_among};
pub use bytes::Bytes;
pub use name::{Name, NameError};
pub use nanos::{Nanos, Timestamp};
pub use rate::BitsPerSecond;
pub use shell::shell_line;
pub use text::{Escape, Escaped, bytes_of_hex, escaped, escaped_lines, escaped_prefix, hex, is_plain};
pub use time::{TimeError, parse_time, show_time, time_text};

/// The error for a text that is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The text that was given.
    pub given: String,
    /// A description of legal texts, with an example, that completes the sentence "… is not …".
    pub wanted: &'static str,
}

impl std::fmt::Display for ParseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}` is not {}", self.given.escape_debug(), self.wanted)
    }
}

impl std::error::Error for ParseError {}

/// Splits a text such as "12.5ms" into the texts of the number and of the unit.
fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

/// Returns a decimal number times `scale`, computed exactly in integers: "1.5" and 1000 give 1500. `None` if the result
/// is no whole number, or too large.
fn scaled(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > 18 {
        return None;
    }
    let mut value = u128::from(whole.parse::<u64>().ok()?) * u128::from(scale);
    if !fraction.is_empty() {
        let denominator = 10u128.pow(u32::try_from(fraction.len()).ok()?);
        let part = u128::from(fraction.parse::<u64>().ok()?) * u128::from(scale);
        if part % denominator != 0 {
            return None;
        }
        value += part / denominator;
    }
    u64::try_from(value).ok()
}
