//! Reading in a thread of its own, a bounded number of bytes ahead.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

/// The size of a buffer.
const BUFFER_BYTES: usize = 256 << 10;
/// The most full buffers that wait for the reader.
const BUFFERS_WAITING_MAX: usize = 4;

/// A reader whose bytes another thread has read ahead. Bytes, errors and the end come in the order in which the thread
/// found them. The thread ends after an error or the end, or when this value is dropped.
pub(crate) struct ReadAhead {
    /// Full buffers, then an error, or an empty buffer at the end.
    filled: Receiver<io::Result<Vec<u8>>>,
    /// Buffers to be filled again.
    empty: Arc<Mutex<Vec<Vec<u8>>>>,
    buffer: Vec<u8>,
    /// The number of bytes of `buffer` that were returned.
    returned: usize,
    has_ended: bool,
}

impl ReadAhead {
    /// Starts the thread. If the system refuses one, returns a reader without a thread.
    pub(crate) fn start(reader: Box<dyn Read + Send>) -> Box<dyn Read + Send> {
        let (sender, filled) = sync_channel(BUFFERS_WAITING_MAX);
        let empty = Arc::new(Mutex::new(Vec::new()));
        let empty_of_thread = Arc::clone(&empty);
        // Shared, so that the reader is not lost if no thread is started.
        let shared = Arc::new(Mutex::new(Some(reader)));
        let shared_with_thread = Arc::clone(&shared);
        let body = move || {
            let reader = shared_with_thread.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(reader) = reader {
                read_all(reader, &sender, &empty_of_thread);
            }
        };
        let started = std::thread::Builder::new().name("weir-decompress".to_owned()).spawn(body);
        if started.is_err()
            && let Some(reader) = shared.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            return reader;
        }
        Box::new(Self { filled, empty, buffer: Vec::new(), returned: 0, has_ended: false })
    }
}

/// Reads to the end or the first error, or until the receiver is dropped.
fn read_all(
    mut reader: Box<dyn Read + Send>,
    filled: &SyncSender<io::Result<Vec<u8>>>,
    empty: &Mutex<Vec<Vec<u8>>>,
) {
    loop {
        let mut buffer = empty.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        buffer.resize(BUFFER_BYTES, 0);
        let (mut len, mut end) = (0, None);
        while len < BUFFER_BYTES && end.is_none() {
            match reader.read(&mut buffer[len..]) {
                Ok(0) => end = Some(Ok(Vec::new())),
                Ok(read) => len += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => end = Some(Err(error)),
            }
        }
        buffer.truncate(len);
        // The bytes before an error count.
        if len > 0 && filled.send(Ok(buffer)).is_err() {
            return;
        }
        if let Some(end) = end {
            let _ = filled.send(end);
            return;
        }
    }
}

impl Read for ReadAhead {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if to.is_empty() {
            return Ok(0);
        }
        while self.returned == self.buffer.len() {
            if self.has_ended {
                return Ok(0);
            }
            let used = std::mem::take(&mut self.buffer);
            if used.capacity() > 0 {
                self.empty.lock().unwrap_or_else(PoisonError::into_inner).push(used);
            }
            self.returned = 0;
            match self.filled.recv() {
                Ok(Ok(buffer)) if buffer.is_empty() => self.has_ended = true,
                Ok(Ok(buffer)) => self.buffer = buffer,
                Ok(Err(error)) => {
                    self.has_ended = true;
                    return Err(error);
                }
                // A thread that panicked has sent no end, and the rest of the bytes is missing.
                Err(_) => {
                    self.has_ended = true;
                    return Err(io::Error::other("the thread that decompresses ended early"));
                }
            }
        }
        let rest = &self.buffer[self.returned..];
        let len = rest.len().min(to.len());
        to[..len].copy_from_slice(&rest[..len]);
        self.returned += len;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader of `left` numbered bytes, at most 1,000 a call, that then fails with `error`, panics, or ends.
    struct Numbers {
        next: usize,
        left: usize,
        error: Option<io::ErrorKind>,
        panics: bool,
    }

    impl Read for Numbers {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            if self.left == 0 {
                assert!(!self.panics, "the reader panics, as the test asks");
                return self.error.map_or(Ok(0), |kind| Err(kind.into()));
            }
            let len = to.len().min(self.left).min(1000);
            for byte in &mut to[..len] {
                *byte = number(self.next);
                self.next += 1;
            }
            self.left -= len;
            Ok(len)
        }
    }

    fn number(i: usize) -> u8 {
        u8::try_from(i % 251).unwrap()
    }

    fn read(left: usize, error: Option<io::ErrorKind>, panics: bool) -> (Vec<u8>, io::Result<usize>) {
        let mut reader = ReadAhead::start(Box::new(Numbers { next: 0, left, error, panics }));
        let mut bytes = Vec::new();
        let result = reader.read_to_end(&mut bytes);
        (bytes, result)
    }

    #[test]
    fn bytes_come_in_order_and_before_the_end_or_the_error() {
        for len in [0, 1, BUFFER_BYTES - 1, BUFFER_BYTES, 12 * BUFFER_BYTES + 7] {
            let numbers: Vec<u8> = (0..len).map(number).collect();
            let (bytes, result) = read(len, None, false);
            assert!(bytes == numbers && result.unwrap() == len, "{len}");
            let (bytes, result) = read(len, Some(io::ErrorKind::UnexpectedEof), false);
            assert!(bytes == numbers, "{len}");
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn a_panic_of_the_thread_is_an_error_and_no_end() {
        let (bytes, result) = read(10, None, true);
        assert!(bytes.len() <= 10 && result.is_err());
    }

    #[test]
    fn a_reader_that_is_dropped_ends_the_thread() {
        let alive = Arc::new(());
        struct Endless(#[expect(dead_code, reason = "counts the owners")] Arc<()>);
        impl Read for Endless {
            fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
                Ok(to.len())
            }
        }
        let mut reader = ReadAhead::start(Box::new(Endless(Arc::clone(&alive))));
        reader.read_exact(&mut [0; 10]).unwrap();
        drop(reader);
        while Arc::strong_count(&alive) > 1 {
            std::thread::yield_now();
        }
    }
}
