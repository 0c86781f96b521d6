//! The connections between two lists of elements.

use super::connection::{ConnectedNode, PortList};
use super::{LanguageParser, Parsed};
use crate::language::body::BodyConnection;
use crate::language::error::LanguageFault;
use crate::language::limits::PORT_MAX;
use crate::language::token::{LanguageToken, Symbol};

/// One side of a connection: a list of elements, and how its ports are counted.
struct ConnectionSide<'n> {
    nodes: &'n [ConnectedNode],
    ports: fn(&ConnectedNode) -> &PortList,
    /// The ports that the text names; an element without ports counts as one.
    count: usize,
    /// True if one of its lists can have more ports.
    expands: bool,
}

impl<'n> ConnectionSide<'n> {
    fn new(nodes: &'n [ConnectedNode], ports: fn(&ConnectedNode) -> &PortList) -> Self {
        let count = nodes.iter().map(|node| ports(node).ports.len().max(1)).sum();
        let expands = nodes.iter().any(|node| ports(node).is_open);
        Self { nodes, ports, count, expands }
    }

    fn open_lists(&self) -> usize {
        self.nodes.iter().filter(|node| (self.ports)(node).is_open).count()
    }

    /// Returns true for one element without any ports, which `=>` gives as many as it needs.
    fn is_one_without_ports(&self) -> bool {
        self.count == 1 && self.nodes.first().is_some_and(|node| (self.ports)(node).ports.is_empty())
    }

    /// Returns the ports in order, with `more` ports after those of the list that expands.
    fn expanded(&self, more: usize) -> Vec<(usize, u32)> {
        let mut all = Vec::with_capacity(self.count + more);
        let is_alone = self.nodes.len() == 1;
        for node in self.nodes {
            let list = (self.ports)(node);
            let written: &[u32] = if list.ports.is_empty() { &[0] } else { &list.ports };
            all.extend(written.iter().map(|port| (node.node, *port)));
            if list.is_open || (is_alone && self.expands && list.ports.is_empty()) {
                let next = written.last().map_or(0, |last| last.saturating_add(1));
                all.extend((next..).take(more).map(|port| (node.node, port)));
            }
        }
        all
    }
}

impl LanguageParser<'_> {
    /// Connects the outputs of the elements before an arrow to the inputs of those after it.
    pub(super) fn connect_all(
        &mut self,
        from: &[ConnectedNode],
        to: &[ConnectedNode],
        arrow: LanguageToken,
    ) -> Parsed {
        let position = self.scanner.position(arrow);
        let mut outputs = ConnectionSide::new(from, |node| &node.outputs);
        let mut inputs = ConnectionSide::new(to, |node| &node.inputs);
        if outputs.open_lists() + inputs.open_lists() > 1 {
            self.error(position, LanguageFault::TwoExpandable);
            return Ok(());
        }
        if arrow.is(Symbol::DoubleArrow) {
            let spread = |one: &ConnectionSide<'_>, other: &ConnectionSide<'_>| {
                one.is_one_without_ports() && other.count > 1
            };
            let (of_outputs, of_inputs) = (spread(&outputs, &inputs), spread(&inputs, &outputs));
            outputs.expands |= of_outputs;
            inputs.expands |= of_inputs;
        }
        let many_outputs = outputs.count > 1 || outputs.expands;
        let many_inputs = inputs.count > 1 || inputs.expands;
        let more = |one: &ConnectionSide<'_>, other: &ConnectionSide<'_>| {
            if one.expands { other.count.saturating_sub(one.count) } else { 0 }
        };
        let (more_outputs, more_inputs) = (more(&outputs, &inputs), more(&inputs, &outputs));
        if many_outputs && many_inputs {
            if !arrow.is(Symbol::DoubleArrow) {
                self.error(position, LanguageFault::ManyToMany);
                return Ok(());
            }
            if outputs.count + more_outputs != inputs.count + more_inputs {
                let fault = LanguageFault::Mismatch {
                    outputs: outputs.count,
                    outputs_expand: outputs.expands,
                    inputs: inputs.count,
                    inputs_expand: inputs.expands,
                };
                self.error(position, fault);
                return Ok(());
            }
        }
        let froms = outputs.expanded(more_outputs);
        let tos = inputs.expanded(more_inputs);
        let count = froms.len().max(tos.len());
        self.count_connections(count, position)?;
        // Only a list that expands can get here with such a port.
        if let Some((_, port)) = froms.iter().chain(&tos).find(|(_, port)| *port > PORT_MAX) {
            self.error(position, LanguageFault::PortTooHigh(port.to_string()));
            return Ok(());
        }
        let body = &mut self.bodies[self.body];
        for index in 0..count {
            // One port on a side is connected to all ports of the other side.
            let from = froms[if froms.len() == 1 { 0 } else { index }];
            let to = tos[if tos.len() == 1 { 0 } else { index }];
            body.connections.push(BodyConnection { from, to, position });
        }
        Ok(())
    }
}
