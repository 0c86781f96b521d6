//! Storage limits of record files: beyond the limit of a session or a holder, the oldest files are deleted.
//!
//! All files in a session's folder count, also those of earlier sessions of that name and of earlier runs of the node.
//! Files of closed sessions count for their [`StorageHolder`], so a session that is closed and created again under
//! another name gains no space. The folders are searched once, at the start of the node. From then on the list of files
//! is in memory, and no lock is held while files are deleted.

mod disk;
mod plan;
#[cfg(test)]
mod tests;

pub(crate) use disk::StorageHolder;

use crate::sessions::limits::SessionLimits;
use crate::sync::{OrderedGuard, OrderedMutex, rank};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_admission::Name;
use weir_os::private::PrivateError;
use weir_trust::grant::Resource;

/// The open files of all modules of a session may take one part in `OPEN_PART` of the session's limit. The rest is for
/// complete files, which can be deleted to make space.
const OPEN_PART: u64 = 8;
/// The open files of a module may have at least this size, so that files are not completed all the time.
const OPEN_BYTES_MIN: u64 = 1 << 20;
/// The most files that are deleted at once. No records are written meanwhile.
const BATCH_MAX: usize = 256;
/// Number of failures in one pass after which no more files of a session are tried in that pass.
const FAILURES_MAX: usize = 8;
/// Time until the files of a session are tried again if none could be deleted.
const RETRY: Duration = Duration::from_secs(10);
/// Least time between the ends of two files, in ns, since file systems store microseconds.
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
    /// End of the newest complete file.
    last: u64,
    /// True if anything has changed since the limits were enforced.
    is_changed: bool,
    /// True once a failure to delete has been logged.
    is_logged: bool,
    /// Failed deletions.
    failed: u64,
    next_open: u64,
}

/// The record files in the folder of one session.
#[derive(Debug, Default)]
struct SessionFolder {
    holder: StorageHolder,
    /// The holder that the folder's `holder` file names.
    written: Option<StorageHolder>,
    /// The open session of this name, if there is one.
    session: Option<OpenSession>,
    /// Bytes of the folders with open files.
    writing: BTreeMap<String, u64>,
    /// Complete files, in the order of deletion.
    complete: BTreeSet<CompleteFile>,
    complete_bytes: u64,
    /// The number of complete files that could not be deleted.
    stuck: usize,
    /// End of the pause after files could not be deleted.
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

/// A file that is not open. The order is that of deletion: incomplete files, which only serve recovery, go last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CompleteFile {
    is_incomplete: bool,
    /// Failed deletions. Files without failures are tried first.
    failures: u32,
    /// Time of completion, in ns since 1970. It is later than that of any earlier file, even if the clock was set back.
    time: u64,
    label: Arc<str>,
    name: String,
    bytes: u64,
}

/// Record files of an open session. Dropping this closes them.
#[derive(Debug)]
pub(crate) struct SessionFiles {
    storage: Arc<RecordStorage>,
    session: Name,
    number: u64,
}

/// Number of files that were deleted to enforce limits, for the session that pays for it.
pub(super) struct Enforced {
    pub(super) session: Name,
    /// Number of files whose deletion was tried.
    pub(super) files: u32,
}

impl SessionFolder {
    fn bytes(&self) -> u64 {
        self.writing.values().copied().fold(self.complete_bytes, u64::saturating_add)
    }

    fn add(&mut self, file: CompleteFile) {
        let (bytes, is_stuck) = (file.bytes, file.failures > 0);
        if self.complete.insert(file) {
            self.complete_bytes = self.complete_bytes.saturating_add(bytes);
            self.stuck += usize::from(is_stuck);
        }
    }

    fn remove(&mut self, file: &CompleteFile) -> bool {
        let was_there = self.complete.remove(file);
        if was_there {
            self.complete_bytes = self.complete_bytes.saturating_sub(file.bytes);
            self.stuck = self.stuck.saturating_sub(usize::from(file.failures > 0));
        }
        was_there
    }
}

