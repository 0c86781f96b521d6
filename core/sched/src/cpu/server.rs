//! The constant-bandwidth server of a reservation.
//!
//! This is the hard variant of Abeni and Buttazzo, "Integrating Multimedia Applications in Hard Real-Time Systems"
//! (RTSS 1998). An exhausted server's budget is replenished at its deadline and not at once, as in hard reservations
//! (Rajkumar et al., "Resource Kernels", MMCN 1998).
//!
//! The original postpones the deadline at once. A server alone on a core then moves its deadline so far ahead that it
//! gets no time when other servers have work again. Here, a run that starts when the slice is used up is spare time,
//! and changes neither budget nor deadline. A run that starts within the slice and exceeds the budget is debited in
//! full.
//!
//! Points in time are on the *reservation clock*, which lags wall time by `set_back` ([`super::CoreScheduler`]).
//!
//! - **Periods** follow one another without a gap as long as there is work. In each period the server has its slice,
//!   less what earlier runs took beyond their budgets.
//! - **Paid for.** In a time t the server earns t * slice / period of use, the reserved rate. All use so far is *paid
//!   for* once the server has earned as much as it has used: at the time `end - budget * period / slice`.
//! - **Waking up.** The condition for a new period is that of the paper, `budget >= (end - now) * slice / period`: all
//!   use so far is paid for. The new period has a whole slice. A wake-up before that time keeps the remaining budget,
//!   and no new budget comes before the old period's end. One point differs from the paper: the kept budget gets a
//!   deadline one period after the wake-up. The old deadline can be arbitrarily close, so that another server's
//!   non-preemptible run would make this server late, and other servers in turn. With the new deadline, all scheduled
//!   work has at least one period's time, so the blocking term of [`super::admission`] is exact.
//! - **Lateness.** A period whose slice is not used up at its end, because time was stolen, is missed. It continues
//!   under its deadline until the slice is used up; the next period starts where it should have started. If the
//!   earliest deadline passed more than [`super::CoreConfig::lateness_max`] ago, the reservation clock is set back for
//!   all servers at once. So all servers lose the same fraction of their reservations; if each server forfeited time by
//!   itself, long periods would be favoured.

use super::reservation::DebitKind;
use super::stats::Stats;

/// The budget and the deadline of one reservation. All times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Server {
    period: u64,
    slice: u64,
    /// The rest of the slice; if negative, the debt to later slices.
    budget: i64,
    /// The end of the present period, and the earliest start of the next.
    end: u64,
    /// The deadline while there is budget.
    deadline: u64,
    /// The value of `set_back` at the latest start of a period, wake-up or sleep.
    set_back: u64,
    /// True if there has been work at all times since the present period started, and the period has not been counted
    /// as served or missed yet.
    worked_throughout: bool,
}

impl Server {
    /// Creates a server that has never run.
    pub(super) fn new(period: u64, slice: u64) -> Server {
        Server { period, slice, budget: 0, end: 0, deadline: 0, set_back: 0, worked_throughout: false }
    }

    pub(super) fn has_budget(&self) -> bool {
        self.budget > 0
    }

