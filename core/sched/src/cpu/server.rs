//! The constant-bandwidth server of a reservation.
//!
//! The hard variant: Abeni and Buttazzo, "Integrating Multimedia Applications in Hard Real-Time Systems" (RTSS 1998), with the budget of an
//! exhausted server given anew at its deadline and not at once, as in hard reservations (Rajkumar et al., "Resource Kernels", MMCN 1998).
//! Postponing the deadline at once, as the original does, lets a server run ahead on an idle core until its deadline is so far away that it
//! gets nothing when others come; here what is beyond the slice is spare time and touches neither budget nor deadline.
//!
//! - **Periods** follow one another without a gap as long as there is work. In each of them the server has the slice, less what earlier
//!   runs took beyond their budgets.
//! - **Waking up.** What has been used is paid for, at the reserved rate, until `end - budget * period / slice`. From then on a new period
//!   with a whole slice begins at once; before, what is left of the budget is kept, and no new one comes before the old period's end (the
//!   rule of the paper: `budget >= (end - now) * slice / period`). In one point this differs from the paper: the kept budget is scheduled
//!   by a deadline one period after the wake-up. With the old one, which can be arbitrarily close, somebody else's run that cannot be
//!   interrupted would make it late, and through it others. So whatever is scheduled has at least a period's time, and [`super::admission`]
//!   is exact about blocking.
//! - **Lateness.** A period whose slice has not been used up at its end (time was stolen) is missed, and goes on under its deadline, before
//!   whoever has a later one, until the slice is used up; the next then begins where it should have begun. When the first is later than
//!   [`super::CoreConfig::arrears`], the clock by which reservations live is set back for all of them at once ([`super::Core`]): so with long
//!   stealing everybody gets the same part of its reservation, where forfeiting by server would give more to those with long periods. That
//!   clock is `now` here, and `lost` is by how much it is behind the wall.

use super::stats::Stats;
use super::terms::Debt;

/// All times in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Server {
    period: u64,
    slice: u64,
    /// What is left of the slice; below zero, what was taken of the next.
    budget: i64,
    /// When the present period ends and the next can begin.
    end: u64,
    /// By what it is scheduled while there is a budget.
    deadline: u64,
    /// How much had been lost when the present period began, or went on.
    lost: u64,
    /// There was work ever since the present period began.
    whole: bool,
}

impl Server {
    /// One that has never run.
    pub(super) fn new(period: u64, slice: u64) -> Server {
        Server { period, slice, budget: 0, end: 0, deadline: 0, lost: 0, whole: false }
    }

    pub(super) fn has_budget(&self) -> bool {
        self.budget > 0
    }

