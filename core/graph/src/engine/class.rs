//! Element classes: everything about a kind of element that is known before it is configured.

use super::build::BuildContext;
use super::element::BuiltElement;
use crate::arguments::ArgumentErrors;
use std::ops::RangeInclusive;

/// The record of an element class. Ports, processing and flow are in the notation of Click's manual.
#[derive(Clone, Copy)]
pub struct ElementClass {
    /// The name, which configurations use.
    pub name: &'static str,
    /// The numbers of input and output ports, such as `1/1-2`, `1/-` or `-/=`.
    pub ports: &'static str,
    /// The processing of ports: `h` (push), `l` (pull) and `a` (agnostic), such as `a/ah`. The last letter of a side
    /// applies to all further ports.
    pub processing: &'static str,
    /// The ways of packets between ports: inputs and outputs with a common letter are connected, such as `x/x`. A `#`
    /// stands for the port of the same number.
    pub flow: &'static str,
    /// The class of cost.
    pub cost: ElementCost,
    /// The effects that others can see.
    pub effects: Effects,
    /// The dependence on the order of packets.
    pub order: OrderDependence,
    /// The manual: a summary in the first line, then sections.
    pub manual: &'static str,
    /// Makes an element from its arguments.
    pub build: fn(&mut BuildContext<'_>) -> Result<BuiltElement, ArgumentErrors>,
}

impl std::fmt::Debug for ElementClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ElementClass").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The cost of an element for a packet, in the classes of P. Patel and J. Lepreau: "Hybrid Resource Control of Active
/// Extensions", OPENARCH 2003.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ElementCost {
    /// Constant.
    E1,
    /// Proportional to the length of the packet.
    E2,
    /// Proportional to the length of a header.
    E3,
    /// Proportional to the length of the element's configuration.
    E4,
    /// Proportional to a value in the element's configuration.
    E5,
    /// Proportional to a field of a header.
    E6,
    /// Bounded by nothing that is known before the packets.
    E7,
}

impl ElementCost {
    /// Returns the class in words.
    pub fn description(self) -> &'static str {
        match self {
            Self::E1 => "constant",
            Self::E2 => "proportional to the length of the packet",
            Self::E3 => "proportional to the length of a header",
            Self::E4 => "proportional to the length of the element's configuration",
            Self::E5 => "proportional to a value in the element's configuration",
            Self::E6 => "proportional to a field of a header",
            Self::E7 => "not bounded by anything that is known before the packets",
        }
    }
}

/// Effects of an element that others can see, or that depend on when it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effects(u8);

impl Effects {
    /// None: the element changes packets and its own state.
    pub const NONE: Effects = Effects(0);
    /// Texts on a terminal.
    pub const TERMINAL: Effects = Effects(1);
    /// A file, which another element could write, too.
    pub const FILES: Effects = Effects(2);
    /// Looks at the clock.
    pub const CLOCK: Effects = Effects(4);
    /// Takes random numbers.
    pub const RANDOM: Effects = Effects(8);
    /// Stops the driver, or calls handlers of other elements.
    pub const CONTROL: Effects = Effects(16);
    /// State that it shares with other elements, such as a rate or a table.
    pub const SHARED: Effects = Effects(32);

    /// Returns these and others.
    pub const fn and(self, other: Effects) -> Effects {
        Effects(self.0 | other.0)
    }

    /// Returns true if the order of the effects of two elements could be seen.
    pub fn conflicts_with(self, other: Effects) -> bool {
        let is_control = |effects: Effects| effects.0 & Effects::CONTROL.0 != 0;
        self.0 & other.0 != 0 || (is_control(self) && other.0 != 0) || (is_control(other) && self.0 != 0)
    }

    /// Returns true if the element has a file.
    pub fn has_files(self) -> bool {
        self.0 & Effects::FILES.0 != 0
    }

    /// Returns true if the element stops the driver or calls handlers.
    pub fn is_control(self) -> bool {
        self.0 & Effects::CONTROL.0 != 0
    }
}

/// The dependence of an element on the order in which packets reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderDependence {
    /// The effect on a packet, and the element's state after a set of packets, depend on no order: it is a function of
    /// the packet, beside sums.
    Free,
    /// The element has to see packets in the order in which they would come one by one.
    Ordered,
}

/// A wrong port count, processing or flow code in the record of a class.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the code \"{0}\" is none of ports, processing or flow")]
pub struct ClassCodeError(String);

/// The numbers of ports that a class allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortCounts {
    /// The inputs.
    pub inputs: RangeInclusive<usize>,
    /// The outputs.
    pub outputs: OutputCount,
}

/// The numbers of outputs that a class allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputCount {
    /// A range.
    Range(RangeInclusive<usize>),
    /// As many as inputs, and this number more.
    AsInputs(usize),
}

