//! SYN floods: connections opened and closed, the cumulative sum, alarms, and the flooded destinations.

use super::{StreamFields, stream_fields};
use crate::axis::Axis;
use crate::module_records::{Highlight, RecordSummary, ReportSection, SectionContext};
use crate::plot::{BLUE, GREEN, LabelSide, ORANGE, PlotMark, RED, figure, full_width, hover_columns, svg};
use crate::series::float;
use crate::table::{HtmlCell, table};
use crate::top::TopKeys;
use crate::value;
use maud::{Markup, html};
use std::net::Ipv6Addr;
use weir_rows::text::{duration, grouped, significant};
use {weir_admission::Manifest, weir_session::Record};

const POINTS_MAX: usize = 1024;
const DESTINATIONS: usize = 10;

/// Summary of module `syn-flood`.
#[derive(Debug)]
pub(crate) struct FloodSummary {
    intervals: StreamFields<6>,
    top: Option<StreamFields<3>>,
    points: Vec<Point>,
    /// Rows that each point aggregates.
    rows_per_point: u64,
    rows: u64,
    /// Rows with the alarm on.
    alarms: u64,
    /// The shortest time between two rows, in ns; `u64::MAX` before the second row.
    shortest: u64,
    /// Time of the last row, in ns.
    last: u64,
    destinations: TopKeys<Ipv6Addr, Flooded>,
}

/// The sums of one or more consecutive rows of the stream `intervals`.
#[derive(Clone, Copy, Debug)]
struct Point {
    /// Time of the first row, in ns.
    from: u64,
    /// Time of the last row, in ns.
    last: u64,
    rows: u64,
    syn: u64,
    /// Packets with FIN or RST.
    closed: u64,
    /// The maximum of the CUSUM statistic.
    sum: f64,
    alarm: bool,
}

/// Statistics of a flooded destination.
#[derive(Debug, Default)]
struct Flooded {
    /// Alarm intervals with the destination among the most flooded.
    intervals: u64,
    /// Time of the first of these intervals, in ns.
    first: u64,
    /// Maximum number of SYN packets in one of these intervals.
    most: u64,
}

impl FloodSummary {
    pub(crate) fn new(manifest: &Manifest) -> Option<Self> {
        let fields = |sum| {
            stream_fields(
                manifest,
                "intervals",
                ["time", "syn_packets", "fin_packets", "rst_packets", sum, "alarm"],
            )
        };
        Some(Self {
            intervals: fields("cusum").or_else(|| fields("statistic"))?,
            top: stream_fields(manifest, "top", ["time", "dst", "syn_packets"]),
            points: Vec::new(),
            rows_per_point: 1,
            rows: 0,
            alarms: 0,
            shortest: u64::MAX,
            last: 0,
            destinations: TopKeys::default(),
        })
    }

    fn add_interval(&mut self, record: &Record<'_>) -> Option<()> {
        let [time, syn, fin, rst, sum, alarm] = &self.intervals.fields;
        let time = value::unsigned(time, record)?;
        let closed = value::unsigned(fin, record)?.saturating_add(value::unsigned(rst, record)?);
        let sum = Some(value::number(sum, record)?).filter(|sum| sum.is_finite()).unwrap_or(0.0);
        let alarm = value::unsigned(alarm, record)? != 0;
        let row =
            Point { from: time, last: time, rows: 1, syn: value::unsigned(syn, record)?, closed, sum, alarm };
        if self.rows > 0 && time > self.last {
            self.shortest = self.shortest.min(time - self.last);
        }
        self.last = time;
        self.rows += 1;
        self.alarms += u64::from(alarm);
        match self.points.last_mut() {
            Some(point) if point.rows < self.rows_per_point => point.merge(&row),
            _ => {
                if self.points.len() >= POINTS_MAX {
                    self.points = self.points.chunks(2).filter_map(merged).collect();
                    self.rows_per_point *= 2;
                }
                self.points.push(row);
            }
        }
        Some(())
    }

    fn add_destination(&mut self, record: &Record<'_>) -> Option<()> {
        let [time, destination, count] = &self.top.as_ref()?.fields;
        let (time, count) = (value::unsigned(time, record)?, value::unsigned(count, record)?);
        let flooded = self.destinations.add(value::address(destination, record)?, count);
        if flooded.intervals == 0 {
            flooded.first = time;
        }
        flooded.intervals += 1;
        flooded.most = flooded.most.max(count);
        Some(())
    }

