//! Errors of a session's description.

use super::PARTS_MAX;
use weir_admission::Name;
use weir_units::{Bytes, beside};

/// Error of a session's description. The author of the description is to blame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The session has a part that modules in processes of their own cannot use.
    #[error("session `{session}`: with `process = \"own\"` there are no {what}")]
    OwnProcess {
        /// Name of the session.
        session: Name,
        /// The part, in the plural.
        what: &'static str,
    },
    /// Two parts have one name.
    #[error("session `{session}` has two {what}s called `{name}`")]
    Twice {
        /// Name of the session.
        session: Name,
        /// Kind of the parts: channel, virtual processor or module.
        what: &'static str,
        /// Name of the part.
        name: Name,
    },
    /// A list is too long.
    #[error("session `{session}` has {count} {what}s; {PARTS_MAX} is the most")]
    TooMany {
        /// Name of the session.
        session: Name,
        /// Kind of the list's entries, in the singular.
        what: &'static str,
        /// Number of the list's entries.
        count: usize,
    },
    /// A reservation lacks its period or its slice.
    #[error(
        "session `{session}`, virtual processor `{name}`: `period` and `slice` belong together, e.g. period = \"10ms\", slice = \"2ms\""
    )]
    Half {
        /// Name of the session.
        session: Name,
        /// Virtual CPU.
        name: Name,
    },
    /// A value is out of range.
    #[error("session `{session}`, {what} `{name}`: `{key}` is {given}; it must be {wanted}")]
    Range {
        /// Name of the session.
        session: Name,
        /// Kind of the part: channel, virtual processor or module.
        what: &'static str,
        /// Name of the part.
        name: Name,
        /// Key of the value.
        key: &'static str,
        /// The given value.
        given: String,
        /// The allowed values.
        wanted: String,
    },
    /// The memory ceiling is below the memory.
    #[error("session `{session}`: `memory_max` is {most}, which is less than its memory, {memory}", most = beside(*most, &[*memory]), memory = beside(*memory, &[*most]))]
    Ceiling {
        /// Name of the session.
        session: Name,
        /// The stated ceiling.
        most: Bytes,
        /// The reserved memory.
        memory: Bytes,
    },
    /// The interface of a forwarding channel also sees packets that this machine sends.
    #[error(
        "session `{session}`, channel `{channel}` forwards, and on interface {interface} it would see what this machine itself sends there, too: write `outgoing = false` under that [[interface]]"
    )]
    Outgoing {
        /// Name of the session.
        session: Name,
        /// Name of the channel.
        channel: Name,
        /// Name of the interface.
        interface: String,
    },
    /// A reference to a missing part.
    #[error("session `{session}`, {what} `{name}`: there is no {missing} `{given}`; {}", list_known(known))]
    Missing {
        /// Name of the session.
        session: Name,
        /// Kind of the part with the reference.
        what: &'static str,
        /// Name of that part.
        name: String,
        /// Kind of the missing part.
        missing: &'static str,
        /// The given name.
        given: String,
        /// Names of the existing parts.
        known: Vec<String>,
    },
}

fn list_known(known: &[String]) -> String {
    if known.is_empty() { "there are none".to_owned() } else { format!("there is {}", known.join(", ")) }
}
