//! Access from elsewhere: counters of the peers that connect, and log lines on floods of them.

use crate::control::protocol::RemoteStatus;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_remote::{AcceptCounters, Acceptor};

/// The reason for which a peer is refused that has proven who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It showed a credential that is not valid here, and was told why.
    Credential,
    /// The same, but the pool of unverified peers was full: its connection was closed without a word.
    Unheard,
    /// It has a right to be here, but all slots for such clients are taken.
    Slots,
    /// It showed no credential, and all places for such peers are taken.
    Anonymous,
    /// The system gave no thread.
    Thread,
}

const CAUSES: [(Cause, &str); 5] = [
    (Cause::Credential, "credential"),
    (Cause::Unheard, "credential-unheard"),
    (Cause::Slots, "slots"),
    (Cause::Anonymous, "anonymous"),
    (Cause::Thread, "thread"),
];

/// Counters of access from elsewhere.
#[derive(Debug, Default)]
pub(crate) struct RemoteAccessCounters {
    acceptor: OnceLock<Acceptor>,
    refused: [AtomicU64; CAUSES.len()],
    clients: AtomicU64,
}

/// A client that has a slot, for as long as this is there.
#[derive(Debug)]
pub(crate) struct Connected<'a>(&'a AtomicU64);

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl RemoteAccessCounters {
    /// Takes the counters of this acceptor in.
    pub(crate) fn begin(&self, acceptor: &Acceptor) {
        _ = self.acceptor.set(acceptor.clone());
    }

    /// Counts a refused peer.
    pub(crate) fn refused(&self, cause: Cause) {
        if let Some(count) = self.refused.get(cause as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a client.
    pub(crate) fn connected(&self) -> Connected<'_> {
        self.clients.fetch_add(1, Ordering::Relaxed);
        Connected(&self.clients)
    }

    /// The counters; nothing where the node is not reached from elsewhere.
    pub(crate) fn shot(&self) -> Option<RemoteStatus> {
        let counters = self.acceptor.get()?.counters();
        let AcceptCounters { gate, half_open, authenticated, .. } = counters;
        let by_cause = [
            ("displaced", gate.evicted),
            ("late", gate.late),
            ("source-rate", gate.refused_source),
            ("invalid", counters.invalid),
            ("closed", counters.closed),
            ("failed", counters.failed),
        ];
        let by_cause = by_cause.into_iter().chain(
            CAUSES
                .into_iter()
                .zip(&self.refused)
                .map(|((_, name), count)| (name, count.load(Ordering::Relaxed))),
        );
        Some(RemoteStatus {
            connections: gate.admitted,
            half_open: half_open as u64,
            answered: gate.answered,
            unanswered: gate.unanswered,
            authenticated,
            proven: gate.proven,
            clients: self.clients.load(Ordering::Relaxed),
            refused: by_cause.map(|(name, count)| (name.to_owned(), count)).collect(),
        })
    }
}

/// Refused peers in [`WINDOW`] from which on there is a log line.
const FEW: u64 = 100;
/// The time between two log lines on refused peers.
const WINDOW: Duration = Duration::from_secs(60);

/// The log lines about floods of refused peers: one when a flood begins, and then one a minute while it lasts.
#[derive(Debug)]
pub(crate) struct FloodLog {
    since: Instant,
    before: BTreeMap<String, u64>,
    is_quiet: bool,
}

impl FloodLog {
    pub(crate) fn new(now: Instant) -> Self {
        Self { since: now, before: BTreeMap::new(), is_quiet: true }
    }

    /// The line that is due, if one is. `refused` are all that were refused so far, by cause.
    pub(crate) fn line(&mut self, refused: &BTreeMap<String, u64>, now: Instant) -> Option<String> {
        let of = |name: &str| self.before.get(name).copied().unwrap_or(0);
        let new: Vec<(&String, u64)> = refused
            .iter()
            .map(|(name, count)| (name, count.saturating_sub(of(name))))
            .filter(|(_, count)| *count > 0)
            .collect();
        let sum = new.iter().map(|(_, count)| count).sum::<u64>();
        let (elapsed, is_flood) = (now.saturating_duration_since(self.since), sum >= FEW);
        if elapsed < WINDOW && !(is_flood && self.is_quiet) {
            return None;
        }
        let line = is_flood.then(|| {
            let mut line = format!(
                "{sum} connections from elsewhere were refused or given up in the last {} s:",
                elapsed.as_secs().max(1)
            );
            for (place, (name, count)) in new.iter().enumerate() {
                _ = write!(line, "{} {name} {count}", if place == 0 { "" } else { "," });
            }
            line + " (see \"Over the network\" in docs/OPERATING.md)"
        });
        (self.since, self.before, self.is_quiet) = (now, refused.clone(), !is_flood);
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_own_counter() {
        for (place, (cause, _)) in CAUSES.into_iter().enumerate() {
            assert_eq!(cause as usize, place);
        }
        let access = RemoteAccessCounters::default();
        assert_eq!(access.shot(), None);
        access.begin(&Acceptor::new(weir_trust::gate::GateLimits::default()));
        access.refused(Cause::Unheard);
        let client = access.connected();
        let shot = access.shot().unwrap();
        assert_eq!((shot.refused["credential-unheard"], shot.refused["credential"], shot.clients), (1, 0, 1));
        assert_eq!(shot.refused.len(), 6 + CAUSES.len());
        drop(client);
        assert_eq!(access.shot().unwrap().clients, 0);
    }

    #[test]
    fn a_flood_has_a_line_at_once_and_then_one_a_minute() {
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let mut log = FloodLog::new(begin);
        let refused = |count: u64| BTreeMap::from([("closed".to_owned(), 3), ("late".to_owned(), count)]);
        // An hour of 1,000 a second, looked at each 100 ms: one line when it begins, and one a minute.
        let lines: Vec<String> =
            (1..=36_000).filter_map(|step| log.line(&refused(step * 100), at(step * 100))).collect();
        assert_eq!(lines.len(), 60, "{:?}", lines.first());
        assert!(
            lines[0].starts_with("103 connections from elsewhere")
                && lines[0].contains(": closed 3, late 100 (")
        );
        assert!(
            lines[1].starts_with("60000 connections") && lines[1].contains("in the last 60 s: late 60000")
        );
        // A few a minute have none.
        let mut log = FloodLog::new(begin);
        let few = (1..=600).filter_map(|second| log.line(&refused(second), at(second * 1000)));
        assert_eq!(few.count(), 0);
    }
}
