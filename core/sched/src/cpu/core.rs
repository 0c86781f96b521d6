//! The scheduler of one pinned core.

use super::admission::CoreAdmission;
use super::fair::{Fair, Tag};
use super::server::Server;
use super::stats::Stats;
use super::terms::{
    CoreConfig, CpuReservation, CpuTerms, Debt, Placement, Ppm, ReservationRefusal, VPS_MAX, VpId,
};
use crate::heap::Heap;
use weir_units::Nanos;

/// On whose account a run goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charged {
    /// On the virtual processor's guaranteed slice.
    Reserved,
    /// On time that nobody has reserved, or does not use.
    Spare,
}

/// What the core does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuDecision {
    /// Run `vp` for at most `budget` of CPU time, and then [`Core::charge`] it.
    Run {
        /// Who runs.
        vp: VpId,
        /// For how much CPU time. With the overrun that its terms allow it is at most [`CoreConfig::blocking`].
        budget: Nanos,
        /// Who pays.
        account: Charged,
    },
    /// Nobody may run before `until`, or, where that is `None`, before somebody wakes up.
    Idle {
        /// When a period begins for which somebody waits.
        until: Option<Nanos>,
    },
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// There is more to do.
    Ready,
    /// A call was suspended at the end of its budget, and is to be resumed.
    Suspended,
    /// There is nothing to do before somebody wakes it up.
    Idle,
}

/// A period of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// When it began.
    pub begin: Nanos,
    /// When it ends; in the past where it has ended without its slice having been given, or where its virtual processor sleeps.
    pub end: Nanos,
    /// CPU time that is left of its slice.
    pub left: Nanos,
}

/// Nothing was running that could be charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing runs on this core")]
pub struct NotRunning;

#[derive(Clone, Debug)]
struct Vp {
    generation: u32,
    terms: CpuTerms,
    /// Terms that hold from the next period on.
    pending: Option<CpuTerms>,
    server: Server,
    tag: Tag,
    stats: Stats,
    has_work: bool,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    index: usize,
    vp: VpId,
    budget: u64,
    account: Charged,
    /// By the wall.
    since: u64,
    /// Work came for it meanwhile.
    woken: bool,
}

#[derive(Clone, Debug)]
enum Slot {
    Used(Box<Vp>),
    /// The generation of the next one here.
    Free(u32),
}

/// The virtual processors of one core, and whose turn it is.
///
/// `now` is wall time on any clock that all calls share; one that goes backwards stands still. CPU time is what the thread really got: what
/// the hypervisor took is in the first and not in the second. Calls come from the core's own thread: [`Core::next`], the run,
/// [`Core::charge`], and so on, with the others in between.
#[derive(Clone, Debug)]
pub struct Core {
    config: CoreConfig,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Those with work and budget, by deadline.
    ready: Heap<u64>,
    /// Those with work and no budget, by the beginning of their next period.
    waiting: Heap<u64>,
    /// Those who share what is left.
    fair: Fair,
    running: Option<Run>,
    admission: CoreAdmission,
    /// Of all, also of those that were closed.
    totals: Stats,
    /// By the wall, as the caller tells it.
    now: u64,
    /// By how much the clock that reservations live by is behind the wall: periods that were forfeited by all. Deadlines are by that clock.
    lost: u64,
}

impl Core {
    /// A core with nobody on it. A cap of more than all is all.
    pub fn new(config: CoreConfig) -> Core {
        Core {
            config: CoreConfig { cap: config.cap.min(Ppm::ONE), ..config },
            slots: Vec::new(),
            free: Vec::new(),
            ready: Heap::default(),
            waiting: Heap::default(),
            fair: Fair::default(),
            running: None,
            admission: CoreAdmission::new(),
            totals: Stats::default(),
            now: 0,
            lost: 0,
        }
    }

