//! The revocations that a node knows, for every root.

use super::root::ProvenDelegator;
use super::{Issuer, ListHeader, RevocationError, RevocationList, RootRevocations};
use crate::credential::{ChainBlock, CredentialRefusal, DatedId, DelegationId, VerifiedCredential};
use crate::grant::UnixSecond;
use crate::key::PublicKey;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The circumstances in which a node receives a list.
#[derive(Clone, Copy, Debug)]
pub struct ListReception<'a> {
    /// The trusted roots.
    pub roots: &'a [PublicKey],
    /// The valid credential that the peer has shown; `None` for a file, or for a peer without a credential.
    pub credential: Option<&'a VerifiedCredential>,
    /// The current time.
    pub now: UnixSecond,
}

impl<'a> ListReception<'a> {
    /// Returns the circumstances of a list from a file, or from a peer that has shown no credential.
    pub fn new(roots: &'a [PublicKey], now: UnixSecond) -> Self {
        Self { roots, credential: None, now }
    }
}

/// The answer of a node to the header of an offered list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListUse {
    /// The state holds all entries of the list already: the body is not needed.
    Known,
    /// The list may have new entries: the body is needed.
    Wanted,
}

/// The result of accepting a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// True if the list revokes a block that was not revoked before, or revokes one for longer.
    pub has_changed: bool,
    /// The error for entries that found no room; all other entries take effect. `None` if no entry was left out.
    pub left_out: Option<RevocationError>,
}

/// The revocation of a block of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevokedBy {
    /// The index of the block in the chain, from 0.
    pub block: usize,
    /// The identifier of the block.
    pub id: DelegationId,
    /// The time before which the signer revoked everything; `None` if the block is revoked by its identifier.
    pub before: Option<UnixSecond>,
}

impl From<RevokedBy> for CredentialRefusal {
    fn from(RevokedBy { block, id, before }: RevokedBy) -> Self {
        match before {
            None => Self::Revoked { block, id },
            Some(before) => Self::RevokedBefore { block, id, before },
        }
    }
}

/// All known revocations, by root: the union of all accepted lists, without entries that have expired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revocations(BTreeMap<PublicKey, Arc<RootRevocations>>);

impl Revocations {
    /// Decides from a list's header whether the body is needed. The signature is verified last, as this costs most.
    ///
    /// # Errors
    /// Fails if the list would be refused with any body.
    pub fn check_header(
        &self,
        header: &ListHeader,
        reception: &ListReception<'_>,
    ) -> Result<ListUse, RevocationError> {
        self.proven_right(header.issuer(), reception)?;
        if self.holds_list(header.issuer(), header.digest()) {
            return Ok(ListUse::Known);
        }
        header.verify()?;
        Ok(ListUse::Wanted)
    }

    /// Adds a list of a trusted root, or of a holder whose right was proven by this peer's credential or an earlier one.
    /// Entries that find no room are left out; all others take effect.
    ///
    /// # Errors
    /// Fails without a change if the root is not trusted, or if the right of the list's signer was never proven.
    pub fn accept(
        &mut self,
        list: &RevocationList,
        reception: &ListReception<'_>,
    ) -> Result<Accepted, RevocationError> {
        let (issuer, now) = (list.issuer(), reception.now);
        let right = self.proven_right(issuer, reception)?;
        if self.holds_list(issuer, list.digest()) {
            return Ok(Accepted { has_changed: false, left_out: None });
        }
        let root = Arc::make_mut(self.0.entry(*issuer.affected_root()).or_default());
        root.drop_long_expired(now);
        let (has_changed, left_out, is_own) = match (issuer.own_block(), right) {
            (Some(own_block), Some(right)) => {
                let (has_changed, left_out) = root.add_delegated(*own_block, right, list, now);
                (has_changed, left_out, false)
            }
            _ => {
                let (has_changed, left_out) = root.add_own(list, now);
                (has_changed, left_out, true)
            }
        };
        let full =
            if is_own { RevocationError::Full { left_out } } else { RevocationError::ShareFull { left_out } };
        Ok(Accepted { has_changed, left_out: (left_out > 0).then_some(full) })
    }

