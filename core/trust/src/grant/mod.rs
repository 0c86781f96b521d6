//! Grants: the rights that a credential gives. Each block of a credential has a [`Grant`]. The holder's rights are the
//! [meet](Grant::meet) of all these grants: what every one of them allows.
//!
//! Grants form a meet-semilattice: the order of blocks makes no difference, and a further block never adds rights. The
//! tests of this module check both properties for each part of a grant. [`Grant::default`] restricts nothing, with one
//! exception: the right to run without a meter is given only where it is stated ([`Grant::unmetered`]).

mod default_delegation;
mod filter;
mod module;
mod node;
mod options;
mod parts;
mod request;
mod resource;
mod unix_second;

pub use filter::{FILTER_BYTES_MAX, GrantFilter, GrantFilterError};
pub use module::{ModuleHash, ModuleHashError, ModuleSet, Modules};
pub use node::{NodeName, NodeNameError, NodePattern, Nodes};
pub use options::{ANY_MODULE, GrantCommand, GrantOption, SAME};
pub use parts::{BytesPerSecond, CpuShare, CpuShareError, InterfaceError, InterfaceName};
pub use request::{GrantExcess, GrantPart, GrantRequest};
pub use resource::{
    Amounts, Ceilings, Resource, ResourceDefinition, SessionLimit, ShownUsage, UNLIMITED, Unit,
};
pub use unix_second::UnixSecond;
pub use weir_wire::view::PacketView;

use crate::key::PublicKey;
use parts::lower_limit;
use std::collections::BTreeSet;
use std::fmt::Display;
use weir_units::Name;

/// The most entries of one list of a block: hashes, signers, interfaces, fields, nodes.
pub const ENTRIES_MAX: usize = 64;
/// The highest amount in a grant: the highest signed 64-bit integer.
pub const AMOUNT_MAX: u64 = i64::MAX as u64;

/// A set of rights: the modules that may be loaded, the packets that they get, and the amounts that they use. A part
/// that is not stated is not restricted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// The operator's profiles. A module can be admitted by any one of them. A block names at most one.
    pub profiles: Option<BTreeSet<Name>>,
    /// The modules that may be loaded.
    pub modules: Modules,
    /// Filters. A packet has to pass all of them. They are joined as programs, never as texts. A block has at most one.
    pub filters: BTreeSet<GrantFilter>,
    /// The interfaces that packets may come from.
    pub interfaces: Option<BTreeSet<InterfaceName>>,
    /// The view of packets.
    pub view: Option<PacketView>,
    /// The fields of packets that may be written, by name.
    pub writes: Option<BTreeSet<Name>>,
    /// Keys, whose signed modules may run without a meter in a process of their own. Unlike the other parts, the set is empty
    /// if it is not stated, and a delegation cannot state it: the right is the first holder's alone.
    pub unmetered: BTreeSet<PublicKey>,
    /// The ceilings of resources.
    pub ceilings: Ceilings,
    /// The nodes at which the grant is valid.
    pub nodes: Option<Nodes>,
    /// The first second in which the grant is valid.
    pub not_before: Option<UnixSecond>,
    /// The first second in which the grant is no longer valid.
    pub expires: Option<UnixSecond>,
    /// The number of delegations in a row that may follow, counted from the grant's holder.
    pub delegations: Option<u32>,
}

/// The reason why a grant cannot be stated in a block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// Several profiles, filters or sets of modules. A block has at most one of each.
    #[error("{0} profiles, filters or sets of modules: a block names one of each at most")]
    Several(usize),
    /// An empty list of profiles. The facts of a block cannot express it: a block without profiles allows any profile.
    #[error(
        "without a profile no module could be admitted: name a profile, or leave profiles out for all of them"
    )]
    NoProfile,
    /// A list that is too long.
    #[error("{part}: {count} entries; {ENTRIES_MAX} is the most")]
    Entries {
        /// The part of the grant.
        part: GrantPart,
        /// The number of entries.
        count: usize,
    },
    /// An amount that is too high.
    #[error("{part}: {amount} is more than can be granted, {AMOUNT_MAX}")]
    Amount {
        /// The part of the grant.
        part: GrantPart,
        /// The amount.
        amount: u64,
    },
    /// A grant that is never valid.
    #[error(
        "the grant would begin at {not_before} and end at {expires}: its end has to be after its beginning"
    )]
    Never {
        /// The beginning of its validity.
        not_before: UnixSecond,
        /// The end of its validity.
        expires: UnixSecond,
    },
}

