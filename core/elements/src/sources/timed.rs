//! `TimedSource` and `TimedSink`: send or discard a packet from time to time.

use super::content::{DATA_DEFAULT, PacketContent};
use weir_graph::arguments::ByteString;
use weir_graph::engine::{
    BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement,
    OrderDependence, Reason,
};
use weir_graph::handlers;
use weir_units::{Nanos, Timestamp};

/// The class that sends.
pub static SOURCE: ElementClass = ElementClass {
    name: "TimedSource",
    ports: "0/1",
    processing: "h/h",
    flow: "x/y",
    cost: ElementCost::E1,
    effects: Effects::CLOCK.and(Effects::CONTROL),
    order: OrderDependence::Ordered,
    manual: "\
sends a packet from time to time

TimedSource([INTERVAL, DATA, keywords LIMIT, ACTIVE, STOP, HEADROOM])

TimedSource sends a packet with the bytes DATA after each INTERVAL. Each has the time at which it was sent.

Arguments:
  INTERVAL  the time from packet to packet, and before the first one. Default 500ms.
  DATA      the bytes of a packet. Default: a text of 64 bytes.
  LIMIT     the number of packets; negative for no limit. Default -1.
  ACTIVE    false: sends no packets. Default true.
  STOP      true: stops the driver an INTERVAL after the last packet. Default false.

HEADROOM is accepted and changes nothing: room is made when an element needs it.

Handlers:
  interval  rw  the argument
  data      rw  the argument
  active    rw  the argument
  limit     rw  the argument
  count     r   the number of sent packets
  reset     w   sets the count to 0, and goes on",
    build: |cx| {
        let mut args = cx.arguments();
        let interval = args.either("INTERVAL").or(INTERVAL_DEFAULT);
        let data = args.either("DATA").or(ByteString(DATA_DEFAULT.to_vec())).0;
        let limit: i64 = args.keyword("LIMIT").or(-1);
        let active = args.keyword("ACTIVE").or(true);
        let stop = args.keyword("STOP").or(false);
        let _: Option<u32> = args.keyword("HEADROOM").optional();
        if interval == Nanos(0) {
            args.error("INTERVAL", "expected a time above 0");
        }
        args.end()?;
        let content = PacketContent::new(data, None);
        let pace = Pace { interval, next: Timestamp(0) };
        Ok(BuiltElement::emitting(TimedSource { content, pace, limit, active, stop, count: 0 }))
    },
};

/// The class that discards.
pub static SINK: ElementClass = ElementClass {
    name: "TimedSink",
    ports: "1/0",
    processing: "l/l",
    manual: "\
discards a packet from time to time

TimedSink([INTERVAL])

TimedSink pulls a packet after each INTERVAL, and discards it.

Arguments:
  INTERVAL  the time from packet to packet, and before the first one. Default 500ms.

Handlers:
  interval  rw  the argument
  count     r   the number of discarded packets",
    effects: Effects::CLOCK,
    build: |cx| {
        let mut args = cx.arguments();
        let interval = args.either("INTERVAL").or(INTERVAL_DEFAULT);
        if interval == Nanos(0) {
            args.error("INTERVAL", "expected a time above 0");
        }
        args.end()?;
        Ok(BuiltElement::emitting(TimedSink { pace: Pace { interval, next: Timestamp(0) }, count: 0 }))
    },
    ..SOURCE
};

/// The interval without an argument.
const INTERVAL_DEFAULT: Nanos = Nanos(500_000_000);

/// Events with an interval between them.
#[derive(Clone, Copy, Debug)]
struct Pace {
    interval: Nanos,
    /// The time of the next event.
    next: Timestamp,
}

impl Pace {
    /// Sets the timer for the first event.
    fn begin(&mut self, cx: &mut ElementContext<'_>) {
        let now = cx.services.coarse_now();
        self.next = Timestamp(now.0.saturating_add(self.interval.0));
        cx.set_timer(self.next, 0);
    }

