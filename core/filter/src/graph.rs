//! The decision graph: each node tests one value and leads to one of two later nodes.

use crate::condition::{Condition, ConditionId, Conditions};
use crate::error::FilterFault;
use crate::ranges::Ranges;
use crate::value::FilterValueId;
use std::collections::HashMap;

/// The most nodes of one filter.
const NODES_MAX: usize = 40_000;

/// The identifier of a node in its [`Graph`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeId(usize);

/// A node of the decision graph.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum DecisionNode {
    Reject,
    Accept,
    /// Leads to `yes` where the value is one of the numbers, else to `no`.
    Branch {
        value: FilterValueId,
        numbers: Ranges,
        yes: NodeId,
        no: NodeId,
    },
    /// Stores a value and leads to `next`.
    Store {
        word: u8,
        value: FilterValueId,
        next: NodeId,
    },
}

/// The decision graph of a filter, without duplicate nodes.
#[derive(Debug)]
pub(crate) struct Graph {
    nodes: Vec<DecisionNode>,
    pub(crate) root: NodeId,
}

impl NodeId {
    pub(crate) const REJECT: Self = Self(0);
    pub(crate) const ACCEPT: Self = Self(1);

    pub(crate) fn index(self) -> usize {
        self.0
    }
}

/// Builds a graph without duplicate nodes.
struct Builder {
    nodes: Vec<DecisionNode>,
    known: HashMap<DecisionNode, NodeId>,
}

impl Builder {
    fn new() -> Self {
        Self { nodes: vec![DecisionNode::Reject, DecisionNode::Accept], known: HashMap::new() }
    }

    fn node(&mut self, node: DecisionNode) -> Result<NodeId, FilterFault> {
        if let Some(&id) = self.known.get(&node) {
            return Ok(id);
        }
        if self.nodes.len() >= NODES_MAX {
            return Err(FilterFault::TooComplex);
        }
        let id = NodeId(self.nodes.len());
        self.known.insert(node.clone(), id);
        self.nodes.push(node);
        Ok(id)
    }

    /// Makes the nodes that evaluate a condition. They lead to `yes` if the condition holds, else to `no`. `done` holds
    /// the results of earlier calls.
    fn lower(
        &mut self,
        code: &Conditions,
        (mut id, mut yes, mut no): (ConditionId, NodeId, NodeId),
        done: &mut HashMap<(ConditionId, NodeId, NodeId), NodeId>,
    ) -> Result<NodeId, FilterFault> {
        let key = (id, yes, no);
        if let Some(&node) = done.get(&key) {
            return Ok(node);
        }
        let node = loop {
            match code.get(id) {
                Condition::Always(holds) => break if holds { yes } else { no },
                Condition::Test(value, numbers) => {
                    break self.node(DecisionNode::Branch { value, numbers, yes, no })?;
                }
                Condition::Store { word, value } => {
                    break self.node(DecisionNode::Store { word, value, next: yes })?;
                }
                Condition::Not(of) => (id, yes, no) = (of, no, yes),
                Condition::And(a, b) => (id, yes) = (a, self.lower(code, (b, yes, no), done)?),
                Condition::Or(a, b) => (id, no) = (a, self.lower(code, (b, yes, no), done)?),
                Condition::If(test, a, b) => {
                    let (a, b) =
                        (self.lower(code, (a, yes, no), done)?, self.lower(code, (b, yes, no), done)?);
                    (id, yes, no) = (test, a, b);
                }
            }
        };
        done.insert(key, node);
        Ok(node)
    }
}

impl Graph {
    /// Lowers a condition to a graph that accepts the packets for which it holds.
    pub(crate) fn new(code: &Conditions, condition: ConditionId) -> Result<Self, FilterFault> {
        let mut builder = Builder::new();
        let root = builder.lower(code, (condition, NodeId::ACCEPT, NodeId::REJECT), &mut HashMap::new())?;
        Ok(Self { nodes: builder.nodes, root })
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn get(&self, id: NodeId) -> &DecisionNode {
        self.nodes.get(id.0).unwrap_or(&DecisionNode::Reject)
    }

    pub(crate) fn set(&mut self, id: NodeId, node: DecisionNode) {
        if let Some(old) = self.nodes.get_mut(id.0) {
            *old = node;
        }
    }

    /// The successors of a node, `no` before `yes`.
    pub(crate) fn successors(&self, id: NodeId) -> [Option<NodeId>; 2] {
        match *self.get(id) {
            DecisionNode::Branch { yes, no, .. } => [Some(no), Some(yes)],
            DecisionNode::Store { next, .. } => [Some(next), None],
            DecisionNode::Accept | DecisionNode::Reject => [None, None],
        }
    }

    /// All reachable nodes in topological order. `yes` comes directly after its node where possible.
    pub(crate) fn topological_order(&self) -> Vec<NodeId> {
        let (mut seen, mut order) = (vec![false; self.nodes.len()], Vec::new());
        let mut stack = vec![(self.root, 0)];
        if let Some(seen) = seen.get_mut(self.root.0) {
            *seen = true;
        }
        while let Some((id, i)) = stack.pop() {
            match self.successors(id).get(i) {
                None => order.push(id),
                Some(next) => {
                    stack.push((id, i + 1));
                    if let Some(next) = *next
                        && let Some(seen) = seen.get_mut(next.0)
                        && !std::mem::replace(seen, true)
                    {
                        stack.push((next, 0));
                    }
                }
            }
        }
        order.reverse();
        order
    }

    /// Removes unreachable nodes, and merges equal ones.
    pub(crate) fn compact(&mut self) -> Result<(), FilterFault> {
        let mut builder = Builder::new();
        let mut new = vec![NodeId::REJECT; self.nodes.len()];
        for id in self.topological_order().into_iter().rev() {
            let to = |id: NodeId| new.get(id.0).copied().unwrap_or(NodeId::REJECT);
            let node = match self.get(id).clone() {
                DecisionNode::Reject => NodeId::REJECT,
                DecisionNode::Accept => NodeId::ACCEPT,
                DecisionNode::Branch { value, numbers, yes, no } => {
                    builder.node(DecisionNode::Branch { value, numbers, yes: to(yes), no: to(no) })?
                }
                DecisionNode::Store { word, value, next } => {
                    builder.node(DecisionNode::Store { word, value, next: to(next) })?
                }
            };
            if let Some(new_id) = new.get_mut(id.0) {
                *new_id = node;
            }
        }
        let root = new.get(self.root.0).copied().unwrap_or(NodeId::REJECT);
        *self = Self { nodes: builder.nodes, root };
        Ok(())
    }
}
