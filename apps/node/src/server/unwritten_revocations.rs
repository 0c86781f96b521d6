//! Roots whose revocations hold and could not be written to the node's folder.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};
use weir_trust::key::PublicKey;

/// The time between two log lines on states that cannot be written.
const WINDOW: Duration = Duration::from_secs(60);
/// The time between two tries to write a state that has not changed: known lists may come at any rate.
const AGAIN: Duration = Duration::from_secs(1);

/// The roots whose state is to be written again, each with the error of the last try. They are roots of trust, so there are few.
#[derive(Debug, Default)]
pub(crate) struct Unkept {
    roots: BTreeMap<PublicKey, String>,
    tried: Option<Instant>,
    said: Option<Instant>,
}

impl Unkept {
    /// Returns true if every state is written.
    pub(crate) fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    /// The error of the last try to write the state of a root; `None` where it is written.
    pub(crate) fn why(&self, root: &PublicKey) -> Option<&str> {
        self.roots.get(root).map(String::as_str)
    }

    /// The roots whose state is not written.
    pub(crate) fn roots(&self) -> Vec<PublicKey> {
        self.roots.keys().copied().collect()
    }

    /// The roots whose state is to be written now: all of them, and none where the last try was a moment ago.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<PublicKey> {
        if self.tried.is_some_and(|tried| now.saturating_duration_since(tried) < AGAIN) {
            return Vec::new();
        }
        self.tried = Some(now);
        self.roots()
    }

    /// Takes the result of a try. Returns the log line that is due: at the first failure, one a minute while writing fails, and one when all is written again.
    pub(crate) fn note(
        &mut self,
        root: &PublicKey,
        written: &io::Result<()>,
        now: Instant,
    ) -> Option<String> {
        let Err(error) = written else {
            let is_last = self.roots.remove(root).is_some() && self.roots.is_empty();
            return is_last.then(|| {
                self.said = None;
                "all revocations are kept again".to_owned()
            });
        };
        self.roots.insert(*root, error.to_string());
        self.tried = Some(now);
        if self.said.is_some_and(|said| now.saturating_duration_since(said) < WINDOW) {
            return None;
        }
        self.said = Some(now);
        Some(format!(
            "the revocations of {root} hold, and cannot be kept: {error}; they are forgotten when the node ends"
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
        let (mut unkept, begin) = (Unkept::default(), Instant::now());
        let full: io::Result<()> = Err(io::ErrorKind::StorageFull.into());
        let (mut lines, mut tries) = (Vec::new(), 0);
        lines.extend(unkept.note(&root, &full, begin));
        for tenth in 0..1800 {
            let now = begin + Duration::from_millis(tenth * 100);
            for root in unkept.due(now) {
                tries += 1;
                lines.extend(unkept.note(&root, &full, now));
            }
        }
        assert_eq!((lines.len(), tries), (3, 179), "{lines:?}");
        assert!(lines[0].contains("cannot be kept") && unkept.why(&root).is_some());
        let now = begin + Duration::from_secs(180);
        assert_eq!(unkept.due(now), [root]);
        let line = unkept.note(&root, &Ok(()), now);
        assert!(line.is_some_and(|line| line.contains("kept again")));
        assert!(unkept.is_empty() && unkept.why(&root).is_none());
        // The next failure is logged at once.
        assert!(unkept.note(&root, &full, now).is_some());
        // One that was never unkept is no news.
        let other = Identity::from_seed(&[2; 32]).public();
        assert_eq!(unkept.note(&other, &Ok(()), now), None);
    }
}
