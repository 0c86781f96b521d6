//! `EtherEncap`: puts an Ethernet header before packets.

use super::ETHERNET_BYTES;
use weir_graph::arguments::EthernetAddress;
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    PACKET_BYTES_MAX, RoutingElement, Services,
};
use weir_graph::{handlers, reconfigured_fields};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "EtherEncap",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
puts an Ethernet header before packets

EtherEncap(ETHERTYPE, SRC, DST)

EtherEncap puts the same Ethernet header before each packet. ARPQuerier finds the destination of each IP packet instead.

Arguments:
  ETHERTYPE  the type of the payload, such as 0x0800 for IPv4
  SRC        the source address
  DST        the destination address

Handlers:
  ethertype  rw  the argument
  src        rw  the argument
  dst        rw  the argument
  drops      r   the number of packets that were too long for a header: more than 1 MiB",
    build: |cx| {
        let mut args = cx.arguments();
        let ethertype = args.either("ETHERTYPE").required();
        let source = args.either("SRC").required();
        let destination = args.either("DST").required();
        args.end()?;
        Ok(BuiltElement::routing(EtherEncap { ethertype, source, destination, drops: 0 }))
    },
};

struct EtherEncap {
    ethertype: u16,
    source: EthernetAddress,
    destination: EthernetAddress,
    drops: u64,
}

impl Element for EtherEncap {
    reconfigured_fields!(ethertype, source, destination);

    handlers! {
        "ethertype": "the type of the payload", field ethertype;
        "src": "the source address", field source;
        "dst": "the destination address", field destination;
        "drops": counter "the number of packets that were too long", read |this, _, _| Ok(this.drops.to_string());
    }
}

/// Puts an Ethernet header before a packet. Returns false, and changes nothing, if the packet is too long.
#[inline]
pub fn encapsulate(
    packet: &mut GraphPacket,
    ethertype: u16,
    source: EthernetAddress,
    destination: EthernetAddress,
) -> bool {
    if packet.len() + ETHERNET_BYTES > PACKET_BYTES_MAX {
        return false;
    }
    if let Some(header) = packet.prepend(ETHERNET_BYTES).first_chunk_mut::<ETHERNET_BYTES>() {
        header[..6].copy_from_slice(&destination.0);
        header[6..12].copy_from_slice(&source.0);
        header[12..].copy_from_slice(&ethertype.to_be_bytes());
    }
    packet.set_link_header(0);
    true
}

impl RoutingElement for EtherEncap {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        if encapsulate(packet, self.ethertype, self.source, self.destination) {
            return Destination::FIRST;
        }
        self.drops += 1;
        Destination::DISCARD
    }
}
