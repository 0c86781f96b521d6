//! `DelayUnqueue`: pulls packets, and pushes them after a delay.

use super::delayed_packet::{DelayedPacket, DelayedState};
use weir_graph::engine::{
    BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement,
    OrderDependence, Reason, TaskRun, WaitsFor,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "DelayUnqueue",
    ports: "1/1",
    processing: "l/h",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::CLOCK,
    order: OrderDependence::Ordered,
    manual: "\
pulls packets, and pushes them after a delay

DelayUnqueue(DELAY)

DelayUnqueue pushes a packet when DELAY has passed since its time stamp, which becomes the later time. A packet without a \
time stamp gets the present time first. It holds one packet at a time, so later packets wait in the queue before it.

Arguments:
  DELAY  the time

Handlers:
  delay  rw  the argument, for later packets",
    build: |cx| {
        let mut args = cx.arguments();
        let delay = args.either("DELAY").required();
        args.end()?;
        let delayed = DelayedPacket::new(delay);
        Ok(BuiltElement::emitting(DelayUnqueue { delayed, waits_for: WaitsFor::Nothing }))
    },
};

struct DelayUnqueue {
    delayed: DelayedPacket,
    waits_for: WaitsFor,
}

impl Element for DelayUnqueue {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        self.waits_for = cx.wait_for_packets(0);
        cx.add_task(true);
        Ok(())
    }

    fn take_state(&mut self, earlier: &mut dyn std::any::Any, _: &mut ElementContext<'_>) {
        if let Some(earlier) = earlier.downcast_mut::<DelayUnqueue>() {
            self.delayed.take_over(&mut earlier.delayed);
        }
    }

    fn run(&mut self, most: usize, cx: &mut ElementContext<'_>) -> TaskRun {
        let mut work = 0;
        while work < most {
            match self.delayed.next(cx) {
                DelayedState::Ready(packet) => {
                    cx.emit(0, packet);
                    work += 1;
                }
                DelayedState::Until(at) => {
                    cx.set_timer(at, 0);
                    return TaskRun { work, again: false };
                }
                DelayedState::Empty => return TaskRun { work, again: cx.is_active(&self.waits_for) },
            }
        }
        TaskRun { work, again: true }
    }

    fn timer_expired(&mut self, _: u32, cx: &mut ElementContext<'_>) {
        cx.schedule();
    }

    handlers! {
        "delay": "the time for which packets are delayed",
            read |this, _, _| Ok(crate::values::interval(this.delayed.delay)),
            write |this, value, _| this.delayed.write_delay(value);
    }
}

impl EmittingElement for DelayUnqueue {}
