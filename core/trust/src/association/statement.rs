//! The statement that an identity signs in a handshake, and its encoding.

use super::message::VERSION;
use super::{Handshake, HandshakeError, HandshakeMessage, HandshakeRole};
use crate::key::{Identity, PublicKey, Signature, SignatureContext};

const CONTEXT: SignatureContext = SignatureContext::new("association");

/// The length of a [`KeyStatement`].
pub const STATEMENT_BYTES: usize = 66;

/// The statement "In this version, in this role, in this handshake, this X25519 key is mine."
///
/// A key agent signs only statements of this form with a node's identity. The signed bytes contain nothing else, and the
/// signature's context is that of handshakes. So the signature cannot be used for another purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyStatement([u8; STATEMENT_BYTES]);

impl KeyStatement {
    /// Makes the statement of the side with this role and X25519 key. `handshake` is the handshake hash before the
    /// message that carries the statement.
    pub fn new(role: HandshakeRole, handshake: &[u8; 32], key: &[u8; 32]) -> Self {
        let mut bytes = [0; STATEMENT_BYTES];
        bytes[0] = VERSION;
        bytes[1] = role_byte(role);
        bytes[2..34].copy_from_slice(handshake);
        bytes[34..].copy_from_slice(key);
        Self(bytes)
    }

    /// Reads a statement; `None` for bytes of another length, version or role.
    pub fn read(bytes: &[u8], role: HandshakeRole) -> Option<Self> {
        let bytes: [u8; STATEMENT_BYTES] = bytes.try_into().ok()?;
        (bytes[0] == VERSION && bytes[1] == role_byte(role)).then_some(Self(bytes))
    }

    /// Returns the bytes of the statement.
    pub fn as_bytes(&self) -> &[u8; STATEMENT_BYTES] {
        &self.0
    }

    /// Signs the statement. Returns the public key and the signature, with which the payload of a message begins.
    pub(super) fn sign(&self, signer: &dyn Signer) -> Result<Vec<u8>, HandshakeError> {
        let signature = signer.sign_statement(self)?;
        Ok([signer.public().as_bytes().as_slice(), &signature.0].concat())
    }

    /// Checks that the owner of `key` signed the statement.
    ///
    /// # Errors
    /// [`HandshakeError::Signature`] if the signature is not one of this key over this statement.
    pub fn verify(&self, key: PublicKey, signature: &Signature) -> Result<(), HandshakeError> {
        key.verify(CONTEXT, &self.0, signature).map_err(|_| HandshakeError::Signature { key })
    }
}

/// Splits the payload of a message into the public key, the signature and the credentials. The signature is not verified.
pub(super) fn split_payload(
    payload: &[u8],
    message: HandshakeMessage,
) -> Result<(PublicKey, Signature, &[u8]), HandshakeError> {
    let too_short = HandshakeError::Length { message, bytes: payload.len() };
    let (key, rest) = payload.split_first_chunk().ok_or_else(|| too_short.clone())?;
    let (signature, credentials) = rest.split_first_chunk().ok_or(too_short)?;
    let key = PublicKey::from_bytes(*key).map_err(|_| HandshakeError::NoIdentity(message))?;
    Ok((key, Signature(*signature), credentials))
}

fn role_byte(role: HandshakeRole) -> u8 {
    match role {
        HandshakeRole::Initiator => 1,
        HandshakeRole::Responder => 2,
    }
}

/// The error for a signer that cannot use its private key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key agent does not sign")]
pub struct Unsigned;

/// A signer in handshakes: an [`Identity`], or a connection to the key agent that keeps one.
pub trait Signer {
    /// Returns the public key of the identity.
    fn public(&self) -> PublicKey;

    /// Signs a statement.
    ///
    /// # Errors
    /// [`Unsigned`], which ends the handshake.
    fn sign_statement(&self, statement: &KeyStatement) -> Result<Signature, Unsigned>;
}

impl Signer for Identity {
    fn public(&self) -> PublicKey {
        Self::public(self)
    }

    fn sign_statement(&self, statement: &KeyStatement) -> Result<Signature, Unsigned> {
        Ok(self.sign(CONTEXT, &statement.0))
    }
}

/// Returns the handshake hash over all messages so far.
pub(super) fn hash(noise: &Handshake) -> Result<[u8; 32], HandshakeError> {
    noise.hash().try_into().map_err(|_| HandshakeError::Library("its hash has another length"))
}

/// Returns the peer's X25519 key from the message that was read last.
pub(super) fn peer_static_key(
    noise: &Handshake,
    message: HandshakeMessage,
) -> Result<[u8; 32], HandshakeError> {
    noise.remote_static().and_then(|key| key.try_into().ok()).ok_or(HandshakeError::Damaged(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_statement_of_this_version_and_role_is_read() {
        let own = KeyStatement::new(HandshakeRole::Responder, &[3; 32], &[4; 32]);
        assert_eq!(KeyStatement::read(own.as_bytes(), HandshakeRole::Responder), Some(own));
        assert_eq!(KeyStatement::read(own.as_bytes(), HandshakeRole::Initiator), None);
        assert_eq!(KeyStatement::read(&own.0[..65], HandshakeRole::Responder), None);
        assert_eq!(KeyStatement::read(&[own.0.as_slice(), &[0]].concat(), HandshakeRole::Responder), None);
        for at in 0..2 {
            for value in 0..=u8::MAX {
                let mut other = own.0;
                other[at] = value;
                let read = KeyStatement::read(&other, HandshakeRole::Responder);
                assert_eq!(read.is_some(), other == own.0, "byte {at} is {value}");
            }
        }
    }
}
