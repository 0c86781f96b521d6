//! `StripIPHeader`: removes the IP header.

use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "StripIPHeader",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
removes the IP header

StripIPHeader()

StripIPHeader removes all bytes before the transport header, as an earlier element found it. The packet's headers stay \
known: for a packet in a packet, a CheckIPHeader or MarkIPHeader has to follow. A packet without IP header stays \
unchanged.",
    build: |cx| {
        cx.arguments().end()?;
        Ok(BuiltElement::routing(StripIpHeader))
    },
};

struct StripIpHeader;

impl Element for StripIpHeader {}

impl RoutingElement for StripIpHeader {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        if let Some(offset) = packet.transport_offset() {
            packet.strip(offset);
        }
        Destination::FIRST
    }
}
