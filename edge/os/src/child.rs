//! A process of its own for what a stranger wrote.
//!
//! How long a compiler takes, how much memory it wants and what a flaw in it lets its input do is up to that input. So it works in a child: this same
//! program with another argument, which reads what it is asked from standard input and writes its answer to standard output. It has limits that the
//! kernel keeps and a time by which it is killed, and gives up everything else before it reads ([`confined`]). What it answers is as little to be
//! trusted as what it was asked: whoever takes over a child can answer what they want, until the time is up.

use crate::launch::{Allotment, CORE_WORDS, Child, Launcher, start_piped};
use crate::meter::{CpuMeter, MeterOrder};
use crate::{ConfineError, Files, Isolation};
use rustix::thread::CpuSet;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};
use weir_units::{Bytes, Nanos};

/// How a child ends that could not be confined (EX_OSERR of sysexits.h).
const NOT_CONFINED: i32 = 71;
/// What is kept of what a child says on standard error, in bytes.
const SAID_MAX: usize = 4096;
/// The longest text that is made of that, in characters.
const TEXT_MAX: usize = 500;
/// How much is read at a time.
const PORTION: usize = 64 << 10;
/// A child that has said all it has to say is about to end: how often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(1);
/// The interval in which the meter of a child that works is asked.
const ORDERS: Duration = Duration::from_millis(20);
/// Added to the nice value of every child: what a stranger has compiled runs behind everything else on its cores.
const NICE: i32 = 10;

/// What a child may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildLimits {
    /// Processor time, in whole seconds.
    pub processor: Nanos,
    /// From its start until it has ended, also where it sleeps.
    pub time: Nanos,
    /// Address space.
    pub memory: Bytes,
    /// The longest answer, in bytes.
    pub answer: usize,
    /// Its cores; those of the calling thread where there are none.
    pub cores: Option<Cores>,
}

/// A set of cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cores(CpuSet);

impl Cores {
    /// The cores of the calling thread without `taken`. Nothing where none would be left, or the system does not say.
    pub fn without(taken: &[u16]) -> Option<Self> {
        let mut set = rustix::thread::sched_getaffinity(None).ok()?;
        for core in taken.iter().map(|core| usize::from(*core)).filter(|core| *core < CpuSet::MAX_CPU) {
            set.unset(core);
        }
        (set.count() > 0).then_some(Self(set))
    }

    /// A bit for each of them.
    fn words(&self) -> [u64; CORE_WORDS] {
        std::array::from_fn(|word| {
            (0..64).filter(|bit| self.0.is_set(word * 64 + bit)).fold(0, |bits, bit| bits | 1 << bit)
        })
    }

    /// Moves the calling thread to them.
    ///
    /// # Errors
    /// The system does not allow it.
    pub fn bind(&self) -> io::Result<()> {
        Ok(rustix::thread::sched_setaffinity(None, &self.0)?)
    }

    /// Returns true if `core` is one of them.
    pub fn has(&self, core: u16) -> bool {
        usize::from(core) < CpuSet::MAX_CPU && self.0.is_set(usize::from(core))
    }
}

impl ChildLimits {
    fn allotment(&self) -> Allotment {
        Allotment {
            processor: self.processor.0.div_ceil(Nanos::SECOND.0),
            addresses: self.memory.0,
            memory: 0,
            nice: NICE,
            descriptors: crate::companion::DESCRIPTORS,
            // A spawner has cores of its own.
            cores: self.cores.or_else(|| Cores::without(&[])).map_or([0; CORE_WORDS], |cores| cores.words()),
        }
    }
}

/// What a child said.
#[derive(Debug)]
pub struct ChildReply {
    /// On standard output.
    pub bytes: Vec<u8>,
    /// On standard error, as text without control characters.
    pub said: String,
    /// Whether it ended as one that has done what it was asked.
    pub is_done: bool,
}

