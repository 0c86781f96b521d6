//! An authenticated connection as a stream of bytes.

use crate::deadline;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use weir_trust::association::{Association, Peer};
use weir_trust::transport::{MESSAGE_BYTES_MAX, SealedStream, StreamEvent, TransportError};

/// The most bytes read by one system call.
const READ_BYTES: usize = MESSAGE_BYTES_MAX;

/// A bidirectional stream that is encrypted and authenticated.
///
/// Each write sends one message by one system call, so small writes should go through a `BufWriter`. A read returns
/// zero bytes when the peer has finished its side ([`PeerWriter::finish`]).
///
/// The kinds of errors are `UnexpectedEof` if the connection ends although the peer has not finished its side,
/// `InvalidData` for a damaged message, and `TimedOut` after the deadline. A read that timed out can be repeated.
#[derive(Debug)]
pub struct SecureStream {
    peer: Peer,
    binding: [u8; 32],
    reader: PeerReader,
    writer: PeerWriter,
}

impl SecureStream {
    pub(crate) fn new(socket: Arc<TcpStream>, association: Association) -> Self {
        let binding = *association.binding();
        let (peer, sealed) = association.into_stream();
        let shared = Arc::new(SharedStream { socket, sealed: Mutex::new(sealed) });
        let writer =
            PeerWriter { shared: Arc::clone(&shared), until: None, is_broken: false, message: Vec::new() };
        let reader = PeerReader {
            shared,
            until: None,
            raw: vec![0; READ_BYTES].into_boxed_slice(),
            raw_from: 0,
            raw_to: 0,
            decrypted: Vec::new(),
            returned: 0,
        };
        Self { peer, binding, reader, writer }
    }

    /// Returns the peer, with its key and credentials.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Returns the channel binding: bytes that identify this association, the same on both sides.
    pub fn binding(&self) -> &[u8; 32] {
        &self.binding
    }

    /// Sets the deadline of reading and writing. With `None`, reads and writes wait without limit.
    pub fn set_deadline(&mut self, until: Option<Instant>) {
        self.reader.set_deadline(until);
        self.writer.set_deadline(until);
    }

    /// Finishes the sending side. The peer's messages can still be read.
    ///
    /// # Errors
    /// The final message cannot be sent, or the sending side was finished before.
    pub fn finish(&mut self) -> io::Result<()> {
        self.writer.finish()
    }

    /// Splits the stream into its receiving and its sending side, for two threads.
    pub fn split(self) -> (Peer, PeerReader, PeerWriter) {
        (self.peer, self.reader, self.writer)
    }
}

impl Read for SecureStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.reader.read(bytes)
    }
}

impl Write for SecureStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The parts of a stream that both directions use.
#[derive(Debug)]
struct SharedStream {
    socket: Arc<TcpStream>,
    sealed: Mutex<SealedStream>,
}

impl SharedStream {
    fn lock(&self) -> MutexGuard<'_, SealedStream> {
        self.sealed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Converts an error. If the error ends the association, shuts the connection down, so that the peer notices the
    /// end.
    fn end(&self, error: TransportError) -> io::Error {
        let kind = match error {
            // The caller has written after it had finished its sending side. The receiving side is not affected.
            TransportError::Finished => return io::Error::new(io::ErrorKind::BrokenPipe, error),
            TransportError::Over => io::ErrorKind::BrokenPipe,
            TransportError::Cut => io::ErrorKind::UnexpectedEof,
            _ => io::ErrorKind::InvalidData,
        };
        _ = self.socket.shutdown(Shutdown::Both);
        io::Error::new(kind, error)
    }
}

/// The receiving side of a [`SecureStream`].
#[derive(Debug)]
pub struct PeerReader {
    shared: Arc<SharedStream>,
    until: Option<Instant>,
    /// A buffer of received bytes. Those in `raw_from..raw_to` are not decrypted yet.
    raw: Box<[u8]>,
    raw_from: usize,
    raw_to: usize,
    /// The decrypted bytes of the current message.
    decrypted: Vec<u8>,
    /// The number of decrypted bytes that have been returned to the reader.
    returned: usize,
}

impl PeerReader {
    /// Sets the deadline of reading.
    pub fn set_deadline(&mut self, until: Option<Instant>) {
        self.until = until;
    }

    /// Receives and decrypts the next message. Returns `None` when the peer has finished its side.
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let mut encrypted = self.raw.get(self.raw_from..self.raw_to).unwrap_or_default();
            if encrypted.is_empty() {
                if self.shared.lock().is_ended() {
                    return Ok(None);
                }
                let count = deadline::read(&self.shared.socket, &mut self.raw, self.until)?;
                (self.raw_from, self.raw_to) = (0, count);
                if count == 0 {
                    let closed = self.shared.lock().handle_close();
                    return closed.map(|()| None).map_err(|error| self.shared.end(error));
                }
                continue;
            }
            let event = self.shared.lock().feed(&mut encrypted);
            self.raw_from = self.raw_to - encrypted.len();
            match event.map_err(|error| self.shared.end(error))? {
                Some(StreamEvent::Data(data)) => return Ok(Some(data)),
                Some(StreamEvent::End) | None => {}
            }
        }
    }
}

impl Read for PeerReader {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        if self.returned == self.decrypted.len() {
            let Some(data) = self.next()? else { return Ok(0) };
            (self.decrypted, self.returned) = (data, 0);
        }
        let rest = self.decrypted.get(self.returned..).unwrap_or_default();
        let count = rest.len().min(bytes.len());
        let (into, from) = (bytes.get_mut(..count), rest.get(..count));
        if let (Some(into), Some(from)) = (into, from) {
            into.copy_from_slice(from);
        }
        self.returned += count;
        Ok(count)
    }
}

/// The sending side of a [`SecureStream`].
#[derive(Debug)]
pub struct PeerWriter {
    shared: Arc<SharedStream>,
    until: Option<Instant>,
    /// True if only a part of a message was sent. The peer could not decrypt later messages, so none are sent.
    is_broken: bool,
    /// A buffer for an encrypted message.
    message: Vec<u8>,
}

impl PeerWriter {
    /// Sets the deadline of writing.
    pub fn set_deadline(&mut self, until: Option<Instant>) {
        self.until = until;
    }

    /// Finishes the sending side.
    ///
    /// # Errors
    /// The final message cannot be sent, or the sending side was finished before.
    pub fn finish(&mut self) -> io::Result<()> {
        self.send(|sealed, message| sealed.finish(message))?;
        self.shared.socket.shutdown(Shutdown::Write)
    }

    /// Sends the message that `seal` encrypts.
    fn send<T>(
        &mut self,
        seal: impl FnOnce(&mut SealedStream, &mut Vec<u8>) -> Result<T, TransportError>,
    ) -> io::Result<T> {
        if self.is_broken {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.message.clear();
        let result = seal(&mut self.shared.lock(), &mut self.message);
        let result = result.map_err(|error| self.shared.end(error))?;
        if let Err(error) = deadline::write_all(&self.shared.socket, &self.message, self.until) {
            self.is_broken = true;
            _ = self.shared.socket.shutdown(Shutdown::Both);
            return Err(error);
        }
        Ok(result)
    }
}

impl Write for PeerWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send(|sealed, message| sealed.send(bytes, message))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
