//! A process that starts others: each in namespaces, with a user, an empty root and a control group of its own, as far as the system allows it.
//!
//! A node gives up what it takes to make namespaces, and to execute anything, before it looks at what strangers wrote. So it starts a *spawner* first:
//! this same program, which keeps the few rights that starting takes, and does nothing else. A node that was taken over gains little by it: it can
//! name one of three [roles](Role), numbers that limit the process, and descriptors of its own; it names no program, path, argument, user or group.
//!
//! ```text
//! node ── role, limits, descriptors ──► spawner ── clone(2): namespaces, control group, parent = the node ──► process
//!   ◄──────── process number, walls ──────┘          maps its own user to 0 of its user namespace            executes weir, empties
//!                                                                                                             its root, confines itself
//! ```
//!
//! | started | user | namespaces |
//! |---|---|---|
//! | as root | one of a range, for each process another | all |
//! | by a user who may make user namespaces | the node's, as the only one of the namespace | all |
//! | as root where there are no user namespaces | the node's | all but that for users |
//! | otherwise | the node's | none: seccomp and Landlock alone |
//!
//! The process is the node's own child (CLONE_PARENT), so the node waits for it. It is the first one of its PID namespace: what it might start ends with
//! it. When the node ends, the kernel kills it (PR_SET_PDEATHSIG), and the spawner kills what is left and removes the control groups.

mod fork;
mod group;
mod serve;

use crate::Isolation;
use crate::descriptors;
use crate::launch::{Allotment, CORE_WORDS, Child, Launcher, Streams, start};
pub use group::Setting as GroupSetting;
pub use serve::{ServeError, serve};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The argument that makes a process of weir a spawner; the others follow it. It has to answer it with [`serve`].
pub const SPAWNER: &str = "start-processes";

/// Processes that a spawner has at a time.
pub const PROCESSES_MAX: u32 = 1024;

/// Descriptors of a spawner: a handle for each process, and a few.
const DESCRIPTORS: u64 = PROCESSES_MAX as u64 + 64;
/// How long a spawner may take to begin, and to start a process, on the slowest of machines.
const PATIENCE: Duration = Duration::from_secs(30);

const STARTED: u8 = 1;
const FAILED: u8 = 0;
/// A role and an allotment.
const REQUEST_BYTES: usize = 1 + Allotment::BYTES;
/// Attempts that failed before, whose processes are to be waited for.
const DEAD_MAX: usize = 3;
/// Whether it was started, its walls, its number or why there is none (errno(3)), and numbers of processes that are dead.
const ANSWER_BYTES: usize = 6 + 4 * DEAD_MAX;

/// A kind of process that a spawner starts. Its argument is fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs one module.
    Module,
    /// Compiles one module.
    Compiler,
    /// Keeps the node's private key.
    KeyAgent,
}

impl Role {
    /// All of them, with their arguments.
    const ALL: [(Self, &'static str); 3] =
        [(Self::Module, "ward"), (Self::Compiler, "compile"), (Self::KeyAgent, "keep-key")];

    /// The role of this argument.
    pub(crate) fn of(argument: &OsStr) -> Option<Self> {
        Self::ALL.iter().find(|(_, name)| argument == *name).map(|(role, _)| *role)
    }

    fn argument(self) -> &'static str {
        Self::ALL.iter().find(|(role, _)| *role == self).map_or("", |(_, name)| name)
    }

    /// Its name in metrics.
    fn name(self) -> &'static str {
        match self {
            Self::Module => "module",
            Self::Compiler => "compiler",
            Self::KeyAgent => "key-agent",
        }
    }

    fn number(self) -> u8 {
        let at = Self::ALL.iter().position(|(role, _)| *role == self).unwrap_or_default();
        u8::try_from(at).unwrap_or(u8::MAX)
    }

    fn of_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).map(|(role, _)| *role)
    }
}

