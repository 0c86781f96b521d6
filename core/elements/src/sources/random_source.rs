//! `RandomSource`: sends packets with random bytes as fast as it can.

use super::content::{LENGTH_MAX, PacketContent};
use super::infinite_source::{InfiniteSource, SourceArguments};
use weir_graph::engine::{
    BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement, GraphPacket,
    OrderDependence, Reason, SignalId, TaskRun,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "RandomSource",
    ports: "0/1",
    processing: "a/a",
    flow: "x/y",
    cost: ElementCost::E5,
    effects: Effects::CLOCK.and(Effects::RANDOM),
    order: OrderDependence::Ordered,
    manual: "\
sends packets with random bytes as fast as possible

RandomSource(LENGTH [, LIMIT, BURST, ACTIVE, keywords TIMESTAMP, STOP, END_CALL])

RandomSource sends LIMIT packets with LENGTH random bytes.

Arguments:
  LENGTH     the length of a packet, at most 65535
  LIMIT      the number of packets; -1 for no limit. Default -1.
  BURST      the packets of one turn. Default 1.
  ACTIVE     false: sends no packets. Default true.
  TIMESTAMP  true: each packet gets the present time. Default true.
  STOP       true: stops the driver after the last packet. Default false.
  END_CALL   a write handler that is called after the last packet. Not with STOP.

Handlers:
  count   r   the number of sent packets
  reset   w   sets the count to 0, and goes on
  active  rw  the argument
  limit   rw  the argument
  burst   rw  the argument
  length  rw  the argument",
    build: |cx| {
        let mut args = cx.arguments();
        let length = args.either("LENGTH").within(0..=LENGTH_MAX).required();
        let arguments = SourceArguments::read(&mut args);
        args.end()?;
        let source = InfiniteSource::new(PacketContent::random(length), arguments, cx);
        Ok(BuiltElement::emitting(RandomSource(source)))
    },
};

/// An [`InfiniteSource`] with other bytes, whose handlers are a part of those of InfiniteSource.
struct RandomSource(InfiniteSource);

impl RandomSource {
    fn get(&mut self, name: &str, cx: &mut ElementContext<'_>) -> Result<String, Reason> {
        self.0.read_handler(name, "", cx).unwrap_or_else(|| Err(format!("no handler named '{name}'")))
    }

    fn set(&mut self, name: &str, value: &str, cx: &mut ElementContext<'_>) -> Result<String, Reason> {
        self.0.write_handler(name, value, cx).unwrap_or_else(|| Err(format!("no handler named '{name}'")))
    }
}

impl Element for RandomSource {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        self.0.initialize(cx)
    }

    fn effects(&self) -> Option<Effects> {
        self.0.effects()
    }

    fn nonempty_signal(&self) -> Option<SignalId> {
        self.0.nonempty_signal()
    }

    fn run(&mut self, most: usize, cx: &mut ElementContext<'_>) -> TaskRun {
        self.0.run(most, cx)
    }

    handlers! {
        "count": counter "the number of sent packets", read |this, _, cx| this.get("count", cx);
        "reset": "sets the count to 0, and goes on", write |this, value, cx| this.set("reset", value, cx);
        "active": "false if no packets are sent",
            read |this, _, cx| this.get("active", cx),
            write |this, value, cx| this.set("active", value, cx);
        "limit": "the number of packets",
            read |this, _, cx| this.get("limit", cx),
            write |this, value, cx| this.set("limit", value, cx);
        "burst": "the packets of one turn",
            read |this, _, cx| this.get("burst", cx),
            write |this, value, cx| this.set("burst", value, cx);
        "length": "the length of a packet",
            read |this, _, cx| this.get("length", cx),
            write |this, value, cx| this.set("length", value, cx);
    }
}

impl EmittingElement for RandomSource {
    fn pull(&mut self, output: usize, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        self.0.pull(output, cx)
    }
}
