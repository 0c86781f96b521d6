//! Reads fields of records by their names in the manifest.

use std::net::Ipv6Addr;
use {
    weir_admission::{DeclaredStream, FieldValue, StreamField},
    weir_session::Record,
};

/// Finds the fields of these names; `None` if one is missing.
pub(crate) fn fields<const N: usize>(stream: &DeclaredStream, names: [&str; N]) -> Option<[StreamField; N]> {
    let mut found = Vec::with_capacity(N);
    for name in names {
        found.push(stream.fields.iter().find(|field| field.name.as_str() == name)?.clone());
    }
    found.try_into().ok()
}

/// Reads a field as a whole number; a Boolean is 0 or 1. `None` for a negative number or another type.
pub(crate) fn unsigned(field: &StreamField, record: &Record<'_>) -> Option<u64> {
    match field.read(record.row, record.tail)? {
        FieldValue::Unsigned(value) => Some(value),
        FieldValue::Signed(value) => u64::try_from(value).ok(),
        FieldValue::Bool(value) => Some(value.into()),
        _ => None,
    }
}

/// Reads a field as a whole number with a sign; `None` for one above `i64::MAX` or another type.
pub(crate) fn signed(field: &StreamField, record: &Record<'_>) -> Option<i64> {
    match field.read(record.row, record.tail)? {
        FieldValue::Unsigned(value) => i64::try_from(value).ok(),
        FieldValue::Signed(value) => Some(value),
        _ => None,
    }
}

/// Reads a field as a floating-point number, including NaN and infinities.
pub(crate) fn number(field: &StreamField, record: &Record<'_>) -> Option<f64> {
    match field.read(record.row, record.tail)? {
        FieldValue::Float(value) => Some(value),
        _ => unsigned(field, record).map(crate::series::float),
    }
}

/// Reads a field as an IP address; `None` for another type.
pub(crate) fn address(field: &StreamField, record: &Record<'_>) -> Option<Ipv6Addr> {
    match field.read(record.row, record.tail)? {
        FieldValue::Ip(value) => Some(value),
        _ => None,
    }
}

/// Reads at most the first `bytes_max` bytes of a field as text, with U+FFFD for bytes that are not UTF-8; and true if the
/// value is longer. `None` for another type.
pub(crate) fn text(field: &StreamField, record: &Record<'_>, bytes_max: usize) -> Option<(String, bool)> {
    match field.read(record.row, record.tail)? {
        FieldValue::Bytes(bytes) => {
            let begin = bytes.get(..bytes_max).unwrap_or(bytes);
            // A cut inside a character leaves no U+FFFD at the end.
            let end = match std::str::from_utf8(begin) {
                Err(error) if error.error_len().is_none() && begin.len() < bytes.len() => error.valid_up_to(),
                _ => begin.len(),
            };
            Some((field.text(begin.get(..end).unwrap_or(begin)), begin.len() < bytes.len()))
        }
        _ => None,
    }
}