/// The settings of a spawner, which it gets once, when it is started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The first of [`PROCESSES_MAX`] users that no one else has. Used where the spawner is root's.
    pub first_user: u32,
    /// Where control groups are made.
    pub group: GroupSetting,
    /// The file of the node's private key, for the process that keeps it.
    pub key: Option<PathBuf>,
}

impl Settings {
    fn arguments(&self) -> Vec<OsString> {
        let mut arguments = vec![SPAWNER.into(), self.first_user.to_string().into(), self.group.argument()];
        arguments.extend(self.key.iter().map(|key| key.clone().into_os_string()));
        arguments
    }

    fn read(arguments: &[OsString]) -> Option<Self> {
        let (first, rest) = arguments.split_first()?;
        let (group, rest) = rest.split_first()?;
        let key = match rest {
            [] => None,
            [key] => Some(PathBuf::from(key)),
            _ => return None,
        };
        Some(Self { first_user: first.to_str()?.parse().ok()?, group: GroupSetting::read(group), key })
    }
}

/// A spawner, from the side of the process that it starts others for. It ends with this, and all that it has started with it.
#[derive(Debug)]
pub struct Spawner {
    line: Mutex<OwnedFd>,
    process: Child,
    best: Isolation,
    /// Processes that were started, by role and walls.
    started: Mutex<Started>,
}

