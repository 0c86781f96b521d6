//! Framing of messages in a byte stream: the message after its length in two bytes, big-endian.

use super::{FIRST_BYTES, FOURTH_BYTES_MAX, HandshakeError, HandshakeMessage, SECOND_BYTES, THIRD_BYTES_MAX};
use std::ops::RangeInclusive;

/// The size of the length before a message, in bytes.
pub const LENGTH_BYTES: usize = 2;

/// Returns a message with its length before it. `None` if the length does not fit into two bytes.
pub fn framed(message: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(message.len()).ok()?;
    Some([&length.to_be_bytes(), message].concat())
}

/// Decodes the two bytes before a handshake message, and checks that the message can have this length. Returns the
/// length. The reader allocates memory for the message only after this check.
///
/// # Errors
/// Fails if the handshake message at the position `message` never has this length.
pub fn length(message: HandshakeMessage, length_bytes: [u8; LENGTH_BYTES]) -> Result<usize, HandshakeError> {
    let bytes = usize::from(u16::from_be_bytes(length_bytes));
    if lengths(message).contains(&bytes) { Ok(bytes) } else { Err(HandshakeError::Length { message, bytes }) }
}

/// Returns the lengths in bytes that the handshake message at this position can have.
pub(super) fn lengths(message: HandshakeMessage) -> RangeInclusive<usize> {
    use super::message::{FOURTH_BYTES_MIN, THIRD_BYTES_MIN};
    match message {
        HandshakeMessage::First => FIRST_BYTES..=FIRST_BYTES,
        HandshakeMessage::Second => SECOND_BYTES..=SECOND_BYTES,
        HandshakeMessage::Third => THIRD_BYTES_MIN..=THIRD_BYTES_MAX,
        HandshakeMessage::Fourth => FOURTH_BYTES_MIN..=FOURTH_BYTES_MAX,
    }
}

/// Checks that the handshake message at the position `message` can have the length of `bytes`.
pub(super) fn check(message: HandshakeMessage, bytes: &[u8]) -> Result<(), HandshakeError> {
    let bytes_as_u16 =
        u16::try_from(bytes.len()).map_err(|_| HandshakeError::Length { message, bytes: bytes.len() })?;
    length(message, bytes_as_u16.to_be_bytes()).map(drop)
}
