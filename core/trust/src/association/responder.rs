//! The responder: the side that accepts connections. It answers unauthenticated peers, so [`crate::gate`] limits its
//! work.

use super::message::{Carrier, MessageHeader, PAYLOAD_BYTES_MAX, THIRD_BYTES_MIN, VERSION};
use super::statement::{KeyStatement, Signer, hash, peer_static_key, split_payload};
use super::{
    Association, CREDENTIALS_BYTES_MAX, Handshake, HandshakeError, HandshakeMessage, HandshakeRole, Peer,
    SECOND_BYTES, SplitKeys, frame, noise,
};
use crate::key::PublicKey;
use crate::transport::{MessageKind, TransportKeys};
use rand_core::{CryptoRng, RngCore};

/// Checks the length, the magic number and the offered versions of a first message. This needs no arithmetic on the
/// curve.
///
/// # Errors
/// Fails if the message is not a first message, or does not offer [`VERSION`].
pub fn check_first(message: &[u8]) -> Result<(), HandshakeError> {
    let position = HandshakeMessage::First;
    let (head, _) = MessageHeader::split(message)
        .ok_or(HandshakeError::Length { message: position, bytes: message.len() })?;
    head.choose()?;
    frame::check(position, message)
}

/// A responder that has answered an unauthenticated peer, and waits for the peer's identity.
#[derive(Debug)]
pub struct Responder {
    noise: Handshake,
}

impl Responder {
    /// Reads a peer's first message. Returns the second message, to be sent unchanged.
    ///
    /// This takes four multiplications on the curve and a signature, so [`crate::gate::HandshakeGate::next`] decides
    /// which first message is answered, and when.
    ///
    /// # Errors
    /// Fails if the message is not a first message, or does not offer [`VERSION`]. Fails also without randomness, and if
    /// the signer does not sign.
    pub fn begin(
        signer: &dyn Signer,
        message: &[u8],
        random: &mut (impl RngCore + CryptoRng),
    ) -> Result<(Self, Vec<u8>), HandshakeError> {
        Self::begin_over(Carrier::Stream, signer, message, random)
    }

    /// Reads the first message of a handshake in datagrams, and returns the second.
    pub(crate) fn begin_in_datagrams(
        signer: &dyn Signer,
        message: &[u8],
        random: &mut (impl RngCore + CryptoRng),
    ) -> Result<(Self, Vec<u8>), HandshakeError> {
        Self::begin_over(Carrier::Datagrams, signer, message, random)
    }

    fn begin_over(
        carrier: Carrier,
        signer: &dyn Signer,
        message: &[u8],
        random: &mut (impl RngCore + CryptoRng),
    ) -> Result<(Self, Vec<u8>), HandshakeError> {
        let position = HandshakeMessage::First;
        // The head is checked before the length: the first message of another version may have another length.
        let (head, rest) = MessageHeader::split(message)
            .ok_or(HandshakeError::Length { message: position, bytes: message.len() })?;
        let version = head.choose()?;
        frame::check(position, message)?;
        let (mut noise, own_key) = noise::begin(carrier, head, HandshakeRole::Responder, random)?;
        let mut padding = vec![0; rest.len()];
        noise.read(rest, &mut padding).map_err(|error| noise::fault(position, &error))?;
        let payload = KeyStatement::new(HandshakeRole::Responder, &hash(&noise)?, &own_key).sign(signer)?;
        let mut answer = vec![version; SECOND_BYTES];
        let written =
            noise.write(&payload, &mut answer[1..]).map_err(|error| noise::fault(position, &error))?;
        answer.truncate(1 + written);
        debug_assert!(version == VERSION && answer.len() == SECOND_BYTES);
        Ok((Self { noise }, answer))
    }

    /// Reads the third message, and checks that its sender has proven the identity that it states.
    ///
    /// # Errors
    /// Fails for any other message, which ends the handshake.
    pub fn read_third(mut self, message: &[u8]) -> Result<ResponderKnowingPeer, HandshakeError> {
        frame::check(HandshakeMessage::Third, message)?;
        let peer = self.read_proof(message)?;
        let binding = hash(&self.noise)?;
        let keys = TransportKeys::from_handshake(self.noise, HandshakeRole::Responder)?;
        Ok(ResponderKnowingPeer { keys, binding, peer })
    }

    /// Reads the third message of a handshake in datagrams, which has no credentials.
    pub(crate) fn read_third_in_datagrams(
        mut self,
        message: &[u8],
    ) -> Result<(PublicKey, SplitKeys), HandshakeError> {
        if message.len() != THIRD_BYTES_MIN {
            return Err(HandshakeError::Length { message: HandshakeMessage::Third, bytes: message.len() });
        }
        let peer = self.read_proof(message)?;
        Ok((peer.key, self.noise.split()?))
    }

    /// Reads a third message, and verifies the proof in it.
    fn read_proof(&mut self, message: &[u8]) -> Result<Peer, HandshakeError> {
        let position = HandshakeMessage::Third;
        let hash_before = hash(&self.noise)?;
        let mut payload = vec![0; message.len().min(PAYLOAD_BYTES_MAX)];
        let read = self.noise.read(message, &mut payload).map_err(|error| noise::fault(position, &error))?;
        payload.truncate(read);
        let (key, signature, credentials) = split_payload(&payload, position)?;
        let peer_key = peer_static_key(&self.noise, position)?;
        KeyStatement::new(HandshakeRole::Initiator, &hash_before, &peer_key).verify(key, &signature)?;
        Ok(Peer { key, credentials: credentials.to_vec() })
    }
}

/// A responder that has verified its peer's identity. The caller checks the peer's credentials. It then calls
/// [`Self::accept`], or drops this value to refuse the peer.
#[derive(Debug)]
pub struct ResponderKnowingPeer {
    keys: TransportKeys,
    binding: [u8; 32],
    peer: Peer,
}

impl ResponderKnowingPeer {
    /// Returns the peer's identity and credentials.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Accepts the peer. Returns the association, and the fourth message with the responder's credentials, to be sent
    /// unchanged.
    ///
    /// # Errors
    /// Fails if the credentials are too long.
    pub fn accept(mut self, credentials: &[u8]) -> Result<(Association, Vec<u8>), HandshakeError> {
        if credentials.len() > CREDENTIALS_BYTES_MAX {
            return Err(HandshakeError::Credentials(credentials.len()));
        }
        let sealed = self.keys.seal_next(MessageKind::Accepted, credentials);
        let message = sealed.ok_or(HandshakeError::Library("the fourth message cannot be written"))?;
        Ok((Association { peer: self.peer, binding: self.binding, keys: self.keys }, message))
    }
}
