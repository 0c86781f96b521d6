//! `TimeFilter`: separates packets by their time stamps.

use std::cell::RefCell;
use std::rc::Rc;
use weir_graph::arguments::RawArgument;
use weir_graph::engine::{
    BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement, GraphPacket,
    OrderDependence, Reason, TextOutput,
};
use weir_graph::handlers;
use weir_units::{Nanos, Timestamp};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "TimeFilter",
    ports: "1/1-2",
    processing: "a/ah",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::CONTROL,
    order: OrderDependence::Ordered,
    manual: "\
separates packets by their time stamps

TimeFilter([START, END, keywords START_DELAY, END_DELAY, START_AFTER, END_AFTER, INTERVAL, STOP, END_CALL])

TimeFilter sends packets from START on, and before END, to output 0. Others go to output 1, or are discarded if there is \
none. There can be one statement about the start, and one about the end.

Arguments:
  START, END              time stamps
  START_DELAY, END_DELAY  times after the start of the graph
  START_AFTER, END_AFTER  times after the time stamp of the first packet
  INTERVAL                the time from the start to the end
  STOP                    true: stops the driver at the first packet from END on. Default false.
  END_CALL                a write handler, with its value, that is called at the first packet from END on. `$t` in it is the \
time stamp of the packet. If it moves the end behind the packet, the packet goes to output 0; if it moves \
it less, it is called again, up to 65536 times for a packet. Not with STOP.

Handlers:
  start            rw  the time stamp from which packets go to output 0
  end              rw  the time stamp before which packets go to output 0; a write has END_CALL called again
  interval         rw  the time between both; a write moves the end
  extend_interval  w   a time by which the end is moved",
    build: |cx| {
        let mut args = cx.arguments();
        let start: Option<Timestamp> = args.either("START").optional();
        let end: Option<Timestamp> = args.either("END").optional();
        let mut time = |name| args.keyword::<Nanos>(name).optional();
        let starts = [
            start.map(TimeBound::At),
            time("START_DELAY").map(TimeBound::Delay),
            time("START_AFTER").map(TimeBound::AfterFirst),
        ];
        let ends = [
            end.map(TimeBound::At),
            time("END_DELAY").map(TimeBound::Delay),
            time("END_AFTER").map(TimeBound::AfterFirst),
            time("INTERVAL").map(TimeBound::AfterStart),
        ];
        let stop = args.flag("STOP");
        let call: Option<RawArgument> = args.keyword("END_CALL").optional();
        if starts.iter().flatten().count() > 1 {
            args.error("START", "START, START_DELAY and START_AFTER exclude each other");
        }
        if ends.iter().flatten().count() > 1 {
            args.error("END", "END, END_DELAY, END_AFTER and INTERVAL exclude each other");
        }
        if stop && call.is_some() {
            args.error("END_CALL", "not together with STOP");
        }
        args.end()?;
        let first = |bounds: &[Option<TimeBound>]| bounds.iter().flatten().next().copied();
        let call = if stop { Some("stop".to_owned()) } else { call.map(|call| call.0) };
        let range = TimeRange {
            start: first(&starts).unwrap_or(TimeBound::At(Timestamp(0))),
            end: first(&ends).unwrap_or(TimeBound::At(Timestamp(u64::MAX))),
            may_call: call.is_some(),
        };
        let range = Rc::new(RefCell::new(range));
        Ok(BuiltElement::emitting(TimeFilter { range, call: call.map(Rc::from) }))
    },
};

/// A limit of time stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeBound {
    At(Timestamp),
    /// After the start of the graph.
    Delay(Nanos),
    /// After the first packet.
    AfterFirst(Nanos),
    /// After the start, for the end.
    AfterStart(Nanos),
}

fn after(time: Timestamp, Nanos(nanos): Nanos) -> Timestamp {
    Timestamp(time.0.saturating_add(nanos))
}

impl TimeBound {
    /// Returns the time stamp, or what is known of it.
    fn time(self) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::Delay(nanos) | Self::AfterFirst(nanos) | Self::AfterStart(nanos) => Timestamp(nanos.0),
        }
    }
}

/// The time stamps of packets that go to output 0.
#[derive(Clone, Copy, Debug)]
struct TimeRange {
    start: TimeBound,
    end: TimeBound,
    /// The next packet from the end on has the handler called.
    may_call: bool,
}

impl TimeRange {
    /// Makes limits that count from the start of the graph absolute.
    fn begin(&mut self, now: Timestamp) {
        for bound in [&mut self.start, &mut self.end] {
            if let TimeBound::Delay(nanos) = *bound {
                *bound = TimeBound::At(after(now, nanos));
            }
        }
    }

