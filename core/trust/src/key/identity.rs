//! Private keys, and signing.

use super::{PublicKey, Signature};
use ed25519_dalek::{Signer, SigningKey};
use rand_core::{CryptoRng, RngCore};
use std::fmt;
use zeroize::Zeroizing;

/// The purpose of a signature. It is part of the signed bytes, so that a signature made for one purpose is invalid for
/// another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignatureContext(&'static str);

impl SignatureContext {
    /// Makes a context. Its name has at most 255 bytes, and no other context has the same name.
    ///
    /// # Panics
    /// Panics if the name is longer. This happens at compile time, as contexts are constants.
    pub const fn new(name: &'static str) -> Self {
        assert!(name.len() <= 255, "a context has at most 255 bytes");
        Self(name)
    }

    /// Returns the bytes that are signed for a message: a constant, the length of the context, the context, the
    /// message. Because of the length, no two pairs of context and message have the same bytes. Because of the
    /// constant, they differ from the blocks of Biscuit tokens that an identity signs, which begin with a zero.
    pub(super) fn signed(self, message: &[u8]) -> Vec<u8> {
        const BEGIN: &[u8] = b"weir signature 1\0";
        let mut bytes = Vec::with_capacity(BEGIN.len() + 1 + self.0.len() + message.len());
        bytes.extend_from_slice(BEGIN);
        // `new` has checked that the length is at most 255.
        bytes.push(u8::try_from(self.0.len()).unwrap_or(u8::MAX));
        bytes.extend_from_slice(self.0.as_bytes());
        bytes.extend_from_slice(message);
        bytes
    }
}

/// A private key, with which its holder proves an identity. The key is erased from memory when this value is dropped.
/// `Debug` shows only the public key.
#[derive(Clone)]
pub struct Identity {
    key: SigningKey,
    public: PublicKey,
}

impl Identity {
    /// Makes a new key from 32 random bytes.
    pub fn generate(random: &mut (impl RngCore + CryptoRng)) -> Self {
        let mut seed = Zeroizing::new([0; 32]);
        random.fill_bytes(seed.as_mut());
        Self::from_seed(&seed)
    }

    /// Returns the key with these 32 secret bytes (the private key of RFC 8032).
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        let key = SigningKey::from_bytes(seed);
        // The public key is a multiple of the base point, so it is neither weak nor a second encoding of a point.
        let public = PublicKey::from_verifying(&key.verifying_key());
        Self { key, public }
    }

    /// Returns the secret bytes, for the key's file and for the library that signs tokens.
    pub(crate) fn seed(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.key.to_bytes())
    }

    /// Returns the public key.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// Signs a message in a context. Signatures are deterministic (RFC 8032).
    pub fn sign(&self, context: SignatureContext, message: &[u8]) -> Signature {
        Signature(self.key.sign(&context.signed(message)).to_bytes())
    }

    /// Signs the payload of a DSSE envelope v1. The signed bytes begin with the envelope's version, so they differ from
    /// those of [`sign`](Self::sign).
    pub fn sign_envelope(&self, payload_type: &str, payload: &[u8]) -> Signature {
        Signature(self.key.sign(&envelope_bytes(payload_type, payload)).to_bytes())
    }
}

/// Returns the bytes that are signed for a DSSE envelope v1: its pre-authentication encoding (PAE).
pub(super) fn envelope_bytes(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len()).into_bytes();
    bytes.extend_from_slice(payload);
    bytes
}

impl fmt::Debug for Identity {
    /// Writes the public key.
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

    // The example of the specification, https://github.com/secure-systems-lab/dsse, protocol.md.
    #[test]
    fn the_bytes_of_an_envelope_are_those_of_the_specification() {
        let bytes = envelope_bytes("http://example.com/HelloWorld", b"hello world");
        assert_eq!(bytes, b"DSSEv1 29 http://example.com/HelloWorld 11 hello world");
    }

    #[test]
    fn the_length_of_the_context_is_signed() {
        assert_ne!(SignatureContext::new("ab").signed(b"c"), SignatureContext::new("a").signed(b"bc"));
    }

    #[test]
    fn debug_output_of_an_identity_has_no_secret() {
        let shown = format!("{:?}", Identity::from_seed(&[0xab; 32]));
        assert!(shown.starts_with("Identity(weir-key:"), "{shown}");
        assert!(!shown.contains("abab") && !shown.contains("171, 171"), "{shown}");
    }
}
