//! Encrypted datagrams: eight bytes of number, and a message. They may come in any order, or not at all; none is taken twice.

use super::keys::OVERHEAD_BYTES;
use super::{MessageKind, ReplayWindow, TransportKeys};

/// The most bytes that a datagram carries, so that it fits into UDP over IPv6.
pub const DATAGRAM_BYTES_MAX: usize = 65_535 - 8 - NUMBER_BYTES - OVERHEAD_BYTES;
/// Datagrams of a direction after which the association is used up: another handshake makes another one. (Changing keys while datagrams overtake each
/// other would need both; with so many of the longest ones AES-GCM keeps within its limits for confidentiality.)
pub const DATAGRAMS_MAX: u64 = 1 << 32;

const NUMBER_BYTES: usize = 8;

/// Why a datagram is not taken, or not sent. Anybody can send one: those that do not open change nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatagramError {
    /// Too short or too long.
    #[error("a datagram of {0} bytes is none of an association")]
    Length(usize),
    /// It came before, or so late that it may have come before.
    #[error("datagram {0} came before, or too late")]
    Again(u64),
    /// It does not open.
    #[error("the datagram is not of this association, or was changed")]
    Damaged,
    /// There are no numbers left.
    #[error("the association is used up: another handshake makes another one")]
    UsedUp,
}

/// One side of an association in datagrams.
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
        // Those of the handshake came.
        (0..opened).for_each(|number| _ = window.accept(number));
        Self { keys, next, window }
    }

    /// Seals a datagram.
    ///
    /// # Errors
    /// It is too long, or the association is used up.
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

    /// Opens a datagram that came from somewhere.
    ///
    /// # Errors
    /// It is none of the peer's, or was taken before. It is to be counted and forgotten; the association goes on.
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
        // Before anything is decrypted for it.
        if !self.window.is_new(number) {
            return Err(DatagramError::Again(number));
        }
        let mut plain = vec![0; message.len()];
        let Some((MessageKind::Data, data)) = self.keys.open(number, message, &mut plain) else {
            return Err(DatagramError::Damaged);
        };
        // Only what opened moves the window.
        self.window.accept(number);
        Ok(data.to_vec())
    }
}
