//! Record streams as Parquet files: the records of modules are written as columns while the run continues.
//!
//! A record stream is a sequence of records of one type, which a module's manifest declares. Each stream is written to
//! one file, `DIR/LABEL/STREAM.parquet`. While it is written, the file's name is `STREAM.parquet.part`; it is renamed
//! when it is complete, so a `.parquet` file is always complete. The `.part` file is readable too: each row group is
//! followed by a footer, which the next row group overwrites. After a kill or on a full disk, any Parquet reader opens
//! the `.part` file with the row groups completed so far.
//!
//! Records show traffic: files have mode 0600 and folders 0700 ([`weir_os::private`]).
//!
//! Files of a node and of a live run survive crashes ([`Durability::Seconds`]): rows outside complete row groups are
//! in a write-ahead log beside the file, `STREAM.parquet.wal`, within a second. [`recover`] completes the files of a
//! crashed process. After a crash of the machine, files have all complete row groups: each is synced before the log
//! with its rows is replaced.
//!
//! Memory is bounded, whatever the number of rows. With [`Durability::Seconds`], the rows of a row group are in the log
//! alone until the row group ends, and all streams of a module together take at most [`memory`]. With
//! [`Durability::AtEnd`] there is no log, so each stream holds at most one row group.

#![forbid(unsafe_code)]

mod columns;
mod error;
mod file;
mod folder;
mod log;
mod memory;
mod recovery;
mod schema;
mod summary;
mod table;

pub use error::RecordsError;
pub use folder::next_number;
pub use memory::memory;
pub use recovery::{Recovered, recover};
pub use summary::FileSummary;
pub use table::{TableColumn, TableEncodeError, table_file};

use file::StreamFile;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use {
    weir_admission::{Manifest, Name},
    weir_session::Record,
};

/// The extent to which rows survive a crash of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Complete row groups survive. For runs that can be repeated.
    AtEnd,
    /// All rows before the last [`ModuleFiles::flush`] survive, too. The writer calls it every [`FLUSH`].
    Seconds,
}

/// The interval between writes to the log. On a node, a row waits in the queue of the records thread before that. Both waits
/// together take at most five seconds, so rows older than that survive a crash.
pub const FLUSH: Duration = Duration::from_secs(1);

/// The streams of one module, each a Parquet file.
#[derive(Debug)]
pub struct ModuleFiles {
    module: Name,
    streams: Vec<StreamOut>,
    recovered: Vec<Recovered>,
    /// The most memory of rows that wait in all streams together, in bytes; `None` without logs.
    waiting_max: Option<usize>,
    /// The number of column chunks at which [`Self::is_full`] returns true.
    chunks_max: usize,
}

/// The source of a module's records.
#[derive(Clone, Copy, Debug)]
pub struct RecordSource<'a> {
    /// The module's name, or another name if a module runs twice. It names the folder.
    pub label: &'a str,
    /// The module's manifest.
    pub manifest: &'a Manifest,
    /// Further metadata of each file: facts by which the rows can be made again, such as the module's digest.
    pub facts: &'a [(&'static str, String)],
}

/// A stream during writing.
#[derive(Debug)]
struct StreamOut {
    name: Name,
    rows: u64,
    file: Option<StreamFile>,
}

/// The result of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRows {
    /// The stream's name.
    pub name: Name,
    /// Rows in the file. Without a file, rows passed to [`ModuleFiles::write`].
    pub rows: u64,
    /// The number of time values in the rows passed to [`ModuleFiles::write`] that are after 2262-04-11T23:47:16.854775807Z, the last time that a file
    /// can hold. The file has that last time in their place.
    pub late: u64,
    /// The file, if there is one. Its name ends with `.part` after [`ModuleFiles::keep`], or if writing failed.
    pub path: Option<PathBuf>,
}

impl StreamOut {
    fn late(&self) -> u64 {
        self.file.as_ref().map_or(0, StreamFile::late)
    }
}

impl ModuleFiles {
    /// Creates a file for each stream of the manifest in `dir`/`label`. When a file is finished, it replaces an older
    /// complete file of the stream. Without `dir`, rows are only counted. The label is the module's name, or another name
    /// if a module runs twice.
    ///
    /// If a crashed process has left files in the folder, they are first [completed](Self::recovered) under other names.
    ///
    /// # Errors
    /// The folder or a file cannot be created or belongs to another user, another run is writing there, the label is
    /// invalid, or rows of an earlier process cannot be recovered.
    pub fn create(
        dir: Option<&Path>,
        label: &str,
        manifest: &Manifest,
        durability: Durability,
    ) -> Result<Self, RecordsError> {
        Self::create_from(dir, &RecordSource { label, manifest, facts: &[] }, durability)
    }

