//! Receiving and sending of packets on live interfaces: see [`LiveSource`] and [`LiveSink`].

mod addresses;
mod error;
mod event;
mod fanout;
mod group;
mod hardware_time;
mod hidden;
mod netlink;
mod options;
mod pace;
mod packet;
mod packet_header;
mod packet_ring;
mod packet_sink;
mod port;
mod queues;
mod set_up;
mod sink;
mod source;
mod sys;
mod tap;
mod totals;
mod xdp;

pub use addresses::{LinkAddresses, link_addresses};
pub use error::LiveError;
pub use event::LiveEvent;
pub use options::{Direction, LiveOptions, SocketKind};
pub(crate) use packet_ring::RingHold;
pub use queues::QueueSet;
pub use set_up::{InterfaceSettings, set_up_interface};
pub use sink::{LiveSink, Loss, SendResult, SentTotals};
pub use source::{LivePoll, LiveSource};

/// The link type of an interface's packets.
///
/// # Errors
///
/// [`LiveError`] if there is no interface of that name, or its hardware type is not supported.
pub fn link_type_of(interface: &str) -> Result<weir_wire::LinkType, LiveError> {
    port::link_type(&event::find_interface(interface)?)
}

/// The names of all interfaces with a supported hardware type, those that are running first. A name can contain any
/// character but a slash, a colon and white space.
///
/// # Errors
///
/// The system's error.
pub fn interface_names() -> std::io::Result<Vec<String>> {
    let mut links = netlink::interfaces()?;
    links.retain(|link| port::link_type(link).is_ok());
    links.sort_by_key(|link| !link.running);
    Ok(links.into_iter().map(|link| link.name).collect())
}

/// Checks that an interface can be opened with these options, without disturbing it: it does not become promiscuous,
/// and the packets of AF_XDP's queue still go to the host. So AF_XDP's program is loaded but not attached, and zero copy
/// is not tried, since a driver may interrupt all traffic when a program is attached or zero copy is enabled.
///
/// # Errors
///
/// As [`LiveSource::open`].
pub fn try_interface(interface: &str, options: LiveOptions) -> Result<(), LiveError> {
    if options.kind == SocketKind::Xdp {
        let link = event::find_interface(interface)?;
        port::link_type(&link)?;
        return xdp::try_sockets(&link, &options);
    }
    LiveSource::open(interface, LiveOptions { promiscuous: false, ..options }).map(drop)
}

pub use totals::{LiveTotals, ReceiveDrops};
pub(crate) use xdp::{FrameHold, FramePin, FramePools};
