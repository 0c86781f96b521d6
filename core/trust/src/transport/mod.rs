//! Encrypted messages of an association over a byte stream ([`SealedStream`]), and the window against replay of datagrams.
//!
//! Messages are encrypted with AES-256-GCM and a key for each direction. The messages of each direction are numbered
//! from 0, and the nonce of a message is its number. The first byte of the plaintext states the kind of the message. A
//! message is rejected if it was changed, repeated, out of order, sent back to its sender, or follows a missing one.
//! [`crate::datagrams`] has the messages of an association over datagrams.

mod keys;
mod stream;
mod window;

pub use keys::REKEY_MESSAGES;
pub(crate) use keys::{MessageKind, TransportKeys};
pub use stream::{BUFFERED_BYTES_MAX, MESSAGE_BYTES_MAX, SealedStream, StreamEvent, TransportError};
pub use window::{ReplayWindow, WINDOW};
