//! `SetVLANAnno`: sets the VLAN annotation of packets.

use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    Reason, RoutingElement, Services, VLAN_TCI,
};
use weir_graph::{handlers, reconfigured_fields};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "SetVLANAnno",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
sets the VLAN annotation of packets

SetVLANAnno([VLAN_TCI, VLAN_PCP, keyword VLAN_ID])

SetVLANAnno sets the annotation VLAN_TCI of each packet, in network byte order. EtherVLANEncap makes a tag of it.

Arguments:
  VLAN_TCI  the whole annotation, from 0 to 65535
  VLAN_PCP  the priority, from 0 to 7. Default 0.
  VLAN_ID   instead of VLAN_TCI: the number of the VLAN, from 0 to 4095. Default 0.

Handlers:
  vlan_tci  rw  the whole annotation
  vlan_id   rw  the number of the VLAN in it
  vlan_pcp  rw  the priority in it",
    build: |cx| {
        let mut args = cx.arguments();
        let tci: Option<u16> = args.either("VLAN_TCI").optional();
        let priority: u16 = args.either("VLAN_PCP").within(0..=PRIORITY_MAX).or(0);
        let id: u16 = args.keyword("VLAN_ID").within(0..=ID_MAX).or(0);
        args.end()?;
        let tci = tci.unwrap_or(id) | priority << PRIORITY_SHIFT;
        Ok(BuiltElement::routing(SetVlanAnnotation { tci }))
    },
};

const ID_MAX: u16 = 0xfff;
const PRIORITY_MAX: u16 = 7;
const PRIORITY_SHIFT: u32 = 13;

struct SetVlanAnnotation {
    tci: u16,
}

impl SetVlanAnnotation {
    /// Sets the bits of a mask to the value of a handler.
    fn write_part(&mut self, value: &str, shift: u32, most: u16) -> Result<String, Reason> {
        let part: u16 = crate::values::read(value)?;
        if part > most {
            return Err(format!("out of range, bound {most}"));
        }
        self.tci = self.tci & !(most << shift) | part << shift;
        Ok(String::new())
    }
}

impl Element for SetVlanAnnotation {
    reconfigured_fields!(tci);

    handlers! {
        "vlan_tci": "the whole annotation",
            read |this, _, _| Ok(this.tci.to_string()),
            write |this, value, _| this.write_part(value, 0, u16::MAX);
        "vlan_id": "the number of the VLAN",
            read |this, _, _| Ok((this.tci & ID_MAX).to_string()),
            write |this, value, _| this.write_part(value, 0, ID_MAX);
        "vlan_pcp": "the priority",
            read |this, _, _| Ok((this.tci >> PRIORITY_SHIFT).to_string()),
            write |this, value, _| this.write_part(value, PRIORITY_SHIFT, PRIORITY_MAX);
    }
}

impl RoutingElement for SetVlanAnnotation {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        packet.annotation_mut(VLAN_TCI).copy_from_slice(&self.tci.to_be_bytes());
        Destination::FIRST
    }
}
