//! Key establishment: two parties get encryption keys that no other party has. Each party proves its Ed25519 identity to
//! the other.
//!
//! Noise XX (T. Perrin: "The Noise Protocol Framework", revision 34, section 7.5) as `Noise_XX_25519_AESGCM_SHA256`.
//! Processors have instructions for AES-GCM and SHA-256. weir's ledger and keys already depend on SHA-256, so the
//! handshake adds no further hash function to trust. docs/WIRE.md describes the bytes on the wire.
//!
//! | message | from | in the clear | encrypted |
//! |---|---|---|---|
//! | first | initiator | offered versions, ephemeral key | |
//! | second | responder | chosen version, ephemeral key | X25519 key; identity and its signature |
//! | third | initiator | | X25519 key; identity and its signature; credentials |
//! | fourth | responder | | credentials |
//!
//! - **Keys.** Both X25519 keys of a side are new for each handshake: they identify no party, and none is stored, so
//!   none can be stolen. Only the Ed25519 identity lasts. It signs the version, the side's role, the handshake hash at
//!   that point (which covers all earlier messages) and the side's own X25519 key. So a signature is invalid in another
//!   role, in another handshake and beside another key.
//! - **Disclosure.** One side has to identify itself first. This is the responder, as for a server: an initiator that
//!   expects a certain node discloses nothing before that node has proven its identity. So a **peer that connects and
//!   sends a first message** learns that it talks to a weir node, which versions the node speaks, and the node's public
//!   key. For that it needs a real source address. It does not learn the responder's credentials, nor whom the
//!   responder would admit: these go in the fourth message, to a peer whose signature is checked and whose credentials
//!   the responder has accepted. An **eavesdropper** learns lengths and times. A **party that answers in a node's
//!   place** learns nothing of an initiator that expects a certain node. Of an initiator that accepts any node it
//!   learns the identity and the credentials, which are useless to another key.
//! - **End.** The initiator has an association only after the fourth message, so it knows that the responder has
//!   accepted the handshake.
//! - **No downgrade.** The first message lists its sender's versions, these bytes are in the handshake hash, and both
//!   sides sign the chosen version. A version that was changed on the path ends the handshake.
//! - **Weak keys.** A multiplication on the curve whose result is zero (RFC 7748, section 6.1: a point of small order)
//!   ends the handshake.
//! - **Errors.** Each step consumes the state before it and returns the next one. An error returns no state: the
//!   handshake is over, without an association. The peer only sees that the connection is closed.
//! - **Bounds.** All lengths are known before memory is allocated: the first two messages have one length each, the
//!   third and the fourth at most [`THIRD_BYTES_MAX`].
//!
//! The first message is as long as the second, so a sender with a forged source address cannot amplify traffic.
//!
//! Randomness is an argument. The functions take and return the bytes of messages. Over TCP each message follows its
//! length ([`frame`]); [`crate::datagrams`] sends the first three messages in datagrams.

mod error;
pub mod frame;
mod handshake;
mod initiator;
mod message;
mod noise;
mod responder;
mod statement;

pub use error::{HandshakeError, HandshakeMessage};
pub(crate) use handshake::{ErasedCipher, Handshake};
pub use initiator::{Initiator, InitiatorAwaitingAccept, InitiatorKnowingNode};
pub use message::{
    CREDENTIALS_BYTES_MAX, FIRST_BYTES, FOURTH_BYTES_MAX, SECOND_BYTES, THIRD_BYTES_MAX, VERSION,
};
pub(crate) use message::{HEAD_BYTES, THIRD_BYTES_MIN};
pub(crate) use noise::{cipher, hmac};
pub use responder::{Responder, ResponderKnowingPeer, check_first};
pub use statement::{KeyStatement, STATEMENT_BYTES, Signer, Unsigned};

use crate::key::PublicKey;
use crate::transport::{SealedStream, TransportKeys};
use zeroize::Zeroizing;

/// The two keys of a completed handshake: those for what the initiator and what the responder sends.
pub(crate) type SplitKeys = [Zeroizing<[u8; 32]>; 2];

/// The authenticated peer of an association.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The peer's identity, which has signed this handshake.
    pub key: PublicKey,
    /// The peer's credentials, not yet parsed: at most [`CREDENTIALS_BYTES_MAX`] bytes of its choice.
    pub credentials: Vec<u8>,
}

/// The role of a side in a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HandshakeRole {
    /// The peer that connects.
    Initiator,
    /// The peer that accepts connections.
    Responder,
}

impl HandshakeRole {
    /// Returns the role of the other side.
    pub fn other(self) -> Self {
        match self {
            Self::Initiator => Self::Responder,
            Self::Responder => Self::Initiator,
        }
    }
}

/// An authenticated peer, and the encryption keys that the two sides share. Only the last step of a handshake makes an
/// association.
#[derive(Debug)]
pub struct Association {
    peer: Peer,
    binding: [u8; 32],
    keys: TransportKeys,
}

impl Association {
    /// Returns the peer.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Returns the handshake hash, which both sides have and no other handshake has. Signing it together with a message
    /// binds the message to this association; a log can use it as the association's name.
    pub fn binding(&self) -> &[u8; 32] {
        &self.binding
    }

    /// Converts the association for use over a byte stream, such as TCP.
    pub fn into_stream(self) -> (Peer, SealedStream) {
        (self.peer, SealedStream::new(self.keys))
    }
}
