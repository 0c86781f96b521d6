//! Decisions that are not made twice.
//!
//! Facts along a path decide later tests of the same values, so edges skip these tests (jump threading, as in A. Begel,
//! S. McCanne, S. L. Graham: "BPF+", SIGCOMM 1999). Tests in a row that lead to one node are grouped by value and become tests of sets. Neither changes
//! which packets are accepted: a test moves or goes only where all bytes that it reads are known to be there.

use crate::error::FilterFault;
use crate::graph::{DecisionNode, Graph, NodeId};
use crate::ranges::Ranges;
use crate::value::{Demand, FilterValues, ValueId};
use std::collections::HashMap;

/// Rounds over the graph, at most.
const ROUNDS_MAX: usize = 8;
/// Values that are remembered at one place, at most. The first ones stay: they decide the most.
const KNOWN_MAX: usize = 48;
/// Units of work for one filter; a unit is about the comparison of two ranges. An unfinished optimisation makes the program longer, and nothing else.
const WORK_MAX: usize = 4_000_000;

/// Facts about a packet at a node of the graph.
#[derive(Clone, Debug, Default)]
struct Facts {
    /// The numbers that values can have. Sorted by value.
    known: Vec<(ValueId, Ranges)>,
    /// The bytes that are there, behind bases. Sorted by base.
    bytes: Vec<(Option<ValueId>, u64)>,
    /// Quotients that were computed. Sorted.
    quotients: Vec<ValueId>,
}

impl Facts {
    fn has(&self, demand: &Demand) -> bool {
        match demand {
            Demand::Bytes { base, end } => {
                let at = self.bytes.binary_search_by_key(base, |&(base, _)| base);
                at.ok().and_then(|at| self.bytes.get(at)).is_some_and(|(_, there)| end <= there)
            }
            Demand::Quotient(id) => self.quotients.binary_search(id).is_ok(),
        }
    }

