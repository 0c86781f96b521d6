//! A core in simulated time: the work of virtual CPUs, the disturbances of the machine, and the CPU time that each
//! received.
//!
//! It uses only the scheduler's interface. Runs are not interrupted, use less or more than their budgets, and are
//! prolonged by stolen time. Scheduling takes time, new work is noticed at the next decision, and the core wakes up
//! late from idling.

use crate::cpu::policy::Policy;
use crate::cpu::random::Random;
use std::collections::BTreeMap;
use weir_sched::cpu::{
    CoreConfig, CpuAllocation, CpuDecision, CpuReservation, CpuTerms, DebitKind, ReservationRefusal,
    RunAccount, RunOutcome, Stats, VcpuId, Weight,
};
use weir_units::Nanos;

/// The shortest period of any reservation.
pub const PERIOD_MIN: u64 = 1_000_000;

/// The parameters of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub seed: u64,
    /// The scheduler's configuration.
    pub config: CoreConfig,
    /// The real maximum of runs and late wake-ups.
    pub blocking_max: u64,
    /// The part of the allowance for scheduling and stolen time that is used, in percent. Above 100 the conditions of
    /// the guarantee are violated.
    pub taken: u64,
    /// The number of reservations requested at the start.
    pub reserved: u64,
    /// The number of best-effort virtual CPUs.
    pub best_effort: u64,
    /// True if all reservations always have work and none comes or goes.
    pub steady: bool,
    /// True if time on other threads is debited, with and without consent.
    pub debits: bool,
    pub duration: u64,
}

/// A time with work under the same terms.
#[derive(Clone, Copy, Debug)]
pub struct Busy {
    pub from: u64,
    pub to: u64,
    /// True if all earlier use is certainly paid for.
    pub fresh: bool,
}

/// A virtual CPU during one set of terms.
#[derive(Clone, Debug)]
pub struct Life {
    pub vcpu_id: VcpuId,
    pub terms: CpuTerms,
    pub busy: Vec<Busy>,
    /// Its times on the CPU: start, end, and the total until then.
    pub got: Vec<(u64, u64, u64)>,
    /// Debits for work on other threads: the time, the debited amount, and the kind.
    pub debits: Vec<(u64, u64, DebitKind)>,
    /// True if it has work from its beginning to its end.
    pub greedy: bool,
    pub begin: u64,
    pub end: u64,
}

impl Life {
    /// CPU time until `at`.
    pub fn until(&self, at: u64) -> u64 {
        let place = self.got.partition_point(|(_, to, _)| *to <= at);
        let before = place.checked_sub(1).map_or(0, |place| self.got[place].2);
        before + self.got.get(place).map_or(0, |(from, ..)| at.saturating_sub(*from))
    }

    pub fn within(&self, from: u64, to: u64) -> u64 {
        self.until(to) - self.until(from)
    }

    /// The debits from `from` to `to`.
    pub fn debited(&self, from: u64, to: u64) -> u64 {
        self.debits.iter().filter(|(at, ..)| (from..=to).contains(at)).map(|(_, taken, _)| taken).sum()
    }

    /// An upper limit of its requested debt at `at`, if only the passing of time pays it.
    pub fn owed(&self, at: u64) -> u64 {
        let Some(reservation) = self.reservation() else { return 0 };
        let (mut owed, mut since) = (0u64, self.begin);
        let paid = |owed: u64, time: u64| {
            let paid = u128::from(time) * u128::from(reservation.slice.0) / u128::from(reservation.period.0);
            owed.saturating_sub(u64::try_from(paid).unwrap())
        };
        for (when, taken, _) in
            self.debits.iter().filter(|(when, _, kind)| *when <= at && *kind == DebitKind::Requested)
        {
            owed = paid(owed, when.saturating_sub(since)) + taken;
            since = since.max(*when);
        }
        paid(owed, at.saturating_sub(since))
    }

