//! Counters of revocation lists that were delivered, and log lines on those that were refused.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_trust::revocation::RevocationError;

/// The time between two log lines on refused lists.
const WINDOW: Duration = Duration::from_secs(60);

/// The outcomes of a node's own: lists that are taken, and those that are refused for another reason than [the list](RevocationError::COUNTERS).
const OUTCOMES: [&str; 5] = ["taken", "known", "alone", "too-often", "not-kept"];

/// All outcomes of deliveries.
pub(crate) fn outcomes() -> impl Iterator<Item = &'static str> {
    OUTCOMES.into_iter().chain(RevocationError::COUNTERS)
}

/// Counters of delivered lists, by outcome: `taken`, `known`, or the reason for which they were refused.
#[derive(Debug, Default)]
pub(crate) struct Deliveries(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    by_outcome: BTreeMap<&'static str, u64>,
    /// Refusals since the last log line, by reason.
    unsaid: BTreeMap<&'static str, u64>,
    said: Option<Instant>,
}

impl Deliveries {
    /// Counts a list that was taken, or was known.
    pub(crate) fn accepted(&self, outcome: &'static str) {
        self.count(outcome);
    }

    /// Counts a refused list. Returns the log line that is due: one at once, and then one a minute for as long as lists are refused.
    pub(crate) fn refused(&self, reason: &'static str, now: Instant) -> Option<String> {
        self.count(reason);
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.unsaid.entry(reason).or_default() += 1;
        if counts.said.is_some_and(|said| now.saturating_duration_since(said) < WINDOW) {
            return None;
        }
        counts.said = Some(now);
        let unsaid = std::mem::take(&mut counts.unsaid);
        let mut line =
            format!("{} deliveries of revocation lists were refused:", unsaid.values().sum::<u64>());
        for (place, (reason, count)) in unsaid.iter().enumerate() {
            _ = write!(line, "{} {reason} {count}", if place == 0 { "" } else { "," });
        }
        Some(line)
    }

    fn count(&self, outcome: &'static str) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.by_outcome.entry(outcome).or_default();
        *count = count.saturating_add(1);
    }

    /// The counters, by outcome.
    pub(crate) fn shot(&self) -> BTreeMap<String, u64> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.by_outcome.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refused_lists_is_counted_and_has_one_log_line_a_minute() {
        let (deliveries, begin) = (Deliveries::default(), Instant::now());
        let line = |ms: u64| deliveries.refused("unknown-signer", begin + Duration::from_millis(ms));
        let lines: Vec<String> = (0..1800).filter_map(|tenth| line(tenth * 100)).collect();
        assert_eq!(lines.len(), 3);
        assert!(
            lines[0].starts_with("1 deliveries") && lines[1].ends_with("unknown-signer 600"),
            "{lines:?}"
        );
        deliveries.accepted("taken");
        assert_eq!(deliveries.refused("forged", begin + Duration::from_millis(179_950)), None);
        let shot = deliveries.shot();
        assert_eq!((shot["unknown-signer"], shot["forged"], shot["taken"]), (1800, 1, 1));
    }
}
