//! The state of the compile queue: a fair queue over processor time, whose jobs can be paused.
//!
//! The jobs run whose holders' [clocks](crate::server::chain_clocks) have the smallest leads: at most one for each
//! party, which the first identifier of a chain names, and a limited number in all. The others wait, or are paused if
//! they have started. While a job runs, its clocks advance by the processor time that it uses, divided by its
//! holder's share of a core. So a job with a small share runs at full speed while it is alone, and pauses as soon as
//! a holder enters that has used less of its share.
//!
//! Processor time of requests outside of jobs advances separate clocks, and only those of the holder's own credential. So
//! the holder and its descendants wait until this time is paid, and neither its ancestors nor its siblings do. A holder
//! can escape this debt by delegating to many keys, but other limits remain: the rate limiter limits all requests of one
//! party to a twentieth of a core, and jobs are paid from every share of the chain.
//!
//! Started jobs keep their memory, so their number is limited. If one more job is to start at this limit, the paused job
//! with the largest lead is evicted.

use crate::server::chain_clocks::VirtualClocks;
use weir_trust::credential::DelegationId;
use weir_trust::grant::CpuShare;
use weir_units::Nanos;

/// A delegation of a chain, and the CPU share that its grant states, if any.
pub(super) type CompilePayer = (DelegationId, Option<CpuShare>);

/// The share of one whole core, which counts for delegations that state no share.
const CORE: CpuShare = CpuShare(1_000_000);

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobState {
    /// The job may run.
    Running,
    /// The job has started, and has to pause.
    Paused,
    /// The job has not started.
    Waiting,
    /// The job has started, and has to end, so that another job can start.
    Evicted,
}

/// A job of a holder.
#[derive(Clone, Debug)]
struct Job {
    number: u64,
    /// The delegation chain of the holder.
    chain: Vec<DelegationId>,
    /// The CPU share of each delegation in `chain`.
    shares: Vec<CpuShare>,
    has_started: bool,
    is_evicted: bool,
}

/// The jobs and clocks of the queue. The queue reads no clock of the system: `now` is the time since any fixed moment, and
/// never decreases.
#[derive(Debug)]
pub(super) struct CompileQueue {
    /// Clocks that jobs advance, for all delegations of their chains.
    clocks: VirtualClocks,
    /// Clocks that requests outside of jobs advance, only for the last delegations of their chains.
    outside_clocks: VirtualClocks,
    jobs: Vec<Job>,
    last_number: u64,
    /// The maximum number of running jobs.
    running_max: usize,
    /// The maximum number of started jobs, running or paused.
    started_max: usize,
}

impl CompileQueue {
    /// Creates an empty queue in which at most `running_max` jobs run, and at most `started_max` have started.
    pub(super) fn new(running_max: usize, started_max: usize) -> Self {
        Self {
            clocks: VirtualClocks::default(),
            outside_clocks: VirtualClocks::default(),
            jobs: Vec::new(),
            last_number: 0,
            running_max,
            started_max: started_max.max(running_max),
        }
    }

    /// Adds a job. Returns its number.
    pub(super) fn enter(&mut self, chain: &[CompilePayer]) -> u64 {
        self.last_number += 1;
        let (chain, shares) = chain.iter().map(|(id, share)| (*id, share.unwrap_or(CORE))).unzip();
        self.jobs.push(Job {
            number: self.last_number,
            chain,
            shares,
            has_started: false,
            is_evicted: false,
        });
        self.last_number
    }

    /// Removes a job that is done or stopped.
    pub(super) fn leave(&mut self, number: u64) {
        self.jobs.retain(|job| job.number != number);
    }

    /// Charges a job's chain for processor time that the job has used.
    pub(super) fn charge(&mut self, number: u64, used: Nanos, now: Nanos) {
        if let Some(job) = self.jobs.iter().find(|job| job.number == number) {
            let costs =
                job.chain.iter().zip(&job.shares).map(|(id, share)| (*id, time_to_yield(used, *share)));
            self.clocks.charge(costs, now);
        }
    }

