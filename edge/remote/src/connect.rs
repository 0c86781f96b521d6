//! The client's side of a connection and its handshake.

use crate::deadline::{ReadMessageError, read_message, write_message};
use crate::error::ConnectionError;
use crate::{ConnectError, SecureStream};
use rand_core::OsRng;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_trust::association::{HandshakeMessage, Initiator};
use weir_trust::key::{Identity, PublicKey};

/// Connects to a node and authenticates both sides. Returns when the node has accepted the client, at most after
/// `within`.
///
/// `expected` is the node's key. Without it, any node that answers is accepted, and gets the credentials.
///
/// # Errors
/// A [`ConnectError`]; the connection is closed then.
pub fn connect(
    address: SocketAddr,
    identity: &Identity,
    expected: Option<PublicKey>,
    credentials: &[u8],
    within: Duration,
) -> Result<SecureStream, ConnectError> {
    let until = Instant::now() + within;
    let failed = |error: io::Error| match ConnectionError::from_io(error) {
        ConnectionError::Late => ConnectError::Late { address, within },
        ConnectionError::Closed => ConnectError::Closed(address),
        ConnectionError::Io(error) => ConnectError::Io(error),
    };
    let read = |socket: &TcpStream, which| {
        read_message(socket, which, until).map_err(|error| match error {
            ReadMessageError::Io(error) => failed(error),
            ReadMessageError::Invalid(error) => ConnectError::Handshake(error),
        })
    };
    let connected = TcpStream::connect_timeout(&address, within.max(Duration::from_millis(1)));
    let socket = connected.map_err(|source| match source.kind() {
        io::ErrorKind::TimedOut => ConnectError::Late { address, within },
        _ => ConnectError::Unreachable { address, source },
    })?;
    socket.set_nodelay(true).map_err(ConnectError::Io)?;

    let (initiator, first) = Initiator::begin(expected, &mut OsRng)?;
    write_message(&socket, &first, until).map_err(failed)?;
    let knowing_node = initiator.read_second(&read(&socket, HandshakeMessage::Second)?)?;
    let (confirming, third) = knowing_node.introduce(identity, credentials)?;
    write_message(&socket, &third, until).map_err(failed)?;
    let association = confirming.read_fourth(&read(&socket, HandshakeMessage::Fourth)?)?;
    Ok(SecureStream::new(Arc::new(socket), association))
}
