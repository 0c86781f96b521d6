//! `GetIPAddress`: copies an address from the packet to an annotation.

use crate::ipv4::Ipv4Header;
use weir_graph::arguments::{AnnotationField, WordArgument};
use weir_graph::engine::{
    BuiltElement, DST_IP, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket,
    OrderDependence, RoutingElement, Services,
};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "GetIPAddress",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
copies an IPv4 address from packets to an annotation

GetIPAddress(OFFSET [, ANNO])
GetIPAddress([ANNO,] IP src|dst)

GetIPAddress copies the four bytes at OFFSET, or an address of the IP header, to an annotation, by which later elements \
send the packet on. A packet without these bytes, or without IP header, keeps its annotation.

Arguments:
  OFFSET  the offset of the address: 16 for the destination of a packet that begins with its IP header
  ANNO    the annotation of four bytes. Default DST_IP.
  IP      src or dst, instead of OFFSET: the source or the destination in the IP header",
    build: |cx| {
        let mut args = cx.arguments();
        let offset: Option<u32> = args.either("OFFSET").optional();
        let AnnotationField(annotation) =
            args.either::<AnnotationField<4>>("ANNO").or(AnnotationField(usize::from(DST_IP.offset)));
        let field: Option<WordArgument> = args.keyword("IP").optional();
        let place = match (offset, field.as_ref().map(|it| &*it.0)) {
            (Some(offset), None) => Place::Offset(offset as usize),
            (None, Some("src")) => Place::Header(12),
            (None, Some("dst")) => Place::Header(16),
            (None, Some(_)) => {
                args.error("IP", "expected src or dst");
                Place::Header(12)
            }
            _ => {
                args.error("OFFSET", "expected one of OFFSET and IP");
                Place::Header(12)
            }
        };
        args.end()?;
        Ok(BuiltElement::routing(GetIpAddress { place, annotation }))
    },
};

/// The place of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// At an offset from the packet's start.
    Offset(usize),
    /// At an offset from the start of the IP header.
    Header(usize),
}

struct GetIpAddress {
    place: Place,
    /// The place of the annotation.
    annotation: usize,
}

impl Element for GetIpAddress {}

impl RoutingElement for GetIpAddress {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        let found = match self.place {
            Place::Offset(offset) => {
                packet.bytes().get(offset..).and_then(|it| it.first_chunk::<4>()).copied()
            }
            Place::Header(offset) => {
                Ipv4Header::of(packet).and_then(|it| it.header()[offset..].first_chunk::<4>()).copied()
            }
        };
        if let Some(address) = found {
            packet.annotations_mut()[self.annotation..][..4].copy_from_slice(&address);
        }
        Destination::FIRST
    }
}
