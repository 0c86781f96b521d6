//! The ring of a packet socket (TPACKET_V3): blocks of memory that the kernel fills in order, and gets back one by
//! one.

use crate::memory::Mapping;
use crate::pin::PinPolicy;
use crate::window::PacketWindow;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The most blocks of a ring, one bit each in a mask.
pub(crate) const BLOCKS_MAX: usize = 64;

/// The offset of a block's status (`tpacket_block_desc`, `tpacket_hdr_v1`).
const STATUS: usize = 8;

/// The memory that a packet socket shares with the program, and the number of holds on each of its blocks.
///
/// The window's file is the socket itself: each mmap(2) of the socket maps the whole ring, and sandboxes map it read-only.
/// Unlike sealed memory, a socket can be mapped writable again; the program has only the one writable mapping here.
#[derive(Debug)]
pub(crate) struct PacketRing {
    window: Arc<PacketWindow>,
    block_bytes: usize,
    blocks: usize,
    /// Bit i is set while the program has block i. The bit is cleared after the kernel has the block back, so that the
    /// program does not take the old status for a new one.
    with_program: AtomicU64,
    hold_counts: [AtomicU32; BLOCKS_MAX],
}

/// A hold on blocks, which keeps them from the kernel until it is dropped.
#[derive(Debug)]
pub(crate) struct RingHold {
    ring: Arc<PacketRing>,
    mask: u64,
}

impl PacketRing {
    /// Maps the ring of a socket with `blocks` blocks of `block_bytes` bytes.
    pub(crate) fn new(socket: File, block_bytes: usize, blocks: usize) -> io::Result<Self> {
        if blocks > BLOCKS_MAX {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let mapping = Mapping::shared(socket.as_fd(), 0, block_bytes.saturating_mul(blocks), true)?;
        Ok(Self {
            window: Arc::new(PacketWindow::of_memory(socket, mapping, PinPolicy::Never)),
            block_bytes,
            blocks,
            with_program: AtomicU64::new(0),
            hold_counts: [const { AtomicU32::new(0) }; BLOCKS_MAX],
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
        // SAFETY: blocks below `blocks` are inside the mapping, which the window keeps while `self` is borrowed. They
        // are page-aligned, so the status is aligned for a u32. Kernel and program access it atomically.
        unsafe {
            AtomicU32::from_ptr(
                self.window.mapping().base().as_ptr().add(block * self.block_bytes + STATUS).cast(),
            )
        }
    }

    /// Takes a block that the kernel has filled. Returns `None` if the kernel still fills the block, or the block is in use.
    ///
    /// Only the ring's reader calls this method.
    pub(crate) fn take(self: &Arc<Self>, block: usize) -> Option<RingHold> {
        let bit = 1 << block;
        // Acquire: synchronises with the release of the last hold.
        if self.with_program.load(Ordering::Acquire) & bit != 0 {
            return None;
        }
        // Acquire: the kernel's writes to the block happen before.
        if self.status(block).load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        self.with_program.fetch_or(bit, Ordering::Relaxed);
        self.hold_counts[block].fetch_add(1, Ordering::Relaxed);
        Some(RingHold { ring: Arc::clone(self), mask: bit })
    }

    /// Returns true if the block is in use.
    pub(crate) fn is_held(&self, block: usize) -> bool {
        self.with_program.load(Ordering::Acquire) & (1 << block) != 0
    }

    fn release(&self, block: usize) {
        // AcqRel: all reads of the block happen before its last hold is released.
        if self.hold_counts[block].fetch_sub(1, Ordering::AcqRel) == 1 {
            self.status(block).store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.with_program.fetch_and(!(1 << block), Ordering::Release);
        }
    }
}

impl RingHold {
    /// Creates an empty hold.
    pub(crate) fn empty(ring: &Arc<PacketRing>) -> Self {
        Self { ring: Arc::clone(ring), mask: 0 }
    }

    /// Writes into held blocks at an offset of the ring. Does nothing if the range is not inside one of them.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) {
        let ring = &self.ring;
        let Ok(offset) = usize::try_from(offset) else { return };
        let block = offset / ring.block_bytes;
        let end = offset.saturating_add(bytes.len());
        if block >= ring.blocks || self.mask & (1 << block) == 0 || end > (block + 1) * ring.block_bytes {
            return;
        }
        // SAFETY: inside a block of the mapping by the check above; the program has the block while it is held. The
        // program has no references to its bytes; sandboxes may see them change.
        unsafe {
            let to = ring.window.mapping().base().as_ptr().add(offset);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// Adds the blocks that `other` holds.
    pub(crate) fn add_all(&mut self, other: &RingHold) {
        for block in 0..self.ring.blocks {
            if other.mask & !self.mask & (1 << block) != 0 {
                self.ring.hold_counts[block].fetch_add(1, Ordering::Relaxed);
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
