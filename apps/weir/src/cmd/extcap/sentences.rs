//! The sentences that an extcap program writes to standard output, such as `interface {value=x}{display=y}`.
//!
//! Their grammar has no escapes: Wireshark ends a value at a closing brace. So texts for people are written without
//! braces, and names that come back as arguments in an encoding without them.

use std::fmt::{self, Write as _};
use weir_units::escaped;

/// A sentence of values with keys.
#[derive(Debug)]
pub struct Sentence(String);

impl Sentence {
    /// Begins a sentence.
    pub fn new(kind: &'static str) -> Self {
        Self(kind.to_owned())
    }

    /// Adds a value. Braces in it become parentheses, and control characters escapes.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl fmt::Display) -> Self {
        if !self.0.contains(' ') {
            self.0.push(' ');
        }
        let value = escaped(&value.to_string()).replace('{', "(").replace('}', ")");
        let _ = write!(self.0, "{{{key}={value}}}");
        self
    }
}

impl fmt::Display for Sentence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns a name in letters, digits, `.`, `_`, `-` and `%` alone: other bytes are `%` and two hexadecimal digits. The
/// result is also part of a file name, as Wireshark calls its pipe after the interface.
pub fn encode(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"._-".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// Returns the name of an [encoded](encode) one; `None` for a text that is no such encoding.
pub fn decode(encoded: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    let name = String::from_utf8(bytes).ok()?;
    (encode(&name) == encoded).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_cannot_end_its_sentence_or_begin_another_one() {
        let sentence = Sentence::new("interface")
            .with("value", encode("a}{display=evil"))
            .with("display", "}{value=evil}\ninterface {value=other}\u{202e}");
        assert_eq!(
            sentence.to_string(),
            r"interface {value=a%7D%7Bdisplay%3Devil}{display=)(value=evil)\ninterface (value=other)\u{202e}}"
                .replace(r"\u{202e}", r"\u(202e)")
        );
    }

    #[test]
    fn every_name_comes_back_from_its_encoding_and_no_other_text_is_one() {
        for name in ["eth0", "a.b-c_d", "{x}", "ü", "%41", "a b", "=}{", "-"] {
            let encoded = encode(name);
            assert_eq!(decode(&encoded).as_deref(), Some(name));
            assert!(!encoded.contains(['{', '}', '/', ' ', '\n']), "{encoded}");
        }
        for text in ["%", "%4", "%41", "%zz", "a b", "%7d", "%FF", "{"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