    /// Admits a virtual processor. It has no work until it is woken.
    ///
    /// # Errors
    ///
    /// What keeps it from being admitted; the core is as it was.
    pub fn create(&mut self, terms: CpuTerms, now: Nanos) -> Result<VpId, ReservationRefusal> {
        let now = self.pass(now);
        terms.check(&self.config)?;
        let place = self.free.last().map_or(self.slots.len(), |&index| index as usize);
        let generation = match self.slots.get(place) {
            Some(Slot::Free(generation)) => *generation,
            _ => 0,
        };
        let Some(index) = u32::try_from(place).ok().filter(|_| place < VPS_MAX) else {
            return Err(ReservationRefusal::TooMany);
        };
        let vp = VpId { index, generation };
        self.admission.admit(vp, &terms, 0, now, &self.config)?;
        let server = match terms.share {
            Placement::Reserved(CpuReservation { period, slice, .. }) => Server::new(period.0, slice.0),
            Placement::BestEffort(_) => Server::new(1, 1),
        };
        let slot = Slot::Used(Box::new(Vp {
            generation,
            terms,
            pending: None,
            server,
            tag: Tag::default(),
            stats: Stats::default(),
            has_work: false,
        }));
        if self.free.pop().is_some() {
            self.slots[place] = slot;
        } else {
            self.slots.push(slot);
            let members = self.slots.len();
            self.ready.grow(members);
            self.waiting.grow(members);
            self.fair.grow(members);
        }
        Ok(vp)
    }

    /// Gives `vp` other terms. A reservation's old terms hold until its present period ends. Until then it takes from what others may be
    /// promised the larger utilisation and the shorter period of the old and the new.
    ///
    /// # Errors
    ///
    /// What keeps it from being admitted; the old terms then hold on.
    pub fn change(&mut self, vp: VpId, terms: CpuTerms, now: Nanos) -> Result<(), ReservationRefusal> {
        let now = self.pass(now);
        let index = self.find(vp).ok_or(ReservationRefusal::Unknown(vp))?;
        terms.check(&self.config)?;
        let runs = self.running.is_some_and(|run| run.index == index);
        let one = &self.slots[index];
        let Slot::Used(one) = one else { return Err(ReservationRefusal::Unknown(vp)) };
        let (until, waits) = match one.terms.share {
            Placement::Reserved(_) => (one.server.paid_at_latest(), true),
            Placement::BestEffort(_) => (0, runs),
        };
        self.admission.admit(vp, &terms, until, now, &self.config)?;
        let Some(one) = self.vp(index) else { return Err(ReservationRefusal::Unknown(vp)) };
        one.pending = Some(terms);
        if !waits {
            self.take_over(index, now);
        }
        Ok(())
    }

    /// Checks whether all of these terms, of virtual processors or of some that are to come, fit together when everything that changes has changed, without those in `gone`. The order does
    /// not matter, and the present terms of those that change do not, either.
    ///
    /// # Errors
    ///
    /// The place of the first that does not fit beside those before it, and why.
    pub fn fits(
        &self,
        gone: &[VpId],
        terms: &[(Option<VpId>, CpuTerms)],
    ) -> Result<(), (usize, ReservationRefusal)> {
        for (place, (_, terms)) in terms.iter().enumerate() {
            terms.check(&self.config).map_err(|refusal| (place, refusal))?;
        }
        self.admission.fits(gone, terms, &self.config)
    }

    /// Keeps room for other terms of `vp`, which [fit](Self::fits) when what others give up is free: no other one is promised that. Returns when it is free; a [change](Self::change) to these
    /// terms is admitted then. Until then the present terms hold.
    ///
    /// # Errors
    ///
    /// No virtual processor has this number, or the terms are outside their limits.
    pub fn pledge(&mut self, vp: VpId, terms: CpuTerms, now: Nanos) -> Result<Nanos, ReservationRefusal> {
        let now = self.pass(now);
        let index = self.find(vp).ok_or(ReservationRefusal::Unknown(vp))?;
        terms.check(&self.config)?;
        let Slot::Used(one) = &self.slots[index] else { return Err(ReservationRefusal::Unknown(vp)) };
        let until = match one.terms.share {
            Placement::Reserved(_) => one.server.paid_at_latest(),
            Placement::BestEffort(_) => 0,
        };
        let free = self.admission.pledge(vp, &terms, until, now);
        Ok(self.by_the_wall(free))
    }

