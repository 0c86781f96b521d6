//! The exchange of credentials in parts. Each side repeats the parts that the other side does not have.

use super::control::{ControlMessage, CredentialsMessage};
use crate::association::CREDENTIALS_BYTES_MAX;

/// The length of each part of credentials but the last, in bytes.
pub(super) const PART_BYTES_MAX: usize = 1_024;
/// The most parts of credentials.
const PARTS_MAX: usize = CREDENTIALS_BYTES_MAX / PART_BYTES_MAX;

const _: () = assert!(PARTS_MAX == u16::BITS as usize && CREDENTIALS_BYTES_MAX <= u16::MAX as usize);

/// The exchange of both sides' credentials.
#[derive(Debug)]
pub(super) struct CredentialsExchange {
    own: Vec<u8>,
    /// The set of own parts that the peer has.
    sent: u16,
    /// The peer's credentials as far as they have arrived; `None` before the first part.
    peer: Option<Vec<u8>>,
    /// The set of the peer's parts that have arrived.
    received: u16,
}

impl CredentialsExchange {
    /// Begins an exchange. The own credentials have at most [`CREDENTIALS_BYTES_MAX`] bytes.
    pub(super) fn new(own: Vec<u8>) -> Self {
        Self { own, sent: 0, peer: None, received: 0 }
    }

    /// Stores a part of the peer's credentials, and notes the own parts that the peer has. Returns false, without a
    /// change, for a message that contradicts earlier ones.
    pub(super) fn handle(&mut self, message: &CredentialsMessage) -> bool {
        let length = usize::from(message.length);
        let is_known = self.peer.as_ref().is_none_or(|peer| peer.len() == length);
        if length > CREDENTIALS_BYTES_MAX || !is_known {
            return false;
        }
        if let Some((index, data)) = &message.part {
            let from = usize::from(*index) * PART_BYTES_MAX;
            if usize::from(*index) >= parts(length) || data.len() != (length - from).min(PART_BYTES_MAX) {
                return false;
            }
            let peer = self.peer.get_or_insert_with(|| vec![0; length]);
            if let Some(into) = peer.get_mut(from..from + data.len()) {
                into.copy_from_slice(data);
            }
            self.received |= 1 << index;
        }
        self.sent |= message.received & all_parts(self.own.len());
        true
    }

    /// Returns the peer's credentials, when all parts have arrived.
    pub(super) fn complete(&self) -> Option<&[u8]> {
        let peer = self.peer.as_deref()?;
        (self.received == all_parts(peer.len())).then_some(peer)
    }

    /// Returns true if the peer has all own parts.
    pub(super) fn is_sent(&self) -> bool {
        self.sent == all_parts(self.own.len())
    }

    /// Replaces the own credentials, of which nothing was sent.
    pub(super) fn set_own(&mut self, own: Vec<u8>) {
        (self.own, self.sent) = (own, 0);
    }

    /// Returns messages with the own parts that the peer does not have, or one without a part. The last one asks for an
    /// answer.
    pub(super) fn missing(&self) -> Vec<ControlMessage> {
        let missing = (0..16_u8).filter(|index| all_parts(self.own.len()) & !self.sent & (1 << index) != 0);
        let mut messages: Vec<CredentialsMessage> = missing
            .map(|index| {
                let rest = self.own.get(usize::from(index) * PART_BYTES_MAX..).unwrap_or_default();
                let data = rest.get(..PART_BYTES_MAX).unwrap_or(rest).to_vec();
                self.message(Some((index, data)))
            })
            .collect();
        if messages.is_empty() {
            messages.push(self.message(None));
        }
        if let Some(last) = messages.last_mut() {
            last.asks = true;
        }
        messages.into_iter().map(ControlMessage::Credentials).collect()
    }

    /// Returns a message with the set of received parts alone.
    pub(super) fn acknowledgement(&self) -> ControlMessage {
        ControlMessage::Credentials(self.message(None))
    }

    fn message(&self, part: Option<(u8, Vec<u8>)>) -> CredentialsMessage {
        let length = u16::try_from(self.own.len()).unwrap_or(u16::MAX);
        CredentialsMessage { asks: false, received: self.received, length, part }
    }
}

/// Returns the number of parts of credentials of this length. Empty credentials have one part.
fn parts(length: usize) -> usize {
    length.div_ceil(PART_BYTES_MAX).max(1)
}

/// Returns the set of all parts of credentials of this length.
fn all_parts(length: usize) -> u16 {
    let count = u32::try_from(parts(length)).unwrap_or(u16::BITS);
    u16::MAX >> u16::BITS.saturating_sub(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(bytes: usize) -> CredentialsExchange {
        CredentialsExchange::new((0..bytes).map(|at| u8::try_from(at % 251).unwrap()).collect())
    }

    #[test]
    fn credentials_of_every_length_arrive_in_any_order() {
        for bytes in [0, 1, 1_023, 1_024, 1_025, 16_383, CREDENTIALS_BYTES_MAX] {
            let (mut one, mut other) = (exchange(bytes), exchange(3));
            for message in one.missing().iter().rev() {
                assert_eq!(other.complete(), None);
                let ControlMessage::Credentials(message) = message else { panic!() };
                assert!(other.handle(message));
            }
            assert_eq!(other.complete(), Some(&one.own[..]));
            let ControlMessage::Credentials(answer) = other.acknowledgement() else { panic!() };
            assert!(one.handle(&answer) && one.is_sent());
            assert_eq!(one.missing().len(), 1);
        }
    }

    #[test]
    fn parts_that_contradict_each_other_are_refused() {
        let mut here = exchange(0);
        let message = |length: u16, index: u8, bytes: usize| CredentialsMessage {
            asks: false,
            received: u16::MAX,
            length,
            part: Some((index, vec![1; bytes])),
        };
        assert!(here.handle(&message(2_000, 0, 1_024)));
        for wrong in [
            message(2_001, 1, 977),
            message(2_000, 1, 975),
            message(2_000, 2, 0),
            message(2_000, 255, 1),
            message(u16::MAX, 1, 1_024),
        ] {
            assert!(!here.handle(&wrong));
        }
        assert_eq!(here.complete(), None);
        assert!(here.handle(&message(2_000, 1, 976)));
        assert_eq!(here.complete(), Some(&[1; 2_000][..]));
        // Parts that this side does not have cannot be acknowledged.
        assert_eq!(here.sent, 1);
    }
}
