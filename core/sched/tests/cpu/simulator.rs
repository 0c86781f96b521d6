//! A core in simulated time: what virtual processors do, what the machine does to them, and who got the CPU when.
//!
//! It knows the scheduler only by its interface. Runs are not interrupted, use less or more than their budgets, and are made longer by
//! stolen time; deciding takes time; work that comes is noticed at the next decision; the core wakes up late from idling.

use crate::cpu::policy::Policy;
use crate::cpu::random::Random;
use std::collections::BTreeMap;
use weir_sched::cpu::{
    Charged, CoreConfig, CpuDecision, CpuReservation, CpuTerms, Debt, Placement, ReservationRefusal,
    RunOutcome, Stats, VpId, Weight,
};
use weir_units::Nanos;

/// The shortest period of any reservation.
pub const PERIOD_MIN: u64 = 1_000_000;

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub seed: u64,
    /// What the scheduler is told.
    pub told: CoreConfig,
    /// How long runs and late wake-ups really may take.
    pub blocking: u64,
    /// How much of the allowance for deciding and stolen time is taken, in percent: more than 100 breaks the conditions of the guarantee.
    pub taken: u64,
    /// How many reservations are asked for in the beginning.
    pub reserved: u64,
    /// How many best-effort virtual processors there are.
    pub best_effort: u64,
    /// All who have a reservation always have work, and none comes or goes.
    pub steady: bool,
    /// Work is done for them elsewhere too, whether they asked for it or not, and debited.
    pub debits: bool,
    pub duration: u64,
}

/// A time with work, under the same terms.
#[derive(Clone, Copy, Debug)]
pub struct Busy {
    pub from: u64,
    pub to: u64,
    /// All that was used before is certainly paid for.
    pub fresh: bool,
}

/// A virtual processor under the same terms all the time.
#[derive(Clone, Debug)]
pub struct Life {
    pub vp: VpId,
    pub terms: CpuTerms,
    pub busy: Vec<Busy>,
    /// When it was on the CPU: from, to, and how much until then in total.
    pub got: Vec<(u64, u64, u64)>,
    /// What was done for it elsewhere: when, how much of it was debited, and whether it had asked for it.
    pub debits: Vec<(u64, u64, Debt)>,
    /// Always has work from its beginning to its end.
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

    /// What was debited from `from` to `to`.
    pub fn debited(&self, from: u64, to: u64) -> u64 {
        self.debits.iter().filter(|(at, ..)| (from..=to).contains(at)).map(|(_, taken, _)| taken).sum()
    }

    /// How much it owed at `at` of what it had asked for, at the most, where it pays by nothing but the time that passes.
    pub fn owed(&self, at: u64) -> u64 {
        let Some(reservation) = self.reservation() else { return 0 };
        let (mut owed, mut since) = (0u64, self.begin);
        let paid = |owed: u64, time: u64| {
            let paid = u128::from(time) * u128::from(reservation.slice.0) / u128::from(reservation.period.0);
            owed.saturating_sub(u64::try_from(paid).unwrap())
        };
        for (when, taken, _) in
            self.debits.iter().filter(|(when, _, debt)| *when <= at && *debt == Debt::Agreed)
        {
            owed = paid(owed, when.saturating_sub(since)) + taken;
            since = since.max(*when);
        }
        paid(owed, at.saturating_sub(since))
    }

    pub fn reservation(&self) -> Option<CpuReservation> {
        match self.terms.share {
            Placement::Reserved(reservation) => Some(reservation),
            Placement::BestEffort(_) => None,
        }
    }
}

/// What came of it.
pub struct Outturn {
    pub lives: Vec<Life>,
    /// Of those that were there to the end, and of those that were closed.
    pub stats: Vec<Stats>,
    pub totals: Stats,
    /// Time in which nobody ran because nobody was to.
    pub idle: u64,
    pub stolen_in_runs: u64,
    pub now: u64,
    pub refused: u64,
}

