//! `Align`: aligns the bytes of packets.

use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "Align",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E2,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
aligns the bytes of packets

Align(MODULUS, OFFSET)

Align moves the bytes of a packet, if needed, such that the first one is OFFSET bytes behind a multiple of MODULUS in \
memory. No element of weir needs it.

Arguments:
  MODULUS  2, 4 or 8
  OFFSET   from 0 to MODULUS - 1",
    build: |cx| {
        let mut args = cx.arguments();
        let modulus: u32 = args.either("MODULUS").required();
        let offset: u32 = args.either("OFFSET").required();
        if ![2, 4, 8].contains(&modulus) {
            args.error("MODULUS", "expected 2, 4 or 8");
        } else if offset >= modulus {
            args.error("OFFSET", "expected a number below MODULUS");
        }
        args.end()?;
        Ok(BuiltElement::routing(Align { modulus: modulus as usize, offset: offset as usize }))
    },
};

struct Align {
    modulus: usize,
    offset: usize,
}

impl Element for Align {}

impl RoutingElement for Align {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        if packet.position() % self.modulus != self.offset {
            packet.align(self.modulus, self.offset);
        }
        Destination::FIRST
    }
}
