//! The guarantees of virtual CPUs, in simulated time, which the machine's load cannot disturb.

mod guarantee;
mod joint_changes;
mod overload;
mod policy;
mod random;
mod scenarios;
mod simulator;

use guarantee::broken;
use policy::{Real, RoundRobin};
use proptest::prelude::*;
use simulator::{Outcome, Plan, Simulator};
use std::cell::RefCell;
use std::rc::Rc;
use weir_sched::cpu::trace::{CpuReplayError, TraceEvent, first_line, replay};
use weir_sched::cpu::{CoreConfig, CpuReservation, Ppm, Stats};
use weir_units::Nanos;

/// Full cores with every disturbance that the guarantee allows.
fn plans() -> impl Strategy<Value = Plan> {
    let core = (20_000..150_000_u64, 500_000..980_000_u32);
    (any::<u64>(), core, 1..12_u64, 0..4_u64, any::<bool>(), any::<bool>(), 0..=100_u64).prop_map(
        |(seed, (blocking_max, cap), reserved, best_effort, steady, debits, taken)| Plan {
            seed,
            config: CoreConfig { blocking_max: Nanos(blocking_max), cap: Ppm(cap), ..CoreConfig::default() },
            blocking_max,
            taken,
            reserved,
            best_effort,
            steady,
            debits,
            duration: 300_000_000,
        },
    )
}

fn plan(seed: u64) -> Plan {
    Plan {
        seed,
        config: CoreConfig::default(),
        blocking_max: 100_000,
        taken: 100,
        reserved: 8,
        best_effort: 2,
        steady: true,
        debits: false,
        duration: 300_000_000,
    }
}

