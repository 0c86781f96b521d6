//! The walls around processes that a node starts: what the operator says about them, and the spawner that puts them up.

use crate::control::protocol::ProcessStatus;
use crate::server::daemon::DaemonError;
use crate::server::log::{say, warn};
use serde::{Deserialize, Deserializer};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_ledger::Digest;
use weir_os::spawner::{GroupSetting, PROCESSES_MAX, Settings, SpawnRefusals, Spawner};
use weir_os::{Isolation, Launcher};

/// The lowest user of a process. Lower numbers are for the system's own services and people.
pub const FIRST_USER_MIN: u32 = 65_536;
/// The highest: user numbers have 32 bits, of which the highest is not for use.
pub const FIRST_USER_MAX: u32 = i32::MAX.unsigned_abs() - PROCESSES_MAX;

/// The shortest time between two lines of the log that say that processes were not started.
const SAID: Duration = Duration::from_secs(60);

/// The walls around processes that a node starts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IsolationConfig {
    /// The first of 1,024 users that are these processes' alone, where the node is started as root.
    pub first_user: u32,
    /// The place of the processes' control groups: `delegated` (where a service manager has given the node its own), `none`, or a folder.
    #[serde(deserialize_with = "group")]
    pub cgroup: GroupSetting,
}

impl Default for IsolationConfig {
    fn default() -> Self {
        // A range that systemd and shadow(5) give to nothing.
        Self { first_user: 1_900_000_000, cgroup: GroupSetting::Delegated }
    }
}

fn group<'de, D: Deserializer<'de>>(from: D) -> Result<GroupSetting, D::Error> {
    let text = String::deserialize(from)?;
    match text.as_str() {
        "delegated" => Ok(GroupSetting::Delegated),
        "none" => Ok(GroupSetting::None),
        path if path.starts_with('/') => Ok(GroupSetting::At(PathBuf::from(path))),
        _ => Err(serde::de::Error::custom(
            "cgroup is `delegated`, `none`, or a folder beneath a mount of cgroup2",
        )),
    }
}

/// The part of the names of a node's control groups that no other node has: two nodes have two folders for what they keep.
fn label(state: &Path) -> String {
    let state = std::path::absolute(state).unwrap_or_else(|_| state.to_owned());
    Digest::of(state.as_os_str().as_encoded_bytes()).to_string().chars().take(16).collect()
}

/// Starts the process that starts others. To be called by the first thread, before the node gives anything up.
pub(crate) fn start(config: &IsolationConfig, state: &Path, key: Option<PathBuf>) -> Result<(), DaemonError> {
    let (first_user, group) = (config.first_user, config.cgroup.clone());
    let settings = Settings { first_user, group, label: label(state), key };
    let spawner = spawner(&settings)?;
    let isolation = spawner.isolation();
    if isolation.has(Isolation::NAMESPACES) {
        say(&format!("processes of modules are isolated: {isolation}"));
    } else {
        warn(&format_args!(
            "processes of modules have no namespaces of their own (isolation: {isolation}): the system allows neither root nor this user to make user namespaces; \
             see user.max_user_namespaces, kernel.unprivileged_userns_clone, and the service's RestrictNamespaces"
        ));
    }
    if !matches!(config.cgroup, GroupSetting::None | GroupSetting::Delegated)
        && !isolation.has(Isolation::LIMITS)
    {
        warn(&format_args!(
            "processes of modules have no limits by a control group: the folder of [isolation] cgroup is no part of cgroup2 that the node may write, or has no controllers for memory and pids"
        ));
    }
    Launcher::install(Arc::new(spawner));
    Ok(())
}

/// Starts the process that starts others for a check: without control groups, which have folders, and without a word.
pub(crate) fn start_for_check(config: &IsolationConfig, key: Option<PathBuf>) -> Result<(), DaemonError> {
    let label = format!("check{}", std::process::id());
    let settings = Settings { first_user: config.first_user, group: GroupSetting::None, label, key };
    Launcher::install(Arc::new(spawner(&settings)?));
    Ok(())
}

fn spawner(settings: &Settings) -> Result<Spawner, DaemonError> {
    // The running program itself, even if its file was replaced.
    Spawner::start(Path::new("/proc/self/exe"), settings)
        .map_err(|source| DaemonError::System { what: "starting the process that starts others", source })
}

