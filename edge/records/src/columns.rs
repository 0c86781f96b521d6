//! Conversion of a stream's rows to Arrow columns.

use arrow_array::builder::{
    ArrayBuilder, BinaryBuilder, BooleanBuilder, Float32Builder, Float64Builder, Int32Builder, Int64Builder,
    StringBuilder, TimestampNanosecondBuilder, UInt8Builder, UInt16Builder, UInt32Builder, UInt64Builder,
};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, SchemaRef};
use weir_abi::row::FieldType;
use weir_admission::{DeclaredStream, FieldValue, Name, StreamField};
use weir_units::AddressText;

/// The most rows of a batch.
const BATCH_ROWS: usize = 8_192;
/// The most text of a batch in bytes, exceeded by at most one record.
const BATCH_TEXT_BYTES: usize = 1 << 20;

/// The rows that have not been passed to the Parquet writer yet, as columns.
#[derive(Debug)]
pub(crate) struct Columns {
    schema: SchemaRef,
    fields: Vec<(StreamField, Column)>,
    rows: usize,
    text_bytes: usize,
    /// Time values that were replaced because they are too late for a file.
    late: u64,
}

#[derive(Debug)]
enum Column {
    U8(UInt8Builder),
    U16(UInt16Builder),
    U32(UInt32Builder),
    U64(UInt64Builder),
    I32(Int32Builder),
    I64(Int64Builder),
    F32(Float32Builder),
    F64(Float64Builder),
    Bool(BooleanBuilder),
    Timestamp(TimestampNanosecondBuilder),
    Text(StringBuilder),
    Bytes(BinaryBuilder),
}

impl Columns {
    pub(crate) fn new(schema: SchemaRef, stream: &DeclaredStream) -> Self {
        let fields = stream.fields.iter().map(|field| (field.clone(), Column::new(field.ty))).collect();
        Self { schema, fields, rows: 0, text_bytes: 0, late: 0 }
    }

    /// Appends a row. If the row is too short, returns the first missing field and appends nothing.
    pub(crate) fn push(&mut self, row: &[u8], tail: &[u8]) -> Result<(), Name> {
        if let Some((field, _)) = self.fields.iter().find(|(field, _)| field.read(row, tail).is_none()) {
            return Err(field.name.clone());
        }
        for (field, column) in &mut self.fields {
            if let Some(value) = field.read(row, tail) {
                self.late += u64::from(field.ty == FieldType::Timestamp && is_late(value));
                column.push(value);
            }
        }
        self.rows += 1;
        self.text_bytes += tail.len();
        Ok(())
    }

    /// Returns the number of time values so far that are too late for a file, and were replaced by the last time that
    /// it can hold.
    pub(crate) fn late(&self) -> u64 {
        self.late
    }

    /// Returns whether the batch is full.
    pub(crate) fn is_full(&self) -> bool {
        self.rows >= BATCH_ROWS || self.text_bytes >= BATCH_TEXT_BYTES
    }

    /// Takes the rows as a batch.
    pub(crate) fn take(&mut self) -> Result<RecordBatch, ArrowError> {
        (self.rows, self.text_bytes) = (0, 0);
        let columns = self.fields.iter_mut().map(|(_, column)| column.finish()).collect();
        RecordBatch::try_new(self.schema.clone(), columns)
    }
}

impl Column {
    fn new(ty: FieldType) -> Self {
        match ty {
            FieldType::U8 => Self::U8(UInt8Builder::new()),
            FieldType::U16 => Self::U16(UInt16Builder::new()),
            FieldType::U32 => Self::U32(UInt32Builder::new()),
            FieldType::U64 => Self::U64(UInt64Builder::new()),
            FieldType::I32 => Self::I32(Int32Builder::new()),
            FieldType::I64 | FieldType::Duration => Self::I64(Int64Builder::new()),
            FieldType::F32 => Self::F32(Float32Builder::new()),
            FieldType::F64 => Self::F64(Float64Builder::new()),
            FieldType::Bool => Self::Bool(BooleanBuilder::new()),
            FieldType::Timestamp => Self::Timestamp(TimestampNanosecondBuilder::new().with_timezone("UTC")),
            FieldType::Ip | FieldType::String => Self::Text(StringBuilder::new()),
            FieldType::Bytes => Self::Bytes(BinaryBuilder::new()),
        }
    }

