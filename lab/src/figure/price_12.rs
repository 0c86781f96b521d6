//! Price of Safety, figure 12: guaranteed shares of a link, one of which changes.

use super::link_script::{RATE_MBIT, Script, ScriptGrant, ScriptRecord, SenderAction, run_and_judge};
use super::{Criterion, Figure, Mechanism, Outcome};
use crate::error::LabError;
use std::time::Duration;

pub const FIGURE: Figure = Figure {
    name: "price-12",
    title: "Price of Safety, figure 12: shares of a link",
    experiment: "Three sessions of a running node with a link of 100 Mbit/s (`[[link]]`). Each could fill the link with the full-length frames of its \
module `flood`. D has no guarantee. E has 2 ms of the link in each 6 ms. F has 25 % of each 6 ms, then 45, 65 and again 25 %, as its \
session is changed through the node's control socket. Rates come from the receiving kernel's counters, with one interface per sender, \
and are on the wire: with preamble, check sequence and gap. Each second without a change is judged.",
    paper: "E gets its 33 Mbit/s throughout. F gets 25 %, from 20 s on 45 %, 2 s later 65 %, which fills the link and leaves D nothing, and 2 s \
later 25 % again, so that D sends again. The lines are rough because a period of E is 16⅔ packets of 1500 bytes.",
    without: "none of the three has a guarantee",
    run,
};

/// The period of the guarantees.
const PERIOD: Duration = Duration::from_millis(6);
/// The index of D among the senders.
const D: usize = 0;
/// The guarantee of E in Mbit/s: 2 ms of 6 ms.
const THIRD: f64 = RATE_MBIT / 3.0;
/// The tolerance of a rate, as a fraction of the guarantee; for D, which has none, as a fraction of the link's rate.
const TOLERANCE: f64 = 0.02;

fn script(mechanism: Mechanism) -> Script {
    let guaranteed =
        |mbit| if mechanism == Mechanism::On { ScriptGrant::exactly(mbit) } else { ScriptGrant::BEST_EFFORT };
    let start = |sender| (0.0, sender, SenderAction::Start);
    let change = |at, mbit| (at, 2, SenderAction::Change(guaranteed(mbit)));
    Script {
        senders: vec![("d", ScriptGrant::BEST_EFFORT), ("e", guaranteed(THIRD)), ("f", guaranteed(25.0))],
        period: PERIOD,
        actions: vec![start(0), start(1), start(2), change(3.5, 45.0), change(6.0, 65.0), change(8.5, 25.0)],
        end: 12.0,
    }
}

fn run(mechanism: Mechanism) -> Result<Outcome, LabError> {
    run_and_judge(&FIGURE, &script(mechanism), 5, judge)
}

/// Judges a record by the guarantees of the experiment, also if the senders had no guarantees in this run.
fn judge(record: &ScriptRecord) -> Result<Vec<Criterion>, LabError> {
    let promised = script(Mechanism::On);
    let windows = promised.steady_windows(record);
    if windows.is_empty() {
        return Err(LabError::NoData("no second without a change was recorded".to_owned()));
    }
    let mut deviations = [0.0f64; 3];
    for window in &windows {
        let mut rest = RATE_MBIT;
        for (sender, rate) in window.rates.iter().enumerate().filter(|(sender, _)| *sender != D) {
            let grant = promised.grant_at(sender, window.begin).and_then(|grant| grant.reserved);
            let wanted = grant.unwrap_or(0.0);
            deviations[sender] = deviations[sender].max((rate / wanted - 1.0).abs() * 100.0);
            rest -= wanted;
        }
        deviations[D] = deviations[D].max((window.rates[D] - rest).abs() / RATE_MBIT * 100.0);
    }
    let count = windows.len();
    Ok(vec![
        Criterion::at_most(
            format!("E: largest deviation from 33⅓ Mbit/s in any of {count} seconds"),
            deviations[1],
            TOLERANCE * 100.0,
            "%",
        ),
        Criterion::at_most(
            "F: largest deviation from its 25, 45, 65, 25 Mbit/s",
            deviations[2],
            TOLERANCE * 100.0,
            "%",
        ),
        Criterion::at_most(
            "D: largest deviation from the rest, as a part of the link",
            deviations[D],
            TOLERANCE * 100.0,
            "%",
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::super::link_script::CounterSample;
    use super::*;

    /// Rates as in the script, multiplied by a factor for each sender.
    fn made(e: f64, f: f64, d: f64) -> ScriptRecord {
        let promised = script(Mechanism::On);
        let mut samples = vec![CounterSample { at: 0.0, mbit: vec![0.0; 3] }];
        for step in 1..600u32 {
            let at = f64::from(step) * 0.02;
            let reserved =
                |sender| promised.grant_at(sender, at - 0.02).and_then(|g| g.reserved).unwrap_or(0.0);
            let rest = RATE_MBIT - reserved(1) - reserved(2);
            let last = samples.last().unwrap();
            let rates = [rest * d, reserved(1) * e, reserved(2) * f];
            let mbit = last.mbit.iter().zip(rates).map(|(sum, rate)| sum + rate * 0.02).collect();
            samples.push(CounterSample { at, mbit });
        }
        promised.on_time(samples)
    }

    fn kept(record: &ScriptRecord) -> Vec<bool> {
        judge(record).unwrap().iter().map(|criterion| criterion.is_kept).collect()
    }

    #[test]
    fn a_broken_guarantee_breaks_its_criterion() {
        assert_eq!(kept(&made(1.0, 1.0, 1.0)), [true; 3]);
        assert_eq!(kept(&made(0.99, 1.015, 0.97)), [true; 3]);
        assert_eq!(kept(&made(0.97, 1.0, 1.0)), [false, true, true]);
        assert_eq!(kept(&made(1.0, 1.03, 1.0)), [true, false, true]);
        assert_eq!(kept(&made(1.0, 1.0, 0.9)), [true, true, false]);
        let thirds: Vec<CounterSample> = (0..600u32)
            .map(|i| f64::from(i) * 0.02)
            .map(|at| CounterSample { at, mbit: vec![at * THIRD; 3] })
            .collect();
        // Without guarantees each sender has a third, which is also E's guarantee.
        assert_eq!(kept(&script(Mechanism::Off).on_time(thirds)), [true, false, false]);
        assert!(matches!(judge(&ScriptRecord::default()), Err(LabError::NoData(_))));
    }
}
