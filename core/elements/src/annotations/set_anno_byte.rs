//! `SetAnnoByte`: sets an annotation of one byte.

use weir_graph::arguments::AnnotationField;
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};
use weir_graph::{handlers, reconfigured_fields};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "SetAnnoByte",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
sets an annotation of one byte

SetAnnoByte(ANNO, VALUE)

SetAnnoByte writes VALUE into an annotation of each packet. Paint does the same.

Arguments:
  ANNO   the annotation: its name, or its offset from 0 to 47
  VALUE  the number, from 0 to 255

Handlers:
  anno   r   the offset of the annotation
  value  rw  the argument",
    build: |cx| {
        let mut args = cx.arguments();
        let AnnotationField(offset) = args.either::<AnnotationField<1>>("ANNO").required();
        let value = args.either("VALUE").required();
        args.end()?;
        Ok(BuiltElement::routing(SetAnnotationByte { offset, value }))
    },
};

struct SetAnnotationByte {
    offset: usize,
    value: u8,
}

impl Element for SetAnnotationByte {
    reconfigured_fields!(offset, value);

    handlers! {
        "anno": "the offset of the annotation", read |this, _, _| Ok(this.offset.to_string());
        "value": "the number", field value;
    }
}

impl RoutingElement for SetAnnotationByte {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        packet.annotations_mut()[self.offset] = self.value;
        Destination::FIRST
    }
}
