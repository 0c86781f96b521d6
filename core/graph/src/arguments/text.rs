//! The text of a configuration: comments, quotes, the arguments between commas, and the words between spaces.
//!
//! All code that walks over a configuration's text steps by [`unit_at`], so that all agree where a quote or a comment
//! ends. The functions take time linear in the text.

use std::borrow::Cow;

/// A stretch of a configuration's text that is skipped as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextUnit {
    /// One white-space character.
    Space,
    /// A comment, or a line directive.
    Comment,
    /// A string in single quotes.
    Single,
    /// A string in double quotes.
    Double,
    /// Bytes in hexadecimal digits, `\<48 45>`.
    Data,
    /// Any other byte.
    Plain,
}

/// Returns true for the white space of C: space, tab, line feed, vertical tab, form feed, carriage return.
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Returns the unit that begins at `at`, its end, and false if the text ends before the unit does.
pub(crate) fn unit_at(text: &[u8], at: usize) -> (TextUnit, usize, bool) {
    let next = text.get(at + 1).copied();
    match (text[at], next) {
        (byte, _) if is_space(byte) => (TextUnit::Space, at + 1, true),
        (b'/', Some(b'/' | b'*')) => {
            let (end, closed) = comment_end(text, at);
            (TextUnit::Comment, end, closed)
        }
        (b'#', _) if is_line_start(text, at) && line_directive(text, at).is_some() => {
            (TextUnit::Comment, line_end(text, at), true)
        }
        (b'\'', _) => match find(text, at + 1, b'\'') {
            Some(quote) => (TextUnit::Single, quote + 1, true),
            None => (TextUnit::Single, text.len(), false),
        },
        (b'"', _) => {
            let (end, closed) = double_quote_end(text, at);
            (TextUnit::Double, end, closed)
        }
        (b'\\', Some(b'<')) => {
            let (end, closed) = data_end(text, at);
            (TextUnit::Data, end, closed)
        }
        _ => (TextUnit::Plain, at + 1, true),
    }
}

fn find(text: &[u8], from: usize, wanted: u8) -> Option<usize> {
    text[from..].iter().position(|byte| *byte == wanted).map(|index| from + index)
}

/// Returns true for the first byte of a line after the first line.
fn is_line_start(text: &[u8], at: usize) -> bool {
    at > 0 && matches!(text[at - 1], b'\n' | b'\r')
}

/// Returns the index of the line break that ends the line of `at`, or the end of the text.
pub(crate) fn line_end(text: &[u8], at: usize) -> usize {
    text[at..].iter().position(|byte| matches!(byte, b'\n' | b'\r')).map_or(text.len(), |index| at + index)
}

/// Returns the line number of a line directive, `# 12 "file"` or `#line 12 "file"`, and the rest of its line.
pub(crate) fn line_directive(text: &[u8], at: usize) -> Option<(u32, &[u8])> {
    let blanks = |bytes: &[u8]| bytes.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let mut rest = text.get(at + 1..line_end(text, at))?;
    rest = &rest[blanks(rest)..];
    if let Some(after) = rest.strip_prefix(b"line")
        && blanks(after) > 0
    {
        rest = &after[blanks(after)..];
    }
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let line = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
    rest = &rest[digits..];
    Some((line, &rest[blanks(rest)..]))
}

/// Returns the end of the comment at `at`. The line break belongs to a `//` comment.
fn comment_end(text: &[u8], at: usize) -> (usize, bool) {
    if text[at + 1] == b'/' {
        let end = line_end(text, at);
        let len = match text.get(end..) {
            Some([b'\r', b'\n', ..]) => 2,
            Some([_, ..]) => 1,
            _ => 0,
        };
        return (end + len, true);
    }
    match text[at + 2..].windows(2).position(|pair| pair == b"*/") {
        Some(index) => (at + 2 + index + 2, true),
        None => (text.len(), false),
    }
}

/// Returns the end of `\<…>` at `at`. Comments between the digits may contain `>`.
fn data_end(text: &[u8], at: usize) -> (usize, bool) {
    let mut at = at + 2;
    while at < text.len() {
        match (text[at], text.get(at + 1)) {
            (b'>', _) => return (at + 1, true),
            (b'/', Some(b'/' | b'*')) => match comment_end(text, at) {
                (end, true) => at = end,
                unclosed => return unclosed,
            },
            _ => at += 1,
        }
    }
    (text.len(), false)
}

