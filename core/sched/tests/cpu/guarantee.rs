//! The guarantees, compared with the CPU time that each virtual CPU received. The scheduler's own state and counters
//! are not used.

use crate::cpu::random::Random;
use crate::cpu::simulator::{Life, Outcome, Plan};
use weir_sched::cpu::{DebitKind, Weight};

/// All broken guarantees, in words.
pub fn broken(plan: &Plan, out: &Outcome) -> Vec<String> {
    let mut random = Random(plan.seed ^ 0xfeed);
    let mut broken = Vec::new();
    for life in &out.lives {
        slices(life, &mut random, &mut broken);
        limits(life, out.now, &mut random, &mut broken);
    }
    shares(plan, out, &mut random, &mut broken);
    broken
}

/// With work, a virtual CPU gets at least its slices.
fn slices(life: &Life, random: &mut Random, broken: &mut Vec<String>) {
    let Some(reservation) = life.reservation() else { return };
    let (period, slice, overrun) = (reservation.period.0, reservation.slice.0, life.terms.overrun.0);
    for busy in life.busy.iter().filter(|busy| busy.from < busy.to) {
        let periods = (busy.to - busy.from) / period;
        for n in (1..=periods).filter(|_| busy.fresh) {
            let end = busy.from + n * period;
            let (all, last) = (life.within(busy.from, end), life.within(end - period, end));
            let debited = life.debited(busy.from, end);
            // Debts from up to two periods before this one can be missing in it.
            let lately = lately(life, (end.saturating_sub(3 * period), end), 0);
            if all + debited < n * slice {
                broken.push(format!(
                    "{}: {all} in {n} periods of {period}, slice {slice}, {busy:?}",
                    life.vcpu_id
                ));
            }
            if last + lately < slice.saturating_sub(overrun) {
                broken.push(format!(
                    "{}: {last} in period {n} of {period}, slice {slice}, {busy:?}",
                    life.vcpu_id
                ));
            }
        }
        for _ in 0..30 {
            let from = random.within(busy.from, busy.to);
            let to = random.within(from, busy.to);
            let least = (((to - from) / period).saturating_sub(1) * slice).saturating_sub(overrun);
            let got = life.within(from, to) + lately(life, (from.saturating_sub(3 * period), to), 2 * slice);
            if got < least {
                broken.push(format!("{}: {got} of {least} from {from} to {to}, {busy:?}", life.vcpu_id));
            }
        }
    }
}

/// The debits from `before` to `to` and the debt before that, less what is certainly paid at the check: whole slices
/// are paid at the start of each period.
fn lately(life: &Life, (before, to): (u64, u64), paid: u64) -> u64 {
    life.debited(before, to) + life.owed(before).saturating_sub(paid)
}

/// Without spare time, a virtual CPU gets at most its slices.
fn limits(life: &Life, now: u64, random: &mut Random, broken: &mut Vec<String>) {
    let Some(reservation) = life.reservation().filter(|reservation| reservation.spare.is_none()) else {
        return;
    };
    let (period, slice, overrun) = (reservation.period.0, reservation.slice.0, life.terms.overrun.0);
    for busy in life.busy.iter().filter(|busy| busy.fresh) {
        for n in 1..=(busy.to.saturating_sub(busy.from)) / period {
            let end = busy.from + n * period;
            let (all, last) = (life.within(busy.from, end), life.within(end - period, end));
            if all > n * slice + overrun || last > slice + overrun {
                broken.push(format!(
                    "{}: {last} in period {n}, {all} in all, slice {slice}, {busy:?}",
                    life.vcpu_id
                ));
            }
        }
    }
    let end = life.end.min(now);
    for _ in 0..30 {
        let from = random.within(life.begin.min(end), end);
        let to = random.within(from, end);
        let most =
            (to - from) as f64 * slice as f64 / period as f64 + 2.0 * slice as f64 + overrun as f64 + 1.0;
        let got = life.within(from, to);
        if got as f64 > most {
            broken.push(format!("{}: {got} of at most {most} from {from} to {to}", life.vcpu_id));
        }
    }
}

/// Best-effort virtual CPUs share by weight and use all unreserved time.
fn shares(plan: &Plan, out: &Outcome, random: &mut Random, broken: &mut Vec<String>) {
    let longest = plan.blocking_max as f64;
    let all: Vec<(&Life, f64)> = out
        .lives
        .iter()
        .filter(|life| life.reservation().is_none())
        .map(|life| (life, f64::from(weight(life).get())))
        .collect();
    for _ in 0..200 {
        let from = random.within(0, out.now);
        let to = random.within(from, out.now);
        for (a, weight_a) in &all {
            for (b, weight_b) in &all {
                let (of_a, of_b) =
                    (a.within(from, to) as f64 / weight_a, b.within(from, to) as f64 / weight_b);
                // At most a nanosecond for each of the few thousand runs with zero measured time.
                let error = (longest + 10.0) / weight_a + (longest + 10.0) / weight_b;
                // A debited virtual CPU gets less, and takes nothing from others.
                if of_a - of_b > error && b.debits.is_empty() {
                    broken.push(format!("{} {of_a}, {} {of_b}, error {error}", a.vcpu_id, b.vcpu_id));
                }
            }
        }
    }
    // In the long run it lacks all of the debits, except for its present debt.
    for (a, weight_a) in &all {
        for (b, weight_b) in all.iter().filter(|(b, _)| b.debits.is_empty()) {
            let of_a = (a.within(0, out.now) + a.debited(0, out.now)) as f64 / weight_a;
            let of_b = b.within(0, out.now) as f64 / weight_b;
            let asked: u64 = a
                .debits
                .iter()
                .filter(|(.., kind)| *kind == DebitKind::Requested)
                .map(|(_, taken, _)| taken)
                .sum();
            let owed = (plan.config.lateness_max.0 + asked).min(a.debited(0, out.now)) as f64;
            let error = (longest + 10.0 + owed) / weight_a + (longest + 10.0) / weight_b;
            if (of_a - of_b).abs() > error {
                broken.push(format!("{} {of_a} with debits, {} {of_b}, error {error}", a.vcpu_id, b.vcpu_id));
            }
        }
    }
    if !all.is_empty() && out.idle > 0 {
        broken.push(format!("idle for {} with best effort waiting", out.idle));
    }
}

fn weight(life: &Life) -> Weight {
    match life.terms.share {
        weir_sched::cpu::CpuAllocation::BestEffort(weight) => weight,
        weir_sched::cpu::CpuAllocation::Reserved(_) => Weight::USUAL,
    }
}
