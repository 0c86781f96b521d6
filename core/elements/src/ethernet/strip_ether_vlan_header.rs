//! `StripEtherVLANHeader`: removes the Ethernet header, with its VLAN tag.

use super::ETHERNET_BYTES;
use super::vlan::{ADDRESSES_BYTES, ETHERTYPE_VLAN, NativeVlan, TAG_BYTES};
use crate::ipv4::half;
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services, VLAN_TCI,
};
use weir_graph::{handlers, reconfigured_fields};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "StripEtherVLANHeader",
    ports: "1/1-2",
    processing: "a/ah",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
removes the Ethernet header, with its VLAN tag

StripEtherVLANHeader([NATIVE_VLAN])

StripEtherVLANHeader removes 18 bytes from frames with an 802.1Q tag, and 14 from others. The annotation VLAN_TCI \
becomes the tag control information, or NATIVE_VLAN for a frame without a tag. Without a native VLAN, frames without a \
tag go to output 1, or are discarded without one. So do frames that end within their header.

Arguments:
  NATIVE_VLAN  the VLAN ID of frames without a tag, up to 4095; -1 for none. Default 0.

Handlers:
  drops  r  the number of frames for output 1",
    build: |cx| {
        let mut args = cx.arguments();
        let NativeVlan(native) = args.either("NATIVE_VLAN").or(NativeVlan(Some(0)));
        args.end()?;
        Ok(BuiltElement::routing(StripEtherVlanHeader { native, drops: 0 }))
    },
};

struct StripEtherVlanHeader {
    /// The VLAN ID of frames without a tag.
    native: Option<u16>,
    drops: u64,
}

impl Element for StripEtherVlanHeader {
    reconfigured_fields!(native);

    handlers! {
        "drops": counter "the number of frames for output 1", read |this, _, _| Ok(this.drops.to_string());
    }
}

impl RoutingElement for StripEtherVlanHeader {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        let bytes = packet.bytes();
        let (tci, header_bytes) = match half(bytes, ADDRESSES_BYTES) {
            ETHERTYPE_VLAN => (Some(half(bytes, ADDRESSES_BYTES + 2)), ETHERNET_BYTES + TAG_BYTES),
            _ => (self.native, ETHERNET_BYTES),
        };
        let Some(tci) = tci.filter(|_| bytes.len() >= header_bytes) else {
            self.drops += 1;
            return Destination::output(1);
        };
        packet.annotation_mut(VLAN_TCI).copy_from_slice(&tci.to_be_bytes());
        packet.strip(header_bytes);
        Destination::FIRST
    }
}
