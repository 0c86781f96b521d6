//! Errors of reading, writing and opening packets.

use crate::ReassemblyFailure;
use weir_trust::datagrams::PacketError;

/// The reason why bytes are no packet, or a packet cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnepError {
    /// The packet is shorter than its header.
    #[error("the packet has {0} bytes, which is shorter than its header")]
    Short(usize),
    /// The packet has another version.
    #[error("the packet has version {0} of ANEP, and this weir reads version 1")]
    Version(u8),
    /// The header's length is impossible.
    #[error("the header states its own length as {0} words, which is less than two or more than the packet")]
    HeaderLength(u16),
    /// The packet's length is not that of the datagram.
    #[error("the header states a length of {stated} bytes, and the packet has {found}")]
    Length {
        /// The length in the header.
        stated: u16,
        /// The length of the datagram.
        found: usize,
    },
    /// An option does not fit into the header.
    #[error("the option at byte {0} is longer than the header, or has no length")]
    Option(usize),
    /// An option that this weir handles has a wrong length, or occurs twice.
    #[error("option {0} has a length that it never has, or occurs twice")]
    Value(u16),
    /// The checksum is wrong.
    #[error("the checksum of the packet is wrong: it was damaged on its way")]
    Checksum,
    /// A packet that would be too long.
    #[error("the packet would have {0} bytes, and 65,535 is the most")]
    TooLong(usize),
}

/// The reason why a packet is not sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnepSealError {
    /// The bytes are no packet.
    #[error(transparent)]
    Packet(#[from] AnepError),
    /// The packet has an option that only sealed packets or their fragments have, or a checksum.
    #[error("the packet has option {0}, which sealing adds or replaces: send it without")]
    Reserved(u16),
    /// The association cannot seal it.
    #[error(transparent)]
    Association(#[from] PacketError),
}

/// The reason why a received packet is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnepOpenError {
    /// The bytes are no packet.
    #[error(transparent)]
    Packet(#[from] AnepError),
    /// The packet has no authentication and no encryption option, or more than one of them.
    #[error("the packet is not authenticated")]
    Unsealed,
    /// The association does not accept the packet.
    #[error(transparent)]
    Association(#[from] PacketError),
    /// The fragment does not fit to others.
    #[error(transparent)]
    Fragment(#[from] ReassemblyFailure),
}
