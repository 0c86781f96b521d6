//! The folder of `--out`: for one run at a time, and without the results of another one.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use weir_os::private;
use weir_units::Escape as _;

/// The extension of complete record files.
const RECORDS: &str = "parquet";
/// The extension of captures of sent frames.
const FRAMES: &str = "pcap";

/// Errors of the folder of `--out`.
#[derive(Debug, thiserror::Error)]
pub enum OutFolderError {
    /// The folder cannot be used.
    #[error("{}: {source}; choose another folder for --out", path.escaped())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another run writes to the folder.
    #[error("{}: another run writes its results to this folder: choose another one for --out, or wait until that run has ended", .0.escaped())]
    Busy(PathBuf),
    /// The folder holds results of an earlier run.
    #[error("{}: the folder has results of an earlier run, such as {}: choose another folder for --out, or remove them", folder.escaped(), found.escaped())]
    HasResults {
        /// The folder.
        folder: PathBuf,
        /// One of the results.
        found: PathBuf,
    },
}

/// The folder of `--out`, locked for this run.
#[derive(Debug)]
pub struct OutFolder {
    _lock: File,
}

impl OutFolder {
    /// Creates the folder if missing, and locks it.
    ///
    /// # Errors
    /// The folder cannot be created, another run writes there, or it holds the results of an earlier run, among which those of this run
    /// would be lost. Rotated files get folders of their own, so they can lie beside those of an earlier run. Unfinished
    /// files are no obstacle: with a log beside it, a file is completed under a name of its own; others are replaced.
    pub fn open(path: &Path, labels: &[String], is_rotated: bool) -> Result<Self, OutFolderError> {
        let failed = |source| OutFolderError::Folder { path: path.to_owned(), source };
        private::make_named_folder(path).map_err(failed)?;
        let lock = File::open(path).map_err(failed)?;
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(OutFolderError::Busy(path.to_owned())),
            // File systems without locks.
            Err(TryLockError::Error(_)) | Ok(()) => {}
        }
        if is_rotated {
            return Ok(Self { _lock: lock });
        }
        match earlier_result(path, labels).map_err(failed)? {
            Some(found) => Err(OutFolderError::HasResults { folder: path.to_owned(), found }),
            None => Ok(Self { _lock: lock }),
        }
    }
}

/// Returns a file of an earlier run: records in any folder below, or frames in the folder of a module of this run.
fn earlier_result(path: &Path, labels: &[String]) -> io::Result<Option<PathBuf>> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        // A folder that cannot be listed is not one of this user's runs. A link is refused when the module's files are created.
        let Some(files) = entry.file_type()?.is_dir().then(|| fs::read_dir(entry.path()).ok()).flatten()
        else {
            continue;
        };
        let is_of_this_run = labels.iter().any(|label| entry.file_name() == label.as_str());
        for file in files.flatten() {
            let file = file.path();
            let has = |extension: &str| file.extension().is_some_and(|found| found == extension);
            if has(RECORDS) || is_of_this_run && has(FRAMES) {
                return Ok(Some(file));
            }
        }
    }
    Ok(None)
}
