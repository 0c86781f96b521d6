//! What a credential allows: a [`Grant`]. Each block of a credential has one, and what holds for whoever shows it is their [meet](Grant::meet).
//!
//! Grants form a meet-semilattice with [`Grant::default`], which restricts nothing, on top: in which order blocks are joined makes no difference, and
//! joining one more never allows more. The tests of this module hold each part against that.

mod cautious;
mod filter;
mod module;
mod node;
mod parts;
mod request;
mod resource;
mod second;

pub use filter::{FILTER_BYTES_MAX, GrantFilter, GrantFilterError};
pub use module::{ModuleHash, ModuleHashError, ModuleSet, Modules};
pub use node::{NodeName, NodeNameError, NodePattern, Nodes};
pub use parts::{BytesPerSecond, CpuShare, CpuShareError, InterfaceError, InterfaceName};
pub use request::{GrantExcess, GrantPart, GrantRequest};
pub use resource::{Amounts, Ceilings, Limit, Resource, Row, ShownUsage, UNLIMITED, Unit};
pub use second::Second;
pub use weir_wire::view::PacketView;

use parts::least;
use std::collections::BTreeSet;
use std::fmt::Display;
use weir_units::Name;

/// The most entries of one list of a block: hashes, signers, interfaces, fields, nodes.
pub const ENTRIES_MAX: usize = 64;
/// The highest amount of anything in a grant: what a signed integer of 64 bits holds.
pub const AMOUNT_MAX: u64 = i64::MAX as u64;

/// What is allowed. A part that is not stated is not restricted by it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// The operator's profiles by which modules can be admitted: any one of them. A block names one at most.
    pub profiles: Option<BTreeSet<Name>>,
    /// Which modules may be loaded.
    pub modules: Modules,
    /// Which packets: those that all these filters select. They are joined as programs; nobody ever joins their texts. A block has one at most.
    pub filters: BTreeSet<GrantFilter>,
    /// The interfaces that packets may be from.
    pub interfaces: Option<BTreeSet<InterfaceName>>,
    /// What may be seen of a packet.
    pub view: Option<PacketView>,
    /// The fields of packets that may be written, by name.
    pub writes: Option<BTreeSet<Name>>,
    /// How much may be used.
    pub ceilings: Ceilings,
    /// Where.
    pub nodes: Option<Nodes>,
    /// From when on.
    pub not_before: Option<Second>,
    /// Until when: it holds in no second from this one on.
    pub expires: Option<Second>,
    /// How many holders it can be passed on through, counted from its own holder on.
    pub delegations: Option<u32>,
}

/// A grant that no block can have. To blame is who wrote it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// Several of what a block has one of at most.
    #[error("{0} profiles, filters or sets of modules: a block names one of each at most")]
    Several(usize),
    /// Modules could be admitted by none, which cannot be written: it would be read as by any.
    #[error("no module could be admitted, by no profile: name one, or leave profiles out")]
    NoProfile,
    /// A long list.
    #[error("{part}: {count} entries; {ENTRIES_MAX} is the most")]
    Entries {
        /// Of what.
        part: GrantPart,
        /// So many.
        count: usize,
    },
    /// A high number.
    #[error("{part}: {amount} is more than can be granted, {AMOUNT_MAX}")]
    Amount {
        /// Of what.
        part: GrantPart,
        /// So much.
        amount: u64,
    },
    /// It never holds.
    #[error("it would begin at {not_before} and end at {expires}: it has to end after it begins")]
    Never {
        /// From when on.
        not_before: Second,
        /// Until when.
        expires: Second,
    },
}

impl Grant {
    /// What both allow.
    #[must_use]
    pub fn meet(&self, other: &Self) -> Self {
        Self {
            profiles: both(self.profiles.as_ref(), other.profiles.as_ref(), in_both),
            modules: self.modules.meet(&other.modules),
            filters: self.filters.union(&other.filters).cloned().collect(),
            interfaces: both(self.interfaces.as_ref(), other.interfaces.as_ref(), in_both),
            view: both(self.view.as_ref(), other.view.as_ref(), PacketView::meet),
            writes: both(self.writes.as_ref(), other.writes.as_ref(), in_both),
            ceilings: self.ceilings.meet(&other.ceilings),
            nodes: both(self.nodes.as_ref(), other.nodes.as_ref(), Nodes::meet),
            not_before: self.not_before.max(other.not_before),
            expires: least(self.expires, other.expires),
            delegations: least(self.delegations, other.delegations),
        }
    }

    /// Whether it allows nothing that `other` does not allow, as far as the texts of filters and the signers of modules tell.
    pub fn is_at_most(&self, other: &Self) -> bool {
        self.meet(other) == *self
    }

