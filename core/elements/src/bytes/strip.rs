//! `Strip` and `Unstrip`: remove bytes from the start of packets, and bring them back.

use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    PACKET_BYTES_MAX, RoutingElement, Services,
};
use weir_graph::handlers;

/// The class that removes bytes.
pub static STRIP: ElementClass = ElementClass {
    name: "Strip",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
removes bytes from the start of packets

Strip(LENGTH)

Strip removes the first LENGTH bytes of each packet, such as a link header. A shorter packet gets empty.

Arguments:
  LENGTH  the number of bytes",
    build: |cx| {
        let mut args = cx.arguments();
        let length: u32 = args.either("LENGTH").required();
        args.end()?;
        Ok(BuiltElement::routing(Strip { length: length as usize }))
    },
};

/// The class that adds bytes.
pub static UNSTRIP: ElementClass = ElementClass {
    name: "Unstrip",
    manual: "\
brings bytes back that were removed from the start of packets

Unstrip(LENGTH)

Unstrip adds LENGTH bytes before each packet. Bytes that a Strip removed have their values; others have any.

Arguments:
  LENGTH  the number of bytes, at most 65535

Handlers:
  drops  r  the number of packets that would have got too long: more than 1 MiB",
    build: |cx| {
        let mut args = cx.arguments();
        let length: u32 = args.either("LENGTH").within(0..=65_535).required();
        args.end()?;
        Ok(BuiltElement::routing(Unstrip { length: length as usize, drops: 0 }))
    },
    ..STRIP
};

struct Strip {
    length: usize,
}

impl Element for Strip {}

impl RoutingElement for Strip {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        packet.strip(self.length);
        Destination::FIRST
    }
}

struct Unstrip {
    length: usize,
    drops: u64,
}

impl Element for Unstrip {
    handlers! {
        "drops": counter "the number of packets that would have got too long", read |this, _, _| Ok(this.drops.to_string());
    }
}

impl RoutingElement for Unstrip {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        if packet.len() + self.length > PACKET_BYTES_MAX {
            self.drops += 1;
            return Destination::DISCARD;
        }
        packet.unstrip(self.length);
        Destination::FIRST
    }
}
