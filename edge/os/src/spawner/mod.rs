//! The spawner: a process that starts the node's other processes. Each gets namespaces, a user, an empty root and a
//! control group of its own, as far as the system allows.
//!
//! A node gives up the rights to create namespaces and to execute programs before it reads untrusted input. It
//! therefore starts a *spawner* first: another process of the same program, which keeps the few rights that starting
//! processes takes, and does nothing else. An attacker who has taken over the node gains little by the spawner. A
//! request to the spawner consists of a [role](ProcessRole), which is one of four, numeric limits of the process, and
//! descriptors of the node. A request cannot name a program, path, argument, user or group.
//!
//! This file has the node's side, [`Spawner`]; `serve.rs` has the loop of the spawner's own process, `fork.rs` the
//! start of one process, `group.rs` the control groups, and `channel.rs` the messages between the two sides.
//!
//! ```text
//! node ──── role, limits, descriptors ──► spawner
//!                                         spawner ──── clone(2) ──► process: in namespaces and a control group,
//!                                                                            its user mapped, a child of the node
//! node ◄──── process id, isolation ────── spawner                   process: executes weir, enters an empty root,
//!                                                                            confines itself
//! ```
//!
//! | node started | user of the process | namespaces |
//! |---|---|---|
//! | as root | one of a range, different for each process; for the key agent, the node's | all |
//! | by a user who may create user namespaces | the node's, which is the only user in the process's user namespace | all |
//! | as root without user namespaces | the node's | all except the user namespace |
//! | otherwise | the node's | none: seccomp and Landlock alone |
//!
//! The started process is the node's own child (CLONE_PARENT), so the node waits for its end. It is the first process of
//! its PID namespace, so any process that it might start ends with it. When the node ends, the kernel kills the started
//! processes (PR_SET_PDEATHSIG). The spawner kills those that remain, and removes the control groups.

mod channel;
mod fork;
mod group;
mod serve;

use crate::Isolation;
use crate::launch::{CORE_WORDS, Child, Launcher, ProcessLimits, Streams, start};
use channel::{Failed, SpawnRequest, SpawnStep, SpawnerChannel, SpawnerChannelError, Started};
pub use group::Setting as GroupSetting;
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

/// The first command-line argument of a spawner; the [settings](Settings) follow. A program that is started with this
/// argument must call [`serve`].
pub const SPAWNER: &str = "start-processes";

/// The most processes of a spawner at a time.
pub const PROCESSES_MAX: u32 = 1024;
/// The most processes that run modules. The others are for compilers and the key agent.
pub const PROCESSES_OF_MODULES_MAX: u32 = PROCESSES_MAX - 64;

/// Descriptors of a spawner: a handle for each process, and 64 for all other uses.
const DESCRIPTORS: u64 = PROCESSES_MAX as u64 + 64;
/// The longest time for which a node waits until a spawner has started, or has started a process.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest further time for which a node waits, before its next request, for an answer that did not arrive within
/// [`PATIENCE`].
const LATE_ANSWER: Duration = Duration::from_secs(1);
/// The longest label of a node's control groups.
const LABEL_MAX: usize = 32;

/// A kind of process that a spawner starts. Each has a fixed command-line argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessRole {
    /// Runs one module.
    Module,
    /// Compiles one module.
    Compiler,
    /// Compiles one module with a compiler that is not part of weir.
    ExternalCompiler,
    /// Asks that compiler for its version.
    ExternalCompilerVersion,
    /// Keeps the node's private key.
    KeyAgent,
}

impl ProcessRole {
    /// All roles, with their arguments.
    const ALL: [(Self, &'static str); 5] = [
        (Self::Module, "sandbox"),
        (Self::Compiler, "compile-cranelift"),
        (Self::KeyAgent, "key-agent"),
        (Self::ExternalCompiler, "compile-llvm"),
        (Self::ExternalCompilerVersion, "version-llvm"),
    ];

    /// Returns the role that has this command-line argument.
    pub(crate) fn from_argument(argument: &OsStr) -> Option<Self> {
        Self::ALL.iter().find(|(_, name)| argument == *name).map(|(role, _)| *role)
    }

    fn argument(self) -> &'static str {
        Self::ALL.iter().find(|(role, _)| *role == self).map_or("", |(_, name)| name)
    }

