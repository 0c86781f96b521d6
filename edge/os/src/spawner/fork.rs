//! The start of one process: from the spawner's clone(2) to the execution of its program.

use super::ProcessRole;
use super::channel::{Failed, SpawnStep};
use super::group::TASKS_MAX;
use crate::child::set_limits;
use crate::helper::close_inherited_on_exec;
use crate::launch::{ProcessLimits, Streams};
use crate::{Isolation, root};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, ErrorKind, PipeReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::ptr;
use std::time::{Duration, Instant};

/// All namespaces except the user namespace.
const NAMESPACES: libc::c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// The namespaces of a started process, from the strongest isolation to the weakest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NamespaceMode {
    /// All namespaces. The only user of the user namespace is one that no other process has. The spawner needs CAP_SETUID
    /// and CAP_SETGID.
    OwnUser,
    /// All namespaces. The only user of the user namespace is the spawner's.
    SharedUser,
    /// All namespaces but the user namespace. The spawner needs CAP_SYS_ADMIN.
    NoUserNamespace,
    /// No namespaces.
    NoNamespaces,
}

impl NamespaceMode {
    fn flags(self) -> libc::c_int {
        match self {
            Self::OwnUser | Self::SharedUser => libc::CLONE_NEWUSER | NAMESPACES,
            Self::NoUserNamespace => NAMESPACES,
            Self::NoNamespaces => 0,
        }
    }

    pub(super) fn isolation(self) -> Isolation {
        match self {
            Self::OwnUser => Isolation::UID.with(Isolation::NAMESPACES),
            Self::SharedUser | Self::NoUserNamespace => Isolation::NAMESPACES,
            Self::NoNamespaces => Isolation::NONE,
        }
    }
}

/// The program and the settings that are the same for all processes of a spawner.
#[derive(Debug)]
pub(super) struct SpawnTemplate {
    /// The running program, which started processes execute too.
    program: OwnedFd,
    null_device: OwnedFd,
    /// The spawner's user.
    user: u32,
    /// The spawner's group.
    group: u32,
    /// The path of the node's private key, an argument of the key agent.
    key: Option<CString>,
}

/// The description of one process to be started.
#[derive(Debug)]
pub(super) struct ForkPlan<'a> {
    pub(super) role: ProcessRole,
    pub(super) mode: NamespaceMode,
    pub(super) process_limits: ProcessLimits,
    pub(super) streams: &'a Streams,
    /// The process's user with [`NamespaceMode::OwnUser`].
    pub(super) user: u32,
    /// The folder of the process's control group.
    pub(super) group: Option<&'a Path>,
    /// True if the process becomes a child of the spawner's parent, which is the node.
    pub(super) is_of_parent: bool,
    /// The longest time from now until the process executes its program.
    pub(super) within: Duration,
}

/// A started process.
#[derive(Debug)]
pub(super) struct Forked {
    pub(super) id: u32,
    /// A descriptor of the process (pidfd), which is readable once the process has ended.
    pub(super) handle: OwnedFd,
}

impl Forked {
    pub(super) fn has_ended(&self) -> io::Result<bool> {
        wait_until_readable(self.handle.as_fd(), Duration::ZERO)
    }
}

/// A process that could not be started.
#[derive(Debug)]
pub(super) struct NotForked {
    pub(super) failed: Failed,
    /// The process, if it was created: it has been killed, and its parent must wait for its end.
    pub(super) dead: Option<Forked>,
}

impl From<io::Error> for NotForked {
    fn from(error: io::Error) -> Self {
        Self { failed: Failed { step: SpawnStep::Process, error }, dead: None }
    }
}

impl SpawnTemplate {
    pub(super) fn new(key: Option<&Path>) -> io::Result<Self> {
        use std::os::unix::ffi::OsStrExt;
        use std::os::unix::fs::OpenOptionsExt;
        let program = File::options().read(true).custom_flags(libc::O_PATH).open("/proc/self/exe")?;
        let key = key.map(|key| CString::new(key.as_os_str().as_bytes())).transpose()?;
        // SAFETY: take no pointers.
        let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
        let null_device = File::options().read(true).write(true).open("/dev/null")?;
        Ok(Self { program: program.into(), null_device: null_device.into(), user, group, key })
    }

