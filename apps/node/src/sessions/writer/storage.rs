//! Storage limits of record files: if the files of a session or a holder exceed a limit, the oldest files are deleted.
//!
//! All files in a session's folder count for the session, also those of earlier sessions of the same name and of
//! earlier runs of the node. Files of closed sessions count for their [`StorageHolder`], so a holder gains no space by
//! closing a session and creating it again under another name. The folders are searched once, at the start of the
//! node; from then on the list of files is kept in memory. No lock is held while files are deleted.

mod disk;
mod plan;
mod stored;
#[cfg(test)]
mod tests;

pub(crate) use disk::StorageHolder;
pub(crate) use stored::{OpenRecordFile, StoredFile, StoredRecords, StoredSession};

use crate::sessions::limits::SessionLimits;
use crate::sync::{OrderedGuard, OrderedMutex, rank};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_admission::Name;
use weir_os::private::PrivateError;
use weir_trust::grant::Resource;

/// Number of parts of a session's limit of which the open files of all its modules together may take one. The other
/// parts are for closed files, which can be deleted.
const OPEN_PART: u64 = 8;
/// Size that the open files of a module may have in any case, so that files are not completed too often.
const OPEN_BYTES_MIN: u64 = 1 << 20;
/// Maximum number of files that are deleted at once. The records thread writes no records during the deletion.
const BATCH_MAX: usize = 256;
/// Number of failed deletions after which no more files of a session are tried in the same pass.
const FAILURES_MAX: usize = 8;
/// Pause after a pass in which no file of a session could be deleted.
const RETRY: Duration = Duration::from_secs(10);
/// Minimum difference between the times of completion of two files, in ns. Some file systems store only microseconds.
const TIME_STEP: u64 = 1000;

/// The record files of all sessions of a node.
#[derive(Debug)]
pub(super) struct RecordStorage {
    records: PathBuf,
    state: OrderedMutex<State, { rank::RECORD_FILES }>,
}

/// The files of all sessions, and the results of deletions.
#[derive(Debug, Default)]
struct State {
    sessions: BTreeMap<Name, SessionFolder>,
    /// Time of completion of the newest closed file, in ns since 1970.
    newest_time: u64,
    /// True if files, limits or holders have changed since the limits were last enforced.
    is_changed: bool,
    /// True if a failed deletion has been logged, and files still cannot be deleted.
    is_logged: bool,
    /// Number of failed deletions.
    failed: u64,
    /// Number of the session that was opened last.
    last_opened: u64,
}

/// The record files in the folder of one session.
#[derive(Debug, Default)]
struct SessionFolder {
    holder: StorageHolder,
    /// The holder that the folder's `holder` file names.
    written_holder: Option<StorageHolder>,
    /// The open session of this name; `None` if the session is closed.
    session: Option<OpenSession>,
    /// Bytes of each module folder with open files, by its label `MODULE-NUMBER`.
    open_folders: BTreeMap<String, u64>,
    /// Files that are not open, in the order of deletion.
    closed: BTreeSet<ClosedFile>,
    closed_bytes: u64,
    /// The files of `closed` by folder and name, with what is known of their contents.
    index: stored::FileIndex,
    /// Number of closed files that could not be deleted.
    undeletable: usize,
    /// End of the pause after a pass in which no file could be deleted.
    paused_until: Option<Instant>,
}

/// An open session.
#[derive(Debug)]
struct OpenSession {
    number: u64,
    limits: Arc<SessionLimits>,
    /// The last limit that was enforced.
    enforced: Option<u64>,
}

/// A file that is not open. The order of these values is the order of deletion. Incomplete files, which are needed
/// to recover their rows, come last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ClosedFile {
    is_incomplete: bool,
    /// Number of failed deletions. Files without failures are tried first.
    failures: u32,
    /// Time of completion, in ns since 1970. It is later than that of earlier files, even if the clock was set back.
    time: u64,
    label: Arc<str>,
    name: String,
    bytes: u64,
    /// Number of the open session that wrote the file; 0 for files of earlier runs of the node.
    written_by: u64,
}

