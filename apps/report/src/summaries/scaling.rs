//! Long-range dependence: the wavelet log-scale diagram (Veitch and Abry, 1999) with the fitted line.

use super::{StreamFields, stream_fields};
use crate::axis::Axis;
use crate::module_records::{Highlight, RecordSummary, ReportSection, SectionContext};
use crate::plot::{BLUE, ORANGE, PlotMark, figure, half_width, hover_columns, side_by_side, svg};
use crate::series::float;
use crate::value;
use maud::Markup;
use weir_rows::text::duration;
use {weir_admission::Manifest, weir_session::Record};

const OCTAVES_MAX: usize = 64;
const HISTORY_MAX: usize = 512;

/// Summary of module `lrd`.
#[derive(Debug)]
pub(crate) struct ScalingSummary {
    scales: StreamFields<5>,
    estimate: StreamFields<6>,
    /// The octaves of the latest estimate.
    octaves: Vec<Octave>,
    /// Time of this estimate, in ns.
    octaves_time: u64,
    /// Estimates over time; every second one is removed when there are too many.
    history: Vec<Estimate>,
    /// One in `keep_every` estimates is added to the history.
    keep_every: u64,
    /// Number of estimates so far.
    seen: u64,
    latest: Option<Estimate>,
}

#[derive(Clone, Copy, Debug)]
struct Octave {
    octave: f64,
    /// Base-2 logarithm of the energy, with its confidence interval.
    y: f64,
    lower: f64,
    upper: f64,
}

#[derive(Clone, Copy, Debug)]
struct Estimate {
    time: u64,
    hurst: f64,
    lower: f64,
    upper: f64,
    first: f64,
    last: f64,
}

/// The least p-value of the goodness of fit with which an estimate counts.
const P_VALUE_MIN: f64 = 0.01;
/// The least number of octaves of a fit. A line through two points fits always.
const OCTAVES_MIN: usize = 3;
/// Half the width of a 95 % confidence interval, in standard deviations.
const NORMAL_975: f64 = 1.959_964;

impl Estimate {
    /// Returns true for a Hurst parameter that a process can have.
    fn is_possible(&self) -> bool {
        self.hurst > 0.0 && self.hurst < 1.0
    }
}

impl ScalingSummary {
    pub(crate) fn new(manifest: &Manifest) -> Option<Self> {
        Some(Self {
            scales: stream_fields(manifest, "scales", ["time", "octave", "log2_energy", "lower", "upper"])?,
            estimate: stream_fields(
                manifest,
                "estimate",
                ["time", "hurst", "lower", "upper", "first_octave", "last_octave"],
            )?,
            octaves: Vec::new(),
            octaves_time: 0,
            history: Vec::new(),
            keep_every: 1,
            seen: 0,
            latest: None,
        })
    }

    fn add_octave(&mut self, record: &Record<'_>) -> Option<()> {
        let [time, octave, y, lower, upper] = &self.scales.fields;
        let time = value::unsigned(time, record)?;
        if time != self.octaves_time {
            self.octaves.clear();
            self.octaves_time = time;
        }
        let octave = Octave {
            octave: float(value::unsigned(octave, record)?),
            y: value::number(y, record)?,
            lower: value::number(lower, record)?,
            upper: value::number(upper, record)?,
        };
        let finite = octave.y.is_finite() && octave.lower.is_finite() && octave.upper.is_finite();
        if finite && self.octaves.len() < OCTAVES_MAX {
            self.octaves.push(octave);
        }
        Some(())
    }

    fn add_estimate(&mut self, record: &Record<'_>) -> Option<()> {
        let [time, hurst, lower, upper, first, last] = &self.estimate.fields;
        let estimate = Estimate {
            time: value::unsigned(time, record)?,
            hurst: value::number(hurst, record)?,
            lower: value::number(lower, record)?,
            upper: value::number(upper, record)?,
            first: value::number(first, record)?,
            last: value::number(last, record)?,
        };
        let finite = estimate.hurst.is_finite() && estimate.lower.is_finite() && estimate.upper.is_finite();
        self.latest = Some(estimate).filter(|_| finite);
        if finite && estimate.is_possible() && self.seen.is_multiple_of(self.keep_every) {
            if self.history.len() >= HISTORY_MAX {
                self.history = self.history.iter().copied().step_by(2).collect();
                self.keep_every *= 2;
            }
            self.history.push(estimate);
        }
        self.seen += 1;
        Some(())
    }

