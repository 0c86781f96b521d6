//! The messages between clients and a node, over its local socket and over remote associations.
//!
//! A message is one line of JSON: at most [`LINE_BYTES_MAX`] bytes from a client, and at most [`ANSWER_BYTES_MAX`]
//! bytes from a node. A message with a `body` of N is followed by N bytes, such as the file of a module or table. The
//! node answers the requests of a client in their order. A [`ControlRequest::Follow`] or [`ControlRequest::Watch`] is
//! answered repeatedly until the client disconnects.
//!
//! A file that is too long for one message is uploaded first, in [parts](ControlRequest::Upload), and the request names
//! the file by its hash. An upload can continue on another connection. Every message contains the protocol's version. A
//! node refuses a request of another version, and states the version that it supports.

pub(crate) mod request_reader;

pub use crate::control::link_spec::LinkRateChange;
pub use crate::control::spec::Change;
pub use crate::control::status::{
    CeilingStatus, ChannelStatus, CoreStatus, CredentialTree, DelegatedStatus, DelegationStatus,
    FindingStatus, FindingsStatus, FollowedModule, FollowedRow, FollowedStream, InterfaceStatus, LimitUsage,
    LimitsStatus, LinkStatus, MemoryStatus, ModuleStatus, OutputStatus, ProcessStatus, RemoteStatus,
    RevocationCounts, RevocationsStatus, RootStatus, ServicesStatus, SessionStatus, Snapshot, TableStatus,
    ViewStatus, VirtualCpuStatus,
};

use crate::control::bounded_list;
use crate::control::quantity;
use crate::control::spec::{ModuleSpec, SessionSpec};
use serde::{Deserialize, Serialize};
use weir_admission::{MODULE_BYTES_MAX, Name};
use weir_ledger::{Digest, LedgerEntry};
use weir_trust::grant::ModuleHash;
use weir_trust::revocation::LIST_BYTES_MAX;
use weir_units::Nanos;

/// Version of the protocol that this node speaks.
pub const VERSION: u32 = 1;
/// Longest line of a client, in bytes.
pub const LINE_BYTES_MAX: usize = 1 << 20;
/// Longest line of a node, in bytes: thousands of sessions make a long snapshot.
pub const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Longest part of an uploaded file, in bytes. It is short enough to arrive within a minute on a slow connection, and
/// long enough that few parts are needed.
pub const PART_BYTES_MAX: usize = 256 << 10;
/// Most files in one [`Reply::RecordFiles`].
pub const RECORD_FILES_MAX: usize = 256;

/// A message of a client: the line that begins each request, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestLine {
    /// Version of the protocol: [`VERSION`].
    pub weir: u32,
    /// The request.
    pub request: ControlRequest,
    /// Length of the body that follows the line, in bytes.
    #[serde(default, skip_serializing_if = "quantity::is_default")]
    pub body: u32,
    /// Hash of an uploaded file, which takes the place of the body.
    #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
    pub file: Option<ModuleHash>,
}

