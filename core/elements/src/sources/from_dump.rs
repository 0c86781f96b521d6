//! `FromDump`: reads packets from a capture.

use std::any::Any;
use std::rc::Rc;
use weir_graph::arguments::{ArgumentFault, FileName, FixedDecimal, RawArgument};
use weir_graph::engine::{
    BlockPacket, BuiltElement, CaptureReader, CapturedBlock, EXTRA_LENGTH, Effects, Element, ElementClass,
    ElementContext, ElementCost, EmittingElement, GraphPacket, OrderDependence, PacketPool, Reason, SignalId,
    SourceBlock, TaskRun, WaitsFor,
};
use weir_graph::handlers;
use weir_units::{Nanos, Timestamp};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "FromDump",
    ports: "0/1-2",
    processing: "a/ah",
    flow: "x/y",
    cost: ElementCost::E1,
    effects: Effects::FILES,
    order: OrderDependence::Ordered,
    manual: "\
reads packets from a capture

FromDump(FILENAME [, STOP, keywords TIMING, SAMPLE, FORCE_IP, START, START_AFTER, END, END_AFTER, INTERVAL, ACTIVE, \
END_CALL])

FromDump sends the packets of a capture: pcap or pcapng, plain or compressed with gzip or zstd. `-` is standard input. \
A packet has its time stamp, and in the annotation EXTRA_LENGTH the bytes that were not captured.

Arguments:
  FILENAME     the capture
  STOP         true: stops the driver after the last packet. Default false.
  TIMING       true: sends packets in the rhythm of their time stamps. Default false.
  SAMPLE       the part of packets that are sent, chosen at random. Default 1.
  FORCE_IP     true: sends IP packets alone, with their network header set. Others go to output 1 if it exists. \
Default false.
  START, END   times: only packets from START on, and before END
  START_AFTER, END_AFTER, INTERVAL  the same, as time after the first packet, and after the first packet that is sent
  ACTIVE       false: sends no packets. Default true.
  END_CALL     a write handler that is called after the last packet. Not with STOP.

Handlers:
  count         r   the number of sent packets
  reset_counts  w   sets the count to 0
  active        rw  the argument
  filename      r   the argument
  stop          w   stops the driver",
    build: |cx| {
        let mut args = cx.arguments();
        let file: FileName = args.positional("FILENAME").required();
        let stop = args.either("STOP").or(false);
        let timing = args.keyword("TIMING").or(false);
        let sample: FixedDecimal<9> = args.keyword("SAMPLE").checked(is_part).or(FixedDecimal(WHOLE));
        let force_ip = args.keyword("FORCE_IP").or(false);
        let start: Option<Timestamp> = args.keyword("START").optional();
        let start_after: Option<Nanos> = args.keyword("START_AFTER").optional();
        let end: Option<Timestamp> = args.keyword("END").optional();
        let end_after: Option<Nanos> = args.keyword("END_AFTER").optional();
        let interval: Option<Nanos> = args.keyword("INTERVAL").optional();
        let active = args.keyword("ACTIVE").or(true);
        let call: Option<RawArgument> = args.keyword("END_CALL").optional();
        // Arguments of Click that change nothing here.
        let _: Option<bool> = args.keyword("MMAP").optional();
        if stop && call.is_some() {
            args.error("END_CALL", "not together with STOP");
        }
        if [end.is_some(), end_after.is_some(), interval.is_some()].iter().filter(|is| **is).count() > 1 {
            args.error("END", "END, END_AFTER and INTERVAL exclude each other");
        }
        if start.is_some() && start_after.is_some() {
            args.error("START", "START and START_AFTER exclude each other");
        }
        args.end()?;
        let limits = Limits { start, start_after, end, end_after, interval };
        Ok(BuiltElement::emitting(FromDump {
            file: file.0,
            reader: None,
            block: CapturedBlock::default(),
            next: 0,
            held: None,
            takes_all: !timing && sample.0 == WHOLE && limits == Limits::default(),
            limits,
            timing,
            shift: None,
            sample: sample.0.unsigned_abs(),
            force_ip,
            active,
            end_call: if stop { Some("stop".to_owned()) } else { call.map(|call| call.0) },
            count: 0,
            is_continued: false,
            nonempty: cx.services.signals.create(active),
            waits_for: WaitsFor::Nothing,
        }))
    },
};

/// All packets, as a part of them with nine decimals.
const WHOLE: i64 = 1_000_000_000;

