//! `AggregateCounter`: counts packets or bytes for each aggregate.

use crate::control::general;
use core::net::Ipv4Addr;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::rc::Rc;
use weir_graph::arguments::{FileName, RawArgument};
use weir_graph::engine::{
    AGGREGATE, Annotation, BuiltElement, EXTRA_LENGTH, EXTRA_PACKETS, Effects, Element, ElementClass,
    ElementContext, ElementCost, EmittingElement, GraphPacket, OrderDependence, Reason, TextOutput,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "AggregateCounter",
    ports: "1-2/1-2",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E7,
    effects: Effects::CONTROL,
    order: OrderDependence::Ordered,
    manual: "\
counts packets or bytes for each aggregate

AggregateCounter([keywords BYTES, IP_BYTES, MULTIPACKET, EXTRA_LENGTH, AGGREGATE_STOP, AGGREGATE_FREEZE, AGGREGATE_CALL, \
COUNT_STOP, COUNT_FREEZE, COUNT_CALL, BANNER, CAPACITY])

AggregateCounter counts the packets of each value of the annotation AGGREGATE. While it is frozen, it counts packets of known \
aggregates only; packets of a second input always count so. Pushed packets that are not counted go to output 1, if there is \
one.

Arguments:
  BYTES             true: counts bytes, not packets. Default false.
  IP_BYTES          true: without the bytes before the network header. Default false.
  MULTIPACKET       true: a packet counts with the annotation EXTRA_PACKETS. Default true.
  EXTRA_LENGTH      true: bytes count with the annotation EXTRA_LENGTH. Default true.
  AGGREGATE_STOP    N: stops counting and the driver at the packet of a further aggregate after N of them
  AGGREGATE_FREEZE  N: freezes then
  AGGREGATE_CALL    N HANDLER [VALUE]: calls a write handler then
  COUNT_STOP        N: stops counting and the driver when the total count reaches N
  COUNT_FREEZE      N: freezes then
  COUNT_CALL        N HANDLER [VALUE]: calls a write handler then
  BANNER            a text at the head of files
  CAPACITY          the most aggregates, at most 16777216. Packets of further ones are not counted. Default 1048576.

Handlers:
  write_text_file      w   writes all counts to a file, `-` for standard output: a line for each aggregate
  write_ascii_file     w   the same
  write_ip_file        w   the same, with aggregates as IP addresses
  write_pdf_file       w   the same, with the parts of the total
  write_file           w   the same in binary form, with 8 bytes for each aggregate
  freeze               rw  true while it is frozen
  active               rw  false while nothing is counted
  stop                 w   stops counting and the driver
  counts_pdf           w   makes each count an aggregate, and the number of aggregates with it its count
  reaggregate_counts   w   the same
  clear                w   forgets all counts
  banner               rw  the argument
  aggregate_call       rw  the argument; empty for none
  count_call           rw  the argument; empty for none
  count                r   the total count
  nagg                 r   the number of aggregates
  uncounted            r   the packets that were not counted because CAPACITY aggregates were known",
    build: |cx| {
        let mut args = cx.arguments();
        let amount = CountedAmount {
            is_bytes: args.flag("BYTES"),
            is_behind_link: args.flag("IP_BYTES"),
            has_packets: args.keyword("MULTIPACKET").or(true),
            has_length: args.keyword("EXTRA_LENGTH").or(true),
        };
        let name = cx.name();
        let mut call = |names: [&'static str; 3]| {
            let [stop, freeze, call] = names;
            let stops: Option<u64> = args.keyword(stop).optional();
            let freezes: Option<u64> = args.keyword(freeze).optional();
            let calls: Option<RawArgument> = args.keyword(call).optional();
            let calls = calls.and_then(|text| match ThresholdCall::read(&text.0) {
                Ok(call) => call,
                Err(reason) => {
                    args.error(call, reason);
                    None
                }
            });
            let of = |handler: &str, at| ThresholdCall { at, call: format!("{name}.{handler}") };
            let all = [stops.map(|at| of("stop", at)), freezes.map(|at| of("freeze true", at)), calls];
            if all.iter().flatten().count() > 1 {
                args.error(stop, format!("{stop}, {freeze} and {call} exclude each other"));
            }
            all.into_iter().flatten().next()
        };
        let aggregate_call = call(["AGGREGATE_STOP", "AGGREGATE_FREEZE", "AGGREGATE_CALL"]);
        let count_call = call(["COUNT_STOP", "COUNT_FREEZE", "COUNT_CALL"]);
        let banner: String = args.keyword("BANNER").or(String::new());
        let capacity: u32 = args.keyword("CAPACITY").within(1..=CAPACITY_MAX).or(CAPACITY_DEFAULT);
        args.end()?;
        let counts = AggregateCounts {
            amount,
            capacity: capacity as usize,
            counts: BTreeMap::new(),
            total: 0,
            uncounted: 0,
            is_frozen: false,
            is_active: true,
            aggregate_call,
            count_call,
            banner,
        };
        Ok(BuiltElement::emitting(AggregateCounter { counts: Rc::new(RefCell::new(counts)) }))
    },
};

