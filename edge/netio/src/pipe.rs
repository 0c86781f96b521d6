//! Reading of captures from pipes, FIFOs, sockets and devices. Reading ends when the program is interrupted, even if writers
//! keep the pipe open.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest wait for bytes between two checks for an interruption.
const POLL_MS: libc::c_int = 100;
/// The time after an interruption for which a pipe is still read. In `tcpdump -w - | weir run -r -` both receive
/// Ctrl-C; tcpdump then writes its last packets and closes the pipe.
const GRACE: Duration = Duration::from_secs(2);

/// The time without bytes after which the packets so far are passed on. Shorter times would make small blocks of a fast stream.
const LULL_MS: libc::c_int = 20;

/// Shows that no bytes arrive on a pipe for some time.
#[derive(Debug)]
pub(crate) struct PipeLull(File);

impl PipeLull {
    pub(crate) fn new(pipe: &File) -> io::Result<Self> {
        pipe.try_clone().map(Self)
    }

    /// Waits for bytes or the end of the pipe for [`LULL_MS`]. Returns true if neither came.
    pub(crate) fn is_now(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which outlives the call, for a descriptor that `self` keeps open.
        unsafe { libc::poll(&raw mut poll, 1, LULL_MS) == 0 }
    }
}

/// The request to end the program, and its effect on a pipe.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interruption {
    /// True once the program is to end.
    pub(crate) is_requested: Arc<AtomicBool>,
    /// True once the rest of the pipe was left unread.
    pub(crate) cut: Arc<AtomicBool>,
    /// The output of the program, if reading has to end once no process reads that output any more.
    pub(crate) output: Option<Arc<OwnedFd>>,
    /// True once the reader of `output` has closed it.
    pub(crate) is_output_closed: Arc<AtomicBool>,
}

/// The way in which a pipe was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PipeMode {
    /// By the parent process, as standard input is.
    Inherited,
    /// By its name, without waiting for a writer.
    ByName,
}

/// A pipe that is read until its end, or until [`GRACE`] after an interruption.
#[derive(Debug)]
pub(crate) struct Pipe {
    file: File,
    interruption: Interruption,
    /// The time at which the interruption was first seen.
    interrupted_at: Option<Instant>,
    /// True once a writer was seen.
    had_writer: bool,
    /// True if the pipe was opened by its name, so that reads never block.
    by_name: bool,
    /// True if reads are tried although poll(2) reports no bytes. If a pipe was opened by its name after the last writer
    /// had closed it, poll(2) does not report the end, and only a read shows it. So the value is:
    ///
    /// - for an inherited pipe: false, because poll(2) reports its end
    /// - for a shell's pipe, opened by a name such as `/dev/stdin`: true, because it has had a writer
    /// - for a FIFO, opened by its name: false until bytes have come, because it may still wait for its first writer; then
    ///   true
    reads_without_poll: bool,
}

impl Pipe {
    pub(crate) fn new(file: File, mode: PipeMode, interruption: Interruption) -> Self {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_or_default();
        let by_name = mode == PipeMode::ByName;
        let reads_without_poll = by_name && link.as_os_str().as_encoded_bytes().starts_with(b"pipe:");
        Self {
            file,
            interruption,
            interrupted_at: None,
            had_writer: !by_name || reads_without_poll,
            by_name,
            reads_without_poll,
        }
    }

    /// Returns true if reading has to end although more bytes may come.
    fn is_over(&mut self) -> bool {
        if self.interruption.is_output_closed.load(Ordering::Relaxed) {
            return true;
        }
        if !self.interruption.is_requested.load(Ordering::Relaxed) {
            return false;
        }
        let interrupted_at = *self.interrupted_at.get_or_insert_with(Instant::now);
        let is_over = interrupted_at.elapsed() >= GRACE || !self.had_writer;
        self.interruption.cut.fetch_or(is_over, Ordering::Relaxed);
        is_over
    }

    /// Waits for bytes, for the end, or for the end of the output, for [`POLL_MS`] at most. Returns false if there are no bytes and
    /// no end of the pipe.
    fn wait(&self) -> io::Result<bool> {
        // poll(2) ignores negative descriptors.
        let output = self.interruption.output.as_ref().map_or(-1, |output| output.as_raw_fd());
        let polled = |fd, events| libc::pollfd { fd, events, revents: 0 };
        let mut polls = [polled(self.file.as_raw_fd(), libc::POLLIN), polled(output, 0)];
        // SAFETY: two entries, which outlive the call, for descriptors that `self` keeps open.
        match unsafe { libc::poll(polls.as_mut_ptr(), 2, POLL_MS) } {
            0 => Ok(self.reads_without_poll),
            ready if ready > 0 => {
                let [input, output] = polls;
                if output.revents & (libc::POLLERR | libc::POLLHUP) != 0 {
                    self.interruption.is_output_closed.store(true, Ordering::Relaxed);
                }
                Ok(input.revents != 0)
            }
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
                error => Err(error),
            },
        }
    }
}

impl Read for Pipe {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            let is_ready = self.wait()?;
            // A FIFO becomes ready when its first writer writes or closes it.
            self.had_writer |= is_ready;
            if self.is_over() {
                return Ok(0);
            }
            if !is_ready {
                continue;
            }
            match self.file.read(to) {
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Ok(read) => {
                    self.reads_without_poll |= self.by_name && read > 0;
                    return Ok(read);
                }
                Err(error) => return Err(error),
            }
        }
    }
}
