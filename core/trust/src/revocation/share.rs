//! The division of the delegators' half of a root's entries among them.
//!
//! A delegator can delegate to any number of keys of its own, so a limit for each key would be useless. Instead, a rule
//! applies to each block of the signer's path. A block and all blocks delegated from it form a *party*. The holders that are
//! `d` or more blocks below the party's first block have together at most a `2^d`-th as many entries as are still free.
//!
//! - `d = 0`: a party never has more entries than there are free entries. The first can have a half of all, the next a
//!   quarter, and so on: there is always room for one more.
//! - `d = 1`: the holders beneath a delegator leave room for the delegator's own entries, and so on down the chain.

use super::root::Delegator;
use crate::credential::DelegationId;

/// The quota of one delegator.
#[derive(Debug)]
pub(super) struct DelegatorQuota {
    /// The number of free entries.
    free: usize,
    /// For each block of the signer's path, the signer's own block first: the number of entries in its party of holders
    /// that are at least as many blocks below it as the signer.
    held: Vec<usize>,
}

impl DelegatorQuota {
    /// Returns the quota of a delegator, if `free` entries are left for delegators. The delegator's own block is the last of
    /// `path`.
    pub(super) fn of<'a>(
        path: &[DelegationId],
        others: impl Iterator<Item = (&'a DelegationId, &'a Delegator)> + Clone,
        free: usize,
    ) -> Self {
        // An identifier covers the chain up to its block, so it has the same index in every path that contains it.
        let of_party = |(at, id): (usize, &DelegationId)| {
            let is_in = |(under, other): &(&DelegationId, &Delegator)| {
                other.path(under).nth(at) == Some(id) && other.path(under).count() >= path.len()
            };
            others.clone().filter(is_in).map(|(_, other)| other.entries()).sum()
        };
        let mut held: Vec<usize> = path.iter().enumerate().map(of_party).collect();
        held.reverse();
        Self { free, held }
    }

    /// Counts one more entry of the delegator. Returns false, and counts nothing, if the quota is used up.
    pub(super) fn take(&mut self) -> bool {
        let Some(left) = self.free.checked_sub(1) else { return false };
        let fits = |(distance, held): (usize, &usize)| {
            left.checked_shr(u32::try_from(distance).unwrap_or(u32::MAX)).is_some_and(|most| *held < most)
        };
        if !self.held.iter().enumerate().all(fits) {
            return false;
        }
        self.free = left;
        self.held.iter_mut().for_each(|held| *held += 1);
        true
    }
}
