//! `HostEtherFilter`: drops Ethernet frames to other hosts.

use super::vlan::ADDRESSES_BYTES;
use weir_graph::arguments::EthernetAddress;
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    PacketType, RoutingElement, Services,
};
use weir_graph::{handlers, reconfigured_fields};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "HostEtherFilter",
    ports: "1/1-2",
    processing: "a/ah",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
drops Ethernet frames to other hosts

HostEtherFilter(ETHER [, DROP_OWN, DROP_OTHER, keyword OFFSET])

HostEtherFilter treats Ethernet frames as a network card with the address ETHER does. It sets the packet type by the \
destination: host, broadcast, multicast or other host. Frames that it filters go to output 1, or are discarded without \
one. So do frames without a complete destination and source.

Arguments:
  ETHER       the address of this host
  DROP_OWN    true: filters frames whose source is ETHER. Default false.
  DROP_OTHER  false: passes frames to other hosts. Default true.
  OFFSET      the offset of the Ethernet header. Default 0.

Handlers:
  ether  rw  the argument
  drops  r   the number of filtered frames",
    build: |cx| {
        let mut args = cx.arguments();
        let address = args.either("ETHER").required();
        let drops_own = args.either("DROP_OWN").or(false);
        let drops_other = args.either("DROP_OTHER").or(true);
        let offset: u32 = args.keyword("OFFSET").or(0);
        args.end()?;
        let offset = offset as usize;
        Ok(BuiltElement::routing(HostEtherFilter { address, drops_own, drops_other, offset, drops: 0 }))
    },
};

struct HostEtherFilter {
    address: EthernetAddress,
    drops_own: bool,
    drops_other: bool,
    offset: usize,
    drops: u64,
}

impl HostEtherFilter {
    /// Returns the packet type of a frame that passes.
    fn packet_type(&self, packet: &GraphPacket) -> Option<PacketType> {
        let header = packet.bytes().get(self.offset..)?.first_chunk::<ADDRESSES_BYTES>()?;
        let (destination, source) = header.split_at(ADDRESSES_BYTES / 2);
        if self.drops_own && source == self.address.0 {
            return None;
        }
        match destination {
            _ if destination == self.address.0 => Some(PacketType::Host),
            [0xff, 0xff, 0xff, 0xff, 0xff, 0xff] => Some(PacketType::Broadcast),
            [first, ..] if first & 1 != 0 => Some(PacketType::Multicast),
            _ => (!self.drops_other).then_some(PacketType::OtherHost),
        }
    }
}

impl Element for HostEtherFilter {
    reconfigured_fields!(address, drops_own, drops_other, offset);

    handlers! {
        "ether": "the address of this host", field address;
        "drops": counter "the number of filtered frames", read |this, _, _| Ok(this.drops.to_string());
    }
}

impl RoutingElement for HostEtherFilter {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        match self.packet_type(packet) {
            Some(packet_type) => {
                packet.set_packet_type(packet_type);
                Destination::FIRST
            }
            None => {
                self.drops += 1;
                Destination::output(1)
            }
        }
    }
}
