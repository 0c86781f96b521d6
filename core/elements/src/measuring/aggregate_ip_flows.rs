//! `AggregateIPFlows`: numbers the flows of TCP and UDP.

use super::flow_table::{FlowIndex, FlowTable, Ipv4FlowKey, TrackedFlow};
use crate::ipv4::{ICMP, Ipv4Header, TCP, UDP, half, word};
use crate::text_file::TextFile;
use core::net::Ipv4Addr;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use weir_graph::arguments::{ElementReference, FileName};
use weir_graph::engine::{
    AGGREGATE, BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement,
    GraphPacket, OrderDependence, PAINT, Reason, Services,
};
use weir_graph::handlers;
use weir_units::{Nanos, Timestamp};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "AggregateIPFlows",
    ports: "1/1-2",
    processing: "a/ah",
    flow: "x/x",
    cost: ElementCost::E7,
    effects: Effects::FILES,
    order: OrderDependence::Ordered,
    manual: "\
numbers the flows of TCP and UDP

AggregateIPFlows([keywords TRACEINFO, SOURCE, TCP_TIMEOUT, TCP_DONE_TIMEOUT, UDP_TIMEOUT, FRAGMENT_TIMEOUT, REAP, ICMP, \
FRAGMENTS, CAPACITY])

AggregateIPFlows sets the annotation AGGREGATE of each packet of TCP or UDP to the number of its flow, from 1 on, and PAINT \
to its direction: 0 as the first packet of the flow, 1 for replies. Packets of one flow have the same addresses and \
ports, in both directions. A flow without packets for a timeout has ended; later packets are a new flow, and so is a \
SYN when both directions have ended. Times are those of the packets.

Other packets go to output 1, or are discarded if there is none.

With FRAGMENTS, fragments wait until the first fragment of their datagram tells the ports, and so do later packets between \
the same hosts: packets of one pair of hosts stay in their order. They go on when they are older than FRAGMENT_TIMEOUT, \
and at the handler clear; those without a first fragment go to output 1. At most 4096 packets wait.

ElementArguments:
  TRACEINFO         a file that gets an XML element for each flow that has ended: ends, times, numbers of packets
  SOURCE            an element whose handler filename goes into that file
  TCP_TIMEOUT       the timeout of a TCP flow. Default 24 hours.
  TCP_DONE_TIMEOUT  the timeout when both directions had a FIN, or one a RST. Default 30 s.
  UDP_TIMEOUT       the timeout of a UDP flow. Default 1 minute.
  FRAGMENT_TIMEOUT  the time for which fragments wait. Default 30 s.
  REAP              the time between removals of flows that have ended. Default 20 minutes.
  ICMP              true: an ICMP error belongs to the flow of the packet that it is about. Its PAINT is 2 or 3: 2 more \
than that of the packet. Default false.
  FRAGMENTS         false: fragments without ports go to output 1. Default true if the input pushes; it has to push.
  CAPACITY          the most flows. Default 1048576. A full table ends a flow for each new one: of eight flows, the one \
without packets for the longest time.

Handlers:
  count    r  the number of flows in the table
  flows    r  the number of flows so far
  evicted  r  the number of flows that were ended because the table was full
  clear    w  ends all flows, and sends the packets that wait",
    build: |cx| {
        let mut args = cx.arguments();
        let mut seconds = |name, default: u64| {
            let value: Nanos = args.keyword(name).or(Nanos(default * SECOND));
            value.0 / SECOND
        };
        let timeouts = FlowTimeouts {
            tcp: seconds("TCP_TIMEOUT", 24 * 60 * 60),
            done: seconds("TCP_DONE_TIMEOUT", 30),
            udp: seconds("UDP_TIMEOUT", 60),
            fragment: seconds("FRAGMENT_TIMEOUT", 30),
        };
        let reap_interval = seconds("REAP", 20 * 60);
        let trace: Option<FileName> = args.keyword("TRACEINFO").optional();
        let source: Option<ElementReference> = args.keyword("SOURCE").optional();
        let handles_icmp = args.keyword("ICMP").or(false);
        let fragments: Option<bool> = args.keyword("FRAGMENTS").optional();
        let capacity: u32 = args.keyword("CAPACITY").within(1..=CAPACITY_MAX).or(CAPACITY_DEFAULT);
        args.end()?;
        Ok(BuiltElement::emitting(AggregateFlows {
            table: FlowTable::new(capacity as usize),
            number: 0,
            evicted: 0,
            timeouts,
            reap_interval,
            active: 0,
            reap_at: None,
            handles_icmp,
            fragments,
            holds_fragments: false,
            trace: trace.map(|file| FlowTrace { file: TextFile::new(file.0), counts: Vec::new() }),
            source: source.map(|source| source.0),
            held: BTreeMap::new(),
            held_count: 0,
        }))
    },
};

