//! `ICMPPingSource`: sends ICMP echo requests, and reports their replies.

use super::names::{ECHO, ECHO_REPLY};
use crate::ip::encapsulation::{NewDestination, NewHeader};
use crate::ipv4::{ICMP, Ipv4Header, half};
use core::net::Ipv4Addr;
use std::collections::BTreeMap;
use std::fmt::Write;
use weir_graph::arguments::ByteString;
use weir_graph::engine::{
    BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement, GraphPacket,
    HEADROOM, OrderDependence, Reason, Services, SignalId, TextOutput,
};
use weir_graph::handlers;
use weir_units::{Nanos, Timestamp};
use weir_wire::checksum::internet_checksum;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "ICMPPingSource",
    ports: "0-1/1",
    processing: "h/a",
    flow: "x/x",
    cost: ElementCost::E5,
    effects: Effects::CLOCK.and(Effects::TERMINAL).and(Effects::CONTROL),
    order: OrderDependence::Ordered,
    manual: "\
sends ICMP echo requests, and reports their replies

ICMPPingSource(SRC, DST [, keywords INTERVAL, IDENTIFIER, LIMIT, DATA, ACTIVE, VERBOSE, STOP, MIRROR])

ICMPPingSource sends an IPv4 packet with an echo request each INTERVAL, the first one after one INTERVAL. With a pull \
output it makes one for each pull. Sequence numbers count from 1 to 65535. The input, if there is one, takes the replies, \
as IPv4 packets with a network header: each gets a line on standard error, and a summary comes at the end of the run.

Arguments:
  SRC         the source
  DST         the destination
  INTERVAL    the time between requests, in seconds, rounded to milliseconds. Default 1.
  IDENTIFIER  the identifier of the requests, whose lower byte comes first, as in Click on Linux. Default 0.
  LIMIT       the number of requests; negative for no limit. Default -1.
  DATA        the bytes behind the ICMP header, at most 65507. Default: none.
  ACTIVE      false: sends no requests. Default true.
  VERBOSE     false: writes no lines. Default true.
  STOP        true: stops the driver one INTERVAL after the last request. Default false.
  MIRROR      true: each reply is answered by a request with the same data at once, beyond LIMIT. Only with a push output. \
Default false.

Handlers:
  active        rw  the argument
  src           rw  the argument
  dst           rw  the argument
  count         r   the number of sent requests
  limit         w   the argument
  interval      w   the argument
  reset_counts  w   sets all counts to 0
  summary       r   the numbers of requests and replies, the loss, and the round-trip times
  rtt_min       r   the shortest round-trip time
  rtt_avg       r   the mean round-trip time
  rtt_max       r   the longest round-trip time",
    build: |cx| {
        let mut args = cx.arguments();
        let source = args.either("SRC").required();
        let destination: Ipv4Addr = args.either("DST").required();
        let interval: Nanos = args.keyword("INTERVAL").or(Nanos::SECOND);
        let identifier = args.keyword("IDENTIFIER").or(0);
        let ByteString(data) = args.keyword("DATA").or(ByteString(Vec::new()));
        let limit = args.keyword("LIMIT").or(-1);
        let active = args.keyword("ACTIVE").or(true);
        let is_verbose = args.keyword("VERBOSE").or(true);
        let stop = args.flag("STOP");
        let mirrors = args.flag("MIRROR");
        let is_pushed = cx.ports().outputs_push.first() == Some(&true);
        if data.len() > DATA_MAX {
            args.error("DATA", format!("at most {DATA_MAX} bytes"));
        }
        if mirrors && !is_pushed {
            args.error("MIRROR", "only with a push output");
        }
        args.end()?;
        Ok(BuiltElement::emitting(PingSource {
            source,
            destination,
            interval: milliseconds(interval),
            identifier,
            data,
            limit,
            active,
            is_verbose,
            stop,
            mirrors,
            is_pushed,
            name: String::new(),
            count: 0,
            due: Timestamp(0),
            nonempty: cx.services.signals.create(true),
            replies: (!cx.ports().sources.is_empty()).then(PingReplies::default),
        }))
    },
};

