//! Watches the files with revocation lists, so that a changed file is applied without a reload.

use super::Daemon;
use crate::control::policy;
use crate::log::warn;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_trust::revocation::LIST_BYTES_MAX;
use weir_units::Escape as _;

/// The interval at which files are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(400);

/// The metadata by which a change of a file is detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    device: u64,
    inode: u64,
    len: u64,
    seconds: i64,
    nanos: i64,
}

impl FileStamp {
    /// Returns the stamp of a regular file, and `None` for anything else. The file is not opened: opening a FIFO would block
    /// until it has a writer.
    fn read(path: &Path) -> Option<Self> {
        let meta = path.metadata().ok().filter(|meta| meta.is_file())?;
        Some(Self {
            device: meta.dev(),
            inode: meta.ino(),
            len: meta.len(),
            seconds: meta.mtime(),
            nanos: meta.mtime_nsec(),
        })
    }
}

/// The watched files, with their stamps at the last check.
#[derive(Debug, Default)]
pub(super) struct WatchedFiles {
    files: BTreeMap<PathBuf, Option<FileStamp>>,
    next_check: Option<Instant>,
}

impl WatchedFiles {
    /// Returns the files that have changed since the last check, or no files if the next check is not due. A file that was
    /// not watched before counts as changed, since it may have changed after it was read with the configuration.
    fn changed(&mut self, files: impl FnOnce() -> BTreeSet<PathBuf>) -> Vec<PathBuf> {
        if self.next_check.is_some_and(|next| Instant::now() < next) {
            return Vec::new();
        }
        self.next_check = Some(Instant::now() + CHECK_INTERVAL);
        let files = files();
        self.files.retain(|file, _| files.contains(file));
        let mut changed = Vec::new();
        for file in files {
            let stamp = FileStamp::read(&file);
            if self.files.insert(file.clone(), stamp) != Some(stamp) && stamp.is_some() {
                changed.push(file);
            }
        }
        changed
    }
}

impl Daemon {
    /// Applies the lists of changed files. An error is logged once for each change of a file.
    pub(super) fn read_changed_lists(&self, watched: &mut WatchedFiles) {
        let changed = {
            let (files, folder) =
                self.loaded.with(|loaded| (loaded.list_files.clone(), loaded.list_folder.clone()));
            watched.changed(|| policy::revocation_files(&files, folder.as_deref()))
        };
        for file in changed {
            let text = policy::read_text(&file, LIST_BYTES_MAX).map_err(|error| error.to_string());
            let applied = text.and_then(|text| self.revoke(&text, None).map_err(|error| error.to_string()));
            if let Err(why) = applied {
                warn(&format_args!("{}: {why}", file.escaped()));
            }
        }
    }
}
