//! Packets of live interfaces: see [`LiveSource`].

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
pub use options::{Direction, LiveOptions, SocketKind};
pub(crate) use packet_ring::RingHold;
pub use sink::{LiveSink, Loss, SendResult, SentTotals};
pub use source::{LivePoll, LiveSource};

/// The link type of an interface's packets.
///
/// # Errors
///
/// There is none of that name, or it is nothing that weir reads.
pub fn link_type_of(interface: &str) -> Result<weir_wire::LinkType, LiveError> {
    port::link_type(&event::find(interface)?)
}

/// Checks that packets can be taken from an interface with these options, and takes none away: it does not become promiscuous, and packets of AF_XDP's queue
/// go to the system as before. So AF_XDP's program is loaded and not attached, and zero copy is not tried: a driver can interrupt all traffic for either.
///
/// # Errors
///
/// As [`LiveSource::open`].
pub fn try_interface(interface: &str, options: LiveOptions) -> Result<(), LiveError> {
    if options.kind == SocketKind::Xdp {
        let link = event::find(interface)?;
        port::link_type(&link)?;
        return xdp::try_socket(&link, &options);
    }
    LiveSource::open(interface, LiveOptions { promiscuous: false, ..options }).map(drop)
}

pub use totals::{LiveTotals, ReceiveDrops};
pub(crate) use xdp::{FrameHold, FramePin, Returned};
