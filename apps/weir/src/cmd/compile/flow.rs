//! The natural loops of a function in machine code: a jump back to an instruction that every path to the jump passes.

use super::reason::ReasonedInstruction;
use iced_x86::FlowControl;
use std::collections::{BTreeMap, BTreeSet};

/// The most blocks that are visited to find the bodies of one function's loops. Loops beyond it have empty bodies.
const VISITS_MAX: usize = 1 << 20;

/// A natural loop.
pub(super) struct NaturalLoop {
    /// The index of the first instruction.
    pub(super) head: usize,
    /// The index of the last jump to it.
    pub(super) last_jump: usize,
    /// The ranges of the instructions in the loop, by index.
    pub(super) body: Vec<std::ops::Range<usize>>,
}

/// The control-flow graph of a function. Block 0 is its entry.
struct FlowGraph {
    /// The index of the first instruction of each block, and at the end the number of instructions.
    starts: Vec<usize>,
    successors: Vec<Vec<usize>>,
    predecessors: Vec<Vec<usize>>,
}

/// Returns the natural loops of a function, by their first instruction.
pub(super) fn natural_loops(instructions: &[ReasonedInstruction<'_>]) -> Vec<NaturalLoop> {
    let graph = FlowGraph::new(instructions);
    let order = graph.postorder();
    let dominators = graph.immediate_dominators(&order);
    let mut number = vec![0; graph.successors.len()];
    for (place, block) in order.iter().enumerate() {
        number[*block] = place;
    }
    let mut visits_left = VISITS_MAX;
    let mut jumps_by_head: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (block, successors) in graph.successors.iter().enumerate() {
        // A jump back leads to a block that the search finishes later.
        for head in successors.iter().filter(|head| number[**head] >= number[block]) {
            if dominates(&dominators, *head, block) {
                jumps_by_head.entry(*head).or_default().push(block);
            }
        }
    }
    let loops = jumps_by_head.into_iter().map(|(head, jumps)| NaturalLoop {
        head: graph.starts[head],
        last_jump: jumps.iter().max().map_or(0, |block| graph.starts[block + 1] - 1),
        body: graph
            .body(head, jumps, &mut visits_left)
            .into_iter()
            .map(|block| graph.starts[block]..graph.starts[block + 1])
            .collect(),
    });
    loops.collect()
}

/// Returns true if every path from the entry to `block` passes `head`. An unreachable block has no dominator.
fn dominates(dominators: &[Option<usize>], head: usize, block: usize) -> bool {
    let mut at = block;
    loop {
        if at == head {
            return dominators[at].is_some();
        }
        match dominators[at] {
            Some(next) if next != at => at = next,
            _ => return false,
        }
    }
}

impl FlowGraph {
    fn new(instructions: &[ReasonedInstruction<'_>]) -> Self {
        let by_offset: BTreeMap<u64, usize> = instructions
            .iter()
            .enumerate()
            .map(|(index, at)| (at.explained.facts.offset.into(), index))
            .collect();
        let target = |index: usize| {
            let decoded = &instructions[index].decoded;
            by_offset.get(&decoded.near_branch_target()).copied()
        };
        let flow = |index: usize| instructions[index].decoded.flow_control();
        let jumps =
            |index| matches!(flow(index), FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch);
        let mut leaders = BTreeSet::from([0]);
        for index in 0..instructions.len() {
            if jumps(index) {
                leaders.extend(target(index));
            }
            if !matches!(flow(index), FlowControl::Next | FlowControl::Call) {
                leaders.insert(index + 1);
            }
        }
        let mut starts: Vec<usize> =
            leaders.into_iter().filter(|leader| *leader < instructions.len()).collect();
        let count = starts.len();
        starts.push(instructions.len());
        let mut graph =
            Self { starts, successors: vec![Vec::new(); count], predecessors: vec![Vec::new(); count] };
        for block in 0..count {
            let last = graph.starts[block + 1] - 1;
            let falls_through =
                matches!(flow(last), FlowControl::Next | FlowControl::Call | FlowControl::ConditionalBranch);
            let next = (falls_through && block + 1 < count).then_some(block + 1);
            let jump = if jumps(last) { target(last) } else { None };
            let jump = jump.and_then(|target| graph.starts.binary_search(&target).ok());
            for successor in next.into_iter().chain(jump) {
                graph.successors[block].push(successor);
                graph.predecessors[successor].push(block);
            }
        }
        graph
    }

    /// Returns the reachable blocks in postorder of a depth-first search.
    fn postorder(&self) -> Vec<usize> {
        let mut order = Vec::new();
        let mut seen = vec![false; self.successors.len()];
        let mut path = Vec::new();
        if let Some(entry) = seen.first_mut() {
            *entry = true;
            path.push((0, 0));
        }
        while let Some((block, next)) = path.last_mut() {
            let successor = self.successors[*block].get(*next).copied();
            *next += 1;
            match successor {
                Some(successor) if !seen[successor] => {
                    seen[successor] = true;
                    path.push((successor, 0));
                }
                Some(_) => {}
                None => {
                    order.push(*block);
                    path.pop();
                }
            }
        }
        order
    }

    /// Returns the immediate dominator of each block; that of the entry is itself (K. Cooper, T. Harvey, K. Kennedy, "A
    /// simple, fast dominance algorithm", 2001).
    fn immediate_dominators(&self, order: &[usize]) -> Vec<Option<usize>> {
        let mut number = vec![0; self.successors.len()];
        for (place, block) in order.iter().enumerate() {
            number[*block] = place;
        }
        let mut dominators: Vec<Option<usize>> = vec![None; self.successors.len()];
        if let Some(entry) = dominators.first_mut() {
            *entry = Some(0);
        }
        let mut changed = true;
        while changed {
            changed = false;
            for block in order.iter().rev().filter(|block| **block != 0) {
                let known = self.predecessors[*block].iter().filter(|before| dominators[**before].is_some());
                let common = known.copied().reduce(|mut one, mut other| {
                    while one != other {
                        let lower = if number[one] < number[other] { &mut one } else { &mut other };
                        *lower = dominators[*lower].unwrap_or(0);
                    }
                    one
                });
                if dominators[*block] != common {
                    dominators[*block] = common;
                    changed = true;
                }
            }
        }
        dominators
    }

    /// Returns the blocks from which a path leads to the jumps without passing the head, and the head.
    fn body(&self, head: usize, jumps: Vec<usize>, visits_left: &mut usize) -> BTreeSet<usize> {
        let mut body = BTreeSet::from([head]);
        let mut open = jumps;
        while let Some(block) = open.pop() {
            if body.insert(block) {
                let Some(left) = visits_left.checked_sub(1) else { return BTreeSet::new() };
                *visits_left = left;
                open.extend(&self.predecessors[block]);
            }
        }
        body
    }
}
