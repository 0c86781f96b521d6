//! Encrypted messages of an association: over a byte stream ([`SealedStream`]) or in datagrams ([`SealedDatagrams`]).
//!
//! Messages are encrypted with AES-256-GCM and a key for each direction. The nonce is the number of the message in its
//! direction. The plaintext begins with a byte for the kind of message. A message that was changed, repeated, or sent back
//! to its sender is not accepted; in a stream, neither is one after a missing message, or out of order.

mod datagrams;
mod keys;
mod stream;
mod window;

pub use datagrams::{DATAGRAM_BYTES_MAX, DATAGRAMS_MAX, DatagramError, SealedDatagrams};
pub use keys::REKEY_MESSAGES;
pub(crate) use keys::{MessageKind, TransportKeys};
pub use stream::{BUFFERED_BYTES_MAX, MESSAGE_BYTES_MAX, SealedStream, StreamEvent, TransportError};
pub use window::{ReplayWindow, WINDOW};
