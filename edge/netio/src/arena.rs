//! Arenas: sealed memory files, divided into chunks, for packets that cannot be read where they arrived.

use crate::memory::sealed_file;
use crate::pin::PinPolicy;
use crate::window::PacketWindow;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The length of a chunk in bytes. It is small, so that a chunk that is soon reused is still in the CPU's cache.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;
/// The number of chunks of an arena, one bit each in a mask.
pub(crate) const CHUNKS: usize = 64;
/// The longest chunk in bytes.
pub(crate) const CHUNK_BYTES_MAX: usize = weir_abi::ARENA_MAX as usize / CHUNKS;
/// The length of an arena in bytes.
pub(crate) const ARENA_BYTES: usize = CHUNK_BYTES * CHUNKS;

const _: () = assert!(ARENA_BYTES <= weir_abi::ARENA_MAX as usize);

/// The number of holds on each chunk.
pub(crate) type HoldCounts = [AtomicU32; CHUNKS];

/// An arena, with the number of holds on each of its chunks.
#[derive(Debug)]
pub(crate) struct Arena {
    /// The memory that sandboxes map.
    window: Arc<PacketWindow>,
    hold_counts: Arc<HoldCounts>,
    chunk_bytes: usize,
}

/// A hold on chunks, which keeps them from being reused until it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    hold_counts: Option<Arc<HoldCounts>>,
    mask: u64,
}

/// Chunks whose bytes can be written, because no block and no other value has a hold on them.
#[derive(Debug)]
pub(crate) struct WritableChunks {
    /// Keeps the memory mapped.
    window: Arc<PacketWindow>,
    chunks: Range<usize>,
    chunk_bytes: usize,
    hold: Hold,
}

impl WritableChunks {
    /// The bytes of the chunks.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        let len = self.chunks.len() * self.chunk_bytes;
        // SAFETY: the chunks are inside the mapping, and a memory file's bytes are initialised. `hold` is the only hold,
        // so no block refers to these bytes, and no other value gives out their addresses. Sandboxes map the memory
        // read-only and are no part of this program.
        unsafe {
            let start = self.window.mapping().base().as_ptr().add(self.chunks.start * self.chunk_bytes);
            std::slice::from_raw_parts_mut(start, len)
        }
    }

    /// The chunks and the hold on them.
    pub(crate) fn into_parts(self) -> (Range<usize>, Hold) {
        (self.chunks, self.hold)
    }
}

impl Arena {
    /// Creates an arena whose chunks can be [pinned](PinPolicy).
    pub(crate) fn new() -> io::Result<Self> {
        let hold_counts: Arc<HoldCounts> = Arc::new([const { AtomicU32::new(0) }; CHUNKS]);
        let pinning = PinPolicy::Chunks(Arc::clone(&hold_counts));
        Self::from_parts(CHUNK_BYTES, hold_counts, pinning)
    }

    /// Creates an arena with chunks of this length, at most [`CHUNK_BYTES_MAX`]. Its packets cannot be
    /// [pinned](PinPolicy).
    pub(crate) fn with_chunks(chunk_bytes: usize) -> io::Result<Self> {
        let hold_counts: Arc<HoldCounts> = Arc::new([const { AtomicU32::new(0) }; CHUNKS]);
        Self::from_parts(chunk_bytes.min(CHUNK_BYTES_MAX), hold_counts, PinPolicy::Never)
    }

    fn from_parts(chunk_bytes: usize, hold_counts: Arc<HoldCounts>, pinning: PinPolicy) -> io::Result<Self> {
        let (file, mapping) = sealed_file(c"weir-packets", chunk_bytes * CHUNKS)?;
        Ok(Self {
            window: Arc::new(PacketWindow::of_memory(file, mapping, pinning)),
            hold_counts,
            chunk_bytes,
        })
    }

    /// The length of a chunk in bytes.
    pub(crate) fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    pub(crate) fn window(&self) -> &Arc<PacketWindow> {
        &self.window
    }

