//! Rewriters: elements that give flows other addresses and ports, and their replies the original ones.

use super::flow_id::FlowId;
use super::form::{IdentifiedPacket, MAPS, RewriterForm, note_segment, renumber};
use super::input::{InputAction, InputDecision, MappingOutputs, RewriterInput};
use super::mapping::{FlowMapping, FlowTracking, MappingTimeouts};
use super::mapping_table::{CAPACITY_DEFAULT, MappingIndex, MappingTable};
use crate::ipv4::{ICMP, Ipv4Header, TCP, UDP};
use core::net::Ipv4Addr;
use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;
use weir_graph::arguments::text::split_words;
use weir_graph::arguments::{
    AnnotationField, ArgumentContext, ArgumentErrors, ArgumentFault, ArgumentValue, ElementArguments,
    ElementReference, TcpPort,
};
use weir_graph::engine::{
    BuildContext, BuiltElement, DST_IP, Destination, Element, ElementContext, GraphPacket, HandlerDefinition,
    MeasureKind, Reason, RoutingElement, Services,
};
use weir_units::{Nanos, Timestamp};

/// The default of GUARANTEE.
pub const GUARANTEE_DEFAULT: Nanos = Nanos(Nanos::SECOND.0 * 5);
/// The default of REAP_INTERVAL.
const REAP_DEFAULT: Nanos = Nanos(Nanos::SECOND.0 * 60 * 15);

/// The most rewriters that name each the next one for its table.
const CHAIN_MAX: usize = 100;

/// Returns a number of seconds.
pub const fn seconds(count: u64) -> Nanos {
    Nanos(Nanos::SECOND.0 * count)
}

/// The source of a rewriter's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TableSource {
    /// A table of its own, for this number of mappings.
    Own(u32),
    /// The table of another rewriter, by its index.
    Shared(usize),
}

impl ArgumentValue for TableSource {
    fn parse_argument(text: &str, context: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        if let Ok(capacity) = u32::parse_argument(text, context) {
            return Ok(Self::Own(capacity));
        }
        ElementReference::parse_argument(text, context)
            .map(|element| Self::Shared(element.0))
            .map_err(|_| ArgumentFault::Type("number of mappings, or name of a rewriter"))
    }

    fn placeholder() -> Self {
        Self::Own(0)
    }
}

/// The arguments of all rewriters, beside their timeouts.
pub struct RewriterArguments {
    /// The annotation DST_IP is set.
    sets_destination: bool,
    /// The place of the annotation that replies get from the first packet.
    reply_annotation: Option<usize>,
    source: TableSource,
    reap_interval: Nanos,
}

impl RewriterArguments {
    /// Reads the arguments. `DST_ANNO` is one of rewriters that can leave the annotation.
    pub fn read(args: &mut ElementArguments<'_, '_>, has_destination: bool) -> Self {
        let sets_destination = !has_destination || args.keyword("DST_ANNO").or(true);
        let annotation: Option<AnnotationField<1>> = args.keyword("REPLY_ANNO").optional();
        let source = args.keyword("CAPACITY").or(TableSource::Own(CAPACITY_DEFAULT));
        let source = args.keyword("MAPPING_CAPACITY").or(source);
        let reap_interval = args.keyword("REAP_TIME").or(REAP_DEFAULT);
        let reap_interval = args.keyword("REAP_INTERVAL").or(reap_interval);
        Self { sets_destination, reply_annotation: annotation.map(|it| it.0), source, reap_interval }
    }
}

/// The state of a rewriter, which other elements use as well.
#[derive(Debug)]
pub struct Rewriter {
    form: RewriterForm,
    timeouts: MappingTimeouts,
    table: Rc<RefCell<MappingTable>>,
    source: TableSource,
    /// The number of the rewriter in its table.
    owner: u32,
    inputs: Vec<RewriterInput>,
    outputs: usize,
    sets_destination: bool,
    reply_annotation: Option<usize>,
    reap_interval: Nanos,
    /// The time at which mappings that have expired are removed.
    reap_at: Timestamp,
    /// The state of random numbers.
    random: u64,
    drops: u64,
}