    /// Creates files as [`Self::create`] does, with further metadata.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn create_from(
        dir: Option<&Path>,
        source: &RecordSource<'_>,
        durability: Durability,
    ) -> Result<Self, RecordsError> {
        let RecordSource { label, manifest, .. } = source;
        let folder = dir.map(|dir| folder::make(dir, label).map(Arc::new)).transpose()?;
        let (mut streams, mut recovered) = (Vec::new(), Vec::new());
        for stream in &manifest.streams {
            let file = match &folder {
                Some(folder) => {
                    let (file, found) = StreamFile::create(folder, source, stream, durability)?;
                    recovered.extend(found);
                    Some(file)
                }
                None => None,
            };
            streams.push(StreamOut { name: stream.name.clone(), rows: 0, file });
        }
        let waiting_max = (durability == Durability::Seconds).then_some(memory::WAITING_MAX);
        let chunks_max = memory::chunks_max(manifest);
        Ok(Self { module: manifest.name.clone(), streams, recovered, waiting_max, chunks_max })
    }

    /// Returns the completed files of a crashed process that [`Self::create`] found in the folder.
    pub fn recovered(&self) -> &[Recovered] {
        &self.recovered
    }

    /// Writes the rows so far to the logs, so that they survive a crash of the process. Without [`Durability::Seconds`]
    /// there are no logs, and this does nothing.
    ///
    /// # Errors
    /// The first error, as [`Self::write`] returns it. The other streams are flushed anyway.
    pub fn flush(&mut self) -> Result<(), RecordsError> {
        let files = self.streams.iter_mut().flat_map(|stream| &mut stream.file);
        let errors: Vec<RecordsError> = files.filter_map(|file| file.flush().err()).collect();
        errors.into_iter().next().map_or(Ok(()), Err)
    }

    /// Appends a record to its stream.
    ///
    /// # Errors
    /// [`RecordsError::Write`] once for a stream whose file cannot be written any further; it says how many rows the
    /// file holds. Later rows of that stream are [`RecordsError::Stopped`]. The module's other streams continue.
    pub fn write(&mut self, record: &Record<'_>) -> Result<(), RecordsError> {
        let Some(stream) = self.streams.get_mut(usize::from(record.stream)) else {
            return Err(RecordsError::NoStream { module: self.module.clone(), index: record.stream });
        };
        stream.rows += 1;
        let Some(file) = &mut stream.file else { return Ok(()) };
        let before = file.waiting_memory();
        file.write(record)?;
        let Some(waiting_max) = self.waiting_max.filter(|_| file.waiting_memory() > before) else {
            return Ok(());
        };
        self.limit_waiting(waiting_max)
    }

    /// Writes waiting rows to the logs, those of the stream with most memory first, until the rest takes at most
    /// `waiting_max` bytes.
    fn limit_waiting(&mut self, waiting_max: usize) -> Result<(), RecordsError> {
        loop {
            let files = self.streams.iter_mut().filter_map(|stream| stream.file.as_mut());
            let (mut sum, mut largest) = (0, None::<&mut StreamFile>);
            for file in files {
                sum += file.waiting_memory();
                if largest.as_ref().is_none_or(|largest| file.waiting_memory() > largest.waiting_memory()) {
                    largest = Some(file);
                }
            }
            match largest {
                Some(largest) if sum > waiting_max => largest.flush()?,
                _ => return Ok(()),
            }
        }
    }

    /// Returns true if the files have so many row groups that their metadata take the part of [`memory`] that is for
    /// them. The files should then be ended, and new ones be begun.
    pub fn is_full(&self) -> bool {
        let files = self.streams.iter().filter_map(|stream| stream.file.as_ref());
        files.map(StreamFile::column_chunks).sum::<usize>() >= self.chunks_max
    }

    /// Sets metadata of a stream's file, which was in [`RecordSource::facts`] when the file was created. Footers that are
    /// written from now on have the new value. Without such a stream or file, nothing happens.
    pub fn set_fact(&mut self, stream: u16, key: &str, value: &str) {
        let stream = self.streams.get_mut(usize::from(stream));
        if let Some(file) = stream.and_then(|stream| stream.file.as_mut()) {
            file.set_fact(key, value);
        }
    }

    /// Returns the rows so far, in the order of the manifest's streams, without the files.
    pub fn so_far(&self) -> Vec<StreamRows> {
        let rows = |stream: &StreamOut| StreamRows {
            name: stream.name.clone(),
            rows: stream.rows,
            late: stream.late(),
            path: None,
        };
        self.streams.iter().map(rows).collect()
    }

    /// Ends every file after a failed run. The files are readable, but keep their `.part` names, so the complete files of
    /// an earlier run are unchanged.
    pub fn keep(self) -> FileOutcome {
        self.end_as(false)
    }

    /// Completes every file and gives it its name.
    ///
    /// # Errors
    /// The first error; the other files are completed anyway.
    pub fn finish(self) -> Result<Vec<StreamRows>, RecordsError> {
        let FileOutcome { streams, errors, .. } = self.end();
        errors.into_iter().next().map_or(Ok(streams), Err)
    }

    /// Completes every file, as [`Self::finish`], and returns the result of each together with the errors.
    pub fn end(self) -> FileOutcome {
        self.end_as(true)
    }

    fn end_as(self, is_complete: bool) -> FileOutcome {
        let mut outcome = FileOutcome { streams: Vec::new(), kept: 0, errors: Vec::new() };
        for stream in self.streams {
            let late = stream.late();
            let StreamOut { name, rows, file } = stream;
            let ended = file.map(|file| file.end(is_complete));
            let (rows, path) = match ended {
                None => (rows, None),
                Some(ended) => {
                    outcome.kept += ended.rows;
                    outcome.errors.extend(ended.error);
                    (ended.rows, Some(ended.path))
                }
            };
            outcome.streams.push(StreamRows { name, rows, late, path });
        }
        outcome
    }
}

/// The result of a module's files.
#[derive(Debug)]
pub struct FileOutcome {
    /// The streams. A file that could not be completed has its `.part` name.
    pub streams: Vec<StreamRows>,
    /// The number of rows in all files together. Other rows passed to [`ModuleFiles::write`] are lost.
    pub kept: u64,
    /// The errors of this call, at most one for each file. Earlier errors were returned before.
    pub errors: Vec<RecordsError>,
}
