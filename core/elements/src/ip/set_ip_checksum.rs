//! `SetIPChecksum`: computes the checksum of the header.

use crate::ipv4::{Ipv4Header, set_header_checksum};
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "SetIPChecksum",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E3,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
computes the checksum of the IPv4 header

SetIPChecksum()

SetIPChecksum writes the right checksum into the IPv4 header of each packet. Without a network header, the packet begins \
with the IP header. A packet whose header is not complete is discarded.

Handlers:
  drops  r  the number of discarded packets",
    build: |cx| {
        cx.arguments().end()?;
        Ok(BuiltElement::routing(SetIpChecksum { drops: 0 }))
    },
};

struct SetIpChecksum {
    drops: u64,
}

impl Element for SetIpChecksum {
    handlers! {
        "drops": counter "the number of discarded packets", read |this, _, _| Ok(this.drops.to_string());
    }
}

impl RoutingElement for SetIpChecksum {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        let is_marked = packet.network_bytes().is_some();
        if Ipv4Header::read(packet.network_bytes().unwrap_or(packet.bytes())).is_none() {
            self.drops += 1;
            return Destination::DISCARD;
        }
        if !is_marked {
            set_header_checksum(packet.bytes_mut());
        } else if let Some(bytes) = packet.network_bytes_mut() {
            set_header_checksum(bytes);
        }
        Destination::FIRST
    }
}
