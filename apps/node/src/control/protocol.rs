//! What is said over the node's socket.
//!
//! A message is one line of JSON, of a client at most [`LINE_BYTES_MAX`] long, of a node [`ANSWER_BYTES_MAX`]; one with a `body` is followed by that many bytes, the file of a module or table. The client
//! asks, the node answers each request in its order; a [`ControlRequest::Follow`] or [`ControlRequest::Watch`] is answered again and again until the client goes.
//! A file that is too long for one message comes before, in [parts](ControlRequest::Upload), and the request names it: so it can go on after a connection has broken.
//! Every message carries the protocol's version. A node refuses a request of another version, and says which it speaks.

mod shot;

pub use crate::control::spec::Change;
pub use crate::sessions::limits::{LimitUsage, LimitsStatus};
pub use shot::{
    ChannelStatus, CoreStatus, DelegatedStatus, InterfaceStatus, LinkStatus, ModuleStatus, OutputStatus,
    ProcessStatus, RemoteStatus, RevocationCounts, RevocationsStatus, ServicesStatus, SessionStatus,
    Snapshot, TableStatus, Taken, ViewStatus, VirtualCpuStatus,
};

use crate::control::counted;
use crate::control::quantity;
use crate::control::spec::{ModuleSpec, SessionSpec, TomlValue};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_admission::{MODULE_BYTES_MAX, Name};
use weir_ledger::LedgerEntry;
use weir_trust::grant::ModuleHash;
use weir_trust::revocation::LIST_BYTES_MAX;
use weir_units::{BitsPerSecond, Nanos};

/// The version that this node speaks.
pub const VERSION: u32 = 1;
/// The longest line of a client.
pub const LINE_BYTES_MAX: usize = 1 << 20;
/// The longest line of a node: one with thousands of sessions has much to say.
pub const ANSWER_BYTES_MAX: usize = 64 << 20;
/// The longest part of a file that comes in parts. It is short enough to arrive within a minute where little does, and long enough that few have to be answered.
pub const PART_BYTES_MAX: usize = 256 << 10;

/// From a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// The protocol's version.
    pub weir: u32,
    /// What is wanted.
    pub ask: ControlRequest,
    /// Bytes that follow the line.
    #[serde(default, skip_serializing_if = "quantity::is_default")]
    pub body: u32,
    /// In the place of a body: a file that has come before, in parts.
    #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
    pub file: Option<ModuleHash>,
}

impl Ask {
    /// A request without a body.
    pub fn new(ask: ControlRequest) -> Self {
        Self { weir: VERSION, ask, body: 0, file: None }
    }
}

/// What a client wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ControlRequest {
    /// What the node is and does: [`Reply::Snapshot`].
    Show,
    /// A [`Reply::Snapshot`] now and after each such time.
    Watch {
        /// How often.
        #[serde(with = "quantity::text")]
        every: Nanos,
    },
    /// A session: [`Reply::Done`].
    Create(SessionSpec),
    /// Other reservations for a session: [`Reply::Done`].
    Change(Change),
    /// The end of a session: [`Reply::Done`], when its modules have stopped.
    Close {
        /// Which.
        #[serde(with = "quantity::text")]
        session: Name,
    },
    /// A module for a session; its file is the body, or none where `module` is the name of a shipped one. [`Reply::Done`].
    Load {
        /// Which session.
        #[serde(with = "quantity::text")]
        session: Name,
        /// Which module, and how it is set.
        module: ModuleSpec,
        /// Who vouches for it: texts of [`weir_trust::signature::ModuleSignature`].
        #[serde(default, deserialize_with = "counted::list", skip_serializing_if = "Vec::is_empty")]
        signatures: Vec<String>,
    },
    /// A part of a module's file, which is the body; without one it is asked how much is there: [`Reply::Uploaded`].
    Upload(FilePart),
    /// The end of a module: [`Reply::Done`].
    Unload {
        /// Which session.
        #[serde(with = "quantity::text")]
        session: Name,
        /// Which module, as it is called there.
        #[serde(with = "quantity::text")]
        module: Name,
    },
    /// The records of a stream as they come: [`Reply::Record`].
    Follow {
        /// Which session.
        #[serde(with = "quantity::text")]
        session: Name,
        /// Which module.
        #[serde(with = "quantity::text")]
        module: Name,
        /// Which of its streams.
        #[serde(with = "quantity::text")]
        stream: Name,
    },
    /// The next version of a named table of the operator's; its bytes are the body: [`Reply::Done`].
    PutTable {
        /// Which.
        #[serde(with = "quantity::text")]
        table: Name,
    },
    /// The end of a named table of the operator's: [`Reply::Done`].
    RemoveTable {
        /// Which.
        #[serde(with = "quantity::text")]
        table: Name,
    },
    /// Another rate for a link: [`Reply::Done`].
    Rate(LinkRateChange),
    /// What a credential allows on this node, and whether a request would be fulfilled: [`Reply::Explained`]. With a module's file as the body where that is about one.
    Explain(Box<Explain>),
    /// Reads the ledger: [`Reply::Entries`] until its end, then [`Reply::Done`]. The holder of a credential gets the entries about their own sessions, and the
    /// bills of their delegates' sessions.
    Ledger(LedgerAsk),
    /// A revocation list; its text is the body: [`Reply::Done`]. Every peer may deliver one that a root has signed. A body that is the header of a list alone is an
    /// offer: [`Reply::Uploaded`] where the node wants the whole list.
    Revoke,
    /// All that is revoked, of the root of the asker's credential, or of all roots for an operator: [`Reply::Revocations`].
    Revocations,
    /// Reads the configuration again: [`Reply::Done`].
    Reload,
}

