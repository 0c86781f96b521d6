//! Messages to the operator.

use crate::{host, limit, Ip};
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
    log_bytes(level, text.as_bytes())
}

fn log_bytes(level: Level, text: &[u8]) -> bool {
    // Cut here, too, so that the cost has a bound that weir sees.
    let len = (text.len() as u32).min(limit::LOG_BYTES);
    // SAFETY: the address and length are those of a slice or of its begin, which the host only reads.
    unsafe { host::log(level as u32, text.as_ptr(), len) >= 0 }
}

/// Logs a text with values: `log!(Level::Warning, "{} is too small, flags {:x}", size, flags)`. The values are whole numbers,
/// truth values, texts, bytes and addresses; `{:x}` writes a number in hexadecimal digits. Its cost has a bound, as that of
/// [`fn@log`] has. Returns true if the line was accepted.
///
/// For values of other types, implement [`LogValue`], or `write!` to a [`Line`]: formatting by `core::fmt` has no bound, so that
/// weir charges the module while it runs.
#[macro_export]
macro_rules! log {
    (@text $line:ident, $format:expr, $index:expr) => {{
        const TEXT: &[u8] = $crate::generated::log_text($format, $index);
        const PLAIN: [u8; $crate::generated::log_text_len(TEXT)] = $crate::generated::log_plain_text(TEXT);
        $line.push_bytes(&PLAIN);
    }};
    (@values $line:ident, $format:expr, $index:expr;) => {
        $crate::log!(@text $line, $format, $index)
    };
    (@values $line:ident, $format:expr, $index:expr; $first:expr $(, $rest:expr)*) => {
        $crate::log!(@text $line, $format, $index);
        $crate::LogValue::write(&$first, &mut $line, const { $crate::generated::log_is_hex($format, $index) });
        $crate::log!(@values $line, $format, $index + 1; $($rest),*);
    };
    ($level:expr, $format:expr $(, $value:expr)* $(,)?) => {{
        const { $crate::generated::log_check($format, <[&str]>::len(&[$(stringify!($value)),*])) };
        let mut line = $crate::Line::new();
        $crate::log!(@values line, $format, 0; $($value),*);
        line.send($level)
    }};
}

/// A value that [`log!`](crate::log!) writes.
pub trait LogValue {
    /// Writes the value, a number in hexadecimal digits if `is_hex` is true.
    fn write(&self, line: &mut Line, is_hex: bool);
}

/// A message that is being written. What is beyond [`limit::LOG_BYTES`] is left out.
pub struct Line {
    bytes: [u8; limit::LOG_BYTES as usize],
    len: usize,
}

impl Line {
    /// An empty message.
    pub const fn new() -> Self {
        Self { bytes: [0; limit::LOG_BYTES as usize], len: 0 }
    }

    /// Returns the text so far; of bytes that are no text, those before.
    pub fn text(&self) -> &str {
        let bytes = self.bytes.get(..self.len).unwrap_or_default();
        match core::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                bytes.get(..error.valid_up_to()).and_then(|text| core::str::from_utf8(text).ok()).unwrap_or_default()
            }
        }
    }

    /// Adds a text, cut between two characters. Returns false if it was cut.
    #[inline]
    pub fn push_str(&mut self, text: &str) -> bool {
        let room = self.bytes.len().saturating_sub(self.len);
        let mut len = text.len().min(room);
        for _ in 0..3 {
            if text.is_char_boundary(len) {
                break;
            }
            len -= 1;
        }
        self.push_bytes(text.as_bytes().get(..len).unwrap_or_default()) && len == text.len()
    }

    /// Adds bytes; weir escapes those that are no text. Returns false if there is no room for all of them.
    #[inline]
    pub fn push_bytes(&mut self, bytes: &[u8]) -> bool {
        let room = self.bytes.get_mut(self.len..).unwrap_or_default();
        let len = bytes.len().min(room.len());
        if let (Some(room), Some(part)) = (room.get_mut(..len), bytes.get(..len)) {
            room.copy_from_slice(part);
        }
        self.len += len;
        len == bytes.len()
    }

    fn push_digits(&mut self, mut number: u64, base: u64) {
        let mut digits = [0; 20];
        let mut first = digits.len();
        for (index, digit) in digits.iter_mut().enumerate().rev() {
            let value = (number % base) as u8;
            *digit = value + if value < 10 { b'0' } else { b'a' - 10 };
            number /= base;
            first = index;
            if number == 0 {
                break;
            }
        }
        self.push_bytes(digits.get(first..).unwrap_or_default());
    }

    /// Logs the message. Returns true if it was accepted.
    pub fn send(&self, level: Level) -> bool {
        log_bytes(level, self.bytes.get(..self.len).unwrap_or_default())
    }
}

impl Default for Line {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.push_str(text) { Ok(()) } else { Err(fmt::Error) }
    }
}

impl<T: LogValue + ?Sized> LogValue for &T {
    #[inline(always)]
    fn write(&self, line: &mut Line, is_hex: bool) {
        (**self).write(line, is_hex);
    }
}

