//! `SetIPAddress`: sets an address annotation.

use core::net::Ipv4Addr;
use weir_graph::arguments::AnnotationField;
use weir_graph::engine::{
    BuiltElement, DST_IP, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket,
    OrderDependence, RoutingElement, Services,
};
use weir_graph::{handlers, reconfigured_fields};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "SetIPAddress",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
sets an annotation to an IPv4 address

SetIPAddress(IPADDR [, ANNO])

SetIPAddress writes an address to an annotation of each packet, such as the next hop to which later elements send it.

Arguments:
  IPADDR  the address
  ANNO    the annotation of four bytes. Default DST_IP.

Handlers:
  addr  rw  the address",
    build: |cx| {
        let mut args = cx.arguments();
        let address = args.either("IPADDR").required();
        let AnnotationField(annotation) =
            args.either::<AnnotationField<4>>("ANNO").or(AnnotationField(usize::from(DST_IP.offset)));
        args.end()?;
        Ok(BuiltElement::routing(SetIpAddress { address, annotation }))
    },
};

struct SetIpAddress {
    address: Ipv4Addr,
    /// The place of the annotation.
    annotation: usize,
}

impl Element for SetIpAddress {
    reconfigured_fields!(address, annotation);

    handlers! {
        "addr": "the address", field address;
    }
}

impl RoutingElement for SetIpAddress {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        packet.annotations_mut()[self.annotation..][..4].copy_from_slice(&self.address.octets());
        Destination::FIRST
    }
}
