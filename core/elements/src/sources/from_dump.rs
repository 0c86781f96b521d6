//! `FromDump`: reads packets from a capture.

use super::link_type::{ETHERNET, link_type_name};
use super::replay::{PacketReplay, ReplayInput};
use std::any::Any;
use std::rc::Rc;
use weir_graph::arguments::{FileName, RawArgument};
use weir_graph::engine::{
    BlockPacket, BuiltElement, CaptureReader, CapturedBlock, EXTRA_LENGTH, Effects, Element, ElementClass,
    ElementContext, ElementCost, EmittingElement, GraphPacket, OrderDependence, PacketPool, Reason, Services,
    SignalId, SourceBlock, TaskRun,
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

FromDump(FILENAME [, TIMING, keywords STOP, SAMPLE, FORCE_IP, START, START_AFTER, END, END_AFTER, INTERVAL, ACTIVE, \
END_CALL, FILEPOS])

FromDump sends the packets of a capture: pcap or pcapng, plain or compressed with gzip or zstd. `-` is standard input. \
A packet has its time stamp, and in the annotation EXTRA_LENGTH the bytes that were not captured. The packets of a capture \
that breaks off are sent, and the run fails at its end.

Arguments:
  FILENAME     the capture
  TIMING       true: sends packets in the rhythm of their time stamps. Default false.
  STOP         true: stops the driver after the last packet. Default false.
  SAMPLE       the part of packets that are sent, chosen at random. Default 1.
  FORCE_IP     true: sends IP packets alone, with their network header set. Others go to output 1 if it exists. \
Default false.
  START, END   times: only packets from START on, and before END
  START_AFTER, END_AFTER, INTERVAL  the same, as time after the first packet, and after the first packet that is sent
  ACTIVE       false: sends no packets. Default true.
  END_CALL     a write handler that is called after the last packet. Not with STOP.
  FILEPOS      the packets before this position in bytes are left out. Positions are those in a pcap file.

Handlers:
  count            r   the number of packets for output 0
  reset_counts     w   sets the count to 0
  active           rw  the argument
  filename         r   the argument
  encap            r   the link type: ETHER, IP, NULL, SLL, or # and its number
  sampling_prob    r   the argument SAMPLE
  packet_filepos   r   the position of the latest packet, in bytes of a pcap file
  filepos          r   the position behind it
  extend_interval  w   a time by which the end of the time range moves; goes on if it was reached
  reset_timing     w   TIMING begins anew with the next packet
  stop             w   stops the driver",
    build: |cx| {
        let mut args = cx.arguments();
        let file: FileName = args.positional("FILENAME").required();
        let mut replay = PacketReplay::read(&mut args, true, |active| cx.services.signals.create(active));
        let force_ip = args.keyword("FORCE_IP").or(false);
        let start: Option<Timestamp> = args.keyword("START").optional();
        let start_after: Option<Nanos> = args.keyword("START_AFTER").optional();
        let end: Option<Timestamp> = args.keyword("END").optional();
        let end_after: Option<Nanos> = args.keyword("END_AFTER").optional();
        let interval: Option<Nanos> = args.keyword("INTERVAL").optional();
        let call: Option<RawArgument> = args.keyword("END_CALL").optional();
        let first_position: u64 = args.keyword("FILEPOS").or(0);
        // Arguments of Click that change nothing here.
        let _: Option<bool> = args.keyword("MMAP").optional();
        if replay.stops() && call.is_some() {
            args.error("END_CALL", "not together with STOP");
        }
        if [end.is_some(), end_after.is_some(), interval.is_some()].iter().filter(|is| **is).count() > 1 {
            args.error("END", "END, END_AFTER and INTERVAL exclude each other");
        }
        if start.is_some() && start_after.is_some() {
            args.error("START", "START and START_AFTER exclude each other");
        }
        args.end()?;
        replay.call_at_end(call.map(|call| call.0));
        let limits = Limits { start, start_after, end, end_after, interval };
        let input = DumpInput {
            file: file.0,
            is_open: false,
            reader: None,
            block: CapturedBlock::default(),
            next: 0,
            is_held: false,
            takes_all: limits == Limits::default(),
            limits,
            force_ip,
            first_position,
            block_position: PCAP_HEADER_BYTES,
            earlier_position: 0,
            earlier_link_type: ETHERNET,
        };
        Ok(BuiltElement::emitting(FromDump { replay, input }))
    },
};

/// The bytes of the header of a pcap file.
const PCAP_HEADER_BYTES: u64 = 24;

/// The bytes of a packet's header in a pcap file.
const PACKET_HEADER_BYTES: u64 = 16;

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

/// Returns the bytes that packets have in a pcap file.
fn bytes_in_file(packets: &[BlockPacket]) -> u64 {
    packets
        .iter()
        .map(|packet| PACKET_HEADER_BYTES + u64::from(packet.end.saturating_sub(packet.start)))
        .sum()
}

