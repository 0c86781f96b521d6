//! Rows as comma-separated values.

use crate::json::{push_float, push_number};
use crate::{UtcOffset, push_time};
use weir_abi::row::FieldType;
use weir_admission::{DeclaredStream, FieldValue, StreamField};
use weir_session::Record;
use weir_units::{AddressText, Escape as _, Timestamp};

/// Writes the rows of one stream as comma-separated values (RFC 4180, with line feeds as line ends), after a line with the
/// names of the fields.
///
/// Values are those of [`JsonRows`](crate::JsonRows) without quotes; null is empty. In texts, every character that is
/// not plain is escaped as in Rust (`\n`, `\u{1b}`). A text that a spreadsheet would take for a formula, because it begins
/// with `=`, `+`, `-` or `@`, begins with an apostrophe (CWE-1236).
#[derive(Debug)]
pub struct CsvRows {
    fields: Vec<StreamField>,
    offset: UtcOffset,
}

impl CsvRows {
    /// Creates a writer for a stream.
    pub fn new(stream: &DeclaredStream, offset: UtcOffset) -> Self {
        Self { fields: stream.fields.clone(), offset }
    }

    /// Appends the line with the names of the fields.
    pub fn push_header(&self, out: &mut Vec<u8>) {
        let names: Vec<&str> = self.fields.iter().map(|field| field.name.as_str()).collect();
        out.extend_from_slice(names.join(",").as_bytes());
        out.push(b'\n');
    }

    /// Appends a row with its line feed.
    pub fn push(&self, out: &mut Vec<u8>, record: &Record<'_>) {
        for (index, field) in self.fields.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            match field.read(record.row, record.tail) {
                Some(FieldValue::Unsigned(ns)) if field.ty == FieldType::Timestamp => {
                    push_time(out, Timestamp(ns), self.offset);
                }
                Some(value @ (FieldValue::Bool(_) | FieldValue::Unsigned(_) | FieldValue::Signed(_))) => {
                    push_number(out, value);
                }
                Some(FieldValue::Float(number)) if number.is_finite() => push_float(out, field.ty, number),
                Some(FieldValue::Float(_) | FieldValue::Null) | None => {}
                Some(FieldValue::Ip(address)) => {
                    out.extend_from_slice(AddressText::new(address).as_str().as_bytes());
                }
                Some(FieldValue::Bytes(bytes)) => push_text(out, &field.text(bytes)),
            }
        }
        out.push(b'\n');
    }
}

/// Appends a text, in quotes if it has a comma, a quote or spaces at an end.
fn push_text(out: &mut Vec<u8>, text: &str) {
    let shown = text.escaped().to_string();
    let apostrophe = if shown.starts_with(['=', '+', '-', '@']) { "'" } else { "" };
    let has_outer_space = shown.starts_with(' ') || shown.ends_with(' ');
    if shown.contains([',', '"']) || has_outer_space {
        out.extend_from_slice(format!("\"{apostrophe}{}\"", shown.replace('"', "\"\"")).as_bytes());
    } else {
        out.extend_from_slice(apostrophe.as_bytes());
        out.extend_from_slice(shown.as_bytes());
    }
}
