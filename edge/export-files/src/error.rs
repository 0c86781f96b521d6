//! Errors of files in the formats of other tools.

use std::io;
use std::path::{Path, PathBuf};
use weir_os::private::NamedOutputError;
use weir_units::Escape as _;

/// The reason why rows could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The file cannot be created.
    #[error("cannot create {0}; choose another folder")]
    Create(#[from] NamedOutputError),
    /// Another run is writing the file.
    #[error("{} is being written by another run: wait for it, or choose another folder", .0.escaped())]
    Busy(PathBuf),
    /// The file cannot be written any further.
    #[error("cannot write {}: {source}; its first {kept} rows can be read", .path.escaped())]
    Write {
        /// The file.
        path: PathBuf,
        /// The rows in the file.
        kept: u64,
        /// The system's error.
        source: io::Error,
    },
    /// The file of a crashed process cannot be completed.
    #[error("cannot complete {} after a crash: {source}; it stays as it is", .path.escaped())]
    Recover {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The complete file cannot be renamed.
    #[error("{} is complete, but does not get its name: {source}; rename it by hand", .path.escaped())]
    Rename {
        /// The file's present path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl ExportError {
    /// Returns the file that is the cause.
    pub fn path(&self) -> &Path {
        match self {
            Self::Create(error) => &error.path,
            Self::Busy(path)
            | Self::Write { path, .. }
            | Self::Recover { path, .. }
            | Self::Rename { path, .. } => path,
        }
    }

    /// Returns true if the disk or its quota was full.
    pub fn is_disk_full(&self) -> bool {
        let Self::Write { source, .. } = self else { return false };
        matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}
