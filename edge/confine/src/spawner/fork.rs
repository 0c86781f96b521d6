//! One process: from the spawner's clone(2) to the program that it executes.

use super::Role;
use super::group::TASKS_MAX;
use crate::child::set_limits;
use crate::companion::close_what_is_inherited;
use crate::launch::{Allotment, Streams};
use crate::{Isolation, root};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::ptr;

/// The namespaces beside that of users.
const NAMESPACES: libc::c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// The way in which a process gets namespaces, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// A user namespace whose only user is this process's alone: takes CAP_SETUID and CAP_SETGID.
    OwnUser,
    /// A user namespace whose only user is the spawner's.
    User,
    /// No user namespace: takes CAP_SYS_ADMIN.
    Privileged,
    /// No namespaces.
    None,
}

impl Mode {
    fn flags(self) -> libc::c_int {
        match self {
            Self::OwnUser | Self::User => libc::CLONE_NEWUSER | NAMESPACES,
            Self::Privileged => NAMESPACES,
            Self::None => 0,
        }
    }

    pub(super) fn isolation(self) -> Isolation {
        match self {
            Self::OwnUser => Isolation::UID.with(Isolation::NAMESPACES),
            Self::User | Self::Privileged => Isolation::NAMESPACES,
            Self::None => Isolation::NONE,
        }
    }
}

/// What each process is started from.
#[derive(Debug)]
pub(super) struct Origin {
    /// This program.
    program: OwnedFd,
    nothing: OwnedFd,
    /// The spawner's user and group.
    user: u32,
    group: u32,
    key: Option<CString>,
}

/// One process to be started.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub(super) role: Role,
    pub(super) mode: Mode,
    pub(super) allotment: Allotment,
    pub(super) streams: &'a Streams,
    /// The user that it gets with [`Mode::OwnUser`].
    pub(super) user: u32,
    /// The folder of its control group.
    pub(super) group: Option<&'a Path>,
    /// Whether it is the child of the spawner's own parent.
    pub(super) is_of_parent: bool,
}

/// A process that was started.
#[derive(Debug)]
pub(super) struct Forked {
    pub(super) id: u32,
    /// Readable when it has ended.
    pub(super) handle: OwnedFd,
}

impl Origin {
    pub(super) fn new(key: Option<&Path>) -> io::Result<Self> {
        use std::os::unix::ffi::OsStrExt;
        use std::os::unix::fs::OpenOptionsExt;
        let program = File::options().read(true).custom_flags(libc::O_PATH).open("/proc/self/exe")?;
        let key = key.map(|key| CString::new(key.as_os_str().as_bytes())).transpose()?;
        // SAFETY: take nothing.
        let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
        let nothing = File::options().read(true).write(true).open("/dev/null")?;
        Ok(Self { program: program.into(), nothing: nothing.into(), user, group, key })
    }

