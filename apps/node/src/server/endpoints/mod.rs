//! The node's interfaces to its surroundings: local socket, remote connections, metrics, signals, service manager.

mod connection;
mod delivery;
mod local;
mod quota;
mod rate_limiter;
mod records;
mod remote;

use crate::log::{info, warn};
use crate::server::daemon::{Daemon, DaemonError, Signal};
use crate::server::metrics;
use crate::server::single_value_cache::SingleValueCache;
use connection::RequestServer;
use remote::RemoteServer;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;
use weir_os::socket::SocketFile;
use weir_remote::KeyAgent;
use weir_trust::association::Signer;

/// The age up to which metrics are served from a cache. Any local user can request them, and each snapshot takes time
/// of every core.
const METRICS_AGE_MAX: Duration = Duration::from_millis(500);

/// The name of the threads that serve clients.
const CLIENT_THREAD: &str = "weir-client";

/// Returns true if a thread of this name serves one client only, so that the node can go on without it.
pub(crate) fn is_client_thread(thread: Option<&str>) -> bool {
    thread.is_some_and(|name| name == CLIENT_THREAD || name == metrics::THREAD)
}

/// Starts a thread that forwards signals of the process to the daemon.
pub(crate) fn catch_signals(daemon: Sender<Signal>) -> io::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    std::thread::Builder::new().name("weir-signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            let sent = daemon.send(if signal == SIGHUP { Signal::Reload } else { Signal::Stop });
            if sent.is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

/// Sends a state to the service manager, if there is one (sd_notify(3)). Errors are ignored.
pub(crate) fn notify(state: &str) {
    let Some(address) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let Ok(socket) = UnixDatagram::unbound() else { return };
    let bytes = std::os::unix::ffi::OsStrExt::as_bytes(address.as_os_str());
    let sent = if let Some(name) = bytes.strip_prefix(b"@") {
        use std::os::linux::net::SocketAddrExt;
        std::os::unix::net::SocketAddr::from_abstract_name(name)
            .and_then(|address| socket.send_to_addr(state.as_bytes(), &address))
    } else {
        socket.send_to(state.as_bytes(), &address)
    };
    _ = sent;
}

/// The threads that serve requests. They end when this value is dropped.
#[derive(Debug)]
pub(crate) struct RequestThreads {
    /// The file of the local socket. It is dropped before `local_shutdown`: while the socket is open, no other file can have
    /// the same inode number.
    _socket: SocketFile,
    /// The listening local socket, as a type that the standard library can shut down.
    local_shutdown: UnixStream,
    /// The listening socket for remote connections, as a type that the standard library can shut down; `None` without remote
    /// access.
    remote_shutdown: Option<TcpStream>,
    /// Stops the server for metrics; `None` without metrics.
    metrics: Option<weir_http::Stopper>,
    is_stopping: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl RequestThreads {
    /// Binds the node's sockets, and starts the threads that serve them. `key` is the key agent, with remote access.
    pub(crate) fn start(daemon: &Arc<Daemon>, key: Option<KeyAgent>) -> Result<Self, DaemonError> {
        let path = daemon.socket();
        let (listener, socket) = weir_os::socket::listen(&path)
            .map_err(|source| DaemonError::Socket { path: path.clone(), source })?;
        let is_stopping = Arc::new(AtomicBool::new(false));
        // All sockets are bound before a thread starts, so that an error leaves nothing running.
        let metrics = daemon.metrics();
        let metrics_server = metrics.map(|address| {
            let failed = |source| DaemonError::Metrics { address, source };
            TcpListener::bind(address).and_then(metrics::prepare).map_err(failed)
        });
        let metrics_server = metrics_server.transpose()?;
        let mut remote = None;
        if let (Some(address), Some(key)) = (daemon.remote(), key) {
            let failed = |source| DaemonError::Remote { address, source };
            let listener = TcpListener::bind(address).map_err(failed)?;
            let shutdown_handle =
                listener.try_clone().map(|listener| TcpStream::from(OwnedFd::from(listener)));
            remote = Some((listener, shutdown_handle.map_err(failed)?, key));
        }
        let server = RequestServer::new(daemon, &is_stopping);
        let local_shutdown = listener
            .try_clone()
            .map(|listener| UnixStream::from(OwnedFd::from(listener)))
            .map_err(|source| DaemonError::Socket { path, source: source.into() })?;
        let mut service = Self {
            _socket: socket,
            local_shutdown,
            remote_shutdown: None,
            metrics: None,
            is_stopping,
            threads: Vec::new(),
        };
        service.spawn("weir-control", move || local::accept(&listener, &server))?;
        if let Some((listener, shutdown_handle, key)) = remote {
            // Remote clients have quotas of their own, so that they take nothing from the local operator.
            let server = RemoteServer::new(key, RequestServer::new(daemon, &service.is_stopping));
            info(&format!(
                "node {} is reached at {} as {}",
                daemon.name(),
                address_of(&listener),
                server.key_agent.public()
            ));
            service.spawn("weir-remote", move || remote::accept(listener, &server))?;
            service.remote_shutdown = Some(shutdown_handle);
        }
        if let Some((server, stopper)) = metrics_server {
            let daemon = Arc::clone(daemon);
            let cache = SingleValueCache::new(METRICS_AGE_MAX);
            let snapshot = move || cache.get(|| daemon.snapshot()).as_ref().clone();
            service.spawn("weir-metrics", move || {
                if let Err(error) = metrics::serve(server, snapshot) {
                    warn(&format_args!("metrics are not served: {error}"));
                }
            })?;
            service.metrics = Some(stopper);
        }
        Ok(service)
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), DaemonError> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
        self.threads
            .push(thread.map_err(|source| DaemonError::System { what: "starting a thread", source })?);
        Ok(())
    }
}

impl Drop for RequestThreads {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::Release);
        // Ends the wait for a client, even if the socket's file was removed (shutdown(2)).
        _ = self.local_shutdown.shutdown(Shutdown::Both);
        if let Some(remote_shutdown) = &self.remote_shutdown {
            _ = remote_shutdown.shutdown(Shutdown::Both);
        }
        if let Some(metrics) = &self.metrics {
            metrics.stop();
        }
        for thread in self.threads.drain(..) {
            _ = thread.join();
        }
    }
}

/// Returns the address that a listener is bound to, for the log.
fn address_of(listener: &TcpListener) -> String {
    listener.local_addr().map_or_else(|error| error.to_string(), |address| address.to_string())
}
