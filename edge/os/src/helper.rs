//! A helper process: a confined, long-lived child that answers its parent's requests.
//!
//! The key agent and sandbox processes are helper processes. Like a [child](crate::child), a helper is this same program
//! with other arguments. Parent and helper exchange messages over a socket; a big-endian 32-bit number before each message
//! is its length. The socket is the helper's standard input, and its only useful descriptor. The helper ends when the
//! parent closes the parent's end of the socket, which happens at the latest when the parent ends. (The kernel's
//! parent-death signal is not suitable, because it is sent when the *thread* that started the helper ends.)

use crate::launch::{CORE_WORDS, Child, Launcher, ProcessLimits, Streams, start};
use crate::{Isolation, descriptors};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitStatus;
use std::time::{Duration, Instant};
use weir_units::Bytes;

/// The most open descriptors of a helper or a child. Starting the program needs most of them.
pub(crate) const DESCRIPTORS: u64 = 64;
/// Bytes of the length in front of a message.
const LENGTH_BYTES: usize = 4;
/// Bytes read at a time.
const READ_BYTES: usize = 4 << 10;

/// The limits of a helper process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelperLimits {
    /// Address space.
    pub address_space: Bytes,
    /// Private memory.
    pub memory: Bytes,
}

/// The parent's side of a helper process, which is killed when this value is dropped.
#[derive(Debug)]
pub struct HelperProcess {
    process: Child,
    /// The clock of the process's processor time.
    clock: libc::clockid_t,
    socket: UnixStream,
    /// The received part of the next message.
    received: Vec<u8>,
    /// True if the process has been waited for.
    was_waited_for: bool,
}

impl HelperProcess {
    /// Starts a helper process with these arguments and an empty environment. The process can write no files and dump no
    /// core.
    ///
    /// # Errors
    /// The process or the socket cannot be created.
    pub fn start<A: AsRef<OsStr>>(
        launcher: &Launcher,
        arguments: &[A],
        limits: HelperLimits,
    ) -> io::Result<Self> {
        let (socket, theirs) = UnixStream::pair()?;
        let process_limits = ProcessLimits {
            processor: 0,
            address_space: limits.address_space.0,
            memory: limits.memory.0,
            nice: 0,
            descriptors: DESCRIPTORS,
            cores: [0; CORE_WORDS],
        };
        let streams = Streams { input: Some(OwnedFd::from(theirs)), ..Streams::default() };
        let process = start(launcher, arguments, process_limits, streams, false)?;
        let mut helper = Self { process, clock: 0, socket, received: Vec::new(), was_waited_for: false };
        helper.clock = helper.clock()?;
        Ok(helper)
    }

