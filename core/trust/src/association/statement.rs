//! What an identity signs in a handshake, and how that is carried.

use super::message::VERSION;
use super::{HandshakeError, Message, Role};
use crate::key::{Context, Identity, PublicKey, Signature};
use snow::HandshakeState;

const CONTEXT: Context = Context::new("association");

/// "In this version, in this role, in the handshake that has come so far, this X25519 key is mine."
pub(super) struct Statement([u8; 66]);

impl Statement {
    /// Of the side that has this role and this key. `handshake` is as it was before the message that carries the statement.
    pub(super) fn new(role: Role, handshake: &[u8; 32], key: &[u8; 32]) -> Self {
        let mut bytes = [0; 66];
        bytes[0] = VERSION;
        bytes[1] = match role {
            Role::Initiator => 1,
            Role::Responder => 2,
        };
        bytes[2..34].copy_from_slice(handshake);
        bytes[34..].copy_from_slice(key);
        Self(bytes)
    }

    /// The identity and its signature, as a payload begins with them.
    pub(super) fn sign(&self, identity: &Identity) -> Vec<u8> {
        [identity.public().as_bytes().as_slice(), &identity.sign(CONTEXT, &self.0).0].concat()
    }

    /// Whose statement the payload of a message says that it is, and the signature, which nobody has checked yet; and what follows them.
    pub(super) fn parse(
        payload: &[u8],
        message: Message,
    ) -> Result<(PublicKey, Signature, &[u8]), HandshakeError> {
        let short = HandshakeError::Length { message, bytes: payload.len() };
        let (key, rest) = payload.split_first_chunk().ok_or_else(|| short.clone())?;
        let (signature, rest) = rest.split_first_chunk().ok_or(short)?;
        let key = PublicKey::from_bytes(*key).map_err(|_| HandshakeError::NoIdentity(message))?;
        Ok((key, Signature(*signature), rest))
    }

    /// Whether that identity signed it.
    pub(super) fn verify(&self, key: PublicKey, signature: &Signature) -> Result<(), HandshakeError> {
        key.verify(CONTEXT, &self.0, signature).map_err(|_| HandshakeError::Signature { key })
    }
}

/// The hash of all that the handshake consisted of until now.
pub(super) fn hash(noise: &HandshakeState) -> Result<[u8; 32], HandshakeError> {
    noise.get_handshake_hash().try_into().map_err(|_| HandshakeError::Library("its hash has another length"))
}

/// The peer's X25519 key, as the message that was read last brought it.
pub(super) fn remote(noise: &HandshakeState, message: Message) -> Result<[u8; 32], HandshakeError> {
    noise.get_remote_static().and_then(|key| key.try_into().ok()).ok_or(HandshakeError::Damaged(message))
}
