//! Processor time that several pieces of work share: all compilation of one request, for instance.

use weir_units::Nanos;

/// An order to a child that works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterOrder {
    /// It goes on.
    GoOn,
    /// It is stopped until the meter says otherwise.
    Rest,
    /// It is ended, and nothing comes of it.
    GiveUp,
}

/// Processor time that may be used, and an account of what was.
pub trait CpuMeter {
    /// All that there is for the work together.
    fn limit(&self) -> Nanos;

    /// The part of [`limit`](Self::limit) that nothing has used yet.
    fn left(&self) -> Nanos;

    /// Takes off processor time that was used.
    fn spend(&mut self, used: Nanos);

    /// Takes off processor time of the calling thread, so that it is not charged twice.
    fn spend_here(&mut self, used: Nanos) {
        self.spend(used);
    }

    /// Decides on a child that works and has used `so_far`, which is taken off when it has ended.
    fn order(&mut self, so_far: Nanos) -> MeterOrder {
        _ = so_far;
        MeterOrder::GoOn
    }
}

/// A count of processor time without a limit.
impl CpuMeter for Nanos {
    fn limit(&self) -> Nanos {
        Nanos(u64::MAX)
    }

    fn left(&self) -> Nanos {
        Nanos(u64::MAX)
    }

    fn spend(&mut self, used: Nanos) {
        self.0 = self.0.saturating_add(used.0);
    }
}

/// The processor time of one request: whatever is compiled for it takes from the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuBudget {
    limit: Nanos,
    used: Nanos,
    here: Nanos,
}

impl CpuBudget {
    /// So much for all together.
    pub const fn new(limit: Nanos) -> Self {
        Self { limit, used: Nanos(0), here: Nanos(0) }
    }

    /// The processor time that was used so far, beyond the limit, too.
    pub fn used(&self) -> Nanos {
        self.used
    }

    /// The part of [`used`](Self::used) that [`spend_here`](CpuMeter::spend_here) was told of.
    pub fn here(&self) -> Nanos {
        self.here
    }
}

impl CpuMeter for CpuBudget {
    fn limit(&self) -> Nanos {
        self.limit
    }

    fn left(&self) -> Nanos {
        Nanos(self.limit.0.saturating_sub(self.used.0))
    }

    fn spend(&mut self, used: Nanos) {
        self.used.0 = self.used.0.saturating_add(used.0);
    }

    fn spend_here(&mut self, used: Nanos) {
        self.here.0 = self.here.0.saturating_add(used.0);
        self.spend(used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_work_takes_from_one_budget_and_what_is_beyond_it_is_known() {
        let mut budget = CpuBudget::new(Nanos(10));
        budget.spend(Nanos(4));
        budget.spend_here(Nanos(5));
        assert_eq!((budget.left(), budget.used(), budget.here()), (Nanos(1), Nanos(9), Nanos(5)));
        budget.spend(Nanos(5));
        assert_eq!((budget.left(), budget.used()), (Nanos(0), Nanos(14)));
        assert_eq!(budget.order(Nanos(0)), MeterOrder::GoOn);
    }
}
