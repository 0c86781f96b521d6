//! `TimedUnqueue` and `Burster`: pull some packets from time to time, and push them.

use weir_graph::arguments::ArgumentErrors;
use weir_graph::engine::{
    BuildContext, BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement,
    OrderDependence, Reason, TaskRun, WaitsFor, most_packets,
};
use weir_units::{Nanos, Timestamp};

/// The class that pulls one packet.
pub static TIMED: ElementClass = ElementClass {
    name: "TimedUnqueue",
    ports: "1/1",
    processing: "l/h",
    flow: "x/x",
    cost: ElementCost::E5,
    effects: Effects::CLOCK,
    order: OrderDependence::Ordered,
    manual: "\
pulls some packets from time to time, and pushes them

TimedUnqueue(INTERVAL [, BURST])

TimedUnqueue pulls at most BURST packets, and pushes them; then it waits for INTERVAL. If there is no packet, it pulls the \
next one as soon as it comes.

Arguments:
  INTERVAL  the time between bursts, in steps of a millisecond
  BURST     the packets of a burst, from 1 to 65536. Default 1.",
    build: |cx| build(cx, 1),
};

/// The class that pulls several packets.
pub static BURSTER: ElementClass = ElementClass {
    name: "Burster",
    manual: "\
pulls packets in bursts from time to time, and pushes them

Burster(INTERVAL [, BURST])

As TimedUnqueue, with another default of BURST.

Arguments:
  INTERVAL  the time between bursts, in steps of a millisecond
  BURST     the packets of a burst, from 1 to 65536. Default 8.",
    build: |cx| build(cx, 8),
    ..TIMED
};

/// The most packets of a burst.
const BURST_MAX: u32 = 1 << 16;

/// The steps of INTERVAL.
const STEP: u64 = 1_000_000;

fn build(cx: &mut BuildContext<'_>, burst: u32) -> Result<BuiltElement, ArgumentErrors> {
    let mut args = cx.arguments();
    let Nanos(interval) = args.either("INTERVAL").required();
    let burst = args.either("BURST").within(1..=BURST_MAX).or(burst);
    args.end()?;
    let interval = Nanos(interval.saturating_add(STEP / 2) / STEP * STEP);
    let (left, due, waits_for) = (burst, None, WaitsFor::Nothing);
    Ok(BuiltElement::emitting(TimedUnqueue { interval, burst, left, due, waits_for }))
}

struct TimedUnqueue {
    interval: Nanos,
    burst: u32,
    /// The packets that the present burst may still have.
    left: u32,
    /// The time of the present burst, if it is one of a rhythm.
    due: Option<Timestamp>,
    waits_for: WaitsFor,
}

impl Element for TimedUnqueue {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        self.waits_for = cx.wait_for_packets(0);
        cx.add_task(true);
        Ok(())
    }

    fn run(&mut self, most: usize, cx: &mut ElementContext<'_>) -> TaskRun {
        // Packets that come during the interval wait for its end.
        if cx.services.schedule.timer(cx.element(), 0).is_some() {
            return TaskRun { work: 0, again: false };
        }
        let most = most_packets(most, self.left as usize).min(self.left as usize);
        let work = cx.pull_each(0, most, |cx, packet| cx.emit(0, packet));
        let is_first = self.left == self.burst;
        self.left = self.left.saturating_sub(u32::try_from(work).unwrap_or(u32::MAX));
        if work == 0 && is_first && !cx.is_active(&self.waits_for) {
            self.due = None;
            return TaskRun { work, again: false };
        }
        if self.left > 0 && work == most {
            return TaskRun { work, again: true };
        }
        self.left = self.burst;
        if self.interval == Nanos(0) {
            return TaskRun { work, again: true };
        }
        let now = cx.services.now();
        let next = Timestamp(self.due.unwrap_or(now).0.saturating_add(self.interval.0));
        self.due = Some(next);
        cx.set_timer(next, 0);
        TaskRun { work, again: false }
    }

    fn timer_expired(&mut self, _: u32, cx: &mut ElementContext<'_>) {
        cx.schedule();
    }

    fn burst(&self) -> usize {
        self.burst as usize
    }
}

impl EmittingElement for TimedUnqueue {}
