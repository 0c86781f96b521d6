//! `ToDump`: writes packets to a capture.

use super::link_type::{ETHERNET, link_type_number};
use std::any::Any;
use weir_graph::arguments::text::split_words;
use weir_graph::arguments::{FileName, RawArgument, WordArgument};
use weir_graph::engine::{
    BuiltElement, CaptureWriter, EXTRA_LENGTH, Effects, Element, ElementClass, ElementContext, ElementCost,
    EmittingElement, GraphPacket, OrderDependence, Reason, Services, TaskRun, WaitsFor,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "ToDump",
    ports: "1/0-1",
    processing: "a/h",
    flow: "x/x",
    cost: ElementCost::E2,
    effects: Effects::FILES,
    order: OrderDependence::Ordered,
    manual: "\
writes packets to a capture

ToDump(FILENAME [, SNAPLEN, ENCAP, keywords USE_ENCAP_FROM, EXTRA_LENGTH, NANO, UNBUFFERED])

ToDump writes a pcap file, or a pcapng file if its name ends with `.pcapng`. The file has its name when it is complete; \
before, the name ends with `.part`. `-` is standard output. Packets go on to an output, if there is one.

Arguments:
  FILENAME        the capture
  SNAPLEN         the most bytes of a packet that are written; 0 for all. Default 0.
  ENCAP           the link type: ETHER, IP, NULL or SLL. Default ETHER.
  USE_ENCAP_FROM  elements with the handler encap, such as FromDump: all have this link type. Not with ENCAP.
  EXTRA_LENGTH    true: the length of a packet includes the annotation EXTRA_LENGTH. Default true.

A packet without a time stamp gets the time 0. NANO and UNBUFFERED are accepted and change nothing: time stamps have nanoseconds.

Handlers:
  count         r   the number of packets
  filename      r   the argument
  reset_counts  w   sets the count to 0",
    build: |cx| {
        let mut args = cx.arguments();
        let file: FileName = args.positional("FILENAME").required();
        let snap: u32 = args.either("SNAPLEN").or(0);
        let encapsulation: Option<WordArgument> = args.either("ENCAP").optional();
        let encapsulation_from: Option<RawArgument> = args.keyword("USE_ENCAP_FROM").optional();
        let has_extra = args.keyword("EXTRA_LENGTH").or(true);
        let _: Option<bool> = args.keyword("NANO").optional();
        let _: Option<bool> = args.keyword("UNBUFFERED").optional();
        if encapsulation.is_some() && encapsulation_from.is_some() {
            args.error("USE_ENCAP_FROM", "not together with ENCAP");
        }
        let link_type = encapsulation.map_or(Ok(ETHERNET), |name| link_type_number(&name.0));
        let link_type = link_type.unwrap_or_else(|reason| {
            args.error("ENCAP", reason);
            ETHERNET
        });
        let link_type_from: Vec<String> =
            encapsulation_from.iter().flat_map(|names| split_words(&names.0)).map(str::to_owned).collect();
        if encapsulation_from.is_some() && link_type_from.is_empty() {
            args.error("USE_ENCAP_FROM", "expected names of elements");
        }
        args.end()?;
        Ok(BuiltElement::emitting(ToDump {
            file: file.0,
            writer: None,
            link_type,
            link_type_from,
            snap,
            has_extra,
            count: 0,
            continued: None,
            is_handed_over: false,
            waits_for: WaitsFor::Nothing,
        }))
    },
};

struct ToDump {
    file: String,
    writer: Option<Box<dyn CaptureWriter>>,
    link_type: u32,
    /// The elements that state the link type.
    link_type_from: Vec<String>,
    snap: u32,
    has_extra: bool,
    count: u64,
    /// The link type of the open capture that is taken over from an earlier element.
    continued: Option<u32>,
    /// A later element goes on with the capture.
    is_handed_over: bool,
    waits_for: WaitsFor,
}

