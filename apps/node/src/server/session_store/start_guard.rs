//! The guard against a node that crashes again and again because of a saved session.
//!
//! A file contains points. Each start that restores sessions adds [`START_POINTS`]. When the node has run for
//! [`SURVIVAL_TIME`] since all modules were restored, one point is taken away. So a node that always crashes a little later
//! gains points, too. All points are taken away when the node has run for [`SETTLED_TIME`], or stops in order. At
//! [`HOLDERS_MAX`] points the sessions of credentials are not restored; at [`ALL_MAX`] points no session is restored. The
//! files of these sessions stay for the next start.

use std::io::Read;
use std::time::Duration;
use weir_os::private::{PrivateError, PrivateFolder};

/// The time after which a node has survived its start, for which one point is taken away.
pub(crate) const SURVIVAL_TIME: Duration = Duration::from_secs(60);
/// The time after which all points are taken away.
const SETTLED_TIME: Duration = Duration::from_secs(3600);
/// The points that a start adds: more than the one that is taken away after [`SURVIVAL_TIME`].
const START_POINTS: u32 = 2;
/// The points at which no sessions of credentials are restored: the points of two starts after which the node crashed.
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
pub(crate) struct StartPoints(u32);

/// The time since the start that a node has noted on disk already.
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
    /// Returns the value for a node that has run for `run_time` since all modules were restored.
    pub(crate) fn after(run_time: Duration) -> Self {
        match run_time {
            time if time >= SETTLED_TIME => Self::Settled,
            time if time >= SURVIVAL_TIME => Self::Survived,
            _ => Self::Nothing,
        }
    }
}

impl StartPoints {
    /// Returns true if sessions are to be restored: those of credential holders, or those of the operator.
    pub(crate) fn restores(self, is_of_holder: bool) -> bool {
        self.0 < if is_of_holder { HOLDERS_MAX } else { ALL_MAX }
    }
}

impl<'a> StartGuard<'a> {
    pub(super) fn new(folder: &'a PrivateFolder) -> Self {
        Self { folder }
    }

    /// Adds the points of a start. Returns the earlier points, and the result of writing the new ones.
    pub(crate) fn begin(&self) -> (StartPoints, Result<(), PrivateError>) {
        let before = self.points();
        (StartPoints(before), self.write(before.saturating_add(START_POINTS)))
    }

    fn points(&self) -> u32 {
        let mut text = String::new();
        let read = self.folder.open_file(FILE).map(|file| file.take(16).read_to_string(&mut text));
        // A file that is missing, or that no node has written, counts as no points.
        read.ok().and_then(|_| text.trim().parse::<u32>().ok()).unwrap_or(0)
    }

    fn write(&self, points: u32) -> Result<(), PrivateError> {
        self.folder.replace(FILE, format!("{points}\n").as_bytes())
    }

    /// Takes points away: one for a node that has survived its start, all for a settled one.
    pub(crate) fn note(&self, survival: NotedSurvival) {
        match survival {
            NotedSurvival::Nothing => {}
            NotedSurvival::Survived => match self.points() {
                0 | 1 => self.clear(),
                // After an error the points stay, and fewer sessions are restored.
                points => _ = self.write(points - 1),
            },
            NotedSurvival::Settled => self.clear(),
        }
    }

    /// Takes all points away. To be called when the node has run for long enough, or stops in order.
    pub(crate) fn clear(&self) {
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
        guard.clear();
        assert_eq!(guard.begin().0, StartPoints(0));
        for damaged in ["", "x", "-1", "99999999999999999999999", "1 2"] {
            std::fs::write(folder.path().join(FILE), damaged).unwrap();
            assert_eq!(guard.begin().0, StartPoints(0), "{damaged}");
        }
        std::fs::remove_file(folder.path().join(FILE)).unwrap();
        std::os::unix::fs::symlink("/dev/zero", folder.path().join(FILE)).unwrap();
        assert!(guard.begin().1.is_ok() && guard.begin().0 == StartPoints(START_POINTS));
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
        assert_eq!(guard.begin().0, StartPoints(0));
    }
}