    pub fn reservation(&self) -> Option<CpuReservation> {
        match self.terms.share {
            CpuAllocation::Reserved(reservation) => Some(reservation),
            CpuAllocation::BestEffort(_) => None,
        }
    }
}

/// The outcome of a simulation.
pub struct Outcome {
    pub lives: Vec<Life>,
    /// The counters of all virtual CPUs, closed ones included.
    pub stats: Vec<Stats>,
    pub totals: Stats,
    /// The time in which no virtual CPU ran because none was due.
    pub idle: u64,
    pub stolen_in_runs: u64,
    pub now: u64,
    pub refused: u64,
}

struct SimulatedVcpu {
    life: usize,
    /// The CPU time until it has no more work.
    work: u64,
    greedy: bool,
    busy_since: Option<(u64, bool)>,
    slept_at: u64,
}

pub struct Simulator<'a, P> {
    plan: Plan,
    policy: &'a mut P,
    random: Random,
    now: u64,
    vcpus: BTreeMap<VcpuId, SimulatedVcpu>,
    /// Work to come, by its time and virtual CPU.
    coming: BTreeMap<(u64, VcpuId), u64>,
    slot: (u64, u64),
    out: Outcome,
}

impl<'a, P: Policy> Simulator<'a, P> {
    pub fn run(plan: Plan, policy: &'a mut P) -> Outcome {
        let out = Outcome {
            lives: Vec::new(),
            stats: Vec::new(),
            totals: Stats::default(),
            idle: 0,
            stolen_in_runs: 0,
            now: 0,
            refused: 0,
        };
        let mut simulator = Simulator {
            plan,
            policy,
            random: Random(plan.seed),
            now: 0,
            vcpus: BTreeMap::new(),
            coming: BTreeMap::new(),
            slot: (0, 0),
            out,
        };
        for _ in 0..plan.reserved {
            let terms = simulator.any_reservation();
            simulator.create(terms);
        }
        for _ in 0..plan.best_effort {
            let weight = Weight::new(u32::try_from(simulator.random.within(1, 400)).unwrap()).unwrap();
            let overrun = simulator.any_overrun();
            simulator.create(CpuTerms { share: CpuAllocation::BestEffort(weight), overrun });
        }
        while simulator.now < plan.duration {
            simulator.step();
        }
        simulator.finish()
    }

    fn step(&mut self) {
        if !self.plan.steady && self.random.one_in(400) {
            self.churn();
        }
        self.now += self.disturbance();
        if self.plan.debits && self.random.one_in(20) {
            self.debit();
        }
        while let Some((&(at, vcpu_id), &work)) = self.coming.first_key_value()
            && at <= self.now
        {
            self.coming.pop_first();
            self.arrive(vcpu_id, work);
        }
        match self.policy.next(Nanos(self.now)) {
            CpuDecision::Run { vcpu_id, budget, account } => self.perform(vcpu_id, budget.0, account),
            CpuDecision::Idle { until } => {
                let next_work = self.coming.first_key_value().map(|((at, _), _)| *at);
                let until = until.map(|until| until.0);
                let wanted = until.into_iter().chain(next_work).min().unwrap_or(self.plan.duration);
                let late = self.random.within(0, self.plan.blocking_max);
                let wakes = wanted.max(self.now) + late;
                self.out.idle += wakes - self.now;
                self.now = wakes;
            }
        }
    }

