//! `Shaper` and `BandwidthShaper`: let packets through that are pulled, up to a rate.

use super::rate::EvenRate;
use super::rated_bucket::RatedQuantity;
use weir_graph::arguments::ArgumentErrors;
use weir_graph::engine::{
    BuildContext, BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement,
    GraphPacket, OrderDependence, Reason, SignalId, TaskRun, WaitsFor,
};
use weir_graph::{handlers, reconfigured_fields};

/// The class whose rate is in packets.
pub static SHAPER: ElementClass = ElementClass {
    name: "Shaper",
    ports: "1/1-2",
    processing: "l/l",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::CLOCK,
    order: OrderDependence::Ordered,
    manual: "\
lets pulled packets through, up to a rate

Shaper(RATE)

At most RATE packets a second can be pulled from output 0, evenly spaced. If those that pull are late, Shaper makes up \
for it, up to the packets of a second. From output 1, if it is connected, packets can be pulled whenever output 0 has \
none.

Arguments:
  RATE  packets per second

Handlers:
  rate   rw  the argument
  reset  w   forgets the packets that were let through",
    build: |cx| build(cx, RatedQuantity::Packets),
};

/// The class whose rate is in bytes.
pub static BANDWIDTH: ElementClass = ElementClass {
    name: "BandwidthShaper",
    ports: "1/1",
    manual: "\
lets pulled packets through, up to a bandwidth

BandwidthShaper(RATE)

As Shaper, but each packet counts as its length in bytes: a long one makes the next ones wait.

Arguments:
  RATE  the bandwidth, such as 10Mbps; without a unit in bytes per second

Handlers:
  rate   rw  the argument
  reset  w   forgets the packets that were let through",
    build: |cx| build(cx, RatedQuantity::Bytes),
    ..SHAPER
};

fn build(cx: &mut BuildContext<'_>, quantity: RatedQuantity) -> Result<BuiltElement, ArgumentErrors> {
    let outputs = cx.ports().targets.len();
    let mut args = cx.arguments();
    let rate = quantity.read_argument(&mut args);
    args.end()?;
    let due = cx.services.signals.create(true);
    Ok(BuiltElement::emitting(Shaper {
        quantity,
        rate: EvenRate::new(rate),
        due,
        has_signal: outputs == 1,
        waits_for: WaitsFor::Nothing,
    }))
}

struct Shaper {
    quantity: RatedQuantity,
    rate: EvenRate,
    /// Active while a pull may be successful.
    due: SignalId,
    /// With a second output, one that pulls may be successful at any time.
    has_signal: bool,
    waits_for: WaitsFor,
}

impl Shaper {
    fn change(&mut self, rate: u64, cx: &mut ElementContext<'_>) -> String {
        self.rate = EvenRate::new(rate);
        cx.services.wake(self.due);
        String::new()
    }
}

impl Element for Shaper {
    reconfigured_fields!(rate; then |this, cx| cx.services.wake(this.due));

    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        // The task does nothing but to pass the signal of packets upstream on.
        self.waits_for = cx.wait_for_packets(0);
        cx.add_task(false);
        Ok(())
    }

    fn nonempty_signal(&self) -> Option<SignalId> {
        self.has_signal.then_some(self.due)
    }

    fn run(&mut self, _: usize, cx: &mut ElementContext<'_>) -> TaskRun {
        cx.services.wake(self.due);
        TaskRun { work: 0, again: false }
    }

    fn timer_expired(&mut self, _: u32, cx: &mut ElementContext<'_>) {
        cx.services.wake(self.due);
    }

    handlers! {
        "rate": "packets per second, or the bandwidth",
            read |this, _, _| Ok(this.quantity.rate_text(this.rate.rate())),
            write |this, value, cx| Ok(this.change(this.quantity.read_rate(value)?, cx));
        "reset": "forgets the packets that were let through",
            write |this, _, cx| Ok(this.change(this.rate.rate(), cx));
    }
}

impl EmittingElement for Shaper {
    fn pull(&mut self, output: usize, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        let now = cx.services.now();
        let is_due = self.rate.is_due(now);
        if is_due != (output == 0) {
            if output == 0 {
                cx.services.signals.sleep(self.due);
                if let Some(next) = self.rate.next_time() {
                    cx.set_timer(next, 0);
                }
            }
            return None;
        }
        let packet = cx.pull(0);
        if output == 0
            && let Some(packet) = &packet
        {
            self.rate.count(self.quantity.of(packet));
        }
        if packet.is_none() && !cx.is_active(&self.waits_for) {
            cx.services.signals.sleep(self.due);
        }
        packet
    }
}
