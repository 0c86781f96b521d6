//! Specifications of inputs: the decision of a rewriter about packets without a mapping.

use super::flow_id::FlowId;
use super::mapping_table::MappingTable;
use super::pattern::RewriterPattern;
use super::patterns::NamedPatterns;
use super::round_robin_ip_mapper::RoundRobin;
use std::cell::RefCell;
use std::rc::Rc;
use weir_graph::arguments::text::split_words;
use weir_graph::arguments::{ArgumentContext, ArgumentValue, ElementReference, PatternReference};
use weir_graph::engine::{ElementContext, Reason};

/// The outputs of a mapping: that of the forward direction, and that of replies.
pub type MappingOutputs = [u16; 2];

/// A pattern of a specification, with the outputs of its mappings.
#[derive(Clone, Debug)]
pub struct PatternInput {
    /// The pattern, once it is found.
    pattern: Option<Rc<RefCell<RewriterPattern>>>,
    /// The name of a pattern that an IPRewriterPatterns has.
    name: Option<String>,
    /// The outputs.
    pub outputs: MappingOutputs,
}

/// The decision about packets without a mapping.
#[derive(Clone, Debug)]
pub enum InputAction {
    /// They are discarded.
    Drop,
    /// They go to an output as they are.
    Pass(usize),
    /// They get a mapping that changes nothing.
    Keep(MappingOutputs),
    /// They get a mapping by a pattern.
    Pattern(PatternInput),
    /// They get a mapping from another element, once that is found.
    Mapper(usize, Option<Rc<RefCell<RoundRobin>>>),
}

/// The specification of an input.
#[derive(Clone, Debug)]
pub struct RewriterInput {
    /// The decision.
    pub action: InputAction,
    /// The text, with single spaces.
    text: String,
    /// The number of packets that got no mapping although they were to get one.
    pub failures: u64,
}

/// The part of a mapping that an input decides about.
pub enum InputDecision {
    /// The packet is discarded.
    Drop,
    /// There is no free address or port.
    Fail,
    /// The packet goes to an output as it is.
    Pass(usize),
    /// The flow gets these addresses and ports, and its packets and replies these outputs.
    Map(FlowId, MappingOutputs),
}

const OUT_OF_RANGE: &str = "output port out of range";

/// Reads the outputs of a mapping.
fn read_outputs(words: &[&str], outputs: Option<usize>) -> Result<MappingOutputs, Reason> {
    let number = |text: &str| text.parse::<i32>().ok();
    let [forward, reply] = *words else { return Err("bad forward port".to_owned()) };
    let forward = number(forward).ok_or("bad forward port")?;
    let reply = number(reply).ok_or("bad reply port")?;
    let port = |port: i32| {
        let port = u16::try_from(port).ok();
        port.filter(|port| outputs.is_none_or(|outputs| usize::from(*port) < outputs)).ok_or(OUT_OF_RANGE)
    };
    Ok([port(forward)?, port(reply)?])
}

impl PatternInput {
    /// Reads a pattern, or the name of one, and outputs.
    ///
    /// # Errors
    ///
    /// Fails with a reason for another text.
    pub fn read(
        words: &[&str],
        outputs: Option<usize>,
        context: &ArgumentContext<'_>,
    ) -> Result<Self, Reason> {
        let Some((words, ports)) = words.split_last_chunk::<2>().filter(|(words, _)| !words.is_empty())
        else {
            return Err("syntax error".to_owned());
        };
        let (pattern, name) = match *words {
            [name] => (None, Some(name.to_owned())),
            _ => (Some(Rc::new(RefCell::new(RewriterPattern::read(words, context)?))), None),
        };
        Ok(Self { pattern, name, outputs: read_outputs(ports, outputs)? })
    }

    /// Checks that the named pattern exists.
    fn check_name(&self, context: &ArgumentContext<'_>) -> Result<(), Reason> {
        let Some(name) = &self.name else { return Ok(()) };
        PatternReference::parse_argument(name, context).map(|_| ()).map_err(|fault| fault.to_string())
    }

    /// Finds the named pattern.
    ///
    /// # Errors
    ///
    /// Fails with a reason if there is none.
    pub fn resolve(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        let Some(name) = &self.name else { return Ok(()) };
        let found = cx.with_argument_context(|context| PatternReference::parse_argument(name, context));
        let found = found.map_err(|fault| fault.to_string())?;
        let state = cx.shared_state(found.element);
        let patterns = state.and_then(|state| state.downcast::<NamedPatterns>().ok());
        self.pattern = patterns.and_then(|patterns| patterns.get(&found.name).cloned());
        self.pattern.as_ref().map(|_| ()).ok_or_else(|| format!("no such pattern '{name}'"))
    }