    /// Charges a holder for processor time outside of jobs. The smallest share in the chain counts, because a delegation
    /// without a share of its own has no more than its ancestors.
    pub(super) fn charge_outside(&mut self, chain: &[CompilePayer], used: Nanos, now: Nanos) {
        if let Some(((id, _), ancestors)) = chain.split_last() {
            let share = chain.iter().filter_map(|(_, share)| *share).min().unwrap_or(CORE);
            self.outside_clocks.charge_last(ancestors.len(), *id, time_to_yield(used, share), now);
        }
    }

    /// Returns the time until a job's holder has paid for earlier work.
    pub(super) fn debt(&self, number: u64, now: Nanos) -> Nanos {
        let job = self.jobs.iter().find(|job| job.number == number);
        job.map_or(Nanos(0), |job| self.debt_of(&job.chain, now))
    }

    fn debt_of(&self, chain: &[DelegationId], now: Nanos) -> Nanos {
        self.clocks.lead(chain, now).max(self.outside_clocks.lead(chain, now))
    }

    /// Returns the state of a job, and starts the job if it may run. A removed job counts as evicted.
    pub(super) fn poll(&mut self, number: u64, now: Nanos) -> JobState {
        let should_run = self.select_running(now).contains(&number);
        let Some(index) = self.jobs.iter().position(|job| job.number == number) else {
            return JobState::Evicted;
        };
        let Some(job) = self.jobs.get(index) else { return JobState::Evicted };
        if job.is_evicted {
            return JobState::Evicted;
        }
        if !should_run {
            return if job.has_started { JobState::Paused } else { JobState::Waiting };
        }
        if !job.has_started && !self.evict_to_start(now) {
            return JobState::Waiting;
        }
        if let Some(job) = self.jobs.get_mut(index) {
            job.has_started = true;
        }
        JobState::Running
    }

    /// Returns the numbers of the jobs that should run now.
    fn select_running(&self, now: Nanos) -> Vec<u64> {
        let (mut selected, mut parties) = (Vec::new(), Vec::new());
        while selected.len() < self.running_max {
            let can_run = |job: &&Job| {
                !job.is_evicted
                    && !parties.contains(&job.chain.first())
                    && (job.has_started || self.debt_of(&job.chain, now) == Nanos(0))
            };
            let candidates = self.jobs.iter().filter(can_run).map(|job| (job.number, job.chain.as_slice()));
            let Some(number) = self.clocks.select(candidates) else { break };
            let job = self.jobs.iter().find(|job| job.number == number);
            parties.extend(job.map(|job| job.chain.first()));
            selected.push(number);
        }
        selected
    }

    /// Evicts a paused job if the number of started jobs is at its limit. Returns false while the evicted job has not left
    /// the queue.
    fn evict_to_start(&mut self, now: Nanos) -> bool {
        let started = self.jobs.iter().filter(|job| job.has_started).count();
        if started < self.started_max {
            return true;
        }
        // No second job is evicted: the first one leaves the queue soon.
        if !self.jobs.iter().any(|job| job.is_evicted) {
            let selected = self.select_running(now);
            let paused = self.jobs.iter().filter(|job| job.has_started && !selected.contains(&job.number));
            let to_evict = paused.max_by_key(|job| (self.clocks.lead(&job.chain, now), job.number));
            let to_evict = to_evict.map(|job| job.number);
            if let Some(job) = self.jobs.iter_mut().find(|job| Some(job.number) == to_evict) {
                job.is_evicted = true;
            }
        }
        false
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }
}

