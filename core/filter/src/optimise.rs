//! The optimiser: removes decisions that earlier decisions imply.
//!
//! Two kinds of passes alternate. The first one is jump threading (A. Begel, S. McCanne, S. L. Graham: "BPF+", SIGCOMM
//! 1999): the tests along a path decide later tests of the same values, so edges skip the later tests. The second one
//! merges consecutive tests of one value that lead to the same node, into one test for a set of numbers. Neither
//! changes the accepted packets: a test is moved or removed only if all bytes that it reads are known to exist.

use crate::error::FilterFault;
use crate::graph::{DecisionNode, Graph, NodeId};
use crate::ranges::Ranges;
use crate::value::{Demand, FilterValueId, FilterValues};
use std::collections::HashMap;

/// The most rounds over the graph.
const ROUNDS_MAX: usize = 8;
/// The most values with facts at one node. Facts about further values are ignored: tests of values that come first
/// decide the most.
const KNOWN_MAX: usize = 48;
/// The units of work for one filter; a unit is about the time to compare two ranges. When all units are spent, the
/// optimiser stops, and the program stays longer.
const WORK_MAX: usize = 4_000_000;

/// Facts about a packet at a node of the graph.
#[derive(Clone, Debug, Default)]
struct PathFacts {
    /// The possible numbers of values, sorted by value.
    known: Vec<(FilterValueId, Ranges)>,
    /// The number of bytes known to exist after each base, sorted by base.
    bytes: Vec<(Option<FilterValueId>, u64)>,
    /// The values that are quotients with a divisor which is known to be nonzero, sorted.
    quotients: Vec<FilterValueId>,
}

impl PathFacts {
    /// Returns true if the facts show that a demand is met.
    fn show_met(&self, demand: &Demand) -> bool {
        match demand {
            Demand::Bytes { base, end } => {
                let at = self.bytes.binary_search_by_key(base, |&(base, _)| base);
                at.ok().and_then(|at| self.bytes.get(at)).is_some_and(|(_, known_end)| end <= known_end)
            }
            Demand::Quotient(id) => self.quotients.binary_search(id).is_ok(),
        }
    }

    /// Adds the fact that a demand is met.
    fn add(&mut self, demand: &Demand) {
        match *demand {
            Demand::Bytes { base, end } => match self.bytes.binary_search_by_key(&base, |&(base, _)| base) {
                Ok(at) => {
                    if let Some((_, known_end)) = self.bytes.get_mut(at) {
                        *known_end = end.max(*known_end);
                    }
                }
                Err(at) => self.bytes.insert(at, (base, end)),
            },
            Demand::Quotient(id) => {
                if let Err(at) = self.quotients.binary_search(&id) {
                    self.quotients.insert(at, id);
                }
            }
        }
    }

    /// The possible numbers of a value, if there is a fact about it.
    fn numbers(&self, value: FilterValueId) -> Option<&Ranges> {
        let at = self.known.binary_search_by_key(&value, |&(value, _)| value).ok()?;
        self.known.get(at).map(|(_, numbers)| numbers)
    }

    /// Sets the possible numbers of a value.
    fn restrict(&mut self, value: FilterValueId, numbers: Ranges) {
        match self.known.binary_search_by_key(&value, |&(value, _)| value) {
            Ok(at) => {
                if let Some((_, known)) = self.known.get_mut(at) {
                    *known = numbers;
                }
            }
            Err(at) if self.known.len() < KNOWN_MAX => self.known.insert(at, (value, numbers)),
            Err(_) => {}
        }
    }

    /// Keeps the facts that hold on both paths.
    fn intersect(&mut self, other: &Self) {
        self.known.retain_mut(|(value, numbers)| match other.numbers(*value) {
            Some(others) => {
                *numbers = numbers.or(others);
                true
            }
            None => false,
        });
        self.bytes.retain_mut(|(base, known_end)| {
            match other.bytes.binary_search_by_key(base, |&(base, _)| base) {
                Ok(at) => {
                    *known_end = other.bytes.get(at).map_or(0, |&(_, end)| end).min(*known_end);
                    true
                }
                Err(_) => false,
            }
        });
        self.quotients.retain(|id| other.quotients.binary_search(id).is_ok());
    }

    /// The units of work for handling these facts.
    fn weight(&self) -> usize {
        1 + self.bytes.len() + self.known.iter().map(|(_, numbers)| 1 + numbers.len()).sum::<usize>()
    }
}

