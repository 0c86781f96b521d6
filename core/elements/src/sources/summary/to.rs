//! `ToIPSummaryDump`: writes a line about each packet.

use super::fields::{SummaryField, find};
use super::form::BinaryLength;
use super::headers::SummaryHeaders;
use crate::text_file::TextFile;
use std::any::Any;
use std::fmt::Write as _;
use weir_graph::arguments::text::{quote, split_words, unquote};
use weir_graph::arguments::{FileName, RawArgument};
use weir_graph::engine::{
    BuiltElement, EXTRA_PACKETS, Effects, Element, ElementClass, ElementContext, ElementCost,
    EmittingElement, GraphPacket, OrderDependence, Reason, Services, TaskRun, WaitsFor,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "ToIPSummaryDump",
    ports: "1/0-1",
    processing: "a/h",
    flow: "x/x",
    cost: ElementCost::E2,
    effects: Effects::FILES.and(Effects::TERMINAL),
    order: OrderDependence::Ordered,
    manual: "\
writes a line about each packet

ToIPSummaryDump(FILENAME [, keywords FIELDS, HEADER, BANNER, BINARY, MULTIPACKET, BAD_PACKETS, \
CAREFUL_TRUNC, EXTRA_LENGTH])

ToIPSummaryDump writes the fields of each IPv4 packet with a known network header, separated by spaces. A field that a \
packet does not have is `-`. Packets go on to an output, if there is one. `-` is standard output.

Arguments:
  FIELDS         the names of fields. Default `timestamp ip_src`. Also CONTENTS:
                 timestamp ntimestamp ts_sec ts_usec ts_usec1 first_timestamp ip_src ip_dst ip_hl ip_tos ip_dscp ip_ecn
                 ip_len ip_id ip_frag ip_fragoff ip_ttl ip_proto ip_sum ip_opt ip_capture_len sport dport tcp_seq
                 tcp_ack tcp_off tcp_flags tcp_window tcp_urp tcp_opt tcp_ntopt tcp_sack udp_len icmp_type icmp_code
                 icmp_type_name icmp_code_name icmp_flowid icmp_seq icmp_nextmtu payload payload_len payload_md5
                 payload_md5_hex count link direction aggregate first_ntimestamp eth_src eth_dst eth_type wire_len
  HEADER         true: the first lines state the format and the fields. Default true.
  BANNER         a text for the header
  BINARY         true: records follow the header, each behind its length in four bytes. payload has no such form, and a \
value that a packet does not have is 0. Default false.
  MULTIPACKET    true: a packet that stands for several has several lines, if count is no field. Default false.
  BAD_PACKETS    true: a line `!bad` is before each packet with a wrong header. Default false.
  CAREFUL_TRUNC  true: a line `!bad` is before each packet that is shorter than its IP header states. Default true.
  EXTRA_LENGTH   false: the annotation EXTRA_LENGTH counts as 0. Default true.

VERBOSE is accepted and changes nothing. A packet stands for at most 10000 lines.

Handlers:
  count     r  the number of packets
  filename  r  the argument
  flush     w  writes what is not written yet",
    build: |cx| {
        let mut args = cx.arguments();
        let file: FileName = args.positional("FILENAME").required();
        let fields: Option<RawArgument> = args.keyword("FIELDS").optional();
        let contents: Option<RawArgument> = args.keyword("CONTENTS").optional();
        let has_header = args.keyword("HEADER").or(true);
        let banner: Option<String> = args.keyword("BANNER").optional();
        let is_multiple = args.keyword("MULTIPACKET").or(false);
        let shows_bad = args.keyword("BAD_PACKETS").or(false);
        let shows_truncated = args.keyword("CAREFUL_TRUNC").or(true);
        let has_extra = args.keyword("EXTRA_LENGTH").or(true);
        let _: Option<bool> = args.keyword("VERBOSE").optional();
        let is_binary = args.keyword("BINARY").or(false);
        if is_binary && file.0 == "-" {
            args.error("BINARY", "standard output gets text: name a file, such as /dev/stdout");
        }
        let names = fields.or(contents).map_or("timestamp ip_src".to_owned(), |it| it.0);
        let mut found = Vec::new();
        for word in split_words(&names) {
            let name = String::from_utf8_lossy(&unquote(word)).into_owned();
            match find(&name) {
                Some(field) if is_binary && field.form.binary_length() == BinaryLength::None => {
                    args.error("FIELDS", format!("the field '{name}' has no binary form"));
                }
                Some(field) => found.push(field),
                None => args.error("FIELDS", format!("no field named '{name}'")),
            }
        }
        if found.is_empty() {
            args.error("FIELDS", "there is none");
        }
        args.end()?;
        let mut text = String::new();
        if has_header {
            text.push_str("!IPSummaryDump 1.3\n");
            if let Some(banner) = banner {
                _ = writeln!(text, "!creator {}", quote(banner.as_bytes()));
            }
            let names: Vec<&str> = found.iter().map(|field| field.name).collect();
            _ = writeln!(text, "!data {}", names.join(" "));
            if is_binary {
                text.push_str("!binary\n");
            }
        }
        let is_multiple = is_multiple && found.iter().all(|field| field.name != "count");
        let mut file = TextFile::new(file.0);
        file.bytes().extend_from_slice(text.as_bytes());
        Ok(BuiltElement::emitting(ToSummary {
            file,
            fields: found,
            is_binary,
            is_multiple,
            shows_bad,
            shows_truncated,
            has_extra,
            text: String::new(),
            record: Vec::new(),
            count: 0,
            waits_for: WaitsFor::Nothing,
        }))
    },
};