    /// What is left of the slice.
    pub(super) fn budget(&self) -> u64 {
        u64::try_from(self.budget).unwrap_or(0)
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn deadline(&self) -> u64 {
        self.deadline
    }

    /// When all that has been used is paid for, debts included, rounded up to whole periods.
    pub(super) fn paid_at_latest(&self) -> u64 {
        let debt = u64::try_from(self.budget.saturating_neg()).unwrap_or(0);
        self.end.saturating_add(debt.div_ceil(self.slice).saturating_mul(self.period))
    }

    /// Takes other terms over. They hold from the next period on.
    pub(super) fn adopt(&mut self, period: u64, slice: u64) {
        (self.period, self.slice) = (period, slice);
        self.budget = self.budget.min(signed(slice));
    }

    /// Whether a new period may begin at once, because the old one's use is paid for.
    pub(super) fn is_paid(&self, now: u64) -> bool {
        let ahead = i128::from(self.end) - i128::from(now);
        i128::from(self.budget) * i128::from(self.period) >= ahead * i128::from(self.slice)
    }

    /// There is work again.
    pub(super) fn wake(&mut self, now: u64, lost: u64, stats: &mut Stats) {
        if self.is_paid(now) {
            self.budget = signed(self.slice);
            self.open(now, lost, stats);
            return;
        }
        if self.budget <= 0 && self.end <= now {
            // The debt has partly been slept off.
            let periods = (now - self.end) / self.period + 1;
            self.budget = self.budget.saturating_add(signed(self.slice).saturating_mul(signed(periods)));
            self.end = self.end.saturating_add(periods.saturating_mul(self.period));
            stats.periods += 1;
        }
        (self.whole, self.lost) = (false, lost);
        self.deadline = now.saturating_add(self.period);
    }

    /// There is no work any more.
    pub(super) fn sleep(&mut self, now: u64, lost: u64, stats: &mut Stats) {
        if self.whole && self.has_budget() && self.is_over(now, lost) {
            stats.periods_missed += 1;
        }
        // Periods that passed while others had the core. There was work in all of them.
        let passed = (lost - self.lost) / self.period;
        stats.periods += passed;
        stats.periods_missed += passed;
        (self.whole, self.lost) = (false, lost);
    }

    /// Debits a run that ended at `now`.
    pub(super) fn spend(&mut self, used: u64, now: u64, lost: u64, stats: &mut Stats) {
        let had = self.has_budget();
        self.budget = self.budget.saturating_sub(signed(used));
        if !had || self.has_budget() {
            return;
        }
        // What was taken beyond the budget came after the budget.
        let beyond = self.budget.unsigned_abs();
        if !self.is_over(now.saturating_sub(beyond), lost) {
            stats.periods_served += 1;
        } else if self.whole {
            stats.periods_missed += 1;
        }
        self.whole = false;
    }

    /// Takes what was used elsewhere from the present slice, and where that is not enough from the next one, or from all that it takes: as if it had
    /// been used here. Gives back what is more than that. It is not `awake` while it has no work.
    pub(super) fn debit(
        &mut self,
        used: u64,
        debt: Debt,
        awake: bool,
        now: u64,
        lost: u64,
        stats: &mut Stats,
    ) -> u64 {
        if !awake && self.is_paid(now) {
            // It wakes up for this, and goes to sleep again.
            self.budget = signed(self.slice);
            self.end = now.saturating_add(self.period);
            stats.periods += 1;
        }
        let room = match debt {
            Debt::Imposed => u64::try_from(self.budget.saturating_add(signed(self.slice))).unwrap_or(0),
            Debt::Agreed => u64::MAX,
        };
        let taken = used.min(room);
        if awake {
            self.spend(taken, now, lost, stats);
        } else {
            self.budget = self.budget.saturating_sub(signed(taken));
        }
        used - taken
    }

    /// Begins the period that is due, having had work all the time. May be called once `end` has passed.
    pub(super) fn begin(&mut self, lost: u64, stats: &mut Stats) {
        let meanwhile = lost - self.lost;
        let forfeited = u128::from(meanwhile) * u128::from(self.slice) / u128::from(self.period);
        stats.forfeited.0 = stats.forfeited.0.saturating_add(u64::try_from(forfeited).unwrap_or(u64::MAX));
        stats.periods += meanwhile / self.period;
        stats.periods_missed += meanwhile / self.period;
        self.budget = self.budget.saturating_add(signed(self.slice));
        self.open(self.end, lost, stats);
    }

    fn open(&mut self, begin: u64, lost: u64, stats: &mut Stats) {
        self.end = begin.saturating_add(self.period);
        self.deadline = self.end;
        self.lost = lost;
        self.whole = true;
        stats.periods += 1;
    }

    /// Whether the present period has ended, by the clock that held when it began.
    fn is_over(&self, now: u64, lost: u64) -> bool {
        now.saturating_add(lost - self.lost) > self.end
    }
}

fn signed(time: u64) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_units::Nanos;

    #[test]
    fn a_wake_up_keeps_the_bandwidth() {
        let mut stats = Stats::default();
        let mut server = Server::new(100, 10);
        server.wake(1000, 0, &mut stats);
        assert_eq!((server.budget, server.end, server.deadline), (10, 1100, 1100));
        server.spend(4, 1004, 0, &mut stats);
        server.sleep(1004, 0, &mut stats);
        // 4 of 10 are paid for after 40 of 100: until then the rest of the budget is kept, later it is a new period.
        let (mut early, mut late) = (server, server);
        early.wake(1039, 0, &mut stats);
        assert_eq!((early.budget, early.end, early.deadline), (6, 1100, 1139));
        late.wake(1040, 0, &mut stats);
        assert_eq!((late.budget, late.end, late.deadline), (10, 1140, 1140));
    }

    #[test]
    fn what_was_taken_beyond_the_budget_is_missing_in_the_next_and_sleeping_pays_it() {
        let mut stats = Stats::default();
        let mut server = Server::new(100, 10);
        server.wake(0, 0, &mut stats);
        server.spend(13, 13, 0, &mut stats);
        let mut slept = server;
        server.begin(0, &mut stats);
        assert_eq!((server.budget, server.end), (7, 200));
        assert_eq!((stats.periods, stats.periods_served, stats.periods_missed), (2, 1, 0));
        slept.wake(129, 0, &mut stats);
        assert_eq!((slept.budget, slept.end, slept.deadline), (7, 200, 229));
        let mut slept_longer = Server { budget: -3, end: 100, ..slept };
        slept_longer.wake(130, 0, &mut stats);
        assert_eq!((slept_longer.budget, slept_longer.end), (10, 230));
        // A debt of more than a slice is paid by whole periods.
        let mut deep = Server { budget: -25, end: 100, ..slept };
        assert_eq!(deep.paid_at_latest(), 400);
        deep.begin(0, &mut stats);
        assert_eq!((deep.budget, deep.end, deep.has_budget()), (-15, 200, false));
    }

