//! A client's side.

use crate::deadline::{NoMessage, read_message, write_message};
use crate::error::ConnectionError;
use crate::{ConnectError, SecureStream};
use rand_core::OsRng;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_trust::association::{HandshakeMessage, Initiator};
use weir_trust::key::{Identity, PublicKey};

/// Makes an association with a certain node, or with whoever answers there (who then sees the credentials). It is there when the node has
/// accepted it. All together takes no longer than `within`.
///
/// # Errors
/// A [`ConnectError`]: there is no association then, and the connection is closed.
pub fn connect(
    address: SocketAddr,
    identity: &Identity,
    expected: Option<PublicKey>,
    credentials: &[u8],
    within: Duration,
) -> Result<SecureStream, ConnectError> {
    let until = Instant::now() + within;
    let failed = |error: io::Error| match ConnectionError::of(error) {
        ConnectionError::Late => ConnectError::Late { address, within },
        ConnectionError::Closed => ConnectError::Closed(address),
        ConnectionError::Io(error) => ConnectError::Io(error),
    };
    let read = |socket: &TcpStream, which| {
        read_message(socket, which, until).map_err(|error| match error {
            NoMessage::Io(error) => failed(error),
            NoMessage::Wrong(error) => ConnectError::Handshake(error),
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
    let met = initiator.second(&read(&socket, HandshakeMessage::Second)?)?;
    let (confirming, third) = met.introduce(identity, credentials)?;
    write_message(&socket, &third, until).map_err(failed)?;
    let association = confirming.fourth(&read(&socket, HandshakeMessage::Fourth)?)?;
    Ok(SecureStream::new(Arc::new(socket), association))
}