const SECOND: u64 = 1_000_000_000;
const CAPACITY_DEFAULT: u32 = 1 << 20;
const CAPACITY_MAX: u32 = 1 << 24;
/// The most packets that wait for fragments.
const HELD_MAX: usize = 4096;
/// The paint of ICMP errors, beside the direction.
const ICMP_PAINT: u8 = 2;
/// The bytes of a TCP header up to the flags.
const FLAGS_END: usize = 14;
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
/// Both directions have ended.
const CLOSED: u8 = 3;

/// Times in seconds.
struct FlowTimeouts {
    tcp: u64,
    done: u64,
    udp: u64,
    fragment: u64,
}

impl FlowTimeouts {
    fn of(&self, flow: &TrackedFlow) -> u64 {
        match (flow.key.protocol, flow.closed) {
            (UDP, _) => self.udp,
            (_, CLOSED) => self.done,
            _ => self.tcp,
        }
    }

    /// Returns true if the flow has no packets for its timeout, at a time in seconds.
    #[inline]
    fn has_passed(&self, flow: &TrackedFlow, now: u64) -> bool {
        now.saturating_sub(flow.latest.0 / SECOND) > self.of(flow)
    }
}

/// The file with an element for each flow.
struct FlowTrace {
    file: TextFile,
    /// By the index of the flow: the time of the first packet, and the packets of each direction.
    counts: Vec<(Timestamp, [u64; 2])>,
}

/// The protocol and the hosts of packets that stay in their order.
type HostPair = (u8, [u32; 2]);

/// A packet that waits for fragments, or behind them.
struct HeldPacket {
    packet: GraphPacket,
    /// The flow and its number, if the ports are known. The flow may have ended since.
    flow: Option<(Ipv4FlowKey, u32)>,
    paint: u8,
    identification: u16,
    is_fragment: bool,
    flags: u8,
}

/// The end of a packet's handling.
enum Handled {
    /// It goes to the first output.
    Numbered(GraphPacket),
    /// It goes to the second output.
    Other(GraphPacket),
    Held,
}

/// The flow header of a packet: its own, or that of the packet that an ICMP error is about.
#[derive(Clone, Copy)]
struct FlowHeader {
    source: u32,
    destination: u32,
    protocol: u8,
    identification: u16,
    /// The flags and offset of a fragment.
    fragment: u16,
    /// The ports, in a packet that has them.
    ports: Option<u32>,
    paint: u8,
    /// The TCP flags of the packet itself.
    flags: u8,
}

impl FlowHeader {
    #[inline]
    fn of(packet: &GraphPacket, handles_icmp: bool) -> Option<Self> {
        let outer = Ipv4Header::of(packet).filter(|header| header.bytes[0] >> 4 == 4)?;
        if outer.protocol() == ICMP && handles_icmp && outer.is_first() {
            return Self::read(&icmp_cause(outer.transport())?, ICMP_PAINT);
        }
        Self::read(&outer, 0)
    }

    #[inline]
    fn read(header: &Ipv4Header<'_>, paint: u8) -> Option<Self> {
        let (source, destination) = (word(header.bytes, 12), word(header.bytes, 16));
        let protocol = header.protocol();
        if (protocol != TCP && protocol != UDP) || (source == 0 && destination == 0) {
            return None;
        }
        let transport = header.transport();
        let is_first = header.is_first();
        if is_first && transport.len() < 4 {
            return None;
        }
        let has_flags = is_first && paint == 0 && protocol == TCP && transport.len() >= FLAGS_END;
        Some(Self {
            source,
            destination,
            protocol,
            identification: half(header.bytes, 4),
            fragment: half(header.bytes, 6) & 0x3fff,
            ports: is_first.then(|| word(transport, 0)),
            paint,
            flags: if has_flags { transport[FLAGS_END - 1] } else { 0 },
        })
    }
}

