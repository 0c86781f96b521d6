//! What packets are read from: a capture, or a live interface. Blocks of both are alike.

use super::progress::Progress;
use crate::cli::{self, Run};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use weir_datapath::moment::{Moment, wall_clock};
use weir_netio::{
    Block, Capture, DescriptorRing, Direction, Input, Kind, Live, LiveError, LiveNext, LiveOptions,
    LiveTotals, Next, OpenError, Options, ReadError, Totals,
};
use weir_sandbox::process_time;
use weir_units::{Nanos, Shown as _, Timestamp};
use weir_wire::LinkType;

/// How long a packet is waited for. It is longer than the kernel gathers packets, so after a wait for nothing all that came before the
/// wait has been handed out.
const WAIT: Nanos = Nanos(20 * Nanos::MILLISECOND.0);
/// How long nothing is asked of an interface whose memory is full, though nothing is under way that could free it.
const FULL: Duration = Duration::from_millis(1);

/// Why nothing can be read.
#[derive(Debug, thiserror::Error)]
pub enum OriginError {
    /// Not from the capture.
    #[error(transparent)]
    Capture(#[from] OpenError),
    /// Not from the interface.
    #[error(transparent)]
    Live(#[from] LiveError),
}

/// Why reading ended early.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The capture.
    #[error(transparent)]
    Capture(#[from] ReadError),
    /// The interface.
    #[error(transparent)]
    Live(#[from] LiveError),
}

/// What reading gave.
#[derive(Debug)]
pub enum Found {
    /// Packets.
    Block(Block),
    /// Every place for packets is in use.
    Full,
    /// No packet came. All that came before this time have been given.
    Quiet(Moment),
    /// No more packets.
    End,
}

/// What packets are read from.
#[derive(Debug)]
pub enum Origin {
    /// A file or a stream.
    Capture(Box<Capture>),
    /// An interface.
    Live(Box<Live>),
}

impl Origin {
    /// Opens what the command line names.
    pub fn open(args: &Run, interrupted: &Arc<AtomicBool>) -> Result<Self, OriginError> {
        let capture = |input| {
            let options = Options { is_interrupted: Arc::clone(interrupted), ..Options::default() };
            Ok(Self::Capture(Box::new(Capture::open_with(input, options)?)))
        };
        match (&args.interface, &args.read) {
            (Some(interface), _) => {
                let live = Live::open(interface, options(&args.live))?;
                if !live.is_up() {
                    let down = "it is down, or nothing is connected: no packets come until that changes";
                    let _ = writeln!(std::io::stderr(), "weir: warning: {}: {down}", interface.shown());
                }
                Ok(Self::Live(Box::new(live)))
            }
            (None, Some(path)) if path.as_os_str() != "-" => capture(Input::File(path.clone())),
            (None, _) => capture(Input::Stdin),
        }
    }

    /// Where the descriptors of all blocks are.
    pub fn descriptors(&self) -> &DescriptorRing {
        match self {
            Self::Capture(capture) => capture.descriptors(),
            Self::Live(live) => live.descriptors(),
        }
    }

    /// The capture, if it is one.
    pub fn capture(&self) -> Option<&Capture> {
        match self {
            Self::Capture(capture) => Some(capture),
            Self::Live(_) => None,
        }
    }

    /// The link types that are known so far: a pcapng file names its own later.
    pub fn link_types(&self) -> Vec<LinkType> {
        match self {
            Self::Capture(capture) => {
                capture.totals().interfaces.iter().filter_map(|interface| interface.link_type).collect()
            }
            Self::Live(live) => vec![live.link_type()],
        }
    }

    /// What it gave so far.
    pub fn totals(&mut self) -> Totals {
        match self {
            Self::Capture(capture) => capture.totals(),
            Self::Live(live) => live.totals().received,
        }
    }

    /// What it gave and lost so far, of an interface.
    pub fn live_totals(&mut self) -> Option<LiveTotals> {
        match self {
            Self::Capture(_) => None,
            Self::Live(live) => Some(live.totals()),
        }
    }

    /// Reads on. What happens to an interface is said on standard error.
    pub fn next(&mut self, progress: &mut Progress) -> Result<Found, FetchError> {
        match self {
            Self::Capture(capture) => {
                let found = match capture.next_block()? {
                    Next::Block(block) => Found::Block(block),
                    Next::Full => Found::Full,
                    Next::End => Found::End,
                };
                progress.show(capture);
                Ok(found)
            }
            Self::Live(live) => loop {
                let begin = Moment::now();
                let next = live.next_block(WAIT)?;
                progress.show_live(live);
                return Ok(match next {
                    LiveNext::Block(block) => Found::Block(block),
                    LiveNext::Full => Found::Full,
                    LiveNext::Quiet => Found::Quiet(begin),
                    LiveNext::End => Found::End,
                    LiveNext::Event(event) => {
                        progress.line(&format!("weir: {event}"));
                        continue;
                    }
                });
            },
        }
    }

    /// Waits where [`Found::Full`] came though nothing is under way: whoever had the last block is about to drop it.
    pub fn pause(&self) {
        std::thread::sleep(FULL);
    }
}

fn options(args: &cli::Live) -> LiveOptions {
    let default = LiveOptions::default();
    LiveOptions {
        kind: match args.kind {
            cli::Kind::Auto => Kind::Auto,
            cli::Kind::Packet => Kind::Packet,
            cli::Kind::Xdp => Kind::Xdp,
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
