//! Interleaved measurements, and their medians and quartiles. Rounds of all actions alternate, so that disturbances by
//! other programs affect all of them alike.

use crate::error::LabError;
use crate::native::thread_time;
use crate::table::under;
use std::time::Duration;

/// Measured values, one per round.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    values: Vec<f64>,
}

/// The lower quartile, the median and the upper quartile of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quartiles {
    pub lower: f64,
    pub median: f64,
    pub upper: f64,
}

impl Quartiles {
    /// The lower and the upper quartile, as one table cell.
    pub fn spread(&self, digits: usize) -> String {
        format!("{:.digits$}–{:.digits$}", self.lower, self.upper)
    }

    /// The median, and the other quartiles, as two table cells.
    pub fn cells(&self, digits: usize) -> String {
        format!("{:.digits$} | {}", self.median, self.spread(digits))
    }
}

impl Sample {
    pub fn push(&mut self, value: f64) {
        self.values.push(value);
    }

    /// Adds a time for a number of packets, as nanoseconds per packet.
    pub fn add_time(&mut self, time: Duration, packets: u64) {
        self.push(time.as_nanos() as f64 / packets.max(1) as f64);
    }

    /// The quartiles; NaN without values.
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

    /// The median; NaN without values.
    pub fn median(&self) -> f64 {
        self.quartiles().median
    }

    /// The median and the quartiles, as two table cells.
    pub fn cells(&self, digits: usize) -> String {
        self.quartiles().cells(digits)
    }

    /// The largest value; NaN without values.
    pub fn max(&self) -> f64 {
        self.values.iter().copied().reduce(f64::max).unwrap_or(f64::NAN)
    }

    /// The geometric mean of the values, which are positive; not a number without values.
    pub fn geometric_mean(&self) -> f64 {
        let sum: f64 = self.values.iter().map(|value| value.ln()).sum();
        (sum / self.values.len() as f64).exp()
    }

    /// The cells of a table row about waits in seconds: number served, median, quartiles, longest, promise, kept. The
    /// promise is kept if `count` waits ended, all in less than `promised` seconds.
    pub fn wait_cells(&self, count: usize, promised: f64) -> String {
        let (served, longest) = (self.values.len(), self.max());
        let judged = if served == count { longest } else { f64::NAN };
        format!("{served} | {} | {longest:.3} | {}", self.cells(3), under(promised, judged))
    }

    /// The mean of several samples, round by round.
    pub fn mean(samples: &[&Sample]) -> Sample {
        let rounds = samples.first().map_or(0, |sample| sample.values.len());
        let at = |round: usize| samples.iter().filter_map(|sample| sample.values.get(round)).sum::<f64>();
        (0..rounds).map(|round| at(round) / to_f64(samples.len())).collect()
    }

    /// The values, each multiplied by a factor.
    pub fn scaled(&self, factor: f64) -> Sample {
        self.values.iter().map(|value| value * factor).collect()
    }

    /// The difference to another sample, round by round.
    pub fn less(&self, other: &Sample) -> Sample {
        self.values.iter().zip(&other.values).map(|(a, b)| a - b).collect()
    }

    /// The ratio to another sample, round by round.
    pub fn ratio_to(&self, other: &Sample) -> Sample {
        self.values.iter().zip(&other.values).map(|(a, b)| a / b).collect()
    }
}

impl FromIterator<f64> for Sample {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self { values: values.into_iter().collect() }
    }
}

/// A function that makes one measurement and returns its value.
pub type Action<'a, V = f64> = Box<dyn FnMut() -> Result<V, LabError> + 'a>;

/// Runs actions in turn, each round starting with another action. Returns the values of each action. The first round is
/// not recorded: it fills caches.
pub fn measure_values_in_turn<V>(
    rounds: usize,
    actions: &mut [Action<'_, V>],
) -> Result<Vec<Vec<V>>, LabError> {
    let mut values = values_in_turn(rounds + 1, actions)?;
    for values in &mut values {
        values.remove(0);
    }
    Ok(values)
}

/// As [`measure_values_in_turn`], and the first round is recorded, too.
pub fn values_in_turn<V>(rounds: usize, actions: &mut [Action<'_, V>]) -> Result<Vec<Vec<V>>, LabError> {
    let mut values: Vec<Vec<V>> = actions.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for turn in 0..actions.len() {
            let index = (turn + round) % actions.len();
            values[index].push(actions[index]()?);
        }
    }
    Ok(values)
}

/// As [`measure_values_in_turn`], for actions that return a number.
pub fn measure_in_turn(rounds: usize, actions: &mut [Action<'_>]) -> Result<Vec<Sample>, LabError> {
    Ok(measure_values_in_turn(rounds, actions)?.into_iter().map(Sample::from_iter).collect())
}

/// As [`measure_in_turn`], for a fixed number of actions.
pub fn measure_all_in_turn<const N: usize>(
    rounds: usize,
    mut actions: [Action<'_>; N],
) -> Result<[Sample; N], LabError> {
    let mut samples = measure_in_turn(rounds, &mut actions)?.into_iter();
    Ok(std::array::from_fn(|_| samples.next().unwrap_or_default()))
}

/// The processor time of this thread for some work.
pub fn processor_time(work: impl FnOnce()) -> Duration {
    let begin = thread_time();
    work();
    thread_time().saturating_sub(begin)
}

/// The mean processor time of `times` calls, in nanoseconds per call.
pub fn nanos_per_call(times: u32, mut act: impl FnMut()) -> f64 {
    processor_time(|| (0..times).for_each(|_| act())).as_secs_f64() * 1e9 / f64::from(times)
}

/// A count as a floating-point number, for divisions.
pub fn to_f64(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Sample {
        values.iter().copied().collect()
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
    fn a_promise_about_waits_is_kept_if_all_are_served_in_time() {
        assert_eq!(of(&[0.5]).wait_cells(1, 1.0), "1 | 0.500 | 0.500–0.500 | 0.500 | under 1 | yes");
        for (values, count) in [(&[0.5][..], 2), (&[0.5, 1.0], 2), (&[], 0)] {
            assert!(of(values).wait_cells(count, 1.0).ends_with("| no"), "{values:?}");
        }
    }

    #[test]
    fn ratios_and_differences_pair_the_rounds() {
        assert_eq!(of(&[2.0, 30.0]).less(&of(&[1.0, 10.0])).values, [1.0, 20.0]);
        assert_eq!(of(&[2.0, 30.0]).ratio_to(&of(&[1.0, 10.0])).values, [2.0, 3.0]);
    }

    #[test]
    fn actions_take_turns_and_the_first_round_is_not_recorded() {
        let order = std::cell::RefCell::new(String::new());
        let act = |name: char, value: f64| -> Action<'_> {
            let order = &order;
            Box::new(move || {
                order.borrow_mut().push(name);
                Ok(value)
            })
        };
        let [a, b] = measure_all_in_turn(2, [act('a', 1.0), act('b', 2.0)]).unwrap();
        assert_eq!((a.values, b.values), (vec![1.0; 2], vec![2.0; 2]));
        assert_eq!(order.into_inner(), "abbaab");
    }
}