/// The record files of an open session. Dropping this value closes the session's files.
#[derive(Debug)]
pub(crate) struct SessionFiles {
    storage: Arc<RecordStorage>,
    session: Name,
    number: u64,
}

/// A session that pays for the deletion of files, with their number.
pub(super) struct ChargedDeletions {
    pub(super) session: Name,
    /// Number of files whose deletion was tried.
    pub(super) files: u32,
}

impl SessionFolder {
    fn bytes(&self) -> u64 {
        self.open_folders.values().copied().fold(self.closed_bytes, u64::saturating_add)
    }

    fn add(&mut self, file: ClosedFile) {
        let (bytes, is_stuck) = (file.bytes, file.failures > 0);
        self.index.add(&file);
        if self.closed.insert(file) {
            self.closed_bytes = self.closed_bytes.saturating_add(bytes);
            self.undeletable += usize::from(is_stuck);
        }
    }

    fn remove(&mut self, file: &ClosedFile) -> bool {
        let was_there = self.closed.remove(file);
        if was_there {
            self.closed_bytes = self.closed_bytes.saturating_sub(file.bytes);
            self.undeletable = self.undeletable.saturating_sub(usize::from(file.failures > 0));
            self.index.remove(file);
        }
        was_there
    }
}

impl RecordStorage {
    pub(super) fn new(records: PathBuf) -> Arc<Self> {
        Arc::new(Self { records, state: OrderedMutex::default() })
    }

    /// Lists the files in the folders of all sessions. Files that are completed afterwards count as newer than the
    /// listed files.
    pub(super) fn scan(&self) {
        for session in disk::sessions(&self.records) {
            let folder = self.folder(&session);
            let (holder, files) = (StorageHolder::read(&folder), disk::files(&folder));
            let mut state = self.lock();
            let newest = files.iter().map(|file| file.time).max().unwrap_or(0);
            state.newest_time = state.newest_time.max(newest);
            state.is_changed = true;
            let session_folder = state.sessions.entry(session.clone()).or_default();
            if session_folder.session.is_none() && session_folder.open_folders.is_empty() {
                session_folder.holder = holder.clone();
            }
            session_folder.written_holder.get_or_insert(holder);
            for file in files {
                if !session_folder.open_folders.contains_key(&*file.label) {
                    session_folder.add(file);
                }
            }
            self.forget_if_empty(&mut state, &session);
        }
    }

    /// Replaces the listed files of a module folder, after its incomplete files have been recovered.
    pub(super) fn update_recovered(&self, session: &Path, label: &Path) {
        let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
        let (Some(session), Some(label)) = (name(session), name(label)) else { return };
        let Ok(session) = Name::new(&session) else { return };
        let mut state = self.lock();
        // The lock is held while the folder is listed, so that no file is deleted or completed at the same time.
        let files = disk::files_of(&self.folder(&session), &label);
        state.is_changed = true;
        let Some(session_folder) =
            state.sessions.get_mut(&session).filter(|it| !it.open_folders.contains_key(&label))
        else {
            return;
        };
        let before: Vec<ClosedFile> =
            session_folder.closed.iter().filter(|file| *file.label == *label).cloned().collect();
        before.iter().for_each(|file| _ = session_folder.remove(file));
        files.into_iter().for_each(|file| session_folder.add(file));
    }

    /// Opens the files of a session with its limits and its holder.
    pub(super) fn open(
        self: &Arc<Self>,
        session: &Name,
        limits: &Arc<SessionLimits>,
        holder: StorageHolder,
    ) -> Arc<SessionFiles> {
        let mut state = self.lock();
        state.last_opened += 1;
        let (number, limits) = (state.last_opened, Arc::clone(limits));
        state.is_changed = true;
        let session_folder = state.sessions.entry(session.clone()).or_default();
        session_folder.session = Some(OpenSession { number, limits, enforced: None });
        session_folder.holder = holder;
        Arc::new(SessionFiles { storage: Arc::clone(self), session: session.clone(), number })
    }

    /// Returns the number of failed deletions.
    pub(super) fn failed(&self) -> u64 {
        self.lock().failed
    }

