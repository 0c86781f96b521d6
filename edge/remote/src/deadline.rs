//! Reading and writing until a time, whatever the other side does.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use weir_trust::association::frame::{LENGTH_BYTES, framed, length};
use weir_trust::association::{HandshakeError, HandshakeMessage};

/// Reads some bytes; zero at the end. Waits until that time, or for ever.
pub(crate) fn read(mut socket: &TcpStream, bytes: &mut [u8], until: Option<Instant>) -> io::Result<usize> {
    loop {
        socket.set_read_timeout(until.map(left).transpose()?)?;
        match socket.read(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // What a socket says whose time is over: asked again, `left` says it as well.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => return read,
        }
    }
}

/// Writes all of the bytes.
pub(crate) fn write_all(mut socket: &TcpStream, mut bytes: &[u8], until: Option<Instant>) -> io::Result<()> {
    while !bytes.is_empty() {
        socket.set_write_timeout(until.map(left).transpose()?)?;
        match socket.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::BrokenPipe.into()),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What came in place of a message of the handshake.
pub(crate) enum NoMessage {
    Io(io::Error),
    Wrong(HandshakeError),
}

/// Reads a message of the handshake, and nothing beyond it. Its length is checked before there is room made for it.
pub(crate) fn read_message(
    socket: &TcpStream,
    which: HandshakeMessage,
    until: Instant,
) -> Result<Vec<u8>, NoMessage> {
    let mut said = [0; LENGTH_BYTES];
    read_exact(socket, &mut said, until).map_err(NoMessage::Io)?;
    let mut message = vec![0; length(which, said).map_err(NoMessage::Wrong)?];
    read_exact(socket, &mut message, until).map_err(NoMessage::Io)?;
    Ok(message)
}

/// Sends a message of the handshake.
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

/// The time until then; an error where it is past. (A time of zero would be for ever.)
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}
