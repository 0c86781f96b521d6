//! `Switch`: sends all packets to one output.

use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};
use weir_graph::{handlers, reconfigured_fields};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "Switch",
    ports: "1/-",
    processing: "h/h",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
sends all packets to one output

Switch([OUTPUT])

Switch sends each packet to the output OUTPUT, which a handler can change.

Arguments:
  OUTPUT  the number of the output; -1 discards packets. Default 0.

Handlers:
  switch  rw  the argument",
    build: |cx| {
        let outputs = cx.ports().targets.len();
        let mut args = cx.arguments();
        let output: i32 = args.either("OUTPUT").or(0);
        if usize::try_from(output).is_ok_and(|output| output >= outputs) {
            args.error("OUTPUT", format!("there are {outputs} outputs, from 0 on"));
        }
        args.end()?;
        Ok(BuiltElement::routing(Switch { output, outputs }))
    },
};

struct Switch {
    /// Negative to discard packets.
    output: i32,
    outputs: usize,
}

impl Element for Switch {
    reconfigured_fields!(output);

    handlers! {
        "switch": "the number of the output",
            read |this, _, _| Ok(this.output.to_string()),
            write |this, value, _| {
                let output: i32 = crate::values::read(value)?;
                if usize::try_from(output).is_ok_and(|output| output >= this.outputs) {
                    return Err(format!("there are {} outputs, from 0 on", this.outputs));
                }
                this.output = output;
                Ok(String::new())
            };
    }
}

impl RoutingElement for Switch {
    fn route(&mut self, _: usize, _: &mut GraphPacket, _: &mut Services) -> Destination {
        usize::try_from(self.output).map_or(Destination::DISCARD, Destination::output)
    }
}