struct Actor {
    life: usize,
    /// CPU time until it has nothing to do.
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
    actors: BTreeMap<VpId, Actor>,
    /// Work that comes: when, and for whom.
    coming: BTreeMap<(u64, VpId), u64>,
    slot: (u64, u64),
    out: Outturn,
}

impl<'a, P: Policy> Simulator<'a, P> {
    pub fn run(plan: Plan, policy: &'a mut P) -> Outturn {
        let out = Outturn {
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
            actors: BTreeMap::new(),
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
            simulator.create(CpuTerms { share: Placement::BestEffort(weight), overrun });
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
        while let Some((&(at, vp), &work)) = self.coming.first_key_value()
            && at <= self.now
        {
            self.coming.pop_first();
            self.arrive(vp, work);
        }
        match self.policy.next(Nanos(self.now)) {
            CpuDecision::Run { vp, budget, account } => self.perform(vp, budget.0, account),
            CpuDecision::Idle { until } => {
                let next_work = self.coming.first_key_value().map(|((at, _), _)| *at);
                let until = until.map(|until| until.0);
                let wanted = until.into_iter().chain(next_work).min().unwrap_or(self.plan.duration);
                let late = self.random.within(0, self.plan.blocking);
                let wakes = wanted.max(self.now) + late;
                self.out.idle += wakes - self.now;
                self.now = wakes;
            }
        }
    }

    /// Somebody's packets have been received on another core, or it has called somebody.
    fn debit(&mut self) {
        let place = usize::try_from(self.random.any()).unwrap() % self.actors.len().max(1);
        let Some((&vp, actor)) = self.actors.iter_mut().nth(place) else { return };
        let is_best_effort = self.out.lives[actor.life].reservation().is_none();
        // One of those who share the rest, so that it can be told from the others.
        if is_best_effort
            && self.out.lives.iter().find(|life| life.reservation().is_none()).map(|one| one.vp) != Some(vp)
        {
            return;
        }
        let most = if self.random.one_in(20) { 3_000_000 } else { 50_000 };
        let (used, asked) = (self.random.within(0, most), self.random.one_in(4));
        let life = &mut self.out.lives[actor.life];
        let (used, debt) = match life.reservation().filter(|_| asked) {
            // So that it gets to work again.
            Some(reservation) => (used.min(4 * reservation.slice.0), Debt::Agreed),
            None if asked => (used, Debt::Agreed),
            None => (used, Debt::Imposed),
        };
        let taken = self.policy.debit(vp, Nanos(used), debt, Nanos(self.now)).0;
        assert!(debt == Debt::Imposed || taken == used, "what was agreed to is owed");
        life.debits.push((self.now, taken, debt));
        if actor.busy_since.is_none() {
            // As if it had worked until now.
            actor.slept_at = actor.slept_at.max(self.now);
        }
    }

    fn perform(&mut self, vp: VpId, budget: u64, account: Charged) {
        let actor = self.actors.get_mut(&vp).expect("only who is there runs");
        let Life { terms, .. } = self.out.lives[actor.life];
        // A batch may be short of its budget; what cannot be cut to fit takes more.
        let wanted = match self.random.within(0, 9) {
            0 => self.random.within(1, budget.max(1)),
            1..6 => budget + self.random.within(0, terms.overrun.0),
            6 if account == Charged::Spare => self.plan.blocking,
            6 => budget + terms.overrun.0,
            _ => budget,
        };
        let used = if actor.greedy { wanted } else { wanted.min(actor.work) };
        let used = used.min(self.plan.blocking);
        actor.work -= if actor.greedy { 0 } else { used };
        let is_done = !actor.greedy && actor.work == 0;
        let stolen = self.disturbance();
        self.out.stolen_in_runs += stolen;
        let from = self.now + if self.random.one_in(2) { stolen } else { 0 };
        self.now += used + stolen;
        let actor = self.actors.get_mut(&vp).expect("it is there");
        let life = &mut self.out.lives[actor.life];
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
            self.rest(vp);
            self.coming.insert((self.now + gap, vp), work);
        }
    }

