//! The file of the report: opened before the run, so that a place that cannot be written is told then, and written after it.

use super::RunError;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use weir_os::private;

/// The file of the report.
#[derive(Debug)]
pub struct Page {
    path: PathBuf,
    file: File,
}

impl Page {
    /// Opens it, or makes it with its folder, as `--out` does: for its owner alone, as it shows traffic. An earlier report stays in it, and keeps its
    /// mode, until [`write`](Self::write).
    pub fn open(path: &Path) -> Result<Self, RunError> {
        if let Some(folder) = path.parent() {
            // Should it fail, opening the file says why.
            let _ = private::make_named_folder(folder);
        }
        let failed = |source| RunError::Report { path: path.to_owned(), source };
        let file = private::create_named(path).map_err(failed)?;
        if !private::lock(&file).map_err(failed)? {
            return Err(RunError::ReportBusy(path.to_owned()));
        }
        Ok(Self { path: path.to_owned(), file })
    }

    /// Writes the page over what is there.
    pub fn write(mut self, page: &str) -> Result<(), RunError> {
        let result = self.replace(page);
        result.map_err(|source| RunError::Report { path: self.path, source })
    }

    fn replace(&mut self, page: &str) -> io::Result<()> {
        // A pipe or a device has no length.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write_all(page.as_bytes())
    }
}