fn double_quote_end(text: &[u8], at: usize) -> (usize, bool) {
    let mut at = at + 1;
    while at < text.len() {
        match (text[at], text.get(at + 1)) {
            (b'"', _) => return (at + 1, true),
            (b'\\', Some(b'<')) => match data_end(text, at) {
                (end, true) => at = end,
                unclosed => return unclosed,
            },
            (b'\\', Some(_)) => at += 2,
            _ => at += 1,
        }
    }
    (text.len(), false)
}

/// Returns a text without comments and without white space at its ends. A comment, with the white space around it,
/// becomes one space.
pub fn uncomment(text: &str) -> Cow<'_, str> {
    uncommented(text, 0, false).0
}

/// Returns the text from `at` to its end, or to the first comma outside quotes, without comments; and where it ended.
fn uncommented(text: &str, at: usize, to_comma: bool) -> (Cow<'_, str>, usize) {
    let bytes = text.as_bytes();
    let mut at = at;
    let mut out = String::new();
    // The text from `left` to `right` is not yet in `out`; `right` is the end of the last unit that counts.
    let (mut left, mut right, mut is_first, mut has_comment) = (at, at, true, false);
    while at < bytes.len() {
        let (unit, end, _) = unit_at(bytes, at);
        match unit {
            TextUnit::Space => {}
            TextUnit::Comment => has_comment = true,
            TextUnit::Plain if to_comma && bytes[at] == b',' => break,
            _ => {
                if is_first {
                    (left, is_first) = (at, false);
                } else if has_comment {
                    out.push_str(&text[left..right]);
                    out.push(' ');
                    left = at;
                }
                has_comment = false;
                right = end;
            }
        }
        at = end;
    }
    if is_first {
        return (Cow::Borrowed(""), at);
    }
    if out.is_empty() {
        return (Cow::Borrowed(&text[left..right]), at);
    }
    out.push_str(&text[left..right]);
    (Cow::Owned(out), at)
}

/// Splits a configuration's text into its arguments: at commas outside quotes. Comments are removed. An empty last
/// argument is left out, other empty arguments are not.
pub fn split_arguments(text: &str) -> Vec<Cow<'_, str>> {
    let mut arguments = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let (argument, end) = uncommented(text, at, true);
        if !argument.is_empty() || end < text.len() {
            arguments.push(argument);
        }
        at = end + 1;
    }
    arguments
}

/// Splits an argument into its words: at white space and comments outside quotes.
pub fn split_words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (word, after) = shift_word(rest);
        rest = after;
        (!word.is_empty()).then_some(word)
    })
}

/// Returns the first word of an argument, and the text after the white space that follows it.
pub fn shift_word(text: &str) -> (&str, &str) {
    let text = skip_space(text);
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let (unit, end, _) = unit_at(bytes, at);
        if matches!(unit, TextUnit::Space | TextUnit::Comment) {
            break;
        }
        at = end;
    }
    (&text[..at], skip_space(&text[at..]))
}

fn skip_space(text: &str) -> &str {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let (unit, end, _) = unit_at(bytes, at);
        if !matches!(unit, TextUnit::Space | TextUnit::Comment) {
            break;
        }
        at = end;
    }
    &text[at..]
}

/// Returns the bytes that a text stands for: without one level of quotes, and with the substitutions of backslashes.
/// Comments outside quotes become a space.
pub fn unquote(text: &str) -> Vec<u8> {
    let text = uncomment(text);
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let (unit, end, closed) = unit_at(bytes, at);
        let inner = end - usize::from(closed);
        match unit {
            TextUnit::Single => out.extend_from_slice(&bytes[at + 1..inner.max(at + 1)]),
            TextUnit::Double => unescape(&bytes[at + 1..inner.max(at + 1)], &mut out),
            TextUnit::Data => unescape(&bytes[at..end], &mut out),
            _ => out.extend_from_slice(&bytes[at..end]),
        }
        at = end;
    }
    out
}

/// Appends the content of a string in double quotes, with the substitutions of backslashes.
fn unescape(text: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while at < text.len() {
        let (b'\\', Some(next)) = (text[at], text.get(at + 1)) else {
            out.push(text[at]);
            at += 1;
            continue;
        };
        at += 2;
        match *next {
            b'a' => out.push(7),
            b'b' => out.push(8),
            b't' => out.push(b'\t'),
            b'n' => out.push(b'\n'),
            b'v' => out.push(11),
            b'f' => out.push(12),
            b'r' => out.push(b'\r'),
            // A line break after a backslash is removed.
            b'\n' => {}
            b'\r' => at += usize::from(text.get(at) == Some(&b'\n')),
            b'0'..=b'7' => {
                at -= 1;
                at = digits(text, at, (8, 3), out);
            }
            b'x' => at = digits(text, at, (16, usize::MAX), out),
            b'<' => {
                let (end, closed) = data_end(text, at - 2);
                data(&text[at..end - usize::from(closed)], out);
                at = end;
            }
            other => out.push(other),
        }
    }
}

