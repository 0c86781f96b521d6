//! Budgets of processor time that several pieces of work share, such as all compilations of one request. A budget also
//! orders a running child to pause or to end.

use std::sync::atomic::{AtomicBool, Ordering};
use weir_units::Nanos;

/// An order to a running child process by the budget that pays for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetOrder {
    /// Continue.
    Continue,
    /// Pause until a later order.
    Pause,
    /// End, without a result.
    Abort,
}

/// A budget of processor time: a limit, an account of its use, and orders to a running child.
pub trait ProcessorBudget {
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

    /// Returns the order for a running child that has used the processor time `so_far`. That time is debited only when the
    /// child has ended.
    fn order(&mut self, so_far: Nanos) -> BudgetOrder {
        _ = so_far;
        BudgetOrder::Continue
    }
}

/// A count of used processor time without a limit.
impl ProcessorBudget for Nanos {
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

    /// Returns the part of [`used`](Self::used) that was debited by [`spend_in_caller`](ProcessorBudget::spend_in_caller).
    pub fn used_in_caller(&self) -> Nanos {
        self.used_in_caller
    }
}

impl ProcessorBudget for CpuBudget {
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

/// A budget that orders the end of a child once a flag is set. In all else it is the budget that it wraps.
pub struct StoppableBudget<'a> {
    /// The budget that pays.
    pub budget: &'a mut dyn ProcessorBudget,
    /// The flag.
    pub must_stop: &'a AtomicBool,
}

impl std::fmt::Debug for StoppableBudget<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoppableBudget").field("must_stop", &self.must_stop).finish_non_exhaustive()
    }
}

impl ProcessorBudget for StoppableBudget<'_> {
    fn limit(&self) -> Nanos {
        self.budget.limit()
    }

    fn left(&self) -> Nanos {
        self.budget.left()
    }

    fn spend(&mut self, used: Nanos) {
        self.budget.spend(used);
    }

    fn spend_in_caller(&mut self, used: Nanos) {
        self.budget.spend_in_caller(used);
    }

    fn order(&mut self, so_far: Nanos) -> BudgetOrder {
        match self.must_stop.load(Ordering::Acquire) {
            true => BudgetOrder::Abort,
            false => self.budget.order(so_far),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stoppable_budget_aborts_once_its_flag_is_set_and_spends_from_the_other() {
        let (mut used, flag) = (Nanos(1), AtomicBool::new(false));
        let mut budget = StoppableBudget { budget: &mut used, must_stop: &flag };
        budget.spend(Nanos(4));
        assert_eq!(budget.order(Nanos(9)), BudgetOrder::Continue);
        flag.store(true, Ordering::Release);
        assert_eq!(budget.order(Nanos(9)), BudgetOrder::Abort);
        assert_eq!(used, Nanos(5));
    }

    #[test]
    fn all_work_shares_one_budget_and_its_excess_is_known() {
        let mut budget = CpuBudget::new(Nanos(10));
        budget.spend(Nanos(4));
        budget.spend_in_caller(Nanos(5));
        assert_eq!((budget.left(), budget.used(), budget.used_in_caller()), (Nanos(1), Nanos(9), Nanos(5)));
        budget.spend(Nanos(5));
        assert_eq!((budget.left(), budget.used()), (Nanos(0), Nanos(14)));
        assert_eq!(budget.order(Nanos(0)), BudgetOrder::Continue);
    }
}