/// What became of a question.
#[derive(Debug)]
pub struct ChildPoll {
    /// What the child said, or why there is nothing.
    pub answer: Result<ChildReply, ChildError>,
    /// The processor time that it has had (getrusage(2), user and system), also where there is no answer: somebody pays for it.
    pub used: Nanos,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// It took too long. To blame is what it was asked.
    #[error("it takes more than {} of processor time, or {} in all, and was given up", .0.processor, .0.time)]
    Time(ChildLimits),
    /// Somebody has killed it: by what it was asked it came to a state that it cannot be in, or the system had no memory for it.
    #[error("the process that did it was killed by signal {0}")]
    Killed(i32),
    /// Its meter gave it up for others.
    #[error("it gave way to others")]
    GaveWay,
    /// It says more than there is to say.
    #[error("its answer has more than {0} bytes")]
    Answer(usize),
    /// To blame is the system.
    #[error("there is no process to do it in: {0}")]
    Process(#[from] io::Error),
}

/// What a child does first: it gives up what it does not need, and ends where it cannot, before it has read anything.
pub fn confined(give_up: fn() -> Result<Files, ConfineError>) {
    if let Err(why) = give_up() {
        // The parent must not take this for a fault of what it asked.
        _ = writeln!(io::stderr(), "{why}");
        std::process::exit(NOT_CONFINED);
    }
}

/// What a stranger's bytes say, on one line, without control characters, and not for ever.
pub fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.trim().chars().take(TEXT_MAX).flat_map(char::escape_debug).collect()
}

/// Starts a process with this argument and nothing of the environment, sends it the question, and waits for the answer. However it goes, there is no
/// child any more afterwards.
///
/// The child runs with a higher nice value than the caller, on [`ChildLimits::cores`]. `meter` is asked every 20 ms; a child that is to rest is stopped (SIGSTOP), and its
/// time by the clock does not count meanwhile. The processor time that the child took is taken off the meter.
///
/// The answer is a [`ChildError`] where there is none. A child that ends with a status other than 0 has answered, but is not [done](ChildReply::is_done).
pub fn ask(
    launcher: &Launcher,
    argument: &str,
    question: &[u8],
    limits: &ChildLimits,
    meter: &mut dyn CpuMeter,
) -> ChildPoll {
    let nothing = |error: ChildError| ChildPoll { answer: Err(error), used: Nanos(0) };
    // Between two children of one request, too.
    loop {
        match meter.order(Nanos(0)) {
            MeterOrder::GoOn => break,
            MeterOrder::Rest => std::thread::sleep(ORDERS),
            MeterOrder::GiveUp => return nothing(ChildError::GaveWay),
        }
    }
    let begun = Instant::now();
    let mut running = match start_piped(launcher, argument, limits.allotment()) {
        Ok(child) => Running {
            clock: clock(&child),
            child,
            ended: None,
            until: begun + Duration::from_nanos(limits.time.0),
            asked: begun,
            rests: None,
        },
        Err(error) => return nothing(error.into()),
    };
    let answer = running.answer(question, limits, meter);
    let used = running.used();
    meter.spend(used);
    ChildPoll { answer, used }
}

/// The clock of a child's processor time.
fn clock(child: &Child) -> Option<libc::clockid_t> {
    let number = libc::pid_t::try_from(child.id()).ok()?;
    let mut clock = 0;
    // SAFETY: the pointer is to a live local. The child has not been waited for, so no other process has its number.
    (unsafe { libc::clock_getcpuclockid(number, &raw mut clock) } == 0).then_some(clock)
}

/// A child. It ends with this.
struct Running {
    child: Child,
    clock: Option<libc::clockid_t>,
    /// How it has ended, and the processor time that it had. From then on its number may be another process's.
    ended: Option<(ExitStatus, Nanos)>,
    /// Its time by the clock ends then, if it does not rest.
    until: Instant,
    /// When its meter was asked last.
    asked: Instant,
    /// It is stopped, since then.
    rests: Option<Instant>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.used();
    }
}

/// What comes out of a child.
struct Stream<S> {
    /// Nothing after its end.
    pipe: Option<S>,
    bytes: Vec<u8>,
}

impl<S: Read + AsRawFd> Stream<S> {
    fn of(pipe: Option<S>) -> Self {
        Self { pipe, bytes: Vec::new() }
    }

