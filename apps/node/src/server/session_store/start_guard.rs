//! The guard against a node that crashes again and again because of a saved session.
//!
//! A file has the points of starts that restored sessions. Each such start adds [`START_POINTS`]. Once the node has run for
//! [`SURVIVAL_TIME`] since all modules were restored it takes one point away, so that a node that always crashes a little
//! later is stopped, too. All points go when it has run for [`SETTLED_TIME`], or stops in order. At [`HOLDERS_MAX`] points
//! the sessions of credentials are not restored, at [`ALL_MAX`] none is. The files of these sessions stay for the next
//! start.

use std::io::Read;
use std::time::Duration;
use weir_os::private::{PrivateError, PrivateFolder};

/// The time after which a node has survived its start, for which one point is taken away.
pub(crate) const SURVIVAL_TIME: Duration = Duration::from_secs(60);
/// The time after which all points are taken away.
const SETTLED_TIME: Duration = Duration::from_secs(3600);
/// The points of a start: more than are taken away after [`SURVIVAL_TIME`].
const START_POINTS: u32 = 2;
/// The points at which no sessions of credentials are restored: those of two starts that the node has not survived.
const HOLDERS_MAX: u32 = 2 * START_POINTS;
/// The points at which no sessions are restored.
const ALL_MAX: u32 = 4 * START_POINTS;
/// The name of the file.
const FILE: &str = "starts";

/// The guard, in the folder of saved sessions.
#[derive(Debug)]
pub(crate) struct StartGuard<'a> {
    folder: &'a PrivateFolder,
}

/// The points of earlier starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FailedStarts(u32);

/// The part of a node's time that was noted already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NotedSurvival {
    #[default]
    Nothing,
    /// [`SURVIVAL_TIME`].
    Survived,
    /// [`SETTLED_TIME`].
    Settled,
}

impl NotedSurvival {
    /// Returns what is to be noted for a node that has run for this time since all modules were restored.
    pub(crate) fn after(ran: Duration) -> Self {
        match ran {
            ran if ran >= SETTLED_TIME => Self::Settled,
            ran if ran >= SURVIVAL_TIME => Self::Survived,
            _ => Self::Nothing,
        }
    }
}

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

    /// Counts a start. Returns the points before it, and whether the new points were written.
    pub(crate) fn begin(&self) -> (FailedStarts, Result<(), PrivateError>) {
        let before = self.points();
        (FailedStarts(before), self.write(before.saturating_add(START_POINTS)))
    }

    fn points(&self) -> u32 {
        let mut text = String::new();
        let read = self.folder.open_file(FILE).map(|file| file.take(16).read_to_string(&mut text));
        // A missing file, or one that no node has written.
        read.ok().and_then(|_| text.trim().parse::<u32>().ok()).unwrap_or(0)
    }

    fn write(&self, points: u32) -> Result<(), PrivateError> {
        self.folder.replace(FILE, format!("{points}\n").as_bytes())
    }

    /// Notes that the node still runs.
    pub(crate) fn note(&self, survival: NotedSurvival) {
        match survival {
            NotedSurvival::Nothing => {}
            NotedSurvival::Survived => match self.points() {
                0 | 1 => self.settled(),
                // After an error the points stay, and fewer sessions are restored.
                points => _ = self.write(points - 1),
            },
            NotedSurvival::Settled => self.settled(),
        }
    }

    /// Takes all points away: the node has run for long enough, or stops in order.
    pub(crate) fn settled(&self) {
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
        guard.settled();
        assert_eq!(guard.begin().0, FailedStarts(0));
        for damaged in ["", "x", "-1", "99999999999999999999999", "1 2"] {
            std::fs::write(folder.path().join(FILE), damaged).unwrap();
            assert_eq!(guard.begin().0, FailedStarts(0), "{damaged}");
        }
        std::fs::remove_file(folder.path().join(FILE)).unwrap();
        std::os::unix::fs::symlink("/dev/zero", folder.path().join(FILE)).unwrap();
        assert!(guard.begin().1.is_ok() && guard.begin().0 == FailedStarts(START_POINTS));
    }

    #[test]
    fn a_node_that_crashes_a_little_after_the_survival_time_again_and_again_is_stopped() {
        let outer = tempfile::tempdir().unwrap();
        let folder = PrivateFolder::make(&outer.path().join("sessions")).unwrap();
        let guard = StartGuard::new(&folder);
        let noted = NotedSurvival::after(SURVIVAL_TIME + Duration::from_secs(1));
        assert_eq!(noted, NotedSurvival::Survived);
        assert_eq!(NotedSurvival::after(SURVIVAL_TIME - Duration::from_secs(1)), NotedSurvival::Nothing);
        assert_eq!(NotedSurvival::after(SETTLED_TIME), NotedSurvival::Settled);
        let start = || {
            let failed = guard.begin().0;
            guard.note(noted);
            (failed.restores(true), failed.restores(false))
        };
        let restored: Vec<_> = (0..9).map(|_| start()).collect();
        assert_eq!(restored[..4], [(true, true); 4]);
        assert_eq!(restored[4..8], [(false, true); 4]);
        assert_eq!(restored[8], (false, false));
        guard.note(NotedSurvival::Settled);
        assert_eq!(start(), (true, true));
        // One point is left of that start.
        guard.note(NotedSurvival::Survived);
        assert_eq!(guard.begin().0, FailedStarts(0));
    }
}
