//! How a node is reached: its socket, its signals, the service manager.

use crate::daemon::{Daemon, DaemonError, Signal};
use crate::followers::{Following, Told};
use crate::log::say;
use crate::metrics;
use crate::protocol::{Answer, Ask, LINE_BYTES_MAX, Reply, Request, Snapshot, VERSION, body_of};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Clients at a time, at most.
const CLIENTS_MAX: usize = 64;
/// Bytes of the files that all clients together send at a time, at most: each is kept whole until it is dealt with, in memory that is nobody's.
const BODIES_MAX: usize = 4 * weir_abi::limit::TABLE_BYTES as usize;
/// A client that says nothing for so long, or takes nothing, is left.
const PATIENCE: Duration = Duration::from_secs(60);
/// The shortest time between two snapshots for one client.
const WATCH_MIN: Duration = Duration::from_millis(50);
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
pub(crate) struct Service {
    socket: PathBuf,
    /// The socket that is listened at.
    listens: UnixStream,
    metrics: Option<SocketAddr>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Service {
    pub(crate) fn start(daemon: &Arc<Daemon>) -> Result<Self, DaemonError> {
        let socket = daemon.socket();
        let listener =
            listen(&socket).map_err(|source| DaemonError::Socket { path: socket.clone(), source })?;
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
        let (theirs, over) = (Arc::clone(daemon), Arc::clone(&is_over));
        // Not a stream, but what the standard library can shut down is one.
        let listens = listener
            .try_clone()
            .map(|listener| UnixStream::from(OwnedFd::from(listener)))
            .map_err(|source| DaemonError::Socket { path: socket.clone(), source })?;
        let mut service = Self { socket, listens, metrics: None, is_over, threads: Vec::new() };
        service.spawn("weir-control", move || accept(&listener, &theirs, &over))?;
        if let Some((address, listener)) = metered {
            let (theirs, over) = (Arc::clone(daemon), Arc::clone(&service.is_over));
            let recent = Recent::default();
            let snapshot = move || recent.get(|| theirs.snapshot());
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

impl Drop for Service {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // Ends the wait for a client, also where somebody has removed the socket's file (shutdown(2)).
        _ = self.listens.shutdown(Shutdown::Both);
        if let Some(address) = self.metrics {
            metrics::wake(address);
        }
        for thread in self.threads.drain(..) {
            _ = thread.join();
        }
        _ = std::fs::remove_file(&self.socket);
    }
}

/// The last snapshot, for whoever asks again soon.
#[derive(Debug, Default)]
struct Recent(Mutex<Option<(Instant, Snapshot)>>);

impl Recent {
    fn get(&self, new: impl FnOnce() -> Snapshot) -> Snapshot {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((at, snapshot)) if at.elapsed() < METRICS_AGE => snapshot.clone(),
            _ => {
                let snapshot = new();
                *last = Some((Instant::now(), snapshot.clone()));
                snapshot
            }
        }
    }
}

/// A socket that the owner and the group can use. One that a dead node left behind is replaced, a living one's is not.
fn listen(path: &Path) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if UnixStream::connect(path).is_ok() {
                return Err(io::Error::other("another node is running here"));
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        bound => bound?,
    };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    Ok(listener)
}

/// Counts a client for as long as it is there.
struct Seat<'a>(&'a AtomicUsize);

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Room for a client's file, for as long as this is there.
struct Room<'a> {
    taken: &'a AtomicUsize,
    bytes: usize,
}

