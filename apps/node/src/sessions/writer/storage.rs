//! The files of sessions' records on the disk: where they are more than a session or its holder may keep, the oldest are deleted.
//!
//! All files in a session's folder count, also those of an earlier life of the node or of a session of that name. Files of closed sessions count for their
//! [`StorageHolder`]: a session that is closed and made again under another name brings no more room. The folders are searched once, when the node starts; from then on
//! the list of files is in memory, and files are deleted while no lock is held.

mod disk;
mod plan;
#[cfg(test)]
mod tests;

pub(crate) use disk::StorageHolder;

use crate::sessions::limits::SessionLimits;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_admission::Name;
use weir_os::private::PrivateError;
use weir_trust::grant::Resource;

/// The present files of all modules of a session have this part of the limit together, so that others can be deleted for them; each module's …
const OPEN_PART: u64 = 8;
/// … have at least so many bytes, so that files are not ended all the time.
const OPEN_BYTES_MIN: u64 = 1 << 20;
/// Files that are deleted at a time, at most: meanwhile no records are written.
const BATCH_MAX: usize = 256;
/// Failures after which no more files of a session are tried at a time.
const FAILURES_MAX: usize = 8;
/// Time until the files of a session of which none could be deleted are tried again.
const RETRY: Duration = Duration::from_secs(10);
/// The least time between two files' ends, in nanoseconds: file systems tell microseconds apart.
const TIME_STEP: u64 = 1000;

/// The record files of all sessions of a node.
#[derive(Debug)]
pub(super) struct RecordStorage {
    records: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    sessions: BTreeMap<Name, Files>,
    /// The latest time of a file that was ended.
    last: u64,
    /// Something has changed since the limits were last enforced.
    is_changed: bool,
    /// It was said that files cannot be deleted.
    is_said: bool,
    /// Tries to delete a file that have failed.
    failed: u64,
    next_open: u64,
}

/// The files in the folder of one session.
#[derive(Debug, Default)]
struct Files {
    holder: StorageHolder,
    /// The holder that its folder names.
    written: Option<StorageHolder>,
    session: Option<Open>,
    /// The folders in which files are being written, and their bytes.
    writing: BTreeMap<String, u64>,
    /// The other files, the first to be deleted first.
    ended: BTreeSet<Ended>,
    /// Bytes of these.
    ended_bytes: u64,
    /// The number of these that could not be deleted.
    stuck: usize,
    /// Nothing of it is deleted before, because it could not be.
    rests_until: Option<Instant>,
}

/// An open session.
#[derive(Debug)]
struct Open {
    number: u64,
    limits: Arc<SessionLimits>,
    /// The limit that was enforced last.
    enforced: Option<u64>,
}

/// A file that is not being written. Files are deleted in this order: incomplete ones, of use only for their recovery, go last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ended {
    is_incomplete: bool,
    /// How often it could not be deleted: others are tried first.
    failures: u32,
    /// When it was ended, in nanoseconds since 1970, and later than each file that was ended before it, whatever the clock says.
    time: u64,
    label: Arc<str>,
    name: String,
    bytes: u64,
}

/// An open session, for its modules. It is closed when this is dropped.
#[derive(Debug)]
pub(crate) struct SessionFiles {
    storage: Arc<RecordStorage>,
    session: Name,
    number: u64,
}

/// The work of enforcing the limits that was done for a session.
pub(super) struct Enforced {
    pub(super) session: Name,
    /// Files that were tried.
    pub(super) files: u32,
}

impl Files {
    fn bytes(&self) -> u64 {
        self.writing.values().copied().fold(self.ended_bytes, u64::saturating_add)
    }

    fn add(&mut self, file: Ended) {
        let (bytes, is_stuck) = (file.bytes, file.failures > 0);
        if self.ended.insert(file) {
            self.ended_bytes = self.ended_bytes.saturating_add(bytes);
            self.stuck += usize::from(is_stuck);
        }
    }

    fn remove(&mut self, file: &Ended) -> bool {
        let was_there = self.ended.remove(file);
        if was_there {
            self.ended_bytes = self.ended_bytes.saturating_sub(file.bytes);
            self.stuck = self.stuck.saturating_sub(usize::from(file.failures > 0));
        }
        was_there
    }
}

impl RecordStorage {
    pub(super) fn new(records: PathBuf) -> Arc<Self> {
        Arc::new(Self { records, state: Mutex::default() })
    }

    /// Searches the folders, once: files that are ended afterwards are later than all that are there.
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

    /// Takes note of files that were recovered in the folder of an earlier life.
    pub(super) fn recovered(&self, session: &Path, label: &Path) {
        let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
        let (Some(session), Some(label)) = (name(session), name(label)) else { return };
        let Ok(session) = Name::new(&session) else { return };
        let mut state = self.lock();
        // While the lock is held: a file that is deleted or ended meanwhile is counted once.
        let files = disk::files_of(&self.folder(&session), &label);
        state.is_changed = true;
        let Some(there) = state.sessions.get_mut(&session).filter(|it| !it.writing.contains_key(&label))
        else {
            return;
        };
        let before: Vec<Ended> = there.ended.iter().filter(|file| *file.label == *label).cloned().collect();
        before.iter().for_each(|file| _ = there.remove(file));
        files.into_iter().for_each(|file| there.add(file));
    }