impl RequestLine {
    /// Creates a message without a body.
    pub fn new(request: ControlRequest) -> Self {
        Self { weir: VERSION, request, body: 0, file: None }
    }
}

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ControlRequest {
    /// Requests the state of the node: [`Reply::Snapshot`].
    Show,
    /// Requests the state of the node now and after each interval: [`Reply::Snapshot`].
    Watch {
        /// Interval.
        #[serde(with = "quantity::text")]
        every: Nanos,
    },
    /// Creates a session: [`Reply::Done`].
    Create(SessionSpec),
    /// Changes a session: [`Reply::Done`].
    Change(Change),
    /// Closes a session: [`Reply::Done`], once its modules have stopped.
    Close {
        /// Name of the session.
        #[serde(with = "quantity::text")]
        session: Name,
    },
    /// Loads a module into a session: [`Reply::Done`]. The body is the module's file. It can be left out if `module`
    /// names a module that comes with weir.
    Load {
        /// Name of the session.
        #[serde(with = "quantity::text")]
        session: Name,
        /// Module, with its parameters.
        module: ModuleSpec,
        /// Signatures of the module, as texts of [`weir_trust::signature::ModuleSignature`].
        #[serde(default, deserialize_with = "bounded_list::list", skip_serializing_if = "Vec::is_empty")]
        signatures: Vec<String>,
        /// The length of the trial, if the module takes the place of the session's module of its name. At a fault in that time the
        /// version before returns.
        #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
        replace: Option<Nanos>,
    },
    /// Uploads a part of a module's file: [`Reply::Uploaded`]. The body is the part. A request without a body uploads
    /// nothing, and gets the number of bytes that the node has.
    Upload(FilePart),
    /// Unloads a module: [`Reply::Done`].
    Unload {
        /// Name of the session.
        #[serde(with = "quantity::text")]
        session: Name,
        /// Name of the module in the session.
        #[serde(with = "quantity::text")]
        module: Name,
    },
    /// Follows the records of a session's modules that run now: [`Reply::Followed`], then [`Reply::Record`] and
    /// [`Reply::Missed`], until [`Reply::Done`] when all of these modules have ended.
    Follow {
        /// Name of the session.
        #[serde(with = "quantity::text")]
        session: Name,
        /// Name of the module in the session; all modules without a name.
        #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
        module: Option<Name>,
        /// Names of the streams; all streams if the list is empty.
        #[serde(default, with = "bounded_list::texts", skip_serializing_if = "Vec::is_empty")]
        streams: Vec<Name>,
    },
    /// Lists the stored record files: [`Reply::RecordFiles`] until the list's end, then [`Reply::Done`]. The holder of a
    /// credential gets the files of the sessions whose records they may follow, and of their own closed sessions.
    Records(RecordsRequest),
    /// Fetches a stored record file: [`Reply::RecordPart`] until the file's end, then [`Reply::RecordsSent`]. The
    /// request ends with [`Reply::RecordsGone`] if the file is not stored any more.
    FetchRecords(RecordFileRequest),
    /// Publishes the next version of an operator's table: [`Reply::Done`]. The body is the contents of the table.
    PutTable {
        /// Name of the table.
        #[serde(with = "quantity::text")]
        table: Name,
    },
    /// Removes an operator's table: [`Reply::Done`].
    RemoveTable {
        /// Name of the table.
        #[serde(with = "quantity::text")]
        table: Name,
    },
    /// Changes the rate of a link: [`Reply::Done`].
    Rate(LinkRateChange),
    /// Explains the rights of a credential on this node, and the decision on a request: [`Reply::Explained`]. If that
    /// request loads a module, the body is the module's file.
    Explain(Box<Explain>),
    /// Reads the ledger: [`Reply::Entries`] until the ledger's end, then [`Reply::Done`]. The holder of a credential
    /// gets the entries about their own sessions, and the usage of their delegates' sessions.
    Ledger(LedgerRequest),
    /// Delivers a revocation list: [`Reply::Done`]. The body is the text of the list. Every peer may deliver a list
    /// that a root has signed. A body with only the header of a list offers the list; the node requests the whole list
    /// by [`Reply::Uploaded`].
    Revoke,
    /// Requests all revocations under the root of the requester's credential, or under all roots for an operator:
    /// [`Reply::Revocations`].
    Revocations,
    /// Requests the credentials under which sessions run, with the usage of each ceiling: [`Reply::Credentials`]. The
    /// holder of a credential gets the own one, and the delegations below it.
    Credentials,
    /// Reads the configuration again: [`Reply::Done`].
    Reload,
}

impl ControlRequest {
    /// Returns the session that the request names; `None` for a request that is not about one session.
    pub fn session(&self) -> Option<&Name> {
        match self {
            Self::Create(spec) => Some(&spec.name),
            Self::Change(change) => Some(&change.session),
            Self::Close { session }
            | Self::Load { session, .. }
            | Self::Unload { session, .. }
            | Self::Follow { session, .. }
            | Self::FetchRecords(RecordFileRequest { session, .. }) => Some(session),
            Self::Records(request) => request.session.as_ref(),
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
            | Self::Credentials
            | Self::Reload => None,
        }
    }
}

