//! The state of a node: all that is revoked, of every root.

use super::root::ProvenDelegator;
use super::{Issuer, ListHeader, RevocationError, RevocationList, RootRevocations};
use crate::credential::{ChainBlock, CredentialRefusal, DatedId, PrefixId, VerifiedCredential};
use crate::grant::Second;
use crate::key::PublicKey;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The circumstances in which a list comes.
#[derive(Clone, Copy, Debug)]
pub struct Reception<'a> {
    /// The roots that are trusted.
    pub roots: &'a [PublicKey],
    /// The credential that the peer has shown, and that holds.
    pub shown: Option<&'a VerifiedCredential>,
    /// The time.
    pub now: Second,
}

impl<'a> Reception<'a> {
    /// From a file, or from a peer that shows no credential.
    pub fn new(roots: &'a [PublicKey], now: Second) -> Self {
        Self { roots, shown: None, now }
    }
}

/// The use of a list, by its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// All of it is held already.
    Known,
    /// It may have something new.
    Wanted,
}

/// The result of taking a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// True if anything is revoked that was not before, or for longer.
    pub has_changed: bool,
    /// Entries that found no room: the rest of the list holds all the same.
    pub left_out: Option<RevocationError>,
}

/// The reason why a link of a chain is revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevokedBy {
    /// The place of the link in the chain, from 0.
    pub block: usize,
    /// Its identifier.
    pub id: PrefixId,
    /// The time before which all is revoked, where it is not revoked by its identifier.
    pub before: Option<Second>,
}

impl From<RevokedBy> for CredentialRefusal {
    fn from(RevokedBy { block, id, before }: RevokedBy) -> Self {
        match before {
            None => Self::Revoked { block, id },
            Some(before) => Self::RevokedBefore { block, id, before },
        }
    }
}

/// All that is known to be revoked, by root: the union of all lists that were taken, without entries that have expired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revocations(BTreeMap<PublicKey, Arc<RootRevocations>>);

impl Revocations {
    /// Tells from the header of a list if the rest is of use. The signature is verified last, as it costs most.
    ///
    /// # Errors
    /// The list would not be taken, whatever its body.
    pub fn offered(
        &self,
        header: &ListHeader,
        reception: &Reception<'_>,
    ) -> Result<Offered, RevocationError> {
        self.standing(header.issuer(), reception)?;
        if self.has_taken(header.issuer(), header.digest()) {
            return Ok(Offered::Known);
        }
        header.verify()?;
        Ok(Offered::Wanted)
    }

    /// Adds a list of a trusted root, or of a holder whose right was shown or is known. Entries that find no room are counted; all others hold.
    ///
    /// # Errors
    /// The list is of no trusted root, or the right of its signer was not shown: then nothing changes.
    pub fn accept(
        &mut self,
        list: &RevocationList,
        reception: &Reception<'_>,
    ) -> Result<Accepted, RevocationError> {
        let (issuer, now) = (list.issuer(), reception.now);
        let standing = self.standing(issuer, reception)?;
        if self.has_taken(issuer, list.digest()) {
            return Ok(Accepted { has_changed: false, left_out: None });
        }
        let root = Arc::make_mut(self.0.entry(*issuer.of()).or_default());
        root.forget(now);
        let (has_changed, left_out, is_own) = match (issuer.under(), standing) {
            (Some(under), Some(standing)) => {
                let (has_changed, left_out) = root.add_delegated(*under, standing, list, now);
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

    /// The proven right of a delegator; `None` for a root.
    fn standing(
        &self,
        issuer: &Issuer,
        reception: &Reception<'_>,
    ) -> Result<Option<ProvenDelegator>, RevocationError> {
        let (root, signer) = (*issuer.of(), *issuer.signer());
        if !reception.roots.contains(&root) {
            return Err(RevocationError::UnknownRoot(root));
        }
        let Some(under) = issuer.under() else { return Ok(None) };
        let shown = reception.shown.filter(|shown| *shown.root() == root).and_then(|shown| {
            let at = shown.chain().iter().position(|link| link.id == *under && link.holder == signer)?;
            let above = shown.chain().iter().take(at).map(|link| link.id).collect();
            // Every authority has an end.
            let until = DatedId::of_chain(shown.chain()).nth(at)?.expires.unwrap_or(Second::MAX);
            Some(ProvenDelegator { holder: signer, above, until })
        });
        let known = || {
            let known = self.0.get(&root)?.delegators.get(under).filter(|known| known.holder == signer)?;
            Some(ProvenDelegator { holder: signer, above: known.above.clone(), until: known.until })
        };
        shown.or_else(known).map(Some).ok_or(RevocationError::NotShown { signer, under: *under })
    }

    fn has_taken(&self, issuer: &Issuer, digest: &[u8; 32]) -> bool {
        let Some(root) = self.0.get(issuer.of()) else { return false };
        match issuer.under() {
            None => root.own.taken.contains(digest),
            Some(under) => root.delegators.get(under).is_some_and(|it| it.issued.taken.contains(digest)),
        }
    }

    /// Adds all that another state has of these roots. Returns the number of entries that found no room.
    pub fn absorb(&mut self, other: &Self, roots: &[PublicKey], now: Second) -> usize {
        let mut left_out = 0;
        for (root, theirs) in other.0.iter().filter(|(root, _)| roots.contains(root)) {
            match self.0.get_mut(root) {
                Some(mine) if mine == theirs => {}
                Some(mine) => left_out += Arc::make_mut(mine).absorb(theirs, now),
                None => _ = self.0.insert(*root, Arc::clone(theirs)),
            }
        }
        left_out
    }

    /// Puts in the state of one root, as it was kept.
    pub fn insert(&mut self, root: PublicKey, revoked: RootRevocations) {
        self.0.insert(root, Arc::new(revoked));
    }

    /// The first link of a chain that is revoked. Lists say nothing of the chains of other roots, and those of a holder nothing of chains that do not pass through their link.
    pub fn find(&self, root: &PublicKey, chain: &[ChainBlock]) -> Option<RevokedBy> {
        let (block, before) = self.0.get(root)?.find(chain)?;
        Some(RevokedBy { block, id: chain.get(block)?.id, before })
    }

    /// Returns true if this root itself has revoked this identifier.
    pub fn contains(&self, root: &PublicKey, id: &PrefixId) -> bool {
        self.0.get(root).is_some_and(|root| root.own.set.contains(id))
    }

    /// The state of a root.
    pub fn of(&self, root: &PublicKey) -> Option<&RootRevocations> {
        self.0.get(root).map(Arc::as_ref)
    }

    /// Every root of which something is revoked.
    pub fn roots(&self) -> impl ExactSizeIterator<Item = (&PublicKey, &RootRevocations)> {
        self.0.iter().map(|(root, revoked)| (root, revoked.as_ref()))
    }
}
