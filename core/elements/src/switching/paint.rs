//! `Paint`: sets the paint of packets.

use weir_graph::arguments::AnnotationField;
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    PAINT, RoutingElement, Services,
};
use weir_graph::{handlers, reconfigured_fields};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "Paint",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
sets the paint of packets

Paint(COLOR [, ANNO])

Paint writes a number into an annotation of each packet, by which later elements recognise it.

Arguments:
  COLOR  the number, from 0 to 255
  ANNO   the annotation of one byte. Default PAINT.

Handlers:
  color  rw  the argument",
    build: |cx| {
        let mut args = cx.arguments();
        let color = args.either("COLOR").required();
        let AnnotationField(offset) =
            args.either::<AnnotationField<1>>("ANNO").or(AnnotationField(usize::from(PAINT.offset)));
        args.end()?;
        Ok(BuiltElement::routing(Paint { color, offset }))
    },
};

struct Paint {
    color: u8,
    /// The place of the annotation.
    offset: usize,
}

impl Element for Paint {
    reconfigured_fields!(color, offset);

    handlers! {
        "color": "the number", field color;
    }
}

impl RoutingElement for Paint {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        packet.annotations_mut()[self.offset] = self.color;
        Destination::FIRST
    }
}
