//! `Hub`: copies packets to all outputs but that of their input.

use weir_graph::engine::{
    BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement, GraphPacket,
    OrderDependence,
};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "Hub",
    ports: "-/=",
    processing: "h/h",
    flow: "x/x",
    cost: ElementCost::E5,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
copies packets to all outputs but that of their input

Hub()

Hub sends a copy of a packet of input N to each output but output N, as a hub of Ethernet does. There are as many outputs as \
inputs.",
    build: |cx| {
        let outputs = cx.ports().targets.len();
        cx.arguments().end()?;
        Ok(BuiltElement::emitting(Hub { outputs }))
    },
};

struct Hub {
    outputs: usize,
}

impl Element for Hub {}

impl EmittingElement for Hub {
    fn push(&mut self, input: usize, mut packet: GraphPacket, cx: &mut ElementContext<'_>) {
        let last = (0..self.outputs).rev().find(|output| *output != input);
        let Some(last) = last else { return cx.services.pool.discard(packet) };
        for output in (0..last).filter(|output| *output != input) {
            cx.emit(output, packet.duplicate());
        }
        cx.emit(last, packet);
    }
}