    /// What is left of it for the next holder: it can be passed on once less. Nothing where it cannot be passed on.
    pub fn passed_on(&self) -> Option<Self> {
        let delegations = match self.delegations {
            None => None,
            Some(left) => Some(left.checked_sub(1)?),
        };
        Some(Self { delegations, ..self.clone() })
    }

    /// The first part in which this grant asks for more than `given`, which a holder got and passes on; nothing where there is none. What it does not
    /// state it does not ask for. A filter never asks for more, whatever it says: it is one more that packets have to pass.
    pub fn excess(&self, given: &Self) -> Option<GrantExcess> {
        let is_within = |asked: &ModuleSet| given.modules.iter().all(|given| asked.is_within(given));
        let modules = !self.modules.iter().all(is_within);
        let excesses = [
            beyond(GrantPart::Profile, self.profiles.as_ref(), given.profiles.as_ref()),
            modules.then(|| GrantExcess::new(GrantPart::Modules, &self.modules, &given.modules)),
            beyond(GrantPart::Interfaces, self.interfaces.as_ref(), given.interfaces.as_ref()),
            beyond(GrantPart::Writes, self.writes.as_ref(), given.writes.as_ref()),
            where_not(GrantPart::View, self.view.as_ref(), given.view.as_ref(), PacketView::is_at_most),
            where_not(GrantPart::Nodes, self.nodes.as_ref(), given.nodes.as_ref(), Nodes::is_at_most),
            where_not(GrantPart::NotBefore, self.not_before.as_ref(), given.not_before.as_ref(), Second::ge),
            above(GrantPart::Expires, self.expires, given.expires),
            above(GrantPart::Delegations, self.delegations, given.delegations),
        ];
        excesses.into_iter().flatten().next().or_else(|| self.ceilings.excesses(&given.ceilings).next())
    }

    /// Checks that a block can have it.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
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
            (GrantPart::Nodes, self.nodes.as_ref().map(|nodes| nodes.iter().len())),
        ] {
            if let Some(count) = count.filter(|count| *count > ENTRIES_MAX) {
                return Err(GrantError::Entries { part, count });
            }
        }
        if let Some((resource, amount)) = self.ceilings.stated().find(|(_, amount)| *amount > AMOUNT_MAX) {
            return Err(GrantError::Amount { part: GrantPart::Of(resource), amount });
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
    /// The resources of which this asks for more than `given`.
    fn excesses(&self, given: &Self) -> impl Iterator<Item = GrantExcess> {
        self.stated().filter_map(|(resource, asked)| {
            let (given, unit) = (given.get(resource)?, resource.row().unit);
            let excess = || {
                GrantExcess::new(
                    GrantPart::Of(resource),
                    unit.show(asked, &[given]),
                    unit.show(given, &[asked]),
                )
            };
            (asked > given).then(excess)
        })
    }
}

fn where_not<T: Display, G: Display>(
    part: GrantPart,
    asked: Option<&T>,
    given: Option<&G>,
    holds: impl FnOnce(&T, &G) -> bool,
) -> Option<GrantExcess> {
    let (asked, given) = (asked?, given?);
    (!holds(asked, given)).then(|| GrantExcess::new(part, asked, given))
}

fn above<T: Ord + Display>(part: GrantPart, asked: Option<T>, given: Option<T>) -> Option<GrantExcess> {
    where_not(part, asked.as_ref(), given.as_ref(), T::le)
}

fn beyond<T: Ord + Display>(
    part: GrantPart,
    asked: Option<&BTreeSet<T>>,
    given: Option<&BTreeSet<T>>,
) -> Option<GrantExcess> {
    let (asked, given) = (asked?, given?);
    (!asked.is_subset(given)).then(|| GrantExcess::new(part, list(asked), list(given)))
}

/// Where both state something, what they have in common; else what one states.
fn both<T: Clone>(a: Option<&T>, b: Option<&T>, meet: impl FnOnce(&T, &T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(meet(a, b)),
        (a, b) => a.or(b).cloned(),
    }
}

fn in_both<T: Ord + Clone>(a: &BTreeSet<T>, b: &BTreeSet<T>) -> BTreeSet<T> {
    a.intersection(b).cloned().collect()
}

/// For people: `a, b and 3 more`, or `none`.
pub(crate) fn list<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    const SHOWN: usize = 8;
    let mut items = items.into_iter();
    let shown: Vec<String> = items.by_ref().take(SHOWN).map(|item| item.to_string()).collect();
    match (shown.is_empty(), items.count()) {
        (true, _) => "none".to_owned(),
        (false, 0) => shown.join(", "),
        (false, more) => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests;
