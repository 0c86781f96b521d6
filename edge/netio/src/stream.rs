//! A capture that is read in order, through an arena: a pipe, or a compressed file.

use crate::arena::{Arena, CHUNK_BYTES, Hold};
use crate::decode::{Decoded, StreamEnd};
use crate::error::{CaptureReadError, SourceName};
use crate::file::Extend;
use crate::mapped_bytes::MappedBytes;
use crate::totals::{EndReason, Truncation};
use crate::window::PacketWindow;
use std::ops::Range;
use std::sync::Arc;
use weir_abi::ARENA_BASE;

/// The most bytes of one read, so that they are still in the CPU's cache when their packets are processed.
const READ_BYTES_MAX: usize = 256 << 10;

/// A stream of capture bytes. The arena holds the part that is being read.
///
/// Records are parsed in place. A record that does not end inside the present chunks is moved to the beginning of
/// other chunks.
#[derive(Debug)]
pub(crate) struct CaptureStream {
    name: SourceName,
    input: Decoded,
    arena: Arena,
    /// The chunks that are being filled.
    chunks: Range<usize>,
    hold: Hold,
    /// The offset in the capture of the first byte of `chunks`.
    start: u64,
    /// The number of bytes read into `chunks` so far.
    filled: usize,
    /// The length that the stream has unless its file is cut short; `None` if it is not known.
    expected_end: Option<u64>,
    /// Set once the stream has ended. The inner reason is `None` at the regular end.
    ended: Option<Option<EndReason>>,
}

impl CaptureStream {
    pub(crate) fn new(name: SourceName, input: Decoded, arena: Arena, expected_end: Option<u64>) -> Self {
        let mut hold = Hold::default();
        arena.hold(0..1, &mut hold);
        Self { name, input, arena, chunks: 0..1, hold, start: 0, filled: 0, expected_end, ended: None }
    }

    pub(crate) fn window(&self) -> &Arc<PacketWindow> {
        self.arena.window()
    }

    /// The number of bytes read from the source so far, compressed or not.
    pub(crate) fn source_bytes_read(&self) -> u64 {
        self.input.source_bytes_read()
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
        let base = self.arena.address(self.chunks.start);
        let guest = u32::try_from(self.chunks.start * CHUNK_BYTES).unwrap_or(0);
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
            let capacity = self.chunks.len() * CHUNK_BYTES;
            let room = capacity - self.filled;
            // Bytes between `end` and `offset` are read only to be skipped.
            let wanted = if offset > end { end.saturating_add(1) } else { need };
            if room > 0 && wanted.saturating_sub(self.start) <= capacity as u64 {
                self.fill()?;
            } else if !self.relocate(offset.min(end), wanted) {
                return Ok(Extend::Full);
            }
        }
    }

    /// Reads some bytes into the rest of the present chunks.
    fn fill(&mut self) -> Result<(), CaptureReadError> {
        let room = (self.chunks.len() * CHUNK_BYTES - self.filled).min(READ_BYTES_MAX);
        // SAFETY: a part of the rest of the held chunks, inside the mapping. Blocks and `MappedBytes` read only bytes below
        // `filled`, and no `MappedBytes` is alive while `self` is borrowed mutably. A memory file's bytes are
        // initialised.
        let rest = unsafe {
            std::slice::from_raw_parts_mut(self.arena.address(self.chunks.start).add(self.filled), room)
        };
        match self.input.read(rest) {
            Ok(0) => {
                let is_short = self.expected_end.is_some_and(|expected| self.end() < expected);
                self.ended = Some(is_short.then_some(EndReason::Lost));
            }
            Ok(read) => self.filled += read.min(room),
            Err(StreamEnd::Data(reason)) => self.ended = Some(Some(reason)),
            // A mapped file that becomes unreadable ends there, too.
            Err(StreamEnd::Io(_)) if self.expected_end.is_some() => {
                self.ended = Some(Some(EndReason::Lost));
            }
            Err(StreamEnd::Io(error)) => {
                return Err(CaptureReadError::Io { file: self.name.clone(), offset: self.end(), error });
            }
        }
        Ok(())
    }

    /// Continues in other chunks with space for `offset..need`, and moves the bytes from `offset` on there. Returns
    /// false if no chunks are free.
    fn relocate(&mut self, offset: u64, need: u64) -> bool {
        let Ok(wanted) = usize::try_from(need.saturating_sub(offset)) else { return false };
        let Some(chunks) = self.arena.find_free(wanted.div_ceil(CHUNK_BYTES).max(1), &self.hold) else {
            return false;
        };
        let kept = usize::try_from(self.end().saturating_sub(offset)).unwrap_or(usize::MAX).min(self.filled);
        let from = self.filled - kept;
        let mut hold = Hold::default();
        self.arena.hold(chunks.clone(), &mut hold);
        // SAFETY: copies the last `kept` bytes below `filled` of the present chunks to chunks with space for
        // `wanted`, which is at least `kept`, and which only `self` holds. The ranges may overlap.
        unsafe {
            std::ptr::copy(
                self.arena.address(self.chunks.start).add(from),
                self.arena.address(chunks.start),
                kept,
            );
        }
        self.hold = hold;
        self.chunks = chunks;
        self.start = self.start.saturating_add(from as u64);
        self.filled = kept;
        true
    }
}
