//! Pulling: from an input upstream, through elements that route packets, to an element that has packets.

use super::batch::Batch;
use super::context::ElementContext;
use super::element::{BuiltElement, Destination};
use super::packet::GraphPacket;
use super::ports::{ElementPorts, PortReference};

/// The way upstream from a pull input.
#[derive(Clone, Debug, Default)]
pub(super) struct PullWay {
    /// The elements that packets pass, in the order in which they pass them, with the input and the output of each.
    pub passed: Vec<(usize, usize, usize)>,
    /// The output of the element that has the packets; `None` for an input that pushes.
    pub from: Option<PortReference>,
}

/// Returns the way upstream from a pull input. `is_routing` states the form of each element.
pub(super) fn way(ports: &[ElementPorts], is_routing: &[bool], element: usize, input: usize) -> PullWay {
    let mut way = PullWay::default();
    let mut at = PortReference { element, port: input };
    while ports[at.element].inputs_pull.get(at.port) == Some(&true) {
        let Some(source) = ports[at.element].sources[at.port].first().copied() else { break };
        // In a cycle of routing elements there are no packets.
        if !is_routing[source.element] || way.passed.len() > ports.len() {
            way.from = Some(source);
            break;
        }
        let input = if ports[source.element].inputs_pull.len() > source.port { source.port } else { 0 };
        way.passed.push((source.element, input, source.port));
        at = PortReference { element: source.element, port: input };
    }
    way.passed.reverse();
    way
}

/// Pulls packets from an element that is connected to an input directly, all at once, and adds them to a batch. Returns
/// false, and does nothing, if there are elements between both, or the element has no packets in store.
pub(super) fn pull_direct(cx: &mut ElementContext<'_>, input: usize, most: usize, batch: &mut Batch) -> bool {
    let Some(way) = cx.graph.pull_ways[cx.this].get(input) else { return false };
    let Some(from) = way.from.filter(|_| way.passed.is_empty()) else { return false };
    let pulled = cx.with_element(from.element, |element, cx| match element {
        BuiltElement::Emitting(element) => element.pull_batch(from.port, most, batch, cx),
        BuiltElement::Routing(_) => false,
    });
    pulled.unwrap_or(false)
}

/// The most elements that one pull leads through without entering them. A cycle of such elements has no packets.
const THROUGH_MAX: usize = 500;

/// Pulls a packet from an input of an element that passes packets on.
fn pull_through(cx: &mut ElementContext<'_>, element: usize, input: usize) -> Option<GraphPacket> {
    if cx.services.pulled_through >= THROUGH_MAX {
        return None;
    }
    cx.services.pulled_through += 1;
    let this = std::mem::replace(&mut cx.this, element);
    let packet = pull(cx, input);
    cx.this = this;
    cx.services.pulled_through -= 1;
    packet
}

/// Pulls a packet from an input.
pub(super) fn pull(cx: &mut ElementContext<'_>, input: usize) -> Option<GraphPacket> {
    let graph = cx.graph;
    let way = graph.pull_ways[cx.this].get(input)?;
    let from = way.from?;
    let through = match &cx.elements[from.element] {
        Some(BuiltElement::Emitting(element)) => element.pulls_through(from.port),
        _ => None,
    };
    let mut packet = match through {
        Some(input) => pull_through(cx, from.element, input)?,
        None => cx
            .with_element(from.element, |element, cx| match element {
                BuiltElement::Emitting(element) => element.pull(from.port, cx),
                BuiltElement::Routing(_) => None,
            })
            .flatten()?,
    };
    for (element, input, output) in &way.passed {
        let destination = match cx.elements[*element].as_mut() {
            Some(BuiltElement::Routing(element)) => element.route_one(*input, &mut packet, cx.services),
            _ => Destination::DISCARD,
        };
        if destination.port() != Some(*output) {
            // It leaves the way: to an output that pushes, or to none.
            let this = std::mem::replace(&mut cx.this, *element);
            cx.take_destination(destination, packet);
            cx.this = this;
            return None;
        }
    }
    Some(packet)
}
