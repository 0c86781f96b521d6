//! `EtherVLANEncap`: puts an Ethernet header with a VLAN tag before packets.

use super::ETHERNET_BYTES;
use super::encap::encapsulate;
use super::vlan::{ETHERTYPE_VLAN, NewTag, TAG_BYTES, vlan_handlers};
use weir_graph::arguments::EthernetAddress;
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    PACKET_BYTES_MAX, RoutingElement, Services,
};
use weir_graph::reconfigured_fields;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "EtherVLANEncap",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
puts an Ethernet header with a VLAN tag before packets

EtherVLANEncap(ETHERTYPE, SRC, DST, [VLAN_TCI, VLAN_PCP, keywords VLAN_ID, NATIVE_VLAN])

EtherVLANEncap puts an Ethernet header with an 802.1Q tag before each packet. VLANEncap adds a tag to a frame.

Arguments:
  ETHERTYPE    the type of the payload, such as 0x0800 for IPv4
  SRC          the source address
  DST          the destination address
  VLAN_TCI     the tag control information, with the VLAN ID and the priority; ANNO for the annotation VLAN_TCI of each \
packet
  VLAN_PCP     the priority, from 0 to 7, in addition to VLAN_TCI or VLAN_ID. Default 0.
  VLAN_ID      the VLAN ID, from 0 to 4095, instead of VLAN_TCI. Default 0.
  NATIVE_VLAN  the VLAN ID whose packets get a header without a tag; -1 for none. Default 0.

Handlers:
  src          rw  the argument
  dst          rw  the argument
  ethertype    rw  the argument
  vlan_tci     rw  the tag control information, or ANNO
  vlan_id      rw  the VLAN ID
  vlan_pcp     rw  the priority
  native_vlan  rw  the argument
  drops        r   the number of packets that were too long for a header: more than 1 MiB",
    build: |cx| {
        let mut args = cx.arguments();
        let ethertype = args.either("ETHERTYPE").required();
        let source = args.either("SRC").required();
        let destination = args.either("DST").required();
        let tag = NewTag::read(&mut args);
        args.end()?;
        Ok(BuiltElement::routing(EtherVlanEncap { ethertype, source, destination, tag, drops: 0 }))
    },
};

struct EtherVlanEncap {
    ethertype: u16,
    source: EthernetAddress,
    destination: EthernetAddress,
    tag: NewTag,
    drops: u64,
}

impl Element for EtherVlanEncap {
    reconfigured_fields!(ethertype, source, destination, tag);

    vlan_handlers! {
        "src": "the source address", field source;
        "dst": "the destination address", field destination;
        "ethertype": "the type of the payload", field ethertype;
        "drops": counter "the number of packets that were too long", read |this, _, _| Ok(this.drops.to_string());
    }
}

impl RoutingElement for EtherVlanEncap {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        if packet.len() + ETHERNET_BYTES + TAG_BYTES > PACKET_BYTES_MAX {
            self.drops += 1;
            return Destination::DISCARD;
        }
        let mut ethertype = self.ethertype;
        if let Some(tci) = self.tag.of(packet) {
            // What follows the EtherType of a tag: its control information, and the type of the payload.
            let rest = packet.prepend(TAG_BYTES);
            rest[..2].copy_from_slice(&tci.to_be_bytes());
            rest[2..4].copy_from_slice(&ethertype.to_be_bytes());
            ethertype = ETHERTYPE_VLAN;
        }
        encapsulate(packet, ethertype, self.source, self.destination);
        Destination::FIRST
    }
}
