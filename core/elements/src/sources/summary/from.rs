//! `FromIPSummaryDump`: makes packets from lines that describe them.

use super::fields::{SummaryField, find};
use super::form::SummaryValue;
use super::record::SummaryRecord;
use crate::sources::replay::{PacketReplay, ReplayInput};
use std::any::Any;
use weir_graph::arguments::text::{split_words, unquote};
use weir_graph::arguments::{FileName, IpProtocol, RawArgument};
use weir_graph::engine::{
    BuiltElement, EXTRA_PACKETS, Effects, Element, ElementClass, ElementContext, ElementCost,
    EmittingElement, GraphPacket, LineReader, OrderDependence, Reason, Services, SignalId, TaskRun,
    TextLines, TextOutput,
};
use weir_graph::handlers;

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
skipped, and the first one is reported. `!binary` states that binary records follow, as ToIPSummaryDump writes them.

Arguments:
  FILENAME     the file; `-` is standard input
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
  filename  r   the argument
  filesize  r   the length of the file in bytes; `-` if it is unknown
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
        let replay = PacketReplay::read(&mut args, false, |active| cx.services.signals.create(active));
        let _: Option<bool> = args.keyword("ZERO").optional();
        let _: Option<bool> = args.keyword("ALLOW_NONEXISTENT").optional();
        let is_whole = args.keyword("CHECKSUM").or(false);
        let protocol: IpProtocol = args.keyword("PROTO").or(IpProtocol(super::headers::TCP));
        let is_multiple = args.keyword("MULTIPACKET").or(false);
        let fields: Option<RawArgument> = args.keyword("FIELDS").optional();
        let contents: Option<RawArgument> = args.keyword("CONTENTS").optional();
        let flow: Option<RawArgument> = args.keyword("FLOWID").optional();
        let mut input = SummaryInput {
            file: if data.is_some() { None } else { file.map(|file| file.0) },
            lines: Box::new(TextLines::new(data.clone().unwrap_or_default().into_bytes())),
            data,
            is_continued: false,
            position: 0,
            line: 0,
            fields: Vec::new(),
            is_binary: false,
            defaults: SummaryRecord::default(),
            protocol: protocol.0,
            is_whole,
            is_multiple,
            repeated: None,
            has_complained: false,
            bad: 0,
        };
        if let Some(names) = fields.or(contents)
            && let Err(reason) = input.set_fields(&names.0)
        {
            args.error("FIELDS", reason);
        }
        if let Some(flow) = flow
            && let Err(reason) = input.set_flow(&flow.0)
        {
            args.error("FLOWID", reason);
        }
        args.end()?;
        Ok(BuiltElement::emitting(FromSummary { replay, input }))
    },
};

/// The lines of a summary, and the packets that they describe.
struct SummaryInput {
    /// `None` for the argument DATA.
    file: Option<String>,
    /// The argument DATA.
    data: Option<String>,
    /// The open file is taken over from an earlier element.
    is_continued: bool,
    lines: Box<dyn LineReader>,
    /// The bytes of the lines that were read.
    position: u64,
    /// The number of the latest line.
    line: u64,
    /// The fields; `None` for one that is unknown.
    fields: Vec<Option<&'static SummaryField>>,
    /// Binary records follow.
    is_binary: bool,
    defaults: SummaryRecord,
    protocol: u8,
    is_whole: bool,
    is_multiple: bool,
    /// The packet that is sent again, and how often.
    repeated: Option<(GraphPacket, u32)>,
    has_complained: bool,
    bad: u64,
}

