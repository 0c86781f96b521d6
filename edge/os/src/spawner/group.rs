//! The control groups (version 2, cgroups(7)) that a spawner makes: one for each started process.
//!
//! The groups are in a folder of the cgroup tree that the node may use. A service manager can delegate a service's group
//! to the service, and marks the group's folder by an attribute; systemd does this with `Delegate=yes`. Without a service
//! manager the operator names a folder. Each process gets a group `weir-LABEL-SLOT` in the folder, with limits if the
//! folder has the controllers for memory and tasks. Several nodes may use the same folder, each with its own label.

use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The beginning of the name of each started process's group.
const NAME_PREFIX: &str = "weir-";
/// The most waits, of 10 ms each, until a group can be removed whose processes have been killed.
const REMOVAL_WAITS: u32 = 100;
/// The name of the group into which the node and its spawner move, beneath their delegated group: a group that gives
/// controllers to its child groups must contain no processes itself (cgroups(7), "no internal processes").
const NODE_GROUP: &str = "node";
/// The most tasks (threads and processes) of a group: enough for a compiler's threads on a large machine.
pub(super) const TASKS_MAX: u32 = 512;
/// Bytes added to a process's memory limit, for memory that the kernel charges to the group too: page tables, kernel
/// stacks and pages of files.
const KERNEL_BYTES: u64 = 64 << 20;
/// The type of a cgroup file system in statfs(2).
const CGROUP2_SUPER_MAGIC: u32 = 0x6367_7270;

/// The location of a node's control groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Setting {
    /// In the node's own group, if a service manager has delegated that group.
    #[default]
    Delegated,
    /// No control groups.
    None,
    /// In this folder, which no other programs than nodes use.
    At(PathBuf),
}

impl Setting {
    /// Encodes the setting as a command-line argument of a spawner.
    pub(super) fn argument(&self) -> OsString {
        match self {
            Self::Delegated => "delegated".into(),
            Self::None => "none".into(),
            Self::At(folder) => folder.clone().into_os_string(),
        }
    }

    /// Decodes the setting from a command-line argument of a spawner.
    pub(super) fn read(argument: &OsStr) -> Self {
        match argument.as_bytes() {
            b"delegated" => Self::Delegated,
            b"none" => Self::None,
            _ => Self::At(argument.into()),
        }
    }
}

/// The folder in which a spawner creates the control groups of its processes.
#[derive(Debug)]
pub(super) struct Groups {
    folder: PathBuf,
    /// The beginning of the names of this node's groups.
    prefix: String,
    /// True if the folder's groups can limit memory and tasks.
    pub(super) has_limits: bool,
}

impl Groups {
    /// Opens the folder that the setting names, and removes the groups that an earlier run of this node left in it.
    /// Returns `None` if the setting is [`Setting::None`], there is no such folder, or no group can be created in it.
    ///
    /// `label` distinguishes this node's groups from those of other nodes in the folder. `node` is the node's process
    /// id: in a delegated folder the node and the calling process move into a group of their own, [`NODE_GROUP`].
    pub(super) fn find(setting: &Setting, label: &str, node: u32) -> Option<Self> {
        let folder = match setting {
            Setting::None => return None,
            Setting::At(folder) => {
                _ = fs::create_dir(folder);
                folder.clone()
            }
            Setting::Delegated => delegated(&fs::read_to_string("/proc/self/cgroup").ok()?)?,
        };
        if !is_group(&folder) {
            return None;
        }
        if *setting == Setting::Delegated {
            let node_group = folder.join(NODE_GROUP);
            _ = fs::create_dir(&node_group);
            for process in [node, std::process::id()] {
                _ = write_file(&node_group.join("cgroup.procs"), &process.to_string());
            }
        }
        Self::open(folder, label)
    }

