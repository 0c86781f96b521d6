//! What stands in a ledger.

use super::{Decision, Digest, Idle, LedgerText, Reserved, Usage, wire};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use weir_admission::{Name, Tier};
use weir_units::{BitsPerSecond, Nanos, Timestamp};

/// The format of the lines, in the first line of each segment. Segments of all formats from 1 on are read; new ones are written in this one, and nothing is
/// added to one of an earlier format.
///
/// | format | |
/// |---|---|
/// | 1 | a line for each session and interval ([`LedgerEvent::Usage`]) |
/// | 2 | the same, and one line for several sessions that were idle ([`LedgerEvent::Idle`]) |
/// | 3 | the same, with records that were lost for their rate ([`DropCause::RecordRate`](super::DropCause::RecordRate)); decisions ([`LedgerEvent::Decision`],
/// [`LedgerEvent::Unlisted`], [`LedgerEvent::Revoked`]); whose a session is ([`CredentialHolder`]); sessions that end with their parent's ([`CloseReason::Parent`]), or because their right was taken back ([`CloseReason::Revoked`]) |
/// | 4 | the same, with what requests of holders took ([`LedgerEvent::Requests`]) |
/// | 5 | the same, with the bytes of records ([`DropCause::RecordBytes`](super::DropCause::RecordBytes), and counters of [`Usage`]) |
pub const FORMAT: u64 = 5;

/// One entry: what happened on a node, and when.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct LedgerEntry {
    /// The first is 1, and each one after it one more, over all segments and restarts of the node.
    #[serde(rename = "seq")]
    pub sequence: u64,
    /// Whose ledger it is.
    #[serde(with = "wire::name")]
    pub node: Name,
    /// When the interval began; for what has no duration, when it happened.
    #[serde(with = "wire::time")]
    pub begin: Timestamp,
    /// When it ended, never before `begin`. Entries are in the order of their ends, but where a [`LedgerEvent::ClockSet`] says that the clock was set back.
    #[serde(with = "wire::time")]
    pub end: Timestamp,
    /// What it was.
    #[serde(flatten)]
    pub event: LedgerEvent,
}

/// An entry whose parts are somebody else's: what it takes to write one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct EntryRef<'a> {
    /// See [`LedgerEntry`].
    #[serde(rename = "seq")]
    pub sequence: u64,
    /// See [`LedgerEntry`].
    #[serde(with = "wire::name")]
    pub node: &'a Name,
    /// See [`LedgerEntry`].
    #[serde(with = "wire::time")]
    pub begin: Timestamp,
    /// See [`LedgerEntry`].
    #[serde(with = "wire::time")]
    pub end: Timestamp,
    /// See [`LedgerEntry`].
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

/// A session: whom something is charged to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId {
    /// As its owner calls it.
    #[serde(with = "wire::name")]
    pub name: Name,
    /// Tells two sessions of one name apart, one after the other.
    pub id: u64,
}

impl fmt::Display for SessionId {
    /// As `alice#3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.name, self.id)
    }
}

/// Whose a session is that was not made by the node's operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialHolder {
    /// What he calls it. [`SessionId::name`] is the node's name for it.
    #[serde(with = "wire::name")]
    pub called: Name,
    /// His key.
    pub key: LedgerText,
    /// By what right: the identifiers of all prefixes of his credential's chain, the operator's block first.
    pub credentials: Vec<LedgerText>,
}

