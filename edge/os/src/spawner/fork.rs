//! One process: from the spawner's clone(2) to the program that it executes.

use super::ProcessRole;
use super::group::TASKS_MAX;
use super::line::{Failed, SpawnStep};
use crate::child::set_limits;
use crate::companion::close_what_is_inherited;
use crate::launch::{Allotment, Streams};
use crate::{Isolation, root};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, ErrorKind, PipeReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::ptr;
use std::time::{Duration, Instant};

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

/// The program and settings from which each process is started.
#[derive(Debug)]
pub(super) struct SpawnTemplate {
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
pub(super) struct ForkPlan<'a> {
    pub(super) role: ProcessRole,
    pub(super) mode: Mode,
    pub(super) allotment: Allotment,
    pub(super) streams: &'a Streams,
    /// The user that it gets with [`Mode::OwnUser`].
    pub(super) user: u32,
    /// The folder of its control group.
    pub(super) group: Option<&'a Path>,
    /// True for a child of the spawner's own parent.
    pub(super) is_of_parent: bool,
    /// The time within which it executes its program.
    pub(super) within: Duration,
}

/// A process that was started.
#[derive(Debug)]
pub(super) struct Forked {
    pub(super) id: u32,
    /// Readable when it has ended.
    pub(super) handle: OwnedFd,
}

impl Forked {
    pub(super) fn has_ended(&self) -> io::Result<bool> {
        is_ready(self.handle.as_fd(), Duration::ZERO)
    }
}

/// A process that was not started.
#[derive(Debug)]
pub(super) struct NotForked {
    pub(super) why: Failed,
    /// The process, where there was one. It has been killed, and its parent has to wait for it.
    pub(super) dead: Option<Forked>,
}

impl From<io::Error> for NotForked {
    fn from(error: io::Error) -> Self {
        Self { why: Failed { step: SpawnStep::Process, error }, dead: None }
    }
}

impl SpawnTemplate {
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

    /// Starts a process, and waits until it executes its program.
    ///
    /// # Errors
    /// The system refuses one of the steps, the process ends before it executes its program, or it takes too long.
    pub(super) fn fork(&self, plan: &ForkPlan<'_>) -> Result<Forked, NotForked> {
        let (mut result, told) = io::pipe()?;
        let (go, mut mapped) = io::pipe()?;
        let text = |text: &str| CString::new(text).map_err(io::Error::from);
        let argument = text(plan.role.argument())?;
        let key = self.key.as_ref().filter(|_| plan.role == ProcessRole::KeyAgent);
        let arguments =
            [c"weir".as_ptr(), argument.as_ptr(), key.map_or(ptr::null(), |key| key.as_ptr()), ptr::null()];
        let variable = if plan.mode == Mode::None { ptr::null() } else { root::NAMESPACES.as_ptr() };
        let stream = |given: &Option<OwnedFd>| given.as_ref().unwrap_or(&self.nothing).as_raw_fd();
        let map = |id: u32| text(&format!("0 {id} 1"));
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
            Mode::OwnUser => own_user(&forked, plan.user).and_then(|()| mapped.write_all(&[1])),
            _ => Ok(()),
        };
        let ready = ready.map_err(|error| Failed { step: SpawnStep::User, error });
        match ready.and_then(|()| begun(&mut result, plan.within)) {
            Ok(()) => Ok(forked),
            Err(why) => {
                kill(&forked.handle);
                Err(NotForked { why, dead: Some(forked) })
            }
        }
    }
}