impl PortCounts {
    /// Reads a code such as `1/1-2`, `-`, `1-/=` or `1/=+`.
    ///
    /// # Errors
    ///
    /// Fails for a text of another form.
    pub fn read(code: &str) -> Result<Self, ClassCodeError> {
        let wrong = || ClassCodeError(code.to_owned());
        let (inputs, outputs) = code.split_once('/').unwrap_or((code, code));
        let range = |text: &str| -> Option<RangeInclusive<usize>> {
            let number =
                |text: &str, default| if text.is_empty() { Some(default) } else { text.parse().ok() };
            Some(match text.split_once('-') {
                Some((from, to)) => number(from, 0)?..=number(to, usize::MAX)?,
                None => {
                    let count = text.parse().ok()?;
                    count..=count
                }
            })
        };
        let outputs = match outputs.strip_prefix('=') {
            Some(more) if more.bytes().all(|byte| byte == b'+') => OutputCount::AsInputs(more.len()),
            Some(_) => return Err(wrong()),
            None => OutputCount::Range(range(outputs).ok_or_else(wrong)?),
        };
        Ok(Self { inputs: range(inputs).ok_or_else(wrong)?, outputs })
    }

    /// Returns the numbers of outputs with this number of inputs.
    pub fn outputs_with(&self, inputs: usize) -> RangeInclusive<usize> {
        match &self.outputs {
            OutputCount::Range(range) => range.clone(),
            OutputCount::AsInputs(more) => inputs + more..=inputs + more,
        }
    }
}

/// The way in which a port passes packets on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processing {
    /// The element before the connection decides when a packet moves.
    Push,
    /// The element behind the connection decides when a packet moves.
    Pull,
    /// As its neighbours.
    Agnostic,
}

/// Returns the processing of a port of one side of a code such as `a/ah`.
///
/// # Errors
///
/// Fails for a code of another form.
pub fn processing(code: &str, is_output: bool, port: usize) -> Result<Processing, ClassCodeError> {
    let wrong = || ClassCodeError(code.to_owned());
    let side = side(code, is_output);
    let letter = side.as_bytes().get(port).or(side.as_bytes().last()).ok_or_else(wrong)?;
    match letter {
        b'h' => Ok(Processing::Push),
        b'l' => Ok(Processing::Pull),
        b'a' => Ok(Processing::Agnostic),
        _ => Err(wrong()),
    }
}

fn side(code: &str, is_output: bool) -> &str {
    match code.split_once('/') {
        Some((inputs, outputs)) => {
            if is_output {
                outputs
            } else {
                inputs
            }
        }
        None => code,
    }
}

/// A letter of a flow code. Packets go from an input to the outputs with an equal one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowLetter {
    letter: u8,
    /// The number of the port, for the letter `#`.
    port: Option<usize>,
}

/// Returns the letter of a port in a code such as `x/x`, `xy/x`, `#/#`.
///
/// # Errors
///
/// Fails for a code of another form.
pub fn flow_letter(code: &str, is_output: bool, port: usize) -> Result<FlowLetter, ClassCodeError> {
    let wrong = || ClassCodeError(code.to_owned());
    let side = side(code, is_output).as_bytes();
    let letter = *side.get(port).or(side.last()).ok_or_else(wrong)?;
    match letter {
        b'#' => Ok(FlowLetter { letter, port: Some(port) }),
        letter if letter.is_ascii_alphabetic() => Ok(FlowLetter { letter, port: None }),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_ports() {
        let read = |code| PortCounts::read(code).unwrap();
        assert_eq!(read("1/1-2").outputs_with(1), 1..=2);
        assert_eq!(read("-/=").outputs_with(3), 3..=3);
        assert_eq!(read("1/=+").outputs_with(1), 2..=2);
        assert_eq!(read("1-").inputs, 1..=usize::MAX);
        assert_eq!(read("0").inputs, 0..=0);
        for wrong in ["", "x", "1/=-", "1/2/3", "-1-"] {
            assert!(PortCounts::read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn codes_of_processing_and_flow() {
        assert_eq!(processing("a/ah", true, 0), Ok(Processing::Agnostic));
        assert_eq!(processing("a/ah", true, 5), Ok(Processing::Push));
        assert_eq!(processing("l", false, 2), Ok(Processing::Pull));
        assert!(processing("q", false, 0).is_err());
        let is_flow = |code, input, output| {
            flow_letter(code, false, input).unwrap() == flow_letter(code, true, output).unwrap()
        };
        assert!(is_flow("x/x", 0, 3) && !is_flow("x/y", 0, 0) && !is_flow("xy/x", 1, 0));
        assert!(is_flow("#/#", 2, 2) && !is_flow("#/#", 2, 1));
        assert!(flow_letter("x/", true, 0).is_err());
    }
}