    /// Ends `vp` and gives back all that it has used. What it was guaranteed can be promised to others when its present period has ended.
    ///
    /// # Errors
    ///
    /// It runs, or there is none such.
    pub fn close(&mut self, vp: VpId, now: Nanos) -> Result<Stats, ReservationRefusal> {
        let now = self.pass(now);
        let index = self.find(vp).ok_or(ReservationRefusal::Unknown(vp))?;
        if self.running.is_some_and(|run| run.index == index) {
            return Err(ReservationRefusal::Running(vp));
        }
        self.rest(index, now);
        let next = Slot::Free(vp.generation.wrapping_add(1));
        let Slot::Used(one) = std::mem::replace(&mut self.slots[index], next) else {
            return Err(ReservationRefusal::Unknown(vp));
        };
        self.free.push(vp.index);
        self.admission.release(vp, one.server.paid_at_latest());
        self.totals.add(&one.stats);
        Ok(one.stats)
    }

    /// There is work for `vp`. One that has some already, or that is running, is not disturbed; the latter has more to do then, however its
    /// run ends.
    ///
    /// # Errors
    ///
    /// There is none such.
    pub fn wake(&mut self, vp: VpId, now: Nanos) -> Result<(), ReservationRefusal> {
        let now = self.pass(now);
        let index = self.find(vp).ok_or(ReservationRefusal::Unknown(vp))?;
        if let Some(run) = self.running.as_mut().filter(|run| run.index == index) {
            run.woken = true;
            return Ok(());
        }
        let Some(one) = self.vp(index).filter(|one| !one.has_work) else { return Ok(()) };
        one.has_work = true;
        self.start(index, now);
        Ok(())
    }

    /// The work of `vp` has gone without having been done. One that is running says so by its outcome.
    ///
    /// # Errors
    ///
    /// There is none such.
    pub fn sleep(&mut self, vp: VpId, now: Nanos) -> Result<(), ReservationRefusal> {
        let now = self.pass(now);
        let index = self.find(vp).ok_or(ReservationRefusal::Unknown(vp))?;
        match self.running.as_mut().filter(|run| run.index == index) {
            Some(run) => run.woken = false,
            None => self.rest(index, now),
        }
        Ok(())
    }

    /// Who runs next, and for how long: of those with work and budget the one with the earliest deadline; where there is none, of those who
    /// share the rest the one that has had least of it by its weight. The same again until it has been charged.
    pub fn next(&mut self, now: Nanos) -> CpuDecision {
        let now = self.pass(now);
        if let Some(run) = self.running {
            return run.decision();
        }
        while let Some((end, index)) = self.waiting.peek()
            && end <= now
        {
            self.begin_period(index);
        }
        let (index, account) = if let Some((_, index)) = self.ready.peek() {
            (index, Charged::Reserved)
        } else if let Some(index) = self.fair.pick() {
            (index, Charged::Spare)
        } else {
            return CpuDecision::Idle { until: self.waiting.peek().map(|(end, _)| self.by_the_wall(end)) };
        };
        let blocking = self.config.blocking.0;
        let Some(one) = self.vp(index) else { return CpuDecision::Idle { until: None } };
        let most = blocking.saturating_sub(one.terms.overrun.0);
        let budget = match account {
            Charged::Reserved => one.server.budget().min(most),
            Charged::Spare => most,
        };
        let vp = VpId { index: u32::try_from(index).unwrap_or(u32::MAX), generation: one.generation };
        let run = Run { index, vp, budget, account, since: self.now, woken: false };
        self.running = Some(run);
        run.decision()
    }

    /// The run that [`Core::next`] decided on has ended, having had `used` of CPU time. Its wall time beyond that is counted as stolen and
    /// not billed. A run that measures as nothing still moves its virtual processor on by a nanosecond, or it might run for ever.
    ///
    /// # Errors
    ///
    /// Nothing was running.
    pub fn charge(&mut self, used: Nanos, now: Nanos, outcome: RunOutcome) -> Result<(), NotRunning> {
        let now = self.pass(now);
        let run = self.running.take().ok_or(NotRunning)?;
        let Run { index, .. } = run;
        let took = self.now - run.since;
        let Slot::Used(one) = &mut self.slots[index] else { return Err(NotRunning) };
        one.count(&run, used.0, took);
        let moved = used.0.max(1);
        match run.account {
            Charged::Reserved => one.server.spend(moved, now, self.lost, &mut one.stats),
            Charged::Spare => {
                let weight = one.terms.weight().map_or(1, super::Weight::get);
                self.fair.charge(index, &mut one.tag, moved, weight);
            }
        }
        if outcome == RunOutcome::Idle && !run.woken {
            self.rest(index, now);
        } else if run.account == Charged::Reserved && !one.server.has_budget() {
            self.ready.remove(index);
            self.place(index);
        }
        self.adopt_best_effort_change(index, now);
        Ok(())
    }

