//! The overview of a run in its JSON document.

use serde::Serialize;
use std::net::Ipv6Addr;
use weir_report::{OverviewDigest, ProblemRow, RankedRows, ServiceRow, SlowRow, SuspectRow};
use weir_units::{AddressText, Timestamp, time_text};

#[derive(Serialize)]
pub(super) struct OverviewDocument<'a> {
    /// True if there is nothing to act on.
    quiet: bool,
    findings: u64,
    suspicious_hosts: RowsDocument<SuspectDocument<'a>>,
    problems: RowsDocument<ProblemDocument<'a>>,
    times: RowsDocument<TimesDocument<'a>>,
    services: RowsDocument<ServiceDocument<'a>>,
}

#[derive(Serialize)]
struct RowsDocument<T> {
    rows: Vec<T>,
    others: u64,
}

#[derive(Serialize)]
struct SuspectDocument<'a> {
    host: String,
    severity: &'static str,
    first_time: String,
    last_time: String,
    reasons: &'a [String],
}

#[derive(Serialize)]
struct ProblemDocument<'a> {
    service: &'a str,
    text: &'a str,
    count: u64,
    first_time: String,
    last_time: String,
}

#[derive(Serialize)]
struct TimesDocument<'a> {
    service: &'a str,
    measure: &'static str,
    count: u64,
    median_ns: u64,
    high_ns: u64,
    longest_ns: u64,
    slow: bool,
}

#[derive(Serialize)]
struct ServiceDocument<'a> {
    name: Option<&'a str>,
    addresses: Vec<String>,
    other_addresses: u64,
    port: &'a str,
    protocol: &'a str,
    connections: u64,
    bytes: Option<u64>,
}

/// Returns the document of an overview.
pub(super) fn overview_document(digest: &OverviewDigest) -> OverviewDocument<'_> {
    OverviewDocument {
        quiet: digest.is_quiet(),
        findings: digest.findings,
        suspicious_hosts: rows(&digest.suspects, |row: &SuspectRow| SuspectDocument {
            host: address(&row.host),
            severity: row.severity.name(),
            first_time: time(row.first),
            last_time: time(row.last),
            reasons: &row.reasons,
        }),
        problems: rows(&digest.problems, |row: &ProblemRow| ProblemDocument {
            service: &row.service,
            text: &row.text,
            count: row.count,
            first_time: time(row.first),
            last_time: time(row.last),
        }),
        times: rows(&digest.slow, |row: &SlowRow| TimesDocument {
            service: &row.service,
            measure: row.measure,
            count: row.count,
            median_ns: row.median_ns,
            high_ns: row.high_ns,
            longest_ns: row.longest_ns,
            slow: row.is_slow,
        }),
        services: rows(&digest.services, |row: &ServiceRow| ServiceDocument {
            name: row.name.as_deref(),
            addresses: row.addresses.iter().map(address).collect(),
            other_addresses: row.other_addresses,
            port: &row.port,
            protocol: &row.protocol,
            connections: row.connections,
            bytes: row.bytes,
        }),
    }
}

fn rows<'a, T, D>(ranked: &'a RankedRows<T>, document: impl Fn(&'a T) -> D) -> RowsDocument<D> {
    RowsDocument { rows: ranked.rows.iter().map(document).collect(), others: ranked.others }
}

fn address(address: &Ipv6Addr) -> String {
    AddressText::new(*address).to_string()
}

/// A time as RFC 3339 text.
fn time(at: Timestamp) -> String {
    String::from_utf8_lossy(&time_text(at)).into_owned()
}
