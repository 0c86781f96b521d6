//! One stream's file: row groups, and a footer behind the last.

use crate::columns::Columns;
use crate::error::{RecordsError, WriteCause};
use crate::log::{Base, Log};
use crate::recovery::{self, Recovered};
use crate::{Durability, schema};
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
    weir_admission::{DeclaredStream, Manifest, Name},
    weir_session::Record,
};

/// A row group ends with so many rows …
const GROUP_ROWS_MAX: usize = 128 << 10;
/// … or when so many bytes are held for it.
const GROUP_BYTES_MAX: usize = 4 << 20;
/// … or, where rows have to survive crashes, is so old. Readers of a `.part` file see the rows from then on.
const GROUP_TIME_MAX: Duration = Duration::from_secs(300);
/// A footer names all row groups. Up to so many (128 Mi rows) it is written behind each; from then on more rarely, because writing it
/// would take longer than writing the rows.
const FOOTERS_EACH: usize = 1024;

/// A stream's file while it is written.
#[derive(Debug)]
pub(crate) struct StreamFile {
    stream: Name,
    folder: Arc<PrivateFolder>,
    path: PathBuf,
    part: PathBuf,
    columns: Columns,
    open: Option<Open>,
    /// Rows that it was given.
    rows: u64,
    /// Of these, what it holds where it was given up.
    kept: u64,
}

#[derive(Debug)]
struct Open {
    writer: ArrowWriter<File>,
    footer: Footer,
    /// Where rows have to survive a crash.
    log: Option<Log>,
    /// Rows could not be appended to the log.
    is_log_short: bool,
    /// The first row of the current row group came then.
    begun: Option<Instant>,
}

/// What is needed to end the file behind any of its row groups.
#[derive(Debug)]
pub(crate) struct Footer {
    pub(crate) file: File,
    pub(crate) schema: SchemaDescPtr,
    pub(crate) pairs: Vec<KeyValue>,
    /// Where each row group ends, in bytes; the first entry is where the first begins.
    pub(crate) ends: Vec<u64>,
}

impl StreamFile {
    /// Begins `folder/STREAM.parquet.part`. An older `STREAM.parquet` stays until a complete one takes its place. Rows that a crash left in the log of an earlier
    /// `.part` file are recovered first, into a file of their own.
    pub(crate) fn create(
        folder: &Arc<PrivateFolder>,
        label: &str,
        manifest: &Manifest,
        stream: &DeclaredStream,
        durability: Durability,
    ) -> Result<(Self, Option<Recovered>), RecordsError> {
        let path = folder.path().join(whole(&stream.name));
        let part = folder.path().join(partial(&stream.name));
        // Better now than when the rows are there.
        if fs::symlink_metadata(&path).is_ok_and(|there| there.is_dir()) {
            return Err(RecordsError::Create { path, source: ErrorKind::IsADirectory.into() });
        }
        let (file, recovered) = claim(folder, &stream.name, &part)?;
        let schema = Arc::new(schema::schema(label, manifest, stream));
        let columns = Columns::new(schema.clone(), stream);
        let open = Open::new(file, &schema)
            .and_then(|open| match durability {
                Durability::AtEnd => Ok(open),
                Durability::Seconds => open.with_log(folder, &stream.name, &schema),
            })
            .map_err(|cause| RecordsError::Write { path: part.clone(), kept: None, cause })?;
        let (stream, folder) = (stream.name.clone(), Arc::clone(folder));
        Ok((Self { stream, folder, path, part, columns, open: Some(open), rows: 0, kept: 0 }, recovered))
    }

    /// Times of the rows that are after the last that the file can hold, so far.
    pub(crate) fn late(&self) -> u64 {
        self.columns.late()
    }

