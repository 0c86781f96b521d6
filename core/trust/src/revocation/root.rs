//! Revocations in the name of one root.

use super::share::DelegatorQuota;
use super::{DELEGATED_MAX, LIVE_MAX, RevocationList, RevokedSet};
use crate::credential::{ChainBlock, DatedId, DelegationId};
use crate::grant::Second;
use crate::key::PublicKey;
use std::collections::{BTreeMap, VecDeque};

/// The most digests of bodies that are remembered for each signer. By its digest a repeated list is recognised from the
/// header.
pub(super) const TAKEN_MAX: usize = 8;

/// The entries of one signer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Issued {
    pub(super) set: RevokedSet,
    /// The highest sequence number in the signer's lists. It is only shown to people.
    pub(super) sequence: u64,
    /// Digests of the latest lists of which the set holds every entry, oldest first.
    pub(super) taken: VecDeque<[u8; 32]>,
}

impl Issued {
    /// Remembers the sequence number of a list. Remembers the digest, too, if the set holds every entry of the list. A list
    /// with skipped expired entries is read again, because the clock may have been ahead.
    fn note(&mut self, list: &RevocationList, left_out: usize, now: Second) {
        let is_skipped = |entry: DatedId| has_expired(entry, now) && !self.set.contains(&entry.id);
        let is_whole = left_out == 0 && !list.revoked().iter().any(is_skipped);
        self.sequence = self.sequence.max(list.sequence());
        if is_whole && !self.taken.contains(list.digest()) {
            if self.taken.len() >= TAKEN_MAX {
                self.taken.pop_front();
            }
            self.taken.push_back(*list.digest());
        }
    }

    /// Removes entries that expired more than [`KEPT_AFTER_SECONDS`](super::KEPT_AFTER_SECONDS) ago. If there were any,
    /// forgets all digests, because any of these lists may have had the removed entries.
    fn forget(&mut self, now: Second) {
        if self.set.forget(now) {
            self.taken.clear();
        }
    }

    /// Removes all entries that have expired. If there were any, forgets all digests.
    fn forget_expired(&mut self, now: Second) {
        if self.set.forget_expired(now) {
            self.taken.clear();
        }
    }
}

/// The revocations by the holder of one block, of blocks that were delegated from this block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Delegator {
    pub(super) holder: PublicKey,
    /// The identifiers of the blocks before the holder's, root first.
    pub(super) above: Vec<DelegationId>,
    /// The time at which the holder's block expires. All blocks that the holder can revoke have expired then, too.
    pub(super) until: Second,
    pub(super) issued: Issued,
}

impl Delegator {
    /// Returns the number of entries that count against the quota: identifiers, and 1 for `all-before`.
    pub(super) fn entries(&self) -> usize {
        self.issued.set.len() + usize::from(self.issued.set.all_before().is_some())
    }

    /// Returns the identifiers of the blocks of the holder's chain, root first. `under` is that of the holder's own block.
    pub(super) fn path<'a>(&'a self, under: &'a DelegationId) -> impl Iterator<Item = &'a DelegationId> {
        self.above.iter().chain(std::iter::once(under))
    }
}

/// The proven right of a delegator to revoke; the fields are those of [`Delegator`].
#[derive(Clone, Debug)]
pub(super) struct ProvenDelegator {
    pub(super) holder: PublicKey,
    pub(super) above: Vec<DelegationId>,
    pub(super) until: Second,
}

/// Revocations in the name of one root: its own entries, and those of delegators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RootRevocations {
    pub(super) own: Issued,
    pub(super) delegators: BTreeMap<DelegationId, Delegator>,
}

impl RootRevocations {
    /// Returns the root's own entries.
    pub fn own(&self) -> &RevokedSet {
        &self.own.set
    }

    /// Returns the highest sequence number of the root's lists.
    pub fn sequence(&self) -> u64 {
        self.own.sequence
    }

    /// Returns the delegators that have revoked blocks, each with its own block and its entries.
    pub fn delegators(&self) -> impl Iterator<Item = (&PublicKey, &DelegationId, &RevokedSet)> {
        self.delegators.iter().map(|(under, it)| (&it.holder, under, &it.issued.set))
    }

    /// Returns the number of entries of all delegators.
    pub fn delegated(&self) -> usize {
        self.delegators.values().map(Delegator::entries).sum()
    }

    /// Returns the number of all entries.
    pub fn live(&self) -> usize {
        self.own.set.len() + self.delegated()
    }

    /// Adds a root's list. Returns true if the state changes, and the number of entries that found no room.
    pub(super) fn add_own(&mut self, list: &RevocationList, now: Second) -> (bool, usize) {
        let counted = self.join_own(list.revoked(), now);
        self.own.note(list, counted.1, now);
        counted
    }

    fn join_own(&mut self, revoked: &RevokedSet, now: Second) -> (bool, usize) {
        let mut has_changed = revoked.all_before().is_some_and(|time| self.own.set.revoke_all_before(time));
        let mut left_out = 0;
        let most = LIVE_MAX.saturating_sub(self.delegated());
        for entry in revoked.iter().filter(|entry| !has_expired(*entry, now)) {
            if !self.own.set.contains(&entry.id) && self.own.set.len() >= most {
                self.own.forget_expired(now);
                if self.own.set.len() >= most {
                    left_out += 1;
                    continue;
                }
            }
            has_changed |= self.own.set.insert(entry);
        }
        self.drop_redundant();
        (has_changed, left_out)
    }