    /// Finds the lowest `count` contiguous chunks that are free, or on which `own_hold` is the only hold.
    ///
    /// Only the arena's owner puts packets into free chunks, so the chunks found stay free until the owner uses them.
    pub(crate) fn find_free(&self, count: usize, own_hold: &Hold) -> Option<Range<usize>> {
        self.find_free_in(0..CHUNKS, count, own_hold)
    }

    /// Finds chunks as [`find_free`](Self::find_free) does, among the chunks of a range.
    pub(crate) fn find_free_in(
        &self,
        range: Range<usize>,
        count: usize,
        own_hold: &Hold,
    ) -> Option<Range<usize>> {
        let is_free = |i: usize| match self.hold_counts[i].load(Ordering::Acquire) {
            0 => true,
            1 => own_hold.mask & (1 << i) != 0,
            _ => false,
        };
        let mut start = range.start;
        for i in range {
            if !is_free(i) {
                start = i + 1;
            } else if i + 1 - start == count {
                return Some(start..i + 1);
            }
        }
        None
    }

    /// Takes the lowest free chunk of a range.
    pub(crate) fn take_chunk(&self, range: Range<usize>) -> Option<WritableChunks> {
        let mut hold = Hold::default();
        let chunks = self.find_free_in(range, 1, &hold)?;
        self.hold(chunks.clone(), &mut hold);
        Some(WritableChunks { window: Arc::clone(&self.window), chunks, chunk_bytes: self.chunk_bytes, hold })
    }

    /// Adds `chunks` to `hold`.
    pub(crate) fn hold(&self, chunks: Range<usize>, hold: &mut Hold) {
        hold.add(&self.hold_counts, chunks);
    }

    /// The address of a chunk. The caller may write only chunks on which others have no hold.
    pub(crate) fn address(&self, chunk: usize) -> *mut u8 {
        assert!(chunk < CHUNKS);
        // SAFETY: chunks below CHUNKS are inside the mapping.
        unsafe { self.window.mapping().base().as_ptr().add(chunk * self.chunk_bytes) }
    }
}

impl Hold {
    /// Creates a hold on chunks that are held already. A chunk without a hold could be reused at any time.
    pub(crate) fn new(hold_counts: &Arc<HoldCounts>, chunks: Range<usize>) -> Self {
        let mut hold = Self::default();
        hold.add(hold_counts, chunks);
        hold
    }

    /// Returns true if these chunks are all held.
    pub(crate) fn contains(&self, chunks: Range<usize>) -> bool {
        chunks.end <= CHUNKS && chunks.into_iter().all(|chunk| self.mask & (1 << chunk) != 0)
    }

    fn add(&mut self, hold_counts: &Arc<HoldCounts>, chunks: Range<usize>) {
        let hold_counts = self.hold_counts.get_or_insert_with(|| Arc::clone(hold_counts));
        for i in chunks {
            if self.mask & (1 << i) == 0 {
                self.mask |= 1 << i;
                hold_counts[i].fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some(hold_counts) = &self.hold_counts else { return };
        for (i, count) in hold_counts.iter().enumerate() {
            if self.mask & (1 << i) != 0 {
                // Release: the reads under this hold happen before the chunk is written again.
                count.fetch_sub(1, Ordering::Release);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_reused_when_its_last_hold_is_dropped() {
        let arena = Arena::new().unwrap();
        let empty = Hold::default();
        let (mut reader, mut block) = (Hold::default(), Hold::default());
        arena.hold(0..3, &mut reader);
        arena.hold(1..2, &mut block);

        assert_eq!(arena.find_free(1, &empty), Some(3..4));
        assert_eq!(arena.find_free(1, &reader), Some(0..1));
        assert_eq!(arena.find_free(2, &reader), Some(2..4));
        assert_eq!(arena.find_free(62, &reader), Some(2..64));
        assert_eq!(arena.find_free(63, &reader), None);

        drop(block);
        assert_eq!(arena.find_free(64, &reader), Some(0..64));
        assert_eq!(arena.find_free(62, &empty), None);
        drop(reader);
        assert_eq!(arena.find_free(64, &empty), Some(0..64));
    }
}
