//! Encrypted messages of an association: over a byte stream ([`SealedStream`]) or in datagrams ([`SealedDatagrams`]).
//!
//! Messages are encrypted with AES-256-GCM and a key for each direction. The messages of each direction are numbered
//! from 0, and the nonce of a message is its number. The first byte of the plaintext states the kind of the message. A
//! message is rejected if it was changed, repeated, or sent back to its sender. A stream also rejects each message that
//! is out of order or follows a missing one.

mod datagrams;
mod keys;
mod stream;
mod window;

pub use datagrams::{DATAGRAM_BYTES_MAX, DATAGRAMS_MAX, DatagramError, SealedDatagrams};
pub use keys::REKEY_MESSAGES;
pub(crate) use keys::{MessageKind, TransportKeys};
pub use stream::{BUFFERED_BYTES_MAX, MESSAGE_BYTES_MAX, SealedStream, StreamEvent, TransportError};
pub use window::{ReplayWindow, WINDOW};
