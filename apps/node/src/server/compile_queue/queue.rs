//! The compile queue: a fair queue over processor time, whose jobs can be interrupted.
//!
//! At any time the jobs run whose holders' [clocks](crate::server::fair) are least ahead: one for each first grant of the operator's, and so many in all. The others wait, or rest where
//! they had begun. A clock moves by the processor time that a job uses, divided by its holder's share of a core, while the job runs. So a job with a small share runs alone as
//! fast as any other, and rests as soon as a holder comes who has used less of their share.
//!
//! Processor time outside of jobs, for requests that are refused or answered, moves clocks of its own, and those of the asker's link alone. So the asker and its descendants wait until it is
//! paid before their next job begins, and neither its ancestors nor its siblings do. A holder who delegates to many keys and asks with each escapes that, and is bounded elsewhere:
//! all requests under one first grant take a twentieth of a core at most, and all jobs are paid from every share of the chain.
//!
//! Jobs that have begun keep their memory, so there is a limit to them. Where it is reached, the begun job that is furthest ahead gives way to one that is to run.

use crate::server::fair::Clocks;
use weir_trust::credential::PrefixId;
use weir_trust::grant::CpuShare;
use weir_units::Nanos;

/// A link of a chain, and the share of a core that it gives, if it states one.
pub(super) type CompilePayer = (PrefixId, Option<CpuShare>);

/// A share of one core, for links that state none.
const CORE: CpuShare = CpuShare(1_000_000);

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobState {
    /// It may run.
    Runs,
    /// It has begun, and is to rest.
    Rests,
    /// It has not begun.
    Waits,
    /// It has begun, and is to be given up.
    GivesWay,
}

#[derive(Clone, Debug)]
struct Job {
    number: u64,
    chain: Vec<PrefixId>,
    shares: Vec<CpuShare>,
    has_begun: bool,
    gives_way: bool,
}

/// The queue. It has no clock: `now` is the time since some moment, and never decreases.
#[derive(Debug)]
pub(super) struct CompileQueue {
    /// Moved by jobs, for all links of a chain.
    clocks: Clocks,
    /// Moved by processor time outside of jobs, for the last link of a chain alone.
    outside: Clocks,
    jobs: Vec<Job>,
    next: u64,
    /// Jobs that run at a time,
    running: usize,
    /// and jobs that have begun at a time.
    begun: usize,
}

impl CompileQueue {
    /// A queue of which `running` jobs run at a time, and `begun` have begun.
    pub(super) fn new(running: usize, begun: usize) -> Self {
        Self {
            clocks: Clocks::default(),
            outside: Clocks::default(),
            jobs: Vec::new(),
            next: 0,
            running,
            begun: begun.max(running),
        }
    }

    /// A job comes. Its number.
    pub(super) fn enter(&mut self, chain: &[CompilePayer]) -> u64 {
        self.next += 1;
        let (chain, shares) = chain.iter().map(|(id, share)| (*id, share.unwrap_or(CORE))).unzip();
        self.jobs.push(Job { number: self.next, chain, shares, has_begun: false, gives_way: false });
        self.next
    }

    /// A job is done, or given up.
    pub(super) fn leave(&mut self, number: u64) {
        self.jobs.retain(|job| job.number != number);
    }

    /// A job has used processor time.
    pub(super) fn charge(&mut self, number: u64, used: Nanos, now: Nanos) {
        if let Some(job) = self.jobs.iter().find(|job| job.number == number) {
            let costs = job.chain.iter().zip(&job.shares).map(|(id, share)| (*id, time_of(used, *share)));
            self.clocks.charge(costs, now);
        }
    }

    /// Charges a holder for processor time outside of jobs: by the least share that a link of their chain states, as a link that states none has no more than those above it.
    pub(super) fn charge_outside(&mut self, chain: &[CompilePayer], used: Nanos, now: Nanos) {
        if let Some(((id, _), ancestors)) = chain.split_last() {
            let share = chain.iter().filter_map(|(_, share)| *share).min().unwrap_or(CORE);
            self.outside.charge_last(ancestors.len(), *id, time_of(used, share), now);
        }
    }