    /// Starts a process.
    ///
    /// # Errors
    /// The system refuses one of the steps. A process that had been made by then is dead, and in `dead`: its parent has to wait for it.
    pub(super) fn fork(&self, plan: &Plan<'_>, dead: &mut Vec<u32>) -> io::Result<Forked> {
        let (mut result, told) = io::pipe()?;
        let (go, mut mapped) = io::pipe()?;
        let argument = CString::new(plan.role.argument())?;
        let key = self.key.as_ref().filter(|_| plan.role == Role::KeyAgent);
        let arguments =
            [c"weir".as_ptr(), argument.as_ptr(), key.map_or(ptr::null(), |key| key.as_ptr()), ptr::null()];
        let variable = if plan.mode == Mode::None { ptr::null() } else { root::NAMESPACES.as_ptr() };
        let stream = |given: &Option<OwnedFd>| given.as_ref().unwrap_or(&self.nothing).as_raw_fd();
        let map = |id: u32| CString::new(format!("0 {id} 1"));
        let child = Prepared {
            program: self.program.as_raw_fd(),
            arguments,
            environment: [variable, ptr::null()],
            streams: [stream(&plan.streams.input), stream(&plan.streams.output), stream(&plan.streams.error)],
            mode: plan.mode,
            maps: [map(self.user)?, map(self.group)?],
            go: go.as_raw_fd(),
            told: told.as_raw_fd(),
            mapped: mapped.as_raw_fd(),
            allotment: plan.allotment,
        };
        let group = plan.group.map(File::open).transpose()?;
        let parent = if plan.is_of_parent { libc::CLONE_PARENT } else { 0 };
        let forked = clone(plan.mode.flags() | parent, group.as_ref().map(AsRawFd::as_raw_fd))?;
        let Some(forked) = forked else { child.run() };
        drop((told, go));
        // A process of another mode does not wait: its end of the pipe can be closed by now, as it executes the program.
        let ready = match plan.mode {
            Mode::OwnUser => own_user(forked.id, plan.user).and_then(|()| mapped.write_all(&[1])),
            _ => Ok(()),
        };
        // The end of this pipe is closed when a program is executed.
        let mut failed = [0; 4];
        let failed = ready.and_then(|()| match result.read(&mut failed)? {
            0 => Ok(()),
            4 => Err(io::Error::from_raw_os_error(i32::from_le_bytes(failed))),
            _ => Err(ErrorKind::InvalidData.into()),
        });
        match failed {
            Ok(()) => Ok(forked),
            Err(error) => {
                kill(&forked.handle);
                dead.push(forked.id);
                Err(error)
            }
        }
    }
}

/// Kills a process that may have ended.
pub(super) fn kill(handle: &OwnedFd) {
    let nothing = ptr::null::<libc::siginfo_t>();
    // SAFETY: the pointer is null, which is allowed.
    unsafe { libc::syscall(libc::SYS_pidfd_send_signal, handle.as_raw_fd(), libc::SIGKILL, nothing, 0) };
}

/// Maps user and group 0 of a process's namespace to `user`.
fn own_user(id: u32, user: u32) -> io::Result<()> {
    let map = format!("0 {user} 1");
    for (file, text) in [("setgroups", "deny"), ("uid_map", &map), ("gid_map", &map)] {
        // In one call: the kernel takes a map as a whole, and once.
        File::options().write(true).open(format!("/proc/{id}/{file}"))?.write_all(text.as_bytes())?;
    }
    Ok(())
}

