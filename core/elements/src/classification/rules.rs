//! Rules, and the structure that finds the first one that matches a packet.

use super::expression::{PacketParts, Part, PatternExpression};
use super::program::Program;
use super::table::CubeTable;

/// A rule: packets for which the condition is true go to the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternRule {
    /// The condition.
    pub condition: PatternExpression,
    /// The output, or [`NO_OUTPUT`].
    pub output: u16,
}

/// The output of packets that are discarded.
pub const NO_OUTPUT: u16 = u16::MAX;

/// Returns the output of a pattern, by its index, in elements with an output for each pattern.
///
/// # Errors
///
/// Fails if there are too many patterns.
pub fn output_of(index: usize) -> Result<u16, String> {
    let output = u16::try_from(index).ok().filter(|output| *output != NO_OUTPUT);
    output.ok_or_else(|| format!("there can be {NO_OUTPUT} patterns"))
}

/// All rules of an element as one structure: a table of bytes, or, if that would be too large, a graph of tests.
#[derive(Debug)]
pub struct RuleSet {
    rules: Vec<PatternRule>,
    table: Option<CubeTable>,
    program: Program,
    /// The numbers of rules that no packet can match.
    dead: Vec<usize>,
    uses_link: bool,
}

impl RuleSet {
    /// Compiles rules. Packets that match none are discarded.
    pub fn new(rules: Vec<PatternRule>) -> Self {
        let program = Program::new(&rules, NO_OUTPUT);
        let mut can_match = vec![false; rules.len()];
        let table = CubeTable::new(&rules, NO_OUTPUT, &mut can_match);
        let is_dead = |rule: &usize| (table.is_some() && !can_match[*rule]) || !program.can_match(*rule);
        let dead = (0..rules.len()).filter(is_dead).collect();
        let uses_link = program.uses(Part::Link);
        Self { rules, table, program, dead, uses_link }
    }

    /// Returns the numbers of rules that no packet can match, as far as that was found.
    pub fn dead(&self) -> &[usize] {
        &self.dead
    }

    /// Returns true if rules look at the link header.
    #[inline]
    pub fn uses_link(&self) -> bool {
        self.uses_link
    }

    /// Returns the output of the first rule that matches.
    #[inline(always)]
    pub fn decide(&self, parts: &PacketParts<'_>) -> u16 {
        match &self.table {
            Some(table) => table.decide(parts),
            None => self.program.decide(parts),
        }
    }

    /// Returns the same by the graph of tests.
    pub fn decide_by_tests(&self, parts: &PacketParts<'_>) -> u16 {
        self.program.decide(parts)
    }

    /// Returns the same by testing one rule after another.
    pub fn decide_one_by_one(&self, parts: &PacketParts<'_>) -> u16 {
        let first = self.rules.iter().find(|rule| rule.condition.is_true(parts));
        first.map_or(NO_OUTPUT, |rule| rule.output)
    }

    /// Returns true if the rules are a table.
    pub fn is_table(&self) -> bool {
        self.table.is_some()
    }

    /// Returns the graph of tests as text. The offsets of [`PacketParts::main`] count from `main_offset`.
    pub fn program(&self, main_offset: u32) -> String {
        self.program.text(main_offset)
    }
}