macro_rules! log_numbers {
    ($($unsigned:ty, $signed:ty);+) => {
        $(
            impl LogValue for $unsigned {
                #[inline(always)]
                fn write(&self, line: &mut Line, is_hex: bool) {
                    line.push_digits(*self as u64, if is_hex { 16 } else { 10 });
                }
            }
            impl LogValue for $signed {
                #[inline(always)]
                fn write(&self, line: &mut Line, is_hex: bool) {
                    if is_hex {
                        // As core::fmt does: the bits of a number of this width.
                        return line.push_digits(*self as $unsigned as u64, 16);
                    }
                    if *self < 0 {
                        line.push_bytes(b"-");
                    }
                    line.push_digits(self.unsigned_abs() as u64, 10);
                }
            }
        )+
    };
}
log_numbers!(u8, i8; u16, i16; u32, i32; u64, i64; usize, isize);

impl LogValue for bool {
    fn write(&self, line: &mut Line, _is_hex: bool) {
        line.push_bytes(if *self { b"true" } else { b"false" });
    }
}

impl LogValue for str {
    fn write(&self, line: &mut Line, _is_hex: bool) {
        line.push_str(self);
    }
}

/// Bytes as they are; weir escapes those that are no text.
impl LogValue for [u8] {
    fn write(&self, line: &mut Line, _is_hex: bool) {
        line.push_bytes(self);
    }
}

/// IPv4 with dots, IPv6 as RFC 5952 says.
impl LogValue for Ip {
    fn write(&self, line: &mut Line, _is_hex: bool) {
        if let Some([a, b, c, d]) = self.to_v4() {
            for (index, byte) in [a, b, c, d].into_iter().enumerate() {
                line.push_bytes(if index == 0 { b"" } else { b"." });
                line.push_digits(byte.into(), 10);
            }
            return;
        }
        let bits = u128::from_be_bytes(self.0);
        let group_at = |index: usize| (bits >> (112 - 16 * index)) as u16;
        // The longest run of at least two zero groups becomes "::".
        let (mut first, mut len, mut run) = (8, 1, 0);
        for index in 0..8 {
            run = if group_at(index) == 0 { run + 1 } else { 0 };
            if run > len {
                (first, len) = (index + 1 - run, run);
            }
        }
        for index in 0..8 {
            if index == first {
                line.push_bytes(b"::");
            }
            if index >= first && index < first + len {
                continue;
            }
            if index != 0 && index != first + len {
                line.push_bytes(b":");
            }
            line.push_digits(group_at(index).into(), 16);
        }
    }
}

/// Logs the source location of the panic, and ends the call. The panic's message is left out: the code to format it
/// would make the smallest module ten times as large.
#[cfg(target_arch = "wasm32")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    if let Some(location) = info.location() {
        let mut line = Line::new();
        line.push_str("panicked at ");
        line.push_str(location.file());
        line.push_str(":");
        line.push_digits(location.line().into(), 10);
        line.send(Level::Error);
    }
    core::arch::wasm32::unreachable()
}

impl Line {
    /// Returns the bytes so far, for a field of type `string`. weir finds a bound of this function, but none of
    /// [`text`](Self::text), which looks at each byte.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
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
    fn values_are_written_as_core_fmt_writes_them() {
        macro_rules! same {
            ($format:literal $(, $value:expr)*) => {{
                let mut line = Line::new();
                $crate::log!(@values line, $format, 0; $($value),*);
                assert_eq!(line.text(), std::format!($format $(, $value)*));
            }};
        }
        same!("");
        same!("{{}} {} {{{}}}", 1u8, -5i64);
        same!("{}{}{}", u64::MAX, i64::MIN, 0usize);
        same!("{:x} {:x} {:x} {:x}", 0u32, 0xdead_beef_u32, -1i16, u64::MAX);
        same!("{} {} {}é", "text", true, &&false);
        same!("{}", concat!("a", "b"));
        let mut line = Line::new();
        bytes_are_cut_at_the_text(&mut line);
        assert_eq!((line.text(), line.bytes()), ("bytes: ab", &b"bytes: ab\xff"[..]));
    }

    fn bytes_are_cut_at_the_text(line: &mut Line) {
        line.push_str("bytes: ");
        LogValue::write(&b"ab\xff"[..], line, false);
    }

    #[test]
    fn addresses_are_written_as_core_fmt_writes_them() {
        let mut words = 7u64;
        for round in 0..20_000u32 {
            let mut bytes = [0; 16];
            for group in bytes.chunks_exact_mut(2) {
                words = words.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // Half of the groups are zeros, which runs depend on.
                if words >> 63 == 0 {
                    group.copy_from_slice(&((words >> 40) as u16 >> (words >> 59 & 15)).to_be_bytes());
                }
            }
            let ip = match round % 4 {
                0 => Ip::v4([bytes[0], bytes[1], bytes[2], bytes[3]]),
                _ => Ip::v6(bytes),
            };
            let mut line = Line::new();
            ip.write(&mut line, false);
            assert_eq!(line.text(), ip.to_string());
        }
    }
}
