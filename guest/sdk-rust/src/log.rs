//! Messages to the operator.

use crate::{host, limit};
use core::fmt;

/// The severity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The module cannot do its task.
    Error = 0,
    /// A problem that the module survives.
    Warning = 1,
    /// Information.
    Info = 2,
}

/// Logs a line for the operator, cut to [`limit::LOG_BYTES`] bytes. Returns true if the host has accepted the line. A run
/// accepts [`limit::LOG_MESSAGES`] lines; the host drops and counts further ones.
pub fn log(level: Level, text: &str) -> bool {
    // SAFETY: the address and length are those of a string, which the host only reads.
    unsafe { host::log(level as u32, text.as_ptr(), text.len() as u32) >= 0 }
}

/// Formats a message and logs it: `log!(Level::Warning, "{} is too small", size)`. Formatting adds some kilobytes of
/// code to the module; [`fn@log`] with a text adds none.
#[macro_export]
macro_rules! log {
    ($level:expr, $($text:tt)+) => {{
        let mut line = $crate::Line::new();
        // A message that is too long is cut, as the host would do.
        _ = ::core::fmt::Write::write_fmt(&mut line, ::core::format_args!($($text)+));
        line.send($level)
    }};
}

/// A message that is being written.
pub struct Line {
    bytes: [u8; limit::LOG_BYTES as usize],
    len: usize,
}

impl Line {
    /// An empty message.
    pub const fn new() -> Self {
        Self { bytes: [0; limit::LOG_BYTES as usize], len: 0 }
    }

    /// Returns the text so far.
    pub fn text(&self) -> &str {
        self.bytes.get(..self.len).and_then(|bytes| core::str::from_utf8(bytes).ok()).unwrap_or_default()
    }

    /// Logs the message. Returns true if it was accepted.
    pub fn send(&self, level: Level) -> bool {
        log(level, self.text())
    }
}

impl Default for Line {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            let mut utf8 = [0; 4];
            let utf8 = character.encode_utf8(&mut utf8).as_bytes();
            let room = self.bytes.get_mut(self.len..).and_then(|rest| rest.get_mut(..utf8.len()));
            room.ok_or(fmt::Error)?.copy_from_slice(utf8);
            self.len += utf8.len();
        }
        Ok(())
    }
}

/// Logs the source location of the panic, and ends the call. The panic's message is left out: the code to format it
/// would make the smallest module ten times as large.
#[cfg(target_arch = "wasm32")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    if let Some(location) = info.location() {
        let mut line = Line::new();
        let mut digits = [0; 10];
        let parts = ["panicked at ", location.file(), ":", decimal(location.line(), &mut digits)];
        for part in parts {
            _ = fmt::Write::write_str(&mut line, part);
        }
        line.send(Level::Error);
    }
    core::arch::wasm32::unreachable()
}

/// Returns a number as text, without the code of `core::fmt`.
#[cfg(any(target_arch = "wasm32", test))]
fn decimal(number: u32, digits: &mut [u8; 10]) -> &str {
    let mut rest = number;
    let mut first = digits.len();
    for (index, digit) in digits.iter_mut().enumerate().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
        first = index;
        if rest == 0 {
            break;
        }
    }
    digits.get(first..).and_then(|digits| core::str::from_utf8(digits).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;
    use std::string::ToString;

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let mut line = Line::new();
        assert!(write!(line, "{}{}", "x".repeat(511), "é").is_err());
        assert_eq!(line.text(), "x".repeat(511));
    }

    #[test]
    fn line_numbers_are_decimal() {
        for number in [0, 7, 10, 1234, u32::MAX] {
            assert_eq!(decimal(number, &mut [0; 10]), number.to_string());
        }
    }
}
