//! `GetIP6Address`: copies an address from the packet to the annotation of the destination.

use weir_graph::engine::{
    BuiltElement, DST_IP6, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket,
    OrderDependence, RoutingElement, Services,
};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "GetIP6Address",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
copies an IPv6 address from packets to an annotation

GetIP6Address(OFFSET)

GetIP6Address copies the 16 bytes at OFFSET to the annotation DST_IP6, by which later elements send the packet on. A packet \
without these bytes keeps its annotation.

Arguments:
  OFFSET  the offset of the address: 24 for the destination of a packet that begins with its IPv6 header",
    build: |cx| {
        let mut args = cx.arguments();
        let offset: u32 = args.either("OFFSET").required();
        args.end()?;
        Ok(BuiltElement::routing(GetIp6Address { offset: offset as usize }))
    },
};

struct GetIp6Address {
    offset: usize,
}

impl Element for GetIp6Address {}

impl RoutingElement for GetIp6Address {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        let found = packet.bytes().get(self.offset..).and_then(|it| it.first_chunk::<16>()).copied();
        if let Some(address) = found {
            packet.annotation_mut(DST_IP6).copy_from_slice(&address);
        }
        Destination::FIRST
    }
}