const ICMP_BYTES: usize = 8;
/// The most bytes of data in an IPv4 packet.
const DATA_MAX: usize = 65_507;
const TIME_TO_LIVE: u8 = 200;
const TIMER: u32 = 0;

/// Returns an interval rounded to milliseconds.
fn milliseconds(interval: Nanos) -> Nanos {
    const MILLISECOND: u64 = 1_000_000;
    Nanos(interval.0.saturating_add(MILLISECOND / 2) / MILLISECOND * MILLISECOND)
}

/// A request for whose reply the element waits, or whose reply has come.
#[derive(Clone, Copy)]
struct SentPing {
    at: Timestamp,
    is_answered: bool,
}

/// The replies. Times are in microseconds.
#[derive(Default)]
struct PingReplies {
    received: u64,
    /// Further replies to requests that were answered already.
    duplicates: u64,
    min: u64,
    max: u64,
    sum: u128,
    squares: u128,
    /// The requests by their sequence numbers, so at most 65,535.
    sent: BTreeMap<u16, SentPing>,
}

impl PingReplies {
    /// Counts the reply to a request, and returns the round-trip time in microseconds; `None` if there was no request.
    fn count(&mut self, sequence: u16, arrived_at: Timestamp) -> Option<u64> {
        let sent = self.sent.get_mut(&sequence)?;
        self.duplicates += u64::from(std::mem::replace(&mut sent.is_answered, true));
        let mut time = 0;
        if arrived_at.0 > 0 {
            time = arrived_at.0.saturating_sub(sent.at.0) / 1000;
            self.min = if self.received == 0 { time } else { self.min.min(time) };
            self.max = self.max.max(time);
            self.sum += u128::from(time);
            self.squares += u128::from(time) * u128::from(time);
        }
        self.received += 1;
        Some(time)
    }

    fn mean(&self) -> u64 {
        u64::try_from(self.sum / u128::from(self.received.max(1))).unwrap_or(u64::MAX)
    }

    fn deviation(&self) -> u64 {
        let mean = u128::from(self.mean());
        let variance = (self.squares / u128::from(self.received.max(1))).saturating_sub(mean * mean);
        u64::try_from(variance.isqrt()).unwrap_or(u64::MAX)
    }

    /// Returns a summary as that of ping(8).
    fn summary(&self, count: u64) -> String {
        let answered = self.received - self.duplicates;
        let mut text = format!("{count} packets transmitted, {answered} received");
        if self.duplicates > 0 {
            _ = write!(text, ", +{} duplicates", self.duplicates);
        }
        if let Some(loss) = (count.saturating_sub(answered) * 100).checked_div(count) {
            _ = writeln!(text, ", {loss}% packet loss");
        }
        if self.received > 0 {
            let of = |time: u64| format!("{}.{:03}", time / 1000, time % 1000);
            let times = [self.min, self.mean(), self.max, self.deviation()].map(of).join("/");
            _ = writeln!(text, "rtt min/avg/max/mdev = {times}");
        }
        text
    }
}

/// Returns a number of microseconds as a time with its unit, in the form of Click.
fn microseconds(time: u64) -> String {
    match time {
        1..1000 => format!("{time}us"),
        _ => {
            let text = format!("{}.{:06}", time / 1_000_000, time % 1_000_000);
            format!("{}s", text.trim_end_matches('0').trim_end_matches('.'))
        }
    }
}

struct PingSource {
    source: Ipv4Addr,
    destination: Ipv4Addr,
    interval: Nanos,
    identifier: u16,
    data: Vec<u8>,
    /// Negative for no limit.
    limit: i64,
    active: bool,
    is_verbose: bool,
    stop: bool,
    mirrors: bool,
    is_pushed: bool,
    /// The name and the class, for messages.
    name: String,
    count: u64,
    /// The time for which the timer is, or was, set.
    due: Timestamp,
    /// Active while a pull may be successful.
    nonempty: SignalId,
    /// There is an input for replies.
    replies: Option<PingReplies>,
}

