//! Control groups (version 2, cgroups(7)): one for each process, in a part of the tree that the node may use.
//!
//! A service manager says that a group is the service's own by an attribute of its folder, which systemd sets with `Delegate=yes`. Elsewhere the operator names
//! the folder. In that folder each process gets a group `weir-NODE-NUMBER`, with limits where the folder has the controllers for them. Another node may use the
//! same folder: its groups have another name for `NODE`.

use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The beginning of the names of all groups of processes.
const PREFIX: &str = "weir-";
/// The wait for a group whose processes have been killed, in steps of 10 ms.
const STEPS: u32 = 100;
/// The group of the node itself: groups with controllers for others have no processes of their own (cgroups(7), "no internal processes").
const OF_NODE: &str = "node";
/// Tasks of one process at most: threads of a compiler on a large machine.
pub(super) const TASKS_MAX: u32 = 512;
/// Added to a process's own memory: its page tables, stacks in the kernel, and pages of files.
const BESIDE: u64 = 64 << 20;
/// statfs(2) of such a folder.
const CGROUP2_SUPER_MAGIC: u32 = 0x6367_7270;

/// The place of control groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Setting {
    /// In the node's own group, if a service manager has delegated it.
    #[default]
    Delegated,
    /// Not at all.
    None,
    /// In this folder, which only nodes use.
    At(PathBuf),
}

impl Setting {
    pub(super) fn argument(&self) -> OsString {
        match self {
            Self::Delegated => "delegated".into(),
            Self::None => "none".into(),
            Self::At(folder) => folder.clone().into_os_string(),
        }
    }

    pub(super) fn read(argument: &OsStr) -> Self {
        match argument.as_bytes() {
            b"delegated" => Self::Delegated,
            b"none" => Self::None,
            _ => Self::At(argument.into()),
        }
    }
}

/// A folder in which groups are made.
#[derive(Debug)]
pub(super) struct Groups {
    folder: PathBuf,
    /// The beginning of the names of this node's groups.
    prefix: String,
    /// Memory and tasks can be limited there.
    pub(super) has_limits: bool,
}

impl Groups {
    /// The folder that the setting means, without what an earlier start of this node has left there. `label` tells its groups from those of other nodes; `node` is the
    /// process that the groups are made for.
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
            let own = folder.join(OF_NODE);
            _ = fs::create_dir(&own);
            for process in [node, std::process::id()] {
                _ = put(&own.join("cgroup.procs"), &process.to_string());
            }
        }
        Self::of(folder, label)
    }

    fn of(folder: PathBuf, label: &str) -> Option<Self> {
        for controller in ["+memory", "+pids", "+cpu"] {
            // Where it has no such controller, or is not the node's alone, its groups have none.
            _ = put(&folder.join("cgroup.subtree_control"), controller);
        }
        let prefix = if label.is_empty() { PREFIX.to_owned() } else { format!("{PREFIX}{label}-") };
        let mut this = Self { folder, prefix, has_limits: false };
        this.remove_all();
        // One on trial says what there is.
        let trial = this.make(u32::MAX, 1 << 30).ok()?;
        let there = |file: &str| trial.join(file).exists();
        this.has_limits = there("memory.max") && there("pids.max");
        _ = this.remove(u32::MAX);
        Some(this)
    }

    fn path(&self, number: u32) -> PathBuf {
        self.folder.join(format!("{}{number}", self.prefix))
    }

    /// A group of this number, for a process with so much memory. One that is there already is no process's any more: it is removed first, with what is in it.
    ///
    /// # Errors
    /// The system refuses the group, or one of its limits. Then there is no group.
    pub(super) fn make(&self, number: u32, memory: u64) -> io::Result<PathBuf> {
        let group = self.path(number);
        match fs::create_dir(&group) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                clear(&group);
                fs::create_dir(&group)?;
            }
            made => made?,
        }
        match limit(&group, memory, self.has_limits) {
            Ok(()) => Ok(group),
            Err(error) => {
                _ = fs::remove_dir(&group);
                Err(error)
            }
        }
    }

    /// Removes a group, whose process has ended.
    pub(super) fn remove(&self, number: u32) -> io::Result<()> {
        match fs::remove_dir(self.path(number)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Kills what is in this node's groups, and removes them: an earlier start that was killed has left them.
    fn remove_all(&self) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(&self.prefix));
            if number.is_some_and(|number| number.parse::<u32>().is_ok()) {
                clear(&entry.path());
            }
        }
    }
}

