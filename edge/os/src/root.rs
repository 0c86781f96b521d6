//! An empty root: after it there is no file that the process could name.

use crate::ConfineError;
use std::ffi::CStr;
use std::io;

/// The variable by which the [spawner](crate::spawner) tells a process that it has namespaces of its own.
pub(crate) const NAMESPACES: &CStr = c"WEIR_NAMESPACES=own";
const VARIABLE: &str = "WEIR_NAMESPACES";
/// A folder that each system has; in this process's view alone the empty root is mounted there first.
const PLACE: &CStr = c"/proc";

/// Enters an empty root where the process has a mount namespace of its own, and detaches the old one. To be called before Landlock, which forbids mounts.
pub(crate) fn enter() -> Result<(), ConfineError> {
    if std::env::var_os(VARIABLE).is_none() {
        return Ok(());
    }
    // The spawner has asked for this before it executed the program; a change of user takes it back.
    // SAFETY: takes no pointers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    pivot().map_err(ConfineError::Root)
}

fn done(result: libc::c_long) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn pivot() -> io::Result<()> {
    let (none, here, root) = (std::ptr::null(), c".".as_ptr(), c"/".as_ptr());
    let closed = libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    let small = c"mode=0555,size=4k,nr_inodes=2".as_ptr().cast();
    let empty = c"tmpfs".as_ptr();
    // SAFETY: all pointers are null where that is allowed, or to constant texts that end with a zero.
    unsafe {
        // What is mounted here is not seen elsewhere.
        done(libc::mount(none, root, none, libc::MS_REC | libc::MS_PRIVATE, none.cast()).into())?;
        done(libc::mount(empty, PLACE.as_ptr(), empty, closed, small).into())?;
        done(libc::chdir(PLACE.as_ptr()).into())?;
        // The old root comes to lie on the new one (pivot_root(2), notes), and goes.
        done(libc::syscall(libc::SYS_pivot_root, here, here))?;
        done(libc::umount2(here, libc::MNT_DETACH).into())?;
        done(libc::chdir(root).into())
    }
}
