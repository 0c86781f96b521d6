//! `RoundRobinSched` and `PrioSched`: choose the input from which the next packet is pulled.

use weir_graph::engine::{
    BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement, GraphPacket,
    OrderDependence, Reason, WaitsFor,
};

/// The class that takes turns.
pub static ROUND_ROBIN: ElementClass = ElementClass {
    name: "RoundRobinSched",
    ports: "1-/1",
    processing: "l/l",
    flow: "x/x",
    cost: ElementCost::E5,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "\
pulls from its inputs in turn

RoundRobinSched()

RoundRobinSched pulls each packet from the next input that has one, behind the input of the packet before.",
    build: |cx| {
        cx.arguments().end()?;
        Ok(BuiltElement::emitting(PullScheduler::new(true)))
    },
};

/// The class that prefers earlier inputs.
pub static PRIO: ElementClass = ElementClass {
    name: "PrioSched",
    manual: "\
pulls from the first input that has a packet

PrioSched()

PrioSched pulls each packet from the first input that has one. So a packet of an input waits for all packets of earlier \
inputs.",
    build: |cx| {
        cx.arguments().end()?;
        Ok(BuiltElement::emitting(PullScheduler::new(false)))
    },
    ..ROUND_ROBIN
};

struct PullScheduler {
    takes_turns: bool,
    /// The signals upstream of each input.
    inputs: Vec<WaitsFor>,
    /// The input that comes first.
    next: usize,
}

impl PullScheduler {
    fn new(takes_turns: bool) -> Self {
        Self { takes_turns, inputs: Vec::new(), next: 0 }
    }
}

impl Element for PullScheduler {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        let inputs = cx.ports().inputs_pull.len();
        self.inputs = (0..inputs).map(|input| cx.wait_for_packets(input)).collect();
        Ok(())
    }
}

impl EmittingElement for PullScheduler {
    fn pull(&mut self, _: usize, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        let first = self.next;
        for input in (first..self.inputs.len()).chain(0..first) {
            // An input without packets costs no pull.
            if cx.is_active(&self.inputs[input])
                && let Some(packet) = cx.pull(input)
            {
                if self.takes_turns {
                    self.next = if input + 1 == self.inputs.len() { 0 } else { input + 1 };
                }
                return Some(packet);
            }
        }
        None
    }
}