    /// Deletes the oldest files of sessions and holders that exceed a limit, at most [`BATCH_MAX`]. Returns the
    /// sessions that pay for the deletions.
    pub(super) fn enforce(&self, now: Instant) -> Vec<ChargedDeletions> {
        let deletions = {
            let mut state = self.lock();
            if !state.is_due(now) {
                return Vec::new();
            }
            let deletions = state.plan();
            if deletions.is_empty() {
                state.report(&BTreeMap::new());
                return Vec::new();
            }
            deletions
        };
        let mut done: BTreeMap<Name, u32> = BTreeMap::new();
        let mut failures: BTreeMap<Name, usize> = BTreeMap::new();
        let mut results = Vec::with_capacity(deletions.len());
        for it in deletions {
            let failures = failures.entry(it.session.clone()).or_default();
            if *failures >= FAILURES_MAX {
                continue;
            }
            let result = disk::delete(&self.folder(&it.session), &it.file);
            *failures += usize::from(result.is_err());
            *done.entry(it.payer.clone()).or_default() += 1;
            results.push((it, result));
        }
        self.record_results(results, now);
        done.into_iter().map(|(session, files)| ChargedDeletions { session, files }).collect()
    }

    /// Updates the list of files after deletions and failed deletions.
    fn record_results(&self, results: Vec<(plan::Deletion, std::io::Result<()>)>, now: Instant) {
        let mut state = self.lock();
        state.is_changed = true;
        let mut deleted_bytes: BTreeMap<Name, Vec<u64>> = BTreeMap::new();
        // The sessions of the files; true for a session of which no file could be deleted.
        let mut tried: BTreeMap<Name, bool> = BTreeMap::new();
        let mut first_error = None;
        for (plan::Deletion { session, file, payer }, result) in results {
            let Some(session_folder) = state.sessions.get_mut(&session) else { continue };
            // The file is missing in the list if the list of its folder was replaced during the deletion.
            if !session_folder.remove(&file) {
                continue;
            }
            let is_blocked = tried.entry(session.clone()).or_insert(true);
            match result {
                Ok(()) => {
                    *is_blocked = false;
                    deleted_bytes.entry(payer).or_default().push(file.bytes);
                }
                Err(error) => {
                    session_folder.add(ClosedFile { failures: file.failures.saturating_add(1), ..file });
                    state.failed = state.failed.saturating_add(1);
                    first_error.get_or_insert((session, error));
                }
            }
        }
        state.report(&deleted_bytes);
        for (session, is_blocked) in tried {
            if let Some(session_folder) = state.sessions.get_mut(&session) {
                session_folder.paused_until = is_blocked.then(|| now + RETRY);
            }
            self.forget_if_empty(&mut state, &session);
        }
        let is_stuck = state.sessions.values().any(|session_folder| session_folder.undeletable > 0);
        let was_logged = std::mem::replace(&mut state.is_logged, is_stuck);
        drop(state);
        match first_error {
            Some((session, error)) if !was_logged => crate::log::session(&session).warn(&format_args!(
                "session {session}: record files beyond a limit cannot be deleted, and are tried again later: {error}"
            )),
            None if was_logged && !is_stuck => crate::log::info("all record files beyond a limit can be deleted again"),
            _ => {}
        }
    }

    /// Removes a closed session without files from the list, and removes its folder.
    fn forget_if_empty(&self, state: &mut State, session: &Name) {
        let is_empty = |session_folder: &SessionFolder| {
            session_folder.session.is_none()
                && session_folder.open_folders.is_empty()
                && session_folder.closed.is_empty()
        };
        if state.sessions.get(session).is_some_and(is_empty) {
            state.sessions.remove(session);
            // The lock is held during the removal, so that no file is created in the folder at the same time.
            disk::remove_empty(&self.folder(session));
        }
    }

    fn folder(&self, session: &Name) -> PathBuf {
        self.records.join(session.as_str())
    }

    fn lock(&self) -> OrderedGuard<'_, State, { rank::RECORD_FILES }> {
        self.state.lock()
    }
}

impl SessionFiles {
    /// Replaces the limits.
    pub(crate) fn set_limits(&self, limits: &Arc<SessionLimits>) {
        self.change(|session_folder| {
            if let Some(open) = &mut session_folder.session {
                open.limits = Arc::clone(limits);
            }
        });
    }