    /// Starts a process, and waits until it executes its program.
    ///
    /// # Errors
    /// The system refuses one of the steps, the process ends before it executes its program, or it takes too long.
    pub(super) fn fork(&self, plan: &ForkPlan<'_>) -> Result<Forked, NotForked> {
        let (mut reports, report_pipe) = io::pipe()?;
        let (go_pipe, mut mapped_pipe) = io::pipe()?;
        let text = |text: &str| CString::new(text).map_err(io::Error::from);
        let argument = text(plan.role.argument())?;
        let key = self.key.as_ref().filter(|_| plan.role == ProcessRole::KeyAgent);
        let arguments =
            [c"weir".as_ptr(), argument.as_ptr(), key.map_or(ptr::null(), |key| key.as_ptr()), ptr::null()];
        let variable =
            if plan.mode == NamespaceMode::NoNamespaces { ptr::null() } else { root::NAMESPACES.as_ptr() };
        let stream = |stream: &Option<OwnedFd>| stream.as_ref().unwrap_or(&self.null_device).as_raw_fd();
        let map = |id: u32| text(&format!("0 {id} 1"));
        let child = ChildSetup {
            program: self.program.as_raw_fd(),
            arguments,
            environment: [variable, ptr::null()],
            streams: [stream(&plan.streams.input), stream(&plan.streams.output), stream(&plan.streams.error)],
            mode: plan.mode,
            maps: [map(self.user)?, map(self.group)?],
            go_pipe: go_pipe.as_raw_fd(),
            report_pipe: report_pipe.as_raw_fd(),
            mapped_pipe: mapped_pipe.as_raw_fd(),
            process_limits: plan.process_limits,
        };
        let group = plan.group.map(File::open).transpose()?;
        let parent = if plan.is_of_parent { libc::CLONE_PARENT } else { 0 };
        let forked = clone(plan.mode.flags() | parent, group.as_ref().map(AsRawFd::as_raw_fd))?;
        let Some(forked) = forked else { child.run() };
        drop((report_pipe, go_pipe));
        // Only in this mode the process waits for its user map. In other modes it may have closed its end of the pipe.
        let ready = match plan.mode {
            NamespaceMode::OwnUser => {
                map_own_user(&forked, plan.user).and_then(|()| mapped_pipe.write_all(&[1]))
            }
            _ => Ok(()),
        };
        let ready = ready.map_err(|error| Failed { step: SpawnStep::User, error });
        match ready.and_then(|()| wait_until_executed(&mut reports, plan.within)) {
            Ok(()) => Ok(forked),
            Err(failed) => {
                kill(&forked.handle);
                Err(NotForked { failed, dead: Some(forked) })
            }
        }
    }
}

