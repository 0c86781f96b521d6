//! Sampled flows: the samples of the heaviest flows over time, and their endpoints.

use super::{StreamFields, stream_fields};
use crate::axis::Axis;
use crate::module_records::{Highlight, RecordSummary, ReportSection, SectionContext};
use crate::plot::{BLUE, PlotMark, figure, full_width, svg};
use crate::protocols::protocol_label;
use crate::table::{HtmlCell, table};
use crate::top::TopKeys;
use crate::value;
use maud::html;
use std::net::Ipv6Addr;
use weir_rows::text::{duration, grouped};
use weir_units::Bytes;
use {weir_admission::Manifest, weir_session::Record};

/// Number of samples that are plotted, picked uniformly from all.
const RESERVOIR: usize = 4_096;
/// Number of flows in the plot.
const PLOTTED_FLOWS: usize = 12;
const ROWS: usize = 15;

/// Summary of module `trajectory`.
#[derive(Debug)]
pub(crate) struct FlowSummary {
    samples: StreamFields<3>,
    flows: Option<StreamFields<6>>,
    top: TopKeys<u64, Flow>,
    /// Time in ns and flow label of the picked samples.
    reservoir: Vec<(u64, u64)>,
    /// Number of all samples.
    seen: u64,
    /// Total bytes of all sampled packets.
    bytes: u64,
    /// State of the random number generator.
    random: u64,
}

#[derive(Debug, Default)]
struct Flow {
    bytes: u64,
    first: u64,
    last: u64,
    endpoints: Option<FlowEndpoints>,
}

#[derive(Debug)]
struct FlowEndpoints {
    source: Ipv6Addr,
    source_port: u64,
    destination: Ipv6Addr,
    destination_port: u64,
    protocol: u64,
}

impl FlowSummary {
    pub(crate) fn new(manifest: &Manifest) -> Option<Self> {
        let names = ["flow", "src", "src_port", "dst", "dst_port", "protocol"];
        Some(Self {
            samples: stream_fields(manifest, "samples", ["time", "flow", "wire_bytes"])?,
            flows: stream_fields(manifest, "flows", names),
            top: TopKeys::default(),
            reservoir: Vec::new(),
            seen: 0,
            bytes: 0,
            random: 0x9e37_79b9_7f4a_7c15,
        })
    }

    fn add_sample(&mut self, record: &Record<'_>) -> Option<()> {
        let [time, flow, len] = &self.samples.fields;
        let (time, label) = (value::unsigned(time, record)?, value::unsigned(flow, record)?);
        let len = value::unsigned(len, record)?;
        let flow = self.top.add(label, 1);
        flow.first = if flow.first == 0 { time } else { flow.first.min(time) };
        flow.last = flow.last.max(time);
        flow.bytes = flow.bytes.saturating_add(len);
        self.bytes = self.bytes.saturating_add(len);
        self.seen += 1;
        if self.reservoir.len() < RESERVOIR {
            self.reservoir.push((time, label));
        } else {
            // Reservoir sampling (Vitter 1985, algorithm R). The random sequence is fixed, so that the page depends on the input only.
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let slot = usize::try_from(self.random % self.seen).ok();
            if let Some(slot) = slot.and_then(|slot| self.reservoir.get_mut(slot)) {
                *slot = (time, label);
            }
        }
        Some(())
    }

    fn add_flow(&mut self, record: &Record<'_>) -> Option<()> {
        let [flow, source, source_port, destination, destination_port, protocol] =
            &self.flows.as_ref()?.fields;
        let endpoints = FlowEndpoints {
            source: value::address(source, record)?,
            source_port: value::unsigned(source_port, record).unwrap_or(0),
            destination: value::address(destination, record)?,
            destination_port: value::unsigned(destination_port, record).unwrap_or(0),
            protocol: value::unsigned(protocol, record)?,
        };
        self.top.add(value::unsigned(flow, record)?, 0).endpoints = Some(endpoints);
        Some(())
    }
}

impl RecordSummary for FlowSummary {
    fn record(&mut self, stream: u16, record: &Record<'_>) {
        if stream == self.samples.stream {
            self.add_sample(record);
        } else if self.flows.as_ref().is_some_and(|flows| flows.stream == stream) {
            self.add_flow(record);
        }
    }

