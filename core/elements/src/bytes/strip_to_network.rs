//! `StripToNetworkHeader`: removes what is before the network header.

use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "StripToNetworkHeader",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
removes everything before the network header

StripToNetworkHeader()

StripToNetworkHeader removes the bytes before the network header of each packet. If they, and bytes of the header, were \
removed before, it brings the bytes of the header back. A packet without a known network header is discarded.

Handlers:
  drops  r  the number of discarded packets",
    build: |cx| {
        cx.arguments().end()?;
        Ok(BuiltElement::routing(StripToNetworkHeader { drops: 0 }))
    },
};

struct StripToNetworkHeader {
    drops: u64,
}

impl Element for StripToNetworkHeader {
    handlers! {
        "drops": counter "the number of discarded packets", read |this, _, _| Ok(this.drops.to_string());
    }
}

impl RoutingElement for StripToNetworkHeader {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        let length = packet.len();
        match packet.network_bytes().map(<[u8]>::len) {
            Some(behind) if behind <= length => packet.strip(length - behind),
            Some(behind) => packet.unstrip(behind - length),
            None => {
                self.drops += 1;
                return Destination::DISCARD;
            }
        }
        Destination::FIRST
    }
}
