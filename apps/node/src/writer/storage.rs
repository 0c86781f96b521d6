//! The files of a session's records on the disk: where they are more than the session may keep, the oldest are deleted.
//!
//! All files in the session's folder count, also those of an earlier life of the node or of a session of that name. Only what has the name and the place of a
//! record file is looked at, and links are not followed.

use crate::limits::Limits;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use weir_confine::private::Folder;
use weir_session::Name;
use weir_trust::grant::Resource;

/// A file counts as a block of a disk at least: so many small ones are limited, too.
const FILE_BYTES_MIN: u64 = 4096;
/// The present files of all modules of a session have this part of the limit together, so that others can be deleted for them; each module's …
const OPEN_PART: u64 = 8;
/// … have at least so many bytes, so that files are not ended all the time.
const OPEN_BYTES_MIN: u64 = 1 << 20;
/// So much more of the limit is deleted at once, so that the folder is not searched for each file.
const ROOM_PART: u64 = 16;

/// The files of one session, for all its modules.
#[derive(Debug)]
pub(super) struct Storage {
    folder: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    limits: Arc<Limits>,
    /// Bytes of the files that are not being written; none before they are counted.
    ended: Option<u64>,
    /// The folders in which files are being written, and their bytes.
    open: BTreeMap<String, u64>,
    /// Nothing is left to delete until another file is ended.
    is_exhausted: bool,
}

/// A file that is not being written. Files are deleted in this order: incomplete ones, of use only for their recovery, go last.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ended {
    is_incomplete: bool,
    written: SystemTime,
    label: String,
    name: String,
    bytes: u64,
}

impl Storage {
    /// The files in the folder of a session.
    pub(super) fn new(folder: PathBuf, limits: Arc<Limits>) -> Self {
        let state = State { limits, ended: None, open: BTreeMap::new(), is_exhausted: false };
        Self { folder, state: Mutex::new(state) }
    }

    /// The limits of the session as it is now.
    pub(super) fn held_to(&self, limits: Arc<Limits>) {
        self.lock().limits = limits;
    }

    /// Files are being written in the folder of this label from now on.
    pub(super) fn begin(&self, label: &str) {
        let mut state = self.lock();
        let there = bytes_in(&self.folder.join(label));
        state.ended = state.ended.map(|ended| ended.saturating_sub(there));
        state.open.insert(label.to_owned(), there);
    }

    /// The files in the folder of this label have grown.
    pub(super) fn grow(&self, label: &str) {
        let there = bytes_in(&self.folder.join(label));
        if let Some(bytes) = self.lock().open.get_mut(label) {
            *bytes = there;
        }
    }

    /// The files in the folder of this label are ended.
    pub(super) fn end(&self, label: &str) {
        let mut state = self.lock();
        let there = bytes_in(&self.folder.join(label));
        if state.open.remove(label).is_some() {
            state.ended = state.ended.map(|ended| ended.saturating_add(there));
            state.is_exhausted = false;
        }
    }

    /// The bytes, of rows before they are encoded, with which a module's files are ended: so that they can be deleted before they have taken the whole limit.
    pub(super) fn file_bytes_max(&self) -> u64 {
        let state = self.lock();
        let Some(limit) = state.limits.get(Resource::RecordStorage) else { return u64::MAX };
        let modules = u64::try_from(state.open.len()).unwrap_or(u64::MAX).max(1);
        (limit / OPEN_PART / modules).max(OPEN_BYTES_MIN)
    }

    /// Deletes the oldest files where there are more bytes than the session may keep. Returns false where that took next to no time.
    pub(super) fn enforce(&self) -> bool {
        let mut state = self.lock();
        let open = state.open.values().copied().fold(0, u64::saturating_add);
        let limit = state.limits.get(Resource::RecordStorage).unwrap_or(u64::MAX);
        let known = state.ended.map(|ended| ended.saturating_add(open));
        if known.is_some_and(|kept| kept <= limit || state.is_exhausted) {
            tell(&state.limits, known.unwrap_or(0), &[]);
            return false;
        }
        let mut files = self.ended_files(&state.open);
        let mut deleted = Vec::new();
        let mut ended = files.iter().map(|file| file.bytes).fold(0, u64::saturating_add);
        if open.saturating_add(ended) > limit {
            files.sort_unstable();
            let wanted = limit.saturating_sub(limit / ROOM_PART);
            for file in &files {
                if open.saturating_add(ended) <= wanted {
                    break;
                }
                if self.delete(file) {
                    ended = ended.saturating_sub(file.bytes);
                    deleted.push(file.bytes);
                }
            }
            state.is_exhausted = open.saturating_add(ended) > limit;
        }
        state.ended = Some(ended);
        tell(&state.limits, open.saturating_add(ended), &deleted);
        true
    }

