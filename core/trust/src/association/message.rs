//! What the messages consist of. docs/WIRE.md says the same for those who write another implementation.

use super::HandshakeError;
use std::ops::RangeInclusive;

/// The version of the handshake that this weir speaks.
pub const VERSION: u8 = 1;

const MAGIC: [u8; 4] = *b"weir";
/// The magic number, the lowest and the highest version.
pub(super) const HEAD_BYTES: usize = MAGIC.len() + 2;

const KEY_BYTES: usize = 32;
const TAG_BYTES: usize = 16;
const SEALED_KEY_BYTES: usize = KEY_BYTES + TAG_BYTES;
const SIGNATURE_BYTES: usize = 64;
/// An identity and its signature.
const PROOF_BYTES: usize = KEY_BYTES + SIGNATURE_BYTES;

/// The longest credentials, in bytes. A delegated one with three blocks has one or two thousand; this is what a stranger can have kept in
/// memory before anything of him was checked.
pub const CREDENTIALS_BYTES_MAX: usize = 16 << 10;

/// The length of the first message. It has room that nobody reads, so that it is no shorter than its answer.
pub const FIRST_BYTES: usize = SECOND_BYTES;
/// The length of the second message: the version, an ephemeral key, a sealed key, a sealed identity with its signature.
pub const SECOND_BYTES: usize = 1 + KEY_BYTES + SEALED_KEY_BYTES + PROOF_BYTES + TAG_BYTES;
pub(super) const THIRD_BYTES_MIN: usize = SEALED_KEY_BYTES + PROOF_BYTES + TAG_BYTES;
/// The longest third message.
pub const THIRD_BYTES_MAX: usize = THIRD_BYTES_MIN + CREDENTIALS_BYTES_MAX;
/// A byte that says what it is, and no credentials.
pub(super) const FOURTH_BYTES_MIN: usize = 1 + TAG_BYTES;
/// The longest fourth message.
pub const FOURTH_BYTES_MAX: usize = FOURTH_BYTES_MIN + CREDENTIALS_BYTES_MAX;

/// What follows the head and the ephemeral key of the first message.
pub(super) const PADDING_BYTES: usize = FIRST_BYTES - HEAD_BYTES - KEY_BYTES;
/// The longest payload of a message, with its tag: room for whatever is opened.
pub(super) const PAYLOAD_BYTES_MAX: usize = PROOF_BYTES + CREDENTIALS_BYTES_MAX + TAG_BYTES;

const _: () = assert!(THIRD_BYTES_MAX <= u16::MAX as usize && FIRST_BYTES >= SECOND_BYTES);

/// What the first message begins with, in the clear; part of the handshake hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MessageHeader(pub(super) [u8; HEAD_BYTES]);

impl MessageHeader {
    /// That of this weir.
    pub(super) fn own() -> Self {
        let [a, b, c, d] = MAGIC;
        Self([a, b, c, d, VERSION, VERSION])
    }

    /// That of a first message, and what follows it.
    pub(super) fn split(message: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = message.split_first_chunk()?;
        Some((Self(*head), rest))
    }

    /// The version to speak with whoever offers these.
    pub(super) fn choose(self) -> Result<u8, HandshakeError> {
        let [magic @ .., lowest, highest] = self.0;
        if magic != MAGIC {
            return Err(HandshakeError::NotWeir);
        }
        let offered: RangeInclusive<u8> = lowest..=highest;
        if offered.contains(&VERSION) {
            Ok(VERSION)
        } else {
            Err(HandshakeError::Versions { lowest, highest })
        }
    }
}

/// What everything that is hashed begins with.
pub(super) fn prologue(head: MessageHeader) -> Vec<u8> {
    [b"weir association\0".as_slice(), &head.0].concat()
}
