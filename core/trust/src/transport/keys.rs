//! The keys of an association, and how often each was used.

use crate::association::{Handshake, HandshakeError, HandshakeRole};
use snow::StatelessTransportState;
use std::fmt;

/// Messages of a direction after which it gets a new key (Noise, section 11.3). With the longest messages that is 1 GiB, far from where AES-GCM's
/// limits begin (RFC 8446, section 5.5: 2^24.5 messages of this length).
pub const REKEY_MESSAGES: u64 = 1 << 16;

/// Bytes that a message is longer than what it says: its kind and the tag.
pub(super) const OVERHEAD_BYTES: usize = 1 + TAG_BYTES;
const TAG_BYTES: usize = 16;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageKind {
    /// Bytes of the stream, or a datagram.
    Data,
    /// Nothing follows.
    End,
    /// The fourth message of the handshake.
    Accepted,
}

impl MessageKind {
    fn byte(self) -> u8 {
        match self {
            Self::Data => 0,
            Self::End => 1,
            Self::Accepted => 2,
        }
    }

    fn of(byte: u8) -> Option<Self> {
        [Self::Data, Self::End, Self::Accepted].into_iter().find(|kind| kind.byte() == byte)
    }
}

/// A key for each direction. The ciphers that the library was given erase both when this is dropped.
pub(crate) struct TransportKeys {
    noise: StatelessTransportState,
    role: HandshakeRole,
    /// Messages that were sealed one after the other, and that is the number of the next one.
    sealed: u64,
    /// Messages that were opened one after the other.
    opened: u64,
}

impl TransportKeys {
    /// Those of a handshake whose three messages were exchanged.
    pub(crate) fn of(handshake: Handshake, role: HandshakeRole) -> Result<Self, HandshakeError> {
        Ok(Self { noise: handshake.keys()?, role, sealed: 0, opened: 0 })
    }

    /// How many were sealed, and opened.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.sealed, self.opened)
    }

    /// Seals the next message. Nothing where it is too long.
    pub(crate) fn seal_next(&mut self, kind: MessageKind, data: &[u8]) -> Option<Vec<u8>> {
        let message = self.seal(self.sealed, kind, data)?;
        self.sealed += 1;
        if self.sealed.is_multiple_of(REKEY_MESSAGES) {
            self.noise.rekey_outgoing();
        }
        Some(message)
    }

    /// Opens the next message, into `into`, which has room for it. Nothing where it is not the next one of the peer's: then there is no way on.
    pub(crate) fn open_next<'a>(
        &mut self,
        message: &[u8],
        into: &'a mut [u8],
    ) -> Option<(MessageKind, &'a [u8])> {
        let opened = self.open(self.opened, message, into)?;
        self.opened += 1;
        if self.opened.is_multiple_of(REKEY_MESSAGES) {
            self.noise.rekey_incoming();
        }
        Some(opened)
    }

    /// Seals a message with a number. No number may be used twice.
    pub(super) fn seal(&self, number: u64, kind: MessageKind, data: &[u8]) -> Option<Vec<u8>> {
        let plain = [&[kind.byte()], data].concat();
        let mut message = vec![0; plain.len() + TAG_BYTES];
        let written = self.noise.write_message(number, &plain, &mut message).ok()?;
        message.truncate(written);
        Some(message)
    }

    /// Opens the message with that number.
    pub(super) fn open<'a>(
        &self,
        number: u64,
        message: &[u8],
        into: &'a mut [u8],
    ) -> Option<(MessageKind, &'a [u8])> {
        let read = self.noise.read_message(number, message, into).ok()?;
        let (kind, data) = into.get(..read)?.split_first()?;
        Some((MessageKind::of(*kind)?, data))
    }
}

impl fmt::Debug for TransportKeys {
    /// Without the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({:?}, {} sealed, {} opened)", self.role, self.sealed, self.opened)
    }
}
