//! A node's side: the acceptor, which takes connections and makes handshakes with them.
//!
//! One thread, in [`Acceptor::serve`], has all connections whose peer is not known (`rounds.rs`). It reads first messages as they come, answers those that
//! the gate names, and reads third messages. A connection takes no other thread, and no more memory than a message, before its
//! third message is there as a whole. Then it is a [`PendingPeer`](crate::PendingPeer).

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

/// Counters of an acceptor, from its beginning on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AcceptCounters {
    /// The gate's.
    pub gate: GateCounters,
    /// Handshakes that are half open now.
    pub half_open: usize,
    /// Connections that ended because a message of theirs was none of a handshake, or had a wrong signature.
    pub invalid: u64,
    /// Connections that the peer closed, or that broke, before the handshake was over.
    pub closed: u64,
    /// First messages that could not be answered: the node's key did not sign, or the system failed.
    pub failed: u64,
    /// Peers that have proven who they are.
    pub authenticated: u64,
}

impl AcceptCounters {
    /// Connections that ended before their peer had proven who it is.
    pub fn refused(&self) -> u64 {
        let GateCounters { evicted, late, refused_source, .. } = self.gate;
        [evicted, late, refused_source, self.invalid, self.closed, self.failed].iter().sum()
    }
}

/// Takes connections for a node, at all of its addresses. A clone is the same acceptor.
#[derive(Clone, Debug)]
pub struct Acceptor {
    shared: Arc<AcceptorState>,
}

#[derive(Debug)]
pub(crate) struct AcceptorState {
    began: Instant,
    inside: Mutex<Inside>,
}

#[derive(Debug)]
pub(crate) struct Inside {
    pub(crate) gate: HandshakeGate,
    /// Connections of half-open handshakes that threads of their own go on with.
    pub(crate) handed_over: BTreeMap<HalfOpenTicket, Arc<TcpStream>>,
    pub(crate) counters: AcceptCounters,
}

impl Inside {
    /// Ends the connection of a handshake that a thread of its own goes on with.
    pub(crate) fn shut(&mut self, ticket: HalfOpenTicket) {
        if let Some(socket) = self.handed_over.remove(&ticket) {
            _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl AcceptorState {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    pub(crate) fn instant(&self, at: Nanos) -> Instant {
        self.began + Duration::from_nanos(at.0)
    }

    /// Ends a handshake. Says whether it was still open.
    pub(crate) fn leave(&self, ticket: HalfOpenTicket) -> bool {
        let mut inside = self.lock();
        inside.handed_over.remove(&ticket);
        inside.gate.leave(ticket, self.now())
    }

    pub(crate) fn count(&self, error: &AcceptError) {
        let counters = &mut self.lock().counters;
        match error {
            // The gate has counted it.
            AcceptError::Refused(_) => {}
            AcceptError::Handshake(HandshakeError::Unsigned(_)) => counters.failed += 1,
            AcceptError::Handshake(_) => counters.invalid += 1,
            AcceptError::Closed | AcceptError::Io(_) => counters.closed += 1,
        }
    }
}

impl Acceptor {
    /// An acceptor with these limits.
    pub fn new(limits: GateLimits) -> Self {
        let inside = Inside {
            gate: HandshakeGate::new(limits),
            handed_over: BTreeMap::new(),
            counters: AcceptCounters::default(),
        };
        Self { shared: Arc::new(AcceptorState { began: Instant::now(), inside: Mutex::new(inside) }) }
    }

    /// Counters of what became of connections.
    pub fn counters(&self) -> AcceptCounters {
        let inside = self.shared.lock();
        AcceptCounters { gate: inside.gate.counters(), half_open: inside.gate.half_open(), ..inside.counters }
    }

    /// Accepts connections until `is_over` says so; shutting the listener down wakes this thread. Each peer whose third message has come is
    /// handed over: what follows may wait, and so belongs to a thread of its own. `tick` is called after each round of events.
    ///
    /// # Errors
    /// The system does not let this thread wait for events.
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
