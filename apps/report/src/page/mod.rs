//! Renders the HTML page.

mod findings;
mod modules;
mod overview;
mod talkers;

use crate::TrafficTotals;
use crate::axis::Axis;
use crate::module_records::{Highlight, ModuleRecords, ReportSection, SectionContext};
use crate::overview::OverviewDigest;
use crate::plot::{BLUE, GREEN, PlotMark, figure, full_width, hover_columns, svg};
use crate::run_info::{CaptureInfo, RunModuleInfo};
use crate::series::{BinnedSeries, float};
use crate::table::{Untrusted, shortened};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use weir_rows::text::{date, duration, grouped, si, significant};
use weir_units::Bytes;

const STYLE: &str = include_str!("../style.css");
/// Forbids scripts, and requests of any kind.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";
const MESSAGES_MAX: usize = 20;

/// A module on the page.
#[derive(Clone, Copy, Debug)]
struct PageModule<'a> {
    /// The position among all modules, for anchors.
    index: usize,
    records: &'a ModuleRecords,
    facts: Option<&'a RunModuleInfo>,
    /// The section of a shipped module, if it has records.
    section: Option<&'a ReportSection>,
}

impl PageModule<'_> {
    /// The anchor of the module's section.
    fn section_anchor(&self) -> String {
        format!("module-{}", self.index)
    }

    /// The anchor of the first rows of a stream.
    fn rows_anchor(&self, stream: usize) -> String {
        format!("rows-{}-{stream}", self.index)
    }

    /// The path of the file of a stream, if one was written.
    fn path(&self, stream: &str) -> Option<&str> {
        self.facts?.streams.iter().find(|known| known.name == stream)?.path.as_deref()
    }
}

/// Renders the whole page.
pub(crate) fn render(
    traffic: &TrafficTotals,
    modules: &[ModuleRecords],
    digest: Option<&OverviewDigest>,
    capture: &CaptureInfo,
    facts: &[RunModuleInfo],
) -> String {
    let span = traffic.over_time.span();
    let seconds = span.map_or(0.0, |(first, last)| float(last - first) / 1e9);
    let sections: Vec<Option<ReportSection>> = modules
        .iter()
        .enumerate()
        .map(|(index, module)| {
            let start = span.map(|span| span.0);
            let context = SectionContext { start, seconds, label: &module.label, facts: facts.get(index) };
            module.summary.as_ref()?.section(&context)
        })
        .collect();
    let modules: Vec<PageModule<'_>> = modules
        .iter()
        .zip(&sections)
        .enumerate()
        .map(|(index, (records, section))| PageModule {
            index,
            records,
            facts: facts.get(index),
            section: section.as_ref(),
        })
        .collect();
    let name = match capture.name.as_str() {
        "-" => "standard input",
        "" => "capture",
        name => name,
    };
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                link rel="icon" href="data:,";
                title { (Untrusted(name)) " – weir" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header { (header(name, capture)) }
                main {
                    (warnings(capture))
                    (findings::findings(&modules, digest))
                    @if let Some(digest) = digest { (overview::services(digest)) }
                    (figures(capture, modules.iter().filter_map(|module| module.section?.highlight.as_ref())))
                    @if span.is_some() {
                        (traffic_over_time(&traffic.over_time, seconds))
                        (talkers::talkers(traffic))
                    }
                    @for module in &modules {
                        @if let Some(section) = module.section { (module_section(module, section)) }
                    }
                    (modules::costs(facts))
                    (modules::records(&modules))
                }
                footer {
                    "Made by weir " (env!("CARGO_PKG_VERSION")) ". This page loads nothing and runs no script."
                }
            }
        }
    }
    .into_string()
        + "\n"
}

/// Renders a section of the page, which its heading names. `id` is a constant or made of numbers.
fn section(id: &str, heading: &Markup, content: &Markup) -> Markup {
    html! {
        section id=(id) aria-labelledby={ (id) "-heading" } {
            h2 id={ (id) "-heading" } { (heading) }
            (content)
        }
    }
}

fn module_section(module: &PageModule<'_>, content: &ReportSection) -> Markup {
    section(
        &module.section_anchor(),
        &html! { (content.title) " " code { (Untrusted(&module.records.label)) } },
        &html! { p.note { (Untrusted(&content.note)) } (content.body) },
    )
}

fn header(name: &str, capture: &CaptureInfo) -> Markup {
    let mut facts = Vec::new();
    if let Some(start) = capture.start {
        facts.push(html! { "begins " (date(start, 3)) " UTC" });
    }
    if let Some(filter) = &capture.filter {
        facts.push(html! { "filter " code { (Untrusted(filter)) } });
    }
    if capture.elapsed.0 > 0 {
        let rate = float(capture.packets) / (float(capture.elapsed.0) / 1e9);
        facts.push(html! {
            "read in " (duration(float(capture.elapsed.0)))
            @if capture.jobs > 1 { " on " (capture.jobs) " threads" }
            ", " (spaced(&si(rate))) " packets/s"
        });
    }
    html! {
        p.brand { "weir" }
        h1 { (Untrusted(name)) }
        p.sub { @for (index, fact) in facts.iter().enumerate() { @if index > 0 { " · " } (fact) } }
    }
}