    /// The rest of the slice; zero if there is a debt.
    pub(super) fn budget(&self) -> u64 {
        u64::try_from(self.budget).unwrap_or(0)
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn deadline(&self) -> u64 {
        self.deadline
    }

    /// The time from which all use so far is paid for (see the module's documentation), debts included, rounded up to
    /// whole periods.
    pub(super) fn fully_paid_at(&self) -> u64 {
        let debt = u64::try_from(self.budget.saturating_neg()).unwrap_or(0);
        self.end.saturating_add(debt.div_ceil(self.slice).saturating_mul(self.period))
    }

    /// Sets other terms, at once. To be called when the present period is over or its use is paid for.
    pub(super) fn set_terms(&mut self, period: u64, slice: u64) {
        (self.period, self.slice) = (period, slice);
        self.budget = self.budget.min(signed(slice));
    }

    /// Returns true if all use so far is paid for (see the module's documentation), so that a new period may start at
    /// once.
    pub(super) fn is_paid(&self, now: u64) -> bool {
        let ahead = i128::from(self.end) - i128::from(now);
        i128::from(self.budget) * i128::from(self.period) >= ahead * i128::from(self.slice)
    }

    /// Records that there is work, after a time without work.
    pub(super) fn wake(&mut self, now: u64, set_back: u64, stats: &mut Stats) {
        if self.is_paid(now) {
            self.budget = signed(self.slice);
            self.open_period(now, set_back, stats);
            return;
        }
        if self.budget <= 0 && self.end <= now {
            // The time without work has paid a part of the debt.
            let periods = (now - self.end) / self.period + 1;
            self.budget = self.budget.saturating_add(signed(self.slice).saturating_mul(signed(periods)));
            self.end = self.end.saturating_add(periods.saturating_mul(self.period));
            stats.periods += 1;
        }
        (self.worked_throughout, self.set_back) = (false, set_back);
        self.deadline = now.saturating_add(self.period);
    }

    /// Records that there is no work any more.
    pub(super) fn sleep(&mut self, now: u64, set_back: u64, stats: &mut Stats) {
        if self.worked_throughout && self.has_budget() && self.is_over(now, set_back) {
            stats.periods_missed += 1;
        }
        // Since `self.set_back` was stored there was work at all times, and the clock has been set back by the
        // difference. Each whole period in that difference is missed.
        let passed = (set_back - self.set_back) / self.period;
        stats.periods += passed;
        stats.periods_missed += passed;
        (self.worked_throughout, self.set_back) = (false, set_back);
    }

    /// Debits a run that ended at `now`.
    pub(super) fn spend(&mut self, used: u64, now: u64, set_back: u64, stats: &mut Stats) {
        let had_budget = self.has_budget();
        self.budget = self.budget.saturating_sub(signed(used));
        if !had_budget || self.has_budget() {
            return;
        }
        // Time beyond the budget was used last, so the budget was used up that much before `now`.
        let beyond = self.budget.unsigned_abs();
        if !self.is_over(now.saturating_sub(beyond), set_back) {
            stats.periods_served += 1;
        } else if self.worked_throughout {
            stats.periods_missed += 1;
        }
        self.worked_throughout = false;
    }

    /// Debits time used on other threads from the present slice. The rest is debited from the next slice for
    /// [`DebitKind::Unrequested`], and from all later slices for [`DebitKind::Requested`]. Returns the part that is not
    /// debited. `has_work` is true if the virtual CPU has work.
    pub(super) fn debit(
        &mut self,
        used: u64,
        kind: DebitKind,
        has_work: bool,
        now: u64,
        set_back: u64,
        stats: &mut Stats,
    ) -> u64 {
        if !has_work && self.is_paid(now) {
            // The server wakes up for the debit and goes back to sleep.
            self.budget = signed(self.slice);
            self.end = now.saturating_add(self.period);
            stats.periods += 1;
        }
        let debit_max = match kind {
            DebitKind::Unrequested => {
                u64::try_from(self.budget.saturating_add(signed(self.slice))).unwrap_or(0)
            }
            DebitKind::Requested => u64::MAX,
        };
        let debited = used.min(debit_max);
        if has_work {
            self.spend(debited, now, set_back, stats);
        } else {
            self.budget = self.budget.saturating_sub(signed(debited));
        }
        used - debited
    }

    /// Starts the next period of a server that has had work all the time. Called only after `end`.
    pub(super) fn begin(&mut self, set_back: u64, stats: &mut Stats) {
        let lost_time = set_back - self.set_back;
        let forfeited = u128::from(lost_time) * u128::from(self.slice) / u128::from(self.period);
        stats.forfeited.0 = stats.forfeited.0.saturating_add(u64::try_from(forfeited).unwrap_or(u64::MAX));
        stats.periods += lost_time / self.period;
        stats.periods_missed += lost_time / self.period;
        self.budget = self.budget.saturating_add(signed(self.slice));
        self.open_period(self.end, set_back, stats);
    }

    fn open_period(&mut self, begin: u64, set_back: u64, stats: &mut Stats) {
        self.end = begin.saturating_add(self.period);
        self.deadline = self.end;
        self.set_back = set_back;
        self.worked_throughout = true;
        stats.periods += 1;
    }

    /// Returns true if the present period would have ended by now, had the clock not been set back since
    /// `self.set_back` was stored. This decides whether the period is served or missed.
    fn is_over(&self, now: u64, set_back: u64) -> bool {
        now.saturating_add(set_back - self.set_back) > self.end
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
    fn a_wake_up_does_not_exceed_the_reserved_bandwidth() {
        let mut stats = Stats::default();
        let mut server = Server::new(100, 10);
        server.wake(1000, 0, &mut stats);
        assert_eq!((server.budget, server.end, server.deadline), (10, 1100, 1100));
        server.spend(4, 1004, 0, &mut stats);
        server.sleep(1004, 0, &mut stats);
        // 4 of 10 are paid for after 40 of 100: before that the rest of the budget is kept, afterwards a new period
        // starts.
        let (mut early, mut late) = (server, server);
        early.wake(1039, 0, &mut stats);
        assert_eq!((early.budget, early.end, early.deadline), (6, 1100, 1139));
        late.wake(1040, 0, &mut stats);
        assert_eq!((late.budget, late.end, late.deadline), (10, 1140, 1140));
    }

    #[test]
    fn time_beyond_the_budget_is_missing_in_the_next_period_and_sleeping_pays_for_it() {
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
        // A debt of more than a slice takes whole periods to pay.
        let mut deep = Server { budget: -25, end: 100, ..slept };
        assert_eq!(deep.fully_paid_at(), 400);
        deep.begin(0, &mut stats);
        assert_eq!((deep.budget, deep.end, deep.has_budget()), (-15, 200, false));
    }

    #[test]
    fn time_used_elsewhere_is_debited_and_an_unrequested_debt_is_at_most_one_slice() {
        let mut stats = Stats::default();
        let mut server = Server::new(100, 10);
        server.wake(0, 0, &mut stats);
        assert_eq!(server.debit(4, DebitKind::Unrequested, true, 1, 0, &mut stats), 0);
        assert_eq!(server.budget, 6);
        // The rest of this slice and all of the next one; more is not debited.
        assert_eq!(server.debit(20, DebitKind::Unrequested, true, 2, 0, &mut stats), 4);
        assert_eq!((server.budget, stats.periods_served), (-10, 1));
        server.begin(0, &mut stats);
        assert_eq!((server.budget, server.has_budget()), (0, false));
        server.begin(0, &mut stats);
        assert_eq!((server.budget, server.end), (10, 300));
        // Asleep, with all use paid for: new use is paid for by the time that passes from now on.
        server.sleep(250, 0, &mut stats);
        assert_eq!(server.debit(5, DebitKind::Unrequested, false, 1000, 0, &mut stats), 0);
        let mut early = server;
        early.wake(1049, 0, &mut stats);
        assert_eq!((early.budget, early.end, early.deadline), (5, 1100, 1149));
        server.wake(1050, 0, &mut stats);
        assert_eq!((server.budget, server.end), (10, 1150));
    }

    #[test]
    fn a_requested_debt_is_debited_in_full_awake_or_asleep() {
        let mut stats = Stats::default();
        let mut server = Server::new(100, 10);
        server.wake(0, 0, &mut stats);
        assert_eq!(server.debit(35, DebitKind::Requested, true, 1, 0, &mut stats), 0);
        // Beyond a debt of one slice, no unrequested work is debited.
        assert_eq!(server.debit(5, DebitKind::Unrequested, true, 2, 0, &mut stats), 5);
        assert_eq!((server.budget, server.fully_paid_at()), (-25, 400));
        for budget in [-15, -5, 5] {
            server.begin(0, &mut stats);
            assert_eq!(server.budget, budget);
        }
        // After a long sleep, a requested debt is not paid by the time that passed before.
        server.sleep(350, 0, &mut stats);
        assert_eq!(server.debit(35, DebitKind::Requested, false, 1000, 0, &mut stats), 0);
        assert_eq!((server.budget, server.end, server.fully_paid_at()), (-25, 1100, 1400));
        let mut early = server;
        early.wake(1220, 0, &mut stats);
        assert_eq!((early.budget, early.end, early.has_budget()), (-5, 1300, false));
        server.wake(1400, 0, &mut stats);
        assert_eq!((server.budget, server.end), (10, 1500));
    }

    #[test]
    fn set_backs_count_as_missed_periods_also_after_an_early_wake_up() {
        let mut stats = Stats::default();
        let mut server = Server::new(100, 10);
        server.wake(0, 0, &mut stats);
        server.spend(4, 4, 0, &mut stats);
        server.sleep(4, 0, &mut stats);
        // The server wakes up in the same period, and runs when the clock has been set back by 350.
        server.wake(20, 0, &mut stats);
        server.spend(1, 50, 350, &mut stats);
        server.sleep(50, 350, &mut stats);
        assert_eq!((stats.periods, stats.periods_missed), (4, 3));
        // Missed periods are counted once.
        server.wake(60, 350, &mut stats);
        server.sleep(61, 350, &mut stats);
        assert_eq!(
            (stats.periods, stats.periods_missed),
            (5, 3),
            "its use was paid for, so a period started"
        );
    }

    #[test]
    fn a_late_slice_is_missed_and_time_that_the_clock_is_set_back_by_is_forfeited() {
        let mut stats = Stats::default();
        let mut server = Server::new(100, 10);
        server.wake(0, 0, &mut stats);
        server.spend(9, 150, 0, &mut stats);
        assert_eq!(
            stats.periods_missed, 0,
            "a late period is counted as missed when its slice is used up, not before"
        );
        // At 420 of wall time the clock had been set back by 220.
        server.spend(1, 200, 220, &mut stats);
        assert_eq!((stats.periods_served, stats.periods_missed), (0, 1));
        server.begin(220, &mut stats);
        assert_eq!((server.budget, server.end), (10, 200));
        assert_eq!((stats.periods, stats.periods_missed, stats.forfeited), (4, 3, Nanos(22)));
    }
}
