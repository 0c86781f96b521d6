//! The work of the acceptor's thread ([`crate::Acceptor::serve`]). It works in rounds: in each round, it waits for
//! events and handles them.

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

/// The listener's token. A connection's token is the number of its ticket, which never equals the listener's token.
const LISTENER: Token = Token(usize::MAX);
/// The most connections that are accepted in a round.
const ACCEPTED_MAX: usize = 64;
/// The number of connections from which on each round begins with a pause of [`GATHERING_PAUSE`], so that a flood does
/// not wake the thread for each of its packets.
const BUSY_CONNECTIONS: usize = 32;
/// The pause at the beginning of a round with many connections, in which events gather.
const GATHERING_PAUSE: Duration = Duration::from_millis(2);
/// The pause before accepting is tried again when no descriptor is free.
const NO_DESCRIPTOR_PAUSE: Duration = Duration::from_millis(50);
/// The longest wait for an event.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// The most bytes read by one system call.
const READ_BYTES: usize = 4096;

/// A connection whose peer has not been authenticated.
struct Connection {
    ticket: HalfOpenTicket,
    socket: PolledStream,
    /// The peer's address.
    from: SocketAddr,
    state: State,
}

/// The state of a handshake.
enum State {
    /// The first message is incomplete.
    First(Input),
    /// The first message is complete, and waits until the gate selects it to be answered.
    Waiting(Vec<u8>),
    /// The first message is answered, and the third message is incomplete. The time is the deadline of the third
    /// message.
    Third(Box<Responder>, Input, Instant),
    /// The third message has been returned to the caller.
    Over,
}

/// A partly received message.
#[derive(Default)]
struct Input {
    bytes: Vec<u8>,
}

impl Input {
    /// Reads available bytes of the message, and no byte after it. Returns the message when it is complete. The length
    /// is checked before memory is allocated.
    fn read(
        &mut self,
        mut socket: &PolledStream,
        which: HandshakeMessage,
    ) -> Result<Option<Vec<u8>>, AcceptError> {
        let mut portion = [0; READ_BYTES];
        loop {
            let total = match self.bytes.first_chunk::<LENGTH_BYTES>() {
                // A first message has a fixed length.
                None if which == HandshakeMessage::First => LENGTH_BYTES + FIRST_BYTES,
                None => LENGTH_BYTES,
                Some(declared) => LENGTH_BYTES + length(which, *declared)?,
            };
            let missing = total - self.bytes.len();
            if missing == 0 {
                return Ok(Some(self.bytes.split_off(LENGTH_BYTES)));
            }
            let read_max = missing.min(READ_BYTES);
            match socket.read(portion.get_mut(..read_max).unwrap_or_default()) {
                Ok(0) => return Err(AcceptError::Closed),
                Ok(count) => self.bytes.extend_from_slice(portion.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(ConnectionError::from_io(error).into()),
            }
        }
    }
}

/// The result of reading available bytes.
enum Progress {
    /// The message is incomplete.
    None,
    /// The first message is complete.
    First,
    /// The third message is complete.
    Third(Box<Responder>, Vec<u8>, Instant),
}

impl Connection {
    /// Reads available bytes. `is_closed` is true if the peer has closed its side of the connection.
    fn read(&mut self, is_closed: bool) -> Result<Progress, AcceptError> {
        match &mut self.state {
            State::First(input) => {
                let Some(first) = input.read(&self.socket, HandshakeMessage::First)? else {
                    return Ok(Progress::None);
                };
                // Checked before the gate, so that an invalid message does not use up one of its answers.
                check_first(&first)?;
                self.state = State::Waiting(first);
                Ok(Progress::First)
            }
            // An initiator sends nothing until it is answered. An initiator that has closed its side gets no answer.
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
        self.socket.set_nodelay(true).map_err(ConnectionError::from_io)?;
        // Nothing has been sent on this socket yet, so the message fits into the socket's buffer.
        match (&self.socket).write(&second) {
            Ok(count) if count == second.len() => {}
            Ok(_) => return Err(AcceptError::Io(ErrorKind::WriteZero.into())),
            Err(error) => return Err(ConnectionError::from_io(error).into()),
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
    /// The connections, by the numbers of their tickets.
    connections: BTreeMap<u64, Connection>,
    /// True if connections may be waiting to be accepted.
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

    /// Waits for events, and handles them: reads messages, accepts connections, and answers first messages.
    pub(crate) fn round(&mut self) -> io::Result<()> {
        if self.connections.len() >= BUSY_CONNECTIONS {
            std::thread::sleep(GATHERING_PAUSE);
        }
        let within = if self.has_more { Duration::ZERO } else { self.time_to_next_event() };
        match self.poll.poll(&mut self.events, Some(within)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let ready: Vec<(Token, bool)> = self
            .events
            .iter()
            .map(|event| (event.token(), event.is_read_closed() || event.is_error()))
            .collect();
        self.has_more |= ready.iter().any(|(token, _)| *token == LISTENER);
        for (token, is_closed) in ready {
            if token != LISTENER {
                self.advance(token.0 as u64, is_closed);
            }
        }
        if self.has_more {
            self.accept();
        }
        self.expire();
        self.answer();
        Ok(())
    }

    /// Returns the time until the gate's next event, such as a deadline or an answer.
    fn time_to_next_event(&self) -> Duration {
        let now = self.shared.now();
        let next = self.shared.lock().gate.next_event(now);
        // The system waits for whole milliseconds.
        let wait =
            next.map(|next| Duration::from_nanos(next.0.saturating_sub(now.0)) + Duration::from_millis(1));
        wait.map_or(WAIT_MAX, |wait| wait.min(WAIT_MAX))
    }

    /// Accepts waiting connections, at most [`ACCEPTED_MAX`].
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
                    // No descriptor is free: the next round tries again.
                    std::thread::sleep(NO_DESCRIPTOR_PAUSE);
                    return;
                }
            }
        }
    }

