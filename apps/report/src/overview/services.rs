//! The services of a run with their names, and the times of their answers.

use super::OverviewFacts;
use super::digest::{ServiceRow, SlowRow, address};
use super::facts::{ByService, NameCounts, ServiceKey};
use super::servers::ServerFacts;
use std::collections::HashMap;
use std::net::Ipv6Addr;
use weir_filter::{Transport, named_ports};

/// The least number of times from which quantiles are shown.
const TIMES_MIN: u64 = 5;
/// The least number of times from which one of ten makes a service slow.
const MANY_TIMES_MIN: u64 = 10;
/// The time in ns from which on an answer is slow.
const SLOW_NS: u64 = 500_000_000;
/// Addresses that are shown of a service.
const ADDRESSES_MAX: usize = 3;
const TCP: u8 = 6;

/// The names and protocols of services, by what modules saw of them.
#[derive(Debug, Default)]
pub(super) struct ServiceLabels {
    names: HashMap<ServiceKey, NameCounts>,
    protocols: HashMap<ServiceKey, String>,
    /// The names by DNS.
    addresses: HashMap<Ipv6Addr, NameCounts>,
    /// The port numbers that have a name, of TCP and of UDP.
    ports: [HashMap<u16, &'static str>; 2],
}

impl ServiceLabels {
    pub(super) fn new(facts: &OverviewFacts) -> Self {
        let ports = |transport| named_ports(transport).collect();
        let mut labels = Self { ports: [ports(Transport::Tcp), ports(Transport::Udp)], ..Self::default() };
        let dns = facts.dns.iter().map(|dns| ("DNS", &dns.servers));
        let http = facts.http.iter().map(|http| ("HTTP", &http.servers));
        let tls = facts.tls.iter().map(|tls| ("TLS", &tls.servers));
        let quic = facts.quic.iter().map(|quic| ("QUIC", &quic.servers));
        for (protocol, servers) in dns.chain(http).chain(tls).chain(quic) {
            for (key, _, server) in servers.heaviest(usize::MAX) {
                // A server of DNS that never answered may be none.
                if server.times.count == 0 && server.unanswered > 0 {
                    continue;
                }
                labels.names.entry(key).or_default().join(&server.names);
                let shown = if server.version.is_empty() { protocol } else { server.version.as_str() };
                let known = labels.protocols.entry(key).or_default();
                if !known.is_empty() {
                    known.push_str(", ");
                }
                known.push_str(shown);
            }
        }
        for (host, _, names) in facts.dns.iter().flat_map(|dns| dns.names.heaviest(usize::MAX)) {
            labels.addresses.insert(host, names.clone());
        }
        labels
    }

    /// The names of a service; those of its address if it has none of its own.
    fn names(&self, key: ServiceKey) -> Option<&NameCounts> {
        let own = self.names.get(&key).filter(|names| names.main().is_some());
        own.or_else(|| self.addresses.get(&key.address))
    }

    fn protocol(&self, key: ServiceKey) -> String {
        let by_port = || {
            let [tcp, udp] = &self.ports;
            (if key.protocol == TCP { tcp } else { udp }).get(&key.port).map(|name| (*name).to_owned())
        };
        self.protocols.get(&key).cloned().or_else(by_port).unwrap_or_default()
    }

    /// The name, address and port of a service.
    pub(super) fn full(&self, key: ServiceKey) -> String {
        match self.names(key).and_then(NameCounts::main) {
            Some(name) => format!("{name} ({}), {}", address(key.address), port(key)),
            None => format!("{}, {}", address(key.address), port(key)),
        }
    }
}

/// A port with its protocol: "443/tcp".
fn port(key: ServiceKey) -> String {
    format!("{}/{}", key.port, if key.protocol == TCP { "tcp" } else { "udp" })
}

/// A service before it is a row: a name or address, a port and a protocol.
#[derive(Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum ServiceIdentity {
    Named(String, u16, u8),
    Unnamed(ServiceKey),
}

