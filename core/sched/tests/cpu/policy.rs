//! Policies for the simulator: the scheduler, and one without guarantees to compare it with.

use weir_sched::cpu::trace::{TraceEvent, TracedCore};
use weir_sched::cpu::{
    CoreConfig, CpuDecision, CpuTerms, DebitKind, ReservationRefusal, RunAccount, RunOutcome, Stats, VcpuId,
};
use weir_units::Nanos;

/// A scheduling policy. Virtual CPUs are named by the identifiers that the scheduler under test assigns.
pub trait Policy {
    fn create(&mut self, terms: CpuTerms, now: Nanos) -> Result<VcpuId, ReservationRefusal>;
    fn change(&mut self, vcpu_id: VcpuId, terms: CpuTerms, now: Nanos) -> Result<(), ReservationRefusal>;
    fn close(&mut self, vcpu_id: VcpuId, now: Nanos) -> Stats;
    fn wake(&mut self, vcpu_id: VcpuId, now: Nanos);
    fn next(&mut self, now: Nanos) -> CpuDecision;
    fn charge(&mut self, used: Nanos, now: Nanos, outcome: RunOutcome);
    /// Debits work done on other threads. Returns the part that was debited.
    fn debit(&mut self, vcpu_id: VcpuId, used: Nanos, kind: DebitKind, now: Nanos) -> Nanos;
    fn stats(&self, vcpu_id: VcpuId) -> Stats;
    fn totals(&self) -> Stats;
}

/// The scheduler under test, with a trace of its inputs.
pub struct Real {
    pub core: TracedCore<Box<dyn FnMut(TraceEvent)>>,
}

impl Real {
    pub fn new(config: CoreConfig, sink: impl FnMut(TraceEvent) + 'static) -> Real {
        Real { core: TracedCore::new(config, Box::new(sink)) }
    }
}

impl Policy for Real {
    fn create(&mut self, terms: CpuTerms, now: Nanos) -> Result<VcpuId, ReservationRefusal> {
        self.core.create(terms, now)
    }
    fn change(&mut self, vcpu_id: VcpuId, terms: CpuTerms, now: Nanos) -> Result<(), ReservationRefusal> {
        self.core.change(vcpu_id, terms, now)
    }
    fn close(&mut self, vcpu_id: VcpuId, now: Nanos) -> Stats {
        self.core.close(vcpu_id, now).expect("it is there and does not run")
    }
    fn wake(&mut self, vcpu_id: VcpuId, now: Nanos) {
        self.core.wake(vcpu_id, now).expect("it is there");
    }
    fn next(&mut self, now: Nanos) -> CpuDecision {
        self.core.next(now)
    }
    fn charge(&mut self, used: Nanos, now: Nanos, outcome: RunOutcome) {
        self.core.charge(used, now, outcome).expect("it runs");
    }
    fn debit(&mut self, vcpu_id: VcpuId, used: Nanos, kind: DebitKind, now: Nanos) -> Nanos {
        Nanos(used.0 - self.core.debit(vcpu_id, used, kind, now).expect("it is there").0)
    }
    fn stats(&self, vcpu_id: VcpuId) -> Stats {
        self.core.core().stats(vcpu_id).expect("it is there")
    }
    fn totals(&self) -> Stats {
        self.core.core().totals()
    }
}

/// Admits like the scheduler, and then runs all virtual CPUs with work in turn, without guarantees.
pub struct RoundRobin {
    admits: Real,
    blocking_max: Nanos,
    awake: std::collections::VecDeque<VcpuId>,
}

impl RoundRobin {
    pub fn new(config: CoreConfig) -> RoundRobin {
        RoundRobin {
            admits: Real::new(config, |_| ()),
            blocking_max: config.blocking_max,
            awake: Default::default(),
        }
    }
}

impl Policy for RoundRobin {
    fn create(&mut self, terms: CpuTerms, now: Nanos) -> Result<VcpuId, ReservationRefusal> {
        self.admits.create(terms, now)
    }
    fn change(&mut self, vcpu_id: VcpuId, terms: CpuTerms, now: Nanos) -> Result<(), ReservationRefusal> {
        self.admits.change(vcpu_id, terms, now)
    }
    fn close(&mut self, vcpu_id: VcpuId, now: Nanos) -> Stats {
        self.awake.retain(|one| *one != vcpu_id);
        self.admits.close(vcpu_id, now)
    }
    fn wake(&mut self, vcpu_id: VcpuId, _: Nanos) {
        if !self.awake.contains(&vcpu_id) {
            self.awake.push_back(vcpu_id);
        }
    }
    fn next(&mut self, _: Nanos) -> CpuDecision {
        match self.awake.front() {
            Some(&vcpu_id) => {
                CpuDecision::Run { vcpu_id, budget: self.blocking_max, account: RunAccount::Spare }
            }
            None => CpuDecision::Idle { until: None },
        }
    }
    fn charge(&mut self, _: Nanos, _: Nanos, outcome: RunOutcome) {
        let ran = self.awake.pop_front().expect("it runs");
        if outcome != RunOutcome::Idle {
            self.awake.push_back(ran);
        }
    }
    fn debit(&mut self, _: VcpuId, _: Nanos, _: DebitKind, _: Nanos) -> Nanos {
        Nanos(0)
    }
    fn stats(&self, vcpu_id: VcpuId) -> Stats {
        self.admits.stats(vcpu_id)
    }
    fn totals(&self) -> Stats {
        self.admits.totals()
    }
}
