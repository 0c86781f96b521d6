//! Counters of a virtual CPU.

use weir_units::Nanos;

/// Counters of a virtual CPU, or of a core. They never decrease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Runs that were charged.
    pub runs: u64,
    /// CPU time within guaranteed slices.
    pub reserved: Nanos,
    /// CPU time that was not reserved: of best effort, or beyond a slice.
    pub spare: Nanos,
    /// CPU time spent on other threads that was debited from slices, or from the share of unreserved time.
    pub debited: Nanos,
    /// CPU time spent on other threads beyond the limit of the debit.
    pub undebited: Nanos,
    /// Wall time during runs in which the hypervisor or other threads had the CPU. It is not counted as use.
    pub stolen: Nanos,
    /// Periods that started while the virtual CPU had work, on this core or on other threads.
    pub periods: u64,
    /// Periods with work in which the whole slice was used before their end. A period is neither served nor missed if
    /// the virtual CPU slept with budget left, or paid a debt of a whole slice.
    pub periods_served: u64,
    /// Periods in which the virtual CPU always had work and did not receive its whole slice before their end.
    pub periods_missed: u64,
    /// Guaranteed CPU time that would have come late by more than [`super::CoreConfig::lateness_max`], and is not
    /// provided any more.
    pub forfeited: Nanos,
    /// Runs that took more CPU time than their budget.
    pub overruns: u64,
    /// The sum of all overruns.
    pub overrun: Nanos,
    /// The longest overrun.
    pub overrun_max: Nanos,
}

impl Stats {
    /// CPU time on this core, reserved or not. Time spent on other threads is not included.
    pub fn used(&self) -> Nanos {
        Nanos(self.reserved.0.saturating_add(self.spare.0))
    }

    /// Adds the counters of `other`.
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