    /// Returns the role's name in metrics.
    fn name(self) -> &'static str {
        match self {
            Self::Module => "module",
            Self::Compiler => "compiler",
            Self::ExternalCompiler => "external-compiler",
            Self::ExternalCompilerVersion => "external-compiler-version",
            Self::KeyAgent => "key-agent",
        }
    }

    /// Returns the role's code in a request to a spawner.
    fn code(self) -> u8 {
        let index = Self::ALL.iter().position(|(role, _)| *role == self).unwrap_or_default();
        u8::try_from(index).unwrap_or(u8::MAX)
    }

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).map(|(role, _)| *role)
    }
}

/// The settings of a spawner, fixed at its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The first of [`PROCESSES_MAX`] consecutive user ids that no other program uses, for a spawner that runs as root.
    pub first_user: u32,
    /// The location of control groups.
    pub group: GroupSetting,
    /// The part of the names of this node's control groups that distinguishes them from other nodes': at most 32
    /// ASCII letters and digits.
    pub label: String,
    /// The file of the node's private key, for the key agent.
    pub key: Option<PathBuf>,
}

impl Settings {
    /// Encodes the settings as command-line arguments of a spawner.
    fn arguments(&self) -> Vec<OsString> {
        let (first, label) = (self.first_user.to_string(), self.label.clone());
        let mut arguments = vec![SPAWNER.into(), first.into(), self.group.argument(), label.into()];
        arguments.extend(self.key.iter().map(|key| key.clone().into_os_string()));
        arguments
    }

    /// Decodes the arguments after [`SPAWNER`].
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

/// The reason why a node could not have a process started by its spawner.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The spawner has ended.
    #[error("the process that starts others has ended: no process can be started, so restart the node")]
    Ended,
    /// The spawner is busy with another request, or stopped.
    #[error("the process that starts others does not answer in time: ask again")]
    TimedOut,
    /// The spawner's answer is invalid.
    #[error("the process that starts others gave an invalid answer, and is ended")]
    InvalidAnswer,
    /// The spawner refused the request.
    #[error("the process that starts others refused this request: {0}")]
    Request(io::Error),
    /// There are too many processes.
    #[error(
        "{PROCESSES_OF_MODULES_MAX} processes run modules, or {PROCESSES_MAX} processes run in all, which is the most: close a session with `process = \"own\"`"
    )]
    Full,
    /// A part of the isolation that the node announced at its start is not possible now. The process was not started,
    /// because it would be less isolated than announced.
    #[error(
        "{part} cannot be made now, and no process is started with less isolation than the node announced ({announced}): {source}; see {see}, or restart the node"
    )]
    Isolation {
        /// The missing part.
        part: &'static str,
        /// The isolation that the node announced.
        announced: Isolation,
        /// The system's error.
        source: io::Error,
        /// The settings, of the system or of the node, that limit the missing part.
        see: &'static str,
    },
    /// The program of the process cannot be executed.
    #[error("the program of the process cannot be executed: {0}")]
    Program(io::Error),
    /// The request cannot be sent, or the answer cannot be received.
    #[error("the process that starts others cannot be asked: {0}")]
    System(io::Error),
}

impl SpawnError {
    fn from_channel(error: SpawnerChannelError) -> Self {
        match error {
            SpawnerChannelError::Closed => Self::Ended,
            SpawnerChannelError::TimedOut => Self::TimedOut,
            SpawnerChannelError::InvalidMessage => Self::InvalidAnswer,
            SpawnerChannelError::System(error) => Self::System(error),
        }
    }

