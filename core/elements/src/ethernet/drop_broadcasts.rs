//! `DropBroadcasts`: discards packets that came as link-level broadcasts or multicasts.

use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    PacketType, RoutingElement, Services,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "DropBroadcasts",
    ports: "1/1-2",
    processing: "a/ah",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
discards link-level broadcasts and multicasts

DropBroadcasts()

DropBroadcasts discards packets that came to all hosts of a link, or to a group, because a router must not forward them. \
It looks at the packet type, which elements that receive packets set. With a second output such packets go there.

Handlers:
  drops  r  the number of such packets",
    build: |cx| {
        cx.arguments().end()?;
        Ok(BuiltElement::routing(DropBroadcasts { drops: 0 }))
    },
};

struct DropBroadcasts {
    drops: u64,
}

impl Element for DropBroadcasts {
    handlers! {
        "drops": counter "the number of broadcasts and multicasts", read |this, _, _| Ok(this.drops.to_string());
    }
}

impl RoutingElement for DropBroadcasts {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        match packet.packet_type() {
            PacketType::Broadcast | PacketType::Multicast => {
                self.drops += 1;
                // Without a second output, this discards.
                Destination::output(1)
            }
            PacketType::Host | PacketType::OtherHost | PacketType::Outgoing => Destination::FIRST,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_graph::engine::{NoFiles, SimulatedClock};

    #[test]
    fn only_packets_to_several_hosts_go_to_the_second_output() {
        let mut services = Services::new(Box::<NoFiles>::default(), Box::<SimulatedClock>::default(), 0);
        let mut element = DropBroadcasts { drops: 0 };
        let mut destination = |packet_type| {
            let mut packet = services.pool.of_bytes(&[1]);
            packet.set_packet_type(packet_type);
            element.route(0, &mut packet, &mut services).port()
        };
        assert_eq!(destination(PacketType::Host), Some(0));
        assert_eq!(destination(PacketType::OtherHost), Some(0));
        assert_eq!(destination(PacketType::Broadcast), Some(1));
        assert_eq!(destination(PacketType::Multicast), Some(1));
        assert_eq!(element.drops, 2);
    }
}
