//! Record streams: the types of records that a module emits.

use crate::manifest::{RESERVED_FIELDS, check_count, check_unique, display_text, name};
use crate::{ManifestError, Name, Semantic, escaped};
use core::net::Ipv6Addr;
use serde::Deserialize;
use std::ops::Range;
use weir_abi::finding;
use weir_abi::row::FieldType;

const FIELDS_MAX: usize = 64;

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
    /// The presence byte and the value's bytes of each optional field.
    optional: Vec<(usize, Range<usize>)>,
    /// True if a field points to bytes outside of the row.
    has_strings: bool,
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
    /// The meaning for tools; `None` if the manifest names none.
    pub semantic: Option<&'static Semantic>,
    /// The offset in the row, in bytes.
    pub offset: usize,
    /// The offset of the byte that is 0 if the value is null; `None` for a field that is never null.
    pub presence: Option<usize>,
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
    /// No value: it is unknown, or does not exist.
    Null,
}

impl DeclaredStream {
    /// Makes a stream, and lays its fields out as a C struct. The presence bytes of optional fields follow the fields.
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
        let mut optional = Vec::new();
        for field in &mut fields {
            let Some(presence) = &mut field.presence else { continue };
            *presence = end;
            optional.push((end, field.offset..field.offset + field.ty.size()));
            end += 1;
        }
        let row_bytes = end.next_multiple_of(align);
        padding.push(end..row_bytes);
        padding.retain(|gap| !gap.is_empty());
        let has_strings = fields.iter().any(|field| field.ty.is_indirect());
        Self { name, summary, fields, row_bytes, padding, optional, has_strings }
    }

    /// Sets the bytes of a row to zero that carry no value, and each presence byte to 0 or 1. So rows with equal values
    /// have equal bytes. In a module's rows, bytes between fields can be remains of its stack.
    #[inline]
    pub fn normalise(&self, row: &mut [u8]) {
        for gap in &self.padding {
            if let Some(gap) = row.get_mut(gap.clone()) {
                gap.fill(0);
            }
        }
        for (presence, value) in &self.optional {
            let Some(presence) = row.get_mut(*presence) else { continue };
            *presence = u8::from(*presence != 0);
            if *presence == 0
                && let Some(value) = row.get_mut(value.clone())
            {
                value.fill(0);
            }
        }
    }

    /// Returns true for a stream of findings, whose fields are those of [`weir_abi::finding::FIELDS`].
    pub fn has_findings(&self) -> bool {
        self.name.as_str() == finding::STREAM
    }

    /// Returns true if a row has the declared length, and its tail all bytes of the row's string fields. The host makes such
    /// rows only; rows from elsewhere are checked.
    pub fn fits(&self, row: &[u8], tail: &[u8]) -> bool {
        row.len() == self.row_bytes && self.fields.iter().all(|field| field.read(row, tail).is_some())
    }

    /// Returns true if rows point to strings or bytes outside of the row.
    pub fn has_strings(&self) -> bool {
        self.has_strings
    }

    /// Returns the size of a row in bytes.
    #[inline]
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }
}

impl StreamField {
    /// Returns the name of the presence byte of an optional field in the generated structs.
    pub(crate) fn presence_name(&self) -> String {
        format!("has_{}", self.name.identifier())
    }

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

    /// Returns true if the value in this row is null.
    #[inline]
    pub fn is_null(&self, row: &[u8]) -> bool {
        self.presence.is_some_and(|presence| row.get(presence) == Some(&0))
    }

