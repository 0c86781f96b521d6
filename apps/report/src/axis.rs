//! Axes with ticks at round values.

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use std::ops::Range;
use weir_rows::text;
use weir_units::Escape as _;

/// An axis with ticks. The coordinates of a logarithmic axis are base-10 logarithms.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    from: f64,
    to: f64,
    ticks: Vec<(f64, String)>,
    /// The quantity and its unit.
    pub(crate) title: String,
}

impl Axis {
    /// An axis from 0 to a round value at or above `max`.
    pub(crate) fn counts(max: f64, title: &str) -> Self {
        Self::linear(0.0, max.max(1.0), 5, title)
    }

    /// An axis from a round value at or below `min` to one at or above `max`, with about `wanted` ticks.
    pub(crate) fn linear(min: f64, max: f64, wanted: usize, title: &str) -> Self {
        let (min, max) = sanitize(min, max);
        let step = round_step((max - min) / wanted as f64);
        let (from, to) = ((min / step).floor() * step, (max / step).ceil() * step);
        let ticks = steps(from, to, step).map(|value| (value, text::si(value))).collect();
        Self { from, to, ticks, title: title.to_owned() }
    }

    /// An axis of whole numbers from `min` to `max`, with a margin of 0.5 at both ends.
    pub(crate) fn whole(min: f64, max: f64, title: &str) -> Self {
        let (min, max) = (min.min(max), max.max(min));
        let step = round_step((max - min) / 12.0).max(1.0);
        let ticks = steps(min, max, step).map(|value| (value, text::si(value))).collect();
        Self { from: min - 0.5, to: max + 0.5, ticks, title: title.to_owned() }
    }

    /// An axis of shares from 0 to 1, labelled in percent.
    pub(crate) fn percent(title: &str) -> Self {
        let ticks =
            steps(0.0, 1.0, 0.25).map(|v| (v, format!("{} %", text::significant(v * 100.0)))).collect();
        Self { from: 0.0, to: 1.0, ticks, title: title.to_owned() }
    }

    /// An axis of the time since `origin`, from 0 to `seconds`, labelled in a suitable unit.
    pub(crate) fn time(seconds: f64, wanted: usize, origin: &str) -> Self {
        let to = if seconds.is_finite() { seconds.clamp(1e-9, 1e12) } else { 1e-9 };
        let (scale, unit) = match to {
            s if s > 86_400.0 * 3.0 => (86_400.0, "days"),
            s if s > 7_200.0 => (3_600.0, "h"),
            s if s > 180.0 => (60.0, "min"),
            s if s >= 1.0 => (1.0, "s"),
            s if s >= 1e-3 => (1e-3, "ms"),
            s if s >= 1e-6 => (1e-6, "µs"),
            _ => (1e-9, "ns"),
        };
        let step = round_step(to / scale / wanted as f64);
        let ticks = steps(0.0, to / scale, step).map(|v| (v * scale, text::significant(v))).collect();
        Self { from: 0.0, to, ticks, title: format!("time since {origin} ({unit})") }
    }

