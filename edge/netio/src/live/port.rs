//! An open interface, for receiving by any kind of socket or device.

use super::error::LiveError;
use super::group::GroupPlace;
use super::netlink::KernelInterface;
use super::options::{LiveOptions, SocketKind};
use super::packet::PacketPort;
use super::sink::{LiveSink, SendMethod};
use super::sys::{self, Plain};
use super::tap::TapPort;
use super::totals::ReceiveDrops;
use super::xdp::XdpPort;
use crate::arena::Hold;
use crate::block::MemoryHold;
use crate::reader::UnfinishedBlock;
use crate::totals::PacketCounts;
use crate::window::PacketWindow;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use weir_wire::LinkType;

/// The number of packets that can gather in a TAP or TUN device: a quarter of the default length of its queue (500).
const TAP_GATHERED_MAX: usize = 125;

/// The outcome of receiving packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReceiveStatus {
    /// The block is full.
    Full,
    /// No more packets have arrived.
    Empty,
    /// Memory is full, because blocks in use hold it.
    NoMemory,
}

/// An open interface.
#[derive(Debug)]
pub(crate) enum LivePort {
    Packet(PacketPort),
    Xdp(Box<XdpPort>),
    Tap(TapPort),
}

impl LivePort {
    /// Opens the part of an interface that a source of a group reads; `None` if the interface has fewer queues than the
    /// group has sources, and none is left.
    pub(crate) fn open(
        link: &KernelInterface,
        options: &LiveOptions,
        place: &GroupPlace,
    ) -> Result<Option<Self>, LiveError> {
        match options.kind {
            SocketKind::Auto | SocketKind::Packet => {
                place.group.sockets.open(link, options, place).map(Self::Packet).map(Some)
            }
            SocketKind::Xdp => {
                let port = XdpPort::open(link, options, place)?;
                Ok(port.map(|port| Self::Xdp(Box::new(port))))
            }
            SocketKind::Tap | SocketKind::Tun => TapPort::open(&link.name, options).map(Self::Tap).map(Some),
        }
    }

    /// Completes the opening of a socket that could not be completed while the interface was down.
    pub(crate) fn complete(&self, link: &KernelInterface) -> Result<(), LiveError> {
        match self {
            Self::Packet(port) => port.complete(&link.name, link.running),
            Self::Xdp(_) | Self::Tap(_) => Ok(()),
        }
    }

    pub(crate) fn window(&self) -> &Arc<PacketWindow> {
        match self {
            Self::Packet(port) => port.window(),
            Self::Xdp(port) => port.window(),
            Self::Tap(port) => port.window(),
        }
    }

    /// The file descriptors that become readable when packets arrive.
    pub(crate) fn fds(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Self::Packet(port) => vec![port.fd()],
            Self::Xdp(port) => port.fds().collect(),
            Self::Tap(port) => vec![port.fd()],
        }
    }

    /// Returns true if the kernel wakes the program for each packet, and false if it gathers packets for a time.
    pub(crate) fn wakes_for_each_packet(&self) -> bool {
        match self {
            Self::Packet(port) => port.wakes_for_each_packet(),
            Self::Xdp(_) | Self::Tap(_) => true,
        }
    }

    /// The number of packets that can gather before the program looks for them, of a port that is read at intervals.
    pub(crate) fn paced_max(&self) -> Option<usize> {
        match self {
            Self::Packet(_) => None,
            Self::Xdp(port) => Some(port.gathered_max()),
            Self::Tap(_) => Some(TAP_GATHERED_MAX),
        }
    }

    /// The pending error of a socket, if any. A device is not a socket; its only error is that it is removed, which
    /// the interface's state shows.
    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        match self {
            Self::Packet(_) | Self::Xdp(_) => {
                for fd in self.fds() {
                    if let Some(error) = sys::take_error(fd)? {
                        return Ok(Some(error));
                    }
                }
                Ok(None)
            }
            Self::Tap(_) => Ok(None),
        }
    }

    /// An empty hold for a new block.
    pub(crate) fn hold(&self) -> MemoryHold {
        match self {
            Self::Packet(port) => port.hold(),
            Self::Xdp(port) => port.hold(),
            Self::Tap(_) => Hold::default().into(),
        }
    }

    /// The packets lost since the port was opened. `index` is the interface's number.
    pub(crate) fn drops(&mut self, index: u32) -> ReceiveDrops {
        match self {
            Self::Packet(port) => port.drops(),
            Self::Xdp(port) => port.drops(),
            Self::Tap(port) => port.drops(index),
        }
    }

    /// Opens a sink of the same kind.
    pub(crate) fn sink(&mut self, link: &KernelInterface) -> Result<LiveSink, LiveError> {
        match self {
            Self::Packet(_) => LiveSink::packet(link),
            Self::Tap(port) => {
                Ok(LiveSink::new(&link.name, SendMethod::Tap(Arc::clone(port.device())), link_type(link)?))
            }
            Self::Xdp(port) => match port.sink() {
                Some(sink) => {
                    Ok(LiveSink::new(&link.name, SendMethod::Xdp(Box::new(sink)), link_type(link)?))
                }
                None => Err(LiveError::Busy {
                    interface: link.name.clone(),
                    what: "sending by this AF_XDP socket",
                }),
            },
        }
    }

    /// Adds the packets that have arrived, until the block is full.
    pub(crate) fn receive(
        &mut self,
        filling: &mut UnfinishedBlock<MemoryHold>,
        counts: &mut PacketCounts,
    ) -> ReceiveStatus {
        match self {
            Self::Packet(port) => port.receive(filling, counts),
            Self::Xdp(port) => port.receive(filling, counts),
            Self::Tap(port) => port.receive(filling, counts),
        }
    }
}

/// The link type of an interface's packets.
pub(crate) fn link_type(link: &KernelInterface) -> Result<LinkType, LiveError> {
    /// ARPHRD_RAWIP.
    const RAW_IP: u16 = 519;
    match link.hardware {
        libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Ok(LinkType::Ethernet),
        libc::ARPHRD_NONE
        | RAW_IP
        | libc::ARPHRD_PPP
        | libc::ARPHRD_TUNNEL
        | libc::ARPHRD_TUNNEL6
        | libc::ARPHRD_SIT => Ok(LinkType::Raw),
        hardware => Err(LiveError::Hardware { interface: link.name.clone(), hardware }),
    }
}

/// Makes the interface receive packets for other hosts as long as this packet socket lives.
pub(crate) fn set_promiscuous(fd: BorrowedFd<'_>, index: libc::c_int) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: index,
        mr_type: u16::try_from(libc::PACKET_MR_PROMISC).unwrap_or_default(),
        ..libc::packet_mreq::zeroed()
    };
    sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)
}
