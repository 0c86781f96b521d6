//! A confined child process for untrusted input.
//!
//! A compiler's input determines how much time and memory the compiler takes, and can exploit a flaw in the compiler. A
//! compiler therefore runs in a child: this same program with another argument, which reads its input from standard input
//! and writes its answer to standard output. The kernel enforces limits on the child, and the child is killed after a
//! certain time. The child gives up all other rights before it reads its input ([`confine_or_exit`]). Its answer is
//! untrusted, like its input: an attacker who takes over a child can answer anything until its time is over.

use crate::budget::{BudgetOrder, ProcessorBudget};
use crate::launch::{CORE_WORDS, Child, Launcher, ProcessLimits, start_piped};
use crate::{ConfineError, FileConfinement, Isolation};
use rustix::thread::CpuSet;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};
use weir_units::{Bytes, Nanos};

/// The exit status of a child that could not be confined (EX_OSERR of sysexits.h).
const NOT_CONFINED: i32 = 71;
/// The number of bytes of a child's standard error that are kept.
const STDERR_MAX: usize = 4096;
/// The most characters of a child's standard error that become text, before escaping.
const TEXT_MAX: usize = 500;
/// Bytes read at a time.
const READ_BYTES: usize = 64 << 10;
/// The polling interval for the end of a child that has closed its streams.
const END_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// The interval at which a running child's budget is asked for its order.
const ORDER_INTERVAL: Duration = Duration::from_millis(20);
/// Added to the nice value of every child, so that compilation for sessions runs behind all other work on its cores.
const NICE: i32 = 10;

/// The limits of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildLimits {
    /// Processor time. It is compared every 20 ms; the kernel enforces it, too, rounded up to whole seconds.
    pub processor: Nanos,
    /// Wall-clock time from the child's start to its end, also while the child waits, but not while its budget pauses it.
    pub time: Nanos,
    /// Address space.
    pub memory: Bytes,
    /// The longest answer, in bytes.
    pub answer: usize,
    /// The cores that the child may run on; `None` for those of the calling thread.
    pub cores: Option<Cores>,
}

/// A set of cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cores(CpuSet);

impl Cores {
    /// Returns the cores of the calling thread without those in `excluded`. Returns `None` if no core would be left, or the system
    /// does not report the thread's cores.
    pub fn without(excluded: &[u16]) -> Option<Self> {
        let mut set = rustix::thread::sched_getaffinity(None).ok()?;
        for core in excluded.iter().map(|core| usize::from(*core)).filter(|core| *core < CpuSet::MAX_CPU) {
            set.unset(core);
        }
        (set.count() > 0).then_some(Self(set))
    }

    /// The cores as a bit mask.
    fn words(&self) -> [u64; CORE_WORDS] {
        std::array::from_fn(|word| {
            (0..64).filter(|bit| self.0.is_set(word * 64 + bit)).fold(0, |bits, bit| bits | 1 << bit)
        })
    }

    /// Moves the calling thread to these cores.
    ///
    /// # Errors
    /// The system does not allow it.
    pub fn bind(&self) -> io::Result<()> {
        Ok(rustix::thread::sched_setaffinity(None, &self.0)?)
    }

    /// Returns true if `core` is in the set.
    pub fn has(&self, core: u16) -> bool {
        usize::from(core) < CpuSet::MAX_CPU && self.0.is_set(usize::from(core))
    }
}

impl ChildLimits {
    fn process_limits(&self) -> ProcessLimits {
        ProcessLimits {
            processor: self.processor.0.div_ceil(Nanos::SECOND.0),
            address_space: self.memory.0,
            memory: 0,
            nice: NICE,
            descriptors: crate::helper::DESCRIPTORS,
            // The calling thread's cores are passed explicitly, because a process that a spawner starts would otherwise have
            // the spawner's cores.
            cores: self.cores.or_else(|| Cores::without(&[])).map_or([0; CORE_WORDS], |cores| cores.words()),
        }
    }
}

/// The output of a child.
#[derive(Debug)]
pub struct ChildReply {
    /// Standard output.
    pub bytes: Vec<u8>,
    /// Standard error, as text without control characters.
    pub stderr: String,
    /// True if the child exited with status 0.
    pub has_succeeded: bool,
}

/// The result of [`request`].
#[derive(Debug)]
pub struct ChildOutcome {
    /// The child's output, or the reason why there is none.
    pub answer: Result<ChildReply, ChildError>,
    /// The child's processor time (getrusage(2), user and system). It is also given without an answer, because the session
    /// is charged for it.
    pub used: Nanos,
}

