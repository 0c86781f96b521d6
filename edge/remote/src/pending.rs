//! Peers that have sent their third message, and peers that have proven who they are.

use crate::acceptor::AcceptorState;
use crate::deadline::write_message;
use crate::error::ConnectionError;
use crate::{AcceptError, SecureStream};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;
use weir_trust::association::{Authenticated, Peer, Responder};
use weir_trust::gate::{HalfOpenTicket, HandshakeRefusal, PeerSource};

/// A half-open handshake in a thread of its own. Dropping it closes the connection.
#[derive(Debug)]
struct HalfOpen {
    shared: Arc<AcceptorState>,
    ticket: HalfOpenTicket,
    socket: Arc<TcpStream>,
    from: SocketAddr,
    until: Instant,
}

impl Drop for HalfOpen {
    fn drop(&mut self) {
        self.shared.leave(self.ticket);
    }
}

/// A peer whose third message has come: it says who it is, and nothing of that was checked. Dropping it closes the connection.
#[derive(Debug)]
pub struct PendingPeer {
    open: HalfOpen,
    responder: Box<Responder>,
    third: Vec<u8>,
}

impl PendingPeer {
    pub(crate) fn new(
        shared: &Arc<AcceptorState>,
        ticket: HalfOpenTicket,
        socket: Arc<TcpStream>,
        (from, until): (SocketAddr, Instant),
        (responder, third): (Box<Responder>, Vec<u8>),
    ) -> Self {
        let shared = Arc::clone(shared);
        Self { open: HalfOpen { shared, ticket, socket, from, until }, responder, third }
    }

    /// Checks that the peer is who it says. Takes a multiplication on the curve and a check of a signature, and does not wait.
    ///
    /// # Errors
    /// It is not: the connection is closed without a word.
    pub fn authenticate(self) -> Result<AuthenticatedPeer, AcceptError> {
        let Self { open, responder, third } = self;
        let authenticated = responder.third(&third).map_err(|error| {
            let error = AcceptError::from(error);
            open.shared.count(&error);
            error
        })?;
        open.shared.lock().counters.authenticated += 1;
        Ok(AuthenticatedPeer { open, authenticated })
    }
}

/// A peer that has proven who it is. Until it is accepted its handshake is half open, and its time is short. Dropping it closes the connection.
#[derive(Debug)]
pub struct AuthenticatedPeer {
    open: HalfOpen,
    authenticated: Authenticated,
}

impl AuthenticatedPeer {
    /// The peer's key, and the credentials that it has shown, unread.
    pub fn peer(&self) -> &Peer {
        self.authenticated.peer()
    }

    /// The source that the peer counts as one of, together with all others from there.
    pub fn source(&self) -> PeerSource {
        PeerSource::of(self.open.from.ip())
    }

    /// Takes note that the peer has a right to be here: its source comes before others from now on.
    pub fn is_proven(&self) {
        let HalfOpen { shared, from, .. } = &self.open;
        shared.lock().gate.prove(from.ip(), shared.now());
    }

    /// Lets the peer in, and shows it the node's own credentials.
    ///
    /// # Errors
    /// The handshake has given way meanwhile, its time is over, or the peer is gone.
    pub fn accept(self, credentials: &[u8]) -> Result<SecureStream, AcceptError> {
        let Self { open, authenticated } = self;
        let (association, fourth) = authenticated.accept(credentials)?;
        // It must not have given way: its place is another one's then.
        if !open.shared.leave(open.ticket) {
            return Err(HandshakeRefusal::Gone.into());
        }
        write_message(&open.socket, &fourth, open.until).map_err(ConnectionError::of)?;
        Ok(SecureStream::new(Arc::clone(&open.socket), association))
    }
}
