//! The choice of record files to delete when a limit is exceeded.

use super::disk::StorageQuota;
use super::{BATCH_MAX, ClosedFile, State};
use crate::sessions::limits::SessionLimits;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Instant;
use weir_admission::Name;
use weir_trust::credential::DelegationId;
use weir_trust::grant::Resource;

/// Number of parts of a limit of which one is freed in addition to the excess, so that not every new file causes
/// deletions.
const MARGIN_PART: u64 = 16;

/// A file to delete.
#[derive(Debug)]
pub(super) struct Deletion {
    /// Session that the file belongs to.
    pub(super) session: Name,
    pub(super) file: ClosedFile,
    /// Open session that the deletion is charged to.
    pub(super) payer: Name,
}

/// The sessions under one delegation that limits their record bytes together.
struct LimitedDelegation<'a> {
    /// The ceiling that the grant states.
    stated: Option<u64>,
    /// Sum of the open sessions' limits, which applies if no ceiling is stated; `None` if a session has no limit.
    of_sessions: Option<u64>,
    /// Open session that deletions are charged to.
    payer: &'a Name,
    /// Record bytes of all sessions under the delegation.
    bytes: u64,
}

impl LimitedDelegation<'_> {
    fn limit(&self) -> Option<u64> {
        let default = Resource::RecordStorage.definition().limit.as_ref().and_then(|limit| limit.default);
        self.stated.or_else(|| self.of_sessions.map(|sum| sum.max(default.unwrap_or(0))))
    }
}

/// The sessions under one direct sub-delegation of a limited delegation, with their deletable files.
#[derive(Default)]
struct SubDelegation<'a> {
    bytes: u64,
    /// The next file to delete of each closed session, with the session's index in `rest`.
    next_files: BinaryHeap<Reverse<(&'a ClosedFile, &'a Name, usize)>>,
    /// The later files of each closed session.
    rest: Vec<std::iter::Skip<std::collections::btree_set::Iter<'a, ClosedFile>>>,
}

impl<'a> SubDelegation<'a> {
    fn add(&mut self, name: &'a Name, number: usize) {
        if let Some(file) = self.rest.get_mut(number).and_then(Iterator::next) {
            self.next_files.push(Reverse((file, name, number)));
        }
    }
}

/// The files that have been chosen so far. Of each session, the first files of its list are chosen.
#[derive(Default)]
struct Chosen<'a> {
    /// Number and bytes of the chosen files of each session.
    by_session: BTreeMap<&'a Name, (usize, u64)>,
    deletions: Vec<Deletion>,
}

impl<'a> Chosen<'a> {
    fn add(&mut self, session: &'a Name, file: &ClosedFile, payer: &Name) {
        let (count, bytes) = self.by_session.entry(session).or_default();
        (*count, *bytes) = (*count + 1, bytes.saturating_add(file.bytes));
        self.deletions.push(Deletion { session: session.clone(), file: file.clone(), payer: payer.clone() });
    }

    fn is_full(&self) -> bool {
        self.deletions.len() >= BATCH_MAX
    }

    fn chosen_of(&self, session: &Name) -> (usize, u64) {
        self.by_session.get(session).copied().unwrap_or_default()
    }
}

