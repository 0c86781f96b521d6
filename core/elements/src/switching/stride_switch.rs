//! `StrideSwitch`: sends packets to its outputs in proportion to their tickets.

use crate::queues::{StrideOrder, stride_handlers};
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "StrideSwitch",
    ports: "1/1-",
    processing: "h/h",
    flow: "x/x",
    cost: ElementCost::E5,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "\
sends packets to its outputs in proportion to their tickets

StrideSwitch(TICKETS, ...)

StrideSwitch sends each packet to the output whose turn it is. An output with twice the TICKETS gets twice the packets. \
Without tickets at any output, packets are discarded.

Arguments:
  TICKETS  a number for each output, from 0 to 32768; greater ones count as 32768

Handlers:
  ticketsN  rw  the tickets of output N",
    build: |cx| {
        let outputs = cx.ports().targets.len();
        Ok(BuiltElement::routing(StrideSwitch { order: StrideOrder::read(cx, outputs, "output")? }))
    },
};

struct StrideSwitch {
    order: StrideOrder,
}

impl Element for StrideSwitch {
    stride_handlers!();
}

impl RoutingElement for StrideSwitch {
    fn route(&mut self, _: usize, _: &mut GraphPacket, _: &mut Services) -> Destination {
        self.order.next().map_or(Destination::DISCARD, Destination::output)
    }
}
