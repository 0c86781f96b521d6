//! A capture that is read in order, through an arena: a pipe, or a compressed file.

use crate::arena::{Arena, CHUNK_BYTES, Hold};
use crate::decode::{Decoded, StreamEnd};
use crate::error::{CaptureReadError, SourceName};
use crate::file::Extend;
use crate::mapped_bytes::MappedBytes;
use crate::open::{ReadAheadMode, StreamOptions};
use crate::read_ahead::{AheadReader, Front, ReadAhead};
use crate::totals::{EndReason, Truncation};
use crate::window::PacketWindow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_abi::ARENA_BASE;

/// The most bytes of one read, so that they are still in the CPU's cache when their packets are processed.
const READ_BYTES_MAX: usize = 256 << 10;

/// A stream of capture bytes. The arena holds the part that is being read.
///
/// Records are parsed in place. A record that does not end inside the present chunks is moved to other chunks, before the
/// rest of its bytes.
#[derive(Debug)]
pub(crate) struct CaptureStream {
    name: SourceName,
    input: StreamInput,
    /// Bytes read from the source so far.
    source_bytes_read: Arc<AtomicU64>,
    arena: Arena,
    /// The chunks that are being filled.
    chunks: Range<usize>,
    hold: Hold,
    /// The index in `chunks` of the first byte.
    begin: usize,
    /// The offset in the capture of the first byte.
    start: u64,
    /// The number of bytes read into `chunks` so far.
    filled: usize,
    /// The length that the stream has unless its file is cut short; `None` if it is not known.
    expected_end: Option<u64>,
    /// Set once the stream has ended. The inner reason is `None` at the regular end.
    ended: Option<Option<EndReason>>,
}

/// The source of a stream's bytes.
#[derive(Debug)]
enum StreamInput {
    Direct(Decoded),
    Ahead(ReadAhead),
}

/// The result of taking the next chunk that was read ahead.
enum Taken {
    /// The stream continues in the chunk, or has ended.
    Chunk,
    /// Nothing is read ahead, or the bytes to move do not fit, so that the next bytes have to be copied.
    Nothing,
    /// Blocks in use hold all chunks.
    Full,
}

impl CaptureStream {
    pub(crate) fn new(name: SourceName, input: Decoded, arena: Arena, options: StreamOptions) -> Self {
        let source_bytes_read = input.counter();
        let input = match options.ahead {
            ReadAheadMode::No => StreamInput::Direct(input),
            ReadAheadMode::Thread => {
                let ahead = ReadAhead::new(input);
                ahead.start_thread();
                StreamInput::Ahead(ahead)
            }
            ReadAheadMode::Callers => StreamInput::Ahead(ReadAhead::new(input)),
        };
        let mut hold = Hold::default();
        arena.hold(0..1, &mut hold);
        Self {
            name,
            input,
            source_bytes_read,
            arena,
            chunks: 0..1,
            hold,
            begin: 0,
            start: 0,
            filled: 0,
            expected_end: options.expected_end,
            ended: None,
        }
    }

    pub(crate) fn window(&self) -> &Arc<PacketWindow> {
        self.arena.window()
    }

    /// The number of bytes read from the source so far, compressed or not.
    pub(crate) fn source_bytes_read(&self) -> u64 {
        self.source_bytes_read.load(Ordering::Relaxed)
    }

    /// A reader that reads ahead, if this stream supports that.
    pub(crate) fn ahead_reader(&self) -> Option<AheadReader> {
        match &self.input {
            StreamInput::Ahead(ahead) => Some(ahead.reader()),
            StreamInput::Direct(_) => None,
        }
    }

    /// Keeps the present chunks from being reused while `hold` lives.
    pub(crate) fn hold(&self, hold: &mut Hold) {
        self.arena.hold(self.chunks.clone(), hold);
    }

    fn end(&self) -> u64 {
        self.start.saturating_add(self.filled as u64)
    }