impl State {
    /// Returns true if files or limits have changed or a pause has ended since the last call.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let mut is_due = std::mem::take(&mut self.is_changed);
        for session_folder in self.sessions.values_mut() {
            if let Some(open) = &mut session_folder.session {
                let limit = open.limits.get(Resource::RecordStorage);
                is_due |= open.enforced != limit;
                open.enforced = limit;
            }
            if session_folder.paused_until.is_some_and(|until| until <= now) {
                (session_folder.paused_until, is_due) = (None, true);
            }
        }
        is_due
    }

    /// Returns the files to delete now, at most [`BATCH_MAX`].
    pub(super) fn plan(&self) -> Vec<Deletion> {
        let mut chosen = Chosen::default();
        for (name, session_folder) in &self.sessions {
            let limit = session_folder.session.as_ref().and_then(|open| open.enforced);
            let Some(limit) = limit.filter(|_| session_folder.paused_until.is_none()) else { continue };
            let mut bytes = session_folder.bytes();
            if bytes <= limit {
                continue;
            }
            for file in &session_folder.closed {
                if bytes <= reduced(limit) || chosen.is_full() {
                    break;
                }
                bytes = bytes.saturating_sub(file.bytes);
                chosen.add(name, file, name);
            }
        }
        for (id, limited) in self.limited_delegations() {
            if let Some(limit) = limited.limit().filter(|limit| limited.bytes > *limit) {
                self.choose_closed(id, limited.payer, limit, &mut chosen);
            }
        }
        chosen.deletions
    }

    /// Returns the delegations that have a limit and at least one open session, with the bytes of all sessions under
    /// them.
    fn limited_delegations(&self) -> BTreeMap<DelegationId, LimitedDelegation<'_>> {
        let mut delegations: BTreeMap<DelegationId, LimitedDelegation<'_>> = BTreeMap::new();
        for (name, session_folder) in &self.sessions {
            let Some(open) = &session_folder.session else { continue };
            for (id, quota) in &session_folder.holder.0 {
                let Some(quota) = quota else { continue };
                let new = LimitedDelegation { stated: None, of_sessions: Some(0), payer: name, bytes: 0 };
                let limited = delegations.entry(*id).or_insert(new);
                match quota {
                    StorageQuota::Stated(most) => {
                        limited.stated = Some(limited.stated.map_or(*most, |stated| stated.min(*most)));
                    }
                    StorageQuota::OfSessions => {
                        let sum = limited.of_sessions.zip(open.enforced);
                        limited.of_sessions = sum.map(|(sum, limit)| sum.saturating_add(limit));
                    }
                }
            }
        }
        for session_folder in self.sessions.values() {
            for id in session_folder.holder.ids() {
                if let Some(limited) = delegations.get_mut(&id) {
                    limited.bytes = limited.bytes.saturating_add(session_folder.bytes());
                }
            }
        }
        delegations
    }

    /// Chooses files of closed sessions under this delegation until their bytes are within the limit. Each step
    /// chooses the oldest file of the direct sub-delegation whose sessions have the most bytes, so a holder with few
    /// files loses none because of a holder with many. Files of open sessions are not chosen: the sessions' own limits
    /// apply to them.
    fn choose_closed<'a>(&'a self, id: DelegationId, payer: &'a Name, limit: u64, chosen: &mut Chosen<'a>) {
        let mut children: BTreeMap<Option<DelegationId>, SubDelegation<'a>> = BTreeMap::new();
        for (name, session_folder) in &self.sessions {
            let mut below = session_folder.holder.ids().skip_while(|known| *known != id);
            if below.next().is_none() {
                continue;
            }
            let child = children.entry(below.next()).or_default();
            let (count, chosen_bytes) = chosen.chosen_of(name);
            child.bytes = child.bytes.saturating_add(session_folder.bytes().saturating_sub(chosen_bytes));
            if session_folder.session.is_none() && session_folder.paused_until.is_none() {
                child.rest.push(session_folder.closed.iter().skip(count));
                child.add(name, child.rest.len() - 1);
            }
        }
        let mut bytes = children.values().map(|child| child.bytes).fold(0, u64::saturating_add);
        if bytes <= limit {
            return;
        }
        while bytes > reduced(limit) && !chosen.is_full() {
            let with_files = children.values_mut().filter(|child| !child.next_files.is_empty());
            let Some(largest) = with_files.max_by_key(|child| child.bytes) else { break };
            let Some(Reverse((file, name, number))) = largest.next_files.pop() else { break };
            largest.add(name, number);
            largest.bytes = largest.bytes.saturating_sub(file.bytes);
            bytes = bytes.saturating_sub(file.bytes);
            chosen.add(name, file, payer);
        }
    }

    /// Reports the bytes of their files to the limits of open sessions, with the bytes of each deleted file that is
    /// charged to them.
    pub(super) fn report(&self, deleted_bytes: &BTreeMap<Name, Vec<u64>>) {
        for (name, session_folder) in &self.sessions {
            if let Some(open) = &session_folder.session {
                let deleted = deleted_bytes.get(name).map_or(&[][..], Vec::as_slice);
                report_to(&open.limits, session_folder.bytes(), deleted);
            }
        }
    }
}

/// Returns the bytes to which files are reduced that exceed this limit.
fn reduced(limit: u64) -> u64 {
    limit.saturating_sub(limit / MARGIN_PART)
}

fn report_to(limits: &SessionLimits, kept: u64, deleted: &[u64]) {
    let bytes = deleted.iter().copied().fold(0, u64::saturating_add);
    limits.report(Resource::RecordStorage, |usage, used| {
        (usage.in_use, usage.refused) = (kept, usage.refused.saturating_add(bytes));
        used.record_files_deleted = used.record_files_deleted.saturating_add(deleted.len() as u64);
        used.record_bytes_deleted.0 = used.record_bytes_deleted.0.saturating_add(bytes);
    });
}
