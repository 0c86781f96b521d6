//! Revoked identifiers with the expiry times of their credentials.

use super::KEPT_AFTER_SECONDS;
use crate::credential::{ChainBlock, DatedId, DelegationId};
use crate::grant::UnixSecond;
use std::collections::BTreeMap;

/// A set of revoked identifiers, and the time before which everything is revoked. Only expired entries are ever removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RevokedSet {
    ids: BTreeMap<DelegationId, Option<UnixSecond>>,
    all_before: Option<UnixSecond>,
}

impl RevokedSet {
    /// Adds an entry. Of two expiry times for one identifier the later one applies, and any time replaces a missing one.
    /// Returns true if the set changes.
    pub fn insert(&mut self, entry: DatedId) -> bool {
        let is_new = !self.ids.contains_key(&entry.id);
        let known = self.ids.entry(entry.id).or_insert(entry.expires);
        let later = (*known).max(entry.expires);
        let has_changed = is_new || later != *known;
        *known = later;
        has_changed
    }

    /// Revokes everything that was signed before this time. Of two times the later one applies. Returns true if the set
    /// changes.
    pub fn revoke_all_before(&mut self, time: UnixSecond) -> bool {
        let later = self.all_before.max(Some(time));
        std::mem::replace(&mut self.all_before, later) != later
    }

    /// Adds all entries of another set. Returns true if this set changes.
    pub fn join(&mut self, other: &Self) -> bool {
        let has_changed = other.all_before.is_some_and(|time| self.revoke_all_before(time));
        other.iter().fold(has_changed, |has_changed, entry| self.insert(entry) || has_changed)
    }

    /// Returns true if an identifier is in the set.
    pub fn contains(&self, id: &DelegationId) -> bool {
        self.ids.contains_key(id)
    }

    /// Returns the expiry time of the entry for an identifier. `None` without an entry; `Some(None)` for an entry
    /// without an expiry time.
    pub fn expiry(&self, id: &DelegationId) -> Option<Option<UnixSecond>> {
        self.ids.get(id).copied()
    }

    /// Returns the entries, by identifier.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = DatedId> + '_ {
        self.ids.iter().map(|(id, expires)| DatedId { id: *id, expires: *expires })
    }

    /// Returns the number of entries, without `all-before`.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns true if nothing is revoked.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty() && self.all_before.is_none()
    }

    /// Returns the time before which everything is revoked.
    pub fn all_before(&self) -> Option<UnixSecond> {
        self.all_before
    }

    /// Returns the `all-before` time if it revokes a block, by the block's signing time. A block without a signing time
    /// was signed before any time.
    pub(super) fn all_before_of(&self, block: &ChainBlock) -> Option<UnixSecond> {
        self.all_before.filter(|before| block.issued.is_none_or(|issued| issued < *before))
    }

    /// Removes entries that expired more than [`KEPT_AFTER_SECONDS`] ago. Returns true if there were any.
    pub(super) fn drop_long_expired(&mut self, now: UnixSecond) -> bool {
        self.retain_since(now.number().saturating_sub(KEPT_AFTER_SECONDS))
    }

    /// Removes all entries that have expired. Returns true if there were any.
    pub fn drop_expired(&mut self, now: UnixSecond) -> bool {
        self.retain_since(now.number())
    }

    fn retain_since(&mut self, second: u64) -> bool {
        let before = self.ids.len();
        self.ids.retain(|_, expires| expires.is_none_or(|expires| expires.number() > second));
        self.ids.len() < before
    }
}

impl FromIterator<DatedId> for RevokedSet {
    fn from_iter<I: IntoIterator<Item = DatedId>>(entries: I) -> Self {
        let mut set = Self::default();
        entries.into_iter().for_each(|entry| _ = set.insert(entry));
        set
    }
}

impl FromIterator<DelegationId> for RevokedSet {
    /// Makes entries without a time.
    fn from_iter<I: IntoIterator<Item = DelegationId>>(ids: I) -> Self {
        ids.into_iter().map(DatedId::from).collect()
    }
}

impl<const N: usize> From<[DelegationId; N]> for RevokedSet {
    /// Makes entries without a time.
    fn from(ids: [DelegationId; N]) -> Self {
        ids.into_iter().collect()
    }
}

impl From<DatedId> for RevokedSet {
    fn from(entry: DatedId) -> Self {
        [entry].into_iter().collect()
    }
}
