//! The node's side of a handshake: the acceptor, which accepts connections and performs handshakes up to the third
//! message.
//!
//! One thread, in [`Acceptor::serve`], handles all connections whose peer is unknown (`rounds.rs`). It reads first
//! messages, answers those that the [`HandshakeGate`] selects, and reads third messages. The gate limits the memory and
//! processor time for unknown peers, so floods of handshakes keep out no holder. A connection takes no other thread, and no
//! more memory than one message, until its third message is complete. Then it becomes a
//! [`PendingPeer`](crate::PendingPeer).

use crate::rounds::Rounds;
use crate::{AcceptError, PendingPeer};
use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_trust::association::{HandshakeError, Signer};
use weir_trust::gate::{GateCounters, GateLimits, HalfOpenTicket, HandshakeGate};
use weir_units::Nanos;

/// Counters of an acceptor since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AcceptCounters {
    /// Counters of the gate, which selects the first messages to answer.
    pub gate: GateCounters,
    /// Handshakes that are half open now.
    pub half_open: usize,
    /// Connections closed because a message of the handshake was invalid or had a wrong signature.
    pub invalid: u64,
    /// Connections that the peer closed, or that broke, during the handshake.
    pub closed: u64,
    /// First messages that could not be answered: the node's key did not sign, or the system failed.
    pub failed: u64,
    /// Authenticated peers.
    pub authenticated: u64,
}

impl AcceptCounters {
    /// Returns the number of connections that ended before their peer was authenticated.
    pub fn refused(&self) -> u64 {
        let GateCounters { evicted, late, refused_source, .. } = self.gate;
        [evicted, late, refused_source, self.invalid, self.closed, self.failed].iter().sum()
    }
}

/// Accepts connections for a node, at all of its addresses. Clones share one state.
#[derive(Clone, Debug)]
pub struct Acceptor {
    shared: Arc<AcceptorState>,
}

/// The state that an acceptor, its clones and its peers share.
#[derive(Debug)]
pub(crate) struct AcceptorState {
    began: Instant,
    inner: Mutex<AcceptorInner>,
}

/// The part of [`AcceptorState`] that is locked to be used.
#[derive(Debug)]
pub(crate) struct AcceptorInner {
    pub(crate) gate: HandshakeGate,
    /// Connections of half-open handshakes that the acceptor's thread has handed over to other threads.
    pub(crate) handed_over: BTreeMap<HalfOpenTicket, Arc<TcpStream>>,
    pub(crate) counters: AcceptCounters,
}

impl AcceptorInner {
    /// Shuts down the connection of a handshake, if it has been handed over to another thread.
    pub(crate) fn shut_down(&mut self, ticket: HalfOpenTicket) {
        if let Some(socket) = self.handed_over.remove(&ticket) {
            _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl AcceptorState {
    pub(crate) fn lock(&self) -> MutexGuard<'_, AcceptorInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time since the acceptor's creation. The gate uses this clock.
    pub(crate) fn now(&self) -> Nanos {
        Nanos::from(self.began.elapsed())
    }

    /// Converts a time on the gate's clock.
    pub(crate) fn instant(&self, at: Nanos) -> Instant {
        self.began + Duration::from_nanos(at.0)
    }

    /// Ends a handshake. Returns false if the handshake has already been evicted, or its deadline has passed.
    pub(crate) fn end_handshake(&self, ticket: HalfOpenTicket) -> bool {
        let mut inner = self.lock();
        inner.handed_over.remove(&ticket);
        inner.gate.leave(ticket, self.now())
    }

    /// Counts the end of a connection, by its error.
    pub(crate) fn count_error(&self, error: &AcceptError) {
        let counters = &mut self.lock().counters;
        match error {
            // Counted by the gate.
            AcceptError::Refused(_) => {}
            AcceptError::Handshake(HandshakeError::Unsigned(_)) => counters.failed += 1,
            AcceptError::Handshake(_) => counters.invalid += 1,
            AcceptError::Closed | AcceptError::Io(_) => counters.closed += 1,
        }
    }
}

impl Acceptor {
    /// Creates an acceptor with these limits.
    pub fn new(limits: GateLimits) -> Self {
        let inner = AcceptorInner {
            gate: HandshakeGate::new(limits),
            handed_over: BTreeMap::new(),
            counters: AcceptCounters::default(),
        };
        Self { shared: Arc::new(AcceptorState { began: Instant::now(), inner: Mutex::new(inner) }) }
    }

    /// Returns the counters.
    pub fn counters(&self) -> AcceptCounters {
        let inner = self.shared.lock();
        AcceptCounters { gate: inner.gate.counters(), half_open: inner.gate.half_open(), ..inner.counters }
    }

    /// Accepts connections until `is_over` is true. After setting `is_over`, the caller wakes this thread by shutting
    /// the listener down. Each peer whose third message is complete is passed to `hand_over`, which moves it to another
    /// thread, because the rest of the handshake may block. `tick` is called after each round of events.
    ///
    /// # Errors
    /// The listener cannot be polled, or the system fails to wait for events.
    pub fn serve(
        &self,
        listener: TcpListener,
        signer: &dyn Signer,
        is_over: &AtomicBool,
        hand_over: impl FnMut(PendingPeer),
        mut tick: impl FnMut(),
    ) -> io::Result<()> {
        let mut rounds = Rounds::new(&self.shared, listener, signer, hand_over)?;
        while !is_over.load(Ordering::Acquire) {
            rounds.round()?;
            tick();
        }
        Ok(())
    }
}
