//! Named situations of a core in which virtual CPUs always have work and use all of their budget.

use std::collections::BTreeMap;
use weir_sched::cpu::{
    CoreConfig, CoreScheduler, CpuAllocation, CpuDecision, CpuReservation, CpuTerms, DebitKind, PoolDepth,
    Pools, Ppm, ReservationRefusal, RunAccount, RunOutcome, VcpuId, VcpuWork, Weight,
};
use weir_units::Nanos;

const MS: u64 = 1_000_000;

/// A core with a clock, and the CPU time that each virtual CPU received.
struct Machine {
    core: CoreScheduler,
    now: u64,
    got: BTreeMap<VcpuId, u64>,
}

impl Machine {
    fn new(config: CoreConfig) -> Machine {
        Machine { core: CoreScheduler::new(config), now: 0, got: BTreeMap::new() }
    }

    fn create(&mut self, terms: CpuTerms) -> Result<VcpuId, ReservationRefusal> {
        let vcpu_id = self.core.create(terms, Nanos(self.now))?;
        self.core.wake(vcpu_id, Nanos(self.now))?;
        Ok(vcpu_id)
    }

    /// Runs until `end`; each virtual CPU uses its budget, but at most `piece` per run. Returns the time that each
    /// received.
    fn run_until(&mut self, end: u64, piece: u64) -> BTreeMap<VcpuId, u64> {
        let before = self.got.clone();
        while self.now < end {
            match self.core.next(Nanos(self.now)) {
                CpuDecision::Run { vcpu_id, budget, .. } => {
                    let used = budget.0.min(piece).min(end - self.now);
                    self.now += used;
                    *self.got.entry(vcpu_id).or_default() += used;
                    self.core.charge(Nanos(used), Nanos(self.now), RunOutcome::Ready).unwrap();
                }
                CpuDecision::Idle { until } => self.now = until.map_or(end, |until| until.0.min(end)),
            }
        }
        self.got.iter().map(|(vcpu_id, got)| (*vcpu_id, got - before.get(vcpu_id).unwrap_or(&0))).collect()
    }
}

fn reserved(period: u64, slice: u64) -> CpuTerms {
    let share =
        CpuAllocation::Reserved(CpuReservation { period: Nanos(period), slice: Nanos(slice), spare: None });
    CpuTerms { share, overrun: Nanos(0) }
}

fn taking_spare(period: u64, slice: u64, weight: u32) -> CpuTerms {
    let spare = Weight::new(weight);
    let share = CpuAllocation::Reserved(CpuReservation { period: Nanos(period), slice: Nanos(slice), spare });
    CpuTerms { share, overrun: Nanos(0) }
}

fn best_effort(weight: u32) -> CpuTerms {
    CpuTerms { share: CpuAllocation::BestEffort(Weight::new(weight).unwrap()), overrun: Nanos(0) }
}

/// Figure 11 of "The price of safety in an active network".
#[test]
fn four_reservations_get_their_shares_in_every_period_and_best_effort_gets_the_rest() {
    let mut machine = Machine::new(CoreConfig::default());
    let a = machine.create(best_effort(100)).unwrap();
    let mut shares = Vec::new();
    for percent in [10, 20, 30] {
        machine.run_until(machine.now + 3000 * MS, 20_000);
        shares.push((machine.create(reserved(4 * MS, 4 * MS * percent / 100)).unwrap(), percent));
    }
    for _ in 0..750 {
        let got = machine.run_until(machine.now + 4 * MS, 20_000);
        for (vcpu_id, percent) in &shares {
            assert_eq!(got[vcpu_id], 4 * MS * percent / 100, "{percent} %");
        }
        assert_eq!(got[&a], 4 * MS * 40 / 100);
    }
    let stats = machine.core.totals();
    assert_eq!((stats.periods_missed, stats.overruns, stats.stolen), (0, 0, Nanos(0)));
}

