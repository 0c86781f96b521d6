//! Errors of a node's start, of its reloads, and of its operation.

use crate::control::config::NodeConfigError;
use crate::control::policy::PolicyError;
use crate::server::config_check::Remark;
use crate::server::trust::RemoteConfigError;
use crate::sessions::error::{NodeError, of_session};
use crate::sessions::tables::TableFileError;
use std::io;
use std::path::{Path, PathBuf};
use weir_admission::Name;
use weir_ledger_files::LedgerError;
use weir_os::ConfineError;
use weir_sandbox::LoadError;
use weir_units::Escape as _;

/// An error that keeps a node from starting, keeps a reload from changing anything, or ends a running node.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// A file cannot be read, or a folder of the node cannot be read, created or checked.
    #[error("{}: {source}", path.escaped())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The state folder cannot be used by this version of weir.
    #[error(transparent)]
    StateVersion(#[from] crate::server::state_version::StateVersionError),
    /// A folder of the node belongs to another user.
    #[error(
        "{}: it belongs to user {owner}, and the node cannot write there, even if root starts it, as it gives up root's access to other users' files; start it as that user, or `chown -R` the folder to the node's user",
        path.escaped()
    )]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// The user that owns the folder.
        owner: u32,
    },
    /// The configuration is wrong.
    #[error("{}: {}{source}", path.escaped(), line.map_or_else(String::new, |line| format!("line {line}: ")))]
    Config {
        /// The file.
        path: PathBuf,
        /// The line, if it is known and not part of the error.
        line: Option<usize>,
        /// The error in the file.
        source: NodeConfigError,
    },
    /// No node can start on this machine with this configuration.
    #[error("{}", list_problems(path, problems))]
    Problems {
        /// The file.
        path: PathBuf,
        /// All problems, at least one.
        problems: Vec<Remark>,
    },
    /// The operator's policy, in the configuration or in files of its own, is wrong.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A test case of the operator's policy does not hold, so the policy does not do what the operator intends.
    #[error("{}:{line}: case `{name}` does not hold: {difference} ({} of {total} cases do not; `weir policy test` tries them)", path.escaped(), other_failures + 1)]
    Case {
        /// The file of the first case that does not hold.
        path: PathBuf,
        /// The case's line.
        line: usize,
        /// The case's name.
        name: String,
        /// The difference between the expected and the actual decision.
        difference: String,
        /// The number of other cases that do not hold.
        other_failures: usize,
        /// The number of all cases.
        total: usize,
    },
    /// A table's file cannot be used.
    #[error(transparent)]
    Table(#[from] TableFileError),
    /// The private key, the stored revocations or the node's name cannot be used.
    #[error("{}: {source}", path.escaped())]
    Trust {
        /// The file.
        path: PathBuf,
        /// The error in the file.
        source: RemoteConfigError,
    },
    /// The node cannot listen for remote connections.
    #[error("[remote]: {address}: {source}")]
    Remote {
        /// The address to listen on.
        address: std::net::SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The process cannot be confined.
    #[error(transparent)]
    Confine(#[from] ConfineError),
    /// The WebAssembly engine cannot be created.
    #[error(transparent)]
    Engine(#[from] LoadError),
    /// The ledger cannot be opened, read or written, or its contents were changed.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A session of the configuration cannot be created.
    #[error("{}: {}", path.escaped(), of_session(session, error))]
    Session {
        /// The file.
        path: PathBuf,
        /// The session.
        session: Name,
        /// The reason.
        error: NodeError,
    },
    /// The node's interfaces, links, cores or tables cannot be set up or changed.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The socket cannot be made.
    #[error("{}: {source}", path.escaped())]
    Socket {
        /// The socket's path.
        path: PathBuf,
        /// The obstacle: another file at this path, or the system's error.
        source: weir_os::socket::SocketError,
    },
    /// Metrics cannot be served.
    #[error("metrics: {address}: {source}")]
    Metrics {
        /// The address to listen on.
        address: std::net::SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The spawner process has ended.
    #[error(
        "the spawner process has ended ({0}); without it no module can be loaded, so the node has ended: restart it"
    )]
    Spawner(std::process::ExitStatus),
    /// Signals cannot be received, or a thread or the spawner process cannot be started.
    #[error("{what}: {source}")]
    System {
        /// The action that failed.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The change takes effect only when the node is restarted.
    #[error("{}: [{part}] has changed, which a running node cannot apply: restart it", path.escaped())]
    Restart {
        /// The file.
        path: PathBuf,
        /// The section of the file.
        part: &'static str,
    },
}

/// Lists the problems of a configuration, one on each line, with their number at the end.
fn list_problems(path: &Path, problems: &[Remark]) -> String {
    let mut lines: Vec<String> = problems.iter().map(|problem| problem.at(path)).collect();
    let count = if lines.len() == 1 { "1 error".to_owned() } else { format!("{} errors", lines.len()) };
    lines.push(format!("{}: {count}", path.escaped()));
    lines.join("\n")
}