    /// Adds a delegator's list. Returns true if the state changes, and the number of entries that found no room.
    pub(super) fn add_delegated(
        &mut self,
        under: DelegationId,
        right: ProvenDelegator,
        list: &RevocationList,
        now: Second,
    ) -> (bool, usize) {
        let mut counted = self.join_delegated(under, right, list.revoked(), now);
        if let Some(delegator) = self.delegators.get_mut(&under) {
            delegator.issued.note(list, counted.1, now);
        } else if counted.1 == 0 && !list.revoked().is_empty() {
            // All entries had expired, or a block before the delegator's is revoked.
            counted.0 = false;
        }
        counted
    }

    fn join_delegated(
        &mut self,
        under: DelegationId,
        ProvenDelegator { holder, above, until }: ProvenDelegator,
        revoked: &RevokedSet,
        now: Second,
    ) -> (bool, usize) {
        let free = DELEGATED_MAX.min(LIVE_MAX.saturating_sub(self.own.set.len()));
        let free = free.saturating_sub(self.delegated());
        let path: Vec<DelegationId> = above.iter().copied().chain([under]).collect();
        let mut share = DelegatorQuota::of(&path, self.delegators.iter(), free);
        let new = || Delegator { holder, above, until, issued: Issued::default() };
        let mut delegator = self.delegators.remove(&under).unwrap_or_else(new);
        let set = &mut delegator.issued.set;
        let (mut has_changed, mut left_out) = (false, 0);
        if let Some(time) = revoked.all_before() {
            if set.all_before().is_some() || share.take() {
                has_changed |= set.revoke_all_before(time);
            } else {
                left_out += 1;
            }
        }
        for DatedId { id, expires } in revoked.iter().filter(|entry| !has_expired(*entry, now)) {
            // No block expires later than the blocks before it.
            let entry = DatedId { id, expires: Some(expires.map_or(until, |expires| expires.min(until))) };
            if set.contains(&id) || share.take() {
                has_changed |= set.insert(entry);
            } else {
                left_out += 1;
            }
        }
        if !delegator.issued.set.is_empty() {
            self.delegators.insert(under, delegator);
        }
        self.drop_redundant();
        (has_changed, left_out)
    }

    /// Adds all entries of another state of the same root. Returns the number of entries that found no room.
    pub(super) fn merge(&mut self, other: &Self, now: Second) -> usize {
        let (_, mut left_out) = self.join_own(&other.own.set, now);
        self.own.sequence = self.own.sequence.max(other.own.sequence);
        for (under, delegator) in &other.delegators {
            let Delegator { holder, above, until, issued } = delegator.clone();
            let right = ProvenDelegator { holder, above, until };
            left_out += self.join_delegated(*under, right, &issued.set, now).1;
            if let Some(there) = self.delegators.get_mut(under) {
                there.issued.sequence = there.issued.sequence.max(issued.sequence);
            }
        }
        left_out
    }

    /// Removes entries that expired more than [`KEPT_AFTER_SECONDS`](super::KEPT_AFTER_SECONDS) ago, and delegators whose
    /// own block did.
    pub(super) fn forget(&mut self, now: Second) {
        self.own.forget(now);
        for delegator in self.delegators.values_mut() {
            delegator.issued.forget(now);
        }
        let is_over =
            |until: Second| until.number().saturating_add(super::KEPT_AFTER_SECONDS) <= now.number();
        self.delegators.retain(|_, it| !is_over(it.until) && !it.issued.set.is_empty());
    }

    /// Drops the entries of delegators whose own block, or a block before it, is revoked until the delegator's block
    /// expires. All chains to which such entries apply are invalid anyway.
    fn drop_redundant(&mut self) {
        let is_revoked = |under: &DelegationId, it: &Delegator| {
            let lasts = |set: &RevokedSet, id: &DelegationId| {
                set.expiry(id).flatten().is_some_and(|expires| expires >= it.until)
            };
            let path: Vec<&DelegationId> = it.path(under).collect();
            path.iter().enumerate().any(|(at, id)| {
                let by_root = lasts(&self.own.set, id);
                let above = path.get(..at).unwrap_or_default().iter();
                by_root
                    || above
                        .filter_map(|above| self.delegators.get(*above))
                        .any(|by| lasts(&by.issued.set, id))
            })
        };
        let gone: Vec<DelegationId> = self
            .delegators
            .iter()
            .filter(|(under, it)| is_revoked(under, it))
            .map(|(under, _)| *under)
            .collect();
        gone.iter().for_each(|under| _ = self.delegators.remove(under));
    }

    /// Returns the index of the first revoked block of a chain, and the reason.
    pub(super) fn find(&self, chain: &[ChainBlock]) -> Option<(usize, Option<Second>)> {
        (0..chain.len()).find_map(|at| Some((at, self.revokes(chain, at)?)))
    }

    /// Returns the reason why a block is revoked: `Some(None)` for an entry, `Some(Some(time))` for an `all-before`. `None`
    /// if the block is not revoked.
    fn revokes(&self, chain: &[ChainBlock], at: usize) -> Option<Option<Second>> {
        let link = chain.get(at)?;
        if self.own.set.contains(&link.id) {
            return Some(None);
        }
        if let Some(before) = self.own.set.all_before_of(link).filter(|_| at == 0) {
            return Some(Some(before));
        }
        for (by, delegator) in chain.iter().take(at).zip(0..).filter_map(|(above, by)| {
            // The identifier covers the whole chain up to its block, and so this holder.
            Some((by, self.delegators.get(&above.id)?))
        }) {
            if delegator.issued.set.contains(&link.id) {
                return Some(None);
            }
            if let Some(before) = delegator.issued.set.all_before_of(link).filter(|_| by + 1 == at) {
                return Some(Some(before));
            }
        }
        None
    }
}

fn has_expired(entry: DatedId, now: Second) -> bool {
    entry.expires.is_some_and(|expires| expires <= now)
}