/// The services that answered, by bytes. The addresses of a name are one service.
pub(super) fn services(facts: &OverviewFacts, labels: &ServiceLabels) -> Vec<ServiceRow> {
    let mut seen: Vec<(ServiceKey, u64, Option<u64>)> = Vec::new();
    if let Some(flows) = &facts.flows {
        let services = flows.services.heaviest(usize::MAX).into_iter();
        // A service without an end has one connection, which goes on.
        seen.extend(services.map(|(key, _, traffic)| (key, traffic.connections.max(1), Some(traffic.bytes))));
    } else {
        for (_, servers) in measured(facts) {
            let servers = servers.heaviest(usize::MAX).into_iter();
            seen.extend(servers.map(|(key, _, server)| (key, server.uses, None)));
        }
        // A service of several modules has the connections of the one that counts most.
        seen.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        seen.dedup_by_key(|(key, ..)| *key);
    }
    let mut rows: HashMap<ServiceIdentity, ServiceRow> = HashMap::new();
    for (key, connections, bytes) in seen {
        let names = labels.names(key);
        let name = names.and_then(NameCounts::main);
        let identity = match &name {
            Some(name) => ServiceIdentity::Named(name.clone(), key.port, key.protocol),
            None => ServiceIdentity::Unnamed(key),
        };
        let row = rows.entry(identity).or_insert_with(|| ServiceRow {
            name,
            other_names: others(names),
            addresses: Vec::new(),
            other_addresses: 0,
            port: port(key),
            protocol: labels.protocol(key),
            connections: 0,
            bytes,
        });
        row.connections = row.connections.saturating_add(connections);
        if !row.addresses.is_empty() {
            row.bytes = row.bytes.zip(bytes).map(|(sum, bytes)| sum.saturating_add(bytes));
        }
        if row.addresses.len() < ADDRESSES_MAX {
            row.addresses.push(key.address);
        } else {
            row.other_addresses += 1;
        }
    }
    let mut rows: Vec<(ServiceIdentity, ServiceRow)> = rows.into_iter().collect();
    rows.sort_by(|(a_identity, a), (b_identity, b)| {
        (b.bytes, b.connections).cmp(&(a.bytes, a.connections)).then_with(|| a_identity.cmp(b_identity))
    });
    rows.into_iter().map(|(_, row)| row).collect()
}

fn others(names: Option<&NameCounts>) -> String {
    match names.map_or((0, false), NameCounts::others) {
        (0, _) => String::new(),
        (others, false) => others.to_string(),
        (others, true) => format!("{others} or more"),
    }
}

/// The servers whose answers are timed, with the kind of time.
fn measured(facts: &OverviewFacts) -> impl Iterator<Item = (&'static str, &ByService<ServerFacts>)> {
    let dns = facts.dns.iter().map(|dns| ("DNS answer", &dns.servers));
    let http = facts.http.iter().map(|http| ("HTTP response", &http.servers));
    let tls = facts.tls.iter().map(|tls| ("TLS answer", &tls.servers));
    let quic = facts.quic.iter().map(|quic| ("QUIC answer", &quic.servers));
    let latency = facts.latency.iter().map(|latency| ("TCP round trip", &latency.servers));
    dns.chain(http).chain(tls).chain(quic).chain(latency)
}

/// The times of services with at least five answers, the slowest first.
pub(super) fn times(facts: &OverviewFacts, labels: &ServiceLabels) -> Vec<SlowRow> {
    let mut times: Vec<(u64, &'static str, ServiceKey, &ServerFacts)> = measured(facts)
        .flat_map(|(measure, servers)| {
            let servers = servers.heaviest(usize::MAX).into_iter();
            servers.map(move |(key, _, server)| (server.times.quantile(0.9), measure, key, server))
        })
        .filter(|(.., server)| server.times.count >= TIMES_MIN)
        .collect();
    times.sort_by(|a, b| b.0.cmp(&a.0).then(a.2.cmp(&b.2)).then(a.1.cmp(b.1)));
    times
        .into_iter()
        .map(|(high_ns, measure, key, ServerFacts { times, .. })| {
            let (count, median_ns) = (times.count, times.quantile(0.5));
            SlowRow {
                service: labels.full(key),
                measure,
                count,
                median_ns,
                high_ns,
                longest_ns: times.longest,
                is_slow: median_ns >= SLOW_NS || high_ns >= SLOW_NS && count >= MANY_TIMES_MIN,
            }
        })
        .collect()
}