impl Rewriter {
    /// Handles a packet.
    #[inline]
    fn handle(&mut self, input: usize, packet: &mut GraphPacket, now: Timestamp) -> Destination {
        self.reap(now);
        let header = Ipv4Header::of(packet);
        let destination = header.map_or(0, |header| header.destination().to_bits());
        let Some(identified) = header.as_ref().and_then(|header| self.form.identify(header)) else {
            return self.pass(input);
        };
        let form = self.form;
        let table = Rc::clone(&self.table);
        let mut table = table.borrow_mut();
        let (index, is_reply) = match form.find(&identified, destination, self.owner * MAPS, &table) {
            Some(found) => found,
            None if !identified.begins => return self.pass(input),
            None => match self.add(&identified, input, &mut table, now) {
                Ok(index) => {
                    if let Some(place) = self.reply_annotation {
                        table.get_mut(index).reply_annotation = packet.annotations()[place];
                    }
                    (index, false)
                }
                Err(destination) => return destination,
            },
        };
        let mapping = table.get_mut(index);
        let output = mapping.ends[usize::from(is_reply)].output;
        if mapping.tracking == FlowTracking::Tcp
            && let Some(header) = &header
        {
            note_segment(mapping, is_reply, header);
        }
        if !mapping.is_identity || mapping.edits.is_some() {
            let Some(bytes) = packet.network_bytes_mut() else { return Destination::DISCARD };
            form.rewrite(mapping, is_reply, bytes);
            if mapping.edits.is_some() {
                renumber(mapping, is_reply, bytes);
            }
        }
        if mapping.tracking == FlowTracking::Streaming {
            mapping.count_packet(is_reply);
        }
        if self.sets_destination && (self.form != RewriterForm::Address || is_reply) {
            let destination = mapping.rewritten(is_reply).destination;
            packet.annotation_mut(DST_IP).copy_from_slice(&destination.to_be_bytes());
        }
        if let Some(place) = self.reply_annotation.filter(|_| is_reply) {
            packet.annotations_mut()[place] = mapping.reply_annotation;
        }
        table.touch(index, now);
        Destination::output(output.into())
    }

    /// Handles a packet that cannot be rewritten.
    #[cold]
    fn pass(&mut self, input: usize) -> Destination {
        match self.inputs.get(input).map(|input| &input.action) {
            Some(InputAction::Pass(output)) => Destination::output(*output),
            _ => {
                self.drops += 1;
                Destination::DISCARD
            }
        }
    }

    /// Adds a mapping for a packet; returns where the packet goes without one.
    fn add(
        &mut self,
        packet: &IdentifiedPacket,
        input: usize,
        table: &mut MappingTable,
        now: Timestamp,
    ) -> Result<MappingIndex, Destination> {
        let reply_map = self.owner * MAPS + self.form.reply_map(packet);
        let Some(spec) = self.inputs.get_mut(input) else { return Err(Destination::DISCARD) };
        let decision = spec.decide(packet.flow, reply_map, table, &mut self.random);
        let mapping = match decision {
            InputDecision::Drop => {
                self.drops += 1;
                return Err(Destination::DISCARD);
            }
            InputDecision::Pass(output) => return Err(Destination::output(output)),
            InputDecision::Fail => None,
            InputDecision::Map(chosen, outputs) => {
                let input = u16::try_from(input).unwrap_or(u16::MAX);
                self.form.mapping(packet, chosen, outputs, (self.owner, input))
            }
        };
        match mapping.and_then(|mapping| table.insert(mapping, now)) {
            Some(index) => Ok(index),
            None => {
                spec.failures += 1;
                Err(Destination::DISCARD)
            }
        }
    }

    /// Removes mappings that have expired, at the times of REAP_INTERVAL.
    #[inline]
    fn reap(&mut self, now: Timestamp) {
        if now >= self.reap_at && self.reap_interval.0 > 0 {
            let interval = self.reap_interval.0;
            let late = now.0 - self.reap_at.0;
            let last = Timestamp(now.0 - late % interval);
            self.reap_at = Timestamp(last.0.saturating_add(interval));
            self.table.borrow_mut().reap(last);
        }
    }

    /// Returns the number of inputs.
    pub fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// Returns the number of outputs.
    pub fn output_count(&self) -> usize {
        self.outputs
    }

    /// Returns true if the rewriter follows TCP connections.
    pub fn follows_tcp(&self) -> bool {
        matches!(self.form, RewriterForm::Tcp | RewriterForm::TcpAndUdp)
    }

    /// Returns the form.
    pub fn form(&self) -> RewriterForm {
        self.form
    }

