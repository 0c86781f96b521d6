//! The acceptor's thread: rounds of events.

use crate::acceptor::AcceptorState;
use crate::error::ConnectionError;
use crate::{AcceptError, PendingPeer};
use mio::net::{TcpListener as PolledListener, TcpStream as PolledStream};
use mio::{Events, Interest, Poll, Registry, Token};
use rand_core::OsRng;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_trust::association::frame::{LENGTH_BYTES, framed, length};
use weir_trust::association::{FIRST_BYTES, HandshakeMessage, Responder, Signer, check_first};
use weir_trust::gate::HalfOpenTicket;

/// The listener's token: no ticket has that number.
const LISTENER: Token = Token(usize::MAX);
/// Connections that are accepted before others are looked at.
const ACCEPTED_MAX: usize = 64;
/// Connections from which on events are gathered for [`GATHERING`], so that a flood does not wake the thread for each of its packets.
const BUSY: usize = 32;
const GATHERING: Duration = Duration::from_millis(2);
/// The pause after which accepting is tried again where the system has no descriptor.
const PAUSE: Duration = Duration::from_millis(50);
/// The longest wait for an event.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Bytes that are read at a time.
const READ_BYTES: usize = 4096;

/// A connection whose peer is not known.
struct Connection {
    ticket: HalfOpenTicket,
    socket: PolledStream,
    from: SocketAddr,
    state: State,
}

enum State {
    /// The first message comes.
    First(Input),
    /// The first message waits for its answer.
    Waiting(Vec<u8>),
    /// The third message comes, until that time.
    Third(Box<Responder>, Input, Instant),
    /// The connection is over.
    Over,
}

/// A message that comes in pieces.
#[derive(Default)]
struct Input {
    bytes: Vec<u8>,
}

impl Input {
    /// The message, when it is there as a whole; nothing beyond it is read. Its length is checked before there is room made for it.
    fn read(
        &mut self,
        mut socket: &PolledStream,
        which: HandshakeMessage,
    ) -> Result<Option<Vec<u8>>, AcceptError> {
        let mut piece = [0; READ_BYTES];
        loop {
            let whole = match self.bytes.first_chunk::<LENGTH_BYTES>() {
                // It has one length: it is read at once, as it comes.
                None if which == HandshakeMessage::First => LENGTH_BYTES + FIRST_BYTES,
                None => LENGTH_BYTES,
                Some(said) => LENGTH_BYTES + length(which, *said)?,
            };
            let missing = whole - self.bytes.len();
            if missing == 0 {
                return Ok(Some(self.bytes.split_off(LENGTH_BYTES)));
            }
            let most = missing.min(READ_BYTES);
            match socket.read(piece.get_mut(..most).unwrap_or_default()) {
                Ok(0) => return Err(AcceptError::Closed),
                Ok(count) => self.bytes.extend_from_slice(piece.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(ConnectionError::of(error).into()),
            }
        }
    }
}

/// The result of reading what has come.
enum Progress {
    /// More has to come.
    None,
    /// The first message is there.
    First,
    /// The third message is there.
    Third(Box<Responder>, Vec<u8>, Instant),
}

impl Connection {
    /// Reads what has come. `is_closed` where the peer sends no more.
    fn read(&mut self, is_closed: bool) -> Result<Progress, AcceptError> {
        match &mut self.state {
            State::First(input) => {
                let Some(first) = input.read(&self.socket, HandshakeMessage::First)? else {
                    return Ok(Progress::None);
                };
                // Only a first message takes a turn.
                check_first(&first)?;
                self.state = State::Waiting(first);
                Ok(Progress::First)
            }
            // An initiator has nothing to say now. One that has gone is not answered.
            State::Waiting(_) if is_closed => Err(AcceptError::Closed),
            State::Waiting(_) => Ok(Progress::None),
            State::Third(_, input, _) => {
                let Some(third) = input.read(&self.socket, HandshakeMessage::Third)? else {
                    return Ok(Progress::None);
                };
                match mem::replace(&mut self.state, State::Over) {
                    State::Third(responder, _, until) => Ok(Progress::Third(responder, third, until)),
                    _ => Err(AcceptError::Closed),
                }
            }
            State::Over => Err(AcceptError::Closed),
        }
    }

    /// Answers the first message.
    fn answer(&mut self, signer: &dyn Signer, until: Instant) -> Result<(), AcceptError> {
        let State::Waiting(first) = &self.state else { return Err(AcceptError::Closed) };
        let (responder, second) = Responder::begin(signer, first, &mut OsRng)?;
        let second = framed(&second).ok_or_else(|| AcceptError::Io(ErrorKind::InvalidData.into()))?;
        self.socket.set_nodelay(true).map_err(ConnectionError::of)?;
        // Nothing was sent before, so there is room for it.
        match (&self.socket).write(&second) {
            Ok(count) if count == second.len() => {}
            Ok(_) => return Err(AcceptError::Io(ErrorKind::WriteZero.into())),
            Err(error) => return Err(ConnectionError::of(error).into()),
        }
        self.state = State::Third(Box::new(responder), Input::default(), until);
        Ok(())
    }
}

/// The state of the acceptor's thread.
pub(crate) struct Rounds<'a, F> {
    shared: &'a Arc<AcceptorState>,
    signer: &'a dyn Signer,
    hand_over: F,
    listener: PolledListener,
    poll: Poll,
    registry: Registry,
    events: Events,
    /// By their tickets' numbers.
    connections: BTreeMap<u64, Connection>,
    /// Connections may wait to be accepted.
    has_more: bool,
}

