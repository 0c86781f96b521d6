//! Reasons for refusing a credential.

use super::{BLOCKS_MAX, CREDENTIAL_BYTES_MAX, DelegationId};
use crate::grant::{GrantError, GrantExcess, NodeName, Nodes, UnixSecond};
use crate::key::PublicKey;

/// The reason why a node refuses a peer's credential. Blocks are counted from 0, the operator's block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialRefusal {
    /// A text that is not the text of a credential.
    #[error("this is no credential: the text of one begins with `weir-credential:` and was copied whole")]
    Text,
    /// Longer than [`CREDENTIAL_BYTES_MAX`].
    #[error(
        "the credential has {0} bytes; {CREDENTIAL_BYTES_MAX} is the most. Grant shorter lists and filters"
    )]
    TooLong(usize),
    /// Bytes that are not a Biscuit token.
    #[error("this is no credential: the bytes are those of no Biscuit token, or were cut off")]
    NotAToken,
    /// More blocks than [`BLOCKS_MAX`].
    #[error(
        "the credential has {0} blocks; {BLOCKS_MAX} is the most. Ask a holder earlier in its chain for a shorter one"
    )]
    Blocks(usize),
    /// A token with parts that credentials do not have, or in another encoding than weir's.
    #[error(
        "the token has parts that no credential has, or in another form: make it with `weir grant` and `weir delegate`"
    )]
    Form,
    /// A sealed Biscuit token.
    #[error(
        "the token is sealed, which credentials never are: their grants say how often they can be passed on"
    )]
    Sealed,
    /// Keys or signatures that are not Ed25519.
    #[error(
        "block {block} is signed with another algorithm than Ed25519, or names a key of one: make it with `weir grant` and `weir delegate`"
    )]
    Algorithm {
        /// The index of the block.
        block: usize,
    },
    /// A block without a holder's signature.
    #[error("block {block} was appended without a holder's signature: only `weir delegate`, by the holder of block {}, passes a credential on", block.saturating_sub(1))]
    FirstParty {
        /// The index of the block.
        block: usize,
    },
    /// A block that is not signed by the holder of the block before.
    #[error("block {block} was signed by {signer}, but block {} is held by {holder}: only that holder can pass it on", block.saturating_sub(1))]
    Signer {
        /// The index of the block.
        block: usize,
        /// The signer.
        signer: PublicKey,
        /// The holder that should have signed.
        holder: PublicKey,
    },
    /// A block with an illegal content.
    #[error("block {block}: {error}")]
    Block {
        /// The index of the block.
        block: usize,
        /// The error in the block.
        error: BlockError,
    },
    /// A root key that the node does not trust.
    #[error(
        "the credential is of the root {0}, which is no root of trust of this node: ask its operator for a credential, or to add that root to the policy"
    )]
    UnknownRoot(PublicKey),
    /// Signatures that are not valid.
    #[error(
        "the credential is forged or damaged: its signatures do not hold. Get a new copy from its issuer"
    )]
    Forged,
    /// A holder that is in the chain already.
    #[error(
        "block {block} passes the credential on to {holder}, which is in its chain already: circular chains are refused"
    )]
    Circular {
        /// The index of the block.
        block: usize,
        /// The repeated holder.
        holder: PublicKey,
    },
    /// A credential whose holder is another key than the peer's.
    #[error(
        "the credential is for {holder}, but you are {peer}: use the key that it was made for, or have it delegated to yours"
    )]
    NotHolder {
        /// The holder.
        holder: PublicKey,
        /// The peer that showed the credential.
        peer: PublicKey,
    },
    /// A block that asks for more than the block before it gives.
    #[error(
        "widened: block {block} asks for more than its holder was given; {excess}. Delegate again, for no more than that"
    )]
    Widened {
        /// The index of the block.
        block: usize,
        /// The excess.
        excess: GrantExcess,
    },
    /// More delegations than a block allows.
    #[error("block {block} passes the credential on once more than block {} allows: ask a holder earlier in its chain", block.saturating_sub(1))]
    OverDelegated {
        /// The index of the block.
        block: usize,
    },
    /// A block that is not valid yet.
    #[error("not yet valid: block {block} holds from {from} on, and it is {now}")]
    NotYet {
        /// The index of the block.
        block: usize,
        /// The first second in which the block is valid.
        from: UnixSecond,
        /// The time of verification.
        now: UnixSecond,
    },
    /// A block that has expired.
    #[error("expired: block {block} held until {until}, and it is {now}. Ask for a new credential")]
    Expired {
        /// The index of the block.
        block: usize,
        /// The first second in which the block is no longer valid.
        until: UnixSecond,
        /// The time of verification.
        now: UnixSecond,
    },
    /// A block that is not valid at this node.
    #[error("block {block} is for the nodes {nodes}, and this one is {node}")]
    Node {
        /// The index of the block.
        block: usize,
        /// The nodes at which the block is valid.
        nodes: Nodes,
        /// The node that verifies.
        node: NodeName,
    },
    /// A credential beyond the node's limit for the root.
    #[error(
        "{excess}: this node's policy lets {root} grant no more, whatever its credentials say. Ask the node's operator"
    )]
    Limited {
        /// The root.
        root: PublicKey,
        /// The excess.
        excess: GrantExcess,
    },
    /// A block whose identifier is on a revocation list.
    #[error("revoked: block {block}, {id}, is on a revocation list. Ask for a new credential")]
    Revoked {
        /// The index of the block.
        block: usize,
        /// The identifier of the block.
        id: DelegationId,
    },
    /// A block whose signer has revoked everything that it signed before a time.
    #[error(
        "revoked: block {block}, {id}, was signed before {before}, and its signer has revoked everything before that. Ask for a new credential"
    )]
    RevokedBefore {
        /// The index of the block.
        block: usize,
        /// The identifier of the block.
        id: DelegationId,
        /// The time.
        before: UnixSecond,
    },
}

