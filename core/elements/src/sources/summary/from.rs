//! `FromIPSummaryDump`: makes packets from lines that describe them.

use super::fields::find;
use super::record::SummaryRecord;
use std::any::Any;
use weir_graph::arguments::text::{split_words, unquote};
use weir_graph::arguments::{FileName, FixedDecimal, IpProtocol, RawArgument};
use weir_graph::engine::{
    BuiltElement, EXTRA_PACKETS, Effects, Element, ElementClass, ElementContext, ElementCost,
    EmittingElement, GraphPacket, OrderDependence, Reason, SignalId, TaskRun, TextOutput, WaitsFor,
};
use weir_graph::handlers;
use weir_units::Timestamp;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "FromIPSummaryDump",
    ports: "0/1",
    processing: "a/a",
    flow: "x/y",
    cost: ElementCost::E7,
    effects: Effects::FILES.and(Effects::CLOCK).and(Effects::RANDOM).and(Effects::CONTROL),
    order: OrderDependence::Ordered,
    manual: "\
makes packets from lines that describe them

FromIPSummaryDump(FILENAME [, keywords STOP, TIMING, ACTIVE, CHECKSUM, PROTO, MULTIPACKET, SAMPLE, FIELDS, FLOWID, DATA])

FromIPSummaryDump reads what ToIPSummaryDump writes: a line `!data` states the fields of the lines behind it. Each line \
becomes an IPv4 packet. What is not stated is 0, beside a time to live of 100. `!flowid`, `!proto` and `!aggregate` \
state values for all lines behind them; other lines that begin with `!` or `#` are comments. A line without a value is \
skipped, and the first one is reported.

Arguments:
  FILENAME     the file
  STOP         true: stops the driver at the end. Default false.
  TIMING       true: sends packets with the delays that their time stamps have. Default false.
  ACTIVE       false: sends no packets. Default true.
  CHECKSUM     true: packets have all their bytes, and checksums. Else their length is in the annotation EXTRA_LENGTH. \
Default false.
  PROTO        the IP protocol where none is stated. Default 6.
  MULTIPACKET  true: a line with a count becomes so many packets. Default false.
  SAMPLE       the part of the packets that is sent, by chance. Default 1.
  FIELDS       the names of fields, before a line `!data`. Also CONTENTS.
  FLOWID       SOURCE PORT DESTINATION PORT [PROTOCOL]: values where none are stated
  DATA         the lines, instead of a file

ZERO and ALLOW_NONEXISTENT are accepted; an unknown byte is always 0.

Handlers:
  active    rw  the argument
  count     r   the number of packets
  bad       r   the number of skipped lines
  filesize  r   the length of the file in bytes
  filepos   r   the place of the next line
  encap     r   IP
  sampling_prob  r  the argument SAMPLE
  stop      w   stops the driver",
    build: |cx| {
        let mut args = cx.arguments();
        let data: Option<String> = args.keyword("DATA").optional();
        let file: Option<FileName> = match data {
            Some(_) => args.positional("FILENAME").optional(),
            None => Some(args.positional("FILENAME").required()),
        };
        let stop = args.keyword("STOP").or(false);
        let timing = args.keyword("TIMING").or(false);
        let active = args.keyword("ACTIVE").or(true);
        let _: Option<bool> = args.keyword("ZERO").optional();
        let _: Option<bool> = args.keyword("ALLOW_NONEXISTENT").optional();
        let is_whole = args.keyword("CHECKSUM").or(false);
        let protocol: IpProtocol = args.keyword("PROTO").or(IpProtocol(super::headers::TCP));
        let is_multiple = args.keyword("MULTIPACKET").or(false);
        let sample: FixedDecimal<9> = args.keyword("SAMPLE").or(FixedDecimal(WHOLE));
        if !(0..=WHOLE).contains(&sample.0) {
            args.error("SAMPLE", "expected a number from 0 to 1");
        }
        let fields: Option<RawArgument> = args.keyword("FIELDS").optional();
        let contents: Option<RawArgument> = args.keyword("CONTENTS").optional();
        let flow: Option<RawArgument> = args.keyword("FLOWID").optional();
        let mut summary = FromSummary {
            file: if data.is_some() { None } else { file.map(|file| file.0) },
            text: data.unwrap_or_default().into_bytes(),
            at: 0,
            fields: Vec::new(),
            defaults: SummaryRecord::default(),
            protocol: protocol.0,
            stop,
            timing,
            active,
            is_whole,
            is_multiple,
            sample: sample.0.unsigned_abs(),
            repeated: None,
            next: None,
            shift: None,
            has_complained: false,
            count: 0,
            bad: 0,
            is_over: false,
            nonempty: cx.services.signals.create(active),
            waits_for: WaitsFor::Nothing,
        };
        if let Some(names) = fields.or(contents)
            && let Err(reason) = summary.set_fields(&names.0)
        {
            args.error("FIELDS", reason);
        }
        if let Some(flow) = flow
            && let Err(reason) = summary.set_flow(&flow.0)
        {
            args.error("FLOWID", reason);
        }
        args.end()?;
        Ok(BuiltElement::emitting(summary))
    },
};