    /// Returns the octaves of the fit.
    fn fitted_octaves(&self, estimate: &Estimate) -> impl Iterator<Item = &Octave> {
        let range = estimate.first..=estimate.last;
        self.octaves.iter().filter(move |octave| range.contains(&octave.octave))
    }

    /// Returns the reason why the latest estimate does not apply, in words.
    fn obstacle(&self) -> Option<String> {
        let Some(estimate) = &self.latest else {
            return Some(
                "too few octaves have enough coefficients: the capture is too short for this bin".to_owned(),
            );
        };
        let octaves = self.fitted_octaves(estimate).count();
        if octaves < OCTAVES_MIN {
            return Some(format!(
                "{octaves} octaves have enough coefficients, and the fit of a line needs {OCTAVES_MIN}"
            ));
        }
        if !estimate.is_possible() {
            return Some(format!(
                "the slope of the fit gives {:.2}, and a Hurst parameter is between 0 and 1: the traffic is not stationary, or the capture too short",
                estimate.hurst
            ));
        }
        let [(x, y), _] = self.fitted_line()?;
        let slope = 2.0 * estimate.hurst - 1.0;
        let square = |octave: &Octave| {
            let deviation = (octave.upper - octave.lower).abs() / 2.0 / NORMAL_975;
            ((octave.y - y - slope * (octave.octave - x)) / deviation.max(1e-9)).powi(2)
        };
        let statistic: f64 = self.fitted_octaves(estimate).map(square).sum();
        let degrees = u32::try_from(octaves - 2).unwrap_or(u32::MAX);
        let p = crate::goodness_of_fit::p_value(statistic, degrees);
        (p < P_VALUE_MIN).then(|| {
            format!(
                "the energies do not lie on a line: chi-squared {statistic:.1} with {degrees} degrees of freedom, p = {}, below {P_VALUE_MIN}",
                if p < 1e-4 { "less than 0.0001".to_owned() } else { format!("{p:.4}") }
            )
        })
    }

    /// The line over the fitted octaves. Its slope is 2 H - 1, and its intercept the mean with the weights of the regression.
    fn fitted_line(&self) -> Option<[(f64, f64); 2]> {
        let estimate = self.latest?;
        let slope = 2.0 * estimate.hurst - 1.0;
        let (mut weights, mut height) = (0.0, 0.0);
        for octave in self.fitted_octaves(&estimate) {
            let weight = (octave.upper - octave.lower).abs().max(1e-9).powi(-2);
            weights += weight;
            height += weight * (octave.y - slope * octave.octave);
        }
        let height = height / weights;
        height
            .is_finite()
            .then(|| [estimate.first, estimate.last].map(|octave| (octave, height + slope * octave)))
    }

    fn diagram(&self) -> Markup {
        let fold = |value: &dyn Fn(&Octave) -> f64, combine: fn(f64, f64) -> f64, start: f64| {
            self.octaves.iter().map(value).fold(start, combine)
        };
        let x = Axis::whole(
            fold(&|o| o.octave, f64::min, f64::INFINITY),
            fold(&|o| o.octave, f64::max, f64::NEG_INFINITY),
            "octave j (time scale of 2^j bins)",
        );
        let y = Axis::linear(
            fold(&|o| o.lower, f64::min, f64::INFINITY),
            fold(&|o| o.upper, f64::max, f64::NEG_INFINITY),
            5,
            "log2 of the energy",
        );
        half_width(|size| {
            let mut marks = vec![
                PlotMark::Whiskers(self.octaves.iter().map(|o| (o.octave, o.lower, o.upper)).collect(), BLUE),
                PlotMark::Dots(self.octaves.iter().map(|o| (o.octave, o.y)).collect(), BLUE, 3.5),
            ];
            if let Some(line) = self.fitted_line().filter(|_| self.obstacle().is_none()) {
                marks.push(PlotMark::Line(line.to_vec(), ORANGE, 2.2));
            }
            let values = self.octaves.iter().map(|o| {
                let text =
                    format!("octave {}: {:.2}, confidence {:.2} to {:.2}", o.octave, o.y, o.lower, o.upper);
                (o.octave - 0.5, o.octave + 0.5, text)
            });
            marks.push(PlotMark::HoverColumns(values.collect()));
            svg("Energy of the traffic by octave of the time scale", size, &x, &y, &marks)
        })
    }

