//! The limit on work and memory for untrusted filters.

/// The error for work or memory over the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exceeded;

/// The remaining work. A unit stands for about the time of a table look-up, and for at most a few dozen bytes of
/// memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LookupBudget {
    remaining: u64,
}

impl LookupBudget {
    pub(crate) const fn new(units: u64) -> Self {
        Self { remaining: units }
    }

    /// The units that are not spent yet.
    pub(crate) const fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Takes units for work that is about to be done.
    pub(crate) fn spend(&mut self, units: usize) -> Result<(), Exceeded> {
        let units = u64::try_from(units).unwrap_or(u64::MAX);
        self.remaining = self.remaining.checked_sub(units).ok_or(Exceeded)?;
        Ok(())
    }
}