impl<'a, F: FnMut(PendingPeer)> Rounds<'a, F> {
    pub(crate) fn new(
        shared: &'a Arc<AcceptorState>,
        listener: TcpListener,
        signer: &'a dyn Signer,
        hand_over: F,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let mut listener = PolledListener::from_std(listener);
        let poll = Poll::new()?;
        let registry = poll.registry().try_clone()?;
        registry.register(&mut listener, LISTENER, Interest::READABLE)?;
        let (events, connections) = (Events::with_capacity(4 * ACCEPTED_MAX), BTreeMap::new());
        Ok(Self { shared, signer, hand_over, listener, poll, registry, events, connections, has_more: true })
    }

    /// Waits for events, and does what is to be done then.
    pub(crate) fn round(&mut self) -> io::Result<()> {
        if self.connections.len() >= BUSY {
            std::thread::sleep(GATHERING);
        }
        let within = if self.has_more { Duration::ZERO } else { self.next_event() };
        match self.poll.poll(&mut self.events, Some(within)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let happened: Vec<(Token, bool)> = self
            .events
            .iter()
            .map(|event| (event.token(), event.is_read_closed() || event.is_error()))
            .collect();
        self.has_more |= happened.iter().any(|(token, _)| *token == LISTENER);
        for (token, is_closed) in happened {
            if token != LISTENER {
                self.go_on(token.0 as u64, is_closed);
            }
        }
        if self.has_more {
            self.accept();
        }
        self.expire();
        self.answer();
        Ok(())
    }

    /// The time until something is due, if nothing comes.
    fn next_event(&self) -> Duration {
        let now = self.shared.now();
        let next = self.shared.lock().gate.next_event(now);
        // The system waits for whole milliseconds.
        let wait =
            next.map(|next| Duration::from_nanos(next.0.saturating_sub(now.0)) + Duration::from_millis(1));
        wait.map_or(WAIT_MAX, |wait| wait.min(WAIT_MAX))
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTED_MAX {
            match self.listener.accept() {
                Ok((socket, from)) => self.admit(socket, from),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.has_more = false;
                    return;
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(_) => {
                    // No descriptor is free. It may be different soon.
                    std::thread::sleep(PAUSE);
                    return;
                }
            }
        }
    }

    fn admit(&mut self, mut socket: PolledStream, from: SocketAddr) {
        let admission = {
            let mut inside = self.shared.lock();
            let admission = inside.gate.admit(from.ip(), self.shared.now());
            if let Some(evicted) = admission.evicted {
                inside.shut(evicted);
            }
            admission
        };
        if let Some(evicted) = admission.evicted {
            self.connections.remove(&evicted.number());
        }
        let (ticket, number) = (admission.ticket, admission.ticket.number());
        let registered = usize::try_from(number)
            .map_err(|_| ErrorKind::InvalidData.into())
            .and_then(|token| self.registry.register(&mut socket, Token(token), Interest::READABLE));
        if let Err(error) = registered {
            self.shared.count(&ConnectionError::of(error).into());
            self.shared.leave(ticket);
            return;
        }
        let state = State::First(Input::default());
        self.connections.insert(number, Connection { ticket, socket, from, state });
        // The first message may be there already.
        self.go_on(number, false);
    }

    /// Goes on with a connection as far as what has come allows.
    fn go_on(&mut self, number: u64, is_closed: bool) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let ticket = connection.ticket;
        let progress = match connection.read(is_closed) {
            Ok(Progress::None) => return,
            Ok(Progress::First) => {
                self.shared.lock().gate.first(ticket, self.shared.now()).map_err(AcceptError::from)
            }
            Ok(Progress::Third(responder, third, until)) => {
                self.pass_on(number, responder, third, until);
                return;
            }
            Err(error) => Err(error),
        };
        if let Err(error) = progress {
            self.end(number, &error);
        }
    }

    /// Gives a connection whose third message has come to a thread of its own.
    fn pass_on(&mut self, number: u64, responder: Box<Responder>, third: Vec<u8>, until: Instant) {
        let Some(mut connection) = self.connections.remove(&number) else { return };
        _ = self.registry.deregister(&mut connection.socket);
        let Connection { ticket, socket, from, .. } = connection;
        let socket = Arc::new(TcpStream::from(socket));
        if let Err(error) = socket.set_nonblocking(false) {
            self.shared.count(&ConnectionError::of(error).into());
            self.shared.leave(ticket);
            return;
        }
        self.shared.lock().handed_over.insert(ticket, Arc::clone(&socket));
        (self.hand_over)(PendingPeer::new(self.shared, ticket, socket, (from, until), (responder, third)));
    }

    /// Ends the handshakes that have taken too long.
    fn expire(&mut self) {
        let late = {
            let mut inside = self.shared.lock();
            let late = inside.gate.expire(self.shared.now());
            late.iter().for_each(|ticket| inside.shut(*ticket));
            late
        };
        for ticket in late {
            self.connections.remove(&ticket.number());
        }
    }

    /// Answers the first messages whose turn it is.
    fn answer(&mut self) {
        loop {
            let Some(turn) = ({ self.shared.lock().gate.next(self.shared.now()) }) else { return };
            let number = turn.ticket.number();
            let Some(connection) = self.connections.get_mut(&number) else {
                self.shared.leave(turn.ticket);
                continue;
            };
            match connection.answer(self.signer, self.shared.instant(turn.until)) {
                // An event before the answer was not handled.
                Ok(()) => self.go_on(number, false),
                Err(error) => self.end(number, &error),
            }
        }
    }

    /// Closes a connection without a word.
    fn end(&mut self, number: u64, why: &AcceptError) {
        if let Some(connection) = self.connections.remove(&number) {
            self.shared.count(why);
            self.shared.leave(connection.ticket);
        }
    }
}
