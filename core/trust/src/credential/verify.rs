//! Verification of credentials.

use super::{Credential, CredentialRefusal, DelegationId};
use crate::grant::{Grant, GrantExcess, GrantPart, GrantRequest, NodeName, UnixSecond};
use crate::key::PublicKey;
use crate::revocation::Revocations;
use biscuit_auth::builder::Algorithm;
use biscuit_auth::format::SerializedBiscuit;
use std::sync::Arc;

/// One block of a delegation chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainBlock {
    /// The key that may use and delegate the rights of the chain up to this block.
    pub holder: PublicKey,
    /// The grant of this block alone.
    pub grant: Grant,
    /// The time at which the block was signed, by the signer's clock; `None` in blocks of earlier versions.
    pub issued: Option<UnixSecond>,
    /// The identifier of the chain up to this block.
    pub id: DelegationId,
}

/// The peer, the node and the time for which a credential is verified.
#[derive(Clone, Copy, Debug)]
pub struct VerificationContext<'a> {
    /// The root keys that the node trusts.
    pub roots: &'a [PublicKey],
    /// The revocations that the node knows.
    pub revocations: &'a Revocations,
    /// The identity that the peer has proven in the handshake.
    pub peer: &'a PublicKey,
    /// The node's name.
    pub node: &'a NodeName,
    /// The current time.
    pub now: UnixSecond,
}

/// A credential whose verification has succeeded: valid for its holder, at one node, at the time of verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedCredential {
    token: Arc<[u8]>,
    root: PublicKey,
    chain: Vec<ChainBlock>,
    /// The meet of the grants of all blocks.
    claimed: Grant,
    /// The node's limit for the root.
    limit: Grant,
    /// The meet of `claimed` and `limit`.
    effective: Grant,
    expires: UnixSecond,
}

impl Credential {
    /// Verifies the credential.
    ///
    /// Cheap checks come first. The two signatures of each block are verified after the root is found to be trusted,
    /// and the peer to be the holder.
    ///
    /// # Errors
    /// The first [`CredentialRefusal`] that applies.
    pub fn verify(
        &self,
        situation: &VerificationContext<'_>,
    ) -> Result<VerifiedCredential, CredentialRefusal> {
        let VerificationContext { roots, revocations, peer, node, now } = *situation;
        if !roots.contains(&self.root) {
            return Err(CredentialRefusal::UnknownRoot(self.root));
        }
        if self.claimed_holder() != peer {
            return Err(CredentialRefusal::NotHolder { holder: *self.claimed_holder(), peer: *peer });
        }
        self.check_signatures()?;
        let effective = self.checked_meet()?;
        if let Some(revoked) = revocations.find(&self.root, &self.blocks) {
            return Err(revoked.into());
        }
        for (block, ChainBlock { grant, .. }) in self.blocks.iter().enumerate() {
            if let Some(from) = grant.not_before.filter(|from| now < *from) {
                return Err(CredentialRefusal::NotYet { block, from, now });
            }
            if let Some(until) = grant.expires.filter(|until| now >= *until) {
                return Err(CredentialRefusal::Expired { block, until, now });
            }
            if let Some(nodes) = grant.nodes.as_ref().filter(|nodes| !nodes.contains(node)) {
                return Err(CredentialRefusal::Node { block, nodes: nodes.clone(), node: node.clone() });
            }
        }
        // The first block of a credential always has an expiry time: see `template.rs`.
        let expires = effective.expires.unwrap_or_default();
        let (claimed, limit) = (effective, Grant::default());
        let effective = claimed.meet(&limit);
        let (token, root, chain) = (Arc::from(self.as_bytes()), self.root, self.blocks.clone());
        Ok(VerifiedCredential { token, root, chain, claimed, limit, effective, expires })
    }

    /// Checks every signature, from that of the claimed root to that of the last ephemeral key. [`Self::verify`] also
    /// checks that the root is trusted.
    ///
    /// # Errors
    /// [`CredentialRefusal::Forged`].
    pub fn check_signatures(&self) -> Result<(), CredentialRefusal> {
        let root = biscuit_auth::PublicKey::from_bytes(self.root.as_bytes(), Algorithm::Ed25519);
        let root = root.map_err(|_| CredentialRefusal::Forged)?;
        // No function of the library evaluates Datalog here.
        SerializedBiscuit::from_slice(&self.bytes, root).map(|_| ()).map_err(|_| CredentialRefusal::Forged)
    }
}