#[test]
fn a_share_is_changed_while_it_runs_and_holds_from_the_next_period_on() {
    let mut machine = Machine::new(CoreConfig { blocking_max: Nanos(50_000), ..CoreConfig::default() });
    let rest = machine.create(best_effort(1)).unwrap();
    let other = machine.create(reserved(6 * MS, 6 * MS / 5)).unwrap();
    let vcpu_id = machine.create(reserved(6 * MS, 6 * MS / 4)).unwrap();
    let mut percent = 25;
    for next in [45, 65, 25, 25] {
        for _ in 0..10 {
            let got = machine.run_until(machine.now + 6 * MS, 20_000);
            assert_eq!((got[&vcpu_id], got[&other]), (6 * MS * percent / 100, 6 * MS / 5));
            assert_eq!(got[&rest], 6 * MS * (80 - percent) / 100);
        }
        // In the middle of a period, the old slice is still provided.
        let first = machine.run_until(machine.now + MS, 20_000)[&vcpu_id];
        let terms = reserved(6 * MS, 6 * MS * next / 100);
        machine.core.change(vcpu_id, terms, Nanos(machine.now)).unwrap();
        let is_in_force = machine.core.terms(vcpu_id) == Some(terms);
        assert_eq!(is_in_force, next == percent, "not before the next period");
        let second = machine.run_until(machine.now + 5 * MS, 20_000)[&vcpu_id];
        assert_eq!(first + second, 6 * MS * percent / 100);
        percent = next;
    }
    let too_much = machine.core.change(vcpu_id, reserved(6 * MS, 6 * MS * 7 / 10), Nanos(machine.now));
    let Err(ReservationRefusal::NoRoom { largest, .. }) = too_much else { panic!("{too_much:?}") };
    // The limit is 90 % less 20 %, less a blocking of 50 us in 6 ms.
    assert!(largest.0.abs_diff(6 * MS * 7 / 10 - 50_000) <= 1, "{largest}");
    assert_eq!(machine.core.terms(vcpu_id), Some(reserved(6 * MS, 6 * MS / 4)), "a refusal changes nothing");
    machine.core.change(vcpu_id, best_effort(3), Nanos(machine.now)).unwrap();
    machine.run_until(machine.now + 6 * MS, 20_000);
    let got = machine.run_until(machine.now + 600 * MS, 20_000);
    assert!(got[&vcpu_id].abs_diff(3 * got[&rest]) < 200_000, "{got:?}");
    machine.core.change(vcpu_id, reserved(6 * MS, 3 * MS), Nanos(machine.now)).unwrap();
    assert_eq!(
        machine.run_until(machine.now + 60 * MS, 20_000)[&vcpu_id],
        30 * MS,
        "at once, from best effort"
    );
}

#[test]
fn a_closed_reservation_is_free_when_its_period_has_ended() {
    let mut machine = Machine::new(CoreConfig::default());
    let vcpu_id = machine.create(reserved(10 * MS, 5 * MS)).unwrap();
    machine.run_until(5 * MS, 100_000);
    let stats = machine.core.close(vcpu_id, Nanos(5 * MS)).unwrap();
    assert_eq!((stats.reserved, stats.periods, stats.periods_served), (Nanos(5 * MS), 1, 1));
    machine.now = 10 * MS - 1;
    assert!(matches!(machine.create(reserved(10 * MS, 5 * MS)), Err(ReservationRefusal::NoRoom { .. })));
    machine.now = 10 * MS;
    let next = machine.create(reserved(10 * MS, 5 * MS)).unwrap();
    assert_ne!(vcpu_id, next);
    assert_eq!(machine.core.wake(vcpu_id, Nanos(machine.now)), Err(ReservationRefusal::Unknown(vcpu_id)));
    assert_eq!(machine.core.close(vcpu_id, Nanos(machine.now)), Err(ReservationRefusal::Unknown(vcpu_id)));
    assert_eq!(machine.core.totals().reserved, Nanos(5 * MS), "what it used stays counted");
}

#[test]
fn idle_time_gives_no_credit_and_running_alone_costs_nothing_later() {
    let mut machine = Machine::new(CoreConfig::default());
    let first = machine.create(best_effort(100)).unwrap();
    let greedy = machine.create(taking_spare(10 * MS, MS, 100)).unwrap();
    machine.run_until(1000 * MS, 100_000);
    let new = machine.create(best_effort(200)).unwrap();
    let got = machine.run_until(1400 * MS, 100_000);
    // 10 % of 400 ms are reserved; the rest is divided into a quarter, a quarter and half.
    let expected = [(first, 90), (greedy, 40 + 90), (new, 180)];
    for (vcpu_id, ms) in expected {
        assert!(got[&vcpu_id].abs_diff(ms * MS) <= 300_000, "{vcpu_id}: {} and not {ms} ms", got[&vcpu_id]);
    }
    // A virtual CPU that ran ahead on an idle core still gets its slice in each period when others come.
    machine.core.sleep(first, Nanos(machine.now)).unwrap();
    machine.core.sleep(new, Nanos(machine.now)).unwrap();
    machine.run_until(2000 * MS, 100_000);
    let other = machine.create(reserved(10 * MS, 8 * MS - 200_000)).unwrap();
    for _ in 0..10 {
        let got = machine.run_until(machine.now + 10 * MS, 100_000);
        assert_eq!(got[&other], 8 * MS - 200_000);
        assert!(got[&greedy] >= MS, "{got:?}");
    }
    assert_eq!(machine.core.totals().periods_missed, 0);
}

