//! The memory for packets that do not lie in a file as they are: a sealed memory file in chunks, of which blocks hold pieces.

use crate::memory::sealed;
use crate::pin::Keeping;
use crate::window::PacketWindow;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a chunk. Small, so that chunks that come back soon are still in the processor's cache.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;
/// Chunks of an arena: one bit each in a mask.
pub(crate) const CHUNKS: usize = 64;
/// The longest chunk.
pub(crate) const CHUNK_BYTES_MAX: usize = weir_abi::ARENA_MAX as usize / CHUNKS;
/// Bytes of an arena.
pub(crate) const ARENA_BYTES: usize = CHUNK_BYTES * CHUNKS;

const _: () = assert!(ARENA_BYTES <= weir_abi::ARENA_MAX as usize);

/// How many hold each chunk.
pub(crate) type Holders = [AtomicU32; CHUNKS];

/// Chunks, and how many hold each of them.
#[derive(Debug)]
pub(crate) struct Arena {
    window: Arc<PacketWindow>,
    holders: Arc<Holders>,
    chunk_bytes: usize,
}

/// Keeps chunks from being used again, until it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    holders: Option<Arc<Holders>>,
    mask: u64,
}

impl Arena {
    pub(crate) fn new() -> io::Result<Self> {
        let holders: Arc<Holders> = Arc::new([const { AtomicU32::new(0) }; CHUNKS]);
        let keeping = Keeping::Chunks(Arc::clone(&holders));
        Self::of(CHUNK_BYTES, holders, keeping)
    }

    /// One of chunks of this length, in which no packet is kept after its block is gone.
    pub(crate) fn with_chunks(chunk_bytes: usize) -> io::Result<Self> {
        let holders: Arc<Holders> = Arc::new([const { AtomicU32::new(0) }; CHUNKS]);
        Self::of(chunk_bytes.min(CHUNK_BYTES_MAX), holders, Keeping::Nothing)
    }

    fn of(chunk_bytes: usize, holders: Arc<Holders>, keeping: Keeping) -> io::Result<Self> {
        let (file, mapping) = sealed(c"weir-packets", chunk_bytes * CHUNKS)?;
        Ok(Self { window: Arc::new(PacketWindow::of_memory(file, mapping, keeping)), holders, chunk_bytes })
    }

    /// Bytes of a chunk.
    pub(crate) fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    pub(crate) fn window(&self) -> &Arc<PacketWindow> {
        &self.window
    }

    /// The lowest `count` chunks in a row that nobody holds, or that only `own` holds and holds once.
    ///
    /// Only the arena's owner takes chunks, so what is free here stays so.
    pub(crate) fn find(&self, count: usize, own: &Hold) -> Option<Range<usize>> {
        let free = |i: usize| match self.holders[i].load(Ordering::Acquire) {
            0 => true,
            1 => own.mask & (1 << i) != 0,
            _ => false,
        };
        let mut start = 0;
        for i in 0..CHUNKS {
            if !free(i) {
                start = i + 1;
            } else if i + 1 - start == count {
                return Some(start..i + 1);
            }
        }
        None
    }

    /// Adds `chunks` to what `hold` holds.
    pub(crate) fn hold(&self, chunks: Range<usize>, hold: &mut Hold) {
        hold.add(&self.holders, chunks);
    }

    /// Where `chunks` are in memory. What is written there must be held by nobody but the writer.
    pub(crate) fn address(&self, chunk: usize) -> *mut u8 {
        assert!(chunk < CHUNKS);
        // SAFETY: chunks below CHUNKS are inside the mapping.
        unsafe { self.window.mapping().base().as_ptr().add(chunk * self.chunk_bytes) }
    }
}

impl Hold {
    /// Holds chunks that somebody else holds now: those that nobody holds may be about to be used again.
    pub(crate) fn of(holders: &Arc<Holders>, chunks: Range<usize>) -> Self {
        let mut hold = Self::default();
        hold.add(holders, chunks);
        hold
    }

    fn add(&mut self, holders: &Arc<Holders>, chunks: Range<usize>) {
        let holders = self.holders.get_or_insert_with(|| Arc::clone(holders));
        for i in chunks {
            if self.mask & (1 << i) == 0 {
                self.mask |= 1 << i;
                holders[i].fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some(holders) = &self.holders else { return };
        for (i, count) in holders.iter().enumerate() {
            if self.mask & (1 << i) != 0 {
                // Release: what the holder read, it read before the chunk is written again.
                count.fetch_sub(1, Ordering::Release);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_given_again_when_its_last_holder_is_gone() {
        let arena = Arena::new().unwrap();
        let nobody = Hold::default();
        let (mut reader, mut block) = (Hold::default(), Hold::default());
        arena.hold(0..3, &mut reader);
        arena.hold(1..2, &mut block);

        assert_eq!(arena.find(1, &nobody), Some(3..4));
        assert_eq!(arena.find(1, &reader), Some(0..1));
        assert_eq!(arena.find(2, &reader), Some(2..4));
        assert_eq!(arena.find(62, &reader), Some(2..64));
        assert_eq!(arena.find(63, &reader), None);

        drop(block);
        assert_eq!(arena.find(64, &reader), Some(0..64));
        assert_eq!(arena.find(62, &nobody), None);
        drop(reader);
        assert_eq!(arena.find(64, &nobody), Some(0..64));
    }
}
