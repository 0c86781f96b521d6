//! Renders the HTML page.

use crate::axis::Axis;
use crate::html::escape;
use crate::module_records::{Highlight, ModuleRecords, ReportSection, SectionContext, StreamPreview};
use crate::plot::{BLUE, GREEN, PlotMark, full_width, svg};
use crate::run_info::{CaptureInfo, RunModuleInfo};
use crate::series::{BinnedSeries, float};
use std::fmt::Write;
use weir_rows::text::{date, duration, grouped, si, significant};
use weir_units::Bytes;

const STYLE: &str = include_str!("style.css");
const MESSAGES_MAX: usize = 20;
const MESSAGE_CHARS_MAX: usize = 400;

/// A cell of a table; its text is not HTML.
#[derive(Clone, Debug)]
pub(crate) struct HtmlCell {
    pub(crate) text: String,
    /// True for alignment to the right, as for numbers.
    pub(crate) right: bool,
}

impl HtmlCell {
    pub(crate) fn left(text: &str) -> Self {
        Self { text: text.to_owned(), right: false }
    }

    pub(crate) fn right(text: &str) -> Self {
        Self { text: text.to_owned(), right: true }
    }
}

/// Renders a table, which scrolls sideways if it is too wide.
pub(crate) fn table(head: &[HtmlCell], rows: impl Iterator<Item = Vec<HtmlCell>>) -> String {
    table_of(head, rows.map(|row| (row, None)))
}

/// Renders a table with a bar in the last column; the share is from 0 to 1.
pub(crate) fn table_with_bars(head: &[HtmlCell], rows: impl Iterator<Item = (Vec<HtmlCell>, f64)>) -> String {
    table_of(head, rows.map(|(row, share)| (row, Some(share))))
}

fn table_of(head: &[HtmlCell], rows: impl Iterator<Item = (Vec<HtmlCell>, Option<f64>)>) -> String {
    let mut out = String::from("<div class=\"scroll\"><table><thead><tr>");
    let class = |cell: &HtmlCell| if cell.right { " class=\"n\"" } else { "" };
    for cell in head {
        push(&mut out, format_args!("<th scope=\"col\"{}>{}</th>", class(cell), escape(&cell.text)));
    }
    let mut body = String::new();
    let mut bars = false;
    for (row, share) in rows {
        body.push_str("<tr>");
        for cell in &row {
            push(&mut body, format_args!("<td{}>{}</td>", class(cell), escape(&cell.text)));
        }
        if let Some(share) = share {
            bars = true;
            let percent = (share * 100.0).clamp(0.0, 100.0);
            push(&mut body, format_args!("<td class=\"bar\"><i style=\"width:{percent:.1}%\"></i></td>"));
        }
        body.push_str("</tr>");
    }
    if bars {
        out.push_str("<th></th>");
    }
    push(&mut out, format_args!("</tr></thead><tbody>{body}</tbody></table></div>"));
    out
}

/// Renders the legend of a plot from pairs of a colour's CSS class and a word.
pub(crate) fn legend(keys: &[(&str, &str)]) -> String {
    if keys.is_empty() {
        return String::new();
    }
    let items: String =
        keys.iter().map(|(class, word)| format!("<span><i class=\"{class}\"></i>{word}</span>")).collect();
    format!("<div class=\"legend\">{items}</div>")
}

/// Renders a plot with its title (text) and legend (HTML).
pub(crate) fn figure(title: &str, legend: &str, plot: &str) -> String {
    let title = escape(title);
    format!("<figure aria-label=\"{title}\"><figcaption>{title}</figcaption>{legend}{plot}</figure>")
}

/// Renders two plots side by side, each given as title, legend and plot.
pub(crate) fn pair(a: (&str, &str, &str), b: (&str, &str, &str)) -> String {
    format!("<div class=\"pair\">{}{}</div>", figure(a.0, a.1, a.2), figure(b.0, b.1, b.2))
}

/// Renders the whole page.
pub(crate) fn render(
    traffic: &BinnedSeries<2>,
    modules: &[ModuleRecords],
    capture: &CaptureInfo,
    facts: &[RunModuleInfo],
) -> String {
    let span = traffic.span();
    let seconds = span.map_or(0.0, |(first, last)| float(last - first) / 1e9);
    let sections: Vec<(&str, ReportSection)> = modules
        .iter()
        .enumerate()
        .filter_map(|(index, module)| {
            let context = SectionContext { start: span.map(|span| span.0), seconds, facts: facts.get(index) };
            Some((module.label.as_str(), module.summary.as_ref()?.section(&context)?))
        })
        .collect();
    let mut out = String::with_capacity(1 << 16);
    let name = escape(&capture.name);
    push(
        &mut out,
        format_args!(
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><meta name=\"color-scheme\" content=\"light dark\">\
             <link rel=\"icon\" href=\"data:,\"><title>{name} – weir</title><style>{STYLE}</style></head><body><main>"
        ),
    );
    header(&mut out, capture);
    cards(&mut out, capture, sections.iter().filter_map(|(_, section)| section.highlight.as_ref()));
    if span.is_some() {
        push_traffic(&mut out, traffic, seconds);
    }
    for (label, section) in &sections {
        push(
            &mut out,
            format_args!(
                "<section><h2>{} <code>{}</code></h2><p class=\"note\">{}</p>{}</section>",
                section.title,
                escape(label),
                section.note,
                section.body
            ),
        );
    }
    push_modules(&mut out, facts);
    push_records(&mut out, modules, facts);
    push(
        &mut out,
        format_args!(
            "<footer>Made by weir {}. This page loads nothing and runs no script.</footer></main></body></html>\n",
            env!("CARGO_PKG_VERSION")
        ),
    );
    out
}

