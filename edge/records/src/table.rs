//! A small table as a Parquet file in memory.

use arrow_array::{ArrayRef, Decimal128Array, RecordBatch, StringArray, UInt64Array};
use arrow_schema::ArrowError;
use parquet::arrow::ArrowWriter;
use parquet::errors::ParquetError;
use std::sync::Arc;

/// The digits of an exact number.
const DECIMAL_DIGITS: u8 = 38;

/// A column of a table. All columns have equal lengths. A missing value is null.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableColumn {
    /// Texts.
    Text(Vec<Option<String>>),
    /// Counts.
    Count(Vec<Option<u64>>),
    /// Exact numbers with `decimals` digits after the point.
    Decimal {
        /// Digits after the point.
        decimals: u8,
        /// Values, in units of the last digit.
        scaled: Vec<Option<i128>>,
    },
}

/// The reason why a table cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum TableEncodeError {
    /// The columns have different lengths, or a number has too many digits.
    #[error("the table cannot be stored in columns: {0}")]
    Columns(#[from] ArrowError),
    /// The writer's error.
    #[error("the table cannot be written as Parquet: {0}")]
    Write(#[from] ParquetError),
}

/// Returns a table as the bytes of a Parquet file.
///
/// # Errors
/// The columns have different lengths, or a number has too many digits.
pub fn table_file(columns: Vec<(&str, TableColumn)>) -> Result<Vec<u8>, TableEncodeError> {
    let columns = columns.into_iter().map(|(name, column)| {
        let values: ArrayRef = match column {
            TableColumn::Text(texts) => Arc::new(StringArray::from(texts)),
            TableColumn::Count(counts) => Arc::new(UInt64Array::from(counts)),
            TableColumn::Decimal { decimals, scaled } => {
                let decimals = i8::try_from(decimals).unwrap_or(i8::MAX);
                let numbers = Decimal128Array::from(scaled);
                Arc::new(numbers.with_precision_and_scale(DECIMAL_DIGITS, decimals)?)
            }
        };
        Ok((name, values, true))
    });
    let batch = RecordBatch::try_from_iter_with_nullable(columns.collect::<Result<Vec<_>, ArrowError>>()?)?;
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None)?;
    writer.write(&batch)?;
    Ok(writer.into_inner()?)
}
