//! What is said in an association: encrypted messages, over a stream of bytes ([`SealedStream`]) or in datagrams ([`SealedDatagrams`]).
//!
//! AES-256-GCM with a key for each direction and the number of the message in it as nonce. The plaintext begins with a byte that says what
//! kind of message it is. A message is opened once and in its place, so what is changed, left out, repeated, moved or turned round does not
//! open.

mod datagrams;
mod keys;
mod stream;
mod window;

pub use datagrams::{DATAGRAM_BYTES_MAX, DATAGRAMS_MAX, DatagramError, SealedDatagrams};
pub use keys::REKEY_MESSAGES;
pub(crate) use keys::{MessageKind, TransportKeys};
pub use stream::{BUFFERED_BYTES_MAX, MESSAGE_BYTES_MAX, SealedStream, StreamEvent, TransportError};
pub use window::{ReplayWindow, WINDOW};
