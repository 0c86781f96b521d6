//! Round-trip times: histogram and cumulative distribution.

use super::{StreamFields, stream_fields};
use crate::axis::Axis;
use crate::histogram::LogHistogram;
use crate::module_records::{Highlight, RecordSummary, ReportSection, SectionContext};
use crate::plot::{
    BLUE, LabelSide, ORANGE, PlotMark, Size, figure, half_width, hover_columns, side_by_side, svg,
};
use crate::series::float;
use crate::table::{HtmlCell, table};
use crate::value;
use maud::html;
use weir_rows::text::{duration, grouped, significant};
use {
    weir_admission::{Manifest, StreamField},
    weir_session::Record,
};

/// The least number of handshakes whose distribution is drawn.
const DRAWN_MIN: u64 = 5;

/// Summary of module `rtt`: the distribution of round-trip times.
#[derive(Debug)]
pub(crate) struct RttSummary {
    stream: u16,
    rtt: StreamField,
    syns: Option<StreamField>,
    histogram: LogHistogram,
    /// Handshakes whose SYN was sent more than once.
    ambiguous: u64,
}

impl RttSummary {
    pub(crate) fn new(manifest: &Manifest) -> Option<Self> {
        let StreamFields { stream, fields: [rtt] } = stream_fields(manifest, "rtts", ["rtt_ns"])?;
        let syns =
            stream_fields(manifest, "rtts", ["syn_packets"]).map(|StreamFields { fields: [syns], .. }| syns);
        Some(Self { stream, rtt, syns, histogram: LogHistogram::default(), ambiguous: 0 })
    }
}

impl RecordSummary for RttSummary {
    fn record(&mut self, stream: u16, record: &Record<'_>) {
        if stream != self.stream {
            return;
        }
        if let Some(rtt) = value::signed(&self.rtt, record) {
            self.histogram.add(rtt);
        }
        let syns = self.syns.as_ref().and_then(|syns| value::unsigned(syns, record));
        self.ambiguous += u64::from(syns.is_some_and(|syns| syns > 1));
    }

    fn section(&self, context: &SectionContext<'_>) -> Option<ReportSection> {
        let quantile = |share| self.histogram.quantile(share);
        let (median, high) = (quantile(0.5)?, quantile(0.95)?);
        let in_words = format!(
            "Distribution of the round-trip times: median {}, 95 % below {}",
            duration(median),
            duration(high)
        );
        // The labels are at heights where the plot is empty.
        let rules = |top: f64, heights: [f64; 2]| {
            let [at_median, at_high] = heights;
            [
                (median, BLUE, "median", at_median, LabelSide::Left),
                (high, ORANGE, "95 %", at_high, LabelSide::Right),
            ]
            .into_iter()
            .flat_map(move |(ns, color, name, height, side)| {
                let x = ns.log10();
                [
                    PlotMark::Rule((x, 0.0), (x, top), color),
                    PlotMark::Label((x, top * height), color, format!("{name} {}", duration(ns)), side),
                ]
            })
        };
        let histogram = half_width(|size| {
            let bars = self.histogram.bars(if size.width < 480 { 24 } else { 36 });
            let x = time_axis(&bars, size);
            let most = bars.iter().map(|bar| bar.2).max().unwrap_or(0);
            let y = Axis::counts(float(most) * 1.2, "handshakes");
            let values = hover_columns(size, &bars, |bars| {
                let ((from, ..), (_, to, _)) = (bars.first()?, bars.last()?);
                let count: u64 = bars.iter().map(|bar| bar.2).sum();
                let text = format!("{} to {}: {} handshakes", duration(*from), duration(*to), grouped(count));
                Some((from.log10(), to.log10(), text))
            });
            let bars = bars.iter().map(|(from, to, n)| (from.log10(), to.log10(), float(*n))).collect();
            let marks: Vec<_> = [PlotMark::Bars(bars, BLUE)]
                .into_iter()
                .chain(rules(y.to(), [0.93, 0.85]))
                .chain([values])
                .collect();
            svg(&in_words, size, &x, &y, &marks)
        });
        let cumulative = half_width(|size| {
            let x = time_axis(&self.histogram.bars(36), size);
            let y = Axis::percent("handshakes at or below");
            let points: Vec<_> =
                self.histogram.cumulative().into_iter().map(|(ns, share)| (ns.log10(), share)).collect();
            let steps: Vec<_> = points.windows(2).collect();
            let values = hover_columns(size, &steps, |steps| {
                let (first, last) = (steps.first()?.first()?, steps.last()?.last()?);
                let percent = significant(last.1 * 100.0);
                let text = format!("{percent} % at or below {}", duration(10f64.powf(last.0)));
                Some((first.0, last.0, text))
            });
            let marks: Vec<_> =
                [PlotMark::Area(points.clone(), BLUE), PlotMark::Line(points.clone(), BLUE, 2.0)]
                    .into_iter()
                    .chain(rules(1.0, [0.04, 0.12]))
                    .chain([values])
                    .collect();
            svg(&in_words, size, &x, &y, &marks)
        });
        let head = ["10 %", "median", "90 %", "95 %", "99 %"].map(HtmlCell::right);
        let row = [0.1, 0.5, 0.9, 0.95, 0.99]
            .map(|share| HtmlCell::right(&quantile(share).map(duration).unwrap_or_default()));
        let mut note = format!(
            "From the client's SYN to its first ACK, for {} handshakes; the time axis is logarithmic.",
            grouped(self.histogram.count)
        );
        if self.ambiguous > 0 {
            note += &format!(
                " {} of them sent the SYN again, so that their time is ambiguous.",
                grouped(self.ambiguous)
            );
        }
        if self.histogram.not_positive > 0 {
            note +=
                &format!(" {} without a positive time are left out.", grouped(self.histogram.not_positive));
        }
        let plots = if self.histogram.count < DRAWN_MIN {
            note += " Too few for a distribution.";
            html! {}
        } else {
            side_by_side(&[
                figure("Histogram", &[], &histogram),
                figure("Cumulative distribution", &[], &cumulative),
            ])
        };
        let label = format!("Quantiles of the round-trip time ({})", context.label);
        let body = html! { (plots) div.compact { (table(&label, &head, [row.to_vec()].into_iter())) } };
        Some(ReportSection {
            title: "TCP round-trip time",
            note,
            body,
            highlight: Some(Highlight {
                label: "Median round-trip time",
                value: duration(median),
                detail: format!(
                    "{} handshakes, 95 % below {}",
                    grouped(self.histogram.count),
                    duration(high)
                ),
            }),
        })
    }
}

fn time_axis(bars: &[(f64, f64, u64)], size: Size) -> Axis {
    let most = if size.width < 480 { 5.0 } else { 10.0 };
    let from = bars.first().map_or(1.0, |bar| bar.0);
    let to = bars.last().map_or(10.0, |bar| bar.1);
    Axis::log_durations(from, to, most, "round-trip time")
}
