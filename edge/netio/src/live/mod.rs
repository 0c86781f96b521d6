//! Packets of live interfaces: see [`Live`].

mod error;
mod event;
mod hardware_time;
mod netlink;
mod options;
mod packet;
mod packet_ring;
mod packet_sink;
mod port;
mod sink;
mod source;
mod sys;
mod tap;
mod totals;
mod xdp;

pub use error::LiveError;
pub use event::LiveEvent;
pub use options::{Direction, Kind, LiveOptions};
pub(crate) use packet_ring::RingHold;
pub use sink::{Loss, Sent, SentTotals, Sink};
pub use source::{Live, LiveNext};

/// The link type of an interface's packets.
///
/// # Errors
///
/// There is none of that name, or it is nothing that weir reads.
pub fn link_type_of(interface: &str) -> Result<weir_wire::LinkType, LiveError> {
    port::link_type(&event::find(interface)?)
}

pub use totals::{Drops, LiveTotals};
pub(crate) use xdp::{FrameHold, FramePin, Returned};