impl Grant {
    /// Returns the rights that both grants give.
    #[must_use]
    pub fn meet(&self, other: &Self) -> Self {
        Self {
            profiles: meet_stated(self.profiles.as_ref(), other.profiles.as_ref(), intersection),
            modules: self.modules.meet(&other.modules),
            filters: self.filters.union(&other.filters).cloned().collect(),
            interfaces: meet_stated(self.interfaces.as_ref(), other.interfaces.as_ref(), intersection),
            view: meet_stated(self.view.as_ref(), other.view.as_ref(), PacketView::meet),
            writes: meet_stated(self.writes.as_ref(), other.writes.as_ref(), intersection),
            unmetered: intersection(&self.unmetered, &other.unmetered),
            ceilings: self.ceilings.meet(&other.ceilings),
            nodes: meet_stated(self.nodes.as_ref(), other.nodes.as_ref(), Nodes::meet),
            not_before: self.not_before.max(other.not_before),
            expires: lower_limit(self.expires, other.expires),
            delegations: lower_limit(self.delegations, other.delegations),
        }
    }

    /// Returns true if this grant allows at most the rights of `other`. Filters are compared as texts, and modules by
    /// the stated hashes and signers. So the result can be false for grants that allow the same.
    pub fn is_at_most(&self, other: &Self) -> bool {
        self.meet(other) == *self
    }

    /// Returns the widest grant that the holder of this grant can delegate: this grant with one delegation less, and with a
    /// meter for all modules. `None` if the holder cannot delegate.
    pub fn delegable(&self) -> Option<Self> {
        let delegations = match self.delegations {
            None => None,
            Some(further) => Some(further.checked_sub(1)?),
        };
        Some(Self { delegations, unmetered: BTreeSet::new(), ..self.clone() })
    }

    /// Returns the first part in which this grant asks for more than `given`, the grant of the holder that delegates;
    /// `None` if there is no such part. A part that is not stated asks for nothing. A filter never asks for more,
    /// because packets have to pass it in addition to the filters of `given`. Modules without a meter are more than any
    /// `given` that does not name their signers.
    pub fn excess(&self, given: &Self) -> Option<GrantExcess> {
        let is_within = |requested: &ModuleSet| given.modules.iter().all(|given| requested.is_within(given));
        let modules = !self.modules.iter().all(is_within);
        let excesses = [
            excess_unless_subset(GrantPart::Profile, self.profiles.as_ref(), given.profiles.as_ref()),
            modules.then(|| GrantExcess::new(GrantPart::Modules, &self.modules, &given.modules)),
            excess_unless_subset(GrantPart::Interfaces, self.interfaces.as_ref(), given.interfaces.as_ref()),
            excess_unless_subset(GrantPart::Writes, self.writes.as_ref(), given.writes.as_ref()),
            excess_unless_subset(GrantPart::Unmetered, Some(&self.unmetered), Some(&given.unmetered)),
            excess_unless(GrantPart::View, self.view.as_ref(), given.view.as_ref(), PacketView::is_at_most),
            excess_unless(GrantPart::Nodes, self.nodes.as_ref(), given.nodes.as_ref(), Nodes::is_at_most),
            excess_unless(
                GrantPart::NotBefore,
                self.not_before.as_ref(),
                given.not_before.as_ref(),
                UnixSecond::ge,
            ),
            excess_if_greater(GrantPart::Expires, self.expires, given.expires),
            excess_if_greater(GrantPart::Delegations, self.delegations, given.delegations),
        ];
        excesses.into_iter().flatten().next().or_else(|| self.ceilings.excesses(&given.ceilings).next())
    }

