//! Turns at compiling, and at what else takes a processor for long.
//!
//! Analysing and compiling take a processor for as long as a stranger's module or filter makes them. So holders of credentials do that in turns, by a [fair queue](queue) over
//! processor time: one at a time under each first grant, so many at a time in all, and the holder goes first who has used the least of their share. A turn can be interrupted:
//! its compiler is stopped while others are before it. The processor time is paid from the shares of the holder's chain before their next turn begins; that of requests outside
//! of turns is paid from the share of the asker alone. All
//! compilation of one request shares one [budget](REQUEST). Reading the ledger is done in turns of a moment each. The operator never waits.

mod queue;

use crate::control::authority::{SessionOwner, line};
use queue::{CompilePayer, CompileQueue, JobState};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_os::{CpuBudget, CpuMeter, MeterOrder};
use weir_trust::credential::VerifiedCredential;
use weir_units::Nanos;

/// Processor time for all that one request of a holder's has compiled.
pub(crate) const REQUEST: Nanos = Nanos(10 * Nanos::SECOND.0);
/// Turns that run at a time, at least.
const AT_A_TIME_MIN: usize = 2;
/// Turns that have begun and rest, beside those that run: each keeps a compiler's memory.
const RESTING_MAX: usize = 4;
/// A holder who has to wait for longer until it is paid is told so, and does not wait.
const PAYING_MAX: Duration = Duration::from_secs(20);
/// The time for which a turn waits to begin.
const WAITING_MAX: Duration = Duration::from_secs(30);
/// The time after which a turn gives way that has begun and is not done: a client waits for a minute.
const LASTS_MAX: Duration = Duration::from_secs(50);

/// Why there is no turn. Nothing is wrong with what was asked; it is to be asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileQueueFull {
    /// What was compiled before is not paid for.
    #[error(
        "what was analysed, compiled, read or refused under this credential has taken its share of processor time in advance: try again in {} s", .0.as_secs() + 1
    )]
    Unpaid(Duration),
    /// Others are before.
    #[error("others have something compiled, and it has not been your turn for {} s: try again", .0.as_secs())]
    Others(Duration),
}

/// The budget of one request: [`REQUEST`] for a holder's. An operator's has none, as the configuration is one request and can have any number of modules.
pub(crate) fn budget_for(owner: Option<&SessionOwner>) -> CpuBudget {
    CpuBudget::new(owner.map_or(Nanos(u64::MAX), |_| REQUEST))
}

/// The queue of turns.
#[derive(Debug)]
pub(crate) struct FairCompileQueue {
    queue: Mutex<CompileQueue>,
    has_changed: Condvar,
    begun: Instant,
}

impl Default for FairCompileQueue {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self::new((processors / 2).max(AT_A_TIME_MIN))
    }
}

