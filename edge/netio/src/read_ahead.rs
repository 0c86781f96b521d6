//! Reads the bytes of a stream before they are needed, into a bounded number of an arena's chunks. Any thread can do the
//! reading.

use crate::arena::{Arena, CHUNKS, WritableChunks};
use crate::decode::{Decoded, StreamEnd};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};

/// The bytes at the beginning of a chunk that stay free, for the part of a record that is in the chunk before.
const FRONT_BYTES: usize = 128 << 10;
/// The most chunks that are filled, or may be filled, before the stream uses them.
const CHUNKS_AHEAD: usize = 4;
/// The chunks that are filled ahead. The others stay free for long records, which need contiguous chunks.
const RANGE: Range<usize> = CHUNKS * 5 / 8..CHUNKS;

/// The chunks of a stream that were read ahead. Bytes, errors and the end come in the order of the stream.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    reader: AheadReader,
    /// The chunk whose bytes come next.
    front: Option<FilledChunk>,
}

/// Reads the next bytes of a capture ahead, so that they are in memory when [`Capture::next_block`] needs them. Any thread
/// may do so.
///
/// [`Capture::next_block`]: crate::Capture::next_block
#[derive(Clone, Debug)]
pub struct AheadReader(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The source of the bytes. Its lock is held while a chunk is filled, so that chunks are in order.
    input: Mutex<Decoded>,
    chunks: Mutex<Chunks>,
    /// Tells the stream's own thread that there is a chunk to fill, or that the stream is dropped.
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Chunks {
    empty: Vec<WritableChunks>,
    /// True while a thread fills a chunk.
    is_filling: bool,
    filled: VecDeque<FilledChunk>,
    /// The end of the stream, or the error that ends it, after the filled chunks.
    end: Option<Result<(), StreamEnd>>,
    /// True if nothing more is read, because of the end or because the stream is dropped.
    has_ended: bool,
}

/// A chunk with bytes of the stream. It is still writable, because bytes of the chunk before can be put before its own.
#[derive(Debug)]
struct FilledChunk {
    chunk: WritableChunks,
    /// The unused bytes.
    bytes: Range<usize>,
}

/// The result of waiting for the next bytes.
#[derive(Debug)]
pub(crate) enum Front {
    Ready,
    End,
    /// Blocks in use hold all chunks.
    Full,
}

impl Chunks {
    /// The number of chunks that are not in use by the stream.
    fn count(&self) -> usize {
        self.empty.len() + usize::from(self.is_filling) + self.filled.len()
    }
}

impl Shared {
    fn chunks(&self) -> MutexGuard<'_, Chunks> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills the next chunk. Returns false if there is none to fill.
    fn fill(&self, input: &mut Decoded) -> bool {
        let mut chunk = {
            let mut chunks = self.chunks();
            let Some(chunk) = chunks.empty.pop().filter(|_| !chunks.has_ended) else { return false };
            chunks.is_filling = true;
            chunk
        };
        let bytes = chunk.bytes();
        let mut to = FRONT_BYTES;
        let end = loop {
            match input.read(&mut bytes[to..]) {
                Ok(0) => break Some(Ok(())),
                Ok(read) => to += read,
                Err(error) => break Some(Err(error)),
            }
            if to >= bytes.len() {
                break None;
            }
        };
        let mut chunks = self.chunks();
        // The bytes before an error count.
        if to > FRONT_BYTES {
            chunks.filled.push_back(FilledChunk { chunk, bytes: FRONT_BYTES..to });
        }
        chunks.is_filling = false;
        chunks.has_ended |= end.is_some();
        chunks.end = end;
        true
    }
}

impl AheadReader {
    /// Returns true if a chunk can be read ahead, and no other thread does so now.
    pub fn is_wanted(&self) -> bool {
        let chunks = self.0.chunks();
        !chunks.is_filling && !chunks.has_ended && !chunks.empty.is_empty()
    }

    /// Reads a chunk ahead, unless another thread does so now.
    pub fn read(&self) {
        match self.0.input.try_lock() {
            Ok(mut input) => {
                self.0.fill(&mut input);
            }
            // The stream reports the panic.
            Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => {}
        }
    }

    /// Fills chunks until the end, or until the stream is dropped.
    fn run(&self) {
        loop {
            let mut chunks = self.0.chunks();
            while chunks.empty.is_empty() && !chunks.has_ended {
                chunks = self.0.wake.wait(chunks).unwrap_or_else(PoisonError::into_inner);
            }
            if chunks.has_ended {
                return;
            }
            drop(chunks);
            let Ok(mut input) = self.0.input.lock() else { return };
            self.0.fill(&mut input);
        }
    }
}

impl ReadAhead {
    pub(crate) fn new(input: Decoded) -> Self {
        let (input, chunks, wake) = (Mutex::new(input), Mutex::default(), Condvar::new());
        Self { reader: AheadReader(Arc::new(Shared { input, chunks, wake })), front: None }
    }

    /// Starts a thread that reads ahead. Without a thread, [`wait`](Self::wait) reads.
    pub(crate) fn start_thread(&self) {
        let reader = self.reader.clone();
        let _ = std::thread::Builder::new().name("weir-read".to_owned()).spawn(move || reader.run());
    }

    /// Returns a reader for other threads.
    pub(crate) fn reader(&self) -> AheadReader {
        self.reader.clone()
    }

    /// Waits for the next bytes, or reads them if no other thread does so. Takes free chunks of the arena for reading ahead.
    ///
    /// # Errors
    ///
    /// [`StreamEnd`] if the bytes could not be read.
    pub(crate) fn wait(&mut self, arena: &Arena) -> Result<Front, StreamEnd> {
        loop {
            let mut chunks = self.reader.0.chunks();
            while chunks.count() < CHUNKS_AHEAD
                && !chunks.has_ended
                && let Some(chunk) = arena.take_chunk(RANGE)
            {
                chunks.empty.push(chunk);
                self.reader.0.wake.notify_one();
            }
            self.front = self.front.take().or_else(|| chunks.filled.pop_front());
            if self.front.is_some() {
                return Ok(Front::Ready);
            }
            if let Some(end) = chunks.end.take() {
                return end.map(|()| Front::End);
            }
            if chunks.count() == 0 {
                return Ok(Front::Full);
            }
            drop(chunks);
            // Waits while another thread fills a chunk.
            let Ok(mut input) = self.reader.0.input.lock() else {
                // The thread that panicked has left no end, and the rest of the bytes is missing.
                return Err(StreamEnd::Io(io::Error::other("a thread that read ahead ended early")));
            };
            if self.reader.0.chunks().filled.is_empty() {
                self.reader.0.fill(&mut input);
            }
        }
    }

    /// Moves the next bytes of the stream to `to`, as many as are read and fit. Returns their number.
    pub(crate) fn copy(&mut self, to: &mut [u8]) -> usize {
        let Some(front) = &mut self.front else { return 0 };
        let len = to.len().min(front.bytes.len());
        let from = front.bytes.start;
        to[..len].copy_from_slice(&front.chunk.bytes()[from..from + len]);
        front.bytes.start += len;
        if front.bytes.is_empty() {
            self.front = None;
        }
        len
    }

    /// Takes the chunk with the next bytes of the stream, and puts `before` before them. Returns the range of all these
    /// bytes in the chunk. Returns `None`, and takes nothing, if there is no room.
    pub(crate) fn take(&mut self, before: &[u8]) -> Option<(WritableChunks, Range<usize>)> {
        let FilledChunk { mut chunk, bytes } =
            self.front.take_if(|front| front.bytes.start >= before.len())?;
        let start = bytes.start - before.len();
        chunk.bytes()[start..bytes.start].copy_from_slice(before);
        Some((chunk, start..bytes.end))
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        let mut chunks = self.reader.0.chunks();
        chunks.has_ended = true;
        chunks.empty.clear();
        drop(chunks);
        self.reader.0.wake.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::{CHUNK_BYTES, Hold};
    use crate::decode::ByteSource;
    use std::io::Cursor;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// The bytes `from..to` of a stream of different bytes.
    fn numbers(range: Range<usize>) -> Vec<u8> {
        range.map(|i| u8::try_from(i % 251).unwrap()).collect()
    }

    /// A reader of these bytes, with a thread of its own or without.
    fn ahead(bytes: &[u8], has_thread: bool) -> ReadAhead {
        let source = ByteSource::Memory(Cursor::new(bytes.to_vec()));
        let ahead = ReadAhead::new(Decoded::new(source).unwrap());
        if has_thread {
            ahead.start_thread();
        }
        ahead
    }

    #[test]
    fn bytes_come_in_order_and_then_the_end_or_the_error() {
        let room = CHUNK_BYTES - FRONT_BYTES;
        let arena = Arena::new().unwrap();
        let lengths = [0, 1, room - 1, room, room + 1, 12 * room + 7];
        for (len, has_thread) in lengths.into_iter().flat_map(|len| [(len, false), (len, true)]) {
            let bytes = numbers(0..len);
            let mut ahead = ahead(&bytes, has_thread);
            let mut found = Vec::new();
            while let Front::Ready = ahead.wait(&arena).unwrap() {
                let (mut chunk, range) = ahead.take(b"before").unwrap();
                let (before, next) = chunk.bytes()[range].split_at(6);
                assert_eq!(before, b"before");
                found.extend_from_slice(next);
            }
            assert!(found == bytes, "{len}");
        }
        // A gzip header without data.
        let mut ahead = ahead(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3], true);
        assert!(matches!(ahead.wait(&arena), Err(StreamEnd::Data(_))));
    }

    #[test]
    fn bytes_that_do_not_fit_before_a_chunk_are_refused_and_a_copy_gives_the_rest() {
        let arena = Arena::new().unwrap();
        let bytes = numbers(0..5000);
        let mut ahead = ahead(&bytes, false);
        assert!(matches!(ahead.wait(&arena).unwrap(), Front::Ready));
        assert!(ahead.take(&vec![0; FRONT_BYTES + 1]).is_none());
        let mut part = [0; 100];
        assert_eq!(ahead.copy(&mut part), 100);
        assert_eq!(part, bytes[..100]);
        let (mut chunk, range) = ahead.take(&vec![7; FRONT_BYTES + 100]).unwrap();
        let found = &chunk.bytes()[range];
        assert!(found[..FRONT_BYTES + 100].iter().all(|byte| *byte == 7));
        assert!(found[FRONT_BYTES + 100..] == bytes[100..]);
        assert!(matches!(ahead.wait(&arena).unwrap(), Front::End));
    }

    #[test]
    fn reading_pauses_while_blocks_hold_the_chunks_and_a_dropped_stream_gives_them_back() {
        let arena = Arena::new().unwrap();
        let bytes = numbers(0..40 * CHUNK_BYTES);
        for has_thread in [false, true] {
            let mut ahead = ahead(&bytes, has_thread);
            let (mut held, mut found) = (Vec::new(), Vec::new());
            let mut take = |ahead: &mut ReadAhead, held: &mut Vec<WritableChunks>| {
                let (mut chunk, range) = ahead.take(&[]).unwrap();
                found.extend_from_slice(&chunk.bytes()[range]);
                held.push(chunk);
            };
            while let Front::Ready = ahead.wait(&arena).unwrap() {
                take(&mut ahead, &mut held);
            }
            assert_eq!(held.len(), RANGE.len());
            held.pop();
            assert!(matches!(ahead.wait(&arena).unwrap(), Front::Ready));
            take(&mut ahead, &mut held);
            assert!(found == bytes[..found.len()]);
            drop((held, ahead));
            // The thread may be filling a chunk.
            while arena.find_free(CHUNKS, &Hold::default()).is_none() {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn several_threads_read_the_chunks_in_order() {
        let arena = Arena::new().unwrap();
        let bytes = numbers(0..30 * CHUNK_BYTES + 5);
        let mut ahead = ahead(&bytes, true);
        let is_done = AtomicBool::new(false);
        let readers = [ahead.reader(), ahead.reader()];
        let found = std::thread::scope(|scope| {
            for reader in &readers {
                scope.spawn(|| {
                    while !is_done.load(Ordering::Relaxed) {
                        if reader.is_wanted() {
                            reader.read();
                        }
                    }
                });
            }
            let mut found = Vec::new();
            while let Front::Ready = ahead.wait(&arena).unwrap() {
                let (mut chunk, range) = ahead.take(&[]).unwrap();
                found.extend_from_slice(&chunk.bytes()[range]);
            }
            is_done.store(true, Ordering::Relaxed);
            found
        });
        assert!(found == bytes);
    }

    #[test]
    fn a_panic_of_a_thread_that_reads_is_an_error_and_no_end() {
        let arena = Arena::new().unwrap();
        let mut ahead = ahead(&numbers(0..100), false);
        let reader = ahead.reader();
        let panicked = std::thread::spawn(move || {
            let _input = reader.0.input.lock().unwrap();
            panic!("the thread panics, as the test asks");
        });
        assert!(panicked.join().is_err());
        assert!(matches!(ahead.wait(&arena), Err(StreamEnd::Io(_))));
    }
}