fn simulated(plan: Plan) -> Outcome {
    Simulator::run(plan, &mut Real::new(plan.config, |_| ()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_virtual_cpu_gets_its_guarantee(plan in plans()) {
        let out = simulated(plan);
        let broken = broken(&plan, &out);
        prop_assert!(broken.is_empty(), "{} broken: {:#?}", broken.len(), &broken[..broken.len().min(5)]);
        prop_assert_eq!(out.totals.periods_missed, 0, "the scheduler's own count");
    }

    #[test]
    fn every_nanosecond_is_charged_to_one_account(plan in plans(), taken in 0..1000_u64) {
        let plan = Plan { taken, ..plan };
        let out = simulated(plan);
        let got: u64 = out.lives.iter().map(|life| life.got.iter().map(|(from, to, _)| to - from).sum::<u64>()).sum();
        let runs: usize = out.lives.iter().map(|life| life.got.len()).sum();
        prop_assert_eq!(out.totals.used(), Nanos(got));
        prop_assert_eq!(out.totals.runs, runs as u64);
        prop_assert_eq!(out.totals.stolen, Nanos(out.stolen_in_runs), "stolen time is billed to no virtual CPU");
        let sum = |of: fn(&Stats) -> u64| out.stats.iter().map(of).sum::<u64>();
        prop_assert_eq!(out.totals.reserved.0, sum(|stats| stats.reserved.0));
        prop_assert_eq!(out.totals.spare.0, sum(|stats| stats.spare.0));
        prop_assert_eq!(out.totals.periods, sum(|stats| stats.periods));
        prop_assert_eq!(out.totals.overruns, sum(|stats| stats.overruns));
        prop_assert!(out.stats.iter().all(|stats| stats.periods_served + stats.periods_missed <= stats.periods));
    }

    #[test]
    fn a_recorded_run_replays_to_the_same_decisions(plan in plans()) {
        let plan = Plan { duration: 30_000_000, best_effort: plan.best_effort.max(1), ..plan };
        let lines = Rc::new(RefCell::new(vec![first_line(&plan.config)]));
        let sink = { let lines = Rc::clone(&lines); move |event: TraceEvent| lines.borrow_mut().push(event.to_string()) };
        let mut policy = Real::new(plan.config, sink);
        let out = Simulator::run(plan, &mut policy);
        let mut lines = lines.borrow().clone();
        let core = replay(lines.iter().map(String::as_str)).expect("it replays");
        prop_assert_eq!(core.totals(), out.totals);
        // A changed decision is detected at its line.
        let place = lines.iter().rposition(|line| line.contains("-> run")).expect("a virtual CPU ran");
        lines[place].push('0');
        let replayed = replay(lines.iter().map(String::as_str));
        prop_assert_eq!(replayed.map(|core| core.totals()), Err(CpuReplayError::Unreadable { line: place + 1 }));
        lines[place].pop();
        lines[place] = lines[place].replace("-> run ", "-> run 9");
        let replayed = replay(lines.iter().map(String::as_str));
        let is_there = matches!(replayed, Err(CpuReplayError::Diverged { line, .. }) if line == place + 1);
        prop_assert!(is_there);
    }
}

/// Returns true if one of some runs breaks a guarantee.
fn breaks(run: impl Fn(u64) -> Vec<String>) -> bool {
    (0..20).any(|seed| !run(seed).is_empty())
}

#[test]
fn without_the_scheduler_the_guarantees_are_broken() {
    assert!(!breaks(|seed| broken(&plan(seed), &simulated(plan(seed)))));
    assert!(breaks(|seed| {
        let mut turns = RoundRobin::new(plan(seed).config);
        broken(&plan(seed), &Simulator::run(plan(seed), &mut turns))
    }));
}

#[test]
fn a_core_configured_without_its_blocking_breaks_its_guarantees() {
    assert!(breaks(|seed| {
        let config = CoreConfig { blocking_max: Nanos(10_000), ..plan(seed).config };
        let plan = Plan { config, blocking_max: 400_000, ..plan(seed) };
        broken(&plan, &simulated(Plan { config, ..plan }))
    }));
}

#[test]
fn when_more_is_stolen_than_was_kept_back_all_lose_the_same_part_and_it_is_counted() {
    for seed in 0..20 {
        let plan = Plan { taken: 2000, duration: 3_000_000_000, ..plan(seed) };
        let out = simulated(plan);
        let reserved = || out.lives.iter().filter_map(|life| Some((life, life.reservation()?)));
        let promised = |reservation: &CpuReservation| {
            reservation.slice.0 as f64 / reservation.period.0 as f64 * out.now as f64
        };
        let parts: Vec<f64> =
            reserved().map(|(life, terms)| life.within(0, out.now) as f64 / promised(&terms)).collect();
        let least = parts.iter().copied().fold(f64::INFINITY, f64::min);
        let most = parts.iter().copied().fold(0.0, f64::max);
        assert!(most < 0.8 && most - least < 0.02, "{parts:?}");
        // Forfeited time is counted, except for `lateness_max` and the present periods.
        let all: f64 = reserved().map(|(_, terms)| promised(&terms)).sum();
        let counted = (out.totals.reserved.0 + out.totals.forfeited.0) as f64;
        assert!((all - counted).abs() / all < 0.02, "{counted} of {all}");
        assert!(out.totals.periods_missed > out.totals.periods / 2);
    }
}

#[test]
fn a_late_slice_is_given_all_the_same_and_its_period_is_counted_as_missed() {
    let mut missed = 0;
    for seed in 0..40 {
        let plan = Plan { taken: 300 + seed * 20, ..plan(seed) };
        let out = simulated(plan);
        if out.totals.forfeited.0 > 0 {
            continue;
        }
        for (life, stats) in out.lives.iter().zip(&out.stats) {
            let Some(CpuReservation { period, slice, .. }) = life.reservation() else { continue };
            // The scheduler does not know when in a run time was stolen, so it may count a slice as late that came
            // just in time.
            let late = |before: u64| {
                let is_late = |n: &u64| life.until(n * period.0 - before) < n * slice.0;
                (1..=out.now / period.0).filter(is_late).count() as u64
            };
            // A slice that is late at the end of the simulation is counted only when it is provided.
            let open = plan.config.lateness_max.0 / period.0 + 1;
            let (least, most) = (late(0).saturating_sub(open), late(300_000));
            assert!((least..=most).contains(&stats.periods_missed), "{least} <= {stats:?} <= {most}");
            missed += stats.periods_missed;
        }
    }
    assert!(missed > 0, "nothing was late in any of them");
}
