//! Options of a live interface.

use super::fanout::{SOCKET_BYTES_MIN, SOCKETS_LIMIT, SOCKETS_MAX};
use super::queues::QueueSet;
use weir_units::{Bytes, Nanos};

/// The kind of socket or device that packets are received from and sent through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SocketKind {
    /// The kind that takes no packets away from the host: [`Packet`](Self::Packet).
    #[default]
    Auto,
    /// AF_PACKET: copies of the packets, which the host's own network receives too. Works on every interface.
    Packet,
    /// AF_XDP: the incoming packets themselves, which the host's own network then does not receive.
    Xdp,
    /// The program's end of a TAP device, which is created if it does not exist: Ethernet frames that the host sends
    /// to it.
    Tap,
    /// The program's end of a TUN device, which is created if it does not exist: IP packets without a link header.
    Tun,
}

/// The direction of packets to receive. AF_XDP, TAP and TUN have only [`Incoming`](Self::Incoming).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Packets that arrive and packets that the host sends. On a loopback interface, where each packet is both, only
    /// those that arrive.
    #[default]
    Both,
    /// Packets that arrive. For forwarding, where the host's own packets must not come back.
    Incoming,
}

/// Options of [`LiveSource`](super::LiveSource).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveOptions {
    /// The kind of socket or device.
    pub kind: SocketKind,
    /// The memory for packets that wait in the kernel or are held by blocks in use. AF_PACKET rounds it down to whole
    /// blocks, and takes at least 256 KiB. AF_XDP rounds it to frames whose number is a power of two, and refuses 0.
    /// TAP and TUN do not use it: they have an arena of fixed size.
    pub ring: Bytes,
    /// The most bytes captured of a packet. AF_PACKET truncates in the kernel; for the other kinds, packets are
    /// truncated after the kernel has delivered them.
    pub snap_len: u32,
    /// The direction of packets to receive.
    pub direction: Direction,
    /// True to receive packets for other hosts, too.
    pub promiscuous: bool,
    /// The time for which packets are gathered before they are delivered. AF_PACKET gathers for at least 1 ms, unless
    /// the ring is [`immediate`](Self::immediate); AF_XDP, TAP and TUN gather for at most 200 us, and not at all if the
    /// caller does not wait.
    pub latency: Nanos,
    /// The time after which AF_PACKET hands over a block of its ring that is not full, if this is less than
    /// [`latency`](Self::latency). While packets are gathered for longer, several blocks are handed over.
    pub retire: Nanos,
    /// Lets the kernel deliver each packet at once (AF_PACKET only: a ring of frames of fixed size, TPACKET_V2). Packets
    /// longer than the MTU, which a system has merged, are then truncated unless [`arrivals`](Self::arrivals) is set.
    /// [`LiveSource::gather`](super::LiveSource::gather) determines how many packets are gathered all the same.
    pub immediate: bool,
    /// Reports how each packet has arrived: see [`Block::arrival`](crate::Block::arrival) (AF_PACKET only). Frames of an
    /// [`immediate`](Self::immediate) ring then have room for packets that a system has merged.
    pub arrivals: bool,
    /// Hides the packets from the host's own network, which drops them as long as the source is open (AF_PACKET only; needs
    /// CAP_NET_ADMIN, CAP_BPF and Linux 6.6).
    pub hidden: bool,
    /// Uses time stamps of the network card, where available, instead of the kernel's (AF_PACKET only; needs
    /// CAP_NET_ADMIN).
    pub hardware_time: bool,
    /// The card's receive queues that are read (AF_XDP only); all of them if `None`. Each queue can have one source;
    /// all sources must be of one process.
    pub queues: Option<QueueSet>,
    /// Lets the card itself write into the memory that modules read (AF_XDP only, if the driver supports it). Not
    /// tested, for lack of such a card.
    pub zero_copy: bool,
    /// Lets blocks share pages of descriptors, so that blocks of few packets do not reduce the number of packets that
    /// can wait. A block can then have a [lead](crate::Block::lead).
    pub dense: bool,
    /// Opens the interface again when it was removed and an interface of the same name appears.
    pub reopen: bool,
    /// The value of [`interface`](weir_abi::Descriptor::interface) in descriptors.
    pub number: u16,
}

impl LiveOptions {
    /// Returns the limit, as text for an error message, that this many sources exceed if they
    /// [share](super::LiveSource::open_group) an interface with these options. `None` if they exceed no limit.
    pub fn limit_exceeded_by(&self, sources: usize) -> Option<&'static str> {
        let by_memory = usize::try_from(self.ring.0 / SOCKET_BYTES_MIN.0).unwrap_or(usize::MAX);
        match self.kind {
            _ if sources <= 1 => None,
            SocketKind::Auto | SocketKind::Packet => {
                (sources > SOCKETS_MAX.min(by_memory)).then_some(SOCKETS_LIMIT)
            }
            SocketKind::Xdp => None,
            SocketKind::Tap | SocketKind::Tun => Some("one receive thread for a TAP or TUN device"),
        }
    }
}

impl Default for LiveOptions {
    fn default() -> Self {
        Self {
            kind: SocketKind::Auto,
            ring: Bytes(64 << 20),
            snap_len: 262_144,
            direction: Direction::Both,
            promiscuous: true,
            latency: Nanos(2_000_000),
            retire: Nanos(2_000_000),
            immediate: false,
            arrivals: false,
            hidden: false,
            hardware_time: false,
            queues: None,
            zero_copy: false,
            dense: false,
            reopen: true,
            number: 0,
        }
    }
}
