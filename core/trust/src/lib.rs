//! Who may do what: keys, credentials, key establishment.
//!
//! - [`key`]: identities are Ed25519 keys; how they are written, kept in files and sign.
//!
//! Pure: bytes and text in, values out. Time and randomness are arguments; strangers' bytes give errors, never panics.

#![forbid(unsafe_code)]

mod base32;
pub mod key;
