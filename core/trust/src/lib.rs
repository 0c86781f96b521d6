//! Trust: keys, credentials and key establishment.
//!
//! - [`key`]: identities, which are Ed25519 keys; their texts, files and signatures.
//! - [`grant`]: rights as a type, and the rights that two grants have in common (their meet).
//! - [`credential`]: grants that are signed and delegated from key to key, as Biscuit tokens.
//! - [`digest`]: SHA-256 digests as text.
//! - [`revocation`]: signed lists of revoked credentials, and the union of all lists that a node keeps.
//! - [`signature`]: signatures of modules.
//! - [`explain`]: grants and credentials in words.
//! - [`association`]: key establishment between two identities; [`transport`]: encrypted messages between them.
//! - [`datagrams`]: associations over datagrams, with a cookie, retransmission and renewal of keys.
//! - [`gate`]: limits on the work for peers that are not authenticated yet.
//!
//! Pure: bytes and text in, values out. Time and randomness are arguments. Untrusted bytes give errors, never panics.

#![forbid(unsafe_code)]

pub mod association;
mod base32;
pub mod credential;
pub mod datagrams;
pub mod digest;
pub mod explain;
pub mod gate;
pub mod grant;
pub mod key;
pub mod revocation;
pub mod signature;
pub mod transport;