impl SummaryInput {
    fn set_fields(&mut self, names: &str) -> Result<(), Reason> {
        let mut unknown = Ok(());
        self.fields.clear();
        for word in split_words(names) {
            let name = String::from_utf8_lossy(&unquote(word)).into_owned();
            let field = find(&name);
            if field.is_none() {
                unknown = Err(format!("no field named '{name}'"));
            }
            self.fields.push(field);
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

    fn take_state(&mut self, earlier: &mut Self) {
        std::mem::swap(&mut self.lines, &mut earlier.lines);
        (self.position, self.line) = (earlier.position, earlier.line);
        std::mem::swap(&mut self.fields, &mut earlier.fields);
        self.is_binary = earlier.is_binary;
        std::mem::swap(&mut self.defaults, &mut earlier.defaults);
        self.repeated = earlier.repeated.take();
        (self.has_complained, self.bad) = (earlier.has_complained, earlier.bad);
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
                self.is_binary = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn complain(&mut self, reason: &str, cx: &mut ElementContext<'_>) {
        self.bad += 1;
        if !self.has_complained {
            self.has_complained = true;
            let (name, line) = (self.name(), self.line);
            cx.services.system.write_text(TextOutput::Error, &format!("{name}:{line}: {reason}\n"));
        }
    }

    fn name(&self) -> &str {
        self.file.as_deref().unwrap_or("DATA")
    }

    /// Returns the record of the next line that has one.
    fn record(&mut self, cx: &mut ElementContext<'_>) -> Result<Option<SummaryRecord>, Reason> {
        let mut bytes = Vec::new();
        loop {
            if self.is_binary {
                match self.binary_record(&mut bytes)? {
                    None => break,
                    Some(BinaryKind::Line) => {}
                    Some(BinaryKind::Packet) => match self.read_binary(&bytes) {
                        Some(record) => return Ok(Some(record)),
                        None => {
                            self.complain("a record without a value", cx);
                            continue;
                        }
                    },
                }
            } else if !self.lines.next(&mut bytes)? {
                break;
            }
            self.position += bytes.len() as u64;
            self.line += 1;
            let line = String::from_utf8_lossy(&bytes);
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
                has_value |= field.is_some_and(|field| record.take(field.name, word));
            }
            if has_value {
                return Ok(Some(record));
            }
            self.complain("a line without a value", cx);
        }
        Ok(None)
    }

    fn wrong_record(&self, text: &str) -> Reason {
        format!("{}: record {}: {text}", self.name(), self.line + 1)
    }

    /// Reads the next binary record; `None` at the end.
    fn binary_record(&mut self, bytes: &mut Vec<u8>) -> Result<Option<BinaryKind>, Reason> {
        let mut head = [0; 4];
        if !self.lines.fill(&mut head)? {
            return Ok(None);
        }
        let head = u32::from_be_bytes(head);
        let (length, is_line) = (head & !LINE_MARK, head & LINE_MARK != 0);
        if !(RECORD_MIN..=RECORD_MAX).contains(&length) {
            return Err(self
                .wrong_record(&format!("a length of {length}, which is not {RECORD_MIN} to {RECORD_MAX}")));
        }
        bytes.clear();
        bytes.resize((length - RECORD_MIN) as usize, 0);
        if !self.lines.fill(bytes)? {
            return Err(self.wrong_record("the file ends in it"));
        }
        self.position += u64::from(RECORD_MIN);
        if is_line {
            return Ok(Some(BinaryKind::Line));
        }
        self.position += bytes.len() as u64;
        self.line += 1;
        Ok(Some(BinaryKind::Packet))
    }

    /// Returns the values of a binary record; `None` if there are none.
    fn read_binary(&self, mut bytes: &[u8]) -> Option<SummaryRecord> {
        let mut record = self.defaults.clone();
        let (mut has_value, mut text) = (false, String::new());
        for field in &self.fields {
            // Behind an unknown field, and behind the end, places are unknown.
            let Some(field) = field else { break };
            let Some(value) = field.form.read_binary(&mut bytes) else { break };
            has_value |= match value {
                SummaryValue::Bytes(options) if field.name.ends_with("opt") || field.name == "tcp_sack" => {
                    record.take_options(field.name, Some(options.to_vec()))
                }
                _ => {
                    text.clear();
                    field.form.write_text(value, &mut text);
                    record.take(field.name, &text)
                }
            };
        }
        has_value.then_some(record)
    }
}

impl ReplayInput for SummaryInput {
    fn next(&mut self, cx: &mut ElementContext<'_>) -> Result<Option<GraphPacket>, Reason> {
        if let Some((mut packet, left)) = self.repeated.take() {
            if left > 1 {
                self.repeated = Some((packet.duplicate(), left - 1));
            }
            return Ok(Some(packet));
        }
        loop {
            let Some(record) = self.record(cx)? else { return Ok(None) };
            if self.is_multiple && record.count == Some(0) {
                continue;
            }
            let mut packet = record.packet(self.protocol, self.is_whole, &mut cx.services.pool);
            if self.is_multiple {
                packet.annotation_mut(EXTRA_PACKETS).fill(0);
                let left = record.count.unwrap_or(1) - 1;
                self.repeated = (left > 0).then(|| (packet.duplicate(), left));
            }
            return Ok(Some(packet));
        }
    }
}

/// The kind of a binary record.
enum BinaryKind {
    Packet,
    Line,
}

/// The bit of a binary record's length that marks a line of text.
const LINE_MARK: u32 = 1 << 31;

/// The least length of a binary record: that of its length.
const RECORD_MIN: u32 = 4;

/// The greatest length of a binary record.
const RECORD_MAX: u32 = 1 << 20;

struct FromSummary {
    replay: PacketReplay,
    input: SummaryInput,
}

impl Element for FromSummary {
    fn continues(&mut self, earlier: &dyn Any) -> bool {
        let is_same = |SummaryInput { file, data, .. }: &SummaryInput| {
            *file == self.input.file && *data == self.input.data
        };
        self.input.is_continued =
            earlier.downcast_ref::<FromSummary>().is_some_and(|earlier| is_same(&earlier.input));
        self.input.is_continued
    }

    fn take_state(&mut self, earlier: &mut dyn Any, cx: &mut ElementContext<'_>) {
        if let Some(earlier) = earlier.downcast_mut::<FromSummary>() {
            self.input.take_state(&mut earlier.input);
            self.replay.take_state(&mut earlier.replay, cx);
        }
    }

    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        if let Some(file) = &self.input.file
            && !self.input.is_continued
        {
            self.input.lines = cx.services.system.open_lines(file)?;
        }
        self.replay.begin(cx);
        Ok(())
    }

    fn effects(&self) -> Option<Effects> {
        // A wrong line is reported on the terminal.
        Some(self.replay.effects().and(Effects::TERMINAL))
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
        self.replay.finish(self.input.name())
    }

    handlers! {
        "active": "false if no packets are sent",
            read |this, _, _| Ok(this.replay.is_active().to_string()),
            write |this, value, cx| {
                this.replay.set_active(crate::values::read(value)?, cx);
                Ok(String::new())
            };
        "count": counter "the number of packets", read |this, _, _| Ok(this.replay.count().to_string());
        "bad": "the number of skipped lines", read |this, _, _| Ok(this.input.bad.to_string());
        "filename": "the file", read |this, _, _| Ok(this.input.name().to_owned());
        "filesize": "the length of the file in bytes",
            read |this, _, _| Ok(this.input.lines.length().map_or_else(|| "-".to_owned(), |it| it.to_string()));
        "filepos": "the place of the next line", read |this, _, _| Ok(this.input.position.to_string());
        "encap": "the link type", read |_, _, _| Ok("IP".to_owned());
        "sampling_prob": "the part of the packets that is sent",
            read |this, _, _| Ok(this.replay.sampling_probability());
        "stop": "stops the driver",
            write |this, _, cx| {
                this.replay.stop(cx);
                Ok(String::new())
            };
    }
}

impl EmittingElement for FromSummary {
    fn pull(&mut self, _: usize, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        self.replay.pull(&mut self.input, cx)
    }
}
