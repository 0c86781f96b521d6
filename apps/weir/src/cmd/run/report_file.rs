//! The files of a run's report and summary: opened before the run, so that an unwritable path is an early error, and written after it.

use super::RunError;
use std::path::{Path, PathBuf};
use weir_os::private::{self, NamedOutput};

/// An open, locked file of a report or summary.
#[derive(Debug)]
pub struct ReportFile {
    path: PathBuf,
    output: NamedOutput,
}

impl ReportFile {
    /// Opens `path`.part, and creates its folder, as `--out` does. The file is readable by its owner only, as it shows traffic. An earlier
    /// report stays until [`write`](Self::write) replaces it.
    pub fn open(path: &Path) -> Result<Self, RunError> {
        if let Some(folder) = path.parent() {
            // If this fails, opening the file returns the error.
            let _ = private::make_named_folder(folder);
        }
        match NamedOutput::create(path) {
            Ok(Some(output)) => Ok(Self { path: path.to_owned(), output }),
            Ok(None) => Err(RunError::ReportBusy(path.to_owned())),
            Err(error) => Err(RunError::Report { path: error.path, source: error.error.into() }),
        }
    }

    /// Returns the path of the complete file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the whole file, and gives it its name. Returns its path.
    pub fn write(self, content: &str) -> Result<PathBuf, RunError> {
        let Self { path, output } = self;
        match output.write(content.as_bytes()) {
            Ok(()) => Ok(path),
            Err(source) => Err(RunError::Report { path, source }),
        }
    }
}
