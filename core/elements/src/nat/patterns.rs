//! `IPRewriterPatterns`: patterns that rewriters share.

use super::pattern::RewriterPattern;
use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use weir_graph::arguments::text::split_words;
use weir_graph::engine::{
    BuiltElement, Effects, Element, ElementClass, ElementCost, EmittingElement, OrderDependence,
};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "IPRewriterPatterns",
    ports: "0/0",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
names patterns for rewriters

IPRewriterPatterns(NAME PATTERN, ...)

IPRewriter and its relatives can have NAME instead of a pattern: `pattern NAME FOUTPUT ROUTPUT`. All of them choose ports and \
addresses from the same pattern, in one sequence. A PATTERN is SADDR SPORT DADDR DPORT as in IPRewriter, or SADDR DADDR \
as in IPAddrRewriter. In a compound element a name is known there, and in compound elements within.",
    build: |cx| {
        let mut args = cx.arguments();
        let mut patterns = NamedPatterns::default();
        for text in args.rest() {
            let words: Vec<&str> = split_words(&text).collect();
            let [name, ref pattern @ ..] = words[..] else { continue };
            let full = format!("{}{name}", cx.scope());
            // A graph on several threads is made twice, with the names of the first time.
            let other = cx.argument_context().names.pattern(&full).filter(|other| *other != cx.element());
            if other.is_some() || patterns.contains_key(&full) {
                args.error("", format!("pattern '{name}' already defined"));
                continue;
            }
            match RewriterPattern::read(pattern, cx.argument_context()) {
                Ok(pattern) => {
                    cx.services.names.patterns.insert(full.clone(), cx.element());
                    patterns.insert(full, Rc::new(RefCell::new(pattern)));
                }
                Err(reason) => args.error("", reason),
            }
        }
        args.end()?;
        Ok(BuiltElement::emitting(RewriterPatterns(Rc::new(patterns))))
    },
};

/// Patterns by their full names.
pub type NamedPatterns = BTreeMap<String, Rc<RefCell<RewriterPattern>>>;

struct RewriterPatterns(Rc<NamedPatterns>);

impl Element for RewriterPatterns {
    fn shared_state(&self) -> Option<Rc<dyn Any>> {
        Some(Rc::clone(&self.0) as Rc<dyn Any>)
    }
}

impl EmittingElement for RewriterPatterns {}