impl FairCompileQueue {
    fn new(at_a_time: usize) -> Self {
        let queue = Mutex::new(CompileQueue::new(at_a_time, at_a_time + RESTING_MAX));
        Self { queue, has_changed: Condvar::new(), begun: Instant::now() }
    }

    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Waits for a turn of the owner's; of the operator's, where there is none. What is done in it is taken off `budget`.
    pub(crate) fn take<'a>(
        &'a self,
        owner: Option<&SessionOwner>,
        budget: &'a mut CpuBudget,
    ) -> Result<CompilePermit<'a>, CompileQueueFull> {
        self.take_by(owner.map(|owner| &*owner.credential), budget)
    }

    /// The same for the holder of a credential.
    pub(crate) fn take_by<'a>(
        &'a self,
        holder: Option<&VerifiedCredential>,
        budget: &'a mut CpuBudget,
    ) -> Result<CompilePermit<'a>, CompileQueueFull> {
        let Some(holder) = holder else { return Ok(CompilePermit::new(None, (0, Instant::now()), budget)) };
        let chain: Vec<CompilePayer> = line(holder).collect();
        Ok(CompilePermit::new(Some(self), self.wait(&chain)?, budget))
    }

    /// Waits for a turn. Its number, and since when it has been wanted.
    fn wait(&self, chain: &[CompilePayer]) -> Result<(u64, Instant), CompileQueueFull> {
        let since = Instant::now();
        let mut queue = self.lock();
        let number = queue.enter(chain);
        loop {
            let now = self.now();
            let state = queue.state(number, now);
            let unpaid = Duration::from_nanos(queue.unpaid(number, now).0);
            let left = WAITING_MAX.saturating_sub(since.elapsed());
            let why = match state {
                // Others may have to rest for it.
                JobState::Runs => {
                    self.has_changed.notify_all();
                    return Ok((number, since));
                }
                _ if unpaid > PAYING_MAX => CompileQueueFull::Unpaid(unpaid),
                _ if left.is_zero() => CompileQueueFull::Others(WAITING_MAX),
                _ => {
                    let left = if unpaid.is_zero() { left } else { left.min(unpaid) };
                    let waited = self.has_changed.wait_timeout(queue, left);
                    queue = waited.unwrap_or_else(PoisonError::into_inner).0;
                    continue;
                }
            };
            queue.leave(number);
            self.has_changed.notify_all();
            return Err(why);
        }
    }

    fn lock(&self) -> MutexGuard<'_, CompileQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn charge(&self, number: u64, used: Nanos) {
        if used.0 > 0 {
            self.lock().charge(number, used, self.now());
        }
    }

    /// Charges a holder for processor time outside of turns: their next turn, and the next one of their descendants, begins when it is paid. Ancestors and siblings do not wait for it.
    pub(crate) fn charge_outside(&self, holder: &VerifiedCredential, used: Nanos) {
        let chain: Vec<CompilePayer> = line(holder).collect();
        self.lock().charge_outside(&chain, used, self.now());
    }
}

/// A turn. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct CompilePermit<'a> {
    /// None for the operator, who never waits and keeps no one waiting.
    turns: Option<&'a FairCompileQueue>,
    number: u64,
    since: Instant,
    budget: &'a mut CpuBudget,
    /// The part of the budget that was used before.
    before: Nanos,
    /// Processor time of a child that works, as far as it was charged.
    charged: Nanos,
    /// Others run in its place.
    rests: bool,
}

impl<'a> CompilePermit<'a> {
    fn new(
        turns: Option<&'a FairCompileQueue>,
        (number, since): (u64, Instant),
        budget: &'a mut CpuBudget,
    ) -> Self {
        let before = budget.used();
        Self { turns, number, since, budget, before, charged: Nanos(0), rests: false }
    }

    /// All that was used in it so far.
    pub(crate) fn used(&self) -> Nanos {
        Nanos(self.budget.used().0.saturating_sub(self.before.0))
    }

    fn charge(&self, used: Nanos) {
        if let Some(turns) = self.turns {
            turns.charge(self.number, used);
        }
    }
}

impl CpuMeter for CompilePermit<'_> {
    fn limit(&self) -> Nanos {
        self.budget.limit()
    }

    fn left(&self) -> Nanos {
        self.budget.left()
    }

    fn spend(&mut self, used: Nanos) {
        self.budget.spend(used);
        self.charge(Nanos(used.0.saturating_sub(self.charged.0)));
        self.charged = Nanos(0);
    }

    fn spend_here(&mut self, used: Nanos) {
        self.budget.spend_here(used);
        self.charge(used);
    }

    fn order(&mut self, so_far: Nanos) -> MeterOrder {
        let Some(turns) = self.turns else { return MeterOrder::GoOn };
        self.charge(Nanos(so_far.0.saturating_sub(self.charged.0)));
        self.charged = self.charged.max(so_far);
        if self.since.elapsed() > LASTS_MAX {
            return MeterOrder::GiveUp;
        }
        let state = turns.lock().state(self.number, turns.now());
        let rests = state != JobState::Runs;
        if rests && !std::mem::replace(&mut self.rests, rests) {
            // Its place is another one's now.
            turns.has_changed.notify_all();
        }
        self.rests = rests;
        match state {
            JobState::Runs => MeterOrder::GoOn,
            JobState::Rests | JobState::Waits => MeterOrder::Rest,
            JobState::GivesWay => MeterOrder::GiveUp,
        }
    }
}

