//! What a virtual processor has used.

use weir_units::Nanos;

/// Counters of a virtual processor, or of a core: they only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Runs that were charged.
    pub runs: u64,
    /// CPU time on its guaranteed slices.
    pub reserved: Nanos,
    /// CPU time that nobody had reserved: best effort, and beyond a slice.
    pub spare: Nanos,
    /// CPU time that was spent for it elsewhere, and that is missing in its slices, or in its share of what is left.
    pub debited: Nanos,
    /// CPU time that was spent for it elsewhere beyond what can be debited.
    pub undebited: Nanos,
    /// Wall time during its runs that it did not get and does not pay for.
    pub stolen: Nanos,
    /// Periods that began while it had work, here or elsewhere.
    pub periods: u64,
    /// Of these, in which it had used the whole slice at their end. In what is neither served nor missed it slept with some of its slice
    /// left, or paid a debt of a whole slice.
    pub periods_served: u64,
    /// Of these, in which it had work all through and had not received the slice at their end.
    pub periods_missed: u64,
    /// CPU time that was guaranteed, would have come later than [`super::CoreConfig::arrears`] allows, and will not be given any more.
    pub forfeited: Nanos,
    /// Runs that took more CPU time than they were given.
    pub overruns: u64,
    /// By how much, all together.
    pub overrun: Nanos,
    /// By how much, the worst.
    pub overrun_max: Nanos,
}

impl Stats {
    /// CPU time on this core, guaranteed or not: what is billed, besides what was spent elsewhere.
    pub fn used(&self) -> Nanos {
        Nanos(self.reserved.0.saturating_add(self.spare.0))
    }

    /// Adds another's counters to these.
    pub(super) fn add(&mut self, other: &Stats) {
        let sum = |a: &mut Nanos, b: Nanos| a.0 = a.0.saturating_add(b.0);
        self.runs += other.runs;
        sum(&mut self.reserved, other.reserved);
        sum(&mut self.spare, other.spare);
        sum(&mut self.debited, other.debited);
        sum(&mut self.undebited, other.undebited);
        sum(&mut self.stolen, other.stolen);
        self.periods += other.periods;
        self.periods_served += other.periods_served;
        self.periods_missed += other.periods_missed;
        sum(&mut self.forfeited, other.forfeited);
        self.overruns += other.overruns;
        sum(&mut self.overrun, other.overrun);
        self.overrun_max = self.overrun_max.max(other.overrun_max);
    }
}
