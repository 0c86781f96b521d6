//! Associations over TCP.
//!
//! What is said is `weir_trust`'s, here are the sockets, the clock and the system's randomness. A client has [`connect`]. A node has one
//! [`Door`] for all that connect to it: the thread that listens takes each connection to [`Door::knock`], which never waits, and gives what
//! it gets to a thread of that connection's own, which calls [`Visitor::meet`] and, when it has read the peer's credentials,
//! [`Guest::accept`]. There are never more such threads than half-open handshakes ([`weir_trust::gate::Limits::half_open`]), those that
//! were just told to end, and guests.
//!
//! The node's private key is not in the node's own process: a [`Keeper`] has it, and signs handshakes.
//!
//! Everything that waits has a time at which it stops waiting, however slowly bytes come or are taken. Before it is authenticated, a peer
//! is told nothing but that the connection is closed.

#![forbid(unsafe_code)]

mod connect;
mod deadline;
mod door;
mod error;
mod keeper;
mod stream;

pub use connect::connect;
pub use door::{Door, Guest, Visitor};
pub use error::{ConnectError, MeetError};
pub use keeper::{KEEPER, Keeper, KeeperError, keep};
pub use stream::{Reader, Stream, Writer};
