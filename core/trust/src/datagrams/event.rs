//! Events and counters of an endpoint.

use super::error::AttemptError;
use super::format::Spi;
use crate::key::PublicKey;
use core::net::SocketAddr;

/// An event of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatagramEvent {
    /// An authenticated peer has sent its credentials, and waits for [`super::DatagramEndpoint::accept`] or
    /// [`super::DatagramEndpoint::refuse`]. A peer that makes new keys asks again.
    Asks {
        /// The own index of the new association.
        spi: Spi,
        /// The peer's identity, which has signed the handshake.
        peer: PublicKey,
        /// The peer's credentials, not yet parsed.
        credentials: Vec<u8>,
        /// The address of the peer.
        address: SocketAddr,
    },
    /// An association is complete.
    Up {
        /// The own index of the association.
        spi: Spi,
        /// The peer.
        peer: PublicKey,
        /// The peer's credentials, not yet parsed.
        credentials: Vec<u8>,
        /// True if the association replaces one with the same peer.
        renews: bool,
    },
    /// An own attempt has failed.
    Failed {
        /// The index that [`super::DatagramEndpoint::connect`] returned.
        spi: Spi,
        /// The address of the attempt.
        address: SocketAddr,
        /// The reason.
        error: AttemptError,
    },
    /// The peer's packets come from another address, which the peer has proved to receive at.
    Moved {
        /// The peer.
        peer: PublicKey,
        /// The new address.
        address: SocketAddr,
    },
    /// There is no association with the peer any more.
    Down {
        /// The peer.
        peer: PublicKey,
        /// The reason.
        reason: DownReason,
    },
}

/// The reason why an association ended without a successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DownReason {
    /// The peer has closed the association.
    #[error("the peer has closed the association")]
    Closed,
    /// The peer has sent nothing for too long.
    #[error("the peer has sent nothing for too long: it has stopped, or the path is interrupted")]
    Silent,
    /// The keys reached their limits before there were new ones.
    #[error("the keys reached their limits, and the peer has made no new ones")]
    UsedUp,
}

/// Counters of an endpoint since it was made. Every received datagram counts in exactly one of the first group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramCounters {
    /// Datagrams and packets that were accepted.
    pub accepted: u64,
    /// Hellos that were answered with a cookie.
    pub cookies: u64,
    /// Hellos whose versions this endpoint does not have.
    pub versions: u64,
    /// Datagrams that were repeated, late, or not expected at this point.
    pub unexpected: u64,
    /// Datagrams that are none of this protocol.
    pub malformed: u64,
    /// Datagrams and packets with an unknown index.
    pub unknown: u64,
    /// Datagrams and packets that do not decrypt, or do not prove the peer's identity.
    pub damaged: u64,
    /// Datagrams and packets whose counter was received before, or is too old to tell.
    pub replayed: u64,
    /// Datagrams and packets whose counter is beyond the limit of their key.
    pub used_up: u64,
    /// Hellos that the gate or another limit refused.
    pub refused: u64,
    /// Steps of handshakes with operations on the curve, in both roles.
    pub curve_steps: u64,
    /// Datagrams that were repeated because no answer came.
    pub repeated: u64,
}
