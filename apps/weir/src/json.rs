//! JSON output that is safe to print on a terminal, for the commands with an option `--json`.

use serde::Serialize;
use std::io::{self, Write};
use weir_units::is_plain;

/// Prints a document on several lines.
pub fn document(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    writeln!(out, "{}", escaped(&serde_json::to_string_pretty(value)?))
}

/// Returns a document on several lines, with a line feed at the end.
pub fn document_text(value: &impl Serialize) -> String {
    let mut text = Vec::new();
    // Writing to memory cannot fail, and the documents have no keys that JSON cannot have.
    let _ = document(&mut text, value);
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns a document on one line, without a line feed.
pub fn line_text(value: &serde_json::Value) -> String {
    escaped(&value.to_string())
}

/// Prints a document on one line.
pub fn line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    writeln!(out, "{}", escaped(&serde_json::to_string(value)?))
}

/// Escapes as `\uNNNN` all characters that [`is_plain`] rejects. The JSON library escapes only the characters that RFC
/// 8259 requires, and leaves control characters from 0x7f on and characters that change the direction of writing. In a
/// JSON document, these characters can occur only within strings.
fn escaped(json: &str) -> String {
    let mut text = Vec::with_capacity(json.len());
    for c in json.chars() {
        if is_plain(c) || c == '\n' {
            text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        } else {
            weir_rows::push_escape(&mut text, c);
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_control_characters_are_escaped_and_round_trip() {
        let text = "a\u{1b}[m\u{7f}\u{9b}31m\u{202e}\u{e0001}\n\té\"\\";
        let mut out = Vec::new();
        document(&mut out, &[text]).unwrap();
        line(&mut out, &[text]).unwrap();
        let out = String::from_utf8(out).unwrap();
        let shown = r#""a\u001b[m\u007f\u009b31m\u202e\udb40\udc01\n\té\"\\""#;
        assert_eq!(out, format!("[\n  {shown}\n]\n[{shown}]\n"));
        let documents = serde_json::Deserializer::from_str(&out).into_iter::<[String; 1]>();
        assert!(documents.map(Result::unwrap).eq([[text.to_owned()], [text.to_owned()]]));
    }
}
