//! Associations over TCP.
//!
//! What is said is `weir_trust`'s, here are the sockets, the clock and the system's randomness. A client has [`connect`]. A node has one
//! [`Acceptor`] for all that connect to it. Its thread makes handshakes up to the third message, and hands each [`PendingPeer`] to a thread of
//! its own. That thread calls [`PendingPeer::authenticate`], reads the peer's credentials, and calls [`AuthenticatedPeer::accept`]. There are
//! never more such threads than half-open handshakes ([`weir_trust::gate::GateLimits::half_open`]), peers that are told why they are refused, and
//! clients.
//!
//! The node's private key is not in the node's own process: a [`KeyAgent`] has it, and signs handshakes.
//!
//! Everything that waits has a time at which it stops waiting, however slowly bytes come or are taken. Before it is authenticated, a peer
//! is told nothing but that the connection is closed.

#![forbid(unsafe_code)]

mod acceptor;
mod connect;
mod deadline;
mod error;
mod keeper;
mod pending;
mod rounds;
mod stream;

pub use acceptor::{AcceptCounters, Acceptor};
pub use connect::connect;
pub use error::{AcceptError, ConnectError};
pub use keeper::{AgentError, KEEPER, KeyAgent, keep};
pub use pending::{AuthenticatedPeer, PendingPeer};
pub use stream::{PeerReader, PeerWriter, SecureStream};
