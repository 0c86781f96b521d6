//! The commands that send requests to a node or read its files. This file has the errors and helpers that these
//! commands share.

pub mod address;
pub mod args;
mod config;
mod findings;
mod follow;
mod ledger;
mod link;
mod load;
mod records;
mod request;
mod session;
mod show;
pub mod spec_options;
mod table;
mod top;

pub use config::check as check_config;
pub use follow::{FollowError, follow, follow_request};
pub use ledger::ledger;
pub use link::link;
pub use load::{load, unload};
pub use records::records;
pub use request::request;
pub use session::session;
pub use table::table;
pub use top::top;

use crate::Failure;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use weir_node::client::{Client, ClientError, NodeLocation};
use weir_node::control::protocol::{ControlRequest, Reply, Snapshot};
use weir_node::sessions::tables::TableFileError;
use weir_units::Escape as _;

/// Errors of commands that talk to a node.
#[derive(Debug, thiserror::Error)]
pub enum NodeCommandError {
    /// The node refused the request or cannot be reached.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// An option such as `--cpu` or `--channel` has a wrong value.
    #[error(transparent)]
    SpecOptions(#[from] spec_options::SpecOptionError),
    /// A parameter is set twice.
    #[error("parameter `{}` is set twice for {}", key.escape_debug(), module.escaped())]
    SetTwice {
        /// The module.
        module: String,
        /// The parameter.
        key: String,
    },
    /// A file cannot be read or is not valid.
    #[error("{}: {why}", path.escaped())]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        why: String,
    },
    /// A file is not a table.
    #[error(transparent)]
    Table(TableFileError),
    /// A key or credential file cannot be used.
    #[error(transparent)]
    Trust(#[from] crate::trust_files::TrustFileError),
    /// `--node` is used without `--key`.
    #[error(
        "a remote node needs to know who you are: name the file of the credential's private key, or of an operator's, with --key FILE"
    )]
    NoKey,
    /// `ledger --verify` is used without files.
    #[error(
        "a ledger can only be verified from its files: name their folder, or the node's configuration with -c. The files of the node that WEIR_NODE or WEIR_SOCKET names may be on another machine"
    )]
    VerifyFiles,
    /// The environment variable for the node is not valid.
    #[error("{variable}: {0}", variable = address::NODE_VARIABLE)]
    Variable(String),
    /// A node's host name cannot be resolved.
    #[error("{node}: {source}")]
    Address {
        /// The address on the command line.
        node: address::NodeAddress,
        /// The system's error.
        source: io::Error,
    },
    /// The command to explain sends no request to a node.
    #[error(
        "`{}` sends no request to a node: name a request such as `session create NAME --memory 64MiB`, or `load SESSION MODULE`", .0.escape_debug()
    )]
    NoRequest(String),
    /// There is no session of this name.
    #[error("there is no session `{}`; {}", name.escaped(), if existing.is_empty() { "there are none".to_owned() } else { format!("there is {existing}") })]
    NoSession {
        /// The name.
        name: String,
        /// The names of the node's sessions, separated by commas.
        existing: String,
    },
    /// There is no link of this name.
    #[error("there is no link `{}`; {}", name.escaped(), if existing.is_empty() { "there are none".to_owned() } else { format!("there is {existing}") })]
    NoLink {
        /// The name.
        name: String,
        /// The names of the node's links, separated by commas.
        existing: String,
    },
    /// The ledger cannot be read.
    #[error(transparent)]
    Ledger(#[from] weir_ledger_files::LedgerReadError),
    /// Record files cannot be fetched.
    #[error(transparent)]
    StoredRecords(#[from] records::StoredRecordsError),
    /// A module could not be loaded, so the new session was closed again.
    #[error("session `{}` was not created, because of its module {}: {why}", session.escaped(), module.escaped())]
    SessionNotCreated {
        /// The session.
        session: String,
        /// The module.
        module: String,
        /// The error of loading the module.
        why: ClientError,
    },
    /// A module could not be loaded, and the new session could not be closed again.
    #[error(
        "session `{}` was created without its module {} ({why}), and it cannot be closed again: {close_error}",
        session.escaped(), module.escaped()
    )]
    SessionIncomplete {
        /// The session.
        session: String,
        /// The module.
        module: String,
        /// The error of loading the module.
        why: ClientError,
        /// The error of closing the session.
        close_error: ClientError,
    },
    /// Records cannot be followed.
    #[error(transparent)]
    Follow(Box<follow::FollowError>),
    /// The terminal cannot be used.
    #[error("the terminal: {0}")]
    Terminal(io::Error),
}

impl NodeCommandError {
    /// Returns true if the cause is a wrong command line.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::SpecOptions(_) | Self::SetTwice { .. } | Self::NoRequest(_) => true,
            Self::Follow(error) => error.is_usage(),
            _ => false,
        }
    }
}

/// Sends a request with its body to a node, and prints the notes in the reply.
fn execute(
    out: &mut impl Write,
    node: &NodeLocation,
    request: ControlRequest,
    body: &[u8],
) -> Result<(), Failure> {
    let notes = Client::connect_to(node)?.execute(request, body)?;
    notes.iter().try_for_each(|note| writeln!(out, "{note}"))?;
    Ok(())
}

/// Fetches a snapshot: the state of a node's sessions, interfaces, links and tables at one time.
fn fetch_snapshot(node: &NodeLocation) -> Result<Box<Snapshot>, ClientError> {
    let mut client = Client::connect_to(node)?;
    client.send(ControlRequest::Show, &[])?;
    snapshot(client.receive()?)
}

/// Returns the snapshot in a reply.
///
/// # Errors
/// The reply is of another kind.
fn snapshot(reply: Reply) -> Result<Box<Snapshot>, ClientError> {
    match reply {
        Reply::Snapshot(snapshot) => Ok(snapshot),
        other => Err(ClientError::UnexpectedReply(weir_node::client::reply_kind(&other))),
    }
}

/// `weir reload`: makes the node read its configuration again.
pub fn reload(out: &mut impl Write, args: &args::ReloadArgs) -> Result<(), Failure> {
    execute(out, &args.address.resolve()?, ControlRequest::Reload, &[])
}

/// Reads at most one byte more than `bytes_max` of a text file: from the further byte the caller sees that the file is
/// too long.
pub fn read(path: &Path, bytes_max: usize) -> Result<String, NodeCommandError> {
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(bytes_max as u64 + 1).read_to_string(&mut text))
        .map_err(|error| NodeCommandError::File { path: path.to_owned(), why: error.to_string() })?;
    Ok(text)
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::NodeCommand(NodeCommandError::Client(error))
    }
}

impl From<spec_options::SpecOptionError> for Failure {
    fn from(error: spec_options::SpecOptionError) -> Self {
        Self::NodeCommand(NodeCommandError::SpecOptions(error))
    }
}
