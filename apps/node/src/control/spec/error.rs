//! What is wrong with a session's description.

use super::PARTS_MAX;
use weir_admission::Name;
use weir_units::{Bytes, beside};

/// What is wrong with a session's description. To blame is whoever wrote it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Its modules are to run in processes of their own, and that is not for those.
    #[error("session `{session}`: with `process = \"own\"` there are no {what}")]
    Apart {
        /// The session.
        session: Name,
        /// What is not there.
        what: &'static str,
    },
    /// Two of one name.
    #[error("session `{session}` has two {what}s called `{name}`")]
    Twice {
        /// The session.
        session: Name,
        /// Channel, virtual processor or module.
        what: &'static str,
        /// Their name.
        name: Name,
    },
    /// Too many.
    #[error("session `{session}` has {count} {what}s; {PARTS_MAX} is the most")]
    TooMany {
        /// The session.
        session: Name,
        /// Of what.
        what: &'static str,
        /// So many.
        count: usize,
    },
    /// Half a reservation.
    #[error(
        "session `{session}`, virtual processor `{name}`: `period` and `slice` belong together, e.g. period = \"10ms\", slice = \"2ms\""
    )]
    Half {
        /// The session.
        session: Name,
        /// The virtual processor.
        name: Name,
    },
    /// A value out of range.
    #[error("session `{session}`, {what} `{name}`: `{key}` is {given}; it must be {wanted}")]
    Range {
        /// The session.
        session: Name,
        /// Channel, virtual processor or module.
        what: &'static str,
        /// Its name.
        name: Name,
        /// The key.
        key: &'static str,
        /// What it is.
        given: String,
        /// What would be right.
        wanted: String,
    },
    /// A session that could not keep what it has.
    #[error("session `{session}`: `memory_max` is {most}, which is less than its memory, {memory}", most = beside(*most, &[*memory]), memory = beside(*memory, &[*most]))]
    Ceiling {
        /// The session.
        session: Name,
        /// What it may reserve.
        most: Bytes,
        /// What it has reserved.
        memory: Bytes,
    },
    /// Packets that this machine sends would be forwarded too.
    #[error(
        "session `{session}`, channel `{channel}` forwards, and on interface {interface} it would see what this machine itself sends there, too:          write `outgoing = false` under that [[interface]]"
    )]
    Outgoing {
        /// The session.
        session: Name,
        /// The channel.
        channel: Name,
        /// The interface.
        interface: String,
    },
    /// A reference to something that is not there.
    #[error("session `{session}`, {what} `{name}`: there is no {missing} `{given}`; {}", there(known))]
    Missing {
        /// The session.
        session: Name,
        /// Channel or module.
        what: &'static str,
        /// Its name.
        name: String,
        /// What is missing.
        missing: &'static str,
        /// As it was named.
        given: String,
        /// What there is.
        known: Vec<String>,
    },
}

fn there(known: &[String]) -> String {
    if known.is_empty() { "there are none".to_owned() } else { format!("there is {}", known.join(", ")) }
}
