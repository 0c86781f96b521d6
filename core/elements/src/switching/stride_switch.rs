//! `StrideSwitch`: sends packets to its outputs in proportion to their tickets.

use crate::queues::StrideOrder;
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementContext, ElementCost, GraphPacket,
    OrderDependence, Reason, RoutingElement, Services,
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
    fn can_reconfigure(&self) -> bool {
        true
    }

    fn reconfigure(&mut self, other: &mut dyn std::any::Any, _: &mut ElementContext<'_>) -> bool {
        let Some(other) = other.downcast_ref::<Self>() else { return false };
        self.order.set_all(&other.order);
        true
    }

    fn port_handlers(&self) -> &[String] {
        self.order.handlers()
    }

    fn read_handler(
        &mut self,
        name: &str,
        _: &str,
        _: &mut ElementContext<'_>,
    ) -> Option<Result<String, Reason>> {
        self.order.read_handler(name)
    }

    fn write_handler(
        &mut self,
        name: &str,
        value: &str,
        _: &mut ElementContext<'_>,
    ) -> Option<Result<String, Reason>> {
        self.order.write_handler(name, value)
    }
}

impl RoutingElement for StrideSwitch {
    fn route(&mut self, _: usize, _: &mut GraphPacket, _: &mut Services) -> Destination {
        self.order.next().map_or(Destination::DISCARD, Destination::output)
    }
}
