//! Budgets of processor time that several pieces of work share, such as all compilations of one request.

use weir_units::Nanos;

/// An order of a meter to a running child process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterOrder {
    /// Continue.
    Continue,
    /// Pause until a later order.
    Pause,
    /// End, without a result.
    Abort,
}

/// A budget of processor time, and an account of its use.
pub trait CpuMeter {
    /// Returns the whole budget.
    fn limit(&self) -> Nanos;

    /// Returns the unused part of [`limit`](Self::limit).
    fn left(&self) -> Nanos;

    /// Debits processor time.
    fn spend(&mut self, used: Nanos);

    /// Debits processor time that the calling thread itself has used. [`CpuBudget`] also counts this time separately, so
    /// that a caller that charges its own thread's time elsewhere can avoid charging it twice.
    fn spend_in_caller(&mut self, used: Nanos) {
        self.spend(used);
    }

    /// Returns the order for a running child that has used the processor time `so_far`, which is debited when the child has
    /// ended.
    fn order(&mut self, so_far: Nanos) -> MeterOrder {
        _ = so_far;
        MeterOrder::Continue
    }
}

/// A count of used processor time without a limit.
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

/// The processor-time budget of one request, which all of its compilations share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuBudget {
    limit: Nanos,
    used: Nanos,
    used_in_caller: Nanos,
}

impl CpuBudget {
    /// Creates an unused budget of `limit`.
    pub const fn new(limit: Nanos) -> Self {
        Self { limit, used: Nanos(0), used_in_caller: Nanos(0) }
    }

    /// Returns the used processor time, including the excess over the limit.
    pub fn used(&self) -> Nanos {
        self.used
    }

    /// Returns the part of [`used`](Self::used) that was debited by [`spend_in_caller`](CpuMeter::spend_in_caller).
    pub fn used_in_caller(&self) -> Nanos {
        self.used_in_caller
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

    fn spend_in_caller(&mut self, used: Nanos) {
        self.used_in_caller.0 = self.used_in_caller.0.saturating_add(used.0);
        self.spend(used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_work_shares_one_budget_and_its_excess_is_known() {
        let mut budget = CpuBudget::new(Nanos(10));
        budget.spend(Nanos(4));
        budget.spend_in_caller(Nanos(5));
        assert_eq!((budget.left(), budget.used(), budget.used_in_caller()), (Nanos(1), Nanos(9), Nanos(5)));
        budget.spend(Nanos(5));
        assert_eq!((budget.left(), budget.used()), (Nanos(0), Nanos(14)));
        assert_eq!(budget.order(Nanos(0)), MeterOrder::Continue);
    }
}
