//! Medians and quartiles: other programs disturb single rounds, and never make one faster.

use crate::table::yes_or_no;
use std::time::Duration;

/// Measured values, one for each round.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    values: Vec<f64>,
}

/// The middle of a sample and how far it spreads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quartiles {
    /// A quarter of the values is below.
    pub lower: f64,
    /// Half of the values are below.
    pub median: f64,
    /// A quarter of the values is above.
    pub upper: f64,
}

impl Quartiles {
    /// The lower and the upper one with so many digits, as a cell.
    pub fn spread(&self, digits: usize) -> String {
        format!("{:.digits$}–{:.digits$}", self.lower, self.upper)
    }
}

impl Sample {
    /// A value.
    pub fn push(&mut self, value: f64) {
        self.values.push(value);
    }

    /// Time for so many packets, as nanoseconds a packet.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    pub fn add(&mut self, time: Duration, packets: u64) {
        self.push(time.as_nanos() as f64 / packets.max(1) as f64);
    }

    /// Its values, round by round.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Its quartiles; NaN where there are no values.
    pub fn quartiles(&self) -> Quartiles {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |quarter: usize| {
            let last = sorted.len().saturating_sub(1);
            let (place, rest) = (last * quarter / 4, last * quarter % 4);
            let below = sorted.get(place).copied().unwrap_or(f64::NAN);
            let above = sorted.get(place + 1).copied().unwrap_or(below);
            below + (above - below) * f64::from(u8::try_from(rest).unwrap_or(0)) / 4.0
        };
        Quartiles { lower: at(1), median: at(2), upper: at(3) }
    }

    /// Its median; NaN where there are no values.
    pub fn median(&self) -> f64 {
        self.quartiles().median
    }

    /// The value of the last round; NaN where there are no values.
    pub fn last(&self) -> f64 {
        self.values.last().copied().unwrap_or(f64::NAN)
    }

    /// Its largest value; NaN where there are no values.
    pub fn most(&self) -> f64 {
        self.values.iter().copied().reduce(f64::max).unwrap_or(f64::NAN)
    }

    /// The cells of a row about waits in seconds: served, median, quartiles, longest, the promise, and `yes` where all of `count` were served within it.
    pub fn waits(&self, count: usize, promised: f64) -> [String; 6] {
        let (quartiles, longest) = (self.quartiles(), self.most());
        let kept = self.values.len() == count && longest < promised;
        [
            self.values.len().to_string(),
            format!("{:.3}", quartiles.median),
            quartiles.spread(3),
            format!("{longest:.3}"),
            format!("under {promised}"),
            yes_or_no(kept),
        ]
    }

    /// The values less those of another sample of the same rounds.
    pub fn minus(&self, other: &Sample) -> Sample {
        Sample { values: self.values.iter().zip(&other.values).map(|(a, b)| a - b).collect() }
    }

    /// The values divided by those of another sample of the same rounds.
    pub fn over(&self, other: &Sample) -> Sample {
        Sample { values: self.values.iter().zip(&other.values).map(|(a, b)| a / b).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Sample {
        Sample { values: values.to_vec() }
    }

    #[test]
    fn quartiles_are_those_of_the_sorted_values() {
        let five = of(&[9.0, 1.0, 5.0, 7.0, 3.0]).quartiles();
        assert_eq!((five.lower, five.median, five.upper), (3.0, 5.0, 7.0));
        let two = of(&[4.0, 8.0]).quartiles();
        assert_eq!((two.lower, two.median, two.upper), (5.0, 6.0, 7.0));
        assert!(of(&[]).median().is_nan());
    }

    #[test]
    fn a_promise_about_waits_is_kept_where_all_are_served_in_time() {
        let kept = |values: &[f64], count| of(values).waits(count, 1.0)[5].clone();
        assert_eq!(of(&[0.5]).waits(1, 1.0), ["1", "0.500", "0.500–0.500", "0.500", "under 1", "yes"]);
        assert_eq!(["no", "no", "no"], [kept(&[0.5], 2), kept(&[0.5, 1.0], 2), kept(&[], 0)]);
    }

    #[test]
    fn ratios_pair_the_rounds() {
        assert_eq!(of(&[2.0, 30.0]).over(&of(&[1.0, 10.0])).values, [2.0, 3.0]);
    }
}