    /// Has an event happen at once, if none is to come.
    fn resume(&mut self, cx: &mut ElementContext<'_>) {
        if cx.services.schedule.timer(cx.element(), 0).is_none() {
            self.next = cx.services.coarse_now();
            cx.set_timer(self.next, 0);
        }
    }

    /// Sets the timer for the event after one that happened now.
    fn go_on(&mut self, now: Timestamp, cx: &mut ElementContext<'_>) {
        self.next = Timestamp(self.next.0.saturating_add(self.interval.0));
        // A late event lets others run before the next one.
        cx.set_timer(self.next.max(Timestamp(now.0.saturating_add(1))), 0);
    }

    fn set_interval(&mut self, value: &str) -> Result<String, Reason> {
        let interval: Nanos = crate::values::read(value)?;
        if interval == Nanos(0) {
            return Err("expected a time above 0".to_owned());
        }
        self.interval = interval;
        Ok(String::new())
    }
}

struct TimedSource {
    content: PacketContent,
    pace: Pace,
    /// Negative for no limit.
    limit: i64,
    active: bool,
    stop: bool,
    count: u64,
}

impl Element for TimedSource {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        if self.active {
            self.pace.begin(cx);
        }
        Ok(())
    }

    fn effects(&self) -> Option<Effects> {
        (!self.stop).then_some(Effects::CLOCK)
    }

    fn timer_expired(&mut self, _: u32, cx: &mut ElementContext<'_>) {
        if !self.active {
            return;
        }
        if u64::try_from(self.limit).is_ok_and(|limit| self.count >= limit) {
            if self.stop {
                cx.services.stop();
            }
            return;
        }
        let now = cx.services.now();
        let mut packet = self.content.packet(cx.services);
        packet.set_time(now);
        self.count += 1;
        cx.emit(0, packet);
        self.pace.go_on(now, cx);
    }

    handlers! {
        "interval": "the time from packet to packet",
            read |this, _, _| Ok(crate::values::interval(this.pace.interval)),
            write |this, value, _| this.pace.set_interval(value);
        "data": "the bytes of a packet",
            read |this, _, _| Ok(String::from_utf8_lossy(this.content.data()).into_owned()),
            write |this, value, _| {
                this.content.set_data(crate::values::read::<ByteString>(value)?.0);
                Ok(String::new())
            };
        "active": "false if no packets are sent",
            read |this, _, _| Ok(this.active.to_string()),
            write |this, value, cx| {
                this.active = crate::values::read(value)?;
                if this.active {
                    this.pace.resume(cx);
                }
                Ok(String::new())
            };
        "limit": "the number of packets",
            read |this, _, _| Ok(this.limit.to_string()),
            write |this, value, cx| {
                this.limit = crate::values::read(value)?;
                if this.active {
                    this.pace.resume(cx);
                }
                Ok(String::new())
            };
        "count": counter "the number of sent packets", read |this, _, _| Ok(this.count.to_string());
        "reset": "sets the count to 0, and goes on",
            write |this, _, cx| {
                this.count = 0;
                if this.active {
                    this.pace.resume(cx);
                }
                Ok(String::new())
            };
    }
}

impl EmittingElement for TimedSource {}

struct TimedSink {
    pace: Pace,
    count: u64,
}

impl Element for TimedSink {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        self.pace.begin(cx);
        Ok(())
    }

    fn timer_expired(&mut self, _: u32, cx: &mut ElementContext<'_>) {
        if let Some(packet) = cx.pull(0) {
            self.count += 1;
            cx.services.pool.discard(packet);
        }
        let now = cx.services.now();
        self.pace.go_on(now, cx);
    }

    handlers! {
        "interval": "the time from packet to packet",
            read |this, _, _| Ok(crate::values::interval(this.pace.interval)),
            write |this, value, _| this.pace.set_interval(value);
        "count": counter "the number of discarded packets", read |this, _, _| Ok(this.count.to_string());
    }
}

impl EmittingElement for TimedSink {}
