//! What can go wrong with record files.

use std::fmt;
use std::io;
use std::path::PathBuf;
use weir_admission::Name;
use weir_units::Shown as _;

/// Why records could not be written.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    /// A label that cannot be a folder's name.
    #[error(
        "`{}` cannot name a folder of records: use lower-case letters, digits, `-` and `_`, at most 64 characters", .0.escape_debug()
    )]
    Label(String),
    /// The output folder cannot be made.
    #[error("cannot make the folder {}: {source}; choose another one", .path.shown())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something else is where a module's folder should be. Links are not followed there: they could lead anywhere.
    #[error("{} is there and is not a folder: move it away, or choose another folder", .0.shown())]
    NotAFolder(PathBuf),
    /// Another run holds the file.
    #[error("{} is being written by another run: wait for it, or choose another folder", .0.shown())]
    Busy(PathBuf),
    /// A file cannot be made or replaced.
    #[error("cannot create {}: {source}; choose another folder", .path.shown())]
    Create {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file cannot be written on.
    #[error("cannot write {}: {cause}; {}", .path.shown(), Kept(*.kept))]
    Write {
        /// Which.
        path: PathBuf,
        /// Rows that can be read from it; none where not even that could be written.
        kept: Option<u64>,
        /// Why.
        cause: WriteCause,
    },
    /// What a crashed process left cannot be completed.
    #[error(
        "cannot complete {} from its write-ahead log (.wal) after a crash: {cause}; both files stay as they are: mend that and start again, or move them away", .path.shown()
    )]
    Recover {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: WriteCause,
    },
    /// A row for a file that failed before.
    #[error("{} was given up after an error: this row is lost", .0.shown())]
    Stopped(PathBuf),
    /// The complete file cannot get its name.
    #[error("{} is complete, but cannot be renamed to {}: {source}; rename it by hand", .from.shown(), .to.shown())]
    Rename {
        /// What it is called.
        from: PathBuf,
        /// What it should be called.
        to: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A record of a stream that the manifest does not have.
    #[error("module {module} has no stream {index}: the record was not checked when it was emitted")]
    NoStream {
        /// Whose record.
        module: Name,
        /// Which stream.
        index: u16,
    },
    /// A row that is too short for its stream.
    #[error(
        "a row of stream {stream} ends before its field `{field}`: the record was not checked when it was emitted"
    )]
    Row {
        /// Which stream.
        stream: Name,
        /// Which field.
        field: Name,
    },
}

/// Why a file could not be written.
#[derive(Debug)]
pub enum WriteCause {
    /// The system refused.
    Io(io::Error),
    /// The Parquet writer refused.
    Parquet(parquet::errors::ParquetError),
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
        }
    }
}

impl From<io::Error> for WriteCause {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<parquet::errors::ParquetError> for WriteCause {
    /// Brings an I/O error that the Parquet writer wrapped to light again.
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

struct Kept(Option<u64>);

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(rows) => write!(f, "it is a readable Parquet file of the first {rows} rows"),
            None => f.write_str("it could not be made readable"),
        }
    }
}
