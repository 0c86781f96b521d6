//! Remote access: counters of connecting peers, and log lines about floods of refused peers.

use crate::control::protocol::RemoteStatus;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_remote::{AcceptCounters, Acceptor};

/// The cause for which a node refuses a peer that has proven the possession of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalCause {
    /// The peer's credential is not valid on this node. The peer gets the reason.
    Credential,
    /// The peer's credential is not valid on this node, and all slots for replies to refused peers are taken. The
    /// connection is closed without a reply.
    CredentialNoReply,
    /// The peer has the right to connect, but all slots for its connections are taken.
    Slots,
    /// The peer has no credential, and all slots of peers without a credential are taken.
    Anonymous,
    /// The operating system refused a thread.
    Thread,
}

const CAUSES: [(RefusalCause, &str); 5] = [
    (RefusalCause::Credential, "credential"),
    (RefusalCause::CredentialNoReply, "credential-no-reply"),
    (RefusalCause::Slots, "slots"),
    (RefusalCause::Anonymous, "anonymous"),
    (RefusalCause::Thread, "thread"),
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
    /// Sets the acceptor of remote connections, whose counters the status includes.
    pub(crate) fn set_acceptor(&self, acceptor: &Acceptor) {
        _ = self.acceptor.set(acceptor.clone());
    }

    /// Counts a refused peer.
    pub(crate) fn refused(&self, cause: RefusalCause) {
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

/// Minimum number of refused peers within [`WINDOW`] that counts as a flood.
const FLOOD_MIN: u64 = 100;
/// The time between two log lines on refused peers.
const WINDOW: Duration = Duration::from_secs(60);

/// The log of floods of refused peers: a line when a flood begins, and then one a minute while the flood lasts.
#[derive(Debug)]
pub(crate) struct FloodLog {
    /// Begin of the present window.
    since: Instant,
    /// Refusals at the begin of the window, by cause.
    before: BTreeMap<String, u64>,
    /// True if the previous window had no flood.
    was_quiet: bool,
}

impl FloodLog {
    pub(crate) fn new(now: Instant) -> Self {
        Self { since: now, before: BTreeMap::new(), was_quiet: true }
    }

    /// Returns the log line to write now; `None` if no line is due. `refused` are all refusals so far, by cause.
    pub(crate) fn line(&mut self, refused: &BTreeMap<String, u64>, now: Instant) -> Option<String> {
        let of = |name: &str| self.before.get(name).copied().unwrap_or(0);
        let new: Vec<(&String, u64)> = refused
            .iter()
            .map(|(name, count)| (name, count.saturating_sub(of(name))))
            .filter(|(_, count)| *count > 0)
            .collect();
        let sum = new.iter().map(|(_, count)| count).sum::<u64>();
        let (elapsed, is_flood) = (now.saturating_duration_since(self.since), sum >= FLOOD_MIN);
        if elapsed < WINDOW && !(is_flood && self.was_quiet) {
            return None;
        }
        let line = is_flood.then(|| {
            let mut line = format!(
                "{sum} remote connections were refused or aborted in the last {} s:",
                elapsed.as_secs().max(1)
            );
            for (place, (name, count)) in new.iter().enumerate() {
                _ = write!(line, "{} {name} {count}", if place == 0 { "" } else { "," });
            }
            line + " (see \"Over the network\" in docs/reference/NODE.md)"
        });
        (self.since, self.before, self.was_quiet) = (now, refused.clone(), !is_flood);
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
        access.set_acceptor(&Acceptor::new(weir_trust::gate::GateLimits::default()));
        access.refused(RefusalCause::CredentialNoReply);
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
            lines[0].starts_with("103 remote connections") && lines[0].contains(": closed 3, timeout 100 (")
        );
        assert!(
            lines[1].starts_with("60000 remote connections")
                && lines[1].contains("in the last 60 s: timeout 60000")
        );
        // A few refusals a minute have no line.
        let mut log = FloodLog::new(begin);
        let few = (1..=600).filter_map(|second| log.line(&refused(second), at(second * 1000)));
        assert_eq!(few.count(), 0);
    }
}
