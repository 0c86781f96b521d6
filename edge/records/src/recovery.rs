//! Recovery of the record files of a crashed process: completes a `.part` file with the rows of its write-ahead log.
//!
//! If recovery is interrupted or the disk is full, no row is lost: the log is kept until the completed file has its final
//! name.

use crate::RecordsError;
use crate::error::WriteCause;
use crate::file::{Footer, complete_name, log_name, partial_name, rows_of, writer};
use crate::log::{self, Base, Frames};
use arrow_ipc::reader::StreamReader;
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData,
};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use weir_admission::Name;
use weir_os::private::PrivateFolder;

/// The first bytes of a Parquet file.
const MAGIC: &[u8] = b"PAR1";
/// The end of the numbers that are tried for the name of a recovered file.
const NAME_NUMBERS_END: u32 = 10_000;

/// A recovered, complete file of a crashed process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The path of the file.
    pub path: PathBuf,
    /// The number of rows in the file.
    pub rows: u64,
}

/// Completes the files of a crashed process in the folder of a node's module.
///
/// A module writes each of its record streams, which its manifest declares, to a file of its own. For each stream whose
/// write-ahead log is in the folder, the completed file is named `STREAM.parquet`, or `STREAM.recovered-N.parquet` if
/// that name is taken. Files that another process is writing are unchanged.
///
/// # Errors
/// Each file has its own result. Completing it fails if the disk is full or the bytes are damaged; then its files stay,
/// and recovery can be repeated.
pub fn recover(folder: &Path) -> Vec<Result<Recovered, RecordsError>> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut streams: Vec<Name> = entries
        .flatten()
        .filter_map(|entry| Name::new(entry.file_name().to_str()?.strip_suffix(".parquet.wal")?).ok())
        .collect();
    if streams.is_empty() {
        return Vec::new();
    }
    streams.sort();
    let folder = match PrivateFolder::open(folder) {
        Ok(folder) => folder,
        Err(error) => {
            return vec![Err(RecordsError::Folder { path: folder.to_owned(), source: error.into() })];
        }
    };
    let recover_one = |stream: &Name| {
        let path = folder.path().join(partial_name(stream));
        match folder.create_locked(&partial_name(stream)) {
            Ok(Some(part)) => recover_stream(&folder, stream, &part, true),
            Ok(None) => Ok(None),
            Err(error) => Err(RecordsError::Create { path, source: error.into() }),
        }
    };
    streams.iter().filter_map(|stream| recover_one(stream).transpose()).collect()
}

/// Completes the file of a crashed process before a new file of the same stream is written in the folder. The completed
/// file gets the name `STREAM.recovered-N.parquet`, because the new file will be `STREAM.parquet`.
pub(crate) fn recover_beside(
    folder: &PrivateFolder,
    stream: &Name,
    part: &File,
) -> Result<Option<Recovered>, RecordsError> {
    recover_stream(folder, stream, part, false)
}

/// Completes the file of one stream from its log. The caller has locked `part`, the stream's `.part` file. Returns `None`
/// if there is no log, or neither file has any rows.
///
/// With `gets_plain_name`, the completed file is named `STREAM.parquet` if that name is unused. Without it, that name
/// is for a new file, which the caller writes to `part` unless `part` is renamed here.
fn recover_stream(
    folder: &PrivateFolder,
    stream: &Name,
    part: &File,
    gets_plain_name: bool,
) -> Result<Option<Recovered>, RecordsError> {
    let log = match folder.open_file(&log_name(stream)) {
        Ok(log) => log,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let path = folder.path().join(log_name(stream));
            return Err(RecordsError::Create { path, source: error.into() });
        }
    };
    let failed = |cause| RecordsError::Recover { path: folder.path().join(partial_name(stream)), cause };
    let rows = complete(part, log).map_err(failed)?;
    let finish = || -> io::Result<Option<Recovered>> {
        let recovered = if rows > 0 {
            part.sync_data()?;
            let name = unused_name(folder, stream, gets_plain_name)?;
            folder.rename(&partial_name(stream), &name)?;
            Some(Recovered { path: folder.path().join(name), rows })
        } else {
            if gets_plain_name {
                folder.remove(&partial_name(stream))?;
            }
            None
        };
        folder.sync()?;
        folder.remove(&log_name(stream))?;
        Ok(recovered)
    };
    finish().map_err(|error| failed(error.into()))
}

/// Returns an unused name for a recovered file.
fn unused_name(folder: &PrivateFolder, stream: &Name, gets_plain_name: bool) -> io::Result<String> {
    let plain = gets_plain_name.then(|| complete_name(stream));
    let numbered = (1..NAME_NUMBERS_END).map(|number| format!("{stream}.recovered-{number}.parquet"));
    let is_unused = |name: &String| folder.path().join(name).symlink_metadata().is_err();
    plain.into_iter().chain(numbered).find(is_unused).ok_or_else(|| ErrorKind::AlreadyExists.into())
}