/// Kills what is in a group, and removes it.
fn clear(group: &Path) {
    _ = put(&group.join("cgroup.kill"), "1");
    for _ in 0..STEPS {
        if fs::remove_dir(group).is_ok() || !group.exists() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Gives a group its limits. Where memory and tasks `must` be limited, it is an error that the folder has lost the controllers for them.
fn limit(group: &Path, memory: u64, must: bool) -> io::Result<()> {
    let limits = [
        ("memory.max", memory.saturating_add(BESIDE), must),
        ("memory.swap.max", 0, false),
        ("memory.oom.group", 1, false),
        ("pids.max", TASKS_MAX.into(), must),
    ];
    for (file, value, must) in limits {
        // Kernels differ in what there is.
        match put(&group.join(file), &value.to_string()) {
            Err(error) if must || error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Writes a file of the kernel's, if it is there.
fn put(file: &Path, text: &str) -> io::Result<()> {
    fs::File::options().write(true).open(file)?.write_all(text.as_bytes())
}

/// The folder of this process's group, or the one above it, if it was delegated.
fn delegated(own: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let (root, mount) = mounted(&fs::read_to_string("/proc/self/mountinfo").ok()?)?;
    let beneath = Path::new(path).strip_prefix(&root).ok()?;
    let folder = mount.join(beneath);
    // With DelegateSubgroup= the service's processes are one below.
    [Some(folder.as_path()), folder.parent()]
        .into_iter()
        .flatten()
        .find(|folder| is_delegated(folder))
        .map(Path::to_owned)
}

/// The root and the folder of the first mount of kind cgroup2, as proc_pid_mountinfo(5) has them.
fn mounted(mounts: &str) -> Option<(PathBuf, PathBuf)> {
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut words = before.split(' ').skip(3);
        let (root, folder) = (words.next()?, words.next()?);
        after.starts_with("cgroup2 ").then(|| (root.into(), folder.into()))
    })
}

fn is_delegated(folder: &Path) -> bool {
    let Ok(path) = CString::new(folder.as_os_str().as_bytes()) else { return false };
    [c"user.delegate", c"trusted.delegate"].into_iter().any(|name| {
        let mut value = [0u8; 8];
        // SAFETY: the pointers are to texts that end with a zero, and to as many live bytes.
        let len =
            unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
        usize::try_from(len).is_ok_and(|len| value.get(..len) == Some(b"1"))
    })
}

fn is_group(folder: &Path) -> bool {
    let Ok(path) = CString::new(folder.as_os_str().as_bytes()) else { return false };
    // SAFETY: all of it are numbers, for which zero is a value.
    let mut about: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the pointers are to a text that ends with a zero, and to a live local.
    let known = unsafe { libc::statfs(path.as_ptr(), &raw mut about) } == 0;
    known && u32::try_from(about.f_type).is_ok_and(|kind| kind == CGROUP2_SUPER_MAGIC)
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

    /// Folders stand for those of the kernel.
    #[test]
    fn what_an_earlier_start_left_goes_and_other_nodes_groups_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let others = ["weir-7", "weir-others", "weir-a1-7", "weir-b2-x", "weir-b2-"];
        for name in others.into_iter().chain(["weir-b2-7", "weir-b2-0"]) {
            fs::create_dir(path(name)).unwrap();
        }
        let groups = Groups::of(folder.path().to_owned(), "b2").unwrap();
        assert!(!groups.has_limits, "a plain folder has no controllers");
        assert!(!path("weir-b2-7").exists() && !path("weir-b2-0").exists());
        assert!(others.iter().all(|name| path(name).exists()));
        let without = Groups::of(folder.path().to_owned(), "").unwrap();
        assert!(!path("weir-7").exists() && path("weir-a1-7").exists());
        assert!(without.make(3, 1).unwrap().ends_with("weir-3"));
    }

    #[test]
    fn a_group_is_made_in_the_place_of_one_that_was_left_where_that_can_be_removed() {
        let folder = tempfile::tempdir().unwrap();
        let groups = Groups::of(folder.path().to_owned(), "n").unwrap();
        let group = groups.make(3, 1 << 20).unwrap();
        assert!(group.ends_with("weir-n-3"));
        assert_eq!(groups.make(3, 1 << 20).unwrap(), group, "an empty one that was left");
        groups.remove(3).unwrap();
        assert!(!group.exists());
        groups.remove(3).unwrap();
        // One that cannot be removed is not taken for another process.
        fs::create_dir_all(group.join("more")).unwrap();
        assert_eq!(groups.make(3, 1).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }
}