/// The reason why a child gave no answer. The texts continue a sentence about the child's task, "it".
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// The child took too long. The cause is its input.
    #[error("it takes more than {} of processor time, or {} in all, and was stopped", .0.processor, .0.time)]
    TimeLimit(ChildLimits),
    /// The child was killed by a signal: it crashed on its input, or the system had no memory for it.
    #[error("the process that did it was killed by signal {0}")]
    Killed(i32),
    /// The child's budget ordered its end, in favour of other work.
    #[error("it was preempted by others")]
    Preempted,
    /// The child's answer is too long. The value is the limit in bytes.
    #[error("its answer has more than {0} bytes")]
    AnswerTooLong(usize),
    /// The process could not be started: the cause is the system.
    #[error("the process for it cannot be started: {0}")]
    Process(#[from] io::Error),
}

/// Confines the calling process, a child, by `confine`. To be called before the child reads any input. Exits if the
/// process cannot be confined.
pub fn confine_or_exit(confine: impl FnOnce() -> Result<FileConfinement, ConfineError>) {
    if let Err(why) = confine() {
        // From this status the parent knows that the input is not the cause.
        _ = writeln!(io::stderr(), "{why}");
        std::process::exit(NOT_CONFINED);
    }
}

/// Converts untrusted bytes to one line of text without control characters, of limited length.
pub fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.trim().chars().take(TEXT_MAX).flat_map(char::escape_debug).collect()
}

/// Starts a child with these arguments and an empty environment, sends it the question, and waits for the answer and the
/// child's end.
///
/// The child runs with a higher nice value than the caller, on [`ChildLimits::cores`]. `budget` is asked for its order every
/// 20 ms. A child that must pause is stopped (SIGSTOP), and its wall-clock time does not run until it continues. The
/// child's processor time is debited from the budget.
///
/// [`ChildOutcome::answer`] is an error if the child gave no answer. A child that exits with a status other than 0 has
/// answered without [success](ChildReply::has_succeeded). Only status 71 is an error: the child could not be confined.
pub fn request(
    launcher: &Launcher,
    arguments: &[&str],
    question: &[u8],
    limits: &ChildLimits,
    budget: &mut dyn ProcessorBudget,
) -> ChildOutcome {
    let no_answer = |error: ChildError| ChildOutcome { answer: Err(error), used: Nanos(0) };
    // A client's request can need several children, each by a call of this function. The budget can order a pause also
    // before a child is started.
    loop {
        match budget.order(Nanos(0)) {
            BudgetOrder::Continue => break,
            BudgetOrder::Pause => std::thread::sleep(ORDER_INTERVAL),
            BudgetOrder::Abort => return no_answer(ChildError::Preempted),
        }
    }
    let begun = Instant::now();
    let mut running = match start_piped(launcher, arguments, limits.process_limits()) {
        Ok(child) => Running {
            clock: clock(&child),
            child,
            exit: None,
            deadline: begun + Duration::from_nanos(limits.time.0),
            budget_asked: begun,
            paused_since: None,
        },
        Err(error) => return no_answer(error.into()),
    };
    let answer = running.answer(question, limits, budget);
    let used = running.end_and_measure();
    budget.spend(used);
    ChildOutcome { answer, used }
}

/// Returns the clock of a child's processor time.
fn clock(child: &Child) -> Option<libc::clockid_t> {
    let number = libc::pid_t::try_from(child.id()).ok()?;
    let mut clock = 0;
    // SAFETY: the pointer is to a live local. The child has not been waited for, so no other process has its number.
    (unsafe { libc::clock_getcpuclockid(number, &raw mut clock) } == 0).then_some(clock)
}

/// A running child, killed when this value is dropped.
struct Running {
    child: Child,
    clock: Option<libc::clockid_t>,
    /// The exit status and processor time, once the child has been waited for. The system may reuse its process id from
    /// then on.
    exit: Option<(ExitStatus, Nanos)>,
    /// The instant at which the child is stopped. The end of a pause moves the deadline by the length of the pause.
    deadline: Instant,
    /// The time when the budget was last asked for its order.
    budget_asked: Instant,
    /// The time since which the child is paused.
    paused_since: Option<Instant>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end_and_measure();
    }
}

/// An output stream of a child, and the bytes read from it so far.
struct Stream<S> {
    /// `None` after the end of the stream.
    pipe: Option<S>,
    bytes: Vec<u8>,
}

impl<S: Read + AsRawFd> Stream<S> {
    fn new(pipe: Option<S>) -> Self {
        Self { pipe, bytes: Vec::new() }
    }

