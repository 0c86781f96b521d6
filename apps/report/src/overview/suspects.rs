//! Hosts that stand out: scanners, flooded hosts, and clients most of whose attempts fail.

use super::OverviewFacts;
use super::attacks::{FloodVictim, HostScan, ScanMethod, Scanner};
use super::connections::{Attempts, UnaskedTraffic};
use super::digest::{SuspectRow, address};
use super::facts::EventSpan;
use super::servers::DnsClient;
use std::collections::HashMap;
use std::net::Ipv6Addr;
use weir_abi::finding::Severity;
use weir_rows::text::with_commas;
use weir_units::{Bytes, Timestamp};

/// The least number of failed connections of a client that stands out. At least half of its connections have failed.
const FAILED_MIN: u64 = 20;
/// The least number of queries of a client for names that do not exist, at least half of its queries.
const NONEXISTENT_MIN: u64 = 20;

/// The least number of UDP flows in which a host that stands out has sent nothing.
const UNASKED_MIN: u64 = 100;

/// The reasons of a host.
#[derive(Debug)]
struct Suspicion {
    severity: Severity,
    /// The number of events, to rank hosts of equal severity.
    weight: u64,
    span: EventSpan,
    reasons: Vec<String>,
}

/// Returns the hosts, by severity, then by number of events.
pub(super) fn suspects(facts: &OverviewFacts) -> Vec<SuspectRow> {
    let mut hosts: HashMap<Ipv6Addr, Suspicion> = HashMap::new();
    let mut add = |host: Ipv6Addr, severity: Severity, weight: u64, span: EventSpan, reason: String| {
        let new = || Suspicion { severity, weight: 0, span: EventSpan::default(), reasons: Vec::new() };
        let suspicion = hosts.entry(host).or_insert_with(new);
        suspicion.severity = suspicion.severity.max(severity);
        suspicion.weight = suspicion.weight.saturating_add(weight);
        suspicion.span.join(span);
        suspicion.reasons.push(reason);
    };
    if let Some(floods) = &facts.syn_flood {
        let mut attempts: HashMap<Ipv6Addr, Attempts> = HashMap::new();
        for (key, _, of_service) in facts.flows.iter().flat_map(|flows| flows.attempts.heaviest(usize::MAX)) {
            if floods.victims.contains(&key.address) {
                attempts.entry(key.address).or_default().join(of_service);
            }
        }
        for (host, _, victim) in floods.victims.heaviest(usize::MAX) {
            // The statistic cannot tell many new connections from a flood, but most connections of a flood fail.
            let is_busy = |attempts: &Attempts| attempts.failed() < attempts.all / 2;
            if attempts.get(&host).is_some_and(is_busy) {
                continue;
            }
            let reason = flooded(victim, attempts.get(&host));
            add(host, Severity::High, victim.syn_packets, victim.span, reason);
        }
    }
    let scanners = facts.scan.as_ref().map(|scans| &scans.scanners);
    for (host, _, scanner) in scanners.iter().flat_map(|scanners| scanners.heaviest(usize::MAX)) {
        for scan in &scanner.scans {
            // As in the module: a scan that found something is worse than one that found nothing.
            let severity = if scan.answered > 0 { Severity::Medium } else { Severity::Low };
            add(host, severity, scan.services, scan.span, scanned(scan));
        }
        further(scanner)
            .into_iter()
            .for_each(|text| add(host, Severity::Medium, 0, EventSpan::default(), text));
    }
    for (host, _, client) in facts.dns.iter().flat_map(|dns| dns.clients.heaviest(usize::MAX)) {
        if client.nonexistent >= NONEXISTENT_MIN && client.nonexistent >= client.queries / 2 {
            add(host, Severity::Medium, client.nonexistent, client.times, nonexistent(client));
        }
    }
    for (host, _, traffic) in facts.flows.iter().flat_map(|flows| flows.unasked.heaviest(usize::MAX)) {
        let port = traffic.amplifying_port().filter(|_| traffic.flows >= UNASKED_MIN);
        if let Some(port) = port {
            add(host, Severity::Medium, traffic.packets, traffic.span, unasked(traffic, port));
        }
    }
    // The attempts of a scanner fail because it scans.
    let is_scanner = |host: &Ipv6Addr| scanners.is_some_and(|scanners| scanners.contains(host));
    for (host, _, client) in facts.flows.iter().flat_map(|flows| flows.clients.heaviest(usize::MAX)) {
        if client.failed() >= FAILED_MIN && client.failed() >= client.all / 2 && !is_scanner(&host) {
            add(host, Severity::Low, client.failed(), client.failures, failed(client, facts));
        }
    }
    let mut rows: Vec<(u64, SuspectRow)> = hosts
        .into_iter()
        .map(|(host, suspicion)| {
            let Suspicion { severity, weight, span, reasons } = suspicion;
            let (first, last) = (Timestamp(span.first), Timestamp(span.last));
            (weight, SuspectRow { host, severity, first, last, reasons })
        })
        .collect();
    rows.sort_by(|(a_weight, a), (b_weight, b)| {
        let rank = |weight: u64, row: &SuspectRow| (row.severity, weight);
        rank(*b_weight, b).cmp(&rank(*a_weight, a)).then(a.first.cmp(&b.first)).then(a.host.cmp(&b.host))
    });
    rows.into_iter().map(|(_, row)| row).collect()
}

