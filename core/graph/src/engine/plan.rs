//! Plans: the elements behind a push output, and the answer to the question if packets go through them in batches.
//!
//! The elements that packets can reach by pushes form a directed graph. An element runs when everything that leads to it
//! has run. So it gets all its packets at once, in the order in which they would come one by one. On a cycle, elements
//! that depend on the order get their packets one at a time: the first of all packets in the cycle, when no other element
//! of the cycle has packets. Everything that comes later comes from later packets.
//!
//! Packets go one by one instead where the order could be seen otherwise: two elements have effects that others can see.

use super::order::{PATH_BITS, bits_of_parts};
use super::ports::PortReference;
use super::router::ElementGraph;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// The reason for which packets go one by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OneByOne {
    /// The effects of two elements could be seen in another order.
    Effects(usize, usize),
    /// An element stops the driver, or calls handlers.
    Control(usize),
    /// Too many packets can come of one.
    Copies,
}

/// The most packets that a batch may become on its way.
const COPIES_MAX: usize = 1 << 16;

/// The elements behind a push output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The elements that packets can reach, in topological order.
    pub reached: Vec<usize>,
    /// The ones of them that store packets, and can be full.
    pub stores: Vec<usize>,
    /// The reason for which packets go one by one; `None` if they go in batches.
    pub one_by_one: Option<OneByOne>,
    /// The most packets of a batch, such that not too many are on their way at a time.
    pub most: usize,
    /// Packets can go around a cycle.
    pub is_cyclic: bool,
    /// The element at the output, or one upstream from which it pulls, has effects that could be seen to come earlier or
    /// later than those of an element behind the output.
    pub alternates: bool,
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
        let (copies, bits) = copies(graph, &reached);
        let one_by_one = one_by_one(graph, &reached)
            .or_else(|| (copies > COPIES_MAX || bits > PATH_BITS).then_some(OneByOne::Copies));
        let is_cyclic = reached.iter().any(|element| graph.ranks[*element].closes_cycle);
        let conflicts = |above: &usize| reached.iter().any(|element| graph.conflict(*above, *element));
        let alternates = upstream(graph, from.element).iter().any(conflicts);
        let stores = reached.iter().copied().filter(|element| graph.is_store[*element]).collect();
        let most = (COPIES_MAX / copies.max(1)).max(1);
        Self { reached, stores, one_by_one, most, is_cyclic, alternates }
    }
}

/// Returns an element, and those from which it pulls.
fn upstream(graph: &ElementGraph, element: usize) -> Vec<usize> {
    let mut all = vec![element];
    let mut seen: BTreeSet<usize> = all.iter().copied().collect();
    let mut next = 0;
    while let Some(element) = all.get(next).copied() {
        next += 1;
        let ports = &graph.ports[element];
        let pulled = ports.inputs_pull.iter().zip(&ports.sources).filter(|(pulls, _)| **pulls);
        let above = pulled.flat_map(|(_, sources)| sources.iter().map(|source| source.element));
        all.extend(above.filter(|it| seen.insert(*it)));
    }
    all
}

/// Returns the most packets that can come of one packet at the first element, and the most bits that their orders need. A
/// way around a cycle counts once.
fn copies(graph: &ElementGraph, reached: &[usize]) -> (usize, u32) {
    let mut all: BTreeMap<usize, (usize, u32)> = BTreeMap::new();
    for element in reached.iter().rev() {
        let behind = graph.push_targets(*element);
        let counts = behind.iter().map(|it| all.get(it).copied().unwrap_or((1, 0)));
        let (sum, most, bits) = counts.fold((0_usize, 1, 0), |(sum, most, bits), (copies, below)| {
            (sum.saturating_add(copies), most.max(copies), bits.max(below))
        });
        let this = match graph.copies[*element] {
            // It goes to one of the outputs.
            None => (most, bits),
            Some(each) => {
                let parts = each.saturating_mul(behind.len());
                (sum.saturating_mul(each).max(1), bits.saturating_add(bits_of_parts(parts)))
            }
        };
        all.insert(*element, this);
    }
    reached.first().and_then(|first| all.get(first).copied()).unwrap_or((1, 0))
}

fn one_by_one(graph: &ElementGraph, reached: &[usize]) -> Option<OneByOne> {
    let mut with_effects: Vec<usize> = Vec::new();
    for element in reached {
        let effects = graph.effects[*element];
        if effects.is_control() {
            return Some(OneByOne::Control(*element));
        }
        if let Some(other) = with_effects.iter().find(|it| graph.conflict(**it, *element)) {
            return Some(OneByOne::Effects(*other, *element));
        }
        if graph.has_effects(*element) {
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
