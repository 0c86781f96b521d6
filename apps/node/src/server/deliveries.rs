//! Counters of deliveries, and log lines on refused ones. In a delivery, a remote peer sends a revocation list to the node.

use crate::sync::{OrderedMutex, rank};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};
use weir_trust::revocation::RevocationError;

/// The minimum time between two log lines on refused lists.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The outcomes of a delivery that [`RevocationError::COUNTERS`] does not contain: acceptance, and refusals that are not due
/// to the list.
const OUTCOMES: [&str; 5] = ["accepted", "known", "no-remote-access", "rate-limited", "not-stored"];

/// Returns all outcomes of deliveries.
pub(crate) fn outcomes() -> impl Iterator<Item = &'static str> {
    OUTCOMES.into_iter().chain(RevocationError::COUNTERS)
}

/// Counters of delivered lists by outcome: `accepted` (applied), `known` (no change), or the reason of the refusal.
#[derive(Debug, Default)]
pub(crate) struct Deliveries(OrderedMutex<Counts, { rank::INDEPENDENT }>);

/// The counters, and the refusals that have no log line yet.
#[derive(Debug, Default)]
struct Counts {
    by_outcome: BTreeMap<&'static str, u64>,
    /// Refusals since the last log line, by reason.
    unlogged: BTreeMap<&'static str, u64>,
    last_logged: Option<Instant>,
}

impl Deliveries {
    /// Counts an accepted list. `outcome` is `accepted` or `known`.
    pub(crate) fn accepted(&self, outcome: &'static str) {
        self.count(outcome);
    }

    /// Counts a refused list. Returns the log line that is due: one for the first refusal, then at most one a minute.
    pub(crate) fn refused(&self, reason: &'static str, now: Instant) -> Option<String> {
        self.count(reason);
        let mut counts = self.0.lock();
        *counts.unlogged.entry(reason).or_default() += 1;
        if counts.last_logged.is_some_and(|last| now.saturating_duration_since(last) < LOG_INTERVAL) {
            return None;
        }
        counts.last_logged = Some(now);
        let unlogged = std::mem::take(&mut counts.unlogged);
        let mut line =
            format!("{} deliveries of revocation lists were refused:", unlogged.values().sum::<u64>());
        for (index, (reason, count)) in unlogged.iter().enumerate() {
            _ = write!(line, "{} {reason} {count}", if index == 0 { "" } else { "," });
        }
        Some(line)
    }

    fn count(&self, outcome: &'static str) {
        let mut counts = self.0.lock();
        let count = counts.by_outcome.entry(outcome).or_default();
        *count = count.saturating_add(1);
    }

    /// Returns the counters, by outcome.
    pub(crate) fn snapshot(&self) -> BTreeMap<String, u64> {
        let counts = self.0.lock();
        counts.by_outcome.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refused_lists_is_counted_and_logged_once_a_minute() {
        let (deliveries, begin) = (Deliveries::default(), Instant::now());
        let line = |ms: u64| deliveries.refused("unknown-signer", begin + Duration::from_millis(ms));
        let lines: Vec<String> = (0..1800).filter_map(|tenth| line(tenth * 100)).collect();
        assert_eq!(lines.len(), 3);
        assert!(
            lines[0].starts_with("1 deliveries") && lines[1].ends_with("unknown-signer 600"),
            "{lines:?}"
        );
        deliveries.accepted("accepted");
        assert_eq!(deliveries.refused("forged", begin + Duration::from_millis(179_950)), None);
        let counts = deliveries.snapshot();
        assert_eq!((counts["unknown-signer"], counts["forged"], counts["accepted"]), (1800, 1, 1));
    }
}
