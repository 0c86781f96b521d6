//! The scheduler of one pinned core: it creates, changes and closes virtual CPUs, and decides which of them runs.

use super::admission::CoreAdmission;
use super::fair::{FairQueue, Tag};
use super::reservation::{
    CoreConfig, CpuAllocation, CpuReservation, CpuTerms, DebitKind, Ppm, ReservationRefusal, VCPUS_MAX,
    VcpuId,
};
use super::server::Server;
use super::stats::Stats;
use crate::heap::Heap;
use weir_units::Nanos;

/// The account that a run is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunAccount {
    /// The virtual CPU's guaranteed slice.
    Reserved,
    /// Time that is not reserved, or reserved and not used.
    Spare,
}

/// The next action of the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuDecision {
    /// Run `vcpu_id` for at most `budget` of CPU time, and then [`CoreScheduler::charge`] it.
    Run {
        /// The virtual CPU to run.
        vcpu_id: VcpuId,
        /// The CPU time to run for. The budget and the overrun that the virtual CPU's terms allow are together at
        /// most [`CoreConfig::blocking_max`].
        budget: Nanos,
        /// The account that the run is charged to.
        account: RunAccount,
    },
    /// No virtual CPU may run before `until`. If `until` is `None`, the core idles until a virtual CPU is woken.
    Idle {
        /// The start of the next period for which a virtual CPU with work is waiting.
        until: Option<Nanos>,
    },
}

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// The virtual CPU has more work.
    Ready,
    /// A call was suspended at the end of its budget, and is to be resumed.
    Suspended,
    /// The virtual CPU has no work until it is woken.
    Idle,
}

/// A period of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// The start of the period.
    pub begin: Nanos,
    /// The end of the period. It is in the past if the slice was not provided in time, or if the virtual CPU has had no
    /// work since then.
    pub end: Nanos,
    /// The part of the period's slice, in CPU time, that is not used yet.
    pub slice_left: Nanos,
}

/// The error that no run is in progress that could be charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing runs on this core")]
pub struct NotRunning;

/// A virtual CPU.
#[derive(Clone, Debug)]
struct Vcpu {
    generation: u32,
    terms: CpuTerms,
    /// Terms that take effect with the next period.
    pending: Option<CpuTerms>,
    server: Server,
    tag: Tag,
    stats: Stats,
    has_work: bool,
}

/// A run in progress: [`CoreScheduler::next`] decided on it, and it has not been charged yet.
#[derive(Clone, Copy, Debug)]
struct Run {
    index: usize,
    vcpu_id: VcpuId,
    budget: u64,
    account: RunAccount,
    /// The wall time at which the run started.
    since: u64,
    /// True if the virtual CPU was woken during the run.
    has_new_work: bool,
}

/// A slot of the table of virtual CPUs.
#[derive(Clone, Debug)]
enum Slot {
    Used(Box<Vcpu>),
    /// The generation of the next virtual CPU in this slot.
    Free(u32),
}

/// The scheduler of the virtual CPUs of one core.
///
/// `now` is wall time on one clock that all calls share. A time before that of the previous call counts as that of the
/// previous call. CPU time is the time for which the thread really had the CPU; time stolen by the hypervisor is part
/// of wall time only. Calls come from the core's own thread, in the order [`CoreScheduler::next`], the run,
/// [`CoreScheduler::charge`], with the other calls in between.
#[derive(Clone, Debug)]
pub struct CoreScheduler {
    config: CoreConfig,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Virtual CPUs with work and budget, by deadline.
    ready: Heap<u64>,
    /// Virtual CPUs with work and no budget, by the start of their next period.
    waiting: Heap<u64>,
    /// Virtual CPUs with work that share unreserved time.
    fair: FairQueue,
    running: Option<Run>,
    admission: CoreAdmission,
    /// The counters of virtual CPUs that were closed.
    totals: Stats,
    /// The latest wall time passed by the caller.
    now: u64,
    /// The time by which the reservation clock lags wall time. The reservation clock is set back when slices are later
    /// than [`CoreConfig::lateness_max`]; all reservations then forfeit this time. Deadlines are on the reservation
    /// clock.
    set_back: u64,
}