    fn from_step(Failed { step, error: source }: Failed, announced: Isolation) -> Self {
        let part = |part, source, see| Self::Isolation { part, announced, source, see };
        match step {
            SpawnStep::Request => Self::Request(source),
            // Each process takes a slot, and no slot is free.
            SpawnStep::Slot => Self::Full,
            SpawnStep::Group => part(
                "its control group",
                source,
                "cgroup.max.descendants and cgroup.max.depth of the folder of control groups and of those above it",
            ),
            SpawnStep::Process if announced.has(Isolation::NAMESPACES) => part(
                "the process with its namespaces",
                source,
                "user.max_user_namespaces and the other user.max_*_namespaces, pids.max and kernel.pid_max",
            ),
            SpawnStep::User => part("its user", source, "[isolation] first_uid"),
            SpawnStep::Process | SpawnStep::Program => Self::Program(source),
        }
    }
}

impl From<SpawnError> for io::Error {
    fn from(error: SpawnError) -> Self {
        let kind = match &error {
            SpawnError::Ended => ErrorKind::BrokenPipe,
            SpawnError::TimedOut => ErrorKind::TimedOut,
            SpawnError::InvalidAnswer => ErrorKind::InvalidData,
            SpawnError::Full => ErrorKind::ResourceBusy,
            SpawnError::Request(error) | SpawnError::Program(error) | SpawnError::System(error) => {
                error.kind()
            }
            SpawnError::Isolation { source, .. } => source.kind(),
        };
        Self::new(kind, error)
    }
}

