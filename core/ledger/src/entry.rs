//! The entries of a ledger.

use super::{Decision, Digest, Idle, LedgerText, Reserved, Usage, wire};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use weir_admission::{Name, Tier};
use weir_units::{BitsPerSecond, Nanos, Timestamp};

/// The format of the lines that this version writes, stated in the first line of each segment. Segments of earlier
/// formats can be read, and are never extended.
///
/// - 1: a line for each session and interval ([`LedgerEvent::Usage`]).
/// - 2: also one line for several idle sessions ([`LedgerEvent::Idle`]).
/// - 3: also losses by [`DropCause::RecordRate`](super::DropCause::RecordRate); decisions ([`LedgerEvent::Decision`],
///   [`LedgerEvent::Unlisted`], [`LedgerEvent::Revoked`]); holders of sessions ([`CredentialHolder`]);
///   [`CloseReason::Parent`] and [`CloseReason::Revoked`].
/// - 4: also the cost of holders' requests ([`LedgerEvent::Requests`]).
/// - 5: also the bytes of records ([`DropCause::RecordBytes`](super::DropCause::RecordBytes), and counters of
///   [`Usage`]).
/// - 6: also the bytes of fetched record files (a counter of [`Usage`]).
/// - 7: also [`UnloadReason::Replaced`] and [`UnloadReason::TrialFailed`].
pub const FORMAT: u64 = 7;

/// One entry: an event on a node, and its time.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct LedgerEntry {
    /// The sequence number. The first entry has 1; numbers continue over all segments and restarts of the node.
    #[serde(rename = "seq")]
    pub sequence: u64,
    /// The node that writes the ledger.
    #[serde(with = "wire::name")]
    pub node: Name,
    /// The beginning of the interval; for an event without duration, its time.
    #[serde(with = "wire::time")]
    pub begin: Timestamp,
    /// The end of the interval, never before `begin`. Entries are in the order of their ends, except where a
    /// [`LedgerEvent::ClockSet`] says that the clock was set back.
    #[serde(with = "wire::time")]
    pub end: Timestamp,
    /// The event.
    #[serde(flatten)]
    pub event: LedgerEvent,
}

/// An entry with a borrowed event, for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct EntryRef<'a> {
    /// The sequence number, as in [`LedgerEntry`].
    #[serde(rename = "seq")]
    pub sequence: u64,
    /// The node that writes the ledger.
    #[serde(with = "wire::name")]
    pub node: &'a Name,
    /// The beginning of the interval, as in [`LedgerEntry`].
    #[serde(with = "wire::time")]
    pub begin: Timestamp,
    /// The end of the interval, as in [`LedgerEntry`].
    #[serde(with = "wire::time")]
    pub end: Timestamp,
    /// The event.
    #[serde(flatten)]
    pub event: &'a LedgerEvent,
}

impl<'a> From<&'a LedgerEntry> for EntryRef<'a> {
    fn from(entry: &'a LedgerEntry) -> Self {
        let LedgerEntry { sequence, node, begin, end, event } = entry;
        Self { sequence: *sequence, node, begin: *begin, end: *end, event }
    }
}

impl Serialize for LedgerEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        EntryRef::from(self).serialize(serializer)
    }
}

/// The identity of a session, to which usage is charged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId {
    /// The node's name for the session.
    #[serde(with = "wire::name")]
    pub name: Name,
    /// A number that tells successive sessions with the same name apart.
    pub id: u64,
}

impl fmt::Display for SessionId {
    /// Writes the identity as `alice#3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.name, self.id)
    }
}

/// The holder of a session that was created with a credential.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialHolder {
    /// The holder's own name for the session. [`SessionId::name`] is the node's name for it.
    #[serde(with = "wire::name")]
    pub called: Name,
    /// The holder's key.
    pub key: LedgerText,
    /// The identifiers of the blocks of the holder's credential, the operator's block first.
    pub credentials: Vec<LedgerText>,
}

/// Machine code that was compiled elsewhere, with the keys that vouch for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VouchedObject {
    /// The hash of the object file.
    pub object: Digest,
    /// The trusted keys that vouch for its semantics.
    pub semantics: Vec<LedgerText>,
    /// The trusted keys that vouch for its bounds.
    pub bounds: Vec<LedgerText>,
}