/// Returns the time in which a CPU share yields this much processor time.
fn time_to_yield(used: Nanos, share: CpuShare) -> Nanos {
    let nanos = u128::from(used.0) * u128::from(CORE.0) / u128::from(share.0.max(1));
    // A value beyond the maximum, of centuries, has the same effect as the maximum.
    Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::chain_clocks::CLOCKS_MAX;
    use crate::server::chain_clocks::tests::{chain, numbered};
    use std::collections::BTreeMap;

    /// A step of simulated time: the interval at which a running compiler checks its permit.
    const STEP: u64 = 20 * Nanos::MILLISECOND.0;
    const SECOND: u64 = Nanos::SECOND.0;

    fn payers(word: &str, percent: u64) -> Vec<CompilePayer> {
        chain(word).into_iter().map(|id| (id, Some(CpuShare(percent * 10_000)))).collect()
    }

    /// A job of the simulation.
    struct SimulatedJob {
        name: &'static str,
        number: u64,
        left: u64,
        used: u64,
        entered: u64,
        done: Option<u64>,
        was_evicted: bool,
    }

    /// A queue, and one processor for each running job.
    struct Simulation {
        queue: CompileQueue,
        now: u64,
        jobs: Vec<SimulatedJob>,
    }

    impl Simulation {
        fn new(running: usize, started: usize) -> Self {
            Self { queue: CompileQueue::new(running, started), now: 0, jobs: Vec::new() }
        }

        fn add_job(&mut self, name: &'static str, chain: &[CompilePayer], left: u64) {
            let number = self.queue.enter(chain);
            let entered = self.now;
            self.jobs.push(SimulatedJob {
                name,
                number,
                left,
                used: 0,
                entered,
                done: None,
                was_evicted: false,
            });
        }

        /// Runs the simulation until a time, and checks the limits in each step.
        fn run(&mut self, until: u64) {
            while self.now < until {
                let mut running = 0;
                let mut states = Vec::new();
                for job in self.jobs.iter().filter(|job| job.done.is_none() && !job.was_evicted) {
                    states.push((job.number, self.queue.poll(job.number, Nanos(self.now))));
                }
                for (number, state) in states {
                    let Some(job) = self.jobs.iter_mut().find(|job| job.number == number) else { continue };
                    match state {
                        JobState::Running => {
                            running += 1;
                            let used = job.left.min(STEP);
                            job.left -= used;
                            job.used += used;
                            self.queue.charge(number, Nanos(used), Nanos(self.now));
                        }
                        JobState::Evicted => {
                            job.was_evicted = true;
                            self.queue.leave(number);
                        }
                        JobState::Paused | JobState::Waiting => {}
                    }
                }
                self.now += STEP;
                assert!(running <= self.queue.running_max, "{running} jobs ran at once");
                assert!(
                    self.queue.jobs.iter().filter(|job| job.has_started).count() <= self.queue.started_max
                );
                for job in self.jobs.iter_mut().filter(|job| job.done.is_none() && job.left == 0) {
                    job.done = Some(self.now);
                    self.queue.leave(job.number);
                }
            }
        }

        fn job(&self, name: &str) -> &SimulatedJob {
            self.jobs.iter().find(|job| job.name == name).unwrap()
        }

        fn waited(&self, name: &str) -> u64 {
            let job = self.job(name);
            job.done.unwrap_or_else(|| panic!("{name} is not done")) - job.entered
        }
    }

    #[test]
    fn two_holders_with_one_percent_and_long_jobs_do_not_delay_a_third() {
        let mut simulation = Simulation::new(2, 6);
        simulation.add_job("first", &payers("a", 1), 10 * SECOND);
        simulation.add_job("second", &payers("b", 1), 10 * SECOND);
        simulation.run(2 * SECOND);
        simulation.add_job("third", &payers("c", 10), SECOND);
        simulation.run(20 * SECOND);
        assert!(simulation.waited("third") <= SECOND + 2 * STEP, "{} ns", simulation.waited("third"));
        // One of them paused meanwhile, and both used all of the remaining time.
        assert!(simulation.waited("first") + simulation.waited("second") <= 21 * SECOND + 4 * STEP);
    }

    #[test]
    fn with_one_processor_a_new_holder_comes_first_and_the_paused_job_resumes() {
        let mut simulation = Simulation::new(1, 3);
        simulation.add_job("first", &payers("a", 1), 3 * SECOND);
        simulation.run(SECOND);
        simulation.add_job("second", &payers("b", 2), SECOND);
        simulation.run(8 * SECOND);
        assert!(simulation.waited("second") <= SECOND + 2 * STEP);
        assert!(simulation.waited("first") <= 4 * SECOND + 2 * STEP);
        assert_eq!(simulation.job("first").used, 3 * SECOND);
    }

    #[test]
    fn concurrent_jobs_get_processor_time_in_proportion_to_their_shares() {
        let mut simulation = Simulation::new(1, 3);
        simulation.add_job("one", &payers("a", 1), 100 * SECOND);
        simulation.add_job("ten", &payers("b", 10), 100 * SECOND);
        simulation.run(11 * SECOND);
        let used = ["one", "ten"].map(|name| simulation.job(name).used);
        assert!(
            used[0].abs_diff(SECOND) <= 2 * STEP && used[1].abs_diff(10 * SECOND) <= 2 * STEP,
            "{used:?}"
        );
    }

    #[test]
    fn the_job_with_the_largest_lead_is_evicted_for_a_new_holder() {
        let mut simulation = Simulation::new(2, 4);
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
        for name in names {
            simulation.add_job(name, &payers(name, 1), 10 * SECOND);
        }
        simulation.run(4 * SECOND);
        simulation.add_job("p", &payers("p", 5), SECOND);
        simulation.run(10 * SECOND);
        assert!(simulation.waited("p") <= SECOND + 4 * STEP, "{} ns", simulation.waited("p"));
        assert!(simulation.jobs.iter().any(|job| job.was_evicted), "four had started");
        let used: u64 = simulation.jobs.iter().map(|job| job.used).sum();
        assert!(used >= 19 * SECOND, "two processors were not used: {used}");
    }

    #[test]
    fn one_party_runs_one_job_at_a_time_and_a_delegator_comes_before_its_delegates() {
        let mut simulation = Simulation::new(2, 6);
        simulation.add_job("delegate", &payers("ab", 50), 5 * SECOND);
        simulation.add_job("other delegate", &payers("ac", 50), 5 * SECOND);
        simulation.run(SECOND);
        let used = |simulation: &Simulation| {
            ["delegate", "other delegate"].map(|name| simulation.job(name).used).iter().sum::<u64>()
        };
        assert!(used(&simulation) <= SECOND + STEP, "they are one party");
        simulation.add_job("delegator", &payers("a", 50), SECOND);
        simulation.run(3 * SECOND);
        assert!(simulation.waited("delegator") <= SECOND + 2 * STEP);
        // The delegator waits for its own earlier use, and not for that of its delegates.
        assert!(used(&simulation) <= 2 * SECOND + 3 * STEP);
    }

    #[test]
    fn processor_time_is_paid_from_every_share_in_the_chain_before_the_next_job_begins() {
        let mut queue = CompileQueue::new(1, 3);
        let links: Vec<CompilePayer> = chain("ab")
            .into_iter()
            .zip([50, 5])
            .map(|(id, percent)| (id, Some(CpuShare(percent * 10_000))))
            .collect();
        let number = queue.enter(&links);
        assert_eq!(queue.poll(number, Nanos(0)), JobState::Running);
        queue.charge(number, Nanos::SECOND, Nanos(0));
        // The started job goes on; the next job of the same holder waits until its debt is paid.
        assert_eq!(queue.poll(number, Nanos(0)), JobState::Running);
        queue.leave(number);
        let again = queue.enter(&links);
        assert_eq!(queue.debt(again, Nanos(0)), Nanos(20 * SECOND));
        assert_eq!(queue.poll(again, Nanos(19 * SECOND)), JobState::Waiting);
        assert_eq!(queue.poll(again, Nanos(20 * SECOND)), JobState::Running);
        queue.leave(again);
        // A sibling waits until it is paid from the parent's share; the parent does not wait.
        let (sibling, parent) = (queue.enter(&payers("ac", 50)), queue.enter(&payers("a", 50)));
        assert_eq!(queue.debt(sibling, Nanos(0)), Nanos(2 * SECOND));
        assert_eq!(queue.debt(parent, Nanos(0)), Nanos(0));
        assert_eq!(queue.poll(parent, Nanos(0)), JobState::Running);
    }

    #[test]
    fn holders_with_many_jobs_alternate_with_holders_of_few() {
        let mut queue = CompileQueue::new(1, 2);
        let mut order = Vec::new();
        let names: BTreeMap<u64, &str> = ["a", "a", "a", "b", "c"]
            .into_iter()
            .map(|name| (queue.enter(&payers(name, 100)), name))
            .collect();
        let mut now = 0;
        while !queue.is_empty() {
            let next =
                *names.keys().find(|number| queue.poll(**number, Nanos(now)) == JobState::Running).unwrap();
            queue.charge(next, Nanos(SECOND), Nanos(now));
            queue.leave(next);
            order.push(names[&next]);
            now += SECOND;
        }
        assert_eq!(order, ["a", "b", "c", "a", "a"]);
    }

    /// Charges for requests outside of jobs that use the rate limiter's whole processor time, a twentieth of a core.
    /// Returns the time at which they end.
    fn flood(queue: &mut CompileQueue, chains: impl Iterator<Item = Vec<CompilePayer>>, begin: u64) -> u64 {
        chains.fold(begin, |now, chain| {
            queue.charge_outside(&chain, Nanos(Nanos::MILLISECOND.0), Nanos(now));
            now + STEP
        })
    }

    #[test]
    fn requests_of_a_delegate_delay_its_own_jobs_and_none_of_its_siblings_or_delegator() {
        let mut simulation = Simulation::new(2, 6);
        // A minute of requests takes 3 s of a core, of which the grant gives 1 %.
        let queue = &mut simulation.queue;
        simulation.now = flood(queue, std::iter::repeat_n(payers("ab", 1), 3000), 0);
        for (name, word) in [("sibling", "ac"), ("its delegate", "acd"), ("delegator", "a")] {
            simulation.add_job(name, &payers(word, 1), 5 * STEP);
        }
        let end = simulation.now + 30 * SECOND;
        simulation.run(end);
        // The delegator's job runs at once. The others wait for the jobs before them, as without the flood.
        let waited = ["delegator", "sibling", "its delegate"].map(|name| simulation.waited(name));
        assert_eq!(waited[0], 5 * STEP);
        assert!(waited[1] <= 10 * SECOND + 10 * STEP && waited[2] <= 20 * SECOND + 15 * STEP, "{waited:?}");
        let (queue, now) = (&mut simulation.queue, Nanos(simulation.now));
        let mut debt = |word: &str| {
            let number = queue.enter(&payers(word, 1));
            let debt = queue.debt(number, now);
            queue.leave(number);
            debt.0
        };
        // The delegate waits for all of it, and so do its own delegates.
        for word in ["ab", "abd", "abde"] {
            assert!(debt(word) > 200 * SECOND, "{word}: {}", debt(word));
        }
    }

    #[test]
    fn a_holder_without_a_share_pays_by_the_smallest_share_of_its_ancestors() {
        let mut queue = CompileQueue::new(2, 6);
        let mut links = payers("abc", 1);
        links.iter_mut().skip(1).for_each(|(_, share)| *share = None);
        queue.charge_outside(&links, Nanos::SECOND, Nanos(0));
        let number = queue.enter(&links);
        assert_eq!(queue.debt(number, Nanos(0)), Nanos(100 * SECOND));
        // No ancestor states a share.
        let free: Vec<CompilePayer> = chain("de").into_iter().map(|id| (id, None)).collect();
        queue.charge_outside(&free, Nanos::SECOND, Nanos(0));
        let number = queue.enter(&free);
        assert_eq!(queue.debt(number, Nanos(0)), Nanos::SECOND);
    }

    #[test]
    fn requests_of_many_new_delegates_delay_no_sibling_and_erase_no_debt() {
        let mut queue = CompileQueue::new(2, 6);
        let number = queue.enter(&payers("ab", 1));
        assert_eq!(queue.poll(number, Nanos(0)), JobState::Running);
        queue.charge(number, Nanos(20 * SECOND), Nanos(0));
        queue.leave(number);
        let number = queue.enter(&payers("c", 1));
        queue.charge(number, Nanos(10 * SECOND), Nanos(0));
        queue.leave(number);
        // Each delegate sends one request, and states the smallest share, so that its own clock has the largest lead.
        let fresh = (0..2 * CLOCKS_MAX).map(|number| {
            let own = (numbered(number), Some(CpuShare(1)));
            payers("ab", 1).into_iter().chain([own]).collect()
        });
        let now = flood(&mut queue, fresh, 0);
        // Only the debt of the compilation remains.
        for (word, debt) in [("ab", 2000), ("abd", 2000), ("ac", 2000), ("c", 1000), ("a", 0), ("d", 0)] {
            let number = queue.enter(&payers(word, 1));
            assert_eq!(queue.debt(number, Nanos(now)).0, (debt * SECOND).saturating_sub(now), "{word}");
            queue.leave(number);
        }
    }
}