    /// The files that are not being written: those with the names of record files, in folders with the names of modules.
    fn ended_files(&self, open: &BTreeMap<String, u64>) -> Vec<Ended> {
        let mut all = Vec::new();
        for (label, is_folder) in entries(&self.folder).map(|entry| (entry.0, entry.1.is_dir())) {
            if !is_folder || !is_label(&label) {
                continue;
            }
            // What is being written there is none of these; what was recovered there before, is.
            let is_open = open.contains_key(&label);
            for (name, known) in entries(&self.folder.join(&label)) {
                let Some(is_incomplete) = record_file(&name).filter(|_| known.is_file() && !is_open) else {
                    continue;
                };
                let written = known.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                let bytes = known.len().max(FILE_BYTES_MIN);
                all.push(Ended { is_incomplete, written, label: label.clone(), name, bytes });
            }
        }
        all
    }

    /// Deletes a file, and its folder where nothing else is in it. Returns false where it is not gone.
    fn delete(&self, file: &Ended) -> bool {
        // Opened without following a link: so what is deleted is in the session's own folder.
        let session = Folder::open(&self.folder);
        let folder = session.and_then(|session| session.open_in(&file.label));
        let gone = match folder.map_err(std::io::Error::from).and_then(|folder| folder.remove(&file.name)) {
            Ok(()) => true,
            Err(error) => error.kind() == ErrorKind::NotFound,
        };
        // It refuses a folder that is not empty.
        _ = std::fs::remove_dir(self.folder.join(&file.label));
        gone
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has the session's bill and status say how many bytes it keeps now, and which were deleted.
fn tell(limits: &Limits, kept: u64, deleted: &[u64]) {
    let bytes = deleted.iter().copied().fold(0, u64::saturating_add);
    limits.tell(Resource::RecordStorage, |told, used| {
        (told.taken, told.beyond) = (kept, told.beyond.saturating_add(bytes));
        used.record_files_deleted = used.record_files_deleted.saturating_add(deleted.len() as u64);
        used.record_bytes_deleted.0 = used.record_bytes_deleted.0.saturating_add(bytes);
    });
}

/// What is in a folder, with its names where they are text. Links are not followed.
fn entries(folder: &Path) -> impl Iterator<Item = (String, std::fs::Metadata)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.metadata().ok()?)))
}

/// The bytes of the record files in a module's folder.
fn bytes_in(folder: &Path) -> u64 {
    let files = entries(folder).filter(|(name, known)| known.is_file() && record_file(name).is_some());
    files.map(|(_, known)| known.len().max(FILE_BYTES_MIN)).fold(0, u64::saturating_add)
}

/// Whether a folder has the name of one with a module's files: the module's name and a number.
fn is_label(text: &str) -> bool {
    text.rsplit_once('-').is_some_and(|(module, number)| {
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        is_number && Name::new(module).is_ok()
    })
}

