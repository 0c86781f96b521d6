//! The search for signals: of queues upstream that have packets, and of queues downstream that have room.

use super::context::ElementContext;
use super::element::BuiltElement;
use super::ports::PortReference;
use super::signal::WaitsFor;
use std::collections::BTreeSet;

/// Returns the signals of the elements upstream from which packets can be pulled.
pub(super) fn nonempty_upstream(cx: &mut ElementContext<'_>, input: usize) -> WaitsFor {
    let mut signals = Vec::new();
    let mut open = vec![PortReference { element: cx.this, port: input }];
    let mut seen: BTreeSet<PortReference> = open.iter().copied().collect();
    while let Some(at) = open.pop() {
        for source in &cx.graph.ports[at.element].sources[at.port] {
            let signal = cx.elements[source.element].as_mut().and_then(|it| it.element().nonempty_signal());
            if let Some(signal) = signal {
                signals.push(signal);
                continue;
            }
            let pulls = &cx.graph.ports[source.element].inputs_pull;
            let mut has_input = false;
            for (port, _) in pulls.iter().enumerate().filter(|(_, pulls)| **pulls) {
                has_input = true;
                let next = PortReference { element: source.element, port };
                if seen.insert(next) {
                    open.push(next);
                }
            }
            // An element that routes has no packets of its own.
            let has_own = matches!(cx.elements[source.element], Some(BuiltElement::Emitting(_)) | None);
            if !has_input && has_own {
                return WaitsFor::Nothing;
            }
        }
    }
    signals.sort_unstable();
    signals.dedup();
    WaitsFor::Signals(signals)
}

/// Returns the signals of the elements downstream that store packets. Without one, there is always room.
pub(super) fn nonfull_downstream(cx: &mut ElementContext<'_>, output: usize) -> WaitsFor {
    let mut signals = Vec::new();
    for element in stores_downstream(cx, output) {
        signals.extend(cx.elements[element].as_mut().and_then(|it| it.element().nonfull_signal()));
    }
    signals.sort_unstable();
    signals.dedup();
    if signals.is_empty() { WaitsFor::Nothing } else { WaitsFor::Signals(signals) }
}

/// Returns the elements that packets of a push output can reach and that push nothing further.
pub(super) fn stores_downstream(cx: &mut ElementContext<'_>, output: usize) -> Vec<usize> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    let mut open: Vec<usize> = match cx.ports().outputs_push.get(output) {
        Some(true) => cx.ports().targets[output].iter().map(|target| target.element).collect(),
        _ => Vec::new(),
    };
    while let Some(element) = open.pop() {
        if !seen.insert(element) {
            continue;
        }
        let is_store = matches!(
            cx.elements[element].as_mut(),
            Some(BuiltElement::Emitting(it)) if it.nonfull_signal().is_some() || it.room().is_some()
        );
        if is_store {
            found.push(element);
            continue;
        }
        let ports = &cx.graph.ports[element];
        let pushed = ports.outputs_push.iter().zip(&ports.targets).filter(|(pushes, _)| **pushes);
        open.extend(pushed.flat_map(|(_, targets)| targets.iter().map(|target| target.element)));
    }
    found
}

/// Returns the elements from which packets of a pull input come and that store them.
pub(super) fn stores_upstream(cx: &mut ElementContext<'_>, input: usize) -> Vec<usize> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    let mut open: Vec<usize> = match cx.ports().inputs_pull.get(input) {
        Some(true) => cx.ports().sources[input].iter().map(|source| source.element).collect(),
        _ => Vec::new(),
    };
    while let Some(element) = open.pop() {
        if !seen.insert(element) {
            continue;
        }
        if cx.elements[element].as_mut().is_some_and(|it| it.element().stored().is_some()) {
            found.push(element);
            continue;
        }
        let ports = &cx.graph.ports[element];
        let pulled = ports.inputs_pull.iter().zip(&ports.sources).filter(|(pulls, _)| **pulls);
        open.extend(pulled.flat_map(|(_, sources)| sources.iter().map(|source| source.element)));
    }
    found
}
