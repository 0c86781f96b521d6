//! The file of the report: opened before the run, so that a place that cannot be written is told then, and written after it.

use super::RunError;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The file of the report.
#[derive(Debug)]
pub struct Page {
    path: PathBuf,
    file: File,
}

impl Page {
    /// Opens it, or makes it with its folder, as `--out` does. An earlier report stays in it until [`write`](Self::write).
    pub fn open(path: &Path) -> Result<Self, RunError> {
        if let Some(folder) = path.parent() {
            // Should it fail, opening the file says why.
            let _ = std::fs::create_dir_all(folder);
        }
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = opened.map_err(|source| RunError::Report { path: path.to_owned(), source })?;
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
