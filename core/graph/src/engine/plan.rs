//! Plans: the elements behind a push output, and the answer to the question if packets go through them in batches.
//!
//! The elements that packets can reach by pushes form a directed graph. An element runs when everything that leads to it
//! has run. So it gets all its packets at once, in the order in which they would come one by one. On a cycle, elements
//! that depend on the order get their packets one at a time: the first of all packets in the cycle, when no other element
//! of the cycle has packets. Everything that comes later comes from later packets.
//!
//! Packets go one by one instead where the order could be seen otherwise: two elements have effects that others can see.

use super::class::Effects;
use super::ports::PortReference;
use super::router::ElementGraph;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// The reason for which packets go one by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OneByOne {
    /// The effects of two elements could be seen in another order.
    Effects(usize, usize),
    /// An element stops the driver, or calls handlers.
    Control(usize),
}

/// The elements behind a push output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The elements that packets can reach, in topological order.
    pub reached: Vec<usize>,
    /// The reason for which packets go one by one; `None` if they go in batches.
    pub one_by_one: Option<OneByOne>,
}

impl Plan {
    /// Returns the plan for packets of a push output.
    pub fn of(graph: &ElementGraph, from: PortReference) -> Self {
        let Some(first) =
            graph.ports[from.element].targets.get(from.port).and_then(|targets| targets.first())
        else {
            return Self::default();
        };
        let reached = components([first.element], &|element| graph.push_targets(element)).concat();
        let one_by_one = one_by_one(graph, &reached);
        Self { reached, one_by_one }
    }
}

fn one_by_one(graph: &ElementGraph, reached: &[usize]) -> Option<OneByOne> {
    let mut with_effects: Vec<usize> = Vec::new();
    for element in reached {
        let effects = graph.effects[*element];
        if effects.is_control() {
            return Some(OneByOne::Control(*element));
        }
        if let Some(other) = with_effects.iter().find(|it| graph.effects[**it].conflicts_with(effects)) {
            return Some(OneByOne::Effects(*other, *element));
        }
        if effects != Effects::NONE {
            with_effects.push(*element);
        }
    }
    None
}

/// Returns the strongly connected components that can be reached from elements, in topological order.
///
/// - R. Tarjan: "Depth-First Search and Linear Graph Algorithms", SIAM Journal on Computing 1(2), 1972. The recursion is
///   a stack here, since a chain can have as many elements as a graph.
pub(super) fn components(
    roots: impl IntoIterator<Item = usize>,
    targets: &impl Fn(usize) -> Vec<usize>,
) -> Vec<Vec<usize>> {
    struct Visit {
        element: usize,
        targets: Vec<usize>,
        next: usize,
    }
    struct Found {
        index: usize,
        low: usize,
        is_open: bool,
    }
    let mut found: BTreeMap<usize, Found> = BTreeMap::new();
    let mut open: Vec<usize> = Vec::new();
    let mut components: Vec<Vec<usize>> = Vec::new();
    let mut visits: Vec<Visit> = Vec::new();
    let mut roots = roots.into_iter();
    loop {
        let Some(visit) = visits.last_mut() else {
            let Some(root) = roots.next() else { break };
            let index = found.len();
            if let Entry::Vacant(vacant) = found.entry(root) {
                vacant.insert(Found { index, low: index, is_open: true });
                open.push(root);
                visits.push(Visit { element: root, targets: targets(root), next: 0 });
            }
            continue;
        };
        let element = visit.element;
        if let Some(target) = visit.targets.get(visit.next).copied() {
            visit.next += 1;
            let index = found.len();
            match found.get(&target) {
                None => {
                    found.insert(target, Found { index, low: index, is_open: true });
                    open.push(target);
                    visits.push(Visit { element: target, targets: targets(target), next: 0 });
                }
                Some(Found { index, is_open: true, .. }) => {
                    let index = *index;
                    if let Some(this) = found.get_mut(&element) {
                        this.low = this.low.min(index);
                    }
                }
                Some(_) => {}
            }
            continue;
        }
        visits.pop();
        let Some(Found { index, low, .. }) = found.get(&element) else { continue };
        let (index, low) = (*index, *low);
        if let Some(parent) = visits.last().and_then(|parent| found.get_mut(&parent.element)) {
            parent.low = parent.low.min(low);
        }
        if low == index {
            let mut component = Vec::new();
            while let Some(member) = open.pop() {
                if let Some(it) = found.get_mut(&member) {
                    it.is_open = false;
                }
                component.push(member);
                if member == element {
                    break;
                }
            }
            component.sort_unstable();
            components.push(component);
        }
    }
    components.reverse();
    components
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_come_in_topological_order() {
        // 0 -> 1 -> 2 -> 1, 2 -> 3, 0 -> 3, and 4 is not reached.
        let edges: [&[usize]; 5] = [&[1, 3], &[2], &[1, 3], &[], &[0]];
        let found = components([0], &|element| edges[element].to_vec());
        assert_eq!(found, [vec![0], vec![1, 2], vec![3]]);
        // From all elements: one that leads to others comes before them.
        let found = components(0..5, &|element| edges[element].to_vec());
        assert_eq!(found, [vec![4], vec![0], vec![1, 2], vec![3]]);
    }

    #[test]
    fn a_long_chain_needs_no_recursion() {
        let found =
            components([0], &|element| if element < 200_000 { vec![element + 1] } else { Vec::new() });
        assert_eq!(found.len(), 200_001);
        assert!(found.iter().enumerate().all(|(index, component)| component == &[index]));
    }
}
