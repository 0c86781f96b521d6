//! The choice of files to delete.

use super::disk::StorageQuota;
use super::{BATCH_MAX, CompleteFile, State};
use crate::sessions::limits::SessionLimits;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Instant;
use weir_admission::Name;
use weir_trust::credential::DelegationId;
use weir_trust::grant::Resource;

/// One part in `MARGIN_PART` of the limit is deleted in addition, so that not every new file requires a choice.
const MARGIN_PART: u64 = 16;

/// A file to delete.
#[derive(Debug)]
pub(super) struct Deletion {
    /// The session that the file belongs to.
    pub(super) session: Name,
    pub(super) file: CompleteFile,
    /// The open session that the deletion is charged to.
    pub(super) payer: Name,
}

/// The sessions under one delegation of a delegation chain.
struct Party<'a> {
    /// The ceiling of the grant.
    stated: Option<u64>,
    /// The sum of the open sessions' limits, which applies without a ceiling; `None` if one of them has no limit.
    of_sessions: Option<u64>,
    payer: &'a Name,
    bytes: u64,
}

impl Party<'_> {
    fn limit(&self) -> Option<u64> {
        let usual = Resource::RecordStorage.definition().limit.as_ref().and_then(|limit| limit.default);
        self.stated.or_else(|| self.of_sessions.map(|sum| sum.max(usual.unwrap_or(0))))
    }
}

/// The sessions under one delegation directly below another one, with their deletable files.
#[derive(Default)]
struct Child<'a> {
    bytes: u64,
    /// The next file of each closed session.
    first: BinaryHeap<Reverse<(&'a CompleteFile, &'a Name, usize)>>,
    /// The further files of each closed session.
    rest: Vec<std::iter::Skip<std::collections::btree_set::Iter<'a, CompleteFile>>>,
}

impl<'a> Child<'a> {
    fn add(&mut self, name: &'a Name, number: usize) {
        if let Some(file) = self.rest.get_mut(number).and_then(Iterator::next) {
            self.first.push(Reverse((file, name, number)));
        }
    }
}

/// Files chosen so far. The chosen files of a session are the first ones of its list.
#[derive(Default)]
struct Chosen<'a> {
    of: BTreeMap<&'a Name, (usize, u64)>,
    all: Vec<Deletion>,
}

impl<'a> Chosen<'a> {
    fn add(&mut self, session: &'a Name, file: &CompleteFile, payer: &Name) {
        let (count, bytes) = self.of.entry(session).or_default();
        (*count, *bytes) = (*count + 1, bytes.saturating_add(file.bytes));
        self.all.push(Deletion { session: session.clone(), file: file.clone(), payer: payer.clone() });
    }

    fn is_full(&self) -> bool {
        self.all.len() >= BATCH_MAX
    }

    fn chosen_of(&self, session: &Name) -> (usize, u64) {
        self.of.get(session).copied().unwrap_or_default()
    }
}

impl State {
    /// Returns true if anything has changed since the last call: files, limits, or the end of a pause.
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

    /// Returns the files to delete now, at most one batch.
    pub(super) fn plan(&self) -> Vec<Deletion> {
        let mut chosen = Chosen::default();
        for (name, session_folder) in &self.sessions {
            let limit = session_folder.session.as_ref().and_then(|open| open.enforced);
            let Some(limit) = limit.filter(|_| session_folder.paused_until.is_none()) else { continue };
            let mut bytes = session_folder.bytes();
            if bytes <= limit {
                continue;
            }
            for file in &session_folder.complete {
                if bytes <= wanted(limit) || chosen.is_full() {
                    break;
                }
                bytes = bytes.saturating_sub(file.bytes);
                chosen.add(name, file, name);
            }
        }
        for (id, party) in self.parties() {
            if let Some(limit) = party.limit().filter(|limit| party.bytes > *limit) {
                self.choose_closed(id, party.payer, limit, &mut chosen);
            }
        }
        chosen.all
    }

