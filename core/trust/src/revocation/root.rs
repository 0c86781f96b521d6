//! Revocations of credentials of one root, and the rules by which lists are joined with them.

use super::share::DelegatorQuota;
use super::{DELEGATED_ENTRIES_MAX, ROOT_ENTRIES_MAX, RevocationList, RevokedSet};
use crate::credential::{ChainBlock, DatedId, DelegationId};
use crate::grant::UnixSecond;
use crate::key::PublicKey;
use std::collections::{BTreeMap, VecDeque};

/// The most digests of lists that are remembered for each signer. A repeated list is recognised by the digest in its
/// header, before its body is read.
pub(super) const COMPLETE_LISTS_MAX: usize = 8;

/// The entries of one signer's lists, joined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SignerEntries {
    /// The revoked blocks.
    pub(super) set: RevokedSet,
    /// The highest sequence number in the signer's lists. It is only shown to people.
    pub(super) sequence: u64,
    /// Digests of the latest lists whose entries are all in the set, oldest first.
    pub(super) complete_lists: VecDeque<[u8; 32]>,
}

impl SignerEntries {
    /// Records the sequence number of a list, and the list's digest if the set holds every entry of the list. `left_out` is
    /// the number of entries that found no room. A list of which expired entries were left out is read again when it is
    /// offered again, because the clock may have been ahead.
    fn record_list(&mut self, list: &RevocationList, left_out: usize, now: UnixSecond) {
        let is_skipped = |entry: DatedId| has_expired(entry, now) && !self.set.contains(&entry.id);
        let is_whole = left_out == 0 && !list.revoked().iter().any(is_skipped);
        self.sequence = self.sequence.max(list.sequence());
        if is_whole && !self.complete_lists.contains(list.digest()) {
            if self.complete_lists.len() >= COMPLETE_LISTS_MAX {
                self.complete_lists.pop_front();
            }
            self.complete_lists.push_back(*list.digest());
        }
    }

    /// Removes entries that expired more than [`KEPT_AFTER_SECONDS`](super::KEPT_AFTER_SECONDS) ago. If there were any,
    /// forgets all digests, because any of the lists may contain the removed entries.
    fn drop_long_expired(&mut self, now: UnixSecond) {
        if self.set.drop_long_expired(now) {
            self.complete_lists.clear();
        }
    }

    /// Removes all entries that have expired. If there were any, forgets all digests.
    fn drop_expired(&mut self, now: UnixSecond) {
        if self.set.drop_expired(now) {
            self.complete_lists.clear();
        }
    }
}

/// A holder that has revoked blocks which were delegated from the holder's own block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Delegator {
    pub(super) holder: PublicKey,
    /// The identifiers of the blocks before the holder's, root first.
    pub(super) ancestors: Vec<DelegationId>,
    /// The time at which the holder's block expires, and with it all blocks that the holder can revoke.
    pub(super) until: UnixSecond,
    /// The entries of the holder's lists.
    pub(super) entries: SignerEntries,
}

impl Delegator {
    /// Returns the number of entries that count against the quota: identifiers, and 1 for `all-before`.
    pub(super) fn entry_count(&self) -> usize {
        self.entries.set.len() + usize::from(self.entries.set.all_before().is_some())
    }

    /// Returns the identifiers of the blocks of the holder's chain, root first. `own_block` is the identifier of the
    /// holder's own block, the last one.
    pub(super) fn path<'a>(&'a self, own_block: &'a DelegationId) -> impl Iterator<Item = &'a DelegationId> {
        self.ancestors.iter().chain(std::iter::once(own_block))
    }
}

/// The proven right of a delegator to revoke. The fields are described at [`Delegator`].
#[derive(Clone, Debug)]
pub(super) struct ProvenDelegator {
    pub(super) holder: PublicKey,
    pub(super) ancestors: Vec<DelegationId>,
    pub(super) until: UnixSecond,
}