    /// Returns the clock of the process's processor time.
    fn clock(&self) -> io::Result<libc::clockid_t> {
        let id = libc::pid_t::try_from(self.process.id()).map_err(|_| ErrorKind::NotFound)?;
        let mut clock = 0;
        // SAFETY: the pointer is to a live local. The process has not been waited for, so its id is not reused.
        match unsafe { libc::clock_getcpuclockid(id, &raw mut clock) } {
            0 => Ok(clock),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }

    /// Sends a message and waits for the answer.
    ///
    /// After an error the answer may still arrive, and would be taken for the answer to the next question. The caller must
    /// then drop the helper, or [receive](Self::receive) until the late answer has arrived.
    ///
    /// # Errors
    /// As [`send`](Self::send) and [`receive`](Self::receive).
    pub fn request(&mut self, question: &[u8], bytes_max: usize, within: Duration) -> io::Result<Vec<u8>> {
        let until = Instant::now() + within;
        self.send(question, within)?;
        self.receive(bytes_max, until)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The process has ended, or does not read the message in time ([`ErrorKind::TimedOut`]).
    pub fn send(&mut self, message: &[u8], within: Duration) -> io::Result<()> {
        self.socket.set_write_timeout(Some(within))?;
        self.socket.write_all(&framed(message)?).map_err(timed_out)
    }

    /// Sends a descriptor, which the helper must [receive](HelperChannel::receive_descriptor) after the message that was
    /// sent last.
    ///
    /// # Errors
    /// The process has ended.
    pub fn send_descriptor(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        descriptors::send_one(self.socket.as_fd(), descriptor)
    }

    /// Waits for a message. On a timeout, the received part is kept for the next call.
    ///
    /// # Errors
    /// The process has ended, sends nothing in time ([`ErrorKind::TimedOut`]), or sends more than `bytes_max` bytes
    /// ([`ErrorKind::InvalidData`]).
    pub fn receive(&mut self, bytes_max: usize, until: Instant) -> io::Result<Vec<u8>> {
        loop {
            let head = self.received.first_chunk::<LENGTH_BYTES>();
            let wanted =
                head.map_or(Ok(usize::MAX), |head| length(*head, bytes_max).map(|len| LENGTH_BYTES + len))?;
            if wanted == self.received.len() {
                return Ok(std::mem::take(&mut self.received).split_off(LENGTH_BYTES));
            }
            // More than one message has arrived. A correct helper answers each question once, and gets one question at a
            // time.
            if wanted < self.received.len() {
                return Err(ErrorKind::InvalidData.into());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            // Memory grows with the received bytes, not with the announced length.
            let mut chunk = [0; READ_BYTES];
            match self.read(&mut chunk, left) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => self.received.extend_from_slice(chunk.get(..len).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(timed_out(error)),
            }
        }
    }

    /// Reads available bytes, after waiting for them for at most `within`. Fails with [`ErrorKind::WouldBlock`] on a
    /// timeout.
    ///
    /// The wait has nanosecond resolution, unlike a timeout of the socket itself (SO_RCVTIMEO), which ends with a kernel
    /// tick, up to 10 ms late.
    fn read(&self, to: &mut [u8], within: Duration) -> io::Result<usize> {
        let seconds = libc::time_t::try_from(within.as_secs()).unwrap_or(libc::time_t::MAX);
        let within = libc::timespec { tv_sec: seconds, tv_nsec: within.subsec_nanos().into() };
        let mut poll = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: both pointers are to live locals; the first is to one entry.
        if unsafe { libc::ppoll(&raw mut poll, 1, &raw const within, std::ptr::null()) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the pointer is to `to.len()` live bytes, which no other code uses.
        let len = unsafe { libc::recv(poll.fd, to.as_mut_ptr().cast(), to.len(), libc::MSG_DONTWAIT) };
        usize::try_from(len).map_err(|_| io::Error::last_os_error())
    }

    /// Returns the processor time of all threads of the process since its start.
    ///
    /// # Errors
    /// The process has ended.
    pub fn processor_time(&self) -> io::Result<Duration> {
        if self.was_waited_for {
            return Err(ErrorKind::NotFound.into());
        }
        // The process has not been waited for, so the clock is its own.
        crate::clock_time(self.clock)
    }

    /// Stops the process (SIGSTOP) until it is [resumed](Self::resume).
    pub fn pause(&self) {
        self.signal(libc::SIGSTOP);
    }

    /// Resumes the process (SIGCONT).
    pub fn resume(&self) {
        self.signal(libc::SIGCONT);
    }

    fn signal(&self, signal: libc::c_int) {
        if self.was_waited_for {
            return;
        }
        let Ok(id) = libc::pid_t::try_from(self.process.id()) else { return };
        // SAFETY: takes no pointers. The process has not been waited for, so its id is not reused. A signal to a
        // process that has ended has no effect.
        unsafe { libc::kill(id, signal) };
    }

    /// Returns the isolation of the process.
    pub fn isolation(&self) -> Isolation {
        self.process.isolation
    }

    /// Returns the id of the process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Kills the process if it has not ended yet, and returns its exit status.
    ///
    /// # Errors
    /// The system's error.
    pub fn end(&mut self) -> io::Result<ExitStatus> {
        // Fails only if the process has been waited for already.
        _ = self.process.kill();
        let status = self.process.wait();
        // The process id may be reused from here on.
        self.was_waited_for = true;
        status
    }
}

impl Drop for HelperProcess {
    fn drop(&mut self) {
        _ = self.end();
    }
}

/// Sets all descriptors after the first three to close on exec, also those that this process has inherited. This has no
/// effect on kernels before 5.11. Descriptors that weir itself opens are close-on-exec from the start.
pub(crate) fn close_inherited_on_exec() {
    let first: libc::c_uint = 3;
    let (last, flags) = (libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
    // SAFETY: takes no pointers, and closes nothing now.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
}

/// Converts [`ErrorKind::WouldBlock`], the error of a timeout, to [`ErrorKind::TimedOut`]. Other errors stay.
fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::WouldBlock { ErrorKind::TimedOut.into() } else { error }
}

/// Prepends the length to a message, so that both are sent in one write.
fn framed(message: &[u8]) -> io::Result<Vec<u8>> {
    let len = u32::try_from(message.len()).map_err(|_| ErrorKind::InvalidInput)?;
    Ok([&len.to_be_bytes(), message].concat())
}

/// Decodes the length of a message of at most `bytes_max` bytes. A greater length is an error.
fn length(head: [u8; LENGTH_BYTES], bytes_max: usize) -> io::Result<usize> {
    let len = usize::try_from(u32::from_be_bytes(head)).unwrap_or(usize::MAX);
    if len <= bytes_max { Ok(len) } else { Err(ErrorKind::InvalidData.into()) }
}

/// The helper's end of the socket.
#[derive(Debug)]
pub struct HelperChannel(File);

impl HelperChannel {
    /// Takes standard input as the channel to the parent. To be called before the process is confined.
    ///
    /// # Errors
    /// Standard input is closed.
    pub fn from_standard_input() -> io::Result<Self> {
        Ok(Self(io::stdin().as_fd().try_clone_to_owned()?.into()))
    }

    /// Receives the next message. Returns `None` when the parent has closed its end or ended.
    ///
    /// # Errors
    /// The connection is broken, or the message is longer than `bytes_max` bytes.
    pub fn receive(&mut self, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
        let mut head = [0; LENGTH_BYTES];
        match self.0.read_exact(&mut head) {
            Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
                return Ok(None);
            }
            read => read?,
        }
        let mut message = vec![0; length(head, bytes_max)?];
        self.0.read_exact(&mut message)?;
        Ok(Some(message))
    }

    /// Receives the descriptor that the parent sent after its last message.
    ///
    /// # Errors
    /// No descriptor arrives.
    pub fn receive_descriptor(&mut self) -> io::Result<OwnedFd> {
        descriptors::receive_one(self.0.as_fd())
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The parent has closed its end or ended.
    pub fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.0.write_all(&framed(message)?)
    }
}
