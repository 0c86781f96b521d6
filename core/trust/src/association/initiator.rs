//! The initiator: the side that connects.

use super::message::{Carrier, MessageHeader, PADDING_BYTES, PAYLOAD_BYTES_MAX};
use super::statement::{KeyStatement, hash, peer_static_key, split_payload};
use super::{
    Association, CREDENTIALS_BYTES_MAX, FIRST_BYTES, Handshake, HandshakeError, HandshakeMessage,
    HandshakeRole, Peer, Signer, SplitKeys, THIRD_BYTES_MAX, VERSION, frame, noise,
};
use crate::key::PublicKey;
use crate::transport::{MessageKind, TransportKeys};
use rand_core::{CryptoRng, RngCore};

/// An initiator that has sent the first message, and waits for the second.
#[derive(Debug)]
pub struct Initiator {
    noise: Handshake,
    /// The initiator's X25519 key, which its identity will sign.
    own_key: [u8; 32],
    /// The node that the initiator wants to talk to; `None` for any node.
    expected: Option<PublicKey>,
}

impl Initiator {
    /// Begins a handshake with the expected node, or with any node for `None`. Returns the first message, to be sent
    /// unchanged.
    ///
    /// # Errors
    /// Fails without randomness.
    pub fn begin(
        expected: Option<PublicKey>,
        random: &mut (impl RngCore + CryptoRng),
    ) -> Result<(Self, Vec<u8>), HandshakeError> {
        Self::begin_over(Carrier::Stream, expected, random)
    }

    /// Begins a handshake whose messages are sent in datagrams.
    pub(crate) fn begin_in_datagrams(
        expected: Option<PublicKey>,
        random: &mut (impl RngCore + CryptoRng),
    ) -> Result<(Self, Vec<u8>), HandshakeError> {
        Self::begin_over(Carrier::Datagrams, expected, random)
    }

    fn begin_over(
        carrier: Carrier,
        expected: Option<PublicKey>,
        random: &mut (impl RngCore + CryptoRng),
    ) -> Result<(Self, Vec<u8>), HandshakeError> {
        let head = MessageHeader::own();
        let (mut noise, own_key) = noise::begin(carrier, head, HandshakeRole::Initiator, random)?;
        let mut message = vec![0; FIRST_BYTES + 16];
        message[..head.0.len()].copy_from_slice(&head.0);
        let written = noise.write(&[0; PADDING_BYTES], &mut message[head.0.len()..]);
        let written = written.map_err(|_| HandshakeError::Library("the first message cannot be written"))?;
        message.truncate(head.0.len() + written);
        Ok((Self { noise, own_key, expected }, message))
    }

    /// Reads the second message. Checks that the node has proven the identity that it states, and that it is the
    /// expected node.
    ///
    /// # Errors
    /// Fails for any other message, which ends the handshake.
    pub fn read_second(mut self, message: &[u8]) -> Result<InitiatorKnowingNode, HandshakeError> {
        let position = HandshakeMessage::Second;
        frame::check(position, message)?;
        let (version, message) = message.split_first().ok_or(HandshakeError::Damaged(position))?;
        if *version != VERSION {
            return Err(HandshakeError::NotOffered(*version));
        }
        let hash_before = hash(&self.noise)?;
        let mut payload = vec![0; message.len()];
        let read = self.noise.read(message, &mut payload).map_err(|error| noise::fault(position, &error))?;
        payload.truncate(read);
        let (node, signature, _) = split_payload(&payload, position)?;
        // An unexpected node is refused without the cost of verifying its signature.
        if let Some(expected) = self.expected
            && expected != node
        {
            return Err(HandshakeError::Unexpected { expected, found: node });
        }
        let peer_key = peer_static_key(&self.noise, position)?;
        KeyStatement::new(HandshakeRole::Responder, &hash_before, &peer_key).verify(node, &signature)?;
        Ok(InitiatorKnowingNode { noise: self.noise, own_key: self.own_key, node })
    }
}

/// An initiator that has verified the node's identity, and has not sent its own identity yet.
#[derive(Debug)]
pub struct InitiatorKnowingNode {
    noise: Handshake,
    /// The initiator's X25519 key, which its identity will sign.
    own_key: [u8; 32],
    node: PublicKey,
}

impl InitiatorKnowingNode {
    /// Returns the node's identity.
    pub fn node(&self) -> PublicKey {
        self.node
    }

    /// Makes the third message, which contains the initiator's identity and credentials. It is to be sent unchanged.
    ///
    /// # Errors
    /// Fails if the credentials are too long, or the signer does not sign.
    pub fn introduce(
        mut self,
        signer: &dyn Signer,
        credentials: &[u8],
    ) -> Result<(InitiatorAwaitingAccept, Vec<u8>), HandshakeError> {
        let message = self.write_third(signer, credentials)?;
        let binding = hash(&self.noise)?;
        let keys = TransportKeys::from_handshake(self.noise, HandshakeRole::Initiator)?;
        Ok((InitiatorAwaitingAccept { keys, binding, node: self.node }, message))
    }

    /// Makes the third message of a handshake in datagrams. It has no credentials: encrypted datagrams carry them.
    pub(crate) fn introduce_in_datagrams(
        mut self,
        signer: &dyn Signer,
    ) -> Result<(SplitKeys, Vec<u8>), HandshakeError> {
        let message = self.write_third(signer, &[])?;
        Ok((self.noise.split()?, message))
    }

    fn write_third(&mut self, signer: &dyn Signer, credentials: &[u8]) -> Result<Vec<u8>, HandshakeError> {
        if credentials.len() > CREDENTIALS_BYTES_MAX {
            return Err(HandshakeError::Credentials(credentials.len()));
        }
        let statement = KeyStatement::new(HandshakeRole::Initiator, &hash(&self.noise)?, &self.own_key);
        let payload = [statement.sign(signer)?.as_slice(), credentials].concat();
        let mut message = vec![0; THIRD_BYTES_MAX];
        let written = self.noise.write(&payload, &mut message);
        message
            .truncate(written.map_err(|_| HandshakeError::Library("the third message cannot be written"))?);
        Ok(message)
    }
}

/// An initiator that has sent the third message, and waits for the node to accept it.
#[derive(Debug)]
pub struct InitiatorAwaitingAccept {
    keys: TransportKeys,
    binding: [u8; 32],
    node: PublicKey,
}

impl InitiatorAwaitingAccept {
    /// Reads the fourth message, with which the node accepts the initiator and sends its own credentials.
    ///
    /// # Errors
    /// Fails for any other message, which ends the handshake.
    pub fn read_fourth(mut self, message: &[u8]) -> Result<Association, HandshakeError> {
        let position = HandshakeMessage::Fourth;
        frame::check(position, message)?;
        let mut payload = vec![0; PAYLOAD_BYTES_MAX];
        let opened = self.keys.open_next(message, &mut payload);
        let Some((MessageKind::Accepted, credentials)) = opened else {
            return Err(HandshakeError::Damaged(position));
        };
        let peer = Peer { key: self.node, credentials: credentials.to_vec() };
        Ok(Association { peer, binding: self.binding, keys: self.keys })
    }
}