impl PingSource {
    fn is_over(&self) -> bool {
        u64::try_from(self.limit).is_ok_and(|limit| self.count >= limit)
    }

    /// Returns a request with these data, and counts it; `None` if they are too long.
    fn request(&mut self, data: &[u8], services: &mut Services) -> Option<GraphPacket> {
        // Never 0.
        let sequence = u16::try_from(self.count % u64::from(u16::MAX) + 1).unwrap_or(1);
        let mut packet = services.pool.of_length(ICMP_BYTES + data.len(), HEADROOM);
        let icmp = packet.bytes_mut();
        icmp[..4].copy_from_slice(&[ECHO, 0, 0, 0]);
        icmp[4..6].copy_from_slice(&self.identifier.to_le_bytes());
        icmp[6..ICMP_BYTES].copy_from_slice(&sequence.to_be_bytes());
        icmp[ICMP_BYTES..].copy_from_slice(data);
        let sum = internet_checksum(icmp);
        icmp[2..4].copy_from_slice(&sum.to_be_bytes());
        let mut ip = NewHeader {
            source: self.source,
            destination: NewDestination::Address(self.destination),
            protocol: ICMP,
            service: 0,
            time_to_live: TIME_TO_LIVE,
            dont_fragment: false,
            identification: sequence,
        };
        if ip.add(&mut packet, 0).is_none() {
            services.pool.discard(packet);
            return None;
        }
        let at = services.now();
        packet.set_time(at);
        if let Some(replies) = &mut self.replies {
            replies.sent.insert(sequence, SentPing { at, is_answered: false });
        }
        self.count += 1;
        Some(packet)
    }

    /// Returns a request with the data of the arguments.
    fn own_request(&mut self, services: &mut Services) -> Option<GraphPacket> {
        let data = std::mem::take(&mut self.data);
        let packet = self.request(&data, services);
        self.data = data;
        packet
    }

    /// Sets the timer for the next request.
    fn start(&mut self, at: Timestamp, cx: &mut ElementContext<'_>) {
        if self.is_pushed {
            self.due = at;
            cx.set_timer(at, TIMER);
        }
    }

    /// Sets the timer if it is not set, and the next request is due after an interval.
    fn go_on(&mut self, cx: &mut ElementContext<'_>) {
        if !self.is_over() {
            cx.services.wake(self.nonempty);
        }
        let is_waiting = cx.services.schedule.timer(cx.element(), TIMER).is_some();
        if self.active && !self.is_over() && !is_waiting {
            let now = cx.services.now();
            self.start(Timestamp(now.0.saturating_add(self.interval.0)), cx);
        }
    }

    fn write_active(&mut self, value: &str, cx: &mut ElementContext<'_>) -> Result<String, Reason> {
        self.active = crate::values::read(value)?;
        if !self.active {
            cx.services.schedule.cancel_timer(cx.element(), TIMER);
        } else if cx.services.schedule.timer(cx.element(), TIMER).is_none() {
            let now = cx.services.now();
            self.start(now, cx);
        }
        Ok(String::new())
    }

    /// Returns a value of the replies.
    fn of_replies(&self, value: impl FnOnce(&PingReplies) -> String) -> Result<String, Reason> {
        self.replies.as_ref().map(value).ok_or_else(|| "there is no input for replies".to_owned())
    }

    /// Handles a reply, and returns the data of the request that answers it, if one does.
    fn handle_reply(&mut self, packet: &GraphPacket, services: &mut Services) -> Option<Vec<u8>> {
        let replies = self.replies.as_mut()?;
        let header = Ipv4Header::of(packet)?;
        let icmp = header.transport();
        let is_reply = header.protocol() == ICMP
            && header.is_first()
            && icmp.len() >= ICMP_BYTES
            && icmp[0] == ECHO_REPLY
            && icmp[4..6] == self.identifier.to_le_bytes();
        if !is_reply {
            return None;
        }
        let sequence = half(icmp, 6);
        if let Some(time) = replies.count(sequence, packet.time())
            && self.is_verbose
        {
            let length = header.length().saturating_sub(header.header_bytes + ICMP_BYTES);
            let (from, ttl) = (header.source(), header.bytes[8]);
            let text = format!(
                "{}: {length} bytes from {from}: icmp_seq={sequence} ttl={ttl} time={}.{:03} ms\n",
                self.name,
                time / 1000,
                time % 1000
            );
            services.system.write_text(TextOutput::Error, &text);
        }
        let data = header.segment().unwrap_or(icmp).get(ICMP_BYTES..).unwrap_or_default();
        self.mirrors.then(|| data.to_vec())
    }
}

