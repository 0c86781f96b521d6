//! `RoundRobinSwitch`: sends packets to its outputs in turn.

use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "RoundRobinSwitch",
    ports: "1/1-",
    processing: "h/h",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "\
sends packets to its outputs in turn

RoundRobinSwitch()

RoundRobinSwitch sends the first packet to output 0, the next one to output 1, and so on; after the last output comes \
output 0.",
    build: |cx| {
        let outputs = cx.ports().targets.len();
        cx.arguments().end()?;
        Ok(BuiltElement::routing(RoundRobinSwitch { next: 0, outputs }))
    },
};

struct RoundRobinSwitch {
    next: usize,
    outputs: usize,
}

impl Element for RoundRobinSwitch {}

impl RoutingElement for RoundRobinSwitch {
    fn route(&mut self, _: usize, _: &mut GraphPacket, _: &mut Services) -> Destination {
        let output = self.next;
        self.next = if output + 1 >= self.outputs { 0 } else { output + 1 };
        Destination::output(output)
    }
}
