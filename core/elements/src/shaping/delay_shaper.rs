//! `DelayShaper`: lets packets through that are pulled, after a delay.

use super::delayed_packet::{DelayedPacket, DelayedState};
use weir_graph::engine::{
    BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement, GraphPacket,
    OrderDependence, Reason, SignalId, TaskRun, WaitsFor,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "DelayShaper",
    ports: "1/1",
    processing: "l/l",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::CLOCK,
    order: OrderDependence::Ordered,
    manual: "\
lets pulled packets through, after a delay

DelayShaper(DELAY)

A packet can be pulled when DELAY has passed since its time stamp, which becomes the present time. A packet without a time \
stamp gets the present time when DelayShaper pulls it. It holds one packet at a time, so later packets wait in the queue \
before it.

Arguments:
  DELAY  the time

Handlers:
  delay  rw  the argument, for later packets",
    build: |cx| {
        let mut args = cx.arguments();
        let delay = args.either("DELAY").required();
        args.end()?;
        let ready = cx.services.signals.create(true);
        let delayed = DelayedPacket::new(delay);
        Ok(BuiltElement::emitting(DelayShaper { delayed, ready, waits_for: WaitsFor::Nothing }))
    },
};

struct DelayShaper {
    delayed: DelayedPacket,
    /// Active while a pull may be successful.
    ready: SignalId,
    waits_for: WaitsFor,
}

impl Element for DelayShaper {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        // The task does nothing but to pass the signal of packets upstream on.
        self.waits_for = cx.wait_for_packets(0);
        cx.add_task(false);
        Ok(())
    }

    fn take_state(&mut self, earlier: &mut dyn std::any::Any, _: &mut ElementContext<'_>) {
        if let Some(earlier) = earlier.downcast_mut::<DelayShaper>() {
            self.delayed.take_over(&mut earlier.delayed);
        }
    }

    fn nonempty_signal(&self) -> Option<SignalId> {
        Some(self.ready)
    }

    fn run(&mut self, _: usize, cx: &mut ElementContext<'_>) -> TaskRun {
        cx.services.wake(self.ready);
        TaskRun { work: 0, again: false }
    }

    fn timer_expired(&mut self, _: u32, cx: &mut ElementContext<'_>) {
        cx.services.wake(self.ready);
    }

    handlers! {
        "delay": "the time for which packets are delayed",
            read |this, _, _| Ok(crate::values::interval(this.delayed.delay)),
            write |this, value, _| this.delayed.write_delay(value);
    }
}

impl EmittingElement for DelayShaper {
    fn pull(&mut self, _: usize, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        match self.delayed.next(cx) {
            DelayedState::Ready(mut packet) => {
                packet.set_time(cx.services.coarse_now());
                return Some(packet);
            }
            DelayedState::Until(at) => {
                cx.services.signals.sleep(self.ready);
                cx.set_timer(at, 0);
            }
            DelayedState::Empty if cx.is_active(&self.waits_for) => {}
            DelayedState::Empty => cx.services.signals.sleep(self.ready),
        }
        None
    }
}