    /// Replaces the holder.
    pub(crate) fn set_holder(&self, holder: StorageHolder) {
        self.change(|session_folder| session_folder.holder = holder);
    }

    /// Returns the folder of the session.
    pub(super) fn folder(&self) -> PathBuf {
        self.storage.folder(&self.session)
    }

    /// Marks a module folder as open. Writes the holder into the session's folder, if the folder does not name it yet.
    pub(super) fn begin(&self, label: &str) -> Result<(), PrivateError> {
        let holder = {
            let mut state = self.storage.lock();
            state.is_changed = true;
            let session_folder = state.sessions.entry(self.session.clone()).or_default();
            // Files in an open folder are not in the list of closed files, so that they are not deleted.
            let before: Vec<ClosedFile> =
                session_folder.closed.iter().filter(|file| &*file.label == label).cloned().collect();
            before.iter().for_each(|file| _ = session_folder.remove(file));
            session_folder.open_folders.insert(label.to_owned(), before.iter().map(|file| file.bytes).sum());
            (session_folder.written_holder.as_ref() != Some(&session_folder.holder))
                .then(|| session_folder.holder.clone())
        };
        if let Some(holder) = holder {
            // For an operator's session, this removes the holder file of an earlier session.
            holder.write(&self.storage.records, &self.session)?;
            self.change(|session_folder| session_folder.written_holder = Some(holder));
        }
        Ok(())
    }

    /// Reads the bytes of an open module folder from the disk, and updates the list.
    pub(super) fn update_bytes(&self, label: &str) -> u64 {
        let bytes = disk::bytes_of(&self.folder(), label);
        self.change(|session_folder| {
            if let Some(known) = session_folder.open_folders.get_mut(label) {
                *known = bytes;
            }
        });
        bytes
    }

    /// Marks an open module folder as closed: its files are complete.
    pub(super) fn end(&self, label: &str) {
        let folder = self.folder();
        let mut files = disk::files_of(&folder, label);
        let mut state = self.storage.lock();
        // The files must count as newer than all earlier files, even if the clock was set back.
        let (newest, previous) = (files.iter().map(|file| file.time).max().unwrap_or(0), state.newest_time);
        let time = newest.max(previous.saturating_add(TIME_STEP));
        files.iter_mut().for_each(|file| (file.time, file.written_by) = (time, self.number));
        state.is_changed = true;
        let session_folder = state.sessions.entry(self.session.clone()).or_default();
        if session_folder.open_folders.remove(label).is_none() || files.is_empty() {
            return;
        }
        files.iter().cloned().for_each(|file| session_folder.add(file));
        state.newest_time = time;
        drop(state);
        if newest <= previous {
            disk::set_time(&folder, &files);
        }
    }

    /// Returns the size at which the open files of a module are completed, so that open files, which cannot be
    /// deleted, take only a part of the session's limit.
    pub(super) fn file_bytes_max(&self) -> u64 {
        let state = self.storage.lock();
        let Some(session_folder) = state.sessions.get(&self.session) else { return u64::MAX };
        let limit = session_folder.session.as_ref().and_then(|open| open.limits.get(Resource::RecordStorage));
        let Some(limit) = limit else { return u64::MAX };
        let modules = u64::try_from(session_folder.open_folders.len()).unwrap_or(u64::MAX).max(1);
        (limit / OPEN_PART / modules).max(OPEN_BYTES_MIN)
    }

    fn change(&self, change: impl FnOnce(&mut SessionFolder)) {
        let mut state = self.storage.lock();
        state.is_changed = true;
        change(state.sessions.entry(self.session.clone()).or_default());
    }
}

impl Drop for SessionFiles {
    fn drop(&mut self) {
        let mut state = self.storage.lock();
        state.is_changed = true;
        let Some(session_folder) = state.sessions.get_mut(&self.session) else { return };
        // A later session of the same name may have opened its files meanwhile.
        if session_folder.session.as_ref().is_some_and(|open| open.number == self.number) {
            session_folder.session = None;
        }
        self.storage.forget_if_empty(&mut state, &self.session);
    }
}