/// Appends the rows of a log to the `.part` file, except those that its row groups have already. Returns the number of
/// rows in the file afterwards.
fn complete(part: &File, log: File) -> Result<u64, WriteCause> {
    let Some((base, rows)) = log::read(log)? else {
        // The beginning of the log is missing or damaged, so only the rows in the file remain.
        return if part.metadata()?.len() == 0 { Ok(0) } else { Ok(rows_of(metadata(part)?.row_groups())) };
    };
    let metadata = match metadata(part) {
        Ok(metadata) => metadata,
        // The process crashed while it was writing a row group over the footer.
        Err(_) => {
            restore_to_base(part, &base)?;
            metadata(part)?
        }
    };
    let mut groups = metadata.row_groups().to_vec();
    let rows_in_file = rows_of(&groups);
    // The file can have more rows than at the beginning of the log: a footer is written before the log restarts.
    let skipped = rows_in_file
        .checked_sub(base.rows)
        .ok_or_else(|| damaged("the log begins after rows that are not there"))?;
    let end = groups.last().map_or(Ok(MAGIC.len() as u64), end_of)?;
    let (bytes, added) = encode(rows, skipped)?;
    if added.is_empty() {
        return Ok(rows_in_file);
    }
    let shift = i64::try_from(end).ok().and_then(|end| end.checked_sub(MAGIC.len() as i64));
    let shift = shift.ok_or_else(|| damaged("a row group ends beyond any file"))?;
    for group in added {
        let number = i16::try_from(groups.len()).unwrap_or(i16::MAX);
        groups.push(shifted(group, shift, number)?);
    }
    let last = groups.last().map_or(Ok(end), end_of)?;
    // The row groups overwrite the file's footer. After a crash from here on, recovery restores it from the log.
    part.write_all_at(bytes.get(MAGIC.len()..).unwrap_or_default(), end)?;
    let file = metadata.file_metadata();
    let footer = Footer {
        file: part.try_clone()?,
        schema: file.schema_descr_ptr(),
        pairs: file.key_value_metadata().cloned().unwrap_or_default(),
        ends: vec![last],
    };
    footer.write(&footer.encode(&groups)?)?;
    Ok(rows_of(&groups))
}

/// Reads the footer of a file.
fn metadata(part: &File) -> Result<ParquetMetaData, ParquetError> {
    ParquetMetaDataReader::new().parse_and_finish(part)
}

/// Restores the file to its state at the beginning of the log: without later row groups, and with its footer.
fn restore_to_base(part: &File, base: &Base) -> Result<(), WriteCause> {
    let len = part.metadata()?.len();
    if base.rows > 0 && len < base.end {
        return Err(damaged("it is shorter than its complete row groups").into());
    }
    part.set_len(base.end)?;
    part.write_all_at(MAGIC, 0)?;
    part.write_all_at(&base.footer, base.end)?;
    Ok(())
}

/// Encodes the rows of a log, without the first `skipped`, as a separate Parquet file without a footer. Returns its bytes
/// and its row groups, whose offsets are relative to these bytes.
fn encode(mut rows: Frames<impl Read>, skipped: u64) -> Result<(Vec<u8>, Vec<RowGroupMetaData>), WriteCause> {
    if !rows.has_more()? {
        return Ok((Vec::new(), Vec::new()));
    }
    let mut batches = StreamReader::try_new(rows, None).map_err(ParquetError::from)?;
    let mut writer = writer(Vec::new(), &batches.schema())?;
    let mut skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
    for batch in &mut batches {
        let batch = batch.map_err(ParquetError::from)?;
        let dropped = skipped.min(batch.num_rows());
        skipped -= dropped;
        writer.write(&batch.slice(dropped, batch.num_rows() - dropped))?;
    }
    writer.flush()?;
    writer.sync()?;
    let groups = writer.flushed_row_groups().to_vec();
    Ok((writer.inner().clone(), groups))
}

/// Returns a row group with its offsets moved by `shift` bytes, and with `number` as its position among the row groups.
fn shifted(group: RowGroupMetaData, shift: i64, number: i16) -> Result<RowGroupMetaData, ParquetError> {
    let column = |column: &ColumnChunkMetaData| {
        let dictionary = column.dictionary_page_offset().map(|offset| offset.saturating_add(shift));
        let data = column.data_page_offset().saturating_add(shift);
        column
            .clone()
            .into_builder()
            .set_data_page_offset(data)
            .set_dictionary_page_offset(dictionary)
            .build()
    };
    let columns = group.columns().iter().map(column).collect::<Result<_, _>>()?;
    let begin = group.file_offset().map_or(shift, |offset| offset.saturating_add(shift));
    group
        .into_builder()
        .set_column_metadata(columns)
        .set_file_offset(begin)
        .set_ordinal(number.into())
        .build()
}

/// Returns the offset of the first byte after a row group.
fn end_of(group: &RowGroupMetaData) -> Result<u64, ParquetError> {
    let end = |column: &ColumnChunkMetaData| {
        let begin = column.dictionary_page_offset().unwrap_or(i64::MAX).min(column.data_page_offset());
        begin.checked_add(column.compressed_size())
    };
    let ends: Option<Vec<i64>> = group.columns().iter().map(end).collect();
    let end = ends.and_then(|ends| ends.into_iter().max()).and_then(|end| u64::try_from(end).ok());
    end.ok_or_else(|| damaged("a row group has no place in the file"))
}

fn damaged(what: &str) -> ParquetError {
    ParquetError::General(what.to_owned())
}
