//! The private half: what signs.

use super::{PublicKey, Signature};
use ed25519_dalek::{Signer, SigningKey};
use rand_core::{CryptoRng, RngCore};
use std::fmt;
use zeroize::Zeroizing;

/// What a signature is for. It is part of what is signed, so that a signature made for one purpose is none for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignatureContext(&'static str);

impl SignatureContext {
    /// A context of this name, which no other purpose has; at most 255 bytes.
    ///
    /// # Panics
    /// Where the name is longer: at compile time, as contexts are constants.
    pub const fn new(name: &'static str) -> Self {
        assert!(name.len() <= 255, "a context has at most 255 bytes");
        Self(name)
    }

    /// The bytes that are signed for a message: they begin as nothing else that an identity signs (the blocks of Biscuit tokens begin with a
    /// zero), and the context's length stands before it, so that no two pairs of context and message are the same bytes.
    pub(super) fn signed(self, message: &[u8]) -> Vec<u8> {
        const BEGIN: &[u8] = b"weir signature 1\0";
        let mut bytes = Vec::with_capacity(BEGIN.len() + 1 + self.0.len() + message.len());
        bytes.extend_from_slice(BEGIN);
        // It is at most 255: see `new`.
        bytes.push(u8::try_from(self.0.len()).unwrap_or(u8::MAX));
        bytes.extend_from_slice(self.0.as_bytes());
        bytes.extend_from_slice(message);
        bytes
    }
}

/// A private key: whoever holds it is who its public key says. It is wiped from memory when it is dropped, and shows nothing of itself.
#[derive(Clone)]
pub struct Identity {
    key: SigningKey,
    public: PublicKey,
}

impl Identity {
    /// A new one from 32 random bytes.
    pub fn generate(random: &mut (impl RngCore + CryptoRng)) -> Self {
        let mut seed = Zeroizing::new([0; 32]);
        random.fill_bytes(seed.as_mut());
        Self::from_seed(&seed)
    }

    /// The one that these 32 secret bytes (the private key of RFC 8032) give.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        let key = SigningKey::from_bytes(seed);
        // Made by multiplying the base point, so neither weak nor another encoding.
        let public = PublicKey::from_verifying(&key.verifying_key());
        Self { key, public }
    }

    /// The secret bytes: for its file, and for the library that signs tokens.
    pub(crate) fn seed(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.key.to_bytes())
    }

    /// What others know it by.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// Signs a message in a context (RFC 8032: without randomness, so the same every time).
    pub fn sign(&self, context: SignatureContext, message: &[u8]) -> Signature {
        Signature(self.key.sign(&context.signed(message)).to_bytes())
    }
}

impl fmt::Debug for Identity {
    /// Its public key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.public)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GREETING: SignatureContext = SignatureContext::new("greeting");
    const PARTING: SignatureContext = SignatureContext::new("parting");

    #[test]
    fn a_signature_holds_for_one_key_one_context_and_one_message() {
        let (mine, other) = (Identity::from_seed(&[1; 32]), Identity::from_seed(&[2; 32]));
        let signature = mine.sign(GREETING, b"hello");
        assert!(mine.public().verify(GREETING, b"hello", &signature).is_ok());
        assert!(mine.public().verify(PARTING, b"hello", &signature).is_err());
        assert!(mine.public().verify(GREETING, b"hullo", &signature).is_err());
        assert!(other.public().verify(GREETING, b"hello", &signature).is_err());
        for bit in 0..512 {
            let mut flipped = signature;
            flipped.0[bit / 8] ^= 1 << (bit % 8);
            assert!(mine.public().verify(GREETING, b"hello", &flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn where_the_context_ends_is_part_of_what_is_signed() {
        assert_ne!(SignatureContext::new("ab").signed(b"c"), SignatureContext::new("a").signed(b"bc"));
    }

    #[test]
    fn an_identity_shows_nothing_of_itself() {
        let shown = format!("{:?}", Identity::from_seed(&[0xab; 32]));
        assert!(shown.starts_with("Identity(weir-key:"), "{shown}");
        assert!(!shown.contains("abab") && !shown.contains("171, 171"), "{shown}");
    }
}