const CAPACITY_DEFAULT: u32 = 1 << 20;
const CAPACITY_MAX: u32 = 1 << 24;

/// The amount with which a packet counts.
#[derive(Clone, Copy, Debug)]
struct CountedAmount {
    is_bytes: bool,
    /// Bytes before the network header do not count.
    is_behind_link: bool,
    has_packets: bool,
    has_length: bool,
}

fn number(packet: &GraphPacket, annotation: Annotation) -> u32 {
    packet.annotation(annotation).try_into().map_or(0, u32::from_ne_bytes)
}

impl CountedAmount {
    fn of(self, packet: &GraphPacket) -> u64 {
        let extra = |is_counted: bool, annotation| match is_counted {
            true => u64::from(number(packet, annotation)),
            false => 0,
        };
        if !self.is_bytes {
            return 1 + extra(self.has_packets, EXTRA_PACKETS);
        }
        let before = packet.network_offset().filter(|_| self.is_behind_link).unwrap_or(0);
        packet.len().saturating_sub(before) as u64 + extra(self.has_length, EXTRA_LENGTH)
    }
}

/// A call of a handler when a number is reached.
#[derive(Clone, Debug)]
struct ThresholdCall {
    at: u64,
    call: String,
}

impl ThresholdCall {
    /// Reads `N HANDLER [VALUE]`; an empty text is no call.
    fn read(text: &str) -> Result<Option<Self>, Reason> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(None);
        }
        let (at, call) = text.split_once(char::is_whitespace).ok_or("expected: N HANDLER [VALUE]")?;
        Ok(Some(Self { at: crate::values::read(at)?, call: call.trim().to_owned() }))
    }

    fn text(call: Option<&Self>) -> String {
        call.map_or(String::new(), |it| format!("{} {}", it.at, it.call))
    }
}

/// The form of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CountsFormat {
    Text,
    IpText,
    Parts,
    Binary,
}

/// The counts, and everything that handlers change.
struct AggregateCounts {
    amount: CountedAmount,
    capacity: usize,
    counts: BTreeMap<u32, u64>,
    total: u64,
    uncounted: u64,
    is_frozen: bool,
    is_active: bool,
    aggregate_call: Option<ThresholdCall>,
    count_call: Option<ThresholdCall>,
    banner: String,
}

/// The result of counting a packet.
enum Counted {
    Yes,
    No,
    /// A handler has to be called before.
    CallFirst(String),
    /// It is counted, and a handler has to be called.
    ThenCall(String),
}

impl AggregateCounts {
    fn count(&mut self, packet: &GraphPacket, is_frozen: bool) -> Counted {
        let aggregate = number(packet, AGGREGATE);
        let is_new = !self.counts.contains_key(&aggregate);
        if !self.is_active || (is_new && (is_frozen || self.is_frozen)) {
            return Counted::No;
        }
        let amount = self.amount.of(packet);
        if is_new && amount > 0 {
            if let Some(call) = self.aggregate_call.take_if(|call| self.counts.len() as u64 >= call.at) {
                return Counted::CallFirst(call.call);
            }
            if self.counts.len() >= self.capacity {
                self.uncounted += 1;
                return Counted::No;
            }
        }
        if amount > 0 {
            let count = self.counts.entry(aggregate).or_insert(0);
            *count = count.saturating_add(amount);
            self.total = self.total.saturating_add(amount);
        }
        match self.count_call.take_if(|call| self.total >= call.at) {
            Some(call) => Counted::ThenCall(call.call),
            None => Counted::Yes,
        }
    }

