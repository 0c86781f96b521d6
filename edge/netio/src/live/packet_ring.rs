//! The ring of a packet socket (TPACKET_V3): blocks of memory that the kernel fills in turn, and gets back one by one.

use crate::memory::Mapping;
use crate::pin::Keeping;
use crate::window::PacketWindow;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The most blocks of a ring: one bit each in a mask.
pub(crate) const BLOCKS_MAX: usize = 64;

/// Where a block says whose it is (`tpacket_block_desc`, `tpacket_hdr_v1`).
const STATUS: usize = 8;

/// The memory that a packet socket shares with us, and who uses which block of it.
///
/// The window is the socket itself: the kernel maps the whole ring for whoever maps it, as often as one likes, so sandboxes
/// map it read-only. They do so without being able to change that; the program itself is not kept from mapping it writable, as
/// it is with sealed memory, and the one writable mapping is this one.
#[derive(Debug)]
pub(crate) struct PacketRing {
    window: Arc<PacketWindow>,
    block_bytes: usize,
    blocks: usize,
    /// Bit i: block i is ours. Cleared after the kernel has it back, so that an old status is never taken for a new one.
    ours: AtomicU64,
    holders: [AtomicU32; BLOCKS_MAX],
}

/// Keeps blocks from the kernel until it is dropped.
#[derive(Debug)]
pub(crate) struct RingHold {
    ring: Arc<PacketRing>,
    mask: u64,
}

impl PacketRing {
    /// Maps the ring of a socket that has one of `blocks` blocks of `block_bytes` bytes.
    pub(crate) fn new(socket: File, block_bytes: usize, blocks: usize) -> io::Result<Self> {
        if blocks > BLOCKS_MAX {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let mapping = Mapping::shared(socket.as_fd(), 0, block_bytes.saturating_mul(blocks), true)?;
        Ok(Self {
            window: Arc::new(PacketWindow::of_memory(socket, mapping, Keeping::Nothing)),
            block_bytes,
            blocks,
            ours: AtomicU64::new(0),
            holders: [const { AtomicU32::new(0) }; BLOCKS_MAX],
        })
    }

    pub(crate) fn window(&self) -> &Arc<PacketWindow> {
        &self.window
    }

    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }

    pub(crate) fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    fn status(&self, block: usize) -> &AtomicU32 {
        assert!(block < self.blocks);
        // SAFETY: blocks below `blocks` are inside the mapping, which the window keeps as long as `self` is borrowed; they are
        // page aligned, so the status is aligned for an u32. Kernel and program access it atomically.
        unsafe {
            AtomicU32::from_ptr(
                self.window.mapping().base().as_ptr().add(block * self.block_bytes + STATUS).cast(),
            )
        }
    }

    /// Takes a block that the kernel has handed over; nothing where it has not, or where somebody still uses it.
    ///
    /// Only the ring's one reader takes blocks.
    pub(crate) fn take(self: &Arc<Self>, block: usize) -> Option<RingHold> {
        let bit = 1 << block;
        // Acquire: its last holder gave it back before.
        if self.ours.load(Ordering::Acquire) & bit != 0 {
            return None;
        }
        // Acquire: what the kernel wrote into the block, it wrote before.
        if self.status(block).load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        self.ours.fetch_or(bit, Ordering::Relaxed);
        self.holders[block].fetch_add(1, Ordering::Relaxed);
        Some(RingHold { ring: Arc::clone(self), mask: bit })
    }

    /// Whether somebody uses the block.
    pub(crate) fn is_held(&self, block: usize) -> bool {
        self.ours.load(Ordering::Acquire) & (1 << block) != 0
    }

    fn release(&self, block: usize) {
        // AcqRel: what all holders read of the block, they read before the last one goes on.
        if self.holders[block].fetch_sub(1, Ordering::AcqRel) == 1 {
            self.status(block).store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.ours.fetch_and(!(1 << block), Ordering::Release);
        }
    }
}

impl RingHold {
    /// One that holds nothing yet.
    pub(crate) fn none(ring: &Arc<PacketRing>) -> Self {
        Self { ring: Arc::clone(ring), mask: 0 }
    }

    /// Writes into the blocks that are held, at an offset of the ring; nothing where that is not all in one of them.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) {
        let ring = &self.ring;
        let Ok(offset) = usize::try_from(offset) else { return };
        let block = offset / ring.block_bytes;
        let end = offset.saturating_add(bytes.len());
        if block >= ring.blocks || self.mask & (1 << block) == 0 || end > (block + 1) * ring.block_bytes {
            return;
        }
        // SAFETY: inside a block of the mapping, by the check above, which is ours as long as it is held. Nothing in this program
        // has references to its bytes; sandboxes may see them change.
        unsafe {
            let to = ring.window.mapping().base().as_ptr().add(offset);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// Holds what `other` holds, too.
    pub(crate) fn also(&mut self, other: &RingHold) {
        for block in 0..self.ring.blocks {
            if other.mask & !self.mask & (1 << block) != 0 {
                self.ring.holders[block].fetch_add(1, Ordering::Relaxed);
            }
        }
        self.mask |= other.mask;
    }
}

impl Drop for RingHold {
    fn drop(&mut self) {
        for block in 0..self.ring.blocks {
            if self.mask & (1 << block) != 0 {
                self.ring.release(block);
            }
        }
    }
}