/// Returns the header of the packet that an ICMP error is about.
fn icmp_cause(icmp: &[u8]) -> Option<Ipv4Header<'_>> {
    /// Destination unreachable, source quench, redirect, time exceeded, parameter problem.
    const ERRORS: [u8; 5] = [3, 4, 5, 11, 12];
    ERRORS.contains(icmp.first()?).then(|| Ipv4Header::read(icmp.get(8..)?)).flatten()
}

struct AggregateFlows {
    table: FlowTable,
    /// The number of the latest flow.
    number: u32,
    evicted: u64,
    timeouts: FlowTimeouts,
    reap_interval: u64,
    /// The time of the latest packet, in seconds.
    active: u64,
    reap_at: Option<u64>,
    handles_icmp: bool,
    /// The argument.
    fragments: Option<bool>,
    holds_fragments: bool,
    trace: Option<FlowTrace>,
    source: Option<usize>,
    held: BTreeMap<HostPair, VecDeque<HeldPacket>>,
    held_count: usize,
}

fn annotate(packet: &mut GraphPacket, aggregate: u32, paint: u8) {
    packet.annotation_mut(AGGREGATE).copy_from_slice(&aggregate.to_ne_bytes());
    packet.annotation_mut(PAINT)[0] = paint;
}

impl AggregateFlows {
    fn handle(&mut self, mut packet: GraphPacket, cx: &mut ElementContext<'_>) -> Handled {
        if packet.time() == Timestamp(0) {
            packet.set_time(cx.services.coarse_now());
        }
        let Some(header) = FlowHeader::of(&packet, self.handles_icmp) else { return Handled::Other(packet) };
        let time = packet.time();
        let mut paint = header.paint;
        let (key, is_flipped) =
            Ipv4FlowKey::new(header.source, header.destination, header.ports.unwrap_or(0), header.protocol);
        let flow = header.ports.map(|_| self.flow(key, is_flipped, time, header.flags, cx.services));
        if let Some(index) = flow {
            let found = self.table.get(index);
            paint ^= u8::from(is_flipped != found.is_reverse);
            annotate(&mut packet, found.aggregate, paint);
        } else {
            annotate(&mut packet, 0, paint ^ u8::from(is_flipped));
        }
        let is_fragment = header.fragment != 0;
        let pair = (key.protocol, key.hosts);
        if (self.holds_fragments && is_fragment) || (self.held_count > 0 && self.held.contains_key(&pair)) {
            let flow = flow.map(|index| (key, self.table.get(index).aggregate));
            let (identification, flags) = (header.identification, header.flags);
            self.hold(pair, HeldPacket { packet, flow, paint, identification, is_fragment, flags }, cx);
            return Handled::Held;
        }
        let Some(index) = flow else { return Handled::Other(packet) };
        self.active = time.0 / SECOND;
        self.account(index, time, paint, header.flags);
        Handled::Numbered(packet)
    }

    /// Returns the flow of a packet, a new one if there is none.
    #[inline]
    fn flow(
        &mut self,
        key: Ipv4FlowKey,
        is_flipped: bool,
        time: Timestamp,
        flags: u8,
        services: &mut Services,
    ) -> FlowIndex {
        if let Some(index) = self.table.find(&key) {
            let flow = self.table.get(index);
            let is_reopened = flow.closed == CLOSED && flags & SYN != 0;
            if !is_reopened && !self.timeouts.has_passed(flow, time.0 / SECOND) {
                return index;
            }
            self.end(index, services);
        }
        if let Some(victim) = self.table.victim(&key) {
            self.evicted += 1;
            self.end(victim, services);
        }
        // After 2^32 flows, numbers begin anew.
        self.number = self.number.checked_add(1).unwrap_or(1);
        let index = self.table.insert(TrackedFlow::new(key, self.number, is_flipped, time));
        if let Some(trace) = &mut self.trace {
            if trace.counts.len() <= index {
                trace.counts.resize(index + 1, (Timestamp(0), [0; 2]));
            }
            trace.counts[index] = (time, [0; 2]);
        }
        index
    }