    /// Checks that a block can state the grant.
    ///
    /// # Errors
    /// Fails with the first violation.
    pub fn check(&self) -> Result<(), GrantError> {
        let profiles = self.profiles.as_ref().map(BTreeSet::len);
        if profiles == Some(0) {
            return Err(GrantError::NoProfile);
        }
        let several = profiles.unwrap_or(0).max(self.modules.iter().len()).max(self.filters.len());
        if several > 1 {
            return Err(GrantError::Several(several));
        }
        let hashes = self.modules.iter().map(|set| set.hashes.len()).max();
        let signers = self.modules.iter().map(|set| set.signers.len()).max();
        for (part, count) in [
            (GrantPart::Modules, hashes),
            (GrantPart::Modules, signers),
            (GrantPart::Interfaces, self.interfaces.as_ref().map(BTreeSet::len)),
            (GrantPart::Writes, self.writes.as_ref().map(BTreeSet::len)),
            (GrantPart::Unmetered, Some(self.unmetered.len())),
            (GrantPart::Nodes, self.nodes.as_ref().map(|nodes| nodes.iter().len())),
        ] {
            if let Some(count) = count.filter(|count| *count > ENTRIES_MAX) {
                return Err(GrantError::Entries { part, count });
            }
        }
        if let Some((resource, amount)) = self.ceilings.stated().find(|(_, amount)| *amount > AMOUNT_MAX) {
            return Err(GrantError::Amount { part: GrantPart::Resource(resource), amount });
        }
        match (self.not_before, self.expires) {
            (Some(not_before), Some(expires)) if expires <= not_before => {
                Err(GrantError::Never { not_before, expires })
            }
            _ => Ok(()),
        }
    }
}

impl Ceilings {
    /// Returns an excess for each resource of which these ceilings ask for more than `given`.
    fn excesses(&self, given: &Self) -> impl Iterator<Item = GrantExcess> {
        self.stated().filter_map(|(resource, requested)| {
            let (given, unit) = (given.get(resource)?, resource.definition().unit);
            let excess = || {
                GrantExcess::new(
                    GrantPart::Resource(resource),
                    unit.show(requested, &[given]),
                    unit.show(given, &[requested]),
                )
            };
            (requested > given).then(excess)
        })
    }
}

/// Returns an excess if both values are stated and `holds` is false for them.
fn excess_unless<T: Display, G: Display>(
    part: GrantPart,
    requested: Option<&T>,
    given: Option<&G>,
    holds: impl FnOnce(&T, &G) -> bool,
) -> Option<GrantExcess> {
    let (requested, given) = (requested?, given?);
    (!holds(requested, given)).then(|| GrantExcess::new(part, requested, given))
}

/// Returns an excess if both values are stated and the requested one is greater.
fn excess_if_greater<T: Ord + Display>(
    part: GrantPart,
    requested: Option<T>,
    given: Option<T>,
) -> Option<GrantExcess> {
    excess_unless(part, requested.as_ref(), given.as_ref(), T::le)
}

/// Returns an excess if both sets are stated and an item is requested that is not given.
fn excess_unless_subset<T: Ord + Display>(
    part: GrantPart,
    requested: Option<&BTreeSet<T>>,
    given: Option<&BTreeSet<T>>,
) -> Option<GrantExcess> {
    let (requested, given) = (requested?, given?);
    (!requested.is_subset(given)).then(|| GrantExcess::new(part, list(requested), list(given)))
}

/// Returns the meet of two values if both are stated, else the stated one.
fn meet_stated<T: Clone>(a: Option<&T>, b: Option<&T>, meet: impl FnOnce(&T, &T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(meet(a, b)),
        (a, b) => a.or(b).cloned(),
    }
}

fn intersection<T: Ord + Clone>(a: &BTreeSet<T>, b: &BTreeSet<T>) -> BTreeSet<T> {
    a.intersection(b).cloned().collect()
}

/// Returns a list as text for people: `a, b and 3 more`, or `none`.
pub(crate) fn list<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    const LISTED_MAX: usize = 8;
    let mut items = items.into_iter();
    let listed: Vec<String> = items.by_ref().take(LISTED_MAX).map(|item| item.to_string()).collect();
    match (listed.is_empty(), items.count()) {
        (true, _) => "none".to_owned(),
        (false, 0) => listed.join(", "),
        (false, more) => format!("{} and {more} more", listed.join(", ")),
    }
}

#[cfg(test)]
mod tests;
