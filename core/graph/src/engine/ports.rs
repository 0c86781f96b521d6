//! Ports: connections, and whether packets are pushed or pulled over them.

use super::class::{
    ClassCodeError, ElementClass, FlowLetter, PortCounts, Processing, flow_letter, processing,
};
use std::collections::BTreeMap;

/// A port of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortReference {
    /// The index of the element.
    pub element: usize,
    /// The number of the port.
    pub port: usize,
}

/// A connection from an output to an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortConnection {
    /// The output.
    pub from: PortReference,
    /// The input.
    pub to: PortReference,
}

/// The ports of an element.
#[derive(Clone, Debug, Default)]
pub struct ElementPorts {
    /// The inputs; true for one that pulls.
    pub inputs_pull: Vec<bool>,
    /// The outputs; true for one that pushes.
    pub outputs_push: Vec<bool>,
    /// The outputs to which each input is connected. An input that pulls has one.
    pub sources: Vec<Vec<PortReference>>,
    /// The inputs to which each output is connected. An output that pushes has one.
    pub targets: Vec<Vec<PortReference>>,
}

/// A wrong connection, by the element at which it is reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortError {
    /// The index of the element.
    pub element: usize,
    /// The index of the connection, if it is about one.
    pub connection: Option<usize>,
    /// The error, without the place.
    pub text: String,
}

/// The most errors that are kept.
const ERRORS_MAX: usize = 1000;

/// The errors of a graph's ports: the first ones, and the number of those that follow.
#[derive(Debug, Default)]
pub struct PortErrors {
    /// The first errors.
    pub first: Vec<PortError>,
    /// The number of further errors.
    pub further: usize,
}

impl PortErrors {
    fn add(&mut self, element: usize, connection: Option<usize>, text: String) {
        if self.first.len() < ERRORS_MAX {
            self.first.push(PortError { element, connection, text });
        } else {
            self.further += 1;
        }
    }
}

/// Returns the ports of all elements, or everything that is wrong.
///
/// # Errors
///
/// Fails with the errors: numbers of ports that a class does not have, unconnected ports, ports connected twice, and
/// connections between a push and a pull port.
pub fn resolve(
    elements: &[(&str, &ElementClass)],
    connections: &[PortConnection],
) -> Result<Vec<ElementPorts>, PortErrors> {
    let mut errors = PortErrors::default();
    let mut ports = vec![ElementPorts::default(); elements.len()];
    // A side has no more ports than connections, or else one of the first ports is not connected, which is an error. So
    // a high port number takes no memory.
    let mut uses = vec![[PortUse::default(); 2]; elements.len()];
    for PortConnection { from, to } in connections {
        for (port, is_output) in [(from, true), (to, false)] {
            let of = &mut uses[port.element][usize::from(is_output)];
            of.connections += 1;
            of.ports = of.ports.max(port.port + 1);
        }
    }
    for PortConnection { from, to } in connections {
        for (port, other, is_output) in [(from, to, true), (to, from, false)] {
            let of = &mut ports[port.element];
            let all = if is_output { &mut of.targets } else { &mut of.sources };
            let count = (port.port + 1).min(uses[port.element][usize::from(is_output)].connections);
            if all.len() < count {
                all.resize_with(count, Vec::new);
            }
            if let Some(ends) = all.get_mut(port.port) {
                ends.push(*other);
            }
        }
    }
    for (element, ports) in ports.iter_mut().enumerate() {
        count_ports(element, elements[element], &uses[element], ports, &mut errors);
    }
    if !errors.first.is_empty() {
        return Err(errors);
    }
    let kinds = join_agnostic(elements, connections, &ports, &mut errors);
    for (element, ports) in ports.iter_mut().enumerate() {
        let kinds = &kinds[element];
        ports.inputs_pull = kinds.inputs.iter().map(|kind| *kind == Processing::Pull).collect();
        ports.outputs_push = kinds.outputs.iter().map(|kind| *kind != Processing::Pull).collect();
        check_uses(element, elements[element].0, ports, &mut errors);
    }
    if errors.first.is_empty() { Ok(ports) } else { Err(errors) }
}

/// The connections of one side of an element.
#[derive(Clone, Copy, Default)]
struct PortUse {
    connections: usize,
    /// One more than the highest port.
    ports: usize,
}

fn count_ports(
    element: usize,
    (name, class): (&str, &ElementClass),
    uses: &[PortUse; 2],
    ports: &mut ElementPorts,
    errors: &mut PortErrors,
) {
    let mut error = |text| errors.add(element, None, text);
    let allowed = match PortCounts::read(class.ports) {
        Ok(allowed) => allowed,
        Err(wrong) => return error(wrong.to_string()),
    };
    let plural = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    for (is_output, noun) in [(false, "input"), (true, "output")] {
        let inputs = ports.sources.len().max(*allowed.inputs.start());
        let range = if is_output { allowed.outputs_with(inputs) } else { allowed.inputs.clone() };
        let all = if is_output { &mut ports.targets } else { &mut ports.sources };
        let used = uses[usize::from(is_output)].ports;
        if used > *range.end() {
            error(format!(
                "'{name}' has no {noun} {}: class {} has {} at most",
                used - 1,
                class.name,
                plural(*range.end(), noun)
            ));
            all.truncate(*range.end());
        }
        let least = *range.start();
        if all.len() < least {
            all.resize_with(least, Vec::new);
        }
        let mut port = 0;
        while port < all.len() {
            let open = all[port..].iter().take_while(|connected| connected.is_empty()).count();
            match open {
                0 => {}
                1 => error(format!("'{name}' {noun} {port} is not connected")),
                _ => error(format!("'{name}' {noun}s {port} to {} are not connected", port + open - 1)),
            }
            port += open.max(1);
        }
    }
}

