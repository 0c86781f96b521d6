//! `IPMirror`: swaps source and destination.

use crate::ipv4::{Ipv4Header, TCP, UDP};
use weir_graph::engine::{
    BuiltElement, DST_IP, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket,
    OrderDependence, RoutingElement, Services,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "IPMirror",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
swaps source and destination of IPv4 packets

IPMirror([DST_ANNO])

IPMirror swaps the addresses of each packet. In a packet of TCP or UDP that is no later fragment, it also swaps the ports, \
and in one of TCP the sequence and the acknowledgment number. No checksum changes by that. A packet without IP header is \
discarded.

Arguments:
  DST_ANNO  false: leaves the annotation DST_IP. Else it becomes the new destination. Default true.

Handlers:
  drops  r  the number of packets without IP header",
    build: |cx| {
        let mut args = cx.arguments();
        let annotates = args.either("DST_ANNO").or(true);
        args.end()?;
        Ok(BuiltElement::routing(IpMirror { annotates, drops: 0 }))
    },
};

struct IpMirror {
    annotates: bool,
    drops: u64,
}

impl Element for IpMirror {
    handlers! {
        "drops": counter "the number of packets without IP header", read |this, _, _| Ok(this.drops.to_string());
    }
}

impl RoutingElement for IpMirror {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        let Some(header) = Ipv4Header::of(packet) else {
            self.drops += 1;
            return Destination::DISCARD;
        };
        let new_destination = header.source();
        let (at, room) = (header.header_bytes, header.transport().len());
        let has_ports = header.is_first() && room >= 8 && matches!(header.protocol(), TCP | UDP);
        let has_numbers = has_ports && room >= 12 && header.protocol() == TCP;
        if self.annotates {
            packet.annotation_mut(DST_IP).copy_from_slice(&new_destination.octets());
        }
        if let Some(bytes) = packet.network_bytes_mut() {
            bytes[12..20].rotate_left(4);
            if has_ports {
                bytes[at..at + 4].rotate_left(2);
            }
            if has_numbers {
                bytes[at + 4..at + 12].rotate_left(4);
            }
        }
        Destination::FIRST
    }
}
