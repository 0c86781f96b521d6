//! `EnsureEther`: puts an Ethernet header before IP packets that have none.

use super::ETHERNET_BYTES;
use super::encap::encapsulate;
use super::vlan::ADDRESSES_BYTES;
use crate::ipv4::half;
use weir_graph::arguments::EthernetAddress;
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "EnsureEther",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
puts an Ethernet header before IP packets that have none

EnsureEther([ETHERTYPE, SRC, DST])

EnsureEther passes packets without a network header, and IP packets behind an Ethernet header, unchanged. An Ethernet \
header that was stripped comes back. Other packets lose what is before their network header, and get an Ethernet header \
of the arguments.

Arguments:
  ETHERTYPE  the type of the payload. Default 0x0800, IPv4.
  SRC        the source address. Default 1:1:1:1:1:1.
  DST        the destination address. Default 2:2:2:2:2:2.

Handlers:
  drops  r  the number of packets that were too long for a header: more than 1 MiB",
    build: |cx| {
        let mut args = cx.arguments();
        let ethertype = args.either("ETHERTYPE").or(0x0800);
        let source = args.either("SRC").or(EthernetAddress([1; 6]));
        let destination = args.either("DST").or(EthernetAddress([2; 6]));
        args.end()?;
        Ok(BuiltElement::routing(EnsureEther { ethertype, source, destination, drops: 0 }))
    },
};

struct EnsureEther {
    ethertype: u16,
    source: EthernetAddress,
    destination: EthernetAddress,
    drops: u64,
}

impl Element for EnsureEther {
    handlers! {
        "drops": counter "the number of packets that were too long for a header", read |this, _, _| Ok(this.drops.to_string());
    }
}

/// Returns true for the Ethernet header of an IP packet.
fn is_of_ip(header: &[u8]) -> bool {
    matches!(half(header, ADDRESSES_BYTES), 0x0800 | 0x86dd)
}

impl RoutingElement for EnsureEther {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        // A network header before the start of the bytes is none.
        let offset = packet.network_length().and_then(|behind| packet.len().checked_sub(behind));
        let Some(offset) = offset else { return Destination::FIRST };
        match offset {
            ETHERNET_BYTES if is_of_ip(packet.bytes()) => return Destination::FIRST,
            0 if packet.stripped(ETHERNET_BYTES).is_some_and(is_of_ip) => {
                packet.unstrip(ETHERNET_BYTES);
                return Destination::FIRST;
            }
            _ => packet.strip(offset),
        }
        if encapsulate(packet, self.ethertype, self.source, self.destination) {
            return Destination::FIRST;
        }
        self.drops += 1;
        Destination::DISCARD
    }
}