fn is_part(value: &FixedDecimal<9>) -> Result<(), ArgumentFault> {
    if (0..=WHOLE).contains(&value.0) {
        Ok(())
    } else {
        Err(ArgumentFault::Other("expected a number from 0 to 1".to_owned()))
    }
}

/// The times between which packets are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Limits {
    start: Option<Timestamp>,
    start_after: Option<Nanos>,
    end: Option<Timestamp>,
    end_after: Option<Nanos>,
    interval: Option<Nanos>,
}

impl Limits {
    /// Replaces times after the first packet by points in time.
    fn begin(&mut self, first: Timestamp) {
        let after = |time: &mut Option<Timestamp>, after: &mut Option<Nanos>| {
            if let Some(after) = after.take() {
                *time = Some(Timestamp(first.0.saturating_add(after.0)));
            }
        };
        after(&mut self.start, &mut self.start_after);
        after(&mut self.end, &mut self.end_after);
    }
}

struct FromDump {
    file: String,
    reader: Option<Box<dyn CaptureReader>>,
    block: CapturedBlock,
    /// The index of the next packet in the block.
    next: usize,
    /// The packet that waits for its time.
    held: Option<BlockPacket>,
    /// All packets are sent, as soon as they are read.
    takes_all: bool,
    limits: Limits,
    timing: bool,
    /// The time from the time stamp of the first packet to its sending.
    shift: Option<u64>,
    sample: u64,
    force_ip: bool,
    active: bool,
    end_call: Option<String>,
    count: u64,
    /// The element takes over the open capture of an earlier one.
    is_continued: bool,
    nonempty: SignalId,
    waits_for: WaitsFor,
}

impl FromDump {
    /// Returns the next packet within the limits; `None` at the end, which it reports.
    #[inline]
    fn read(&mut self, cx: &mut ElementContext<'_>) -> Option<BlockPacket> {
        if self.takes_all
            && let Some(packet) = self.block.packets.get(self.next).copied()
        {
            self.next += 1;
            return Some(packet);
        }
        self.read_within_limits(cx)
    }

    fn read_within_limits(&mut self, cx: &mut ElementContext<'_>) -> Option<BlockPacket> {
        if let Some(held) = self.held.take() {
            return Some(held);
        }
        loop {
            if self.next >= self.block.packets.len() {
                self.next = 0;
                if let Err(reason) = self.reader.as_mut()?.next_block(&mut self.block) {
                    self.block.packets.clear();
                    let text = format!("{}: {reason}\n", self.file);
                    cx.services.system.write_text(weir_graph::engine::TextOutput::Error, &text);
                }
            }
            let packet = self.block.packets.get(self.next).copied();
            self.next += 1;
            let Some(packet) = packet.filter(|packet| self.limits.end.is_none_or(|end| packet.time < end))
            else {
                self.end(cx);
                return None;
            };
            self.limits.begin(packet.time);
            if self.limits.end.is_some_and(|end| packet.time >= end) {
                self.end(cx);
                return None;
            }
            if self.limits.start.is_some_and(|start| packet.time < start) {
                continue;
            }
            if let Some(interval) = self.limits.interval.take() {
                self.limits.end = Some(Timestamp(packet.time.0.saturating_add(interval.0)));
            }
            if self.sample < WHOLE.unsigned_abs()
                && cx.services.random() % WHOLE.unsigned_abs() >= self.sample
            {
                continue;
            }
            return Some(packet);
        }
    }

    /// Sends packets of the block all at once, if there is nothing to check, and returns how many.
    fn emit_waiting(&mut self, most: usize, cx: &mut ElementContext<'_>) -> usize {
        if !self.active || !self.takes_all || self.force_ip {
            return 0;
        }
        let waiting = self.block.packets.get(self.next..).unwrap_or_default();
        let waiting = &waiting[..waiting.len().min(most)];
        if let Some(source) = &self.block.source {
            cx.emit_each(0, waiting.len(), |pool, index| packet_of(source, waiting[index], pool));
        }
        let count = waiting.len();
        self.next += count;
        self.count += count as u64;
        count
    }

    fn end(&mut self, cx: &mut ElementContext<'_>) {
        self.reader = None;
        self.block = CapturedBlock::default();
        cx.services.signals.sleep(self.nonempty);
        if let Some(call) = &self.end_call {
            cx.services.call_later(cx.element(), call);
        }
    }

