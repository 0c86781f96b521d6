//! Errors of record files.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use weir_admission::Name;
use weir_units::Escape as _;

/// The reason why records could not be written.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    /// A label that cannot be a folder's name.
    #[error(
        "`{}` cannot name a folder of records: use lower-case letters, digits, `-` and `_`, at most 64 characters", .0.escape_debug()
    )]
    Label(String),
    /// The output folder cannot be created.
    #[error("cannot create the folder {}: {source}; choose another one", .path.escaped())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The path of a module's folder is taken by a file of another kind. A link is refused too, because it could lead to
    /// any folder.
    #[error("{} is there and is not a folder: move it away, or choose another folder", .0.escaped())]
    NotAFolder(PathBuf),
    /// Another run is writing the file.
    #[error("{} is being written by another run: wait for it, or choose another folder", .0.escaped())]
    Busy(PathBuf),
    /// A file cannot be created or replaced.
    #[error("cannot create {}: {source}; choose another folder", .path.escaped())]
    Create {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file cannot be written any further.
    #[error("cannot write {}: {cause}; {}", .path.escaped(), KeptRows(*.kept))]
    Write {
        /// The file.
        path: PathBuf,
        /// The number of rows that can be read from the file; `None` if it could not be made readable.
        kept: Option<u64>,
        /// The reason.
        cause: WriteCause,
    },
    /// The file of a crashed process cannot be completed.
    #[error(
        "cannot complete {} from its write-ahead log (.wal) after a crash: {cause}; both files stay as they are: mend that and start again, or move them away", .path.escaped()
    )]
    Recover {
        /// The file.
        path: PathBuf,
        /// The reason.
        cause: WriteCause,
    },
    /// A row of a stream whose file could not be written before. The row is lost.
    #[error("{} failed before: this row is lost", .0.escaped())]
    Stopped(PathBuf),
    /// The complete file cannot be renamed.
    #[error("{} is complete, but cannot be renamed to {}: {source}; rename it by hand", .from.escaped(), .to.escaped())]
    Rename {
        /// The file's present path.
        from: PathBuf,
        /// The file's intended path.
        to: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A record of a stream that is not in the manifest.
    #[error("module {module} has no stream {index}: the record was not checked when it was emitted")]
    NoStream {
        /// The module.
        module: Name,
        /// The index of the stream.
        index: u16,
    },
    /// A row that is too short for its stream.
    #[error(
        "a row of stream {stream} ends before its field `{field}`: the record was not checked when it was emitted"
    )]
    Row {
        /// The stream.
        stream: Name,
        /// The first missing field.
        field: Name,
    },
}

impl RecordsError {
    /// Returns the file or folder that is the cause; `None` if a module is.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Label(_) | Self::NoStream { .. } | Self::Row { .. } => None,
            Self::NotAFolder(path) | Self::Busy(path) | Self::Stopped(path) => Some(path),
            Self::Folder { path, .. }
            | Self::Create { path, .. }
            | Self::Write { path, .. }
            | Self::Recover { path, .. }
            | Self::Rename { from: path, .. } => Some(path),
        }
    }

    /// Returns true if the disk or its quota was full.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::Folder { source, .. } | Self::Create { source, .. } | Self::Rename { source, .. } => {
                is_full(source)
            }
            Self::Write { cause: WriteCause::Io(error), .. } => is_full(error),
            _ => false,
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The reason why a file could not be written.
#[derive(Debug)]
pub enum WriteCause {
    /// The system's error.
    Io(io::Error),
    /// The Parquet writer's error.
    Parquet(parquet::errors::ParquetError),
    /// Rows in the write-ahead log cannot be read: another program has changed the log, or the disk is damaged.
    Log,
}

impl fmt::Display for WriteCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => match error.kind() {
                io::ErrorKind::StorageFull => {
                    f.write_str("the disk is full (free some space, or choose another folder)")
                }
                io::ErrorKind::QuotaExceeded => f.write_str("the disk quota is used up"),
                io::ErrorKind::FileTooLarge => {
                    f.write_str("it would exceed the largest file size that is allowed here (see ulimit -f)")
                }
                _ => write!(f, "{error}"),
            },
            Self::Parquet(error) => write!(f, "{error}"),
            Self::Log => f.write_str("rows in its write-ahead log (.wal) cannot be read any more"),
        }
    }
}

impl From<io::Error> for WriteCause {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<parquet::errors::ParquetError> for WriteCause {
    /// Converts an I/O error that the Parquet writer has wrapped to [`WriteCause::Io`].
    fn from(error: parquet::errors::ParquetError) -> Self {
        match error {
            parquet::errors::ParquetError::External(inner) => match inner.downcast::<io::Error>() {
                Ok(io) => Self::Io(*io),
                Err(other) => Self::Parquet(parquet::errors::ParquetError::External(other)),
            },
            other => Self::Parquet(other),
        }
    }
}

/// Describes the file of a [`RecordsError::Write`] by its number of readable rows.
struct KeptRows(Option<u64>);

impl fmt::Display for KeptRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(rows) => write!(f, "it is a readable Parquet file of the first {rows} rows"),
            None => f.write_str("it could not be made readable"),
        }
    }
}
