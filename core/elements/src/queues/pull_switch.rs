//! `PullSwitch` and `SimplePullSwitch`: pull from one input, which a handler can change.

use weir_graph::arguments::ArgumentErrors;
use weir_graph::engine::{
    BuildContext, BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement,
    GraphPacket, OrderDependence, Reason, SignalId, TaskRun, WaitsFor,
};
use weir_graph::{handlers, reconfigured_fields};

/// The class with a signal.
pub static SWITCH: ElementClass = ElementClass {
    name: "PullSwitch",
    ports: "-/1",
    processing: "l/l",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "\
pulls from one input

PullSwitch([INPUT])

PullSwitch pulls all packets from the input INPUT, which a handler can change. Elements that pull from it sleep while that \
input has no packets.

Arguments:
  INPUT  the number of the input; -1 for none, and so is a number that is too large. Default 0.

Handlers:
  switch  rw  the argument",
    build: |cx| build(cx, true),
};

/// The class without a signal.
pub static SIMPLE: ElementClass = ElementClass {
    name: "SimplePullSwitch",
    manual: "\
pulls from one input, without a signal

SimplePullSwitch([INPUT])

As PullSwitch, but elements that pull from it sleep only while no input has packets.

Arguments:
  INPUT  the number of the input; -1 for none, and so is a number that is too large. Default 0.

Handlers:
  switch  rw  the argument",
    build: |cx| build(cx, false),
    ..SWITCH
};

fn build(cx: &mut BuildContext<'_>, has_signal: bool) -> Result<BuiltElement, ArgumentErrors> {
    let inputs = cx.ports().inputs_pull.len();
    let mut args = cx.arguments();
    let input: i32 = args.either("INPUT").or(0);
    args.end()?;
    let signal = has_signal.then(|| cx.services.signals.create(true));
    let input = existing(input, inputs);
    Ok(BuiltElement::emitting(PullSwitch { input, inputs, signal, waits_for: Vec::new() }))
}

/// Returns the number of an input, if there is one.
fn existing(input: i32, inputs: usize) -> Option<usize> {
    usize::try_from(input).ok().filter(|input| *input < inputs)
}

struct PullSwitch {
    input: Option<usize>,
    inputs: usize,
    /// Active while a pull may be successful.
    signal: Option<SignalId>,
    /// The signals upstream of each input.
    waits_for: Vec<WaitsFor>,
}

impl PullSwitch {
    fn may_have_packets(&self, cx: &ElementContext<'_>) -> bool {
        let waits_for = self.input.and_then(|input| self.waits_for.get(input));
        waits_for.is_some_and(|waits_for| cx.is_active(waits_for))
    }

    /// Passes the signal of the input on.
    fn update_signal(&self, cx: &mut ElementContext<'_>) {
        match self.signal {
            Some(signal) if self.may_have_packets(cx) => cx.services.wake(signal),
            Some(signal) => cx.services.signals.sleep(signal),
            None => {}
        }
    }
}

impl Element for PullSwitch {
    reconfigured_fields!(input; then |this, cx| this.update_signal(cx));

    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        if self.signal.is_some() {
            // The task does nothing but to pass the signals of packets upstream on.
            self.waits_for = (0..self.inputs).map(|input| cx.wait_for_packets(input)).collect();
            cx.add_task(false);
        }
        Ok(())
    }

    fn nonempty_signal(&self) -> Option<SignalId> {
        self.signal
    }

    fn run(&mut self, _: usize, cx: &mut ElementContext<'_>) -> TaskRun {
        self.update_signal(cx);
        TaskRun { work: 0, again: false }
    }

    handlers! {
        "switch": "the number of the input",
            read |this, _, _| Ok(this.input.map_or("-1".to_owned(), |input| input.to_string())),
            write |this, value, cx| {
                this.input = existing(crate::values::read(value)?, this.inputs);
                this.update_signal(cx);
                Ok(String::new())
            };
    }
}

impl EmittingElement for PullSwitch {
    fn pull(&mut self, _: usize, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        let packet = self.input.and_then(|input| cx.pull(input));
        if packet.is_none() {
            self.update_signal(cx);
        }
        packet
    }
}