/// What an entry is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum LedgerEvent {
    /// The first line of a segment.
    Segment {
        /// How the lines are written: [`FORMAT`].
        format: u64,
        /// The segment's number, as in the name of its file. The first is 1.
        segment: u64,
    },
    /// The node began.
    NodeStart {
        /// The version of weir.
        version: LedgerText,
        /// The configuration that it runs with.
        configuration: Digest,
    },
    /// The node took another configuration while it ran.
    NodeReconfigured {
        /// The new one.
        configuration: Digest,
    },
    /// A link got another rate, or another part of it can be reserved.
    LinkChanged {
        /// Its interface.
        link: LedgerText,
        /// Bits on the wire per second from now on.
        #[serde(rename = "rate_bits_per_s", with = "wire::rate")]
        rate: BitsPerSecond,
        /// How much of that can be reserved from now on, in percent.
        #[serde(rename = "reservable_percent")]
        reservable: u8,
    },
    /// The node ended in order. What begins after another entry than this one comes after a crash.
    NodeStop,
    /// The node began after a crash. Of what was not yet synced, at most an interval, nothing may be left.
    Recovered {
        /// What was cut off after the last whole line, and put aside beside the ledger; 0 where the ledger ended with a whole line.
        torn_bytes: u64,
    },
    /// The clock was set back. Times begin anew here.
    ClockSet {
        /// The end of the entry before this one.
        #[serde(with = "wire::time")]
        before: Timestamp,
    },
    /// The ledger could not be written for a while, and more came together than could be held in memory.
    Backlog {
        /// Intervals' usages of sessions that were added to others of the same session: their sums are right, their intervals are gone.
        merged: u64,
        /// Entries other than usage for which there was no room, and which are lost.
        lost: u64,
        /// The usage of sessions for which there was no room.
        #[serde(default, skip_serializing_if = "is_empty")]
        others: Box<Usage>,
    },
    /// A session was created.
    SessionCreated {
        /// Which.
        session: SessionId,
        /// What it is promised.
        reserved: Reserved,
        /// Whose it is; nobody's but the operator's where nothing is said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        holder: Option<Box<CredentialHolder>>,
    },
    /// A session's reservation was changed.
    SessionChanged {
        /// Which.
        session: SessionId,
        /// What it is promised from now on.
        reserved: Reserved,
    },
    /// A session was closed.
    SessionClosed {
        /// Which.
        session: SessionId,
        /// Why.
        reason: CloseReason,
    },
    /// A module was loaded.
    ModuleLoaded {
        /// For whom.
        session: SessionId,
        /// What it is called there.
        #[serde(with = "wire::name")]
        module: Name,
        /// Of its bytes.
        code: Digest,
        /// How it is kept within its limits.
        #[serde(with = "wire::tier")]
        tier: Tier,
    },
    /// A module was unloaded.
    ModuleUnloaded {
        /// From whom.
        session: SessionId,
        /// What it was called there.
        #[serde(with = "wire::name")]
        module: Name,
        /// Why.
        reason: Unloaded,
    },
    /// A module was not loaded.
    ModuleRefused {
        /// For whom it would have been.
        session: SessionId,
        /// What it would have been called; it may be no legal name.
        module: LedgerText,
        /// Of its bytes.
        code: Digest,
        /// What was wrong.
        reason: LedgerText,
    },
    /// What a session used from `begin` to `end`.
    Usage {
        /// Which.
        session: SessionId,
        /// How many intervals were added up: more than one where the ledger could not be written for a while.
        #[serde(default = "wire::one", skip_serializing_if = "wire::is_one")]
        intervals: u64,
        /// What it used.
        usage: Box<Usage>,
    },
    /// Sessions that from `begin` to `end` used nothing but the memory that they have reserved, each of them for one interval. A session that used
    /// more, or whose intervals were added up, has a [`LedgerEvent::Usage`].
    Idle {
        /// Which, and their memory x time.
        idle: Idle,
    },
    /// Somebody asked for something. Requests of one kind, by one and the same, with the same outcome, between `begin` and `end`, can be one entry.
    Decision(Box<Decision>),
    /// What was decided from `begin` to `end` and stands in no entry of its own, because there was too much of it.
    Unlisted {
        /// Requests that were permitted.
        #[serde(default, skip_serializing_if = "wire::is_zero")]
        allowed: u64,
        /// Requests that were not, or that could not be done.
        #[serde(default, skip_serializing_if = "wire::is_zero")]
        refused: u64,
        /// Handshakes of strangers that came to nothing: who they were is not known.
        #[serde(default, skip_serializing_if = "wire::is_zero")]
        handshakes: u64,
    },
    /// The processor time that requests of a holder took from `begin` to `end`, allowed or refused: connecting, reading, deciding and answering. Work on the bill of a session
    /// is not in it. The holder pays for it as for compiling.
    Requests {
        /// The holder's key. None for the sum over several holders, where there were too many of them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<LedgerText>,
        /// The identifiers of all prefixes of the credential's chain, the operator's block first. Several holders have the prefixes that they have in common.
        credentials: Vec<LedgerText>,
        /// Requests, and connections.
        count: u64,
        /// The requests among them that were refused or failed.
        #[serde(default, skip_serializing_if = "wire::is_zero")]
        refused: u64,
        /// Their processor time.
        #[serde(rename = "cpu_ns", with = "wire::nanos")]
        cpu: Nanos,
    },
    /// A newer list of what a root of trust has taken back holds.
    Revoked {
        /// The root's key.
        root: LedgerText,
        /// The list's number.
        list: u64,
        /// How many chains stand on it.
        ids: u64,
    },
}