    /// Adds a connection. If there are too many connections, the gate evicts one of the others.
    fn admit(&mut self, mut socket: PolledStream, from: SocketAddr) {
        let admission = {
            let mut inner = self.shared.lock();
            let admission = inner.gate.admit(from.ip(), self.shared.now());
            if let Some(evicted) = admission.evicted {
                inner.shut_down(evicted);
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
            self.shared.count_error(&ConnectionError::from_io(error).into());
            self.shared.end_handshake(ticket);
            return;
        }
        let state = State::First(Input::default());
        self.connections.insert(number, Connection { ticket, socket, from, state });
        // The first message may have arrived before the socket was registered.
        self.advance(number, false);
    }

    /// Reads available bytes of a connection. A complete first message is reported to the gate; with a complete third
    /// message, the connection is handed over.
    fn advance(&mut self, number: u64, is_closed: bool) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let ticket = connection.ticket;
        let progress = match connection.read(is_closed) {
            Ok(Progress::None) => return,
            Ok(Progress::First) => self
                .shared
                .lock()
                .gate
                .first_message_arrived(ticket, self.shared.now())
                .map_err(AcceptError::from),
            Ok(Progress::Third(responder, third, until)) => {
                self.hand_over_to_thread(number, responder, third, until);
                return;
            }
            Err(error) => Err(error),
        };
        if let Err(error) = progress {
            self.close(number, &error);
        }
    }

    /// Passes a connection whose third message is complete to `hand_over`.
    fn hand_over_to_thread(
        &mut self,
        number: u64,
        responder: Box<Responder>,
        third: Vec<u8>,
        until: Instant,
    ) {
        let Some(mut connection) = self.connections.remove(&number) else { return };
        _ = self.registry.deregister(&mut connection.socket);
        let Connection { ticket, socket, from, .. } = connection;
        let socket = Arc::new(TcpStream::from(socket));
        if let Err(error) = socket.set_nonblocking(false) {
            self.shared.count_error(&ConnectionError::from_io(error).into());
            self.shared.end_handshake(ticket);
            return;
        }
        self.shared.lock().handed_over.insert(ticket, Arc::clone(&socket));
        (self.hand_over)(PendingPeer::new(self.shared, ticket, socket, (from, until), (responder, third)));
    }

    /// Ends handshakes whose deadline has passed.
    fn expire(&mut self) {
        let late = {
            let mut inner = self.shared.lock();
            let late = inner.gate.expire(self.shared.now());
            late.iter().for_each(|ticket| inner.shut_down(*ticket));
            late
        };
        for ticket in late {
            self.connections.remove(&ticket.number());
        }
    }

    /// Answers the first messages that the gate selects.
    fn answer(&mut self) {
        loop {
            let Some(selected) = ({ self.shared.lock().gate.next(self.shared.now()) }) else { return };
            let number = selected.ticket.number();
            let Some(connection) = self.connections.get_mut(&number) else {
                self.shared.end_handshake(selected.ticket);
                continue;
            };
            match connection.answer(self.signer, self.shared.instant(selected.until)) {
                // Bytes that arrived before the answer have not been read: `advance` ignored their event.
                Ok(()) => self.advance(number, false),
                Err(error) => self.close(number, &error),
            }
        }
    }

    /// Closes a connection without telling the peer a reason, and counts the error.
    fn close(&mut self, number: u64, why: &AcceptError) {
        if let Some(connection) = self.connections.remove(&number) {
            self.shared.count_error(why);
            self.shared.end_handshake(connection.ticket);
        }
    }
}