    /// Reads the field of a record from its row and tail; `None` if the row is too short, or a text is not in the tail.
    pub fn read<'a>(&self, row: &'a [u8], tail: &'a [u8]) -> Option<FieldValue<'a>> {
        if self.is_null(row) {
            return Some(FieldValue::Null);
        }
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawStream {
    name: String,
    #[serde(default)]
    summary: String,
    #[serde(default)]
    field: Vec<RawField>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawField {
    name: String,
    #[serde(rename = "type")]
    ty: String,
    #[serde(default)]
    optional: bool,
    #[serde(default)]
    semantic: Option<String>,
    #[serde(default)]
    unit: String,
    #[serde(default)]
    summary: String,
}

impl RawStream {
    /// Checks a stream of a manifest.
    pub(crate) fn checked(self) -> Result<DeclaredStream, ManifestError> {
        let stream_name = name("stream.name", &self.name)?;
        let at = format!("stream `{stream_name}`");
        let is_finding = stream_name.as_str() == finding::STREAM;
        if is_finding && !self.field.is_empty() {
            return Err(ManifestError::FindingFields);
        }
        let raw_fields = if is_finding { finding_fields() } else { self.field };
        check_count(&at, raw_fields.len(), FIELDS_MAX)?;
        if raw_fields.is_empty() {
            return Err(ManifestError::NoFields(stream_name));
        }
        let fields = raw_fields.into_iter().map(|field| field.checked(&at)).collect::<Result<Vec<_>, _>>()?;
        check_unique("field", fields.iter().map(|field| &field.name))?;
        if let Some(field) = fields.iter().find(|field| RESERVED_FIELDS.contains(&field.name.as_str())) {
            return Err(ManifestError::ReservedField { at, name: field.name.clone() });
        }
        check_presence_names(&at, &fields)?;
        let summary = display_text(&format!("{at}, summary"), self.summary)?;
        Ok(DeclaredStream::new(stream_name, summary, fields))
    }
}

impl RawField {
    fn checked(self, stream: &str) -> Result<StreamField, ManifestError> {
        let name = name(&format!("{stream}, field.name"), &self.name)?;
        let at = format!("{stream}, field `{name}`");
        let ty = FieldType::ALL.iter().find(|ty| ty.name() == self.ty).copied().ok_or_else(|| {
            ManifestError::Type {
                at: at.clone(),
                given: escaped(&self.ty),
                known: FieldType::ALL.iter().map(|ty| ty.name()).collect::<Vec<_>>().join(", "),
            }
        })?;
        let semantic = self.semantic.map(|given| semantic(&at, &given, ty)).transpose()?;
        Ok(StreamField {
            name,
            ty,
            unit: display_text(&format!("{at}, unit"), self.unit)?,
            summary: display_text(&format!("{at}, summary"), self.summary)?,
            semantic,
            offset: 0,
            presence: self.optional.then_some(0),
        })
    }
}

/// Finds the semantic of a field, and checks that the field's type fits it.
fn semantic(at: &str, given: &str, ty: FieldType) -> Result<&'static Semantic, ManifestError> {
    let Some(semantic) = Semantic::find(given) else {
        return Err(ManifestError::Semantic { at: at.to_owned(), given: escaped(given) });
    };
    if !semantic.types.contains(&ty) {
        return Err(ManifestError::SemanticType {
            at: at.to_owned(),
            semantic: semantic.name,
            ty: ty.name(),
            types: semantic.types.iter().map(|ty| ty.name()).collect::<Vec<_>>().join(", "),
        });
    }
    Ok(semantic)
}

/// Refuses a field whose name is that of a presence byte in the generated struct.
fn check_presence_names(at: &str, fields: &[StreamField]) -> Result<(), ManifestError> {
    for optional in fields.iter().filter(|field| field.presence.is_some()) {
        let presence = optional.presence_name();
        if let Some(field) = fields.iter().find(|field| field.name.identifier() == presence) {
            return Err(ManifestError::PresenceName {
                at: at.to_owned(),
                field: field.name.clone(),
                optional: optional.name.clone(),
            });
        }
    }
    Ok(())
}

/// Returns the fields of a finding, as a manifest would declare them.
fn finding_fields() -> Vec<RawField> {
    let raw = |field: &finding::FindingField| RawField {
        name: field.name.to_owned(),
        ty: field.ty.name().to_owned(),
        optional: false,
        semantic: (!field.semantic.is_empty()).then(|| field.semantic.to_owned()),
        unit: String::new(),
        summary: field.summary.to_owned(),
    };
    finding::FIELDS.iter().map(raw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_digits_and_strings_become_text() {
        let text = |ty, value: &[u8]| {
            let name = Name::new("f").unwrap();
            let (unit, summary) = Default::default();
            StreamField { name, ty, unit, summary, semantic: None, offset: 0, presence: None }.text(value)
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
