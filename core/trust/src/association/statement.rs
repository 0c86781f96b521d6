//! What an identity signs in a handshake, and how that is carried.

use super::message::VERSION;
use super::{Handshake, HandshakeError, HandshakeMessage, HandshakeRole};
use crate::key::{Identity, PublicKey, Signature, SignatureContext};

const CONTEXT: SignatureContext = SignatureContext::new("association");

/// The length of a [`KeyStatement`].
pub const STATEMENT_BYTES: usize = 66;

/// "In this version, in this role, in the handshake that has come so far, this X25519 key is mine."
///
/// This is all that a node's identity ever signs. It is made of its parts and of nothing else, so that whoever is asked for a signature under one
/// signs nothing that could be taken for anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyStatement([u8; STATEMENT_BYTES]);

impl KeyStatement {
    /// Of the side that has this role and this key. `handshake` is as it was before the message that carries the statement.
    pub fn new(role: HandshakeRole, handshake: &[u8; 32], key: &[u8; 32]) -> Self {
        let mut bytes = [0; STATEMENT_BYTES];
        bytes[0] = VERSION;
        bytes[1] = code(role);
        bytes[2..34].copy_from_slice(handshake);
        bytes[34..].copy_from_slice(key);
        Self(bytes)
    }

    /// The statement that these bytes are; none where they are none of this version, or of another role.
    pub fn read(bytes: &[u8], role: HandshakeRole) -> Option<Self> {
        let bytes: [u8; STATEMENT_BYTES] = bytes.try_into().ok()?;
        (bytes[0] == VERSION && bytes[1] == code(role)).then_some(Self(bytes))
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; STATEMENT_BYTES] {
        &self.0
    }

    /// The identity and its signature, as a payload begins with them.
    pub(super) fn sign(&self, signer: &dyn Signer) -> Result<Vec<u8>, HandshakeError> {
        let signature = signer.sign_statement(self)?;
        Ok([signer.public().as_bytes().as_slice(), &signature.0].concat())
    }

    /// Whose statement the payload of a message says that it is, and the signature, which nobody has checked yet; and what follows them.
    pub(super) fn parse(
        payload: &[u8],
        message: HandshakeMessage,
    ) -> Result<(PublicKey, Signature, &[u8]), HandshakeError> {
        let short = HandshakeError::Length { message, bytes: payload.len() };
        let (key, rest) = payload.split_first_chunk().ok_or_else(|| short.clone())?;
        let (signature, rest) = rest.split_first_chunk().ok_or(short)?;
        let key = PublicKey::from_bytes(*key).map_err(|_| HandshakeError::NoIdentity(message))?;
        Ok((key, Signature(*signature), rest))
    }

    /// Whether that identity signed it.
    ///
    /// # Errors
    /// It did not.
    pub fn verify(&self, key: PublicKey, signature: &Signature) -> Result<(), HandshakeError> {
        key.verify(CONTEXT, &self.0, signature).map_err(|_| HandshakeError::Signature { key })
    }
}

fn code(role: HandshakeRole) -> u8 {
    match role {
        HandshakeRole::Initiator => 1,
        HandshakeRole::Responder => 2,
    }
}

/// The private key is not at hand: nothing can be signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what keeps the private key does not sign")]
pub struct Unsigned;

/// Who signs for an identity in handshakes: the identity itself, or whoever keeps its private key elsewhere.
pub trait Signer {
    /// Whose signatures these are.
    fn public(&self) -> PublicKey;

    /// The identity's signature under a statement.
    ///
    /// # Errors
    /// [`Unsigned`]: there is no handshake then.
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

/// The hash of all that the handshake consisted of until now.
pub(super) fn hash(noise: &Handshake) -> Result<[u8; 32], HandshakeError> {
    noise.hash().try_into().map_err(|_| HandshakeError::Library("its hash has another length"))
}

/// The peer's X25519 key, as the message that was read last brought it.
pub(super) fn remote(noise: &Handshake, message: HandshakeMessage) -> Result<[u8; 32], HandshakeError> {
    noise.remote().and_then(|key| key.try_into().ok()).ok_or(HandshakeError::Damaged(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_read_as_what_it_is_and_nothing_else_is_one() {
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
