//! Policies for the simulator: the scheduler, and one without guarantees to compare it with.

use weir_sched::cpu::trace::{TraceEvent, TracedCore};
use weir_sched::cpu::{
    CoreConfig, CpuDecision, CpuTerms, Debt, ReservationRefusal, RunAccount, RunOutcome, Stats, VcpuId,
};
use weir_units::Nanos;

/// A scheduling policy. Virtual CPUs are named by the identifiers that the scheduler under test assigns.
pub trait Policy {
    fn create(&mut self, terms: CpuTerms, now: Nanos) -> Result<VcpuId, ReservationRefusal>;
    fn change(&mut self, vp: VcpuId, terms: CpuTerms, now: Nanos) -> Result<(), ReservationRefusal>;
    fn close(&mut self, vp: VcpuId, now: Nanos) -> Stats;
    fn wake(&mut self, vp: VcpuId, now: Nanos);
    fn next(&mut self, now: Nanos) -> CpuDecision;
    fn charge(&mut self, used: Nanos, now: Nanos, outcome: RunOutcome);
    /// Debits work done on other threads. Returns the part that was debited.
    fn debit(&mut self, vp: VcpuId, used: Nanos, debt: Debt, now: Nanos) -> Nanos;
    fn stats(&self, vp: VcpuId) -> Stats;
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
    fn change(&mut self, vp: VcpuId, terms: CpuTerms, now: Nanos) -> Result<(), ReservationRefusal> {
        self.core.change(vp, terms, now)
    }
    fn close(&mut self, vp: VcpuId, now: Nanos) -> Stats {
        self.core.close(vp, now).expect("it is there and does not run")
    }
    fn wake(&mut self, vp: VcpuId, now: Nanos) {
        self.core.wake(vp, now).expect("it is there");
    }
    fn next(&mut self, now: Nanos) -> CpuDecision {
        self.core.next(now)
    }
    fn charge(&mut self, used: Nanos, now: Nanos, outcome: RunOutcome) {
        self.core.charge(used, now, outcome).expect("it runs");
    }
    fn debit(&mut self, vp: VcpuId, used: Nanos, debt: Debt, now: Nanos) -> Nanos {
        Nanos(used.0 - self.core.debit(vp, used, debt, now).expect("it is there").0)
    }
    fn stats(&self, vp: VcpuId) -> Stats {
        self.core.core().stats(vp).expect("it is there")
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
    fn change(&mut self, vp: VcpuId, terms: CpuTerms, now: Nanos) -> Result<(), ReservationRefusal> {
        self.admits.change(vp, terms, now)
    }
    fn close(&mut self, vp: VcpuId, now: Nanos) -> Stats {
        self.awake.retain(|one| *one != vp);
        self.admits.close(vp, now)
    }
    fn wake(&mut self, vp: VcpuId, _: Nanos) {
        if !self.awake.contains(&vp) {
            self.awake.push_back(vp);
        }
    }
    fn next(&mut self, _: Nanos) -> CpuDecision {
        match self.awake.front() {
            Some(&vp) => CpuDecision::Run { vp, budget: self.blocking_max, account: RunAccount::Spare },
            None => CpuDecision::Idle { until: None },
        }
    }
    fn charge(&mut self, _: Nanos, _: Nanos, outcome: RunOutcome) {
        let ran = self.awake.pop_front().expect("it runs");
        if outcome != RunOutcome::Idle {
            self.awake.push_back(ran);
        }
    }
    fn debit(&mut self, _: VcpuId, _: Nanos, _: Debt, _: Nanos) -> Nanos {
        Nanos(0)
    }
    fn stats(&self, vp: VcpuId) -> Stats {
        self.admits.stats(vp)
    }
    fn totals(&self) -> Stats {
        self.admits.totals()
    }
}