impl Element for PingSource {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        self.name = cx.read_own_name();
        self.go_on(cx);
        Ok(())
    }

    fn effects(&self) -> Option<Effects> {
        let mut effects = Effects::CLOCK;
        if self.is_verbose && self.replies.is_some() {
            effects = effects.and(Effects::TERMINAL);
        }
        Some(if self.stop { effects.and(Effects::CONTROL) } else { effects })
    }

    fn nonempty_signal(&self) -> Option<SignalId> {
        Some(self.nonempty)
    }

    fn timer_expired(&mut self, _: u32, cx: &mut ElementContext<'_>) {
        if !self.active {
            return;
        }
        if self.is_over() {
            if self.stop {
                cx.services.stop();
            }
        } else if let Some(packet) = self.own_request(cx.services) {
            cx.emit(0, packet);
            // Requests keep their distance, and without one, other timers and tasks get their turn.
            let next = self.due.0.saturating_add(self.interval.0);
            self.start(Timestamp(next.max(cx.services.coarse_now().0 + 1)), cx);
        }
    }

    fn finish(&mut self, services: &mut Services) -> Result<(), Reason> {
        if let Some(replies) = self.replies.as_ref().filter(|_| self.is_verbose) {
            let summary = replies.summary(self.count);
            let text: String = summary.lines().map(|line| format!("{}: {line}\n", self.name)).collect();
            services.system.write_text(TextOutput::Error, &text);
        }
        Ok(())
    }

    handlers! {
        "active": "false if no requests are sent",
            read |this, _, _| Ok(this.active.to_string()),
            write |this, value, cx| this.write_active(value, cx);
        "src": "the source", field source;
        "dst": "the destination", field destination;
        "count": counter "the number of sent requests", read |this, _, _| Ok(this.count.to_string());
        "limit": "the number of requests",
            write |this, value, cx| {
                this.limit = crate::values::read(value)?;
                this.go_on(cx);
                Ok(String::new())
            };
        "interval": "the time between requests",
            write |this, value, _| {
                this.interval = milliseconds(crate::values::read(value)?);
                Ok(String::new())
            };
        "reset_counts": "sets all counts to 0",
            write |this, _, cx| {
                this.count = 0;
                this.replies = this.replies.is_some().then(PingReplies::default);
                this.go_on(cx);
                Ok(String::new())
            };
        "summary": "the numbers of requests and replies, and the round-trip times",
            read |this, _, _| this.of_replies(|replies| replies.summary(this.count));
        "rtt_min": "the shortest round-trip time",
            read |this, _, _| this.of_replies(|replies| microseconds(replies.min));
        "rtt_avg": "the mean round-trip time",
            read |this, _, _| this.of_replies(|replies| microseconds(replies.mean()));
        "rtt_max": "the longest round-trip time",
            read |this, _, _| this.of_replies(|replies| microseconds(replies.max));
    }
}

impl EmittingElement for PingSource {
    fn push(&mut self, _: usize, packet: GraphPacket, cx: &mut ElementContext<'_>) {
        let data = self.handle_reply(&packet, cx.services);
        cx.services.pool.discard(packet);
        if let Some(request) = data.and_then(|data| self.request(&data, cx.services)) {
            cx.emit(0, request);
        }
    }

    fn pull(&mut self, _: usize, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        if !self.is_over() {
            return self.own_request(cx.services);
        }
        if std::mem::take(&mut self.stop) {
            cx.services.stop();
        }
        cx.services.signals.sleep(self.nonempty);
        None
    }
}