    /// Debits a virtual CPU for packets received on another core, or for a service call.
    fn debit(&mut self) {
        let place = usize::try_from(self.random.any()).unwrap() % self.vcpus.len().max(1);
        let Some((&vcpu_id, vcpu)) = self.vcpus.iter_mut().nth(place) else { return };
        let is_best_effort = self.out.lives[vcpu.life].reservation().is_none();
        // A best-effort virtual CPU keeps its debits separate, so that its share can be told from the others'.
        if is_best_effort
            && self.out.lives.iter().find(|life| life.reservation().is_none()).map(|one| one.vcpu_id)
                != Some(vcpu_id)
        {
            return;
        }
        let most = if self.random.one_in(20) { 3_000_000 } else { 50_000 };
        let (used, asked) = (self.random.within(0, most), self.random.one_in(4));
        let life = &mut self.out.lives[vcpu.life];
        let (used, kind) = match life.reservation().filter(|_| asked) {
            // Limited, so that it gets to work again.
            Some(reservation) => (used.min(4 * reservation.slice.0), DebitKind::Requested),
            None if asked => (used, DebitKind::Requested),
            None => (used, DebitKind::Unrequested),
        };
        let taken = self.policy.debit(vcpu_id, Nanos(used), kind, Nanos(self.now)).0;
        assert!(kind == DebitKind::Unrequested || taken == used, "requested work is debited in full");
        life.debits.push((self.now, taken, kind));
        if vcpu.busy_since.is_none() {
            // The debit counts as work until now.
            vcpu.slept_at = vcpu.slept_at.max(self.now);
        }
    }

    fn perform(&mut self, vcpu_id: VcpuId, budget: u64, account: RunAccount) {
        let vcpu = self.vcpus.get_mut(&vcpu_id).expect("only who is there runs");
        let Life { terms, .. } = self.out.lives[vcpu.life];
        // A batch may use less than its budget; a packet that cannot be split uses more.
        let wanted = match self.random.within(0, 9) {
            0 => self.random.within(1, budget.max(1)),
            1..6 => budget + self.random.within(0, terms.overrun.0),
            6 if account == RunAccount::Spare => self.plan.blocking_max,
            6 => budget + terms.overrun.0,
            _ => budget,
        };
        let used = if vcpu.greedy { wanted } else { wanted.min(vcpu.work) };
        let used = used.min(self.plan.blocking_max);
        vcpu.work -= if vcpu.greedy { 0 } else { used };
        let is_done = !vcpu.greedy && vcpu.work == 0;
        let stolen = self.disturbance();
        self.out.stolen_in_runs += stolen;
        let from = self.now + if self.random.one_in(2) { stolen } else { 0 };
        self.now += used + stolen;
        let vcpu = self.vcpus.get_mut(&vcpu_id).expect("it is there");
        let life = &mut self.out.lives[vcpu.life];
        let before = life.got.last().map_or(0, |(.., total)| *total);
        life.got.push((from, from + used, before + used));
        let outcome = if is_done { RunOutcome::Idle } else { RunOutcome::Ready };
        self.policy.charge(Nanos(used), Nanos(self.now), outcome);
        if is_done {
            let gap = match self.random.within(0, 2) {
                0 => self.random.within(0, 200_000),
                1 => self.random.within(0, 3_000_000),
                _ => self.random.within(0, 60_000_000),
            };
            let work = self.some_work(&terms);
            self.put_to_sleep(vcpu_id);
            self.coming.insert((self.now + gap, vcpu_id), work);
        }
    }

    /// Time that no virtual CPU gets, within the guarantee's limit: at most `1 - cap` of any interval of the shortest
    /// period or longer, as it is an eighth of that in each quarter of the shortest period.
    fn disturbance(&mut self) -> u64 {
        let slot = self.now / (PERIOD_MIN / 4);
        let allowed = (1_000_000 - u64::from(self.plan.config.cap.0)) * PERIOD_MIN / 1_000_000 / 8;
        let allowed = allowed * self.plan.taken / 100;
        if self.slot.0 != slot {
            self.slot = (slot, allowed);
        }
        let most = if self.random.one_in(5) { self.slot.1 } else { self.slot.1 / 20 };
        let taken = self.random.within(0, most);
        self.slot.1 -= taken;
        taken
    }

    fn any_overrun(&mut self) -> Nanos {
        Nanos(self.random.within(0, self.plan.config.blocking_max.0 / 4))
    }

