//! `WebGen`: asks a web server for pages over and over.

use super::encapsulation::{NewDestination, NewHeader, TIME_TO_LIVE};
use crate::ipv4::{HEADER_BYTES, Ipv4Header, TCP, half, transport_checksum, word};
use core::net::Ipv4Addr;
use std::collections::{BTreeMap, BTreeSet};
use weir_graph::arguments::Ipv4Prefix;
use weir_graph::engine::{
    BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement, GraphPacket,
    OrderDependence, Reason, Services, TextOutput,
};
use weir_units::{Nanos, Timestamp};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "WebGen",
    ports: "1/1",
    processing: "h/h",
    flow: "x/y",
    cost: ElementCost::E2,
    effects: Effects::CLOCK.and(Effects::RANDOM).and(Effects::TERMINAL),
    order: OrderDependence::Ordered,
    manual: "\
asks a web server for pages over and over

WebGen(PREFIX, DST, RATE)

WebGen opens RATE TCP connections each second, from random addresses of PREFIX to port 80 of DST, and asks for a random page \
by each. Its input gets the IP packets of the server, and its output sends those of the connections. A segment without an \
answer is sent again after a second, up to six times. Each 5 s, and at the end, a line on standard error has the numbers of \
connections that were begun, completed, given up and reset. At most 131072 connections are open; while there are as many, no \
new ones are begun. A segment of an unknown connection is answered by a reset.

Arguments:
  PREFIX  the addresses of the clients
  DST     the address of the server
  RATE    connections per second, from 1 to 1000000",
    build: |cx| {
        let mut args = cx.arguments();
        let clients: Ipv4Prefix = args.either("PREFIX").required();
        let server: Ipv4Addr = args.either("DST").required();
        let rate: u32 = args.either("RATE").within(1..=RATE_MAX).required();
        args.end()?;
        let header = NewHeader {
            source: server,
            destination: NewDestination::Address(server),
            protocol: TCP,
            service: 0,
            time_to_live: TIME_TO_LIVE,
            dont_fragment: false,
            identification: 0,
        };
        Ok(BuiltElement::emitting(WebGen {
            clients,
            server,
            interval: Nanos(Nanos::SECOND.0 / u64::from(rate.max(1))),
            header,
            connections: BTreeMap::new(),
            by_time: BTreeSet::new(),
            next_start: Timestamp(0),
            next_report: Timestamp(0),
            counts: WebCounts::default(),
        }))
    },
};

const RATE_MAX: u32 = 1_000_000;
const CONNECTIONS_MAX: usize = 1 << 17;
/// The most connections that are begun, and segments that are sent again, at a time.
const AT_ONCE_MAX: usize = 512;
/// The most times that a segment is sent again.
const RESENDS_MAX: u8 = 6;
const RESEND_AFTER: Nanos = Nanos(1_000_000_000);
const REPORT_AFTER: Nanos = Nanos(5_000_000_000);
const TICK: Nanos = Nanos(1_000_000);
const WEB_PORT: u16 = 80;
const TCP_HEADER_BYTES: usize = 20;
const WINDOW: u16 = 60 * 1024;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;

/// The address and the port of a client.
type ClientKey = (u32, u16);

/// The numbers of connections since the latest report.
#[derive(Clone, Copy, Debug, Default)]
struct WebCounts {
    begun: u64,
    completed: u64,
    given_up: u64,
    reset: u64,
}

/// A connection of a client.
struct WebConnection {
    /// The sequence number of the SYN.
    first: u32,
    /// The first sequence number that is not acknowledged.
    acknowledged: u32,
    /// The next sequence number of the server.
    expected: u32,
    is_connected: bool,
    /// The server has ended its side.
    has_ended: bool,
    /// The request was sent; it ends the side of the client.
    has_asked: bool,
    /// A segment of the server needs an acknowledgement.
    owes_answer: bool,
    request: String,
    resends: u8,
    sent_at: Timestamp,
}

/// A segment that was received.
struct Segment {
    flags: u8,
    sequence: u32,
    acknowledged: u32,
    length: u32,
}

/// A segment that is sent.
#[derive(Clone, Copy)]
struct Reply<'a> {
    flags: u8,
    sequence: u32,
    acknowledged: u32,
    payload: &'a [u8],
}