    /// Counts a packet that goes on.
    #[inline]
    fn account(&mut self, index: FlowIndex, time: Timestamp, paint: u8, flags: u8) {
        let flow = self.table.get_mut(index);
        flow.latest = time;
        if paint >= ICMP_PAINT {
            return;
        }
        if flags & RST != 0 {
            flow.closed = CLOSED;
        } else if flags & FIN != 0 {
            flow.closed |= 1 << paint;
        } else if flags & SYN != 0 {
            flow.closed = 0;
        }
        if let Some(trace) = &mut self.trace {
            trace.counts[index].1[usize::from(paint)] += 1;
        }
    }

    /// Ends a flow, and removes it.
    fn end(&mut self, index: FlowIndex, services: &mut Services) {
        let flow = *self.table.get(index);
        self.table.remove(index);
        let Some(trace) = &mut self.trace else { return };
        let (first, packets) = trace.counts[index];
        let Ipv4FlowKey { hosts, ports, .. } = flow.key;
        let ends = [(hosts[0], ports >> 16), (hosts[1], ports & 0xffff)];
        let [from, to] = if flow.is_reverse { [ends[1], ends[0]] } else { ends };
        let duration = Timestamp(flow.latest.0.saturating_sub(first.0));
        let mut text = String::new();
        _ = writeln!(
            text,
            "<flow aggregate='{}' src='{}' sport='{}' dst='{}' dport='{}' begin='{}' duration='{}'>\n  \
             <stream dir='0' packets='{}' /><stream dir='1' packets='{}' />\n</flow>",
            flow.aggregate,
            Ipv4Addr::from_bits(from.0),
            from.1,
            Ipv4Addr::from_bits(to.0),
            to.1,
            crate::values::seconds(first),
            crate::values::seconds(duration),
            packets[0],
            packets[1]
        );
        trace.file.add(&text, services);
    }

    fn hold(&mut self, pair: HostPair, held: HeldPacket, cx: &mut ElementContext<'_>) {
        self.active = held.packet.time().0 / SECOND;
        self.held.entry(pair).or_default().push_back(held);
        self.held_count += 1;
        self.release(pair, Some(self.active.saturating_sub(self.timeouts.fragment)), cx);
        if self.held_count > HELD_MAX {
            self.release_first(pair, cx);
            self.release(pair, Some(0), cx);
        }
    }

    /// Sends the packets of a pair that wait for no fragment, and fragments older than a time in seconds; without one,
    /// all packets.
    fn release(&mut self, pair: HostPair, older_than: Option<u64>, cx: &mut ElementContext<'_>) {
        let is_due = |held: &HeldPacket| {
            !held.is_fragment || older_than.is_none_or(|time| held.packet.time().0 / SECOND < time)
        };
        while self.held.get(&pair).and_then(VecDeque::front).is_some_and(is_due) {
            self.release_first(pair, cx);
        }
    }

    fn release_first(&mut self, pair: HostPair, cx: &mut ElementContext<'_>) {
        let Some(queue) = self.held.get_mut(&pair) else { return };
        let Some(mut first) = queue.pop_front() else { return };
        self.held_count -= 1;
        let same = |held: &&mut HeldPacket| held.identification == first.identification && held.is_fragment;
        match first.flow {
            Some(_) if first.is_fragment => {
                // Later fragments of the datagram have the same ports.
                let later: Vec<&mut HeldPacket> =
                    queue.iter_mut().filter(same).filter(|held| held.flow.is_none()).collect();
                later.into_iter().for_each(|held| (held.flow, held.paint) = (first.flow, first.paint));
            }
            Some(_) => {}
            None => {
                let known = queue.iter_mut().filter(same).find(|held| held.flow.is_some());
                if let Some(known) = known {
                    (first.flow, first.paint) = (known.flow, known.paint);
                }
            }
        }
        if queue.is_empty() {
            self.held.remove(&pair);
        }
        let HeldPacket { mut packet, flow, paint, flags, .. } = first;
        let Some((key, aggregate)) = flow else { return cx.emit_or_discard(1, packet) };
        annotate(&mut packet, aggregate, paint);
        let index = self.table.find(&key).filter(|index| self.table.get(*index).aggregate == aggregate);
        if let Some(index) = index {
            self.account(index, packet.time(), paint, flags);
        }
        cx.emit(0, packet);
    }