    /// Opens a folder, and removes this node's groups in it.
    fn open(folder: PathBuf, label: &str) -> Option<Self> {
        for controller in ["+memory", "+pids", "+cpu"] {
            // Fails if the folder lacks the controller, or contains processes. Its groups then have no limits.
            _ = write_file(&folder.join("cgroup.subtree_control"), controller);
        }
        let prefix = if label.is_empty() { NAME_PREFIX.to_owned() } else { format!("{NAME_PREFIX}{label}-") };
        let mut this = Self { folder, prefix, has_limits: false };
        this.remove_all();
        // The files of a trial group show which controllers are available.
        let trial = this.make(u32::MAX, 1 << 30).ok()?;
        let has_file = |file: &str| trial.join(file).exists();
        this.has_limits = has_file("memory.max") && has_file("pids.max");
        _ = this.remove(u32::MAX);
        Some(this)
    }

    fn path(&self, slot: u32) -> PathBuf {
        self.folder.join(format!("{}{slot}", self.prefix))
    }

    /// Creates the group of this slot, for a process with a limit of `memory` bytes, and returns its folder.
    ///
    /// A group of this slot that exists already is a leftover of an earlier process. The leftover is removed first, and
    /// its processes are killed.
    ///
    /// # Errors
    /// The system refuses the group or one of its limits; no new group remains. [`io::ErrorKind::AlreadyExists`] if the
    /// leftover group cannot be removed.
    pub(super) fn make(&self, slot: u32, memory: u64) -> io::Result<PathBuf> {
        let group = self.path(slot);
        match fs::create_dir(&group) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                remove_killing(&group);
                fs::create_dir(&group)?;
            }
            made => made?,
        }
        match set_limits(&group, memory, self.has_limits) {
            Ok(()) => Ok(group),
            Err(error) => {
                _ = fs::remove_dir(&group);
                Err(error)
            }
        }
    }

    /// Removes the group of this slot, whose process has ended. A missing group is no error.
    pub(super) fn remove(&self, slot: u32) -> io::Result<()> {
        match fs::remove_dir(self.path(slot)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes all groups of this node and kills their processes. They remain from an earlier run of the node that was
    /// killed.
    fn remove_all(&self) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let slot = name.to_str().and_then(|name| name.strip_prefix(&self.prefix));
            if slot.is_some_and(|slot| slot.parse::<u32>().is_ok()) {
                remove_killing(&entry.path());
            }
        }
    }
}

