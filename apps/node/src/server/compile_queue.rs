//! The fair compile queue, for compilation and other work that takes much processor time.
//!
//! The time to analyse and compile a module or filter depends on its untrusted author. So the jobs of credential holders
//! enter a [fair queue](queue) over processor time:
//!
//! - For each party (see [`delegation_chain`]) one job runs at a time, and in all a limited number.
//! - The holder that has used the least of its share comes first.
//! - A running job is paused, with its compiler process, while other holders come first.
//! - A job's processor time is paid from the shares of the holder's chain before the holder's next job begins. The
//!   processor time of requests outside of the queue is paid from the holder's own share alone.
//!
//! All compilation of one request shares one [budget](REQUEST_BUDGET). A ledger query is read in many short jobs, each
//! within the queue. The operator never waits.

mod queue;

use crate::control::authority::{SessionOwner, delegation_chain};
use crate::sessions::error::CompileQueueFull;
use queue::{CompilePayer, CompileQueue, JobState};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_os::{BudgetOrder, CpuBudget, ProcessorBudget};
use weir_trust::credential::VerifiedCredential;
use weir_units::Nanos;

/// The maximum processor time for all compilation of one request of a holder.
pub(crate) const REQUEST_BUDGET: Nanos = Nanos(10 * Nanos::SECOND.0);
/// The number of jobs that run concurrently, even on a machine with few processors.
const RUNNING_MIN: usize = 2;
/// The maximum number of paused jobs. A paused job keeps the memory of its compiler process.
const PAUSED_MAX: usize = 4;
/// The longest time that a holder may need to pay off its debt. With a larger debt, its job is refused at once.
const DEBT_TIME_MAX: Duration = Duration::from_secs(20);
/// The maximum time for which a job waits to start.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// The time after which a started job is stopped. It is less than the minute for which a client waits.
const JOB_TIME_MAX: Duration = Duration::from_secs(50);

/// Returns the compilation budget of one request: [`REQUEST_BUDGET`] for a holder. The operator's budget is unlimited, as
/// a configuration is one request and can have any number of modules.
pub(crate) fn budget_for(owner: Option<&SessionOwner>) -> RequestBudget {
    let cpu = CpuBudget::new(owner.map_or(Nanos(u64::MAX), |_| REQUEST_BUDGET));
    RequestBudget { cpu, skips_queue: false }
}

/// Returns the compilation budget for a part of a session that the node restores at its start. The jobs do not enter the
/// queue, as one thread restores all sessions. The caller charges the holder afterwards
/// ([`FairCompileQueue::charge_outside`]).
pub(crate) fn budget_for_restore(owner: Option<&SessionOwner>) -> RequestBudget {
    RequestBudget { skips_queue: true, ..budget_for(owner) }
}

/// The compilation budget of one request.
#[derive(Debug)]
pub(crate) struct RequestBudget {
    pub(crate) cpu: CpuBudget,
    /// True if the request's jobs run without waiting in the queue.
    skips_queue: bool,
}

impl RequestBudget {
    /// Returns the used processor time.
    pub(crate) fn used(&self) -> Nanos {
        self.cpu.used()
    }

    /// Returns the processor time that the requesting thread itself has used.
    pub(crate) fn used_in_caller(&self) -> Nanos {
        self.cpu.used_in_caller()
    }
}

/// The fair compile queue. Threads wait in it until their job may run.
#[derive(Debug)]
pub(crate) struct FairCompileQueue {
    queue: Mutex<CompileQueue>,
    changed: Condvar,
    started: Instant,
}

impl Default for FairCompileQueue {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self::new((processors / 2).max(RUNNING_MIN))
    }
}

impl FairCompileQueue {
    fn new(running_max: usize) -> Self {
        let queue = Mutex::new(CompileQueue::new(running_max, running_max + PAUSED_MAX));
        Self { queue, changed: Condvar::new(), started: Instant::now() }
    }

    fn now(&self) -> Nanos {
        Nanos::from(self.started.elapsed())
    }