/// Arguments of clone3(2), in its first version with a control group.
#[repr(C)]
#[derive(Default)]
struct CloneArguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// Makes a process that is a copy of this one, which has one thread. There is nothing in the copy.
fn clone(flags: libc::c_int, group: Option<RawFd>) -> io::Result<Option<Forked>> {
    let mut handle: RawFd = -1;
    let is_of_parent = flags & libc::CLONE_PARENT != 0;
    let signal = if is_of_parent { 0 } else { libc::SIGCHLD };
    let id = match group {
        Some(group) => {
            let arguments = CloneArguments {
                flags: u64::from((flags | libc::CLONE_PIDFD).cast_unsigned()) | CLONE_INTO_CGROUP,
                pidfd: (&raw mut handle).addr() as u64,
                exit_signal: u64::from(signal.unsigned_abs()),
                cgroup: u64::from(group.unsigned_abs()),
                ..CloneArguments::default()
            };
            // SAFETY: the arguments are of the length that is given; without a stack the copy goes on with a copy of this one, as after fork(2). Handle outlives the call.
            unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<CloneArguments>()) }
        }
        None => {
            let flags = libc::c_long::from(flags | libc::CLONE_PIDFD | signal);
            // SAFETY: as above; the third argument is where the handle goes, on all architectures.
            unsafe { libc::syscall(libc::SYS_clone, flags, 0, &raw mut handle, 0, 0) }
        }
    };
    match id {
        0 => Ok(None),
        1.. => {
            // SAFETY: the kernel has made it for this process.
            let handle = unsafe { OwnedFd::from_raw_fd(handle) };
            Ok(Some(Forked { id: u32::try_from(id).map_err(io::Error::other)?, handle }))
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// What a new process needs, made before there is one: from clone to exec it only makes system calls.
struct Prepared {
    program: RawFd,
    arguments: [*const libc::c_char; 4],
    environment: [*const libc::c_char; 2],
    streams: [RawFd; 3],
    mode: Mode,
    /// Of the user namespace, if the process writes them itself.
    maps: [CString; 2],
    go: RawFd,
    told: RawFd,
    mapped: RawFd,
    allotment: Allotment,
}

impl Prepared {
    /// Executes the program, or tells why not.
    fn run(&self) -> ! {
        let error = match self.enter().and_then(|()| self.settle()) {
            Ok(()) => {
                let flags = libc::AT_EMPTY_PATH;
                let (arguments, environment) = (self.arguments.as_ptr(), self.environment.as_ptr());
                // SAFETY: the lists end with a null, and are of texts that end with a zero; all are live.
                unsafe {
                    libc::syscall(
                        libc::SYS_execveat,
                        self.program,
                        c"".as_ptr(),
                        arguments,
                        environment,
                        flags,
                    )
                };
                io::Error::last_os_error()
            }
            Err(error) => error,
        };
        let code = error.raw_os_error().unwrap_or(libc::EINVAL).to_le_bytes();
        // SAFETY: the pointer is to as many live bytes. The copy ends without what this process does at its own end.
        unsafe {
            libc::write(self.told, code.as_ptr().cast(), code.len());
            libc::_exit(127);
        }
    }

    /// Becomes the only user of its user namespace.
    fn enter(&self) -> io::Result<()> {
        match self.mode {
            Mode::None | Mode::Privileged => return Ok(()),
            Mode::User => {
                // The files of a process that is hidden are root's.
                // SAFETY: takes no pointers.
                done(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) })?;
                put(c"/proc/self/setgroups", c"deny")?;
                put(c"/proc/self/uid_map", &self.maps[0])?;
                put(c"/proc/self/gid_map", &self.maps[1])?;
            }
            Mode::OwnUser => {
                let mut byte = 0u8;
                // SAFETY: takes no pointers. Only the spawner has the other end then, so its end is seen.
                unsafe { libc::close(self.mapped) };
                // SAFETY: the pointer is to a live byte.
                if unsafe { libc::read(self.go, (&raw mut byte).cast(), 1) } != 1 {
                    return Err(io::Error::from_raw_os_error(libc::EPIPE));
                }
            }
        }
        // SAFETY: take no pointers.
        unsafe {
            done(libc::setresgid(0, 0, 0))?;
            done(libc::setresuid(0, 0, 0))?;
        }
        match self.mode {
            // Counted for each user: where the user is not the process's alone this would count others.
            Mode::OwnUser => set_limits(&[(libc::RLIMIT_NPROC, TASKS_MAX.into(), TASKS_MAX.into())]),
            _ => Ok(()),
        }
    }

    /// Streams and limits.
    fn settle(&self) -> io::Result<()> {
        for (number, stream) in (0..).zip(self.streams) {
            // SAFETY: takes no pointers. What is given has a higher number than the first three, which are the spawner's own.
            if unsafe { libc::dup2(stream, number) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        close_what_is_inherited();
        // SAFETY: takes no pointers. A new session has no terminal.
        unsafe { libc::setsid() };
        self.allotment.apply()?;
        // SAFETY: takes no pointers.
        done(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })
    }
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Writes a file with system calls alone.
fn put(path: &CStr, text: &CStr) -> io::Result<()> {
    let bytes = text.to_bytes();
    // SAFETY: the pointers are to a text that ends with a zero, and to as many live bytes.
    unsafe {
        let file = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        let written = libc::write(file, bytes.as_ptr().cast(), bytes.len());
        let error = io::Error::last_os_error();
        libc::close(file);
        if usize::try_from(written).is_ok_and(|written| written == bytes.len()) { Ok(()) } else { Err(error) }
    }
}
