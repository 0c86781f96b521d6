//! The names of the sources that Wireshark lists.

use super::sentences::{decode, encode};
use std::fmt;
use weir_units::Escape as _;

const CAPTURE: &str = "weir-capture";
const INTERFACE: &str = "weir-interface-";
const SESSION: &str = "weir-session-";

/// A source of packets, as Wireshark names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceId {
    /// A capture file, which the settings name.
    Capture,
    /// A network interface.
    Interface(String),
    /// A session of the node.
    Session(String),
}

impl SourceId {
    /// Returns the source with this name; `None` if no source has it.
    pub fn parse(name: &str) -> Option<Self> {
        if name == CAPTURE {
            return Some(Self::Capture);
        }
        let rest = |prefix| name.strip_prefix(prefix).filter(|rest| !rest.is_empty()).and_then(decode);
        rest(INTERFACE).map(Self::Interface).or_else(|| rest(SESSION).map(Self::Session))
    }

    /// Returns the name.
    pub fn name(&self) -> String {
        match self {
            Self::Capture => CAPTURE.to_owned(),
            Self::Interface(interface) => format!("{INTERFACE}{}", encode(interface)),
            Self::Session(session) => format!("{SESSION}{}", encode(session)),
        }
    }
}

impl fmt::Display for SourceId {
    /// Writes the text that Wireshark shows.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capture => f.write_str("weir: capture file in a view"),
            Self::Interface(interface) => write!(f, "weir: {} in a view", interface.escaped()),
            Self::Session(session) => write!(f, "weir: session {} as its modules see it", session.escaped()),
        }
    }
}