    /// Chooses addresses and ports for a flow.
    pub fn choose(
        &self,
        flow: FlowId,
        reply_map: u32,
        table: &mut MappingTable,
        random: &mut u64,
    ) -> Option<FlowId> {
        self.pattern.as_ref()?.borrow_mut().choose(flow, reply_map, table, random)
    }

    /// Returns the pattern as text.
    pub fn describe(&self) -> String {
        self.pattern.as_ref().map_or_else(String::new, |pattern| pattern.borrow().to_string())
    }
}

impl RewriterInput {
    /// Reads a specification for a rewriter with this number of outputs.
    ///
    /// # Errors
    ///
    /// Fails with a reason for a wrong one.
    pub fn read(text: &str, outputs: usize, context: &ArgumentContext<'_>) -> Result<Self, Reason> {
        let words: Vec<&str> = split_words(text).collect();
        let [kind, ref rest @ ..] = words[..] else { return Err("empty argument".to_owned()) };
        let action = match kind {
            "pass" | "passthrough" | "nochange" => {
                let output = match *rest {
                    [] => Some(0),
                    [output] => output.parse::<i32>().ok(),
                    _ => None,
                };
                let output = output.ok_or("syntax error, expected 'nochange [OUTPUT]'")?;
                let output = usize::try_from(output).ok().filter(|output| *output < outputs);
                InputAction::Pass(output.ok_or(OUT_OF_RANGE)?)
            }
            "keep" => InputAction::Keep(read_outputs(rest, Some(outputs))?),
            "drop" | "discard" if rest.is_empty() => InputAction::Drop,
            "drop" | "discard" => return Err(format!("syntax error, expected '{kind}'")),
            "pattern" | "xpattern" => {
                let pattern = PatternInput::read(rest, Some(outputs), context)?;
                pattern.check_name(context)?;
                InputAction::Pattern(pattern)
            }
            name => match ElementReference::parse_argument(name, context) {
                Ok(_) if !rest.is_empty() => return Err("syntax error, expected element name".to_owned()),
                Ok(mapper) => InputAction::Mapper(mapper.0, None),
                Err(_) => return Err("unknown specification".to_owned()),
            },
        };
        Ok(Self { action, text: words.join(" "), failures: 0 })
    }

    /// Finds the elements that the specification names. `outputs` is the number of the rewriter's outputs.
    ///
    /// # Errors
    ///
    /// Fails with a reason if an element is no mapper, or has other outputs than the rewriter.
    pub fn resolve(&mut self, outputs: usize, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        match &mut self.action {
            InputAction::Pattern(pattern) => pattern.resolve(cx),
            InputAction::Mapper(element, found) => {
                let state = cx.shared_state(*element);
                let state = state.and_then(|state| state.downcast::<RefCell<RoundRobin>>().ok());
                let mapper = state.ok_or("element is not an IPMapper")?;
                mapper.borrow().check_outputs(outputs)?;
                *found = Some(mapper);
                Ok(())
            }
            InputAction::Drop | InputAction::Pass(_) | InputAction::Keep(_) => Ok(()),
        }
    }

    /// Decides about a flow without a mapping.
    pub fn decide(
        &self,
        flow: FlowId,
        reply_map: u32,
        table: &mut MappingTable,
        random: &mut u64,
    ) -> InputDecision {
        match &self.action {
            InputAction::Drop => InputDecision::Drop,
            InputAction::Pass(output) => InputDecision::Pass(*output),
            InputAction::Keep(outputs) => InputDecision::Map(flow, *outputs),
            InputAction::Pattern(pattern) => match pattern.choose(flow, reply_map, table, random) {
                Some(chosen) => InputDecision::Map(chosen, pattern.outputs),
                None => InputDecision::Fail,
            },
            InputAction::Mapper(_, mapper) => mapper.as_ref().map_or(InputDecision::Fail, |mapper| {
                mapper.borrow_mut().decide(flow, reply_map, table, random)
            }),
        }
    }

    /// Returns the specification as the handler `patterns` shows it.
    pub fn describe(&self) -> String {
        match &self.action {
            InputAction::Drop => "<drop>".to_owned(),
            InputAction::Pass(_) => "<nochange>".to_owned(),
            InputAction::Keep(_) => "<keep>".to_owned(),
            InputAction::Pattern(pattern) => pattern.describe(),
            InputAction::Mapper(..) => "<mapper>".to_owned(),
        }
    }

    /// Returns true if mappings of another specification are mappings of this one as well.
    pub fn continues(&self, earlier: &Self) -> bool {
        self.text == earlier.text && self.describe() == earlier.describe()
    }
}
