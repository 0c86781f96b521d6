//! `EtherMirror`: swaps the addresses of Ethernet frames.

use super::vlan::ADDRESSES_BYTES;
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "EtherMirror",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
swaps the addresses of Ethernet frames

EtherMirror()

EtherMirror swaps the source and the destination address of each Ethernet frame. A frame without both is discarded.

Handlers:
  drops  r  the number of frames that were too short",
    build: |cx| {
        cx.arguments().end()?;
        Ok(BuiltElement::routing(EtherMirror { drops: 0 }))
    },
};

struct EtherMirror {
    drops: u64,
}

impl Element for EtherMirror {
    handlers! {
        "drops": counter "the number of frames that were too short", read |this, _, _| Ok(this.drops.to_string());
    }
}

impl RoutingElement for EtherMirror {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        if packet.len() < ADDRESSES_BYTES {
            self.drops += 1;
            return Destination::DISCARD;
        }
        packet.bytes_mut()[..ADDRESSES_BYTES].rotate_left(ADDRESSES_BYTES / 2);
        Destination::FIRST
    }
}
