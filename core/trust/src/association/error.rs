//! Errors of the handshake.

use super::Unsigned;
use super::message::{CREDENTIALS_BYTES_MAX, VERSION};
use crate::key::PublicKey;
use std::fmt;

/// A message of the handshake, by its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeMessage {
    /// The initiator's offered versions and ephemeral key.
    First,
    /// The responder's chosen version, keys and identity.
    Second,
    /// The initiator's identity and credentials.
    Third,
    /// The responder's credentials.
    Fourth,
}

impl fmt::Display for HandshakeMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::First => "first",
            Self::Second => "second",
            Self::Third => "third",
            Self::Fourth => "fourth",
        })
    }
}

/// The reason why a handshake fails. It is shown to the local user and logged; the peer only sees that the connection is
/// closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// A message whose length is impossible for its position in the handshake.
    #[error("the {message} message of the handshake cannot have {bytes} bytes")]
    Length {
        /// The position of the message in the handshake.
        message: HandshakeMessage,
        /// The length in bytes: of the received message, or as announced in the two bytes before the message.
        bytes: usize,
    },
    /// A peer that does not speak weir's protocol.
    #[error("the peer does not speak weir's protocol: its first message does not begin with `weir`")]
    NotWeir,
    /// The peers have no common version.
    #[error(
        "the peer speaks versions {lowest} to {highest} of the handshake, and this weir version {VERSION}: update the older one"
    )]
    NoCommonVersion {
        /// The lowest version that the peer offers.
        lowest: u8,
        /// The highest version that the peer offers.
        highest: u8,
    },
    /// The responder chose a version that was not offered.
    #[error("the node answers in version {0} of the handshake, which this weir has not offered")]
    NotOffered(u8),
    /// An X25519 key of small order, with which the shared secret is known to everyone.
    #[error(
        "the {0} message of the handshake has a weak X25519 key, with which the peers would share no secret"
    )]
    WeakKey(HandshakeMessage),
    /// The encrypted part of a message does not decrypt.
    #[error(
        "the {0} message of the handshake is damaged, or not of this handshake: it may have been changed on the path"
    )]
    Damaged(HandshakeMessage),
    /// The identity in a message is not a public key.
    #[error("the {0} message of the handshake names an identity that is not a public key")]
    NoIdentity(HandshakeMessage),
    /// The signature was not made by the stated identity.
    #[error("{key} has not signed this handshake: another party answers in its place")]
    Signature {
        /// The stated identity.
        key: PublicKey,
    },
    /// Another node answers than the expected one.
    #[error(
        "the node that answers is {found}, and {expected} was expected: is the address right, and has the node a new key?"
    )]
    Unexpected {
        /// The expected node.
        expected: PublicKey,
        /// The node that answers.
        found: PublicKey,
    },
    /// The local credentials are too long.
    #[error(
        "the credentials have {0} bytes, and {CREDENTIALS_BYTES_MAX} is the most that a handshake carries"
    )]
    Credentials(usize),
    /// The key agent, which keeps the local private key, did not sign.
    #[error(transparent)]
    Unsigned(#[from] Unsigned),
    /// The Noise library failed for a reason that no peer controls.
    #[error("the handshake cannot be made: {0}")]
    Library(&'static str),
}
