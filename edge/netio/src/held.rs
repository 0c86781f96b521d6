//! The bytes of a block's packets, in place.

use crate::arena::CHUNK_BYTES;
use crate::block::{Block, MemoryHold};
use crate::capture::{Capture, CaptureSource};
use std::ops::Range;
use std::sync::Arc;
use weir_abi::ARENA_BASE;

/// The bytes from the first packet of a block to the end of its last one, in the arena of a stream. They do not change.
///
/// Their memory is not used for other packets while this value lives.
#[derive(Debug)]
pub struct HeldBytes {
    block: Block,
    /// The range in the arena.
    range: Range<usize>,
}

impl HeldBytes {
    /// The block.
    pub fn block(&self) -> &Block {
        &self.block
    }
}

impl AsRef<[u8]> for HeldBytes {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        let base = self.block.window().mapping().base();
        // SAFETY: `Capture::hold_bytes` has checked that the range is inside the mapping, and that the block holds all its
        // chunks. The stream writes a chunk that others hold only behind the bytes that it has read so far, and each packet of
        // the range lies behind the one before. Sandboxes map the memory read-only. Bytes of a memory file are initialised.
        unsafe { std::slice::from_raw_parts(base.as_ptr().add(self.range.start), self.range.len()) }
    }
}

impl Capture {
    /// Returns the bytes of a block of this capture in place, if they cannot change: not for a mapped file.
    ///
    /// # Errors
    ///
    /// Fails with the block. Its packets have to be [copied](Block::append_packet) then.
    pub fn hold_bytes(&self, block: Block) -> Result<HeldBytes, Block> {
        match self.held_range(&block) {
            Some(range) => Ok(HeldBytes { block, range }),
            None => Err(block),
        }
    }

    /// Returns the range of the arena from the first packet of a block to the end of the last one. Returns `None` if they
    /// are not in order, or not all of the range is held.
    fn held_range(&self, block: &Block) -> Option<Range<usize>> {
        let CaptureSource::Stream(stream) = &self.source else { return None };
        let MemoryHold::Chunks { hold } = &block.hold else { return None };
        if !Arc::ptr_eq(stream.window(), block.window()) {
            return None;
        }
        let place = |data: u32| data.checked_sub(ARENA_BASE).and_then(|place| usize::try_from(place).ok());
        let packets = block.descriptors();
        let start = place(packets.first()?.data)?;
        let mut end = start;
        for packet in packets {
            let place = place(packet.data).filter(|place| *place >= end)?;
            end = place.checked_add(usize::try_from(packet.cap_len).ok()?)?;
        }
        let chunks = start / CHUNK_BYTES..end.div_ceil(CHUNK_BYTES);
        (end <= block.window().mapping().len() && hold.contains(chunks)).then_some(start..end)
    }
}
