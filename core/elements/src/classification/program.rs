//! Rules as a graph of tests, in which a test that earlier ones decide is left out.

use super::expression::{PacketParts, Part, PatternExpression, PatternRelation, PatternTest};
use super::rules::PatternRule;
use std::collections::{BTreeSet, HashMap};
use std::fmt::{self, Write};

/// The most facts that are kept about the packets that reach a test.
const FACTS_MAX: usize = 48;

/// The most tests that are skipped at a time.
const SKIPS_MAX: usize = 256;

/// The continuation after a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Next {
    Node(u32),
    /// The rule of this number matches.
    Rule(u32),
    /// No rule matches.
    End,
}

/// A test, which is not negated, and what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Node {
    test: PatternTest,
    /// The continuations after a false test, a true one, and one of missing bytes.
    next: [Next; 3],
}

const NO: usize = 0;
const YES: usize = 1;
const MISSING: usize = 2;

/// A test whose result is known.
type Fact = (PatternTest, usize);

/// The graph. Each node comes before those that follow it.
#[derive(Debug)]
pub struct Program {
    nodes: Vec<Node>,
    entry: Next,
    outputs: Vec<u16>,
    otherwise: u16,
}

impl Program {
    /// Compiles rules.
    pub fn new(rules: &[PatternRule], otherwise: u16) -> Self {
        let mut builder = Builder::default();
        let mut entry = Next::End;
        for (index, rule) in rules.iter().enumerate().rev() {
            let matches = Next::Rule(u32::try_from(index).unwrap_or(u32::MAX));
            entry = builder.compile(&rule.condition, matches, entry);
        }
        // Nodes were made from the end.
        let count = builder.nodes.len();
        let turned = |next: Next| match next {
            Next::Node(at) => Next::Node(u32::try_from(count - 1).unwrap_or(u32::MAX) - at),
            other => other,
        };
        let mut nodes: Vec<Node> = builder.nodes.iter().rev().copied().collect();
        for node in &mut nodes {
            node.next = node.next.map(turned);
        }
        let outputs = rules.iter().map(|rule| rule.output).collect();
        let mut program = Self { nodes, entry: turned(entry), outputs, otherwise };
        program.skip_known();
        program.drop_unreached();
        program
    }

    /// Returns the output of the first rule that matches.
    pub fn decide(&self, parts: &PacketParts<'_>) -> u16 {
        let mut next = self.entry;
        loop {
            match next {
                Next::Node(at) => {
                    let Node { test, next: after } = &self.nodes[at as usize];
                    next = after[test.result(parts.get(test.part)).map_or(MISSING, usize::from)];
                }
                Next::Rule(rule) => return self.outputs[rule as usize],
                Next::End => return self.otherwise,
            }
        }
    }

    /// Returns true if the graph leads to a rule.
    pub fn can_match(&self, rule: usize) -> bool {
        let is_rule = |next: &Next| matches!(next, Next::Rule(it) if *it as usize == rule);
        is_rule(&self.entry) || self.nodes.iter().any(|node| node.next.iter().any(is_rule))
    }

    /// Returns true if tests look at this part of packets.
    pub fn uses(&self, part: Part) -> bool {
        self.nodes.iter().any(|node| node.test.part == part)
    }

    /// Leads each result of a test past those tests that the results before decide.
    fn skip_known(&mut self) {
        // The facts that are true on every way to a node. None for a node that no way reaches so far.
        let mut facts: Vec<Option<Vec<Fact>>> = vec![None; self.nodes.len()];
        if let Next::Node(at) = self.entry {
            facts[at as usize] = Some(Vec::new());
        }
        for at in 0..self.nodes.len() {
            let Some(before) = facts[at].take() else { continue };
            let test = self.nodes[at].test;
            for result in [NO, YES, MISSING] {
                let mut known = before.clone();
                if known.len() == FACTS_MAX {
                    known.remove(0);
                }
                known.push((test, result));
                let next = self.after(self.nodes[at].next[result], &known);
                self.nodes[at].next[result] = next;
                if let Next::Node(to) = next {
                    match &mut facts[to as usize] {
                        Some(all) => all.retain(|fact| known.contains(fact)),
                        none => *none = Some(known),
                    }
                }
            }
        }
    }

    fn after(&self, mut next: Next, known: &[Fact]) -> Next {
        for _ in 0..SKIPS_MAX {
            let Next::Node(at) = next else { break };
            let node = &self.nodes[at as usize];
            match decided(node, known) {
                Some(result) => next = node.next[result],
                // All results lead to the same place.
                None if node.next == [node.next[NO]; 3] => next = node.next[NO],
                None => break,
            }
        }
        next
    }

    fn drop_unreached(&mut self) {
        let mut reached = BTreeSet::new();
        if let Next::Node(at) = self.entry {
            reached.insert(at);
        }
        for (at, node) in (0..).zip(&self.nodes) {
            if reached.contains(&at) {
                reached.extend(node.next.iter().filter_map(|next| match next {
                    Next::Node(to) => Some(*to),
                    _ => None,
                }));
            }
        }
        let places: HashMap<u32, u32> = reached.iter().copied().zip(0..).collect();
        let moved = |next: Next| match next {
            Next::Node(at) => places.get(&at).map_or(Next::End, |at| Next::Node(*at)),
            other => other,
        };
        let kept = reached.iter().map(|at| {
            let node = self.nodes[*at as usize];
            Node { next: node.next.map(moved), ..node }
        });
        let kept = kept.collect();
        self.entry = moved(self.entry);
        self.nodes = kept;
    }
}