impl RecordStorage {
    pub(super) fn new(records: PathBuf) -> Arc<Self> {
        Arc::new(Self { records, state: OrderedMutex::default() })
    }

    /// Searches the folders once. Files completed afterwards are newer than all files found.
    pub(super) fn scan(&self) {
        for session in disk::sessions(&self.records) {
            let folder = self.folder(&session);
            let (holder, files) = (StorageHolder::read(&folder), disk::files(&folder));
            let mut state = self.lock();
            let newest = files.iter().map(|file| file.time).max().unwrap_or(0);
            state.last = state.last.max(newest);
            state.is_changed = true;
            let session_folder = state.sessions.entry(session.clone()).or_default();
            if session_folder.session.is_none() && session_folder.writing.is_empty() {
                session_folder.holder = holder.clone();
            }
            session_folder.written.get_or_insert(holder);
            for file in files {
                if !session_folder.writing.contains_key(&*file.label) {
                    session_folder.add(file);
                }
            }
            self.forget(&mut state, &session);
        }
    }

    /// Adds recovered files of an earlier run.
    pub(super) fn recovered(&self, session: &Path, label: &Path) {
        let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
        let (Some(session), Some(label)) = (name(session), name(label)) else { return };
        let Ok(session) = Name::new(&session) else { return };
        let mut state = self.lock();
        // The lock is held while the folder is listed, so that a file deleted or completed meanwhile is counted once.
        let files = disk::files_of(&self.folder(&session), &label);
        state.is_changed = true;
        let Some(session_folder) =
            state.sessions.get_mut(&session).filter(|it| !it.writing.contains_key(&label))
        else {
            return;
        };
        let before: Vec<CompleteFile> =
            session_folder.complete.iter().filter(|file| *file.label == *label).cloned().collect();
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
        state.next_open += 1;
        let (number, limits) = (state.next_open, Arc::clone(limits));
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

    /// Deletes the oldest files beyond the limit of a session or holder. Returns the sessions for which files were
    /// tried.
    pub(super) fn enforce(&self, now: Instant) -> Vec<Enforced> {
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
        done.into_iter().map(|(session, files)| Enforced { session, files }).collect()
    }

    /// Updates the list after deletions and failures.
    fn record_results(&self, results: Vec<(plan::Deletion, std::io::Result<()>)>, now: Instant) {
        let mut state = self.lock();
        state.is_changed = true;
        let mut gone: BTreeMap<Name, Vec<u64>> = BTreeMap::new();
        // Sessions whose files were tried; true if none could be deleted.
        let mut tried: BTreeMap<Name, bool> = BTreeMap::new();
        let mut first_error = None;
        for (plan::Deletion { session, file, payer }, result) in results {
            let Some(session_folder) = state.sessions.get_mut(&session) else { continue };
            // The entry is missing if a search of the folder has replaced it.
            if !session_folder.remove(&file) {
                continue;
            }
            let is_blocked = tried.entry(session.clone()).or_insert(true);
            match result {
                Ok(()) => {
                    *is_blocked = false;
                    gone.entry(payer).or_default().push(file.bytes);
                }
                Err(error) => {
                    session_folder.add(CompleteFile { failures: file.failures.saturating_add(1), ..file });
                    state.failed = state.failed.saturating_add(1);
                    first_error.get_or_insert((session, error));
                }
            }
        }
        state.report(&gone);
        for (session, is_blocked) in tried {
            if let Some(session_folder) = state.sessions.get_mut(&session) {
                session_folder.paused_until = is_blocked.then(|| now + RETRY);
            }
            self.forget(&mut state, &session);
        }
        let is_stuck = state.sessions.values().any(|session_folder| session_folder.stuck > 0);
        let was_said = std::mem::replace(&mut state.is_logged, is_stuck);
        drop(state);
        match first_error {
            Some((session, error)) if !was_said => crate::log::session(&session).warn(&format_args!(
                "session {session}: record files beyond a limit cannot be deleted, and are tried again later: {error}"
            )),
            None if was_said && !is_stuck => crate::log::info("record files beyond a limit are all deleted again"),
            _ => {}
        }
    }

    /// Forgets a closed session without files, and removes its folder.
    fn forget(&self, state: &mut State, session: &Name) {
        let is_empty = |session_folder: &SessionFolder| {
            session_folder.session.is_none()
                && session_folder.writing.is_empty()
                && session_folder.complete.is_empty()
        };
        if state.sessions.get(session).is_some_and(is_empty) {
            state.sessions.remove(session);
            // The lock is held for three system calls, so that no file is created in the folder meanwhile.
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

    /// Marks the folder of this label as open. The holder is written into the session's folder before the first file.
    pub(super) fn begin(&self, label: &str) -> Result<(), PrivateError> {
        let holder = {
            let mut state = self.storage.lock();
            state.is_changed = true;
            let session_folder = state.sessions.entry(self.session.clone()).or_default();
            // The files of the folder are taken from the list of complete files first, so that none of them is deleted.
            let before: Vec<CompleteFile> =
                session_folder.complete.iter().filter(|file| &*file.label == label).cloned().collect();
            before.iter().for_each(|file| _ = session_folder.remove(file));
            session_folder.writing.insert(label.to_owned(), before.iter().map(|file| file.bytes).sum());
            (session_folder.written.as_ref() != Some(&session_folder.holder))
                .then(|| session_folder.holder.clone())
        };
        if let Some(holder) = holder {
            // An operator's session has no holder file, and usually no earlier one to remove.
            holder.write(&self.storage.records, &self.session)?;
            self.change(|session_folder| session_folder.written = Some(holder));
        }
        Ok(())
    }

    /// Updates and returns the bytes of an open folder.
    pub(super) fn grow(&self, label: &str) -> u64 {
        let bytes = disk::bytes_of(&self.folder(), label);
        self.change(|session_folder| {
            if let Some(known) = session_folder.writing.get_mut(label) {
                *known = bytes;
            }
        });
        bytes
    }

    /// Marks the files in the folder of this label as complete.
    pub(super) fn end(&self, label: &str) {
        let folder = self.folder();
        let mut files = disk::files_of(&folder, label);
        let mut state = self.storage.lock();
        // The files count as newer than all earlier files, even if the clock was set back.
        let (newest, last) = (files.iter().map(|file| file.time).max().unwrap_or(0), state.last);
        let time = newest.max(last.saturating_add(TIME_STEP));
        files.iter_mut().for_each(|file| file.time = time);
        state.is_changed = true;
        let session_folder = state.sessions.entry(self.session.clone()).or_default();
        if session_folder.writing.remove(label).is_none() || files.is_empty() {
            return;
        }
        files.iter().cloned().for_each(|file| session_folder.add(file));
        state.last = time;
        drop(state);
        if newest <= last {
            disk::set_time(&folder, &files);
        }
    }

    /// Returns the size at which a module's files are completed, so that they can be deleted before they fill the
    /// limit.
    pub(super) fn file_bytes_max(&self) -> u64 {
        let state = self.storage.lock();
        let Some(session_folder) = state.sessions.get(&self.session) else { return u64::MAX };
        let limit = session_folder.session.as_ref().and_then(|open| open.limits.get(Resource::RecordStorage));
        let Some(limit) = limit else { return u64::MAX };
        let modules = u64::try_from(session_folder.writing.len()).unwrap_or(u64::MAX).max(1);
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
        // A later session of that name may have opened the folder.
        if session_folder.session.as_ref().is_some_and(|open| open.number == self.number) {
            session_folder.session = None;
        }
        self.storage.forget(&mut state, &self.session);
    }
}
