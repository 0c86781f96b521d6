//! An association as a stream of bytes.

use crate::deadline;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use weir_trust::association::{Association, Peer};
use weir_trust::transport::{MESSAGE_BYTES_MAX, SealedStream, StreamEvent, TransportError};

/// Bytes that are taken from the system at a time.
const READ_BYTES: usize = MESSAGE_BYTES_MAX;

/// Reads and writes what only the peer can have sent, and only the peer can read.
///
/// Each write is a message and a system call of its own: put a `BufWriter` over it where there are many small ones. A read gives zero bytes
/// when the peer has said that nothing follows ([`PeerWriter::finish`]); where the connection ends without that, it is an error of the kind
/// `UnexpectedEof`. What was damaged is one of the kind `InvalidData`. One that takes too long is of the kind `TimedOut`; a read can be
/// tried again then.
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
        let shared = Arc::new(Shared { socket, sealed: Mutex::new(sealed) });
        let writer =
            PeerWriter { shared: Arc::clone(&shared), until: None, is_broken: false, message: Vec::new() };
        let reader = PeerReader {
            shared,
            until: None,
            raw: vec![0; READ_BYTES].into_boxed_slice(),
            raw_from: 0,
            raw_to: 0,
            ready: Vec::new(),
            given: 0,
        };
        Self { peer, binding, reader, writer }
    }

    /// Whom it is with, and what it has shown.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// What names this association and no other: the same on both sides.
    pub fn binding(&self) -> &[u8; 32] {
        &self.binding
    }

    /// Until when reading and writing may take, both; without one, as long as the peer likes.
    pub fn set_deadline(&mut self, until: Option<Instant>) {
        self.reader.set_deadline(until);
        self.writer.set_deadline(until);
    }

    /// Says that nothing follows. What the peer says can still be read.
    ///
    /// # Errors
    /// It cannot be sent, or was said before.
    pub fn finish(&mut self) -> io::Result<()> {
        self.writer.finish()
    }

    /// Both directions apart, for two threads.
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

#[derive(Debug)]
struct Shared {
    socket: Arc<TcpStream>,
    sealed: Mutex<SealedStream>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, SealedStream> {
        self.sealed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What ends an association ends its connection, so that the peer does not go on for nothing.
    fn end(&self, error: TransportError) -> io::Error {
        let kind = match error {
            // One's own mistake; the other direction goes on.
            TransportError::Finished => return io::Error::new(io::ErrorKind::BrokenPipe, error),
            TransportError::Over => io::ErrorKind::BrokenPipe,
            TransportError::Cut => io::ErrorKind::UnexpectedEof,
            _ => io::ErrorKind::InvalidData,
        };
        _ = self.socket.shutdown(Shutdown::Both);
        io::Error::new(kind, error)
    }
}

/// What the peer says.
#[derive(Debug)]
pub struct PeerReader {
    shared: Arc<Shared>,
    until: Option<Instant>,
    /// What came and was not opened yet.
    raw: Box<[u8]>,
    raw_from: usize,
    raw_to: usize,
    /// What was opened.
    ready: Vec<u8>,
    /// Of that, what was given already.
    given: usize,
}

impl PeerReader {
    /// Until when reading may take.
    pub fn set_deadline(&mut self, until: Option<Instant>) {
        self.until = until;
    }

    /// The next message's bytes; nothing at the end.
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let mut waiting = self.raw.get(self.raw_from..self.raw_to).unwrap_or_default();
            if waiting.is_empty() {
                if self.shared.lock().is_ended() {
                    return Ok(None);
                }
                let count = deadline::read(&self.shared.socket, &mut self.raw, self.until)?;
                (self.raw_from, self.raw_to) = (0, count);
                if count == 0 {
                    let cut = self.shared.lock().cut();
                    return cut.map(|()| None).map_err(|error| self.shared.end(error));
                }
                continue;
            }
            let event = self.shared.lock().feed(&mut waiting);
            self.raw_from = self.raw_to - waiting.len();
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
        if self.given == self.ready.len() {
            let Some(data) = self.next()? else { return Ok(0) };
            (self.ready, self.given) = (data, 0);
        }
        let rest = self.ready.get(self.given..).unwrap_or_default();
        let count = rest.len().min(bytes.len());
        let (into, from) = (bytes.get_mut(..count), rest.get(..count));
        if let (Some(into), Some(from)) = (into, from) {
            into.copy_from_slice(from);
        }
        self.given += count;
        Ok(count)
    }
}

/// What is said to the peer.
#[derive(Debug)]
pub struct PeerWriter {
    shared: Arc<Shared>,
    until: Option<Instant>,
    /// A message was sent in part: nothing that follows could be read.
    is_broken: bool,
    message: Vec<u8>,
}

impl PeerWriter {
    /// Until when writing may take.
    pub fn set_deadline(&mut self, until: Option<Instant>) {
        self.until = until;
    }

    /// Says that nothing follows.
    ///
    /// # Errors
    /// It cannot be sent, or was said before.
    pub fn finish(&mut self) -> io::Result<()> {
        self.say(|sealed, message| sealed.finish(message))?;
        self.shared.socket.shutdown(Shutdown::Write)
    }

    fn say<T>(
        &mut self,
        what: impl FnOnce(&mut SealedStream, &mut Vec<u8>) -> Result<T, TransportError>,
    ) -> io::Result<T> {
        if self.is_broken {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.message.clear();
        let said = what(&mut self.shared.lock(), &mut self.message);
        let said = said.map_err(|error| self.shared.end(error))?;
        if let Err(error) = deadline::write_all(&self.shared.socket, &self.message, self.until) {
            self.is_broken = true;
            _ = self.shared.socket.shutdown(Shutdown::Both);
            return Err(error);
        }
        Ok(said)
    }
}

impl Write for PeerWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.say(|sealed, message| sealed.send(bytes, message))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