/// Makes the graph smaller and its paths shorter.
pub(crate) fn optimise(graph: &mut Graph, values: &FilterValues) -> Result<(), FilterFault> {
    let mut optimiser = Optimiser { values, demands: HashMap::new(), remaining: WORK_MAX };
    for _ in 0..ROUNDS_MAX {
        let before = graph.len();
        let threaded = optimiser.pass(graph, Pass::Thread);
        graph.compact()?;
        let merged = optimiser.pass(graph, Pass::Merge);
        graph.compact()?;
        if !threaded && !merged && graph.len() == before {
            break;
        }
    }
    Ok(())
}

/// A kind of pass over the graph.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Jump threading.
    Thread,
    /// Merges consecutive tests of one value.
    Merge,
}

/// The state of optimising one filter.
struct Optimiser<'a> {
    values: &'a FilterValues,
    /// The demands of each value, computed on first use.
    demands: HashMap<FilterValueId, Vec<Demand>>,
    /// The remaining units of work.
    remaining: usize,
}

impl Optimiser<'_> {
    fn demands(&mut self, value: FilterValueId) -> &[Demand] {
        self.demands.entry(value).or_insert_with(|| self.values.demands(value))
    }

    /// Takes units of the remaining work; returns false where too few are left.
    fn spend(&mut self, units: usize) -> bool {
        let remaining = self.remaining.checked_sub(units);
        self.remaining = remaining.unwrap_or(0);
        remaining.is_some()
    }

    /// Visits each node once, with the facts that hold at it. Returns true if the graph has changed.
    fn pass(&mut self, graph: &mut Graph, pass: Pass) -> bool {
        let order = graph.topological_order();
        let mut facts: Vec<Option<PathFacts>> = Vec::new();
        facts.resize_with(graph.len(), || None);
        if let Some(root) = facts.get_mut(graph.root.index()) {
            *root = Some(PathFacts::default());
        }
        let mut predecessors = vec![0_u32; graph.len()];
        for id in &order {
            for next in graph.successors(*id).into_iter().flatten() {
                if let Some(count) = predecessors.get_mut(next.index()) {
                    *count += 1;
                }
            }
        }
        let (mut changed, mut is_merged) = (false, vec![false; graph.len()]);
        for id in order {
            let Some(here) = facts.get_mut(id.index()).and_then(Option::take) else { continue };
            if !self.spend(here.weight()) {
                break;
            }
            if pass == Pass::Merge && !is_merged.get(id.index()).copied().unwrap_or(true) {
                changed |= self.merge_tests(graph, id, &here, &predecessors, &mut is_merged);
            }
            let mut edges = Vec::new();
            match graph.get(id).clone() {
                DecisionNode::Branch { value, numbers, yes, no } => {
                    let mut if_yes = here;
                    for demand in self.demands(value) {
                        if_yes.add(demand);
                    }
                    let all = Ranges::between(0, self.values.max(value));
                    let possible = if_yes.numbers(value).unwrap_or(&all).clone();
                    let mut if_no = if_yes.clone();
                    if_no.restrict(value, possible.and(&numbers.not()));
                    if_yes.restrict(value, possible.and(&numbers));
                    if !self.spend(numbers.len() + possible.len()) {
                        break;
                    }
                    if pass == Pass::Thread {
                        let new = (self.thread(graph, yes, &if_yes), self.thread(graph, no, &if_no));
                        changed |= new != (yes, no);
                        graph.set(id, DecisionNode::Branch { value, numbers, yes: new.0, no: new.1 });
                    }
                    if let DecisionNode::Branch { yes, no, .. } = *graph.get(id) {
                        edges.extend([(no, if_no), (yes, if_yes)]);
                    }
                }
                DecisionNode::Store { word, value, next } => {
                    let mut after = here;
                    for demand in self.demands(value) {
                        after.add(demand);
                    }
                    let next = if pass == Pass::Thread { self.thread(graph, next, &after) } else { next };
                    graph.set(id, DecisionNode::Store { word, value, next });
                    edges.push((next, after));
                }
                DecisionNode::Accept | DecisionNode::Reject => {}
            }
            for (to, known) in edges {
                // An edge that is never taken does not weaken the facts at its target.
                if known.known.iter().any(|(_, numbers)| numbers.is_empty())
                    && facts.get(to.index()).is_some_and(Option::is_some)
                {
                    continue;
                }
                match facts.get_mut(to.index()) {
                    Some(Some(at_target)) => {
                        self.remaining = self.remaining.saturating_sub(at_target.weight() + known.weight());
                        at_target.intersect(&known);
                    }
                    Some(none) => *none = Some(known),
                    None => {}
                }
            }
        }
        changed
    }

    /// The node that an edge to `to` can lead to instead: the first node from `to` on whose test the facts do not decide.
    fn thread(&mut self, graph: &Graph, mut to: NodeId, facts: &PathFacts) -> NodeId {
        while let DecisionNode::Branch { value, numbers, yes, no } = graph.get(to) {
            if !self.demands(*value).iter().all(|demand| facts.show_met(demand)) {
                break;
            }
            let all = Ranges::between(0, self.values.max(*value));
            let possible = facts.numbers(*value).unwrap_or(&all);
            if !self.spend(1 + possible.len().min(numbers.len())) {
                break;
            }
            to = if possible.is_within(numbers) || yes == no {
                *yes
            } else if !possible.intersects(numbers) {
                *no
            } else {
                break;
            };
        }
        to
    }

    /// Merges the tests of the same value in the row of tests that begins with `first`. All tests of a row lead to one
    /// common node or to the next test of the row. Returns true if the graph has changed.
    fn merge_tests(
        &mut self,
        graph: &mut Graph,
        first: NodeId,
        here: &PathFacts,
        predecessors: &[u32],
        is_merged: &mut [bool],
    ) -> bool {
        let DecisionNode::Branch { yes, no, .. } = *graph.get(first) else { return false };
        let (by_yes, by_no) =
            (test_row(graph, first, yes, predecessors), test_row(graph, first, no, predecessors));
        let (to, (tests, end)) = if by_no.0.len() > by_yes.0.len() { (no, by_no) } else { (yes, by_yes) };
        for (id, ..) in &tests {
            if let Some(is_merged) = is_merged.get_mut(id.index()) {
                *is_merged = true;
            }
        }
        let mut facts = here.clone();
        let mut kept: Vec<(NodeId, FilterValueId, Ranges)> = Vec::new();
        let (mut index_of, mut last_new) = (HashMap::new(), 0);
        let count = tests.len();
        for (id, value, numbers) in tests {
            let reads_new_bytes = !self.demands(value).iter().all(|demand| facts.show_met(demand));
            let same = index_of.get(&value).copied().filter(|&index| index >= last_new);
            match same.and_then(|index: usize| kept.get_mut(index)) {
                // All tests since the earlier test of the value read bytes that are known to exist, so this test can
                // move.
                Some((.., all)) => {
                    if !self.spend(all.len() + numbers.len()) {
                        return false;
                    }
                    *all = all.or(&numbers);
                }
                None => {
                    index_of.insert(value, kept.len());
                    if reads_new_bytes {
                        last_new = kept.len();
                        for demand in self.demands(value) {
                            facts.add(demand);
                        }
                    }
                    kept.push((id, value, numbers));
                }
            }
        }
        let changed = kept.len() < count;
        if changed {
            let mut next = end;
            for (id, value, numbers) in kept.into_iter().rev() {
                graph.set(id, DecisionNode::Branch { value, numbers, yes: to, no: next });
                next = id;
            }
        }
        changed
    }
}

/// The row of tests from `first` on that lead to `to` or to the next test: the node, the value, and the numbers that
/// lead to `to`; and the node after the last test. All tests but the first one have only one predecessor.
fn test_row(
    graph: &Graph,
    first: NodeId,
    to: NodeId,
    predecessors: &[u32],
) -> (Vec<(NodeId, FilterValueId, Ranges)>, NodeId) {
    let (mut tests, mut id) = (Vec::new(), first);
    loop {
        let (value, numbers, next) = match graph.get(id) {
            DecisionNode::Branch { value, numbers, yes, no } if *yes == to => (*value, numbers.clone(), *no),
            DecisionNode::Branch { value, numbers, yes, no } if *no == to => (*value, numbers.not(), *yes),
            _ => return (tests, id),
        };
        tests.push((id, value, numbers));
        if next == to || predecessors.get(next.index()) != Some(&1) {
            return (tests, next);
        }
        id = next;
    }
}
