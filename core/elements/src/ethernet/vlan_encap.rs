//! `VLANEncap`: adds a VLAN tag to Ethernet frames.

use super::vlan::{ADDRESSES_BYTES, ETHERTYPE_VLAN, NewTag, TAG_BYTES, vlan_handlers};
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    PACKET_BYTES_MAX, RoutingElement, Services,
};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "VLANEncap",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
adds a VLAN tag to Ethernet frames

VLANEncap([VLAN_TCI, VLAN_PCP, keywords VLAN_ID, NATIVE_VLAN, ETHERTYPE])

VLANEncap puts an 802.1Q tag behind the addresses of each Ethernet frame. EtherVLANEncap adds a whole header.

Arguments:
  VLAN_TCI     the tag control information, with the VLAN ID and the priority; ANNO for the annotation VLAN_TCI of each \
packet
  VLAN_PCP     the priority, from 0 to 7, in addition to VLAN_TCI or VLAN_ID. Default 0.
  VLAN_ID      the VLAN ID, from 0 to 4095, instead of VLAN_TCI. Default 0.
  NATIVE_VLAN  the VLAN ID whose frames get no tag; -1 for none. Default 0.
  ETHERTYPE    the EtherType of the tag: 0x8100, 0x88a8 for service tags (802.1ad), 0x9100. Default 0x8100.

Handlers:
  vlan_tci     rw  the tag control information, or ANNO
  vlan_id      rw  the VLAN ID
  vlan_pcp     rw  the priority
  native_vlan  rw  the argument
  ethertype    rw  the argument
  drops        r   the number of frames that were too short for addresses, or too long for a tag",
    build: |cx| {
        let mut args = cx.arguments();
        let tag = NewTag::read(&mut args);
        let ethertype = args.keyword("ETHERTYPE").or(ETHERTYPE_VLAN);
        args.end()?;
        Ok(BuiltElement::routing(VlanEncap { tag, ethertype, drops: 0 }))
    },
};

struct VlanEncap {
    tag: NewTag,
    ethertype: u16,
    drops: u64,
}

impl Element for VlanEncap {
    vlan_handlers! {
        "ethertype": "the EtherType of the tag", field ethertype;
        "drops": counter "the number of frames that were too short or too long", read |this, _, _| Ok(this.drops.to_string());
    }
}

impl RoutingElement for VlanEncap {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        if packet.len() < ADDRESSES_BYTES || packet.len() + TAG_BYTES > PACKET_BYTES_MAX {
            self.drops += 1;
            return Destination::DISCARD;
        }
        if let Some(tci) = self.tag.of(packet) {
            let bytes = packet.prepend(TAG_BYTES);
            bytes.copy_within(TAG_BYTES..TAG_BYTES + ADDRESSES_BYTES, 0);
            let tag = &mut bytes[ADDRESSES_BYTES..][..TAG_BYTES];
            tag[..2].copy_from_slice(&self.ethertype.to_be_bytes());
            tag[2..].copy_from_slice(&tci.to_be_bytes());
        }
        packet.set_link_header(0);
        Destination::FIRST
    }
}
