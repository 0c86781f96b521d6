//! Virtual CPUs that change together: terms that fit together are admitted, possibly after a while.

use proptest::prelude::*;
use std::cell::RefCell;
use std::rc::Rc;
use weir_sched::cpu::trace::{TraceEvent, TracedCore, first_line, replay};
use weir_sched::cpu::{
    CoreConfig, CpuAllocation, CpuDecision, CpuReservation, CpuTerms, ReservationRefusal, RunOutcome, VcpuId,
    Weight,
};
use weir_units::Nanos;

fn terms() -> impl Strategy<Value = CpuTerms> {
    let reserved = (1..40u64, 1..60u64, 0..20_000u64).prop_map(|(period, percent, overrun)| {
        let (period, slice) = (period * 1_000_000, period * 10_000 * percent);
        let reservation = CpuReservation { period: Nanos(period), slice: Nanos(slice), spare: None };
        CpuTerms { share: CpuAllocation::Reserved(reservation), overrun: Nanos(overrun) }
    });
    let best_effort = CpuTerms { share: CpuAllocation::BestEffort(Weight::USUAL), overrun: Nanos(0) };
    prop_oneof![5 => reserved, 1 => Just(best_effort)]
}

/// The change of a virtual CPU: it keeps its terms, changes them, gives up its reservation, or is closed before the
/// others change.
#[derive(Clone, Debug)]
enum Fate {
    Stays,
    Changes(CpuTerms),
    Yields,
    Closes,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        2 => Just(Fate::Stays),
        4 => terms().prop_map(Fate::Changes),
        1 => Just(Fate::Yields),
        1 => Just(Fate::Closes),
    ]
}

/// Runs the next virtual CPU for its whole budget.
fn step(core: &mut TracedCore<impl FnMut(TraceEvent)>, now: &mut Nanos) {
    match core.next(*now) {
        CpuDecision::Run { budget, .. } => {
            now.0 += budget.0;
            core.charge(budget, *now, RunOutcome::Ready).unwrap();
        }
        CpuDecision::Idle { until } => {
            now.0 = until.map_or(now.0 + 1_000_000, |until| until.0.max(now.0 + 1))
        }
    }
}

proptest! {
    #[test]
    fn terms_that_fit_together_are_admitted_and_kept_from_others(
        present in prop::collection::vec((terms(), fate()), 1..8),
        new in prop::collection::vec(terms(), 0..4),
        greedy in terms(),
        runs in 0..50_000_000u64,
    ) {
        let config = CoreConfig::default();
        let lines = Rc::new(RefCell::new(vec![first_line(&config)]));
        let sink = Rc::clone(&lines);
        let mut core = TracedCore::new(config, move |event| sink.borrow_mut().push(event.to_string()));
        let mut there: Vec<(VcpuId, Fate)> = Vec::new();
        for (terms, fate) in present {
            there.extend(core.create(terms, Nanos(0)).ok().map(|vcpu_id| (vcpu_id, fate)));
        }
        for (vcpu_id, _) in &there {
            core.wake(*vcpu_id, Nanos(0)).unwrap();
        }
        let mut now = Nanos(0);
        while now.0 < runs {
            step(&mut core, &mut now);
        }
        let closed = there.iter().filter(|(_, fate)| matches!(fate, Fate::Closes));
        for (vcpu_id, _) in closed.collect::<Vec<_>>() {
            core.close(*vcpu_id, now).unwrap();
        }
        let spare = CpuTerms { share: CpuAllocation::BestEffort(Weight::USUAL), overrun: Nanos(0) };
        let gone: Vec<VcpuId> =
            there.iter().filter(|(_, fate)| matches!(fate, Fate::Yields)).map(|(vcpu_id, _)| *vcpu_id).collect();
        let changes = there.iter().filter_map(|(vcpu_id, fate)| match fate {
            Fate::Changes(terms) => Some((Some(*vcpu_id), *terms)),
            _ => None,
        });
        let wanted: Vec<(Option<VcpuId>, CpuTerms)> = changes.chain(new.into_iter().map(|it| (None, it))).collect();
        prop_assume!(core.core().fits(&gone, &wanted).is_ok());
        for vcpu_id in gone {
            core.change(vcpu_id, spare, now).unwrap();
        }
        let mut reserved_changes = Vec::new();
        for (vcpu_id, terms) in wanted {
            let vcpu_id = vcpu_id.unwrap_or_else(|| core.create(spare, now).unwrap());
            match core.change(vcpu_id, terms, now) {
                Ok(()) => {}
                Err(ReservationRefusal::NoRoom { .. }) => reserved_changes.push((core.reserve_change(vcpu_id, terms, now).unwrap(), vcpu_id, terms)),
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
        // A newcomer that takes all that is free has no effect on reserved changes.
        let greedy = core.create(greedy, now).ok();
        let mut steps = 0;
        while !reserved_changes.is_empty() {
            steps += 1;
            prop_assert!(steps < 100_000, "{reserved_changes:?} are not admitted, greedy: {greedy:?}");
            step(&mut core, &mut now);
            reserved_changes.retain(|(at, vcpu_id, terms)| now < *at || core.change(*vcpu_id, *terms, now).is_err());
        }
        let lines = lines.borrow();
        prop_assert!(replay(lines.iter().map(String::as_str)).is_ok());
    }
}
