//! `DecIP6HLIM`: decrements the hop limit.

use crate::ipv6::Ipv6Header;
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "DecIP6HLIM",
    ports: "1/1-2",
    processing: "a/ah",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
decrements the hop limit of IPv6 packets

DecIP6HLIM()

DecIP6HLIM decrements the hop limit. A packet whose hop limit is 0 or 1 goes to output 1, or is discarded without one. A \
packet without IPv6 header is discarded.

Handlers:
  drops  r  the number of packets that expired or had no IPv6 header",
    build: |cx| {
        cx.arguments().end()?;
        Ok(BuiltElement::routing(DecIp6Hlim { drops: 0 }))
    },
};

/// The offset of the hop limit in the header.
const HOP_LIMIT_AT: usize = 7;

struct DecIp6Hlim {
    drops: u64,
}

impl Element for DecIp6Hlim {
    handlers! {
        "drops": counter "the number of packets that expired or had no IPv6 header",
            read |this, _, _| Ok(this.drops.to_string());
    }
}

impl RoutingElement for DecIp6Hlim {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        let Some(header) = Ipv6Header::of(packet) else {
            self.drops += 1;
            return Destination::DISCARD;
        };
        let hop_limit = header.hop_limit();
        if hop_limit <= 1 {
            self.drops += 1;
            return Destination::output(1);
        }
        if let Some(place) = packet.network_bytes_mut().and_then(|bytes| bytes.get_mut(HOP_LIMIT_AT)) {
            *place = hop_limit - 1;
        }
        Destination::FIRST
    }
}