/// Waits until a process executes its program. It says so beforehand, and the kernel closes its end of the pipe then, as it does where the process ends.
fn begun(result: &mut PipeReader, within: Duration) -> Result<(), Failed> {
    let failed = |error| Failed { step: SpawnStep::Program, error };
    let until = Instant::now() + within;
    let mut said = Vec::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if !is_ready(result.as_fd(), left).map_err(failed)? {
            return Err(failed(ErrorKind::TimedOut.into()));
        }
        let mut bytes = [0; 2 * Said::BYTES];
        match result.read(&mut bytes) {
            Ok(0) => break,
            Ok(len) => said.extend_from_slice(bytes.get(..len).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
        if said.len() > 2 * Said::BYTES {
            return Err(failed(ErrorKind::InvalidData.into()));
        }
    }
    match said.as_chunks() {
        ([Said::BEGINS], []) => Ok(()),
        ([.., last], []) => Err(Said::read(last)),
        // It was killed, or ended by itself.
        _ => Err(failed(ErrorKind::UnexpectedEof.into())),
    }
}

/// A new process's message to the spawner: the step that failed, and the error.
struct Said;

impl Said {
    const BYTES: usize = 5;
    /// All steps are done, and the program is executed next.
    const BEGINS: [u8; Self::BYTES] = [0; Self::BYTES];

    fn of(step: SpawnStep, error: &io::Error) -> [u8; Self::BYTES] {
        let [a, b, c, d] = error.raw_os_error().unwrap_or(libc::EINVAL).to_le_bytes();
        [step.number(), a, b, c, d]
    }

    fn read(said: &[u8; Self::BYTES]) -> Failed {
        let [step, error @ ..] = *said;
        let error = io::Error::from_raw_os_error(i32::from_le_bytes(error));
        Failed { step: SpawnStep::of_number(step).unwrap_or(SpawnStep::Program), error }
    }
}

/// Waits for something to read, or an end; returns true if it comes within this time. The handle of a process is readable when the process has ended.
fn is_ready(from: BorrowedFd<'_>, within: Duration) -> io::Result<bool> {
    let until = Instant::now() + within;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let milliseconds = libc::c_int::try_from(left.as_millis()).unwrap_or(libc::c_int::MAX);
        let mut poll = libc::pollfd { fd: from.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the pointer is to one live entry.
        match unsafe { libc::poll(&raw mut poll, 1, milliseconds) } {
            0 => return Ok(false),
            1.. => return Ok(true),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != ErrorKind::Interrupted {
                    return Err(error);
                }
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
fn own_user(forked: &Forked, user: u32) -> io::Result<()> {
    let folder = folder(forked)?;
    let map = CString::new(format!("0 {user} 1"))?;
    // Each in one call: the kernel takes a map as a whole, and once.
    put_at(folder.as_raw_fd(), c"setgroups", c"deny")?;
    put_at(folder.as_raw_fd(), c"uid_map", &map)?;
    put_at(folder.as_raw_fd(), c"gid_map", &map)
}

/// The folder of a process in /proc, which stays that of this process: when it has ended, the files of the folder are gone, whatever process has the number then.
fn folder(forked: &Forked) -> io::Result<OwnedFd> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    let folder = File::options().read(true).custom_flags(flags).open(format!("/proc/{}", forked.id))?;
    // A process that is there still has had its number since it was made.
    if forked.has_ended()? {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    Ok(folder.into())
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

/// The parts of a new process, made before it is: from clone to exec it only makes system calls.
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
        let done = self.enter().map_err(|error| (SpawnStep::User, error));
        let done = done.and_then(|()| self.settle().map_err(|error| (SpawnStep::Program, error)));
        let said = match done {
            Ok(()) => {
                self.tell(Said::BEGINS);
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
                Said::of(SpawnStep::Program, &io::Error::last_os_error())
            }
            Err((step, error)) => Said::of(step, &error),
        };
        self.tell(said);
        // SAFETY: takes no pointers. The copy ends without what this process does at its own end.
        unsafe { libc::_exit(127) };
    }

    fn tell(&self, said: [u8; Said::BYTES]) {
        // SAFETY: the pointer is to as many live bytes.
        unsafe { libc::write(self.told, said.as_ptr().cast(), said.len()) };
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
    put_at(libc::AT_FDCWD, path, text)
}

/// Writes a file beneath a folder with system calls alone.
fn put_at(folder: RawFd, path: &CStr, text: &CStr) -> io::Result<()> {
    let bytes = text.to_bytes();
    // SAFETY: the pointers are to a text that ends with a zero, and to as many live bytes.
    unsafe {
        let file = libc::openat(folder, path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        let written = libc::write(file, bytes.as_ptr().cast(), bytes.len());
        let error = io::Error::last_os_error();
        libc::close(file);
        if usize::try_from(written).is_ok_and(|written| written == bytes.len()) { Ok(()) } else { Err(error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    const PATIENCE: Duration = Duration::from_secs(60);

    fn handle(process: &Child) -> OwnedFd {
        // SAFETY: takes no pointers.
        let handle = unsafe { libc::syscall(libc::SYS_pidfd_open, process.id(), 0) };
        // SAFETY: the kernel has made it for this process.
        unsafe { OwnedFd::from_raw_fd(RawFd::try_from(handle).unwrap()) }
    }

    #[test]
    fn a_map_is_written_for_the_process_that_was_made_and_for_no_other_one_that_has_its_number() {
        let mut other = Command::new("sleep").arg("1000").spawn().unwrap();
        let mut made = Command::new("sleep").arg("1000").spawn().unwrap();
        let forked = Forked { id: made.id(), handle: handle(&made) };
        let own = folder(&forked).unwrap();
        assert!(!forked.has_ended().unwrap());
        made.kill().unwrap();
        assert!(is_ready(forked.handle.as_fd(), PATIENCE).unwrap() && forked.has_ended().unwrap());
        // As long as nothing has waited for it, its number is its own.
        assert_eq!(folder(&forked).unwrap_err().raw_os_error(), Some(libc::ESRCH));
        made.wait().unwrap();
        // As if the other one had got the number.
        let forked = Forked { id: other.id(), handle: forked.handle };
        assert_eq!(own_user(&forked, 7).unwrap_err().raw_os_error(), Some(libc::ESRCH));
        // What was opened before is no other process's either.
        let error = put_at(own.as_raw_fd(), c"oom_score_adj", c"1").unwrap_err();
        assert!(matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENOENT)), "{error}");
        other.kill().unwrap();
        other.wait().unwrap();
    }

    fn told(said: &[&[u8]]) -> Result<(), Failed> {
        let (mut result, mut told) = io::pipe().unwrap();
        said.iter().for_each(|said| told.write_all(said).unwrap());
        drop(told);
        begun(&mut result, PATIENCE)
    }

    #[test]
    fn a_process_that_ends_before_its_program_begins_is_told_from_one_whose_program_has_begun() {
        told(&[&Said::BEGINS]).unwrap();
        let died = told(&[]).unwrap_err();
        assert_eq!((died.step, died.error.kind()), (SpawnStep::Program, ErrorKind::UnexpectedEof));
        let refused = io::Error::from_raw_os_error(libc::ENOMEM);
        for (said, step) in [
            (vec![&Said::of(SpawnStep::User, &refused)[..]], SpawnStep::User),
            (vec![&Said::BEGINS[..], &Said::of(SpawnStep::Program, &refused)], SpawnStep::Program),
        ] {
            let failed = told(&said).unwrap_err();
            assert_eq!((failed.step, failed.error.raw_os_error()), (step, Some(libc::ENOMEM)));
        }
        for nonsense in [&[0; 4][..], &[0; 11], &[9; 20]] {
            assert_eq!(told(&[nonsense]).unwrap_err().step, SpawnStep::Program, "{nonsense:?}");
        }
    }

    #[test]
    fn a_process_that_does_not_come_to_its_program_is_waited_for_no_longer_than_it_may_take() {
        let (mut result, told) = io::pipe().unwrap();
        let late = begun(&mut result, Duration::from_millis(20)).unwrap_err();
        assert_eq!((late.step, late.error.kind()), (SpawnStep::Program, ErrorKind::TimedOut));
        drop(told);
    }
}