/// The event that an entry records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum LedgerEvent {
    /// The first line of a segment.
    Segment {
        /// The format of the lines: [`FORMAT`].
        format: u64,
        /// The segment's number, as in the name of its file. The first is 1.
        segment: u64,
    },
    /// The node started.
    NodeStart {
        /// The version of weir.
        version: LedgerText,
        /// The hash of the configuration.
        configuration: Digest,
    },
    /// The node loaded another configuration while running.
    NodeReconfigured {
        /// The hash of the new configuration.
        configuration: Digest,
    },
    /// The rate of a link, or its reservable part, was changed.
    LinkChanged {
        /// The link's interface.
        link: LedgerText,
        /// The new rate.
        #[serde(rename = "rate_bits_per_s", with = "wire::rate")]
        rate: BitsPerSecond,
        /// The new reservable part of the rate, in percent.
        #[serde(rename = "reservable_percent")]
        reservable: u8,
    },
    /// The node stopped without a crash. If this entry is missing before a [`NodeStart`](Self::NodeStart), the node
    /// crashed.
    NodeStop,
    /// The node started after a crash. Entries that were not yet synced, at most those of one interval, may be missing.
    Recovered {
        /// The number of bytes after the last whole line. They were cut off, and saved beside the ledger; 0 if the
        /// ledger ended with a whole line.
        torn_bytes: u64,
    },
    /// The clock was set back, so the times of later entries are earlier.
    ClockSet {
        /// The end of the entry before this one.
        #[serde(with = "wire::time")]
        before: Timestamp,
    },
    /// The ledger could not be written for a while, and more entries were due than fit into memory.
    Backlog {
        /// Usage entries that were added to other entries of the same session. The sums are right, but the intervals
        /// are no longer separate.
        merged: u64,
        /// Entries other than usage that were lost, because there was no room.
        lost: u64,
        /// The usage of sessions for which there was no room.
        #[serde(default, skip_serializing_if = "is_empty")]
        others: Box<Usage>,
    },
    /// A session was created.
    SessionCreated {
        /// The session.
        session: SessionId,
        /// The reservations of the session.
        reserved: Reserved,
        /// The holder; `None` for the operator's own sessions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        holder: Option<Box<CredentialHolder>>,
    },
    /// A session's reservation was changed.
    SessionChanged {
        /// The session.
        session: SessionId,
        /// The new reservations.
        reserved: Reserved,
    },
    /// A session was closed.
    SessionClosed {
        /// The session.
        session: SessionId,
        /// The reason.
        reason: CloseReason,
    },
    /// A module was loaded.
    ModuleLoaded {
        /// The session.
        session: SessionId,
        /// The module's name in the session.
        #[serde(with = "wire::name")]
        module: Name,
        /// The hash of the module's bytes.
        code: Digest,
        /// The tier in which the module runs.
        #[serde(with = "wire::tier")]
        tier: Tier,
        /// The machine code of a bundle in which the module runs; `None` if the node has compiled the module.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        compiled: Option<Box<VouchedObject>>,
    },
    /// The machine code of a bundle was withdrawn from a module, because too few of its signers are trusted now. The module
    /// moves to code that the node compiles, or ends.
    CodeWithdrawn {
        /// The session.
        session: SessionId,
        /// The module's name in the session.
        #[serde(with = "wire::name")]
        module: Name,
        /// The reason.
        reason: LedgerText,
    },
    /// A module was unloaded.
    ModuleUnloaded {
        /// The session.
        session: SessionId,
        /// The module's name in the session.
        #[serde(with = "wire::name")]
        module: Name,
        /// The reason.
        reason: UnloadReason,
    },
    /// A module was not loaded.
    ModuleRefused {
        /// The session.
        session: SessionId,
        /// The requested name, which may not be legal.
        module: LedgerText,
        /// The hash of the module's bytes.
        code: Digest,
        /// The refusal.
        reason: LedgerText,
    },
    /// The usage of a session from `begin` to `end`.
    Usage {
        /// The session.
        session: SessionId,
        /// The number of intervals in the sum: more than one if the ledger could not be written for a while.
        #[serde(default = "wire::one", skip_serializing_if = "wire::is_one")]
        intervals: u64,
        /// The usage.
        usage: Box<Usage>,
    },
    /// Sessions that used nothing but their reserved memory from `begin` to `end`, each for one interval. A session
    /// that used more, or whose intervals were added up, has a [`LedgerEvent::Usage`].
    Idle {
        /// The sessions, with their memory x time.
        idle: Idle,
    },
    /// A decision on a request. Requests of one kind, by one requester, with the same outcome, between `begin` and
    /// `end`, can share an entry.
    Decision(Box<Decision>),
    /// Numbers of decisions from `begin` to `end` that have no entries, because there were too many.
    Unlisted {
        /// Requests that were permitted.
        #[serde(default, skip_serializing_if = "wire::is_zero")]
        allowed: u64,
        /// Requests that were refused or failed.
        #[serde(default, skip_serializing_if = "wire::is_zero")]
        refused: u64,
        /// Failed handshakes with unauthenticated peers.
        #[serde(default, skip_serializing_if = "wire::is_zero")]
        handshakes: u64,
    },
    /// The processor time that a holder's requests took from `begin` to `end`, allowed or refused: connecting, reading,
    /// deciding and answering. Work that is charged to a session is not included. The time counts as usage of the
    /// holder.
    Requests {
        /// The holder's key. `None` for the sum over several holders, if there were too many.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<LedgerText>,
        /// The identifiers of the blocks of the credential, the operator's block first. For several holders, the
        /// identifiers that all of them have.
        credentials: Vec<LedgerText>,
        /// The number of requests and connections.
        count: u64,
        /// The number of requests and connections that were refused or failed.
        #[serde(default, skip_serializing_if = "wire::is_zero")]
        refused: u64,
        /// The processor time of these requests and connections.
        #[serde(rename = "cpu_ns", with = "wire::nanos")]
        cpu: Nanos,
    },
    /// The node has a newer revocation list of a root of trust.
    Revoked {
        /// The root's key.
        root: LedgerText,
        /// The sequence number of the list.
        list: u64,
        /// The number of identifiers on the list.
        ids: u64,
    },
}