    /// Opens a session with its limits. Its files are the holder's.
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
        there.session = Some(Open { number, limits, enforced: None });
        there.holder = holder;
        Arc::new(SessionFiles { storage: Arc::clone(self), session: session.clone(), number })
    }

    /// Tries to delete a file that have failed.
    pub(super) fn failed(&self) -> u64 {
        self.lock().failed
    }

    /// Deletes the oldest files where there are more bytes than a session or a holder may keep. Returns for which sessions files were tried.
    pub(super) fn enforce(&self, now: Instant) -> Vec<Enforced> {
        let doomed = {
            let mut state = self.lock();
            if !state.is_due(now) {
                return Vec::new();
            }
            let doomed = state.plan();
            if doomed.is_empty() {
                state.tell(&BTreeMap::new());
                return Vec::new();
            }
            doomed
        };
        let mut done: BTreeMap<Name, u32> = BTreeMap::new();
        let mut failures: BTreeMap<Name, usize> = BTreeMap::new();
        let mut results = Vec::with_capacity(doomed.len());
        for it in doomed {
            let failures = failures.entry(it.session.clone()).or_default();
            if *failures >= FAILURES_MAX {
                continue;
            }
            let result = disk::delete(&self.folder(&it.session), &it.file);
            *failures += usize::from(result.is_err());
            *done.entry(it.payer.clone()).or_default() += 1;
            results.push((it, result));
        }
        self.settle(results, now);
        done.into_iter().map(|(session, files)| Enforced { session, files }).collect()
    }

    /// Takes note of deleted files, and of those that could not be.
    fn settle(&self, results: Vec<(plan::Doomed, std::io::Result<()>)>, now: Instant) {
        let mut state = self.lock();
        state.is_changed = true;
        let mut gone: BTreeMap<Name, Vec<u64>> = BTreeMap::new();
        // The sessions, and whether none of their files could be deleted.
        let mut tried: BTreeMap<Name, bool> = BTreeMap::new();
        let mut first_error = None;
        for (plan::Doomed { session, file, payer }, result) in results {
            let Some(there) = state.sessions.get_mut(&session) else { continue };
            // The folder was searched meanwhile, and says what is there.
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
                    there.add(Ended { failures: file.failures.saturating_add(1), ..file });
                    state.failed = state.failed.saturating_add(1);
                    first_error.get_or_insert((session, error));
                }
            }
        }
        state.tell(&gone);
        for (session, is_blocked) in tried {
            if let Some(there) = state.sessions.get_mut(&session) {
                there.rests_until = is_blocked.then(|| now + RETRY);
            }
            self.forget(&mut state, &session);
        }
        let is_stuck = state.sessions.values().any(|there| there.stuck > 0);
        let was_said = std::mem::replace(&mut state.is_said, is_stuck);
        drop(state);
        match first_error {
            Some((session, error)) if !was_said => crate::server::log::session(&session).warn(&format_args!(
                "session {session}: record files beyond a limit cannot be deleted, and are tried again later: {error}"
            )),
            None if was_said && !is_stuck => crate::server::log::say("record files beyond a limit are all deleted again"),
            _ => {}
        }
    }

    /// Forgets a closed session without files, and removes its folder.
    fn forget(&self, state: &mut State, session: &Name) {
        let is_empty =
            |there: &Files| there.session.is_none() && there.writing.is_empty() && there.ended.is_empty();
        if state.sessions.get(session).is_some_and(is_empty) {
            state.sessions.remove(session);
            // While nothing can begin there: three calls of the system.
            disk::remove_empty(&self.folder(session));
        }
    }

    fn folder(&self, session: &Name) -> PathBuf {
        self.records.join(session.as_str())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionFiles {
    /// The limits of the session, and its holder, as they are now.
    pub(crate) fn held_to(&self, limits: &Arc<SessionLimits>) {
        self.change(|there| {
            if let Some(open) = &mut there.session {
                open.limits = Arc::clone(limits);
            }
        });
    }

    /// The holder as it is now.
    pub(crate) fn belong_to(&self, holder: StorageHolder) {
        self.change(|there| there.holder = holder);
    }

    /// The folder of the session.
    pub(super) fn folder(&self) -> PathBuf {
        self.storage.folder(&self.session)
    }

    /// Files are being written in the folder of this label from now on. The session's folder names its holder before there are any.
    pub(super) fn begin(&self, label: &str) -> Result<(), PrivateError> {
        let holder = {
            let mut state = self.storage.lock();
            state.is_changed = true;
            let there = state.sessions.entry(self.session.clone()).or_default();
            // Before there are any: then nothing that is made here counts as ended, or is deleted.
            let before: Vec<Ended> =
                there.ended.iter().filter(|file| &*file.label == label).cloned().collect();
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

    /// The files in the folder of this label have grown. Returns their bytes.
    pub(super) fn grow(&self, label: &str) -> u64 {
        let bytes = disk::bytes_of(&self.folder(), label);
        self.change(|there| {
            if let Some(known) = there.writing.get_mut(label) {
                *known = bytes;
            }
        });
        bytes
    }

    /// The files in the folder of this label are ended.
    pub(super) fn end(&self, label: &str) {
        let folder = self.folder();
        let mut files = disk::files_of(&folder, label);
        let mut state = self.storage.lock();
        // Newer than all that were ended before, though the clock may have been set back.
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

    /// The bytes on the disk with which a module's files are ended: so that they can be deleted before they have taken the whole limit.
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
        // Another one of that name may have been opened since.
        if there.session.as_ref().is_some_and(|open| open.number == self.number) {
            there.session = None;
        }
        self.storage.forget(&mut state, &self.session);
    }
}
