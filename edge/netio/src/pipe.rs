//! Pipes, FIFOs, sockets and devices as captures. Reading them ends when the run is interrupted, even if their writers stay.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest wait for bytes between two looks for an interruption.
const LOOK_MS: libc::c_int = 100;
/// The time after an interruption for which a pipe is still read. In `tcpdump -w - | weir run -r -` both receive Ctrl-C: tcpdump then writes its last
/// packets, and closes the pipe.
const GRACE: Duration = Duration::from_secs(2);

/// The interruption of a run, and its effect.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interruption {
    /// Set from outside.
    pub(crate) has_come: Arc<AtomicBool>,
    /// Set where the rest of a pipe was left unread.
    pub(crate) cut: Arc<AtomicBool>,
}

/// The way in which a pipe was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PipeMode {
    /// Before this process began, as standard input is.
    Before,
    /// By its name, without waiting for a writer.
    ByName,
}

/// A pipe that is read until its end, or until [`GRACE`] after an interruption.
#[derive(Debug)]
pub(crate) struct Pipe {
    file: File,
    interruption: Interruption,
    /// The time at which the interruption was first seen.
    since: Option<Instant>,
    /// A writer is or was there.
    had_writer: bool,
    /// It was opened by its name: reading it never waits.
    by_name: bool,
    /// Reads are tried although no bytes are announced: only a read tells a reader that came after the last writer of the end. A FIFO without bytes so far may be
    /// waiting for its first writer; a shell's pipe that was opened by a name such as `/dev/stdin` is not.
    is_asked: bool,
}

impl Pipe {
    pub(crate) fn new(file: File, opened: PipeMode, interruption: Interruption) -> Self {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_or_default();
        let by_name = opened == PipeMode::ByName;
        let is_asked = by_name && link.as_os_str().as_encoded_bytes().starts_with(b"pipe:");
        Self { file, interruption, since: None, had_writer: !by_name || is_asked, by_name, is_asked }
    }

    /// Returns true where reading has to end although more bytes may come.
    fn is_over(&mut self) -> bool {
        if !self.interruption.has_come.load(Ordering::Relaxed) {
            return false;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        let is_over = since.elapsed() >= GRACE || !self.had_writer;
        self.interruption.cut.fetch_or(is_over, Ordering::Relaxed);
        is_over
    }

    /// Waits for bytes, or the end, for [`LOOK_MS`] at most. Returns false where neither came.
    fn wait(&self) -> io::Result<bool> {
        let mut poll = libc::pollfd { fd: self.file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which outlives the call, for a descriptor that `self` keeps open.
        match unsafe { libc::poll(&raw mut poll, 1, LOOK_MS) } {
            0 => Ok(self.is_asked),
            ready if ready > 0 => Ok(true),
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
            // A FIFO becomes ready when its first writer writes, or goes.
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
                    self.is_asked |= self.by_name && read > 0;
                    return Ok(read);
                }
                Err(error) => return Err(error),
            }
        }
    }
}
