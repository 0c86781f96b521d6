//! A process of its own that stays, and is asked again and again.
//!
//! It is this same program with other arguments, as a [child](crate::child) is. Both talk over a socket, in messages behind their lengths; to the companion
//! it is standard input, and it has no other descriptor that is of any use. It ends when the other end is closed, which is so at the latest when the process
//! that started it is no more. (The signal that the kernel can send then is no help: it comes when the *thread* ends that has started the child.)

use crate::launch::{Allotment, CORE_WORDS, Child, Launcher, Streams, start};
use crate::{Isolation, descriptors};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitStatus;
use std::time::{Duration, Instant};
use weir_units::Bytes;

/// Descriptors that a child may have open: as many as its start takes.
pub(crate) const DESCRIPTORS: u64 = 64;
/// Bytes of a message's length, which stands in front of it.
const HEAD: usize = 4;
/// How much is read at a time.
const PORTION: usize = 4 << 10;

/// What a companion may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelperLimits {
    /// Addresses.
    pub addresses: Bytes,
    /// Memory of its own.
    pub memory: Bytes,
}

/// A companion, from outside. It is killed when this is dropped.
#[derive(Debug)]
pub struct HelperProcess {
    process: Child,
    /// Of its processor time.
    clock: libc::clockid_t,
    line: UnixStream,
    /// Of the message that is on its way, what has come.
    heard: Vec<u8>,
    /// It has been waited for.
    is_over: bool,
}

impl HelperProcess {
    /// Starts a process with these arguments and nothing of the environment. It writes no file, and leaves no image of its memory.
    ///
    /// # Errors
    /// There is no process, or no socket.
    pub fn start<A: AsRef<OsStr>>(
        launcher: &Launcher,
        arguments: &[A],
        room: HelperLimits,
    ) -> io::Result<Self> {
        let (line, theirs) = UnixStream::pair()?;
        let allotment = Allotment {
            processor: 0,
            addresses: room.addresses.0,
            memory: room.memory.0,
            nice: 0,
            descriptors: DESCRIPTORS,
            cores: [0; CORE_WORDS],
        };
        let streams = Streams { input: Some(OwnedFd::from(theirs)), ..Streams::default() };
        let process = start(launcher, arguments, allotment, streams, false)?;
        let mut this = Self { process, clock: 0, line, heard: Vec::new(), is_over: false };
        this.clock = this.clock()?;
        Ok(this)
    }