    /// Makes the counts the aggregates.
    fn count_counts(&mut self) {
        let mut counts = BTreeMap::new();
        for count in self.counts.values() {
            *counts.entry(narrow(*count)).or_insert(0) += 1;
        }
        self.total = self.counts.len() as u64;
        self.counts = counts;
    }

    fn clear(&mut self) {
        self.counts.clear();
        self.total = 0;
    }

    /// Returns the content of a file.
    fn file(&self, format: CountsFormat) -> Vec<u8> {
        let mut text = "!IPAggregate 1.0\n".to_owned();
        text.push_str(&self.banner);
        if !self.banner.is_empty() && !self.banner.ends_with('\n') {
            text.push('\n');
        }
        _ = writeln!(text, "!num_nonzero {}", self.counts.len());
        match format {
            CountsFormat::Binary => text.push_str("!packed_le\n"),
            CountsFormat::IpText => text.push_str("!ip\n"),
            CountsFormat::Text | CountsFormat::Parts => {}
        }
        let mut bytes = text.into_bytes();
        for (aggregate, count) in &self.counts {
            let line = match format {
                CountsFormat::Binary => {
                    bytes.extend(aggregate.to_le_bytes());
                    bytes.extend(narrow(*count).to_le_bytes());
                    continue;
                }
                CountsFormat::Text => format!("{aggregate} {count}\n"),
                CountsFormat::IpText => format!("{} {count}\n", Ipv4Addr::from_bits(*aggregate)),
                CountsFormat::Parts => {
                    format!("{aggregate} {}\n", general(*count as f64 / self.total as f64))
                }
            };
            bytes.extend(line.into_bytes());
        }
        bytes
    }
}

