//! `InputSwitch`: passes the packets of one input on.

use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};
use weir_graph::{handlers, reconfigured_fields};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "InputSwitch",
    ports: "-/1",
    processing: "h/h",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
passes the packets of one input on

InputSwitch([INPUT])

InputSwitch passes the packets of the input INPUT on, which a handler can change, and discards those of other inputs.

Arguments:
  INPUT  the number of the input; -1 for none. Default 0. Its keyword is OUTPUT in Click, which is accepted, too.

Handlers:
  switch  rw  the argument; a number that is too large is -1",
    build: |cx| {
        let inputs = cx.ports().inputs_pull.len();
        let mut args = cx.arguments();
        let input: Option<i32> = args.either("INPUT").optional();
        let input = args.keyword("OUTPUT").optional().or(input).unwrap_or(0);
        if usize::try_from(input).is_ok_and(|input| input >= inputs) {
            args.error("INPUT", format!("input must be < {inputs}"));
        }
        args.end()?;
        Ok(BuiltElement::routing(InputSwitch { input, inputs }))
    },
};

struct InputSwitch {
    /// Negative for none.
    input: i32,
    inputs: usize,
}

impl Element for InputSwitch {
    reconfigured_fields!(input);

    handlers! {
        "switch": "the number of the input",
            read |this, _, _| Ok(this.input.to_string()),
            write |this, value, _| {
                let input: i32 = crate::values::read(value)?;
                let exists = usize::try_from(input).is_ok_and(|input| input < this.inputs);
                this.input = if exists { input } else { -1 };
                Ok(String::new())
            };
    }
}

impl RoutingElement for InputSwitch {
    fn route(&mut self, input: usize, _: &mut GraphPacket, _: &mut Services) -> Destination {
        match usize::try_from(self.input) {
            Ok(chosen) if chosen == input => Destination::FIRST,
            _ => Destination::DISCARD,
        }
    }
}
