//! The order in which the elements of a graph run.

use super::class::{Effects, OrderDependence};
use super::plan::components;
use super::router::ElementGraph;

/// The place of an element among all elements of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ElementRank {
    /// The number of the element's strongly connected component: less than those of all elements that its packets reach.
    pub component: u32,
    /// The element needs its packets in the order in which they would come one by one.
    pub is_ordered: bool,
    /// The element is on a cycle.
    pub is_cyclic: bool,
}

/// Returns the ranks of all elements.
pub(super) fn ranks(graph: &ElementGraph) -> Vec<ElementRank> {
    let targets = |element: usize| graph.push_targets(element);
    let count = graph.ports.len();
    let mut ranks = vec![ElementRank { component: 0, is_ordered: false, is_cyclic: false }; count];
    for (component, members) in (0..).zip(components(0..count, &targets)) {
        let is_cyclic = members.len() > 1 || targets(members[0]).contains(&members[0]);
        for element in members {
            let is_ordered = graph.classes[element].order == OrderDependence::Ordered
                || graph.effects[element] != Effects::NONE;
            ranks[element] = ElementRank { component, is_ordered, is_cyclic };
        }
    }
    ranks
}
