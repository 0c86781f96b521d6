//! Connections of the module `flows`: services with their traffic, and attempts that failed by client and by service.

use super::facts::{ByService, EventSpan, ServiceKey};
use crate::summaries::{StreamFields, stream_fields};
use crate::top::TopKeys;
use crate::value;
use std::net::Ipv6Addr;
use {weir_admission::Manifest, weir_session::Record};

const TCP: u64 = 6;
const UDP: u64 = 17;
/// The ports below this number are those of services (the system ports of RFC 6335).
const SYSTEM_PORTS: u16 = 1_024;

/// Aggregates of the stream `flows.closed`.
#[derive(Debug)]
pub(super) struct Connections {
    closed: StreamFields<13>,
    /// Services that answered, by bytes.
    pub(super) services: ByService<ServiceTraffic>,
    /// TCP connections that were attempted, by service.
    pub(super) attempts: ByService<Attempts>,
    /// TCP connections that were attempted, by client.
    pub(super) clients: TopKeys<Ipv6Addr, Attempts>,
    /// UDP flows in which the host sent nothing, by host.
    pub(super) unasked: TopKeys<Ipv6Addr, UnaskedTraffic>,
}

/// UDP packets of flows in which the host sent nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UnaskedTraffic {
    pub(super) flows: u64,
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) span: EventSpan,
    senders: MajorityVote<Ipv6Addr>,
    from_ports: MajorityVote<u16>,
    to_ports: MajorityVote<u16>,
}

impl UnaskedTraffic {
    /// Returns the port of services that many hosts seem to have been asked for in the name of this host, as in an
    /// amplification attack: most packets come from one port of different hosts, to different ports. In a scan they come from
    /// one host, and what is only sent, such as logs, goes to one port.
    pub(super) fn amplifying_port(&self) -> Option<u16> {
        let has_majority = |lead: u64| lead >= self.flows / 2;
        let is_amplification = has_majority(self.from_ports.lead)
            && !has_majority(self.to_ports.lead)
            && !has_majority(self.senders.lead);
        self.from_ports.value.filter(|_| is_amplification)
    }
}

/// The value that more than half of the votes are for, if there is one (Boyer and Moore 1981).
#[derive(Clone, Copy, Debug)]
pub(super) struct MajorityVote<T> {
    pub(super) value: Option<T>,
    lead: u64,
}

impl<T> Default for MajorityVote<T> {
    fn default() -> Self {
        Self { value: None, lead: 0 }
    }
}

impl<T: PartialEq> MajorityVote<T> {
    fn add(&mut self, value: T) {
        if self.value.as_ref() == Some(&value) {
            self.lead += 1;
        } else if self.lead == 0 {
            (self.value, self.lead) = (Some(value), 1);
        } else {
            self.lead -= 1;
        }
    }
}

/// The traffic of a service.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ServiceTraffic {
    pub(super) connections: u64,
    pub(super) bytes: u64,
}

/// TCP connections that a SYN began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attempts {
    pub(super) all: u64,
    pub(super) unanswered: u64,
    pub(super) refused: u64,
    /// The times of those that failed.
    pub(super) failures: EventSpan,
    /// The server of most of those that failed.
    pub(super) target: MajorityVote<Ipv6Addr>,
}

/// The end of an attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
enum AttemptOutcome {
    Established,
    Unanswered,
    Refused,
}

impl Attempts {
    fn add(&mut self, outcome: AttemptOutcome, time: u64, server: Ipv6Addr) {
        self.all += 1;
        match outcome {
            AttemptOutcome::Established => return,
            AttemptOutcome::Unanswered => self.unanswered += 1,
            AttemptOutcome::Refused => self.refused += 1,
        }
        self.failures.add(time);
        self.target.add(server);
    }

    /// Adds the attempts of another one.
    pub(super) fn join(&mut self, other: &Self) {
        self.all += other.all;
        self.unanswered += other.unanswered;
        self.refused += other.refused;
        self.failures.join(other.failures);
    }

    /// The number of attempts that failed.
    pub(super) fn failed(&self) -> u64 {
        self.unanswered + self.refused
    }
}

/// Returns true for a multicast or broadcast address.
fn is_group(address: Ipv6Addr) -> bool {
    match address.to_ipv4_mapped() {
        Some(v4) => v4.is_multicast() || v4.octets()[3] == 255,
        None => address.is_multicast(),
    }
}