    /// Time that nobody gets, within what the guarantee allows: in any interval of the shortest period or longer at most `1 - cap` of it,
    /// since it is an eighth of that in each quarter of the shortest period.
    fn disturbance(&mut self) -> u64 {
        let slot = self.now / (PERIOD_MIN / 4);
        let allowed = (1_000_000 - u64::from(self.plan.told.cap.0)) * PERIOD_MIN / 1_000_000 / 8;
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
        Nanos(self.random.within(0, self.plan.told.blocking.0 / 4))
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
        let share = Placement::Reserved(CpuReservation { period: Nanos(period), slice: Nanos(slice), spare });
        CpuTerms { share, overrun: self.any_overrun() }
    }

    fn some_work(&mut self, terms: &CpuTerms) -> u64 {
        let usual = match terms.share {
            Placement::Reserved(reservation) => reservation.slice.0,
            Placement::BestEffort(_) => 100_000,
        };
        let most = if self.random.one_in(2) { usual } else { usual * 20 };
        self.random.within(1, most)
    }

    /// Asks for terms, and where there is no room for them for as much as there is: the core is to be as full as it may be.
    fn asking<T>(
        &mut self,
        terms: CpuTerms,
        ask: impl Fn(&mut P, CpuTerms, Nanos) -> Result<T, ReservationRefusal>,
    ) -> Option<(T, CpuTerms)> {
        match ask(self.policy, terms, Nanos(self.now)) {
            Ok(answer) => Some((answer, terms)),
            Err(ReservationRefusal::NoRoom { largest, .. }) => {
                self.out.refused += 1;
                let Placement::Reserved(reservation) = terms.share else {
                    panic!("best effort needs no room")
                };
                if largest.0 == 0 {
                    return None;
                }
                let share = Placement::Reserved(CpuReservation { slice: largest, ..reservation });
                let terms = CpuTerms { share, ..terms };
                let answer =
                    ask(self.policy, terms, Nanos(self.now)).expect("a refusal says what there is room for");
                Some((answer, terms))
            }
            Err(other) => panic!("{other}"),
        }
    }

    fn create(&mut self, terms: CpuTerms) {
        let Some((vp, terms)) = self.asking(terms, |policy, terms, now| policy.create(terms, now)) else {
            return;
        };
        let is_best_effort = matches!(terms.share, Placement::BestEffort(_));
        let greedy = self.plan.steady || is_best_effort || self.random.one_in(2);
        let life = self.born(vp, terms, greedy);
        let actor = Actor { life, work: 0, greedy, busy_since: None, slept_at: 0 };
        self.actors.insert(vp, actor);
        let work = self.some_work(&terms);
        if greedy {
            self.arrive(vp, work);
        } else {
            let at = self.now + self.random.within(0, 3 * PERIOD_MIN);
            self.coming.insert((at, vp), work);
        }
    }

    fn born(&mut self, vp: VpId, terms: CpuTerms, greedy: bool) -> usize {
        let (begin, end) = (self.now, u64::MAX);
        let (busy, got, debits) = (Vec::new(), Vec::new(), Vec::new());
        self.out.lives.push(Life { vp, terms, busy, got, debits, greedy, begin, end });
        self.out.lives.len() - 1
    }

