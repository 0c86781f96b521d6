//! All that is revoked in the name of one root.

use super::share::DelegatorQuota;
use super::{DELEGATED_MAX, LIVE_MAX, RevocationList, RevokedSet};
use crate::credential::{ChainBlock, DatedId, PrefixId};
use crate::grant::Second;
use crate::key::PublicKey;
use std::collections::{BTreeMap, VecDeque};

/// Digests of bodies that are remembered for each signer, so that a list that comes again is known by its header.
pub(super) const TAKEN_MAX: usize = 8;

/// The entries of one signer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Issued {
    pub(super) set: RevokedSet,
    /// The highest sequence number that was seen: for messages.
    pub(super) sequence: u64,
    /// Digests of the last lists of which every entry is held, oldest first.
    pub(super) taken: VecDeque<[u8; 32]>,
}

impl Issued {
    /// Remembers a list. It is known from then on where every entry of it is held: an entry that was skipped because it had expired may be needed when the clock is set back.
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

    /// Forgets entries that expired a while ago, and with them the lists that are known: any list may have had these entries.
    fn forget(&mut self, now: Second) {
        if self.set.forget(now) {
            self.taken.clear();
        }
    }

    /// Forgets all entries that have expired, in the same way.
    fn forget_expired(&mut self, now: Second) {
        if self.set.forget_expired(now) {
            self.taken.clear();
        }
    }
}

/// The entries of a holder who has passed on a right, beneath one link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Delegator {
    pub(super) holder: PublicKey,
    /// The links before it, root first.
    pub(super) above: Vec<PrefixId>,
    /// The time at which the link expires, and with it all that it revokes.
    pub(super) until: Second,
    pub(super) issued: Issued,
}

impl Delegator {
    /// Entries that count for the share: `all-before` is one.
    pub(super) fn entries(&self) -> usize {
        self.issued.set.len() + usize::from(self.issued.set.all_before().is_some())
    }

    /// The links from the root's first to this one, whose identifier is `under`.
    pub(super) fn path<'a>(&'a self, under: &'a PrefixId) -> impl Iterator<Item = &'a PrefixId> {
        self.above.iter().chain(std::iter::once(under))
    }
}

/// The proven right of a delegator.
#[derive(Clone, Debug)]
pub(super) struct ProvenDelegator {
    pub(super) holder: PublicKey,
    pub(super) above: Vec<PrefixId>,
    pub(super) until: Second,
}

/// All that is revoked in the name of one root: its own entries, and those of holders for what they passed on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RootRevocations {
    pub(super) own: Issued,
    pub(super) delegators: BTreeMap<PrefixId, Delegator>,
}

impl RootRevocations {
    /// The root's own entries.
    pub fn own(&self) -> &RevokedSet {
        &self.own.set
    }

    /// The highest sequence number of the root's lists.
    pub fn sequence(&self) -> u64 {
        self.own.sequence
    }

    /// The holders who have revoked what they passed on, each with their link and their entries.
    pub fn delegators(&self) -> impl Iterator<Item = (&PublicKey, &PrefixId, &RevokedSet)> {
        self.delegators.iter().map(|(under, it)| (&it.holder, under, &it.issued.set))
    }

    /// The number of entries of delegators.
    pub fn delegated(&self) -> usize {
        self.delegators.values().map(Delegator::entries).sum()
    }

    /// The number of all entries.
    pub fn live(&self) -> usize {
        self.own.set.len() + self.delegated()
    }

    /// Adds a root's list. Returns true if anything changes, and the number of entries that found no room.
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

    /// Adds a delegator's list. Returns true if anything changes, and the number of entries that found no room.
    pub(super) fn add_delegated(
        &mut self,
        under: PrefixId,
        standing: ProvenDelegator,
        list: &RevocationList,
        now: Second,
    ) -> (bool, usize) {
        let ProvenDelegator { holder, above, until } = standing;
        let mut counted =
            self.join_delegated(under, ProvenDelegator { holder, above, until }, list.revoked(), now);
        if let Some(delegator) = self.delegators.get_mut(&under) {
            delegator.issued.note(list, counted.1, now);
        } else if counted.1 == 0 && !list.revoked().is_empty() {
            // All of it had expired, or is revoked higher up.
            counted.0 = false;
        }
        counted
    }

