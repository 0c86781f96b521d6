//! Sources of packets: a capture file or stream, a packet socket, an AF_XDP socket, or a TAP or TUN device. All of them
//! return blocks of the same type.

use crate::clock::ClockReading;
use std::time::Duration;
use weir_netio::{
    Block, Capture, CaptureNext, CaptureReadError, DescriptorRing, LiveError, LiveEvent, LiveOptions,
    LivePoll, LiveSink, LiveSource, LiveTotals, Totals,
};
use weir_units::Nanos;
use weir_wire::LinkType;

/// The pause before a full source is polled again by a caller that holds no block itself.
const FULL_PAUSE: Duration = Duration::from_millis(1);

/// The reason why a source cannot be read any further.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// Reading the capture failed.
    #[error(transparent)]
    Capture(#[from] CaptureReadError),
    /// Reading the interface failed.
    #[error(transparent)]
    Live(#[from] LiveError),
}

/// The result of polling a source.
#[derive(Debug)]
pub enum Poll {
    /// A block of packets.
    Block(Block),
    /// All packet memory is in use.
    Full,
    /// No packet arrived. All packets that arrived before this time have been returned.
    Quiet(ClockReading),
    /// The interface changed state.
    Event(LiveEvent),
    /// The end of the source.
    End,
}

/// A source of packets.
#[derive(Debug)]
pub enum PacketSource {
    /// A capture file or stream.
    Capture(Box<Capture>),
    /// A network interface.
    Live(Box<LiveSource>),
}

impl PacketSource {
    /// Opens an interface, which need not exist yet.
    ///
    /// # Errors
    ///
    /// [`LiveError`] if the interface cannot be opened.
    pub fn interface(name: &str, options: LiveOptions) -> Result<Self, LiveError> {
        Ok(Self::Live(Box::new(LiveSource::open_or_wait(name, options)?)))
    }

    /// Opens an interface, which need not exist yet, with `sources` sources that share its packets.
    ///
    /// # Errors
    ///
    /// [`LiveError`] if the interface cannot be opened, or its packets cannot be shared.
    pub fn interface_group(name: &str, options: LiveOptions, sources: usize) -> Result<Vec<Self>, LiveError> {
        let sources = LiveSource::open_group(name, options, sources)?;
        Ok(sources.into_iter().map(|source| Self::Live(Box::new(source))).collect())
    }

    /// The name of the interface; empty for a capture.
    pub fn name(&self) -> &str {
        match self {
            Self::Capture(_) => "",
            Self::Live(live) => live.name(),
        }
    }

    /// Returns false if the interface is down or gone. A capture is always up.
    pub fn is_up(&self) -> bool {
        match self {
            Self::Capture(_) => true,
            Self::Live(live) => live.is_up(),
        }
    }

    /// Returns true if the kernel fills the packet memory in ring order, so that a packet that waits for long blocks
    /// reception.
    pub fn is_filled_in_turn(&self) -> bool {
        match self {
            Self::Capture(_) => false,
            Self::Live(live) => live.is_filled_in_turn(),
        }
    }

    /// Returns true if reception will stop soon unless packets are released.
    pub fn is_running_out(&self) -> bool {
        match self {
            Self::Capture(_) => false,
            Self::Live(live) => live.is_running_out(),
        }
    }

    /// Determines how many packets are gathered at most: see [`LiveSource::gather`].
    pub fn gather(&mut self, packets_max: u32) {
        if let Self::Live(live) = self {
            live.gather(packets_max);
        }
    }

    /// Opens a sink that writes into the TAP device or sends through the interface. `None` for a capture.
    ///
    /// # Errors
    ///
    /// [`LiveError`] if the sink cannot be opened.
    pub fn sink(&mut self) -> Result<Option<LiveSink>, LiveError> {
        match self {
            Self::Capture(_) => Ok(None),
            Self::Live(live) => live.sink().map(Some),
        }
    }

    /// The ring of descriptors that all blocks share.
    pub fn descriptors(&self) -> &DescriptorRing {
        match self {
            Self::Capture(capture) => capture.descriptors(),
            Self::Live(live) => live.descriptors(),
        }
    }

    /// The capture, if this source is one.
    pub fn capture(&self) -> Option<&Capture> {
        match self {
            Self::Capture(capture) => Some(capture),
            Self::Live(_) => None,
        }
    }

    /// The link types seen so far. A pcapng file can declare further interfaces later.
    pub fn link_types(&self) -> Vec<LinkType> {
        match self {
            Self::Capture(capture) => {
                capture.totals().interfaces.iter().filter_map(|interface| interface.link_type).collect()
            }
            Self::Live(live) => vec![live.link_type()],
        }
    }

    /// Packets and bytes returned so far.
    pub fn totals(&mut self) -> Totals {
        match self {
            Self::Capture(capture) => capture.totals(),
            Self::Live(live) => live.totals().received,
        }
    }

    /// Packets received and lost so far by an interface; `None` for a capture.
    pub fn live_totals(&mut self) -> Option<LiveTotals> {
        match self {
            Self::Capture(_) => None,
            Self::Live(live) => Some(live.totals()),
        }
    }

    /// Polls for the next block, and waits for at most `wait` if the source is an interface.
    ///
    /// [`Poll::Quiet`] guarantees that all earlier packets were returned only if `wait` is longer than the time for
    /// which the kernel gathers packets.
    ///
    /// # Errors
    ///
    /// [`FetchError`] if the source cannot be read any further.
    pub fn next(&mut self, wait: Nanos) -> Result<Poll, FetchError> {
        Ok(match self {
            Self::Capture(capture) => match capture.next_block()? {
                CaptureNext::Block(block) => Poll::Block(block),
                CaptureNext::Full => Poll::Full,
                CaptureNext::End => Poll::End,
            },
            Self::Live(live) => {
                let begin = ClockReading::now();
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

    /// Waits briefly after [`Poll::Full`]. This is for callers that hold no block themselves, and so wait for another
    /// thread to drop one.
    pub fn pause(&self) {
        std::thread::sleep(FULL_PAUSE);
    }
}
