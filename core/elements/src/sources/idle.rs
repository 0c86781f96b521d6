//! `Idle`: neither sends nor accepts packets.

use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "Idle",
    ports: "-/-",
    processing: "a/a",
    flow: "x/y",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
never sends a packet

Idle()

Idle discards packets that are pushed to it, and has none for those that pull. Any number of inputs and outputs. Use it \
to connect ports that a configuration does not need.",
    build: |cx| {
        cx.arguments().end()?;
        Ok(BuiltElement::routing(Idle))
    },
};

struct Idle;

impl Element for Idle {}

impl RoutingElement for Idle {
    fn route(&mut self, _: usize, _: &mut GraphPacket, _: &mut Services) -> Destination {
        Destination::DISCARD
    }
}
