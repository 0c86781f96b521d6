//! Control sockets: other programs call the handlers of a running graph.
//!
//! A thread for each connection runs the protocol, and passes calls of handlers to the thread of the graph, which
//! executes them between two rounds of tasks. So a slow or hostile peer delays nothing but its own connection, and while
//! no peer asks for anything, the graph looks at one flag.

use crate::peer;
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};
use weir_graph::control::{ControlHandlers, ControlSession, HandlerCall};
use weir_graph::engine::{DeviceWaker, HandlerError, HandlerFault, Router};
use weir_os::socket::{SocketError, SocketFile, listen};
use weir_units::Escape as _;

/// The most connections at a time. Further ones are closed at once.
pub const CONTROL_CONNECTIONS_MAX: usize = 16;

/// The ports that are tried for `PORT+`.
const PORTS_TRIED: u16 = 100;

/// The most news about connections that wait to be taken.
const NEWS_MAX: usize = 1000;

/// The bytes that are read at once.
const READ_BYTES: usize = 16 << 10;

/// The longest time for which a peer may take no byte of its answers.
const WRITE_TIME_MAX: Duration = Duration::from_secs(30);

/// The time in which answers reach their peers when the graph has ended.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// The mode of a socket in the file system: its owner alone connects.
const SOCKET_MODE: u32 = 0o600;

/// The pause after an error of accepting a connection, such as when there is no free descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// An address of a control socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlAddress {
    /// A TCP port of 127.0.0.1. With `or_later`, one of the ports behind it if it is in use.
    Port {
        /// The port.
        port: u16,
        /// A later port will do.
        or_later: bool,
    },
    /// A TCP port of all addresses of this host, to which every program and host can connect.
    PublicPort {
        /// The port.
        port: u16,
        /// A later port will do.
        or_later: bool,
    },
    /// A socket in the file system, to which its owner alone can connect.
    File(PathBuf),
}

/// The reason for which a control socket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ControlServerError {
    /// The port cannot be bound.
    #[error("control socket {address}:{port}: {source}")]
    Port {
        /// The address of the interface.
        address: Ipv4Addr,
        /// The port.
        port: u16,
        /// The system's error.
        source: io::Error,
    },
    /// Another program listens on the socket.
    #[error("control socket {}: another program listens there; name another file", .0.escaped())]
    InUse(PathBuf),
    /// The socket cannot be bound.
    #[error("control socket {}: {source}", path.escaped())]
    File {
        /// The socket.
        path: PathBuf,
        /// The reason.
        source: SocketError,
    },
    /// The system starts no thread.
    #[error("control sockets: {0}")]
    Thread(io::Error),
}

/// A call, and the way back to the connection.
pub(crate) struct PendingCall {
    pub call: HandlerCall,
    pub answer: SyncSender<Result<String, HandlerError>>,
}

/// The state that the threads share.
struct SharedState {
    /// A call waits for the graph.
    is_pending: AtomicBool,
    is_closing: AtomicBool,
    /// The thread of the graph.
    graph: Thread,
    /// Ends another kind of wait of this thread, such as one for devices.
    waker: OnceLock<DeviceWaker>,
    next: AtomicU64,
    /// The news about connections that were not taken yet, each as a line; `None` if they are not wanted.
    news: Option<Mutex<Vec<String>>>,
    /// The open connections by their number.
    open: Mutex<BTreeMap<u64, PeerStream>>,
}

impl SharedState {
    /// Adds a piece of news, unless too many were not taken.
    fn tell(&self, line: String) {
        let Some(news) = &self.news else { return };
        let mut news = news.lock().unwrap_or_else(PoisonError::into_inner);
        if news.len() < NEWS_MAX {
            news.push(line);
        }
        drop(news);
        self.wake();
    }

