//! `FixIPSrc`: sets the source of packets that ask for it.

use crate::ipv4::{Ipv4Header, set_header_checksum};
use core::net::Ipv4Addr;
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, FIX_IP_SRC, GraphPacket,
    OrderDependence, RoutingElement, Services,
};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "FixIPSrc",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E3,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
sets the source address of packets that ask for it

FixIPSrc(IPADDR)

FixIPSrc sets the source address of each packet whose annotation FIX_IP_SRC is not 0, computes the checksum of its \
header, and sets the annotation to 0. ICMPError asks for it: an error has to come from the address of the interface by \
which it leaves. A packet without IP header stays unchanged.

Arguments:
  IPADDR  the address",
    build: |cx| {
        let mut args = cx.arguments();
        let address = args.either("IPADDR").required();
        args.end()?;
        Ok(BuiltElement::routing(FixIpSrc { address }))
    },
};

struct FixIpSrc {
    address: Ipv4Addr,
}

impl Element for FixIpSrc {}

impl RoutingElement for FixIpSrc {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        fix_source(packet, self.address);
        Destination::FIRST
    }
}

/// Sets the source of a packet that asks for it.
#[inline]
pub fn fix_source(packet: &mut GraphPacket, address: Ipv4Addr) {
    if packet.annotation(FIX_IP_SRC)[0] != 0 {
        set_source(packet, address);
    }
}

#[inline(never)]
fn set_source(packet: &mut GraphPacket, address: Ipv4Addr) {
    if Ipv4Header::of(packet).is_none() {
        return;
    }
    packet.annotation_mut(FIX_IP_SRC)[0] = 0;
    if let Some(bytes) = packet.network_bytes_mut() {
        bytes[12..16].copy_from_slice(&address.octets());
        set_header_checksum(bytes);
    }
}
