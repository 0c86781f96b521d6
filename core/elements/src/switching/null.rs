//! `Null`, `PushNull`, `PullNull`: pass packets on unchanged.

use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};

/// The class that pushes or pulls.
pub static NULL: ElementClass = ElementClass {
    name: "Null",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
passes packets on

Null()

Null passes each packet on, unchanged.",
    build: |cx| {
        cx.arguments().end()?;
        Ok(BuiltElement::routing(Null))
    },
};

/// The class that pushes.
pub static PUSH_NULL: ElementClass = ElementClass {
    name: "PushNull",
    processing: "h/h",
    manual: "\
passes packets on by pushes

PushNull()

PushNull passes each packet on, unchanged. Its ports push.",
    ..NULL
};

/// The class that pulls.
pub static PULL_NULL: ElementClass = ElementClass {
    name: "PullNull",
    processing: "l/l",
    manual: "\
passes packets on by pulls

PullNull()

PullNull passes each packet on, unchanged. Its ports pull.",
    ..NULL
};

struct Null;

impl Element for Null {}

impl RoutingElement for Null {
    fn route(&mut self, _: usize, _: &mut GraphPacket, _: &mut Services) -> Destination {
        Destination::FIRST
    }
}
