//! The side that is connected to: it answers strangers, so what it does for them is to be limited before ([`crate::gate`]).

use super::message::{MessageHeader, PAYLOAD_BYTES_MAX, VERSION};
use super::statement::{KeyStatement, Signer, hash, remote};
use super::{
    Association, CREDENTIALS_BYTES_MAX, Handshake, HandshakeError, HandshakeMessage, HandshakeRole, Peer,
    SECOND_BYTES, frame, noise,
};
use crate::transport::{MessageKind, TransportKeys};
use rand_core::{CryptoRng, RngCore};

/// Checks what can be checked of a first message without any arithmetic on the curve: its length, its beginning, and the versions that it offers.
///
/// # Errors
/// It is no first message, or of another version.
pub fn check_first(message: &[u8]) -> Result<(), HandshakeError> {
    let which = HandshakeMessage::First;
    let (head, _) = MessageHeader::split(message)
        .ok_or(HandshakeError::Length { message: which, bytes: message.len() })?;
    head.choose()?;
    frame::check(which, message)
}

/// Has answered a stranger, and waits for it to show itself.
#[derive(Debug)]
pub struct Responder {
    noise: Handshake,
}

impl Responder {
    /// A stranger's first message has come. The answer is to be sent as it is.
    ///
    /// Takes four multiplications on the curve and a signature: [`crate::gate::HandshakeGate::next`] says when.
    ///
    /// # Errors
    /// It is no first message, or of another version; or there is no randomness, or no signature.
    pub fn begin(
        signer: &dyn Signer,
        message: &[u8],
        random: &mut (impl RngCore + CryptoRng),
    ) -> Result<(Self, Vec<u8>), HandshakeError> {
        let which = HandshakeMessage::First;
        // The head first: another version may have another length.
        let (head, rest) = MessageHeader::split(message)
            .ok_or(HandshakeError::Length { message: which, bytes: message.len() })?;
        let version = head.choose()?;
        frame::check(which, message)?;
        let (mut noise, own) = noise::begin(head, false, random)?;
        let mut padding = vec![0; rest.len()];
        noise.read(rest, &mut padding).map_err(|error| noise::fault(which, &error))?;
        let payload = KeyStatement::new(HandshakeRole::Responder, &hash(&noise)?, &own).sign(signer)?;
        let mut answer = vec![version; SECOND_BYTES];
        let written = noise.write(&payload, &mut answer[1..]).map_err(|error| noise::fault(which, &error))?;
        answer.truncate(1 + written);
        debug_assert!(version == VERSION && answer.len() == SECOND_BYTES);
        Ok((Self { noise }, answer))
    }

    /// The third message has come: its sender has the identity that it names.
    ///
    /// # Errors
    /// Anything else. There is no way on then.
    pub fn third(mut self, message: &[u8]) -> Result<Authenticated, HandshakeError> {
        let which = HandshakeMessage::Third;
        frame::check(which, message)?;
        let before = hash(&self.noise)?;
        let mut payload = vec![0; message.len().min(PAYLOAD_BYTES_MAX)];
        let read = self.noise.read(message, &mut payload).map_err(|error| noise::fault(which, &error))?;
        payload.truncate(read);
        let (key, signature, credentials) = KeyStatement::parse(&payload, which)?;
        let theirs = remote(&self.noise, which)?;
        KeyStatement::new(HandshakeRole::Initiator, &before, &theirs).verify(key, &signature)?;
        let peer = Peer { key, credentials: credentials.to_vec() };
        let binding = hash(&self.noise)?;
        Ok(Authenticated { keys: TransportKeys::of(self.noise, HandshakeRole::Responder)?, binding, peer })
    }
}

/// Knows who the peer is. Whether that one may do anything is for whoever reads its credentials; to drop this is to say no.
#[derive(Debug)]
pub struct Authenticated {
    keys: TransportKeys,
    binding: [u8; 32],
    peer: Peer,
}

impl Authenticated {
    /// Who it is, and what it has shown.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Lets it in, and shows it one's own credentials. The message is to be sent as it is.
    ///
    /// # Errors
    /// The credentials are too long.
    pub fn accept(mut self, credentials: &[u8]) -> Result<(Association, Vec<u8>), HandshakeError> {
        if credentials.len() > CREDENTIALS_BYTES_MAX {
            return Err(HandshakeError::Credentials(credentials.len()));
        }
        let sealed = self.keys.seal_next(MessageKind::Accepted, credentials);
        let message = sealed.ok_or(HandshakeError::Library("the fourth message cannot be written"))?;
        Ok((Association { peer: self.peer, binding: self.binding, keys: self.keys }, message))
    }
}
