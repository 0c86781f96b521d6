//! The delegators' half of a root's entries, divided among them.
//!
//! Delegators can pass their right on to as many keys as they like, so a rule for each key would divide nothing. The rule is for each link of the signer's path instead: of the
//! entries that its party (the link and all that was passed on from it) has, those by holders `d` or more links beneath it are at most a `2^d`-th of what is still free.
//!
//! - `d = 0`: a party never has more than is free for others. The first can have a half of all, the next a quarter, and so on: there is always room for one more.
//! - `d = 1`: those beneath a delegator leave room for the delegator's own entries, and so on down the chain.

use super::root::Delegator;
use crate::credential::PrefixId;

/// The room that one delegator has.
#[derive(Debug)]
pub(super) struct DelegatorQuota {
    free: usize,
    /// Entries of the party of each link of the signer's path, the signer's own link first, by holders at the signer's distance or farther.
    held: Vec<usize>,
}

impl DelegatorQuota {
    /// The room of a delegator with this path, its own link last, where `free` entries are left for delegators.
    pub(super) fn of<'a>(
        path: &[PrefixId],
        others: impl Iterator<Item = (&'a PrefixId, &'a Delegator)> + Clone,
        free: usize,
    ) -> Self {
        // An identifier is that of the chain up to it, so it stands at the same place in every path that has it.
        let of_party = |(at, id): (usize, &PrefixId)| {
            let is_in = |(under, other): &(&PrefixId, &Delegator)| {
                other.path(under).nth(at) == Some(id) && other.path(under).count() >= path.len()
            };
            others.clone().filter(is_in).map(|(_, other)| other.entries()).sum()
        };
        let mut held: Vec<usize> = path.iter().enumerate().map(of_party).collect();
        held.reverse();
        Self { free, held }
    }

    /// Takes room for one more entry; false where there is none.
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