/// All packets, as a part of them with nine decimals.
const WHOLE: i64 = 1_000_000_000;

struct FromSummary {
    file: Option<String>,
    text: Vec<u8>,
    /// The place of the next line.
    at: usize,
    /// The names of the fields; empty for one that is unknown.
    fields: Vec<&'static str>,
    defaults: SummaryRecord,
    protocol: u8,
    stop: bool,
    timing: bool,
    active: bool,
    is_whole: bool,
    is_multiple: bool,
    sample: u64,
    /// The packet that is sent again, and how often.
    repeated: Option<(GraphPacket, u32)>,
    /// The packet that waits for its time.
    next: Option<GraphPacket>,
    /// The time from the time stamp of the first packet to its sending.
    shift: Option<u64>,
    has_complained: bool,
    count: u64,
    bad: u64,
    is_over: bool,
    nonempty: SignalId,
    waits_for: WaitsFor,
}

impl FromSummary {
    fn set_fields(&mut self, names: &str) -> Result<(), Reason> {
        let mut unknown = Ok(());
        self.fields.clear();
        for word in split_words(names) {
            let name = String::from_utf8_lossy(&unquote(word)).into_owned();
            let field = find(&name);
            if field.is_none() {
                unknown = Err(format!("no field named '{name}'"));
            }
            self.fields.push(field.map_or("", |field| field.name));
        }
        unknown
    }

    fn set_flow(&mut self, text: &str) -> Result<(), Reason> {
        let words: Vec<&str> = split_words(text).collect();
        if !(4..=5).contains(&words.len()) {
            return Err("expected SOURCE PORT DESTINATION PORT [PROTOCOL]".to_owned());
        }
        for (field, word) in ["ip_src", "sport", "ip_dst", "dport", "ip_proto"].into_iter().zip(words) {
            if word != "-" && !self.defaults.take(field, word) {
                return Err(format!("'{word}' is no value of {field}"));
            }
        }
        Ok(())
    }

