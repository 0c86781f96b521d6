//! Connections through the inputs and outputs of compound elements and groups.

use super::ElementConnection;
use super::error::LanguageFault;
use super::flatten::{Expanded, Flattener};
use super::landmark::SourcePosition;
use super::limits::{CONNECTION_STEPS_MAX, FLAT_CONNECTIONS_MAX};
use std::collections::HashSet;

/// A node of the expanded graph.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FlatNode {
    /// The element at this index.
    Element(usize),
    /// A compound element, a group, or the `input` or `output` of one.
    Tunnel(TunnelEnds),
    /// A node of which an error was reported.
    Unconnected,
}

/// The nodes at which connections to and from a tunnel go on, on the same port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TunnelEnds {
    /// The node from which a connection to this node goes on.
    pub exit: Option<usize>,
    /// The node to which connections from this node have led.
    pub entry: Option<usize>,
    /// The compound element or group, as an index of [`Flattener::owners`].
    pub owner: usize,
    /// True for `input` and `output`.
    pub is_inner: bool,
}

/// A connection between nodes of the expanded graph.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlatEdge {
    pub from: (usize, u32),
    pub to: (usize, u32),
    pub position: SourcePosition,
}

/// A node and its port.
type PortAt = (usize, u32);

impl Flattener<'_> {
    /// Returns the connections between elements. Reports ports of compound elements without a connection.
    pub fn follow_connections(&mut self) -> Expanded<Vec<ElementConnection>> {
        let sources = self.tunnel_ends(|edge| edge.from, |edge| edge.to);
        let destinations = self.tunnel_ends(|edge| edge.to, |edge| edge.from);
        self.check_ports(&sources, &destinations);

        // Each connection, and the edge that it begins with.
        let mut found: Vec<(PortAt, PortAt, usize)> = Vec::with_capacity(self.edges.len());
        let mut reached = Vec::new();
        let mut steps_left = CONNECTION_STEPS_MAX;
        for index in 0..self.edges.len() {
            let FlatEdge { from, to, position } = self.edges[index];
            let FlatNode::Element(element) = self.nodes[from.0] else { continue };
            let from = (element, from.1);
            if let FlatNode::Element(element) = self.nodes[to.0] {
                found.push((from, (element, to.1), index));
                continue;
            }
            reached.clear();
            let Some(left) = self.destinations(to, &sources, steps_left, &mut reached) else {
                return Err(self.stop(position, "steps through connections", CONNECTION_STEPS_MAX));
            };
            steps_left = left;
            if found.len() + reached.len() > FLAT_CONNECTIONS_MAX {
                return Err(self.stop(position, "connections", FLAT_CONNECTIONS_MAX));
            }
            found.extend(reached.iter().map(|to| (from, *to, index)));
        }
        // Of equal connections, the first one counts.
        let mut order: Vec<usize> = (0..found.len()).collect();
        order.sort_unstable_by_key(|index| (found[*index].0, found[*index].1, *index));
        order.dedup_by_key(|index| (found[*index].0, found[*index].1));
        order.sort_unstable();
        let connection = |index: usize| {
            let (from, to, edge) = found[index];
            ElementConnection { from, to, landmark: self.landmark(self.edges[edge].position) }
        };
        Ok(order.into_iter().map(connection).collect())
    }

    /// Returns the ends of connections that are ports of tunnels, each with the other end, sorted.
    fn tunnel_ends(
        &self,
        end: impl Fn(&FlatEdge) -> PortAt,
        other: impl Fn(&FlatEdge) -> PortAt,
    ) -> Vec<(PortAt, PortAt)> {
        let is_tunnel = |edge: &&FlatEdge| matches!(self.nodes[end(edge).0], FlatNode::Tunnel(_));
        let mut ends: Vec<_> =
            self.edges.iter().filter(is_tunnel).map(|edge| (end(edge), other(edge))).collect();
        ends.sort_unstable();
        ends.dedup();
        ends
    }

    /// Collects the elements that a connection to a tunnel's port leads to. Returns the remaining steps, or `None` if
    /// there are none.
    fn destinations(
        &self,
        to: PortAt,
        sources: &[(PortAt, PortAt)],
        mut steps_left: usize,
        reached: &mut Vec<(usize, u32)>,
    ) -> Option<usize> {
        // Tunnels can form a cycle.
        let mut visited = HashSet::from([to]);
        let mut waiting = vec![to];
        while let Some((node, port)) = waiting.pop() {
            steps_left = steps_left.checked_sub(1)?;
            match self.nodes[node] {
                FlatNode::Element(element) => reached.push((element, port)),
                FlatNode::Tunnel(TunnelEnds { exit: Some(exit), .. }) => {
                    for (_, next) in range_of(sources, (exit, port)).iter().rev() {
                        if visited.insert(*next) {
                            waiting.push(*next);
                        }
                    }
                }
                _ => {}
            }
        }
        Some(steps_left)
    }

    /// Reports each used port of a tunnel that has no connection on the other side.
    fn check_ports(&mut self, sources: &[(PortAt, PortAt)], destinations: &[(PortAt, PortAt)]) {
        let mut faults = Vec::new();
        let mut last = None;
        for (ends, others, is_source) in [(sources, destinations, true), (destinations, sources, false)] {
            for ((node, port), _) in ends {
                if last.replace((*node, *port, is_source)) == Some((*node, *port, is_source)) {
                    continue;
                }
                let FlatNode::Tunnel(tunnel) = self.nodes[*node] else { continue };
                let Some(other) = (if is_source { tunnel.entry } else { tunnel.exit }) else { continue };
                if matches!(self.nodes[other], FlatNode::Tunnel(_))
                    && range_of(others, (other, *port)).is_empty()
                {
                    faults.push((tunnel, *port, is_source));
                }
            }
        }
        // In the order of the compound elements.
        faults.sort_by_key(|(tunnel, port, is_source)| (tunnel.owner, *is_source, *port));
        for (tunnel, port, is_source) in faults {
            let (name, position) = &self.owners[tunnel.owner];
            let (element, position) = (name.to_string(), *position);
            let fault = if tunnel.is_inner {
                LanguageFault::PortUnused { element, is_output: !is_source, port }
            } else {
                LanguageFault::NoSuchPort { element, is_output: is_source, port }
            };
            self.error(position, fault);
        }
    }
}

/// Returns the part of a sorted list with this first end.
fn range_of(ends: &[(PortAt, PortAt)], wanted: PortAt) -> &[(PortAt, PortAt)] {
    let start = ends.partition_point(|(end, _)| *end < wanted);
    let len = ends[start..].partition_point(|(end, _)| *end == wanted);
    &ends[start..start + len]
}
