//! Saves sessions that requests have created, so that the next start of the node restores them.
//!
//! The rate of writes is limited for each party: all holders with the same first identifier in their
//! [delegation chains](delegation_chain). The operator has no limit.

use super::Daemon;
use crate::control::authority::delegation_chain;
use crate::log::{self, warn};
use crate::server::session_store::{SessionStore, StoreError};
use crate::sessions::saved::ModuleOrigin;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_admission::Name;
use weir_trust::credential::DelegationId;
use weir_trust::gate::{RateLimit, RateLimiter};
use weir_trust::grant::ModuleHash;
use weir_units::{Escape as _, Nanos};

/// The rate limit for immediate writes of one party's sessions, so that requests do not keep the disk busy. Sessions beyond
/// the limit are written within [`DELAY_MAX`].
const RATE: RateLimit = RateLimit { every: Nanos(500 * Nanos::MILLISECOND.0), burst: 16 };
/// The maximum number of parties whose rates are tracked.
const TRACKED_MAX: usize = 1024;
/// The interval at which delayed sessions are written.
const DELAY_MAX: Duration = Duration::from_secs(1);
/// The interval at which the writing thread looks whether the node stops.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The minimum time between two log lines about sessions that cannot be saved.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Sessions that still have to be written.
#[derive(Debug)]
pub(super) struct SaveQueue {
    started: Instant,
    rates: RateLimiter<DelegationId>,
    waiting: BTreeSet<Name>,
    last_logged: Option<Instant>,
}

impl Default for SaveQueue {
    fn default() -> Self {
        let rates = RateLimiter::new(RATE, TRACKED_MAX);
        Self { started: Instant::now(), rates, waiting: BTreeSet::new(), last_logged: None }
    }
}

impl SaveQueue {
    /// Returns true if a session of this party may be written at once. Otherwise notes the session for a later write.
    fn admit(&mut self, session: &Name, party: Option<DelegationId>) -> bool {
        let Some(party) = party else { return true };
        let now = Nanos::from(self.started.elapsed());
        if !self.rates.may_proceed(&party, now) {
            self.add(session);
            return false;
        }
        self.rates.charge(party, now);
        true
    }

    /// Notes a session that has changed, to be written within [`DELAY_MAX`].
    pub(super) fn add(&mut self, session: &Name) {
        self.waiting.insert(session.clone());
    }

    /// Notes a session that could not be written. After a transient error it is written again later. Returns true if a log
    /// line is due.
    fn note_failure(&mut self, session: &Name, is_transient: bool) -> bool {
        if is_transient {
            self.add(session);
        }
        let now = Instant::now();
        let is_due = self.last_logged.is_none_or(|at| now.saturating_duration_since(at) >= LOG_INTERVAL);
        if is_due {
            self.last_logged = Some(now);
        }
        is_due
    }
}

impl Daemon {
    /// Saves the present form of a session, or removes its file if the session is closed.
    pub(super) fn save(&self, session: &Name) {
        let party = {
            let node = self.node.lock();
            let owner = node.sessions.get(session).and_then(|state| state.owner.as_ref());
            owner.and_then(|owner| delegation_chain(&owner.credential).next()).map(|(first, _)| first)
        };
        if self.save_queue.with(|queue| queue.admit(session, party)) {
            self.save_now(session);
        }
    }

    /// Saves a session without the rate limit. Called after an unload or a close, so that a start after a crash does not
    /// restore the module or the session. These writes are few: a close removes only a file that was written, and each
    /// unload follows a load.
    pub(super) fn save_now(&self, session: &Name) {
        let mut store = self.store.lock();
        if store.is_none() {
            return;
        }
        // Read under the store's lock, so that an earlier form never replaces a later one.
        let saved = self.node.lock_after(&store).saved_session(session);
        let Some(open) = store.as_mut() else { return };
        let (is_open, written) = match saved {
            Some(saved) => (true, open.write(saved)),
            None => (false, open.remove(session)),
        };
        drop(store);
        self.log_unsaved(session, is_open, written);
    }

