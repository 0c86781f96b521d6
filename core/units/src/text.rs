//! Escaping of untrusted text for messages and terminals.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::path::Path;

/// Returns true for a character that does not affect the display of the text around it. Control characters, and invisible
/// characters that hide, reorder or break text, are not plain (Unicode categories Cc, Cf, Zl and Zp).
pub fn is_plain(c: char) -> bool {
    let is_format = matches!(c,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    !c.is_control() && !is_format
}

/// Returns the first 200 characters of an untrusted text, with every character that is not plain escaped.
pub fn shown(text: &str) -> String {
    escaped(text, 200)
}

/// Returns the first `most` characters of an untrusted text, with every character that is not plain escaped.
pub fn escaped(text: &str, most: usize) -> String {
    let escape = |c: char| if is_plain(c) { String::from(c) } else { c.escape_default().collect() };
    text.chars().take(most).map(escape).collect()
}

/// Untrusted text, or a file name, that can be displayed with every character escaped that is not [plain](is_plain).
pub trait Shown {
    /// Returns the text to show to people. Output for programs uses the original text.
    fn shown(&self) -> Escaped<'_>;
}

/// Displays a text with every character that is not plain escaped. See [`Shown`].
#[derive(Clone, Debug)]
pub struct Escaped<'a>(Cow<'a, str>);

impl Shown for str {
    fn shown(&self) -> Escaped<'_> {
        Escaped(Cow::Borrowed(self))
    }
}

impl Shown for OsStr {
    fn shown(&self) -> Escaped<'_> {
        Escaped(self.to_string_lossy())
    }
}

impl Shown for Path {
    fn shown(&self) -> Escaped<'_> {
        self.as_os_str().shown()
    }
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .chars()
            .try_for_each(|c| if is_plain(c) { f.write_char(c) } else { write!(f, "{}", c.escape_default()) })
    }
}

/// Returns a text of several lines, such as a compiler's output. Line feeds and tabs stay; other characters that are
/// not plain are escaped.
pub fn shown_lines(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_plain(c) || matches!(c, '\n' | '\t') {
            shown.push(c);
        } else {
            shown.extend(c.escape_default());
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_shown_whole_without_control_characters() {
        let name = format!("a\u{1b}]0;t\u{7}\r\n\u{9b}1mé\u{202e}{}", "x".repeat(300));
        let shown = format!(r"a\u{{1b}}]0;t\u{{7}}\r\n\u{{9b}}1mé\u{{202e}}{}", "x".repeat(300));
        assert_eq!(name.shown().to_string(), shown);
        assert_eq!(Path::new(&name).shown().to_string(), shown);
        assert_eq!(OsStr::new("plain name/é").shown().to_string(), "plain name/é");
        assert_eq!(shown_lines("a:\n\tb\r\u{1b}[m\n"), "a:\n\tb\\r\\u{1b}[m\n");
    }

    #[test]
    fn control_characters_for_a_terminal_are_escaped() {
        assert_eq!(shown("a\u{1b}[31m é\u{202e}\n"), r"a\u{1b}[31m é\u{202e}\n");
        assert_eq!(shown(&"x".repeat(300)).len(), 200);
    }
}
