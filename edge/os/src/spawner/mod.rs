//! A process that starts others: each in namespaces, with a user, an empty root and a control group of its own, as far as the system allows it.
//!
//! A node gives up what it takes to make namespaces, and to execute anything, before it looks at what strangers wrote. So it starts a *spawner* first:
//! this same program, which keeps the few rights that starting takes, and does nothing else. A node that was taken over gains little by it: it can
//! name one of three [roles](ProcessRole), numbers that limit the process, and descriptors of its own; it names no program, path, argument, user or group.
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
mod line;
mod serve;

use crate::Isolation;
use crate::launch::{Allotment, CORE_WORDS, Child, Launcher, Streams, start};
pub use group::Setting as GroupSetting;
use line::{Failed, SpawnRequest, SpawnStep, SpawnerChannel, SpawnerChannelError, Started};
pub use serve::{ServeError, serve};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The argument that makes a process of weir a spawner; the others follow it. It has to answer it with [`serve`].
pub const SPAWNER: &str = "start-processes";

/// Processes that a spawner has at a time.
pub const PROCESSES_MAX: u32 = 1024;
/// The most processes that run modules. The others are for compilers and the key agent.
pub const PROCESSES_OF_MODULES_MAX: u32 = PROCESSES_MAX - 64;

/// Descriptors of a spawner: a handle for each process, and a few.
const DESCRIPTORS: u64 = PROCESSES_MAX as u64 + 64;
/// The longest time for a spawner to begin, and to start a process, on the slowest of machines.
const PATIENCE: Duration = Duration::from_secs(30);
/// The wait for an answer that was not there within [`PATIENCE`], before anything else is asked.
const LATE: Duration = Duration::from_secs(1);
/// The longest label of a node's control groups.
const LABEL_MAX: usize = 32;

/// A kind of process that a spawner starts. Its argument is fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessRole {
    /// Runs one module.
    Module,
    /// Compiles one module.
    Compiler,
    /// Keeps the node's private key.
    KeyAgent,
}

impl ProcessRole {
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
    /// The place of control groups.
    pub group: GroupSetting,
    /// The part of the names of this node's control groups by which they differ from other nodes': at most 32 ASCII letters and digits.
    pub label: String,
    /// The file of the node's private key, for the process that keeps it.
    pub key: Option<PathBuf>,
}

impl Settings {
    fn arguments(&self) -> Vec<OsString> {
        let (first, label) = (self.first_user.to_string(), self.label.clone());
        let mut arguments = vec![SPAWNER.into(), first.into(), self.group.argument(), label.into()];
        arguments.extend(self.key.iter().map(|key| key.clone().into_os_string()));
        arguments
    }

    fn read(arguments: &[OsString]) -> Option<Self> {
        let (first, rest) = arguments.split_first()?;
        let (group, rest) = rest.split_first()?;
        let (label, rest) = rest.split_first()?;
        let label = label.to_str().filter(|label| label.len() <= LABEL_MAX)?;
        if !label.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return None;
        }
        let key = match rest {
            [] => None,
            [key] => Some(PathBuf::from(key)),
            _ => return None,
        };
        let (first_user, group) = (first.to_str()?.parse().ok()?, GroupSetting::read(group));
        Some(Self { first_user, group, label: label.to_owned(), key })
    }
}

/// Why a spawner did not start a process.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The spawner is gone.
    #[error(
        "the process that starts others has ended: nothing new can be started, so the node is to be started anew"
    )]
    Gone,
    /// It is at another request, or stopped.
    #[error("the process that starts others does not answer in time: ask again")]
    Late,
    /// It says what is no answer.
    #[error("the process that starts others says what is no answer, and is ended")]
    Nonsense,
    /// It does not know the request.
    #[error("the process that starts others does not carry out this request: {0}")]
    Request(io::Error),
    /// There are too many processes.
    #[error(
        "{PROCESSES_OF_MODULES_MAX} processes run modules, or {PROCESSES_MAX} processes run in all, which is the most: close a session with `process = \"own\"`"
    )]
    Full,
    /// One of the walls cannot be put up that the node announced at its start. It is not started without.
    #[error(
        "{wall} cannot be made now, and it is not started with less isolation than the node announced ({announced}): {source}; see {see}, or start the node anew"
    )]
    Wall {
        /// The wall.
        wall: &'static str,
        /// The isolation that the node announced.
        announced: Isolation,
        /// The system's error.
        source: io::Error,
        /// The settings of the system that limit the wall.
        see: &'static str,
    },
    /// Its program does not begin.
    #[error("its program does not begin: {0}")]
    Program(io::Error),
    /// The request cannot be sent, or the answer not be received.
    #[error("the process that starts others cannot be asked: {0}")]
    System(io::Error),
}

