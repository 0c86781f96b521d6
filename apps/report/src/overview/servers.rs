//! Servers of the modules `dns`, `tls`, `http`, `quic` and `latency`: names, times of answers, and failures; and the
//! clients and names of DNS.

use super::facts::{AnswerTimes, ByService, EventSpan, NameCounts, ServiceKey};
use crate::summaries::{StreamFields, stream_fields};
use crate::top::TopKeys;
use crate::value;
use std::net::{Ipv4Addr, Ipv6Addr};
use weir_admission::{Manifest, StreamField};
use weir_session::Record;

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Servers that are kept of each protocol, clients of DNS, and addresses with names by DNS: each takes about 1 KiB.
const SERVERS_MAX: usize = 2_048;
/// Records of an answer that are read.
const ANSWERS_MAX: usize = 16;
/// Status codes from this number on are errors of the server.
const SERVER_ERRORS: u64 = 500;

/// A server of one of these protocols.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerFacts {
    /// Queries, requests or handshakes.
    pub(super) uses: u64,
    pub(super) names: NameCounts,
    /// The latest version of the protocol, if it has one.
    pub(super) version: String,
    pub(super) times: AnswerTimes,
    pub(super) unanswered: u64,
    /// Answers that state an error of the server.
    pub(super) errors: u64,
    /// The times of both.
    pub(super) failures: EventSpan,
    pub(super) certificate: CertificateFacts,
}

/// Obsolete versions, and certificates with wrong dates, of a TLS server.
#[derive(Clone, Debug, Default)]
pub(super) struct CertificateFacts {
    pub(super) expired: u64,
    /// The end of the validity of the last expired certificate, in ns.
    pub(super) not_after: u64,
    pub(super) not_yet_valid: u64,
    pub(super) obsolete: u64,
    /// The last obsolete version.
    pub(super) version: &'static str,
    pub(super) times: EventSpan,
}

impl ServerFacts {
    fn fail(&mut self, time: u64) {
        self.failures.add(time);
    }
}

/// Reads the service of a record by its address and port.
fn service(
    address: &StreamField,
    port: &StreamField,
    protocol: u8,
    record: &Record<'_>,
) -> Option<ServiceKey> {
    let port = u16::try_from(value::unsigned(port, record)?).ok()?;
    Some(ServiceKey { address: value::address(address, record)?, port, protocol })
}

/// Aggregates of the stream `dns.queries`.
#[derive(Debug)]
pub(super) struct DnsFacts {
    queries: StreamFields<11>,
    pub(super) servers: ByService<ServerFacts>,
    pub(super) clients: TopKeys<Ipv6Addr, DnsClient>,
    /// The names for which an answer has the address.
    pub(super) names: TopKeys<Ipv6Addr, NameCounts>,
}

/// The queries of a client.
#[derive(Clone, Debug, Default)]
pub(super) struct DnsClient {
    pub(super) queries: u64,
    /// Queries for names that do not exist.
    pub(super) nonexistent: u64,
    /// One of these names.
    pub(super) example: NameCounts,
    pub(super) times: EventSpan,
}

impl DnsFacts {
    pub(super) fn new(manifest: &Manifest) -> Option<Self> {
        let names = [
            "time",
            "src",
            "dst",
            "dst_port",
            "transport",
            "kind",
            "name",
            "asked",
            "code",
            "latency_ns",
            "answers",
        ];
        Some(Self {
            queries: stream_fields(manifest, "queries", names)?,
            servers: ByService::of_at_most(SERVERS_MAX),
            clients: TopKeys::of_at_most(SERVERS_MAX),
            names: TopKeys::of_at_most(SERVERS_MAX),
        })
    }

    pub(super) fn record(&mut self, record: &Record<'_>) {
        if record.stream == self.queries.stream {
            self.add(record);
        }
    }

    fn add(&mut self, record: &Record<'_>) -> Option<()> {
        let [time, src, dst, port, transport, kind, name, asked, code, latency, answers] =
            &self.queries.fields;
        let text = |field| value::bytes(field, record);
        // Answers of mDNS and LLMNR have rows of their own; an answer without a query can be forged.
        if text(kind)? != b"dns" || value::unsigned(asked, record)? == 0 {
            return None;
        }
        let (time, code, name) = (value::unsigned(time, record)?, text(code), text(name).unwrap_or_default());
        let protocol = if text(transport)? == b"tcp" { TCP } else { UDP };
        let server = self.servers.add(service(dst, port, protocol, record)?, 1);
        server.uses += 1;
        match code {
            None => server.unanswered += 1,
            Some(b"SERVFAIL" | b"REFUSED") => server.errors += 1,
            _ => {}
        }
        if matches!(code, None | Some(b"SERVFAIL" | b"REFUSED")) {
            server.fail(time);
        }
        if let Some(latency) = value::unsigned(latency, record) {
            server.times.add(latency);
        }
        let client = self.clients.add(value::address(src, record)?, 1);
        client.queries += 1;
        if code == Some(b"NXDOMAIN") {
            client.nonexistent += 1;
            client.example.add(name);
            client.times.add(time);
        }
        for answer in text(answers).unwrap_or_default().split(|byte| *byte == b';').take(ANSWERS_MAX) {
            if let Some(address) = address_of_answer(answer) {
                self.names.add(address, 1).add(name);
            }
        }
        Some(())
    }
}