/// Returns a count in the 32 bits of a file, or of an aggregate.
fn narrow(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The counts are shared with the element that has the place of this one during a call.
#[derive(Clone)]
struct AggregateCounter {
    counts: Rc<RefCell<AggregateCounts>>,
}

/// The most calls for one packet.
const CALLS_MAX: usize = 16;

impl AggregateCounter {
    fn call(&self, call: &str, cx: &mut ElementContext<'_>) {
        let stand_in = BuiltElement::emitting(self.clone());
        if let Err(reason) = cx.with_stand_in(stand_in, |cx| cx.write_handler(call)) {
            let name = cx.element_name(cx.element()).unwrap_or_default();
            let line = format!("{name}: {call}: {reason}\n");
            cx.services.system.write_text(TextOutput::Error, &line);
        }
    }

    /// Counts a packet. Returns true if it is counted.
    fn count(&self, packet: &GraphPacket, is_frozen: bool, cx: &mut ElementContext<'_>) -> bool {
        for _ in 0..CALLS_MAX {
            let counted = self.counts.borrow_mut().count(packet, is_frozen);
            match counted {
                Counted::Yes => return true,
                Counted::No => return false,
                Counted::CallFirst(call) => self.call(&call, cx),
                Counted::ThenCall(call) => {
                    self.call(&call, cx);
                    return true;
                }
            }
        }
        false
    }

    fn write_file(
        &self,
        value: &str,
        format: CountsFormat,
        cx: &mut ElementContext<'_>,
    ) -> Result<String, Reason> {
        let FileName(name) = crate::values::read(value)?;
        let bytes = self.counts.borrow().file(format);
        match (name.as_str(), format) {
            ("-", CountsFormat::Binary) => return Err("the binary form needs a file, not '-'".to_owned()),
            ("-", _) => cx.services.system.write_text(TextOutput::Out, &String::from_utf8_lossy(&bytes)),
            _ => cx.services.system.write_file(&name, &bytes, true)?,
        }
        Ok(String::new())
    }
}

impl Element for AggregateCounter {
    fn take_state(&mut self, earlier: &mut dyn std::any::Any, _: &mut ElementContext<'_>) {
        let Some(earlier) = earlier.downcast_mut::<AggregateCounter>() else { return };
        let (mut new, mut old) = (self.counts.borrow_mut(), earlier.counts.borrow_mut());
        new.counts = std::mem::take(&mut old.counts);
        (new.total, new.uncounted) = (old.total, old.uncounted);
        (new.is_frozen, new.is_active) = (old.is_frozen, old.is_active);
    }

    fn effects(&self) -> Option<Effects> {
        let counts = self.counts.borrow();
        (counts.aggregate_call.is_none() && counts.count_call.is_none()).then_some(Effects::NONE)
    }

    handlers! {
        "write_text_file": "writes all counts to a file",
            write |this, value, cx| this.write_file(value, CountsFormat::Text, cx);
        "write_ascii_file": "writes all counts to a file",
            write |this, value, cx| this.write_file(value, CountsFormat::Text, cx);
        "write_ip_file": "writes all counts to a file, with aggregates as IP addresses",
            write |this, value, cx| this.write_file(value, CountsFormat::IpText, cx);
        "write_pdf_file": "writes the parts of the total to a file",
            write |this, value, cx| this.write_file(value, CountsFormat::Parts, cx);
        "write_file": "writes all counts to a file in binary form",
            write |this, value, cx| this.write_file(value, CountsFormat::Binary, cx);
        "freeze": "true while only known aggregates are counted",
            read |this, _, _| Ok(this.counts.borrow().is_frozen.to_string()),
            write |this, value, _| {
                this.counts.borrow_mut().is_frozen = crate::values::read(value)?;
                Ok(String::new())
            };
        "active": "false while nothing is counted",
            read |this, _, _| Ok(this.counts.borrow().is_active.to_string()),
            write |this, value, _| {
                this.counts.borrow_mut().is_active = crate::values::read(value)?;
                Ok(String::new())
            };
        "stop": "stops counting and the driver",
            write |this, _, cx| {
                this.counts.borrow_mut().is_active = false;
                cx.services.stop();
                Ok(String::new())
            };
        "counts_pdf": "makes the counts the aggregates",
            write |this, _, _| {
                this.counts.borrow_mut().count_counts();
                Ok(String::new())
            };
        "reaggregate_counts": "makes the counts the aggregates",
            write |this, _, _| {
                this.counts.borrow_mut().count_counts();
                Ok(String::new())
            };
        "clear": "forgets all counts",
            write |this, _, _| {
                this.counts.borrow_mut().clear();
                Ok(String::new())
            };
        "banner": "the text at the head of files",
            read |this, _, _| Ok(this.counts.borrow().banner.clone()),
            write |this, value, _| {
                let end = if value.is_empty() { "" } else { "\n" };
                this.counts.borrow_mut().banner = format!("{}{end}", value.trim_end_matches('\n'));
                Ok(String::new())
            };
        "aggregate_call": "the call at a number of aggregates",
            read |this, _, _| Ok(ThresholdCall::text(this.counts.borrow().aggregate_call.as_ref())),
            write |this, value, _| {
                this.counts.borrow_mut().aggregate_call = ThresholdCall::read(value)?;
                Ok(String::new())
            };
        "count_call": "the call at a total count",
            read |this, _, _| Ok(ThresholdCall::text(this.counts.borrow().count_call.as_ref())),
            write |this, value, _| {
                this.counts.borrow_mut().count_call = ThresholdCall::read(value)?;
                Ok(String::new())
            };
        "count": "the total count", read |this, _, _| Ok(this.counts.borrow().total.to_string());
        "nagg": gauge "the number of aggregates", read |this, _, _| Ok(this.counts.borrow().counts.len().to_string());
        "uncounted": "the packets that were not counted for want of room",
            read |this, _, _| Ok(this.counts.borrow().uncounted.to_string());
    }
}

impl EmittingElement for AggregateCounter {
    fn push(&mut self, input: usize, packet: GraphPacket, cx: &mut ElementContext<'_>) {
        let is_counted = self.count(&packet, input == 1, cx);
        let output = if cx.ports().targets.len() > 1 { usize::from(!is_counted) } else { 0 };
        cx.emit(output, packet);
    }

    fn pull(&mut self, output: usize, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        let input = if cx.ports().inputs_pull.len() > 1 { output } else { 0 };
        let packet = cx.pull(input)?;
        self.count(&packet, output == 1, cx);
        Some(packet)
    }
}