impl SpawnError {
    fn of_line(error: SpawnerChannelError) -> Self {
        match error {
            SpawnerChannelError::Gone => Self::Gone,
            SpawnerChannelError::Late => Self::Late,
            SpawnerChannelError::Nonsense => Self::Nonsense,
            SpawnerChannelError::System(error) => Self::System(error),
        }
    }

    fn of_step(Failed { step, error: source }: Failed, announced: Isolation) -> Self {
        let wall = |wall, source, see| Self::Wall { wall, announced, source, see };
        match step {
            SpawnStep::Request => Self::Request(source),
            SpawnStep::Number => Self::Full,
            SpawnStep::Group => wall(
                "its control group",
                source,
                "cgroup.max.descendants and cgroup.max.depth of the folder of control groups and of those above it",
            ),
            SpawnStep::Process if announced.has(Isolation::NAMESPACES) => wall(
                "the process with its namespaces",
                source,
                "user.max_user_namespaces and the other limits of that kind, pids.max and kernel.pid_max",
            ),
            SpawnStep::User => wall("its user", source, "[isolation] first_user"),
            SpawnStep::Process | SpawnStep::Program => Self::Program(source),
        }
    }
}

impl From<SpawnError> for io::Error {
    fn from(error: SpawnError) -> Self {
        let kind = match &error {
            SpawnError::Gone => ErrorKind::BrokenPipe,
            SpawnError::Late => ErrorKind::TimedOut,
            SpawnError::Nonsense => ErrorKind::InvalidData,
            SpawnError::Full => ErrorKind::ResourceBusy,
            SpawnError::Request(error) | SpawnError::Program(error) | SpawnError::System(error) => {
                error.kind()
            }
            SpawnError::Wall { source, .. } => source.kind(),
        };
        Self::new(kind, error)
    }
}