impl ToDump {
    /// Returns the link type that all elements of USE_ENCAP_FROM state.
    fn common_link_type(&self, cx: &mut ElementContext<'_>) -> Result<u32, Reason> {
        let mut common: Option<(&str, String)> = None;
        for element in &self.link_type_from {
            let name = cx.read_handler(&format!("{element}.encap"))?;
            match &common {
                Some((first, other)) if *other != name => {
                    return Err(format!(
                        "USE_ENCAP_FROM: {first} has the link type {other}, and {element} has {name}"
                    ));
                }
                _ => common = Some((element, name)),
            }
        }
        common.map_or(Ok(self.link_type), |(_, name)| link_type_number(&name))
    }

    fn write(&mut self, packet: GraphPacket, cx: &mut ElementContext<'_>) {
        let bytes = packet.bytes();
        let extra = packet.annotation(EXTRA_LENGTH).try_into().map_or(0, u32::from_ne_bytes);
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let wire_length = length.saturating_add(if self.has_extra { extra } else { 0 });
        let most = if self.snap == 0 { bytes.len() } else { bytes.len().min(self.snap as usize) };
        let result =
            self.writer.as_mut().map(|writer| writer.write(packet.time(), &bytes[..most], wire_length));
        match result {
            Some(Ok(())) => self.count += 1,
            Some(Err(reason)) => {
                // The reason is reported once, and by `finish`.
                let text = format!("{}: {reason}\n", self.file);
                cx.services.system.write_text(weir_graph::engine::TextOutput::Error, &text);
                self.writer = None;
                cx.services.stop();
            }
            None => {}
        }
        cx.emit_or_discard(0, packet);
    }
}

impl Element for ToDump {
    fn continues(&mut self, earlier: &dyn Any) -> bool {
        let is_same = |it: &&ToDump| {
            let is_known_later = !self.link_type_from.is_empty();
            it.file == self.file && (is_known_later || it.link_type == self.link_type)
        };
        self.continued = earlier.downcast_ref::<ToDump>().filter(is_same).map(|it| it.link_type);
        self.continued.is_some()
    }

    fn take_state(&mut self, earlier: &mut dyn Any, _: &mut ElementContext<'_>) {
        if self.continued.is_some()
            && let Some(earlier) = earlier.downcast_mut::<ToDump>()
        {
            (self.writer, self.count) = (earlier.writer.take(), earlier.count);
            earlier.is_handed_over = true;
        }
    }

    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        self.link_type = self.common_link_type(cx)?;
        // All packets of a written capture have the same link type.
        self.continued = self.continued.filter(|link_type| *link_type == self.link_type);
        if self.continued.is_none() {
            self.writer = Some(cx.services.system.create_capture(&self.file, self.link_type, self.snap)?);
        }
        if cx.ports().inputs_pull[0] {
            self.waits_for = cx.wait_for_packets(0);
            cx.add_task(true);
        }
        Ok(())
    }

    fn run(&mut self, most: usize, cx: &mut ElementContext<'_>) -> TaskRun {
        let work = cx.pull_each(0, most, |cx, packet| self.write(packet, cx));
        TaskRun { work, again: work > 0 || cx.is_active(&self.waits_for) }
    }

    fn finish(&mut self, _: &mut Services) -> Result<(), Reason> {
        match self.writer.as_mut() {
            Some(writer) => writer.finish().map_err(|reason| format!("{}: {reason}", self.file)),
            None if self.is_handed_over => Ok(()),
            None => Err(format!("{} is not complete", self.file)),
        }
    }

    handlers! {
        "count": counter "the number of packets", read |this, _, _| Ok(this.count.to_string());
        "filename": "the capture", read |this, _, _| Ok(this.file.clone());
        "reset_counts": "sets the count to 0",
            write |this, _, _| {
                this.count = 0;
                Ok(String::new())
            };
    }
}

impl EmittingElement for ToDump {
    fn push(&mut self, _: usize, packet: GraphPacket, cx: &mut ElementContext<'_>) {
        self.write(packet, cx);
    }
}
