//! The way in which a process starts others: by itself, or through its [spawner](crate::spawner).

use crate::companion::close_what_is_inherited;
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

/// The spawner of this process, once it has one.
static SPAWNER: OnceLock<Arc<Spawner>> = OnceLock::new();

/// The way in which a process starts others.
#[derive(Clone, Debug)]
pub enum Launcher {
    /// It executes this program itself: such a process has no namespaces of its own.
    Direct(PathBuf),
    /// It has its spawner do it.
    Spawner(Arc<Spawner>),
}

impl Launcher {
    /// The spawner of this process, or this same program where it has none.
    pub fn of_process() -> Self {
        match SPAWNER.get() {
            Some(spawner) => Self::Spawner(Arc::clone(spawner)),
            // The program that runs, also where another one has its name by now.
            None => Self::Direct(PathBuf::from("/proc/self/exe")),
        }
    }

    /// Makes `spawner` that of this process, for good.
    pub fn install(spawner: Arc<Spawner>) {
        // The first one stays.
        _ = SPAWNER.set(spawner);
    }
}

impl From<&Path> for Launcher {
    fn from(program: &Path) -> Self {
        Self::Direct(program.to_owned())
    }
}

/// The resources of a process that is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allotment {
    /// Processor time in seconds, from the limit that it is told of to the one that kills it; none where it is 0.
    pub(crate) processor: u64,
    /// Addresses, in bytes.
    pub(crate) addresses: u64,
    /// Private memory, in bytes; none beside that of addresses where it is 0.
    pub(crate) memory: u64,
    /// Added to its nice value.
    pub(crate) nice: i32,
    /// Descriptors; no more than the process has that starts it.
    pub(crate) descriptors: u64,
    /// Its cores, a bit each. Where no bit is set it has those of the process that executes it: the spawner's, where there is one.
    pub(crate) cores: [u64; CORE_WORDS],
}

/// Cores are numbered below 64 times that.
pub(crate) const CORE_WORDS: usize = 16;

impl Allotment {
    pub(crate) const BYTES: usize = 8 * (5 + CORE_WORDS);

    /// Its limits as setrlimit(2) takes them.
    pub(crate) fn limits(&self) -> [(libc::__rlimit_resource_t, u64, u64); 6] {
        let or_none = |limit: u64| if limit == 0 { libc::RLIM_INFINITY } else { limit };
        let open = self.descriptors;
        [
            // The first says which limit it was, and a process that does not heed it is killed by the second.
            (libc::RLIMIT_CPU, or_none(self.processor), or_none(self.processor).saturating_add(1)),
            (libc::RLIMIT_AS, self.addresses, self.addresses),
            (libc::RLIMIT_DATA, or_none(self.memory), or_none(self.memory)),
            (libc::RLIMIT_CORE, 0, 0),
            (libc::RLIMIT_FSIZE, 0, 0),
            (libc::RLIMIT_NOFILE, open, open),
        ]
    }

    /// Applies all of it to the calling process. Makes system calls alone, so it can be called after a fork.
    pub(crate) fn apply(&self) -> io::Result<()> {
        for (resource, most, at_last) in self.limits() {
            let mut has = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: the pointer is to a live local.
            if most == libc::RLIM_INFINITY || unsafe { libc::getrlimit(resource, &raw mut has) } != 0 {
                continue;
            }
            // What it was given less of it does not get by this.
            child::set_limits(&[(resource, most.min(has.rlim_max), at_last.min(has.rlim_max))])?;
        }
        // SAFETY: takes no pointers.
        unsafe {
            *libc::__errno_location() = 0;
            if self.nice > 0 && libc::nice(self.nice) == -1 && *libc::__errno_location() != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        if self.cores != [0; CORE_WORDS] {
            // SAFETY: the pointer is to as many live bytes. Cores that are gone meanwhile are no reason not to start.
            unsafe { libc::sched_setaffinity(0, size_of_val(&self.cores), self.cores.as_ptr().cast()) };
        }
        Ok(())
    }

    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        let nice = u64::from(self.nice.unsigned_abs());
        for number in
            [self.processor, self.addresses, self.memory, nice, self.descriptors].iter().chain(&self.cores)
        {
            to.extend(number.to_le_bytes());
        }
    }

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
            addresses: number(1)?,
            memory: number(2)?,
            nice,
            descriptors,
            cores,
        })
    }
}