/// The most lines of a packet.
const LINES_MAX: u32 = 10_000;

/// The bit of a binary record's length that marks a line of text.
const LINE_MARK: u32 = 1 << 31;

/// The bytes of a binary record's length, which it includes.
const LENGTH_BYTES: usize = 4;

struct ToSummary {
    file: TextFile,
    fields: Vec<&'static SummaryField>,
    is_binary: bool,
    is_multiple: bool,
    shows_bad: bool,
    shows_truncated: bool,
    has_extra: bool,
    /// The lines of the packet at hand.
    text: String,
    /// The binary record of the packet at hand.
    record: Vec<u8>,
    count: u64,
    waits_for: WaitsFor,
}

impl ToSummary {
    fn add(&mut self, packet: &GraphPacket, services: &mut Services) {
        self.count += 1;
        let headers = SummaryHeaders::find(packet, self.has_extra);
        if let Some(wrong) = headers.wrong.as_ref().filter(|_| self.shows_bad) {
            _ = writeln!(self.text, "!bad {wrong}");
        }
        if self.shows_truncated && headers.is_truncated() {
            self.text.push_str("!bad truncated IP length\n");
        }
        if self.is_binary {
            return self.add_record(packet, &headers, services);
        }
        let start = self.text.len();
        for field in &self.fields {
            if self.text.len() > start {
                self.text.push(' ');
            }
            match (field.value)(&headers) {
                Some(value) => field.form.write_text(value, &mut self.text),
                None => self.text.push('-'),
            }
        }
        self.text.push('\n');
        let line = self.text[start..].to_owned();
        for _ in 0..self.more(packet) {
            self.file.add(&line, services);
        }
        self.file.add(&self.text, services);
        self.text.clear();
    }

    /// Returns the number of further lines of a packet that stands for several.
    fn more(&self, packet: &GraphPacket) -> u32 {
        let more = packet.annotation(EXTRA_PACKETS).try_into().map_or(0, u32::from_ne_bytes);
        if self.is_multiple { more.min(LINES_MAX - 1) } else { 0 }
    }

    /// Adds the binary record of a packet, behind its lines.
    fn add_record(&mut self, packet: &GraphPacket, headers: &SummaryHeaders<'_>, services: &mut Services) {
        for line in self.text.split_inclusive('\n') {
            let length = u32::try_from(line.len() + LENGTH_BYTES).unwrap_or(0);
            self.file.bytes().extend_from_slice(&(length | LINE_MARK).to_be_bytes());
            self.file.bytes().extend_from_slice(line.as_bytes());
        }
        self.text.clear();
        self.record.clear();
        self.record.extend_from_slice(&[0; LENGTH_BYTES]);
        for field in &self.fields {
            field.form.write_binary((field.value)(headers), &mut self.record);
        }
        let length = u32::try_from(self.record.len()).unwrap_or(0);
        self.record[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
        for _ in 0..=self.more(packet) {
            self.file.bytes().extend_from_slice(&self.record);
            self.file.flush_if_long(services);
        }
    }
}

impl Element for ToSummary {
    fn take_state(&mut self, earlier: &mut dyn Any, _: &mut ElementContext<'_>) {
        let Some(earlier) = earlier.downcast_mut::<ToSummary>() else { return };
        if earlier.file.name() != self.file.name() {
            return;
        }
        let names = |it: &ToSummary| -> Vec<&str> { it.fields.iter().map(|field| field.name).collect() };
        if names(self) == names(earlier) && self.is_binary == earlier.is_binary {
            // The header is there already.
            self.file.bytes().clear();
        }
        self.file.take_over(&mut earlier.file);
        self.count = earlier.count;
    }

    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        if cx.ports().inputs_pull[0] {
            self.waits_for = cx.wait_for_packets(0);
            cx.add_task(true);
        }
        Ok(())
    }

    fn effects(&self) -> Option<Effects> {
        Some(self.file.effects())
    }

    fn run(&mut self, most: usize, cx: &mut ElementContext<'_>) -> TaskRun {
        let work = cx.pull_each(0, most, |cx, packet| self.push(0, packet, cx));
        TaskRun { work, again: work > 0 || cx.is_active(&self.waits_for) }
    }

    fn finish(&mut self, services: &mut Services) -> Result<(), Reason> {
        self.file.finish(services)
    }

    handlers! {
        "count": counter "the number of packets", read |this, _, _| Ok(this.count.to_string());
        "filename": "the file", read |this, _, _| Ok(this.file.name().to_owned());
        "flush": "writes what is not written yet",
            write |this, _, cx| {
                this.file.finish(cx.services)?;
                Ok(String::new())
            };
    }
}

impl EmittingElement for ToSummary {
    fn push(&mut self, _: usize, packet: GraphPacket, cx: &mut ElementContext<'_>) {
        self.add(&packet, cx.services);
        cx.emit_or_discard(0, packet);
    }
}
