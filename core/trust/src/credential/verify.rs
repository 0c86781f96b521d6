//! Verification of credentials.

use super::{Credential, CredentialRefusal, DelegationId};
use crate::grant::{Grant, GrantExcess, GrantPart, GrantRequest, NodeName, Second};
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
    pub issued: Option<Second>,
    /// The identifier of the chain up to this block.
    pub id: DelegationId,
}

/// The circumstances of a verification: the peer, the node, and the time.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The root keys that the node trusts.
    pub roots: &'a [PublicKey],
    /// The revocations that the node knows.
    pub revocations: &'a Revocations,
    /// The key that the peer has proven to have.
    pub peer: &'a PublicKey,
    /// The node's name.
    pub node: &'a NodeName,
    /// The current time.
    pub now: Second,
}

/// A credential that is valid for its holder, at this node, now.
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
    expires: Second,
}

impl Credential {
    /// Verifies the credential.
    ///
    /// Cheap checks come first: the two signatures of each block are verified only if the peer is the holder and the root
    /// is trusted.
    ///
    /// # Errors
    /// The first [`CredentialRefusal`] that applies.
    pub fn verify(&self, situation: &Situation<'_>) -> Result<VerifiedCredential, CredentialRefusal> {
        let Situation { roots, revocations, peer, node, now } = *situation;
        if !roots.contains(&self.root) {
            return Err(CredentialRefusal::UnknownRoot(self.root));
        }
        if self.claimed_holder() != peer {
            return Err(CredentialRefusal::NotHolder { holder: *self.claimed_holder(), peer: *peer });
        }
        self.check_signatures()?;
        let effective = self.joined()?;
        if let Some(revoked) = revocations.find(&self.root, &self.links) {
            return Err(revoked.into());
        }
        for (block, ChainBlock { grant, .. }) in self.links.iter().enumerate() {
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
        // Every authority has an expiry time: see `template.rs`.
        let expires = effective.expires.unwrap_or_default();
        let (claimed, limit) = (effective.clone(), Grant::default());
        let (token, root, chain) = (Arc::from(self.as_bytes()), self.root, self.links.clone());
        Ok(VerifiedCredential { token, root, chain, claimed, limit, effective, expires })
    }

    /// Checks every signature, from that of the claimed root to that of the last ephemeral key. Does not check that the
    /// root is trusted.
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

    /// Returns the node's limit for all credentials of the root together. Before [`VerifiedCredential::within`] the limit
    /// restricts nothing.
    pub fn limit(&self) -> &Grant {
        &self.limit
    }

    /// Applies a node's limit for the root, in place of any earlier limit. Rights beyond the limit are cut off and are no
    /// error, as issuers need not know the limits of each node.
    ///
    /// # Errors
    /// [`CredentialRefusal::Limited`] if the limit excludes this node, this time, or a chain of this length.
    pub fn within(&self, limit: &Grant, node: &NodeName, now: Second) -> Result<Self, CredentialRefusal> {
        let limited = |excess| CredentialRefusal::Limited { root: self.root, excess };
        let passed_on = u32::try_from(self.chain.len().saturating_sub(1)).unwrap_or(u32::MAX);
        if let Some(given) = limit.delegations.filter(|given| passed_on > *given) {
            let (asked, given) = (passed_on.to_string(), given.to_string());
            return Err(limited(GrantExcess { part: GrantPart::Delegations, asked, given }));
        }
        let here = GrantRequest { node: Some(node), at: Some(now), ..GrantRequest::default() };
        if let Some(excess) = limit.refuses(&here).into_iter().next() {
            return Err(limited(excess));
        }
        let left = limit.delegations.map(|given| given.saturating_sub(passed_on));
        let effective = self.claimed.meet(&Grant { delegations: left, ..limit.clone() });
        let expires = effective.expires.unwrap_or(self.expires);
        Ok(Self { limit: limit.clone(), effective, expires, ..self.clone() })
    }

    /// Returns the first second in which the credential is no longer valid.
    pub fn expires(&self) -> Second {
        self.expires
    }

    /// Returns the last holder, which is the peer.
    pub fn holder(&self) -> &PublicKey {
        self.chain.last().map_or(&self.root, |link| &link.holder)
    }

    /// Returns the identifier of the whole chain.
    pub fn id(&self) -> DelegationId {
        self.chain.last().map_or_else(|| DelegationId::after(None, &[]), |link| link.id)
    }

    /// Returns the revocation of the first revoked block; `None` if no block is revoked. Callers check again after each new
    /// revocation list.
    pub fn revoked_by(&self, revocations: &Revocations) -> Option<CredentialRefusal> {
        revocations.find(&self.root, &self.chain).map(CredentialRefusal::from)
    }
}