    /// Takes from `vp` what was spent for it elsewhere: it is missing in its slices as if it had been used here, or in its share of what is left. It is
    /// counted by itself, and not as time that it had. How much it can come to owe is what kind of [`Debt`] it is. Gives back what is beyond that, which
    /// nobody takes from it.
    ///
    /// # Errors
    ///
    /// There is none such.
    pub fn debit(
        &mut self,
        vp: VpId,
        used: Nanos,
        debt: Debt,
        now: Nanos,
    ) -> Result<Nanos, ReservationRefusal> {
        let now = self.pass(now);
        let index = self.find(vp).ok_or(ReservationRefusal::Unknown(vp))?;
        let (runs, lost, most) =
            (self.running.is_some_and(|run| run.index == index), self.lost, self.config.arrears.0);
        let Slot::Used(one) = &mut self.slots[index] else { return Err(ReservationRefusal::Unknown(vp)) };
        if !one.has_work {
            one.take_pending_if_over(now);
        }
        let left = match one.terms.share {
            Placement::Reserved(_) => one.server.debit(used.0, debt, one.has_work, now, lost, &mut one.stats),
            Placement::BestEffort(weight) => {
                let room = match debt {
                    Debt::Imposed => most.saturating_sub(self.fair.ahead(&one.tag, weight.get())),
                    Debt::Agreed => u64::MAX,
                };
                let taken = used.0.min(room);
                self.fair.charge(index, &mut one.tag, taken, weight.get());
                used.0 - taken
            }
        };
        one.stats.debited.0 = one.stats.debited.0.saturating_add(used.0 - left);
        one.stats.undebited.0 = one.stats.undebited.0.saturating_add(left);
        let is_over = matches!(one.terms.share, Placement::Reserved(_)) && !one.server.has_budget();
        if is_over && one.has_work && !runs && self.ready.contains(index) {
            self.ready.remove(index);
            self.place(index);
        }
        Ok(Nanos(left))
    }

    /// What `vp` has used.
    pub fn stats(&self, vp: VpId) -> Option<Stats> {
        let Slot::Used(one) = self.slots.get(self.find(vp)?)? else { return None };
        Some(one.stats)
    }

    /// What all have used since the beginning, those that have been closed included.
    pub fn totals(&self) -> Stats {
        let mut sum = self.totals;
        for slot in &self.slots {
            if let Slot::Used(one) = slot {
                sum.add(&one.stats);
            }
        }
        sum
    }

    /// The terms that `vp` has at present. What it was changed to shows when it takes effect.
    pub fn terms(&self, vp: VpId) -> Option<CpuTerms> {
        let Slot::Used(one) = self.slots.get(self.find(vp)?)? else { return None };
        Some(one.terms)
    }

    /// The present or last period of `vp`; `None` for best effort.
    pub fn period(&self, vp: VpId) -> Option<Period> {
        let Slot::Used(one) = self.slots.get(self.find(vp)?)? else { return None };
        let Placement::Reserved(reservation) = one.terms.share else { return None };
        let (end, left) = (one.server.end(), one.server.budget());
        let begin = end.saturating_sub(reservation.period.0);
        Some(Period { begin: self.by_the_wall(begin), end: self.by_the_wall(end), left: Nanos(left) })
    }

    /// How much of the core is promised.
    pub fn promised(&mut self, now: Nanos) -> Ppm {
        let now = self.pass(now);
        self.admission.promised(now)
    }

    /// What the core was told about itself.
    pub fn config(&self) -> &CoreConfig {
        &self.config
    }
}

impl Core {
    /// The time by the clock of reservations. It is set back here, before anything else happens, to where the first of them is late by no
    /// more than the arrears.
    fn pass(&mut self, now: Nanos) -> u64 {
        self.now = self.now.max(now.0);
        let now = self.now - self.lost;
        let first = [self.ready.peek(), self.waiting.peek()].into_iter().flatten().map(|(at, _)| at).min();
        let late = first.map_or(0, |first| now.saturating_sub(first));
        let lost = late.saturating_sub(self.config.arrears.0);
        self.lost += lost;
        now - lost
    }

    fn by_the_wall(&self, at: u64) -> Nanos {
        Nanos(at.saturating_add(self.lost))
    }

