//! The Parquet file of one record stream: row groups, and a footer after the last one.

use crate::columns::Columns;
use crate::error::{RecordsError, WriteCause};
use crate::log::{Base, Log};
use crate::recovery::{self, Recovered};
use crate::{Durability, RecordSource, schema};
use arrow_array::RecordBatch;
use arrow_schema::Schema;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::arrow::{ARROW_SCHEMA_META_KEY, ArrowSchemaConverter, ArrowWriter, encode_arrow_schema};
use parquet::file::metadata::{
    FileMetaData, KeyValue, ParquetMetaDataBuilder, ParquetMetaDataWriter, RowGroupMetaData,
};
use parquet::schema::types::SchemaDescPtr;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_os::private::PrivateFolder;
use {
    weir_admission::{DeclaredStream, Name},
    weir_session::Record,
};

/// The most rows of a row group.
const GROUP_ROWS_MAX: usize = 128 << 10;
/// The encoded bytes at which a row group ends, without a log.
const GROUP_BYTES_MAX: usize = 4 << 20;
/// The memory of the Parquet writer at which a row group ends. Its tables of repeated values can take more than the
/// encoded bytes: of a column with few rows already 72 KiB.
const GROUP_MEMORY_MAX: usize = 12 << 20;
/// The bytes in the log at which a row group ends.
const GROUP_LOG_BYTES_MAX: u64 = 8 << 20;
/// The age at which a row group ends, with [`Durability::Seconds`]. Readers of a `.part` file see the rows of a row group
/// when it has ended.
const GROUP_TIME_MAX: Duration = Duration::from_secs(300);
/// The number of row groups up to which a footer is written after each. A footer lists all row groups of the file, so
/// in a larger file writing it would take longer than writing rows, and it is written more rarely.
const GROUPS_WITH_FOOTER: usize = 1024;

/// The file of a stream during writing.
#[derive(Debug)]
pub(crate) struct StreamFile {
    stream: Name,
    folder: Arc<PrivateFolder>,
    /// The path of the complete file.
    path: PathBuf,
    /// The path of the file during writing.
    part: PathBuf,
    /// Rows that are neither in the log nor in the Parquet writer yet.
    columns: Columns,
    /// `None` once the file is finished, or writing has failed.
    open: Option<OpenFile>,
    /// Rows passed to [`Self::write`].
    rows: u64,
    /// The number of rows in the file, once writing has failed.
    kept: u64,
}

/// The result of a file.
#[derive(Debug)]
pub(crate) struct EndedFile {
    /// Rows in the file.
    pub(crate) rows: u64,
    /// The file's present path.
    pub(crate) path: PathBuf,
    /// The error, if the file could not be ended. An error before that was returned then.
    pub(crate) error: Option<RecordsError>,
}

/// An open file with its Parquet writer and its log.
///
/// With a log, the rows of a row group are in the log alone until the row group ends. Then they are read and encoded, so
/// that a stream takes the memory of a row group only while it ends one.
#[derive(Debug)]
struct OpenFile {
    writer: ArrowWriter<File>,
    footer: Footer,
    /// The write-ahead log, with [`Durability::Seconds`].
    log: Option<Log>,
    /// Rows that could not be appended to the log.
    unlogged: Option<RecordBatch>,
    /// The time of the first row in the current row group.
    group_start: Option<Instant>,
}

/// Writes the footer of a file, after any of its row groups.
#[derive(Debug)]
pub(crate) struct Footer {
    pub(crate) file: File,
    pub(crate) schema: SchemaDescPtr,
    pub(crate) pairs: Vec<KeyValue>,
    /// The offset of the first row group, and of the end of each row group.
    pub(crate) ends: Vec<u64>,
}