/// Returns the address of a record such as `A 192.0.2.1` of the field `answers`.
fn address_of_answer(answer: &[u8]) -> Option<Ipv6Addr> {
    let answer = std::str::from_utf8(answer).ok()?.trim_start();
    match answer.split_once(' ')? {
        ("A", address) => Some(address.parse::<Ipv4Addr>().ok()?.to_ipv6_mapped()),
        ("AAAA", address) => address.parse().ok(),
        _ => None,
    }
}

/// Aggregates of the stream `tls.handshakes`.
#[derive(Debug)]
pub(super) struct TlsFacts {
    handshakes: StreamFields<10>,
    pub(super) servers: ByService<ServerFacts>,
}

impl TlsFacts {
    pub(super) fn new(manifest: &Manifest) -> Option<Self> {
        let names = [
            "time",
            "dst",
            "dst_port",
            "version",
            "server_name",
            "not_before_time",
            "not_after_time",
            "alert_level",
            "latency_ns",
            "complete",
        ];
        Some(Self {
            handshakes: stream_fields(manifest, "handshakes", names)?,
            servers: ByService::of_at_most(SERVERS_MAX),
        })
    }

    pub(super) fn record(&mut self, record: &Record<'_>) {
        if record.stream == self.handshakes.stream {
            self.add(record);
        }
    }

    fn add(&mut self, record: &Record<'_>) -> Option<()> {
        let [time, dst, port, version, name, not_before, not_after, alert, latency, complete] =
            &self.handshakes.fields;
        let time = value::unsigned(time, record)?;
        let server = self.servers.add(service(dst, port, TCP, record)?, 1);
        server.uses += 1;
        server.names.add(value::bytes(name, record).unwrap_or_default());
        if let Some(latency) = value::unsigned(latency, record) {
            server.times.add(latency);
        }
        if value::unsigned(complete, record)? == 0 && value::bytes(alert, record) == Some(b"fatal") {
            server.errors += 1;
            server.fail(time);
        }
        let certificate = &mut server.certificate;
        let mut has_problem = false;
        if let Some(end) = value::unsigned(not_after, record).filter(|end| *end < time) {
            (certificate.expired, certificate.not_after) = (certificate.expired + 1, end);
            has_problem = true;
        } else if value::unsigned(not_before, record).is_some_and(|begin| begin > time) {
            certificate.not_yet_valid += 1;
            has_problem = true;
        }
        let version = value::bytes(version, record).unwrap_or_default();
        let obsolete =
            [&b"SSL 2.0"[..], b"SSL 3.0", b"TLS 1.0", b"TLS 1.1"].iter().position(|old| version == *old);
        if let Some(old) = obsolete.and_then(|old| ["SSL 2.0", "SSL 3.0", "TLS 1.0", "TLS 1.1"].get(old)) {
            (certificate.obsolete, certificate.version) = (certificate.obsolete + 1, old);
            has_problem = true;
        }
        if has_problem {
            certificate.times.add(time);
        }
        server.set_version(version);
        Some(())
    }
}

impl ServerFacts {
    /// Keeps the version of the protocol, at most 20 bytes.
    fn set_version(&mut self, version: &[u8]) {
        if !version.is_empty() && version.len() <= 20 && self.version.as_bytes() != version {
            self.version = String::from_utf8_lossy(version).into_owned();
        }
    }
}

/// Aggregates of the stream `http.requests`.
#[derive(Debug)]
pub(super) struct HttpFacts {
    requests: StreamFields<6>,
    pub(super) servers: ByService<ServerFacts>,
}

impl HttpFacts {
    pub(super) fn new(manifest: &Manifest) -> Option<Self> {
        let names = ["time", "dst", "dst_port", "host", "status", "latency_ns"];
        Some(Self {
            requests: stream_fields(manifest, "requests", names)?,
            servers: ByService::of_at_most(SERVERS_MAX),
        })
    }

