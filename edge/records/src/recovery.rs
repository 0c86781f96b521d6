//! Completes files that a crashed process left behind: the row groups of the `.part` file, and the rows of the log.
//!
//! Nothing is lost if recovery itself is interrupted, or the disk is full: the log stays until the complete file has its name.

use crate::RecordsError;
use crate::error::WriteCause;
use crate::file::{Footer, logged, partial, rows_of, whole, writer};
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

/// A Parquet file begins with these bytes.
const MAGIC: &[u8] = b"PAR1";
/// Files of earlier crashes of which the numbers are tried.
const NUMBERS_MAX: u32 = 10_000;

/// A file that a crashed process left, and that is complete now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Its name now.
    pub path: PathBuf,
    /// Its rows.
    pub rows: u64,
}

/// Completes what a crashed process left in a module's folder of a node, `STREAM.parquet` for each stream. Files that another process is writing stay as they are.
///
/// # Errors
/// For each file on its own: the disk is full, or the bytes are damaged. The files stay, and recovery can be tried again.
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
    let one = |stream: &Name| {
        let path = folder.path().join(partial(stream));
        match folder.create_locked(&partial(stream)) {
            Ok(Some(part)) => recover_stream(&folder, stream, &part, true),
            Ok(None) => Ok(None),
            Err(error) => Err(RecordsError::Create { path, source: error.into() }),
        }
    };
    streams.iter().filter_map(|stream| one(stream).transpose()).collect()
}

/// Completes what a crashed process left in the place where another file of the stream is about to be written. The recovered file gets a name that no other has.
pub(crate) fn recover_beside(
    folder: &PrivateFolder,
    stream: &Name,
    part: &File,
) -> Result<Option<Recovered>, RecordsError> {
    recover_stream(folder, stream, part, false)
}

/// `part` is locked. Returns None where there are no rows to recover.
fn recover_stream(
    folder: &PrivateFolder,
    stream: &Name,
    part: &File,
    takes_name: bool,
) -> Result<Option<Recovered>, RecordsError> {
    let log = match folder.open_file(&logged(stream)) {
        Ok(log) => log,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let path = folder.path().join(logged(stream));
            return Err(RecordsError::Create { path, source: error.into() });
        }
    };
    let failed = |cause| RecordsError::Recover { path: folder.path().join(partial(stream)), cause };
    let rows = complete(part, log).map_err(failed)?;
    let finish = || -> io::Result<Option<Recovered>> {
        let found = if rows > 0 {
            part.sync_data()?;
            let name = free_name(folder, stream, takes_name)?;
            folder.rename(&partial(stream), &name)?;
            Some(Recovered { path: folder.path().join(name), rows })
        } else {
            // Where another file is about to be written, it is this one.
            if takes_name {
                folder.remove(&partial(stream))?;
            }
            None
        };
        folder.sync()?;
        folder.remove(&logged(stream))?;
        Ok(found)
    };
    finish().map_err(|error| failed(error.into()))
}

/// A name for a recovered file that no file has.
fn free_name(folder: &PrivateFolder, stream: &Name, takes_name: bool) -> io::Result<String> {
    let plain = takes_name.then(|| whole(stream));
    let numbered = (1..NUMBERS_MAX).map(|number| format!("{stream}.recovered-{number}.parquet"));
    let is_free = |name: &String| folder.path().join(name).symlink_metadata().is_err();
    plain.into_iter().chain(numbered).find(is_free).ok_or_else(|| ErrorKind::AlreadyExists.into())
}

/// Brings the rows of a log into the file. Returns the rows that the file has then.
fn complete(part: &File, log: File) -> Result<u64, WriteCause> {
    let Some((base, rows)) = log::read(log)? else {
        // The log is cut off in its first bytes, or damaged: then the file is all there is.
        return if part.metadata()?.len() == 0 { Ok(0) } else { Ok(rows_of(metadata(part)?.row_groups())) };
    };
    let metadata = match metadata(part) {
        Ok(metadata) => metadata,
        // A row group was being written over the footer.
        Err(_) => {
            restore(part, &base)?;
            metadata(part)?
        }
    };
    let mut groups = metadata.row_groups().to_vec();
    let there = rows_of(&groups);
    // A footer is written before the log begins anew.
    let skipped = there
        .checked_sub(base.rows)
        .ok_or_else(|| damaged("the log begins after rows that are not there"))?;
    let end = groups.last().map_or(Ok(MAGIC.len() as u64), end_of)?;
    let (bytes, added) = encode(rows, skipped)?;
    if added.is_empty() {
        return Ok(there);
    }
    let shift = i64::try_from(end).ok().and_then(|end| end.checked_sub(MAGIC.len() as i64));
    let shift = shift.ok_or_else(|| damaged("a row group ends beyond any file"))?;
    for group in added {
        let number = i16::try_from(groups.len()).unwrap_or(i16::MAX);
        groups.push(moved(group, shift, number)?);
    }
    let last = groups.last().map_or(Ok(end), end_of)?;
    // From here on the footer is gone, and the log's is still there.
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

fn metadata(part: &File) -> Result<ParquetMetaData, ParquetError> {
    ParquetMetaDataReader::new().parse_and_finish(part)
}

/// Puts the file back into the state at which the log begins.
fn restore(part: &File, base: &Base) -> Result<(), WriteCause> {
    let len = part.metadata()?.len();
    if base.rows > 0 && len < base.end {
        return Err(damaged("it is shorter than its complete row groups").into());
    }
    part.set_len(base.end)?;
    part.write_all_at(MAGIC, 0)?;
    part.write_all_at(&base.footer, base.end)?;
    Ok(())
}

/// Encodes the rows of a log behind the first `skipped` as the row groups of a file of their own.
fn encode(mut rows: Frames<impl Read>, skipped: u64) -> Result<(Vec<u8>, Vec<RowGroupMetaData>), WriteCause> {
    if !rows.has_more()? {
        return Ok((Vec::new(), Vec::new()));
    }
    let mut batches = StreamReader::try_new(rows, None).map_err(ParquetError::from)?;
    let mut writer = writer(Vec::new(), &batches.schema())?;
    let mut skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
    for batch in &mut batches {
        let batch = batch.map_err(ParquetError::from)?;
        let from = skipped.min(batch.num_rows());
        skipped -= from;
        writer.write(&batch.slice(from, batch.num_rows() - from))?;
    }
    writer.flush()?;
    writer.sync()?;
    let groups = writer.flushed_row_groups().to_vec();
    Ok((writer.inner().clone(), groups))
}

/// A row group whose bytes are so much further behind.
fn moved(group: RowGroupMetaData, shift: i64, number: i16) -> Result<RowGroupMetaData, ParquetError> {
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

/// Where a row group's bytes end.
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