/// Waits until a process executes its program, for at most `within`. The process sends a [`ForkReport`] beforehand, and the
/// kernel closes the process's end of the pipe on execution or exit.
///
/// # Errors
/// The step that failed. A process that ends without a report has failed at [`SpawnStep::Program`].
fn wait_until_executed(reports: &mut PipeReader, within: Duration) -> Result<(), Failed> {
    let failed = |error| Failed { step: SpawnStep::Program, error };
    let until = Instant::now() + within;
    let mut received = Vec::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if !wait_until_readable(reports.as_fd(), left).map_err(failed)? {
            return Err(failed(ErrorKind::TimedOut.into()));
        }
        let mut bytes = [0; 2 * ForkReport::BYTES];
        match reports.read(&mut bytes) {
            Ok(0) => break,
            Ok(len) => received.extend_from_slice(bytes.get(..len).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
        if received.len() > 2 * ForkReport::BYTES {
            return Err(failed(ErrorKind::InvalidData.into()));
        }
    }
    match received.as_chunks() {
        ([ForkReport::READY], []) => Ok(()),
        ([.., last], []) => Err(ForkReport::decode(last)),
        // The process was killed or exited without a report.
        _ => Err(failed(ErrorKind::UnexpectedEof.into())),
    }
}

/// The format of a new process's report to the spawner: the code of the failed step, and the system's error number.
///
/// The process sends [`READY`](Self::READY) before it executes its program. If the execution fails, it sends a second
/// report.
struct ForkReport;

impl ForkReport {
    const BYTES: usize = 5;
    /// The report that all steps are done, and that the program is executed next.
    const READY: [u8; Self::BYTES] = [0; Self::BYTES];

    fn encode(step: SpawnStep, error: &io::Error) -> [u8; Self::BYTES] {
        let [a, b, c, d] = error.raw_os_error().unwrap_or(libc::EINVAL).to_le_bytes();
        [step.code(), a, b, c, d]
    }

    fn decode(report: &[u8; Self::BYTES]) -> Failed {
        let [step, error @ ..] = *report;
        let error = io::Error::from_raw_os_error(i32::from_le_bytes(error));
        Failed { step: SpawnStep::from_code(step).unwrap_or(SpawnStep::Program), error }
    }
}

/// Waits until `from` is readable or at its end, for at most `within`. Returns true if it is. The handle of a process is
/// readable when the process has ended.
fn wait_until_readable(from: BorrowedFd<'_>, within: Duration) -> io::Result<bool> {
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

/// Kills a process. Has no effect if it has ended already.
pub(super) fn kill(handle: &OwnedFd) {
    let no_info = ptr::null::<libc::siginfo_t>();
    // SAFETY: the pointer is null, which is allowed.
    unsafe { libc::syscall(libc::SYS_pidfd_send_signal, handle.as_raw_fd(), libc::SIGKILL, no_info, 0) };
}

/// Maps user 0 and group 0 of a process's user namespace to the user and the group with the number `user`.
fn map_own_user(forked: &Forked, user: u32) -> io::Result<()> {
    let folder = proc_folder(forked)?;
    let map = CString::new(format!("0 {user} 1"))?;
    // Each file is written by one call: the kernel accepts a map only once, and as a whole.
    write_file_at(folder.as_raw_fd(), c"setgroups", c"deny")?;
    write_file_at(folder.as_raw_fd(), c"uid_map", &map)?;
    write_file_at(folder.as_raw_fd(), c"gid_map", &map)
}

/// Opens the folder of a process in /proc. The open folder never becomes that of another process: when the process has
/// ended, the folder is empty, even if another process has got the id.
fn proc_folder(forked: &Forked) -> io::Result<OwnedFd> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    let folder = File::options().read(true).custom_flags(flags).open(format!("/proc/{}", forked.id))?;
    // If the process has not ended, no other process had its id when the folder was opened.
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

/// Creates a child as a copy of this process, which has one thread, in the control group whose open folder is `group`.
/// Returns `None` in the child.
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
            // SAFETY: the arguments have the given length, and the handle outlives the call. Without a stack among the
            // arguments the child continues on a copy of this stack, as after fork(2).
            unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<CloneArguments>()) }
        }
        None => {
            let flags = libc::c_long::from(flags | libc::CLONE_PIDFD | signal);
            // SAFETY: the handle outlives the call; it is the third argument on all architectures. Without a stack the
            // child continues on a copy of this stack, as after fork(2).
            unsafe { libc::syscall(libc::SYS_clone, flags, 0, &raw mut handle, 0, 0) }
        }
    };
    match id {
        0 => Ok(None),
        1.. => {
            // SAFETY: the kernel has just created the descriptor, which has no other owner.
            let handle = unsafe { OwnedFd::from_raw_fd(handle) };
            Ok(Some(Forked { id: u32::try_from(id).map_err(io::Error::other)?, handle }))
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// The values that a child needs between clone and exec. The parent prepares them, because the child may only make system
/// calls.
struct ChildSetup {
    program: RawFd,
    arguments: [*const libc::c_char; 4],
    environment: [*const libc::c_char; 2],
    streams: [RawFd; 3],
    mode: NamespaceMode,
    /// The user map and the group map of the user namespace, which the child writes itself in
    /// [`NamespaceMode::SharedUser`].
    maps: [CString; 2],
    /// The end of a pipe from which the child reads a byte when the spawner has written the child's maps
    /// ([`NamespaceMode::OwnUser`]).
    go_pipe: RawFd,
    /// The end of another pipe, to which the child writes its [`ForkReport`]s.
    report_pipe: RawFd,
    /// The spawner's end of `go_pipe`, which the child closes.
    mapped_pipe: RawFd,
    process_limits: ProcessLimits,
}

impl ChildSetup {
    /// Runs the child: executes the program, or reports the failed step and exits.
    fn run(&self) -> ! {
        let done = self.enter_user_namespace().map_err(|error| (SpawnStep::User, error));
        let done =
            done.and_then(|()| self.set_streams_and_limits().map_err(|error| (SpawnStep::Program, error)));
        let report = match done {
            Ok(()) => {
                self.report(ForkReport::READY);
                let flags = libc::AT_EMPTY_PATH;
                let (arguments, environment) = (self.arguments.as_ptr(), self.environment.as_ptr());
                // SAFETY: both lists end with a null pointer; their other pointers are to live texts that end with a
                // zero.
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
                ForkReport::encode(SpawnStep::Program, &io::Error::last_os_error())
            }
            Err((step, error)) => ForkReport::encode(step, &error),
        };
        self.report(report);
        // SAFETY: takes no pointers. The child must not run the exit handlers of the spawner, so it does not call
        // exit(3).
        unsafe { libc::_exit(127) };
    }

    fn report(&self, report: [u8; ForkReport::BYTES]) {
        // SAFETY: the pointer is to `report.len()` live bytes.
        unsafe { libc::write(self.report_pipe, report.as_ptr().cast(), report.len()) };
    }

    /// Becomes user 0 of the child's user namespace, which has no other user. Does nothing without a user namespace.
    fn enter_user_namespace(&self) -> io::Result<()> {
        match self.mode {
            NamespaceMode::NoNamespaces | NamespaceMode::NoUserNamespace => return Ok(()),
            NamespaceMode::SharedUser => {
                // The files in /proc of a process that is not dumpable belong to root, so it could not write its maps.
                // SAFETY: takes no pointers.
                check(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) })?;
                write_file(c"/proc/self/setgroups", c"deny")?;
                write_file(c"/proc/self/uid_map", &self.maps[0])?;
                write_file(c"/proc/self/gid_map", &self.maps[1])?;
            }
            NamespaceMode::OwnUser => {
                let mut byte = 0u8;
                // SAFETY: takes no pointers. From here on only the spawner has the writing end, so the read below returns if
                // the spawner ends.
                unsafe { libc::close(self.mapped_pipe) };
                // SAFETY: the pointer is to a live byte.
                if unsafe { libc::read(self.go_pipe, (&raw mut byte).cast(), 1) } != 1 {
                    return Err(io::Error::from_raw_os_error(libc::EPIPE));
                }
            }
        }
        // SAFETY: take no pointers.
        unsafe {
            check(libc::setresgid(0, 0, 0))?;
            check(libc::setresuid(0, 0, 0))?;
        }
        match self.mode {
            // RLIMIT_NPROC counts all processes of a user, so it is set only if the user has no other process.
            NamespaceMode::OwnUser => set_limits(&[(libc::RLIMIT_NPROC, TASKS_MAX.into(), TASKS_MAX.into())]),
            _ => Ok(()),
        }
    }

    /// Sets the standard streams, a new session, the limits, and SIGKILL as the signal at the parent's death.
    fn set_streams_and_limits(&self) -> io::Result<()> {
        for (number, stream) in (0..).zip(self.streams) {
            // SAFETY: takes no pointers. The first three descriptors are the spawner's own standard streams, so no stream of
            // the child is overwritten before it is copied.
            if unsafe { libc::dup2(stream, number) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        close_inherited_on_exec();
        // SAFETY: takes no pointers. A new session has no terminal.
        unsafe { libc::setsid() };
        self.process_limits.apply()?;
        // SAFETY: takes no pointers.
        check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })
    }
}

