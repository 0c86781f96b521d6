//! What packets are read from: a capture, or a live interface. Blocks of both are alike.

use super::progress::RunProgress;
use crate::cli::{self, Run};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use weir_datapath::moment::wall_clock;
use weir_datapath::source::{FetchError, PacketSource, Poll};
use weir_netio::{
    Capture, CaptureInput, CaptureOptions, Direction, LiveError, LiveOptions, LiveSource, OpenError,
    SocketKind,
};
use weir_sandbox::process_time;
use weir_units::{Nanos, Shown as _, Timestamp};

/// How long a packet is waited for. It is longer than the kernel gathers packets, so after a wait for nothing all that came before the
/// wait has been handed out.
const WAIT: Nanos = Nanos(20 * Nanos::MILLISECOND.0);

/// Why nothing can be read.
#[derive(Debug, thiserror::Error)]
pub enum PacketSourceError {
    /// Not from the capture.
    #[error(transparent)]
    Capture(#[from] OpenError),
    /// Not from the interface.
    #[error(transparent)]
    Live(#[from] LiveError),
}

/// Opens what the command line names.
pub fn open(args: &Run, interrupted: &Arc<AtomicBool>) -> Result<PacketSource, PacketSourceError> {
    let capture = |input| {
        let options = CaptureOptions { is_interrupted: Arc::clone(interrupted), ..CaptureOptions::default() };
        Ok(PacketSource::Capture(Box::new(Capture::open_with(input, options)?)))
    };
    match (&args.interface, &args.read) {
        (Some(interface), _) => {
            let live = LiveSource::open(interface, options(&args.live))?;
            if !live.is_up() {
                let down = "it is down, or nothing is connected: no packets come until that changes";
                let _ = writeln!(std::io::stderr(), "weir: warning: {}: {down}", interface.shown());
            }
            Ok(PacketSource::Live(Box::new(live)))
        }
        (None, Some(path)) if path.as_os_str() != "-" => capture(CaptureInput::File(path.clone())),
        (None, _) => capture(CaptureInput::Stdin),
    }
}

/// Reads on. What happens to an interface is said on standard error.
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

fn options(args: &cli::LiveArgs) -> LiveOptions {
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
        // A run ends with its interface.
        reopen: false,
        ..default
    }
}

/// When a run of an interface is to end.
#[derive(Debug)]
pub struct Ending {
    /// What has come until this time still counts.
    pub last: Timestamp,
    begin: Instant,
    /// Processor time of the run until then.
    used: Nanos,
}

impl Ending {
    /// How long what has come before the end is handled: modules may be far behind. It is processor time, too, so that the run comes to the same end where it
    /// has its turn seldom, …
    const PATIENCE: Nanos = Nanos(250 * Nanos::MILLISECOND.0);
    /// … but no longer than this by the clock.
    const PATIENCE_MAX: Nanos = Nanos(5 * Nanos::SECOND.0);

    /// Now.
    pub fn now() -> Self {
        Self { last: wall_clock(), begin: Instant::now(), used: process_time() }
    }

    /// Whether nothing more is waited for.
    pub fn is_over(&self) -> bool {
        let waited = self.begin.elapsed().as_nanos();
        let used = process_time().0.saturating_sub(self.used.0);
        let most = if used < Self::PATIENCE.0 { Self::PATIENCE_MAX } else { Self::PATIENCE };
        waited >= most.0.into()
    }
}