    fn descriptor(&self) -> RawFd {
        // poll(2) ignores negative descriptors.
        self.pipe.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Reads available bytes once, or the end of the stream.
    fn read_available(&mut self) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        let mut chunk = [0; READ_BYTES];
        match pipe.read(&mut chunk) {
            Ok(0) => self.pipe = None,
            Ok(len) => self.bytes.extend_from_slice(chunk.get(..len).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

impl Running {
    /// Sends the question, waits for the child's end, and returns its output.
    fn answer(
        &mut self,
        question: &[u8],
        limits: &ChildLimits,
        budget: &mut dyn ProcessorBudget,
    ) -> Result<ChildReply, ChildError> {
        let (bytes, stderr) = self.exchange(question, limits, budget)?;
        let status = self.wait_for_end(limits, budget)?;
        match status.signal() {
            Some(libc::SIGXCPU) => return Err(ChildError::TimeLimit(*limits)),
            // The kernel does not deliver SIGXCPU, the signal of the soft limit, to the first process of a PID namespace.
            // The hard limit kills such a process.
            Some(libc::SIGKILL)
                if self.child.isolation.has(Isolation::NAMESPACES)
                    && self.end_and_measure() >= limits.processor =>
            {
                return Err(ChildError::TimeLimit(*limits));
            }
            Some(signal) => return Err(ChildError::Killed(signal)),
            None => {}
        }
        let stderr = plain(&stderr);
        if status.code() == Some(NOT_CONFINED) {
            return Err(io::Error::other(stderr).into());
        }
        Ok(ChildReply { bytes, stderr, has_succeeded: status.success() })
    }

    /// Returns the child's processor time so far; 0 if the child has been waited for.
    fn time_so_far(&self) -> Nanos {
        let Some(clock) = self.clock.filter(|_| self.exit.is_none()) else { return Nanos(0) };
        // The child has not been waited for, so the clock is still the child's.
        let time = crate::clock_time(clock).unwrap_or_default();
        Nanos::from(time)
    }

    fn signal(&self, signal: libc::c_int) {
        let Some(number) = libc::pid_t::try_from(self.child.id()).ok().filter(|_| self.exit.is_none()) else {
            return;
        };
        // SAFETY: takes no pointers. The child has not been waited for, so no other process has its number.
        unsafe { libc::kill(number, signal) };
    }

    /// Asks the budget for its order if [`ORDER_INTERVAL`] has passed since the last time, and applies the order. Returns the
    /// longest time for which the caller may wait before it calls this function again.
    fn apply_order(
        &mut self,
        limits: &ChildLimits,
        budget: &mut dyn ProcessorBudget,
    ) -> Result<Duration, ChildError> {
        let now = Instant::now();
        if now.saturating_duration_since(self.budget_asked) >= ORDER_INTERVAL {
            self.budget_asked = now;
            let so_far = self.time_so_far();
            if so_far > limits.processor {
                return Err(ChildError::TimeLimit(*limits));
            }
            match (budget.order(so_far), self.paused_since) {
                (BudgetOrder::Abort, _) => return Err(ChildError::Preempted),
                (BudgetOrder::Pause, None) => {
                    self.signal(libc::SIGSTOP);
                    self.paused_since = Some(now);
                }
                (BudgetOrder::Continue, Some(since)) => {
                    self.deadline += now.saturating_duration_since(since);
                    self.paused_since = None;
                    self.signal(libc::SIGCONT);
                }
                (BudgetOrder::Pause, Some(_)) | (BudgetOrder::Continue, None) => {}
            }
        }
        if self.paused_since.is_some() {
            return Ok(ORDER_INTERVAL);
        }
        match self.deadline.saturating_duration_since(now) {
            Duration::ZERO => Err(ChildError::TimeLimit(*limits)),
            remaining => Ok(remaining.min(ORDER_INTERVAL)),
        }
    }

    /// Kills the child if it has not ended yet, and returns its total processor time.
    fn end_and_measure(&mut self) -> Nanos {
        if self.exit.is_none() {
            // The child has not been waited for, so no other process has its id.
            _ = self.child.kill();
            _ = self.wait(0);
        }
        self.exit.map_or(Nanos(0), |(_, used)| used)
    }

    /// Returns the child's exit status if it has ended. `options` are those of wait4(2); with 0, waits for the end.
    fn wait(&mut self, options: libc::c_int) -> io::Result<Option<ExitStatus>> {
        if let Some((status, _)) = self.exit {
            return Ok(Some(status));
        }
        let number = libc::pid_t::try_from(self.child.id()).map_err(io::Error::other)?;
        let mut status = 0;
        loop {
            // SAFETY: a rusage consists of numbers, for which zero is a valid value.
            let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
            // SAFETY: the pointers are to live locals. The child is this process's own, and no other code waits for it,
            // because `child` is private.
            let waited = unsafe { libc::wait4(number, &raw mut status, options, &raw mut usage) };
            if waited == number {
                let status = ExitStatus::from_raw(status);
                let used = nanos(usage.ru_utime).saturating_add(nanos(usage.ru_stime));
                self.exit = Some((status, Nanos(used)));
                return Ok(Some(status));
            }
            if waited == 0 {
                return Ok(None);
            }
            let error = io::Error::last_os_error();
            if error.kind() != ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// Sends the question, and reads standard output and standard error until the child has closed both. Returns their bytes.
    fn exchange(
        &mut self,
        question: &[u8],
        limits: &ChildLimits,
        budget: &mut dyn ProcessorBudget,
    ) -> Result<(Vec<u8>, Vec<u8>), ChildError> {
        let (mut stdin, mut unsent) = (self.child.stdin.take(), question);
        stdin.as_ref().map_or(Ok(()), set_nonblocking)?;
        let (mut answer, mut stderr) =
            (Stream::new(self.child.stdout.take()), Stream::new(self.child.stderr.take()));
        while answer.pipe.is_some() || stderr.pipe.is_some() {
            let wait_max = self.apply_order(limits, budget)?;
            let stdin_descriptor = stdin.as_ref().map_or(-1, AsRawFd::as_raw_fd);
            let [can_write, has_answer, has_stderr] = poll(
                [
                    (stdin_descriptor, libc::POLLOUT),
                    (answer.descriptor(), libc::POLLIN),
                    (stderr.descriptor(), libc::POLLIN),
                ],
                wait_max,
            )?;
            if can_write {
                match stdin.as_mut().map_or(Ok(0), |pipe| pipe.write(unsent)) {
                    Ok(sent) => unsent = unsent.get(sent..).unwrap_or_default(),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    // The child has closed its standard input; its exit status shows the reason.
                    Err(_) => unsent = &[],
                }
            }
            if unsent.is_empty() {
                stdin = None;
            }
            if has_answer {
                answer.read_available()?;
            }
            if has_stderr {
                stderr.read_available()?;
            }
            if answer.bytes.len() > limits.answer {
                return Err(ChildError::AnswerTooLong(limits.answer));
            }
            // Only the beginning of standard error is kept; the rest is read and discarded.
            stderr.bytes.truncate(STDERR_MAX);
        }
        Ok((answer.bytes, stderr.bytes))
    }

    /// Waits for the child's end while the budget and the limits allow it to run.
    fn wait_for_end(
        &mut self,
        limits: &ChildLimits,
        budget: &mut dyn ProcessorBudget,
    ) -> Result<ExitStatus, ChildError> {
        loop {
            if let Some(status) = self.wait(libc::WNOHANG)? {
                return Ok(status);
            }
            std::thread::sleep(self.apply_order(limits, budget)?.min(END_POLL_INTERVAL));
        }
    }
}

fn nanos(time: libc::timeval) -> u64 {
    let part = |count: i64, each: u64| u64::try_from(count).unwrap_or(0).saturating_mul(each);
    part(time.tv_sec, Nanos::SECOND.0).saturating_add(part(time.tv_usec, 1000))
}

/// Waits until at least one of these descriptors is ready for its events or closed, for at most `within`. Returns one
/// boolean for each descriptor: true if the descriptor is ready or closed.
fn poll<const N: usize>(wanted: [(RawFd, libc::c_short); N], within: Duration) -> io::Result<[bool; N]> {
    let mut polled = wanted.map(|(fd, events)| libc::pollfd { fd, events, revents: 0 });
    // Rounded up, to avoid busy polling in the last millisecond.
    let milliseconds =
        libc::c_int::try_from(within.as_millis()).unwrap_or(libc::c_int::MAX).saturating_add(1);
    let count = libc::nfds_t::try_from(N).unwrap_or_default();
    // SAFETY: the pointer is to `N` live entries, which no other code uses.
    let ready = unsafe { libc::poll(polled.as_mut_ptr(), count, milliseconds) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == ErrorKind::Interrupted { Ok([false; N]) } else { Err(error) };
    }
    Ok(polled.map(|polled| polled.revents != 0))
}

/// Makes writes to a full pipe fail, so that a child that does not read cannot block its parent.
fn set_nonblocking(pipe: &File) -> io::Result<()> {
    // SAFETY: takes no pointers; the descriptor is open as long as `pipe` exists, and this end of it has no other
    // owner.
    match unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Sets limits of the calling process. Each entry of `limits` is a resource, its soft limit and its hard limit. Makes
/// only system calls, so that a forked child may call it.
pub(crate) fn set_limits(limits: &[(libc::__rlimit_resource_t, u64, u64)]) -> io::Result<()> {
    for &(resource, soft, hard) in limits {
        let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
        // SAFETY: the pointer is to a live local.
        if unsafe { libc::setrlimit(resource, &raw const limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