#[test]
fn a_virtual_cpu_that_wakes_up_late_in_its_period_does_not_delay_another() {
    let mut machine = Machine::new(CoreConfig { blocking_max: Nanos(400_000), ..CoreConfig::default() });
    let slow = machine.create(reserved(10 * MS, 4_050_000)).unwrap();
    let fast = machine.core.create(reserved(MS, 450_000), Nanos(0)).unwrap();
    let rest = machine.core.create(best_effort(1), Nanos(0)).unwrap();
    // It sleeps with 360 us of its slice left. It wakes up 900 us before the end of its period, just after a
    // non-preemptible run has started.
    machine.run_until(3_690_000, 400_000);
    machine.core.sleep(slow, Nanos(machine.now)).unwrap();
    machine.core.wake(rest, Nanos(machine.now)).unwrap();
    machine.run_until(9_100_000, 400_000);
    let decision = machine.core.next(Nanos(machine.now));
    assert_eq!(
        decision,
        CpuDecision::Run { vcpu_id: rest, budget: Nanos(400_000), account: RunAccount::Spare }
    );
    machine.core.wake(slow, Nanos(machine.now)).unwrap();
    machine.core.wake(fast, Nanos(machine.now)).unwrap();
    assert_eq!(machine.core.next(Nanos(machine.now)), decision, "the same until it is charged");
    machine.now += 400_000;
    machine.core.charge(Nanos(400_000), Nanos(machine.now), RunOutcome::Ready).unwrap();
    let got = machine.run_until(10_100_000, 400_000);
    assert_eq!(got[&fast], 450_000);
}

#[test]
fn work_that_comes_while_a_run_ends_is_not_forgotten() {
    let mut machine = Machine::new(CoreConfig::default());
    let vcpu_id = machine.create(reserved(10 * MS, MS)).unwrap();
    let run = CpuDecision::Run { vcpu_id, budget: Nanos(100_000), account: RunAccount::Reserved };
    assert_eq!(machine.core.next(Nanos(0)), run);
    assert_eq!(machine.core.close(vcpu_id, Nanos(0)), Err(ReservationRefusal::Running(vcpu_id)));
    machine.core.wake(vcpu_id, Nanos(1000)).unwrap();
    machine.core.charge(Nanos(100_000), Nanos(150_000), RunOutcome::Idle).unwrap();
    assert_eq!(machine.core.next(Nanos(150_000)), run);
    machine.core.charge(Nanos(100_000), Nanos(250_000), RunOutcome::Idle).unwrap();
    assert_eq!(machine.core.next(Nanos(250_000)), CpuDecision::Idle { until: None });
    assert!(machine.core.charge(Nanos(1), Nanos(250_000), RunOutcome::Idle).is_err(), "nothing runs");
    let stats = machine.core.stats(vcpu_id).unwrap();
    assert_eq!((stats.reserved, stats.stolen, stats.runs), (Nanos(200_000), Nanos(50_000), 2));
}

#[test]
fn a_refusal_of_terms_states_the_reason() {
    let mut machine =
        Machine::new(CoreConfig { blocking_max: Nanos(1000), cap: Ppm::ONE, ..CoreConfig::default() });
    let mut refusal = |terms| machine.create(terms).unwrap_err().to_string();
    assert_eq!(
        refusal(reserved(4 * MS, 4 * MS)),
        "4 ms in each 4 ms is more than this core has left; the largest slice in that period is 3.999 ms"
    );
    assert_eq!(refusal(reserved(MS, 0)), "a slice of 0 ns does not fit into a period of 1 ms");
    assert_eq!(refusal(reserved(MS, MS + 1)), "a slice of 1.000001 ms does not fit into a period of 1 ms");
    assert_eq!(
        refusal(reserved(0, 0)),
        "a period of 0 ns cannot be reserved; a period is longer than 0 ns and at most 60 s"
    );
    assert_eq!(
        refusal(CpuTerms { overrun: Nanos(1000), ..reserved(MS, 1) }),
        "an overrun of 1 us does not fit into the blocking time of 1 us"
    );
}

