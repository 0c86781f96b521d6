//! Key establishment: two parties that have each other's public key, or a credential for it, get keys that nobody else has.
//!
//! Noise XX (T. Perrin: "The Noise Protocol Framework", revision 34, section 7.5) as `Noise_XX_25519_AESGCM_SHA256`. AES-GCM and SHA-256
//! because processors compute both themselves, and because weir's ledger and keys rest on SHA-256 already: another hash would be one more to
//! trust. What is on the wire, byte for byte, is in docs/WIRE.md.
//!
//! | message | from | in the clear | encrypted |
//! |---|---|---|---|
//! | first | initiator | versions that it speaks, ephemeral key | |
//! | second | responder | the version that is spoken, ephemeral key | X25519 key; identity and its signature |
//! | third | initiator | | X25519 key; identity and its signature; credentials |
//! | fourth | responder | | credentials |
//!
//! - Both X25519 keys of a side are made anew for each handshake: nobody is recognised by them, and there is none that could be stolen.
//!   What lasts is the Ed25519 identity. It signs the version, the side's role, the handshake hash at that point (which covers all messages
//!   before) and its own X25519 key. So a signature is worth nothing in another role, another handshake or beside another key.
//! - One side has to show itself first, and that is the responder, as a server's: an initiator that expects a certain node finds it, or
//!   says nothing of itself. So **whoever connects to a responder and sends a first message learns** that it is a weir node, which versions
//!   it speaks, and its public key, in exchange for an address from which that was asked. He does not learn the responder's credentials,
//!   nor whom it would let in: these go in the fourth message, to a peer whose signature was checked and whose credentials the responder
//!   has accepted. **Whoever listens** learns lengths and times. **Whoever answers in a node's place** learns nothing of an initiator that
//!   expects a certain node; of one that expects nobody in particular he learns its identity and its credentials, which are of no use to
//!   him.
//! - The initiator has an association when the fourth message has come, not before: then it knows that the responder has accepted it.
//! - Nobody falls back: the first message says which versions its sender speaks, these bytes are in the handshake hash, and the version
//!   that was chosen is signed by both. A version that somebody on the way has changed ends the handshake.
//! - A multiplication on the curve whose result is zero (RFC 7748, section 6.1: a point of small order) ends it, too.
//! - Each step takes the state before it and gives the next one back. An error gives back nothing: there is no way on, and no association.
//!   The peer is told nothing but that the connection is closed.
//! - All lengths are known before anything is allocated: the first two messages have one length each, the third and the fourth at most
//!   [`THIRD_BYTES_MAX`].
//!
//! The first message is as long as the second one, so whoever forges its source has no more sent to somebody than he sends himself.
//!
//! Randomness is an argument. Bytes in, bytes out: over TCP each message follows its length ([`frame`]), in a datagram it is alone.

mod error;
pub mod frame;
mod handshake;
mod initiator;
mod message;
mod noise;
mod responder;
mod statement;

pub use error::{HandshakeError, HandshakeMessage};
pub(crate) use handshake::Handshake;
pub use initiator::{Confirming, Initiator, Met};
pub use message::{
    CREDENTIALS_BYTES_MAX, FIRST_BYTES, FOURTH_BYTES_MAX, SECOND_BYTES, THIRD_BYTES_MAX, VERSION,
};
pub use responder::{Authenticated, Responder, check_first};
pub use statement::{KeyStatement, STATEMENT_BYTES, Signer, Unsigned};

use crate::key::PublicKey;
use crate::transport::{SealedDatagrams, SealedStream, TransportKeys};

/// Whom one has an association with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its identity: it has signed this handshake.
    pub key: PublicKey,
    /// What it has shown beside, unread: at most [`CREDENTIALS_BYTES_MAX`] bytes of a stranger's choice.
    pub credentials: Vec<u8>,
}

/// Which side one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HandshakeRole {
    /// Who connects.
    Initiator,
    /// Who is connected to.
    Responder,
}

impl HandshakeRole {
    /// The other side's.
    pub fn other(self) -> Self {
        match self {
            Self::Initiator => Self::Responder,
            Self::Responder => Self::Initiator,
        }
    }
}

/// A peer that is authenticated, and keys that only it has. Given by the last step of a handshake alone.
#[derive(Debug)]
pub struct Association {
    peer: Peer,
    binding: [u8; 32],
    keys: TransportKeys,
}

impl Association {
    /// Whom it is with.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The handshake's hash: the same on both sides, and of no other handshake. What is signed together with it is bound to this association; a
    /// log can name it by that.
    pub fn binding(&self) -> &[u8; 32] {
        &self.binding
    }

    /// Goes on over a stream of bytes, as of TCP.
    pub fn into_stream(self) -> (Peer, SealedStream) {
        (self.peer, SealedStream::new(self.keys))
    }

    /// Goes on in datagrams, as of UDP.
    pub fn into_datagrams(self) -> (Peer, SealedDatagrams) {
        (self.peer, SealedDatagrams::new(self.keys))
    }
}
