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

/// Reads a field as bytes; `None` for null or another type.
pub(crate) fn bytes<'a>(field: &StreamField, record: &Record<'a>) -> Option<&'a [u8]> {
    match field.read(record.row, record.tail)? {
        FieldValue::Bytes(value) => Some(value),
        _ => None,
    }
}