    fn join_delegated(
        &mut self,
        under: PrefixId,
        ProvenDelegator { holder, above, until }: ProvenDelegator,
        revoked: &RevokedSet,
        now: Second,
    ) -> (bool, usize) {
        let free = DELEGATED_MAX.min(LIVE_MAX.saturating_sub(self.own.set.len()));
        let free = free.saturating_sub(self.delegated());
        let path: Vec<PrefixId> = above.iter().copied().chain([under]).collect();
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
            // Nothing beneath a link outlives it.
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

    /// Adds all that another state of the same root has. Returns the number of entries that found no room.
    pub(super) fn absorb(&mut self, other: &Self, now: Second) -> usize {
        let (_, mut left_out) = self.join_own(&other.own.set, now);
        self.own.sequence = self.own.sequence.max(other.own.sequence);
        for (under, delegator) in &other.delegators {
            let Delegator { holder, above, until, issued } = delegator.clone();
            let standing = ProvenDelegator { holder, above, until };
            left_out += self.join_delegated(*under, standing, &issued.set, now).1;
            if let Some(there) = self.delegators.get_mut(under) {
                there.issued.sequence = there.issued.sequence.max(issued.sequence);
            }
        }
        left_out
    }

    /// Forgets entries whose credentials expired a while ago.
    pub(super) fn forget(&mut self, now: Second) {
        self.own.forget(now);
        for delegator in self.delegators.values_mut() {
            delegator.issued.forget(now);
        }
        let is_over =
            |until: Second| until.number().saturating_add(super::KEPT_AFTER_SECONDS) <= now.number();
        self.delegators.retain(|_, it| !is_over(it.until) && !it.issued.set.is_empty());
    }

    /// Drops the entries of delegators whose own link, or one before it, is revoked for as long as it holds: nothing beneath it counts in any case.
    fn drop_redundant(&mut self) {
        let is_revoked = |under: &PrefixId, it: &Delegator| {
            let lasts = |set: &RevokedSet, id: &PrefixId| {
                set.expiry(id).flatten().is_some_and(|expires| expires >= it.until)
            };
            let path: Vec<&PrefixId> = it.path(under).collect();
            path.iter().enumerate().any(|(at, id)| {
                let by_root = lasts(&self.own.set, id);
                let above = path.get(..at).unwrap_or_default().iter();
                by_root
                    || above
                        .filter_map(|above| self.delegators.get(*above))
                        .any(|by| lasts(&by.issued.set, id))
            })
        };
        let gone: Vec<PrefixId> = self
            .delegators
            .iter()
            .filter(|(under, it)| is_revoked(under, it))
            .map(|(under, _)| *under)
            .collect();
        gone.iter().for_each(|under| _ = self.delegators.remove(under));
    }

    /// The first link of a chain that is revoked, and by what.
    pub(super) fn find(&self, chain: &[ChainBlock]) -> Option<(usize, Option<Second>)> {
        (0..chain.len()).find_map(|at| Some((at, self.revokes(chain, at)?)))
    }

    /// The reason why a link is revoked: an entry (`None`), or everything before a time.
    fn revokes(&self, chain: &[ChainBlock], at: usize) -> Option<Option<Second>> {
        let link = chain.get(at)?;
        if self.own.set.contains(&link.id) {
            return Some(None);
        }
        if let Some(before) = self.own.set.all_before_of(link).filter(|_| at == 0) {
            return Some(Some(before));
        }
        for (by, delegator) in chain.iter().take(at).zip(0..).filter_map(|(above, by)| {
            // The identifier is of the whole chain up to there, and so of this holder.
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
