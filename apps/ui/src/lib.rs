//! The web page of a node (docs/UI.md).
//!
//! The server runs on the user's machine, as the user, and listens at a loopback port. It talks to the node as any other
//! client: over the node's local socket, or over an association with the user's key and credential. So a node needs no HTTP
//! port, and the page shows exactly what the user may see.
//!
//! [`access`] has the one-time tokens of addresses, [`route`] reads requests, [`server`] checks and answers them.
//! [`watch`] and [`history`] keep the node's state of the last hour. The page itself is in web/.

#![forbid(unsafe_code)]

pub mod access;
pub mod advice;
pub mod assets;
pub mod credentials;
pub mod history;
mod ledger;
pub mod modules;
pub mod route;
mod rows;
mod runs;
pub mod server;
mod socket;
mod watch;

pub use socket::{ServedPage, SocketFolderError, request_addresses, socket_folder};

use access::AccessList;
use credentials::UserRevocationList;
use modules::{ModuleNames, PageModule};
use runs::Runs;
use serde::Serialize;
use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use watch::NodeState;
use weir_http::{HttpServer, Limits, Stopper};
use weir_node::client::{NodeLocation, watch as node_watch};
use weir_units::Nanos;

/// The interval of the node's state.
const INTERVAL: Nanos = Nanos::SECOND;
/// The limits of clients. A page has a few connections open: the state, rows and a run.
const LIMITS: Limits = Limits {
    connections: 64,
    head_bytes: 16 << 10,
    head_time: Duration::from_secs(30),
    connection_time: None,
};

/// The parts of a page's server.
#[derive(Debug)]
pub struct UiOptions {
    /// The node, with the user's key and credential.
    pub node: NodeLocation,
    /// Text that names the node, for people.
    pub node_text: String,
    /// Options by which commands of weir reach the node.
    pub node_options: Vec<OsString>,
    /// The loopback port; 0 for any free port.
    pub port: u16,
    /// True if the page must not change anything.
    pub is_read_only: bool,
    /// The program `weir`.
    pub program: PathBuf,
    /// The modules for runs.
    pub modules: Vec<PageModule>,
    /// The file for revocations; without it, the page revokes nothing.
    pub revocation_list: Option<UserRevocationList>,
}

/// The state of a page's server.
#[derive(Debug)]
pub struct Ui {
    node: Arc<NodeLocation>,
    node_text: String,
    /// Options by which commands of weir reach the node.
    node_options: Vec<OsString>,
    revocation_list: Option<UserRevocationList>,
    /// Host and port of the server, as a browser states them.
    host: String,
    is_read_only: bool,
    modules: Vec<PageModule>,
    module_names: ModuleNames,
    access: AccessList,
    state: NodeState,
    runs: Runs,
}

/// The node, the user and the modules, as the page reads them.
#[derive(Debug, Serialize)]
struct Description<'a> {
    /// Name of the node; its address before the node has answered.
    node: String,
    address: &'a str,
    weir: &'static str,
    who: String,
    may_manage: bool,
    /// The interfaces that the user's credential names; `None` without a credential, and for one that names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_interfaces: Option<Vec<String>>,
    modules: &'a [PageModule],
}

impl Ui {
    /// Creates the state of a server that listens at `host`.
    pub fn new(options: UiOptions, host: String) -> Self {
        let UiOptions {
            node,
            node_text,
            node_options,
            port: _,
            is_read_only,
            program,
            modules,
            revocation_list,
        } = options;
        let runs = Runs::new(program, node_options.clone(), modules.clone());
        Self {
            node: Arc::new(node),
            node_text,
            node_options,
            revocation_list,
            host,
            is_read_only,
            module_names: modules.iter().collect(),
            modules,
            access: AccessList::default(),
            state: NodeState::default(),
            runs,
        }
    }

    /// Returns a new address of the page, which opens one browser.
    pub fn address(&self) -> String {
        format!("http://{}/#{}", self.host, self.access.issue_token(Instant::now()))
    }

    fn description(&self) -> Description<'_> {
        let who = match &*self.node {
            NodeLocation::Local(_) => "the operator on this machine".to_owned(),
            NodeLocation::Remote { identity, credential, .. } if credential.is_empty() => {
                format!("operator {}", identity.public())
            }
            NodeLocation::Remote { identity, .. } => format!("holder {}", identity.public()),
        };
        Description {
            node: self.state.node_name().unwrap_or_else(|| self.node_text.clone()),
            address: &self.node_text,
            weir: env!("CARGO_PKG_VERSION"),
            who,
            may_manage: !self.is_read_only,
            run_interfaces: credentials::interfaces(&self.node),
            modules: &self.modules,
        }
    }
}

/// A page's server, which runs until this value is dropped or the process ends.
#[derive(Debug)]
pub struct RunningUi {
    ui: Arc<Ui>,
    stopper: Stopper,
    thread: Option<std::thread::JoinHandle<io::Result<()>>>,
    _socket: Option<weir_os::socket::SocketFile>,
}

impl RunningUi {
    /// Starts the server. With a folder for sockets, other commands of the user get new addresses there.
    ///
    /// # Errors
    /// The port or the socket is taken, or the system has no threads or descriptors left.
    pub fn start(options: UiOptions, socket_folder: Option<&Path>) -> Result<Self, UiError> {
        let port = options.port;
        let port_error = |source| UiError::Port { port, source };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(port_error)?;
        let address = listener.local_addr().map_err(port_error)?;
        let ui = Arc::new(Ui::new(options, address.to_string()));
        let socket = socket_folder.map(|folder| socket::serve(folder, address.port(), &ui)).transpose()?;
        let (server, stopper) = HttpServer::new(listener, LIMITS, "weir-ui-http")?;
        let watched = Arc::clone(&ui);
        std::thread::Builder::new().name("weir-ui-watch".to_owned()).spawn(move || {
            node_watch::watch(&watched.node, INTERVAL, |received| {
                watched.state.handle(received, Instant::now());
                ControlFlow::Continue(())
            });
        })?;
        let checked = Arc::downgrade(&ui);
        std::thread::Builder::new().name("weir-ui-silence".to_owned()).spawn(move || {
            while let Some(ui) = checked.upgrade() {
                ui.state.check_silence(Instant::now());
                drop(ui);
                std::thread::sleep(Duration::from_secs(1));
            }
        })?;
        let handler = Arc::clone(&ui);
        let thread = std::thread::Builder::new()
            .name("weir-ui".to_owned())
            .spawn(move || server.run(&Arc::new(move |request| server::answer(&handler, request))))?;
        Ok(Self { ui, stopper, thread: Some(thread), _socket: socket })
    }

    /// Returns a new address of the page, which opens one browser.
    pub fn address(&self) -> String {
        self.ui.address()
    }
}

impl Drop for RunningUi {
    fn drop(&mut self) {
        self.ui.runs.remove_all();
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// Errors of a page's server.
#[derive(Debug, thiserror::Error)]
pub enum UiError {
    /// The port cannot be used.
    #[error("port {port} of 127.0.0.1: {source}; choose another one with --port, or 0 for any")]
    Port {
        /// The port.
        port: u16,
        /// The system's error.
        source: io::Error,
    },
    /// The socket for further addresses cannot be used.
    #[error(transparent)]
    Socket(#[from] weir_os::socket::SocketError),
    /// The system's error.
    #[error("the page cannot be served: {0}")]
    System(#[from] io::Error),
}
