//! `Block`: separates packets whose rate is high.

use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, FWD_RATE, GraphPacket,
    OrderDependence, RoutingElement, Services,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "Block",
    ports: "1/2",
    processing: "h/h",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
separates packets whose rate is high

Block(THRESH)

Block sends packets whose annotation FWD_RATE, as IPRateMonitor sets it, is at most THRESH to output 0, and others to output \
1.

Arguments:
  THRESH  the greatest rate of output 0; with 0 all packets go there

Handlers:
  thresh  rw  the argument",
    build: |cx| {
        let mut args = cx.arguments();
        let threshold = args.either("THRESH").required();
        args.end()?;
        Ok(BuiltElement::routing(Block { threshold }))
    },
};

struct Block {
    /// 0 for no limit.
    threshold: i32,
}

impl Element for Block {
    handlers! {
        "thresh": "the greatest rate of output 0", field threshold;
    }
}

impl RoutingElement for Block {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        let rate = packet.annotation(FWD_RATE).try_into().map_or(0, i32::from_ne_bytes);
        Destination::output(usize::from(self.threshold != 0 && rate > self.threshold))
    }
}
