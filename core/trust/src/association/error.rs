//! Why a handshake failed.

use super::Unsigned;
use super::message::{CREDENTIALS_BYTES_MAX, VERSION};
use crate::key::PublicKey;
use std::fmt;

/// Which message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeMessage {
    /// The initiator's first.
    First,
    /// The responder's answer.
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

/// Why there is no association. For one's own log and user: the peer is told nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// A message that cannot be whole, or that nobody sends.
    #[error("the {message} message of the handshake has {bytes} bytes, which it never has")]
    Length {
        /// Which.
        message: HandshakeMessage,
        /// How many it has, or says that it has.
        bytes: usize,
    },
    /// Something else than weir.
    #[error("what connects is no weir: its first message begins otherwise")]
    NotWeir,
    /// No version that both speak.
    #[error(
        "the peer speaks versions {lowest} to {highest} of the handshake, and this weir version {VERSION}: update the older one"
    )]
    Versions {
        /// The lowest that it speaks.
        lowest: u8,
        /// The highest.
        highest: u8,
    },
    /// The responder has chosen a version that was not offered.
    #[error("the node answers in version {0} of the handshake, which this weir has not offered")]
    Chosen(u8),
    /// An X25519 key with which anybody could compute the result.
    #[error("the {0} message of the handshake has a key that makes no secret")]
    WeakKey(HandshakeMessage),
    /// What was encrypted does not open.
    #[error(
        "the {0} message of the handshake is damaged, or not of this handshake: somebody on the way may be changing it"
    )]
    Damaged(HandshakeMessage),
    /// Its identity is no key.
    #[error("the {0} message of the handshake names an identity that is no key")]
    NoIdentity(HandshakeMessage),
    /// The identity did not sign.
    #[error("{key} has not signed this handshake: somebody else is in its place")]
    Signature {
        /// Whose signature it should be.
        key: PublicKey,
    },
    /// Another node than the one that was asked for.
    #[error(
        "the node that answers is {found}, and {expected} was expected: is the address right, and has the node a new key?"
    )]
    Unexpected {
        /// The one that was asked for.
        expected: PublicKey,
        /// The one that answers.
        found: PublicKey,
    },
    /// One's own credentials do not fit.
    #[error(
        "the credentials have {0} bytes, and {CREDENTIALS_BYTES_MAX} is the most that a handshake carries"
    )]
    Credentials(usize),
    /// One's own private key is kept elsewhere, and is not at hand.
    #[error(transparent)]
    Unsigned(#[from] Unsigned),
    /// The library refuses something that no peer decides on.
    #[error("the handshake cannot be made: {0}")]
    Library(&'static str),
}
