//! Encrypted messages over a stream of bytes: two bytes of length, and so many bytes of message. Numbers are not sent: both sides count.

use super::keys::OVERHEAD_BYTES;
use super::{MessageKind, TransportKeys};
use crate::association::frame::LENGTH_BYTES;

/// The most bytes that one message carries.
pub const MESSAGE_BYTES_MAX: usize = 16 << 10;
const SEALED_BYTES_MAX: usize = MESSAGE_BYTES_MAX + OVERHEAD_BYTES;
/// The most bytes that a [`SealedStream`] keeps of what it was fed: one message.
pub const BUFFERED_BYTES_MAX: usize = LENGTH_BYTES + SEALED_BYTES_MAX;

/// What came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEvent {
    /// Bytes that the peer has sent: at least one, at most [`MESSAGE_BYTES_MAX`].
    Data(Vec<u8>),
    /// The peer sends nothing more, and says so.
    End,
}

/// Why a stream is over before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// A length that no message has.
    #[error("a message of {0} bytes was announced, and none is so long or so short")]
    Length(usize),
    /// It does not open.
    #[error(
        "a message is damaged, or not the next one of this association: somebody on the way may be changing it"
    )]
    Damaged,
    /// It opens, and should not be there.
    #[error("the peer sends a message that has no place there")]
    Misplaced,
    /// More after the end.
    #[error("more follows after the end")]
    AfterEnd,
    /// The bytes end before the end.
    #[error("the connection ended in the middle: the peer is gone, or somebody cut it")]
    Cut,
    /// One's own side has said that nothing follows.
    #[error("nothing can be sent any more: the end was sent before")]
    Finished,
    /// An error came before.
    #[error("the association is over")]
    Over,
}

/// One side of an encrypted stream. The first error ends it: nothing can be sent or read afterwards.
#[derive(Debug)]
pub struct SealedStream {
    /// Nothing after an error.
    keys: Option<TransportKeys>,
    incoming: Vec<u8>,
    is_finished: bool,
    is_ended: bool,
}

impl SealedStream {
    pub(crate) fn new(keys: TransportKeys) -> Self {
        Self { keys: Some(keys), incoming: Vec::new(), is_finished: false, is_ended: false }
    }

    /// Seals the first [`MESSAGE_BYTES_MAX`] bytes, or as many as there are, and appends what is to be sent to `out`. How many bytes that were;
    /// for none, nothing is sent.
    ///
    /// # Errors
    /// After [`SealedStream::finish`], and after an error.
    pub fn send(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<usize, TransportError> {
        let data = data.get(..MESSAGE_BYTES_MAX).unwrap_or(data);
        if !data.is_empty() {
            self.seal(MessageKind::Data, data, out)?;
        }
        Ok(data.len())
    }

    /// Says that nothing follows, and appends what is to be sent to `out`. The other direction stays open.
    ///
    /// # Errors
    /// The second time, and after an error.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), TransportError> {
        self.seal(MessageKind::End, &[], out)?;
        self.is_finished = true;
        Ok(())
    }

    /// Takes bytes off the front of `bytes` until there is something to say or nothing is left of them.
    ///
    /// # Errors
    /// What came is not what the peer has sent, or it was not the peer's to send. All that came before was.
    pub fn feed(&mut self, bytes: &mut &[u8]) -> Result<Option<StreamEvent>, TransportError> {
        if self.keys.is_none() {
            return Err(TransportError::Over);
        }
        let event = self.next(bytes);
        if event.is_err() {
            self.end_at_once();
        }
        event
    }

    /// The bytes that carry the messages have ended.
    ///
    /// # Errors
    /// Before the peer has said so, that is a cut.
    pub fn cut(&mut self) -> Result<(), TransportError> {
        if self.is_ended && self.incoming.is_empty() {
            return Ok(());
        }
        self.end_at_once();
        Err(TransportError::Cut)
    }

    /// Whether the peer has said that nothing follows.
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Messages of this association until now, those of its making included: sent, and received.
    pub fn counts(&self) -> (u64, u64) {
        self.keys.as_ref().map_or((0, 0), TransportKeys::counts)
    }

    /// Bytes of a message that is not whole yet.
    pub fn buffered(&self) -> usize {
        self.incoming.len()
    }

    fn end_at_once(&mut self) {
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
            self.end_at_once();
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
        let said = self.incoming.first_chunk().copied().unwrap_or_default();
        let length = usize::from(u16::from_be_bytes(said));
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

    /// Whether there are so many bytes now.
    fn fill(&mut self, wanted: usize, bytes: &mut &[u8]) -> bool {
        let missing = wanted.saturating_sub(self.incoming.len());
        let (now, later) = bytes.split_at(missing.min(bytes.len()));
        self.incoming.extend_from_slice(now);
        *bytes = later;
        self.incoming.len() >= wanted
    }
}
