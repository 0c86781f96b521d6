//! The rows of the overview.

use super::services::ServiceLabels;
use super::{OverviewFacts, problems, services, suspects};
use std::net::Ipv6Addr;
use weir_abi::finding::Severity;
use weir_units::{AddressText, Timestamp};

/// The most rows of each table, but for talkers.
const ROWS_MAX: usize = 20;
const TALKERS_MAX: usize = 5;

/// The most important rows of a table, and the number of others.
#[derive(Clone, Debug, PartialEq)]
pub struct RankedRows<T> {
    /// The rows, the most important first.
    pub rows: Vec<T>,
    /// The number of rows that are left out. Keys that a full sketch has removed are not counted.
    pub others: u64,
}

impl<T> RankedRows<T> {
    /// Takes the first rows.
    pub(super) fn first(mut rows: Vec<T>, rows_max: usize) -> Self {
        let others = rows.len().saturating_sub(rows_max) as u64;
        rows.truncate(rows_max);
        Self { rows, others }
    }
}

/// The ranked results of a run. Their texts contain names from packets, which are not escaped and can be anything.
#[derive(Clone, Debug, PartialEq)]
pub struct OverviewDigest {
    /// The number of findings, of all modules, with a severity above informational.
    pub findings: u64,
    /// The number of informational findings of all modules.
    pub notes: u64,
    /// Hosts that scan, are flooded, or fail in a conspicuous way.
    pub suspects: RankedRows<SuspectRow>,
    /// The services that answered, by bytes.
    pub services: RankedRows<ServiceRow>,
    /// The slowest services, the slowest first.
    pub slow: RankedRows<SlowRow>,
    /// Services that do not answer, refuse connections, report errors, or have invalid certificates or obsolete TLS.
    pub problems: RankedRows<ProblemRow>,
    /// The hosts with most bytes.
    pub talkers: RankedRows<TalkerRow>,
}

/// A host that stands out.
#[derive(Clone, Debug, PartialEq)]
pub struct SuspectRow {
    /// The host.
    pub host: Ipv6Addr,
    /// The severity of the worst of its reasons.
    pub severity: Severity,
    /// The earliest time of the reasons.
    pub first: Timestamp,
    /// The latest time of the reasons.
    pub last: Timestamp,
    /// The reasons, without a subject: "scanned about 200 hosts on TCP port 22".
    pub reasons: Vec<String>,
}

/// A service that answered: a port of one or several addresses.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceRow {
    /// The name by TLS, QUIC, HTTP or DNS, if there is one.
    pub name: Option<String>,
    /// The number of its other names, as text: "3", "3 or more", or empty.
    pub other_names: String,
    /// The addresses, those with most bytes first.
    pub addresses: Vec<Ipv6Addr>,
    /// The number of further addresses.
    pub other_addresses: u64,
    /// The port and the protocol: "443/tcp".
    pub port: String,
    /// The protocols above it: "TLS 1.3", "http"; empty if it is not known.
    pub protocol: String,
    /// Connections; of UDP, flows.
    pub connections: u64,
    /// Bytes of both directions, from the IP header on; `None` without the module `flows`.
    pub bytes: Option<u64>,
}

/// The times of the answers of a service.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowRow {
    /// The name or the address, with the port: "www.example (192.0.2.1), 443/tcp".
    pub service: String,
    /// The kind of time: "HTTP response".
    pub measure: &'static str,
    /// The number of measured times.
    pub count: u64,
    /// The median in ns.
    pub median_ns: u64,
    /// The time in ns within which nine of ten answers came.
    pub high_ns: u64,
    /// The longest time in ns.
    pub longest_ns: u64,
    /// True if the median is half a second or more, or if `high_ns` is and there are at least ten answers.
    pub is_slow: bool,
}

/// A service that fails.
#[derive(Clone, Debug, PartialEq)]
pub struct ProblemRow {
    /// The name or the address, with the port.
    pub service: String,
    /// The problem: "38 of 40 connections failed: 30 without answer, 8 refused".
    pub text: String,
    /// The number of cases.
    pub count: u64,
    /// The earliest case.
    pub first: Timestamp,
    /// The latest case.
    pub last: Timestamp,
}

/// A host with much traffic.
#[derive(Clone, Debug, PartialEq)]
pub struct TalkerRow {
    /// The host.
    pub host: Ipv6Addr,
    /// A lower bound of the bytes that the host sent and received.
    pub bytes: u64,
    /// Their share of all bytes, from 0 to 1.
    pub share: f64,
}

impl OverviewDigest {
    /// Returns true if no module reported more than informational findings, no host stands out, and no service is slow or
    /// fails.
    pub fn is_quiet(&self) -> bool {
        self.findings == 0
            && self.suspects.rows.is_empty()
            && self.problems.rows.is_empty()
            && !self.slow.rows.iter().any(|row| row.is_slow)
    }
}

/// The text of an address.
pub(super) fn address(address: Ipv6Addr) -> String {
    AddressText::new(address).to_string()
}

/// Ranks the facts.
pub(super) fn digest(facts: &OverviewFacts, findings: u64, notes: u64) -> OverviewDigest {
    let labels = ServiceLabels::new(facts);
    OverviewDigest {
        findings,
        notes,
        suspects: RankedRows::first(suspects::suspects(facts), ROWS_MAX),
        services: RankedRows::first(services::services(facts, &labels), ROWS_MAX),
        slow: RankedRows::first(services::times(facts, &labels), ROWS_MAX),
        problems: RankedRows::first(problems::problems(facts, &labels), ROWS_MAX),
        talkers: talkers(facts),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share for people to read")]
fn talkers(facts: &OverviewFacts) -> RankedRows<TalkerRow> {
    let Some(talkers) = &facts.talkers else { return RankedRows { rows: Vec::new(), others: 0 } };
    let all = talkers.bytes.max(1) as f64;
    let row = |(host, bytes, _): (Ipv6Addr, u64, &())| TalkerRow {
        host,
        bytes,
        share: (bytes as f64 / all).min(1.0),
    };
    let rows: Vec<TalkerRow> = talkers.hosts.heaviest(TALKERS_MAX).into_iter().map(row).collect();
    let others = talkers.hosts.len().saturating_sub(rows.len()) as u64;
    RankedRows { rows, others }
}
