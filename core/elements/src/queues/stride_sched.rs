//! `StrideSched`: pulls from its inputs in proportion to their tickets.

use super::stride::{StrideOrder, stride_handlers};
use weir_graph::engine::{
    BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement, GraphPacket,
    OrderDependence, Reason, WaitsFor,
};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "StrideSched",
    ports: "1-/1",
    processing: "l/l",
    flow: "x/x",
    cost: ElementCost::E5,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "\
pulls from its inputs in proportion to their tickets

StrideSched(TICKETS, ...)

StrideSched pulls each packet from the input whose turn it is. An input with twice the TICKETS has twice the turns. If it has \
no packet, its turn is over, and the next input is asked.

Arguments:
  TICKETS  a number for each input, from 0 to 32768; greater ones count as 32768. An input with 0 is never asked.

Handlers:
  ticketsN  rw  the tickets of input N",
    build: |cx| {
        let inputs = cx.ports().inputs_pull.len();
        let order = StrideOrder::read(cx, inputs, "input")?;
        Ok(BuiltElement::emitting(StrideScheduler { order, inputs: Vec::new() }))
    },
};

struct StrideScheduler {
    order: StrideOrder,
    /// The signals upstream of each input.
    inputs: Vec<WaitsFor>,
}

impl Element for StrideScheduler {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        let inputs = cx.ports().inputs_pull.len();
        self.inputs = (0..inputs).map(|input| cx.wait_for_packets(input)).collect();
        Ok(())
    }

    stride_handlers!();
}

impl EmittingElement for StrideScheduler {
    fn pull(&mut self, _: usize, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        let inputs = &self.inputs;
        self.order.take_turns(|input| {
            // An input without packets costs no pull.
            cx.is_active(&inputs[input]).then(|| cx.pull(input)).flatten()
        })
    }
}
