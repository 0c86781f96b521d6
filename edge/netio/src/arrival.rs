//! The arrival of each packet of a block, as the kernel reports it.

/// The receiver of a packet, as its interface knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PacketReceiver {
    /// The source does not report it.
    #[default]
    Unknown,
    /// This host.
    Host,
    /// All hosts.
    Broadcast,
    /// A group of hosts.
    Multicast,
    /// Another host.
    OtherHost,
    /// The packet comes from this host.
    Outgoing,
}

impl PacketReceiver {
    /// Reads a packet type of packet(7).
    pub(crate) fn from_kernel(packet_type: u8) -> Self {
        match packet_type {
            libc::PACKET_HOST => Self::Host,
            libc::PACKET_BROADCAST => Self::Broadcast,
            libc::PACKET_MULTICAST => Self::Multicast,
            libc::PACKET_OTHERHOST => Self::OtherHost,
            libc::PACKET_OUTGOING => Self::Outgoing,
            _ => Self::Unknown,
        }
    }
}

/// The arrival of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketArrival {
    /// The receiver.
    pub receiver: PacketReceiver,
    /// The payload bytes of each packet on the link, of a packet that a host has left to its card to divide, or that a
    /// system has merged; 0 for any other packet. See [`weir_wire::segment`].
    pub segment_bytes: u16,
}
