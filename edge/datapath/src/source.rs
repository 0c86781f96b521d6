//! The source of packets: a capture file or a stream of one; a packet socket, an AF_XDP socket or a TAP or TUN device of an interface. Blocks of all are
//! alike.

use crate::moment::Moment;
use std::time::Duration;
use weir_netio::{
    Block, Capture, CaptureNext, CaptureReadError, DescriptorRing, LiveError, LiveEvent, LiveOptions,
    LivePoll, LiveSink, LiveSource, LiveTotals, Totals,
};
use weir_units::Nanos;
use weir_wire::LinkType;

/// How long nothing is asked of a source whose memory is full, though nothing is under way that could free it.
const FULL: Duration = Duration::from_millis(1);

/// The cause for which reading ended early.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The capture.
    #[error(transparent)]
    Capture(#[from] CaptureReadError),
    /// The interface.
    #[error(transparent)]
    Live(#[from] LiveError),
}

/// The result of reading on.
#[derive(Debug)]
pub enum Poll {
    /// Packets.
    Block(Block),
    /// Every place for packets is in use.
    Full,
    /// No packet came. All that came before this time have been given.
    Quiet(Moment),
    /// The interface changed.
    Event(LiveEvent),
    /// No more packets.
    End,
}

/// A source of packets.
#[derive(Debug)]
pub enum PacketSource {
    /// A file or a stream.
    Capture(Box<Capture>),
    /// An interface.
    Live(Box<LiveSource>),
}

impl PacketSource {
    /// An interface, which need not be there yet.
    ///
    /// # Errors
    ///
    /// It cannot be opened.
    pub fn interface(name: &str, options: LiveOptions) -> Result<Self, LiveError> {
        Ok(Self::Live(Box::new(LiveSource::open_or_wait(name, options)?)))
    }

    /// The name of an interface; of a capture there is none.
    pub fn name(&self) -> &str {
        match self {
            Self::Capture(_) => "",
            Self::Live(live) => live.name(),
        }
    }

    /// Returns true unless its interface is down or gone.
    pub fn is_up(&self) -> bool {
        match self {
            Self::Capture(_) => true,
            Self::Live(live) => live.is_up(),
        }
    }

    /// Returns true where its memory is filled in turn, so that packets cannot wait there for long.
    pub fn is_filled_in_turn(&self) -> bool {
        match self {
            Self::Capture(_) => false,
            Self::Live(live) => live.is_filled_in_turn(),
        }
    }

    /// Returns true where packets that are not dropped soon will keep it from receiving.
    pub fn is_running_out(&self) -> bool {
        match self {
            Self::Capture(_) => false,
            Self::Live(live) => live.is_running_out(),
        }
    }

    /// The way into a TAP device, or out through an interface. `None` for a capture.
    ///
    /// # Errors
    ///
    /// It cannot be opened.
    pub fn sink(&mut self) -> Result<Option<LiveSink>, LiveError> {
        match self {
            Self::Capture(_) => Ok(None),
            Self::Live(live) => live.sink().map(Some),
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

    /// Reads on. Waits at most so long for a packet of an interface: longer than the kernel gathers packets, where a wait for nothing is to say that all
    /// that came before it have been given.
    ///
    /// # Errors
    ///
    /// [`FetchError`]: nothing more comes.
    pub fn next(&mut self, wait: Nanos) -> Result<Poll, FetchError> {
        Ok(match self {
            Self::Capture(capture) => match capture.next_block()? {
                CaptureNext::Block(block) => Poll::Block(block),
                CaptureNext::Full => Poll::Full,
                CaptureNext::End => Poll::End,
            },
            Self::Live(live) => {
                let begin = Moment::now();
                match live.next_block(wait)? {
                    LivePoll::Block(block) => Poll::Block(block),
                    LivePoll::Full => Poll::Full,
                    LivePoll::Quiet => Poll::Quiet(begin),
                    LivePoll::Event(event) => Poll::Event(event),
                    LivePoll::End => Poll::End,
                }
            }
        })
    }

    /// Waits where [`Poll::Full`] came though nothing is under way: the holder of the last block is about to drop it.
    pub fn pause(&self) {
        std::thread::sleep(FULL);
    }
}
