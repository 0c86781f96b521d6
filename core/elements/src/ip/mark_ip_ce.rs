//! `MarkIPCE`: marks packets as having experienced congestion.

use crate::ipv4::{Ipv4Header, half, set_header_half};
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "MarkIPCE",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
marks IPv4 packets as having experienced congestion

MarkIPCE([FORCE])

MarkIPCE sets the ECN bits to Congestion Experienced (RFC 3168), and updates the checksum of the header by the change. \
Packets whose ECN bits are 0, of a transport that is not capable of ECN, are discarded, and so are packets without IP \
header.

Arguments:
  FORCE  true: marks packets whose ECN bits are 0, too. Default false.

Handlers:
  drops  r  the number of discarded packets",
    build: |cx| {
        let mut args = cx.arguments();
        let forces = args.either("FORCE").or(false);
        args.end()?;
        Ok(BuiltElement::routing(MarkIpCe { forces, drops: 0 }))
    },
};

/// The ECN bits in the first two bytes of a header, where all of them are set.
const CONGESTION: u16 = 3;

struct MarkIpCe {
    forces: bool,
    drops: u64,
}

impl Element for MarkIpCe {
    handlers! {
        "drops": counter "the number of discarded packets", read |this, _, _| Ok(this.drops.to_string());
    }
}

impl RoutingElement for MarkIpCe {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        let start = Ipv4Header::of(packet).map(|header| half(header.bytes, 0));
        let Some(start) = start.filter(|start| self.forces || start & CONGESTION != 0) else {
            self.drops += 1;
            return Destination::DISCARD;
        };
        if start & CONGESTION != CONGESTION
            && let Some(bytes) = packet.network_bytes_mut()
        {
            set_header_half(bytes, 0, start | CONGESTION);
        }
        Destination::FIRST
    }
}
