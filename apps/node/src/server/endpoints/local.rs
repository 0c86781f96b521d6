//! Serves the local socket. Every process that the socket's permissions admit has the rights of the operator.

use super::CLIENT_THREAD;
use super::connection::{CLIENT_TIMEOUT, Connection, PeerStream, RequestServer, send_refusal};
use super::quota::ClientPermit;
use crate::control::authority::Requester;
use crate::log::warn;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The maximum number of connected clients.
const CLIENTS_MAX: usize = 64;

/// Accepts connections until the node stops.
pub(super) fn accept(listener: &UnixListener, server: &Arc<RequestServer>) {
    for stream in listener.incoming() {
        if server.is_stopping() {
            return;
        }
        let Ok(stream) = stream else {
            // The process has no free file descriptor, for example. Try again a little later.
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        // An error of this connection affects only its client.
        let Ok(mut stream) = LocalStream::new(stream) else { continue };
        let Some(permit) = ClientPermit::acquire(&server.client_count, CLIENTS_MAX) else {
            let why = format!("{CLIENTS_MAX} clients are connected, which is the maximum");
            _ = send_refusal(&mut stream, &why);
            continue;
        };
        let server = Arc::clone(server);
        let spawned = std::thread::Builder::new().name(CLIENT_THREAD.to_owned()).spawn(move || {
            _ = Connection::new(stream, Requester::Operator(None), &server).serve();
            drop(permit);
        });
        if let Err(error) = spawned {
            warn(&format_args!("no thread can be started to serve a client: {error}"));
        }
    }
}

/// The stream of a client on this machine.
#[derive(Debug)]
struct LocalStream {
    stream: UnixStream,
    deadline: Instant,
}

impl LocalStream {
    fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
        Ok(Self { stream, deadline: Instant::now() + CLIENT_TIMEOUT })
    }
}

impl PeerStream for LocalStream {
    fn set_read_deadline(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    fn is_closed_by_peer(&mut self) -> bool {
        let is_nonblocking = self.stream.set_nonblocking(true).is_ok();
        let read = self.stream.read(&mut [0]);
        let restored = self.stream.set_nonblocking(false);
        is_nonblocking && restored.is_ok() && matches!(read, Ok(0))
    }
}

impl Read for LocalStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let timeout = self.deadline.saturating_duration_since(Instant::now());
        if timeout.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(timeout))?;
        self.stream.read(bytes)
    }
}

impl Write for LocalStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
