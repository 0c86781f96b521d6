//! Summaries of complete record files, from their footers.

use parquet::basic::LogicalType;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaDataReader};
use parquet::file::statistics::Statistics;
use std::fs::File;
use weir_units::Timestamp;

/// The number of rows in a record file, and the range of their times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSummary {
    /// The number of rows.
    pub rows: u64,
    /// The earliest and the latest time in the columns of times. `None` for a file without rows or without such columns.
    pub times: Option<(Timestamp, Timestamp)>,
}

impl FileSummary {
    /// Reads the summary of a file. Reads only the footer, by the statistics of the row groups.
    ///
    /// # Errors
    /// The file has no valid footer, or cannot be read.
    pub fn read(file: &File) -> Result<Self, ParquetError> {
        let metadata = ParquetMetaDataReader::new().parse_and_finish(file)?;
        let groups = metadata.row_groups();
        let ranges = groups.iter().flat_map(|group| group.columns()).filter_map(times_of_column);
        let times = ranges.reduce(|(from, to), (earliest, latest)| (from.min(earliest), to.max(latest)));
        let rows = groups.iter().map(|group| u64::try_from(group.num_rows()).unwrap_or(0));
        Ok(Self { rows: rows.fold(0, u64::saturating_add), times })
    }
}

/// Returns the earliest and the latest time of a column of times in a row group.
fn times_of_column(column: &ColumnChunkMetaData) -> Option<(Timestamp, Timestamp)> {
    let descriptor = column.column_descr();
    let is_time = matches!(descriptor.logical_type_ref(), Some(LogicalType::Timestamp(_)));
    let Some(Statistics::Int64(range)) = column.statistics().filter(|_| is_time) else { return None };
    let time = |nanos: &i64| u64::try_from(*nanos).ok().map(Timestamp);
    Some((time(range.min_opt()?)?, time(range.max_opt()?)?))
}
