//! Price of Safety, figure 12: guarantees of a link, one of which changes.

use super::link_script::{Act, Played, RATE_MBIT, Script, ScriptGrant, shown};
use super::{Criterion, Figure, Mechanism, Outcome};
use crate::error::LabError;
use std::time::Duration;

/// The experiment.
pub const FIGURE: Figure = Figure {
    name: "price-12",
    title: "Price of Safety, figure 12: shares of a link",
    here: "Three sessions of a running node, each of which would fill a link of 100 Mbit/s (`[[link]]`) with the frames of full length that its module `flood` sends: D has no \
guarantee, E 2 ms of the link in each 6 ms, F first 25 % of each 6 ms, then 45, 65 and again 25 %, as its session is changed by the node's control socket. Rates are the \
receiving kernel's counters, one interface for each sender; on the wire, so with preamble, check sequence and gap. Judged is every second in which nothing changes.",
    paper: "E gets its 33 Mbit/s all through. F gets 25 %, at 20 s 45 %, 2 s later 65 %, with which the link is full and D gets nothing, and 2 s later 25 % \
again, whereupon D sends again. Lines are rough because 16⅔ packets of 1500 bytes make a period of E.",
    without: "none of the three has a guarantee",
    run,
};

const PERIOD: Duration = Duration::from_millis(6);
const D: usize = 0;
/// The guarantee of E: 2 ms of 6 ms.
const THIRD: f64 = RATE_MBIT / 3.0;
/// The tolerance of a guarantee, as a part of it, and of best effort, as a part of the link.
const TOLERANCE: f64 = 0.02;

fn script(mechanism: Mechanism) -> Script {
    let of = |mbit| if mechanism == Mechanism::On { ScriptGrant::exactly(mbit) } else { ScriptGrant::REST };
    let start = |sender| (0.0, sender, Act::Start);
    let change = |at, mbit| (at, 2, Act::Change(of(mbit)));
    Script {
        senders: vec![("d", ScriptGrant::REST), ("e", of(THIRD)), ("f", of(25.0))],
        period: PERIOD,
        acts: vec![start(0), start(1), start(2), change(3.5, 45.0), change(6.0, 65.0), change(8.5, 25.0)],
        end: 12.0,
    }
}

fn run(mechanism: Mechanism) -> Result<Outcome, LabError> {
    shown(&FIGURE, &script(mechanism), 5, judge)
}

/// The criteria, which do not depend on the grants of this run.
fn judge(played: &Played) -> Result<Vec<Criterion>, LabError> {
    let promised = script(Mechanism::On);
    let windows = promised.steady(played);
    if windows.is_empty() {
        return Err(LabError::Nothing("no second without a change was recorded".to_owned()));
    }
    let mut off = [0.0f64; 3];
    for window in &windows {
        let mut left = RATE_MBIT;
        for (sender, rate) in window.rates.iter().enumerate().filter(|(sender, _)| *sender != D) {
            let grant = promised.granted(sender, window.begin).and_then(|grant| grant.reserved);
            let wanted = grant.unwrap_or(0.0);
            off[sender] = off[sender].max((rate / wanted - 1.0).abs() * 100.0);
            left -= wanted;
        }
        off[D] = off[D].max((window.rates[D] - left).abs() / RATE_MBIT * 100.0);
    }
    let count = windows.len();
    Ok(vec![
        Criterion::at_most(
            format!("E: furthest from 33⅓ Mbit/s in any of {count} seconds"),
            off[1],
            TOLERANCE * 100.0,
            "%",
        ),
        Criterion::at_most("F: furthest from its 25, 45, 65, 25 Mbit/s", off[2], TOLERANCE * 100.0, "%"),
        Criterion::at_most("D: furthest from what is left, of the link", off[D], TOLERANCE * 100.0, "%"),
    ])
}

#[cfg(test)]
mod tests {
    use super::super::link_script::Look;
    use super::*;

    /// Rates that follow the script but for these factors.
    fn made(e: f64, f: f64, d: f64) -> Played {
        let promised = script(Mechanism::On);
        let mut looks = vec![Look { at: 0.0, mbit: vec![0.0; 3] }];
        for step in 1..600u32 {
            let at = f64::from(step) * 0.02;
            let of = |sender| promised.granted(sender, at - 0.02).and_then(|g| g.reserved).unwrap_or(0.0);
            let left = RATE_MBIT - of(1) - of(2);
            let last = looks.last().unwrap();
            let rates = [left * d, of(1) * e, of(2) * f];
            let mbit = last.mbit.iter().zip(rates).map(|(sum, rate)| sum + rate * 0.02).collect();
            looks.push(Look { at, mbit });
        }
        promised.on_time(looks)
    }

    fn kept(played: &Played) -> Vec<bool> {
        judge(played).unwrap().iter().map(|criterion| criterion.is_kept).collect()
    }

    #[test]
    fn guarantees_that_are_kept_are_seen_and_others_are_not() {
        assert_eq!(kept(&made(1.0, 1.0, 1.0)), [true; 3]);
        assert_eq!(kept(&made(0.99, 1.015, 0.97)), [true; 3]);
        assert_eq!(kept(&made(0.97, 1.0, 1.0)), [false, true, true]);
        assert_eq!(kept(&made(1.0, 1.03, 1.0)), [true, false, true]);
        assert_eq!(kept(&made(1.0, 1.0, 0.9)), [true, true, false]);
        let thirds: Vec<Look> = (0..600u32)
            .map(|i| f64::from(i) * 0.02)
            .map(|at| Look { at, mbit: vec![at * THIRD; 3] })
            .collect();
        // Without guarantees each has a third, which is what E would have had.
        assert_eq!(kept(&script(Mechanism::Off).on_time(thirds)), [true, false, false]);
        assert!(matches!(judge(&Played::default()), Err(LabError::Nothing(_))));
    }
}