impl CoreScheduler {
    /// Creates a core without virtual CPUs. A cap above 100 % counts as 100 %.
    pub fn new(config: CoreConfig) -> CoreScheduler {
        CoreScheduler {
            config: CoreConfig { cap: config.cap.min(Ppm::ONE), ..config },
            slots: Vec::new(),
            free: Vec::new(),
            ready: Heap::default(),
            waiting: Heap::default(),
            fair: FairQueue::default(),
            running: None,
            admission: CoreAdmission::new(),
            totals: Stats::default(),
            now: 0,
            set_back: 0,
        }
    }

    /// Admits a virtual CPU. It has no work until it is woken.
    ///
    /// # Errors
    ///
    /// [`ReservationRefusal`] if the terms cannot be admitted; the core is unchanged then.
    pub fn create(&mut self, terms: CpuTerms, now: Nanos) -> Result<VcpuId, ReservationRefusal> {
        let now = self.advance(now);
        terms.check(&self.config)?;
        let place = self.free.last().map_or(self.slots.len(), |&index| index as usize);
        let generation = match self.slots.get(place) {
            Some(Slot::Free(generation)) => *generation,
            _ => 0,
        };
        let Some(index) = u32::try_from(place).ok().filter(|_| place < VCPUS_MAX) else {
            return Err(ReservationRefusal::TooMany);
        };
        let id = VcpuId { index, generation };
        self.admission.admit(id, &terms, 0, now, &self.config)?;
        let server = match terms.share {
            CpuAllocation::Reserved(CpuReservation { period, slice, .. }) => Server::new(period.0, slice.0),
            CpuAllocation::BestEffort(_) => Server::new(1, 1),
        };
        let slot = Slot::Used(Box::new(Vcpu {
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
        Ok(id)
    }

    /// Changes the terms of `id`. The old terms of a reservation hold until its present period ends. Until then
    /// the admission of other virtual CPUs counts the larger utilisation and the shorter period of old and new terms.
    ///
    /// # Errors
    ///
    /// [`ReservationRefusal`] if the terms cannot be admitted; the old terms stay in force then.
    pub fn change(&mut self, id: VcpuId, terms: CpuTerms, now: Nanos) -> Result<(), ReservationRefusal> {
        let now = self.advance(now);
        let index = self.find(id).ok_or(ReservationRefusal::Unknown(id))?;
        terms.check(&self.config)?;
        let is_running = self.running.is_some_and(|run| run.index == index);
        let vcpu = &self.slots[index];
        let Slot::Used(vcpu) = vcpu else { return Err(ReservationRefusal::Unknown(id)) };
        let (until, must_wait) = match vcpu.terms.share {
            CpuAllocation::Reserved(_) => (vcpu.server.fully_paid_at(), true),
            CpuAllocation::BestEffort(_) => (0, is_running),
        };
        self.admission.admit(id, &terms, until, now, &self.config)?;
        let Some(vcpu) = self.vcpu_mut(index) else { return Err(ReservationRefusal::Unknown(id)) };
        vcpu.pending = Some(terms);
        if !must_wait {
            self.apply_pending(index, now);
        }
        Ok(())
    }

    /// Checks that all of these terms fit together once all changes have taken effect and the virtual CPUs in `closed`
    /// are gone. Terms without an identifier are those of a virtual CPU to be created. The result does not depend on
    /// the order of the terms, or on the present terms of the virtual CPUs that change.
    ///
    /// # Errors
    ///
    /// The index of the first terms that do not fit together with the terms before them, and the reason.
    pub fn fits(
        &self,
        closed: &[VcpuId],
        terms: &[(Option<VcpuId>, CpuTerms)],
    ) -> Result<(), (usize, ReservationRefusal)> {
        for (place, (_, terms)) in terms.iter().enumerate() {
            terms.check(&self.config).map_err(|refusal| (place, refusal))?;
        }
        self.admission.fits(closed, terms, &self.config)
    }

    /// Reserves a later change of `id` to terms that [fit](Self::fits) once others have released theirs. Returns the
    /// time from which the [change](Self::change) to these terms is admitted. Until then the present terms hold.
    ///
    /// # Errors
    ///
    /// [`ReservationRefusal`] if there is no such virtual CPU, or the terms are out of range.
    pub fn reserve_change(
        &mut self,
        id: VcpuId,
        terms: CpuTerms,
        now: Nanos,
    ) -> Result<Nanos, ReservationRefusal> {
        let now = self.advance(now);
        let index = self.find(id).ok_or(ReservationRefusal::Unknown(id))?;
        terms.check(&self.config)?;
        let Slot::Used(vcpu) = &self.slots[index] else { return Err(ReservationRefusal::Unknown(id)) };
        let until = match vcpu.terms.share {
            CpuAllocation::Reserved(_) => vcpu.server.fully_paid_at(),
            CpuAllocation::BestEffort(_) => 0,
        };
        let free = self.admission.reserve_change(id, &terms, until, now);
        Ok(self.wall_time(free))
    }

    /// Closes `id` and returns its counters. Its reservation becomes free when its present period has ended.
    ///
    /// # Errors
    ///
    /// [`ReservationRefusal::Running`] if `id` is running, [`ReservationRefusal::Unknown`] if there is no such virtual
    /// CPU.
    pub fn close(&mut self, id: VcpuId, now: Nanos) -> Result<Stats, ReservationRefusal> {
        let now = self.advance(now);
        let index = self.find(id).ok_or(ReservationRefusal::Unknown(id))?;
        if self.running.is_some_and(|run| run.index == index) {
            return Err(ReservationRefusal::Running(id));
        }
        self.stop_work(index, now);
        let next = Slot::Free(id.generation.wrapping_add(1));
        let Slot::Used(vcpu) = std::mem::replace(&mut self.slots[index], next) else {
            return Err(ReservationRefusal::Unknown(id));
        };
        self.free.push(id.index);
        self.admission.release(id, vcpu.server.fully_paid_at());
        self.totals.add(&vcpu.stats);
        Ok(vcpu.stats)
    }

    /// Reports work for `id`. This has no effect if `id` has work already. If `id` is running, it has work after the
    /// run, whatever the outcome.
    ///
    /// # Errors
    ///
    /// [`ReservationRefusal::Unknown`] if there is no such virtual CPU.
    pub fn wake(&mut self, id: VcpuId, now: Nanos) -> Result<(), ReservationRefusal> {
        let now = self.advance(now);
        let index = self.find(id).ok_or(ReservationRefusal::Unknown(id))?;
        if let Some(run) = self.running.as_mut().filter(|run| run.index == index) {
            run.has_new_work = true;
            return Ok(());
        }
        let Some(vcpu) = self.vcpu_mut(index).filter(|vcpu| !vcpu.has_work) else { return Ok(()) };
        vcpu.has_work = true;
        self.start_work(index, now);
        Ok(())
    }

    /// Reports that `id` has no work any more, although it has not run. If `id` is running, this call only withdraws a
    /// [wake-up](Self::wake) during the run; the outcome of the run reports whether `id` has work.
    ///
    /// # Errors
    ///
    /// [`ReservationRefusal::Unknown`] if there is no such virtual CPU.
    pub fn sleep(&mut self, id: VcpuId, now: Nanos) -> Result<(), ReservationRefusal> {
        let now = self.advance(now);
        let index = self.find(id).ok_or(ReservationRefusal::Unknown(id))?;
        match self.running.as_mut().filter(|run| run.index == index) {
            Some(run) => run.has_new_work = false,
            None => self.stop_work(index, now),
        }
        Ok(())
    }

    /// Decides on the next run. Of the virtual CPUs with work and budget, the one with the earliest deadline runs. If
    /// there is none, unreserved time goes to the virtual CPU that has used the least of it by its weight. The decision
    /// stays the same until it is charged.
    pub fn next(&mut self, now: Nanos) -> CpuDecision {
        let now = self.advance(now);
        if let Some(run) = self.running {
            return run.decision();
        }
        while let Some((end, index)) = self.waiting.peek()
            && end <= now
        {
            self.begin_period(index);
        }
        let (index, account) = if let Some((_, index)) = self.ready.peek() {
            (index, RunAccount::Reserved)
        } else if let Some(index) = self.fair.pick() {
            (index, RunAccount::Spare)
        } else {
            return CpuDecision::Idle { until: self.waiting.peek().map(|(end, _)| self.wall_time(end)) };
        };
        let blocking_max = self.config.blocking_max.0;
        let Some(vcpu) = self.vcpu_mut(index) else { return CpuDecision::Idle { until: None } };
        let budget_max = blocking_max.saturating_sub(vcpu.terms.overrun.0);
        let budget = match account {
            RunAccount::Reserved => vcpu.server.budget().min(budget_max),
            RunAccount::Spare => budget_max,
        };
        let vcpu_id = VcpuId { index: u32::try_from(index).unwrap_or(u32::MAX), generation: vcpu.generation };
        let run = Run { index, vcpu_id, budget, account, since: self.now, has_new_work: false };
        self.running = Some(run);
        run.decision()
    }

    /// Charges the run that [`CoreScheduler::next`] decided on with `used` CPU time. The rest of its wall time counts
    /// as stolen and is not charged. A run of zero measured time counts as a nanosecond for scheduling, because
    /// otherwise its virtual CPU could run for ever.
    ///
    /// # Errors
    ///
    /// [`NotRunning`] if no run is in progress.
    pub fn charge(&mut self, used: Nanos, now: Nanos, outcome: RunOutcome) -> Result<(), NotRunning> {
        let now = self.advance(now);
        let run = self.running.take().ok_or(NotRunning)?;
        let Run { index, .. } = run;
        let wall_time = self.now - run.since;
        let Slot::Used(vcpu) = &mut self.slots[index] else { return Err(NotRunning) };
        vcpu.count_run(&run, used.0, wall_time);
        let charged = used.0.max(1);
        match run.account {
            RunAccount::Reserved => vcpu.server.spend(charged, now, self.set_back, &mut vcpu.stats),
            RunAccount::Spare => {
                let weight = vcpu.terms.weight().map_or(1, super::Weight::get);
                self.fair.charge(index, &mut vcpu.tag, charged, weight);
            }
        }
        if outcome == RunOutcome::Idle && !run.has_new_work {
            self.stop_work(index, now);
        } else if run.account == RunAccount::Reserved && !vcpu.server.has_budget() {
            self.ready.remove(index);
            self.enqueue(index);
        }
        self.apply_pending_of_best_effort(index, now);
        Ok(())
    }

    /// Debits `used`, which was spent for `id` on another thread, from its slices, or from its share of unreserved
    /// time. The time is counted separately from the CPU time of this core. [`DebitKind`] limits how far the balance
    /// can go below zero. Returns the part beyond that limit, which is not debited.
    ///
    /// # Errors
    ///
    /// [`ReservationRefusal::Unknown`] if there is no such virtual CPU.
    pub fn debit(
        &mut self,
        id: VcpuId,
        used: Nanos,
        kind: DebitKind,
        now: Nanos,
    ) -> Result<Nanos, ReservationRefusal> {
        let now = self.advance(now);
        let index = self.find(id).ok_or(ReservationRefusal::Unknown(id))?;
        let (is_running, set_back, lateness_max) =
            (self.running.is_some_and(|run| run.index == index), self.set_back, self.config.lateness_max.0);
        let Slot::Used(vcpu) = &mut self.slots[index] else { return Err(ReservationRefusal::Unknown(id)) };
        if !vcpu.has_work {
            vcpu.apply_pending_if_period_over(now);
        }
        let undebited = match vcpu.terms.share {
            CpuAllocation::Reserved(_) => {
                vcpu.server.debit(used.0, kind, vcpu.has_work, now, set_back, &mut vcpu.stats)
            }
            CpuAllocation::BestEffort(weight) => {
                let debit_max = match kind {
                    DebitKind::Unrequested => {
                        lateness_max.saturating_sub(self.fair.ahead(&vcpu.tag, weight.get()))
                    }
                    DebitKind::Requested => u64::MAX,
                };
                let debited = used.0.min(debit_max);
                self.fair.charge(index, &mut vcpu.tag, debited, weight.get());
                used.0 - debited
            }
        };
        vcpu.stats.debited.0 = vcpu.stats.debited.0.saturating_add(used.0 - undebited);
        vcpu.stats.undebited.0 = vcpu.stats.undebited.0.saturating_add(undebited);
        let is_over = matches!(vcpu.terms.share, CpuAllocation::Reserved(_)) && !vcpu.server.has_budget();
        if is_over && vcpu.has_work && !is_running && self.ready.contains(index) {
            self.ready.remove(index);
            self.enqueue(index);
        }
        Ok(Nanos(undebited))
    }

    /// The counters of `id`.
    pub fn stats(&self, id: VcpuId) -> Option<Stats> {
        let Slot::Used(vcpu) = self.slots.get(self.find(id)?)? else { return None };
        Some(vcpu.stats)
    }

    /// The sum of the counters of all virtual CPUs, closed ones included.
    pub fn totals(&self) -> Stats {
        let mut sum = self.totals;
        for slot in &self.slots {
            if let Slot::Used(vcpu) = slot {
                sum.add(&vcpu.stats);
            }
        }
        sum
    }

    /// The present terms of `id`. A change shows once it takes effect.
    pub fn terms(&self, id: VcpuId) -> Option<CpuTerms> {
        let Slot::Used(vcpu) = self.slots.get(self.find(id)?)? else { return None };
        Some(vcpu.terms)
    }

    /// The present or last period of `id`; `None` for best effort.
    pub fn period(&self, id: VcpuId) -> Option<Period> {
        let Slot::Used(vcpu) = self.slots.get(self.find(id)?)? else { return None };
        let CpuAllocation::Reserved(reservation) = vcpu.terms.share else { return None };
        let (end, slice_left) = (vcpu.server.end(), vcpu.server.budget());
        let begin = end.saturating_sub(reservation.period.0);
        Some(Period { begin: self.wall_time(begin), end: self.wall_time(end), slice_left: Nanos(slice_left) })
    }

    /// The reserved part of the core.
    pub fn reserved_share(&mut self, now: Nanos) -> Ppm {
        let now = self.advance(now);
        self.admission.reserved_share(now)
    }

    /// The configuration of the core.
    pub fn config(&self) -> &CoreConfig {
        &self.config
    }
}

impl CoreScheduler {
    /// Advances to `now` and returns the time on the reservation clock. If the earliest deadline passed more than
    /// [`CoreConfig::lateness_max`] ago, the reservation clock is set back, so that by its time the deadline passed
    /// exactly `lateness_max` ago.
    fn advance(&mut self, now: Nanos) -> u64 {
        self.now = self.now.max(now.0);
        let now = self.now - self.set_back;
        let earliest = [self.ready.peek(), self.waiting.peek()].into_iter().flatten().map(|(at, _)| at).min();
        let lateness = earliest.map_or(0, |earliest| now.saturating_sub(earliest));
        let set_back = lateness.saturating_sub(self.config.lateness_max.0);
        self.set_back += set_back;
        now - set_back
    }

    /// Converts a time on the reservation clock to wall time.
    fn wall_time(&self, at: u64) -> Nanos {
        Nanos(at.saturating_add(self.set_back))
    }

    fn find(&self, id: VcpuId) -> Option<usize> {
        let index = id.index as usize;
        match self.slots.get(index) {
            Some(Slot::Used(vcpu)) if vcpu.generation == id.generation => Some(index),
            _ => None,
        }
    }

    fn vcpu_mut(&mut self, index: usize) -> Option<&mut Vcpu> {
        match self.slots.get_mut(index) {
            Some(Slot::Used(vcpu)) => Some(vcpu),
            _ => None,
        }
    }

    /// Handles new work, or new terms, of a virtual CPU with work.
    fn start_work(&mut self, index: usize, now: u64) {
        let set_back = self.set_back;
        let Some(vcpu) = self.vcpu_mut(index) else { return };
        if let CpuAllocation::Reserved(_) = vcpu.terms.share {
            vcpu.apply_pending_if_period_over(now);
            if let CpuAllocation::Reserved(_) = vcpu.terms.share {
                vcpu.server.wake(now, set_back, &mut vcpu.stats);
            }
        }
        self.enqueue(index);
    }

    /// Puts a virtual CPU with work, which is not in `ready`, into the queue where it belongs.
    fn enqueue(&mut self, index: usize) {
        let Slot::Used(vcpu) = &mut self.slots[index] else { return };
        let is_best_effort = matches!(vcpu.terms.share, CpuAllocation::BestEffort(_));
        if !is_best_effort && vcpu.server.has_budget() {
            self.fair.leave(index);
            self.ready.set(index, vcpu.server.deadline());
            return;
        }
        if !is_best_effort {
            self.waiting.set(index, vcpu.server.end());
        }
        match vcpu.terms.weight() {
            Some(_) => self.fair.enter(index, &mut vcpu.tag),
            None => self.fair.leave(index),
        }
    }

    /// Handles the end of a virtual CPU's work: takes it out of all queues.
    fn stop_work(&mut self, index: usize, now: u64) {
        self.ready.remove(index);
        self.waiting.remove(index);
        self.fair.leave(index);
        let set_back = self.set_back;
        let Some(vcpu) = self.vcpu_mut(index) else { return };
        if vcpu.has_work {
            vcpu.has_work = false;
            vcpu.server.sleep(now, set_back, &mut vcpu.stats);
        }
    }

    /// Starts the period that a virtual CPU has been waiting for.
    fn begin_period(&mut self, index: usize) {
        self.waiting.remove(index);
        let set_back = self.set_back;
        let Some(vcpu) = self.vcpu_mut(index) else { return };
        vcpu.apply_pending();
        if let CpuAllocation::Reserved(_) = vcpu.terms.share {
            vcpu.server.begin(set_back, &mut vcpu.stats);
        }
        self.enqueue(index);
    }

    /// Applies the pending terms of a best-effort virtual CPU, which wait only for the end of a run.
    fn apply_pending_of_best_effort(&mut self, index: usize, now: u64) {
        let Some(vcpu) = self.vcpu_mut(index) else { return };
        if vcpu.pending.is_some() && matches!(vcpu.terms.share, CpuAllocation::BestEffort(_)) {
            self.apply_pending(index, now);
        }
    }

    /// Applies the pending terms of a virtual CPU, and puts it into the queues of the new terms.
    fn apply_pending(&mut self, index: usize, now: u64) {
        let Some(vcpu) = self.vcpu_mut(index) else { return };
        vcpu.apply_pending();
        if vcpu.has_work {
            self.fair.leave(index);
            self.start_work(index, now);
        }
    }
}

impl Vcpu {
    /// Applies the pending terms.
    fn apply_pending(&mut self) {
        let Some(terms) = self.pending.take() else { return };
        self.terms = terms;
        if let CpuAllocation::Reserved(CpuReservation { period, slice, .. }) = terms.share {
            self.server.set_terms(period.0, slice.0);
        }
    }

    /// Applies the pending terms if the present period has ended, or if its use is paid for (see [`super::server`]).
    fn apply_pending_if_period_over(&mut self, now: u64) {
        let is_reserved = matches!(self.terms.share, CpuAllocation::Reserved(_));
        if is_reserved && (self.server.is_paid(now) || self.server.end() <= now && self.pending.is_some()) {
            self.apply_pending();
        }
    }

    /// Counts a run that used `used` of CPU time in `wall_time`.
    fn count_run(&mut self, run: &Run, used: u64, wall_time: u64) {
        let stats = &mut self.stats;
        stats.runs += 1;
        let account = match run.account {
            RunAccount::Reserved => &mut stats.reserved,
            RunAccount::Spare => &mut stats.spare,
        };
        account.0 = account.0.saturating_add(used);
        stats.stolen.0 = stats.stolen.0.saturating_add(wall_time.saturating_sub(used));
        if let Some(over) = used.checked_sub(run.budget).filter(|over| *over > 0) {
            stats.overruns += 1;
            stats.overrun.0 = stats.overrun.0.saturating_add(over);
            stats.overrun_max.0 = stats.overrun_max.0.max(over);
        }
    }
}

impl Run {
    fn decision(&self) -> CpuDecision {
        CpuDecision::Run { vcpu_id: self.vcpu_id, budget: Nanos(self.budget), account: self.account }
    }
}
