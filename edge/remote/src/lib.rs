//! Authenticated connections over TCP, and associations over UDP.
//!
//! `weir_trust` defines the protocol; this crate adds sockets, the clock and the system's randomness. A client calls
//! [`connect`]. A node has one [`Acceptor`] for all clients. Its thread performs handshakes up to the third message,
//! and passes each [`PendingPeer`] to a thread of its own. That thread calls [`PendingPeer::authenticate`], reads the
//! peer's credentials, and calls [`AuthenticatedPeer::accept`]. Such a thread exists for each half-open handshake that
//! has been handed over (at most [`weir_trust::gate::GateLimits::half_open`]), for each authenticated peer that is
//! being sent the reason of a refusal, and for each client.
//!
//! A [`DatagramSocket`] makes associations over UDP, and sends and receives packets of active networks under their keys.
//!
//! The node's private key is not in the node's own process: a [`KeyAgent`] has it, and signs handshakes.
//!
//! Every wait during a handshake has a deadline, however slowly the peer sends or reads. A peer that is not
//! authenticated gets no reason: its connection is just closed.

#![forbid(unsafe_code)]

mod acceptor;
mod connect;
mod datagrams;
mod deadline;
mod error;
mod key_agent;
mod pending;
mod rounds;
mod stream;

pub use acceptor::{AcceptCounters, Acceptor};
pub use connect::connect;
pub use datagrams::{DatagramSocket, SocketCounters, SocketEvent};
pub use error::{AcceptError, ConnectError};
pub use key_agent::{AgentError, KEY_AGENT_ARGUMENT, KeyAgent, run_key_agent};
pub use pending::{AuthenticatedPeer, PendingPeer};
pub use stream::{PeerReader, PeerWriter, SecureStream};
