//! Fields of a stream by their semantics, and their values.

use core::net::Ipv6Addr;
use weir_abi::row::FieldType;
use weir_admission::{DeclaredStream, FieldValue, StreamField};
use weir_session::Record;

/// Returns the semantic's name; empty without one.
pub(crate) fn semantic(field: &StreamField) -> &'static str {
    field.semantic.map_or("", |semantic| semantic.name)
}

/// Returns the index of the first field with this semantic.
pub(crate) fn first(stream: &DeclaredStream, name: &str) -> Option<usize> {
    stream.fields.iter().position(|field| semantic(field) == name)
}

/// Returns the index of the last field with this semantic.
pub(crate) fn last(stream: &DeclaredStream, name: &str) -> Option<usize> {
    stream.fields.iter().rposition(|field| semantic(field) == name)
}

/// Reads a value; `None` also for null.
pub(crate) fn read<'a>(field: &StreamField, record: &Record<'a>) -> Option<FieldValue<'a>> {
    field.read(record.row, record.tail).filter(|value| *value != FieldValue::Null)
}

/// Reads a number of an unsigned type or a time stamp.
pub(crate) fn unsigned(field: &StreamField, record: &Record<'_>) -> Option<u64> {
    match read(field, record)? {
        FieldValue::Unsigned(number) => Some(number),
        FieldValue::Signed(number) => u64::try_from(number).ok(),
        _ => None,
    }
}

/// Reads an address.
pub(crate) fn address(field: &StreamField, record: &Record<'_>) -> Option<Ipv6Addr> {
    match read(field, record)? {
        FieldValue::Ip(address) => Some(address),
        _ => None,
    }
}

/// Reads a text. Bytes that are not UTF-8 become U+FFFD; a value of type `bytes` becomes hexadecimal digits.
pub(crate) fn text(field: &StreamField, record: &Record<'_>) -> Option<String> {
    match read(field, record)? {
        FieldValue::Bytes(bytes) => Some(field.text(bytes)),
        _ => None,
    }
}

/// Reads a duration in nanoseconds. The unit of a field that is no `duration` is that of the manifest, by default
/// nanoseconds.
pub(crate) fn nanos(field: &StreamField, record: &Record<'_>) -> Option<i64> {
    let factor: i64 = match field.unit.as_str() {
        _ if field.ty == FieldType::Duration => 1,
        "s" => 1_000_000_000,
        "ms" => 1_000_000,
        "us" => 1_000,
        _ => 1,
    };
    match read(field, record)? {
        FieldValue::Signed(value) => Some(value.saturating_mul(factor)),
        FieldValue::Unsigned(value) => Some(i64::try_from(value).unwrap_or(i64::MAX).saturating_mul(factor)),
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            reason = "the cast saturates"
        )]
        FieldValue::Float(value) if value.is_finite() => Some((value * factor as f64) as i64),
        _ => None,
    }
}