    /// Waits until a job of a session's owner may run; `None` stands for the operator, who does not wait. The job's
    /// processor time is taken from `budget`.
    pub(crate) fn acquire<'a>(
        &'a self,
        owner: Option<&SessionOwner>,
        budget: &'a mut RequestBudget,
    ) -> Result<CompilePermit<'a>, CompileQueueFull> {
        let holder = owner.filter(|_| !budget.skips_queue).map(|owner| &*owner.credential);
        self.acquire_for(holder, &mut budget.cpu)
    }

    /// Waits until a job of a holder may run, as [`Self::acquire`] does.
    pub(crate) fn acquire_for<'a>(
        &'a self,
        holder: Option<&VerifiedCredential>,
        budget: &'a mut CpuBudget,
    ) -> Result<CompilePermit<'a>, CompileQueueFull> {
        let Some(holder) = holder else { return Ok(CompilePermit::new(None, (0, Instant::now()), budget)) };
        let chain: Vec<CompilePayer> = delegation_chain(holder).collect();
        Ok(CompilePermit::new(Some(self), self.wait(&chain)?, budget))
    }

    /// Waits until a new job may run. Returns its number, and the time at which it entered the queue.
    fn wait(&self, chain: &[CompilePayer]) -> Result<(u64, Instant), CompileQueueFull> {
        let entered = Instant::now();
        let mut queue = self.lock();
        let number = queue.enter(chain);
        loop {
            let now = self.now();
            let state = queue.poll(number, now);
            let debt = Duration::from_nanos(queue.debt(number, now).0);
            let remaining = WAIT_MAX.saturating_sub(entered.elapsed());
            let why = match state {
                // Other jobs are woken, since they may have to pause for this one.
                JobState::Running => {
                    self.changed.notify_all();
                    return Ok((number, entered));
                }
                _ if debt > DEBT_TIME_MAX => CompileQueueFull::Debt(debt),
                _ if remaining.is_zero() => CompileQueueFull::Others(WAIT_MAX),
                _ => {
                    let timeout = if debt.is_zero() { remaining } else { remaining.min(debt) };
                    let waited = self.changed.wait_timeout(queue, timeout);
                    queue = waited.unwrap_or_else(PoisonError::into_inner).0;
                    continue;
                }
            };
            queue.leave(number);
            self.changed.notify_all();
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

    /// Charges a holder for processor time outside of the queue. The next jobs of the holder and of its descendants wait
    /// until that time is paid. The jobs of ancestors and siblings do not wait for it.
    pub(crate) fn charge_outside(&self, holder: &VerifiedCredential, used: Nanos) {
        let chain: Vec<CompilePayer> = delegation_chain(holder).collect();
        self.lock().charge_outside(&chain, used, self.now());
    }
}

/// The permission for one job to run. The job leaves the queue when the permission is dropped.
#[derive(Debug)]
pub(crate) struct CompilePermit<'a> {
    /// `None` for the operator, whose jobs do not enter the queue.
    queue: Option<&'a FairCompileQueue>,
    number: u64,
    entered: Instant,
    budget: &'a mut CpuBudget,
    /// The part of the budget that was used before the job.
    used_before: Nanos,
    /// The processor time of the running compiler process that has been charged already.
    charged: Nanos,
    /// True while the job is paused.
    is_paused: bool,
}

impl<'a> CompilePermit<'a> {
    fn new(
        queue: Option<&'a FairCompileQueue>,
        (number, entered): (u64, Instant),
        budget: &'a mut CpuBudget,
    ) -> Self {
        let used_before = budget.used();
        Self { queue, number, entered, budget, used_before, charged: Nanos(0), is_paused: false }
    }

    /// Returns the processor time that the job has used so far.
    pub(crate) fn used(&self) -> Nanos {
        Nanos(self.budget.used().0.saturating_sub(self.used_before.0))
    }

    fn charge(&self, used: Nanos) {
        if let Some(queue) = self.queue {
            queue.charge(self.number, used);
        }
    }
}

impl ProcessorBudget for CompilePermit<'_> {
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

    fn spend_in_caller(&mut self, used: Nanos) {
        self.budget.spend_in_caller(used);
        self.charge(used);
    }

    fn order(&mut self, so_far: Nanos) -> BudgetOrder {
        let Some(queue) = self.queue else { return BudgetOrder::Continue };
        self.charge(Nanos(so_far.0.saturating_sub(self.charged.0)));
        self.charged = self.charged.max(so_far);
        if self.entered.elapsed() > JOB_TIME_MAX {
            return BudgetOrder::Abort;
        }
        let state = queue.lock().poll(self.number, queue.now());
        let is_paused = state != JobState::Running;
        if is_paused && !std::mem::replace(&mut self.is_paused, is_paused) {
            // Other jobs are woken, since another one can run while this one is paused.
            queue.changed.notify_all();
        }
        self.is_paused = is_paused;
        match state {
            JobState::Running => BudgetOrder::Continue,
            JobState::Paused | JobState::Waiting => BudgetOrder::Pause,
            JobState::Evicted => BudgetOrder::Abort,
        }
    }
}

