//! Starts child processes, directly or by this process's [spawner](crate::spawner).

use crate::helper::close_inherited_on_exec;
use crate::spawner::{ProcessRole, Spawner};
use crate::{Isolation, child};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};

/// The spawner of this process; empty until [`Launcher::install`] is called.
static SPAWNER: OnceLock<Arc<Spawner>> = OnceLock::new();

/// The method by which a process starts others.
#[derive(Clone, Debug)]
pub enum Launcher {
    /// Executes the program at this path: the started process has no namespaces of its own.
    Direct(PathBuf),
    /// Requests the process from the spawner.
    Spawner(Arc<Spawner>),
}

impl Launcher {
    /// Returns the launcher of this process: its spawner, or the direct execution of this same program if there is none.
    pub fn of_process() -> Self {
        match SPAWNER.get() {
            Some(spawner) => Self::Spawner(Arc::clone(spawner)),
            // The running program, even if its path now names another file.
            None => Self::Direct(PathBuf::from("/proc/self/exe")),
        }
    }

    /// Makes `spawner` the spawner of this process, permanently. A second call has no effect.
    pub fn install(spawner: Arc<Spawner>) {
        _ = SPAWNER.set(spawner);
    }
}

impl From<&Path> for Launcher {
    fn from(program: &Path) -> Self {
        Self::Direct(program.to_owned())
    }
}

/// The resource limits of a process to be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessLimits {
    /// The soft limit of processor time in seconds; the hard limit is one second more. 0 for no limit.
    pub(crate) processor: u64,
    /// Address space, in bytes.
    pub(crate) address_space: u64,
    /// Private memory, in bytes; 0 for no other limit than `address_space`.
    pub(crate) memory: u64,
    /// Added to the process's nice value.
    pub(crate) nice: i32,
    /// The most open descriptors. A higher hard limit than that of the starting process has no effect.
    pub(crate) descriptors: u64,
    /// Bit mask of the process's cores. If no bit is set, the process has the cores of the process that starts it: of the
    /// spawner, if there is one.
    pub(crate) cores: [u64; CORE_WORDS],
}

/// The number of 64-bit words in a core mask.
pub(crate) const CORE_WORDS: usize = 16;

impl ProcessLimits {
    /// The number of bytes of encoded limits.
    pub(crate) const BYTES: usize = 8 * (5 + CORE_WORDS);

    /// Returns the limits as setrlimit(2) takes them: resource, soft limit, hard limit.
    pub(crate) fn limits(&self) -> [(libc::__rlimit_resource_t, u64, u64); 6] {
        let or_unlimited = |limit: u64| if limit == 0 { libc::RLIM_INFINITY } else { limit };
        [
            // From SIGXCPU, which the kernel sends at the soft limit, the parent knows why the process ended. At the hard
            // limit the kernel kills a process that ignores SIGXCPU.
            (libc::RLIMIT_CPU, or_unlimited(self.processor), or_unlimited(self.processor).saturating_add(1)),
            (libc::RLIMIT_AS, self.address_space, self.address_space),
            (libc::RLIMIT_DATA, or_unlimited(self.memory), or_unlimited(self.memory)),
            (libc::RLIMIT_CORE, 0, 0),
            (libc::RLIMIT_FSIZE, 0, 0),
            (libc::RLIMIT_NOFILE, self.descriptors, self.descriptors),
        ]
    }

    /// Applies limits, nice value and cores to the calling process. Makes only system calls, so that a forked child may call
    /// it.
    pub(crate) fn apply(&self) -> io::Result<()> {
        for (resource, soft, hard) in self.limits() {
            let mut inherited = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: the pointer is to a live local.
            if soft == libc::RLIM_INFINITY || unsafe { libc::getrlimit(resource, &raw mut inherited) } != 0 {
                continue;
            }
            // A process without privileges cannot raise a limit above the inherited hard limit.
            let inherited_max = inherited.rlim_max;
            child::set_limits(&[(resource, soft.min(inherited_max), hard.min(inherited_max))])?;
        }
        // SAFETY: takes no pointers.
        unsafe {
            *libc::__errno_location() = 0;
            if self.nice > 0 && libc::nice(self.nice) == -1 && *libc::__errno_location() != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        if self.cores != [0; CORE_WORDS] {
            // SAFETY: the pointer is to `size_of_val` live bytes. An error, for instance because the cores are offline,
            // does not prevent the start.
            unsafe { libc::sched_setaffinity(0, size_of_val(&self.cores), self.cores.as_ptr().cast()) };
        }
        Ok(())
    }

    /// Appends the encoded limits: [`BYTES`](Self::BYTES) bytes.
    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        let nice = u64::from(self.nice.unsigned_abs());
        for number in [self.processor, self.address_space, self.memory, nice, self.descriptors]
            .iter()
            .chain(&self.cores)
        {
            to.extend(number.to_le_bytes());
        }
    }