    /// Returns the table.
    pub fn table(&self) -> Rc<RefCell<MappingTable>> {
        Rc::clone(&self.table)
    }

    /// Returns the mapping of a flow, and true for the flow of replies. `is_request` distinguishes ICMP echo messages,
    /// whose identifier is the source port.
    pub fn find(&self, protocol: u8, flow: FlowId, is_request: bool) -> Option<(MappingIndex, bool)> {
        let has_protocol = match self.form {
            RewriterForm::TcpAndUdp => matches!(protocol, TCP | UDP),
            RewriterForm::Ping => protocol == ICMP,
            _ => true,
        };
        let table = self.table.borrow();
        let packet = self.form.identified(protocol, flow, is_request);
        let found = self.form.find(&packet, flow.destination, self.owner * MAPS, &table);
        found.filter(|(index, _)| {
            let of_mapping = table.get(*index).protocol;
            let is_of_all = matches!(self.form, RewriterForm::Address | RewriterForm::AddressPair);
            has_protocol && (is_of_all || of_mapping == protocol)
        })
    }

    /// Returns the mapping of a flow, a new one by the specification of an input if there is none.
    pub fn find_or_add(
        &mut self,
        protocol: u8,
        flow: FlowId,
        input: usize,
        now: Timestamp,
    ) -> Option<(MappingIndex, bool)> {
        if let Some(found) = self.find(protocol, flow, true) {
            return Some(found);
        }
        let packet = self.form.identified(protocol, flow, true);
        let table = Rc::clone(&self.table);
        let index = self.add(&packet, input, &mut table.borrow_mut(), now).ok()?;
        Some((index, false))
    }

    /// Returns the mappings as text, a line for each direction.
    fn mappings(&self, map: Option<u32>, now: Timestamp) -> String {
        let table = self.table.borrow();
        let mut text = String::new();
        let first = self.owner * MAPS;
        let is_shown = |mapping: &&FlowMapping| map.is_none_or(|map| mapping.ends[0].map == first + map);
        for mapping in table.owned(self.owner).filter(is_shown) {
            let left = table.end_of(mapping).0.saturating_add(Nanos::SECOND.0 / 2).saturating_sub(now.0);
            for is_reply in [false, true] {
                text.push_str(&self.describe(mapping, is_reply, left / Nanos::SECOND.0));
            }
        }
        text
    }

    fn describe(&self, mapping: &FlowMapping, is_reply: bool, left: u64) -> String {
        let (flow, new) = (mapping.ends[usize::from(is_reply)].flow, mapping.rewritten(is_reply));
        let address = Ipv4Addr::from_bits;
        let flows = match self.form {
            RewriterForm::Address if is_reply => {
                format!("{} => {}", address(flow.destination), address(new.destination))
            }
            RewriterForm::Address => format!("{} => {}", address(flow.source), address(new.source)),
            RewriterForm::AddressPair => {
                let pair = |it: FlowId| format!("({}, {})", address(it.source), address(it.destination));
                format!("{} => {}", pair(flow), pair(new))
            }
            RewriterForm::Ping => {
                let triple = |it: FlowId| {
                    let identifier = if is_reply { it.destination_port } else { it.source_port };
                    format!("({}, {}, {identifier})", address(it.source), address(it.destination))
                };
                format!("{} => {}", triple(flow), triple(new))
            }
            RewriterForm::TcpAndUdp | RewriterForm::Tcp | RewriterForm::Ports => format!("{flow} => {new}"),
        };
        let difference = mapping.edits.as_ref().map_or(0, |edits| edits[usize::from(is_reply)].difference());
        let sequence = if difference == 0 { String::new() } else { format!(" seq {difference:+}") };
        let [forward, reply] = [0, 1].map(|end| mapping.ends[end].output);
        let outputs = if is_reply { format!("{forward} *{reply}") } else { format!("*{forward} {reply}") };
        format!("{flows}{sequence} [{outputs}] i{} exp{left}\n", mapping.input)
    }

    /// Returns an input as the handler `patterns` shows it.
    fn pattern(&self, input: usize) -> Option<String> {
        let text = self.inputs.get(input)?.describe();
        let count = self.table.borrow().count(self.owner, input);
        Some(if count > 0 { format!("{text} [{count}]\n") } else { format!("{text}\n") })
    }