    /// Returns a packet of the graph, and true if FORCE_IP sends it to the first output.
    #[inline]
    fn packet(&mut self, captured: BlockPacket, cx: &mut ElementContext<'_>) -> (GraphPacket, bool) {
        let link_type = captured.link_type;
        let mut packet = match &self.block.source {
            Some(source) => packet_of(source, captured, &mut cx.services.pool),
            None => cx.services.pool.of_bytes(&[]),
        };
        self.count += 1;
        if !self.force_ip {
            return (packet, true);
        }
        let is_ip = crate::headers::find_ip(&mut packet, link_type);
        (packet, is_ip)
    }
}

/// Returns a packet of the graph for one of a block.
#[inline]
fn packet_of(source: &Rc<SourceBlock>, captured: BlockPacket, pool: &mut PacketPool) -> GraphPacket {
    let BlockPacket { start, end, wire_length, time, .. } = captured;
    let missing = wire_length.saturating_sub(end.saturating_sub(start));
    let mut packet = pool.of_source(Rc::clone(source), start as usize..end as usize);
    packet.set_time(time);
    packet.annotation_mut(EXTRA_LENGTH).copy_from_slice(&missing.to_ne_bytes());
    packet
}

impl Element for FromDump {
    fn continues(&mut self, earlier: &dyn Any) -> bool {
        self.is_continued = earlier.downcast_ref::<FromDump>().is_some_and(|it| it.file == self.file);
        self.is_continued
    }

    fn take_state(&mut self, earlier: &mut dyn Any, cx: &mut ElementContext<'_>) {
        let Some(earlier) = earlier.downcast_mut::<FromDump>() else { return };
        (self.reader, self.held) = (earlier.reader.take(), earlier.held.take());
        (self.block, self.next) = (std::mem::take(&mut earlier.block), std::mem::take(&mut earlier.next));
        (self.shift, self.count) = (earlier.shift, earlier.count);
        // Times after the first packet are known since it came.
        if self.count > 0 {
            self.limits = earlier.limits;
        }
        if self.reader.is_none() {
            cx.services.signals.sleep(self.nonempty);
        }
    }

    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        if !self.is_continued {
            self.reader = Some(cx.services.system.open_capture(&self.file)?);
        }
        if cx.ports().outputs_push[0] {
            self.waits_for = cx.wait_for_room(0);
            cx.add_task(self.active);
        }
        Ok(())
    }

    fn effects(&self) -> Option<Effects> {
        Some(if self.sample < WHOLE.unsigned_abs() { Effects::RANDOM } else { Effects::NONE })
    }

    fn nonempty_signal(&self) -> Option<SignalId> {
        Some(self.nonempty)
    }

    fn run(&mut self, most: usize, cx: &mut ElementContext<'_>) -> TaskRun {
        let mut work = self.emit_waiting(most, cx);
        while self.active && work < most {
            let Some(captured) = self.read(cx) else { return TaskRun { work, again: false } };
            if self.timing {
                let now = cx.services.now();
                let shift = *self.shift.get_or_insert(now.0.saturating_sub(captured.time.0));
                let at = Timestamp(captured.time.0.saturating_add(shift));
                if at > now {
                    self.held = Some(captured);
                    cx.set_timer(at, 0);
                    return TaskRun { work, again: false };
                }
            }
            let (packet, is_first) = self.packet(captured, cx);
            work += 1;
            if is_first {
                cx.emit(0, packet);
            } else {
                cx.emit_or_discard(1, packet);
            }
        }
        TaskRun { work, again: self.active }
    }

    fn timer_expired(&mut self, _: u32, cx: &mut ElementContext<'_>) {
        cx.schedule();
    }

    handlers! {
        "count": "the number of sent packets", read |this, _, _| Ok(this.count.to_string());
        "reset_counts": "sets the count to 0",
            write |this, _, _| {
                this.count = 0;
                Ok(String::new())
            };
        "filename": "the capture", read |this, _, _| Ok(this.file.clone());
        "active": "false if no packets are sent",
            read |this, _, _| Ok(this.active.to_string()),
            write |this, value, cx| {
                this.active = crate::values::read(value)?;
                if this.active {
                    cx.services.wake(this.nonempty);
                    cx.schedule();
                }
                Ok(String::new())
            };
        "stop": "stops the driver",
            write |this, _, cx| {
                this.active = false;
                cx.services.stop();
                Ok(String::new())
            };
    }
}

impl EmittingElement for FromDump {
    fn pull(&mut self, _: usize, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        if !self.active {
            return None;
        }
        let captured = self.read(cx)?;
        let (packet, is_first) = self.packet(captured, cx);
        if is_first {
            return Some(packet);
        }
        cx.emit_or_discard(1, packet);
        None
    }
}