/// Converts the result of a system call, 0 or -1.
fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Writes a file with system calls alone.
fn write_file(path: &CStr, text: &CStr) -> io::Result<()> {
    write_file_at(libc::AT_FDCWD, path, text)
}

/// Writes a file beneath a folder with system calls alone.
fn write_file_at(folder: RawFd, path: &CStr, text: &CStr) -> io::Result<()> {
    let bytes = text.to_bytes();
    // SAFETY: the pointers are to a text that ends with a zero, and to `bytes.len()` live bytes.
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
        // SAFETY: the kernel has just created the descriptor, which has no other owner.
        unsafe { OwnedFd::from_raw_fd(RawFd::try_from(handle).unwrap()) }
    }

    #[test]
    fn a_user_map_is_never_written_for_another_process_with_the_same_id() {
        let mut other = Command::new("sleep").arg("1000").spawn().unwrap();
        let mut made = Command::new("sleep").arg("1000").spawn().unwrap();
        let forked = Forked { id: made.id(), handle: handle(&made) };
        let own = proc_folder(&forked).unwrap();
        assert!(!forked.has_ended().unwrap());
        made.kill().unwrap();
        assert!(wait_until_readable(forked.handle.as_fd(), PATIENCE).unwrap() && forked.has_ended().unwrap());
        // Until the process is waited for, no other process has its id.
        assert_eq!(proc_folder(&forked).unwrap_err().raw_os_error(), Some(libc::ESRCH));
        made.wait().unwrap();
        // As if the other process had got the id.
        let forked = Forked { id: other.id(), handle: forked.handle };
        assert_eq!(map_own_user(&forked, 7).unwrap_err().raw_os_error(), Some(libc::ESRCH));
        // A folder opened before does not become another process's either.
        let error = write_file_at(own.as_raw_fd(), c"oom_score_adj", c"1").unwrap_err();
        assert!(matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENOENT)), "{error}");
        other.kill().unwrap();
        other.wait().unwrap();
    }

    fn outcome_of(reports: &[&[u8]]) -> Result<(), Failed> {
        let (mut result, mut report_pipe) = io::pipe().unwrap();
        reports.iter().for_each(|report| report_pipe.write_all(report).unwrap());
        drop(report_pipe);
        wait_until_executed(&mut result, PATIENCE)
    }

    #[test]
    fn an_end_before_execution_is_distinguished_from_a_started_program() {
        outcome_of(&[&ForkReport::READY]).unwrap();
        let died = outcome_of(&[]).unwrap_err();
        assert_eq!((died.step, died.error.kind()), (SpawnStep::Program, ErrorKind::UnexpectedEof));
        let refused = io::Error::from_raw_os_error(libc::ENOMEM);
        for (report, step) in [
            (vec![&ForkReport::encode(SpawnStep::User, &refused)[..]], SpawnStep::User),
            (
                vec![&ForkReport::READY[..], &ForkReport::encode(SpawnStep::Program, &refused)],
                SpawnStep::Program,
            ),
        ] {
            let failed = outcome_of(&report).unwrap_err();
            assert_eq!((failed.step, failed.error.raw_os_error()), (step, Some(libc::ENOMEM)));
        }
        for invalid in [&[0; 4][..], &[0; 11], &[9; 20]] {
            assert_eq!(outcome_of(&[invalid]).unwrap_err().step, SpawnStep::Program, "{invalid:?}");
        }
    }

    #[test]
    fn the_wait_for_execution_is_limited() {
        let (mut result, report_pipe) = io::pipe().unwrap();
        let late = wait_until_executed(&mut result, Duration::from_millis(20)).unwrap_err();
        assert_eq!((late.step, late.error.kind()), (SpawnStep::Program, ErrorKind::TimedOut));
        drop(report_pipe);
    }
}
