//! `LinkUnqueue`: emulates a serial link.

use std::collections::VecDeque;
use weir_graph::engine::{
    BuiltElement, EXTRA_LENGTH, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement,
    GraphPacket, OrderDependence, Reason, TaskRun, WaitsFor,
};
use weir_graph::handlers;
use weir_units::{BitsPerSecond, Nanos, Timestamp};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "LinkUnqueue",
    ports: "1/1",
    processing: "l/h",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::CLOCK,
    order: OrderDependence::Ordered,
    manual: "\
emulates a serial link

LinkUnqueue(LATENCY, BANDWIDTH)

LinkUnqueue pulls packets, and pushes each when its last bit has come out of a link. The length of a packet includes the \
annotation EXTRA_LENGTH. Packets on the link are stored, at most 1048576 of them; others wait in the queue before it. The \
time stamp becomes the time at which the packet leaves.

Arguments:
  LATENCY    the time that a bit needs for the link
  BANDWIDTH  the bandwidth, such as 384kbps, at least 100Bps; without a unit in bytes per second

Handlers:
  latency    rw  the argument; a write discards all packets on the link
  bandwidth  rw  the argument, in bytes per second; a write discards all packets on the link
  size       r   the number of packets on the link
  reset      w   discards all packets on the link",
    build: |cx| {
        let mut args = cx.arguments();
        let latency = args.either("LATENCY").required();
        let BitsPerSecond(bits) = args.either("BANDWIDTH").required();
        let bandwidth = at_least(bits).unwrap_or_else(|reason| {
            args.error("BANDWIDTH", reason);
            BANDWIDTH_MIN
        });
        args.end()?;
        Ok(BuiltElement::emitting(LinkUnqueue {
            latency,
            bandwidth,
            in_transit: VecDeque::new(),
            is_back_to_back: false,
            waits_for: WaitsFor::Nothing,
        }))
    },
};

/// The least bytes per second.
const BANDWIDTH_MIN: u64 = 100;

/// The most packets on a link.
const IN_TRANSIT_MAX: usize = 1 << 20;

/// The most packets that enter the link in one run of the task.
const ENTERING_MAX: usize = 1024;

/// Returns a bandwidth in bytes per second.
fn at_least(bits: u64) -> Result<u64, Reason> {
    match bits / 8 {
        bytes if bytes >= BANDWIDTH_MIN => Ok(bytes),
        _ => Err(format!("the bandwidth has to be at least {BANDWIDTH_MIN}Bps")),
    }
}

struct LinkUnqueue {
    latency: Nanos,
    /// In bytes per second.
    bandwidth: u64,
    /// The packets on the link, in order. Each has the time at which it leaves.
    in_transit: VecDeque<GraphPacket>,
    /// The latest packet was followed by the next one without a gap so far.
    is_back_to_back: bool,
    waits_for: WaitsFor,
}

impl LinkUnqueue {
    /// Returns true if the last packet has entered the link, so that the next one can.
    fn has_room(&self, horizon: Timestamp) -> bool {
        self.in_transit.back().is_none_or(|last| last.time() <= horizon)
            && self.in_transit.len() < IN_TRANSIT_MAX
    }

    /// Pulls packets while the link has room. Returns true if more may enter at once.
    fn enter(&mut self, now: Timestamp, cx: &mut ElementContext<'_>) -> bool {
        let horizon = later(now, self.latency.0);
        for _ in 0..ENTERING_MAX {
            if !self.has_room(horizon) {
                return false;
            }
            let Some(mut packet) = cx.pull(0) else {
                self.is_back_to_back = false;
                return false;
            };
            let begin = match self.in_transit.back() {
                Some(last) if self.is_back_to_back => last.time(),
                _ => horizon,
            };
            let missing = packet.annotation(EXTRA_LENGTH).try_into().map_or(0, u32::from_ne_bytes);
            let length = packet.len() as u128 + u128::from(missing);
            let takes = length * u128::from(Nanos::SECOND.0) / u128::from(self.bandwidth);
            packet.set_time(later(begin, u64::try_from(takes).unwrap_or(u64::MAX)));
            self.in_transit.push_back(packet);
            self.is_back_to_back = true;
        }
        true
    }

    fn reset(&mut self, cx: &mut ElementContext<'_>) -> Result<String, Reason> {
        self.in_transit.drain(..).for_each(|packet| cx.services.pool.discard(packet));
        cx.schedule();
        Ok(String::new())
    }
}

fn later(time: Timestamp, nanos: u64) -> Timestamp {
    Timestamp(time.0.saturating_add(nanos))
}

impl Element for LinkUnqueue {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        self.waits_for = cx.wait_for_packets(0);
        cx.add_task(true);
        Ok(())
    }

    fn take_state(&mut self, earlier: &mut dyn std::any::Any, _: &mut ElementContext<'_>) {
        if let Some(earlier) = earlier.downcast_mut::<LinkUnqueue>() {
            self.in_transit = std::mem::take(&mut earlier.in_transit);
            self.is_back_to_back = earlier.is_back_to_back;
        }
    }

    fn run(&mut self, most: usize, cx: &mut ElementContext<'_>) -> TaskRun {
        let now = cx.services.now();
        let mut again = self.enter(now, cx);
        let mut work = 0;
        while self.in_transit.front().is_some_and(|first| first.time() <= now) {
            if work == most {
                again = true;
                break;
            }
            if let Some(packet) = self.in_transit.pop_front() {
                cx.emit(0, packet);
                work += 1;
            }
        }
        let may_enter = cx.is_active(&self.waits_for);
        if let (Some(first), Some(last)) = (self.in_transit.front(), self.in_transit.back()) {
            let room = Timestamp(last.time().0.saturating_sub(self.latency.0));
            let is_full = self.in_transit.len() >= IN_TRANSIT_MAX;
            let next = if may_enter && !is_full { first.time().min(room) } else { first.time() };
            if next <= now {
                again = true;
            } else if !again {
                cx.set_timer(next, 0);
            }
        } else {
            again |= may_enter;
        }
        TaskRun { work, again }
    }

    fn timer_expired(&mut self, _: u32, cx: &mut ElementContext<'_>) {
        cx.schedule();
    }

    handlers! {
        "latency": "the time that a bit needs for the link",
            read |this, _, _| Ok(crate::values::interval(this.latency)),
            write |this, value, cx| {
                this.latency = crate::values::read(value)?;
                this.reset(cx)
            };
        "bandwidth": "the bandwidth in bytes per second",
            read |this, _, _| Ok(this.bandwidth.to_string()),
            write |this, value, cx| {
                this.bandwidth = at_least(crate::values::read::<BitsPerSecond>(value)?.0)?;
                this.reset(cx)
            };
        "size": gauge "the number of packets on the link",
            read |this, _, _| Ok(this.in_transit.len().to_string());
        "reset": "discards all packets on the link", write |this, _, cx| this.reset(cx);
    }
}

impl EmittingElement for LinkUnqueue {}
