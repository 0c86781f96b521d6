//! Why a node does not start, or does not do what it was asked to do.

use crate::config::ConfigError;
use crate::error::{NodeError, of_session};
use crate::policy::PolicyError;
use crate::tables::FileError;
use crate::trust::TrustError;
use crate::verify::Remark;
use std::io;
use std::path::{Path, PathBuf};
use weir_confine::ConfineError;
use weir_ledger::LedgerError;
use weir_sandbox::LoadError;
use weir_session::Name;
use weir_units::Shown as _;

/// Why the daemon does not start, or why a reload changes nothing.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// A file of the configuration cannot be read.
    #[error("{}: {source}", path.shown())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A folder of the node's belongs to another user.
    #[error(
        "{}: it belongs to user {owner}, and the node may not write there, also as root: it gives up the right to other users' files; start it as that user, or `chown -R` the folder to its own",
        path.shown()
    )]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// The configuration is wrong.
    #[error("{}: {}{source}", path.shown(), line.map_or_else(String::new, |line| format!("line {line}: ")))]
    Config {
        /// The file.
        path: PathBuf,
        /// The line, where it is known and the error does not say it itself.
        line: Option<usize>,
        /// What is wrong with it.
        source: ConfigError,
    },
    /// There is no node on this machine with that configuration.
    #[error("{}", told(path, problems))]
    Wrong {
        /// The file.
        path: PathBuf,
        /// All that is wrong, at least one thing.
        problems: Vec<Remark>,
    },
    /// The operator's policy, whether it stands in the configuration or in files of its own, is wrong.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A case of the operator's does not hold, so the policy does not do what he means.
    #[error("{}:{line}: case `{name}` does not hold: {wrong} ({} of {of} cases do not; `weir policy test` tries them)", path.shown(), more + 1)]
    Case {
        /// The file of the first of them,
        path: PathBuf,
        /// its line,
        line: usize,
        /// its name,
        name: String,
        /// and what came instead.
        wrong: String,
        /// So many others do not hold either,
        more: usize,
        /// of so many.
        of: usize,
    },
    /// A table's file cannot be used.
    #[error(transparent)]
    Table(#[from] FileError),
    /// A file of `[remote]` cannot be used.
    #[error("{}: {source}", path.shown())]
    Trust {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: TrustError,
    },
    /// The node cannot be reached from elsewhere.
    #[error("[remote]: {address}: {source}")]
    Remote {
        /// Where it would listen.
        address: std::net::SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The node cannot give up what it does not need.
    #[error(transparent)]
    Confine(#[from] ConfineError),
    /// Compiled modules cannot be run.
    #[error(transparent)]
    Engine(#[from] LoadError),
    /// The ledger cannot be written.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A session of the configuration cannot be.
    #[error("{}: {}", path.shown(), of_session(session, error))]
    Session {
        /// The file.
        path: PathBuf,
        /// Which.
        session: Name,
        /// Why.
        error: NodeError,
    },
    /// The node does not start.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The socket cannot be made.
    #[error("{}: {source}", path.shown())]
    Socket {
        /// Where.
        path: PathBuf,
        /// The file that is there, or the system's error.
        source: weir_confine::socket::SocketError,
    },
    /// Metrics cannot be served.
    #[error("metrics: {address}: {source}")]
    Metrics {
        /// Where.
        address: std::net::SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The process that starts others is no more.
    #[error(
        "the process that starts others has ended ({0}): without it nothing can be loaded, so the node has ended as well, to be started anew"
    )]
    Spawner(std::process::ExitStatus),
    /// Signals cannot be received, or a thread cannot be started.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// What changed takes effect with a new start only.
    #[error("{}: [{part}] has changed, and a running node cannot change that: start it anew", path.shown())]
    Restart {
        /// The file.
        path: PathBuf,
        /// The part of the file.
        part: &'static str,
    },
}

/// A request that was not granted. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// Because of the node.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// Because of the configuration.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
}

/// The problems of a configuration, a line for each.
fn told(path: &Path, problems: &[Remark]) -> String {
    let mut lines: Vec<String> = problems.iter().map(|problem| problem.at(path)).collect();
    let count = if lines.len() == 1 { "1 thing".to_owned() } else { format!("{} things", lines.len()) };
    lines.push(format!("{}: {count} to mend", path.shown()));
    lines.join("\n")
}
