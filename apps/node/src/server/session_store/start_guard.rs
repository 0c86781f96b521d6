//! The guard against a node that crashes again and again because of a saved session.
//!
//! A file counts the starts in a row that restored sessions and that the node did not survive. After
//! [`HOLDERS_MAX`] of them the sessions of credentials are not restored, after [`ALL_MAX`] none is. The files of these
//! sessions stay for the next start.

use std::io::Read;
use std::time::Duration;
use weir_os::private::{PrivateError, PrivateFolder};

/// The time after which a node has survived its start.
pub(crate) const SURVIVAL_TIME: Duration = Duration::from_secs(60);
/// The number of starts that failed in a row after which no sessions of credentials are restored.
const HOLDERS_MAX: u32 = 2;
/// The number of starts that failed in a row after which no sessions are restored.
const ALL_MAX: u32 = 4;
/// The name of the file.
const FILE: &str = "starts";

/// The guard, in the folder of saved sessions.
#[derive(Debug)]
pub(crate) struct StartGuard<'a> {
    folder: &'a PrivateFolder,
}

/// The starts in a row that the node has not survived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FailedStarts(pub(crate) u32);

impl FailedStarts {
    /// Returns true if sessions of credentials, or else those of the operator, are to be restored.
    pub(crate) fn restores(self, is_of_credential: bool) -> bool {
        self.0 < if is_of_credential { HOLDERS_MAX } else { ALL_MAX }
    }
}

impl<'a> StartGuard<'a> {
    pub(super) fn new(folder: &'a PrivateFolder) -> Self {
        Self { folder }
    }

    /// Counts a start, which has failed unless [`Self::survived`] is called. Returns the failed ones before it, and whether
    /// the count was written.
    pub(crate) fn begin(&self) -> (FailedStarts, Result<(), PrivateError>) {
        let mut text = String::new();
        let read = self.folder.open_file(FILE).map(|file| file.take(16).read_to_string(&mut text));
        // A missing file, or one that no node has written.
        let failed = read.ok().and_then(|_| text.trim().parse::<u32>().ok()).unwrap_or(0);
        let counted = self.folder.replace(FILE, format!("{}\n", failed.saturating_add(1)).as_bytes());
        (FailedStarts(failed), counted)
    }

    /// Forgets all failed starts: the node has survived this one, or stops in order.
    pub(crate) fn survived(&self) {
        _ = self.folder.remove(FILE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_starts_are_counted_until_one_is_survived() {
        let outer = tempfile::tempdir().unwrap();
        let folder = PrivateFolder::make(&outer.path().join("sessions")).unwrap();
        let guard = StartGuard::new(&folder);
        let restored: Vec<_> = (0..6)
            .map(|_| guard.begin().0)
            .map(|failed| (failed.restores(true), failed.restores(false)))
            .collect();
        assert_eq!(
            restored,
            [(true, true), (true, true), (false, true), (false, true), (false, false), (false, false)]
        );
        guard.survived();
        assert_eq!(guard.begin().0, FailedStarts(0));
        for damaged in ["", "x", "-1", "99999999999999999999999", "1 2"] {
            std::fs::write(folder.path().join(FILE), damaged).unwrap();
            assert_eq!(guard.begin().0, FailedStarts(0), "{damaged}");
        }
        std::fs::remove_file(folder.path().join(FILE)).unwrap();
        std::os::unix::fs::symlink("/dev/zero", folder.path().join(FILE)).unwrap();
        assert!(guard.begin().1.is_ok() && guard.begin().0 == FailedStarts(1));
    }
}