    /// The time until the holder of a job has paid for what was compiled before.
    pub(super) fn unpaid(&self, number: u64, now: Nanos) -> Nanos {
        let job = self.jobs.iter().find(|job| job.number == number);
        job.map_or(Nanos(0), |job| self.unpaid_by(&job.chain, now))
    }

    fn unpaid_by(&self, chain: &[PrefixId], now: Nanos) -> Nanos {
        self.clocks.ahead(chain, now).max(self.outside.ahead(chain, now))
    }

    /// The state of a job now. One that may run has begun from then on.
    pub(super) fn state(&mut self, number: u64, now: Nanos) -> JobState {
        let runs = self.chosen(now).contains(&number);
        let Some(place) = self.jobs.iter().position(|job| job.number == number) else {
            return JobState::GivesWay;
        };
        let Some(job) = self.jobs.get(place) else { return JobState::GivesWay };
        if job.gives_way {
            return JobState::GivesWay;
        }
        if !runs {
            return if job.has_begun { JobState::Rests } else { JobState::Waits };
        }
        if !job.has_begun && !self.make_room(now) {
            return JobState::Waits;
        }
        if let Some(job) = self.jobs.get_mut(place) {
            job.has_begun = true;
        }
        JobState::Runs
    }

    /// The jobs that are to run.
    fn chosen(&self, now: Nanos) -> Vec<u64> {
        let (mut chosen, mut parties) = (Vec::new(), Vec::new());
        while chosen.len() < self.running {
            let can_run = |job: &&Job| {
                !job.gives_way
                    && !parties.contains(&job.chain.first())
                    && (job.has_begun || self.unpaid_by(&job.chain, now) == Nanos(0))
            };
            let candidates = self.jobs.iter().filter(can_run).map(|job| (job.number, job.chain.as_slice()));
            let Some(number) = self.clocks.first(candidates) else { break };
            let job = self.jobs.iter().find(|job| job.number == number);
            parties.extend(job.map(|job| job.chain.first()));
            chosen.push(number);
        }
        chosen
    }

    /// Makes room for one more job that begins. False where the place is yet to be left.
    fn make_room(&mut self, now: Nanos) -> bool {
        let begun = self.jobs.iter().filter(|job| job.has_begun).count();
        if begun < self.begun {
            return true;
        }
        // One of those that give way already leaves in a moment.
        if !self.jobs.iter().any(|job| job.gives_way) {
            let chosen = self.chosen(now);
            let resting = self.jobs.iter().filter(|job| job.has_begun && !chosen.contains(&job.number));
            let furthest = resting.max_by_key(|job| (self.clocks.ahead(&job.chain, now), job.number));
            let furthest = furthest.map(|job| job.number);
            if let Some(job) = self.jobs.iter_mut().find(|job| Some(job.number) == furthest) {
                job.gives_way = true;
            }
        }
        false
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }
}