    fn arrive(&mut self, vp: VpId, work: u64) {
        let Some(actor) = self.actors.get_mut(&vp) else { return };
        actor.work += work;
        let life = &self.out.lives[actor.life];
        // When everything is paid for that can have been used, at the latest.
        // Who is debited owes a slice at most, and what it has asked for.
        let owed = u64::from(self.plan.debits);
        let paid = life.reservation().map_or(0, |reservation| {
            let asked = match life.owed(actor.slept_at) {
                0 => 0,
                asked => 1 + asked.div_ceil(reservation.slice.0),
            };
            let periods = 1 + owed + asked + life.terms.overrun.0.div_ceil(reservation.slice.0);
            actor.slept_at + reservation.period.0 * periods
        });
        let is_new = life.got.is_empty() && life.begin == 0 || life.busy.is_empty() && actor.slept_at == 0;
        let fresh = is_new && life.debits.is_empty() || self.now >= paid;
        actor.busy_since = Some((self.now.max(life.begin), fresh));
        self.policy.wake(vp, Nanos(self.now));
    }

    fn rest(&mut self, vp: VpId) {
        let Some(actor) = self.actors.get_mut(&vp) else { return };
        // Under the old terms, it may have used more than the new ones would allow.
        actor.slept_at = self.now.max(self.out.lives[actor.life].begin);
        if let Some((from, fresh)) = actor.busy_since.take() {
            self.out.lives[actor.life].busy.push(Busy { from, to: self.now, fresh });
        }
    }

    /// Somebody comes, goes, or gets other terms.
    fn churn(&mut self) {
        let reserved: Vec<VpId> = self
            .actors
            .iter()
            .filter(|(_, actor)| self.out.lives[actor.life].reservation().is_some())
            .map(|(vp, _)| *vp)
            .collect();
        let any = reserved.get(usize::try_from(self.random.any()).unwrap() % reserved.len().max(1)).copied();
        match (self.random.within(0, 2), any) {
            (0, Some(vp)) => {
                self.rest(vp);
                let actor = self.actors.remove(&vp).expect("it is there");
                self.coming.retain(|(_, whose), _| *whose != vp);
                self.out.lives[actor.life].end = self.now;
                let stats = self.policy.close(vp, Nanos(self.now));
                self.out.stats.push(stats);
            }
            (1, Some(vp)) => {
                let terms = self.any_reservation();
                self.change(vp, terms);
            }
            _ => {
                let terms = self.any_reservation();
                self.create(terms);
            }
        }
    }

    /// Under new terms it is a new life, which begins when the old terms have ended at the latest.
    fn change(&mut self, vp: VpId, terms: CpuTerms) {
        let Some(((), terms)) = self.asking(terms, |policy, terms, now| policy.change(vp, terms, now)) else {
            return;
        };
        let was_busy = self.actors[&vp].busy_since.is_some();
        self.rest(vp);
        let actor = &self.actors[&vp];
        let old = &mut self.out.lives[actor.life];
        old.end = self.now;
        let reservation = old.reservation().expect("only reservations are changed");
        let owed = u64::from(self.plan.debits);
        let over = reservation.period.0 * (1 + owed + old.terms.overrun.0.div_ceil(reservation.slice.0));
        // What it owes under the old terms is paid under the new ones.
        let Placement::Reserved(new) = terms.share else { panic!("reservations stay reservations") };
        let most = owed * (3 * reservation.slice.0 + old.owed(self.now));
        let over = over + owed * new.period.0 * (1 + most.div_ceil(new.slice.0));
        let (greedy, begin) = (old.greedy, old.begin);
        let life = self.born(vp, terms, greedy);
        let begin = begin.max(self.now) + over;
        self.out.lives[life].begin = begin;
        let actor = self.actors.get_mut(&vp).expect("it is there");
        actor.life = life;
        actor.slept_at = begin;
        if was_busy {
            actor.busy_since = Some((begin, false));
        }
    }

    fn finish(mut self) -> Outturn {
        let there: Vec<VpId> = self.actors.keys().copied().collect();
        for vp in there {
            self.rest(vp);
            self.out.lives[self.actors[&vp].life].end = self.now;
            self.out.stats.push(self.policy.stats(vp));
        }
        self.out.totals = self.policy.totals();
        self.out.now = self.now;
        self.out
    }
}
