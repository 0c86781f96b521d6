//! Roots whose revocations are in effect but could not be written to the state folder.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};
use weir_trust::key::PublicKey;

/// Minimum time between two log lines about unwritten revocations.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Minimum time between two attempts to write. Clients can deliver known lists at any rate, and each list causes an attempt.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Roots whose revocations still have to be written, each with the error of the last attempt. A node has few roots of trust,
/// so the map is small.
#[derive(Debug, Default)]
pub(crate) struct UnwrittenRevocations {
    roots: BTreeMap<PublicKey, String>,
    last_attempt: Option<Instant>,
    last_logged: Option<Instant>,
}

impl UnwrittenRevocations {
    /// Returns true if the revocations of all roots are written.
    pub(crate) fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    /// Returns the error of the last attempt to write the revocations of a root; `None` if they are written.
    pub(crate) fn error_of(&self, root: &PublicKey) -> Option<&str> {
        self.roots.get(root).map(String::as_str)
    }

    /// Returns the roots whose revocations are not written.
    pub(crate) fn roots(&self) -> Vec<PublicKey> {
        self.roots.keys().copied().collect()
    }

    /// Returns the roots whose revocations have to be written now: all unwritten ones, or none shortly after the last attempt.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<PublicKey> {
        if self.last_attempt.is_some_and(|tried| now.saturating_duration_since(tried) < RETRY_INTERVAL) {
            return Vec::new();
        }
        self.last_attempt = Some(now);
        self.roots()
    }

    /// Notes the result of an attempt. Returns a log line at the first failure, then once a minute while writing fails,
    /// and once when all is written again.
    pub(crate) fn note(
        &mut self,
        root: &PublicKey,
        written: &io::Result<()>,
        now: Instant,
    ) -> Option<String> {
        let Err(error) = written else {
            let is_last = self.roots.remove(root).is_some() && self.roots.is_empty();
            return is_last.then(|| {
                self.last_logged = None;
                "all revocations are written again".to_owned()
            });
        };
        self.roots.insert(*root, error.to_string());
        self.last_attempt = Some(now);
        if self
            .last_logged
            .is_some_and(|last_logged| now.saturating_duration_since(last_logged) < LOG_INTERVAL)
        {
            return None;
        }
        self.last_logged = Some(now);
        Some(format!(
            "the revocations of {root} are in effect, but cannot be written: {error}; they are lost when the node ends"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_trust::key::Identity;

    #[test]
    fn a_state_that_cannot_be_written_is_tried_once_a_second_and_logged_once_a_minute() {
        let root = Identity::from_seed(&[1; 32]).public();
        let (mut unwritten, begin) = (UnwrittenRevocations::default(), Instant::now());
        let full: io::Result<()> = Err(io::ErrorKind::StorageFull.into());
        let (mut lines, mut tries) = (Vec::new(), 0);
        lines.extend(unwritten.note(&root, &full, begin));
        for tenth in 0..1800 {
            let now = begin + Duration::from_millis(tenth * 100);
            for root in unwritten.due(now) {
                tries += 1;
                lines.extend(unwritten.note(&root, &full, now));
            }
        }
        assert_eq!((lines.len(), tries), (3, 179), "{lines:?}");
        assert!(lines[0].contains("cannot be written") && unwritten.error_of(&root).is_some());
        let now = begin + Duration::from_secs(180);
        assert_eq!(unwritten.due(now), [root]);
        let line = unwritten.note(&root, &Ok(()), now);
        assert!(line.is_some_and(|line| line.contains("written again")));
        assert!(unwritten.is_empty() && unwritten.error_of(&root).is_none());
        // The next failure is logged at once.
        assert!(unwritten.note(&root, &full, now).is_some());
        // One that was never unwritten is no news.
        let other = Identity::from_seed(&[2; 32]).public();
        assert_eq!(unwritten.note(&other, &Ok(()), now), None);
    }
}