type Started = BTreeMap<(&'static str, u8), u64>;

impl Spawner {
    /// Starts `program`, which answers [`SPAWNER`] with [`serve`]. To be called by a thread that lives as long as the process: what the spawner starts is killed
    /// when that thread ends. The spawner tries all walls before this returns.
    ///
    /// # Errors
    /// There is no such process, or it does not begin.
    pub fn start(program: &Path, settings: &Settings) -> io::Result<Self> {
        let (line, theirs) = pair()?;
        let all = Allotment {
            processor: 0,
            addresses: libc::RLIM_INFINITY,
            memory: 0,
            nice: 0,
            descriptors: DESCRIPTORS,
            cores: [0; CORE_WORDS],
        };
        let streams = Streams { input: Some(theirs), ..Streams::default() };
        let launcher = Launcher::from(program);
        let process = start(&launcher, &settings.arguments(), all, streams, false)?;
        let mut this =
            Self { line: Mutex::new(line), process, best: Isolation::NONE, started: Mutex::default() };
        this.best = match answer(lock(&this.line).as_fd())? {
            Ok((_, isolation)) => isolation,
            Err(error) => return Err(error),
        };
        Ok(this)
    }

    /// The walls around a module's process.
    pub fn isolation(&self) -> Isolation {
        self.best
    }

    /// The spawner's own process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Has a process started.
    pub(crate) fn begin(&self, role: Role, allotment: &Allotment, streams: &Streams) -> io::Result<Child> {
        let mut request = vec![role.number()];
        allotment.write(&mut request);
        let given = [&streams.input, &streams.output, &streams.error];
        let given: Vec<BorrowedFd<'_>> = given.into_iter().flatten().map(AsFd::as_fd).collect();
        let line = lock(&self.line);
        let answered = descriptors::send(line.as_fd(), &request, &given).and_then(|()| answer(line.as_fd()));
        if answered.is_err() {
            // A late answer would be taken for that to the next request. The spawner ends by this, which needs no descriptor.
            // SAFETY: takes no pointers; the line is open as long as the lock is held.
            unsafe { libc::shutdown(line.as_raw_fd(), libc::SHUT_RDWR) };
        }
        drop(line);
        let (id, isolation) = answered??;
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        *started.entry((role.name(), isolation.bits())).or_default() += 1;
        Ok(Child::of(id, isolation))
    }

    /// The processes that it has started, with their role, their walls and their number.
    pub fn started(&self) -> Vec<(&'static str, Isolation, u64)> {
        let started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        started.iter().map(|((role, bits), count)| (*role, Isolation::from_bits(*bits), *count)).collect()
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        // It ends by itself, in order, when the line is closed.
        if let Ok(closed) = closed() {
            *lock(&self.line) = closed;
        }
        for _ in 0..PATIENCE.as_millis() / 10 {
            let mut status = 0;
            let id = libc::pid_t::try_from(self.process.id()).unwrap_or(-1);
            // SAFETY: the pointer is to a live local. The spawner is this process's child, and no other code waits for it.
            if id <= 0 || unsafe { libc::waitpid(id, &raw mut status, libc::WNOHANG) } != 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// What stands in the place of a line that is closed.
fn closed() -> io::Result<OwnedFd> {
    Ok(std::fs::File::open("/dev/null")?.into())
}

fn lock(line: &Mutex<OwnedFd>) -> std::sync::MutexGuard<'_, OwnedFd> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two ends of a line that keeps messages apart.
fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: the pointer is to two live numbers.
    if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both are new, and of no other owner.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Waits until there is something to read.
fn wait_for(line: BorrowedFd<'_>, within: Duration) -> io::Result<()> {
    let mut poll = libc::pollfd { fd: line.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let milliseconds = libc::c_int::try_from(within.as_millis()).unwrap_or(libc::c_int::MAX);
    loop {
        // SAFETY: the pointer is to one live entry.
        match unsafe { libc::poll(&raw mut poll, 1, milliseconds) } {
            0 => return Err(ErrorKind::TimedOut.into()),
            1.. => return Ok(()),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

/// A spawner's answer: a process and its walls, or why there is none. An error outside is one after which it does not answer any more.
fn answer(line: BorrowedFd<'_>) -> io::Result<io::Result<(u32, Isolation)>> {
    wait_for(line, PATIENCE)?;
    let mut bytes = [0; ANSWER_BYTES];
    let (len, _) = descriptors::receive(line, &mut bytes)?;
    if len == 0 {
        return Err(io::Error::new(ErrorKind::BrokenPipe, "the process that starts others has ended"));
    }
    let ([kind, walls], numbers) =
        (bytes[..2].try_into().unwrap_or([FAILED, 0]), bytes[2..].as_chunks::<4>().0);
    let mut numbers = numbers.iter().copied().map(u32::from_le_bytes);
    let number = numbers.next().unwrap_or_default();
    for dead in numbers.filter(|dead| *dead > 0) {
        _ = Child::of(dead, Isolation::NONE).wait();
    }
    match (len, kind) {
        (ANSWER_BYTES, STARTED) => Ok(Ok((number, Isolation::from_bits(walls)))),
        (ANSWER_BYTES, FAILED) => Ok(Err(io::Error::from_raw_os_error(number.cast_signed()))),
        _ => Err(ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_come_as_they_were_given() {
        for settings in [
            Settings { first_user: 1_900_000_000, group: GroupSetting::Delegated, key: None },
            Settings { first_user: 7, group: GroupSetting::None, key: Some("node key".into()) },
            Settings { first_user: 0, group: GroupSetting::At("/sys/fs/cgroup/weir".into()), key: None },
        ] {
            let arguments = settings.arguments();
            assert_eq!(arguments[0], SPAWNER);
            assert_eq!(Settings::read(&arguments[1..]), Some(settings));
        }
        for wrong in [&[][..], &["1"], &["x", "none"], &["1", "none", "key", "more"]] {
            let wrong: Vec<OsString> = wrong.iter().map(OsString::from).collect();
            assert_eq!(Settings::read(&wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn each_role_has_a_number_and_an_argument() {
        for (role, argument) in Role::ALL {
            assert_eq!(
                (Role::of_number(role.number()), Role::of(OsStr::new(argument))),
                (Some(role), Some(role))
            );
        }
        assert_eq!((Role::of_number(4), Role::of(OsStr::new("/bin/sh"))), (None, None));
    }
}
