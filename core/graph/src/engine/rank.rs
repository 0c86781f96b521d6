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
    /// The element is where a cycle closes: each cycle has such an element.
    pub closes_cycle: bool,
}

/// Returns the ranks of all elements.
pub(super) fn ranks(graph: &ElementGraph) -> Vec<ElementRank> {
    let targets = |element: usize| graph.push_targets(element);
    let count = graph.ports.len();
    let unknown = ElementRank { component: 0, is_ordered: false, is_cyclic: false, closes_cycle: false };
    let mut ranks = vec![unknown; count];
    for (component, members) in (0..).zip(components(0..count, &targets)) {
        let is_cyclic = members.len() > 1 || targets(members[0]).contains(&members[0]);
        for element in members {
            let is_ordered = graph.classes[element].order == OrderDependence::Ordered
                || graph.effects[element] != Effects::NONE;
            ranks[element] = ElementRank { component, is_ordered, is_cyclic, closes_cycle: false };
        }
    }
    for element in closing(count, &targets) {
        ranks[element].closes_cycle = true;
    }
    ranks
}

/// Returns the elements at which cycles close: the targets of the back edges of a depth-first search.
fn closing(count: usize, targets: &impl Fn(usize) -> Vec<usize>) -> Vec<usize> {
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Visit {
        Never,
        /// The search is behind this element.
        Open,
        Done,
    }
    let mut visits = vec![Visit::Never; count];
    let mut closing = Vec::new();
    for root in 0..count {
        if visits[root] != Visit::Never {
            continue;
        }
        visits[root] = Visit::Open;
        let mut open = vec![(root, targets(root).into_iter())];
        while let Some((element, left)) = open.last_mut() {
            match left.next() {
                Some(target) => match visits[target] {
                    Visit::Never => {
                        visits[target] = Visit::Open;
                        open.push((target, targets(target).into_iter()));
                    }
                    Visit::Open => closing.push(target),
                    Visit::Done => {}
                },
                None => {
                    visits[*element] = Visit::Done;
                    open.pop();
                }
            }
        }
    }
    closing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cycle_closes_somewhere() {
        // 0 -> 1 -> 2 -> 1, 2 -> 3 -> 3, 0 -> 3, 4 -> 0.
        let edges: [&[usize]; 5] = [&[1, 3], &[2], &[1, 3], &[3], &[0]];
        assert_eq!(closing(5, &|element| edges[element].to_vec()), [1, 3]);
    }
}