fn header(out: &mut String, capture: &CaptureInfo) {
    let mut facts = Vec::new();
    if let Some(start) = capture.start {
        facts.push(format!("begins {} UTC", date(start, 3)));
    }
    if let Some(filter) = &capture.filter {
        facts.push(format!("filter <code>{}</code>", escape(filter)));
    }
    if capture.elapsed.0 > 0 {
        let rate = float(capture.packets) / (float(capture.elapsed.0) / 1e9);
        let threads = if capture.jobs > 1 { format!(" on {} threads", capture.jobs) } else { String::new() };
        facts.push(format!(
            "read in {}{threads}, {} packets/s",
            duration(float(capture.elapsed.0)),
            spaced(&si(rate))
        ));
    }
    push(
        out,
        format_args!(
            "<header><p class=\"brand\">weir</p><h1>{}</h1><p class=\"sub\">{}</p></header>",
            escape(if capture.name == "-" { "standard input" } else { &capture.name }),
            facts.join(" · ")
        ),
    );
    if let Some(truncated) = &capture.truncated {
        push(
            out,
            format_args!(
                "<p class=\"warn\"><strong>The capture is truncated.</strong> {}</p>",
                escape(truncated)
            ),
        );
    }
    for warning in capture.warnings.iter().take(MESSAGES_MAX) {
        push(out, format_args!("<p class=\"warn\">{}</p>", escape(&shortened(warning))));
    }
}

fn cards<'a>(out: &mut String, capture: &CaptureInfo, highlights: impl Iterator<Item = &'a Highlight>) {
    let seconds = float(capture.duration.0) / 1e9;
    let rate = |amount: u64| if seconds > 0.0 { float(amount) / seconds } else { f64::NAN };
    let share = |part: u64| {
        if capture.packets == 0 {
            return String::new();
        }
        format!("{} % of packets", significant(float(part) / float(capture.packets) * 100.0))
    };
    let bits = rate(capture.wire_bytes.saturating_mul(8));
    out.push_str("<div class=\"cards\">");
    for (label, value, detail) in [
        ("Packets", grouped(capture.packets), rate_with_unit(rate(capture.packets), "packets/s")),
        ("Bytes on the wire", Bytes(capture.wire_bytes).to_string(), rate_with_unit(bits, "bit/s")),
        ("Duration", duration(float(capture.duration.0)), "first packet to last".to_owned()),
        ("TCP", grouped(capture.tcp), share(capture.tcp)),
        ("UDP", grouped(capture.udp), share(capture.udp)),
        ("IPv6", grouped(capture.ipv6), share(capture.ipv6)),
        ("TCP SYN", grouped(capture.tcp_syn), "connection attempts".to_owned()),
    ] {
        card(out, label, &value, &detail, "");
    }
    out.push_str("</div><div class=\"cards found\">");
    for highlight in highlights {
        card(
            out,
            highlight.label,
            &highlight.value,
            &highlight.detail,
            if highlight.alarm { " alarm" } else { "" },
        );
    }
    out.push_str("</div>");
}

fn card(out: &mut String, label: &str, value: &str, detail: &str, class: &str) {
    push(
        out,
        format_args!(
            "<div class=\"card{class}\"><span>{}</span><b>{}</b><small>{}</small></div>",
            escape(label),
            escape(value),
            escape(detail)
        ),
    );
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

fn push_traffic(out: &mut String, traffic: &BinnedSeries<2>, seconds: f64) {
    let plot = |k: usize, factor: f64, color, unit: &'static str| {
        full_width(210, |size| {
            let rates = traffic.rates(k, usize::try_from(size.width / 4).unwrap_or(200));
            let top = rates.iter().map(|rate| rate.per_second * factor).fold(0.0, f64::max);
            let x = Axis::time(seconds, size.ticks(), "the first packet");
            let y = Axis::linear(0.0, top.max(1.0), 4, unit);
            let points: Vec<_> = rates
                .iter()
                .flat_map(|rate| [(rate.from, rate.per_second * factor), (rate.to, rate.per_second * factor)])
                .collect();
            svg(size, &x, &y, &[PlotMark::Area(points.clone(), color), PlotMark::Line(points, color, 1.6)])
        })
    };
    push(
        out,
        format_args!(
            "<section><h2>Traffic over time</h2>{}{}</section>",
            figure("Packet rate", "", &plot(0, 1.0, BLUE, "packets/s")),
            figure("Bit rate on the wire", "", &plot(1, 8.0, GREEN, "bit/s"))
        ),
    );
}

