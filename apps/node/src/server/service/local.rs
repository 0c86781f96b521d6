//! The node's own socket, for the operator: whoever the system lets in may ask for anything.

use super::CLIENT;
use super::conversation::{Conversation, PATIENCE, PeerStream, RequestServer, refuse};
use super::room::ClientPermit;
use crate::control::authority::Asker;
use crate::server::log::warn;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Clients at a time, at most.
const CLIENTS_MAX: usize = 64;

/// Answers who connects, until the node stops.
pub(super) fn accept(listener: &UnixListener, office: &Arc<RequestServer>) {
    for stream in listener.incoming() {
        if office.is_over() {
            return;
        }
        let Ok(stream) = stream else {
            // No descriptor is free. It may be different soon.
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        // What a client does to its connection is its own business.
        let Ok(mut stream) = Local::new(stream) else { continue };
        let Some(seat) = ClientPermit::take(&office.clients, CLIENTS_MAX) else {
            let why = format!("{CLIENTS_MAX} clients are connected; that is the most");
            _ = refuse(&mut stream, &why);
            continue;
        };
        let office = Arc::clone(office);
        let spawned = std::thread::Builder::new().name(CLIENT.to_owned()).spawn(move || {
            _ = Conversation::new(stream, Asker::Operator(None), &office).serve();
            drop(seat);
        });
        if let Err(error) = spawned {
            warn(&format_args!("a client cannot be answered: {error}"));
        }
    }
}

/// A client on this machine.
#[derive(Debug)]
struct Local {
    stream: UnixStream,
    until: Instant,
}

impl Local {
    fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, until: Instant::now() + PATIENCE })
    }
}

impl PeerStream for Local {
    fn be_patient_until(&mut self, then: Instant) {
        self.until = then;
    }

    fn is_gone(&mut self) -> bool {
        let quiet = self.stream.set_nonblocking(true).is_ok();
        let read = self.stream.read(&mut [0]);
        let back = self.stream.set_nonblocking(false);
        quiet && back.is_ok() && matches!(read, Ok(0))
    }
}

impl Read for Local {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(bytes)
    }
}

impl Write for Local {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
