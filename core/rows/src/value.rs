//! Values of fields as text for people.

use crate::{UtcOffset, local, text};
use weir_abi::row::FieldType;
use weir_admission::{FieldValue, StreamField};
use weir_session::Record;
use weir_units::{AddressText, Timestamp};

/// The most characters of a value in a table.
const SHOWN_MAX: usize = 160;

/// Formats a value of any type for people: a time to the microsecond, a duration in a suitable unit, a float with three
/// significant digits, "–" for null and for a float that is not finite. The text is not escaped. It is empty if the row is too short.
pub fn shown(field: &StreamField, record: &Record<'_>, offset: UtcOffset) -> String {
    match field.read(record.row, record.tail) {
        None => String::new(),
        Some(FieldValue::Null) => "–".to_owned(),
        Some(FieldValue::Unsigned(ns)) if field.ty == FieldType::Timestamp => {
            text::date(local(Timestamp(ns), offset(Timestamp(ns))), 6)
        }
        #[expect(clippy::cast_precision_loss, reason = "for people to read")]
        Some(FieldValue::Signed(ns)) if field.ty == FieldType::Duration => text::duration(ns as f64),
        Some(FieldValue::Unsigned(value)) => value.to_string(),
        Some(FieldValue::Signed(value)) => value.to_string(),
        Some(FieldValue::Float(value)) if value.is_finite() => text::significant(value),
        Some(FieldValue::Float(_)) => "–".to_owned(),
        Some(FieldValue::Bool(value)) => if value { "yes" } else { "no" }.to_owned(),
        Some(FieldValue::Ip(value)) => AddressText::new(value).to_string(),
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
pub fn is_number(ty: FieldType) -> bool {
    !matches!(
        ty,
        FieldType::Timestamp | FieldType::Ip | FieldType::String | FieldType::Bytes | FieldType::Bool
    )
}

/// Returns the heading of a field's column: its name with its unit, such as "mean (packets)". Times, and durations, whose
/// values have units of their own, have none; so the suffix "_ns" of a duration's name is left out.
pub fn heading(field: &StreamField) -> String {
    let name = field.name.as_str();
    let name = name.strip_suffix("_ns").filter(|_| field.ty == FieldType::Duration).unwrap_or(name);
    let name = name.replace('_', " ");
    let has_unit = is_number(field.ty) && field.ty != FieldType::Duration;
    match field.unit.as_str() {
        unit if has_unit && !unit.is_empty() && unit != "1" && !name.ends_with(unit) => {
            format!("{name} ({unit})")
        }
        _ => name,
    }
}
