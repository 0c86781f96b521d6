//! The errors of a session's description, with their messages.

use super::LIST_ENTRIES_MAX;
use weir_admission::Name;
use weir_units::{Bytes, display_among};

/// Error of a session's description. The author of the description is to blame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The session has a part that modules in sandbox processes cannot use.
    #[error("session `{session}`: with `process = \"own\"` there are no {what}")]
    OwnProcess {
        /// Name of the session.
        session: Name,
        /// The part, in the plural.
        what: &'static str,
    },
    /// A module is to run without a meter in the node's process.
    #[error(
        "session `{session}`: module `{module}` can run without a meter only in a process of its own: the session needs `process = \"own\"`"
    )]
    Unmetered {
        /// Name of the session.
        session: Name,
        /// Name of the module in the request.
        module: String,
    },
    /// Two parts of one kind have the same name.
    #[error("session `{session}` has two {what}s called `{name}`")]
    Duplicate {
        /// Name of the session.
        session: Name,
        /// Kind of the parts: channel, virtual CPU or module.
        what: &'static str,
        /// Name of the part.
        name: Name,
    },
    /// A list is too long.
    #[error("session `{session}` has {count} {what}s; {LIST_ENTRIES_MAX} is the most")]
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
        "session `{session}`, virtual CPU `{name}`: `period` and `slice` belong together, e.g. period = \"10ms\", slice = \"2ms\""
    )]
    IncompleteReservation {
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
        /// Kind of the part: channel, virtual CPU or module.
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
    #[error("session `{session}`: `memory_max` is {most}, which is less than its memory, {memory}", most = display_among(*most, &[*memory]), memory = display_among(*memory, &[*most]))]
    MemoryCeiling {
        /// Name of the session.
        session: Name,
        /// The stated ceiling.
        most: Bytes,
        /// The reserved memory.
        memory: Bytes,
    },
    /// The interface of a forwarding channel also sees packets that this machine sends.
    #[error(
        "session `{session}`, channel `{channel}` forwards packets, and would also get packets that this machine sends on interface {interface}: write `outgoing = false` under that [[interface]]"
    )]
    SeesOutgoing {
        /// Name of the session.
        session: Name,
        /// Name of the channel.
        channel: Name,
        /// Name of the interface.
        interface: String,
    },
    /// A part refers to a part that does not exist.
    #[error("session `{session}`, {what} `{name}`: there is no {missing} `{given}`; {}", list_known(known))]
    Missing {
        /// Name of the session.
        session: Name,
        /// Kind of the part with the reference.
        what: &'static str,
        /// Name of the part with the reference.
        name: String,
        /// Kind of the missing part.
        missing: &'static str,
        /// The name in the reference.
        given: String,
        /// Names of the existing parts of that kind.
        known: Vec<String>,
    },
}

fn list_known(known: &[String]) -> String {
    if known.is_empty() { "there are none".to_owned() } else { format!("there is {}", known.join(", ")) }
}