    /// The clock of its processor time.
    fn clock(&self) -> io::Result<libc::clockid_t> {
        let id = libc::pid_t::try_from(self.process.id()).map_err(|_| ErrorKind::NotFound)?;
        let mut clock = 0;
        // SAFETY: the pointer is to a live local. The process has not been waited for, so its number is nobody else's.
        match unsafe { libc::clock_getcpuclockid(id, &raw mut clock) } {
            0 => Ok(clock),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }

    /// Sends a message and waits for the answer. Whoever gets an error does not know what the companion does: an answer may still come, and would be taken
    /// for that to the next question. It is to be dropped then, or to be [heard](Self::hear) until there is one.
    ///
    /// # Errors
    /// As of [`tell`](Self::tell) and [`hear`](Self::hear).
    pub fn ask(&mut self, question: &[u8], most: usize, within: Duration) -> io::Result<Vec<u8>> {
        let until = Instant::now() + within;
        self.tell(question, within)?;
        self.hear(most, until)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// It has ended, or does not take it in time ([`ErrorKind::TimedOut`]).
    pub fn tell(&mut self, message: &[u8], within: Duration) -> io::Result<()> {
        self.line.set_write_timeout(Some(within))?;
        self.line.write_all(&framed(message)?).map_err(late)
    }

    /// Gives it a descriptor, which it has to [take](HelperChannel::take) after the message before.
    ///
    /// # Errors
    /// It has ended.
    pub fn give(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        descriptors::give(self.line.as_fd(), descriptor)
    }

    /// Waits for what it says. Where that does not come in time, what has come of it is kept for the next time.
    ///
    /// # Errors
    /// It has ended, says nothing in time ([`ErrorKind::TimedOut`]), or has more than `most` bytes to say ([`ErrorKind::InvalidData`]).
    pub fn hear(&mut self, most: usize, until: Instant) -> io::Result<Vec<u8>> {
        loop {
            let head = self.heard.first_chunk::<HEAD>();
            let wanted = head.map_or(Ok(usize::MAX), |head| length(*head, most).map(|len| HEAD + len))?;
            if wanted == self.heard.len() {
                return Ok(std::mem::take(&mut self.heard).split_off(HEAD));
            }
            // It is asked one thing at a time, and answers once.
            if wanted < self.heard.len() {
                return Err(ErrorKind::InvalidData.into());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            // No more than comes is made room for.
            let mut portion = [0; PORTION];
            match self.read(&mut portion, left) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => self.heard.extend_from_slice(portion.get(..len).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(late(error)),
            }
        }
    }

    /// Reads what comes, and waits for it by a clock of nanoseconds: a time-out of the socket's own (SO_RCVTIMEO) ends with one of the kernel's ticks, which can be 10 ms
    /// later. Where nothing comes in time the answer is [`ErrorKind::WouldBlock`].
    fn read(&self, to: &mut [u8], within: Duration) -> io::Result<usize> {
        let seconds = libc::time_t::try_from(within.as_secs()).unwrap_or(libc::time_t::MAX);
        let within = libc::timespec { tv_sec: seconds, tv_nsec: within.subsec_nanos().into() };
        let mut poll = libc::pollfd { fd: self.line.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: both pointers are to live locals, and there is one of the first.
        if unsafe { libc::ppoll(&raw mut poll, 1, &raw const within, std::ptr::null()) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the pointer is to as many bytes, which are live and nobody else's.
        let len = unsafe { libc::recv(poll.fd, to.as_mut_ptr().cast(), to.len(), libc::MSG_DONTWAIT) };
        usize::try_from(len).map_err(|_| io::Error::last_os_error())
    }

    /// The processor time that it has had, with all its threads, since it was started.
    ///
    /// # Errors
    /// It has ended.
    pub fn processor_time(&self) -> io::Result<Duration> {
        if self.is_over {
            return Err(ErrorKind::NotFound.into());
        }
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is to a live local. The process has not been waited for, so the clock is nobody else's.
        if unsafe { libc::clock_gettime(self.clock, &raw mut time) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
        Ok(Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default()))
    }

    /// Stops it where it is, until it is to [go on](Self::go_on).
    pub fn halt(&self) {
        self.signal(libc::SIGSTOP);
    }

    /// Has it go on.
    pub fn go_on(&self) {
        self.signal(libc::SIGCONT);
    }

    fn signal(&self, signal: libc::c_int) {
        if self.is_over {
            return;
        }
        let Ok(id) = libc::pid_t::try_from(self.process.id()) else { return };
        // SAFETY: takes no pointers. The process has not been waited for, so its number is nobody else's. One that has ended takes no notice.
        unsafe { libc::kill(id, signal) };
    }

    /// The walls around it.
    pub fn isolation(&self) -> Isolation {
        self.process.isolation
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Kills it, if it has not ended yet, and says how it has ended.
    ///
    /// # Errors
    /// The system does not say.
    pub fn end(&mut self) -> io::Result<ExitStatus> {
        // Only fails where it has been waited for already.
        _ = self.process.kill();
        let how = self.process.wait();
        // From here on its number may be another process's.
        self.is_over = true;
        how
    }
}

impl Drop for HelperProcess {
    fn drop(&mut self) {
        _ = self.end();
    }
}

/// Has what is open beside the first three be closed when another program is executed: also what this process was started with, by somebody who has left it
/// open. Kernels before 5.11 cannot; there is no such descriptor of weir's own.
pub(crate) fn close_what_is_inherited() {
    let first: libc::c_uint = 3;
    let (last, flags) = (libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
    // SAFETY: takes no pointers, and closes nothing now.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
}

/// A wait that was too long, as others call it.
fn late(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::WouldBlock { ErrorKind::TimedOut.into() } else { error }
}

/// A message behind its length: what is sent at once.
fn framed(message: &[u8]) -> io::Result<Vec<u8>> {
    let len = u32::try_from(message.len()).map_err(|_| ErrorKind::InvalidInput)?;
    Ok([&len.to_be_bytes(), message].concat())
}

/// The length of a message, where it has no more than that.
fn length(head: [u8; HEAD], most: usize) -> io::Result<usize> {
    let len = usize::try_from(u32::from_be_bytes(head)).unwrap_or(usize::MAX);
    if len <= most { Ok(len) } else { Err(ErrorKind::InvalidData.into()) }
}

/// The companion's own end of the line.
#[derive(Debug)]
pub struct HelperChannel(File);

impl HelperChannel {
    /// Standard input. To be taken before the process is confined.
    ///
    /// # Errors
    /// It is closed.
    pub fn of_standard_input() -> io::Result<Self> {
        Ok(Self(io::stdin().as_fd().try_clone_to_owned()?.into()))
    }

    /// The next message; nothing when whoever has started the process is gone.
    ///
    /// # Errors
    /// The line is broken, or the message longer than that.
    pub fn hear(&mut self, most: usize) -> io::Result<Option<Vec<u8>>> {
        let mut head = [0; HEAD];
        match self.0.read_exact(&mut head) {
            Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
                return Ok(None);
            }
            read => read?,
        }
        let mut message = vec![0; length(head, most)?];
        self.0.read_exact(&mut message)?;
        Ok(Some(message))
    }

    /// The descriptor that was given after the last message.
    ///
    /// # Errors
    /// There is none.
    pub fn take(&mut self) -> io::Result<OwnedFd> {
        descriptors::take(self.0.as_fd())
    }

    /// Says something.
    ///
    /// # Errors
    /// Nobody is there any more.
    pub fn say(&mut self, message: &[u8]) -> io::Result<()> {
        self.0.write_all(&framed(message)?)
    }
}