#[test]
fn an_overrun_of_any_size_is_paid_back_and_disturbs_others_only_briefly() {
    let mut machine = Machine::new(CoreConfig::default());
    let (bad, good) =
        (machine.create(reserved(4 * MS, MS)).unwrap(), machine.create(reserved(4 * MS, MS)).unwrap());
    let CpuDecision::Run { vcpu_id, .. } = machine.core.next(Nanos(0)) else {
        panic!("a virtual CPU has work")
    };
    assert_eq!(vcpu_id, bad);
    // One run that took fifty slices.
    machine.core.charge(Nanos(50 * MS), Nanos(50 * MS), RunOutcome::Ready).unwrap();
    machine.now = 50 * MS;
    let got = machine.run_until(202 * MS, 100_000);
    assert_eq!(got.get(&bad), None, "it has used all of its slices until 200 ms and more");
    assert!(got[&good] >= 37 * MS, "{got:?}");
    // The reservation clock was set back by 36 ms: 50 ms, less the first period, less the 10 ms of `lateness_max`. So
    // the debt is paid at 236 ms.
    let got = machine.run_until(402 * MS, 100_000);
    assert!(got[&good] >= 49 * MS && (41 * MS..=42 * MS).contains(&got[&bad]), "{got:?}");
    let stats = machine.core.stats(bad).unwrap();
    assert_eq!((stats.overruns, stats.overrun_max), (1, Nanos(50 * MS - 100_000)));
}

#[test]
fn a_call_that_is_longer_than_its_slice_is_resumed_in_the_next_period_and_holds_up_only_its_own_pool() {
    let mut core = CoreScheduler::new(CoreConfig::default());
    let vcpu_id = core.create(reserved(10 * MS, MS), Nanos(0)).unwrap();
    let mut pools = Pools::default();
    let (calls, packets) =
        (PoolDepth { events: 4, concurrency: 1 }, PoolDepth { events: 100, concurrency: 1 });
    let (calls, packets) = (pools.open(calls).unwrap(), pools.open(packets).unwrap());
    // A call that needs 2.5 ms, another one behind it, and 20 batches that need 50 us each.
    pools.push(calls, 2_500_000_u64).unwrap();
    pools.push(calls, 1000).unwrap();
    (0..20).for_each(|_| pools.push(packets, 50_000).unwrap());
    core.wake(vcpu_id, Nanos(0)).unwrap();
    let (mut now, mut rest, mut done) = (0, BTreeMap::new(), Vec::new());
    while pools.has_work() {
        let budget = match core.next(Nanos(now)) {
            CpuDecision::Run { budget, .. } => budget.0,
            CpuDecision::Idle { until } => {
                now = until.unwrap().0;
                continue;
            }
        };
        let thread = match pools.take().unwrap() {
            VcpuWork::Begin { thread, event } => {
                assert_eq!(rest.insert(thread, event), None, "no event is on a thread that is in use");
                thread
            }
            VcpuWork::Resume(thread) => thread,
        };
        let left = rest.get_mut(&thread).unwrap();
        let used = budget.min(*left);
        *left -= used;
        now += used;
        let outcome = if *left > 0 {
            assert!(pools.suspend(thread, Nanos(used)));
            RunOutcome::Suspended
        } else {
            rest.remove(&thread);
            done.push((thread.pool, now));
            assert!(pools.done(thread, Nanos(used)));
            if pools.has_work() { RunOutcome::Ready } else { RunOutcome::Idle }
        };
        core.charge(Nanos(used), Nanos(now), outcome).unwrap();
    }
    let ends =
        |pool| done.iter().filter(|(of, _)| *of == pool).map(|(_, at)| (at - 1) / MS).collect::<Vec<_>>();
    // 3.501 ms at 1 ms in 10 ms; the batches get their half from the beginning.
    assert_eq!(ends(calls), [30, 30]);
    let batches = ends(packets);
    assert_eq!((batches.len(), batches[0], batches[9], batches[19]), (20, 0, 0, 10));
    assert_eq!(core.stats(vcpu_id).unwrap().reserved, Nanos(3_501_000));
}

