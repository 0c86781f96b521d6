//! Identities: Ed25519 keys (RFC 8032), their texts and signatures, and the file of a private key.

mod file;
mod identity;
mod public;

pub use file::{FILE_BYTES_MAX, KeyFile, KeyFileError, PASSPHRASE_BYTES_MAX, PassphraseCost};
pub use identity::{Identity, SignatureContext};
pub use public::{BadSignature, KeyError, PublicKey, Signature};