impl<'a> Room<'a> {
    /// Nothing where others have taken too much.
    fn take(taken: &'a AtomicUsize, bytes: usize) -> Option<Self> {
        let more = |taken: usize| taken.checked_add(bytes).filter(|all| *all <= BODIES_MAX);
        taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(Self { taken, bytes })
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

fn accept(listener: &UnixListener, daemon: &Arc<Daemon>, is_over: &Arc<AtomicBool>) {
    let clients: Arc<AtomicUsize> = Arc::default();
    let bodies: Arc<AtomicUsize> = Arc::default();
    for stream in listener.incoming() {
        if is_over.load(Ordering::Acquire) {
            return;
        }
        let Ok(stream) = stream else {
            // No descriptor is free. It may be different soon.
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        if clients.fetch_add(1, Ordering::AcqRel) >= CLIENTS_MAX {
            clients.fetch_sub(1, Ordering::AcqRel);
            let why = format!("{CLIENTS_MAX} clients are connected; that is the most");
            _ = Client::new(stream).and_then(|mut client| client.say(Reply::Refused { why }));
            continue;
        }
        let (daemon, clients, is_over) = (Arc::clone(daemon), Arc::clone(&clients), Arc::clone(is_over));
        let bodies = Arc::clone(&bodies);
        let spawned = std::thread::Builder::new().name(CLIENT.to_owned()).spawn(move || {
            let _seat = Seat(&clients);
            if let Ok(mut client) = Client::new(stream) {
                // What a client does to its connection is its own business.
                _ = client.serve(&daemon, &is_over, &bodies);
            }
        });
        if let Err(error) = spawned {
            say(&format!("a client cannot be answered: {error}"));
        }
    }
}

/// Reads from a client until a time that is given, in however small pieces it sends.
struct Patient {
    stream: UnixStream,
    until: Instant,
}

impl Read for Patient {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(bytes)
    }
}

struct Client {
    reads: BufReader<Patient>,
    writes: UnixStream,
}

impl Client {
    fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_write_timeout(Some(PATIENCE))?;
        let writes = stream.try_clone()?;
        let reads = Patient { stream, until: Instant::now() + PATIENCE };
        Ok(Self { writes, reads: BufReader::new(reads) })
    }

    fn be_patient(&mut self) {
        self.reads.get_mut().until = Instant::now() + PATIENCE;
    }

    fn say(&mut self, reply: Reply) -> io::Result<()> {
        let mut line = serde_json::to_vec(&Answer { weir: VERSION, reply })?;
        line.push(b'\n');
        self.writes.write_all(&line)
    }

    fn refuse(&mut self, why: &dyn std::fmt::Display) -> io::Result<()> {
        self.say(Reply::Refused { why: why.to_string() })
    }

    fn serve(&mut self, daemon: &Daemon, is_over: &AtomicBool, bodies: &AtomicUsize) -> io::Result<()> {
        while !is_over.load(Ordering::Acquire) {
            self.be_patient();
            if self.reads.fill_buf()?.is_empty() {
                return Ok(());
            }
            // The whole request, from its first byte on.
            self.be_patient();
            let mut line = Vec::new();
            (&mut self.reads).take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line)?;
            if line.len() > LINE_BYTES_MAX {
                return self.refuse(&format!("a line has at most {LINE_BYTES_MAX} bytes"));
            }
            // The version first: another one may have other requests.
            let version = serde_json::from_slice::<Version>(&line).map(|v| v.weir);
            if let Ok(version) = version
                && version != VERSION
            {
                return self
                    .refuse(&format!("this node speaks version {VERSION} of the protocol, not {version}"));
            }
            let ask: Ask = match serde_json::from_slice(&line) {
                Ok(ask) => ask,
                Err(error) => return self.refuse(&format!("this is no request: {error}")),
            };
            let (what, most) = body_of(&ask.ask);
            let Some(len) = usize::try_from(ask.body).ok().filter(|len| *len <= most) else {
                return self.refuse(&format!("a {what}'s file has at most {most} bytes"));
            };
            // Until it is answered.
            let Some(_room) = Room::take(bodies, len) else {
                let why = "other clients are sending so much to the node that there is no room for this file; try again";
                return self.refuse(&why);
            };
            let body = if len == 0 {
                None
            } else {
                let mut body = vec![0; len];
                self.reads.read_exact(&mut body)?;
                Some(body)
            };
            self.answer(daemon, is_over, ask.ask, body)?;
        }
        Ok(())
    }

