//! The encryption keys of an association, and the number of messages that each has encrypted.

use crate::association::{Handshake, HandshakeError, HandshakeRole};
use snow::StatelessTransportState;
use std::fmt;

/// The number of messages of a direction after which its key is replaced (Noise, section 11.3). They are at most 1 GiB,
/// far below the limit of AES-GCM (RFC 8446, section 5.5: 2^24.5 messages of the longest length).
pub const REKEY_MESSAGES: u64 = 1 << 16;

/// The bytes that a message adds to its payload: its kind and the tag.
pub(super) const OVERHEAD_BYTES: usize = 1 + TAG_BYTES;
const TAG_BYTES: usize = 16;

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageKind {
    /// Bytes of a stream, or a datagram.
    Data,
    /// The end of the stream.
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

    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Data, Self::End, Self::Accepted].into_iter().find(|kind| kind.byte() == byte)
    }
}

/// The encryption keys of an association, one for each direction. They are erased from memory when this value is
/// dropped.
pub(crate) struct TransportKeys {
    noise: StatelessTransportState,
    role: HandshakeRole,
    /// The number of messages sealed in order, which is the next message's number.
    sealed: u64,
    /// The number of messages opened in order.
    opened: u64,
}

impl TransportKeys {
    /// Returns the keys that follow from a handshake whose first three messages were exchanged.
    pub(crate) fn from_handshake(handshake: Handshake, role: HandshakeRole) -> Result<Self, HandshakeError> {
        Ok(Self { noise: handshake.keys()?, role, sealed: 0, opened: 0 })
    }

    /// Returns the numbers of messages sealed and opened.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.sealed, self.opened)
    }

    /// Encrypts the next message. `None` if the message is too long.
    pub(crate) fn seal_next(&mut self, kind: MessageKind, data: &[u8]) -> Option<Vec<u8>> {
        let message = self.seal(self.sealed, kind, data)?;
        self.sealed += 1;
        if self.sealed.is_multiple_of(REKEY_MESSAGES) {
            self.noise.rekey_outgoing();
        }
        Some(message)
    }

    /// Decrypts the peer's next message into `into`, which must be as long as the message. Returns its kind and payload.
    /// `None` for other bytes than the peer's next message; the association is then over.
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

    /// Encrypts a message under a number. No number may be used twice.
    pub(super) fn seal(&self, number: u64, kind: MessageKind, data: &[u8]) -> Option<Vec<u8>> {
        let plain = [&[kind.byte()], data].concat();
        let mut message = vec![0; plain.len() + TAG_BYTES];
        let written = self.noise.write_message(number, &plain, &mut message).ok()?;
        message.truncate(written);
        Some(message)
    }

    /// Decrypts the message with this number into `into`. `None` if it does not decrypt.
    pub(super) fn open<'a>(
        &self,
        number: u64,
        message: &[u8],
        into: &'a mut [u8],
    ) -> Option<(MessageKind, &'a [u8])> {
        let read = self.noise.read_message(number, message, into).ok()?;
        let (kind, data) = into.get(..read)?.split_first()?;
        Some((MessageKind::from_byte(*kind)?, data))
    }
}

impl fmt::Debug for TransportKeys {
    /// Writes the state without the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TransportKeys({:?}, {} sealed, {} opened)", self.role, self.sealed, self.opened)
    }
}