/// A capture, and the packets of it that are sent.
struct DumpInput {
    file: String,
    /// The file was opened, here or by an earlier element.
    is_open: bool,
    /// `None` before the file is opened, and behind its end.
    reader: Option<Box<dyn CaptureReader>>,
    block: CapturedBlock,
    /// The index of the next packet in the block.
    next: usize,
    /// The latest packet is the first one behind the time range, and can still be sent.
    is_held: bool,
    /// All packets are within the time range.
    takes_all: bool,
    limits: Limits,
    force_ip: bool,
    first_position: u64,
    /// The position of the block's first packet.
    block_position: u64,
    /// The position of the last packet before the block.
    earlier_position: u64,
    /// Its link type, or that of the capture.
    earlier_link_type: u32,
}

impl DumpInput {
    fn open(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        if !self.is_open {
            let reader = cx.services.system.open_capture(&self.file)?;
            self.earlier_link_type = reader.link_type();
            self.reader = Some(reader);
            self.is_open = true;
        }
        Ok(())
    }

    fn take_state(&mut self, earlier: &mut Self) {
        // Times after the first packet are known since it came.
        if earlier.position() > PCAP_HEADER_BYTES {
            self.limits = earlier.limits;
            self.takes_all = self.limits == Limits::default();
        }
        self.reader = earlier.reader.take();
        (self.block, self.next) = (std::mem::take(&mut earlier.block), std::mem::take(&mut earlier.next));
        self.is_held = std::mem::take(&mut earlier.is_held);
        (self.block_position, self.earlier_position) = (earlier.block_position, earlier.earlier_position);
        self.earlier_link_type = earlier.earlier_link_type;
        if !self.is_held {
            self.skip_to_first();
        }
    }

    /// Returns the position behind the latest packet.
    fn position(&self) -> u64 {
        self.block_position + bytes_in_file(self.block.packets.get(..self.next).unwrap_or_default())
    }

    /// Returns the position of the latest packet.
    fn packet_position(&self) -> u64 {
        match self.next.checked_sub(1).and_then(|latest| self.block.packets.get(latest)) {
            Some(latest) => self.position() - bytes_in_file(std::slice::from_ref(latest)),
            None => self.earlier_position,
        }
    }

    /// Returns the link type of the latest packet, or of the capture before the first one.
    fn link_type(&self) -> u32 {
        let latest = self.next.checked_sub(1).and_then(|latest| self.block.packets.get(latest));
        latest.map_or(self.earlier_link_type, |packet| packet.link_type)
    }

    /// Reads the next block; an empty one at the end.
    fn read_block(&mut self) -> Result<(), Reason> {
        (self.earlier_position, self.earlier_link_type) = (self.packet_position(), self.link_type());
        self.block_position = self.position();
        self.next = 0;
        let result = match &mut self.reader {
            Some(reader) => reader.next_block(&mut self.block),
            None => Ok(()),
        };
        if result.is_err() || self.reader.is_none() || self.block.packets.is_empty() {
            self.reader = None;
            self.block = CapturedBlock::default();
        }
        result.map_err(|reason| format!("{}: {reason}", self.file))
    }

    /// Goes to the packet at FILEPOS, or to the end of the block.
    fn skip_to_first(&mut self) {
        let mut position = self.position();
        while position < self.first_position && self.next < self.block.packets.len() {
            position += bytes_in_file(&self.block.packets[self.next..=self.next]);
            self.next += 1;
        }
    }

    /// Returns the next packet of the file behind FILEPOS.
    fn read(&mut self) -> Result<Option<BlockPacket>, Reason> {
        if std::mem::take(&mut self.is_held) {
            self.next = self.next.saturating_sub(1);
        }
        while self.next >= self.block.packets.len() {
            self.read_block()?;
            if self.block.packets.is_empty() {
                return Ok(None);
            }
            self.skip_to_first();
        }
        let packet = self.block.packets.get(self.next).copied();
        self.next += 1;
        Ok(packet)
    }