fn is_behind(a: u32, b: u32) -> bool {
    (1..1 << 31).contains(&a.wrapping_sub(b))
}

impl WebConnection {
    fn new(random: &mut impl FnMut(u32) -> u32) -> Self {
        let (folder, class, file) = (random(10), random(3), random(9));
        let first = random(1 << 28);
        Self {
            first,
            acknowledged: first,
            expected: 0,
            is_connected: false,
            has_ended: false,
            has_asked: false,
            owes_answer: false,
            request: format!("GET /spec/{folder}/{folder}-{class}-{file} HTTP/1.0\r\n\r\n"),
            resends: 0,
            sent_at: Timestamp(0),
        }
    }

    fn request_bytes(&self) -> u32 {
        u32::try_from(self.request.len()).unwrap_or(0)
    }

    /// Takes note of a segment of the server.
    fn receive(&mut self, segment: &Segment) {
        let Segment { flags, sequence, acknowledged, length } = *segment;
        let has_ack = flags & ACK != 0;
        if !self.is_connected {
            if flags & (SYN | ACK) == SYN | ACK && acknowledged == self.first.wrapping_add(1) {
                self.is_connected = true;
                self.acknowledged = acknowledged;
                self.expected = sequence.wrapping_add(1);
                self.owes_answer = true;
            }
            return;
        }
        // The SYN, the request and the FIN.
        let end = self.first.wrapping_add(self.request_bytes()).wrapping_add(2);
        if has_ack && is_behind(acknowledged, self.acknowledged) && !is_behind(acknowledged, end) {
            self.acknowledged = acknowledged;
        }
        let behind = sequence.wrapping_add(length);
        if length > 0 {
            self.owes_answer = true;
            if !is_behind(sequence, self.expected) && is_behind(behind, self.expected) {
                self.expected = behind;
            }
        }
        if flags & FIN != 0 {
            self.owes_answer = true;
            if behind == self.expected && !self.has_ended {
                self.has_ended = true;
                self.expected = self.expected.wrapping_add(1);
            }
        }
    }

    /// Returns the next segment to send; `None` if there is nothing to say.
    fn next_reply(&mut self) -> Option<Reply<'_>> {
        let data = self.first.wrapping_add(1);
        if !self.is_connected {
            return Some(Reply { flags: SYN, sequence: self.first, acknowledged: 0, payload: &[] });
        }
        let is_asking = self.acknowledged.wrapping_sub(data) < self.request_bytes();
        if !is_asking && !std::mem::take(&mut self.owes_answer) {
            return None;
        }
        self.owes_answer = false;
        self.has_asked |= is_asking;
        let acknowledged = self.expected;
        if is_asking {
            let payload = self.request.as_bytes();
            return Some(Reply { flags: ACK | PSH | FIN, sequence: data, acknowledged, payload });
        }
        let sequence = data.wrapping_add(self.request_bytes()).wrapping_add(1);
        Some(Reply { flags: ACK, sequence, acknowledged, payload: &[] })
    }

    fn is_complete(&self) -> bool {
        self.has_asked && self.has_ended
    }
}

struct WebGen {
    clients: Ipv4Prefix,
    server: Ipv4Addr,
    /// The time between connections.
    interval: Nanos,
    header: NewHeader,
    connections: BTreeMap<ClientKey, WebConnection>,
    /// All connections by the time at which they sent.
    by_time: BTreeSet<(Timestamp, ClientKey)>,
    next_start: Timestamp,
    next_report: Timestamp,
    counts: WebCounts,
}

fn later(time: Timestamp, Nanos(nanos): Nanos) -> Timestamp {
    Timestamp(time.0.saturating_add(nanos))
}

