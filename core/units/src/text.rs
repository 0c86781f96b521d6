//! Escaping of untrusted text for messages and terminals, and bytes as hexadecimal digits.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::path::Path;

/// Returns true for a plain character: one that does not affect the display of the text around it. Control characters,
/// and invisible characters that hide, reorder or break text, are not plain (Unicode categories Cc, Cf, Zl and Zp).
pub fn is_plain(c: char) -> bool {
    let is_format = matches!(c,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    !c.is_control() && !is_format
}

/// Returns the first 200 characters of an untrusted text, with every character that is not [plain](is_plain) escaped.
pub fn escaped(text: &str) -> String {
    escaped_prefix(text, 200)
}

/// Returns the first `characters_max` characters of an untrusted text, with every character that is not
/// [plain](is_plain) escaped.
pub fn escaped_prefix(text: &str, characters_max: usize) -> String {
    let escape = |c: char| if is_plain(c) { String::from(c) } else { c.escape_default().collect() };
    text.chars().take(characters_max).map(escape).collect()
}

/// Escaping of untrusted text and file names for messages.
pub trait Escape {
    /// Returns the text for display, with every character that is not [plain](is_plain) escaped. Output for programs
    /// uses the original text.
    fn escaped(&self) -> Escaped<'_>;
}

/// A text whose `Display` escapes every character that is not [plain](is_plain). [`Escape::escaped`] makes it.
#[derive(Clone, Debug)]
pub struct Escaped<'a>(Cow<'a, str>);

impl Escape for str {
    fn escaped(&self) -> Escaped<'_> {
        Escaped(Cow::Borrowed(self))
    }
}

impl Escape for OsStr {
    fn escaped(&self) -> Escaped<'_> {
        Escaped(self.to_string_lossy())
    }
}

impl Escape for Path {
    fn escaped(&self) -> Escaped<'_> {
        self.as_os_str().escaped()
    }
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .chars()
            .try_for_each(|c| if is_plain(c) { f.write_char(c) } else { write!(f, "{}", c.escape_default()) })
    }
}

/// Returns bytes as lower-case hexadecimal digits, two for each byte, without separators.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or('?');
    let mut digits = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        digits.push(digit(byte >> 4));
        digits.push(digit(byte & 15));
    }
    digits
}

/// Returns the bytes that hexadecimal digits stand for, two digits for each byte; `None` if the text is anything else.
pub fn bytes_of_hex(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let value = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let byte = |[high, low]: &[u8; 2]| Some(value(*high)? << 4 | value(*low)?);
    if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
}

/// Returns an untrusted text of several lines, such as a compiler's output, for display. Line feeds and tabs stay; other
/// characters that are not [plain](is_plain) are escaped.
pub fn escaped_lines(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if is_plain(c) || matches!(c, '\n' | '\t') {
            escaped.push(c);
        } else {
            escaped.extend(c.escape_default());
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_shown_whole_without_control_characters() {
        let name = format!("a\u{1b}]0;t\u{7}\r\n\u{9b}1mé\u{202e}{}", "x".repeat(300));
        let shown = format!(r"a\u{{1b}}]0;t\u{{7}}\r\n\u{{9b}}1mé\u{{202e}}{}", "x".repeat(300));
        assert_eq!(name.escaped().to_string(), shown);
        assert_eq!(Path::new(&name).escaped().to_string(), shown);
        assert_eq!(OsStr::new("plain name/é").escaped().to_string(), "plain name/é");
        assert_eq!(escaped_lines("a:\n\tb\r\u{1b}[m\n"), "a:\n\tb\\r\\u{1b}[m\n");
    }

    #[test]
    fn hexadecimal_digits_are_read_as_the_bytes_that_they_were_written_from() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(bytes_of_hex(&hex(&bytes)), Some(bytes));
        assert_eq!((hex(&[0, 0xaf]), bytes_of_hex("0AfF")), ("00af".to_owned(), Some(vec![10, 255])));
        for text in ["0", "0g", "+1", " 1", "é", "00é0"] {
            assert_eq!(bytes_of_hex(text), None, "{text}");
        }
    }

    #[test]
    fn control_characters_for_a_terminal_are_escaped() {
        assert_eq!(escaped("a\u{1b}[31m é\u{202e}\n"), r"a\u{1b}[31m é\u{202e}\n");
        assert_eq!(escaped(&"x".repeat(300)).len(), 200);
    }
}
