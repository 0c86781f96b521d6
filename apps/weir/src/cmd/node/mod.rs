//! The commands that speak with a node, or look at what one left.

pub mod args;
mod config;
mod follow;
mod ledger;
mod link;
mod load;
pub mod place;
mod request;
mod session;
mod show;
pub mod stated;
mod table;
mod top;

pub use config::check as check_config;
pub use follow::follow;
pub use ledger::ledger;
pub use link::link;
pub use load::{load, unload};
pub use request::request;
pub use session::session;
pub use table::table;
pub use top::top;

use crate::Failure;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use weir_node::client::{Client, ClientError, Whereabouts};
use weir_node::control::protocol::{ControlRequest, Reply, Snapshot};
use weir_node::sessions::tables::TableFileError;
use weir_units::Shown as _;

/// Why a command of a node failed.
#[derive(Debug, thiserror::Error)]
pub enum NodeCommandError {
    /// The node did not do it, or is not there.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// `--cpu` or `--channel`.
    #[error(transparent)]
    Stated(#[from] stated::StatedError),
    /// A parameter that is given twice.
    #[error("`{}` is set twice for {}", key.escape_debug(), module.shown())]
    SetTwice {
        /// The module.
        module: String,
        /// The parameter.
        key: String,
    },
    /// A file that cannot be read, or holds something else than it should.
    #[error("{}: {why}", path.shown())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A file that is no table.
    #[error(transparent)]
    Table(TableFileError),
    /// A key or a credential.
    #[error(transparent)]
    Trust(#[from] crate::cmd::trust::TrustFileError),
    /// `--node` without `--key`.
    #[error(
        "a node elsewhere asks who you are: name the file of the credential's private key, or of an operator's, with --key FILE"
    )]
    NoKey,
    /// `ledger --verify` without files.
    #[error(
        "whether a ledger is whole can only be said of its files: name their folder, or the node's configuration with -c (WEIR_NODE or WEIR_SOCKET names a node, which may have others than those of this machine)"
    )]
    VerifyFiles,
    /// What the environment says.
    #[error("{variable}: {0}", variable = place::NODE)]
    Variable(String),
    /// A node that has no address.
    #[error("{node}: {source}")]
    Address {
        /// As it was named.
        node: place::Address,
        /// What the system said.
        source: io::Error,
    },
    /// A command that asks no node for anything.
    #[error(
        "`{}` asks a node for nothing: name a request such as `session create NAME --memory 64MiB`, or `load SESSION MODULE`", .0.escape_debug()
    )]
    NoRequest(String),
    /// A session that is not there.
    #[error("there is no session `{}`; {}", name.shown(), if there.is_empty() { "there are none".to_owned() } else { format!("there is {there}") })]
    NoSession {
        /// As it was named.
        name: String,
        /// Those that are there.
        there: String,
    },
    /// A link that is not there.
    #[error("there is no link `{}`; {}", name.shown(), if there.is_empty() { "there are none".to_owned() } else { format!("there is {there}") })]
    NoLink {
        /// As it was named.
        name: String,
        /// Those that are there.
        there: String,
    },
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] weir_ledger_files::LedgerReadError),
    /// A session whose modules could not all be loaded.
    #[error("session `{}` was not created, because of its module {}: {why}", session.shown(), module.shown())]
    Half {
        /// The session.
        session: String,
        /// The module.
        module: String,
        /// What was wrong.
        why: ClientError,
    },
    /// A session that is there without all its modules.
    #[error(
        "session `{}` is there, but not its module {} ({why}), and it cannot be closed again: {then}",
        session.shown(), module.shown()
    )]
    Torn {
        /// The session.
        session: String,
        /// The module.
        module: String,
        /// What was wrong.
        why: ClientError,
        /// Why it was not closed.
        then: ClientError,
    },
    /// The terminal.
    #[error("the terminal: {0}")]
    Terminal(io::Error),
}

impl NodeCommandError {
    /// Whether the command line is wrong.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Stated(_) | Self::SetTwice { .. } | Self::NoRequest(_))
    }
}

/// Has something done, and prints what the node says beside that.
fn order(out: &mut impl Write, node: &Whereabouts, ask: ControlRequest, body: &[u8]) -> Result<(), Failure> {
    let notes = Client::to(node)?.order(ask, body)?;
    notes.iter().try_for_each(|note| writeln!(out, "{note}"))?;
    Ok(())
}

/// How things are.
fn look(node: &Whereabouts) -> Result<Box<Snapshot>, ClientError> {
    let mut client = Client::to(node)?;
    client.send(ControlRequest::Show, &[])?;
    snapshot(client.receive()?)
}

fn snapshot(reply: Reply) -> Result<Box<Snapshot>, ClientError> {
    match reply {
        Reply::Snapshot(snapshot) => Ok(snapshot),
        other => Err(ClientError::Other(weir_node::client::kind(&other))),
    }
}

/// `weir reload`: the configuration again.
pub fn reload(out: &mut impl Write, args: &args::Reload) -> Result<(), Failure> {
    order(out, &args.place.whereabouts()?, ControlRequest::Reload, &[])
}

/// Reads a text file of at most so many bytes; of a longer one enough to see that it is.
pub fn read(path: &Path, most: usize) -> Result<String, NodeCommandError> {
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(most as u64 + 1).read_to_string(&mut text))
        .map_err(|error| NodeCommandError::File { path: path.to_owned(), why: error.to_string() })?;
    Ok(text)
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Control(NodeCommandError::Client(error))
    }
}

impl From<stated::StatedError> for Failure {
    fn from(error: stated::StatedError) -> Self {
        Self::Control(NodeCommandError::Stated(error))
    }
}
