//! Record streams as Parquet files: what modules emit becomes columns, written while the run goes on.
//!
//! A stream is one file, `DIR/LABEL/STREAM.parquet`. While it is written it is called `STREAM.parquet.part`, and it gets its own
//! name only when it is whole, so a file called `.parquet` is always complete. The `.part` file is kept readable too: after
//! each row group a footer is written behind it, and overwritten by the next. A run that is killed, or whose disk
//! fills up, therefore leaves a `.part` file that any Parquet reader opens, with the row groups finished so far.
//!
//! Records show traffic: files have mode 0600 and folders 0700 ([`weir_os::private`]).
//!
//! Files of a node and of a live run survive crashes ([`Durability::Seconds`]): rows that are in no complete row group yet are in a write-ahead log beside the file,
//! `STREAM.parquet.wal`, at most a second after they came. [`recover`] completes what a crashed process left. After a crash of the machine, files have all complete
//! row groups: each is synced before the log that holds its rows is replaced.
//!
//! Memory is bounded: a stream holds at most one row group, whatever the number of rows.

#![forbid(unsafe_code)]

mod columns;
mod error;
mod file;
mod folder;
mod log;
mod recovery;
mod schema;

pub use error::RecordsError;
pub use recovery::{Recovered, recover};

use file::StreamFile;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use {
    weir_admission::{Manifest, Name},
    weir_session::Record,
};

/// What a crash leaves of the rows so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Complete row groups: those who can run again lose time, not data.
    AtEnd,
    /// Rows that [`ModuleFiles::flush`] was called for. Whoever writes calls it each [`FLUSH`].
    Seconds,
}

/// How often rows are brought to the log. With the time that they wait for the thread that writes, none is older than five seconds when a crash loses it.
pub const FLUSH: Duration = Duration::from_secs(1);

/// The streams of one module, each a Parquet file.
#[derive(Debug)]
pub struct ModuleFiles {
    module: Name,
    streams: Vec<StreamOut>,
    recovered: Vec<Recovered>,
}

#[derive(Debug)]
struct StreamOut {
    name: Name,
    rows: u64,
    file: Option<StreamFile>,
}

/// What became of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRows {
    /// The stream's name.
    pub name: Name,
    /// Rows that were given to [`ModuleFiles::write`].
    pub rows: u64,
    /// Times in these rows that are after 2262-04-11T23:47:16.854775807Z. That is the last time that a file can hold, and the file has it in their place.
    pub late: u64,
    /// The file, where there is one. It is called `.part` where writing failed (the error has been returned, and says how many
    /// rows it holds), and after [`ModuleFiles::keep`].
    pub path: Option<PathBuf>,
}

impl StreamOut {
    fn late(&self) -> u64 {
        self.file.as_ref().map_or(0, StreamFile::late)
    }
}

impl ModuleFiles {
    /// Opens a file for each stream of the manifest in `dir`/`label`, which replaces what is there under its name when it is
    /// finished. Without a folder, rows are only counted. The label is the module's name, or a name of its own where a module runs twice.
    ///
    /// Rows that an earlier process left in a log there are [recovered](Self::recovered) into files of their own.
    ///
    /// # Errors
    /// The folder or a file cannot be made or is another user's, another run is writing there, the label is not one, or rows of an earlier process cannot be recovered.
    pub fn create(
        dir: Option<&Path>,
        label: &str,
        manifest: &Manifest,
        durability: Durability,
    ) -> Result<Self, RecordsError> {
        let folder = dir.map(|dir| folder::make(dir, label).map(Arc::new)).transpose()?;
        let (mut streams, mut recovered) = (Vec::new(), Vec::new());
        for stream in &manifest.streams {
            let file = match &folder {
                Some(folder) => {
                    let (file, found) = StreamFile::create(folder, label, manifest, stream, durability)?;
                    recovered.extend(found);
                    Some(file)
                }
                None => None,
            };
            streams.push(StreamOut { name: stream.name.clone(), rows: 0, file });
        }
        Ok(Self { module: manifest.name.clone(), streams, recovered })
    }

    /// Files with the rows that an earlier process left where these are written.
    pub fn recovered(&self) -> &[Recovered] {
        &self.recovered
    }

    /// Has the rows so far survive a crash of the process, with [`Durability::Seconds`].
    ///
    /// # Errors
    /// As [`Self::write`]; the first that occurs. The other streams are flushed all the same.
    pub fn flush(&mut self) -> Result<(), RecordsError> {
        let files = self.streams.iter_mut().flat_map(|stream| &mut stream.file);
        let errors: Vec<RecordsError> = files.filter_map(|file| file.flush().err()).collect();
        errors.into_iter().next().map_or(Ok(()), Err)
    }

    /// Appends a record to its stream.
    ///
    /// # Errors
    /// [`RecordsError::Write`] once for a stream whose file cannot be written on, and says what it holds; later rows of that stream are
    /// [`RecordsError::Stopped`]. The module's other streams go on.
    pub fn write(&mut self, record: &Record<'_>) -> Result<(), RecordsError> {
        let Some(stream) = self.streams.get_mut(usize::from(record.stream)) else {
            return Err(RecordsError::NoStream { module: self.module.clone(), index: record.stream });
        };
        stream.rows += 1;
        match &mut stream.file {
            Some(file) => file.write(record),
            None => Ok(()),
        }
    }

    /// The rows so far, in the order of the manifest's streams, without the files.
    pub fn so_far(&self) -> Vec<StreamRows> {
        let rows = |stream: &StreamOut| StreamRows {
            name: stream.name.clone(),
            rows: stream.rows,
            late: stream.late(),
            path: None,
        };
        self.streams.iter().map(rows).collect()
    }

    /// Ends every file readable where the run has failed: it stays a `.part`, and an earlier run's complete file stays what it is.
    pub fn keep(self) -> Vec<StreamRows> {
        let kept = |stream: StreamOut| StreamRows {
            late: stream.late(),
            name: stream.name,
            rows: stream.rows,
            path: stream.file.map(StreamFile::keep),
        };
        self.streams.into_iter().map(kept).collect()
    }

    /// Completes every file and gives it its name.
    ///
    /// # Errors
    /// The first that occurs; the other files are completed all the same.
    pub fn finish(self) -> Result<Vec<StreamRows>, RecordsError> {
        let FileOutcome { streams, error, .. } = self.end();
        error.map_or(Ok(streams), Err)
    }

    /// The same for whoever goes on with other files: what these hold, whatever happened to them.
    pub fn end(self) -> FileOutcome {
        let (mut streams, mut kept, mut error) = (Vec::new(), 0, None);
        for stream in self.streams {
            let late = stream.late();
            let StreamOut { name, rows, file } = stream;
            let (held, path) = file.map(StreamFile::finish).unzip();
            kept += held.unwrap_or(0);
            let path = path.and_then(|path| path.map_err(|wrong| _ = error.get_or_insert(wrong)).ok());
            streams.push(StreamRows { name, rows, late, path });
        }
        FileOutcome { streams, kept, error }
    }
}

/// What became of a module's files.
#[derive(Debug)]
pub struct FileOutcome {
    /// Each of its streams; without a path where that could not be completed.
    pub streams: Vec<StreamRows>,
    /// Rows that the files hold, all together. What else was given to [`ModuleFiles::write`] is lost.
    pub kept: u64,
    /// The first thing that went wrong now. What went wrong before was said then.
    pub error: Option<RecordsError>,
}