    fn plots(&self, context: &SectionContext<'_>) -> Markup {
        let first = self.points.first().map_or(0, |point| point.from);
        let interval = if self.shortest == u64::MAX { 0 } else { self.shortest };
        let at = |ts: u64| context.elapsed(ts, first);
        let end = at(self.last.saturating_add(interval)).max(context.seconds);
        // A point's value extends to the end of its last interval.
        let level = |value: &dyn Fn(&Point) -> f64| -> Vec<(f64, f64)> {
            self.points
                .iter()
                .flat_map(|point| {
                    let value = value(point);
                    [(at(point.from), value), (at(point.last.saturating_add(interval)), value)]
                })
                .collect()
        };
        let mean = |sum: u64, rows: u64| float(sum) / float(rows.max(1));
        let syn = level(&|point| mean(point.syn, point.rows));
        let closed = level(&|point| mean(point.closed, point.rows));
        let sum = level(&|point| point.sum);
        let bands: Vec<_> = self
            .points
            .iter()
            .filter(|point| point.alarm)
            .map(|point| (at(point.from), at(point.last.saturating_add(interval))))
            .collect();
        let top = |points: &[(f64, f64)]| points.iter().map(|point| point.1).fold(0.0, f64::max);
        let threshold = context.facts.and_then(|facts| {
            let (_, value) = facts.parameters.iter().find(|(name, _)| name == "threshold")?;
            value.parse::<f64>().ok().filter(|value| value.is_finite())
        });
        let values = |size, text: &dyn Fn(&[Point]) -> String| {
            hover_columns(size, &self.points, |points| {
                let from = at(points.first()?.from);
                let text = format!("after {}: {}", duration(from * 1e9), text(points));
                Some((from, at(points.last()?.last.saturating_add(interval)), text))
            })
        };
        let counts = full_width(220, |size| {
            let x = Axis::time(end, size.ticks(), "").untitled();
            let y = Axis::counts(top(&syn).max(top(&closed)), "packets per interval");
            let lines = [
                PlotMark::Bands(bands.clone(), RED),
                PlotMark::Area(syn.clone(), BLUE),
                PlotMark::Line(syn.clone(), BLUE, 1.8),
                PlotMark::Line(closed.clone(), ORANGE, 1.8),
                values(size, &|points| {
                    let rows = points.iter().map(|point| point.rows).sum();
                    let mean = |of: fn(&Point) -> u64| {
                        let sum = points.iter().fold(0u64, |sum, point| sum.saturating_add(of(point)));
                        significant(mean(sum, rows))
                    };
                    let (syn, closed) = (mean(|point| point.syn), mean(|point| point.closed));
                    format!("{syn} SYN, {closed} FIN and RST per interval")
                }),
            ];
            svg("SYN packets, and packets with FIN or RST, per interval", size, &x, &y, &lines)
        });
        let sums = full_width(220, |size| {
            let x = Axis::time(end, size.ticks(), "the first packet");
            let y = Axis::linear(
                0.0,
                top(&sum).max(threshold.unwrap_or(0.0)).max(0.1) * 1.05,
                4,
                "cumulative sum (1)",
            );
            let mut marks = vec![
                PlotMark::Bands(bands.clone(), RED),
                PlotMark::Area(sum.clone(), GREEN),
                PlotMark::Line(sum.clone(), GREEN, 1.8),
            ];
            if let Some(threshold) = threshold {
                marks.push(PlotMark::Rule((0.0, threshold), (end, threshold), RED));
                marks.push(PlotMark::Label(
                    (0.0, threshold),
                    RED,
                    "alarm threshold".to_owned(),
                    LabelSide::Right,
                ));
            }
            marks.push(values(size, &|points| {
                let sum = points.iter().map(|point| point.sum).fold(0.0, f64::max);
                let alarm = if points.iter().any(|point| point.alarm) { ", alarm" } else { "" };
                format!("cumulative sum {}{alarm}", significant(sum))
            }));
            svg("Cumulative sum of the excess of SYN packets", size, &x, &y, &marks)
        });
        let keys = [("c1", "SYN"), ("c2", "FIN and RST"), ("c3", "CUSUM statistic"), ("c4", "alarm")];
        figure("SYN packets and the CUSUM statistic", &keys, &html! { (counts) (sums) })
    }
}

impl Point {
    fn merge(&mut self, other: &Point) {
        self.last = other.last;
        self.rows += other.rows;
        self.syn = self.syn.saturating_add(other.syn);
        self.closed = self.closed.saturating_add(other.closed);
        self.sum = self.sum.max(other.sum);
        self.alarm |= other.alarm;
    }
}

fn merged(points: &[Point]) -> Option<Point> {
    let (first, rest) = points.split_first()?;
    let mut point = *first;
    rest.iter().for_each(|other| point.merge(other));
    Some(point)
}

impl RecordSummary for FloodSummary {
    fn record(&mut self, stream: u16, record: &Record<'_>) {
        if stream == self.intervals.stream {
            self.add_interval(record);
        } else if self.top.as_ref().is_some_and(|top| top.stream == stream) {
            self.add_destination(record);
        }
    }

    fn section(&self, context: &SectionContext<'_>) -> Option<ReportSection> {
        let first = self.points.first()?.from;
        let mut body = self.plots(context);
        let heaviest = self.destinations.heaviest(DESTINATIONS);
        if !heaviest.is_empty() {
            let head = [
                HtmlCell::left("destination"),
                HtmlCell::right("SYN in alarm intervals"),
                HtmlCell::right("most in one"),
                HtmlCell::right("alarm intervals"),
                HtmlCell::right("first after"),
            ];
            let rows = heaviest.iter().map(|(address, count, flooded)| {
                vec![
                    HtmlCell::left(&weir_units::AddressText::new(*address).to_string()),
                    HtmlCell::right(&grouped(*count)),
                    HtmlCell::right(&grouped(flooded.most)),
                    HtmlCell::right(&grouped(flooded.intervals)),
                    HtmlCell::right(&duration(context.elapsed(flooded.first, first) * 1e9)),
                ]
            });
            let title = "Destinations of most SYN packets";
            let table = table(&format!("{title} ({})", context.label), &head, rows);
            body = html! { (body) h3 { (title) } (table) };
        }
        let mut note =
            format!("{} intervals, {} with the alarm on.", grouped(self.rows), grouped(self.alarms));
        if self.rows_per_point > 1 {
            note += &format!(
                " Each point is the mean (CUSUM: the maximum) of {} intervals.",
                self.rows_per_point
            );
        }
        Some(ReportSection {
            title: "SYN flood detection",
            note,
            body,
            highlight: Some(Highlight {
                label: "Intervals with a SYN alarm",
                value: if self.alarms == 0 { "none".to_owned() } else { grouped(self.alarms) },
                detail: match heaviest.first() {
                    Some((address, ..)) => {
                        format!("most SYN packets to {}", weir_units::AddressText::new(*address))
                    }
                    None => format!("in {} intervals", grouped(self.rows)),
                },
            }),
        })
    }
}
