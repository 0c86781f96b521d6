//! Remote access: counters of connecting peers, and log lines about floods of refused peers.

use crate::control::protocol::RemoteStatus;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_remote::{AcceptCounters, Acceptor};

/// The cause for which an authenticated peer is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The peer's credential is not valid on this node. The peer was told the reason.
    Credential,
    /// The peer's credential is not valid on this node, and the pool of unverified peers was full, so the connection was
    /// closed without a reply.
    Unheard,
    /// The peer has the right to connect, but all slots for it are taken.
    Slots,
    /// The peer has no credential, and all slots of peers without a credential are taken.
    Anonymous,
    /// The operating system refused a thread.
    Thread,
}

const CAUSES: [(Cause, &str); 5] = [
    (Cause::Credential, "credential"),
    (Cause::Unheard, "credential-no-reply"),
    (Cause::Slots, "slots"),
    (Cause::Anonymous, "anonymous"),
    (Cause::Thread, "thread"),
];

/// Counters of remote access.
#[derive(Debug, Default)]
pub(crate) struct RemoteAccessCounters {
    acceptor: OnceLock<Acceptor>,
    refused: [AtomicU64; CAUSES.len()],
    clients: AtomicU64,
}

/// A connected client, counted until this value is dropped.
#[derive(Debug)]
pub(crate) struct Connected<'a>(&'a AtomicU64);

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl RemoteAccessCounters {
    /// Includes the counters of this acceptor in the status.
    pub(crate) fn begin(&self, acceptor: &Acceptor) {
        _ = self.acceptor.set(acceptor.clone());
    }

    /// Counts a refused peer.
    pub(crate) fn refused(&self, cause: Cause) {
        if let Some(count) = self.refused.get(cause as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a connected client.
    pub(crate) fn connected(&self) -> Connected<'_> {
        self.clients.fetch_add(1, Ordering::Relaxed);
        Connected(&self.clients)
    }

    /// Returns the counters, or `None` without remote access.
    pub(crate) fn status(&self) -> Option<RemoteStatus> {
        let counters = self.acceptor.get()?.counters();
        let AcceptCounters { gate, half_open, authenticated, .. } = counters;
        let by_cause = [
            ("evicted", gate.evicted),
            ("timeout", gate.late),
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
            authorised: gate.proven,
            clients: self.clients.load(Ordering::Relaxed),
            refused: by_cause.map(|(name, count)| (name.to_owned(), count)).collect(),
        })
    }
}

/// The number of refused peers in [`WINDOW`] that counts as a flood.
const FEW: u64 = 100;
/// The time between two log lines on refused peers.
const WINDOW: Duration = Duration::from_secs(60);

/// Log lines about floods of refused peers: one when a flood begins, and then one a minute while it lasts.
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

    /// Returns the log line that is due. `refused` are all refusals so far, by cause.
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
            line + " (see \"Over the network\" in docs/reference/NODE.md)"
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
        assert_eq!(access.status(), None);
        access.begin(&Acceptor::new(weir_trust::gate::GateLimits::default()));
        access.refused(Cause::Unheard);
        let client = access.connected();
        let status = access.status().unwrap();
        assert_eq!(
            (status.refused["credential-no-reply"], status.refused["credential"], status.clients),
            (1, 0, 1)
        );
        assert_eq!(status.refused.len(), 6 + CAUSES.len());
        drop(client);
        assert_eq!(access.status().unwrap().clients, 0);
    }

    #[test]
    fn a_flood_has_a_log_line_at_once_and_then_one_a_minute() {
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let mut log = FloodLog::new(begin);
        let refused = |count: u64| BTreeMap::from([("closed".to_owned(), 3), ("timeout".to_owned(), count)]);
        // An hour of 1,000 refusals a second, checked every 100 ms: one line when it begins, and one a minute.
        let lines: Vec<String> =
            (1..=36_000).filter_map(|step| log.line(&refused(step * 100), at(step * 100))).collect();
        assert_eq!(lines.len(), 60, "{:?}", lines.first());
        assert!(
            lines[0].starts_with("103 connections from elsewhere")
                && lines[0].contains(": closed 3, timeout 100 (")
        );
        assert!(
            lines[1].starts_with("60000 connections") && lines[1].contains("in the last 60 s: timeout 60000")
        );
        // A few refusals a minute have no line.
        let mut log = FloodLog::new(begin);
        let few = (1..=600).filter_map(|second| log.line(&refused(second), at(second * 1000)));
        assert_eq!(few.count(), 0);
    }
}