impl StreamFile {
    /// Creates `folder/STREAM.parquet.part`. An older `STREAM.parquet` stays until a complete file replaces it. Rows
    /// that a crash left in the log of an earlier `.part` file are recovered first, into a file of their own.
    pub(crate) fn create(
        folder: &Arc<PrivateFolder>,
        source: &RecordSource<'_>,
        stream: &DeclaredStream,
        durability: Durability,
    ) -> Result<(Self, Option<Recovered>), RecordsError> {
        let path = folder.path().join(complete_name(&stream.name));
        let part = folder.path().join(partial_name(&stream.name));
        // Such a folder would prevent the final renaming, so it is an error before there are rows.
        if fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir()) {
            return Err(RecordsError::Create { path, source: ErrorKind::IsADirectory.into() });
        }
        let (file, recovered) = create_exclusive(folder, &stream.name, &part)?;
        let schema = Arc::new(schema::schema(source, stream));
        let columns = Columns::new(schema.clone(), stream, durability == Durability::AtEnd);
        // Keeps the lock until a file that cannot be begun is removed.
        let locked = file.try_clone();
        let open = OpenFile::new(file, &schema)
            .and_then(|open| match durability {
                Durability::AtEnd => Ok(open),
                Durability::Seconds => open.with_log(folder, &stream.name, &schema),
            })
            .map_err(|cause| {
                for name in [partial_name(&stream.name), log_name(&stream.name)] {
                    _ = folder.remove(&name);
                }
                RecordsError::Write { path: part.clone(), kept: None, cause }
            })?;
        drop(locked);
        let (stream, folder) = (stream.name.clone(), Arc::clone(folder));
        Ok((Self { stream, folder, path, part, columns, open: Some(open), rows: 0, kept: 0 }, recovered))
    }

    /// Returns the memory of the rows that are neither in the log nor in the Parquet writer yet, in bytes.
    pub(crate) fn waiting_memory(&self) -> usize {
        self.columns.memory()
    }

    /// Returns the number of column chunks in the file's row groups. The Parquet writer has the metadata of each in memory.
    pub(crate) fn column_chunks(&self) -> usize {
        let open = self.open.iter();
        let groups = open.flat_map(|open| open.writer.flushed_row_groups());
        groups.map(|group| group.columns().len()).sum()
    }

    /// Returns the number of time values in the rows so far that are too late for the file, and were replaced by the last
    /// time that it can hold.
    pub(crate) fn late(&self) -> u64 {
        self.columns.late()
    }

    /// Replaces the value of a key of the metadata, in footers that are written from now on.
    pub(crate) fn set_fact(&mut self, key: &str, value: &str) {
        let pairs = self.open.iter_mut().flat_map(|open| &mut open.footer.pairs);
        for pair in pairs.filter(|pair| pair.key == key) {
            pair.value = Some(value.to_owned());
        }
    }

    /// Writes the rows so far to the log, if there is one, so that they survive a crash of the process.
    pub(crate) fn flush(&mut self) -> Result<(), RecordsError> {
        match &mut self.open {
            Some(open) if open.log.is_some() => {
                open.write_batch(&mut self.columns).map_err(|cause| self.fail(cause))
            }
            _ => Ok(()),
        }
    }

    /// Appends a row; most calls only touch memory.
    pub(crate) fn write(&mut self, record: &Record<'_>) -> Result<(), RecordsError> {
        let Some(open) = &mut self.open else { return Err(RecordsError::Stopped(self.part.clone())) };
        self.columns
            .push(record.row, record.tail)
            .map_err(|field| RecordsError::Row { stream: self.stream.clone(), field })?;
        self.rows += 1;
        if self.columns.is_full()
            && let Err(cause) = open.write_batch(&mut self.columns)
        {
            return Err(self.fail(cause));
        }
        Ok(())
    }

    /// Writes the remaining rows. A complete file then gets its final name; the file of a failed run keeps its `.part` name.
    pub(crate) fn end(mut self, is_complete: bool) -> EndedFile {
        let ended = |rows, path: &Path, error| EndedFile { rows, path: path.to_owned(), error };
        let Some(open) = &mut self.open else { return ended(self.kept, &self.part, None) };
        let is_durable = open.log.is_some();
        if let Err(cause) = open.end(&mut self.columns) {
            let error = self.fail(cause);
            return ended(self.kept, &self.part, Some(error));
        }
        if !is_complete {
            self.open = None;
            return ended(self.rows, &self.part, None);
        }
        // The open file, and with it the lock, is kept until the file has its final name, so that no other run writes to
        // the `.part` file before.
        let locked = self.open.take();
        let renamed = self.folder.rename(&partial_name(&self.stream), &complete_name(&self.stream));
        drop(locked);
        if is_durable {
            // An error is ignored: the rows are on the disk, at worst under the old name after a crash.
            _ = self.folder.sync();
        }
        match renamed {
            Ok(()) => ended(self.rows, &self.path, None),
            Err(source) => {
                let (from, to) = (self.part.clone(), self.path.clone());
                ended(self.rows, &self.part, Some(RecordsError::Rename { from, to, source }))
            }
        }
    }

    /// Ends the file after an error, with as many rows as there is room for, and writes no more.
    fn fail(&mut self, cause: WriteCause) -> RecordsError {
        let kept = self.open.take().and_then(|mut open| {
            // If the log could not grow on a full disk, removing it makes room for its rows in the file.
            if let Some(unlogged) = open.unlogged.take()
                && open.read_log(false).is_ok()
                && open.writer.write(&unlogged).is_ok()
                && let Some(log) = open.log.take()
                && log.remove().is_ok()
                && open.end(&mut self.columns).is_ok()
            {
                return Some(open.rows());
            }
            open.salvage()
        });
        self.kept = kept.unwrap_or(0);
        self.columns.clear();
        RecordsError::Write { path: self.part.clone(), kept, cause }
    }
}