/// Returns the end of an attempt by the state and the history, which are Zeek's; `None` if the row is no attempt. A
/// client that sends more than SYN packets has an answer: the capture only lacks the packets of the server.
fn outcome(state: &[u8], history: &[u8]) -> Option<AttemptOutcome> {
    match state {
        b"S1" | b"SF" | b"S2" | b"S3" | b"RSTO" | b"RSTR" => Some(AttemptOutcome::Established),
        b"REJ" => Some(AttemptOutcome::Refused),
        b"S0" | b"RSTOS0" | b"SH" if history.contains(&b'A') || history.contains(&b'D') => None,
        b"S0" | b"RSTOS0" | b"SH" => Some(AttemptOutcome::Unanswered),
        _ => None,
    }
}

impl Connections {
    pub(super) fn new(manifest: &Manifest) -> Option<Self> {
        let names = [
            "start_time",
            "src",
            "src_port",
            "dst",
            "dst_port",
            "protocol",
            "source_packets",
            "source_bytes",
            "destination_packets",
            "destination_bytes",
            "conn_state",
            "history",
            "reason",
        ];
        Some(Self {
            closed: stream_fields(manifest, "closed", names)?,
            services: ByService::default(),
            attempts: ByService::default(),
            clients: TopKeys::default(),
            unasked: TopKeys::default(),
        })
    }

    pub(super) fn record(&mut self, record: &Record<'_>) {
        if record.stream == self.closed.stream {
            self.add(record);
        }
    }

    fn add(&mut self, record: &Record<'_>) -> Option<()> {
        let [
            start,
            src,
            src_port,
            dst,
            dst_port,
            protocol,
            sent_packets,
            sent,
            answers,
            received,
            state,
            history,
            reason,
        ] = &self.closed.fields;
        let protocol_number = value::unsigned(protocol, record)?;
        let port = |field| value::unsigned(field, record).and_then(|port| u16::try_from(port).ok());
        if !matches!(protocol_number, TCP | UDP) {
            return None;
        }
        let (client, server) = (value::address(src, record)?, value::address(dst, record)?);
        let (client_port, server_port) = (port(src_port)?, port(dst_port)?);
        let protocol = u8::try_from(protocol_number).ok()?;
        let text = |field| value::bytes(field, record).unwrap_or_default();
        // A flow that is longer than `active` has several rows, of which the last one has its end.
        let time = value::unsigned(start, record)?;
        let is_end = text(reason) != b"active";
        let outcome = outcome(text(state), text(history)).filter(|_| is_end);
        let service = ServiceKey { address: server, port: server_port, protocol };
        if let Some(outcome) = outcome {
            self.attempts.add(service, 1).add(outcome, time, server);
            self.clients.add(client, 1).add(outcome, time, server);
        }
        let is_answered = value::unsigned(answers, record)? > 0;
        let is_attempt = text(state).is_empty() || text(state) == b"OTH";
        // Without a SYN, the first packet of the capture can be an answer.
        let service = if is_attempt && client_port < SYSTEM_PORTS && server_port >= SYSTEM_PORTS {
            ServiceKey { address: client, port: client_port, protocol }
        } else {
            service
        };
        if protocol_number == UDP && !is_answered && !is_group(server) {
            let packets = value::unsigned(sent_packets, record)?;
            let unasked = self.unasked.add(server, packets);
            unasked.flows += u64::from(is_end);
            unasked.packets = unasked.packets.saturating_add(packets);
            unasked.bytes = unasked.bytes.saturating_add(value::unsigned(sent, record)?);
            unasked.span.add(time);
            unasked.senders.add(client);
            unasked.from_ports.add(client_port);
            unasked.to_ports.add(server_port);
        }
        let is_failed = outcome.is_some_and(|outcome| outcome != AttemptOutcome::Established);
        if is_answered && !is_failed {
            let bytes = value::unsigned(sent, record)?.saturating_add(value::unsigned(received, record)?);
            let traffic = self.services.add(service, bytes);
            traffic.connections += u64::from(is_end);
            traffic.bytes = traffic.bytes.saturating_add(bytes);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_wins_in_any_order() {
        for votes in [[1, 2, 1, 3, 1], [3, 2, 1, 1, 1], [1, 1, 1, 2, 3]] {
            let mut vote = MajorityVote::default();
            votes.into_iter().for_each(|value| vote.add(value));
            assert_eq!(vote.value, Some(1), "{votes:?}");
        }
    }

    #[test]
    fn states_without_an_answer_fail_unless_the_client_had_one() {
        assert_eq!(outcome(b"SF", b"ShADadFf"), Some(AttemptOutcome::Established));
        assert_eq!(outcome(b"REJ", b"Sr"), Some(AttemptOutcome::Refused));
        assert_eq!(outcome(b"S0", b"S"), Some(AttemptOutcome::Unanswered));
        assert_eq!(outcome(b"S0", b"SAD"), None);
        assert_eq!(outcome(b"OTH", b"Dd"), None);
        assert_eq!(outcome(b"", b""), None);
    }
}
