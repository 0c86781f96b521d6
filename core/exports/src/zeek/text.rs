//! Escaping of texts in Zeek's logs.

use weir_units::is_plain;

/// The text of an empty value.
const EMPTY: &[u8] = b"(empty)";
/// Separates the elements of a set or vector.
const SET_SEPARATOR: u8 = b',';

/// Appends a text, which can be any bytes. Bytes that are no plain text, tabs and backslashes are escaped as `\x09`, and
/// so is the begin of a text that would be read as unset or empty.
pub(super) fn push_text(out: &mut Vec<u8>, text: &[u8]) {
    match text {
        b"" => out.extend_from_slice(EMPTY),
        b"-" | EMPTY => {
            push_hex(out, text.first().copied().unwrap_or_default());
            out.extend_from_slice(text.get(1..).unwrap_or_default());
        }
        _ => push_escaped(out, text, None),
    }
}

/// Appends an element of a set or vector, in which the separator is escaped as well.
pub(super) fn push_element(out: &mut Vec<u8>, text: &[u8]) {
    if matches!(text, b"" | b"-" | EMPTY) {
        push_text(out, text);
    } else {
        push_escaped(out, text, Some(SET_SEPARATOR));
    }
}

/// Appends a set or vector.
pub(super) fn push_set<'a>(out: &mut Vec<u8>, elements: impl Iterator<Item = &'a [u8]>) {
    let mut is_empty = true;
    for element in elements {
        if !is_empty {
            out.push(SET_SEPARATOR);
        }
        is_empty = false;
        push_element(out, element);
    }
    if is_empty {
        out.extend_from_slice(EMPTY);
    }
}

fn push_escaped(out: &mut Vec<u8>, text: &[u8], separator: Option<u8>) {
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            let bytes = c.encode_utf8(&mut [0; 4]).as_bytes().to_owned();
            match c {
                '\\' => out.extend_from_slice(b"\\\\"),
                c if is_plain(c) && bytes.first().copied() != separator => out.extend_from_slice(&bytes),
                _ => bytes.iter().for_each(|byte| push_hex(out, *byte)),
            }
        }
        chunk.invalid().iter().for_each(|byte| push_hex(out, *byte));
    }
}

fn push_hex(out: &mut Vec<u8>, byte: u8) {
    let digit = |nibble: u8| b"0123456789abcdef".get(usize::from(nibble)).copied().unwrap_or(b'0');
    out.extend_from_slice(&[b'\\', b'x', digit(byte >> 4), digit(byte & 15)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_as_zeek_escapes_them() {
        let text = |text: &[u8]| {
            let mut out = Vec::new();
            push_text(&mut out, text);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(b""), "(empty)");
        assert_eq!(text(b"-"), r"\x2d");
        assert_eq!(text(b"(empty)"), r"\x28empty)");
        assert_eq!(text(b"a\tb\nc\\x09,-"), r"a\x09b\x0ac\\x09,-");
        assert_eq!(text("é\u{85}\u{202e}".as_bytes()), r"é\xc2\x85\xe2\x80\xae");
        assert_eq!(text(b"\xff\xc3"), r"\xff\xc3");
        let set = |elements: &[&str]| {
            let mut out = Vec::new();
            push_set(&mut out, elements.iter().map(|element| element.as_bytes()));
            String::from_utf8(out).unwrap()
        };
        assert_eq!(set(&[]), "(empty)");
        assert_eq!(set(&["a,b", "-", ""]), r"a\x2cb,\x2d,(empty)");
    }
}
