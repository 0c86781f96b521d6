//! The errors of connections.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use weir_trust::association::HandshakeError;
use weir_trust::gate::HandshakeRefusal;

/// The reason why a client could not connect.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No connection to the address is possible.
    #[error("{address} cannot be reached: {source}")]
    Unreachable {
        /// The node's address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The handshake took too long.
    #[error("{address} did not finish the handshake within {} s: it may be busy, or the network may lose packets", .within.as_secs_f64())]
    Late {
        /// The node's address.
        address: SocketAddr,
        /// The time after which the client gave up.
        within: Duration,
    },
    /// The node closed the connection. A node gives no reason.
    #[error(
        "{0} closed the connection: it does not accept this key, or is busy. A node gives unknown peers no reason; its operator sees the causes, counted, in the metric `weir_remote_refused_total`"
    )]
    Closed(SocketAddr),
    /// The peer is not the expected node, or the connection was tampered with.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Io(io::Error),
}

/// The reason why a node refused a peer, for the node's log. The peer does not learn the reason.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// The handshake was not answered, took too long, or was evicted in favour of other handshakes.
    #[error(transparent)]
    Refused(#[from] HandshakeRefusal),
    /// A message of the handshake is invalid, or does not prove the peer's identity.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// The peer closed the connection.
    #[error("the peer closed the connection")]
    Closed,
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Io(io::Error),
}

/// A failed read or write on a connection, by its kind.
pub(crate) enum ConnectionError {
    /// The deadline has passed.
    Late,
    /// The peer has closed the connection.
    Closed,
    Io(io::Error),
}

impl ConnectionError {
    pub(crate) fn from_io(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut => Self::Late,
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                Self::Closed
            }
            _ => Self::Io(error),
        }
    }
}

impl From<ConnectionError> for AcceptError {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::Late => Self::Refused(HandshakeRefusal::Late),
            ConnectionError::Closed => Self::Closed,
            ConnectionError::Io(error) => Self::Io(error),
        }
    }
}