    fn any_reservation(&mut self) -> CpuTerms {
        let period = match self.random.within(0, 2) {
            0 => PERIOD_MIN,
            1 => self.random.within(PERIOD_MIN, 3 * PERIOD_MIN),
            _ => self.random.within(PERIOD_MIN, 30 * PERIOD_MIN),
        };
        let slice = self.random.within(1000, period / 2);
        let spare =
            Weight::new(u32::try_from(self.random.within(1, 400)).unwrap()).filter(|_| self.random.one_in(3));
        let share =
            CpuAllocation::Reserved(CpuReservation { period: Nanos(period), slice: Nanos(slice), spare });
        CpuTerms { share, overrun: self.any_overrun() }
    }

    fn some_work(&mut self, terms: &CpuTerms) -> u64 {
        let usual = match terms.share {
            CpuAllocation::Reserved(reservation) => reservation.slice.0,
            CpuAllocation::BestEffort(_) => 100_000,
        };
        let most = if self.random.one_in(2) { usual } else { usual * 20 };
        self.random.within(1, most)
    }

    /// Requests terms, and as much as fits if they are refused, so that the core is as full as possible.
    fn request_terms<T>(
        &mut self,
        terms: CpuTerms,
        request: impl Fn(&mut P, CpuTerms, Nanos) -> Result<T, ReservationRefusal>,
    ) -> Option<(T, CpuTerms)> {
        match request(self.policy, terms, Nanos(self.now)) {
            Ok(answer) => Some((answer, terms)),
            Err(ReservationRefusal::NoRoom { largest, .. }) => {
                self.out.refused += 1;
                let CpuAllocation::Reserved(reservation) = terms.share else {
                    panic!("best effort needs no room")
                };
                if largest.0 == 0 {
                    return None;
                }
                let share = CpuAllocation::Reserved(CpuReservation { slice: largest, ..reservation });
                let terms = CpuTerms { share, ..terms };
                let answer = request(self.policy, terms, Nanos(self.now))
                    .expect("a refusal says what there is room for");
                Some((answer, terms))
            }
            Err(other) => panic!("{other}"),
        }
    }

    fn create(&mut self, terms: CpuTerms) {
        let Some((vcpu_id, terms)) =
            self.request_terms(terms, |policy, terms, now| policy.create(terms, now))
        else {
            return;
        };
        let is_best_effort = matches!(terms.share, CpuAllocation::BestEffort(_));
        let greedy = self.plan.steady || is_best_effort || self.random.one_in(2);
        let life = self.born(vcpu_id, terms, greedy);
        let vcpu = SimulatedVcpu { life, work: 0, greedy, busy_since: None, slept_at: 0 };
        self.vcpus.insert(vcpu_id, vcpu);
        let work = self.some_work(&terms);
        if greedy {
            self.arrive(vcpu_id, work);
        } else {
            let at = self.now + self.random.within(0, 3 * PERIOD_MIN);
            self.coming.insert((at, vcpu_id), work);
        }
    }

    fn born(&mut self, vcpu_id: VcpuId, terms: CpuTerms, greedy: bool) -> usize {
        let (begin, end) = (self.now, u64::MAX);
        let (busy, got, debits) = (Vec::new(), Vec::new(), Vec::new());
        self.out.lives.push(Life { vcpu_id, terms, busy, got, debits, greedy, begin, end });
        self.out.lives.len() - 1
    }

    fn arrive(&mut self, vcpu_id: VcpuId, work: u64) {
        let Some(vcpu) = self.vcpus.get_mut(&vcpu_id) else { return };
        vcpu.work += work;
        let life = &self.out.lives[vcpu.life];
        // The latest time at which all possible use is paid for.
        // An unrequested debt is at most a slice, beside the requested debt.
        let owed = u64::from(self.plan.debits);
        let paid = life.reservation().map_or(0, |reservation| {
            let asked = match life.owed(vcpu.slept_at) {
                0 => 0,
                asked => 1 + asked.div_ceil(reservation.slice.0),
            };
            let periods = 1 + owed + asked + life.terms.overrun.0.div_ceil(reservation.slice.0);
            vcpu.slept_at + reservation.period.0 * periods
        });
        let is_new = life.got.is_empty() && life.begin == 0 || life.busy.is_empty() && vcpu.slept_at == 0;
        let fresh = is_new && life.debits.is_empty() || self.now >= paid;
        vcpu.busy_since = Some((self.now.max(life.begin), fresh));
        self.policy.wake(vcpu_id, Nanos(self.now));
    }