/// Whether a record file is incomplete, by its name; none for other files.
fn record_file(name: &str) -> Option<bool> {
    let (stem, is_incomplete) = match name.strip_suffix(".parquet") {
        Some(stem) => (stem, false),
        None => (name.strip_suffix(".parquet.part").or_else(|| name.strip_suffix(".parquet.wal"))?, true),
    };
    let stream = match stem.rsplit_once(".recovered-") {
        Some((stream, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => stream,
        _ => stem,
    };
    Name::new(stream).ok().map(|_| is_incomplete)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::SessionSpec;
    use std::time::Duration;

    const MIB: usize = 1 << 20;

    fn limits(bytes: u64) -> Arc<Limits> {
        let mut spec = SessionSpec::new(Name::new("s").unwrap());
        spec.limits.set(Resource::RecordStorage, Some(bytes));
        Arc::new(Limits::of(&spec, None))
    }

    /// Makes a file that is as old as its number says: the lowest is the oldest.
    fn put(folder: &Path, path: &str, bytes: usize, number: u64) {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, vec![0; bytes]).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(number)).unwrap();
    }

    fn there(folder: &Path) -> Vec<String> {
        let mut all = Vec::new();
        for (label, known) in entries(folder) {
            if known.is_dir() {
                all.extend(entries(&folder.join(&label)).map(|(name, _)| format!("{label}/{name}")));
            }
        }
        all.sort();
        all
    }

    #[test]
    fn the_oldest_complete_files_go_first_and_what_is_written_stays() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("s");
        // Of an earlier life, in no order of names.
        put(&folder, "m-7/rows.parquet", 3 * MIB, 1);
        put(&folder, "a-0/rows.parquet", 3 * MIB, 2);
        put(&folder, "a-0/rows.recovered-1.parquet", 3 * MIB, 3);
        put(&folder, "b-0/rows.parquet.part", 3 * MIB, 0);
        put(&folder, "m-8/rows.parquet.part", 3 * MIB, 0);
        let limits = limits(12 << 20);
        let storage = Storage::new(folder.clone(), Arc::clone(&limits));
        storage.begin("m-8");
        storage.enforce();
        // 15 MiB were there, and 1/16 of the limit more than necessary may go.
        let left = ["a-0/rows.recovered-1.parquet", "b-0/rows.parquet.part", "m-8/rows.parquet.part"];
        assert_eq!(there(&folder), left);
        assert!(!folder.join("m-7").exists(), "a folder without files goes with them");
        let shot = |limits: &Limits| {
            let it = limits.shot().of(Resource::RecordStorage);
            (it.taken, it.beyond)
        };
        assert_eq!(shot(&limits), (9 << 20, 6 << 20));
        // The file that is being written counts, and grows beyond everything else: it alone stays.
        put(&folder, "m-8/rows.parquet.part", 13 * MIB, 9);
        storage.grow("m-8");
        storage.enforce();
        assert_eq!(there(&folder), ["m-8/rows.parquet.part"]);
        assert_eq!(shot(&limits), (13 << 20, 12 << 20));
        // It is ended, and another one is begun.
        std::fs::rename(folder.join("m-8/rows.parquet.part"), folder.join("m-8/rows.parquet")).unwrap();
        storage.end("m-8");
        storage.begin("m-9");
        storage.enforce();
        assert_eq!((there(&folder), shot(&limits)), (Vec::new(), (0, 25 << 20)));
    }

    #[test]
    fn nothing_but_record_files_of_the_session_is_deleted() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("s");
        put(root.path(), "elsewhere/rows.parquet", 3 * MIB, 0);
        put(root.path(), "elsewhere/m-1/rows.parquet", 3 * MIB, 0);
        for path in [
            "m-1/notes.txt",
            "m-1/rows.parquet.old",
            "notes/rows.parquet",
            "m-x/rows.parquet",
            "m-1/UPPER CASE.parquet",
        ] {
            put(&folder, path, 2 * MIB, 0);
        }
        put(&folder, "m-1/rows.parquet", 3 * MIB, 1);
        std::os::unix::fs::symlink(root.path().join("elsewhere"), folder.join("m-2")).unwrap();
        std::os::unix::fs::symlink(
            root.path().join("elsewhere/rows.parquet"),
            folder.join("m-1/link.parquet"),
        )
        .unwrap();
        let storage = Storage::new(folder.clone(), limits(1));
        storage.enforce();
        assert!(!folder.join("m-1/rows.parquet").exists());
        for path in [
            "m-1/notes.txt",
            "m-1/rows.parquet.old",
            "notes/rows.parquet",
            "m-x/rows.parquet",
            "m-1/link.parquet",
            "m-2",
        ] {
            assert!(folder.join(path).symlink_metadata().is_ok(), "{path}");
        }
        for path in ["elsewhere/rows.parquet", "elsewhere/m-1/rows.parquet"] {
            assert!(root.path().join(path).exists(), "{path}");
        }
        // A folder that is a link is none of the node's.
        let linked = root.path().join("linked");
        std::os::unix::fs::symlink(root.path().join("elsewhere"), &linked).unwrap();
        Storage::new(linked, limits(1)).enforce();
        assert!(root.path().join("elsewhere/m-1/rows.parquet").exists());
    }

    #[test]
    fn files_end_before_they_have_taken_the_limit() {
        let storage = Storage::new(PathBuf::from("/nonexistent"), limits(80 << 20));
        storage.begin("m-0");
        assert_eq!(storage.file_bytes_max(), 10 << 20);
        storage.begin("m-1");
        assert_eq!(storage.file_bytes_max(), 5 << 20);
        storage.held_to(limits(1));
        assert_eq!(storage.file_bytes_max(), 1 << 20);
        storage.held_to(limits(u64::MAX));
        assert_eq!(storage.file_bytes_max(), u64::MAX);
    }
}
