//! Messages in a stream of bytes: two bytes of length, and so many bytes of message.

use super::{FIRST_BYTES, FOURTH_BYTES_MAX, HandshakeError, HandshakeMessage, SECOND_BYTES, THIRD_BYTES_MAX};
use std::ops::RangeInclusive;

/// Bytes of the length before a message.
pub const LENGTH_BYTES: usize = 2;

/// Puts its length before a message. Nothing where it has more bytes than can be said.
pub fn framed(message: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(message.len()).ok()?;
    Some([&length.to_be_bytes(), message].concat())
}

/// How many bytes of that message follow: to be asked before room is made for them.
///
/// # Errors
/// That message never has so many.
pub fn length(message: HandshakeMessage, said: [u8; LENGTH_BYTES]) -> Result<usize, HandshakeError> {
    let bytes = usize::from(u16::from_be_bytes(said));
    if lengths(message).contains(&bytes) { Ok(bytes) } else { Err(HandshakeError::Length { message, bytes }) }
}

/// How many bytes a message can have.
pub(super) fn lengths(message: HandshakeMessage) -> RangeInclusive<usize> {
    use super::message::{FOURTH_BYTES_MIN, THIRD_BYTES_MIN};
    match message {
        HandshakeMessage::First => FIRST_BYTES..=FIRST_BYTES,
        HandshakeMessage::Second => SECOND_BYTES..=SECOND_BYTES,
        HandshakeMessage::Third => THIRD_BYTES_MIN..=THIRD_BYTES_MAX,
        HandshakeMessage::Fourth => FOURTH_BYTES_MIN..=FOURTH_BYTES_MAX,
    }
}

/// Refuses a message whose length it never has.
pub(super) fn check(message: HandshakeMessage, bytes: &[u8]) -> Result<(), HandshakeError> {
    let said =
        u16::try_from(bytes.len()).map_err(|_| HandshakeError::Length { message, bytes: bytes.len() })?;
    length(message, said.to_be_bytes()).map(drop)
}
