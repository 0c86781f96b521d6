//! `VLANDecap`: removes the VLAN tag of Ethernet frames.

use super::vlan::{ADDRESSES_BYTES, ETHERTYPE_VLAN, TAG_BYTES};
use crate::ipv4::half;
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services, VLAN_TCI,
};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "VLANDecap",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
removes the VLAN tag of Ethernet frames

VLANDecap([ANNO, keyword ETHERTYPE])

VLANDecap removes the first tag of each Ethernet frame that has one, and leaves the rest of the header.

Arguments:
  ANNO       false: leaves the annotation VLAN_TCI. Else it becomes the tag control information, or 0 for a frame without \
a tag. Default true.
  ETHERTYPE  the EtherType of the tag: 0x8100, 0x88a8 for service tags (802.1ad), 0x9100. Default 0x8100.",
    build: |cx| {
        let mut args = cx.arguments();
        let annotates = args.either("ANNO").or(true);
        let ethertype = args.keyword("ETHERTYPE").or(ETHERTYPE_VLAN);
        args.end()?;
        Ok(BuiltElement::routing(VlanDecap { annotates, ethertype }))
    },
};

struct VlanDecap {
    annotates: bool,
    ethertype: u16,
}

impl Element for VlanDecap {}

impl RoutingElement for VlanDecap {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        let bytes = packet.bytes();
        let is_tagged =
            bytes.len() >= ADDRESSES_BYTES + TAG_BYTES && half(bytes, ADDRESSES_BYTES) == self.ethertype;
        let mut tci = 0;
        if is_tagged {
            tci = half(bytes, ADDRESSES_BYTES + 2);
            packet.bytes_mut().copy_within(..ADDRESSES_BYTES, TAG_BYTES);
            packet.strip(TAG_BYTES);
        }
        packet.set_link_header(0);
        if self.annotates {
            packet.annotation_mut(VLAN_TCI).copy_from_slice(&tci.to_be_bytes());
        }
        Destination::FIRST
    }
}
