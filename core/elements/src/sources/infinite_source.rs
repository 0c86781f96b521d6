//! `InfiniteSource`: sends copies of a packet as fast as it can.

use super::content::{DATA_DEFAULT, PacketContent};
use weir_graph::arguments::{ByteString, ElementArguments, RawArgument};
use weir_graph::engine::{
    BuildContext, BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement,
    GraphPacket, OrderDependence, Reason, SignalId, TaskRun, WaitsFor, most_packets,
};
use weir_graph::{handlers, reconfigured_fields};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "InfiniteSource",
    ports: "0/1",
    processing: "a/a",
    flow: "x/y",
    cost: ElementCost::E1,
    effects: Effects::CLOCK,
    order: OrderDependence::Ordered,
    manual: "\
sends copies of a packet as fast as possible

InfiniteSource([DATA, LIMIT, BURST, ACTIVE, keywords TIMESTAMP, LENGTH, STOP, END_CALL])

InfiniteSource sends LIMIT packets with the bytes DATA; all packets share them until an element writes.

Arguments:
  DATA       the bytes of a packet. Default: a text of 64 bytes.
  LIMIT      the number of packets; -1 for no limit. Default -1.
  BURST      the packets of one turn. Default 1.
  ACTIVE     false: sends no packets. Default true.
  TIMESTAMP  true: each packet gets the present time. Default true.
  LENGTH     the length of a packet: DATA is cut, or repeated. Default: the length of DATA. Older name: DATASIZE.
  STOP       true: stops the driver after the last packet. Default false.
  END_CALL   a write handler that is called after the last packet. Not with STOP.

Handlers:
  count   r   the number of sent packets
  reset   w   sets the count to 0, and goes on
  active  rw  the argument
  limit   rw  the argument
  burst   rw  the argument
  data    rw  the argument
  length  rw  the argument
  burstsize, datasize  rw  older names of burst and length",
    build: |cx| {
        let mut args = cx.arguments();
        let data = args.either("DATA").or(ByteString(DATA_DEFAULT.to_vec())).0;
        let arguments = SourceArguments::read(&mut args);
        let length = PacketContent::read_length(&mut args);
        args.end()?;
        let content = PacketContent::new(data, length);
        Ok(BuiltElement::emitting(InfiniteSource::new(content, arguments, cx)))
    },
};

/// The arguments that do not concern the bytes of packets.
pub struct SourceArguments {
    limit: i64,
    burst: u32,
    active: bool,
    has_time: bool,
    end_call: Option<String>,
}

impl SourceArguments {
    /// Reads the arguments LIMIT, BURST, ACTIVE, TIMESTAMP, STOP and END_CALL.
    pub fn read(args: &mut ElementArguments<'_, '_>) -> Self {
        let limit = args.either("LIMIT").or(-1);
        let burst = args.either("BURST").within(1..=i32::MAX.unsigned_abs()).or(1);
        let active = args.either("ACTIVE").or(true);
        let has_time = args.keyword("TIMESTAMP").or(true);
        let stop = args.keyword("STOP").or(false);
        let call: Option<RawArgument> = args.keyword("END_CALL").optional();
        if stop && call.is_some() {
            args.error("END_CALL", "not together with STOP");
        }
        let end_call = if stop { Some("stop".to_owned()) } else { call.map(|call| call.0) };
        Self { limit, burst, active, has_time, end_call }
    }
}

/// A source that sends as fast as it can.
pub struct InfiniteSource {
    content: PacketContent,
    /// Negative for no limit.
    limit: i64,
    burst: u32,
    active: bool,
    has_time: bool,
    end_call: Option<String>,
    count: u64,
    nonempty: SignalId,
    waits_for: WaitsFor,
}

impl InfiniteSource {
    /// Returns a source that has sent no packet.
    pub fn new(content: PacketContent, arguments: SourceArguments, cx: &mut BuildContext<'_>) -> Self {
        let SourceArguments { limit, burst, active, has_time, end_call } = arguments;
        let nonempty = cx.services.signals.create(active);
        let waits_for = WaitsFor::Nothing;
        Self { content, limit, burst, active, has_time, end_call, count: 0, nonempty, waits_for }
    }