/// A node's side of a spawner. Dropping this value ends the spawner and all processes that the spawner has started.
#[derive(Debug)]
pub struct Spawner {
    channel: Mutex<SpawnerChannel>,
    process: Child,
    /// The isolation that the spawner has announced at its start.
    announced: Isolation,
    /// The number of started processes, by the name of the role and the bits of the isolation.
    started: Mutex<BTreeMap<(&'static str, u8), u64>>,
    refused: Mutex<SpawnRefusals>,
}

/// The numbers of started processes by role and isolation, to be continued by a spawner that replaces another one.
#[derive(Clone, Debug)]
pub struct ProcessCounts(BTreeMap<(&'static str, u8), u64>);

/// Requests for which no process was started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpawnRefusals {
    /// The number of these requests.
    pub count: u64,
    /// The role of the last of these requests, and the reason.
    pub last: Option<(&'static str, String)>,
}

impl Spawner {
    /// Starts `program` as a spawner; the program must call [`serve`] when its first argument is [`SPAWNER`]. Waits until
    /// the spawner has found out which isolation the system allows.
    ///
    /// The calling thread must live as long as the node: the kernel kills the processes that the spawner has started when
    /// this thread ends, which is their parent.
    ///
    /// # Errors
    /// The process cannot be started, or does not report its start.
    pub fn start(program: &Path, settings: &Settings) -> io::Result<Self> {
        // This process may have been started with SIGCHLD ignored, and then could not wait for its children.
        // SAFETY: installs the default action, so no function of this program runs as a handler.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        let (socket, theirs) = channel::pair()?;
        // 0 means no limit of processor time and memory. If no bit of `cores` is set, the process may run on the
        // cores of the node.
        let process_limits = ProcessLimits {
            processor: 0,
            address_space: libc::RLIM_INFINITY,
            memory: 0,
            nice: 0,
            descriptors: DESCRIPTORS,
            cores: [0; CORE_WORDS],
        };
        let streams = Streams { input: Some(theirs), ..Streams::default() };
        let launcher = Launcher::from(program);
        let process = start(&launcher, &settings.arguments(), process_limits, streams, false)?;
        let channel = Mutex::new(SpawnerChannel::new(socket));
        let (started, refused) = (Mutex::default(), Mutex::default());
        let mut this = Self { channel, process, announced: Isolation::NONE, started, refused };
        let begun = lock(&this.channel).begin(PATIENCE).map_err(SpawnError::from_channel)?;
        this.announced = begun.map_err(|failed| SpawnError::from_step(failed, Isolation::NONE))?.isolation;
        Ok(this)
    }

    /// Returns the isolation of a process that runs a module or a compiler.
    pub fn isolation(&self) -> Isolation {
        self.announced
    }

    /// Returns the spawner's own process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns the spawner's exit status if it has ended. No process can be started afterwards.
    pub fn ended(&self) -> Option<ExitStatus> {
        // SAFETY: a siginfo_t consists of numbers and pointers, for which zero is a valid value.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: the pointer is to a live local. With WNOWAIT the spawner, a child of this process, can still be waited
        // for.
        if unsafe { libc::waitid(libc::P_PID, self.process.id(), &raw mut info, options) } != 0 {
            // The spawner has been waited for, so it has ended.
            return Some(ExitStatus::default());
        }
        // SAFETY: the kernel has filled in the fields for a child's end, or left the process id 0.
        let (id, status) = unsafe { (info.si_pid(), info.si_status()) };
        let status = if info.si_code == libc::CLD_EXITED { status << 8 } else { status };
        (id != 0).then(|| ExitStatus::from_raw(status))
    }

    /// Has the spawner start a process of this role, with these resources and standard streams.
    pub(crate) fn begin(
        &self,
        role: ProcessRole,
        process_limits: &ProcessLimits,
        streams: &Streams,
    ) -> Result<Child, SpawnError> {
        let request = SpawnRequest { role, process_limits: *process_limits };
        let streams = [&streams.input, &streams.output, &streams.error];
        let descriptors: Vec<BorrowedFd<'_>> = streams.into_iter().flatten().map(AsFd::as_fd).collect();
        let answer = lock(&self.channel).request(&request, &descriptors, PATIENCE, LATE_ANSWER);
        let answer = answer.map_err(SpawnError::from_channel);
        match answer
            .and_then(|outcome| outcome.map_err(|failed| SpawnError::from_step(failed, self.announced)))
        {
            Ok(Started { id, isolation }) => {
                *lock(&self.started).entry((role.name(), isolation.bits())).or_default() += 1;
                Ok(Child::from_id(id, isolation))
            }
            Err(error) => {
                let mut refused = lock(&self.refused);
                refused.count += 1;
                refused.last = Some((role.name(), error.to_string()));
                Err(error)
            }
        }
    }

    /// Returns the number of started processes by role and isolation.
    pub fn started(&self) -> Vec<(&'static str, Isolation, u64)> {
        let started = lock(&self.started);
        started.iter().map(|((role, bits), count)| (*role, Isolation::from_bits(*bits), *count)).collect()
    }

    /// Returns the numbers of started processes, for [`Self::count_as`] of a spawner that replaces this one.
    pub fn counts(&self) -> ProcessCounts {
        ProcessCounts(lock(&self.started).clone())
    }

    /// Continues to count started processes from these numbers.
    pub fn count_as(&self, ProcessCounts(counts): ProcessCounts) {
        *lock(&self.started) = counts;
    }

    /// Returns the requests for which no process was started.
    pub fn refused(&self) -> SpawnRefusals {
        lock(&self.refused).clone()
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        // A spawner whose channel is closed ends its processes and exits.
        lock(&self.channel).close();
        for _ in 0..PATIENCE.as_millis() / 10 {
            let mut status = 0;
            let id = libc::pid_t::try_from(self.process.id()).unwrap_or(-1);
            // SAFETY: the pointer is to a live local. The spawner is this process's child, and no other code waits for
            // it.
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
    fn settings_are_read_as_written() {
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
    fn each_role_has_a_code_and_an_argument() {
        for (role, argument) in ProcessRole::ALL {
            assert_eq!(
                (ProcessRole::from_code(role.code()), ProcessRole::from_argument(OsStr::new(argument))),
                (Some(role), Some(role))
            );
        }
        let none = u8::try_from(ProcessRole::ALL.len()).unwrap();
        assert_eq!(
            (ProcessRole::from_code(none), ProcessRole::from_argument(OsStr::new("/bin/sh"))),
            (None, None)
        );
    }
}