/// A spawner, from the side of the process that it starts others for. It ends with this, and all that it has started with it.
#[derive(Debug)]
pub struct Spawner {
    line: Mutex<SpawnerChannel>,
    process: Child,
    best: Isolation,
    /// Processes that were started, by role and walls.
    started: Mutex<BTreeMap<(&'static str, u8), u64>>,
    refused: Mutex<SpawnRefusals>,
}

/// Counts of started processes, by role and walls.
#[derive(Clone, Debug)]
pub struct ProcessCounts(BTreeMap<(&'static str, u8), u64>);

/// Requests that a spawner did not carry out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpawnRefusals {
    /// Their number.
    pub count: u64,
    /// The role and the reason of the last one.
    pub last: Option<(&'static str, String)>,
}

impl Spawner {
    /// Starts `program`, which answers [`SPAWNER`] with [`serve`]. To be called by a thread that lives as long as the process: what the spawner starts is killed
    /// when that thread ends. The spawner tries all walls before this returns.
    ///
    /// # Errors
    /// There is no such process, or it does not begin.
    pub fn start(program: &Path, settings: &Settings) -> io::Result<Self> {
        // A process that was started with this signal ignored could not wait for its children.
        // SAFETY: takes no function of this program.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        let (socket, theirs) = line::pair()?;
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
        let line = Mutex::new(SpawnerChannel::new(socket));
        let (started, refused) = (Mutex::default(), Mutex::default());
        let mut this = Self { line, process, best: Isolation::NONE, started, refused };
        let begun = lock(&this.line).begin(PATIENCE).map_err(SpawnError::of_line)?;
        this.best = begun.map_err(|failed| SpawnError::of_step(failed, Isolation::NONE))?.isolation;
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

    /// The status with which the spawner has ended, if it has. No process can be started from then on.
    pub fn ended(&self) -> Option<ExitStatus> {
        // SAFETY: all of it are numbers and pointers, for which zero is a value.
        let mut about: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: the pointer is to a live local. The spawner is this process's child, and it is not waited for by this.
        if unsafe { libc::waitid(libc::P_PID, self.process.id(), &raw mut about, options) } != 0 {
            // It has been waited for.
            return Some(ExitStatus::default());
        }
        // SAFETY: the kernel has filled in what belongs to a child's end, or left the number 0.
        let (id, status) = unsafe { (about.si_pid(), about.si_status()) };
        let status = if about.si_code == libc::CLD_EXITED { status << 8 } else { status };
        (id != 0).then(|| ExitStatus::from_raw(status))
    }

    /// Has a process started.
    pub(crate) fn begin(
        &self,
        role: ProcessRole,
        allotment: &Allotment,
        streams: &Streams,
    ) -> Result<Child, SpawnError> {
        let request = SpawnRequest { role, allotment: *allotment };
        let given = [&streams.input, &streams.output, &streams.error];
        let given: Vec<BorrowedFd<'_>> = given.into_iter().flatten().map(AsFd::as_fd).collect();
        let asked = lock(&self.line).ask(&request, &given, PATIENCE, LATE);
        let asked = asked.map_err(SpawnError::of_line);
        match asked.and_then(|asked| asked.map_err(|failed| SpawnError::of_step(failed, self.best))) {
            Ok(Started { id, isolation }) => {
                *lock(&self.started).entry((role.name(), isolation.bits())).or_default() += 1;
                Ok(Child::of(id, isolation))
            }
            Err(error) => {
                let mut refused = lock(&self.refused);
                refused.count += 1;
                refused.last = Some((role.name(), error.to_string()));
                Err(error)
            }
        }
    }

    /// The processes that it has started, with their role, their walls and their number.
    pub fn started(&self) -> Vec<(&'static str, Isolation, u64)> {
        let started = lock(&self.started);
        started.iter().map(|((role, bits), count)| (*role, Isolation::from_bits(*bits), *count)).collect()
    }

    /// The counts of processes that it has started, to return to.
    pub fn counts(&self) -> ProcessCounts {
        ProcessCounts(lock(&self.started).clone())
    }

    /// Counts processes from these counts on.
    pub fn count_as(&self, ProcessCounts(counts): ProcessCounts) {
        *lock(&self.started) = counts;
    }

    /// The requests for processes that were not started.
    pub fn refused(&self) -> SpawnRefusals {
        lock(&self.refused).clone()
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        // It ends by itself, in order, when the line is closed.
        lock(&self.line).close();
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_come_as_they_were_given() {
        for settings in [
            Settings {
                first_user: 1_900_000_000,
                group: GroupSetting::Delegated,
                label: "a1".into(),
                key: None,
            },
            Settings { first_user: 7, key: Some("node key".into()), ..Settings::default() },
            Settings { group: GroupSetting::At("/sys/fs/cgroup/weir".into()), ..Settings::default() },
        ] {
            let arguments = settings.arguments();
            assert_eq!(arguments[0], SPAWNER);
            assert_eq!(Settings::read(&arguments[1..]), Some(settings));
        }
        let long = "a".repeat(LABEL_MAX + 1);
        for wrong in [
            &[][..],
            &["1"],
            &["1", "none"],
            &["x", "none", "a"],
            &["1", "none", "a/b"],
            &["1", "none", "a-b"],
            &["1", "none", &long],
            &["1", "none", "a", "key", "more"],
        ] {
            let wrong: Vec<OsString> = wrong.iter().map(OsString::from).collect();
            assert_eq!(Settings::read(&wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn each_role_has_a_number_and_an_argument() {
        for (role, argument) in ProcessRole::ALL {
            assert_eq!(
                (ProcessRole::of_number(role.number()), ProcessRole::of(OsStr::new(argument))),
                (Some(role), Some(role))
            );
        }
        assert_eq!((ProcessRole::of_number(4), ProcessRole::of(OsStr::new("/bin/sh"))), (None, None));
    }
}