struct Kinds {
    inputs: Vec<Processing>,
    outputs: Vec<Processing>,
}

/// Gives each agnostic port the processing of the ports that it depends on. A port that depends on none pushes.
fn join_agnostic(
    elements: &[(&str, &ElementClass)],
    connections: &[PortConnection],
    ports: &[ElementPorts],
    errors: &mut PortErrors,
) -> Vec<Kinds> {
    // One number for each port: the inputs of an element, then its outputs.
    let mut first = Vec::with_capacity(elements.len());
    let mut count = 0;
    for ports in ports {
        first.push(count);
        count += ports.sources.len() + ports.targets.len();
    }
    let input = |port: PortReference| first[port.element] + port.port;
    let output = |port: PortReference| first[port.element] + ports[port.element].sources.len() + port.port;
    let mut groups = Groups::new(count);
    for (element, (_, class)) in elements.iter().enumerate() {
        let ports = &ports[element];
        // The agnostic inputs and outputs of each letter, which have the same processing if there are both.
        let mut letters: BTreeMap<FlowLetter, [Vec<usize>; 2]> = BTreeMap::new();
        let mut classify = |is_output: bool, port: usize| -> Result<(), ClassCodeError> {
            let place = PortReference { element, port };
            let number = if is_output { output(place) } else { input(place) };
            match processing(class.processing, is_output, port)? {
                Processing::Agnostic => {
                    let letter = flow_letter(class.flow, is_output, port)?;
                    letters.entry(letter).or_default()[usize::from(is_output)].push(number);
                }
                kind => groups.kinds[number] = kind,
            }
            Ok(())
        };
        let inputs = (0..ports.sources.len()).map(|port| (false, port));
        let outputs = (0..ports.targets.len()).map(|port| (true, port));
        for (is_output, port) in inputs.chain(outputs) {
            if let Err(wrong) = classify(is_output, port) {
                errors.add(element, None, wrong.to_string());
            }
        }
        for [inputs, outputs] in letters.values() {
            if let (Some(first), false) = (inputs.first(), outputs.is_empty()) {
                for other in inputs.iter().chain(outputs) {
                    groups.join(*first, *other);
                }
            }
        }
    }
    for (index, PortConnection { from, to }) in connections.iter().enumerate() {
        if !groups.join(output(*from), input(*to)) {
            let (before, behind) = (elements[from.element].0, elements[to.element].0);
            let (a, b) = (groups.kind(output(*from)), groups.kind(input(*to)));
            let word = |kind| match kind {
                Processing::Push => "push",
                Processing::Pull => "pull",
                Processing::Agnostic => "agnostic",
            };
            let text = format!(
                "'{before}' {} output {} is connected to '{behind}' {} input {}; a Queue or an Unqueue has to be between them",
                word(a),
                from.port,
                word(b),
                to.port
            );
            errors.add(from.element, Some(index), text);
        }
    }
    let kinds_of = |numbers: std::ops::Range<usize>, groups: &mut Groups| {
        numbers.map(|number| groups.kind(number)).collect::<Vec<_>>()
    };
    (0..elements.len())
        .map(|element| {
            let inputs = first[element]..first[element] + ports[element].sources.len();
            let outputs = inputs.end..inputs.end + ports[element].targets.len();
            Kinds { inputs: kinds_of(inputs, &mut groups), outputs: kinds_of(outputs, &mut groups) }
        })
        .collect()
}

/// Groups of ports with the same processing: a union-find structure.
struct Groups {
    parents: Vec<usize>,
    kinds: Vec<Processing>,
}

impl Groups {
    fn new(count: usize) -> Self {
        Self { parents: (0..count).collect(), kinds: vec![Processing::Agnostic; count] }
    }

    fn root(&mut self, mut number: usize) -> usize {
        while self.parents[number] != number {
            self.parents[number] = self.parents[self.parents[number]];
            number = self.parents[number];
        }
        number
    }

    /// Joins two groups. Returns false if one pushes and the other pulls.
    fn join(&mut self, a: usize, b: usize) -> bool {
        let (a, b) = (self.root(a), self.root(b));
        let kind = match (self.kinds[a], self.kinds[b]) {
            (Processing::Agnostic, kind) | (kind, Processing::Agnostic) => kind,
            (one, other) if one == other => one,
            _ => return false,
        };
        self.parents[b] = a;
        self.kinds[a] = kind;
        true
    }

    fn kind(&mut self, number: usize) -> Processing {
        let root = self.root(number);
        self.kinds[root]
    }
}

/// An output that pushes, and an input that pulls, has one connection: else it would be open which one a packet takes.
fn check_uses(element: usize, name: &str, ports: &ElementPorts, errors: &mut PortErrors) {
    let mut error = |text| errors.add(element, None, text);
    for (port, (pushes, targets)) in ports.outputs_push.iter().zip(&ports.targets).enumerate() {
        if *pushes && targets.len() > 1 {
            error(format!(
                "'{name}' push output {port} is connected {} times; a Tee copies packets",
                targets.len()
            ));
        }
    }
    for (port, (pulls, sources)) in ports.inputs_pull.iter().zip(&ports.sources).enumerate() {
        if *pulls && sources.len() > 1 {
            error(format!(
                "'{name}' pull input {port} is connected {} times; a scheduler such as RoundRobinSched joins them",
                sources.len()
            ));
        }
    }
}
