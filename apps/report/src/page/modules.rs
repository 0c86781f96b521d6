//! The costs of the modules, and the first rows of their streams.

use super::{MESSAGES_MAX, PageModule, section};
use crate::axis::Axis;
use crate::module_records::StreamPreview;
use crate::plot::{BLUE, PlotMark, Size, figure, svg, wide_and_narrow};
use crate::run_info::RunModuleInfo;
use crate::series::float;
use crate::table::{HtmlCell, Untrusted, shortened, table};
use maud::{Markup, html};
use weir_rows::text::grouped;

/// Bars in the plot of costs.
const BARS_MAX: usize = 24;

/// Renders the section of costs; nothing without modules.
pub(super) fn costs(facts: &[RunModuleInfo]) -> Markup {
    if facts.is_empty() {
        return html! {};
    }
    let head = [
        HtmlCell::left("module"),
        HtmlCell::left("tier"),
        HtmlCell::right("packets"),
        HtmlCell::right("records"),
        HtmlCell::right("dropped records"),
        HtmlCell::right("faults"),
        HtmlCell::right("ns/packet"),
        HtmlCell::right("cycles/packet"),
        HtmlCell::right("memory"),
    ];
    let measured = |value: Option<f64>| {
        HtmlCell::right(
            &value.filter(|v| v.is_finite()).map_or_else(|| "–".to_owned(), |v| format!("{v:.1}")),
        )
    };
    let rows = facts.iter().map(|module| {
        vec![
            HtmlCell::left(&module.label),
            HtmlCell::left(&module.tier),
            HtmlCell::right(&grouped(module.packets)),
            HtmlCell::right(&grouped(module.records)),
            HtmlCell::right(&grouped(module.dropped_records)),
            HtmlCell::right(&grouped(module.faults)),
            measured(module.ns_per_packet),
            measured(module.cycles_per_packet),
            HtmlCell::right(&module.memory.to_string()),
        ]
    });
    let content = html! {
        (table("Costs of the modules", &head, rows))
        @for module in facts {
            @if let Some(reason) = &module.tier_reason {
                p.note { code { (Untrusted(&module.label)) } " is " (Untrusted(&module.tier)) ": " (shortened(reason)) }
            }
        }
        @for module in facts { @if !module.messages.is_empty() { (messages(module)) } }
        (cost_plot(facts))
    };
    section("modules", &html! { "Modules" }, &content)
}

fn messages(module: &RunModuleInfo) -> Markup {
    let more = module.messages.len().saturating_sub(MESSAGES_MAX);
    html! {
        h3 { code { (Untrusted(&module.label)) } " messages" }
        ul.log {
            @for message in module.messages.iter().take(MESSAGES_MAX) { li { (shortened(message)) } }
            @if more > 0 { li { "… and " (more) " more" } }
        }
    }
}

/// Renders bars of the time per packet, slowest module first.
fn cost_plot(facts: &[RunModuleInfo]) -> Markup {
    let mut costs: Vec<(&str, f64)> = facts
        .iter()
        .filter_map(|module| Some((module.label.as_str(), module.ns_per_packet.filter(|ns| ns.is_finite())?)))
        .collect();
    costs.sort_by(|a, b| b.1.total_cmp(&a.1));
    costs.truncate(BARS_MAX);
    let Some(most) = costs.first().map(|cost| cost.1) else { return html! {} };
    let labels: Vec<String> = costs.iter().map(|(label, _)| label.chars().take(18).collect()).collect();
    let rows = || (0u64..).map(float).zip(costs.iter().rev());
    let bars: Vec<(f64, f64, String)> = rows().map(|(row, (_, ns))| (row, *ns, format!("{ns:.1}"))).collect();
    let values: Vec<(f64, String)> =
        rows().map(|(row, (label, ns))| (row, format!("{label}: {ns:.1} ns per packet"))).collect();
    let height = u32::try_from(costs.len()).unwrap_or(0) * 28 + 62;
    let draw = |size| {
        let x = Axis::linear(0.0, most.max(1.0) * 1.05, 5, "ns per packet");
        let marks = [PlotMark::Rows(bars.clone(), BLUE), PlotMark::HoverRows(values.clone())];
        svg("Time per packet of each module", size, &x, &Axis::rows(&labels), &marks)
    };
    let plot = wide_and_narrow(Size { width: 1110, height }, Size { width: 350, height }, draw);
    figure("Cost per module", &[], &plot)
}

/// Renders the section of first rows; nothing if no module has streams.
pub(super) fn records(modules: &[PageModule<'_>]) -> Markup {
    if modules.iter().all(|module| module.records.streams.is_empty()) {
        return html! {};
    }
    section("records", &html! { "Records" }, &html! { @for module in modules { (module_records(module)) } })
}

fn module_records(module: &PageModule<'_>) -> Markup {
    let label = &module.records.label;
    let about = module.facts.map_or("", |facts| facts.summary.as_str());
    let parameters = module.facts.map_or(&[][..], |facts| facts.parameters.as_slice());
    html! {
        h3 { code { (Untrusted(label)) } " " small { (Untrusted(about)) } }
        @if !parameters.is_empty() {
            p.note { @for (name, value) in parameters { code { (Untrusted(name)) "=" (shortened(value)) } " " } }
        }
        @for (index, StreamPreview { name, description, rows }) in module.records.streams.iter().enumerate() {
            @let title = html! {
                b { (Untrusted(name.as_str())) } " " span { (rows.row_count()) }
                @if let Some(path) = module.path(name.as_str()) { " " code { (Untrusted(path)) } }
                em { (Untrusted(description)) }
            };
            @if rows.total == 0 {
                p.stream id=(module.rows_anchor(index)) { (title) }
            } @else {
                details.stream {
                    summary { (title) }
                    // A browser that goes to an anchor inside opens the details.
                    div id=(module.rows_anchor(index)) { (rows.html(&format!("First rows of {name} ({label})"))) }
                }
            }
        }
    }
}