    /// Reads a line that states something about those behind it.
    fn read_statement(&mut self, line: &str) -> Result<(), Reason> {
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        match name {
            "!data" | "!contents" => self.set_fields(rest),
            "!flowid" => self.set_flow(rest),
            "!proto" => match self.defaults.take("ip_proto", rest.trim()) {
                true => Ok(()),
                false => Err("no protocol".to_owned()),
            },
            "!aggregate" => match self.defaults.take("aggregate", rest.trim()) {
                true => Ok(()),
                false => Err("no number".to_owned()),
            },
            "!binary" => {
                self.at = self.text.len();
                Err("binary records are not read here".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn complain(&mut self, reason: &str, cx: &mut ElementContext<'_>) {
        self.bad += 1;
        if !self.has_complained {
            self.has_complained = true;
            let line = self.text[..self.at].iter().filter(|byte| **byte == b'\n').count();
            let name = self.file.as_deref().unwrap_or("DATA");
            cx.services.system.write_text(TextOutput::Error, &format!("{name}:{line}: {reason}\n"));
        }
    }

    /// Returns the record of the next line that has one.
    fn record(&mut self, cx: &mut ElementContext<'_>) -> Option<SummaryRecord> {
        while self.at < self.text.len() {
            let rest = &self.text[self.at..];
            let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            let line = String::from_utf8_lossy(&rest[..end]).into_owned();
            self.at = (self.at + end + 1).min(self.text.len());
            let line = line.trim();
            if line.starts_with('!') {
                if let Err(reason) = self.read_statement(line) {
                    self.complain(&reason, cx);
                }
                continue;
            }
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut record = self.defaults.clone();
            let mut has_value = false;
            for (field, word) in self.fields.iter().zip(split_words(line)) {
                has_value |= record.take(field, word);
            }
            if has_value {
                return Some(record);
            }
            self.complain("a line without a value", cx);
        }
        None
    }

    /// Returns the next packet; `None` at the end, which it reports.
    fn read(&mut self, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        if let Some(next) = self.next.take() {
            return Some(next);
        }
        loop {
            let packet = match self.repeated.take() {
                Some((packet, left)) => {
                    if left > 1 {
                        self.repeated = Some((packet.duplicate(), left - 1));
                    }
                    packet
                }
                None => {
                    let Some(record) = self.record(cx) else {
                        self.end(cx);
                        return None;
                    };
                    if self.is_multiple && record.count == Some(0) {
                        continue;
                    }
                    let mut packet = record.packet(self.protocol, self.is_whole, &mut cx.services.pool);
                    if self.is_multiple {
                        packet.annotation_mut(EXTRA_PACKETS).fill(0);
                        let left = record.count.unwrap_or(1) - 1;
                        self.repeated = (left > 0).then(|| (packet.duplicate(), left));
                    }
                    packet
                }
            };
            let is_sent = self.sample == WHOLE.unsigned_abs()
                || cx.services.random() % WHOLE.unsigned_abs() < self.sample;
            if is_sent {
                self.count += 1;
                return Some(packet);
            }
            cx.services.pool.discard(packet);
        }
    }

    fn end(&mut self, cx: &mut ElementContext<'_>) {
        cx.services.signals.sleep(self.nonempty);
        if !std::mem::replace(&mut self.is_over, true) && self.stop {
            cx.services.stop();
        }
    }
}

impl Element for FromSummary {
    fn take_state(&mut self, earlier: &mut dyn Any, cx: &mut ElementContext<'_>) {
        let Some(earlier) = earlier.downcast_mut::<FromSummary>().filter(|it| it.file == self.file) else {
            return;
        };
        std::mem::swap(&mut self.text, &mut earlier.text);
        std::mem::swap(&mut self.fields, &mut earlier.fields);
        std::mem::swap(&mut self.defaults, &mut earlier.defaults);
        (self.repeated, self.next) = (earlier.repeated.take(), earlier.next.take());
        (self.at, self.shift, self.count, self.bad) = (earlier.at, earlier.shift, earlier.count, earlier.bad);
        (self.has_complained, self.is_over) = (earlier.has_complained, earlier.is_over);
        if self.is_over {
            cx.services.signals.sleep(self.nonempty);
        }
    }

    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        if let Some(file) = &self.file {
            self.text = cx.services.system.read_file(file)?;
        }
        if cx.ports().outputs_push[0] {
            self.waits_for = cx.wait_for_room(0);
            cx.add_task(self.active);
        }
        Ok(())
    }

    fn nonempty_signal(&self) -> Option<SignalId> {
        Some(self.nonempty)
    }

    fn run(&mut self, most: usize, cx: &mut ElementContext<'_>) -> TaskRun {
        let mut work = 0;
        while self.active && work < most {
            let Some(packet) = self.read(cx) else { return TaskRun { work, again: false } };
            if self.timing {
                let now = cx.services.now();
                let shift = *self.shift.get_or_insert(now.0.saturating_sub(packet.time().0));
                let at = Timestamp(packet.time().0.saturating_add(shift));
                if at > now {
                    self.next = Some(packet);
                    cx.set_timer(at, 0);
                    return TaskRun { work, again: false };
                }
            }
            work += 1;
            cx.emit(0, packet);
        }
        TaskRun { work, again: self.active && cx.is_active(&self.waits_for) }
    }

    fn timer_expired(&mut self, _: u32, cx: &mut ElementContext<'_>) {
        cx.schedule();
    }

    handlers! {
        "active": "false if no packets are sent",
            read |this, _, _| Ok(this.active.to_string()),
            write |this, value, cx| {
                this.active = crate::values::read(value)?;
                if this.active && !this.is_over {
                    cx.services.wake(this.nonempty);
                    cx.schedule();
                }
                Ok(String::new())
            };
        "count": "the number of packets", read |this, _, _| Ok(this.count.to_string());
        "bad": "the number of skipped lines", read |this, _, _| Ok(this.bad.to_string());
        "filesize": "the length of the file in bytes", read |this, _, _| Ok(this.text.len().to_string());
        "filepos": "the place of the next line", read |this, _, _| Ok(this.at.to_string());
        "encap": "the link type", read |_, _, _| Ok("IP".to_owned());
        "sampling_prob": "the part of the packets that is sent",
            read |this, _, _| Ok(crate::control::general(this.sample as f64 / WHOLE as f64));
        "stop": "stops the driver",
            write |this, _, cx| {
                this.active = false;
                cx.services.stop();
                Ok(String::new())
            };
    }
}

impl EmittingElement for FromSummary {
    fn pull(&mut self, _: usize, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        if self.active { self.read(cx) } else { None }
    }
}