/// Kills the processes of a group, and removes the group when they have ended. Gives up after a second.
fn remove_killing(group: &Path) {
    _ = write_file(&group.join("cgroup.kill"), "1");
    for _ in 0..REMOVAL_WAITS {
        if fs::remove_dir(group).is_ok() || !group.exists() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Sets the limits of a group on memory and tasks. With `is_required`, a missing controller for memory or tasks is an
/// error.
fn set_limits(group: &Path, memory: u64, is_required: bool) -> io::Result<()> {
    let limits = [
        ("memory.max", memory.saturating_add(KERNEL_BYTES), is_required),
        ("memory.swap.max", 0, false),
        ("memory.oom.group", 1, false),
        ("pids.max", TASKS_MAX.into(), is_required),
    ];
    for (file, value, is_required) in limits {
        // Older kernels lack some of these files.
        match write_file(&group.join(file), &value.to_string()) {
            Err(error) if is_required || error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Writes an existing file of the cgroup file system.
fn write_file(file: &Path, text: &str) -> io::Result<()> {
    fs::File::options().write(true).open(file)?.write_all(text.as_bytes())
}

/// Returns the folder of this process's group if that group has been delegated, or else the folder above it if that one
/// has. `own_groups` is the content of /proc/self/cgroup.
fn delegated(own_groups: &str) -> Option<PathBuf> {
    let path = own_groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let (root, mount) = mounted(&fs::read_to_string("/proc/self/mountinfo").ok()?)?;
    let beneath = Path::new(path).strip_prefix(&root).ok()?;
    let folder = mount.join(beneath);
    // With DelegateSubgroup= the service's processes are one level below the delegated group.
    [Some(folder.as_path()), folder.parent()]
        .into_iter()
        .flatten()
        .find(|folder| is_delegated(folder))
        .map(Path::to_owned)
}

/// Returns the root and the mount point of the first cgroup2 mount. `mounts` has the format of proc_pid_mountinfo(5).
fn mounted(mounts: &str) -> Option<(PathBuf, PathBuf)> {
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut words = before.split(' ').skip(3);
        let (root, folder) = (words.next()?, words.next()?);
        after.starts_with("cgroup2 ").then(|| (root.into(), folder.into()))
    })
}

/// Returns true if a group's folder has the attribute by which a service manager delegates the group.
fn is_delegated(folder: &Path) -> bool {
    let Ok(path) = CString::new(folder.as_os_str().as_bytes()) else { return false };
    [c"user.delegate", c"trusted.delegate"].into_iter().any(|name| {
        let mut value = [0u8; 8];
        // SAFETY: the first two pointers are to zero-terminated texts; the third is to `value.len()` live bytes.
        let len =
            unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
        usize::try_from(len).is_ok_and(|len| value.get(..len) == Some(b"1"))
    })
}

/// Returns true if a folder is in a cgroup2 file system.
fn is_group(folder: &Path) -> bool {
    let Ok(path) = CString::new(folder.as_os_str().as_bytes()) else { return false };
    // SAFETY: a statfs consists of numbers, for which zero is a valid value.
    let mut info: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the pointers are to a text that ends with a zero, and to a live local.
    let is_known = unsafe { libc::statfs(path.as_ptr(), &raw mut info) } == 0;
    is_known && u32::try_from(info.f_type).is_ok_and(|kind| kind == CGROUP2_SUPER_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_of_version_two_is_found_among_others() {
        let mounts = "24 30 0:22 / /sys rw - sysfs sysfs rw\n\
                      35 24 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      36 24 0:31 /a/b /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n";
        assert_eq!(mounted(mounts), Some(("/a/b".into(), "/sys/fs/cgroup/unified".into())));
        assert_eq!(mounted("24 30 0:22 / /sys rw - sysfs sysfs rw\n"), None);
    }

    /// Plain folders take the place of the cgroup file system.
    #[test]
    fn groups_of_an_earlier_start_are_removed_and_other_nodes_groups_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let others = ["weir-7", "weir-others", "weir-a1-7", "weir-b2-x", "weir-b2-"];
        for name in others.into_iter().chain(["weir-b2-7", "weir-b2-0"]) {
            fs::create_dir(path(name)).unwrap();
        }
        let groups = Groups::open(folder.path().to_owned(), "b2").unwrap();
        assert!(!groups.has_limits, "a plain folder has no controllers");
        assert!(!path("weir-b2-7").exists() && !path("weir-b2-0").exists());
        assert!(others.iter().all(|name| path(name).exists()));
        let without = Groups::open(folder.path().to_owned(), "").unwrap();
        assert!(!path("weir-7").exists() && path("weir-a1-7").exists());
        assert!(without.make(3, 1).unwrap().ends_with("weir-3"));
    }

    #[test]
    fn a_leftover_group_is_replaced_if_it_can_be_removed() {
        let folder = tempfile::tempdir().unwrap();
        let groups = Groups::open(folder.path().to_owned(), "n").unwrap();
        let group = groups.make(3, 1 << 20).unwrap();
        assert!(group.ends_with("weir-n-3"));
        assert_eq!(groups.make(3, 1 << 20).unwrap(), group, "an empty leftover group");
        groups.remove(3).unwrap();
        assert!(!group.exists());
        groups.remove(3).unwrap();
        // A group that cannot be removed is not used for another process.
        fs::create_dir_all(group.join("more")).unwrap();
        assert_eq!(groups.make(3, 1).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }
}
