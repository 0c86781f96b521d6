//! Files with revocation lists that have changed are read without being told to: what was taken back should not wait for anybody.

use super::{Daemon, lock};
use crate::control::policy;
use crate::server::log::warn;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_trust::revocation::LIST_BYTES_MAX;
use weir_units::Shown as _;

/// How often files are looked at.
const LOOK: Duration = Duration::from_millis(400);

/// By what it is told that a file has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    device: u64,
    inode: u64,
    len: u64,
    seconds: i64,
    nanos: i64,
}

impl Mark {
    /// Nothing of what is not there, or no file: to open a pipe would be to wait for whoever writes into it.
    fn of(path: &Path) -> Option<Self> {
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

/// Files as they were when they were looked at last.
#[derive(Debug, Default)]
pub(super) struct WatchedFiles {
    files: BTreeMap<PathBuf, Option<Mark>>,
    next: Option<Instant>,
}

impl WatchedFiles {
    /// Those of these files that have changed since they were looked at last, as far as it is time to look. One that is new here counts as changed: it may have
    /// changed since it was read with the configuration.
    fn changed(&mut self, files: impl FnOnce() -> BTreeSet<PathBuf>) -> Vec<PathBuf> {
        if self.next.is_some_and(|next| Instant::now() < next) {
            return Vec::new();
        }
        self.next = Some(Instant::now() + LOOK);
        let files = files();
        self.files.retain(|file, _| files.contains(file));
        let mut changed = Vec::new();
        for file in files {
            let mark = Mark::of(&file);
            if self.files.insert(file.clone(), mark) != Some(mark) && mark.is_some() {
                changed.push(file);
            }
        }
        changed
    }
}

impl Daemon {
    /// Takes lists from files that have changed. What is wrong with one is said, once for each time that it changes.
    pub(super) fn notice_lists(&self, watched: &mut WatchedFiles) {
        let changed = {
            let loaded = lock(&self.loaded);
            watched.changed(|| policy::lists_of(&loaded.lists, loaded.revoked.as_deref()))
        };
        for file in changed {
            let taken = policy::read_text(&file, LIST_BYTES_MAX).map_err(|error| error.to_string());
            let taken = taken.and_then(|text| self.revoke(&text, None).map_err(|error| error.to_string()));
            if let Err(why) = taken {
                warn(&format_args!("{}: {why}", file.shown()));
            }
        }
    }
}
