//! The report file: opened before the run, so that an unwritable path is an early error, and written after it.

use super::RunError;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use weir_os::private;

/// An open, locked report file.
#[derive(Debug)]
pub struct ReportFile {
    path: PathBuf,
    file: File,
}

impl ReportFile {
    /// Opens or creates the file and its folder, as `--out` does. A new file is readable by its owner only, as it shows traffic. An
    /// earlier report keeps its content and mode until [`write`](Self::write).
    pub fn open(path: &Path) -> Result<Self, RunError> {
        if let Some(folder) = path.parent() {
            // If this fails, opening the file returns the error.
            let _ = private::make_named_folder(folder);
        }
        let failed = |source| RunError::Report { path: path.to_owned(), source };
        let file = private::create_named(path).map_err(failed)?;
        if !private::lock(&file).map_err(failed)? {
            return Err(RunError::ReportBusy(path.to_owned()));
        }
        Ok(Self { path: path.to_owned(), file })
    }

    /// Replaces the content of the file with `html`.
    pub fn write(mut self, html: &str) -> Result<(), RunError> {
        let result = self.replace(html);
        result.map_err(|source| RunError::Report { path: self.path, source })
    }

    fn replace(&mut self, html: &str) -> io::Result<()> {
        // A pipe or a device cannot be truncated.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write_all(html.as_bytes())
    }
}