/// The processes that were started since the node was, by what they do and the walls around them.
pub(crate) fn started() -> Vec<ProcessStatus> {
    let Launcher::Spawner(spawner) = Launcher::of_process() else { return Vec::new() };
    let shot = |(role, isolation, count): (&str, Isolation, u64)| ProcessStatus {
        role: role.to_owned(),
        isolation: isolation.to_string(),
        started: count,
    };
    spawner.started().into_iter().map(shot).collect()
}

/// Does something whose processes are not counted among those that were [`started`].
pub(crate) fn uncounted<T>(work: impl FnOnce() -> T) -> T {
    let Launcher::Spawner(spawner) = Launcher::of_process() else { return work() };
    let before = spawner.counts();
    let done = work();
    spawner.count_as(before);
    done
}

/// The number of processes that were not started since the node was.
pub(crate) fn refused() -> u64 {
    match Launcher::of_process() {
        Launcher::Spawner(spawner) => spawner.refused().count,
        Launcher::Direct(_) => 0,
    }
}

/// The node's knowledge of its spawner.
#[derive(Debug, Default)]
pub(crate) struct SpawnerWatch {
    /// Refusals that the log has.
    said: u64,
    /// When it got them.
    at: Option<Instant>,
}

impl SpawnerWatch {
    /// Says which processes were not started.
    ///
    /// # Errors
    /// The spawner has ended.
    pub(crate) fn look(&mut self, now: Instant) -> Result<(), DaemonError> {
        let Launcher::Spawner(spawner) = Launcher::of_process() else { return Ok(()) };
        if let Some(line) = self.due(&spawner.refused(), now) {
            warn(&line);
        }
        let Some(how) = spawner.ended() else { return Ok(()) };
        warn(&format_args!(
            "the process that starts others has ended ({how}): nothing can be loaded any more, so the node closes its sessions in order and ends"
        ));
        Err(DaemonError::Spawner(how))
    }

    /// The line for the log, if it is time for one.
    fn due(&mut self, refused: &SpawnRefusals, now: Instant) -> Option<String> {
        let new = refused.count.saturating_sub(self.said);
        let is_early = self.at.is_some_and(|at| now.saturating_duration_since(at) < SAID);
        let (role, why) = refused.last.as_ref().filter(|_| new > 0 && !is_early)?;
        (self.said, self.at) = (refused.count, Some(now));
        Some(format!("{new} processes were not started; the last one ({role}): {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_are_not_started_are_in_the_log_once_a_minute_and_all_of_them_are_counted() {
        let (mut watch, begin) = (SpawnerWatch::default(), Instant::now());
        let refused = |count| SpawnRefusals { count, last: Some(("module", format!("reason {count}"))) };
        assert_eq!(watch.due(&SpawnRefusals::default(), begin), None);
        let line = watch.due(&refused(1), begin).unwrap();
        assert_eq!(line, "1 processes were not started; the last one (module): reason 1");
        for (count, later, expected) in [
            (500, 0, None),
            (700, 59, None),
            (700, 60, Some("699 processes were not started; the last one (module): reason 700")),
            (700, 180, None),
            (701, 181, Some("1 processes were not started; the last one (module): reason 701")),
        ] {
            let line = watch.due(&refused(count), begin + Duration::from_secs(later));
            assert_eq!(line.as_deref(), expected, "{count} {later}");
        }
    }

    #[test]
    fn nodes_that_keep_things_in_different_folders_have_different_groups() {
        let labels = ["/var/lib/weir", "/var/lib/other"].map(|state| label(Path::new(state)));
        assert_ne!(labels[0], labels[1]);
        assert_eq!(labels[0], label(Path::new("/var/lib/weir")), "the same after each start");
        assert!(labels.iter().all(|label| label.len() == 16 && label.bytes().all(|b| b.is_ascii_hexdigit())));
    }

    #[test]
    fn a_control_group_is_delegated_none_or_a_folder() {
        let read = |text: &str| toml::from_str::<IsolationConfig>(text);
        assert_eq!(read("").unwrap(), IsolationConfig::default());
        assert_eq!(read("cgroup = \"none\"").unwrap().cgroup, GroupSetting::None);
        let folder = GroupSetting::At("/sys/fs/cgroup/weir".into());
        assert_eq!(read("cgroup = \"/sys/fs/cgroup/weir\"").unwrap().cgroup, folder);
        assert!(read("cgroup = \"weir\"").is_err() && read("user = 1").is_err());
    }
}