/// A part of a file that is uploaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilePart {
    /// SHA-256 of the whole file. Uploads belong to their sender: no other holder can continue or use them.
    #[serde(with = "quantity::text")]
    pub file: ModuleHash,
    /// Length of the whole file, in bytes.
    pub bytes: u32,
    /// Offset of the part in the file. A part is refused unless its offset equals the number of bytes that the node has.
    pub from: u32,
}

/// A request to list stored record files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordsRequest {
    /// Restricts the list to the session that the requester calls by this name.
    #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
    pub session: Option<Name>,
    /// Restricts the list to files with rows at this time or later, in ns since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ns: Option<u64>,
    /// Restricts the list to files with rows at this time or earlier, in ns since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ns: Option<u64>,
}

/// A request to fetch a stored record file, or the rest of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordFileRequest {
    /// Name of the session.
    #[serde(with = "quantity::text")]
    pub session: Name,
    /// Folder of the file, as the list states it: `MODULE-NUMBER`.
    pub folder: String,
    /// Name of the file, as the list states it: `STREAM.parquet`.
    pub file: String,
    /// Offset of the first byte to send. The offset of the file's end requests the digest alone.
    #[serde(default, skip_serializing_if = "quantity::is_default")]
    pub from: u64,
}

/// A stored record file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordFile {
    /// Name by which the requester calls the session.
    pub session: String,
    /// Folder: `MODULE-NUMBER`.
    pub folder: String,
    /// Name: `STREAM.parquet`, or `STREAM.recovered-NUMBER.parquet` after a crash.
    pub file: String,
    /// Length in bytes.
    pub bytes: u64,
    /// Number of rows; `None` if the file's footer cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// Earliest time in the rows, in ns since 1970; `None` if the rows have no times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_ns: Option<u64>,
    /// Latest time in the rows, in ns since 1970; `None` if the rows have no times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_ns: Option<u64>,
    /// Time at which the file was completed, in ns since 1970.
    pub completed_ns: u64,
    /// SHA-256 of the file; `None` while the node does not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Digest>,
}

/// A request to explain a credential, and optionally to judge a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Explain {
    /// The credential, as text. Without it, the credential of the connection is explained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// The request to judge: the explanation states whether the credential allows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<ControlRequest>,
}

/// The rights of a credential on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// Name of the node in credentials.
    pub node: String,
    /// Time of the explanation, in seconds since 1970.
    pub at: u64,
    /// Key of the credential's holder.
    pub holder: String,
    /// Key of the root of the credential's chain.
    pub root: String,
    /// Identifiers of the delegations in the credential's chain, root first, each with the time at which it expires.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<String>,
    /// Reason why the credential is not valid on this node at this time; `None` for a valid credential. The rights and
    /// usage of an invalid credential are empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalid: Option<String>,
    /// Rights in words: for each part of the grant, its name and its text.
    #[serde(default)]
    pub allows: Vec<(String, String)>,
    /// Usage under the credential: the sum over the sessions of its holder and of the holder's delegates. For an
    /// operator there are also the sums under each earlier holder of the chain, and under the root.
    #[serde(default)]
    pub used: Vec<UsedStatus>,
    /// Shares of the holder's sessions, and shares of delegates' sessions with the holder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<SharedStatus>,
    /// Judgement of the given request; `None` without a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<RequestVerdict>,
}

/// A granted amount of a resource, and its usage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsedStatus {
    /// Holder whose grant has the ceiling, by key; or a description of the root.
    pub holder: String,
    /// Name of the resource.
    pub resource: String,
    /// Used amount, with its unit.
    pub used: String,
    /// Granted amount, with its unit.
    pub granted: String,
}

/// A share of a session, in an explanation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedStatus {
    /// Name by which the credential's holder calls the session.
    pub session: String,
    /// The right and the key of its holder: `follow=KEY` or `manage=KEY`.
    pub share: String,
}

/// The decision on a request that is judged without carrying it out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestVerdict {
    /// Reason for which the request would be refused; `None` if it would be permitted.
    pub refused: Option<String>,
}

