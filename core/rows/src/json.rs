//! Rows as JSON lines.

use crate::{UtcOffset, push_time};
use std::io::Write as _;
use weir_abi::row::FieldType;
use weir_admission::{DeclaredStream, FieldValue, StreamField};
use weir_session::Record;
use weir_units::{AddressText, Timestamp, is_plain};

/// Writes the rows of one stream as JSON objects (RFC 8259), one a line.
///
/// The members are `module`, `stream` and the fields. A time is RFC 3339 text, a duration a number of nanoseconds, an
/// address text, `bytes` hexadecimal digits. A float that is not finite is null.
#[derive(Debug)]
pub struct JsonRows {
    /// The begin of each row, with module and stream.
    begin: Vec<u8>,
    /// The fields, each with the text between the value before it and its own.
    fields: Vec<(Vec<u8>, StreamField)>,
    offset: UtcOffset,
}

impl JsonRows {
    /// Creates a writer for a stream of the module with this label.
    pub fn new(label: &str, stream: &DeclaredStream, offset: UtcOffset) -> Self {
        let mut begin = b"{\"module\":".to_vec();
        push_text(&mut begin, label);
        begin.extend_from_slice(b",\"stream\":");
        push_text(&mut begin, stream.name.as_str());
        let key = |field: &StreamField| {
            let mut key = b",".to_vec();
            push_text(&mut key, field.name.as_str());
            key.push(b':');
            (key, field.clone())
        };
        Self { begin, fields: stream.fields.iter().map(key).collect(), offset }
    }

    /// Appends a row with its line feed.
    pub fn push(&self, out: &mut Vec<u8>, record: &Record<'_>) {
        out.extend_from_slice(&self.begin);
        for (key, field) in &self.fields {
            out.extend_from_slice(key);
            match field.read(record.row, record.tail) {
                Some(value) => push_value(out, field, value, self.offset),
                None => out.extend_from_slice(b"null"),
            }
        }
        out.extend_from_slice(b"}\n");
    }
}

fn push_value(out: &mut Vec<u8>, field: &StreamField, value: FieldValue<'_>, offset: UtcOffset) {
    match value {
        FieldValue::Unsigned(ns) if field.ty == FieldType::Timestamp => {
            out.push(b'"');
            push_time(out, Timestamp(ns), offset);
            out.push(b'"');
        }
        FieldValue::Bool(_) | FieldValue::Unsigned(_) | FieldValue::Signed(_) => push_number(out, value),
        FieldValue::Float(number) if number.is_finite() => push_float(out, field.ty, number),
        FieldValue::Float(_) | FieldValue::Null => out.extend_from_slice(b"null"),
        FieldValue::Ip(address) => {
            out.push(b'"');
            out.extend_from_slice(AddressText::new(address).as_str().as_bytes());
            out.push(b'"');
        }
        FieldValue::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) if field.ty == FieldType::String => push_text(out, text),
            _ => push_text(out, &field.text(bytes)),
        },
    }
}

/// Appends a whole number, or a truth value as `true` or `false`.
pub(crate) fn push_number(out: &mut Vec<u8>, value: FieldValue<'_>) {
    // Writing to memory cannot fail.
    let _ = match value {
        FieldValue::Unsigned(number) => write!(out, "{number}"),
        FieldValue::Signed(number) => write!(out, "{number}"),
        FieldValue::Bool(is_true) => write!(out, "{is_true}"),
        FieldValue::Float(_) | FieldValue::Ip(_) | FieldValue::Bytes(_) | FieldValue::Null => Ok(()),
    };
}

/// Appends the shortest text that reads as the same float of the field's type.
pub(crate) fn push_float(out: &mut Vec<u8>, ty: FieldType, number: f64) {
    #[expect(clippy::cast_possible_truncation, reason = "it was an f32 before the field was read as an f64")]
    let narrow = number as f32;
    // `Debug` uses exponents for very large and very small numbers. Writing to memory cannot fail.
    let _ = if ty == FieldType::F32 { write!(out, "{narrow:?}") } else { write!(out, "{number:?}") };
}

/// Appends a JSON string with its quotes. Every character that is not plain is escaped, also those that RFC 8259 allows.
pub fn push_text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for c in text.chars() {
        match c {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            ' '..='~' => out.push(c as u8),
            c if is_plain(c) => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            c => push_escape(out, c),
        }
    }
    out.push(b'"');
}

/// Appends the escapes of a character in a JSON string: `\u` with four digits, twice for a character above U+FFFF.
pub fn push_escape(out: &mut Vec<u8>, c: char) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        // Writing to memory cannot fail.
        let _ = write!(out, "\\u{unit:04x}");
    }
}