    fn log_unsaved(&self, session: &Name, is_open: bool, written: Result<(), StoreError>) {
        let Err(error) = written else { return };
        // A holder can cause any number of failures, by changing a session that has no space, so log lines are limited.
        if !self.save_queue.with(|queue| queue.note_failure(session, error.is_transient())) {
            return;
        }
        let line = log::session(session);
        match error {
            error if !is_open => line.warn(&format_args!(
                "session {session} is closed, and its file cannot be removed, so a restart of the node may restore it: {error}"
            )),
            error @ StoreError::Stays(..) => {
                line.warn(&format_args!("session {session} cannot be saved: {error}"));
            }
            error => line.warn(&format_args!(
                "session {session} cannot be saved, and its earlier file is removed, so a restart of the node ends it: {error}"
            )),
        }
    }

    /// Saves the file of a module that a request has loaded.
    pub(super) fn save_module(&self, session: &Name, hash: ModuleHash, file: &[u8]) {
        let mut store = self.store.lock();
        if store.is_none() {
            return;
        }
        let saved = self.node.lock_after(&store).saved_session(session);
        let (Some(open), Some(saved)) = (store.as_mut(), saved) else { return };
        let written = open.add_module(session, &saved.claimed_chain(), hash, file);
        drop(store);
        if let Err(error) = written
            && self.save_queue.with(|queue| queue.note_failure(session, false))
        {
            log::session(session).warn(&format_args!(
                "a module of session {session} cannot be saved, so a restart of the node ends it: {error}"
            ));
        }
    }

    /// Writes delayed sessions until the node stops.
    pub(super) fn save_delayed(&self, is_ending: &AtomicBool) {
        let mut next = Instant::now() + DELAY_MAX;
        while !is_ending.load(Ordering::Acquire) {
            std::thread::sleep(POLL_INTERVAL);
            if Instant::now() >= next {
                next = Instant::now() + DELAY_MAX;
                self.save_waiting();
            }
        }
    }

    fn save_waiting(&self) {
        let waiting = self.save_queue.with(|queue| std::mem::take(&mut queue.waiting));
        waiting.iter().for_each(|session| self.save_now(session));
    }

    /// Writes the last changes before the node stops. From now on no session is written or removed.
    pub(super) fn end_saving(&self, has_survived: bool) {
        self.save_waiting();
        if let Some(store) = self.store.lock().take().filter(|_| has_survived) {
            store.guard().clear();
        }
    }

    /// Opens the folder of saved sessions. Without it no session is saved, and the node runs on.
    pub(super) fn open_store(&self) -> Option<SessionStore> {
        let state = self.with_node(|node| node.config.node.state.clone());
        let opened = SessionStore::open(&state);
        opened
            .inspect_err(|error| {
                warn(&format_args!(
                    "{}: sessions are neither saved nor restored: {error}",
                    state.join(crate::server::session_store::FOLDER).escaped()
                ));
            })
            .ok()
    }
}

/// Returns the origin of a loaded module: a file with this hash, or a shipped module.
pub(super) fn module_origin(is_file: bool, hash: ModuleHash, signatures: &[String]) -> ModuleOrigin {
    ModuleOrigin { file: is_file.then_some(hash), signatures: signatures.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_one_party_are_written_at_a_limited_rate_and_none_is_forgotten() {
        let mut queue = SaveQueue::default();
        let name = |number: usize| Name::new(&format!("s{number}")).unwrap();
        let party: DelegationId = format!("weir-id:{}", "a".repeat(32)).parse().unwrap();
        let at_once = (0..100).filter(|number| queue.admit(&name(*number), Some(party))).count();
        assert!((16..=20).contains(&at_once), "{at_once}");
        assert_eq!(queue.waiting.len(), 100 - at_once);
        assert!((0..100).all(|number| queue.admit(&name(number), None)));
        assert!(queue.note_failure(&name(200), true) && !queue.note_failure(&name(201), true));
        assert!(queue.waiting.contains(&name(201)));
    }
}