impl Drop for StreamFile {
    /// Writes the remaining rows of a file that was not ended. It keeps its `.part` name. A file without rows is removed, because the
    /// run was refused before its begin.
    fn drop(&mut self) {
        let Some(mut open) = self.open.take() else { return };
        if self.rows == 0 {
            // Removed while it is locked, so that no other run has opened it.
            _ = self.folder.remove(&partial_name(&self.stream));
            _ = open.log.take().map(Log::remove);
        } else if open.end(&mut self.columns).is_err() {
            open.salvage();
        }
    }
}

/// Returns the name of a stream's complete file.
pub(crate) fn complete_name(stream: &Name) -> String {
    format!("{stream}.parquet")
}

/// Returns the name of a stream's file while it is written.
pub(crate) fn partial_name(stream: &Name) -> String {
    format!("{stream}.parquet.part")
}

/// Returns the name of a stream's write-ahead log.
pub(crate) fn log_name(stream: &Name) -> String {
    format!("{stream}.parquet.wal")
}

/// Opens and locks an empty `.part` file. If a crashed process has left a `.part` file, that file is completed and
/// renamed first.
fn create_exclusive(
    folder: &PrivateFolder,
    stream: &Name,
    path: &Path,
) -> Result<(File, Option<Recovered>), RecordsError> {
    let file = open_exclusive(folder, stream, path)?;
    let recovered = recovery::recover_beside(folder, stream, &file)?;
    // A completed file has been renamed, so the `.part` file must be created again.
    let file = if recovered.is_some() { open_exclusive(folder, stream, path)? } else { file };
    file.set_len(0).map_err(|source| RecordsError::Create { path: path.to_owned(), source })?;
    Ok((file, recovered))
}

/// Opens and locks a stream's `.part` file. Fails if another run writes it.
fn open_exclusive(folder: &PrivateFolder, stream: &Name, path: &Path) -> Result<File, RecordsError> {
    match folder.create_locked(&partial_name(stream)) {
        Ok(Some(file)) => Ok(file),
        Ok(None) => Err(RecordsError::Busy(path.to_owned())),
        Err(error) => Err(RecordsError::Create { path: path.to_owned(), source: error.into() }),
    }
}

