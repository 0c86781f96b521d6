//! `StoreEtherAddress`: writes an Ethernet address into packets.

use weir_graph::arguments::{
    AnnotationField, ArgumentContext, ArgumentFault, ArgumentValue, EthernetAddress,
};
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "StoreEtherAddress",
    ports: "1/1-2",
    processing: "a/ah",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
writes an Ethernet address into packets

StoreEtherAddress(ADDR, OFFSET)
StoreEtherAddress(OFFSET, ANNO anno)

StoreEtherAddress writes ADDR, or else an annotation, into each packet. A packet without the bytes goes to output 1, or \
is discarded without one.

Arguments:
  ADDR    the address
  OFFSET  the offset from the packet's start; or src or dst, for an address of the Ethernet header: 6 or 0
  ANNO    an annotation of six bytes, instead of ADDR

Handlers:
  addr  rw  the address",
    build: |cx| {
        let mut args = cx.arguments();
        let annotation: Option<AnnotationField<6>> = args.keyword("ANNO").optional();
        let address: Option<EthernetAddress> =
            if args.unread() > 1 { args.either("ADDR").optional() } else { None };
        let StoreOffset(offset) = args.either("OFFSET").required();
        if address.is_some() == annotation.is_some() {
            args.error("ADDR", "expected one of ADDR and ANNO");
        }
        args.end()?;
        let address = address.unwrap_or(EthernetAddress([0; 6]));
        let annotation = annotation.map(|field| field.0);
        Ok(BuiltElement::routing(StoreEtherAddress { address, annotation, offset }))
    },
};

/// The place of an address: a number, or the name of a field of the Ethernet header.
struct StoreOffset(usize);

impl ArgumentValue for StoreOffset {
    fn parse_argument(text: &str, context: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        match text.to_ascii_lowercase().as_str() {
            "src" => Ok(Self(6)),
            "dst" => Ok(Self(0)),
            _ => u32::parse_argument(text, context)
                .map(|offset| Self(offset as usize))
                .map_err(|_| ArgumentFault::Type("an offset, src or dst")),
        }
    }

    fn placeholder() -> Self {
        Self(0)
    }
}

struct StoreEtherAddress {
    address: EthernetAddress,
    /// The place of the annotation that is written instead.
    annotation: Option<usize>,
    offset: usize,
}

impl Element for StoreEtherAddress {
    handlers! {
        "addr": "the address", field address;
    }
}

impl RoutingElement for StoreEtherAddress {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        if packet.len() < 6 || self.offset > packet.len() - 6 {
            return Destination::output(1);
        }
        let annotation = self.annotation.and_then(|at| packet.annotations()[at..].first_chunk().copied());
        let address = annotation.unwrap_or(self.address.0);
        packet.bytes_mut()[self.offset..][..6].copy_from_slice(&address);
        Destination::FIRST
    }
}
