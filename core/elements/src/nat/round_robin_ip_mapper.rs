//! `RoundRobinIPMapper`: patterns that a rewriter takes in turns.

use super::flow_id::FlowId;
use super::input::{InputDecision, PatternInput};
use super::mapping_table::MappingTable;
use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;
use weir_graph::arguments::text::split_words;
use weir_graph::engine::{
    BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement,
    OrderDependence, Reason,
};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "RoundRobinIPMapper",
    ports: "0/0",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E5,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "\
has a rewriter take patterns in turns

RoundRobinIPMapper(PATTERN1, ..., PATTERNn)

The name of a RoundRobinIPMapper can be a specification of IPRewriter and its relatives. For each new flow, the rewriter \
takes the next PATTERN of which addresses and ports are free. That distributes flows over several servers, for example.

A PATTERN is SADDR SPORT DADDR DPORT FOUTPUT ROUTPUT as in IPRewriter, without the word pattern, or the name of a pattern \
of IPRewriterPatterns with FOUTPUT and ROUTPUT.",
    build: |cx| {
        let mut args = cx.arguments();
        let texts = args.rest();
        if texts.is_empty() {
            args.error("", "no patterns given");
        }
        let mut patterns = Vec::new();
        for text in texts {
            let words: Vec<&str> = split_words(&text).collect();
            match PatternInput::read(&words, None, cx.argument_context()) {
                Ok(pattern) => patterns.push(pattern),
                Err(reason) => args.error("", reason),
            }
        }
        args.end()?;
        let state = RoundRobin { name: cx.name().to_owned(), patterns, next: 0 };
        Ok(BuiltElement::emitting(RoundRobinIpMapper(Rc::new(RefCell::new(state)))))
    },
};

/// Patterns that are taken in turns.
#[derive(Debug)]
pub struct RoundRobin {
    name: String,
    patterns: Vec<PatternInput>,
    next: usize,
}

impl RoundRobin {
    /// Checks that a rewriter has the outputs of all patterns.
    ///
    /// # Errors
    ///
    /// Fails with the first pattern whose outputs do not exist.
    pub fn check_outputs(&self, outputs: usize) -> Result<(), Reason> {
        let has_all = |it: &PatternInput| it.outputs.iter().all(|output| usize::from(*output) < outputs);
        match self.patterns.iter().position(|it| !has_all(it)) {
            Some(index) => Err(format!(
                "output port out of range in {} :: RoundRobinIPMapper pattern {index}",
                self.name
            )),
            None => Ok(()),
        }
    }

    /// Decides about a flow without a mapping.
    pub fn decide(
        &mut self,
        flow: FlowId,
        reply_map: u32,
        table: &mut MappingTable,
        random: &mut u64,
    ) -> InputDecision {
        for _ in 0..self.patterns.len() {
            let pattern = &self.patterns[self.next];
            self.next = (self.next + 1) % self.patterns.len();
            if let Some(chosen) = pattern.choose(flow, reply_map, table, random) {
                return InputDecision::Map(chosen, pattern.outputs);
            }
        }
        InputDecision::Fail
    }
}

struct RoundRobinIpMapper(Rc<RefCell<RoundRobin>>);

impl Element for RoundRobinIpMapper {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        self.0.borrow_mut().patterns.iter_mut().try_for_each(|pattern| pattern.resolve(cx))
    }

    fn shared_state(&self) -> Option<Rc<dyn Any>> {
        Some(Rc::clone(&self.0) as Rc<dyn Any>)
    }

    fn take_state(&mut self, earlier: &mut dyn Any, _: &mut ElementContext<'_>) {
        if let Some(earlier) = earlier.downcast_mut::<Self>() {
            let mut state = self.0.borrow_mut();
            state.next = earlier.0.borrow().next % state.patterns.len().max(1);
        }
    }
}

impl EmittingElement for RoundRobinIpMapper {}