    /// Ends flows that have no packets for their timeouts, and sends fragments that have waited too long.
    fn reap(&mut self, cx: &mut ElementContext<'_>) {
        if self.reap_at.is_some_and(|at| self.active < at) {
            return;
        }
        if self.reap_at.is_some() {
            let before = self.active.saturating_sub(self.timeouts.fragment);
            for pair in self.held.keys().copied().collect::<Vec<_>>() {
                self.release(pair, Some(before), cx);
            }
            let is_over = |index: &FlowIndex| {
                let flow = self.table.get(*index);
                self.timeouts.has_passed(flow, self.active)
                    && !self.held.contains_key(&(flow.key.protocol, flow.key.hosts))
            };
            let over: Vec<FlowIndex> = self.table.indices().filter(is_over).collect();
            over.into_iter().for_each(|index| self.end(index, cx.services));
        }
        self.reap_at = Some(self.active.saturating_add(self.reap_interval));
    }

    /// Ends all flows, in the order of their numbers.
    fn end_all(&mut self, services: &mut Services) {
        let mut all: Vec<(u32, FlowIndex)> =
            self.table.indices().map(|index| (self.table.get(index).aggregate, index)).collect();
        all.sort_unstable();
        all.into_iter().for_each(|(_, index)| self.end(index, services));
    }
}

impl Element for AggregateFlows {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        let pulls = cx.ports().inputs_pull[0];
        if self.fragments == Some(true) && pulls {
            return Err(
                "'FRAGMENTS true' is incompatible with pull; run this element in a push context".to_owned()
            );
        }
        self.holds_fragments = self.fragments.unwrap_or(!pulls);
        let Some(trace) = &mut self.trace else { return Ok(()) };
        let mut begin = String::from("<?xml version='1.0' standalone='yes'?>\n<trace");
        let name = self.source.and_then(|source| cx.element_name(source).map(str::to_owned));
        if let Some(file) = name.and_then(|name| cx.read_handler(&format!("{name}.filename")).ok()) {
            begin.push_str(" file='");
            for c in file.trim().chars() {
                match c {
                    '<' => begin.push_str("&lt;"),
                    '&' => begin.push_str("&amp;"),
                    '\'' => begin.push_str("&#39;"),
                    c if c.is_control() => begin.push(char::REPLACEMENT_CHARACTER),
                    c => begin.push(c),
                }
            }
            begin.push('\'');
        }
        begin.push_str(">\n");
        trace.file.add(&begin, cx.services);
        Ok(())
    }

    fn effects(&self) -> Option<Effects> {
        Some(self.trace.as_ref().map_or(Effects::NONE, |trace| trace.file.effects()))
    }

    fn finish(&mut self, services: &mut Services) -> Result<(), Reason> {
        self.end_all(services);
        let Some(trace) = &mut self.trace else { return Ok(()) };
        trace.file.add("</trace>\n", services);
        trace.file.finish(services)
    }

    handlers! {
        "count": gauge "the number of flows in the table", read |this, _, _| Ok(this.table.len().to_string());
        "flows": "the number of flows so far", read |this, _, _| Ok(this.number.to_string());
        "evicted": counter "the number of flows that were ended because the table was full",
            read |this, _, _| Ok(this.evicted.to_string());
        "clear": "ends all flows, and sends the packets that wait",
            write |this, _, cx| {
                for pair in this.held.keys().copied().collect::<Vec<_>>() {
                    this.release(pair, None, cx);
                }
                this.end_all(cx.services);
                Ok(String::new())
            };
    }
}

impl EmittingElement for AggregateFlows {
    fn push(&mut self, _: usize, packet: GraphPacket, cx: &mut ElementContext<'_>) {
        match self.handle(packet, cx) {
            Handled::Numbered(packet) => cx.emit(0, packet),
            Handled::Other(packet) => cx.emit_or_discard(1, packet),
            Handled::Held => {}
        }
        self.reap(cx);
    }

    fn pull(&mut self, _: usize, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        let packet = cx.pull(0)?;
        let handled = self.handle(packet, cx);
        self.reap(cx);
        match handled {
            Handled::Numbered(packet) => Some(packet),
            Handled::Other(packet) => {
                cx.emit_or_discard(1, packet);
                None
            }
            Handled::Held => None,
        }
    }
}
