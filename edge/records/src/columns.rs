//! The rows of a stream that wait, and their conversion to Arrow columns.

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
/// The least bytes by which the buffer of rows grows.
const GROWTH_MIN: usize = 512;
/// The bytes in front of a row in the buffer: the lengths of its fixed part and of its tail, 32 bits each.
const ROW_HEADER_BYTES: usize = 8;

/// The rows of a stream that have not been passed on yet, as the module emitted them. They become columns when they are
/// passed on, because columns take memory for each field even with few rows.
#[derive(Debug)]
pub(crate) struct Columns {
    schema: SchemaRef,
    fields: Vec<StreamField>,
    /// For each row its header, its fixed part and its tail.
    buffer: Vec<u8>,
    rows: usize,
    text_bytes: usize,
    /// Time values that were replaced because they are too late for a file.
    late: u64,
    /// True if the memory of the buffer stays after [`Self::take`], for the next rows.
    keeps_buffer: bool,
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
    /// Makes an empty buffer. With `keeps_buffer`, its memory is not freed between batches, which is faster.
    pub(crate) fn new(schema: SchemaRef, stream: &DeclaredStream, keeps_buffer: bool) -> Self {
        let fields = stream.fields.clone();
        Self { schema, fields, buffer: Vec::new(), rows: 0, text_bytes: 0, late: 0, keeps_buffer }
    }

    /// Appends a row. If the row is too short, returns the first missing field and appends nothing.
    pub(crate) fn push(&mut self, row: &[u8], tail: &[u8]) -> Result<(), Name> {
        let mut late = 0;
        for field in &self.fields {
            let Some(value) = field.read(row, tail) else { return Err(field.name.clone()) };
            late += u64::from(field.ty == FieldType::Timestamp && is_late(value));
        }
        self.late += late;
        let added = ROW_HEADER_BYTES + row.len() + tail.len();
        if self.buffer.capacity() - self.buffer.len() < added {
            // Smaller steps than those of `Vec`, which doubles: the capacity counts for the memory of the module.
            self.buffer.reserve_exact(added.max(GROWTH_MIN).max(self.buffer.capacity() / 4));
        }
        for part in [row, tail] {
            // A record has far fewer than 4 GiB.
            self.buffer.extend(u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes());
        }
        self.buffer.extend_from_slice(row);
        self.buffer.extend_from_slice(tail);
        self.rows += 1;
        self.text_bytes += tail.len();
        Ok(())
    }

    /// Returns the memory that the rows take, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.buffer.capacity()
    }

    /// Drops the rows, and frees their memory.
    pub(crate) fn clear(&mut self) {
        (self.buffer, self.rows, self.text_bytes) = (Vec::new(), 0, 0);
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
        let mut buffer = std::mem::take(&mut self.buffer);
        let rows = std::mem::take(&mut self.rows);
        self.text_bytes = 0;
        let mut columns: Vec<Column> = self.fields.iter().map(|field| Column::new(field.ty, rows)).collect();
        let mut rest = &buffer[..];
        while let Some((row, tail, after)) = split_row(rest) {
            for (field, column) in self.fields.iter().zip(&mut columns) {
                // Each field was read when the row was appended.
                if let Some(value) = field.read(row, tail) {
                    column.push(value);
                }
            }
            rest = after;
        }
        if self.keeps_buffer {
            buffer.clear();
            self.buffer = buffer;
        }
        let columns = columns.iter_mut().map(Column::finish).collect();
        RecordBatch::try_new(self.schema.clone(), columns)
    }
}

/// Returns the fixed part and the tail of the first row in the buffer, and the bytes after the row.
fn split_row(buffer: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (row_len, rest) = buffer.split_first_chunk()?;
    let (tail_len, rest) = rest.split_first_chunk()?;
    let (row, rest) = rest.split_at_checked(u32::from_le_bytes(*row_len) as usize)?;
    let (tail, rest) = rest.split_at_checked(u32::from_le_bytes(*tail_len) as usize)?;
    Some((row, tail, rest))
}

impl Column {
    /// Creates a column for this number of rows.
    fn new(ty: FieldType, rows: usize) -> Self {
        match ty {
            FieldType::U8 => Self::U8(UInt8Builder::with_capacity(rows)),
            FieldType::U16 => Self::U16(UInt16Builder::with_capacity(rows)),
            FieldType::U32 => Self::U32(UInt32Builder::with_capacity(rows)),
            FieldType::U64 => Self::U64(UInt64Builder::with_capacity(rows)),
            FieldType::I32 => Self::I32(Int32Builder::with_capacity(rows)),
            FieldType::I64 | FieldType::Duration => Self::I64(Int64Builder::with_capacity(rows)),
            FieldType::F32 => Self::F32(Float32Builder::with_capacity(rows)),
            FieldType::F64 => Self::F64(Float64Builder::with_capacity(rows)),
            FieldType::Bool => Self::Bool(BooleanBuilder::with_capacity(rows)),
            FieldType::Timestamp => {
                Self::Timestamp(TimestampNanosecondBuilder::with_capacity(rows).with_timezone("UTC"))
            }
            FieldType::Ip | FieldType::String => Self::Text(StringBuilder::with_capacity(rows, 0)),
            FieldType::Bytes => Self::Bytes(BinaryBuilder::with_capacity(rows, 0)),
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