impl Drop for CompilePermit<'_> {
    fn drop(&mut self) {
        if let Some(turns) = self.turns {
            turns.lock().leave(self.number);
            turns.has_changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::fair::tests::chain;
    use weir_trust::grant::CpuShare;

    fn payers(word: &str, percent: u64) -> Vec<CompilePayer> {
        chain(word).into_iter().map(|id| (id, Some(CpuShare(percent * 10_000)))).collect()
    }

    fn turn<'a>(
        turns: &'a FairCompileQueue,
        chain: &[CompilePayer],
        budget: &'a mut CpuBudget,
    ) -> Result<CompilePermit<'a>, CompileQueueFull> {
        Ok(CompilePermit::new(Some(turns), turns.wait(chain)?, budget))
    }

    #[test]
    fn a_holder_does_not_wait_for_what_is_paid_too_late_and_the_operator_for_nothing() {
        let turns = FairCompileQueue::new(1);
        let mut budgets = [CpuBudget::new(REQUEST), CpuBudget::new(REQUEST), CpuBudget::new(REQUEST)];
        let [one, two, operators] = &mut budgets;
        let mut first = turn(&turns, &payers("a", 5), one).unwrap();
        first.spend_here(Nanos(2 * Nanos::SECOND.0));
        assert_eq!(first.used(), Nanos(2 * Nanos::SECOND.0));
        drop(turns.take(None, operators).unwrap());
        drop(first);
        let refused = turn(&turns, &payers("ab", 5), two).unwrap_err();
        assert!(matches!(refused, CompileQueueFull::Unpaid(left) if left > PAYING_MAX), "{refused}");
        assert!(turns.lock().is_empty());
        // Others are not kept from theirs.
        drop(turn(&turns, &payers("c", 5), two).unwrap());
        assert_eq!(budgets.map(|budget| budget.used()), [Nanos(2 * Nanos::SECOND.0), Nanos(0), Nanos(0)]);
    }

    #[test]
    fn a_turn_rests_when_a_holder_comes_who_has_used_less_and_goes_on_when_that_one_is_done() {
        let turns = FairCompileQueue::new(1);
        let mut budgets = [CpuBudget::new(REQUEST), CpuBudget::new(REQUEST)];
        let [one, two] = &mut budgets;
        let mut first = turn(&turns, &payers("a", 1), one).unwrap();
        assert_eq!(first.order(Nanos(Nanos::MILLISECOND.0)), MeterOrder::GoOn);
        let mut second = turn(&turns, &payers("b", 1), two).unwrap();
        assert_eq!(
            (first.order(Nanos::SECOND), second.order(Nanos(0))),
            (MeterOrder::Rest, MeterOrder::GoOn)
        );
        second.spend(Nanos::MILLISECOND);
        drop(second);
        assert_eq!(first.order(Nanos::SECOND), MeterOrder::GoOn);
        // What its child has used is charged once.
        first.spend(Nanos(Nanos::SECOND.0 + 1));
        let (number, now) = (first.number, turns.now());
        let unpaid = turns.lock().unpaid(number, now).0;
        assert!((99 * Nanos::SECOND.0..101 * Nanos::SECOND.0).contains(&unpaid), "{unpaid}");
        assert_eq!(first.used(), Nanos(Nanos::SECOND.0 + 1));
    }

    #[test]
    fn many_threads_each_get_a_turn_and_never_two_under_the_same_grant() {
        let turns = FairCompileQueue::new(2);
        let working = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for number in 0..12u8 {
                let (turns, working) = (&turns, &working);
                scope.spawn(move || {
                    let grant = char::from(b'a' + number % 3);
                    let mut budget = CpuBudget::new(REQUEST);
                    let word = format!("{grant}{}", char::from(b'd' + number));
                    let turn = turn(turns, &payers(&word, 100), &mut budget).unwrap();
                    let lock = || working.lock().unwrap_or_else(PoisonError::into_inner);
                    {
                        let mut there = lock();
                        assert!(!there.contains(&grant), "{there:?} and {grant}");
                        there.push(grant);
                    }
                    std::thread::yield_now();
                    lock().retain(|other| *other != grant);
                    drop(turn);
                });
            }
        });
        assert!(turns.lock().is_empty());
    }
}
