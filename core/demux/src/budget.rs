//! A bound on work and memory, since filters are written by strangers.

/// The work or the memory that was allowed is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exceeded;

/// What may still be done. A unit is about the work of a look-up in a table, and never more than a few dozen bytes of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LookupBudget {
    left: u64,
}

impl LookupBudget {
    pub(crate) const fn new(units: u64) -> Self {
        Self { left: units }
    }

    pub(crate) const fn left(&self) -> u64 {
        self.left
    }

    /// Pays for some work before it is done.
    pub(crate) fn spend(&mut self, units: usize) -> Result<(), Exceeded> {
        let units = u64::try_from(units).unwrap_or(u64::MAX);
        self.left = self.left.checked_sub(units).ok_or(Exceeded)?;
        Ok(())
    }
}
