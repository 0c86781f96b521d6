//! Virtual processors that change together: terms that fit together are admitted, if only after a while.

use proptest::prelude::*;
use std::cell::RefCell;
use std::rc::Rc;
use weir_sched::cpu::trace::{TraceEvent, Traced, head, replay};
use weir_sched::cpu::{
    CoreConfig, CpuDecision, CpuReservation, CpuTerms, Placement, ReservationRefusal, RunOutcome, VpId,
    Weight,
};
use weir_units::Nanos;

fn terms() -> impl Strategy<Value = CpuTerms> {
    let reserved = (1..40u64, 1..60u64, 0..20_000u64).prop_map(|(period, percent, overrun)| {
        let (period, slice) = (period * 1_000_000, period * 10_000 * percent);
        let reservation = CpuReservation { period: Nanos(period), slice: Nanos(slice), spare: None };
        CpuTerms { share: Placement::Reserved(reservation), overrun: Nanos(overrun) }
    });
    let best_effort = CpuTerms { share: Placement::BestEffort(Weight::USUAL), overrun: Nanos(0) };
    prop_oneof![5 => reserved, 1 => Just(best_effort)]
}

/// The fate of a virtual processor: it stays, changes, gives up its reservation, or is closed before the others change.
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

/// Runs the next virtual processor for all of its budget.
fn step(core: &mut Traced<impl FnMut(TraceEvent)>, now: &mut Nanos) {
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
    fn what_fits_in_the_end_is_admitted_and_no_other_one_gets_it(
        present in prop::collection::vec((terms(), fate()), 1..8),
        new in prop::collection::vec(terms(), 0..4),
        greedy in terms(),
        runs in 0..50_000_000u64,
    ) {
        let config = CoreConfig::default();
        let lines = Rc::new(RefCell::new(vec![head(&config)]));
        let sink = Rc::clone(&lines);
        let mut core = Traced::new(config, move |event| sink.borrow_mut().push(event.to_string()));
        let mut there: Vec<(VpId, Fate)> = Vec::new();
        for (terms, fate) in present {
            there.extend(core.create(terms, Nanos(0)).ok().map(|vp| (vp, fate)));
        }
        for (vp, _) in &there {
            core.wake(*vp, Nanos(0)).unwrap();
        }
        let mut now = Nanos(0);
        while now.0 < runs {
            step(&mut core, &mut now);
        }
        let closed = there.iter().filter(|(_, fate)| matches!(fate, Fate::Closes));
        for (vp, _) in closed.collect::<Vec<_>>() {
            core.close(*vp, now).unwrap();
        }
        let spare = CpuTerms { share: Placement::BestEffort(Weight::USUAL), overrun: Nanos(0) };
        let gone: Vec<VpId> =
            there.iter().filter(|(_, fate)| matches!(fate, Fate::Yields)).map(|(vp, _)| *vp).collect();
        let changes = there.iter().filter_map(|(vp, fate)| match fate {
            Fate::Changes(terms) => Some((Some(*vp), *terms)),
            _ => None,
        });
        let wanted: Vec<(Option<VpId>, CpuTerms)> = changes.chain(new.into_iter().map(|it| (None, it))).collect();
        prop_assume!(core.core().fits(&gone, &wanted).is_ok());
        for vp in gone {
            core.change(vp, spare, now).unwrap();
        }
        let mut pledged = Vec::new();
        for (vp, terms) in wanted {
            let vp = vp.unwrap_or_else(|| core.create(spare, now).unwrap());
            match core.change(vp, terms, now) {
                Ok(()) => {}
                Err(ReservationRefusal::NoRoom { .. }) => pledged.push((core.pledge(vp, terms, now).unwrap(), vp, terms)),
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
        // Another one that takes as much as it can get has no effect on pledged terms.
        let greedy = core.create(greedy, now).ok();
        let mut steps = 0;
        while !pledged.is_empty() {
            steps += 1;
            prop_assert!(steps < 100_000, "{pledged:?} are not admitted, greedy: {greedy:?}");
            step(&mut core, &mut now);
            pledged.retain(|(at, vp, terms)| now < *at || core.change(*vp, *terms, now).is_err());
        }
        let lines = lines.borrow();
        prop_assert!(replay(lines.iter().map(String::as_str)).is_ok());
    }
}
