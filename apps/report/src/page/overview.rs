//! The overview on the page: hosts that stand out, services with problems, slow services, and all services.

use super::section;
use crate::overview::{OverviewDigest, RankedRows, ServiceRow, service_name, shortened};
use crate::series::float;
use crate::table::{HtmlCell, Untrusted, table};
use maud::{Markup, html};
use weir_abi::finding::Severity;
use weir_rows::text::{date, duration, grouped};
use weir_units::{AddressText, Bytes, Timestamp};

/// The most characters of a sentence with names that modules or captures supply.
const TEXT_CHARS_MAX: usize = 400;
/// The most characters of the name and address of a service.
const SERVICE_CHARS_MAX: usize = 120;

/// Renders the hosts that stand out, for the begin of the findings.
pub(super) fn suspects(digest: &OverviewDigest) -> Markup {
    if digest.is_quiet() {
        return html! {
            p { strong { "Nothing suspicious." } " The modules have no finding to act on, and no host or service stands out." }
        };
    }
    html! {
        @if !digest.suspects.rows.is_empty() {
            h3 { "Suspicious hosts" }
            ul.suspects {
                @for suspect in &digest.suspects.rows {
                    li class=(class(suspect.severity)) {
                        strong { (AddressText::new(suspect.host).as_str()) } " "
                        (Untrusted(&shortened(&suspect.reasons.join("; "), TEXT_CHARS_MAX)))
                        " " span { (span(suspect.first, suspect.last)) }
                    }
                }
            }
            (others(&digest.suspects, "hosts"))
        }
    }
}

fn class(severity: Severity) -> &'static str {
    match severity {
        Severity::Critical | Severity::High => "severe",
        Severity::Medium => "medium",
        Severity::Low | Severity::Informational => "minor",
    }
}

/// A span of time; the date only once.
fn span(first: Timestamp, last: Timestamp) -> String {
    let (first, last) = (date(first, 0), date(last, 0));
    match (first == last, first.get(..10) == last.get(..10)) {
        (true, _) => format!("{first} UTC"),
        (false, true) => format!("{first} to {} UTC", last.get(11..).unwrap_or_default()),
        (false, false) => format!("{first} to {last} UTC"),
    }
}

/// A sentence about the rows that are left out.
fn others<T>(rows: &RankedRows<T>, noun: &str) -> Markup {
    html! { @if rows.others > 0 { p.note { "And " (grouped(rows.others)) " other " (noun) "." } } }
}

/// Renders the section of services; nothing if no module saw any.
pub(super) fn services(digest: &OverviewDigest) -> Markup {
    if digest.services.rows.is_empty() && digest.problems.rows.is_empty() && digest.slow.rows.is_empty() {
        return html! {};
    }
    let content = html! {
        (service_table(&digest.services))
        h3 { "Problems" }
        (problems(digest))
        h3 { "Times of answers" }
        (times(digest))
    };
    section("services", &html! { "Services" }, &content)
}

fn service_table(services: &RankedRows<ServiceRow>) -> Markup {
    if services.rows.is_empty() {
        return html! { p.note { "No service has answered." } };
    }
    let head = [
        HtmlCell::left("name"),
        HtmlCell::left("address"),
        HtmlCell::left("port"),
        HtmlCell::left("protocol"),
        HtmlCell::right("connections"),
        HtmlCell::right("bytes"),
    ];
    let addresses = |row: &ServiceRow| {
        let shown: Vec<String> =
            row.addresses.iter().map(|address| AddressText::new(*address).to_string()).collect();
        let more = if row.other_addresses > 0 {
            format!(" +{}", grouped(row.other_addresses))
        } else {
            String::new()
        };
        format!("{}{more}", shown.join(", "))
    };
    let rows = services.rows.iter().map(|row| {
        vec![
            HtmlCell::left(&service_name(row)),
            HtmlCell::left(&addresses(row)),
            HtmlCell::left(&row.port),
            HtmlCell::left(&shortened(&row.protocol, SERVICE_CHARS_MAX)),
            HtmlCell::right(&grouped(row.connections)),
            HtmlCell::right(&row.bytes.map_or_else(|| "–".to_owned(), |bytes| Bytes(bytes).to_string())),
        ]
    });
    html! {
        p.note {
            "Ports that answered, those with most bytes first. Names are those of TLS, QUIC, HTTP or DNS: clients and servers "
            "choose them, and they can be wrong."
        }
        (table("Services with most bytes", &head, rows))
        (others(services, "services"))
    }
}

fn problems(digest: &OverviewDigest) -> Markup {
    if digest.problems.rows.is_empty() {
        return html! { p.note { "No service fails, and none has an obsolete version of TLS or a certificate with wrong dates." } };
    }
    html! {
        ul.suspects {
            @for problem in &digest.problems.rows {
                li.minor {
                    strong { (Untrusted(&shortened(&problem.service, SERVICE_CHARS_MAX))) } " "
                    (Untrusted(&shortened(&problem.text, TEXT_CHARS_MAX)))
                    " " span { (span(problem.first, problem.last)) }
                }
            }
        }
        (others(&digest.problems, "problems"))
    }
}

fn times(digest: &OverviewDigest) -> Markup {
    if digest.slow.rows.is_empty() {
        return html! { p.note { "No service has five answers whose time is known." } };
    }
    let head = [
        HtmlCell::left("service"),
        HtmlCell::left("time of"),
        HtmlCell::right("answers"),
        HtmlCell::right("median"),
        HtmlCell::right("90 %"),
        HtmlCell::right("longest"),
        HtmlCell::left("slow"),
    ];
    let time = |ns: u64| HtmlCell::right(&duration(float(ns)));
    let rows = digest.slow.rows.iter().map(|row| {
        vec![
            HtmlCell::left(&shortened(&row.service, SERVICE_CHARS_MAX)),
            HtmlCell::left(row.measure),
            HtmlCell::right(&grouped(row.count)),
            time(row.median_ns),
            time(row.high_ns),
            time(row.longest_ns),
            HtmlCell::left(if row.is_slow { "yes" } else { "no" }),
        ]
    });
    let slow = digest.slow.rows.iter().filter(|row| row.is_slow).count();
    html! {
        p.note {
            @if slow == 0 { "No service is slow. " } @else { (slow) " of these are slow. " }
            "A service is slow if half of its answers take half a second or longer. Of ten answers or more, a tenth suffices. The "
            "slowest are first; a round trip is the shortest in an interval of a connection."
        }
        (table("Times of answers by service", &head, rows))
        (others(&digest.slow, "services"))
    }
}
