//! Reads fields of records by their names in the manifest.

use crate::text;
use std::net::Ipv6Addr;
use weir_abi::row::FieldType;
use weir_units::Timestamp;
use {
    weir_admission::{DeclaredStream, FieldValue, StreamField},
    weir_session::Record,
};

/// Maximum number of characters of a value in a table.
const SHOWN_MAX: usize = 160;

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

/// Formats an address; an IPv4-mapped one as IPv4: "10.0.0.1" or "2001:db8::1".
pub(crate) fn address_text(address: Ipv6Addr) -> String {
    address.to_ipv4_mapped().map_or_else(|| address.to_string(), |v4| v4.to_string())
}

/// Formats a value of any type as text, without HTML escapes.
pub(crate) fn shown(field: &StreamField, record: &Record<'_>) -> String {
    match field.read(record.row, record.tail) {
        None => String::new(),
        Some(FieldValue::Unsigned(ns)) if field.ty == FieldType::Timestamp => text::date(Timestamp(ns), 6),
        #[expect(clippy::cast_precision_loss, reason = "for people to read")]
        Some(FieldValue::Signed(ns)) if field.ty == FieldType::Duration => text::duration(ns as f64),
        Some(FieldValue::Unsigned(value)) => value.to_string(),
        Some(FieldValue::Signed(value)) => value.to_string(),
        Some(FieldValue::Float(value)) if value.is_finite() => text::significant(value),
        Some(FieldValue::Float(_)) => "–".to_owned(),
        Some(FieldValue::Bool(value)) => if value { "yes" } else { "no" }.to_owned(),
        Some(FieldValue::Ip(value)) => address_text(value),
        Some(FieldValue::Bytes(bytes)) => {
            // A byte is printed as two digits.
            let most = if field.ty == FieldType::Bytes { SHOWN_MAX / 2 } else { SHOWN_MAX };
            let begin = bytes.get(..most).unwrap_or(bytes);
            let mut text = field.text(begin);
            if begin.len() < bytes.len() {
                text.push('…');
            }
            text
        }
    }
}

/// Returns true for types whose columns are aligned right.
pub(crate) fn is_number(ty: FieldType) -> bool {
    !matches!(
        ty,
        FieldType::Timestamp | FieldType::Ip | FieldType::String | FieldType::Bytes | FieldType::Bool
    )
}