    fn section(&self, context: &SectionContext<'_>) -> Option<ReportSection> {
        if self.seen == 0 {
            return None;
        }
        let heaviest = self.top.heaviest(ROWS);
        let plotted: Vec<u64> = heaviest.iter().take(PLOTTED_FLOWS).map(|(label, ..)| *label).collect();
        let first = self.reservoir.iter().map(|(time, _)| *time).min().unwrap_or(0);
        let points: Vec<(f64, f64)> = self
            .reservoir
            .iter()
            .filter_map(|(time, label)| {
                let rank = plotted.iter().position(|flow| flow == label)?;
                Some((context.elapsed(*time, first), crate::series::float((plotted.len() - 1 - rank) as u64)))
            })
            .collect();
        let end = points.iter().map(|point| point.0).fold(context.seconds, f64::max);
        let height = u32::try_from(plotted.len()).unwrap_or(0) * 22 + 62;
        let values: Vec<_> = (0u64..)
            .zip(heaviest.iter().take(plotted.len()).rev())
            .map(|(row, (_, count, flow))| {
                let rank = plotted.len() as u64 - row;
                let ends = flow.endpoints.as_ref().map_or_else(String::new, |ends| {
                    let source = endpoint(ends.source, ends.source_port);
                    format!(", {source} to {}", endpoint(ends.destination, ends.destination_port))
                });
                (crate::series::float(row), format!("#{rank}{ends}: {} samples", grouped(*count)))
            })
            .collect();
        let plot = full_width(height, |size| {
            let x = Axis::time(end, size.ticks(), "the first packet");
            let y = Axis::rows(&(1..=plotted.len()).map(|rank| format!("#{rank}")).collect::<Vec<_>>());
            let values = PlotMark::HoverRows(values.clone());
            let in_words = "Times of the samples of the flows with most samples";
            svg(in_words, size, &x, &y, &[PlotMark::Dots(points.clone(), BLUE, 2.5), values])
        });
        let head = [
            HtmlCell::right("#"),
            HtmlCell::left("source"),
            HtmlCell::left("destination"),
            HtmlCell::left("protocol"),
            HtmlCell::right("samples"),
            HtmlCell::right("sampled bytes"),
            HtmlCell::right("first to last"),
            HtmlCell::left("label"),
        ];
        let rows = heaviest.iter().zip(1u64..).map(|((label, count, flow), rank)| {
            let (source, destination, protocol) = match &flow.endpoints {
                Some(ends) => (
                    endpoint(ends.source, ends.source_port),
                    endpoint(ends.destination, ends.destination_port),
                    u8::try_from(ends.protocol).map_or_else(|_| ends.protocol.to_string(), protocol_label),
                ),
                None => Default::default(),
            };
            vec![
                HtmlCell::right(&rank.to_string()),
                HtmlCell::left(&source),
                HtmlCell::left(&destination),
                HtmlCell::left(&protocol),
                HtmlCell::right(&grouped(*count)),
                HtmlCell::right(&Bytes(flow.bytes).to_string()),
                HtmlCell::right(&duration(crate::series::float(flow.last.saturating_sub(flow.first)))),
                HtmlCell::left(&format!("{label:016x}")),
            ]
        });
        let plus = if self.top.incomplete { "more than " } else { "" };
        let flows = format!("{plus}{}", grouped(self.top.len() as u64));
        let body = html! {
            (figure(&format!("The {} flows with most samples", plotted.len()), &[], &plot))
            (table(&format!("Sampled flows ({})", context.label), &head, rows))
        };
        Some(ReportSection {
            title: "Sampled flows",
            note: format!(
                "{} packets of {flows} flows were sampled, {} together. A packet is sampled at every node that it passes, or at none.",
                grouped(self.seen),
                Bytes(self.bytes)
            ),
            body,
            highlight: Some(Highlight {
                label: "Sampled packets",
                value: weir_rows::text::si(crate::series::float(self.seen)),
                detail: format!("of {flows} flows"),
            }),
        })
    }
}

/// Formats an endpoint: "10.0.0.1:80" or "[2001:db8::1]:80"; without the port if it is 0.
fn endpoint(address: Ipv6Addr, port: u64) -> String {
    let text = weir_units::AddressText::new(address).to_string();
    match (port, text.contains(':')) {
        (0, _) => text,
        (_, true) => format!("[{text}]:{port}"),
        (_, false) => format!("{text}:{port}"),
    }
}