/// Returns the result of a node's test, if facts decide it.
fn decided(node: &Node, known: &[Fact]) -> Option<usize> {
    let test = &node.test;
    known.iter().rev().find_map(|(fact, result)| {
        if fact == test {
            return Some(*result);
        }
        if fact.part != test.part {
            return None;
        }
        let has_bytes = *result != MISSING && test.needed_bytes() <= fact.needed_bytes();
        if *result == MISSING {
            return (fact.needed_bytes() <= test.needed_bytes()).then_some(MISSING);
        }
        let is_comparable = fact.offset == test.offset
            && fact.relation == PatternRelation::Equal
            && test.relation == PatternRelation::Equal;
        if !is_comparable {
            return None;
        }
        // A test that is certainly not true is false, or bytes are missing.
        let not_true = (has_bytes || node.next[MISSING] == node.next[NO]).then_some(NO);
        let (both, differ) = (fact.mask & test.mask, fact.value ^ test.value);
        match *result {
            YES if differ & both != 0 => not_true,
            YES if has_bytes && test.mask & !fact.mask == 0 => Some(YES),
            NO if fact.mask & !test.mask == 0 && differ & fact.mask == 0 => not_true,
            _ => None,
        }
    })
}

/// Makes nodes from the end: what follows a test is there before it.
#[derive(Default)]
struct Builder {
    nodes: Vec<Node>,
    known: HashMap<Node, u32>,
}

impl Builder {
    fn compile(&mut self, condition: &PatternExpression, yes: Next, no: Next) -> Next {
        match condition {
            PatternExpression::Constant(value) => {
                if *value {
                    yes
                } else {
                    no
                }
            }
            PatternExpression::Not(inner) => self.compile(inner, no, yes),
            PatternExpression::And(list) => {
                list.iter().rev().fold(yes, |next, it| self.compile(it, next, no))
            }
            PatternExpression::Or(list) => list.iter().rev().fold(no, |next, it| self.compile(it, yes, next)),
            PatternExpression::If(all) => {
                let [condition, then, otherwise] = &**all;
                let otherwise = self.compile(otherwise, yes, no);
                let then = self.compile(then, yes, no);
                self.compile(condition, then, otherwise)
            }
            PatternExpression::PatternTest(test) => {
                // The opposite of a test is false, too, if bytes are missing.
                let next = if test.negated { [yes, no, no] } else { [no, yes, no] };
                let node = Node { test: PatternTest { negated: false, ..*test }, next };
                let nodes = &mut self.nodes;
                Next::Node(*self.known.entry(node).or_insert_with(|| {
                    nodes.push(node);
                    u32::try_from(nodes.len() - 1).unwrap_or(u32::MAX)
                }))
            }
        }
    }
}

impl Program {
    fn write(&self, f: &mut String, main_offset: u32) -> fmt::Result {
        let shown = |next: Next| match next {
            Next::Node(at) => format!("step {at}"),
            Next::Rule(rule) => match self.outputs[rule as usize] {
                super::rules::NO_OUTPUT => "[X]".to_owned(),
                output => format!("[{output}]"),
            },
            Next::End => "[X]".to_owned(),
        };
        if self.nodes.is_empty() {
            writeln!(f, "all->{}", shown(self.entry))?;
        }
        for (at, Node { test, next }) in self.nodes.iter().enumerate() {
            let start = match test.part {
                Part::Link => 0,
                Part::Main => main_offset,
                Part::Transport => 512,
            };
            let relation = if test.relation == PatternRelation::Greater { ">" } else { "" };
            write!(
                f,
                "{at:2} {:3}/{relation}{:08x}%{:08x}  yes->{}  no->{}",
                start + u32::from(test.offset),
                test.value & test.mask,
                test.mask,
                shown(next[YES]),
                shown(next[NO])
            )?;
            if next[MISSING] == next[YES] {
                f.write_str("  short->yes")?;
            }
            f.write_str("\n")?;
        }
        let of_part = |part: Part, start: u32| {
            let needed = self.nodes.iter().filter(move |node| node.test.part == part);
            needed.map(move |node| start as usize + node.test.needed_bytes()).max().unwrap_or(0)
        };
        let safe =
            of_part(Part::Main, main_offset).max(of_part(Part::Transport, 512)).max(of_part(Part::Link, 0));
        writeln!(f, "safe length {safe}\nalignment offset 0")
    }

    /// Returns the graph as text in the form of Click's programs, a line for each test. Offsets of the main part of
    /// packets count from `main_offset`, those in the transport header from 512.
    pub fn text(&self, main_offset: u32) -> String {
        let mut text = String::new();
        // Writing to a text does not fail.
        _ = self.write(&mut text, main_offset);
        text
    }
}