    fn over_time(&self, context: &SectionContext<'_>) -> Markup {
        let first = self.history.first().map_or(0, |estimate| estimate.time);
        let at = |estimate: &Estimate| context.elapsed(estimate.time, first);
        let end = self.history.last().map_or(0.0, at).max(context.seconds);
        let low = self.history.iter().map(|e| e.lower).fold(0.5, f64::min).max(-0.5);
        let high = self.history.iter().map(|e| e.upper).fold(1.0, f64::max).min(2.0);
        // The time between two estimates.
        let apart = end / crate::series::float(self.history.len().max(1) as u64);
        half_width(|size| {
            let x = Axis::time(end, size.ticks(), "the first packet");
            let y = Axis::linear(low, high, 5, "Hurst parameter H (1)");
            let whiskers = self.history.iter().map(|e| (at(e), e.lower, e.upper)).collect();
            let points: Vec<_> = self.history.iter().map(|e| (at(e), e.hurst)).collect();
            let marks = [
                PlotMark::Whiskers(whiskers, BLUE),
                PlotMark::Line(points.clone(), BLUE, 1.8),
                PlotMark::Dots(points, BLUE, 3.0),
                hover_columns(size, &self.history, |estimates| {
                    let (first, last) = (estimates.first()?, estimates.last()?);
                    let text = format!(
                        "H = {:.2}, confidence {:.2} to {:.2}, after {}",
                        last.hurst,
                        last.lower,
                        last.upper,
                        duration(at(last) * 1e9)
                    );
                    Some((at(first) - apart / 2.0, at(last) + apart / 2.0, text))
                }),
            ];
            svg("Hurst parameter over time", size, &x, &y, &marks)
        })
    }
}

impl RecordSummary for ScalingSummary {
    fn record(&mut self, stream: u16, record: &Record<'_>) {
        if stream == self.scales.stream {
            self.add_octave(record);
        } else if stream == self.estimate.stream {
            self.add_estimate(record);
        }
    }

    fn section(&self, context: &SectionContext<'_>) -> Option<ReportSection> {
        if self.octaves.is_empty() {
            return None;
        }
        let (note, highlight) = match (self.latest, self.obstacle()) {
            (Some(e), None) => (
                format!(
                    "H = {:.2}, 95 % confidence interval {:.2} to {:.2}, fitted over octaves {} to {}. Above 0.5 the traffic's bursts do not smooth out with the time scale.",
                    e.hurst, e.lower, e.upper, e.first, e.last
                ),
                Some(Highlight {
                    label: "Hurst parameter",
                    value: format!("{:.2}", e.hurst),
                    detail: format!("95 % confidence {:.2} to {:.2}", e.lower, e.upper),
                }),
            ),
            (_, obstacle) => (
                format!("The Hurst parameter is not estimated: {}.", obstacle.unwrap_or_default()),
                Some(Highlight {
                    label: "Hurst parameter",
                    value: "not estimated".to_owned(),
                    detail: "see Long-range dependence".to_owned(),
                }),
            ),
        };
        let keys = [("c1", "energy, 95 % confidence"), ("c2", "fit, slope 2H − 1")];
        let mut figures = vec![figure("Log-scale diagram", &keys, &self.diagram())];
        if self.history.len() > 1 {
            figures.push(figure("Estimate over time", &[], &self.over_time(context)));
        }
        let body = side_by_side(&figures);
        Some(ReportSection { title: "Long-range dependence", note, body, highlight })
    }
}
