//! The files of a run's report and summary: opened before the run, so that an unwritable path is an early error, and written after it.

use std::path::{Path, PathBuf};
use weir_os::private::{self, NamedOutput};
use weir_units::Escape as _;

/// Errors of the file of a report or summary.
#[derive(Debug, thiserror::Error)]
pub enum ReportFileError {
    /// The file cannot be written.
    #[error("{}: the file cannot be written: {source}", path.escaped())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Another run has locked the file.
    #[error("{}: another run writes to this file: name another one, or wait until that run has ended", .0.escaped())]
    Busy(PathBuf),
}

impl ReportFileError {
    /// Returns the file.
    pub fn path(&self) -> &Path {
        match self {
            Self::File { path, .. } | Self::Busy(path) => path,
        }
    }
}

/// An open, locked file of a report or summary.
#[derive(Debug)]
pub struct ReportFile {
    path: PathBuf,
    output: NamedOutput,
}

impl ReportFile {
    /// Opens `path`.part, and creates its folder, as `--out` does. The file is readable by its owner only, as it shows traffic. An earlier
    /// report stays until [`write`](Self::write) replaces it.
    pub fn open(path: &Path) -> Result<Self, ReportFileError> {
        if let Some(folder) = path.parent() {
            // If this fails, opening the file returns the error.
            let _ = private::make_named_folder(folder);
        }
        match NamedOutput::create(path) {
            Ok(Some(output)) => Ok(Self { path: path.to_owned(), output }),
            Ok(None) => Err(ReportFileError::Busy(path.to_owned())),
            Err(error) => Err(ReportFileError::File { path: error.path, source: error.error.into() }),
        }
    }

    /// Returns the path of the complete file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the whole file, and gives it its name. Returns its path.
    pub fn write(self, content: &str) -> Result<PathBuf, ReportFileError> {
        let Self { path, output } = self;
        match output.write(content.as_bytes()) {
            Ok(()) => Ok(path),
            Err(source) => Err(ReportFileError::File { path, source }),
        }
    }
}