impl OpenFile {
    /// Begins a file in an empty one, with a footer.
    fn new(file: File, schema: &Arc<Schema>) -> Result<Self, WriteCause> {
        let mut writer = writer(file.try_clone()?, schema)?;
        writer.sync()?;
        let mut pairs: Vec<KeyValue> =
            schema.metadata().iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone())).collect();
        pairs.sort_by(|a, b| a.key.cmp(&b.key));
        pairs.push(KeyValue::new(ARROW_SCHEMA_META_KEY.to_owned(), encode_arrow_schema(schema)));
        let begin = position(&writer);
        let footer = Footer {
            file,
            schema: Arc::new(ArrowSchemaConverter::new().convert(schema)?),
            pairs,
            ends: vec![begin],
        };
        footer.write(&footer.encode(&[])?)?;
        Ok(Self { writer, footer, log: None, unlogged: None, group_start: None })
    }

    /// Creates the log of a file without rows.
    fn with_log(
        mut self,
        folder: &Arc<PrivateFolder>,
        stream: &Name,
        schema: &Arc<Schema>,
    ) -> Result<Self, WriteCause> {
        let base = self.base(self.footer.encode(&[])?);
        self.log = Some(Log::create(folder, log_name(stream), schema, &base)?);
        Ok(self)
    }

    /// Passes the rows to the log, or without one to the Parquet writer. Ends the row group if it is large or old enough.
    fn write_batch(&mut self, columns: &mut Columns) -> Result<(), WriteCause> {
        self.write(columns.take().map_err(parquet::errors::ParquetError::from)?)?;
        let is_old = || self.group_start.is_some_and(|group_start| group_start.elapsed() >= GROUP_TIME_MAX);
        let is_at_end = match &self.log {
            Some(log) => {
                log.open_rows() >= GROUP_ROWS_MAX as u64
                    || log.open_bytes() >= GROUP_LOG_BYTES_MAX
                    || is_old()
            }
            None => {
                self.writer.in_progress_rows() >= GROUP_ROWS_MAX
                    || self.writer.in_progress_size() >= GROUP_BYTES_MAX
                    || self.writer.memory_size() >= GROUP_MEMORY_MAX
            }
        };
        if is_at_end {
            self.read_log(true)?;
            self.end_group()?;
            let groups = self.writer.flushed_row_groups();
            if groups.len().is_multiple_of(1 + groups.len() / GROUPS_WITH_FOOTER) {
                self.complete_groups()?;
            }
        }
        Ok(())
    }

    /// Passes a batch to the log, or without one to the Parquet writer.
    fn write(&mut self, batch: RecordBatch) -> Result<(), WriteCause> {
        if batch.num_rows() > 0 {
            match &mut self.log {
                Some(log) => {
                    if let Err(cause) = log.append(&batch) {
                        self.unlogged = Some(batch);
                        return Err(cause);
                    }
                }
                None => self.writer.write(&batch)?,
            }
            self.group_start.get_or_insert_with(Instant::now);
        }
        Ok(())
    }

    /// Passes the rows of the log, if there is one, to the Parquet writer. With `ends_groups`, row groups end when the
    /// writer takes much memory; the last one stays open.
    fn read_log(&mut self, ends_groups: bool) -> Result<(), WriteCause> {
        let Some(mut log) = self.log.take() else { return Ok(()) };
        let read = self.read_rows(&log, ends_groups);
        if read.is_ok() {
            log.set_grouped();
        }
        self.log = Some(log);
        read
    }

    fn read_rows(&mut self, log: &Log, ends_groups: bool) -> Result<(), WriteCause> {
        let mut rows = 0;
        for batch in log.batches()? {
            let batch = batch?;
            rows += batch.num_rows() as u64;
            self.writer.write(&batch)?;
            if ends_groups && self.writer.memory_size() >= GROUP_MEMORY_MAX {
                self.end_group()?;
            }
        }
        if rows == log.open_rows() { Ok(()) } else { Err(WriteCause::Log) }
    }

    /// Ends the current row group, if it has rows.
    fn end_group(&mut self) -> Result<(), WriteCause> {
        let before = self.writer.flushed_row_groups().len();
        self.writer.flush()?;
        self.writer.sync()?;
        self.group_start = None;
        if self.writer.flushed_row_groups().len() > before {
            self.footer.ends.push(position(&self.writer));
        }
        Ok(())
    }

    /// Writes a footer after the complete row groups, and restarts the log, which then holds only later rows.
    fn complete_groups(&mut self) -> Result<(), WriteCause> {
        let footer = self.footer.encode(self.writer.flushed_row_groups())?;
        self.footer.write(&footer)?;
        if self.log.is_some() {
            self.footer.file.sync_data()?;
            let base = self.base(footer);
            if let Some(log) = &mut self.log {
                log.restart(&base)?;
            }
        }
        Ok(())
    }

    /// Returns the state of the file that a new log begins with.
    fn base(&self, footer: Vec<u8>) -> Base {
        Base { rows: self.rows(), end: self.footer.end(), footer }
    }

    /// Returns the number of rows in complete row groups.
    fn rows(&self) -> u64 {
        rows_of(self.writer.flushed_row_groups())
    }

    /// Writes the remaining rows and the footer, and removes the log.
    fn end(&mut self, columns: &mut Columns) -> Result<(), WriteCause> {
        // The rows are not added to the log: on a full disk, a log that cannot grow must not keep them from the file.
        let batch = columns.take().map_err(parquet::errors::ParquetError::from)?;
        self.read_log(true)?;
        self.writer.write(&batch)?;
        self.end_group()?;
        self.footer.write(&self.footer.encode(self.writer.flushed_row_groups())?)?;
        if let Some(log) = self.log.take() {
            self.footer.file.sync_data()?;
            // A log that cannot be removed is harmless: recovery finds that its rows are in the file.
            _ = log.remove();
        }
        Ok(())
    }

    /// Writes a footer after as many row groups as leave room for it on the disk. Returns the number of their rows, or
    /// `None` if there is room for no footer.
    fn salvage(self) -> Option<u64> {
        let Self { writer, mut footer, log, .. } = self;
        let groups = writer.flushed_row_groups().to_vec();
        // When dropped, the writer writes bytes of the failed row group that it still has in memory. This must happen
        // before the footer is written.
        drop(writer);
        let most = groups.len().min(footer.ends.len() - 1);
        let kept = (0..=most).rev().find_map(|count| {
            let groups = groups.get(..count)?;
            footer.ends.truncate(count + 1);
            footer.write(&footer.encode(groups).ok()?).ok()?;
            Some(rows_of(groups))
        });
        // Rows that only the log has were reported as lost, so the log is removed. If no footer could be written, the log
        // stays, so that recovery can complete the file later.
        if let Some(log) = log.filter(|_| kept.is_some()) {
            _ = log.remove();
        }
        kept
    }
}