    fn read_handler(
        &mut self,
        name: &str,
        argument: &str,
        cx: &ElementContext<'_>,
    ) -> Option<Result<String, Reason>> {
        let now = cx.services.coarse_now();
        self.reap(now);
        let count = || {
            let table = self.table.borrow();
            (0..self.inputs.len()).map(|input| table.count(self.owner, input)).sum::<u32>()
        };
        Some(Ok(match (name, self.form) {
            ("table_size" | "nmappings", _) => count().to_string(),
            ("mapping_failures", _) => self.inputs.iter().map(|it| it.failures).sum::<u64>().to_string(),
            ("patterns", _) => (0..self.inputs.len()).filter_map(|input| self.pattern(input)).collect(),
            ("size", _) => self.table.borrow().len().to_string(),
            ("capacity", _) => self.table.borrow().capacity().to_string(),
            ("drops", _) => self.drops.to_string(),
            ("tcp_table" | "tcp_mappings", RewriterForm::TcpAndUdp) => self.mappings(Some(0), now),
            ("udp_table" | "udp_mappings", RewriterForm::TcpAndUdp) => self.mappings(Some(1), now),
            ("tcp_lookup", RewriterForm::TcpAndUdp) | ("lookup", RewriterForm::Tcp) => {
                return Some(self.look_up(argument, cx));
            }
            (_, RewriterForm::TcpAndUdp) => return self.pattern(pattern_number(name)?).map(Ok),
            ("table" | "mappings", _) => self.mappings(None, now),
            _ => return self.pattern(pattern_number(name)?).map(Ok),
        }))
    }

    /// Returns the addresses and ports that a TCP flow gets; nothing if it has no mapping.
    fn look_up(&self, argument: &str, cx: &ElementContext<'_>) -> Result<String, Reason> {
        let words: Vec<&str> = split_words(argument).collect();
        let [source, source_port, destination, destination_port] = words[..] else {
            return Err("expected SADDR SPORT DADDR DPORT".to_owned());
        };
        let address = |text: &str| {
            cx.with_argument_context(|context| Ipv4Addr::parse_argument(text, context)).map(Ipv4Addr::to_bits)
        };
        let port = |text: &str| {
            cx.with_argument_context(|context| TcpPort::parse_argument(text, context)).map(|it| it.0)
        };
        let read = || {
            Ok(FlowId {
                source: address(source)?,
                source_port: port(source_port)?,
                destination: address(destination)?,
                destination_port: port(destination_port)?,
            })
        };
        let flow = read().map_err(|fault: ArgumentFault| fault.to_string())?;
        let Some((index, is_reply)) = self.find(TCP, flow, true) else {
            return Ok(String::new());
        };
        let new = self.table.borrow().get(index).rewritten(is_reply);
        let [source, destination] = [new.source, new.destination].map(Ipv4Addr::from_bits);
        Ok(format!("{source} {} {destination} {}", new.source_port, new.destination_port))
    }

    /// Takes the mappings of a rewriter of an earlier graph, as far as their inputs have the same specification.
    fn take(&mut self, earlier: &mut Rewriter) {
        if self.form != earlier.form {
            return;
        }
        self.drops = earlier.drops;
        for (own, other) in self.inputs.iter_mut().zip(&earlier.inputs) {
            own.failures = other.failures;
        }
        let mappings = earlier.table.borrow_mut().take_owned(earlier.owner);
        let has = |its: MappingOutputs| its.iter().all(|it| usize::from(*it) < self.outputs);
        for mut mapping in mappings {
            let input = usize::from(mapping.input);
            let continues = match (self.inputs.get(input), earlier.inputs.get(input)) {
                (Some(own), Some(other)) => own.continues(other),
                _ => false,
            };
            if !continues || !has(mapping.ends.map(|end| end.output)) {
                continue;
            }
            for end in &mut mapping.ends {
                end.map = self.owner * MAPS + end.map % MAPS;
            }
            mapping.owner = self.owner;
            // The clock is not there, so no guarantee ends now.
            self.table.borrow_mut().insert_as_it_is(mapping, Timestamp(0));
        }
    }
}