    /// Returns the number of packets that are left, at most `most`.
    fn left(&self, most: usize) -> usize {
        match u64::try_from(self.limit) {
            Ok(limit) => usize::try_from(limit.saturating_sub(self.count)).unwrap_or(usize::MAX).min(most),
            Err(_) => most,
        }
    }

    fn next(&mut self, cx: &mut ElementContext<'_>) -> GraphPacket {
        self.count += 1;
        let mut packet = self.content.packet(cx.services);
        if self.has_time {
            let now = cx.services.now();
            packet.set_time(now);
        }
        packet
    }

    fn end(&self, cx: &mut ElementContext<'_>) {
        if let Some(call) = &self.end_call {
            cx.services.call_later(cx.element(), call);
        }
    }

    fn set_burst(&mut self, value: &str) -> Result<String, Reason> {
        self.burst = crate::values::read::<u32>(value)?.max(1);
        Ok(String::new())
    }

    fn wake(&self, cx: &mut ElementContext<'_>) {
        if self.active {
            cx.services.wake(self.nonempty);
            cx.schedule();
        }
    }
}

impl Element for InfiniteSource {
    reconfigured_fields!(content, limit, burst, active, has_time, end_call, count; then |this, cx| this.wake(cx));

    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        if cx.ports().outputs_push[0] {
            self.waits_for = cx.wait_for_room(0);
            cx.add_task(true);
        }
        Ok(())
    }

    fn effects(&self) -> Option<Effects> {
        let clock = if self.has_time { Effects::CLOCK } else { Effects::NONE };
        Some(if self.content.is_random() { clock.and(Effects::RANDOM) } else { clock })
    }

    fn nonempty_signal(&self) -> Option<SignalId> {
        Some(self.nonempty)
    }

    fn run(&mut self, most: usize, cx: &mut ElementContext<'_>) -> TaskRun {
        if !self.active || !cx.is_active(&self.waits_for) {
            return TaskRun { work: 0, again: false };
        }
        let work = self.left(most_packets(most, self.burst as usize));
        for _ in 0..work {
            let packet = self.next(cx);
            cx.emit(0, packet);
        }
        if work == 0 {
            self.end(cx);
        }
        TaskRun { work, again: work > 0 }
    }

    handlers! {
        "count": counter "the number of sent packets", read |this, _, _| Ok(this.count.to_string());
        "reset": "sets the count to 0, and goes on",
            write |this, _, cx| {
                this.count = 0;
                this.wake(cx);
                Ok(String::new())
            };
        "active": "false if no packets are sent",
            read |this, _, _| Ok(this.active.to_string()),
            write |this, value, cx| {
                this.active = crate::values::read(value)?;
                this.wake(cx);
                Ok(String::new())
            };
        "limit": "the number of packets",
            read |this, _, _| Ok(this.limit.to_string()),
            write |this, value, cx| {
                this.limit = crate::values::read(value)?;
                this.wake(cx);
                Ok(String::new())
            };
        "burst": "the packets of one turn",
            read |this, _, _| Ok(this.burst.to_string()),
            write |this, value, _| this.set_burst(value);
        "burstsize": "the older name of burst",
            read |this, _, _| Ok(this.burst.to_string()),
            write |this, value, _| this.set_burst(value);
        "data": "the bytes of a packet",
            read |this, _, _| Ok(String::from_utf8_lossy(this.content.data()).into_owned()),
            write |this, value, _| {
                this.content.set_data(crate::values::read::<ByteString>(value)?.0);
                Ok(String::new())
            };
        "length": "the length of a packet",
            read |this, _, _| Ok(this.content.length().to_string()),
            write |this, value, _| this.content.write_length(value);
        "datasize": "the older name of length",
            read |this, _, _| Ok(this.content.length().to_string()),
            write |this, value, _| this.content.write_length(value);
    }
}

impl EmittingElement for InfiniteSource {
    fn pull(&mut self, _: usize, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        if self.active && self.left(1) == 1 {
            return Some(self.next(cx));
        }
        if self.active {
            self.end(cx);
        }
        cx.services.signals.sleep(self.nonempty);
        None
    }
}
