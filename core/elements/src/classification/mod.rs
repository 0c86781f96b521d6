//! Elements that choose an output by the bytes of packets.
//!
//! Their patterns become conditions (`expression`), and all conditions of an element one structure (`rules`): a table of
//! the bytes that they look at (`table`, made of `cubes`), or a graph of tests (`program`) if the table would be large.

mod bytes;
mod cubes;
mod expression;
mod fields;
mod ip;
mod pattern;
mod primitive;
mod program;
mod rules;
mod table;
mod words;

pub use expression::{PacketParts, Part, PatternExpression, PatternRelation, PatternTest};
pub(crate) use fields::{field_name, named_field};
pub(crate) use primitive::Field;
pub use rules::{NO_OUTPUT, PatternRule, RuleSet};

pub(crate) use words::{TCP, TCP_OR_UDP, TRANSPORT, UDP};

use weir_graph::arguments::{ArgumentContext, NoNames};
use weir_graph::engine::ElementClass;
use weir_graph::language::Landmark;

/// The classes of this folder.
pub const CLASSES: &[&ElementClass] = &[&bytes::CLASS, &ip::CLASSIFIER, &ip::FILTER];

/// Compiles the arguments of an `IPFilter`, without names that other elements define.
///
/// # Errors
///
/// Fails with the first error.
pub fn ip_filter(arguments: &[&str], outputs: usize) -> Result<RuleSet, String> {
    let landmark = Landmark { file: "rules".into(), line: 0 };
    let context = ArgumentContext { element: "", class: "IPFilter", landmark: &landmark, names: &NoNames };
    let rules = arguments.iter().map(|argument| ip::filter_rule(argument, outputs, &context));
    Ok(RuleSet::new(rules.collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests;
