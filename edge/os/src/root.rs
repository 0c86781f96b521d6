//! An empty root directory, in which a process can name no file.

use crate::ConfineError;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};
use rustix::process::{chdir, pivot_root};
use std::ffi::CStr;
use std::io;

/// The variable by which the [spawner](crate::spawner) tells a process that it has namespaces of its own.
pub(crate) const NAMESPACES: &CStr = c"WEIR_NAMESPACES=own";
const NAMESPACES_VARIABLE: &str = "WEIR_NAMESPACES";
/// A folder that each system has. The empty root is mounted on it, in this process's mount namespace alone.
const MOUNT_POINT: &CStr = c"/proc";

/// Enters an empty root and detaches the old root, if the process has a mount namespace of its own. To be called before
/// Landlock is applied, which forbids mounts.
pub(crate) fn enter_empty() -> Result<(), ConfineError> {
    if !has_namespaces() {
        return Ok(());
    }
    die_with_parent();
    pivot().map_err(ConfineError::Root)
}

/// Keeps the root. In its place Landlock restricts the files.
pub(crate) fn keep() {
    if has_namespaces() {
        die_with_parent();
    }
}

fn has_namespaces() -> bool {
    std::env::var_os(NAMESPACES_VARIABLE).is_some()
}

/// Requests SIGKILL at the parent's death again. The child has requested this before it executed the program, but the kernel
/// has reset the request, because the process's credentials have changed since.
fn die_with_parent() {
    // SAFETY: takes no pointers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Replaces the root of this mount namespace by an empty, read-only root.
fn pivot() -> io::Result<()> {
    let closed = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    // Mounts made from here on are not propagated to other mount namespaces.
    mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    mount(c"tmpfs", MOUNT_POINT, c"tmpfs", closed, Some(c"mode=0555,size=4k,nr_inodes=2"))?;
    chdir(MOUNT_POINT)?;
    // The old root is stacked on the new one (pivot_root(2), notes), and then detached.
    pivot_root(c".", c".")?;
    unmount(c".", UnmountFlags::DETACH)?;
    Ok(chdir(c"/")?)
}
