//! The isolation of the node's child processes: its configuration, and the spawner process that sets it up.

use crate::control::isolation_config::IsolationConfig;
use crate::control::protocol::ProcessStatus;
use crate::log::{info, warn};
use crate::server::daemon::DaemonError;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_ledger::Digest;
use weir_os::spawner::{GroupSetting, Settings, SpawnRefusals, Spawner};
use weir_os::{Isolation, Launcher};

/// The minimum interval between log lines about processes that were not started.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Returns the part of the control groups' names that identifies the node: a hash of its state folder's path.
fn label(state: &Path) -> String {
    let state = std::path::absolute(state).unwrap_or_else(|_| state.to_owned());
    Digest::of_bytes(state.as_os_str().as_encoded_bytes()).to_string().chars().take(16).collect()
}

/// Starts the spawner process. Must be called by the first thread, before the process is confined.
pub(crate) fn start(config: &IsolationConfig, state: &Path, key: Option<PathBuf>) -> Result<(), DaemonError> {
    let (first_user, group) = (config.first_uid, config.cgroup.clone());
    let settings = Settings { first_user, group, label: label(state), key };
    let spawner = start_spawner(&settings)?;
    let isolation = spawner.isolation();
    if isolation.has(Isolation::NAMESPACES) {
        info(&format!("processes of modules are isolated: {isolation}"));
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

/// Starts the spawner process for a check: without control groups, which would create folders, and without log lines.
pub(crate) fn start_for_check(config: &IsolationConfig, key: Option<PathBuf>) -> Result<(), DaemonError> {
    let label = format!("check{}", std::process::id());
    let settings = Settings { first_user: config.first_uid, group: GroupSetting::None, label, key };
    Launcher::install(Arc::new(start_spawner(&settings)?));
    Ok(())
}

fn start_spawner(settings: &Settings) -> Result<Spawner, DaemonError> {
    // This path leads to the running program, even if another file has replaced the program's file.
    Spawner::start(Path::new("/proc/self/exe"), settings)
        .map_err(|source| DaemonError::System { what: "starting the spawner process", source })
}

/// Returns the numbers of processes that were started since the node's start, by role and isolation.
pub(crate) fn started_processes() -> Vec<ProcessStatus> {
    let Launcher::Spawner(spawner) = Launcher::of_process() else { return Vec::new() };
    let status = |(role, isolation, count): (&str, Isolation, u64)| ProcessStatus {
        role: role.to_owned(),
        isolation: isolation.to_string(),
        started: count,
    };
    spawner.started().into_iter().map(status).collect()
}

/// Runs `work`, and does not count the processes that it starts as [started](started_processes).
pub(crate) fn without_counting<T>(work: impl FnOnce() -> T) -> T {
    let Launcher::Spawner(spawner) = Launcher::of_process() else { return work() };
    let before = spawner.counts();
    let done = work();
    spawner.count_as(before);
    done
}

/// Returns the number of processes that could not be started since the node's start.
pub(crate) fn refused_starts() -> u64 {
    match Launcher::of_process() {
        Launcher::Spawner(spawner) => spawner.refused().count,
        Launcher::Direct(_) => 0,
    }
}

/// Watches the spawner process, and logs processes that could not be started.
#[derive(Debug, Default)]
pub(crate) struct SpawnerWatch {
    /// The number of refusals that were logged.
    logged: u64,
    /// The time of the last log line.
    logged_at: Option<Instant>,
}

impl SpawnerWatch {
    /// Logs processes that could not be started, and checks that the spawner is alive.
    ///
    /// # Errors
    /// The spawner process has ended.
    pub(crate) fn check(&mut self, now: Instant) -> Result<(), DaemonError> {
        let Launcher::Spawner(spawner) = Launcher::of_process() else { return Ok(()) };
        if let Some(line) = self.log_line(&spawner.refused(), now) {
            warn(&line);
        }
        let Some(status) = spawner.ended() else { return Ok(()) };
        warn(&format_args!(
            "the spawner process has ended ({status}): no module can be loaded any more, so the node closes its sessions and ends"
        ));
        Err(DaemonError::Spawner(status))
    }

    /// Returns the log line that is due, if any.
    fn log_line(&mut self, refused: &SpawnRefusals, now: Instant) -> Option<String> {
        let new = refused.count.saturating_sub(self.logged);
        let is_early = self.logged_at.is_some_and(|at| now.saturating_duration_since(at) < LOG_INTERVAL);
        let (role, why) = refused.last.as_ref().filter(|_| new > 0 && !is_early)?;
        (self.logged, self.logged_at) = (refused.count, Some(now));
        Some(format!("{new} processes were not started; the last one ({role}): {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_starts_of_processes_are_counted_and_logged_once_a_minute() {
        let (mut watch, begin) = (SpawnerWatch::default(), Instant::now());
        let refused = |count| SpawnRefusals { count, last: Some(("module", format!("reason {count}"))) };
        assert_eq!(watch.log_line(&SpawnRefusals::default(), begin), None);
        let line = watch.log_line(&refused(1), begin).unwrap();
        assert_eq!(line, "1 processes were not started; the last one (module): reason 1");
        for (count, later, expected) in [
            (500, 0, None),
            (700, 59, None),
            (700, 60, Some("699 processes were not started; the last one (module): reason 700")),
            (700, 180, None),
            (701, 181, Some("1 processes were not started; the last one (module): reason 701")),
        ] {
            let line = watch.log_line(&refused(count), begin + Duration::from_secs(later));
            assert_eq!(line.as_deref(), expected, "{count} {later}");
        }
    }

    #[test]
    fn nodes_with_different_state_folders_have_different_control_groups() {
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
