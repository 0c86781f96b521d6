//! A node's side.

use crate::deadline::{NoMessage, read_message, write_message};
use crate::error::Broken;
use crate::{MeetError, Stream};
use rand_core::OsRng;
use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_trust::association::{Authenticated, Message, Peer, Responder, Signer};
use weir_trust::gate::{Gate, GateCounters, Limits, Refusal, Ticket};
use weir_units::Nanos;

/// Where strangers knock: one for all addresses that a node listens at.
#[derive(Debug)]
pub struct Door {
    began: Instant,
    inside: Mutex<Inside>,
}

#[derive(Debug)]
struct Inside {
    gate: Gate,
    /// The connections of half-open handshakes.
    sockets: BTreeMap<Ticket, Arc<TcpStream>>,
}

impl Inside {
    /// Ends a handshake's connection, and so whoever waits for what comes through it.
    fn close(&mut self, ticket: Ticket) {
        if let Some(socket) = self.sockets.remove(&ticket) {
            _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Door {
    /// A door that lets so much happen.
    pub fn new(limits: Limits) -> Self {
        Self {
            began: Instant::now(),
            inside: Mutex::new(Inside { gate: Gate::new(limits), sockets: BTreeMap::new() }),
        }
    }

    /// Somebody has connected. Never waits; somebody else may have to give way.
    ///
    /// # Errors
    /// The connection is gone already.
    pub fn knock(self: &Arc<Self>, socket: TcpStream, from: SocketAddr) -> io::Result<Visitor> {
        socket.set_nodelay(true)?;
        let socket = Arc::new(socket);
        let mut inside = self.lock();
        let now = self.now();
        for late in inside.gate.expire(now) {
            inside.close(late);
        }
        let admission = inside.gate.admit(from.ip(), now);
        if let Some(evicted) = admission.evicted {
            inside.close(evicted);
        }
        inside.sockets.insert(admission.ticket, Arc::clone(&socket));
        let until = self.began + Duration::from_nanos(admission.until.0);
        Ok(Visitor { door: Arc::clone(self), ticket: admission.ticket, socket, until })
    }

    /// What became of whom.
    pub fn counters(&self) -> GateCounters {
        self.lock().gate.counters()
    }

    /// Handshakes that are half open.
    pub fn half_open(&self) -> usize {
        self.lock().gate.half_open()
    }

    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the handshake was still open.
    fn leave(&self, ticket: Ticket) -> bool {
        let mut inside = self.lock();
        inside.sockets.remove(&ticket);
        inside.gate.leave(ticket, self.now())
    }
}

/// Who has knocked. To drop it is to close the connection.
#[derive(Debug)]
pub struct Visitor {
    door: Arc<Door>,
    ticket: Ticket,
    socket: Arc<TcpStream>,
    until: Instant,
}

impl Visitor {
    /// Finds out who it is. Waits for its messages, until the handshake's time is over or it has to give way.
    ///
    /// # Errors
    /// A [`MeetError`]: the connection is closed without a word.
    pub fn meet(self, signer: &dyn Signer) -> Result<Guest, MeetError> {
        let first = self.read(Message::First)?;
        // From here on it costs processor time.
        self.door.lock().gate.answer(self.ticket, self.door.now())?;
        let (responder, second) = Responder::begin(signer, &first, &mut OsRng)?;
        self.write(&second)?;
        let authenticated = responder.third(&self.read(Message::Third)?)?;
        Ok(Guest { visitor: self, authenticated })
    }

    fn read(&self, which: Message) -> Result<Vec<u8>, MeetError> {
        read_message(&self.socket, which, self.until).map_err(|error| match error {
            NoMessage::Io(error) => Broken::of(error).into(),
            NoMessage::Wrong(error) => MeetError::Handshake(error),
        })
    }

    fn write(&self, message: &[u8]) -> Result<(), MeetError> {
        write_message(&self.socket, message, self.until).map_err(|error| Broken::of(error).into())
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        self.door.leave(self.ticket);
    }
}

/// A visitor that is who it says. Until it is accepted its handshake is half open, and its time is short. To drop it is to close the connection.
#[derive(Debug)]
pub struct Guest {
    visitor: Visitor,
    authenticated: Authenticated,
}

impl Guest {
    /// Who it is, and which credentials it has shown: nobody has looked into these yet.
    pub fn peer(&self) -> &Peer {
        self.authenticated.peer()
    }

    /// Lets it in, and shows it one's own credentials.
    ///
    /// # Errors
    /// It has given way meanwhile, its time is over, or it is gone.
    pub fn accept(self, credentials: &[u8]) -> Result<Stream, MeetError> {
        let Self { visitor, authenticated } = self;
        let (association, fourth) = authenticated.accept(credentials)?;
        // It must not have given way: else somebody else has its place.
        if !visitor.door.leave(visitor.ticket) {
            return Err(Refusal::Gone.into());
        }
        visitor.write(&fourth)?;
        Ok(Stream::new(Arc::clone(&visitor.socket), association))
    }
}
