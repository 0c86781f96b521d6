//! The walls around processes that a node starts: what the operator says about them, and the spawner that puts them up.

use crate::daemon::DaemonError;
use crate::log::{say, warn};
use crate::protocol::ProcessShot;
use serde::{Deserialize, Deserializer};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_confine::spawner::{GroupSetting, PROCESSES_MAX, Settings, Spawner};
use weir_confine::{Isolation, Launcher};

/// The lowest user of a process. Lower numbers are for the system's own services and people.
pub const FIRST_USER_MIN: u32 = 65_536;
/// The highest: user numbers have 32 bits, of which the highest is not for use.
pub const FIRST_USER_MAX: u32 = i32::MAX.unsigned_abs() - PROCESSES_MAX;

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

/// Starts the process that starts others. To be called by the first thread, before the node gives anything up.
pub(crate) fn start(config: &IsolationConfig, key: Option<PathBuf>) -> Result<(), DaemonError> {
    let settings = Settings { first_user: config.first_user, group: config.cgroup.clone(), key };
    // The running program itself, even if its file was replaced.
    let spawner = Spawner::start(Path::new("/proc/self/exe"), &settings)
        .map_err(|source| DaemonError::System { what: "starting the process that starts others", source })?;
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

/// The processes that were started since the node was, by what they do and the walls around them.
pub(crate) fn started() -> Vec<ProcessShot> {
    let Launcher::Spawner(spawner) = Launcher::of_process() else { return Vec::new() };
    let shot = |(role, isolation, count): (&str, Isolation, u64)| ProcessShot {
        role: role.to_owned(),
        isolation: isolation.to_string(),
        started: count,
    };
    spawner.started().into_iter().map(shot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
