//! The side that connects.

use super::message::{MessageHeader, PADDING_BYTES, PAYLOAD_BYTES_MAX};
use super::statement::{KeyStatement, hash, remote};
use super::{
    Association, CREDENTIALS_BYTES_MAX, FIRST_BYTES, Handshake, HandshakeError, HandshakeMessage,
    HandshakeRole, Peer, THIRD_BYTES_MAX, VERSION, frame, noise,
};
use crate::key::{Identity, PublicKey};
use crate::transport::{MessageKind, TransportKeys};
use rand_core::{CryptoRng, RngCore};

/// Has sent the first message, and waits for the second.
#[derive(Debug)]
pub struct Initiator {
    noise: Handshake,
    own: [u8; 32],
    expected: Option<PublicKey>,
}

impl Initiator {
    /// A handshake with a node: a certain one, or whoever answers. The message is to be sent as it is.
    ///
    /// # Errors
    /// There is no randomness.
    pub fn begin(
        expected: Option<PublicKey>,
        random: &mut (impl RngCore + CryptoRng),
    ) -> Result<(Self, Vec<u8>), HandshakeError> {
        let head = MessageHeader::own();
        let (mut noise, own) = noise::begin(head, true, random)?;
        let mut message = vec![0; FIRST_BYTES + 16];
        message[..head.0.len()].copy_from_slice(&head.0);
        let written = noise.write(&[0; PADDING_BYTES], &mut message[head.0.len()..]);
        let written = written.map_err(|_| HandshakeError::Library("the first message cannot be written"))?;
        message.truncate(head.0.len() + written);
        Ok((Self { noise, own, expected }, message))
    }

    /// The second message has come: the node is who it says, and who was expected.
    ///
    /// # Errors
    /// Anything else. There is no way on then.
    pub fn second(mut self, message: &[u8]) -> Result<Met, HandshakeError> {
        let which = HandshakeMessage::Second;
        frame::check(which, message)?;
        let (version, message) = message.split_first().ok_or(HandshakeError::Damaged(which))?;
        if *version != VERSION {
            return Err(HandshakeError::Chosen(*version));
        }
        let before = hash(&self.noise)?;
        let mut payload = vec![0; message.len()];
        let read = self.noise.read(message, &mut payload).map_err(|error| noise::fault(which, &error))?;
        payload.truncate(read);
        let (node, signature, _) = KeyStatement::parse(&payload, which)?;
        // Cheaper than a signature, and the same end.
        if let Some(expected) = self.expected
            && expected != node
        {
            return Err(HandshakeError::Unexpected { expected, found: node });
        }
        let theirs = remote(&self.noise, which)?;
        KeyStatement::new(HandshakeRole::Responder, &before, &theirs).verify(node, &signature)?;
        Ok(Met { noise: self.noise, own: self.own, node })
    }
}

/// Knows whom it talks to, and has said nothing of itself yet.
#[derive(Debug)]
pub struct Met {
    noise: Handshake,
    own: [u8; 32],
    node: PublicKey,
}

impl Met {
    /// The node's identity.
    pub fn node(&self) -> PublicKey {
        self.node
    }

    /// Shows one's own identity and credentials to that node. The message is to be sent as it is.
    ///
    /// # Errors
    /// The credentials are too long.
    pub fn introduce(
        mut self,
        identity: &Identity,
        credentials: &[u8],
    ) -> Result<(Confirming, Vec<u8>), HandshakeError> {
        if credentials.len() > CREDENTIALS_BYTES_MAX {
            return Err(HandshakeError::Credentials(credentials.len()));
        }
        let statement = KeyStatement::new(HandshakeRole::Initiator, &hash(&self.noise)?, &self.own);
        let payload = [statement.sign(identity)?.as_slice(), credentials].concat();
        let mut message = vec![0; THIRD_BYTES_MAX];
        let written = self.noise.write(&payload, &mut message);
        message
            .truncate(written.map_err(|_| HandshakeError::Library("the third message cannot be written"))?);
        let binding = hash(&self.noise)?;
        let keys = TransportKeys::of(self.noise, HandshakeRole::Initiator)?;
        Ok((Confirming { keys, binding, node: self.node }, message))
    }
}

/// Has sent the third message, and waits to be accepted.
#[derive(Debug)]
pub struct Confirming {
    keys: TransportKeys,
    binding: [u8; 32],
    node: PublicKey,
}

impl Confirming {
    /// The node has accepted, and shows its credentials.
    ///
    /// # Errors
    /// What came is not from that node. There is no way on then.
    pub fn fourth(mut self, message: &[u8]) -> Result<Association, HandshakeError> {
        let which = HandshakeMessage::Fourth;
        frame::check(which, message)?;
        let mut payload = vec![0; PAYLOAD_BYTES_MAX];
        let opened = self.keys.open_next(message, &mut payload);
        let Some((MessageKind::Accepted, credentials)) = opened else {
            return Err(HandshakeError::Damaged(which));
        };
        let peer = Peer { key: self.node, credentials: credentials.to_vec() };
        Ok(Association { peer, binding: self.binding, keys: self.keys })
    }
}
