//! `MarkIPHeader`: sets the network header.

use crate::ipv4::header_length;
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "MarkIPHeader",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
sets the network header

MarkIPHeader([OFFSET])

MarkIPHeader notes that an IP header begins at OFFSET, and that the transport header begins behind it. It checks \
nothing. A packet that ends before OFFSET gets no network header.

Arguments:
  OFFSET  the offset of the header. Default 0.",
    build: |cx| {
        let mut args = cx.arguments();
        let offset: u32 = args.either("OFFSET").or(0);
        args.end()?;
        Ok(BuiltElement::routing(MarkIpHeader { offset: offset as usize }))
    },
};

struct MarkIpHeader {
    offset: usize,
}

impl Element for MarkIpHeader {}

impl RoutingElement for MarkIpHeader {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        match packet.bytes().get(self.offset) {
            Some(first) => packet.set_network_header(self.offset, header_length(*first)),
            None => packet.clear_network_header(),
        }
        Destination::FIRST
    }
}