    fn put_to_sleep(&mut self, vcpu_id: VcpuId) {
        let Some(vcpu) = self.vcpus.get_mut(&vcpu_id) else { return };
        // Under the old terms it may have used more than the new ones allow.
        vcpu.slept_at = self.now.max(self.out.lives[vcpu.life].begin);
        if let Some((from, fresh)) = vcpu.busy_since.take() {
            self.out.lives[vcpu.life].busy.push(Busy { from, to: self.now, fresh });
        }
    }

    /// Lets a virtual CPU come, go, or change its terms.
    fn churn(&mut self) {
        let reserved: Vec<VcpuId> = self
            .vcpus
            .iter()
            .filter(|(_, vcpu)| self.out.lives[vcpu.life].reservation().is_some())
            .map(|(vcpu_id, _)| *vcpu_id)
            .collect();
        let any = reserved.get(usize::try_from(self.random.any()).unwrap() % reserved.len().max(1)).copied();
        match (self.random.within(0, 2), any) {
            (0, Some(vcpu_id)) => {
                self.put_to_sleep(vcpu_id);
                let vcpu = self.vcpus.remove(&vcpu_id).expect("it is there");
                self.coming.retain(|(_, whose), _| *whose != vcpu_id);
                self.out.lives[vcpu.life].end = self.now;
                let stats = self.policy.close(vcpu_id, Nanos(self.now));
                self.out.stats.push(stats);
            }
            (1, Some(vcpu_id)) => {
                let terms = self.any_reservation();
                self.change(vcpu_id, terms);
            }
            _ => {
                let terms = self.any_reservation();
                self.create(terms);
            }
        }
    }

    /// A new life begins with new terms, at the latest time at which the old ones end.
    fn change(&mut self, vcpu_id: VcpuId, terms: CpuTerms) {
        let Some(((), terms)) =
            self.request_terms(terms, |policy, terms, now| policy.change(vcpu_id, terms, now))
        else {
            return;
        };
        let was_busy = self.vcpus[&vcpu_id].busy_since.is_some();
        self.put_to_sleep(vcpu_id);
        let vcpu = &self.vcpus[&vcpu_id];
        let old = &mut self.out.lives[vcpu.life];
        old.end = self.now;
        let reservation = old.reservation().expect("only reservations are changed");
        let owed = u64::from(self.plan.debits);
        let over = reservation.period.0 * (1 + owed + old.terms.overrun.0.div_ceil(reservation.slice.0));
        // The debt under the old terms is paid under the new ones.
        let CpuAllocation::Reserved(new) = terms.share else { panic!("reservations stay reservations") };
        let most = owed * (3 * reservation.slice.0 + old.owed(self.now));
        let over = over + owed * new.period.0 * (1 + most.div_ceil(new.slice.0));
        let (greedy, begin) = (old.greedy, old.begin);
        let life = self.born(vcpu_id, terms, greedy);
        let begin = begin.max(self.now) + over;
        self.out.lives[life].begin = begin;
        let vcpu = self.vcpus.get_mut(&vcpu_id).expect("it is there");
        vcpu.life = life;
        vcpu.slept_at = begin;
        if was_busy {
            vcpu.busy_since = Some((begin, false));
        }
    }

    fn finish(mut self) -> Outcome {
        let there: Vec<VcpuId> = self.vcpus.keys().copied().collect();
        for vcpu_id in there {
            self.put_to_sleep(vcpu_id);
            self.out.lives[self.vcpus[&vcpu_id].life].end = self.now;
            self.out.stats.push(self.policy.stats(vcpu_id));
        }
        self.out.totals = self.policy.totals();
        self.out.now = self.now;
        self.out
    }
}