/// Appends the byte of a number at `at` in this base, with at most this many digits. Returns the end of the number.
fn digits(text: &[u8], at: usize, (base, digits_max): (u32, usize), out: &mut Vec<u8>) -> usize {
    let (mut value, mut end) = (0_u8, at);
    while end - at < digits_max
        && let Some(digit) = text.get(end).and_then(|byte| char::from(*byte).to_digit(base))
    {
        // Of a longer number, the last bits count.
        value = value.wrapping_mul(base.to_le_bytes()[0]).wrapping_add(digit.to_le_bytes()[0]);
        end += 1;
    }
    out.push(value);
    end
}

/// Appends the bytes of pairs of hexadecimal digits. Comments and other characters between the digits are ignored.
fn data(text: &[u8], out: &mut Vec<u8>) {
    let (mut at, mut high) = (0, None);
    while at < text.len() {
        if text[at] == b'/' && matches!(text.get(at + 1), Some(b'/' | b'*')) {
            at = comment_end(text, at).0;
            continue;
        }
        if let Some(digit) = char::from(text[at]).to_digit(16) {
            let digit = digit.to_le_bytes()[0];
            match high.take() {
                Some(high) => out.push(high << 4 | digit),
                None => high = Some(digit),
            }
        }
        at += 1;
    }
}

/// Returns a string in double quotes, of printable ASCII only, that [`unquote`] turns into these bytes.
pub fn quote(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(bytes.len() + 2);
    out.push('"');
    for byte in bytes {
        match byte {
            b'\\' | b'"' | b'$' => out.extend(['\\', char::from(*byte)]),
            b'\t' => out.push_str("\\t"),
            b'\r' => out.push_str("\\r"),
            b'\n' => out.push_str("\\n"),
            b' '..=b'~' => out.push(char::from(*byte)),
            // Three octal digits always, so that a following digit is not read as a part of them.
            _ => {
                let _ = write!(out, "\\{byte:03o}");
            }
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_outer_space_are_removed_and_inner_space_stays() {
        for (text, expected) in [
            ("  a   b  ", "a   b"),
            (" a /* c */   b", "a b"),
            ("a// to the end\n b", "a b"),
            ("\" /* x */ \"", "\" /* x */ \""),
            ("'//' // x", "'//'"),
            ("/* only */", ""),
            ("a,\n# 5 \"f\"\nb", "a, b"),
            ("a,\n#5th", "a, "),
            ("\\< 41 /* > */ 42 >", "\\< 41 /* > */ 42 >"),
        ] {
            let once = uncomment(text);
            assert_eq!(once, expected.trim_end(), "{text:?}");
            assert_eq!(uncomment(&once), once);
        }
    }

    #[test]
    fn arguments_are_split_at_commas_outside_quotes() {
        for (text, expected) in [
            ("", &[][..]),
            ("a, b, c", &["a", "b", "c"]),
            (" a /*?*/ b,  c, ", &["a b", "c"]),
            ("\"x, y\" // ?", &["\"x, y\""]),
            ("a,,b", &["a", "", "b"]),
            (",", &[""]),
            ("'a,b' \\<2C,> \"\\\",\", c", &["'a,b' \\<2C,> \"\\\",\"", "c"]),
        ] {
            assert_eq!(split_arguments(text), expected, "{text:?}");
        }
        assert_eq!(split_words(" a  'b c'd /* e */ f").collect::<Vec<_>>(), ["a", "'b c'd", "f"]);
    }

    #[test]
    fn quotes_and_backslashes_are_resolved() {
        for (text, expected) in [
            ("a\"b\"c", &b"abc"[..]),
            ("\\<48 45 4c4C 4f>", b"HELLO"),
            ("\"\\<48 /* > */ 45>\\n\\x441\\101\\q\"", b"HE\nAAq"),
            ("'\\<48>\\n'", b"\\<48>\\n"),
            ("\"a\\\nb\\\r\nc\"", b"abc"),
            ("\"\\0018\"", b"\x018"),
            ("a\\n", b"a\\n"),
            ("\"open", b"open"),
            ("\"\\", b"\\"),
            ("'", b""),
            ("\"", b""),
        ] {
            assert_eq!(unquote(text), expected, "{text:?}");
        }
        let all: Vec<u8> = (0..=255).chain(*b"12").collect();
        assert_eq!(unquote(&quote(&all)), all);
    }
}