impl ControlRequest {
    /// The session that it is about.
    pub fn session(&self) -> Option<&Name> {
        match self {
            Self::Create(spec) => Some(&spec.name),
            Self::Change(change) => Some(&change.session),
            Self::Close { session }
            | Self::Load { session, .. }
            | Self::Unload { session, .. }
            | Self::Follow { session, .. } => Some(session),
            Self::Show
            | Self::Watch { .. }
            | Self::Upload(_)
            | Self::PutTable { .. }
            | Self::RemoveTable { .. }
            | Self::Rate(_)
            | Self::Explain(_)
            | Self::Ledger(_)
            | Self::Revoke
            | Self::Revocations
            | Self::Reload => None,
        }
    }
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilePart {
    /// The SHA-256 of the whole file. It is of whoever sends it, and nobody else can go on with it or use it.
    #[serde(with = "quantity::text")]
    pub file: ModuleHash,
    /// The bytes of the whole file.
    pub bytes: u32,
    /// Where in it the part begins: behind all that is there. One that begins elsewhere is not taken.
    pub from: u32,
}

/// What is to be explained.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Explain {
    /// The credential, as text. Whoever has come with one asks about that one, and leaves this out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// A request that would be made with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<ControlRequest>,
}

/// What a credential allows on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// What credentials call the node.
    pub node: String,
    /// When, in seconds since 1970.
    pub at: u64,
    /// Whose credential it is.
    pub holder: String,
    /// The root of its chain.
    pub root: String,
    /// The identifiers of its chain, root first, each with the time at which it expires.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<String>,
    /// Why it is worth nothing here and now; then nothing of the rest is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worthless: Option<String>,
    /// What it allows, part by part, in words.
    #[serde(default)]
    pub allows: Vec<(String, String)>,
    /// Usage under the credential: the sum over the sessions of its holder and of the holder's delegates. For the operator also the sums under each earlier holder of the chain, and under
    /// the root.
    #[serde(default)]
    pub used: Vec<UsedStatus>,
    /// Rights over sessions that the holder shares with others, and that others share with the holder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<SharedStatus>,
    /// What would come of the request; nothing where none was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<RequestVerdict>,
}

/// Something that is given, and how much of it is used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsedStatus {
    /// To whom it is given.
    pub whose: String,
    /// What.
    pub part: String,
    /// So much is used,
    pub used: String,
    /// of so much.
    pub given: String,
}

/// A right over a session that its owner shares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedStatus {
    /// The session, by the name that the credential's holder has for it.
    pub session: String,
    /// The right and the key of its holder: `follow=KEY` or `manage=KEY`.
    pub share: String,
}

/// What would come of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestVerdict {
    /// Why it would be refused; nothing where it would not.
    pub refused: Option<String>,
}

/// What is wanted of the ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerAsk {
    /// Which part of it.
    pub part: LedgerPart,
    /// Only what is about sessions that whoever asks calls so.
    #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
    pub session: Option<Name>,
    /// Only what ends after this, ns since 1970 (0: from the beginning) …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ns: Option<u64>,
    /// … and not after this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ns: Option<u64>,
}

/// A part of the ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LedgerPart {
    /// What each session used, in one [`Event::Usage`](weir_ledger::LedgerEvent::Usage) for all intervals.
    #[default]
    Bill,
    /// Decisions on requests, and ends of sessions that nobody asked for.
    Decisions,
    /// All of it.
    Entries,
}

/// What changes of a link; what is missing stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkRateChange {
    /// Its interface.
    pub link: String,
    /// Bits on the wire per second.
    #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
    pub rate: Option<BitsPerSecond>,
    /// How much of that can be reserved, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservable: Option<u8>,
}

