//! Record streams: the types of records that a module emits.

use crate::Name;
use core::net::Ipv6Addr;
use std::ops::Range;
use weir_abi::row::FieldType;

/// A declared stream of records.
#[derive(Clone, Debug, PartialEq)]
pub struct DeclaredStream {
    /// The stream's name.
    pub name: Name,
    /// The contents, in one line.
    pub summary: String,
    /// The fields, in the order of the row.
    pub fields: Vec<StreamField>,
    row_bytes: usize,
    padding: Vec<Range<usize>>,
}

/// A field of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamField {
    /// The field's name.
    pub name: Name,
    /// The field's type.
    pub ty: FieldType,
    /// The unit, for people and for the metadata of record files.
    pub unit: String,
    /// The meaning, in one line.
    pub summary: String,
    /// The offset in the row, in bytes.
    pub offset: usize,
}

/// The value of a field in a record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FieldValue<'a> {
    /// An unsigned integer or time stamp (ns).
    Unsigned(u64),
    /// A signed integer or duration (ns).
    Signed(i64),
    /// A float.
    Float(f64),
    /// A truth value: any byte but 0 is true.
    Bool(bool),
    /// An address; IPv4 as ::ffff:a.b.c.d.
    Ip(Ipv6Addr),
    /// Text or bytes.
    Bytes(&'a [u8]),
}

impl DeclaredStream {
    /// Makes a stream, and lays its fields out as a C struct.
    pub(crate) fn new(name: Name, summary: String, mut fields: Vec<StreamField>) -> Self {
        let mut end = 0usize;
        let mut align = 1;
        let mut padding = Vec::new();
        for field in &mut fields {
            field.offset = end.next_multiple_of(field.ty.align());
            padding.push(end..field.offset);
            end = field.offset + field.ty.size();
            align = align.max(field.ty.align());
        }
        let row_bytes = end.next_multiple_of(align);
        padding.push(end..row_bytes);
        padding.retain(|gap| !gap.is_empty());
        Self { name, summary, fields, row_bytes, padding }
    }

    /// Returns the byte ranges of a row that belong to no field. In a module's rows these bytes can be remains of its
    /// stack.
    pub fn padding(&self) -> &[Range<usize>] {
        &self.padding
    }

    /// Returns true if a row has the declared length, and its tail all bytes of the row's string fields. The host makes such
    /// rows only; rows from elsewhere are checked.
    pub fn fits(&self, row: &[u8], tail: &[u8]) -> bool {
        row.len() == self.row_bytes && self.fields.iter().all(|field| field.read(row, tail).is_some())
    }

    /// Returns the size of a row in bytes.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }
}

impl StreamField {
    /// Returns the value of a field of type `string` or `bytes` as text, for people and for JSON. A `string` becomes
    /// text, with U+FFFD for bytes that are not UTF-8. `bytes` become hexadecimal digits. The result can have control
    /// characters.
    pub fn text(&self, value: &[u8]) -> String {
        if self.ty == FieldType::String {
            return String::from_utf8_lossy(value).into_owned();
        }
        let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or('?');
        value.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
    }

    /// Reads the field of a record from its row and tail; `None` if the row is too short.
    pub fn read<'a>(&self, row: &'a [u8], tail: &'a [u8]) -> Option<FieldValue<'a>> {
        let bytes = row.get(self.offset..self.offset + self.ty.size())?;
        let unsigned = |bytes: &[u8]| {
            let mut wide = [0; 8];
            wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
            Some(u64::from_le_bytes(wide))
        };
        Some(match self.ty {
            FieldType::U8 | FieldType::U16 | FieldType::U32 | FieldType::U64 | FieldType::Timestamp => {
                FieldValue::Unsigned(unsigned(bytes)?)
            }
            FieldType::I32 => FieldValue::Signed(i32::from_le_bytes(bytes.try_into().ok()?).into()),
            FieldType::I64 | FieldType::Duration => {
                FieldValue::Signed(i64::from_le_bytes(bytes.try_into().ok()?))
            }
            FieldType::F32 => FieldValue::Float(f32::from_le_bytes(bytes.try_into().ok()?).into()),
            FieldType::F64 => FieldValue::Float(f64::from_le_bytes(bytes.try_into().ok()?)),
            FieldType::Bool => FieldValue::Bool(bytes[0] != 0),
            FieldType::Ip => FieldValue::Ip(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
            FieldType::String | FieldType::Bytes => {
                let start = usize::try_from(unsigned(&bytes[..4])?).ok()?;
                let len = usize::try_from(unsigned(&bytes[4..])?).ok()?;
                FieldValue::Bytes(tail.get(start..start.checked_add(len)?)?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_digits_and_strings_become_text() {
        let text = |ty, value: &[u8]| {
            let name = Name::new("f").unwrap();
            StreamField { name, ty, unit: String::new(), summary: String::new(), offset: 0 }.text(value)
        };
        for (value, digits, string) in [
            (&b""[..], "", ""),
            (b"GET /", "474554202f", "GET /"),
            (b"\x00\x0a\xf0", "000af0", "\0\n\u{fffd}"),
            ("é".as_bytes(), "c3a9", "é"),
        ] {
            assert_eq!(text(FieldType::Bytes, value), digits);
            assert_eq!(text(FieldType::String, value), string);
        }
    }
}