    /// Has the rows so far survive a crash of the process, where that is asked for.
    pub(crate) fn flush(&mut self) -> Result<(), RecordsError> {
        match &mut self.open {
            Some(open) if open.log.is_some() => {
                open.batch(&mut self.columns).map_err(|cause| self.give_up(cause))
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
            && let Err(cause) = open.batch(&mut self.columns)
        {
            return Err(self.give_up(cause));
        }
        Ok(())
    }

    /// Writes what is left and gives the file its name. Says how many rows it holds, however that went.
    pub(crate) fn finish(mut self) -> (u64, Result<PathBuf, RecordsError>) {
        let Some(open) = &mut self.open else { return (self.kept, Ok(self.part.clone())) };
        let is_durable = open.log.is_some();
        if let Err(cause) = open.end(&mut self.columns) {
            let error = self.give_up(cause);
            return (self.kept, Err(error));
        }
        // Its lock holds until the file has its name: else another run could take it before.
        let held = self.open.take();
        let renamed = self.folder.rename(&partial(&self.stream), &whole(&self.stream));
        let renamed = renamed.map_err(|source| RecordsError::Rename {
            from: self.part.clone(),
            to: self.path.clone(),
            source,
        });
        drop(held);
        if is_durable {
            // The name is a convenience: the rows are on the disk.
            _ = self.folder.sync();
        }
        (self.rows, renamed.map(|()| self.path.clone()))
    }

    /// Writes what is left, but leaves the file the name that says that it is not complete.
    pub(crate) fn keep(self) -> PathBuf {
        self.part.clone()
    }

    /// After an error: ends the file behind the last row for which there is room, and writes no more.
    fn give_up(&mut self, cause: WriteCause) -> RecordsError {
        let kept = self.open.take().and_then(|mut open| {
            // Where the log could not grow on a full disk, its rows have room in the file when the log is gone.
            if open.is_log_short
                && let Some(log) = open.log.take()
                && log.remove().is_ok()
                && open.end(&mut self.columns).is_ok()
            {
                return Some(open.rows());
            }
            open.salvage()
        });
        self.kept = kept.unwrap_or(0);
        RecordsError::Write { path: self.part.clone(), kept, cause }
    }
}

impl Drop for StreamFile {
    /// A file that nobody finished keeps its rows, and the name that says that it is not complete.
    fn drop(&mut self) {
        if let Some(mut open) = self.open.take()
            && open.end(&mut self.columns).is_err()
        {
            open.salvage();
        }
    }
}

/// The name of a stream's complete file.
pub(crate) fn whole(stream: &Name) -> String {
    format!("{stream}.parquet")
}

/// The name of a stream's file while it is written.
pub(crate) fn partial(stream: &Name) -> String {
    format!("{stream}.parquet.part")
}

/// The name of a stream's write-ahead log.
pub(crate) fn logged(stream: &Name) -> String {
    format!("{stream}.parquet.wal")
}

/// Opens an empty file that no other run writes. Recovers what a crash left in its place.
fn claim(
    folder: &PrivateFolder,
    stream: &Name,
    path: &Path,
) -> Result<(File, Option<Recovered>), RecordsError> {
    let file = open(folder, stream, path)?;
    let recovered = recovery::recover_beside(folder, stream, &file)?;
    // A file that was recovered has another name now.
    let file = if recovered.is_some() { open(folder, stream, path)? } else { file };
    file.set_len(0).map_err(|source| RecordsError::Create { path: path.to_owned(), source })?;
    Ok((file, recovered))
}

/// Opens a file for writing that no other run writes.
fn open(folder: &PrivateFolder, stream: &Name, path: &Path) -> Result<File, RecordsError> {
    match folder.create_locked(&partial(stream)) {
        Ok(Some(file)) => Ok(file),
        Ok(None) => Err(RecordsError::Busy(path.to_owned())),
        Err(error) => Err(RecordsError::Create { path: path.to_owned(), source: error.into() }),
    }
}

impl Open {
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
        Ok(Self { writer, footer, log: None, is_log_short: false, begun: None })
    }

    fn with_log(
        mut self,
        folder: &Arc<PrivateFolder>,
        stream: &Name,
        schema: &Arc<Schema>,
    ) -> Result<Self, WriteCause> {
        let base = self.base(self.footer.encode(&[])?);
        self.log = Some(Log::create(folder, logged(stream), schema, &base)?);
        Ok(self)
    }

    /// Hands the rows to the Parquet writer and to the log, and ends the row group when it is large or old enough.
    fn batch(&mut self, columns: &mut Columns) -> Result<(), WriteCause> {
        self.write(&columns.take().map_err(parquet::errors::ParquetError::from)?)?;
        let is_old = || self.begun.is_some_and(|begun| begun.elapsed() >= GROUP_TIME_MAX);
        let is_large =
            self.writer.in_progress_rows() >= GROUP_ROWS_MAX || self.writer.memory_size() >= GROUP_BYTES_MAX;
        if is_large || self.log.is_some() && is_old() {
            self.group()?;
            let groups = self.writer.flushed_row_groups();
            if groups.len().is_multiple_of(1 + groups.len() / FOOTERS_EACH) {
                self.footers()?;
            }
        }
        Ok(())
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), WriteCause> {
        if batch.num_rows() > 0 {
            self.writer.write(batch)?;
            if let Some(log) = &mut self.log {
                log.append(batch).inspect_err(|_| self.is_log_short = true)?;
            }
            self.begun.get_or_insert_with(Instant::now);
        }
        Ok(())
    }

    /// Ends the row group.
    fn group(&mut self) -> Result<(), WriteCause> {
        let before = self.writer.flushed_row_groups().len();
        self.writer.flush()?;
        self.writer.sync()?;
        self.begun = None;
        if self.writer.flushed_row_groups().len() > before {
            self.footer.ends.push(position(&self.writer));
        }
        Ok(())
    }

    /// Writes a footer behind the row groups, and begins the log anew: it is for the rows behind them.
    fn footers(&mut self) -> Result<(), WriteCause> {
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

    /// The state that a log begins at.
    fn base(&self, footer: Vec<u8>) -> Base {
        Base { rows: self.rows(), end: self.footer.end(), footer }
    }

    /// Rows in complete row groups.
    fn rows(&self) -> u64 {
        rows_of(self.writer.flushed_row_groups())
    }

    /// Ends the file. The log is not needed any more.
    fn end(&mut self, columns: &mut Columns) -> Result<(), WriteCause> {
        // Not to the log: a log that cannot grow on a full disk must not keep the file from its end.
        let batch = columns.take().map_err(parquet::errors::ParquetError::from)?;
        self.writer.write(&batch)?;
        self.group()?;
        self.footer.write(&self.footer.encode(self.writer.flushed_row_groups())?)?;
        if let Some(log) = self.log.take() {
            self.footer.file.sync_data()?;
            // A log that stays is harmless: its rows are found in the file.
            _ = log.remove();
        }
        Ok(())
    }

    /// Ends the file behind the last row group that leaves room for a footer. Returns its rows.
    fn salvage(self) -> Option<u64> {
        let Self { writer, mut footer, log, .. } = self;
        let groups = writer.flushed_row_groups().to_vec();
        // The writer still holds bytes of the row group that failed, and writes them when it goes: before the footer, not over it.
        drop(writer);
        let most = groups.len().min(footer.ends.len() - 1);
        let kept = (0..=most).rev().find_map(|count| {
            let groups = groups.get(..count)?;
            footer.ends.truncate(count + 1);
            footer.write(&footer.encode(groups).ok()?).ok()?;
            Some(rows_of(groups))
        });
        // The rows behind are told to be lost. Without a footer the log stays: a file is made of it later.
        if let Some(log) = log.filter(|_| kept.is_some()) {
            _ = log.remove();
        }
        kept
    }
}

/// Rows in these row groups.
pub(crate) fn rows_of(groups: &[RowGroupMetaData]) -> u64 {
    u64::try_from(groups.iter().map(RowGroupMetaData::num_rows).sum::<i64>()).unwrap_or(0)
}

/// A Parquet writer that leaves the footer to [`Footer`].
pub(crate) fn writer<W: Write + Send>(to: W, schema: &Arc<Schema>) -> Result<ArrowWriter<W>, WriteCause> {
    let options =
        ArrowWriterOptions::new().with_properties(schema::properties(schema)).with_skip_arrow_metadata(true);
    Ok(ArrowWriter::try_new_with_options(to, schema.clone(), options)?)
}

impl Footer {
    /// Where the last row group ends.
    fn end(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The footer behind these row groups.
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

    /// Writes a footer behind the last row group without moving the position at which the next row group goes, and cuts off what
    /// lies behind it.
    pub(crate) fn write(&self, footer: &[u8]) -> Result<(), WriteCause> {
        // Cut first: on a full disk, this makes the room that the footer needs.
        self.file.set_len(self.end())?;
        self.file.write_all_at(footer, self.end())?;
        Ok(())
    }
}

/// Where the next byte goes. `usize` is at most 64 bits wide.
fn position(writer: &ArrowWriter<File>) -> u64 {
    u64::try_from(writer.bytes_written()).unwrap_or(u64::MAX)
}