    /// A logarithmic axis of durations from `min` to `max` ns, with at most about `most` ticks.
    pub(crate) fn log_durations(min: f64, max: f64, most: f64, title: &str) -> Self {
        let (from, to) = sanitize(min.max(1.0).log10(), max.max(1.0).log10());
        let decades = to - from;
        // Ticks are at 1, 2 and 5 times each power of ten. If these are too many, ticks are at powers of ten only: at
        // each, or at every second, third or sixth.
        let digits: &[f64] = if decades * 3.0 <= most { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let decade_step =
            [1u8, 2, 3].into_iter().find(|step| decades <= most * f64::from(*step)).map_or(6, usize::from);
        let ticks = (0..20)
            .step_by(decade_step)
            .flat_map(|decade| digits.iter().map(move |digit| 10f64.powi(decade) * digit))
            .map(|ns| (ns.log10(), text::duration(ns)))
            .filter(|(log, _)| (from - 1e-9..=to + 1e-9).contains(log))
            .collect();
        Self { from, to, ticks, title: title.to_owned() }
    }

    /// An axis with one row for each label, the first on top; row i is at `labels.len() - 1 - i`. The labels are untrusted
    /// text, which this function escapes.
    pub(crate) fn rows(labels: &[String]) -> Self {
        let ticks = labels
            .iter()
            .rev()
            .enumerate()
            .map(|(index, label)| (index as f64, label.escaped().to_string()))
            .collect();
        Self { from: -0.5, to: labels.len() as f64 - 0.5, ticks, title: String::new() }
    }

    /// Removes the title, for a plot above another one with the same axis.
    pub(crate) fn untitled(mut self) -> Self {
        self.title.clear();
        self
    }

    /// The number of characters of the longest tick label.
    pub(crate) fn widest(&self) -> usize {
        self.ticks.iter().map(|(_, label)| label.chars().count()).max().unwrap_or(0)
    }

    /// Returns the upper end.
    pub(crate) fn to(&self) -> f64 {
        self.to
    }

    /// Returns the lower end.
    pub(crate) fn from(&self) -> f64 {
        self.from
    }
}

/// Makes the ends finite, different, and small enough for distinct ticks.
fn sanitize(min: f64, max: f64) -> (f64, f64) {
    const MOST: f64 = 1e15;
    let (min, max) = match (min.is_finite(), max.is_finite()) {
        (true, true) => (min.clamp(-MOST, MOST), max.clamp(-MOST, MOST)),
        (true, false) => (min.clamp(-MOST, MOST), min.clamp(-MOST, MOST)),
        (false, true) => (max.clamp(-MOST, MOST), max.clamp(-MOST, MOST)),
        (false, false) => (0.0, 1.0),
    };
    let least = 1e-6 * min.abs().max(max.abs());
    if max - min > least.max(1e-12) { (min, max) } else { (min - least.max(0.5), min + least.max(0.5)) }
}

/// Rounds `step` up to 1, 2 or 5 times a power of ten.
fn round_step(step: f64) -> f64 {
    if !step.is_finite() || step < 1e-12 {
        return 1.0;
    }
    let power = 10f64.powf(step.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= step * (1.0 - 1e-9)).unwrap_or(step)
}

/// Multiples of `step` from `from` to `to`, at most 100.
fn steps(from: f64, to: f64, step: f64) -> impl Iterator<Item = f64> {
    let first = (from / step - 1e-9).ceil();
    (0..100u32)
        .map(move |index| (first + f64::from(index)) * step)
        .take_while(move |value| *value <= to + step * 1e-6)
        // Turns -0 into 0.
        .map(|value| value + 0.0)
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    #[expect(clippy::cast_possible_truncation, reason = "the share is between 0 and 1, so this is a pixel")]
    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = ((value - self.from) / (self.to - self.from)).clamp(0.0, 1.0);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.iter().map(|(value, _)| *value).collect()
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        let label = self.ticks.iter().find(|(tick, _)| tick.total_cmp(value).is_eq());
        label.map(|(_, label)| label.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(labels(&Axis::counts(43_210.0, "")), ["0", "10k", "20k", "30k", "40k", "50k"]);
        assert_eq!(labels(&Axis::counts(0.0, "")), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(labels(&Axis::linear(-0.3, 1.1, 5, "")), ["-0.5", "0", "0.5", "1", "1.5"]);
        assert_eq!(labels(&Axis::time(90.0, 6, "x")), ["0", "20", "40", "60", "80"]);
        assert_eq!(Axis::time(7_300.0, 6, "the start").title, "time since the start (h)");
        assert_eq!(
            labels(&Axis::log_durations(9e5, 1.1e9, 10.0, "")),
            [
                "1\u{202f}ms",
                "2\u{202f}ms",
                "5\u{202f}ms",
                "10\u{202f}ms",
                "20\u{202f}ms",
                "50\u{202f}ms",
                "100\u{202f}ms",
                "200\u{202f}ms",
                "500\u{202f}ms",
                "1\u{202f}s"
            ]
        );
    }

    #[test]
    fn axes_are_finite_for_all_values() {
        let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -1e300, 1e300, 1e-300];
        for a in odd {
            for b in odd {
                for axis in [
                    Axis::linear(a, b, 5, ""),
                    Axis::time(a, 6, ""),
                    Axis::log_durations(a, b, 10.0, ""),
                    Axis::counts(a, ""),
                ] {
                    assert!(
                        axis.from.is_finite() && axis.to > axis.from && axis.ticks.len() <= 100,
                        "{a:e} {b:e}"
                    );
                    assert!(axis.ticks.iter().all(|(_, label)| !label.contains("NaN")));
                }
            }
        }
    }
}