    fn find(&self, vp: VpId) -> Option<usize> {
        let index = vp.index as usize;
        match self.slots.get(index) {
            Some(Slot::Used(one)) if one.generation == vp.generation => Some(index),
            _ => None,
        }
    }

    fn vp(&mut self, index: usize) -> Option<&mut Vp> {
        match self.slots.get_mut(index) {
            Some(Slot::Used(one)) => Some(one),
            _ => None,
        }
    }

    /// It has work and had none, or is new under its terms.
    fn start(&mut self, index: usize, now: u64) {
        let lost = self.lost;
        let Some(one) = self.vp(index) else { return };
        if let Placement::Reserved(_) = one.terms.share {
            one.take_pending_if_over(now);
            if let Placement::Reserved(_) = one.terms.share {
                one.server.wake(now, lost, &mut one.stats);
            }
        }
        self.place(index);
    }

    /// Where one that has work and does not stand in `ready` belongs.
    fn place(&mut self, index: usize) {
        let Slot::Used(one) = &mut self.slots[index] else { return };
        let is_best_effort = matches!(one.terms.share, Placement::BestEffort(_));
        if !is_best_effort && one.server.has_budget() {
            self.fair.leave(index);
            self.ready.set(index, one.server.deadline());
            return;
        }
        if !is_best_effort {
            self.waiting.set(index, one.server.end());
        }
        match one.terms.weight() {
            Some(_) => self.fair.enter(index, &mut one.tag),
            None => self.fair.leave(index),
        }
    }

    /// It has no work.
    fn rest(&mut self, index: usize, now: u64) {
        self.ready.remove(index);
        self.waiting.remove(index);
        self.fair.leave(index);
        let lost = self.lost;
        let Some(one) = self.vp(index) else { return };
        if one.has_work {
            one.has_work = false;
            one.server.sleep(now, lost, &mut one.stats);
        }
    }

    /// The period for which it has been waiting.
    fn begin_period(&mut self, index: usize) {
        self.waiting.remove(index);
        let lost = self.lost;
        let Some(one) = self.vp(index) else { return };
        one.take_pending();
        if let Placement::Reserved(_) = one.terms.share {
            one.server.begin(lost, &mut one.stats);
        }
        self.place(index);
    }

    /// Changes of best effort wait for nothing but the end of a run.
    fn adopt_best_effort_change(&mut self, index: usize, now: u64) {
        let Some(one) = self.vp(index) else { return };
        if one.pending.is_some() && matches!(one.terms.share, Placement::BestEffort(_)) {
            self.take_over(index, now);
        }
    }

    fn take_over(&mut self, index: usize, now: u64) {
        let Some(one) = self.vp(index) else { return };
        one.take_pending();
        if one.has_work {
            self.fair.leave(index);
            self.start(index, now);
        }
    }
}

impl Vp {
    /// The terms that were waiting for the present period to end.
    fn take_pending(&mut self) {
        let Some(terms) = self.pending.take() else { return };
        self.terms = terms;
        if let Placement::Reserved(CpuReservation { period, slice, .. }) = terms.share {
            self.server.adopt(period.0, slice.0);
        }
    }

    /// The same where the present period has ended, or what was used in it is paid for.
    fn take_pending_if_over(&mut self, now: u64) {
        let is_reserved = matches!(self.terms.share, Placement::Reserved(_));
        if is_reserved && (self.server.is_paid(now) || self.server.end() <= now && self.pending.is_some()) {
            self.take_pending();
        }
    }

    fn count(&mut self, run: &Run, used: u64, took: u64) {
        let stats = &mut self.stats;
        stats.runs += 1;
        let account = match run.account {
            Charged::Reserved => &mut stats.reserved,
            Charged::Spare => &mut stats.spare,
        };
        account.0 = account.0.saturating_add(used);
        stats.stolen.0 = stats.stolen.0.saturating_add(took.saturating_sub(used));
        if let Some(over) = used.checked_sub(run.budget).filter(|over| *over > 0) {
            stats.overruns += 1;
            stats.overrun.0 = stats.overrun.0.saturating_add(over);
            stats.overrun_max.0 = stats.overrun_max.0.max(over);
        }
    }
}

impl Run {
    fn decision(&self) -> CpuDecision {
        CpuDecision::Run { vp: self.vp, budget: Nanos(self.budget), account: self.account }
    }
}