/// A number with the noun, in the plural unless it is 1.
fn count(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", with_commas(number), if number == 1 { "" } else { "s" })
}

fn scanned(scan: &HostScan) -> String {
    let method = scan.method.name();
    let hosts = count(scan.hosts, "host");
    let mut text = match (scan.method, scan.host, scan.port) {
        (ScanMethod::Echo, ..) => format!("scanned about {hosts} ({method})"),
        (_, Some(host), _) => {
            format!("scanned about {} of {} ({method})", count(scan.ports, "port"), address(host))
        }
        (_, None, Some(port)) => {
            let transport = if scan.protocol == 17 { "UDP" } else { "TCP" };
            format!("scanned about {hosts} on {transport} port {port} ({method})")
        }
        (_, None, None) => format!("scanned about {} of about {hosts} ({method})", count(scan.ports, "port")),
    };
    text.push_str(&format!(": {} answered", with_commas(scan.answered)));
    if scan.refused > 0 {
        text.push_str(&format!(", {} refused", with_commas(scan.refused)));
    }
    text
}

fn further(scanner: &Scanner) -> Option<String> {
    (scanner.further_rows > 0).then(|| "made further scans".to_owned())
}

fn flooded(victim: &FloodVictim, attempts: Option<&Attempts>) -> String {
    let mut text = format!(
        "was flooded with {} in {}, at most {} in one",
        count(victim.syn_packets, "SYN packet"),
        count(victim.intervals, "interval"),
        with_commas(victim.most)
    );
    if let Some(attempts) = attempts {
        let established = with_commas(attempts.all - attempts.failed());
        text.push_str(&format!("; {established} of {} succeeded", count(attempts.all, "connection")));
    }
    text
}

fn failed(client: &Attempts, facts: &OverviewFacts) -> String {
    let mut text = format!(
        "failed in {} of {}: {} without answer, {} refused",
        with_commas(client.failed()),
        count(client.all, "connection"),
        with_commas(client.unanswered),
        with_commas(client.refused)
    );
    let victims = facts.syn_flood.as_ref().map(|floods| &floods.victims);
    if let Some(target) = client.target.value {
        text.push_str(&format!("; many to {}", address(target)));
        if victims.is_some_and(|victims| victims.contains(&target)) {
            text.push_str(", which was flooded: the source address may be forged");
        }
    }
    text
}

fn unasked(traffic: &UnaskedTraffic, port: u16) -> String {
    format!(
        "received {} ({}) that it had not asked for, many from port {port} of different hosts, as in an amplification attack",
        count(traffic.packets, "UDP packet"),
        Bytes(traffic.bytes),
    )
}

fn nonexistent(client: &DnsClient) -> String {
    let example = client.example.main().map(|name| format!(", such as {name}")).unwrap_or_default();
    format!(
        "asked DNS for names that do not exist in {} of {}{example}",
        with_commas(client.nonexistent),
        if client.queries == 1 {
            "1 query".to_owned()
        } else {
            format!("{} queries", with_commas(client.queries))
        }
    )
}
