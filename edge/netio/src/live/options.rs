//! How an interface is opened.

use weir_units::{Bytes, Nanos};

/// By which way of the kernel packets come and go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SocketKind {
    /// The one that takes nothing away from the host: [`Packet`](Self::Packet).
    #[default]
    Auto,
    /// AF_PACKET: copies of the packets, which the host's own network sees too. Works on every interface.
    Packet,
    /// AF_XDP: the packets themselves, which the host's own network then does not see. Only incoming ones.
    Xdp,
    /// The other end of a TAP device, which is made if there is none of that name: Ethernet frames that the host sends to it.
    Tap,
    /// The same for a TUN device: IP packets without a link header.
    Tun,
}

/// Which packets of an interface are wanted. AF_XDP, TAP and TUN have only [`Incoming`](Self::Incoming).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Those that arrive and those that the host sends. On a loopback interface, where each packet is both, only those that
    /// arrive.
    #[default]
    Both,
    /// Those that arrive: for forwarding, where one's own packets must not come back.
    Incoming,
}

/// Options of [`Live`](super::LiveSource).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveOptions {
    /// By which way.
    pub kind: SocketKind,
    /// Memory for packets: what can be held by blocks in use, and wait in the kernel. Rounded to what fits; at least 256 KiB.
    pub ring: Bytes,
    /// The most bytes kept of a packet. AF_PACKET cuts in the kernel, the others deliver whole packets and cut afterwards.
    pub snap_len: u32,
    /// Which packets.
    pub direction: Direction,
    /// Packets that are for other hosts, too.
    pub promiscuous: bool,
    /// How long packets are gathered before they are handed over: by AF_PACKET at least 1 ms, otherwise at most 200 us, and not
    /// at all where one asks without waiting.
    pub latency: Nanos,
    /// Shares an interface's packets among all sources of this process with the same number, by flow, so that each of
    /// several threads can have a source (PACKET_FANOUT_HASH; AF_PACKET only).
    pub fanout: Option<u16>,
    /// Time stamps of the network card where there are some, instead of the kernel's (AF_PACKET only; needs CAP_NET_ADMIN).
    pub hardware_time: bool,
    /// The card's queue (AF_XDP only): one source for each, all of one process.
    pub queue: u32,
    /// The card itself writes into the memory that modules read (AF_XDP only, where the driver can). Not tested: no such card was there.
    pub zero_copy: bool,
    /// Blocks share pages of descriptors, so that there is room for as many waiting packets however few of them a block has. A block can then
    /// have a [lead](crate::Block::lead).
    pub dense: bool,
    /// Opens the interface again when one of its name comes back after it was removed.
    pub reopen: bool,
    /// What descriptors say as [`interface`](weir_abi::Descriptor::interface).
    pub number: u16,
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
            fanout: None,
            hardware_time: false,
            queue: 0,
            zero_copy: false,
            dense: false,
            reopen: true,
            number: 0,
        }
    }
}