impl VerifiedCredential {
    /// Returns the credential's bytes, which [`Credential::parse`] reads.
    pub fn as_bytes(&self) -> &[u8] {
        &self.token
    }

    /// Returns the root key, which signed the first grant.
    pub fn root(&self) -> &PublicKey {
        &self.root
    }

    /// Returns the chain from the operator's block to the holder's, never empty. The holder's usage is charged to each
    /// [`DelegationId`] in it.
    pub fn chain(&self) -> &[ChainBlock] {
        &self.chain
    }

    /// Returns the rights that all blocks together give, within the node's limit for the root.
    pub fn grant(&self) -> &Grant {
        &self.effective
    }

    /// Returns the rights that the blocks up to the one with this index give together, within the node's limit for the
    /// root: those of [`VerifiedCredential::grant`] for the last block. `None` without such a block.
    pub fn grant_up_to(&self, index: usize) -> Option<Grant> {
        let mut blocks = self.chain.get(..=index)?.iter();
        let first = blocks.next()?.grant.clone();
        let claimed = blocks.try_fold(first, |given, block| Some(given.delegable()?.meet(&block.grant)))?;
        Some(within_limit(&claimed, &self.limit, u32::try_from(index).unwrap_or(u32::MAX)))
    }

    /// Returns the node's limit for all credentials of the root together. Before [`VerifiedCredential::limited_to`] the
    /// limit restricts nothing.
    pub fn limit(&self) -> &Grant {
        &self.limit
    }

    /// Applies a node's limit for the root, in place of any earlier limit. Rights beyond the limit are cut off without
    /// an error, as issuers need not know the limits of each node.
    ///
    /// # Errors
    /// [`CredentialRefusal::Limited`] if the limit excludes this node, this time, or a chain of this length.
    pub fn limited_to(
        &self,
        limit: &Grant,
        node: &NodeName,
        now: UnixSecond,
    ) -> Result<Self, CredentialRefusal> {
        let beyond_limit = |excess| CredentialRefusal::Limited { root: self.root, excess };
        let delegations = u32::try_from(self.chain.len().saturating_sub(1)).unwrap_or(u32::MAX);
        if let Some(given) = limit.delegations.filter(|given| delegations > *given) {
            let (requested, given) = (delegations.to_string(), given.to_string());
            return Err(beyond_limit(GrantExcess { part: GrantPart::Delegations, requested, given }));
        }
        let request = GrantRequest { node: Some(node), at: Some(now), ..GrantRequest::default() };
        if let Some(excess) = limit.excesses(&request).into_iter().next() {
            return Err(beyond_limit(excess));
        }
        let effective = within_limit(&self.claimed, limit, delegations);
        let expires = effective.expires.unwrap_or(self.expires);
        Ok(Self { limit: limit.clone(), effective, expires, ..self.clone() })
    }

    /// Returns the first second in which the credential is no longer valid.
    pub fn expires(&self) -> UnixSecond {
        self.expires
    }

    /// Returns the holder of the last block, which is the peer.
    pub fn holder(&self) -> &PublicKey {
        self.chain.last().map_or(&self.root, |block| &block.holder)
    }

    /// Returns the identifier of the whole chain.
    pub fn id(&self) -> DelegationId {
        self.chain.last().map_or_else(|| DelegationId::of_block(None, &[]), |block| block.id)
    }

    /// Returns the revocation of the first revoked block; `None` if no block is revoked. Callers check again after each
    /// new revocation list.
    pub fn revoked_by(&self, revocations: &Revocations) -> Option<CredentialRefusal> {
        revocations.find(&self.root, &self.chain).map(CredentialRefusal::from)
    }
}

/// Cuts the rights of a chain with this number of delegations off at the limit of its root.
fn within_limit(claimed: &Grant, limit: &Grant, delegations: u32) -> Grant {
    let remaining = limit.delegations.map(|given| given.saturating_sub(delegations));
    claimed.meet(&Grant { delegations: remaining, ..limit.clone() })
}
