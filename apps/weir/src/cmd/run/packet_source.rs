//! Opens and polls the packet source of a run: a capture or a live interface.

use crate::cli::{self, Run};
use crate::output::progress::RunProgress;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use weir_datapath::clock::wall_clock;
use weir_datapath::source::{FetchError, PacketSource, Poll};
use weir_netio::{
    Capture, CaptureInput, CaptureOptions, Direction, LiveError, LiveOptions, LiveSource, OpenError,
    QueueSet, ReadAheadMode, SocketKind,
};
use weir_sandbox::process_time;
use weir_units::{Escape as _, Nanos, Timestamp};

/// Timeout of a poll. It exceeds the time for which the kernel gathers packets: after a poll without packets, every
/// packet that arrived before the poll has been delivered.
const WAIT: Nanos = Nanos(20 * Nanos::MILLISECOND.0);

/// The least length of a file that is copied. Modules can read all memory of the copies. This memory must not be larger
/// than the file, because modules could read a mapped file in full.
const COPY_BYTES_MIN: u64 = 64 << 20;

/// Errors of opening a packet source.
#[derive(Debug, thiserror::Error)]
pub enum PacketSourceError {
    /// The capture cannot be opened.
    #[error(transparent)]
    Capture(#[from] OpenError),
    /// The interface cannot be opened.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// `--queue` is given for a kind that does not read single queues.
    #[error("--queue needs --kind xdp: the other kinds receive the packets of all queues")]
    Queue,
}

/// The properties of a run that decide how its packets are read.
#[derive(Clone, Copy, Debug)]
pub struct ReadMode {
    /// True if a pipe is read only while standard output has a reader.
    pub ends_with_reader: bool,
    /// The number of threads that process packets.
    pub jobs: usize,
    /// True if a module keeps packets, which is possible without limit only in a mapped file.
    pub keeps_packets: bool,
}

/// Opens the capture or interface that the command line names.
pub fn open(
    args: &Run,
    captures: &[PathBuf],
    interrupted: &Arc<AtomicBool>,
    mode: ReadMode,
) -> Result<PacketSource, PacketSourceError> {
    // Without a duplicate of standard output, the run notices at the next packet that the reader has ended.
    let output = || std::io::stdout().as_fd().try_clone_to_owned().ok().map(Arc::new);
    let copy = !mode.keeps_packets && is_one_large_file(captures);
    let options = CaptureOptions {
        is_interrupted: Arc::clone(interrupted),
        output: mode.ends_with_reader.then(output).flatten(),
        copy,
        ahead: match (captures.len() <= 1, mode.jobs) {
            (false, _) => ReadAheadMode::No,
            // A copy takes too little time for a thread of its own.
            (true, 1) if copy => ReadAheadMode::No,
            (true, 1) => ReadAheadMode::Thread,
            (true, _) => ReadAheadMode::Callers,
        },
        ..CaptureOptions::default()
    };
    let capture = match (&args.interface, captures) {
        (Some(interface), _) => {
            if !args.live.queues.is_empty() && args.live.kind != cli::ReceiveMethodArg::Xdp {
                return Err(PacketSourceError::Queue);
            }
            let live = LiveSource::open(interface, live_options(&args.live))?;
            if !live.is_up() {
                let down = "it is down, or nothing is connected: no packets come until that changes";
                let _ = writeln!(std::io::stderr(), "weir: warning: {}: {down}", interface.escaped());
            }
            return Ok(PacketSource::Live(Box::new(live)));
        }
        (None, [path]) if path.as_os_str() != "-" => {
            Capture::open_with(CaptureInput::File(path.clone()), options)?
        }
        (None, [] | [_]) => Capture::open_with(CaptureInput::Stdin, options)?,
        (None, several) => Capture::open_merged(several, options)?,
    };
    Ok(PacketSource::Capture(Box::new(capture)))
}

/// Returns true for one regular file of at least [`COPY_BYTES_MIN`].
fn is_one_large_file(captures: &[PathBuf]) -> bool {
    let [path] = captures else { return false };
    std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() >= COPY_BYTES_MIN)
}

/// Polls the source until it returns something other than an event. Events of an interface are printed to standard error.
pub fn next(source: &mut PacketSource, progress: &mut RunProgress) -> Result<Poll, FetchError> {
    loop {
        let found = source.next(WAIT)?;
        match source {
            PacketSource::Capture(capture) => progress.show(capture),
            PacketSource::Live(live) => progress.show_live(live),
        }
        let Poll::Event(event) = found else { return Ok(found) };
        progress.line(&format!("weir: {event}"));
    }
}

/// Returns the options for opening an interface.
fn live_options(args: &cli::LiveArgs) -> LiveOptions {
    let default = LiveOptions::default();
    LiveOptions {
        kind: match args.kind {
            cli::ReceiveMethodArg::Auto => SocketKind::Auto,
            cli::ReceiveMethodArg::Packet => SocketKind::Packet,
            cli::ReceiveMethodArg::Xdp => SocketKind::Xdp,
        },
        ring: args.ring,
        snap_len: args.snapshot_length.unwrap_or(default.snap_len),
        direction: if args.send.is_some() { Direction::Incoming } else { Direction::Both },
        promiscuous: !args.no_promiscuous_mode,
        queues: QueueSet::of(args.queues.iter().copied().map(u32::from)).filter(|set| !set.is_empty()),
        // A run ends with its interface.
        reopen: false,
        ..default
    }
}

/// The end of a run on an interface: packets that arrived before it are still processed.
#[derive(Debug)]
pub struct RunEnd {
    /// The last packet time that counts.
    pub last: Timestamp,
    begin: Instant,
    /// Processor time of the run before the end.
    used: Nanos,
}

impl RunEnd {
    /// Minimum processor time and wall time for processing the packets before the end, as modules may be far behind.
    /// With a minimum of processor time, a busy machine processes as many of these packets as an idle machine.
    const DRAIN: Nanos = Nanos(250 * Nanos::MILLISECOND.0);
    /// Maximum wall time for processing the packets before the end.
    const DRAIN_MAX: Nanos = Nanos(5 * Nanos::SECOND.0);

    /// Ends the run now.
    pub fn now() -> Self {
        Self { last: wall_clock(), begin: Instant::now(), used: process_time() }
    }

    /// Returns true once the time for processing the remaining packets is over.
    pub fn is_drained(&self) -> bool {
        let waited = self.begin.elapsed().as_nanos();
        let used = process_time().0.saturating_sub(self.used.0);
        let most = if used < Self::DRAIN.0 { Self::DRAIN_MAX } else { Self::DRAIN };
        waited >= most.0.into()
    }
}