/// What a request's body is the file of, and how long it can be; no longer than nothing, where no file belongs to it.
pub fn body_of(ask: &ControlRequest) -> (&'static str, usize) {
    match ask {
        ControlRequest::PutTable { .. } => ("table", weir_abi::limit::TABLE_BYTES as usize),
        ControlRequest::Upload(_) => ("part", PART_BYTES_MAX),
        ControlRequest::Revoke => ("revocation list", LIST_BYTES_MAX),
        ControlRequest::Load { .. } => ("module", MODULE_BYTES_MAX),
        ControlRequest::Explain(explain) => match &explain.ask {
            Some(load @ ControlRequest::Load { .. }) => body_of(load),
            _ => ("request", 0),
        },
        _ => ("request", 0),
    }
}

/// From the node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// The protocol's version.
    pub weir: u32,
    /// What it says.
    pub reply: Reply,
}

/// What a node says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// It is done. What the asking party should know beside that.
    Done {
        /// Lines for people.
        notes: Vec<String>,
    },
    /// It is not done, and nothing has changed.
    Refused {
        /// Why, and what to do.
        why: String,
    },
    /// How things are.
    Snapshot(Box<Snapshot>),
    /// A row of a stream: its fields by name.
    Record(BTreeMap<String, TomlValue>),
    /// So much of a file is there, from its beginning.
    Uploaded {
        /// Bytes.
        bytes: u32,
    },
    /// What a credential allows.
    Explained(Box<Explanation>),
    /// What the ledger says: the next of it, which can be nothing, where much of it is about others.
    Entries {
        /// As they stand there; to a holder, as they concern him.
        entries: Vec<LedgerEntry>,
        /// How much of the ledger was read, in thousandths; of which a holder is told nothing, as it says how much others do.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        read: Option<u16>,
    },
    /// Rows that a follower was too slow for.
    Missed {
        /// So many.
        rows: u64,
    },
    /// All that is revoked, by root.
    Revocations(Vec<RevocationsStatus>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_read_as_they_were_written_and_look_like_this() {
        let name = |text| Name::new(text).unwrap();
        let load = ControlRequest::Load {
            session: name("alice"),
            module: toml::from_str("module = \"theirs.wasm\"\nset = { port = 53 }").unwrap(),
            signatures: Vec::new(),
        };
        for (ask, line) in [
            (Ask::new(ControlRequest::Show), r#"{"weir":1,"ask":"show"}"#),
            (
                Ask::new(ControlRequest::Watch { every: Nanos(500_000_000) }),
                r#"{"weir":1,"ask":{"watch":{"every":"500000000ns"}}}"#,
            ),
            (
                Ask::new(ControlRequest::Close { session: name("alice") }),
                r#"{"weir":1,"ask":{"close":{"session":"alice"}}}"#,
            ),
            (
                Ask { file: Some(ModuleHash([0xab; 32])), ..Ask::new(load.clone()) },
                &format!(
                    r#"{{"weir":1,"ask":{{"load":{{"session":"alice","module":{{"module":"theirs.wasm","set":{{"port":53}},"channel":"main","cpu":"main"}}}}}},"file":"{}"}}"#,
                    "ab".repeat(32)
                ),
            ),
            (
                Ask {
                    body: 2,
                    ..Ask::new(ControlRequest::Upload(FilePart {
                        file: ModuleHash([1; 32]),
                        bytes: 9,
                        from: 7,
                    }))
                },
                &format!(
                    r#"{{"weir":1,"ask":{{"upload":{{"file":"{}","bytes":9,"from":7}}}},"body":2}}"#,
                    "01".repeat(32)
                ),
            ),
            (
                Ask { body: 4, ..Ask::new(load) },
                r#"{"weir":1,"ask":{"load":{"session":"alice","module":{"module":"theirs.wasm","set":{"port":53},"channel":"main","cpu":"main"}}},"body":4}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&ask).unwrap(), line);
            assert_eq!(serde_json::from_str::<Ask>(line).unwrap(), ask);
        }
    }

    #[test]
    fn what_is_no_request_is_refused_with_a_reason() {
        for (line, says) in [
            ("{", "EOF"),
            (r#"{"weir":1}"#, "missing field `ask`"),
            (r#"{"weir":1,"ask":"explode"}"#, "unknown variant `explode`"),
            (r#"{"weir":1,"ask":{"close":{"session":"../x"}}}"#, "is not a name"),
            (r#"{"weir":1,"ask":"show","more":1}"#, "unknown field `more`"),
            (r#"{"weir":1,"ask":"show","file":"../x"}"#, "is no hash of a module"),
            (r#"{"weir":1,"ask":{"upload":{"file":"00","bytes":1,"from":0}}}"#, "is no hash of a module"),
        ] {
            let error = serde_json::from_str::<Ask>(line).unwrap_err().to_string();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