    /// Returns the delegations that have a limit and open sessions under them, with the bytes of all sessions under them.
    fn parties(&self) -> BTreeMap<DelegationId, Party<'_>> {
        let mut parties: BTreeMap<DelegationId, Party<'_>> = BTreeMap::new();
        for (name, session_folder) in &self.sessions {
            let Some(open) = &session_folder.session else { continue };
            for (id, allowance) in &session_folder.holder.0 {
                let Some(allowance) = allowance else { continue };
                let new = Party { stated: None, of_sessions: Some(0), payer: name, bytes: 0 };
                let party = parties.entry(*id).or_insert(new);
                match allowance {
                    StorageQuota::Stated(most) => {
                        party.stated = Some(party.stated.map_or(*most, |stated| stated.min(*most)));
                    }
                    StorageQuota::OfSessions => {
                        let sum = party.of_sessions.zip(open.enforced);
                        party.of_sessions = sum.map(|(sum, limit)| sum.saturating_add(limit));
                    }
                }
            }
        }
        for session_folder in self.sessions.values() {
            for id in session_folder.holder.ids() {
                if let Some(party) = parties.get_mut(&id) {
                    party.bytes = party.bytes.saturating_add(session_folder.bytes());
                }
            }
        }
        parties
    }

    /// Chooses files of closed sessions under this delegation, again and again the oldest file of the child delegation
    /// whose sessions have the most bytes. So a holder with few files loses none to a holder with many. Files of open
    /// sessions are not chosen: those sessions' own limits apply to them.
    fn choose_closed<'a>(&'a self, id: DelegationId, payer: &'a Name, limit: u64, chosen: &mut Chosen<'a>) {
        let mut children: BTreeMap<Option<DelegationId>, Child<'a>> = BTreeMap::new();
        for (name, session_folder) in &self.sessions {
            let mut below = session_folder.holder.ids().skip_while(|known| *known != id);
            if below.next().is_none() {
                continue;
            }
            let child = children.entry(below.next()).or_default();
            let (count, gone) = chosen.chosen_of(name);
            child.bytes = child.bytes.saturating_add(session_folder.bytes().saturating_sub(gone));
            if session_folder.session.is_none() && session_folder.paused_until.is_none() {
                child.rest.push(session_folder.complete.iter().skip(count));
                child.add(name, child.rest.len() - 1);
            }
        }
        let mut bytes = children.values().map(|child| child.bytes).fold(0, u64::saturating_add);
        if bytes <= limit {
            return;
        }
        while bytes > wanted(limit) && !chosen.is_full() {
            let with_files = children.values_mut().filter(|child| !child.first.is_empty());
            let Some(most) = with_files.max_by_key(|child| child.bytes) else { break };
            let Some(Reverse((file, name, number))) = most.first.pop() else { break };
            most.add(name, number);
            most.bytes = most.bytes.saturating_sub(file.bytes);
            bytes = bytes.saturating_sub(file.bytes);
            chosen.add(name, file, payer);
        }
    }

    /// Reports to the limits of open sessions the bytes of their files, and the deletions charged to them (`gone`).
    pub(super) fn report(&self, gone: &BTreeMap<Name, Vec<u64>>) {
        for (name, session_folder) in &self.sessions {
            if let Some(open) = &session_folder.session {
                let deleted = gone.get(name).map_or(&[][..], Vec::as_slice);
                report_to(&open.limits, session_folder.bytes(), deleted);
            }
        }
    }
}

/// Returns the bytes to which files beyond a limit are reduced.
fn wanted(limit: u64) -> u64 {
    limit.saturating_sub(limit / MARGIN_PART)
}

fn report_to(limits: &SessionLimits, kept: u64, deleted: &[u64]) {
    let bytes = deleted.iter().copied().fold(0, u64::saturating_add);
    limits.report(Resource::RecordStorage, |usage, used| {
        (usage.taken, usage.beyond) = (kept, usage.beyond.saturating_add(bytes));
        used.record_files_deleted = used.record_files_deleted.saturating_add(deleted.len() as u64);
        used.record_bytes_deleted.0 = used.record_bytes_deleted.0.saturating_add(bytes);
    });
}
