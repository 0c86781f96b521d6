//! `Bypass`: sends packets a second way while it is active.

use weir_graph::engine::{
    Batch, BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement,
    GraphPacket, OrderDependence,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "Bypass",
    ports: "1-2/1-2",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
sends packets a second way while it is active

Bypass([ACTIVE, keyword INLINE])

Bypass passes packets from input 0 to output 0. While it is active, pushed packets of input 0 go to output 1, and packets \
that are pulled from output 0 come from input 1. The other way may come back: pushed packets of input 1 go to output 0, and \
packets that are pulled from output 1 come from input 0. So `b :: Bypass; b[1] -> Print -> [1]b` shows packets while it is \
active, pushed or pulled.

Arguments:
  ACTIVE  true: packets go the other way. Default false.
  INLINE  accepted, and changes nothing

Handlers:
  active  rw  the argument",
    build: |cx| {
        let ports = cx.ports();
        let (has_input, has_output) = (ports.inputs_pull.len() > 1, ports.targets.len() > 1);
        let mut args = cx.arguments();
        let is_active = args.either("ACTIVE").or(false);
        let _: Option<bool> = args.keyword("INLINE").optional();
        args.end()?;
        Ok(BuiltElement::emitting(Bypass { is_active, has_input, has_output }))
    },
};

struct Bypass {
    is_active: bool,
    /// It has an input 1.
    has_input: bool,
    /// It has an output 1.
    has_output: bool,
}

impl Bypass {
    fn output(&self, input: usize) -> usize {
        usize::from(self.is_active && input == 0 && self.has_output)
    }
}

impl Element for Bypass {
    handlers! {
        "active": "true while packets go the other way", field is_active;
    }
}

impl EmittingElement for Bypass {
    fn push(&mut self, input: usize, packet: GraphPacket, cx: &mut ElementContext<'_>) {
        cx.emit(self.output(input), packet);
    }

    fn pass_batch(&mut self, input: usize, _: &mut Batch, _: &mut ElementContext<'_>) -> Option<usize> {
        Some(self.output(input))
    }

    fn pulls_through(&self, output: usize) -> Option<usize> {
        Some(usize::from(self.is_active && output == 0 && self.has_input))
    }
}
