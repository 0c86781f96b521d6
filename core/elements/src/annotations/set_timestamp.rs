//! `SetTimestamp`: sets the time stamps of packets.

use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};
use weir_units::Timestamp;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "SetTimestamp",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::CLOCK,
    order: OrderDependence::Ordered,
    manual: "\
sets the time stamps of packets

SetTimestamp([TIMESTAMP, keyword FIRST])

SetTimestamp sets the time stamp of each packet to TIMESTAMP, or to the present time.

Arguments:
  TIMESTAMP  seconds since 1970, with decimals. Default: the present time.
  FIRST      true: sets the annotation FIRST_TIMESTAMP instead. Default false.",
    build: |cx| {
        let mut args = cx.arguments();
        let time = args.either("TIMESTAMP").optional();
        let is_first = args.flag("FIRST");
        if args.flag("DELTA") {
            args.error("DELTA", "use SetTimestampDelta(TYPE FIRST)");
        }
        args.end()?;
        Ok(BuiltElement::routing(SetTimestamp { time, is_first }))
    },
};

struct SetTimestamp {
    /// `None` for the present time.
    time: Option<Timestamp>,
    /// It sets the annotation.
    is_first: bool,
}

impl Element for SetTimestamp {
    fn effects(&self) -> Option<Effects> {
        self.time.is_some().then_some(Effects::NONE)
    }
}

impl RoutingElement for SetTimestamp {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, services: &mut Services) -> Destination {
        let time = self.time.unwrap_or_else(|| services.now());
        match self.is_first {
            true => super::set_first_timestamp(packet, time),
            false => packet.set_time(time),
        }
        Destination::FIRST
    }
}
