//! The hosts that stand out, the findings of all modules, most severe first, and a line for each module without findings.

use super::overview::suspects;
use super::{PageModule, section};
use crate::overview::OverviewDigest;
use crate::table::{Untrusted, shortened};
use maud::{Markup, html};
use weir_abi::finding::{STREAM, Severity};
use weir_rows::text::{date, grouped};
use weir_rows::{FindingGroup, utc};
use weir_wire::LinkType;

/// The findings that are shown without opening the list of further ones.
const OPEN_MAX: usize = 10;

/// Renders the section, which is first on the page.
pub(super) fn findings(modules: &[PageModule<'_>], digest: Option<&OverviewDigest>) -> Markup {
    let mut shown: Vec<(&PageModule<'_>, &FindingGroup)> = modules
        .iter()
        .filter_map(|module| Some((module, module.records.findings.as_ref()?)))
        .flat_map(|(module, findings)| findings.groups.groups().iter().map(move |finding| (module, finding)))
        .collect();
    // Findings of equal severity and time stay in the order of the modules.
    shown.sort_by(|(_, a), (_, b)| b.severity.cmp(&a.severity).then(a.first.cmp(&b.first)));
    let quiet = modules.iter().filter(|module| count(module) == 0);
    let content = html! {
        @if let Some(digest) = digest { (suspects(digest)) }
        @if digest.is_some() { h3 { "Reported by modules" } }
        p.note { (totals(modules)) }
        @let (open, closed) = shown.split_at(shown.len().min(OPEN_MAX));
        @if !open.is_empty() { (items(open)) }
        @if !closed.is_empty() {
            details.quiet {
                summary { (grouped(closed.len() as u64)) " further findings" }
                (items(closed))
            }
        }
        @for module in modules { (left_out(module)) }
        @for module in quiet { (line(module)) }
    };
    section("findings", &html! { "Findings" }, &content)
}

/// Renders findings as a list.
fn items(findings: &[(&PageModule<'_>, &FindingGroup)]) -> Markup {
    html! {
        ol.findings { @for (module, finding) in findings { li class=(class(finding)) { (item(module, finding)) } } }
    }
}

/// The number of findings of a module.
fn count(module: &PageModule<'_>) -> u64 {
    module.records.findings.as_ref().map_or(0, |findings| findings.groups.total())
}

/// The numbers of findings by severity.
fn totals(modules: &[PageModule<'_>]) -> String {
    let count_of = |severity| {
        let all = modules.iter().filter_map(|module| module.records.findings.as_ref());
        all.flat_map(|findings| findings.groups.counts())
            .filter(|(known, _)| *known == severity)
            .fold(0u64, |sum, (_, count)| sum.saturating_add(count))
    };
    let counts: Vec<String> = Severity::ALL
        .iter()
        .rev()
        .copied()
        .map(|severity| (severity, count_of(severity)))
        .filter(|(_, count)| *count > 0)
        .map(|(severity, count)| format!("{} {}", grouped(count), severity.name()))
        .collect();
    if counts.is_empty() { "No module reported a finding.".to_owned() } else { counts.join(", ") + "." }
}

fn class(finding: &FindingGroup) -> &'static str {
    match finding.severity {
        Severity::Critical | Severity::High => "severe",
        Severity::Medium => "medium",
        Severity::Low | Severity::Informational => "minor",
    }
}

fn item(module: &PageModule<'_>, finding: &FindingGroup) -> Markup {
    html! {
        p.about {
            strong { (finding.severity.name()) } " "
            span { (date(finding.first, 3)) " UTC" } " "
            code { (Untrusted(&module.records.label)) }
        }
        p {
            (Untrusted(&finding.text))
            @if let Some(further) = finding.further(utc, 3) { " " span { (further) } }
        }
        (filter(finding.filter.as_deref()))
        (evidence(module, &finding.evidence))
    }
}

/// Renders the filter. Only an expression that weir accepts is offered for copying, because any other text could be a
/// shell command. An expression with host names is not accepted: resolving them would send DNS queries that the module
/// chose.
fn filter(filter: Option<&str>) -> Markup {
    let Some(text) = filter else { return html! { p.note { "Its filter is too long to be shown." } } };
    if text.is_empty() {
        return html! {};
    }
    match weir_filter::compile(text, LinkType::Ethernet, 0, &weir_filter::FixedNames) {
        Ok(_) => html! { p { "Filter: " code.copy { (Untrusted(text)) } } },
        Err(_) => html! { p.note { "Its filter is not valid: " (shortened(text)) } },
    }
}

fn evidence(module: &PageModule<'_>, name: &str) -> Markup {
    if name.is_empty() {
        return html! {};
    }
    let streams = &module.records.streams;
    let Some(index) = streams.iter().position(|stream| stream.name.as_str() == name) else {
        return html! { p.note { "The module has no stream " code { (Untrusted(name)) } " with its evidence." } };
    };
    html! {
        p {
            a href={ "#" (module.rows_anchor(index)) } { "First rows of " (Untrusted(name)) }
            @if let Some(path) = module.path(name) { ", all in " code.copy { (Untrusted(path)) } }
        }
    }
}

/// A sentence about the findings of a module that are not shown.
fn left_out(module: &PageModule<'_>) -> Markup {
    let Some(findings) = &module.records.findings else { return html! {} };
    let more = findings.groups.others();
    html! {
        @if more > 0 {
            p.note {
                code { (Untrusted(&module.records.label)) } " reported " (grouped(more))
                " more findings, none of them more severe than those above."
                @if let Some(path) = module.path(STREAM) { " All are in " code { (Untrusted(path)) } "." }
            }
        }
    }
}

/// The line of a module without findings, which opens to its summary.
fn line(module: &PageModule<'_>) -> Markup {
    let records = module.records;
    let outcome =
        if records.findings.is_some() { "no findings" } else { "measures, and reports no findings" };
    html! {
        details.quiet {
            summary {
                code { (Untrusted(&records.label)) } " " (outcome)
                @if let Some(facts) = module.facts {
                    @if facts.faults > 0 { " · faults: " (grouped(facts.faults)) }
                    @if facts.dropped_records > 0 { " · dropped records: " (grouped(facts.dropped_records)) }
                }
            }
            @if let Some(facts) = module.facts {
                p.note {
                    (shortened(&facts.summary)) " – "
                    (grouped(facts.packets)) " packets, " (grouped(facts.records)) " records."
                }
            }
            @if let Some(section) = module.section {
                p { a href={ "#" (module.section_anchor()) } { (section.title) " (" (Untrusted(&records.label)) ")" } }
            }
        }
    }
}
