//! The keys of an association's packets, and the numbers of its packets.

use super::error::PacketError;
use super::format::Spi;
use crate::association::{ErasedCipher, HandshakeError, HandshakeRole, SplitKeys, cipher, hmac};
use crate::transport::ReplayWindow;
use snow::types::Cipher;
use std::fmt;

/// The length of the authentication tag of a packet.
pub const PACKET_TAG_BYTES: usize = 16;

/// The keys of both directions.
pub(super) struct PacketKeys {
    outgoing: ErasedCipher,
    incoming: ErasedCipher,
    /// The counter of the next packet to send.
    next: u64,
    window: ReplayWindow,
    /// The counter that no packet reaches.
    packets_max: u64,
}

impl PacketKeys {
    /// Derives the keys of an association from its handshake. The indices are part of the derivation, so both sides have
    /// the same indices or no common key.
    pub(super) fn derive(
        split: &SplitKeys,
        role: HandshakeRole,
        initiator: Spi,
        responder: Spi,
        packets_max: u64,
    ) -> Result<Self, HandshakeError> {
        let context = [&b"weir datagram key 1\0"[..], &initiator.to_bytes(), &responder.to_bytes()].concat();
        let [of_initiator, of_responder] = split;
        let of_initiator = cipher(&*hmac(of_initiator, &context)?)?;
        let of_responder = cipher(&*hmac(of_responder, &context)?)?;
        let (outgoing, incoming) = match role {
            HandshakeRole::Initiator => (of_initiator, of_responder),
            HandshakeRole::Responder => (of_responder, of_initiator),
        };
        Ok(Self { outgoing, incoming, next: 0, window: ReplayWindow::default(), packets_max })
    }

    /// Takes the next counter.
    pub(super) fn seal(&mut self, spi: Spi) -> Result<PacketSeal<'_>, PacketError> {
        if self.next >= self.packets_max {
            return Err(PacketError::UsedUp);
        }
        let counter = self.next;
        self.next += 1;
        Ok(PacketSeal { spi, counter, cipher: &self.outgoing })
    }

    /// Decrypts a packet into `out`, which must be as long as `sealed`. Returns the number of decrypted bytes, and true
    /// if the packet is the newest of the peer's.
    pub(super) fn open(
        &mut self,
        counter: u64,
        authenticated: &[u8],
        sealed: &[u8],
        out: &mut [u8],
    ) -> Result<(usize, bool), PacketError> {
        if counter >= self.packets_max {
            return Err(PacketError::UsedUp);
        }
        // The number is checked before anything is decrypted.
        if !self.window.is_new(counter) {
            return Err(PacketError::Again(counter));
        }
        if sealed.len() < PACKET_TAG_BYTES || out.len() < sealed.len() {
            return Err(PacketError::Damaged);
        }
        let opened = self.incoming.decrypt(counter, authenticated, sealed, out);
        let bytes = opened.map_err(|_| PacketError::Damaged)?;
        // Only a packet that decrypts moves the window.
        let is_newest = self.window.is_newest(counter);
        self.window.accept(counter);
        Ok((bytes, is_newest))
    }

    /// Returns the larger of the numbers of packets sent and received, by the highest counters.
    pub(super) fn packets(&self) -> u64 {
        self.next.max(self.window.next())
    }
}

impl fmt::Debug for PacketKeys {
    /// Writes the state without the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PacketKeys({} sealed)", self.next)
    }
}

/// The permission to encrypt one packet. Its counter is used by no other packet.
pub struct PacketSeal<'a> {
    spi: Spi,
    counter: u64,
    cipher: &'a ErasedCipher,
}

impl PacketSeal<'_> {
    /// Returns the index by which the receiver finds the keys.
    pub fn spi(&self) -> Spi {
        self.spi
    }

    /// Returns the counter of the packet.
    pub fn counter(&self) -> u64 {
        self.counter
    }

    /// Encrypts `plain` and authenticates it with `authenticated`. Writes the encrypted bytes and the tag to `out`, and
    /// returns true. Returns false, without a packet, if `out` is not longer than `plain` by [`PACKET_TAG_BYTES`].
    #[must_use]
    pub fn seal(self, authenticated: &[u8], plain: &[u8], out: &mut [u8]) -> bool {
        if out.len() != plain.len() + PACKET_TAG_BYTES {
            return false;
        }
        self.cipher.encrypt(self.counter, authenticated, plain, out);
        true
    }
}

impl fmt::Debug for PacketSeal<'_> {
    /// Writes the numbers without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PacketSeal({}, {})", self.spi, self.counter)
    }
}
