//! Why a credential is worth nothing.

use super::{BLOCKS_MAX, CREDENTIAL_BYTES_MAX, PrefixId};
use crate::grant::{GrantError, GrantExcess, NodeName, Nodes, Second};
use crate::key::PublicKey;

/// The reason for which a node refuses a credential of a peer, at a time. Blocks are counted from 0, the operator's. To blame is the peer, or the issuer of the credential.
/// Only [`CredentialRefusal::UnknownRoot`], [`CredentialRefusal::Node`] and those that [`CredentialRefusal::is_revocation`] names are the node's decisions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialRefusal {
    /// No text of a credential.
    #[error("this is no credential: the text of one begins with `weir-credential:` and was copied whole")]
    Text,
    /// Longer than [`CREDENTIAL_BYTES_MAX`].
    #[error(
        "the credential has {0} bytes; {CREDENTIAL_BYTES_MAX} is the most. Grant shorter lists and filters"
    )]
    TooLong(usize),
    /// No Biscuit token.
    #[error("this is no credential: the bytes are those of no Biscuit token, or were cut off")]
    NotAToken,
    /// More than [`BLOCKS_MAX`].
    #[error(
        "the credential has {0} blocks; {BLOCKS_MAX} is the most. Ask somebody earlier in its chain for a shorter one"
    )]
    Blocks(usize),
    /// A token that weir would have written otherwise.
    #[error(
        "the token has parts that no credential has, or in another form: make it with `weir grant` and `weir delegate`"
    )]
    Form,
    /// A Biscuit token that was sealed.
    #[error("the token is sealed: credentials are not, who may pass them on is said in their grants")]
    Sealed,
    /// Keys or signatures that are not Ed25519.
    #[error(
        "block {block} is signed with another algorithm than Ed25519, or names a key of one: make it with `weir grant` and `weir delegate`"
    )]
    Algorithm {
        /// Which block.
        block: usize,
    },
    /// A block that nobody has signed with his key.
    #[error("block {block} was appended without a holder's signature: only `weir delegate`, by the holder of block {}, passes a credential on", block.saturating_sub(1))]
    FirstParty {
        /// Which block.
        block: usize,
    },
    /// A block that somebody else has signed than the holder of the one before.
    #[error("block {block} was signed by {signer}, but block {} is held by {holder}: only he can pass it on", block.saturating_sub(1))]
    Signer {
        /// Which block.
        block: usize,
        /// Who has signed it.
        signer: PublicKey,
        /// Who should have.
        holder: PublicKey,
    },
    /// A block that does not say what blocks say.
    #[error("block {block}: {error}")]
    Block {
        /// Which block.
        block: usize,
        /// What is wrong with it.
        error: BlockError,
    },
    /// An operator whom the node does not know.
    #[error(
        "the credential is of the root {0}, which is no root of trust here: ask this node's operator for one, or to add that root to the policy"
    )]
    UnknownRoot(PublicKey),
    /// Signatures that do not hold.
    #[error(
        "the credential is forged or damaged: its signatures do not hold. Get it again from who gave it to you"
    )]
    Forged,
    /// A holder who is in the chain already.
    #[error(
        "block {block} passes the credential on to {holder}, who is in its chain already: a chain in a circle is refused"
    )]
    Circular {
        /// Which block.
        block: usize,
        /// Who is in it twice.
        holder: PublicKey,
    },
    /// Somebody else's.
    #[error(
        "the credential is for {holder}, but you are {peer}: use the key that it was made for, or have it delegated to yours"
    )]
    NotHolder {
        /// Whose it is.
        holder: PublicKey,
        /// Who showed it.
        peer: PublicKey,
    },
    /// A block that asks for more than the one before it gives.
    #[error(
        "widened: block {block} asks for more than its holder was given; {excess}. Delegate again, for no more than that"
    )]
    Widened {
        /// Which block.
        block: usize,
        /// In what.
        excess: GrantExcess,
    },
    /// Passed on more often than it may be.
    #[error("block {block} passes the credential on once more than block {} allows: ask somebody earlier in its chain", block.saturating_sub(1))]
    OverDelegated {
        /// Which block.
        block: usize,
    },
    /// Too early.
    #[error("not yet valid: block {block} holds from {from} on, and it is {now}")]
    NotYet {
        /// Which block.
        block: usize,
        /// From when on.
        from: Second,
        /// When it was shown.
        now: Second,
    },
    /// Too late.
    #[error("expired: block {block} held until {until}, and it is {now}. Ask for a new credential")]
    Expired {
        /// Which block.
        block: usize,
        /// Until when.
        until: Second,
        /// When it was shown.
        now: Second,
    },
    /// Elsewhere.
    #[error("block {block} is for the nodes {nodes}, and this one is {node}")]
    Node {
        /// Which block.
        block: usize,
        /// For which nodes.
        nodes: Nodes,
        /// Where it was shown.
        node: NodeName,
    },
    /// A root that the node lets grant less.
    #[error(
        "{excess}: this node's policy lets {root} grant no more, whatever its credentials say. Ask the node's operator"
    )]
    Limited {
        /// Whose credential it is.
        root: PublicKey,
        /// In what it is too much.
        excess: GrantExcess,
    },
    /// Revoked by its identifier.
    #[error("revoked: block {block}, {id}, is on a revocation list. Ask for a new credential")]
    Revoked {
        /// The block.
        block: usize,
        /// Its identifier.
        id: PrefixId,
    },
    /// Revoked with everything that its signer signed before a time.
    #[error(
        "revoked: block {block}, {id}, was signed before {before}, and its signer has revoked everything before that. Ask for a new credential"
    )]
    RevokedBefore {
        /// The block.
        block: usize,
        /// Its identifier.
        id: PrefixId,
        /// The time.
        before: Second,
    },
}

impl CredentialRefusal {
    /// Returns true if the credential was revoked.
    pub fn is_revocation(&self) -> bool {
        matches!(self, Self::Revoked { .. } | Self::RevokedBefore { .. })
    }
}

/// What is wrong with one block of a credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// No Biscuit block.
    #[error("its bytes are no block's")]
    NotABlock,
    /// A block in other bytes than weir writes.
    #[error("it has parts that no block of a credential has, or in another form")]
    Form,
    /// Datalog.
    #[error("it has {0}: blocks of credentials state facts, and nothing in them is evaluated")]
    Evaluated(&'static str),
    /// Made for another purpose, or by a later weir.
    #[error(
        "it is not of version 1 of weir's credentials: make it with this version of weir, or bring the node up to date"
    )]
    Version,
    /// A fact that is none of a credential's.
    #[error("it states `{0}`, which is nothing that a credential says")]
    UnknownFact(String),
    /// A fact twice.
    #[error("it states `{0}` twice")]
    Doubled(&'static str),
    /// A fact that has to be there.
    #[error("it does not state `{0}`")]
    Missing(&'static str),
    /// A fact that is of another block.
    #[error("it states `{0}`, which only the operator's block does")]
    Misplaced(&'static str),
    /// A fact with other values than it can have.
    #[error("its fact `{fact}` has another value than it can have: it must be {wanted}")]
    Value {
        /// The fact.
        fact: &'static str,
        /// The values that it can have, with the unit.
        wanted: &'static str,
    },
    /// A grant that no block can have.
    #[error(transparent)]
    Grant(#[from] GrantError),
}