/// Sends a segment from a client to a server's address.
fn send(
    header: &mut NewHeader,
    (source, port): ClientKey,
    to: (Ipv4Addr, u16),
    reply: Reply<'_>,
    cx: &mut ElementContext<'_>,
) {
    header.source = Ipv4Addr::from_bits(source);
    header.destination = NewDestination::Address(to.0);
    let mut packet = cx.services.pool.of_bytes(reply.payload);
    let Some(bytes) = header.add(&mut packet, TCP_HEADER_BYTES) else { return };
    let segment = &mut bytes[HEADER_BYTES..HEADER_BYTES + TCP_HEADER_BYTES];
    segment.fill(0);
    segment[0..2].copy_from_slice(&port.to_be_bytes());
    segment[2..4].copy_from_slice(&to.1.to_be_bytes());
    segment[4..8].copy_from_slice(&reply.sequence.to_be_bytes());
    segment[8..12].copy_from_slice(&reply.acknowledged.to_be_bytes());
    segment[12] = 5 << 4;
    segment[13] = reply.flags;
    segment[14..16].copy_from_slice(&WINDOW.to_be_bytes());
    if let Some(header) = Ipv4Header::read(bytes) {
        let sum = transport_checksum(&header, header.transport());
        bytes[HEADER_BYTES + 16..HEADER_BYTES + 18].copy_from_slice(&sum.to_be_bytes());
    }
    cx.emit(0, packet);
}

impl WebGen {
    /// Begins a connection, unless its client has one.
    fn begin(&mut self, now: Timestamp, cx: &mut ElementContext<'_>) {
        if self.connections.len() >= CONNECTIONS_MAX {
            return;
        }
        let services = &mut *cx.services;
        let mut random = |below: u32| u32::try_from(services.random() % u64::from(below)).unwrap_or(0);
        let host = random(u32::MAX) & !self.clients.mask.to_bits();
        let address = host | self.clients.address.to_bits() & self.clients.mask.to_bits();
        let key = (address, u16::try_from(1024 + random(60_000)).unwrap_or(1024));
        let connection = WebConnection::new(&mut random);
        if self.connections.contains_key(&key) {
            return;
        }
        self.connections.insert(key, connection);
        self.counts.begun += 1;
        self.answer(key, now, cx);
    }

    /// Sends the next segment of a connection.
    fn answer(&mut self, key: ClientKey, now: Timestamp, cx: &mut ElementContext<'_>) {
        let Some(connection) = self.connections.get_mut(&key) else { return };
        self.by_time.remove(&(connection.sent_at, key));
        connection.sent_at = now;
        self.by_time.insert((now, key));
        if let Some(reply) = connection.next_reply() {
            send(&mut self.header, key, (self.server, WEB_PORT), reply, cx);
        }
        if connection.is_complete() {
            self.counts.completed += 1;
            self.remove(key);
        }
    }

    fn remove(&mut self, key: ClientKey) {
        if let Some(connection) = self.connections.remove(&key) {
            self.by_time.remove(&(connection.sent_at, key));
        }
    }

    /// Sends segments without an answer again.
    fn resend(&mut self, now: Timestamp, cx: &mut ElementContext<'_>) {
        for _ in 0..AT_ONCE_MAX {
            let Some((sent_at, key)) = self.by_time.first().copied() else { return };
            if now.since(sent_at) <= RESEND_AFTER {
                return;
            }
            let Some(connection) = self.connections.get_mut(&key) else { return };
            connection.resends += 1;
            // The answer may have been lost, too.
            connection.owes_answer = connection.is_connected;
            if connection.resends > RESENDS_MAX {
                self.counts.given_up += 1;
                self.remove(key);
            } else {
                self.answer(key, now, cx);
            }
        }
    }

    fn report(&mut self, services: &mut Services) {
        let WebCounts { begun, completed, given_up, reset } = std::mem::take(&mut self.counts);
        let line = format!("init: {begun}  comp: {completed:5}  tmo: {given_up:5}  rst: {reset:5}\n");
        services.system.write_text(TextOutput::Error, &line);
    }

    /// Handles a packet of the server; without an effect if it has no complete TCP header.
    fn receive(&mut self, packet: &GraphPacket, cx: &mut ElementContext<'_>) -> Option<()> {
        let header = Ipv4Header::read_version_4(packet.bytes())?;
        let bytes = header.segment().filter(|_| header.protocol() == TCP && header.is_first())?;
        let data = usize::from(bytes.get(12)? >> 4) * 4;
        let length = bytes.len().checked_sub(data).filter(|_| data >= TCP_HEADER_BYTES)?;
        let segment = Segment {
            flags: bytes[13],
            sequence: word(bytes, 4),
            acknowledged: word(bytes, 8),
            length: u32::try_from(length).ok()?,
        };
        let key = (header.destination().to_bits(), half(bytes, 2));
        let port = half(bytes, 0);
        let is_reset = segment.flags & RST != 0;
        let known = self.connections.get_mut(&key).filter(|_| port == WEB_PORT);
        let Some(connection) = known else {
            if !is_reset {
                let (sequence, acknowledged) = (segment.acknowledged, segment.sequence);
                let reply = Reply { flags: RST, sequence, acknowledged, payload: &[] };
                send(&mut self.header, key, (header.source(), port), reply, cx);
            }
            return None;
        };
        if is_reset {
            self.counts.reset += 1;
            self.remove(key);
            return None;
        }
        connection.receive(&segment);
        // A segment that needs no answer does not count as one that is sent.
        if connection.owes_answer {
            let now = cx.services.now();
            self.answer(key, now, cx);
        }
        Some(())
    }
}