#[test]
fn after_a_standstill_a_core_continues_with_its_guarantees() {
    let mut machine = Machine::new(CoreConfig::default());
    let busy = machine.create(reserved(4 * MS, MS)).unwrap();
    let quiet = machine.core.create(reserved(4 * MS, 2 * MS), Nanos(0)).unwrap();
    machine.run_until(101 * MS, 100_000);
    machine.now += 1000 * MS;
    machine.core.wake(quiet, Nanos(machine.now)).unwrap();
    let period = machine.core.period(quiet).unwrap();
    assert_eq!((period.begin, period.end), (Nanos(1101 * MS), Nanos(1105 * MS)));
    // The late slices of one virtual CPU come first, 10 ms at most; then all have had their slices.
    let got = machine.run_until(machine.now + 40 * MS, 100_000);
    assert_eq!(got[&quiet], 20 * MS);
    assert!((12 * MS..=13 * MS).contains(&got[&busy]), "{got:?}");
    // Of that second, all but 10 ms was too late to be provided, plus half a period at each end.
    let stats = machine.core.stats(busy).unwrap();
    assert!(stats.forfeited.0.abs_diff(250 * MS) < 4 * MS, "{stats:?}");
    assert!(stats.periods_missed.abs_diff(250) <= 4, "{stats:?}");
    assert!(machine.core.stats(quiet).unwrap().periods_missed <= 3);
}

#[test]
fn work_done_for_one_virtual_cpu_is_debited_from_its_next_slices_only() {
    let mut machine = Machine::new(CoreConfig::default());
    let (a, b) = (
        machine.create(reserved(10 * MS, 2 * MS)).unwrap(),
        machine.create(reserved(10 * MS, 2 * MS)).unwrap(),
    );
    let rest = machine.create(best_effort(100)).unwrap();
    machine.run_until(10 * MS, 20_000);
    // Five milliseconds of work for `a`: two slices and a half.
    machine.core.debit(a, Nanos(5 * MS), DebitKind::Requested, Nanos(machine.now)).unwrap();
    let periods: Vec<_> = (0..4).map(|_| machine.run_until(machine.now + 10 * MS, 20_000)).collect();
    let had = |vcpu_id| periods.iter().map(|got| got[&vcpu_id]).collect::<Vec<_>>();
    assert_eq!(had(a).iter().sum::<u64>(), 3 * MS, "{:?}", had(a));
    assert_eq!(had(b), [2 * MS; 4]);
    assert_eq!(had(rest).iter().sum::<u64>(), 40 * MS - 8 * MS - 3 * MS);
    // The debit is not billed as CPU time of this core.
    assert_eq!(machine.core.stats(a).unwrap().used(), Nanos(machine.got[&a]));
    // A best-effort virtual CPU falls behind the others by the debit.
    let mut machine = Machine::new(CoreConfig::default());
    let (c, d) = (machine.create(best_effort(100)).unwrap(), machine.create(best_effort(100)).unwrap());
    machine.core.debit(c, Nanos(4 * MS), DebitKind::Requested, Nanos(0)).unwrap();
    let got = machine.run_until(20 * MS, 20_000);
    let apart = got[&d].abs_diff(got[&c] + 4 * MS);
    assert!(apart <= 2 * 20_000, "{got:?}");
    machine.core.close(d, Nanos(machine.now)).unwrap();
    let debit = machine.core.debit(d, Nanos(1), DebitKind::Requested, Nanos(machine.now));
    assert_eq!(debit, Err(ReservationRefusal::Unknown(d)));
}

#[test]
fn virtual_cpus_with_work_use_the_whole_core_and_those_without_never_run() {
    let mut machine = Machine::new(CoreConfig { cap: Ppm(950_000), ..CoreConfig::default() });
    let terms = |number: u64| {
        let spare = Weight::new(100).filter(|_| number.is_multiple_of(2));
        let (period, slice) = (Nanos(10 * MS + number * 7919 % (10 * MS)), Nanos(10 * MS / 1010 * 9 / 10));
        CpuTerms {
            share: CpuAllocation::Reserved(CpuReservation { period, slice, spare }),
            overrun: Nanos(0),
        }
    };
    let busy: Vec<VcpuId> = (0..10).map(|number| machine.create(terms(number)).unwrap()).collect();
    let idle: Vec<VcpuId> =
        (10..1010).map(|number| machine.core.create(terms(number), Nanos(0)).unwrap()).collect();
    machine.run_until(2_000 * MS, 100_000);
    let totals = machine.core.totals();
    assert_eq!((totals.used(), totals.periods_missed), (Nanos(machine.now), 0));
    let ran = |vcpu_id: &VcpuId| machine.core.stats(*vcpu_id).unwrap().runs > 0;
    assert!(busy.iter().all(ran) && !idle.iter().any(ran));
}