    /// The bytes in the present chunks.
    pub(crate) fn mapped(&self) -> MappedBytes<'_> {
        let base = self.arena.address(self.chunks.start).wrapping_add(self.begin);
        let guest = u32::try_from(self.chunks.start * CHUNK_BYTES + self.begin).unwrap_or(0);
        // SAFETY: `filled` bytes of the held chunks, inside the arena's mapping, which the borrow of `self` keeps.
        // They are not written while `self` is borrowed, because `fill` and `relocate` take `&mut self`.
        unsafe { MappedBytes::new(base, self.start, self.end(), ARENA_BASE.saturating_add(guest)) }
    }

    /// Makes `offset..need` accessible. Bytes before `offset` are no longer needed.
    pub(crate) fn extend(&mut self, offset: u64, need: u64) -> Result<Extend, CaptureReadError> {
        loop {
            let end = self.end();
            if need <= end && offset >= self.start {
                return Ok(Extend::Ready);
            }
            if let Some(reason) = &self.ended {
                return Ok(match reason {
                    None if offset == end => Extend::End,
                    None => Extend::Truncated(Truncation { offset, reason: EndReason::Cut }),
                    Some(reason) => Extend::Truncated(Truncation { offset, reason: reason.clone() }),
                });
            }
            match self.take_ahead(offset.min(end))? {
                Taken::Chunk => continue,
                Taken::Nothing => {}
                Taken::Full => return Ok(Extend::Full),
            }
            let capacity = self.capacity();
            // Bytes between `end` and `offset` are read only to be skipped.
            let wanted = if offset > end { end.saturating_add(1) } else { need };
            if self.filled < capacity && wanted.saturating_sub(self.start) <= capacity as u64 {
                self.fill()?;
            } else if !self.relocate(offset.min(end), wanted) {
                return Ok(Extend::Full);
            }
        }
    }

    /// Continues in the next chunk that was read ahead, and moves the bytes from `offset` on there.
    fn take_ahead(&mut self, offset: u64) -> Result<Taken, CaptureReadError> {
        let kept = self.kept(offset);
        let from = self.filled - kept;
        let StreamInput::Ahead(ahead) = &mut self.input else { return Ok(Taken::Nothing) };
        match ahead.wait(&self.arena) {
            Ok(Front::Ready) => {}
            Ok(Front::Full) => return Ok(Taken::Full),
            Ok(Front::End) => {
                self.end_with(Ok(()))?;
                return Ok(Taken::Chunk);
            }
            Err(end) => {
                self.end_with(Err(end))?;
                return Ok(Taken::Chunk);
            }
        }
        let base = self.arena.address(self.chunks.start);
        // SAFETY: the last `kept` bytes below `filled` of the present chunks, which nothing writes while `self.hold` holds
        // them: the chunk that they are copied to is another one, because only one hold is on it.
        let before = unsafe { std::slice::from_raw_parts(base.add(self.begin + from), kept) };
        let Some((chunk, bytes)) = ahead.take(before) else { return Ok(Taken::Nothing) };
        (self.chunks, self.hold) = chunk.into_parts();
        (self.begin, self.filled) = (bytes.start, bytes.len());
        self.start = self.start.saturating_add(from as u64);
        Ok(Taken::Chunk)
    }

    /// The number of read bytes from `offset` on.
    fn kept(&self, offset: u64) -> usize {
        usize::try_from(self.end().saturating_sub(offset)).unwrap_or(usize::MAX).min(self.filled)
    }

    /// The number of bytes that fit into the present chunks.
    fn capacity(&self) -> usize {
        self.chunks.len() * CHUNK_BYTES - self.begin
    }

    /// Reads some bytes into the rest of the present chunks.
    fn fill(&mut self) -> Result<(), CaptureReadError> {
        let room = (self.capacity() - self.filled).min(READ_BYTES_MAX);
        let base = self.arena.address(self.chunks.start);
        // SAFETY: a part of the rest of the held chunks, inside the mapping. Blocks and `MappedBytes` read only bytes below
        // `filled`, and no `MappedBytes` is alive while `self` is borrowed mutably. A memory file's bytes are
        // initialised.
        let rest = unsafe { std::slice::from_raw_parts_mut(base.add(self.begin + self.filled), room) };
        let read = match &mut self.input {
            StreamInput::Ahead(ahead) => Ok(ahead.copy(rest)),
            StreamInput::Direct(input) => input.read(rest),
        };
        match read {
            Ok(0) => self.end_with(Ok(())),
            Ok(read) => {
                self.filled += read.min(room);
                Ok(())
            }
            Err(end) => self.end_with(Err(end)),
        }
    }

    /// Ends the stream at its regular end, or early.
    ///
    /// # Errors
    ///
    /// [`CaptureReadError`] if the system could not read the source.
    fn end_with(&mut self, end: Result<(), StreamEnd>) -> Result<(), CaptureReadError> {
        let reason = match end {
            Ok(()) => {
                let is_short = self.expected_end.is_some_and(|expected| self.end() < expected);
                is_short.then_some(EndReason::Lost)
            }
            Err(StreamEnd::Data(reason)) => Some(reason),
            // A mapped file that becomes unreadable ends there, too.
            Err(StreamEnd::Io(_)) if self.expected_end.is_some() => Some(EndReason::Lost),
            Err(StreamEnd::Io(error)) => {
                return Err(CaptureReadError::Io { file: self.name.clone(), offset: self.end(), error });
            }
        };
        self.ended = Some(reason);
        Ok(())
    }

    /// Continues in other chunks with space for `offset..need`, and moves the bytes from `offset` on there. Returns
    /// false if no chunks are free.
    fn relocate(&mut self, offset: u64, need: u64) -> bool {
        let Ok(wanted) = usize::try_from(need.saturating_sub(offset)) else { return false };
        let Some(chunks) = self.arena.find_free(wanted.div_ceil(CHUNK_BYTES).max(1), &self.hold) else {
            return false;
        };
        let kept = self.kept(offset);
        let from = self.filled - kept;
        let mut hold = Hold::default();
        self.arena.hold(chunks.clone(), &mut hold);
        // SAFETY: copies the last `kept` bytes below `filled` of the present chunks to chunks with space for
        // `wanted`, which is at least `kept`, and which only `self` holds. The ranges may overlap.
        unsafe {
            std::ptr::copy(
                self.arena.address(self.chunks.start).add(self.begin + from),
                self.arena.address(chunks.start),
                kept,
            );
        }
        self.hold = hold;
        (self.chunks, self.begin) = (chunks, 0);
        self.start = self.start.saturating_add(from as u64);
        self.filled = kept;
        true
    }
}