/// Why a session was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CloseReason {
    /// Somebody asked for it.
    Asked,
    /// Its right ended.
    Expired,
    /// Its right was taken back.
    Revoked,
    /// It did what ends a session by policy.
    Misbehaved,
    /// The node ended, or its configuration no longer has it.
    Node,
    /// The last session of somebody from whom its owner has his right was closed.
    Parent,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asked => "somebody asked for it",
            Self::Expired => "its owner has no right any more",
            Self::Revoked => "its owner's right was taken back",
            Self::Misbehaved => "it did what ends a session",
            Self::Node => "the node ended, or its configuration no longer has it",
            Self::Parent => "the last session of somebody from whom its owner has his right was closed",
        })
    }
}

/// Why a module was unloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unloaded {
    /// Somebody asked for it.
    Asked,
    /// It used more than it may, too often.
    Strikes,
    /// It could not be started, or its start trapped.
    StartFailed,
    /// It lagged further behind than its allowance.
    Lagged,
    /// The process that it had of its own has ended, or did not do what such a process does.
    ProcessEnded,
    /// Its session was closed.
    SessionClosed,
    /// The node ended.
    NodeStop,
}

impl LedgerEvent {
    /// The session that it is about; nothing where it is about the node, or about [several](Self::Idle).
    pub fn session(&self) -> Option<&SessionId> {
        match self {
            Self::SessionCreated { session, .. }
            | Self::SessionChanged { session, .. }
            | Self::SessionClosed { session, .. }
            | Self::ModuleLoaded { session, .. }
            | Self::ModuleUnloaded { session, .. }
            | Self::ModuleRefused { session, .. }
            | Self::Usage { session, .. } => Some(session),
            Self::Segment { .. }
            | Self::NodeStart { .. }
            | Self::NodeReconfigured { .. }
            | Self::LinkChanged { .. }
            | Self::NodeStop
            | Self::Recovered { .. }
            | Self::ClockSet { .. }
            | Self::Backlog { .. }
            | Self::Decision(_)
            | Self::Unlisted { .. }
            | Self::Requests { .. }
            | Self::Revoked { .. }
            | Self::Idle { .. } => None,
        }
    }

    /// The same, for whoever is told of it by another name.
    pub fn session_mut(&mut self) -> Option<&mut SessionId> {
        match self {
            Self::SessionCreated { session, .. }
            | Self::SessionChanged { session, .. }
            | Self::SessionClosed { session, .. }
            | Self::ModuleLoaded { session, .. }
            | Self::ModuleUnloaded { session, .. }
            | Self::ModuleRefused { session, .. }
            | Self::Usage { session, .. } => Some(session),
            _ => None,
        }
    }
}

impl LedgerEvent {
    /// The first format in which there is such an entry.
    pub(super) fn format(&self) -> u64 {
        match self {
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