    /// Ends a wait of the graph.
    fn wake(&self) {
        self.graph.unpark();
        if let Some(waker) = self.waker.get() {
            waker();
        }
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<u64, PeerStream>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The control sockets of a graph. Belongs to the thread that runs it. Dropping it closes them.
pub struct ControlServer {
    shared: Arc<SharedState>,
    calls: Receiver<PendingCall>,
    sender: SyncSender<PendingCall>,
    /// Each with the address by which its thread is woken.
    listeners: Vec<(JoinHandle<()>, ControlAddress)>,
}

impl ControlServer {
    /// Opens control sockets. The calling thread has to run the graph, and to call [`ControlServer::serve`].
    ///
    /// # Errors
    ///
    /// [`ControlServerError`] if one of them cannot be opened.
    pub fn open(addresses: &[ControlAddress]) -> Result<Self, ControlServerError> {
        Self::start(addresses, None)
    }

    /// Opens control sockets as [`ControlServer::open`] does, and keeps news about their connections.
    ///
    /// # Errors
    ///
    /// Fails as [`ControlServer::open`] does.
    pub(crate) fn open_with_news(addresses: &[ControlAddress]) -> Result<Self, ControlServerError> {
        Self::start(addresses, Some(Mutex::default()))
    }

    fn start(
        addresses: &[ControlAddress],
        news: Option<Mutex<Vec<String>>>,
    ) -> Result<Self, ControlServerError> {
        // Each connection has one call at a time.
        let (sender, calls) = sync_channel(CONTROL_CONNECTIONS_MAX);
        let shared = Arc::new(SharedState {
            is_pending: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            graph: thread::current(),
            waker: OnceLock::new(),
            next: AtomicU64::new(0),
            news,
            open: Mutex::default(),
        });
        let mut server = Self { shared, calls, sender, listeners: Vec::new() };
        for address in addresses {
            let (listener, address) = PeerListener::bind(address)?;
            let (shared, sender) = (Arc::clone(&server.shared), server.sender.clone());
            let thread = thread::Builder::new()
                .name("control".to_owned())
                .spawn(move || listener.accept_all(&shared, &sender))
                .map_err(ControlServerError::Thread)?;
            server.listeners.push((thread, address));
        }
        Ok(server)
    }

    /// Returns a way for this program to call handlers from other threads, as its peers do.
    pub fn caller(&self) -> ControlCaller {
        ControlCaller { shared: Arc::clone(&self.shared), calls: self.sender.clone() }
    }

    /// Returns the addresses, with the ports that were found.
    pub fn addresses(&self) -> impl Iterator<Item = &ControlAddress> {
        self.listeners.iter().map(|(_, address)| address)
    }

    /// Sets a function that ends a wait of the graph, such as one for devices, when a call comes.
    pub fn set_waker(&self, waker: DeviceWaker) {
        // A graph has one way to wait, so this comes once.
        _ = self.shared.waker.set(waker);
    }

    /// Returns the calls that wait: at most one of each connection.
    pub(crate) fn pending(&self) -> Vec<PendingCall> {
        self.shared.is_pending.store(false, Ordering::Release);
        let calls: Vec<PendingCall> = self.calls.try_iter().take(CONTROL_CONNECTIONS_MAX).collect();
        if calls.len() == CONTROL_CONNECTIONS_MAX {
            // Further ones may be there.
            self.shared.is_pending.store(true, Ordering::Release);
        }
        calls
    }

    /// Returns true if a call may wait.
    pub(crate) fn is_pending(&self) -> bool {
        self.shared.is_pending.load(Ordering::Acquire)
    }

    /// Adds the news about connections to a list.
    pub(crate) fn take_news(&self, to: &mut Vec<String>) {
        if let Some(news) = &self.shared.news {
            to.append(&mut news.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Executes the calls that wait: at most one of each connection, so that the graph goes on.
    #[inline]
    pub fn serve(&self, router: &mut Router) {
        if self.shared.is_pending.load(Ordering::Relaxed) {
            self.serve_pending(router);
        }
    }

    fn serve_pending(&self, router: &mut Router) {
        for PendingCall { call, answer } in self.pending() {
            // A connection that is gone needs no answer.
            _ = answer.send(router.call_handler(&call));
        }
    }

    /// Waits for a call, at most for this time. May return earlier.
    pub fn wait(&self, most: Duration) {
        if !self.shared.is_pending.load(Ordering::Acquire) {
            thread::park_timeout(most);
        }
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.shared.is_closing.store(true, Ordering::Release);
        for (thread, address) in self.listeners.drain(..) {
            // The thread waits for a connection.
            let is_woken = match &address {
                ControlAddress::Port { port, .. } | ControlAddress::PublicPort { port, .. } => {
                    TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).is_ok()
                }
                ControlAddress::File(path) => UnixStream::connect(path).is_ok(),
            };
            if is_woken {
                _ = thread.join();
            }
        }
        // Calls that still come find no graph.
        let (_, none) = sync_channel(0);
        drop(std::mem::replace(&mut self.calls, none));
        self.shared.open().values().for_each(|stream| stream.shut_down(Shutdown::Read));
        let end = Instant::now() + CLOSE_TIME;
        while !self.shared.open().is_empty() && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
        self.shared.open().values().for_each(|stream| stream.shut_down(Shutdown::Both));
    }
}

enum PeerListener {
    Tcp(TcpListener),
    /// Peers are not asked for their user.
    Public(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// Binds a port, or one of those behind it.
fn bind_port(address: Ipv4Addr, port: u16, or_later: bool) -> Result<(TcpListener, u16), ControlServerError> {
    let last = if or_later { port.saturating_add(PORTS_TRIED) } else { port };
    let mut tried = port;
    loop {
        match TcpListener::bind((address, tried)) {
            Ok(listener) => {
                let port = listener.local_addr().map_or(tried, |address| address.port());
                return Ok((listener, port));
            }
            Err(error) if error.kind() == ErrorKind::AddrInUse && tried < last => tried += 1,
            Err(source) => return Err(ControlServerError::Port { address, port: tried, source }),
        }
    }
}

impl PeerListener {
    fn bind(address: &ControlAddress) -> Result<(Self, ControlAddress), ControlServerError> {
        match address {
            ControlAddress::Port { port, or_later } => {
                let (listener, port) = bind_port(Ipv4Addr::LOCALHOST, *port, *or_later)?;
                Ok((Self::Tcp(listener), ControlAddress::Port { port, or_later: false }))
            }
            ControlAddress::PublicPort { port, or_later } => {
                let (listener, port) = bind_port(Ipv4Addr::UNSPECIFIED, *port, *or_later)?;
                Ok((Self::Public(listener), ControlAddress::PublicPort { port, or_later: false }))
            }
            ControlAddress::File(path) => match listen(path) {
                Ok((listener, file)) => {
                    // Others who connected before are refused, too: `accept` looks at the user.
                    std::fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE)).map_err(|error| {
                        ControlServerError::File { path: path.clone(), source: error.into() }
                    })?;
                    Ok((Self::Unix(listener, file), address.clone()))
                }
                Err(error) if error.is_taken_by_a_server() => Err(ControlServerError::InUse(path.clone())),
                Err(source) => Err(ControlServerError::File { path: path.clone(), source }),
            },
        }
    }

    fn accept_all(self, shared: &Arc<SharedState>, calls: &SyncSender<PendingCall>) {
        loop {
            let accepted = self.accept();
            if shared.is_closing.load(Ordering::Acquire) {
                break;
            }
            match accepted {
                Ok(Some(stream)) => begin(stream, shared, calls),
                Ok(None) => {}
                Err(_) => thread::sleep(ACCEPT_PAUSE),
            }
        }
        if let Self::Unix(listener, file) = self {
            // The file is removed while the socket is open, so it cannot be another's.
            drop(file);
            drop(listener);
        }
    }

    /// Returns the next connection, with its peer for news; `None` for one of a user without the right.
    fn accept(&self) -> io::Result<Option<(PeerStream, String)>> {
        let (mut stream, from, is_own) = match self {
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept()?;
                let is_own = peer::is_own_process(&stream);
                (PeerStream::Unix(stream), String::new(), is_own)
            }
            Self::Public(listener) => {
                let (stream, peer) = listener.accept()?;
                _ = stream.set_nodelay(true);
                (PeerStream::Tcp(stream), format!(" from {peer}"), Ok(true))
            }
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                let is_own = match (peer, stream.local_addr()?) {
                    (SocketAddr::V4(peer), SocketAddr::V4(own)) => peer::is_own_connection(peer, own),
                    _ => Ok(false),
                };
                // Answers are short.
                _ = stream.set_nodelay(true);
                (PeerStream::Tcp(stream), format!(" from {peer}"), is_own)
            }
        };
        if is_own.unwrap_or(false) {
            return Ok(Some((stream, from)));
        }
        _ = stream.write_all(b"530 permission denied: connect as the user of the graph\r\n");
        Ok(None)
    }
}

/// Starts the thread of a connection.
fn begin(
    (mut stream, from): (PeerStream, String),
    shared: &Arc<SharedState>,
    calls: &SyncSender<PendingCall>,
) {
    if shared.open().len() >= CONTROL_CONNECTIONS_MAX {
        _ = stream.write_all(b"530 too many connections\r\n");
        return;
    }
    let Ok(other) = stream.try_clone() else { return };
    let number = shared.next.fetch_add(1, Ordering::Relaxed);
    shared.open().insert(number, other);
    let (of_thread, calls) = (Arc::clone(shared), calls.clone());
    let started = thread::Builder::new().name("control".to_owned()).spawn(move || {
        // An error of the socket ends the connection.
        of_thread.tell(format!("opened connection {number}{from}"));
        _ = converse(&mut stream, &mut ControlCaller { shared: Arc::clone(&of_thread), calls });
        of_thread.tell(format!("closed connection {number}"));
        linger(&mut stream);
        of_thread.open().remove(&number);
    });
    if started.is_err() {
        shared.open().remove(&number);
    }
}

fn converse(stream: &mut PeerStream, handlers: &mut ControlCaller) -> io::Result<()> {
    stream.set_write_timeout(WRITE_TIME_MAX)?;
    let mut session = ControlSession::default();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        loop {
            let again = session.advance(handlers);
            stream.write_all(session.output())?;
            session.sent(session.output().len());
            if !again {
                break;
            }
        }
        if session.is_closed() {
            return Ok(());
        }
        let room = session.room().min(buffer.len());
        match stream.read(&mut buffer[..room]) {
            Ok(0) => session.end_input(),
            Ok(count) => _ = session.receive(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads for a moment what the peer still sends: closing a socket with unread bytes would take the last answer away.
fn linger(stream: &mut PeerStream) {
    stream.shut_down(Shutdown::Write);
    _ = stream.set_read_timeout(Duration::from_millis(100));
    let end = Instant::now() + CLOSE_TIME;
    let mut buffer = vec![0; READ_BYTES];
    while Instant::now() < end && stream.read(&mut buffer).is_ok_and(|count| count > 0) {}
}

/// The graph, as a connection or another thread reaches it.
#[derive(Clone)]
pub struct ControlCaller {
    shared: Arc<SharedState>,
    calls: SyncSender<PendingCall>,
}

impl ControlHandlers for ControlCaller {
    fn call(&mut self, call: HandlerCall) -> Result<String, HandlerError> {
        let gone = || HandlerError { fault: HandlerFault::NoGraph, text: "the graph has ended".to_owned() };
        let (answer, answered) = sync_channel(1);
        self.calls.send(PendingCall { call, answer }).map_err(|_| gone())?;
        self.shared.is_pending.store(true, Ordering::Release);
        self.shared.wake();
        answered.recv().unwrap_or_else(|_| Err(gone()))
    }
}

/// A connection.
enum PeerStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl PeerStream {
    fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
            Self::Unix(stream) => Self::Unix(stream.try_clone()?),
        })
    }

    fn shut_down(&self, direction: Shutdown) {
        // A connection that the peer has closed already is no error.
        _ = match self {
            Self::Tcp(stream) => stream.shutdown(direction),
            Self::Unix(stream) => stream.shutdown(direction),
        };
    }

    fn set_write_timeout(&self, time: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_write_timeout(Some(time)),
            Self::Unix(stream) => stream.set_write_timeout(Some(time)),
        }
    }

    fn set_read_timeout(&self, time: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(Some(time)),
            Self::Unix(stream) => stream.set_read_timeout(Some(time)),
        }
    }
}

impl Read for PeerStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for PeerStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl std::str::FromStr for ControlAddress {
    type Err = String;

    /// Reads a port: `PORT`, or `PORT+`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (number, or_later) = text.strip_suffix('+').map_or((text, false), |number| (number, true));
        let port =
            number.parse().map_err(|_| "expected a port, such as 7777, or 7777+ for the next free one")?;
        Ok(Self::Port { port, or_later })
    }
}

impl From<&Path> for ControlAddress {
    fn from(path: &Path) -> Self {
        Self::File(path.to_owned())
    }
}