    fn add(&mut self, demand: &Demand) {
        match *demand {
            Demand::Bytes { base, end } => match self.bytes.binary_search_by_key(&base, |&(base, _)| base) {
                Ok(at) => {
                    if let Some((_, there)) = self.bytes.get_mut(at) {
                        *there = end.max(*there);
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

    fn numbers(&self, value: ValueId) -> Option<&Ranges> {
        let at = self.known.binary_search_by_key(&value, |&(value, _)| value).ok()?;
        self.known.get(at).map(|(_, numbers)| numbers)
    }

    fn learn(&mut self, value: ValueId, numbers: Ranges) {
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

    /// Keeps the facts that hold on both of two paths.
    fn meet(&mut self, other: &Self) {
        self.known.retain_mut(|(value, numbers)| match other.numbers(*value) {
            Some(others) => {
                *numbers = numbers.or(others);
                true
            }
            None => false,
        });
        self.bytes.retain_mut(|(base, there)| {
            match other.bytes.binary_search_by_key(base, |&(base, _)| base) {
                Ok(at) => {
                    *there = other.bytes.get(at).map_or(0, |&(_, end)| end).min(*there);
                    true
                }
                Err(_) => false,
            }
        });
        self.quotients.retain(|id| other.quotients.binary_search(id).is_ok());
    }

    fn weight(&self) -> usize {
        1 + self.bytes.len() + self.known.iter().map(|(_, numbers)| 1 + numbers.len()).sum::<usize>()
    }
}

/// Makes the graph smaller and its paths shorter.
pub(crate) fn optimise(graph: &mut Graph, values: &FilterValues) -> Result<(), FilterFault> {
    let mut optimiser = Optimiser { values, demands: HashMap::new(), left: WORK_MAX };
    for _ in 0..ROUNDS_MAX {
        let before = graph.len();
        let threaded = optimiser.pass(graph, Pass::Thread);
        graph.tidy()?;
        let sorted = optimiser.pass(graph, Pass::Sort);
        graph.tidy()?;
        if !threaded && !sorted && graph.len() == before {
            break;
        }
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Thread,
    Sort,
}

struct Optimiser<'a> {
    values: &'a FilterValues,
    demands: HashMap<ValueId, Vec<Demand>>,
    left: usize,
}

impl Optimiser<'_> {
    fn demands(&mut self, value: ValueId) -> &[Demand] {
        self.demands.entry(value).or_insert_with(|| self.values.demands(value))
    }

    /// Takes units of the work that is left; false where there are none.
    fn spend(&mut self, units: usize) -> bool {
        let left = self.left.checked_sub(units);
        self.left = left.unwrap_or(0);
        left.is_some()
    }

    /// Visits each node once, with the facts that hold there. Returns true if it changed the graph.
    fn pass(&mut self, graph: &mut Graph, pass: Pass) -> bool {
        let order = graph.order();
        let mut facts: Vec<Option<Facts>> = Vec::new();
        facts.resize_with(graph.len(), || None);
        if let Some(root) = facts.get_mut(graph.root.index()) {
            *root = Some(Facts::default());
        }
        let mut before = vec![0_u32; graph.len()];
        for id in &order {
            for next in graph.after(*id).into_iter().flatten() {
                if let Some(count) = before.get_mut(next.index()) {
                    *count += 1;
                }
            }
        }
        let (mut changed, mut sorted) = (false, vec![false; graph.len()]);
        for id in order {
            let Some(here) = facts.get_mut(id.index()).and_then(Option::take) else { continue };
            if !self.spend(here.weight()) {
                break;
            }
            if pass == Pass::Sort && !sorted.get(id.index()).copied().unwrap_or(true) {
                changed |= self.sort(graph, id, &here, &before, &mut sorted);
            }
            let mut edges = Vec::new();
            match graph.get(id).clone() {
                DecisionNode::Branch { value, numbers, yes, no } => {
                    let mut there = here;
                    for demand in self.demands(value) {
                        there.add(demand);
                    }
                    let all = Ranges::between(0, self.values.max(value));
                    let possible = there.numbers(value).unwrap_or(&all).clone();
                    let mut otherwise = there.clone();
                    otherwise.learn(value, possible.and(&numbers.not()));
                    there.learn(value, possible.and(&numbers));
                    if !self.spend(numbers.len() + possible.len()) {
                        break;
                    }
                    if pass == Pass::Thread {
                        let new = (self.thread(graph, yes, &there), self.thread(graph, no, &otherwise));
                        changed |= new != (yes, no);
                        graph.set(id, DecisionNode::Branch { value, numbers, yes: new.0, no: new.1 });
                    }
                    if let DecisionNode::Branch { yes, no, .. } = *graph.get(id) {
                        edges.extend([(no, otherwise), (yes, there)]);
                    }
                }
                DecisionNode::Store { word, value, next } => {
                    let mut there = here;
                    for demand in self.demands(value) {
                        there.add(demand);
                    }
                    let next = if pass == Pass::Thread { self.thread(graph, next, &there) } else { next };
                    graph.set(id, DecisionNode::Store { word, value, next });
                    edges.push((next, there));
                }
                DecisionNode::Accept | DecisionNode::Reject => {}
            }
            for (to, known) in edges {
                // An edge that is never taken adds no fact.
                if known.known.iter().any(|(_, numbers)| numbers.is_empty())
                    && facts.get(to.index()).is_some_and(Option::is_some)
                {
                    continue;
                }
                match facts.get_mut(to.index()) {
                    Some(Some(there)) => {
                        self.left = self.left.saturating_sub(there.weight() + known.weight());
                        there.meet(&known);
                    }
                    Some(none) => *none = Some(known),
                    None => {}
                }
            }
        }
        changed
    }

    /// The target of an edge, behind all tests at its end that facts decide.
    fn thread(&mut self, graph: &Graph, mut to: NodeId, facts: &Facts) -> NodeId {
        while let DecisionNode::Branch { value, numbers, yes, no } = graph.get(to) {
            if !self.demands(*value).iter().all(|demand| facts.has(demand)) {
                break;
            }
            let all = Ranges::between(0, self.values.max(*value));
            let possible = facts.numbers(*value).unwrap_or(&all);
            if !self.spend(1 + possible.len().min(numbers.len())) {
                break;
            }
            to = if possible.is_within(numbers) || yes == no {
                *yes
            } else if !possible.meets(numbers) {
                *no
            } else {
                break;
            };
        }
        to
    }

    /// Groups by value a row of tests that begins here. Each of them leads to one common node, or else to the next test. Returns true if it changed the graph.
    fn sort(
        &mut self,
        graph: &mut Graph,
        first: NodeId,
        here: &Facts,
        before: &[u32],
        sorted: &mut [bool],
    ) -> bool {
        let DecisionNode::Branch { yes, no, .. } = *graph.get(first) else { return false };
        let (by_yes, by_no) = (row(graph, first, yes, before), row(graph, first, no, before));
        let (to, (tests, end)) = if by_no.0.len() > by_yes.0.len() { (no, by_no) } else { (yes, by_yes) };
        for (id, ..) in &tests {
            if let Some(sorted) = sorted.get_mut(id.index()) {
                *sorted = true;
            }
        }
        let mut facts = here.clone();
        let mut kept: Vec<(NodeId, ValueId, Ranges)> = Vec::new();
        let (mut place_of, mut last_new) = (HashMap::new(), 0);
        let count = tests.len();
        for (id, value, numbers) in tests {
            let is_new = !self.demands(value).iter().all(|demand| facts.has(demand));
            let same = place_of.get(&value).copied().filter(|&place| place >= last_new);
            match same.and_then(|place: usize| kept.get_mut(place)) {
                // Every test between them looks at bytes that are there.
                Some((.., all)) => {
                    if !self.spend(all.len() + numbers.len()) {
                        return false;
                    }
                    *all = all.or(&numbers);
                }
                None => {
                    place_of.insert(value, kept.len());
                    if is_new {
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

/// Tests from `first` on, each with the numbers that lead to `to`, and the node behind the last one. Nothing else leads to any but the first.
fn row(graph: &Graph, first: NodeId, to: NodeId, before: &[u32]) -> (Vec<(NodeId, ValueId, Ranges)>, NodeId) {
    let (mut tests, mut id) = (Vec::new(), first);
    loop {
        let (value, numbers, next) = match graph.get(id) {
            DecisionNode::Branch { value, numbers, yes, no } if *yes == to => (*value, numbers.clone(), *no),
            DecisionNode::Branch { value, numbers, yes, no } if *no == to => (*value, numbers.not(), *yes),
            _ => return (tests, id),
        };
        tests.push((id, value, numbers));
        if next == to || before.get(next.index()) != Some(&1) {
            return (tests, next);
        }
        id = next;
    }
}
