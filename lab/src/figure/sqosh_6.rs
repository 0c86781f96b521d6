//! SQoSH, figure 6: two capped senders, and a sender without a guarantee that takes the rest of the link.

use super::link_script::{RATE_MBIT, Script, ScriptGrant, ScriptRecord, SenderAction, run_and_judge};
use super::{Criterion, Figure, Mechanism, Outcome};
use crate::error::LabError;
use std::time::Duration;

pub const FIGURE: Figure = Figure {
    name: "sqosh-6",
    title: "SQoSH, figure 6: bandwidth of three senders that come and go",
    experiment: "A, B and C are sessions of a running node with a link of 100 Mbit/s (`[[link]]`). Each sends at its full rate while the module `flood` \
is loaded: B from 0.5 s on, A from 3 s, C from 5.5 s; B stops at 8 s, A at 10.5 s, C at 13 s. A has no guarantee. B is guaranteed 40 \
Mbit/s and C 10 Mbit/s, and both are capped at that rate (`cap`). Rates come from the receiving kernel's counters, with one interface \
per sender, and are on the wire. Each second without a start or a stop is judged.",
    paper: "on a 100 Mbit/s hub, which carries about 80 Mbit/s of TCP, B gets its 40 Mbit/s from 1 s to 15 s and C its 10 Mbit/s from 9 s to 29 s, \
whatever A does. A sends from 5 s to 20 s, and gets about 40, then 30 Mbit/s, and the link less C's 10 Mbit/s when B has stopped.",
    without: "B and C have neither guarantee nor cap",
    run,
};

/// The period of the guarantees.
const PERIOD: Duration = Duration::from_millis(10);
/// The index of A among the senders.
const A: usize = 0;
const B_MBIT: f64 = 40.0;
const C_MBIT: f64 = 10.0;
/// The tolerance of a rate, as a fraction of the guarantee; for A, which has none, as a fraction of the link's rate.
const TOLERANCE: f64 = 0.01;

fn script(mechanism: Mechanism) -> Script {
    let capped = |mbit| match mechanism {
        Mechanism::On => ScriptGrant { cap: Some(mbit), ..ScriptGrant::exactly(mbit) },
        Mechanism::Off => ScriptGrant::BEST_EFFORT,
    };
    let starts =
        [(0.5, 1, SenderAction::Start), (3.0, 0, SenderAction::Start), (5.5, 2, SenderAction::Start)];
    let stops = [(8.0, 1, SenderAction::Stop), (10.5, 0, SenderAction::Stop), (13.0, 2, SenderAction::Stop)];
    Script {
        senders: vec![("a", ScriptGrant::BEST_EFFORT), ("b", capped(B_MBIT)), ("c", capped(C_MBIT))],
        period: PERIOD,
        actions: starts.into_iter().chain(stops).collect(),
        end: 14.0,
    }
}

fn run(mechanism: Mechanism) -> Result<Outcome, LabError> {
    run_and_judge(&FIGURE, &script(mechanism), 10, judge)
}

fn judge(record: &ScriptRecord) -> Result<Vec<Criterion>, LabError> {
    let promised = script(Mechanism::On);
    let windows = promised.steady_windows(record);
    let mut deviations = [0.0f64; 3];
    let mut seconds = [0usize; 3];
    for window in &windows {
        let wanted = |sender: usize| match promised.grant_at(sender, window.begin) {
            Some(grant) => grant.reserved,
            None => Some(0.0),
        };
        let others = wanted(1).unwrap_or(0.0) + wanted(2).unwrap_or(0.0);
        for sender in (0..3).filter(|sender| promised.grant_at(*sender, window.begin).is_some()) {
            // A has no guarantee. It should get the rest of the link.
            let (wanted, whole) = wanted(sender).map_or((RATE_MBIT - others, RATE_MBIT), |mbit| (mbit, mbit));
            deviations[sender] =
                deviations[sender].max((window.rates[sender] - wanted).abs() / whole * 100.0);
            seconds[sender] += 1;
        }
    }
    if seconds.contains(&0) {
        return Err(LabError::NoData(
            "there is a sender that did not send throughout any recorded second".to_owned(),
        ));
    }
    let limit = TOLERANCE * 100.0;
    Ok(vec![
        Criterion::at_most(
            format!("B: largest deviation from 40 Mbit/s in any of {} seconds", seconds[1]),
            deviations[1],
            limit,
            "%",
        ),
        Criterion::at_most(
            format!("C: largest deviation from 10 Mbit/s in any of {} seconds", seconds[2]),
            deviations[2],
            limit,
            "%",
        ),
        Criterion::at_most(
            "A: largest deviation from the rest, as a part of the link",
            deviations[A],
            limit,
            "%",
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::super::link_script::CounterSample;
    use super::*;

    fn made(rates: impl Fn(f64, [bool; 3]) -> [f64; 3]) -> ScriptRecord {
        let promised = script(Mechanism::On);
        let mut samples = vec![CounterSample { at: 0.0, mbit: vec![0.0; 3] }];
        for step in 1..700u32 {
            let at = f64::from(step) * 0.02;
            let sends = std::array::from_fn(|sender| promised.grant_at(sender, at - 0.02).is_some());
            let now = rates(at, sends);
            let last = samples.last().unwrap();
            let mbit = (0..3).map(|i| last.mbit[i] + if sends[i] { now[i] * 0.02 } else { 0.0 }).collect();
            samples.push(CounterSample { at, mbit });
        }
        promised.on_time(samples)
    }

    fn kept(record: &ScriptRecord) -> Vec<bool> {
        judge(record).unwrap().iter().map(|criterion| criterion.is_kept).collect()
    }

    fn rest(sends: [bool; 3]) -> f64 {
        100.0 - if sends[1] { 40.0 } else { 0.0 } - if sends[2] { 10.0 } else { 0.0 }
    }

    #[test]
    fn a_broken_cap_or_guarantee_breaks_its_criterion() {
        assert_eq!(kept(&made(|_, sends| [rest(sends), 40.0, 10.0])), [true; 3]);
        assert_eq!(kept(&made(|_, sends| [rest(sends) - 0.5, 40.3, 9.95])), [true; 3]);
        assert_eq!(kept(&made(|_, sends| [rest(sends), 40.5, 10.0])), [false, true, true]);
        assert_eq!(kept(&made(|_, sends| [rest(sends), 40.0, 9.0])), [true, false, true]);
        assert_eq!(kept(&made(|_, sends| [rest(sends) - 5.0, 40.0, 10.0])), [true, true, false]);
        // Without guarantees each takes an equal part.
        let equal = made(|_, sends| {
            let count = sends.iter().filter(|sends| **sends).count();
            [100.0 / f64::from(u32::try_from(count.max(1)).unwrap()); 3]
        });
        assert_eq!(kept(&equal), [false; 3]);
        assert!(matches!(judge(&ScriptRecord::default()), Err(LabError::NoData(_))));
    }
}
