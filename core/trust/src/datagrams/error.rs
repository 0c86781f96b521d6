//! Errors of an endpoint.

use super::format::Spi;
use crate::association::{HandshakeError, VERSION};

/// The reason why an attempt to open an association failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttemptError {
    /// The handshake took too long.
    #[error(
        "the peer did not complete the handshake in time: is the address right, and does the path carry datagrams?"
    )]
    Late,
    /// The peer answered that it has other versions. The answer is not authenticated, so the attempt went on until its
    /// deadline.
    #[error(
        "the peer speaks versions {lowest} to {highest} of the handshake, and this weir version {VERSION}: update the older one"
    )]
    NoCommonVersion {
        /// The lowest version of the peer.
        lowest: u8,
        /// The highest version of the peer.
        highest: u8,
    },
    /// The peer has refused the credentials.
    #[error("the peer does not accept this key or its credentials: ask its operator")]
    Refused,
    /// The endpoint has as many associations as it may have.
    #[error("this endpoint has as many associations as it may have: close others, or raise the limit")]
    Full,
    /// The peer is not the expected one, or the local key did not sign.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
}

/// The reason why an attempt is not begun.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectRefusal {
    /// There are too many attempts.
    #[error("{0} attempts are under way, which is the limit: wait for one to end")]
    Attempts(usize),
    /// The credentials are too long, or there is no randomness.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
}

/// The reason why a packet is refused or not sent. A refused packet leaves the association as it is, because any party
/// can send one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// There is no association with the peer.
    #[error("there is no association with this peer: connect to it")]
    NoAssociation,
    /// A packet with an unknown index.
    #[error("no association has the index {0}")]
    Unknown(Spi),
    /// A packet whose counter was received before, or is too old to tell.
    #[error("packet {0} was received before, or is too old to tell")]
    Again(u64),
    /// A packet that does not decrypt.
    #[error("the packet belongs to another association, or was changed")]
    Damaged,
    /// The key has encrypted as many packets as it may, or is too old.
    #[error("the key of the association is used up: wait for the new one")]
    UsedUp,
}

/// The error for a peer without an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no association with this peer, or none that waits for an answer")]
pub struct UnknownPeer;