/// The kind of a credential's refusal, which decides what helps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialRefusalKind {
    /// The credential has expired.
    Expired,
    /// The credential is not yet valid.
    NotYet,
    /// The credential was revoked.
    Revoked,
    /// The credential is for other nodes.
    OtherNode,
    /// The node's policy for the root excludes it.
    Limited(GrantExcess),
    /// The credential is damaged, forged, of an unknown root, or another holder's.
    Unusable,
}

impl CredentialRefusalKind {
    /// Reads the kind from the text of a [`CredentialRefusal`]. Returns `None` for another text.
    pub fn read(text: &str) -> Option<Self> {
        if let Some((excess, _)) = text.split_once(": this node's policy lets ") {
            return GrantExcess::read_all(excess)?.into_iter().next().map(Self::Limited);
        }
        let is_other_node = text.starts_with("block ") && text.contains(" is for the nodes ");
        if is_other_node {
            return Some(Self::OtherNode);
        }
        let beginnings = [
            ("expired: ", Self::Expired),
            ("not yet valid: ", Self::NotYet),
            ("revoked: ", Self::Revoked),
            ("this is no credential: ", Self::Unusable),
            ("the credential has ", Self::Unusable),
            ("the token ", Self::Unusable),
            ("block ", Self::Unusable),
            ("the credential is ", Self::Unusable),
            ("widened: ", Self::Unusable),
        ];
        beginnings.into_iter().find(|(begin, _)| text.starts_with(begin)).map(|(_, kind)| kind)
    }
}

impl CredentialRefusal {
    /// Returns true if the credential was revoked.
    pub fn is_revocation(&self) -> bool {
        matches!(self, Self::Revoked { .. } | Self::RevokedBefore { .. })
    }
}

