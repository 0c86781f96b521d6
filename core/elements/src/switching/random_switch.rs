//! `RandomSwitch`: sends packets to outputs at random.

use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "RandomSwitch",
    ports: "1/1-",
    processing: "h/h",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::RANDOM,
    order: OrderDependence::Ordered,
    manual: "\
sends packets to outputs at random

RandomSwitch()

RandomSwitch sends each packet to one of its outputs, each with the same probability.",
    build: |cx| {
        let outputs = cx.ports().targets.len();
        cx.arguments().end()?;
        Ok(BuiltElement::routing(RandomSwitch { outputs: outputs.max(1) as u64 }))
    },
};

struct RandomSwitch {
    outputs: u64,
}

impl Element for RandomSwitch {}

impl RoutingElement for RandomSwitch {
    fn route(&mut self, _: usize, _: &mut GraphPacket, services: &mut Services) -> Destination {
        Destination::output(usize::try_from(services.random() % self.outputs).unwrap_or(0))
    }
}
