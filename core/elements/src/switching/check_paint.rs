//! `CheckPaint`: separates packets of other paints.

use weir_graph::arguments::AnnotationField;
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    PAINT, RoutingElement, Services,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "CheckPaint",
    ports: "1/1-2",
    processing: "a/ah",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
separates packets of other paints

CheckPaint(COLOR [, ANNO])

CheckPaint sends packets of paint COLOR to output 0. Others go to output 1, or are discarded if there is none.

Arguments:
  COLOR  the paint, from 0 to 255
  ANNO   the annotation of one byte. Default PAINT.

Handlers:
  color  rw  the argument",
    build: |cx| {
        let mut args = cx.arguments();
        let color = args.either("COLOR").required();
        let AnnotationField(offset) =
            args.either::<AnnotationField<1>>("ANNO").or(AnnotationField(usize::from(PAINT.offset)));
        args.end()?;
        Ok(BuiltElement::routing(CheckPaint { color, offset }))
    },
};

struct CheckPaint {
    color: u8,
    /// The place of the annotation.
    offset: usize,
}

impl Element for CheckPaint {
    handlers! {
        "color": "the paint", field color;
    }
}

impl RoutingElement for CheckPaint {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        Destination::output(usize::from(packet.annotations()[self.offset] != self.color))
    }
}
