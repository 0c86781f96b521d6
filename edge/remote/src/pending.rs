//! Peers whose third message is complete, before and after their authentication.

use crate::acceptor::AcceptorState;
use crate::deadline::write_message;
use crate::error::ConnectionError;
use crate::{AcceptError, SecureStream};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;
use weir_trust::association::{Peer, Responder, ResponderKnowingPeer};
use weir_trust::gate::{HalfOpenTicket, HandshakeRefusal, PeerSource};

/// A half-open handshake that has been handed over to a thread. Dropping the value closes the connection.
#[derive(Debug)]
struct HalfOpen {
    shared: Arc<AcceptorState>,
    ticket: HalfOpenTicket,
    socket: Arc<TcpStream>,
    /// The peer's address.
    from: SocketAddr,
    /// The deadline of the handshake.
    until: Instant,
}

impl Drop for HalfOpen {
    fn drop(&mut self) {
        self.shared.end_handshake(self.ticket);
    }
}

/// A peer whose third message is complete. The identity in the message has not been checked yet. Dropping this value
/// closes the connection.
#[derive(Debug)]
pub struct PendingPeer {
    open: HalfOpen,
    responder: Box<Responder>,
    /// The third message.
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

    /// Checks the peer's identity. This takes the time of an X25519 key agreement and of a signature check, and does
    /// not block.
    ///
    /// # Errors
    /// The peer does not prove its identity. The connection is closed without a reason.
    pub fn authenticate(self) -> Result<AuthenticatedPeer, AcceptError> {
        let Self { open, responder, third } = self;
        let authenticated = responder.read_third(&third).map_err(|error| {
            let error = AcceptError::from(error);
            open.shared.count_error(&error);
            error
        })?;
        open.shared.lock().counters.authenticated += 1;
        Ok(AuthenticatedPeer { open, authenticated })
    }
}

/// An authenticated peer. Its handshake is half open, with a short deadline, until the peer is accepted. Dropping this
/// value closes the connection.
#[derive(Debug)]
pub struct AuthenticatedPeer {
    open: HalfOpen,
    authenticated: ResponderKnowingPeer,
}

impl AuthenticatedPeer {
    /// Returns the peer's key, and its credentials, which have not been checked yet.
    pub fn peer(&self) -> &Peer {
        self.authenticated.peer()
    }

    /// Returns the source to which the gate assigns the peer, by its address. Several peers can belong to one source.
    pub fn source(&self) -> PeerSource {
        PeerSource::from_address(self.open.from.ip())
    }

    /// Records that the peer has valid credentials. Handshakes from its source have priority from now on.
    pub fn mark_proven(&self) {
        let HalfOpen { shared, from, .. } = &self.open;
        shared.lock().gate.prove(from.ip(), shared.now());
    }

    /// Accepts the peer, and sends it the node's own credentials.
    ///
    /// # Errors
    /// The handshake has been evicted, its deadline has passed, or the peer is gone.
    pub fn accept(self, credentials: &[u8]) -> Result<SecureStream, AcceptError> {
        let Self { open, authenticated } = self;
        let (association, fourth) = authenticated.accept(credentials)?;
        // An evicted handshake must not be completed, because another one has its place.
        if !open.shared.end_handshake(open.ticket) {
            return Err(HandshakeRefusal::Evicted.into());
        }
        write_message(&open.socket, &fourth, open.until).map_err(ConnectionError::from_io)?;
        Ok(SecureStream::new(Arc::clone(&open.socket), association))
    }
}