    fn answer(
        &mut self,
        daemon: &Daemon,
        is_over: &AtomicBool,
        ask: Request,
        body: Option<Vec<u8>>,
    ) -> io::Result<()> {
        let done = || Reply::Done { notes: Vec::new() };
        let reply = |result: Result<(), crate::error::NodeError>| match result {
            Ok(()) => done(),
            Err(error) => Reply::Refused { why: error.to_string() },
        };
        let answer = match ask {
            Request::Show => Reply::Snapshot(Box::new(daemon.snapshot())),
            Request::Watch { every } => {
                let every = Duration::from_nanos(every.0).clamp(WATCH_MIN, PATIENCE);
                while !is_over.load(Ordering::Acquire) {
                    self.say(Reply::Snapshot(Box::new(daemon.snapshot())))?;
                    std::thread::sleep(every);
                }
                return Ok(());
            }
            Request::Create(spec) => reply(daemon.create(spec)),
            Request::Change(change) => reply(daemon.change(&change)),
            Request::Close { session } => reply(daemon.close(&session)),
            Request::Load { session, module } => match daemon.load(&session, &module, body) {
                Ok(name) => Reply::Done { notes: vec![format!("module {name} runs in session {session}")] },
                Err(error) => Reply::Refused { why: error.to_string() },
            },
            Request::Unload { session, module } => reply(daemon.unload(&session, &module)),
            Request::PutTable { table } => reply(daemon.put_table(&table, &body.unwrap_or_default())),
            Request::RemoveTable { table } => reply(daemon.remove_table(&table)),
            Request::Rate(rate) => match daemon.change_rate(&rate) {
                Ok(note) => Reply::Done { notes: vec![note] },
                Err(error) => Reply::Refused { why: error.to_string() },
            },
            Request::Reload => match daemon.reload() {
                Ok(notes) => Reply::Done { notes },
                Err(error) => Reply::Refused { why: error.to_string() },
            },
            Request::Follow { session, module, stream } => {
                let following = daemon.with_node(|node| node.follow(&session, &module, &stream));
                match following {
                    Ok(Some(following)) => {
                        self.say(done())?;
                        return self.follow(is_over, &following);
                    }
                    Ok(None) => Reply::Refused {
                        why: format!(
                            "module `{module}` has no stream `{stream}`; `weir session show {session}` lists them"
                        ),
                    },
                    Err(error) => Reply::Refused { why: error.to_string() },
                }
            }
        };
        self.say(answer)
    }

    fn follow(&mut self, is_over: &AtomicBool, following: &Following) -> io::Result<()> {
        while !is_over.load(Ordering::Acquire) {
            match following.next(Duration::from_millis(200)) {
                Ok(Told { reply, load }) => {
                    self.say(reply)?;
                    drop(load);
                }
                Err(RecvTimeoutError::Timeout) => {
                    if self.is_gone() {
                        return Ok(());
                    }
                }
                // The module is gone, and with it what would follow.
                Err(RecvTimeoutError::Disconnected) => {
                    let rows = following.missed();
                    return if rows > 0 { self.say(Reply::Missed { rows }) } else { Ok(()) };
                }
            }
        }
        Ok(())
    }

    /// Whether the client has closed its side: nobody else would notice on a quiet stream.
    fn is_gone(&mut self) -> bool {
        let quiet = self.writes.set_nonblocking(true).is_ok();
        let mut byte = [0];
        let read = self.reads.get_mut().stream.read(&mut byte);
        let back = self.writes.set_nonblocking(false);
        quiet && back.is_ok() && matches!(read, Ok(0))
    }
}

#[derive(serde::Deserialize)]
struct Version {
    weir: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_so_many_bytes_of_files_and_it_comes_back() {
        let taken = AtomicUsize::new(0);
        let first = Room::take(&taken, BODIES_MAX - 10).unwrap();
        let second = Room::take(&taken, 10).unwrap();
        assert!(Room::take(&taken, 1).is_none() && Room::take(&taken, usize::MAX).is_none());
        // Who sends none needs none.
        assert!(Room::take(&taken, 0).is_some());
        drop(second);
        assert!(Room::take(&taken, 11).is_none() && Room::take(&taken, 10).is_some());
        drop(first);
        assert_eq!(taken.load(Ordering::Acquire), 0);
    }
}
