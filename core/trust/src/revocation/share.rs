//! The division of the delegators' half of a root's entries among them.
//!
//! A delegator can delegate to any number of keys of its own, so a limit for each key would be useless. Instead, a rule
//! applies to each block of the chain up to the signer's. A block and all blocks delegated from it form a *party*. The
//! holders that are `d` or more blocks below the party's first block have together at most `free / 2^d` entries, where
//! `free` is the number of entries that are still free.
//!
//! - `d = 0`: a party never has more entries than there are free entries. The first party can have half of all, the next
//!   one a quarter, and so on: there is always room for one more party.
//! - `d = 1`: the holders beneath a delegator leave room for the delegator's own entries, and so on down the chain.

use super::root::Delegator;
use crate::credential::DelegationId;

/// The number of entries that one delegator can still add, by the rules of this file.
#[derive(Debug)]
pub(super) struct DelegatorQuota {
    /// The number of free entries.
    free: usize,
    /// An element for each block of the chain up to the signer's, the signer's own block first. In the party of this
    /// block it counts the entries of the holders that are at least as far below the block as the signer.
    party_entries: Vec<usize>,
}

impl DelegatorQuota {
    /// Returns the quota of a delegator, if `free` entries are left for delegators. The delegator's own block is the
    /// last of `path`.
    pub(super) fn new<'a>(
        path: &[DelegationId],
        others: impl Iterator<Item = (&'a DelegationId, &'a Delegator)> + Clone,
        free: usize,
    ) -> Self {
        // An identifier covers the chain up to its block, so it has the same index in every path that contains it.
        let of_party = |(index, id): (usize, &DelegationId)| {
            let is_in = |(own_block, other): &(&DelegationId, &Delegator)| {
                other.path(own_block).nth(index) == Some(id) && other.path(own_block).count() >= path.len()
            };
            others.clone().filter(is_in).map(|(_, other)| other.entry_count()).sum()
        };
        let mut party_entries: Vec<usize> = path.iter().enumerate().map(of_party).collect();
        party_entries.reverse();
        Self { free, party_entries }
    }

    /// Counts one more entry of the delegator. Returns false, and counts nothing, if the quota is used up.
    pub(super) fn take_entry(&mut self) -> bool {
        let Some(free_after) = self.free.checked_sub(1) else { return false };
        let fits = |(distance, entries): (usize, &usize)| {
            free_after
                .checked_shr(u32::try_from(distance).unwrap_or(u32::MAX))
                .is_some_and(|entries_max| *entries < entries_max)
        };
        if !self.party_entries.iter().enumerate().all(fits) {
            return false;
        }
        self.free = free_after;
        self.party_entries.iter_mut().for_each(|entries| *entries += 1);
        true
    }
}