/// An error in one block of a credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// Bytes that are not a Biscuit block.
    #[error("its bytes are not those of a block")]
    NotABlock,
    /// A block with parts that credentials do not have, or in another encoding than weir's.
    #[error("it has parts that no block of a credential has, or in another form")]
    Form,
    /// Datalog rules, checks or scopes, which weir never evaluates.
    #[error("it has {0}: blocks of credentials state facts, and nothing in them is evaluated")]
    Evaluated(&'static str),
    /// A block for another purpose, or by a later version of weir.
    #[error(
        "it is not of version 1 of weir's credentials: make it with this version of weir, or bring the node up to date"
    )]
    Version,
    /// A fact that no credential has.
    #[error("it states `{0}`, which is not a fact of a credential")]
    UnknownFact(String),
    /// A fact that occurs twice.
    #[error("it states `{0}` twice")]
    Doubled(&'static str),
    /// A required fact is missing.
    #[error("it does not state `{0}`")]
    Missing(&'static str),
    /// A fact that only the operator's block may have, in another block.
    #[error("it states `{0}`, which only the operator's block does")]
    Misplaced(&'static str),
    /// A fact with an illegal value.
    #[error("its fact `{fact}` has an illegal value: it must be {wanted}")]
    Value {
        /// The fact.
        fact: &'static str,
        /// The legal values, with the unit.
        wanted: &'static str,
    },
    /// A grant that no block can have.
    #[error(transparent)]
    Grant(#[from] GrantError),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grant::{GrantPart, Resource};

    /// The kind of each refusal. The match is exhaustive, so a new refusal gets a kind, and then a sample.
    fn kind(refusal: &CredentialRefusal) -> CredentialRefusalKind {
        match refusal {
            CredentialRefusal::Expired { .. } => CredentialRefusalKind::Expired,
            CredentialRefusal::NotYet { .. } => CredentialRefusalKind::NotYet,
            CredentialRefusal::Revoked { .. } | CredentialRefusal::RevokedBefore { .. } => {
                CredentialRefusalKind::Revoked
            }
            CredentialRefusal::Node { .. } => CredentialRefusalKind::OtherNode,
            CredentialRefusal::Limited { excess, .. } => CredentialRefusalKind::Limited(excess.clone()),
            CredentialRefusal::Text
            | CredentialRefusal::TooLong(_)
            | CredentialRefusal::NotAToken
            | CredentialRefusal::Blocks(_)
            | CredentialRefusal::Form
            | CredentialRefusal::Sealed
            | CredentialRefusal::Algorithm { .. }
            | CredentialRefusal::FirstParty { .. }
            | CredentialRefusal::Signer { .. }
            | CredentialRefusal::Block { .. }
            | CredentialRefusal::UnknownRoot(_)
            | CredentialRefusal::Forged
            | CredentialRefusal::Circular { .. }
            | CredentialRefusal::NotHolder { .. }
            | CredentialRefusal::Widened { .. }
            | CredentialRefusal::OverDelegated { .. } => CredentialRefusalKind::Unusable,
        }
    }

    #[test]
    fn the_kind_of_every_refusal_is_read_from_its_text() {
        let key = crate::key::Identity::from_seed(&[1; 32]).public();
        let (now, id) = (UnixSecond::default(), DelegationId::of_root(&key));
        let excess = |part| GrantExcess { part, requested: "2".to_owned(), given: "1".to_owned() };
        let memory = excess(GrantPart::Resource(Resource::Memory));
        let node: NodeName = "ix-1.example".parse().unwrap();
        let nodes: Nodes = ["*.other".parse().unwrap()].into_iter().collect();
        for refusal in [
            CredentialRefusal::Text,
            CredentialRefusal::TooLong(99_999),
            CredentialRefusal::NotAToken,
            CredentialRefusal::Blocks(9),
            CredentialRefusal::Form,
            CredentialRefusal::Sealed,
            CredentialRefusal::Algorithm { block: 1 },
            CredentialRefusal::FirstParty { block: 1 },
            CredentialRefusal::Signer { block: 1, signer: key, holder: key },
            CredentialRefusal::Block { block: 1, error: BlockError::Form },
            CredentialRefusal::UnknownRoot(key),
            CredentialRefusal::Forged,
            CredentialRefusal::Circular { block: 1, holder: key },
            CredentialRefusal::NotHolder { holder: key, peer: key },
            CredentialRefusal::Widened { block: 1, excess: memory },
            CredentialRefusal::OverDelegated { block: 1 },
            CredentialRefusal::NotYet { block: 1, from: now, now },
            CredentialRefusal::Expired { block: 1, until: now, now },
            CredentialRefusal::Node { block: 1, nodes, node },
            CredentialRefusal::Limited { root: key, excess: excess(GrantPart::Delegations) },
            CredentialRefusal::Revoked { block: 1, id },
            CredentialRefusal::RevokedBefore { block: 1, id, before: now },
        ] {
            assert_eq!(CredentialRefusalKind::read(&refusal.to_string()), Some(kind(&refusal)), "{refusal}");
        }
        assert_eq!(CredentialRefusalKind::read("only the node's operator may reload"), None);
    }
}
