//! The configuration section `[isolation]`: user IDs and control groups of the node's child processes.

use serde::{Deserialize, Deserializer};
use std::path::PathBuf;
use weir_os::spawner::{GroupSetting, PROCESSES_MAX};

/// The lowest allowed user ID for isolated processes. Lower IDs belong to system services and people.
pub const FIRST_USER_MIN: u32 = 65_536;
/// The highest allowed first user ID: with it, all IDs of the range are below 2^31.
pub const FIRST_USER_MAX: u32 = i32::MAX.unsigned_abs() - PROCESSES_MAX;

/// The configuration section `[isolation]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IsolationConfig {
    /// The first of 1,024 user IDs that only the isolated processes use, if root starts the node.
    pub first_uid: u32,
    /// The parent of the processes' control groups: `delegated` (a group that a service manager has delegated to the
    /// node), `none`, or a folder.
    #[serde(deserialize_with = "group")]
    pub cgroup: GroupSetting,
}

impl Default for IsolationConfig {
    fn default() -> Self {
        // A range that neither systemd nor shadow(5) uses.
        Self { first_uid: 1_900_000_000, cgroup: GroupSetting::Delegated }
    }
}

fn group<'de, D: Deserializer<'de>>(from: D) -> Result<GroupSetting, D::Error> {
    let text = String::deserialize(from)?;
    match text.as_str() {
        "delegated" => Ok(GroupSetting::Delegated),
        "none" => Ok(GroupSetting::None),
        path if path.starts_with('/') => Ok(GroupSetting::At(PathBuf::from(path))),
        _ => Err(serde::de::Error::custom(
            "`cgroup` must be `delegated`, `none`, or the absolute path of a folder in a mounted cgroup2 hierarchy",
        )),
    }
}
