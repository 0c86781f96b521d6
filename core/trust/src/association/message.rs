//! Versions and lengths of the handshake's messages, and the head of the first one. docs/WIRE.md describes the layout
//! for other implementations.

use super::HandshakeError;
use std::ops::RangeInclusive;

/// The version of the handshake that this weir speaks.
pub const VERSION: u8 = 1;

const MAGIC: [u8; 4] = *b"weir";
/// The length of the head of the first message: the magic number, the lowest and the highest offered version.
pub(crate) const HEAD_BYTES: usize = MAGIC.len() + 2;

const KEY_BYTES: usize = 32;
const TAG_BYTES: usize = 16;
const SEALED_KEY_BYTES: usize = KEY_BYTES + TAG_BYTES;
const SIGNATURE_BYTES: usize = 64;
/// The length of an identity with its signature.
const PROOF_BYTES: usize = KEY_BYTES + SIGNATURE_BYTES;

/// The longest credentials, in bytes; a chain of three blocks takes one or two thousand. A node reserves as much memory
/// for each peer that is not authenticated yet.
pub const CREDENTIALS_BYTES_MAX: usize = 16 << 10;

/// The length of the first message. It is padded to the length of the second message, which answers it.
pub const FIRST_BYTES: usize = SECOND_BYTES;
/// The length of the second message: the version, an ephemeral key, a sealed key, a sealed identity with its signature.
pub const SECOND_BYTES: usize = 1 + KEY_BYTES + SEALED_KEY_BYTES + PROOF_BYTES + TAG_BYTES;
pub(crate) const THIRD_BYTES_MIN: usize = SEALED_KEY_BYTES + PROOF_BYTES + TAG_BYTES;
/// The longest third message.
pub const THIRD_BYTES_MAX: usize = THIRD_BYTES_MIN + CREDENTIALS_BYTES_MAX;
/// The shortest fourth message: a byte for its kind, and no credentials.
pub(super) const FOURTH_BYTES_MIN: usize = 1 + TAG_BYTES;
/// The longest fourth message.
pub const FOURTH_BYTES_MAX: usize = FOURTH_BYTES_MIN + CREDENTIALS_BYTES_MAX;

/// The length of the padding in the first message, after the head and the ephemeral key.
pub(super) const PADDING_BYTES: usize = FIRST_BYTES - HEAD_BYTES - KEY_BYTES;
/// The longest payload of a message, with its tag: a buffer of this size fits every message.
pub(super) const PAYLOAD_BYTES_MAX: usize = PROOF_BYTES + CREDENTIALS_BYTES_MAX + TAG_BYTES;

const _: () = assert!(THIRD_BYTES_MAX <= u16::MAX as usize && FIRST_BYTES >= SECOND_BYTES);

/// The head of the first message, in the clear; part of the handshake hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MessageHeader(pub(super) [u8; HEAD_BYTES]);

impl MessageHeader {
    /// Returns the head that this version of weir sends.
    pub(super) fn own() -> Self {
        let [a, b, c, d] = MAGIC;
        Self([a, b, c, d, VERSION, VERSION])
    }

    /// Splits a first message into its head and the rest.
    pub(super) fn split(message: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = message.split_first_chunk()?;
        Some((Self(*head), rest))
    }

    /// Returns the version to use with a peer that offers the versions of this head.
    pub(super) fn choose(self) -> Result<u8, HandshakeError> {
        let [magic @ .., lowest, highest] = self.0;
        if magic != MAGIC {
            return Err(HandshakeError::NotWeir);
        }
        let offered: RangeInclusive<u8> = lowest..=highest;
        if offered.contains(&VERSION) {
            Ok(VERSION)
        } else {
            Err(HandshakeError::NoCommonVersion { lowest, highest })
        }
    }
}

/// The carrier of a handshake's messages. It is part of the handshake hash, so the messages of one carrier are invalid
/// over the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carrier {
    /// A byte stream, such as TCP.
    Stream,
    /// Datagrams, such as UDP.
    Datagrams,
}

/// Returns the Noise prologue, the first input of the handshake hash.
pub(super) fn prologue(carrier: Carrier, head: MessageHeader) -> Vec<u8> {
    let name = match carrier {
        Carrier::Stream => b"weir association\0".as_slice(),
        Carrier::Datagrams => b"weir datagram association\0",
    };
    [name, &head.0].concat()
}
