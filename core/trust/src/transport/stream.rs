//! Encrypted messages over a byte stream: two bytes of length, then the message. Both sides count the messages, so the
//! numbers are not sent.

use super::keys::OVERHEAD_BYTES;
use super::{MessageKind, TransportKeys};
use crate::association::frame::LENGTH_BYTES;

/// The most payload bytes of one message.
pub const MESSAGE_BYTES_MAX: usize = 16 << 10;
const SEALED_BYTES_MAX: usize = MESSAGE_BYTES_MAX + OVERHEAD_BYTES;
/// The most bytes of its input that a [`SealedStream`] buffers: one message with its length.
pub const BUFFERED_BYTES_MAX: usize = LENGTH_BYTES + SEALED_BYTES_MAX;

/// An event of the incoming stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEvent {
    /// Bytes from the peer: at least one, at most [`MESSAGE_BYTES_MAX`].
    Data(Vec<u8>),
    /// The end of the peer's direction.
    End,
}

/// The reason why a stream fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// A length that no message has.
    #[error("the peer announces a message of {0} bytes, which is too short or too long")]
    Length(usize),
    /// A message that does not decrypt.
    #[error(
        "a message is damaged, or not the next one of this association: it may have been changed on the path"
    )]
    Damaged,
    /// A valid message that is not allowed at this point of the stream.
    #[error("the peer sends a message that is not allowed at this point")]
    Misplaced,
    /// Bytes of the peer after the end of its direction.
    #[error("the peer sends more after it has ended its direction of the stream")]
    AfterEnd,
    /// The connection closed before the end.
    #[error(
        "the connection closed before the peer ended the stream: the peer has stopped, or the connection was cut"
    )]
    Cut,
    /// The local side has ended its direction already.
    #[error("nothing can be sent any more: this side has ended its direction of the stream")]
    Finished,
    /// The stream has failed before.
    #[error("the association is over")]
    Over,
}

/// One side of an encrypted stream. The first error ends the stream: nothing can be sent or read afterwards.
#[derive(Debug)]
pub struct SealedStream {
    /// The keys; `None` after an error.
    keys: Option<TransportKeys>,
    /// The received bytes of an incomplete message.
    incoming: Vec<u8>,
    /// True if the local side has ended its direction.
    is_finished: bool,
    /// True if the peer has ended its direction.
    is_ended: bool,
}

impl SealedStream {
    pub(crate) fn new(keys: TransportKeys) -> Self {
        Self { keys: Some(keys), incoming: Vec::new(), is_finished: false, is_ended: false }
    }

    /// Encrypts the first [`MESSAGE_BYTES_MAX`] bytes of `data`, or all if they are fewer, and appends the message to
    /// `out`. Returns the number of encrypted bytes. Empty `data` makes no message.
    ///
    /// # Errors
    /// Fails after [`SealedStream::finish`], and after an error.
    pub fn send(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<usize, TransportError> {
        let data = data.get(..MESSAGE_BYTES_MAX).unwrap_or(data);
        if !data.is_empty() {
            self.seal(MessageKind::Data, data, out)?;
        }
        Ok(data.len())
    }

    /// Ends the local side's direction: appends the closing message to `out`. The peer's direction stays open.
    ///
    /// # Errors
    /// Fails at the second call, and after an error.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), TransportError> {
        self.seal(MessageKind::End, &[], out)?;
        self.is_finished = true;
        Ok(())
    }

    /// Consumes received bytes from the front of `bytes` until there is an event or no byte is left.
    ///
    /// # Errors
    /// Fails for other bytes than the peer's next message, and for a message that is not allowed at this point. All
    /// earlier events are valid.
    pub fn feed(&mut self, bytes: &mut &[u8]) -> Result<Option<StreamEvent>, TransportError> {
        if self.keys.is_none() {
            return Err(TransportError::Over);
        }
        let event = self.next(bytes);
        if event.is_err() {
            self.fail();
        }
        event
    }

    /// Handles the end of the connection.
    ///
    /// # Errors
    /// [`TransportError::Cut`] if the peer has not ended its direction before.
    pub fn handle_close(&mut self) -> Result<(), TransportError> {
        if self.is_ended && self.incoming.is_empty() {
            return Ok(());
        }
        self.fail();
        Err(TransportError::Cut)
    }

    /// Returns true if the peer has ended its direction.
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Returns the numbers of messages sent and received so far. They include the fourth message of the handshake.
    pub fn counts(&self) -> (u64, u64) {
        self.keys.as_ref().map_or((0, 0), TransportKeys::counts)
    }

    /// Returns the number of buffered bytes of an incomplete message.
    pub fn buffered(&self) -> usize {
        self.incoming.len()
    }

    /// Erases the keys and drops the buffer, after an error.
    fn fail(&mut self) {
        self.keys = None;
        self.incoming = Vec::new();
        self.is_ended = false;
    }

    fn seal(&mut self, kind: MessageKind, data: &[u8], out: &mut Vec<u8>) -> Result<(), TransportError> {
        if self.is_finished {
            return Err(TransportError::Finished);
        }
        let message = self.keys.as_mut().ok_or(TransportError::Over)?.seal_next(kind, data);
        let framed = message.as_deref().and_then(crate::association::frame::framed);
        let Some(framed) = framed else {
            self.fail();
            return Err(TransportError::Over);
        };
        out.extend_from_slice(&framed);
        Ok(())
    }

    fn next(&mut self, bytes: &mut &[u8]) -> Result<Option<StreamEvent>, TransportError> {
        if self.is_ended && !bytes.is_empty() {
            return Err(TransportError::AfterEnd);
        }
        if !self.fill(LENGTH_BYTES, bytes) {
            return Ok(None);
        }
        let length_bytes = self.incoming.first_chunk().copied().unwrap_or_default();
        let length = usize::from(u16::from_be_bytes(length_bytes));
        if !(OVERHEAD_BYTES..=SEALED_BYTES_MAX).contains(&length) {
            return Err(TransportError::Length(length));
        }
        if !self.fill(LENGTH_BYTES + length, bytes) {
            return Ok(None);
        }
        let message = self.incoming.get(LENGTH_BYTES..).unwrap_or_default();
        let mut plain = vec![0; message.len()];
        let keys = self.keys.as_mut().ok_or(TransportError::Over)?;
        let event = match keys.open_next(message, &mut plain).ok_or(TransportError::Damaged)? {
            (MessageKind::Data, data) if !data.is_empty() => StreamEvent::Data(data.to_vec()),
            (MessageKind::End, []) => StreamEvent::End,
            _ => return Err(TransportError::Misplaced),
        };
        self.incoming.clear();
        self.is_ended = event == StreamEvent::End;
        Ok(Some(event))
    }

    /// Moves received bytes into the buffer until the buffer has `wanted` bytes. Returns true if it has them.
    fn fill(&mut self, wanted: usize, bytes: &mut &[u8]) -> bool {
        let missing = wanted.saturating_sub(self.incoming.len());
        let (now, later) = bytes.split_at(missing.min(bytes.len()));
        self.incoming.extend_from_slice(now);
        *bytes = later;
        self.incoming.len() >= wanted
    }
}
