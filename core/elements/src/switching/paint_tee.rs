//! `PaintTee` and `PaintSwitch`: choose outputs by the paint of packets.

use weir_graph::arguments::AnnotationField;
use weir_graph::engine::{
    Batch, BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement,
    GraphPacket, OrderDependence, PAINT,
};
use weir_graph::handlers;

/// The class that copies packets of one paint.
pub static TEE: ElementClass = ElementClass {
    name: "PaintTee",
    ports: "1/2",
    processing: "a/ah",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
copies packets of one paint to a second output

PaintTee(COLOR [, ANNO])

PaintTee sends each packet to output 0. If its paint is COLOR, a copy goes to output 1 before.

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
        Ok(BuiltElement::emitting(PaintTee { color, offset }))
    },
};

/// The class that chooses an output.
pub static SWITCH: ElementClass = ElementClass {
    name: "PaintSwitch",
    ports: "1/-",
    processing: "h/h",
    cost: ElementCost::E5,
    manual: "\
sends packets to the output of their paint

PaintSwitch([ANNO])

PaintSwitch sends a packet of paint K to output K, and discards it if there is none. A packet of paint 255 goes to all \
outputs.

Arguments:
  ANNO  the annotation of one byte. Default PAINT.",
    build: |cx| {
        let outputs = cx.ports().targets.len();
        let mut args = cx.arguments();
        let AnnotationField(offset) =
            args.either::<AnnotationField<1>>("ANNO").or(AnnotationField(usize::from(PAINT.offset)));
        args.end()?;
        Ok(BuiltElement::emitting(PaintSwitch { offset, outputs }))
    },
    ..TEE
};

struct PaintTee {
    color: u8,
    /// The place of the annotation.
    offset: usize,
}

impl PaintTee {
    fn copy(&self, packet: &mut GraphPacket, cx: &mut ElementContext<'_>) {
        if packet.annotations()[self.offset] == self.color {
            cx.emit(1, packet.duplicate());
        }
    }
}

impl Element for PaintTee {
    handlers! {
        "color": "the paint", field color;
    }
}

impl EmittingElement for PaintTee {
    fn push(&mut self, _: usize, mut packet: GraphPacket, cx: &mut ElementContext<'_>) {
        self.copy(&mut packet, cx);
        cx.emit(0, packet);
    }

    fn pass_batch(&mut self, _: usize, batch: &mut Batch, _: &mut ElementContext<'_>) -> Option<usize> {
        let is_copied = |packet: &GraphPacket| packet.annotations()[self.offset] == self.color;
        (!batch.packets().iter().any(is_copied)).then_some(0)
    }

    fn pull(&mut self, _: usize, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        let mut packet = cx.pull(0)?;
        self.copy(&mut packet, cx);
        Some(packet)
    }
}

/// The paint of packets that go to all outputs.
const TO_ALL: u8 = 255;

struct PaintSwitch {
    /// The place of the annotation.
    offset: usize,
    outputs: usize,
}

impl Element for PaintSwitch {}

impl EmittingElement for PaintSwitch {
    fn push(&mut self, _: usize, mut packet: GraphPacket, cx: &mut ElementContext<'_>) {
        match packet.annotations()[self.offset] {
            TO_ALL => {
                for output in 1..self.outputs {
                    cx.emit(output - 1, packet.duplicate());
                }
                cx.emit_or_discard(self.outputs.saturating_sub(1), packet);
            }
            paint => cx.emit_or_discard(usize::from(paint), packet),
        }
    }
}
