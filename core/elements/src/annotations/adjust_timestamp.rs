//! `AdjustTimestamp`: adds a time to time stamps.

use crate::values::TimeDifference;
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};
use weir_graph::handlers;
use weir_units::Timestamp;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "AdjustTimestamp",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
adds a time to time stamps

AdjustTimestamp([TIME, keywords FIRST, ALL])

AdjustTimestamp adds TIME to the time stamp of each packet. A time stamp that would be negative is 0.

Arguments:
  TIME   the time; negative to make time stamps earlier. Default 0.
  FIRST  true: changes the annotation FIRST_TIMESTAMP instead. Default false.
  ALL    true: changes time stamps of 0, too. Default false.

Handlers:
  time  rw  the argument",
    build: |cx| {
        let mut args = cx.arguments();
        let time = args.either("TIME").or(TimeDifference(0));
        let is_first = args.flag("FIRST");
        let changes_zero = args.flag("ALL");
        args.end()?;
        Ok(BuiltElement::routing(AdjustTimestamp { time, is_first, changes_zero }))
    },
};

struct AdjustTimestamp {
    time: TimeDifference,
    /// It changes the annotation.
    is_first: bool,
    changes_zero: bool,
}

impl AdjustTimestamp {
    fn adjusted(&self, time: Timestamp) -> Timestamp {
        if time == Timestamp(0) && !self.changes_zero { time } else { self.time.after(time) }
    }
}

impl Element for AdjustTimestamp {
    handlers! {
        "time": "the time that is added", field time;
    }
}

impl RoutingElement for AdjustTimestamp {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        if self.is_first {
            let time = self.adjusted(super::first_timestamp(packet));
            super::set_first_timestamp(packet, time);
        } else {
            packet.set_time(self.adjusted(packet.time()));
        }
        Destination::FIRST
    }
}