impl Drop for CompilePermit<'_> {
    fn drop(&mut self) {
        if let Some(queue) = self.queue {
            queue.lock().leave(self.number);
            queue.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::chain_clocks::tests::chain;
    use weir_trust::grant::CpuShare;

    fn payers(word: &str, percent: u64) -> Vec<CompilePayer> {
        chain(word).into_iter().map(|id| (id, Some(CpuShare(percent * 10_000)))).collect()
    }

    fn start_job<'a>(
        queue: &'a FairCompileQueue,
        chain: &[CompilePayer],
        budget: &'a mut CpuBudget,
    ) -> Result<CompilePermit<'a>, CompileQueueFull> {
        Ok(CompilePermit::new(Some(queue), queue.wait(chain)?, budget))
    }

    #[test]
    fn a_holder_with_a_large_debt_is_refused_at_once_and_the_operator_never_waits() {
        let queue = FairCompileQueue::new(1);
        let mut budgets =
            [CpuBudget::new(REQUEST_BUDGET), CpuBudget::new(REQUEST_BUDGET), CpuBudget::new(REQUEST_BUDGET)];
        let [one, two, operators] = &mut budgets;
        let mut first = start_job(&queue, &payers("a", 5), one).unwrap();
        first.spend_in_caller(Nanos(2 * Nanos::SECOND.0));
        assert_eq!(first.used(), Nanos(2 * Nanos::SECOND.0));
        drop(queue.acquire_for(None, operators).unwrap());
        drop(first);
        let refused = start_job(&queue, &payers("ab", 5), two).unwrap_err();
        assert!(matches!(refused, CompileQueueFull::Debt(left) if left > DEBT_TIME_MAX), "{refused}");
        assert!(queue.lock().is_empty());
        // Another party does not wait for this debt.
        drop(start_job(&queue, &payers("c", 5), two).unwrap());
        assert_eq!(budgets.map(|budget| budget.used()), [Nanos(2 * Nanos::SECOND.0), Nanos(0), Nanos(0)]);
    }

    #[test]
    fn a_job_pauses_for_a_holder_that_has_used_less_and_resumes_afterwards() {
        let queue = FairCompileQueue::new(1);
        let mut budgets = [CpuBudget::new(REQUEST_BUDGET), CpuBudget::new(REQUEST_BUDGET)];
        let [one, two] = &mut budgets;
        let mut first = start_job(&queue, &payers("a", 1), one).unwrap();
        assert_eq!(first.order(Nanos(Nanos::MILLISECOND.0)), BudgetOrder::Continue);
        let mut second = start_job(&queue, &payers("b", 1), two).unwrap();
        assert_eq!(
            (first.order(Nanos::SECOND), second.order(Nanos(0))),
            (BudgetOrder::Pause, BudgetOrder::Continue)
        );
        second.spend(Nanos::MILLISECOND);
        drop(second);
        assert_eq!(first.order(Nanos::SECOND), BudgetOrder::Continue);
        // The compiler process's time is charged once.
        first.spend(Nanos(Nanos::SECOND.0 + 1));
        let (number, now) = (first.number, queue.now());
        let debt = queue.lock().debt(number, now).0;
        assert!((99 * Nanos::SECOND.0..101 * Nanos::SECOND.0).contains(&debt), "{debt}");
        assert_eq!(first.used(), Nanos(Nanos::SECOND.0 + 1));
    }

    #[test]
    fn of_many_threads_each_runs_its_job_and_never_two_under_the_same_grant() {
        let queue = FairCompileQueue::new(2);
        let working = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for number in 0..12u8 {
                let (queue, working) = (&queue, &working);
                scope.spawn(move || {
                    let grant = char::from(b'a' + number % 3);
                    let mut budget = CpuBudget::new(REQUEST_BUDGET);
                    let word = format!("{grant}{}", char::from(b'd' + number));
                    let job = start_job(queue, &payers(&word, 100), &mut budget).unwrap();
                    let lock = || working.lock().unwrap_or_else(PoisonError::into_inner);
                    {
                        let mut grants = lock();
                        assert!(!grants.contains(&grant), "{grants:?} and {grant}");
                        grants.push(grant);
                    }
                    std::thread::yield_now();
                    lock().retain(|other| *other != grant);
                    drop(job);
                });
            }
        });
        assert!(queue.lock().is_empty());
    }
}
