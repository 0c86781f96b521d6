//! Reads and writes on a socket that end by a deadline, however slowly the peer sends or reads.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use weir_trust::association::frame::{LENGTH_BYTES, framed, length};
use weir_trust::association::{HandshakeError, HandshakeMessage};

/// Reads available bytes. If there are none, waits for some until the deadline, or without limit if there is no
/// deadline. Returns zero at the end of the stream.
pub(crate) fn read(mut socket: &TcpStream, bytes: &mut [u8], until: Option<Instant>) -> io::Result<usize> {
    loop {
        socket.set_read_timeout(until.map(time_left).transpose()?)?;
        match socket.read(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The socket's timeout. If the deadline has passed, the next call of `time_left` returns the error.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => return read,
        }
    }
}

/// Writes all bytes before the deadline; without a deadline, waits without limit.
pub(crate) fn write_all(mut socket: &TcpStream, mut bytes: &[u8], until: Option<Instant>) -> io::Result<()> {
    while !bytes.is_empty() {
        socket.set_write_timeout(until.map(time_left).transpose()?)?;
        match socket.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::BrokenPipe.into()),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The reason why no message of the handshake could be read.
pub(crate) enum ReadMessageError {
    Io(io::Error),
    Invalid(HandshakeError),
}

/// Reads one message of the handshake, and no byte after it. The length of the message is checked before memory is
/// allocated.
pub(crate) fn read_message(
    socket: &TcpStream,
    which: HandshakeMessage,
    until: Instant,
) -> Result<Vec<u8>, ReadMessageError> {
    let mut declared = [0; LENGTH_BYTES];
    read_exact(socket, &mut declared, until).map_err(ReadMessageError::Io)?;
    let mut message = vec![0; length(which, declared).map_err(ReadMessageError::Invalid)?];
    read_exact(socket, &mut message, until).map_err(ReadMessageError::Io)?;
    Ok(message)
}

/// Sends a message of the handshake before the deadline.
pub(crate) fn write_message(socket: &TcpStream, message: &[u8], until: Instant) -> io::Result<()> {
    let framed = framed(message).ok_or(io::ErrorKind::InvalidInput)?;
    write_all(socket, &framed, Some(until))
}

fn read_exact(socket: &TcpStream, mut bytes: &mut [u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        match read(socket, bytes, Some(until))? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => bytes = bytes.get_mut(count..).unwrap_or_default(),
        }
    }
    Ok(())
}

/// Returns the time until the deadline, or an error if the deadline has passed. So a socket never gets a timeout of
/// zero, which would mean no limit.
fn time_left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}
