//! Handshakes of peers that this side has not accepted yet.

use super::format::{ECHO_BYTES, Spi};
use super::link::SealedChannel;
use super::parts::CredentialsExchange;
use crate::association::Responder;
use crate::key::PublicKey;
use core::net::SocketAddr;

/// A half-open handshake of a peer that has shown a valid cookie.
#[derive(Debug)]
pub(super) struct IncomingHandshake {
    pub(super) address: SocketAddr,
    /// The peer's index.
    pub(super) peer: Spi,
    /// The part of the first message by which its repetitions are recognised.
    pub(super) echo: [u8; ECHO_BYTES],
    pub(super) stage: IncomingStage,
}

/// The stage of a half-open handshake.
#[derive(Debug)]
pub(super) enum IncomingStage {
    /// The first message waits for its answer.
    Waiting { first: Vec<u8> },
    /// The second message was sent.
    Replied { own: Spi, responder: Responder, second: Vec<u8> },
    /// The peer has proved its identity. Its credentials arrive, and the caller decides on them.
    Introduced(Box<IntroducedPeer>),
}

/// A peer that has proved its identity.
#[derive(Debug)]
pub(super) struct IntroducedPeer {
    pub(super) peer: PublicKey,
    pub(super) channel: SealedChannel,
    pub(super) exchange: CredentialsExchange,
    /// True if the caller was asked to decide.
    pub(super) is_asked: bool,
}

impl IncomingHandshake {
    /// Returns the own index, when there is one.
    pub(super) fn own(&self) -> Option<Spi> {
        match &self.stage {
            IncomingStage::Waiting { .. } => None,
            IncomingStage::Replied { own, .. } => Some(*own),
            IncomingStage::Introduced(introduced) => Some(introduced.channel.own),
        }
    }

    /// Returns the identity that the peer has proved.
    pub(super) fn identity(&self) -> Option<PublicKey> {
        match &self.stage {
            IncomingStage::Introduced(introduced) => Some(introduced.peer),
            _ => None,
        }
    }
}
