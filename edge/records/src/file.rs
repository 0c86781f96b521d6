//! One stream's file: row groups, and a footer behind the last.

use crate::columns::Columns;
use crate::error::{RecordsError, WriteCause};
use crate::schema;
use arrow_schema::Schema;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::arrow::{ARROW_SCHEMA_META_KEY, ArrowSchemaConverter, ArrowWriter, encode_arrow_schema};
use parquet::file::metadata::{
    FileMetaData, KeyValue, ParquetMetaDataBuilder, ParquetMetaDataWriter, RowGroupMetaData,
};
use parquet::schema::types::SchemaDescPtr;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_confine::private::Folder;
use weir_session::{Manifest, Name, Record, Stream};

/// A row group ends with so many rows …
const GROUP_ROWS_MAX: usize = 128 << 10;
/// … or when so many bytes are held for it.
const GROUP_BYTES_MAX: usize = 4 << 20;
/// A footer names all row groups. Up to so many (128 Mi rows) it is written behind each; from then on more rarely, because writing it
/// would take longer than writing the rows.
const FOOTERS_EACH: usize = 1024;

/// A stream's file while it is written.
#[derive(Debug)]
pub(crate) struct StreamFile {
    stream: Name,
    folder: Arc<Folder>,
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
}

/// What is needed to end the file behind any of its row groups.
#[derive(Debug)]
struct Footer {
    file: File,
    schema: SchemaDescPtr,
    pairs: Vec<KeyValue>,
    /// Where each row group ends, in bytes; the first entry is where the first begins.
    ends: Vec<u64>,
}

impl StreamFile {
    /// Begins `folder/STREAM.parquet.part`. An older `STREAM.parquet` stays until a complete one takes its place.
    pub(crate) fn create(
        folder: &Arc<Folder>,
        label: &str,
        manifest: &Manifest,
        stream: &Stream,
    ) -> Result<Self, RecordsError> {
        let path = folder.path().join(whole(&stream.name));
        let part = folder.path().join(partial(&stream.name));
        // Better now than when the rows are there.
        if fs::symlink_metadata(&path).is_ok_and(|there| there.is_dir()) {
            return Err(RecordsError::Create { path, source: ErrorKind::IsADirectory.into() });
        }
        let file = open(folder, &partial(&stream.name), &part)?;
        let schema = Arc::new(schema::schema(label, manifest, stream));
        let columns = Columns::new(schema.clone(), stream);
        let open = Open::new(file, &schema, stream).map_err(|cause| RecordsError::Write {
            path: part.clone(),
            kept: None,
            cause,
        })?;
        let (stream, folder) = (stream.name.clone(), Arc::clone(folder));
        Ok(Self { stream, folder, path, part, columns, open: Some(open), rows: 0, kept: 0 })
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
        if let Err(cause) = open.end(&mut self.columns) {
            let error = self.give_up(cause);
            return (self.kept, Err(error));
        }
        self.open = None;
        let renamed = self.folder.rename(&partial(&self.stream), &whole(&self.stream));
        let renamed = renamed.map_err(|source| RecordsError::Rename {
            from: self.part.clone(),
            to: self.path.clone(),
            source,
        });
        (self.rows, renamed.map(|()| self.path.clone()))
    }

    /// Writes what is left, but leaves the file the name that says that it is not complete.
    pub(crate) fn keep(self) -> PathBuf {
        self.part.clone()
    }

    /// After an error: ends the file behind the last row group for which there is room, and writes no more.
    fn give_up(&mut self, cause: WriteCause) -> RecordsError {
        let kept = self.open.take().and_then(Open::salvage);
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
fn whole(stream: &Name) -> String {
    format!("{stream}.parquet")
}

/// The name of a stream's file while it is written.
fn partial(stream: &Name) -> String {
    format!("{stream}.parquet.part")
}

/// Opens a file for writing that no other run writes.
fn open(folder: &Folder, name: &str, path: &Path) -> Result<File, RecordsError> {
    let create = |source| RecordsError::Create { path: path.to_owned(), source };
    let file = folder.create(name).map_err(|error| create(error.into()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(RecordsError::Busy(path.to_owned())),
        // File systems without locks are written without one.
        Err(TryLockError::Error(_)) => {}
    }
    file.set_len(0).map_err(create)?;
    Ok(file)
}

impl Open {
    fn new(file: File, schema: &Arc<Schema>, stream: &Stream) -> Result<Self, WriteCause> {
        let options = ArrowWriterOptions::new()
            .with_properties(schema::properties(stream))
            .with_skip_arrow_metadata(true);
        let mut writer = ArrowWriter::try_new_with_options(file.try_clone()?, schema.clone(), options)?;
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
        footer.write(&[])?;
        Ok(Self { writer, footer })
    }

    /// Hands the rows to the Parquet writer, and ends the row group when it is large enough.
    fn batch(&mut self, columns: &mut Columns) -> Result<(), WriteCause> {
        let batch = columns.take().map_err(parquet::errors::ParquetError::from)?;
        self.writer.write(&batch)?;
        if self.writer.in_progress_rows() >= GROUP_ROWS_MAX || self.writer.memory_size() >= GROUP_BYTES_MAX {
            self.group()?;
            let groups = self.writer.flushed_row_groups();
            if groups.len().is_multiple_of(1 + groups.len() / FOOTERS_EACH) {
                self.footer.write(groups)?;
            }
        }
        Ok(())
    }

    /// Ends the row group.
    fn group(&mut self) -> Result<(), WriteCause> {
        let before = self.writer.flushed_row_groups().len();
        self.writer.flush()?;
        self.writer.sync()?;
        if self.writer.flushed_row_groups().len() > before {
            self.footer.ends.push(position(&self.writer));
        }
        Ok(())
    }

    /// Ends the file.
    fn end(&mut self, columns: &mut Columns) -> Result<(), WriteCause> {
        let batch = columns.take().map_err(parquet::errors::ParquetError::from)?;
        self.writer.write(&batch)?;
        self.group()?;
        self.footer.write(self.writer.flushed_row_groups())?;
        Ok(())
    }

    /// Ends the file behind the last row group that leaves room for a footer. Returns its rows.
    fn salvage(self) -> Option<u64> {
        let Self { writer, mut footer } = self;
        let groups = writer.flushed_row_groups().to_vec();
        // The writer still holds bytes of the row group that failed, and writes them when it goes: before the footer, not over it.
        drop(writer);
        let most = groups.len().min(footer.ends.len() - 1);
        (0..=most).rev().find_map(|count| {
            let groups = groups.get(..count)?;
            footer.ends.truncate(count + 1);
            footer.write(groups).ok()?;
            u64::try_from(groups.iter().map(RowGroupMetaData::num_rows).sum::<i64>()).ok()
        })
    }
}

impl Footer {
    /// Writes a footer behind the last row group without moving the position at which the next row group goes, and cuts off what
    /// lies behind it.
    fn write(&self, groups: &[RowGroupMetaData]) -> Result<(), WriteCause> {
        let end = self.ends.last().copied().unwrap_or(0);
        // Cut first: on a full disk, this makes the room that the footer needs.
        self.file.set_len(end)?;
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
        self.file.write_all_at(&bytes, end)?;
        Ok(())
    }
}

/// Where the next byte goes. `usize` is at most 64 bits wide.
fn position(writer: &ArrowWriter<File>) -> u64 {
    u64::try_from(writer.bytes_written()).unwrap_or(u64::MAX)
}