/// The time in which a share of a core comes to that much.
fn time_of(used: Nanos, share: CpuShare) -> Nanos {
    let nanos = u128::from(used.0) * u128::from(CORE.0) / u128::from(share.0.max(1));
    // Centuries are as good as for ever.
    Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::fair::CLOCKS_MAX;
    use crate::server::fair::tests::{chain, numbered};
    use std::collections::BTreeMap;

    /// A step of simulated time: the interval in which a compiler's meter is asked.
    const STEP: u64 = 20 * Nanos::MILLISECOND.0;
    const SECOND: u64 = Nanos::SECOND.0;

    fn payers(word: &str, percent: u64) -> Vec<CompilePayer> {
        chain(word).into_iter().map(|id| (id, Some(CpuShare(percent * 10_000)))).collect()
    }

    /// A job of simulated time.
    struct Simulated {
        name: &'static str,
        number: u64,
        left: u64,
        used: u64,
        came: u64,
        done: Option<u64>,
        gave_way: bool,
    }

    /// A queue, and as many processors as it has running jobs.
    struct Simulation {
        queue: CompileQueue,
        now: u64,
        jobs: Vec<Simulated>,
    }

    impl Simulation {
        fn new(running: usize, begun: usize) -> Self {
            Self { queue: CompileQueue::new(running, begun), now: 0, jobs: Vec::new() }
        }

        fn come(&mut self, name: &'static str, chain: &[CompilePayer], left: u64) {
            let number = self.queue.enter(chain);
            let came = self.now;
            self.jobs.push(Simulated { name, number, left, used: 0, came, done: None, gave_way: false });
        }

        /// Runs until then. No more jobs than allowed ran in any step.
        fn run(&mut self, until: u64) {
            while self.now < until {
                let mut running = 0;
                let mut states = Vec::new();
                for job in self.jobs.iter().filter(|job| job.done.is_none() && !job.gave_way) {
                    states.push((job.number, self.queue.state(job.number, Nanos(self.now))));
                }
                for (number, state) in states {
                    let Some(job) = self.jobs.iter_mut().find(|job| job.number == number) else { continue };
                    match state {
                        JobState::Runs => {
                            running += 1;
                            let used = job.left.min(STEP);
                            job.left -= used;
                            job.used += used;
                            self.queue.charge(number, Nanos(used), Nanos(self.now));
                        }
                        JobState::GivesWay => {
                            job.gave_way = true;
                            self.queue.leave(number);
                        }
                        JobState::Rests | JobState::Waits => {}
                    }
                }
                self.now += STEP;
                assert!(running <= self.queue.running, "{running} jobs ran at once");
                assert!(self.queue.jobs.iter().filter(|job| job.has_begun).count() <= self.queue.begun);
                for job in self.jobs.iter_mut().filter(|job| job.done.is_none() && job.left == 0) {
                    job.done = Some(self.now);
                    self.queue.leave(job.number);
                }
            }
        }

        fn job(&self, name: &str) -> &Simulated {
            self.jobs.iter().find(|job| job.name == name).unwrap()
        }

        fn waited(&self, name: &str) -> u64 {
            let job = self.job(name);
            job.done.unwrap_or_else(|| panic!("{name} is not done")) - job.came
        }
    }

    #[test]
    fn two_holders_with_one_percent_and_long_jobs_do_not_delay_a_third() {
        let mut simulation = Simulation::new(2, 6);
        simulation.come("first", &payers("a", 1), 10 * SECOND);
        simulation.come("second", &payers("b", 1), 10 * SECOND);
        simulation.run(2 * SECOND);
        simulation.come("third", &payers("c", 10), SECOND);
        simulation.run(20 * SECOND);
        assert!(simulation.waited("third") <= SECOND + 2 * STEP, "{} ns", simulation.waited("third"));
        // One of them rested meanwhile, and both had all that was left.
        assert!(simulation.waited("first") + simulation.waited("second") <= 21 * SECOND + 4 * STEP);
    }

    #[test]
    fn with_one_place_the_third_comes_first_and_the_others_go_on_where_they_were() {
        let mut simulation = Simulation::new(1, 3);
        simulation.come("first", &payers("a", 1), 3 * SECOND);
        simulation.run(SECOND);
        simulation.come("second", &payers("b", 2), SECOND);
        simulation.run(8 * SECOND);
        assert!(simulation.waited("second") <= SECOND + 2 * STEP);
        assert!(simulation.waited("first") <= 4 * SECOND + 2 * STEP);
        assert_eq!(simulation.job("first").used, 3 * SECOND);
    }

    #[test]
    fn jobs_that_come_together_get_processor_time_in_proportion_to_their_shares() {
        let mut simulation = Simulation::new(1, 3);
        simulation.come("one", &payers("a", 1), 100 * SECOND);
        simulation.come("ten", &payers("b", 10), 100 * SECOND);
        simulation.run(11 * SECOND);
        let used = ["one", "ten"].map(|name| simulation.job(name).used);
        assert!(
            used[0].abs_diff(SECOND) <= 2 * STEP && used[1].abs_diff(10 * SECOND) <= 2 * STEP,
            "{used:?}"
        );
    }

    #[test]
    fn many_with_little_leave_a_place_for_one_who_comes_and_the_furthest_ahead_gives_way() {
        let mut simulation = Simulation::new(2, 4);
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
        for name in names {
            simulation.come(name, &payers(name, 1), 10 * SECOND);
        }
        simulation.run(4 * SECOND);
        simulation.come("p", &payers("p", 5), SECOND);
        simulation.run(10 * SECOND);
        assert!(simulation.waited("p") <= SECOND + 4 * STEP, "{} ns", simulation.waited("p"));
        assert!(simulation.jobs.iter().any(|job| job.gave_way), "four had begun");
        let used: u64 = simulation.jobs.iter().map(|job| job.used).sum();
        assert!(used >= 19 * SECOND, "two processors were not used: {used}");
    }

    #[test]
    fn one_grant_has_one_place_at_a_time_and_a_delegator_is_before_its_delegates() {
        let mut simulation = Simulation::new(2, 6);
        simulation.come("delegate", &payers("ab", 50), 5 * SECOND);
        simulation.come("other delegate", &payers("ac", 50), 5 * SECOND);
        simulation.run(SECOND);
        let used = |simulation: &Simulation| {
            ["delegate", "other delegate"].map(|name| simulation.job(name).used).iter().sum::<u64>()
        };
        assert!(used(&simulation) <= SECOND + STEP, "they are one party");
        simulation.come("delegator", &payers("a", 50), SECOND);
        simulation.run(3 * SECOND);
        assert!(simulation.waited("delegator") <= SECOND + 2 * STEP);
        // What its delegates had compiled is not the delegator's to wait for; what it had itself is.
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
        assert_eq!(queue.state(number, Nanos(0)), JobState::Runs);
        queue.charge(number, Nanos::SECOND, Nanos(0));
        // It has begun, so it goes on; the next one of the same holder waits until it is paid.
        assert_eq!(queue.state(number, Nanos(0)), JobState::Runs);
        queue.leave(number);
        let again = queue.enter(&links);
        assert_eq!(queue.unpaid(again, Nanos(0)), Nanos(20 * SECOND));
        assert_eq!(queue.state(again, Nanos(19 * SECOND)), JobState::Waits);
        assert_eq!(queue.state(again, Nanos(20 * SECOND)), JobState::Runs);
        queue.leave(again);
        // A sibling waits for their parent's share, and the parent for none of it.
        let (sibling, parent) = (queue.enter(&payers("ac", 50)), queue.enter(&payers("a", 50)));
        assert_eq!(queue.unpaid(sibling, Nanos(0)), Nanos(2 * SECOND));
        assert_eq!(queue.unpaid(parent, Nanos(0)), Nanos(0));
        assert_eq!(queue.state(parent, Nanos(0)), JobState::Runs);
    }

    #[test]
    fn holders_that_ask_for_much_take_turns_with_those_that_ask_for_little() {
        let mut queue = CompileQueue::new(1, 2);
        let mut order = Vec::new();
        let names: BTreeMap<u64, &str> = ["a", "a", "a", "b", "c"]
            .into_iter()
            .map(|name| (queue.enter(&payers(name, 100)), name))
            .collect();
        let mut now = 0;
        while !queue.is_empty() {
            let next =
                *names.keys().find(|number| queue.state(**number, Nanos(now)) == JobState::Runs).unwrap();
            queue.charge(next, Nanos(SECOND), Nanos(now));
            queue.leave(next);
            order.push(names[&next]);
            now += SECOND;
        }
        assert_eq!(order, ["a", "b", "c", "a", "a"]);
    }

    /// Requests outside of turns, which take the processor time that the pace of requests leaves: a twentieth of a core. Returns the time at which they end.
    fn flood(queue: &mut CompileQueue, chains: impl Iterator<Item = Vec<CompilePayer>>, begin: u64) -> u64 {
        chains.fold(begin, |now, chain| {
            queue.charge_outside(&chain, Nanos(Nanos::MILLISECOND.0), Nanos(now));
            now + STEP
        })
    }

    #[test]
    fn a_delegates_requests_delay_no_turn_of_its_siblings_or_delegator_and_the_delegate_pays() {
        let mut simulation = Simulation::new(2, 6);
        // A minute of requests takes 3 s of a core, of which the grant gives 1 %.
        let queue = &mut simulation.queue;
        simulation.now = flood(queue, std::iter::repeat_n(payers("ab", 1), 3000), 0);
        for (name, word) in [("sibling", "ac"), ("its delegate", "acd"), ("delegator", "a")] {
            simulation.come(name, &payers(word, 1), 5 * STEP);
        }
        let end = simulation.now + 30 * SECOND;
        simulation.run(end);
        // The delegator comes first, and has its turn at once. The others wait for what is compiled before, as without the flood.
        let waited = ["delegator", "sibling", "its delegate"].map(|name| simulation.waited(name));
        assert_eq!(waited[0], 5 * STEP);
        assert!(waited[1] <= 10 * SECOND + 10 * STEP && waited[2] <= 20 * SECOND + 15 * STEP, "{waited:?}");
        let (queue, now) = (&mut simulation.queue, Nanos(simulation.now));
        let mut unpaid = |word: &str| {
            let number = queue.enter(&payers(word, 1));
            let unpaid = queue.unpaid(number, now);
            queue.leave(number);
            unpaid.0
        };
        // The one that asked waits for all of it, and so do those to whom it passes its right on now.
        for word in ["ab", "abd", "abde"] {
            assert!(unpaid(word) > 200 * SECOND, "{word}: {}", unpaid(word));
        }
    }

    #[test]
    fn a_holder_whose_credential_states_no_share_pays_by_that_of_those_above_it() {
        let mut queue = CompileQueue::new(2, 6);
        let mut links = payers("abc", 1);
        links.iter_mut().skip(1).for_each(|(_, share)| *share = None);
        queue.charge_outside(&links, Nanos::SECOND, Nanos(0));
        let number = queue.enter(&links);
        assert_eq!(queue.unpaid(number, Nanos(0)), Nanos(100 * SECOND));
        // Nothing above states one.
        let free: Vec<CompilePayer> = chain("de").into_iter().map(|id| (id, None)).collect();
        queue.charge_outside(&free, Nanos::SECOND, Nanos(0));
        let number = queue.enter(&free);
        assert_eq!(queue.unpaid(number, Nanos(0)), Nanos::SECOND);
    }

    #[test]
    fn requests_of_many_fresh_delegates_keep_no_sibling_from_a_turn_and_erase_no_debt() {
        let mut queue = CompileQueue::new(2, 6);
        let number = queue.enter(&payers("ab", 1));
        assert_eq!(queue.state(number, Nanos(0)), JobState::Runs);
        queue.charge(number, Nanos(20 * SECOND), Nanos(0));
        queue.leave(number);
        let number = queue.enter(&payers("c", 1));
        queue.charge(number, Nanos(10 * SECOND), Nanos(0));
        queue.leave(number);
        // Each delegate asks once, and states the smallest share, so that its own clock is farther ahead than any other.
        let fresh = (0..2 * CLOCKS_MAX).map(|number| {
            let own = (numbered(number), Some(CpuShare(1)));
            payers("ab", 1).into_iter().chain([own]).collect()
        });
        let now = flood(&mut queue, fresh, 0);
        // The debt of the compilation is what is left of it, no more and no less.
        for (word, debt) in [("ab", 2000), ("abd", 2000), ("ac", 2000), ("c", 1000), ("a", 0), ("d", 0)] {
            let number = queue.enter(&payers(word, 1));
            assert_eq!(queue.unpaid(number, Nanos(now)).0, (debt * SECOND).saturating_sub(now), "{word}");
            queue.leave(number);
        }
    }
}
