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

/// The open files of all modules of a session may take this fraction of its limit, so that older files can be deleted
/// for them.
const OPEN_PART: u64 = 8;
/// The open files of a module may have at least this size, so that files are not completed all the time.
const OPEN_BYTES_MIN: u64 = 1 << 20;
/// The most files that are deleted at once. No records are written meanwhile.
const BATCH_MAX: usize = 256;
/// Failures after which no more files of a session are tried at once.
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

#[derive(Debug, Default)]
struct State {
    sessions: BTreeMap<Name, Files>,
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

/// The files in the folder of one session.
#[derive(Debug, Default)]
struct Files {
    holder: StorageHolder,
    /// The holder that is written in its folder.
    written: Option<StorageHolder>,
    session: Option<OpenSession>,
    /// Bytes of the folders with open files.
    writing: BTreeMap<String, u64>,
    /// Other files, in the order of deletion.
    complete: BTreeSet<CompleteFile>,
    complete_bytes: u64,
    /// The number of them that could not be deleted.
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

/// Work done to enforce a session's limits.
pub(super) struct Enforced {
    pub(super) session: Name,
    /// Files that were tried.
    pub(super) files: u32,
}

impl Files {
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
            let there = state.sessions.entry(session.clone()).or_default();
            if there.session.is_none() && there.writing.is_empty() {
                there.holder = holder.clone();
            }
            there.written.get_or_insert(holder);
            for file in files {
                if !there.writing.contains_key(&*file.label) {
                    there.add(file);
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
        // The lock is held, so that a file deleted or completed meanwhile is counted once.
        let files = disk::files_of(&self.folder(&session), &label);
        state.is_changed = true;
        let Some(there) = state.sessions.get_mut(&session).filter(|it| !it.writing.contains_key(&label))
        else {
            return;
        };
        let before: Vec<CompleteFile> =
            there.complete.iter().filter(|file| *file.label == *label).cloned().collect();
        before.iter().for_each(|file| _ = there.remove(file));
        files.into_iter().for_each(|file| there.add(file));
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
        let there = state.sessions.entry(session.clone()).or_default();
        there.session = Some(OpenSession { number, limits, enforced: None });
        there.holder = holder;
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
            let Some(there) = state.sessions.get_mut(&session) else { continue };
            // A search of the folder has replaced the entry.
            if !there.remove(&file) {
                continue;
            }
            let is_blocked = tried.entry(session.clone()).or_insert(true);
            match result {
                Ok(()) => {
                    *is_blocked = false;
                    gone.entry(payer).or_default().push(file.bytes);
                }
                Err(error) => {
                    there.add(CompleteFile { failures: file.failures.saturating_add(1), ..file });
                    state.failed = state.failed.saturating_add(1);
                    first_error.get_or_insert((session, error));
                }
            }
        }
        state.report(&gone);
        for (session, is_blocked) in tried {
            if let Some(there) = state.sessions.get_mut(&session) {
                there.paused_until = is_blocked.then(|| now + RETRY);
            }
            self.forget(&mut state, &session);
        }
        let is_stuck = state.sessions.values().any(|there| there.stuck > 0);
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
        let is_empty =
            |there: &Files| there.session.is_none() && there.writing.is_empty() && there.complete.is_empty();
        if state.sessions.get(session).is_some_and(is_empty) {
            state.sessions.remove(session);
            // The lock is held for three system calls, so that no file is created there meanwhile.
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
        self.change(|there| {
            if let Some(open) = &mut there.session {
                open.limits = Arc::clone(limits);
            }
        });
    }

    /// Replaces the holder.
    pub(crate) fn set_holder(&self, holder: StorageHolder) {
        self.change(|there| there.holder = holder);
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
            let there = state.sessions.entry(self.session.clone()).or_default();
            // Removed from the list first, so that no new file counts as complete or is deleted.
            let before: Vec<CompleteFile> =
                there.complete.iter().filter(|file| &*file.label == label).cloned().collect();
            before.iter().for_each(|file| _ = there.remove(file));
            there.writing.insert(label.to_owned(), before.iter().map(|file| file.bytes).sum());
            (there.written.as_ref() != Some(&there.holder)).then(|| there.holder.clone())
        };
        if let Some(holder) = holder {
            // An operator's session has no such file, and usually none to remove.
            holder.write(&self.storage.records, &self.session)?;
            self.change(|there| there.written = Some(holder));
        }
        Ok(())
    }

    /// Updates and returns the bytes of an open folder.
    pub(super) fn grow(&self, label: &str) -> u64 {
        let bytes = disk::bytes_of(&self.folder(), label);
        self.change(|there| {
            if let Some(known) = there.writing.get_mut(label) {
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
        // Newer than all earlier files, even if the clock was set back.
        let (newest, last) = (files.iter().map(|file| file.time).max().unwrap_or(0), state.last);
        let time = newest.max(last.saturating_add(TIME_STEP));
        files.iter_mut().for_each(|file| file.time = time);
        state.is_changed = true;
        let there = state.sessions.entry(self.session.clone()).or_default();
        if there.writing.remove(label).is_none() || files.is_empty() {
            return;
        }
        files.iter().cloned().for_each(|file| there.add(file));
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
        let Some(there) = state.sessions.get(&self.session) else { return u64::MAX };
        let limit = there.session.as_ref().and_then(|open| open.limits.get(Resource::RecordStorage));
        let Some(limit) = limit else { return u64::MAX };
        let modules = u64::try_from(there.writing.len()).unwrap_or(u64::MAX).max(1);
        (limit / OPEN_PART / modules).max(OPEN_BYTES_MIN)
    }

    fn change(&self, change: impl FnOnce(&mut Files)) {
        let mut state = self.storage.lock();
        state.is_changed = true;
        change(state.sessions.entry(self.session.clone()).or_default());
    }
}

impl Drop for SessionFiles {
    fn drop(&mut self) {
        let mut state = self.storage.lock();
        state.is_changed = true;
        let Some(there) = state.sessions.get_mut(&self.session) else { return };
        // A later session of that name may have opened it.
        if there.session.as_ref().is_some_and(|open| open.number == self.number) {
            there.session = None;
        }
        self.storage.forget(&mut state, &self.session);
    }
}