impl Element for WebGen {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        let now = cx.services.coarse_now();
        (self.next_start, self.next_report) = (later(now, self.interval), later(now, REPORT_AFTER));
        cx.set_timer(later(now, TICK), 0);
        Ok(())
    }

    fn timer_expired(&mut self, _: u32, cx: &mut ElementContext<'_>) {
        let now = cx.services.now();
        for _ in 0..AT_ONCE_MAX {
            if now < self.next_start {
                break;
            }
            self.next_start = later(self.next_start, self.interval);
            self.begin(now, cx);
        }
        // Those that are later than a burst are not made up for.
        self.next_start = self.next_start.max(now);
        self.resend(now, cx);
        if now >= self.next_report {
            self.next_report = later(now, REPORT_AFTER);
            self.report(cx.services);
        }
        cx.set_timer(later(now, TICK), 0);
    }

    fn finish(&mut self, services: &mut Services) -> Result<(), Reason> {
        self.report(services);
        Ok(())
    }
}

impl EmittingElement for WebGen {
    fn push(&mut self, _: usize, packet: GraphPacket, cx: &mut ElementContext<'_>) {
        self.receive(&packet, cx);
        cx.services.pool.discard(packet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection() -> WebConnection {
        WebConnection::new(&mut |below| below - 1)
    }

    fn segment(flags: u8, sequence: u32, acknowledged: u32, length: u32) -> Segment {
        Segment { flags, sequence, acknowledged, length }
    }

    #[test]
    fn a_connection_asks_and_ends_when_both_sides_have_ended() {
        let mut connection = connection();
        let first = connection.first;
        let syn = connection.next_reply().unwrap();
        assert_eq!((syn.flags, syn.sequence), (SYN, first));
        // A segment that does not answer the SYN changes nothing.
        connection.receive(&segment(SYN | ACK, 500, first, 0));
        connection.receive(&segment(ACK, 500, first + 1, 3));
        assert!(!connection.is_connected && !connection.owes_answer);
        connection.receive(&segment(SYN | ACK, 500, first + 1, 0));
        let request = connection.next_reply().unwrap();
        assert_eq!(
            (request.flags, request.sequence, request.acknowledged),
            (ACK | PSH | FIN, first + 1, 501)
        );
        assert_eq!(request.payload, b"GET /spec/9/9-2-8 HTTP/1.0\r\n\r\n");
        let end = first + 2 + u32::try_from(request.payload.len()).unwrap();
        connection.receive(&segment(ACK, 501, end, 100));
        // A segment that leaves a gap, and one that came before, do not count.
        connection.receive(&segment(ACK, 701, end, 100));
        connection.receive(&segment(ACK, 501, end + 1, 100));
        let answer = connection.next_reply().unwrap();
        assert_eq!((answer.flags, answer.sequence, answer.acknowledged), (ACK, end, 601));
        assert!(connection.next_reply().is_none() && !connection.is_complete());
        connection.receive(&segment(ACK | FIN, 601, end, 9));
        assert_eq!(connection.next_reply().unwrap().acknowledged, 611);
        assert!(connection.is_complete());
    }

    #[test]
    fn sequence_numbers_wrap() {
        assert!(is_behind(1, u32::MAX) && !is_behind(u32::MAX, 1) && !is_behind(5, 5));
        let mut connection = connection();
        connection.first = u32::MAX;
        connection.receive(&segment(SYN | ACK, u32::MAX, 0, 0));
        assert!(connection.is_connected);
        assert_eq!(connection.expected, 0);
        assert_eq!(connection.next_reply().unwrap().sequence, 0);
    }
}
