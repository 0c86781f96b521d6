//! `Tee` and `PullTee`: copy packets to all outputs.

use weir_graph::arguments::ArgumentErrors;
use weir_graph::engine::{
    BuildContext, BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement,
    GraphPacket, OrderDependence,
};

/// The class that pushes.
pub static TEE: ElementClass = ElementClass {
    name: "Tee",
    ports: "1/1-",
    processing: "h/h",
    flow: "x/x",
    cost: ElementCost::E5,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
copies packets to all outputs

Tee([N])

Tee sends a copy of each packet to each of its outputs, output 0 first. The bytes are not copied until an element writes \
to them.

Arguments:
  N  the number of outputs. Default: those that are connected.",
    build,
};

/// The class that pulls.
pub static PULL_TEE: ElementClass = ElementClass {
    name: "PullTee",
    processing: "l/lh",
    manual: "\
copies pulled packets to all outputs

PullTee([N])

When a packet is pulled from output 0, PullTee pushes copies of it to all other outputs.

Arguments:
  N  the number of outputs. Default: those that are connected.",
    ..TEE
};

fn build(cx: &mut BuildContext<'_>) -> Result<BuiltElement, ArgumentErrors> {
    let outputs = cx.ports().targets.len();
    let mut args = cx.arguments();
    let wanted: usize = args.either::<u32>("N").optional().map_or(outputs, |wanted| wanted as usize);
    if wanted != outputs {
        args.error("N", format!("{outputs} outputs are connected"));
    }
    args.end()?;
    Ok(BuiltElement::emitting(Tee { outputs }))
}

struct Tee {
    outputs: usize,
}

impl Element for Tee {}

impl EmittingElement for Tee {
    fn push(&mut self, _: usize, mut packet: GraphPacket, cx: &mut ElementContext<'_>) {
        for output in 0..self.outputs - 1 {
            cx.emit(output, packet.duplicate());
        }
        cx.emit(self.outputs - 1, packet);
    }

    fn pull(&mut self, _: usize, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        let mut packet = cx.pull(0)?;
        for output in 1..self.outputs {
            cx.emit(output, packet.duplicate());
        }
        Some(packet)
    }
}