    /// Appends a value, or null. A field always has the same kind of value, so the last arm is never taken; if it were, the
    /// columns' lengths would differ, and making the batch would fail.
    fn push(&mut self, value: FieldValue<'_>) {
        match (self, value) {
            (Self::U8(b), FieldValue::Unsigned(v)) => b.append_value(u8::try_from(v).unwrap_or(u8::MAX)),
            (Self::U16(b), FieldValue::Unsigned(v)) => b.append_value(u16::try_from(v).unwrap_or(u16::MAX)),
            (Self::U32(b), FieldValue::Unsigned(v)) => b.append_value(u32::try_from(v).unwrap_or(u32::MAX)),
            (Self::U64(b), FieldValue::Unsigned(v)) => b.append_value(v),
            // A time that is too late is replaced by the last possible one, and counted: losing the row would be worse.
            (Self::Timestamp(b), FieldValue::Unsigned(v)) => {
                b.append_value(i64::try_from(v).unwrap_or(i64::MAX));
            }
            (Self::I32(b), FieldValue::Signed(v)) => b.append_value(i32::try_from(v).unwrap_or(i32::MAX)),
            (Self::I64(b), FieldValue::Signed(v)) => b.append_value(v),
            (Self::F32(b), FieldValue::Float(v)) => b.append_value(narrow(v)),
            (Self::F64(b), FieldValue::Float(v)) => b.append_value(v),
            (Self::Bool(b), FieldValue::Bool(v)) => b.append_value(v),
            (Self::Text(b), FieldValue::Ip(v)) => b.append_value(AddressText::new(v).as_str()),
            (Self::Text(b), FieldValue::Bytes(v)) => b.append_value(String::from_utf8_lossy(v)),
            (Self::Bytes(b), FieldValue::Bytes(v)) => b.append_value(v),
            (column, FieldValue::Null) => column.push_null(),
            _ => {}
        }
    }

    fn push_null(&mut self) {
        match self {
            Self::U8(b) => b.append_null(),
            Self::U16(b) => b.append_null(),
            Self::U32(b) => b.append_null(),
            Self::U64(b) => b.append_null(),
            Self::I32(b) => b.append_null(),
            Self::I64(b) => b.append_null(),
            Self::F32(b) => b.append_null(),
            Self::F64(b) => b.append_null(),
            Self::Bool(b) => b.append_null(),
            Self::Timestamp(b) => b.append_null(),
            Self::Text(b) => b.append_null(),
            Self::Bytes(b) => b.append_null(),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        self.builder().finish()
    }

    fn builder(&mut self) -> &mut dyn ArrayBuilder {
        match self {
            Self::U8(b) => b,
            Self::U16(b) => b,
            Self::U32(b) => b,
            Self::U64(b) => b,
            Self::I32(b) => b,
            Self::I64(b) => b,
            Self::F32(b) => b,
            Self::F64(b) => b,
            Self::Bool(b) => b,
            Self::Timestamp(b) => b,
            Self::Text(b) => b,
            Self::Bytes(b) => b,
        }
    }
}

/// Returns true for a time that is too late for Parquet, whose signed time stamps in nanoseconds end on 2262-04-11.
fn is_late(value: FieldValue<'_>) -> bool {
    matches!(value, FieldValue::Unsigned(ns) if i64::try_from(ns).is_err())
}

#[expect(clippy::cast_possible_truncation, reason = "it was an f32 before the field was read as an f64")]
fn narrow(value: f64) -> f32 {
    value as f32
}