    /// Makes limits that count from the first packet, or from the start, absolute.
    fn meet_first(&mut self, first: Timestamp) {
        if let TimeBound::AfterFirst(nanos) = self.start {
            self.start = TimeBound::At(after(first, nanos));
        }
        match self.end {
            TimeBound::AfterFirst(nanos) => self.end = TimeBound::At(after(first, nanos)),
            TimeBound::AfterStart(nanos) => self.end = TimeBound::At(after(self.start.time(), nanos)),
            TimeBound::At(_) | TimeBound::Delay(_) => {}
        }
    }

    fn set_end(&mut self, time: Timestamp) {
        self.end = TimeBound::At(time);
        self.may_call = true;
    }
}

/// The range is shared with the element that has the place of this one during a call.
#[derive(Clone)]
struct TimeFilter {
    range: Rc<RefCell<TimeRange>>,
    call: Option<Rc<str>>,
}

/// The most calls for one packet.
const CALLS_MAX: usize = 1 << 16;

impl TimeFilter {
    /// Returns true if the packet is in the range. Calls the handler at the end.
    fn is_in_range(&self, packet: &GraphPacket, cx: &mut ElementContext<'_>) -> bool {
        let time = packet.time();
        self.range.borrow_mut().meet_first(time);
        let TimeRange { start, .. } = *self.range.borrow();
        if time < start.time() {
            return false;
        }
        for _ in 0..CALLS_MAX {
            let TimeRange { end, may_call, .. } = *self.range.borrow();
            let Some(call) = self.call.as_deref().filter(|_| time >= end.time() && may_call) else { break };
            self.range.borrow_mut().may_call = false;
            let call = with_time(call, time);
            let stand_in = BuiltElement::emitting(self.clone());
            if let Err(reason) = cx.with_stand_in(stand_in, |cx| cx.write_handler(&call)) {
                let name = cx.element_name(cx.element()).unwrap_or_default();
                let line = format!("{name}: {call}: {reason}\n");
                cx.services.system.write_text(TextOutput::Error, &line);
            }
            // A handler that moves the end only a little is called again.
            if self.range.borrow().end.time() <= end.time() {
                break;
            }
        }
        time < self.range.borrow().end.time()
    }
}

/// Replaces the variable `t` in a call by a time.
fn with_time(call: &str, time: Timestamp) -> String {
    let time = crate::values::seconds(time);
    let mut text = String::new();
    let mut rest = call;
    while let Some((before, behind)) = rest.split_once('$') {
        text.push_str(before);
        let is_inner = |c: char| c.is_ascii_alphanumeric() || c == '_';
        rest = match (behind.strip_prefix("{t}"), behind.strip_prefix('t')) {
            (Some(behind), _) => {
                text.push_str(&time);
                behind
            }
            (None, Some(behind)) if !behind.starts_with(is_inner) => {
                text.push_str(&time);
                behind
            }
            _ => {
                text.push('$');
                behind
            }
        };
    }
    text + rest
}

impl Element for TimeFilter {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        let now = cx.services.coarse_now();
        self.range.borrow_mut().begin(now);
        Ok(())
    }

    fn effects(&self) -> Option<Effects> {
        self.call.is_none().then_some(Effects::NONE)
    }

    handlers! {
        "start": "the time stamp from which packets go to output 0",
            read |this, _, _| Ok(crate::values::seconds(this.range.borrow().start.time())),
            write |this, value, _| {
                let start: Timestamp = crate::values::read(value)?;
                let mut range = this.range.borrow_mut();
                range.meet_first(start);
                range.start = TimeBound::At(start);
                Ok(String::new())
            };
        "end": "the time stamp before which packets go to output 0",
            read |this, _, _| Ok(crate::values::seconds(this.range.borrow().end.time())),
            write |this, value, _| {
                this.range.borrow_mut().set_end(crate::values::read(value)?);
                Ok(String::new())
            };
        "interval": "the time between both",
            read |this, _, _| {
                let TimeRange { start, end, .. } = *this.range.borrow();
                Ok(crate::values::seconds(Timestamp(end.time().since(start.time()).0)))
            },
            write |this, value, _| {
                let interval = crate::values::read(value)?;
                let mut range = this.range.borrow_mut();
                let end = after(range.start.time(), interval);
                range.set_end(end);
                Ok(String::new())
            };
        "extend_interval": "a time by which the end is moved",
            write |this, value, _| {
                let more = crate::values::read(value)?;
                let mut range = this.range.borrow_mut();
                let end = after(range.end.time(), more);
                range.set_end(end);
                Ok(String::new())
            };
    }
}

impl EmittingElement for TimeFilter {
    fn push(&mut self, _: usize, packet: GraphPacket, cx: &mut ElementContext<'_>) {
        if self.is_in_range(&packet, cx) {
            cx.emit(0, packet);
        } else {
            cx.emit_or_discard(1, packet);
        }
    }

    fn pull(&mut self, _: usize, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        let packet = cx.pull(0)?;
        if self.is_in_range(&packet, cx) {
            return Some(packet);
        }
        cx.emit_or_discard(1, packet);
        None
    }
}