/// Returns the number of the input whose specification a handler has.
fn pattern_number(name: &str) -> Option<usize> {
    let digits = name.strip_prefix("pattern")?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// A rewriter.
pub struct RewriterElement {
    rewriter: Rc<RefCell<Rewriter>>,
    handlers: &'static [HandlerDefinition],
    /// The names of the handlers of inputs.
    patterns: Vec<String>,
}

/// Makes a rewriter of its remaining arguments.
///
/// # Errors
///
/// Fails with all errors of the arguments.
pub fn build(
    cx: &BuildContext<'_>,
    mut args: ElementArguments<'_, '_>,
    arguments: RewriterArguments,
    form: RewriterForm,
    timeouts: MappingTimeouts,
) -> Result<BuiltElement, ArgumentErrors> {
    let (inputs, outputs) = (cx.ports().sources.len(), cx.ports().targets.len());
    let mut specs = Vec::new();
    let texts = args.rest();
    if texts.len() == inputs {
        for (input, text) in texts.iter().enumerate() {
            match RewriterInput::read(text, outputs, cx.argument_context()) {
                Ok(spec) => specs.push(spec),
                Err(reason) => args.error("", format!("input spec {input}: {reason}")),
            }
        }
    } else {
        args.error("", format!("need {inputs} arguments, one per input port"));
    }
    args.end()?;
    let RewriterArguments { sets_destination, reply_annotation, source, reap_interval } = arguments;
    let capacity = match source {
        TableSource::Own(capacity) => capacity,
        TableSource::Shared(_) => CAPACITY_DEFAULT,
    };
    let rewriter = Rewriter {
        form,
        timeouts,
        table: Rc::new(RefCell::new(MappingTable::new(capacity))),
        source,
        owner: 0,
        inputs: specs,
        outputs,
        sets_destination,
        reply_annotation,
        reap_interval,
        reap_at: Timestamp(0),
        random: 0,
        drops: 0,
    };
    Ok(BuiltElement::routing(RewriterElement {
        rewriter: Rc::new(RefCell::new(rewriter)),
        handlers: handlers_of(form),
        patterns: (0..inputs).map(|input| format!("pattern{input}")).collect(),
    }))
}

const fn handler(name: &'static str, writes: bool, description: &'static str) -> HandlerDefinition {
    HandlerDefinition { name, reads: true, writes, measure: None, description }
}

const fn measure(name: &'static str, kind: MeasureKind, description: &'static str) -> HandlerDefinition {
    HandlerDefinition { measure: Some(kind), ..handler(name, false, description) }
}

macro_rules! with_common {
    ($($own:expr),*) => {
        const {
        &[
            $($own,)*
            handler("table_size", false, "the number of mappings of this rewriter"),
            handler("nmappings", false, "as table_size"),
            measure("mapping_failures", MeasureKind::Counter, "the number of packets that got no mapping"),
            handler("patterns", false, "the specifications of all inputs, with the numbers of their mappings"),
            measure("size", MeasureKind::Gauge, "the number of mappings in the table"),
            handler("capacity", true, "the most mappings in the table"),
            measure("drops", MeasureKind::Counter, "the number of packets that were discarded because they cannot be rewritten"),
            HandlerDefinition { reads: false, ..handler("clear", true, "removes all mappings") },
        ]
        }
    };
}

fn handlers_of(form: RewriterForm) -> &'static [HandlerDefinition] {
    match form {
        RewriterForm::TcpAndUdp => with_common!(
            handler("tcp_table", false, "the mappings of TCP"),
            handler("udp_table", false, "the mappings of UDP"),
            handler("tcp_mappings", false, "as tcp_table"),
            handler("udp_mappings", false, "as udp_table"),
            handler("tcp_lookup", false, "the addresses and ports that a TCP flow gets")
        ),
        RewriterForm::Tcp => with_common!(
            handler("table", false, "the mappings"),
            handler("mappings", false, "as table"),
            handler("lookup", false, "the addresses and ports that a flow gets")
        ),
        _ => with_common!(handler("table", false, "the mappings"), handler("mappings", false, "as table")),
    }
}

/// Returns the state of a rewriter, by the index of its element.
pub fn rewriter_of(element: usize, cx: &mut ElementContext<'_>) -> Option<Rc<RefCell<Rewriter>>> {
    cx.shared_state(element)?.downcast().ok()
}