    /// Decodes limits. Returns `None` if `bytes` has another length.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (words, []) = bytes.as_chunks::<8>() else { return None };
        let number = |at: usize| words.get(at).copied().map(u64::from_le_bytes);
        let mut cores = [0; CORE_WORDS];
        for (at, word) in (5..).zip(&mut cores) {
            *word = number(at)?;
        }
        let nice = i32::try_from(number(3)?.min(19)).ok()?;
        let descriptors = number(4)?;
        Some(Self {
            processor: number(0)?,
            address_space: number(1)?,
            memory: number(2)?,
            nice,
            descriptors,
            cores,
        })
    }
}

/// Standard input, output and error of a process to be started. `None` stands for `/dev/null`.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    pub(crate) input: Option<OwnedFd>,
    pub(crate) output: Option<OwnedFd>,
    pub(crate) error: Option<OwnedFd>,
}

/// A child process that was started directly or by a spawner. As with [`std::process::Child`], dropping this value does
/// not wait for the process.
#[derive(Debug)]
pub(crate) struct Child {
    id: u32,
    /// True if the process has been waited for.
    was_waited_for: bool,
    pub(crate) isolation: Isolation,
    pub(crate) stdin: Option<File>,
    pub(crate) stdout: Option<File>,
    pub(crate) stderr: Option<File>,
}

impl Child {
    /// Returns the child of this process with this id. From then on no other code may wait for the child.
    pub(crate) fn from_id(id: u32, isolation: Isolation) -> Self {
        Self { id, was_waited_for: false, isolation, stdin: None, stdout: None, stderr: None }
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Kills the child. Fails if it has been waited for.
    pub(crate) fn kill(&self) -> io::Result<()> {
        let id = libc::pid_t::try_from(self.id).map_err(io::Error::other)?;
        if self.was_waited_for {
            return Err(ErrorKind::InvalidInput.into());
        }
        // SAFETY: takes no pointers. The process has not been waited for, so no other process has its id.
        match unsafe { libc::kill(id, libc::SIGKILL) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Waits for the child's end, once.
    pub(crate) fn wait(&mut self) -> io::Result<ExitStatus> {
        let id = libc::pid_t::try_from(self.id).map_err(io::Error::other)?;
        if self.was_waited_for {
            return Err(ErrorKind::InvalidInput.into());
        }
        let mut status = 0;
        loop {
            // SAFETY: the pointer is to a live local. The child is this process's own, and no other code waits for it.
            if unsafe { libc::waitpid(id, &raw mut status, 0) } == id {
                self.was_waited_for = true;
                return Ok(ExitStatus::from_raw(status));
            }
            let error = io::Error::last_os_error();
            if error.kind() != ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

/// Starts a process with these arguments, an empty environment, and no other descriptors than `streams`.
///
/// With `dies_with_thread`, a process that is started directly is killed when the starting *thread* ends. A process that
/// a spawner starts is killed in any event when its parent ends.
pub(crate) fn start<A: AsRef<OsStr>>(
    launcher: &Launcher,
    arguments: &[A],
    process_limits: ProcessLimits,
    streams: Streams,
    dies_with_thread: bool,
) -> io::Result<Child> {
    let program = match launcher {
        Launcher::Direct(program) => program,
        Launcher::Spawner(spawner) => {
            let role = arguments.first().and_then(|first| ProcessRole::from_argument(first.as_ref()));
            let role =
                role.ok_or_else(|| io::Error::other("a spawner starts no process with this argument"))?;
            return Ok(spawner.begin(role, &process_limits, &streams)?);
        }
    };
    let mut command = Command::new(program);
    command.arg0("weir").args(arguments).env_clear();
    // A process group of its own keeps the terminal's signals away from the process, which is ended by its parent.
    command.process_group(0);
    let stream = |stream: Option<OwnedFd>| stream.map_or_else(Stdio::null, Stdio::from);
    command.stdin(stream(streams.input)).stdout(stream(streams.output)).stderr(stream(streams.error));
    // SAFETY: only async-signal-safe system calls are made between fork and exec.
    unsafe {
        command.pre_exec(move || {
            close_inherited_on_exec();
            process_limits.apply()?;
            if dies_with_thread && libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        })
    };
    Ok(Child::from_id(command.spawn()?.id(), Isolation::NONE))
}

/// Starts a process whose three standard streams are pipes, with their other ends in the returned [`Child`]. The process
/// is killed when the calling thread ends.
pub(crate) fn start_piped(
    launcher: &Launcher,
    arguments: &[&str],
    process_limits: ProcessLimits,
) -> io::Result<Child> {
    let (input, stdin) = io::pipe()?;
    let (stdout, output) = io::pipe()?;
    let (stderr, error) = io::pipe()?;
    let [stdin, stdout, stderr] = [OwnedFd::from(stdin), stdout.into(), stderr.into()].map(File::from);
    let streams =
        Streams { input: Some(input.into()), output: Some(output.into()), error: Some(error.into()) };
    let child = start(launcher, arguments, process_limits, streams, true)?;
    Ok(Child { stdin: Some(stdin), stdout: Some(stdout), stderr: Some(stderr), ..child })
}