/// Revocations of credentials of one root: by the root itself, and by delegators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RootRevocations {
    /// The entries of the root's own lists.
    pub(super) own: SignerEntries,
    /// The delegators, by the identifier of their own block.
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

    /// Returns the delegators that have revoked blocks: the key, the identifier of the delegator's own block, and the
    /// entries.
    pub fn delegators(&self) -> impl Iterator<Item = (&PublicKey, &DelegationId, &RevokedSet)> {
        self.delegators
            .iter()
            .map(|(own_block, delegator)| (&delegator.holder, own_block, &delegator.entries.set))
    }

    /// Returns the number of entries of all delegators.
    pub fn delegated_count(&self) -> usize {
        self.delegators.values().map(Delegator::entry_count).sum()
    }

    /// Returns the number of all entries.
    pub fn entry_count(&self) -> usize {
        self.own.set.len() + self.delegated_count()
    }

    /// Adds a root's list. Returns true if the state changes, and the number of entries that found no room.
    pub(super) fn add_own(&mut self, list: &RevocationList, now: UnixSecond) -> (bool, usize) {
        let result = self.join_own(list.revoked(), now);
        self.own.record_list(list, result.1, now);
        result
    }

    fn join_own(&mut self, revoked: &RevokedSet, now: UnixSecond) -> (bool, usize) {
        let mut has_changed = revoked.all_before().is_some_and(|time| self.own.set.revoke_all_before(time));
        let mut left_out = 0;
        let own_max = ROOT_ENTRIES_MAX.saturating_sub(self.delegated_count());
        for entry in revoked.iter().filter(|entry| !has_expired(*entry, now)) {
            if !self.own.set.contains(&entry.id) && self.own.set.len() >= own_max {
                self.own.drop_expired(now);
                if self.own.set.len() >= own_max {
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
        own_block: DelegationId,
        right: ProvenDelegator,
        list: &RevocationList,
        now: UnixSecond,
    ) -> (bool, usize) {
        let mut result = self.join_delegated(own_block, right, list.revoked(), now);
        if let Some(delegator) = self.delegators.get_mut(&own_block) {
            delegator.entries.record_list(list, result.1, now);
        } else if result.1 == 0 && !list.revoked().is_empty() {
            // All entries had expired, or a block before the delegator's is revoked.
            result.0 = false;
        }
        result
    }

    fn join_delegated(
        &mut self,
        own_block: DelegationId,
        ProvenDelegator { holder, ancestors, until }: ProvenDelegator,
        revoked: &RevokedSet,
        now: UnixSecond,
    ) -> (bool, usize) {
        let free = DELEGATED_ENTRIES_MAX.min(ROOT_ENTRIES_MAX.saturating_sub(self.own.set.len()));
        let free = free.saturating_sub(self.delegated_count());
        let path: Vec<DelegationId> = ancestors.iter().copied().chain([own_block]).collect();
        let mut quota = DelegatorQuota::new(&path, self.delegators.iter(), free);
        let new = || Delegator { holder, ancestors, until, entries: SignerEntries::default() };
        let mut delegator = self.delegators.remove(&own_block).unwrap_or_else(new);
        let set = &mut delegator.entries.set;
        let (mut has_changed, mut left_out) = (false, 0);
        if let Some(time) = revoked.all_before() {
            if set.all_before().is_some() || quota.take_entry() {
                has_changed |= set.revoke_all_before(time);
            } else {
                left_out += 1;
            }
        }
        for DatedId { id, expires } in revoked.iter().filter(|entry| !has_expired(*entry, now)) {
            // No block expires later than the blocks before it.
            let entry = DatedId { id, expires: Some(expires.map_or(until, |expires| expires.min(until))) };
            if set.contains(&id) || quota.take_entry() {
                has_changed |= set.insert(entry);
            } else {
                left_out += 1;
            }
        }
        if !delegator.entries.set.is_empty() {
            self.delegators.insert(own_block, delegator);
        }
        self.drop_redundant();
        (has_changed, left_out)
    }

    /// Adds all entries of another state of the same root. Returns the number of entries that found no room.
    pub(super) fn merge(&mut self, other: &Self, now: UnixSecond) -> usize {
        let (_, mut left_out) = self.join_own(&other.own.set, now);
        self.own.sequence = self.own.sequence.max(other.own.sequence);
        for (own_block, delegator) in &other.delegators {
            let Delegator { holder, ancestors, until, entries } = delegator.clone();
            let right = ProvenDelegator { holder, ancestors, until };
            left_out += self.join_delegated(*own_block, right, &entries.set, now).1;
            if let Some(own) = self.delegators.get_mut(own_block) {
                own.entries.sequence = own.entries.sequence.max(entries.sequence);
            }
        }
        left_out
    }

    /// Removes entries that expired more than [`KEPT_AFTER_SECONDS`](super::KEPT_AFTER_SECONDS) ago, and delegators
    /// whose own block expired so long ago.
    pub(super) fn drop_long_expired(&mut self, now: UnixSecond) {
        self.own.drop_long_expired(now);
        for delegator in self.delegators.values_mut() {
            delegator.entries.drop_long_expired(now);
        }
        let is_over =
            |until: UnixSecond| until.number().saturating_add(super::KEPT_AFTER_SECONDS) <= now.number();
        self.delegators.retain(|_, delegator| !is_over(delegator.until) && !delegator.entries.set.is_empty());
    }

    /// Drops the entries of a delegator if its own block, or a block before it, is revoked until the delegator's block
    /// expires. All chains to which these entries apply are invalid already.
    fn drop_redundant(&mut self) {
        let is_revoked = |own_block: &DelegationId, delegator: &Delegator| {
            let lasts = |set: &RevokedSet, id: &DelegationId| {
                set.expiry(id).flatten().is_some_and(|expires| expires >= delegator.until)
            };
            let path: Vec<&DelegationId> = delegator.path(own_block).collect();
            path.iter().enumerate().any(|(index, id)| {
                let ancestors = path.get(..index).unwrap_or_default().iter();
                let mut delegators = ancestors.filter_map(|ancestor| self.delegators.get(*ancestor));
                lasts(&self.own.set, id) || delegators.any(|ancestor| lasts(&ancestor.entries.set, id))
            })
        };
        let redundant: Vec<DelegationId> = self
            .delegators
            .iter()
            .filter(|(own_block, delegator)| is_revoked(own_block, delegator))
            .map(|(own_block, _)| *own_block)
            .collect();
        redundant.iter().for_each(|own_block| _ = self.delegators.remove(own_block));
    }

    /// Returns the index of the first revoked block of a chain, and the reason.
    pub(super) fn find(&self, chain: &[ChainBlock]) -> Option<(usize, Option<UnixSecond>)> {
        (0..chain.len()).find_map(|index| Some((index, self.revocation_of(chain, index)?)))
    }

    /// Returns the reason why the block at this index of a chain is revoked: `Some(None)` for an entry,
    /// `Some(Some(time))` for an `all-before`. `None` if the block is not revoked.
    fn revocation_of(&self, chain: &[ChainBlock], index: usize) -> Option<Option<UnixSecond>> {
        let block = chain.get(index)?;
        if self.own.set.contains(&block.id) {
            return Some(None);
        }
        if let Some(before) = self.own.set.all_before_of(block).filter(|_| index == 0) {
            return Some(Some(before));
        }
        for (ancestor_index, ancestor) in chain.iter().take(index).enumerate() {
            // An identifier covers the whole chain up to its block, and so the holder of the block.
            let Some(delegator) = self.delegators.get(&ancestor.id) else { continue };
            if delegator.entries.set.contains(&block.id) {
                return Some(None);
            }
            let signed_this_block = ancestor_index + 1 == index;
            if let Some(before) = delegator.entries.set.all_before_of(block).filter(|_| signed_this_block) {
                return Some(Some(before));
            }
        }
        None
    }
}

fn has_expired(entry: DatedId, now: UnixSecond) -> bool {
    entry.expires.is_some_and(|expires| expires <= now)
}
