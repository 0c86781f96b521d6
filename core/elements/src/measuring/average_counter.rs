//! `AverageCounter`: counts packets and bytes, and their average rate.

use crate::control::general;
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementContext, ElementCost, GraphPacket,
    OrderDependence, RoutingElement, Services,
};
use weir_graph::handlers;
use weir_units::{Nanos, Timestamp};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "AverageCounter",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
counts packets and bytes, and their average rate

AverageCounter([IGNORE])

AverageCounter passes packets on, and counts them. Rates are averages over the time from the first to the latest packet, \
in steps of a millisecond.

Arguments:
  IGNORE  seconds after the first packet whose packets are not counted. Default 0.

Handlers:
  count      r  the number of packets
  byte_count r  the number of bytes
  rate       r  packets per second
  byte_rate  r  bytes per second
  reset      w  begins anew",
    build: |cx| {
        let mut args = cx.arguments();
        let ignore: u32 = args.either("IGNORE").or(0);
        args.end()?;
        Ok(BuiltElement::routing(AverageCounter {
            ignore: u64::from(ignore) * Nanos::SECOND.0,
            packets: 0,
            bytes: 0,
            first: None,
            last: Timestamp(0),
        }))
    },
};

/// The steps in which time is measured, in nanoseconds.
const STEP: u64 = 1_000_000;

struct AverageCounter {
    ignore: u64,
    packets: u64,
    bytes: u64,
    first: Option<Timestamp>,
    last: Timestamp,
}

impl AverageCounter {
    fn rate(&self, count: u64) -> String {
        let first = self.first.unwrap_or(self.last);
        let time = (self.last.0 / STEP).saturating_sub(first.0 / STEP).saturating_sub(self.ignore / STEP);
        general(count as f64 * 1000.0 / time.max(1) as f64)
    }
}

impl Element for AverageCounter {
    fn take_state(&mut self, earlier: &mut dyn std::any::Any, _: &mut ElementContext<'_>) {
        if let Some(AverageCounter { packets, bytes, first, last, .. }) = earlier.downcast_ref() {
            (self.packets, self.bytes, self.first, self.last) = (*packets, *bytes, *first, *last);
        }
    }

    handlers! {
        "count": counter "the number of packets", read |this, _, _| Ok(this.packets.to_string());
        "byte_count": counter "the number of bytes", read |this, _, _| Ok(this.bytes.to_string());
        "rate": "packets per second", read |this, _, _| Ok(this.rate(this.packets));
        "byte_rate": "bytes per second", read |this, _, _| Ok(this.rate(this.bytes));
        "reset": "begins anew",
            write |this, _, _| {
                (this.packets, this.bytes, this.first) = (0, 0, None);
                Ok(String::new())
            };
    }
}

impl RoutingElement for AverageCounter {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, services: &mut Services) -> Destination {
        let now = services.coarse_now();
        let first = *self.first.get_or_insert(now);
        if now.0.saturating_sub(first.0) >= self.ignore {
            self.packets += 1;
            self.bytes += packet.len() as u64;
        }
        self.last = now;
        Destination::FIRST
    }
}