/// Standard input, output and error of a process that is started; `/dev/null` where there is none.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    pub(crate) input: Option<OwnedFd>,
    pub(crate) output: Option<OwnedFd>,
    pub(crate) error: Option<OwnedFd>,
}

/// A child process, as [`std::process::Child`], however it was started. It is not waited for where this is dropped.
#[derive(Debug)]
pub(crate) struct Child {
    id: u32,
    is_over: bool,
    pub(crate) isolation: Isolation,
    pub(crate) stdin: Option<File>,
    pub(crate) stdout: Option<File>,
    pub(crate) stderr: Option<File>,
}

impl Child {
    /// A child of this process that no other code waits for.
    pub(crate) fn of(id: u32, isolation: Isolation) -> Self {
        Self { id, is_over: false, isolation, stdin: None, stdout: None, stderr: None }
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Kills it, unless it has been waited for.
    pub(crate) fn kill(&self) -> io::Result<()> {
        let id = libc::pid_t::try_from(self.id).map_err(io::Error::other)?;
        if self.is_over {
            return Err(ErrorKind::InvalidInput.into());
        }
        // SAFETY: takes no pointers. The process has not been waited for, so its number is its own.
        match unsafe { libc::kill(id, libc::SIGKILL) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> io::Result<ExitStatus> {
        let id = libc::pid_t::try_from(self.id).map_err(io::Error::other)?;
        if self.is_over {
            return Err(ErrorKind::InvalidInput.into());
        }
        let mut status = 0;
        loop {
            // SAFETY: the pointer is to a live local. The child is this process's own, and no other code waits for it.
            if unsafe { libc::waitpid(id, &raw mut status, 0) } == id {
                self.is_over = true;
                return Ok(ExitStatus::from_raw(status));
            }
            let error = io::Error::last_os_error();
            if error.kind() != ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

/// Starts a process with these arguments, nothing of the environment, and no other descriptors. `dies` has it killed when the *thread* ends that started it,
/// where it is started directly; a spawner sees to it that no process survives its own parent.
pub(crate) fn start<A: AsRef<OsStr>>(
    launcher: &Launcher,
    arguments: &[A],
    allotment: Allotment,
    streams: Streams,
    dies: bool,
) -> io::Result<Child> {
    let program = match launcher {
        Launcher::Direct(program) => program,
        Launcher::Spawner(spawner) => {
            let role = arguments.first().and_then(|first| ProcessRole::of(first.as_ref()));
            let role = role.ok_or_else(|| io::Error::other("a spawner does not start that"))?;
            return Ok(spawner.begin(role, &allotment, &streams)?);
        }
    };
    let mut command = Command::new(program);
    command.arg0("weir").args(arguments).env_clear();
    // A terminal's signals are for the program that was started there, and the child's end is its business.
    command.process_group(0);
    let stream = |given: Option<OwnedFd>| given.map_or_else(Stdio::null, Stdio::from);
    command.stdin(stream(streams.input)).stdout(stream(streams.output)).stderr(stream(streams.error));
    // SAFETY: between fork and exec only system calls that are safe there are made.
    unsafe {
        command.pre_exec(move || {
            close_what_is_inherited();
            allotment.apply()?;
            if dies && libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        })
    };
    Ok(Child::of(command.spawn()?.id(), Isolation::NONE))
}

/// Starts a process whose streams this one has the other ends of.
pub(crate) fn start_piped(launcher: &Launcher, argument: &str, allotment: Allotment) -> io::Result<Child> {
    let (input, to) = io::pipe()?;
    let (from, output) = io::pipe()?;
    let (says, error) = io::pipe()?;
    let [to, from, says] = [OwnedFd::from(to), from.into(), says.into()].map(File::from);
    let streams =
        Streams { input: Some(input.into()), output: Some(output.into()), error: Some(error.into()) };
    let child = start(launcher, &[argument], allotment, streams, true)?;
    Ok(Child { stdin: Some(to), stdout: Some(from), stderr: Some(says), ..child })
}