fn warnings(capture: &CaptureInfo) -> Markup {
    html! {
        @if let Some(truncated) = &capture.truncated {
            p.warn { strong { "The capture is truncated." } " " (Untrusted(truncated)) }
        }
        @for warning in capture.warnings.iter().take(MESSAGES_MAX) { p.warn { (shortened(warning)) } }
    }
}

/// Renders the key figures of the capture and of the modules.
fn figures<'a>(capture: &CaptureInfo, highlights: impl Iterator<Item = &'a Highlight>) -> Markup {
    let seconds = float(capture.duration.0) / 1e9;
    let rate = |amount: u64| if seconds > 0.0 { float(amount) / seconds } else { f64::NAN };
    let share = |part: u64| {
        if capture.packets == 0 {
            return String::new();
        }
        format!("{} % of packets", significant(float(part) / float(capture.packets) * 100.0))
    };
    let bits = rate(capture.wire_bytes.saturating_mul(8));
    let cards = [
        ("Packets", grouped(capture.packets), rate_with_unit(rate(capture.packets), "packets/s")),
        ("Bytes on the wire", Bytes(capture.wire_bytes).to_string(), rate_with_unit(bits, "bit/s")),
        ("Duration", duration(float(capture.duration.0)), "first packet to last".to_owned()),
        ("TCP", grouped(capture.tcp), share(capture.tcp)),
        ("UDP", grouped(capture.udp), share(capture.udp)),
        ("IPv6", grouped(capture.ipv6), share(capture.ipv6)),
        ("TCP SYN", grouped(capture.tcp_syn), "connection attempts".to_owned()),
    ];
    let highlights: Vec<_> = highlights.collect();
    html! {
        section.figures aria-labelledby="figures-heading" {
            h2 #figures-heading { "Key figures" }
            dl.cards { @for (label, value, detail) in &cards { (card(label, value, detail)) } }
            @if !highlights.is_empty() {
                dl.cards.found {
                    @for highlight in highlights {
                        (card(highlight.label, &highlight.value, &highlight.detail))
                    }
                }
            }
        }
    }
}

fn card(label: &str, value: &str, detail: &str) -> Markup {
    html! {
        div.card {
            dt { (label) }
            dd.value { (Untrusted(value)) }
            @if !detail.is_empty() { dd { (Untrusted(detail)) } }
        }
    }
}

/// Formats a rate with its unit; empty if the rate is not finite.
fn rate_with_unit(rate: f64, unit: &str) -> String {
    if rate.is_finite() { format!("{}\u{202f}{unit}", spaced(&si(rate))) } else { String::new() }
}

/// Puts a space before the SI prefix: "1.2M" becomes "1.2 M".
fn spaced(si: &str) -> String {
    match si.char_indices().next_back() {
        Some((at, prefix)) if prefix.is_ascii_alphabetic() => {
            format!("{}\u{202f}{prefix}", si.get(..at).unwrap_or(""))
        }
        _ => si.to_owned(),
    }
}

fn traffic_over_time(traffic: &BinnedSeries<2>, seconds: f64) -> Markup {
    let plot = |title: &str, k: usize, factor: f64, color, unit: &'static str| {
        let plot = full_width(210, |size| {
            let rates = traffic.rates(k, usize::try_from(size.width / 4).unwrap_or(200));
            let top = rates.iter().map(|rate| rate.per_second * factor).fold(0.0, f64::max);
            let x = Axis::time(seconds, size.ticks(), "the first packet");
            let y = Axis::linear(0.0, top.max(1.0), 4, unit);
            let points: Vec<_> = rates
                .iter()
                .flat_map(|rate| [(rate.from, rate.per_second * factor), (rate.to, rate.per_second * factor)])
                .collect();
            let values = hover_columns(size, &rates, |rates| {
                let (from, to) = (rates.first()?.from, rates.last()?.to);
                let most = rates.iter().map(|rate| rate.per_second * factor).fold(0.0, f64::max);
                let (begin, end) = (duration(from * 1e9), duration(to * 1e9));
                let up_to = if rates.len() > 1 { "up to " } else { "" };
                Some((from, to, format!("{begin} to {end}: {up_to}{}", rate_with_unit(most, unit))))
            });
            let in_words =
                format!("{title} over {}, at most {}", duration(seconds * 1e9), rate_with_unit(top, unit));
            let marks = [PlotMark::Area(points.clone(), color), PlotMark::Line(points, color, 1.6), values];
            svg(&in_words, size, &x, &y, &marks)
        });
        figure(title, &[], &plot)
    };
    let plots = html! {
        (plot("Packet rate", 0, 1.0, BLUE, "packets/s"))
        (plot("Bit rate on the wire", 1, 8.0, GREEN, "bit/s"))
    };
    section("traffic", &html! { "Traffic over time" }, &plots)
}
