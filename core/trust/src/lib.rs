//! Who may do what: keys, credentials, key establishment.
//!
//! - [`key`]: identities are Ed25519 keys; how they are written, kept in files and sign.
//! - [`grant`]: what is allowed, as a type; of two grants there is what both allow.
//! - [`credential`]: grants that were signed and passed on from key to key, as Biscuit tokens.
//! - [`revocation`]: signed lists of revoked credentials, and the union of them that a node keeps.
//! - [`signature`]: who vouches for a module.
//! - [`explain`]: all of that in words.
//! - [`association`]: key establishment between two identities; [`transport`]: what they say to each other afterwards.
//! - [`gate`]: how much is done for strangers before they are known.
//!
//! Pure: bytes and text in, values out. Time and randomness are arguments; strangers' bytes give errors, never panics.

#![forbid(unsafe_code)]

pub mod association;
mod base32;
pub mod credential;
pub mod explain;
pub mod gate;
pub mod grant;
pub mod key;
pub mod revocation;
pub mod signature;
pub mod transport;
