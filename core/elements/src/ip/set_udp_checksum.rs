//! `SetUDPChecksum`: computes the checksum of UDP.

use crate::ipv4::{Ipv4Header, half, set_udp_checksum};
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "SetUDPChecksum",
    ports: "1/1-2",
    processing: "a/ah",
    flow: "x/x",
    cost: ElementCost::E2,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
computes the checksum of UDP

SetUDPChecksum()

SetUDPChecksum writes the right checksum into UDP packets, whose IP header is known. The protocol is not checked. A \
fragment, and a packet without IP header or without a complete datagram, goes unchanged to output 1, or is discarded \
without one.

Handlers:
  drops  r  the number of packets for output 1",
    build: |cx| {
        cx.arguments().end()?;
        Ok(BuiltElement::routing(SetUdpChecksum { drops: 0 }))
    },
};

struct SetUdpChecksum {
    drops: u64,
}

impl Element for SetUdpChecksum {
    handlers! {
        "drops": counter "the number of packets for output 1", read |this, _, _| Ok(this.drops.to_string());
    }
}

impl RoutingElement for SetUdpChecksum {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        let length = Ipv4Header::of(packet).filter(|header| !header.is_fragment()).and_then(|header| {
            let length = usize::from(half(header.transport(), 4));
            (length >= 8 && length <= header.transport().len()).then_some(length)
        });
        let Some(length) = length else {
            self.drops += 1;
            return Destination::output(1);
        };
        if let Some(bytes) = packet.network_bytes_mut() {
            set_udp_checksum(bytes, length);
        }
        Destination::FIRST
    }
}