    fn read_within_limits(&mut self) -> Result<Option<BlockPacket>, Reason> {
        loop {
            let Some(packet) = self.read()? else { return Ok(None) };
            self.limits.begin(packet.time);
            if self.limits.end.is_some_and(|end| packet.time >= end) {
                self.is_held = true;
                return Ok(None);
            }
            if self.limits.start.is_some_and(|start| packet.time < start) {
                continue;
            }
            if let Some(interval) = self.limits.interval.take() {
                self.limits.end = Some(Timestamp(packet.time.0.saturating_add(interval.0)));
            }
            return Ok(Some(packet));
        }
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

impl ReplayInput for DumpInput {
    #[inline]
    fn next(&mut self, cx: &mut ElementContext<'_>) -> Result<Option<GraphPacket>, Reason> {
        let captured = match self.block.packets.get(self.next) {
            Some(packet) if self.takes_all => {
                self.next += 1;
                Some(*packet)
            }
            _ => self.read_within_limits()?,
        };
        let pool = &mut cx.services.pool;
        Ok(captured.map(|captured| match &self.block.source {
            Some(source) => packet_of(source, captured, pool),
            None => pool.of_bytes(&[]),
        }))
    }

    fn emit_ready(&mut self, most: usize, count: &mut u64, cx: &mut ElementContext<'_>) -> usize {
        if !self.takes_all {
            return 0;
        }
        let Some(source) = &self.block.source else { return 0 };
        let ready = self.block.packets.get(self.next..).unwrap_or_default();
        let ready = &ready[..ready.len().min(most)];
        if self.force_ip {
            for captured in ready {
                let mut packet = packet_of(source, *captured, &mut cx.services.pool);
                if crate::headers::find_ip(&mut packet, captured.link_type) {
                    *count += 1;
                    cx.emit(0, packet);
                } else {
                    cx.emit_or_discard(1, packet);
                }
            }
        } else {
            cx.emit_each(0, ready.len(), |pool, index| packet_of(source, ready[index], pool));
            *count += ready.len() as u64;
        }
        self.next += ready.len();
        ready.len()
    }

    fn accept(&mut self, mut packet: GraphPacket, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        if !self.force_ip || crate::headers::find_ip(&mut packet, self.link_type()) {
            return Some(packet);
        }
        cx.emit_or_discard(1, packet);
        None
    }
}

struct FromDump {
    replay: PacketReplay,
    input: DumpInput,
}

impl Element for FromDump {
    fn continues(&mut self, earlier: &dyn Any) -> bool {
        let Some(earlier) = earlier.downcast_ref::<FromDump>().filter(|it| it.input.file == self.input.file)
        else {
            return false;
        };
        self.input.is_open = true;
        // A ToDump can ask before the state is taken over.
        self.input.earlier_link_type = earlier.input.link_type();
        true
    }

    fn take_state(&mut self, earlier: &mut dyn Any, cx: &mut ElementContext<'_>) {
        if let Some(earlier) = earlier.downcast_mut::<FromDump>() {
            self.input.take_state(&mut earlier.input);
            self.replay.take_state(&mut earlier.replay, cx);
        }
    }

    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        self.input.open(cx)?;
        self.replay.begin(cx);
        Ok(())
    }

    fn effects(&self) -> Option<Effects> {
        Some(self.replay.effects())
    }

    fn nonempty_signal(&self) -> Option<SignalId> {
        Some(self.replay.nonempty_signal())
    }

    fn run(&mut self, most: usize, cx: &mut ElementContext<'_>) -> TaskRun {
        self.replay.run(most, &mut self.input, cx)
    }

    fn timer_expired(&mut self, _: u32, cx: &mut ElementContext<'_>) {
        self.replay.timer_expired(cx);
    }

    fn finish(&mut self, _: &mut Services) -> Result<(), Reason> {
        self.replay.finish(&self.input.file)
    }

    handlers! {
        "count": counter "the number of packets for output 0", read |this, _, _| Ok(this.replay.count().to_string());
        "reset_counts": "sets the count to 0",
            write |this, _, _| {
                this.replay.reset_count();
                Ok(String::new())
            };
        "filename": "the capture", read |this, _, _| Ok(this.input.file.clone());
        "active": "false if no packets are sent",
            read |this, _, _| Ok(this.replay.is_active().to_string()),
            write |this, value, cx| {
                this.replay.set_active(crate::values::read(value)?, cx);
                Ok(String::new())
            };
        "encap": "the link type",
            read |this, _, cx| {
                // A ToDump can ask before the capture is open.
                this.input.open(cx)?;
                Ok(link_type_name(this.input.link_type()))
            };
        "sampling_prob": "the part of the packets that is sent",
            read |this, _, _| Ok(this.replay.sampling_probability());
        "packet_filepos": "the position of the latest packet",
            read |this, _, _| Ok(this.input.packet_position().to_string());
        "filepos": "the position behind the latest packet",
            read |this, _, _| Ok(this.input.position().to_string());
        "extend_interval": "a time by which the end of the time range moves",
            write |this, value, cx| {
                let Nanos(more) = crate::values::read(value)?;
                let Limits { end, end_after, interval, .. } = &mut this.input.limits;
                for time in [end_after, interval].into_iter().flatten() {
                    time.0 = time.0.saturating_add(more);
                }
                for time in end.iter_mut() {
                    time.0 = time.0.saturating_add(more);
                }
                if this.input.is_held {
                    this.replay.go_on(cx);
                }
                Ok(String::new())
            };
        "reset_timing": "TIMING begins anew with the next packet",
            write |this, _, _| {
                this.replay.reset_timing();
                Ok(String::new())
            };
        "stop": "stops the driver",
            write |this, _, cx| {
                this.replay.stop(cx);
                Ok(String::new())
            };
    }
}

impl EmittingElement for FromDump {
    fn pull(&mut self, _: usize, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        self.replay.pull(&mut self.input, cx)
    }
}