impl RewriterElement {
    /// Returns the table that the argument names.
    fn table(&self, cx: &mut ElementContext<'_>) -> Result<Rc<RefCell<MappingTable>>, Reason> {
        let mut source = self.rewriter.borrow().source;
        let mut seen = vec![cx.element()];
        let mut table = self.rewriter.borrow().table();
        while let TableSource::Shared(element) = source {
            if element == cx.element() && seen.len() == 1 {
                break;
            }
            if seen.contains(&element) {
                return Err("MAPPING_CAPACITY: rewriters name each other in a circle".to_owned());
            }
            if seen.len() > CHAIN_MAX {
                return Err(format!(
                    "MAPPING_CAPACITY: more than {CHAIN_MAX} rewriters name the next one; name the last one"
                ));
            }
            seen.push(element);
            let other = rewriter_of(element, cx).ok_or("bad MAPPING_CAPACITY: it names no rewriter")?;
            source = other.borrow().source;
            table = other.borrow().table();
            if source == TableSource::Shared(element) {
                break;
            }
        }
        Ok(table)
    }

    fn write_pattern(
        &mut self,
        input: usize,
        value: &str,
        cx: &mut ElementContext<'_>,
    ) -> Result<String, Reason> {
        let at_input = |reason: Reason| format!("input spec {input}: {reason}");
        let outputs = self.rewriter.borrow().outputs;
        let spec = cx.with_argument_context(|context| RewriterInput::read(value, outputs, context));
        let mut spec = spec.map_err(at_input)?;
        spec.resolve(outputs, cx).map_err(at_input)?;
        let mut rewriter = self.rewriter.borrow_mut();
        let owner = rewriter.owner;
        rewriter
            .table
            .borrow_mut()
            .remove_if(|mapping| mapping.owner == owner && usize::from(mapping.input) == input);
        if let Some(place) = rewriter.inputs.get_mut(input) {
            *place = spec;
        }
        Ok(String::new())
    }
}

impl Element for RewriterElement {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        let table = self.table(cx)?;
        let (outputs, mut inputs) = (self.rewriter.borrow().outputs, self.rewriter.borrow().inputs.clone());
        for (index, input) in inputs.iter_mut().enumerate() {
            input.resolve(outputs, cx).map_err(|reason| format!("input spec {index}: {reason}"))?;
        }
        let mut rewriter = self.rewriter.borrow_mut();
        rewriter.owner = table.borrow_mut().add_owner(rewriter.timeouts, inputs.len());
        rewriter.table = table;
        rewriter.inputs = inputs;
        rewriter.random = cx.services.random();
        rewriter.reap_at = Timestamp(cx.services.coarse_now().0.saturating_add(rewriter.reap_interval.0));
        Ok(())
    }

    fn shared_state(&self) -> Option<Rc<dyn Any>> {
        Some(Rc::clone(&self.rewriter) as Rc<dyn Any>)
    }

    fn take_state(&mut self, earlier: &mut dyn Any, _: &mut ElementContext<'_>) {
        let Some(earlier) = earlier.downcast_mut::<Self>() else { return };
        self.rewriter.borrow_mut().take(&mut earlier.rewriter.borrow_mut());
    }

    fn handlers(&self) -> &'static [HandlerDefinition] {
        self.handlers
    }

    fn port_handlers(&self) -> &[String] {
        &self.patterns
    }

    fn read_handler(
        &mut self,
        name: &str,
        argument: &str,
        cx: &mut ElementContext<'_>,
    ) -> Option<Result<String, Reason>> {
        self.rewriter.borrow_mut().read_handler(name, argument, cx)
    }

    fn write_handler(
        &mut self,
        name: &str,
        value: &str,
        cx: &mut ElementContext<'_>,
    ) -> Option<Result<String, Reason>> {
        let now = cx.services.coarse_now();
        Some(match name {
            "capacity" => crate::values::read::<u32>(value).map(|capacity| {
                self.rewriter.borrow().table.borrow_mut().set_capacity(capacity, now);
                String::new()
            }),
            "clear" => {
                self.rewriter.borrow().table.borrow_mut().remove_if(|_| true);
                Ok(String::new())
            }
            _ => {
                let input = pattern_number(name).filter(|input| *input < self.patterns.len())?;
                self.write_pattern(input, value, cx)
            }
        })
    }
}

impl RoutingElement for RewriterElement {
    fn route(&mut self, input: usize, packet: &mut GraphPacket, services: &mut Services) -> Destination {
        self.rewriter.borrow_mut().handle(input, packet, services.coarse_now())
    }
}
