//! Encrypted datagrams between two sides, and the associations that use them.

use super::control::ControlMessage;
use super::endpoint::Transmit;
use super::error::PacketError;
use super::format::{AssociationDatagram, SEALED_HEAD_BYTES, Spi, sealed_head};
use super::keys::{PACKET_TAG_BYTES, PacketKeys};
use super::limits::{DatagramLimits, after};
use super::parts::CredentialsExchange;
use super::path_mtu::PathMtu;
use crate::association::HandshakeRole;
use crate::key::PublicKey;
use core::net::SocketAddr;
use weir_units::Nanos;

/// The keys, indices and address of a peer that has proved its identity.
#[derive(Debug)]
pub(super) struct SealedChannel {
    pub(super) own: Spi,
    pub(super) peer: Spi,
    pub(super) keys: PacketKeys,
    pub(super) address: SocketAddr,
}

impl SealedChannel {
    /// Encrypts a message to the peer's address. `None` if the key is used up.
    pub(super) fn seal(&mut self, control: &ControlMessage) -> Option<Transmit> {
        let address = self.address;
        self.seal_to(control, address)
    }

    /// Encrypts a message to another address of the peer.
    pub(super) fn seal_to(&mut self, control: &ControlMessage, to: SocketAddr) -> Option<Transmit> {
        let seal = self.keys.seal(self.peer).ok()?;
        let (spi, counter) = (seal.spi(), seal.counter());
        let (head, plain) = (sealed_head(spi, counter), control.to_bytes());
        let mut sealed = vec![0; plain.len() + PACKET_TAG_BYTES];
        let is_sealed = seal.seal(&head, &plain, &mut sealed);
        let datagram = AssociationDatagram::Sealed { spi, counter, head: &head, sealed: &sealed };
        is_sealed.then(|| Transmit { to, bytes: datagram.to_bytes() })
    }

    /// Decrypts a message. Returns true with it if it is the peer's newest packet.
    pub(super) fn open(
        &mut self,
        counter: u64,
        head: &[u8; SEALED_HEAD_BYTES],
        sealed: &[u8],
    ) -> Result<(ControlMessage, bool), PacketError> {
        let mut plain = vec![0; sealed.len()];
        let (bytes, is_newest) = self.keys.open(counter, head, sealed, &mut plain)?;
        let control =
            ControlMessage::read(plain.get(..bytes).unwrap_or_default()).ok_or(PacketError::Damaged)?;
        Ok((control, is_newest))
    }
}

/// The padding of a probe that makes its datagram `bytes` long.
pub(super) fn probe_padding(bytes: usize) -> usize {
    bytes.saturating_sub(SEALED_HEAD_BYTES + 1 + size_of::<u64>() + PACKET_TAG_BYTES)
}

/// The acceptance that a responder repeats until the initiator has it.
#[derive(Debug)]
pub(super) struct Acceptance {
    pub(super) exchange: CredentialsExchange,
    pub(super) tries: u32,
    pub(super) at: Nanos,
    pub(super) until: Nanos,
}

/// A new address from which the peer's packets come, and the challenge to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct MovingPeer {
    pub(super) address: SocketAddr,
    /// The token of the challenge; `None` until it is sent.
    pub(super) token: Option<u64>,
    pub(super) tries: u32,
    pub(super) at: Nanos,
}

/// The number of challenges to one new address.
pub(super) const CHALLENGES_MAX: u32 = 4;

/// An association, or one that its responder has accepted and its initiator has not confirmed.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) channel: SealedChannel,
    pub(super) peer: PublicKey,
    pub(super) role: HandshakeRole,
    /// The own credentials, which the next handshake shows again.
    pub(super) credentials: Vec<u8>,
    /// The peer's credentials, until the association is complete.
    pub(super) peer_credentials: Vec<u8>,
    pub(super) since: Nanos,
    pub(super) sent_at: Nanos,
    pub(super) received_at: Nanos,
    /// The acceptance, until the peer confirms it.
    pub(super) acceptance: Option<Acceptance>,
    /// The message that confirms the peer's acceptance, for an initiator.
    pub(super) confirmation: Option<ControlMessage>,
    /// The time at which replaced keys are erased.
    pub(super) replaced_until: Option<Nanos>,
    pub(super) mtu: PathMtu,
    pub(super) moving: Option<MovingPeer>,
    /// The earliest time of the next attempt to make new keys, after one has failed.
    pub(super) renew_from: Nanos,
    /// The earliest time of the next test of a silent peer.
    pub(super) test_from: Nanos,
}

impl Link {
    /// Returns true if the association is complete and not replaced.
    pub(super) fn is_current(&self) -> bool {
        self.acceptance.is_none() && self.replaced_until.is_none()
    }

    /// Returns true if the keys are too old to be used.
    pub(super) fn is_old(&self, now: Nanos, limits: &DatagramLimits) -> bool {
        now >= after(self.since, limits.age_max)
    }

    /// Returns the time at which to ask a silent peer for an answer: several times before the silence is too long.
    pub(super) fn test_at(&self, limits: &DatagramLimits) -> Nanos {
        after(self.received_at, Nanos(limits.silence.0 / 2)).max(self.test_from)
    }

    /// Returns the time at which new keys should be made. The responder leaves the initiator some time to do so.
    pub(super) fn renew_at(&self, now: Nanos, limits: &DatagramLimits) -> Nanos {
        let margin = match self.role {
            HandshakeRole::Initiator => 0,
            HandshakeRole::Responder => 8,
        };
        let with_margin = |limit: u64| limit.saturating_add(limit.checked_div(margin).unwrap_or_default());
        let due = if self.channel.keys.packets() >= with_margin(limits.renew_packets) {
            now
        } else {
            after(self.since, Nanos(with_margin(limits.renew_age.0)))
        };
        due.max(self.renew_from)
    }

    /// Notes an authenticated packet. The newest packet of the peer shows where the peer is now; a challenge is sent to a
    /// new address before it is used.
    pub(super) fn note_received(&mut self, from: SocketAddr, is_newest: bool, now: Nanos) {
        self.received_at = self.received_at.max(now);
        if !is_newest {
            return;
        }
        if from == self.channel.address {
            self.moving = None;
        } else if self.moving.is_none_or(|moving| moving.address != from) {
            self.moving = Some(MovingPeer { address: from, token: None, tries: 0, at: now });
        }
    }
}