/// A request for a part of the ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerRequest {
    /// Part of the ledger.
    pub part: LedgerPart,
    /// Restricts the answer to entries about sessions that the requester calls by this name.
    #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
    pub session: Option<Name>,
    /// Restricts the answer to entries that end after this time, in ns since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ns: Option<u64>,
    /// Restricts the answer to entries that end at this time or before, in ns since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ns: Option<u64>,
}

/// A part of the ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LedgerPart {
    /// Usage of each session, in one [`Event::Usage`](weir_ledger::LedgerEvent::Usage) for all intervals.
    #[default]
    Usage,
    /// Decisions on requests, and closings of sessions without a request.
    Decisions,
    /// All entries.
    Entries,
}

/// Returns the kind of file in a request's body, and the maximum length of the body in bytes. The length is 0 for a
/// request that has no body.
pub fn body_of(request: &ControlRequest) -> (&'static str, usize) {
    match request {
        ControlRequest::PutTable { .. } => ("table", weir_abi::limit::TABLE_BYTES as usize),
        ControlRequest::Upload(_) => ("part", PART_BYTES_MAX),
        ControlRequest::Revoke => ("revocation list", LIST_BYTES_MAX),
        ControlRequest::Load { .. } => ("module", MODULE_BYTES_MAX),
        ControlRequest::Explain(explain) => match &explain.request {
            Some(load @ ControlRequest::Load { .. }) => body_of(load),
            _ => ("request", 0),
        },
        _ => ("request", 0),
    }
}

/// A message of the node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// Version of the protocol: [`VERSION`].
    pub weir: u32,
    /// The reply.
    pub reply: Reply,
}