/// Returns the number of rows in these row groups.
pub(crate) fn rows_of(groups: &[RowGroupMetaData]) -> u64 {
    u64::try_from(groups.iter().map(RowGroupMetaData::num_rows).sum::<i64>()).unwrap_or(0)
}

/// Creates a Parquet writer of row groups. [`Footer`] writes the footer.
pub(crate) fn writer<W: Write + Send>(to: W, schema: &Arc<Schema>) -> Result<ArrowWriter<W>, WriteCause> {
    let options =
        ArrowWriterOptions::new().with_properties(schema::properties(schema)).with_skip_arrow_metadata(true);
    Ok(ArrowWriter::try_new_with_options(to, schema.clone(), options)?)
}

impl Footer {
    /// Returns the offset of the end of the last row group.
    fn end(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Encodes the footer for these row groups.
    pub(crate) fn encode(&self, groups: &[RowGroupMetaData]) -> Result<Vec<u8>, WriteCause> {
        let rows = groups.iter().map(RowGroupMetaData::num_rows).sum();
        let file = FileMetaData::new(
            1,
            rows,
            Some(concat!("weir version ", env!("CARGO_PKG_VERSION")).to_owned()),
            Some(self.pairs.clone()),
            self.schema.clone(),
            None,
        );
        let metadata = ParquetMetaDataBuilder::new(file).set_row_groups(groups.to_vec()).build();
        let mut bytes = Vec::new();
        ParquetMetaDataWriter::new(&mut bytes, &metadata).finish()?;
        Ok(bytes)
    }

    /// Writes a footer after the last row group, and truncates the file after the footer. The next row group will
    /// overwrite the footer.
    pub(crate) fn write(&self, footer: &[u8]) -> Result<(), WriteCause> {
        // Truncated first: on a full disk, this makes the room that the footer needs.
        self.file.set_len(self.end())?;
        self.file.write_all_at(footer, self.end())?;
        Ok(())
    }
}

/// Returns the file offset of the next byte that the writer writes. (`usize` has at most 64 bits.)
fn position(writer: &ArrowWriter<File>) -> u64 {
    u64::try_from(writer.bytes_written()).unwrap_or(u64::MAX)
}
