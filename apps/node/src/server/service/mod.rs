//! How a node is reached: its socket, its signals, the service manager.

mod conversation;
mod delivery;
mod hearing;
mod local;
mod pace;
mod remote;
mod room;

use crate::server::daemon::{Daemon, DaemonError, Signal};
use crate::server::log::say;
use crate::server::metrics;
use crate::server::recent::Recent;
use conversation::RequestServer;
pub(crate) use hearing::{Heard, hear};
use remote::RemoteServer;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
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

/// How old metrics may be. Anybody on this machine can ask for them, and each snapshot takes time of every core.
const METRICS_AGE: Duration = Duration::from_millis(500);

/// What threads that answer somebody are called.
const CLIENT: &str = "weir-client";

/// Whether a thread answers somebody, and nobody else needs it.
pub(crate) fn is_of_a_client(thread: Option<&str>) -> bool {
    thread.is_some_and(|name| name == CLIENT || name == metrics::CONNECTION)
}

/// Turns signals into what the daemon does.
pub(crate) fn catch_signals(to: Sender<Signal>) -> io::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    std::thread::Builder::new().name("weir-signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            let sent = to.send(if signal == SIGHUP { Signal::Reload } else { Signal::Stop });
            if sent.is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

/// Tells the service manager (sd_notify(3)), where there is one. What it makes of it is its own business.
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

/// The threads that answer. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct RequestThreads {
    /// The socket's file. Dropped before `listens`: as long as that is open, no other file has its number.
    _socket: SocketFile,
    /// The sockets that are listened at. Not streams, but what the standard library can shut down is one.
    listens: UnixStream,
    listens_elsewhere: Option<TcpStream>,
    metrics: Option<SocketAddr>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl RequestThreads {
    pub(crate) fn start(daemon: &Arc<Daemon>, key: Option<KeyAgent>) -> Result<Self, DaemonError> {
        let path = daemon.socket();
        let (listener, socket) = weir_os::socket::listen(&path)
            .map_err(|source| DaemonError::Socket { path: path.clone(), source })?;
        let is_over = Arc::new(AtomicBool::new(false));
        // Both listen before anything is answered, so that nothing is left behind where one of them cannot.
        let metrics = daemon.metrics();
        let metered = metrics.map(|address| {
            let failed = |source| DaemonError::Metrics { address, source };
            TcpListener::bind(address)
                .and_then(|listener| Ok((listener.local_addr()?, listener)))
                .map_err(failed)
        });
        let metered = metered.transpose()?;
        let mut elsewhere = None;
        if let (Some(address), Some(key)) = (daemon.remote(), key) {
            let failed = |source| DaemonError::Remote { address, source };
            let listener = TcpListener::bind(address).map_err(failed)?;
            let listens = listener.try_clone().map(|listener| TcpStream::from(OwnedFd::from(listener)));
            elsewhere = Some((listener, listens.map_err(failed)?, key));
        }
        let office = RequestServer::new(daemon, &is_over);
        let listens = listener
            .try_clone()
            .map(|listener| UnixStream::from(OwnedFd::from(listener)))
            .map_err(|source| DaemonError::Socket { path, source: source.into() })?;
        let mut service = Self {
            _socket: socket,
            listens,
            listens_elsewhere: None,
            metrics: None,
            is_over,
            threads: Vec::new(),
        };
        service.spawn("weir-control", move || local::accept(&listener, &office))?;
        if let Some((listener, listens, key)) = elsewhere {
            // Rooms of their own: nobody elsewhere takes what the operator needs.
            let server = RemoteServer::new(key, RequestServer::new(daemon, &service.is_over));
            say(&format!(
                "node {} is reached at {} as {}",
                daemon.name(),
                address_of(&listener),
                server.keeper.public()
            ));
            service.spawn("weir-remote", move || remote::accept(listener, &server))?;
            service.listens_elsewhere = Some(listens);
        }
        if let Some((address, listener)) = metered {
            let (theirs, over) = (Arc::clone(daemon), Arc::clone(&service.is_over));
            let recent = Recent::new(METRICS_AGE);
            let snapshot = move || recent.get(|| theirs.snapshot()).as_ref().clone();
            service.spawn("weir-metrics", move || metrics::serve(&listener, snapshot, &over))?;
            service.metrics = Some(address);
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
        self.is_over.store(true, Ordering::Release);
        // Ends the wait for a client, also where somebody has removed the socket's file (shutdown(2)).
        _ = self.listens.shutdown(Shutdown::Both);
        if let Some(listens) = &self.listens_elsewhere {
            _ = listens.shutdown(Shutdown::Both);
        }
        if let Some(address) = self.metrics {
            metrics::wake(address);
        }
        for thread in self.threads.drain(..) {
            _ = thread.join();
        }
    }
}

/// Where it listens, for people.
fn address_of(listener: &TcpListener) -> String {
    listener.local_addr().map_or_else(|error| error.to_string(), |address| address.to_string())
}