/// A reply of the node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The request has been carried out.
    Done {
        /// Notes for the requester.
        notes: Vec<String>,
    },
    /// The request is refused or has failed, and nothing has changed.
    Refused {
        /// Reason of the refusal, and advice.
        why: String,
    },
    /// The state of the node, as far as the requester may see it.
    Snapshot(Box<Snapshot>),
    /// The modules whose records follow.
    Followed {
        /// Name of the node.
        node: String,
        /// The modules, by their index in [`FollowedStream`].
        modules: Vec<FollowedModule>,
    },
    /// A record of a followed stream.
    Record(FollowedRow),
    /// The node has the first `bytes` bytes of the uploaded file.
    Uploaded {
        /// Number of bytes.
        bytes: u32,
    },
    /// The explanation of a credential.
    Explained(Box<Explanation>),
    /// The next entries of the ledger. The list is empty if the part of the ledger that was read concerns only other
    /// holders.
    Entries {
        /// Entries; for a holder, only those that concern the holder.
        entries: Vec<LedgerEntry>,
        /// Part of the ledger that has been read so far, in thousandths. `None` for a holder, because the part would
        /// reveal the activity of other holders.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        read: Option<u16>,
    },
    /// A slow follower has missed records.
    Missed {
        /// The stream.
        #[serde(flatten)]
        stream: FollowedStream,
        /// Number of missed records.
        rows: u64,
    },
    /// The revocations, by root.
    Revocations(Vec<RevocationsStatus>),
    /// The credentials under which sessions run.
    Credentials(CredentialTree),
    /// The next stored record files.
    RecordFiles {
        /// The files.
        files: Vec<RecordFile>,
        /// Number of folders whose files are still being written, and are therefore not in the list.
        open: u64,
    },
    /// A part of a stored record file. The line is followed by `length` bytes. A part without bytes is sent while the
    /// node reads the bytes before the requested offset, or waits for the session's rate.
    RecordPart {
        /// Offset of the part.
        from: u64,
        /// Length of the whole file.
        bytes: u64,
        /// Length of the part: at most [`PART_BYTES_MAX`].
        length: u32,
    },
    /// The whole requested rest of a stored record file has been sent.
    RecordsSent {
        /// Length of the whole file.
        bytes: u64,
        /// SHA-256 of the whole file.
        sha256: Digest,
    },
    /// The requested record file is not stored any more.
    RecordsGone,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_documented_json_form_and_are_read_back() {
        let name = |text| Name::new(text).unwrap();
        let load = ControlRequest::Load {
            session: name("alice"),
            module: toml::from_str("module = \"theirs.wasm\"\nset = { port = 53 }").unwrap(),
            signatures: Vec::new(),
            replace: None,
        };
        for (request, line) in [
            (RequestLine::new(ControlRequest::Show), r#"{"weir":1,"request":"show"}"#),
            (
                RequestLine::new(ControlRequest::Watch { every: Nanos(500_000_000) }),
                r#"{"weir":1,"request":{"watch":{"every":"500000000ns"}}}"#,
            ),
            (
                RequestLine::new(ControlRequest::Close { session: name("alice") }),
                r#"{"weir":1,"request":{"close":{"session":"alice"}}}"#,
            ),
            (
                RequestLine { file: Some(ModuleHash([0xab; 32])), ..RequestLine::new(load.clone()) },
                &format!(
                    r#"{{"weir":1,"request":{{"load":{{"session":"alice","module":{{"module":"theirs.wasm","set":{{"port":53}},"channel":"main","cpu":"main"}}}}}},"file":"{}"}}"#,
                    "ab".repeat(32)
                ),
            ),
            (
                RequestLine {
                    body: 2,
                    ..RequestLine::new(ControlRequest::Upload(FilePart {
                        file: ModuleHash([1; 32]),
                        bytes: 9,
                        from: 7,
                    }))
                },
                &format!(
                    r#"{{"weir":1,"request":{{"upload":{{"file":"{}","bytes":9,"from":7}}}},"body":2}}"#,
                    "01".repeat(32)
                ),
            ),
            (
                RequestLine::new(ControlRequest::Records(RecordsRequest {
                    since_ns: Some(5),
                    ..RecordsRequest::default()
                })),
                r#"{"weir":1,"request":{"records":{"since_ns":5}}}"#,
            ),
            (
                RequestLine::new(ControlRequest::FetchRecords(RecordFileRequest {
                    session: name("alice"),
                    folder: "rtt-0".to_owned(),
                    file: "flows.parquet".to_owned(),
                    from: 7,
                })),
                r#"{"weir":1,"request":{"fetch-records":{"session":"alice","folder":"rtt-0","file":"flows.parquet","from":7}}}"#,
            ),
            (
                RequestLine { body: 4, ..RequestLine::new(load) },
                r#"{"weir":1,"request":{"load":{"session":"alice","module":{"module":"theirs.wasm","set":{"port":53},"channel":"main","cpu":"main"}}},"body":4}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&request).unwrap(), line);
            assert_eq!(serde_json::from_str::<RequestLine>(line).unwrap(), request);
        }
    }

    #[test]
    fn an_invalid_request_is_refused_with_a_reason() {
        for (line, says) in [
            ("{", "EOF"),
            (r#"{"weir":1}"#, "missing field `request`"),
            (r#"{"weir":1,"request":"explode"}"#, "unknown variant `explode`"),
            (r#"{"weir":1,"request":{"close":{"session":"../x"}}}"#, "is not a name"),
            (r#"{"weir":1,"request":"show","more":1}"#, "unknown field `more`"),
            (r#"{"weir":1,"request":"show","file":"../x"}"#, "is no hash of a module"),
            (r#"{"weir":1,"request":{"upload":{"file":"00","bytes":1,"from":0}}}"#, "is no hash of a module"),
        ] {
            let error = serde_json::from_str::<RequestLine>(line).unwrap_err().to_string();
            assert!(error.contains(says), "{line}: {error}");
        }
    }

    #[test]
    fn the_examples_of_the_document_are_requests_and_replies() {
        let lines = include_str!("../../../../docs/WIRE.md").lines().map(str::trim);
        let examples: Vec<&str> = lines.filter(|line| line.starts_with(r#"{"weir":1,"#)).collect();
        assert!(examples.len() >= 8, "{examples:?}");
        for line in examples {
            if line.starts_with(r#"{"weir":1,"request":"#) {
                serde_json::from_str::<RequestLine>(line)
                    .map(drop)
                    .unwrap_or_else(|error| panic!("{line}: {error}"));
            } else {
                serde_json::from_str::<Response>(line)
                    .map(drop)
                    .unwrap_or_else(|error| panic!("{line}: {error}"));
            }
        }
    }
}