    /// Returns the right of a delegator that signs lists, proven by the peer's credential or by an earlier list; `None`
    /// for a root, which needs no proof.
    fn proven_right(
        &self,
        issuer: &Issuer,
        reception: &ListReception<'_>,
    ) -> Result<Option<ProvenDelegator>, RevocationError> {
        let (root, signer) = (*issuer.affected_root(), *issuer.signer());
        if !reception.roots.contains(&root) {
            return Err(RevocationError::UnknownRoot(root));
        }
        let Some(own_block) = issuer.own_block() else { return Ok(None) };
        let shown_now = reception.credential.filter(|it| *it.root() == root).and_then(|credential| {
            let blocks = credential.chain();
            let index = blocks.iter().position(|block| block.id == *own_block && block.holder == signer)?;
            let ancestors = blocks.iter().take(index).map(|block| block.id).collect();
            // The first block of a chain always has an expiry time.
            let until = DatedId::of_chain(blocks).nth(index)?.expires.unwrap_or(UnixSecond::MAX);
            Some(ProvenDelegator { holder: signer, ancestors, until })
        });
        let shown_earlier = || {
            let known =
                self.0.get(&root)?.delegators.get(own_block).filter(|known| known.holder == signer)?;
            Some(ProvenDelegator { holder: signer, ancestors: known.ancestors.clone(), until: known.until })
        };
        shown_now
            .or_else(shown_earlier)
            .map(Some)
            .ok_or(RevocationError::UnprovenRight { signer, own_block: *own_block })
    }

    /// Returns true if the state holds all entries of the list with this digest.
    fn holds_list(&self, issuer: &Issuer, digest: &[u8; 32]) -> bool {
        let Some(root) = self.0.get(issuer.affected_root()) else { return false };
        match issuer.own_block() {
            None => root.own.complete_lists.contains(digest),
            Some(own_block) => root
                .delegators
                .get(own_block)
                .is_some_and(|delegator| delegator.entries.complete_lists.contains(digest)),
        }
    }

    /// Adds the entries of another state for these roots. Returns the number of entries that found no room.
    pub fn merge(&mut self, other: &Self, roots: &[PublicKey], now: UnixSecond) -> usize {
        let mut left_out = 0;
        for (root, added) in other.0.iter().filter(|(root, _)| roots.contains(root)) {
            match self.0.get_mut(root) {
                Some(own) if own == added => {}
                Some(own) => left_out += Arc::make_mut(own).merge(added, now),
                None => _ = self.0.insert(*root, Arc::clone(added)),
            }
        }
        left_out
    }

    /// Replaces the revocations of one root by stored ones.
    pub fn insert(&mut self, root: PublicKey, revoked: RootRevocations) {
        self.0.insert(root, Arc::new(revoked));
    }

    /// Returns the first revoked block of a chain. A root's lists do not affect chains of other roots; a holder's lists
    /// only affect chains through the holder's block.
    pub fn find(&self, root: &PublicKey, chain: &[ChainBlock]) -> Option<RevokedBy> {
        let (block, before) = self.0.get(root)?.find(chain)?;
        Some(RevokedBy { block, id: chain.get(block)?.id, before })
    }

    /// Returns true if a list of the root itself has revoked the identifier.
    pub fn contains(&self, root: &PublicKey, id: &DelegationId) -> bool {
        self.0.get(root).is_some_and(|root| root.own.set.contains(id))
    }

    /// Returns the revocations of a root.
    pub fn by_root(&self, root: &PublicKey) -> Option<&RootRevocations> {
        self.0.get(root).map(Arc::as_ref)
    }

    /// Returns every root that has revocations.
    pub fn roots(&self) -> impl ExactSizeIterator<Item = (&PublicKey, &RootRevocations)> {
        self.0.iter().map(|(root, revoked)| (root, revoked.as_ref()))
    }
}