/// The reason why a session was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CloseReason {
    /// A request closed the session.
    #[serde(rename = "asked")]
    Requested,
    /// The holder's right expired.
    Expired,
    /// The holder's right was revoked.
    Revoked,
    /// The session did something for which the policy ends sessions.
    Misbehaved,
    /// The node stopped, or its configuration no longer contains the session.
    Node,
    /// The last session of a key earlier in the holder's delegation chain was closed.
    Parent,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Requested => "a request closed it",
            Self::Expired => "its holder's right expired",
            Self::Revoked => "its holder's right was revoked",
            Self::Misbehaved => "it did something that ends a session by policy",
            Self::Node => "the node stopped, or its configuration no longer contains it",
            Self::Parent => "the last session of a key earlier in its delegation chain was closed",
        })
    }
}

/// The reason why a module was unloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnloadReason {
    /// A request unloaded the module.
    #[serde(rename = "asked")]
    Requested,
    /// The module exceeded its limits too often.
    Strikes,
    /// The module could not be started, or its start trapped.
    StartFailed,
    /// The module was further behind its queue than allowed.
    Lagged,
    /// The module's sandbox process ended, or broke the protocol.
    ProcessEnded,
    /// The machine code of the module's bundle was withdrawn, and the node has no other code of the module.
    CodeWithdrawn,
    /// A newer version replaced the module.
    Replaced,
    /// The module had replaced an older version, and had a fault while it was on trial.
    TrialFailed,
    /// The session was closed.
    SessionClosed,
    /// The node ended.
    NodeStop,
}

/// Returns the session of an event. The reference is shared or mutable, like the reference to the event.
macro_rules! session_of {
    ($event:expr) => {
        match $event {
            LedgerEvent::SessionCreated { session, .. }
            | LedgerEvent::SessionChanged { session, .. }
            | LedgerEvent::SessionClosed { session, .. }
            | LedgerEvent::ModuleLoaded { session, .. }
            | LedgerEvent::CodeWithdrawn { session, .. }
            | LedgerEvent::ModuleUnloaded { session, .. }
            | LedgerEvent::ModuleRefused { session, .. }
            | LedgerEvent::Usage { session, .. } => Some(session),
            LedgerEvent::Segment { .. }
            | LedgerEvent::NodeStart { .. }
            | LedgerEvent::NodeReconfigured { .. }
            | LedgerEvent::LinkChanged { .. }
            | LedgerEvent::NodeStop
            | LedgerEvent::Recovered { .. }
            | LedgerEvent::ClockSet { .. }
            | LedgerEvent::Backlog { .. }
            | LedgerEvent::Decision(_)
            | LedgerEvent::Unlisted { .. }
            | LedgerEvent::Requests { .. }
            | LedgerEvent::Revoked { .. }
            | LedgerEvent::Idle { .. } => None,
        }
    };
}

impl LedgerEvent {
    /// Returns the session of the event. `None` for events of the node, and for [`Self::Idle`], which has several
    /// sessions.
    pub fn session(&self) -> Option<&SessionId> {
        session_of!(self)
    }

    /// Returns the session of the event, for changing it. `None` for events of the node, and for [`Self::Idle`].
    pub fn session_mut(&mut self) -> Option<&mut SessionId> {
        session_of!(self)
    }

    /// Returns the earliest [format](FORMAT) in which this event can be written.
    pub(super) fn format(&self) -> u64 {
        match self {
            Self::ModuleUnloaded { reason: UnloadReason::Replaced | UnloadReason::TrialFailed, .. } => 7,
            Self::Requests { .. } => 4,
            Self::Decision(_)
            | Self::Unlisted { .. }
            | Self::Revoked { .. }
            | Self::SessionCreated { holder: Some(_), .. }
            | Self::SessionClosed { reason: CloseReason::Parent | CloseReason::Revoked, .. } => 3,
            Self::Idle { .. } => 2,
            _ => 1,
        }
    }
}

fn is_empty(usage: &Usage) -> bool {
    usage.is_empty()
}