    pub(super) fn record(&mut self, record: &Record<'_>) {
        if record.stream == self.requests.stream {
            self.add(record);
        }
    }

    fn add(&mut self, record: &Record<'_>) -> Option<()> {
        let [time, dst, port, host, status, latency] = &self.requests.fields;
        let server = self.servers.add(service(dst, port, TCP, record)?, 1);
        server.uses += 1;
        server.names.add(name_of_host(value::bytes(host, record).unwrap_or_default()));
        if let Some(latency) = value::unsigned(latency, record) {
            server.times.add(latency);
        }
        if value::unsigned(status, record).is_some_and(|status| status >= SERVER_ERRORS) {
            server.errors += 1;
            server.fail(value::unsigned(time, record)?);
        }
        Some(())
    }
}

/// Returns the name in a field Host, without the port; nothing for an address.
fn name_of_host(host: &[u8]) -> &[u8] {
    let name = match host.iter().rposition(|byte| *byte == b':') {
        Some(at) if host.get(at + 1..).is_some_and(|port| port.iter().all(u8::is_ascii_digit)) => {
            host.get(..at).unwrap_or(host)
        }
        _ => host,
    };
    let is_v4 = || std::str::from_utf8(name).is_ok_and(|name| name.parse::<Ipv4Addr>().is_ok());
    if name.first() == Some(&b'[') || is_v4() { b"" } else { name }
}

/// Aggregates of the stream `quic.connections`.
#[derive(Debug)]
pub(super) struct QuicFacts {
    connections: StreamFields<4>,
    pub(super) servers: ByService<ServerFacts>,
}

impl QuicFacts {
    pub(super) fn new(manifest: &Manifest) -> Option<Self> {
        let names = ["dst", "dst_port", "server_name", "latency_ns"];
        Some(Self {
            connections: stream_fields(manifest, "connections", names)?,
            servers: ByService::of_at_most(SERVERS_MAX),
        })
    }

    pub(super) fn record(&mut self, record: &Record<'_>) {
        if record.stream == self.connections.stream {
            self.add(record);
        }
    }

    fn add(&mut self, record: &Record<'_>) -> Option<()> {
        let [dst, port, name, latency] = &self.connections.fields;
        let server = self.servers.add(service(dst, port, UDP, record)?, 1);
        server.uses += 1;
        server.names.add(value::bytes(name, record).unwrap_or_default());
        if let Some(latency) = value::unsigned(latency, record) {
            server.times.add(latency);
        }
        Some(())
    }
}

/// Aggregates of the stream `latency.samples`: the shortest round trip to the server in each interval of a connection.
#[derive(Debug)]
pub(super) struct LatencyFacts {
    samples: StreamFields<3>,
    pub(super) servers: ByService<ServerFacts>,
}

impl LatencyFacts {
    pub(super) fn new(manifest: &Manifest) -> Option<Self> {
        let names = ["dst", "dst_port", "server_rtt_ns"];
        Some(Self {
            samples: stream_fields(manifest, "samples", names)?,
            servers: ByService::of_at_most(SERVERS_MAX),
        })
    }

    pub(super) fn record(&mut self, record: &Record<'_>) {
        if record.stream == self.samples.stream {
            self.add(record);
        }
    }

    fn add(&mut self, record: &Record<'_>) -> Option<()> {
        let [dst, port, rtt] = &self.samples.fields;
        let rtt = value::unsigned(rtt, record)?;
        let server = self.servers.add(service(dst, port, TCP, record)?, 1);
        server.uses += 1;
        server.times.add(rtt);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_answers_are_read_and_other_text_is_not() {
        let read = |text: &str| address_of_answer(text.as_bytes()).map(|address| address.to_string());
        assert_eq!(read("A 192.0.2.1").as_deref(), Some("::ffff:192.0.2.1"));
        assert_eq!(read(" AAAA 2001:db8::1").as_deref(), Some("2001:db8::1"));
        for text in ["", "A", "A 1.2.3", "CNAME A 192.0.2.1", "TXT A", "A 192.0.2.1...", "AAAA x"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn a_host_is_a_name_without_a_port() {
        for (host, name) in [
            ("a.example", "a.example"),
            ("a.example:8080", "a.example"),
            ("[2001:db8::1]:80", ""),
            ("[2001:db8::1]", ""),
            ("192.0.2.1", ""),
            ("192.0.2.1:8080", ""),
            ("a:b", "a:b"),
            (":", ""),
        ] {
            assert_eq!(name_of_host(host.as_bytes()), name.as_bytes());
        }
    }
}