    fn descriptor(&self) -> RawFd {
        // poll(2) does not look at what is negative.
        self.pipe.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Takes what is there; something is, or its end.
    fn take(&mut self) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        let mut portion = [0; PORTION];
        match pipe.read(&mut portion) {
            Ok(0) => self.pipe = None,
            Ok(len) => self.bytes.extend_from_slice(portion.get(..len).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

impl Running {
    fn answer(
        &mut self,
        question: &[u8],
        limits: &ChildLimits,
        meter: &mut dyn CpuMeter,
    ) -> Result<ChildReply, ChildError> {
        let (bytes, said) = self.talk(question, limits, meter)?;
        let status = self.end(limits, meter)?;
        match status.signal() {
            Some(libc::SIGXCPU) => return Err(ChildError::Time(*limits)),
            // The first process of a PID namespace does not get the signal of the first limit.
            Some(libc::SIGKILL)
                if self.child.isolation.has(Isolation::NAMESPACES) && self.used() >= limits.processor =>
            {
                return Err(ChildError::Time(*limits));
            }
            Some(signal) => return Err(ChildError::Killed(signal)),
            None => {}
        }
        let said = plain(&said);
        if status.code() == Some(NOT_CONFINED) {
            return Err(io::Error::other(said).into());
        }
        Ok(ChildReply { bytes, said, is_done: status.success() })
    }

    /// The processor time that it has had so far.
    fn so_far(&self) -> Nanos {
        let Some(clock) = self.clock.filter(|_| self.ended.is_none()) else { return Nanos(0) };
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is to a live local. The child has not been waited for, so the clock is still the child's.
        if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
            return Nanos(0);
        }
        let part = |count: i64| u64::try_from(count).unwrap_or(0);
        Nanos(part(time.tv_sec).saturating_mul(Nanos::SECOND.0).saturating_add(part(time.tv_nsec)))
    }

    fn signal(&self, signal: libc::c_int) {
        let Some(number) = libc::pid_t::try_from(self.child.id()).ok().filter(|_| self.ended.is_none())
        else {
            return;
        };
        // SAFETY: takes no pointers. The child has not been waited for, so no other process has its number.
        unsafe { libc::kill(number, signal) };
    }

    /// Asks the meter where it is time for that, and does what it says. The time by the clock that is left for the next wait.
    fn look(&mut self, limits: &ChildLimits, meter: &mut dyn CpuMeter) -> Result<Duration, ChildError> {
        let now = Instant::now();
        if now.saturating_duration_since(self.asked) >= ORDERS {
            self.asked = now;
            let so_far = self.so_far();
            if so_far > limits.processor {
                return Err(ChildError::Time(*limits));
            }
            match (meter.order(so_far), self.rests) {
                (MeterOrder::GiveUp, _) => return Err(ChildError::GaveWay),
                (MeterOrder::Rest, None) => {
                    self.signal(libc::SIGSTOP);
                    self.rests = Some(now);
                }
                (MeterOrder::GoOn, Some(since)) => {
                    self.until += now.saturating_duration_since(since);
                    self.rests = None;
                    self.signal(libc::SIGCONT);
                }
                (MeterOrder::Rest, Some(_)) | (MeterOrder::GoOn, None) => {}
            }
        }
        if self.rests.is_some() {
            return Ok(ORDERS);
        }
        match self.until.saturating_duration_since(now) {
            Duration::ZERO => Err(ChildError::Time(*limits)),
            left => Ok(left.min(ORDERS)),
        }
    }

    /// The processor time that it had. It has not, any more, from then on.
    fn used(&mut self) -> Nanos {
        if self.ended.is_none() {
            // It has not been waited for, so the number is its own.
            _ = self.child.kill();
            _ = self.wait(0);
        }
        self.ended.map_or(Nanos(0), |(_, used)| used)
    }

    /// How it has ended, if it has; with 0 for `options` (wait4(2)), when it has.
    fn wait(&mut self, options: libc::c_int) -> io::Result<Option<ExitStatus>> {
        if let Some((status, _)) = self.ended {
            return Ok(Some(status));
        }
        let number = libc::pid_t::try_from(self.child.id()).map_err(io::Error::other)?;
        let mut status = 0;
        loop {
            // SAFETY: all of it are numbers, for which zero is a value.
            let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
            // SAFETY: the pointers are to live locals. The child is this process's own, and nobody else waits for it: `child` is not given out.
            let waited = unsafe { libc::wait4(number, &raw mut status, options, &raw mut usage) };
            if waited == number {
                let status = ExitStatus::from_raw(status);
                let used = nanos(usage.ru_utime).saturating_add(nanos(usage.ru_stime));
                self.ended = Some((status, Nanos(used)));
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

    /// Sends the question and takes what comes, in whatever order the child likes, until it has closed both of its streams.
    fn talk(
        &mut self,
        question: &[u8],
        limits: &ChildLimits,
        meter: &mut dyn CpuMeter,
    ) -> Result<(Vec<u8>, Vec<u8>), ChildError> {
        let (mut sends, mut rest) = (self.child.stdin.take(), question);
        sends.as_ref().map_or(Ok(()), never_wait)?;
        let (mut answer, mut said) =
            (Stream::of(self.child.stdout.take()), Stream::of(self.child.stderr.take()));
        while answer.pipe.is_some() || said.pipe.is_some() {
            let left = self.look(limits, meter)?;
            let to = sends.as_ref().map_or(-1, AsRawFd::as_raw_fd);
            let [to, from, from_errors] = poll(
                [(to, libc::POLLOUT), (answer.descriptor(), libc::POLLIN), (said.descriptor(), libc::POLLIN)],
                left,
            )?;
            if to {
                match sends.as_mut().map_or(Ok(0), |pipe| pipe.write(rest)) {
                    Ok(sent) => rest = rest.get(sent..).unwrap_or_default(),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    // It stops reading: how it ends says more than that.
                    Err(_) => rest = &[],
                }
            }
            if rest.is_empty() {
                sends = None;
            }
            if from {
                answer.take()?;
            }
            if from_errors {
                said.take()?;
            }
            if answer.bytes.len() > limits.answer {
                return Err(ChildError::Answer(limits.answer));
            }
            // The beginning is enough. It can go on, but nobody keeps it.
            said.bytes.truncate(SAID_MAX);
        }
        Ok((answer.bytes, said.bytes))
    }

    /// How it has ended.
    fn end(&mut self, limits: &ChildLimits, meter: &mut dyn CpuMeter) -> Result<ExitStatus, ChildError> {
        loop {
            if let Some(status) = self.wait(libc::WNOHANG)? {
                return Ok(status);
            }
            std::thread::sleep(self.look(limits, meter)?.min(LOOK));
        }
    }
}

fn nanos(time: libc::timeval) -> u64 {
    let part = |count: i64, each: u64| u64::try_from(count).unwrap_or(0).saturating_mul(each);
    part(time.tv_sec, Nanos::SECOND.0).saturating_add(part(time.tv_usec, 1000))
}

/// Waits until something can be done with one of these descriptors, or they have come to their end: with which.
fn poll<const N: usize>(wanted: [(RawFd, libc::c_short); N], left: Duration) -> io::Result<[bool; N]> {
    let mut polled = wanted.map(|(fd, events)| libc::pollfd { fd, events, revents: 0 });
    // Not less than is left, so that it is not looked again and again in the last millisecond.
    let milliseconds = libc::c_int::try_from(left.as_millis()).unwrap_or(libc::c_int::MAX).saturating_add(1);
    let count = libc::nfds_t::try_from(N).unwrap_or_default();
    // SAFETY: the pointer is to so many live entries, which nobody else uses.
    let ready = unsafe { libc::poll(polled.as_mut_ptr(), count, milliseconds) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == ErrorKind::Interrupted { Ok([false; N]) } else { Err(error) };
    }
    Ok(polled.map(|polled| polled.revents != 0))
}

/// Writes of more than there is room for are cut short: a child that does not read keeps nobody waiting.
fn never_wait(pipe: &File) -> io::Result<()> {
    // SAFETY: takes no pointers; the descriptor is open as long as `pipe` is there, and this end of it is nobody else's.
    match unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Sets limits of the calling process: what, the one that it is told of, and the one for good. Makes system calls alone, so it can be called after a fork.
pub(crate) fn set_limits(all: &[(libc::__rlimit_resource_t, u64, u64)]) -> io::Result<()> {
    for &(resource, most, at_last) in all {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: at_last };
        // SAFETY: the pointer is to a live local.
        if unsafe { libc::setrlimit(resource, &raw const limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