    #[test]
    fn what_was_used_elsewhere_is_missing_here_and_nobody_owes_more_than_a_slice() {
        let mut stats = Stats::default();
        let mut server = Server::new(100, 10);
        server.wake(0, 0, &mut stats);
        assert_eq!(server.debit(4, Debt::Imposed, true, 1, 0, &mut stats), 0);
        assert_eq!(server.budget, 6);
        // The rest of this slice and all of the next one; what is more is lost.
        assert_eq!(server.debit(20, Debt::Imposed, true, 2, 0, &mut stats), 4);
        assert_eq!((server.budget, stats.periods_served), (-10, 1));
        server.begin(0, &mut stats);
        assert_eq!((server.budget, server.has_budget()), (0, false));
        server.begin(0, &mut stats);
        assert_eq!((server.budget, server.end), (10, 300));
        // Asleep, with all paid for: what is used now is paid for by the time that passes from now on.
        server.sleep(250, 0, &mut stats);
        assert_eq!(server.debit(5, Debt::Imposed, false, 1000, 0, &mut stats), 0);
        let mut early = server;
        early.wake(1049, 0, &mut stats);
        assert_eq!((early.budget, early.end, early.deadline), (5, 1100, 1149));
        server.wake(1050, 0, &mut stats);
        assert_eq!((server.budget, server.end), (10, 1150));
    }

    #[test]
    fn what_was_agreed_to_is_owed_whole_awake_or_asleep() {
        let mut stats = Stats::default();
        let mut server = Server::new(100, 10);
        server.wake(0, 0, &mut stats);
        assert_eq!(server.debit(35, Debt::Agreed, true, 1, 0, &mut stats), 0);
        // Whoever owes more than a slice is made to owe nothing beside that.
        assert_eq!(server.debit(5, Debt::Imposed, true, 2, 0, &mut stats), 5);
        assert_eq!((server.budget, server.paid_at_latest()), (-25, 400));
        for budget in [-15, -5, 5] {
            server.begin(0, &mut stats);
            assert_eq!(server.budget, budget);
        }
        // It has slept for long, and has others work then: that is not paid for by the time before.
        server.sleep(350, 0, &mut stats);
        assert_eq!(server.debit(35, Debt::Agreed, false, 1000, 0, &mut stats), 0);
        assert_eq!((server.budget, server.end, server.paid_at_latest()), (-25, 1100, 1400));
        let mut early = server;
        early.wake(1220, 0, &mut stats);
        assert_eq!((early.budget, early.end, early.has_budget()), (-5, 1300, false));
        server.wake(1400, 0, &mut stats);
        assert_eq!((server.budget, server.end), (10, 1500));
    }

    #[test]
    fn periods_that_others_took_are_missed_also_where_the_first_of_them_had_begun_without_work() {
        let mut stats = Stats::default();
        let mut server = Server::new(100, 10);
        server.wake(0, 0, &mut stats);
        server.spend(4, 4, 0, &mut stats);
        server.sleep(4, 0, &mut stats);
        // It wakes up in the same period, and runs when 350 have been lost.
        server.wake(20, 0, &mut stats);
        server.spend(1, 50, 350, &mut stats);
        server.sleep(50, 350, &mut stats);
        assert_eq!((stats.periods, stats.periods_missed), (4, 3));
        // The missed ones are counted once.
        server.wake(60, 350, &mut stats);
        server.sleep(61, 350, &mut stats);
        assert_eq!((stats.periods, stats.periods_missed), (5, 3), "its use was paid for: a period began");
    }

    #[test]
    fn what_comes_late_is_missed_and_what_the_clock_is_set_back_by_is_forfeited() {
        let mut stats = Stats::default();
        let mut server = Server::new(100, 10);
        server.wake(0, 0, &mut stats);
        server.spend(9, 150, 0, &mut stats);
        assert_eq!(stats.periods_missed, 0, "it is not known before it is over");
        // At 420 by the wall, 220 were lost.
        server.spend(1, 200, 220, &mut stats);
        assert_eq!((stats.periods_served, stats.periods_missed), (0, 1));
        server.begin(220, &mut stats);
        assert_eq!((server.budget, server.end), (10, 200));
        assert_eq!((stats.periods, stats.periods_missed, stats.forfeited), (4, 3, Nanos(22)));
    }
}
