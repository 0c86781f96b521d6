//! Encrypted datagrams. A datagram consists of its number in eight bytes, and a message. Datagrams may arrive in any
//! order, or get lost; none is accepted twice.

use super::keys::OVERHEAD_BYTES;
use super::{MessageKind, ReplayWindow, TransportKeys};

/// The most payload bytes of a datagram, so that it fits into UDP over IPv6.
pub const DATAGRAM_BYTES_MAX: usize = 65_535 - 8 - NUMBER_BYTES - OVERHEAD_BYTES;
/// The number of datagrams of a direction after which a new handshake is needed. Up to this number, even with the
/// longest datagrams, AES-GCM stays within its limits for confidentiality. All these datagrams have one key, because
/// datagrams that overtake each other would otherwise need an old and a new key at once.
pub const DATAGRAMS_MAX: u64 = 1 << 32;

const NUMBER_BYTES: usize = 8;

/// The reason why a datagram is refused, or not sent. A refused datagram leaves the association as it is, because any
/// party can send one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatagramError {
    /// A datagram that is too short or too long.
    #[error("a datagram of {0} bytes is too short or too long")]
    Length(usize),
    /// A datagram whose number was received before, or is too old to tell.
    #[error("datagram {0} was received before, or is too old to tell")]
    Again(u64),
    /// A datagram that does not decrypt.
    #[error("the datagram belongs to another association, or was changed")]
    Damaged,
    /// The association has sent [`DATAGRAMS_MAX`] datagrams.
    #[error("the association has sent its last datagram: connect again")]
    UsedUp,
}

/// One side of an association over datagrams.
#[derive(Debug)]
pub struct SealedDatagrams {
    keys: TransportKeys,
    next: u64,
    window: ReplayWindow,
}

impl SealedDatagrams {
    pub(crate) fn new(keys: TransportKeys) -> Self {
        let (next, opened) = keys.counts();
        let mut window = ReplayWindow::default();
        // The first numbers belong to the handshake's messages, so no datagram may have them.
        (0..opened).for_each(|number| _ = window.accept(number));
        Self { keys, next, window }
    }

    /// Seals a datagram.
    ///
    /// # Errors
    /// Fails if the datagram is too long, or the association is used up.
    pub fn seal(&mut self, data: &[u8]) -> Result<Vec<u8>, DatagramError> {
        if self.next >= DATAGRAMS_MAX {
            return Err(DatagramError::UsedUp);
        }
        let fits = data.len() <= DATAGRAM_BYTES_MAX;
        let message = fits.then(|| self.keys.seal(self.next, MessageKind::Data, data)).flatten();
        let message = message.ok_or(DatagramError::Length(data.len()))?;
        let datagram = [self.next.to_be_bytes().as_slice(), &message].concat();
        self.next += 1;
        Ok(datagram)
    }

    /// Opens a received datagram.
    ///
    /// # Errors
    /// Fails if the datagram is not the peer's, or was received before. The caller counts and drops such a datagram, and
    /// the association continues.
    pub fn open(&mut self, datagram: &[u8]) -> Result<Vec<u8>, DatagramError> {
        let wrong = DatagramError::Length(datagram.len());
        let (number, message) = datagram.split_first_chunk::<NUMBER_BYTES>().ok_or(wrong)?;
        if !(OVERHEAD_BYTES..=DATAGRAM_BYTES_MAX + OVERHEAD_BYTES).contains(&message.len()) {
            return Err(wrong);
        }
        let number = u64::from_be_bytes(*number);
        if number >= DATAGRAMS_MAX {
            return Err(DatagramError::Damaged);
        }
        // The number is checked before anything is decrypted.
        if !self.window.is_new(number) {
            return Err(DatagramError::Again(number));
        }
        let mut plain = vec![0; message.len()];
        let Some((MessageKind::Data, data)) = self.keys.open(number, message, &mut plain) else {
            return Err(DatagramError::Damaged);
        };
        // Only a datagram that decrypts moves the window.
        self.window.accept(number);
        Ok(data.to_vec())
    }
}
