//! `UnstripIPHeader`: brings the IP header back.

use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "UnstripIPHeader",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
brings the IP header back

UnstripIPHeader()

UnstripIPHeader adds the bytes from the network header on, as an earlier element found it, that a StripIPHeader removed. \
A packet that begins with its network header or before it, or has none, stays unchanged.",
    build: |cx| {
        cx.arguments().end()?;
        Ok(BuiltElement::routing(UnstripIpHeader))
    },
};

struct UnstripIpHeader;

impl Element for UnstripIpHeader {}

impl RoutingElement for UnstripIpHeader {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        if let Some(stripped) = packet.network_length().and_then(|behind| behind.checked_sub(packet.len())) {
            packet.unstrip(stripped);
        }
        Destination::FIRST
    }
}
