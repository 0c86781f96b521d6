//! Why there is no association.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use weir_trust::association::HandshakeError;
use weir_trust::gate::HandshakeRefusal;

/// Why a client has none.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nobody answers there.
    #[error("{address} cannot be reached: {source}")]
    Unreachable {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// It took too long.
    #[error("{address} did not finish the handshake within {} s: it may be busy, or something on the way holds back what is sent", .within.as_secs_f64())]
    Late {
        /// Where.
        address: SocketAddr,
        /// How long was waited.
        within: Duration,
    },
    /// The connection was closed. A node says no more than that.
    #[error(
        "{0} closed the connection: it does not let you in, or is busy. A node tells a peer that it does not know no reason; its operator sees the causes, counted, in the metric `weir_remote_refused_total`"
    )]
    Closed(SocketAddr),
    /// What answers is not who was expected, or somebody is in between.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Io(io::Error),
}

/// The reason for which a node does not let a peer in. For its log: the peer is told nothing.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// Its handshake was not answered, took too long, or gave way to others.
    #[error(transparent)]
    Refused(#[from] HandshakeRefusal),
    /// A message of it is none of a handshake, or does not prove what it says.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// The peer closed the connection.
    #[error("it closed the connection")]
    Closed,
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Io(io::Error),
}

/// What a broken or silent connection is called.
pub(crate) enum ConnectionError {
    Late,
    Closed,
    Io(io::Error),
}

impl ConnectionError {
    pub(crate) fn of(error: io::Error) -> Self {
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
    fn from(broken: ConnectionError) -> Self {
        match broken {
            ConnectionError::Late => Self::Refused(HandshakeRefusal::Late),
            ConnectionError::Closed => Self::Closed,
            ConnectionError::Io(error) => Self::Io(error),
        }
    }
}
