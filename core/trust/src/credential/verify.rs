//! What a credential is worth.

use super::{Credential, CredentialRefusal, PrefixId};
use crate::grant::{Grant, GrantExcess, GrantPart, GrantRequest, NodeName, Second};
use crate::key::PublicKey;
use crate::revocation::Revocations;
use biscuit_auth::builder::Algorithm;
use biscuit_auth::format::SerializedBiscuit;

/// One block of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainBlock {
    /// Who may use the chain up to here, and pass it on.
    pub holder: PublicKey,
    /// What this block alone says.
    pub grant: Grant,
    /// The time at which it was signed, by the signer's clock; `None` in blocks of earlier versions.
    pub issued: Option<Second>,
    /// The chain up to here.
    pub id: PrefixId,
}

/// Who shows a credential, where and when.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The operators whom the node trusts.
    pub roots: &'a [PublicKey],
    /// What they have taken back.
    pub revocations: &'a Revocations,
    /// The key that the peer has proven to have.
    pub peer: &'a PublicKey,
    /// The node's name.
    pub node: &'a NodeName,
    /// The time.
    pub now: Second,
}

/// A credential that holds, for its holder, at this node, now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedCredential {
    root: PublicKey,
    chain: Vec<ChainBlock>,
    /// What its blocks say together.
    said: Grant,
    /// What the node lets its root grant at most.
    limit: Grant,
    effective: Grant,
    expires: Second,
}

impl Credential {
    /// What it is worth.
    ///
    /// What costs little is looked at first: two signatures for each block are verified only where it is the peer's own, and of a known root.
    ///
    /// # Errors
    /// The first [`CredentialRefusal`] that holds.
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
        // Every authority has an end: see `template.rs`.
        let expires = effective.expires.unwrap_or_default();
        let (said, limit) = (effective.clone(), Grant::default());
        Ok(VerifiedCredential { root: self.root, chain: self.links.clone(), said, limit, effective, expires })
    }

    /// Whether every signature holds, from the root that it names down to the throw-away key at its end. Whether anybody trusts that root is another question.
    ///
    /// # Errors
    /// [`CredentialRefusal::Forged`].
    pub fn check_signatures(&self) -> Result<(), CredentialRefusal> {
        let root = biscuit_auth::PublicKey::from_bytes(self.root.as_bytes(), Algorithm::Ed25519);
        let root = root.map_err(|_| CredentialRefusal::Forged)?;
        // Neither this nor anything else here runs what the blocks may say.
        SerializedBiscuit::from_slice(&self.bytes, root).map(|_| ()).map_err(|_| CredentialRefusal::Forged)
    }
}

impl VerifiedCredential {
    /// The operator whose grant it is.
    pub fn root(&self) -> &PublicKey {
        &self.root
    }

    /// The chain from the operator's block to the holder's, never empty. What the holder uses is charged to each [`PrefixId`] in it.
    pub fn chain(&self) -> &[ChainBlock] {
        &self.chain
    }

    /// What all blocks together allow, as far as the node lets their root grant it.
    pub fn grant(&self) -> &Grant {
        &self.effective
    }

    /// What the node lets its root grant at most, all its credentials together: nothing is restricted where nothing was said by [`VerifiedCredential::within`].
    pub fn limit(&self) -> &Grant {
        &self.limit
    }

    /// The same at a node that lets its root grant this much at most, in the place of whatever limit there was. What its blocks say beyond that is cut off: they were
    /// signed by people who need not know this node.
    ///
    /// # Errors
    /// [`CredentialRefusal::Limited`] where nothing is left: for this node, at this time, or for a chain of this length.
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
        let effective = self.said.meet(&Grant { delegations: left, ..limit.clone() });
        let expires = effective.expires.unwrap_or(self.expires);
        Ok(Self { limit: limit.clone(), effective, expires, ..self.clone() })
    }

    /// The first second in which it does not hold any more.
    pub fn expires(&self) -> Second {
        self.expires
    }

    /// Who may use it: the last holder, who is the peer.
    pub fn holder(&self) -> &PublicKey {
        self.chain.last().map_or(&self.root, |link| &link.holder)
    }

    /// Its name.
    pub fn id(&self) -> PrefixId {
        self.chain.last().map_or_else(|| PrefixId::after(None, &[]), |link| link.id)
    }

    /// The first of its blocks that was revoked, if any was by now: whoever has verified it asks this again after each new list.
    pub fn revoked_by(&self, revocations: &Revocations) -> Option<CredentialRefusal> {
        revocations.find(&self.root, &self.chain).map(CredentialRefusal::from)
    }
}
