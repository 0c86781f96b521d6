//! Who may do what: keys, credentials, key establishment.
//!
//! - [`key`]: identities are Ed25519 keys; how they are written, kept in files and sign.
//! - [`association`]: key establishment between two identities; [`transport`]: what they say to each other afterwards.
//! - [`gate`]: how much is done for strangers before they are known.
//!
//! Pure: bytes and text in, values out. Time and randomness are arguments; strangers' bytes give errors, never panics.

#![forbid(unsafe_code)]

pub mod association;
mod base32;
pub mod gate;
pub mod key;
pub mod transport;