fn push_modules(out: &mut String, facts: &[RunModuleInfo]) {
    if facts.is_empty() {
        return;
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
    push(out, format_args!("<section><h2>Modules</h2>{}", table(&head, rows)));
    for module in facts {
        if let Some(reason) = &module.tier_reason {
            push(
                out,
                format_args!(
                    "<p class=\"note\"><code>{}</code> is {}: {}</p>",
                    escape(&module.label),
                    escape(&module.tier),
                    escape(&shortened(reason))
                ),
            );
        }
    }
    for module in facts {
        if !module.messages.is_empty() {
            push(
                out,
                format_args!("<h3><code>{}</code> messages</h3><ul class=\"log\">", escape(&module.label)),
            );
            for message in module.messages.iter().take(MESSAGES_MAX) {
                push(out, format_args!("<li>{}</li>", escape(&shortened(message))));
            }
            let more = module.messages.len().saturating_sub(MESSAGES_MAX);
            if more > 0 {
                push(out, format_args!("<li>… and {more} more</li>"));
            }
            out.push_str("</ul>");
        }
    }
    out.push_str(&cost(facts));
    out.push_str("</section>");
}

/// Renders bars of the time per packet, slowest module first.
fn cost(facts: &[RunModuleInfo]) -> String {
    let mut costs: Vec<(&str, f64)> = facts
        .iter()
        .filter_map(|module| Some((module.label.as_str(), module.ns_per_packet.filter(|ns| ns.is_finite())?)))
        .collect();
    costs.sort_by(|a, b| b.1.total_cmp(&a.1));
    costs.truncate(24);
    let Some(most) = costs.first().map(|cost| cost.1) else { return String::new() };
    let labels: Vec<String> = costs.iter().map(|(label, _)| label.chars().take(18).collect()).collect();
    let bars: Vec<(f64, f64, String)> = costs
        .iter()
        .rev()
        .enumerate()
        .map(|(row, (_, ns))| (float(row as u64), *ns, format!("{ns:.1}")))
        .collect();
    let height = u32::try_from(costs.len()).unwrap_or(0) * 28 + 62;
    let draw = |size| {
        let x = Axis::linear(0.0, most.max(1.0) * 1.05, 5, "ns per packet");
        svg(size, &x, &Axis::rows(&labels), &[PlotMark::Rows(bars.clone(), BLUE)])
    };
    let plot = crate::plot::wide_and_narrow(
        crate::plot::Size { width: 1110, height },
        crate::plot::Size { width: 350, height },
        draw,
    );
    figure("Cost per module", "", &plot)
}

fn push_records(out: &mut String, modules: &[ModuleRecords], facts: &[RunModuleInfo]) {
    if modules.iter().all(|module| module.streams.is_empty()) {
        return;
    }
    out.push_str("<section><h2>Records</h2>");
    for (index, module) in modules.iter().enumerate() {
        let facts = facts.get(index);
        let about = facts.map_or("", |facts| facts.summary.as_str());
        push(
            out,
            format_args!("<h3><code>{}</code> <small>{}</small></h3>", escape(&module.label), escape(about)),
        );
        let parameters = facts.map_or(&[][..], |facts| facts.parameters.as_slice());
        if !parameters.is_empty() {
            let list: Vec<String> = parameters
                .iter()
                .map(|(name, value)| format!("<code>{}={}</code>", escape(name), escape(&shortened(value))))
                .collect();
            push(out, format_args!("<p class=\"note\">{}</p>", list.join(" ")));
        }
        for StreamPreview { name, description, rows } in &module.streams {
            let path = facts
                .and_then(|facts| facts.streams.iter().find(|stream| stream.name == name.as_str()))
                .and_then(|stream| stream.path.as_deref())
                .map_or_else(String::new, |path| format!(" <code>{}</code>", escape(path)));
            let title = format!(
                "<b>{name}</b> <span>{}</span>{path}<em>{}</em>",
                rows.row_count(),
                escape(description)
            );
            if rows.total == 0 {
                push(out, format_args!("<p class=\"stream\">{title}</p>"));
            } else {
                push(
                    out,
                    format_args!(
                        "<details class=\"stream\"><summary>{title}</summary>{}</details>",
                        rows.html()
                    ),
                );
            }
        }
    }
    out.push_str("</section>");
}

/// Cuts a text to the maximum length of a message; a cut text ends with `…`.
fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(MESSAGE_CHARS_MAX).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// Appends formatted text; writing to a `String` cannot fail.
fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}
