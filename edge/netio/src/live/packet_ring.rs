//! The ring of a packet socket: blocks of memory that the kernel fills in order, and gets back one by one.
//!
//! With TPACKET_V3 the kernel hands over whole blocks of packets. With TPACKET_V2 it hands over each packet in a frame of
//! its own, and the ring's blocks are groups of frames: the kernel gets all frames of a block back at once.

use crate::window::PacketWindow;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The offset of a block's status (`tpacket_block_desc`, `tpacket_hdr_v1`).
const BLOCK_STATUS: usize = 8;

/// The layout of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingLayout {
    /// The length of a block in bytes; a multiple of the page size.
    pub(crate) block_bytes: usize,
    /// The number of blocks.
    pub(crate) blocks: usize,
    /// The frames of each block with TPACKET_V2; `None` with TPACKET_V3.
    pub(crate) frames: Option<FrameLayout>,
}

/// The frames at the beginning of each block of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameLayout {
    /// The length of a frame in bytes.
    pub(crate) bytes: usize,
    /// The number of frames in a block; all of them are inside the block.
    pub(crate) count: usize,
}

impl RingLayout {
    /// The offset in the ring of a block's first status, which says whether the kernel or the program owns the memory: with
    /// TPACKET_V3 the whole block, with TPACKET_V2 the block's first frame.
    fn first_status(&self, block: usize) -> usize {
        block * self.block_bytes + if self.frames.is_some() { 0 } else { BLOCK_STATUS }
    }
}

/// The memory that a packet socket shares with the program, and the number of holds on each of its blocks.
///
/// The ring has no file of its own. mmap(2) of the socket maps the whole ring, so the socket is the file of the ring's
/// [part](crate::WindowPart) of the window. Sandboxes map it read-only. The rings of sockets that share an interface's
/// packets are parts of one window. Unlike sealed memory, a socket could be mapped writable more than once. The program
/// has one writable mapping: that of the window.
#[derive(Debug)]
pub(crate) struct PacketRing {
    window: Arc<PacketWindow>,
    /// The number of the ring's part of the window.
    part: usize,
    /// The offset of that part in the window.
    start: usize,
    layout: RingLayout,
    owners: Box<[BlockOwner]>,
}

/// The program's use of a block.
#[derive(Debug, Default)]
struct BlockOwner {
    /// True while the program has the block. It becomes false after the kernel has the block back, so that the program
    /// does not take the old status for a new one.
    is_program: AtomicBool,
    /// The number of holds.
    holds: AtomicU32,
}

/// A hold on blocks that follow each other in the ring, which keeps them from the kernel until it is dropped.
#[derive(Debug)]
pub(crate) struct RingHold {
    ring: Arc<PacketRing>,
    first: usize,
    count: usize,
}

impl PacketRing {
    /// Maps the rings of sockets, all of the same layout, as parts of one window.
    pub(crate) fn map(sockets: Vec<File>, layout: RingLayout) -> io::Result<Vec<Self>> {
        let is_inside = |frames: FrameLayout| {
            frames.count > 0 && frames.bytes.saturating_mul(frames.count) <= layout.block_bytes
        };
        if layout.frames.is_some_and(|frames| !is_inside(frames)) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let len = layout.block_bytes.saturating_mul(layout.blocks);
        let parts = sockets.len();
        let window = Arc::new(PacketWindow::of_rings(sockets, len)?);
        let ring = |part| Self {
            window: Arc::clone(&window),
            part,
            start: part * len,
            layout,
            owners: (0..layout.blocks).map(|_| BlockOwner::default()).collect(),
        };
        Ok((0..parts).map(ring).collect())
    }

    /// The socket.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.window.file(self.part).as_fd()
    }

    /// The offset of the ring in the window.
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// The length of the ring in bytes.
    pub(crate) fn len(&self) -> usize {
        self.layout.block_bytes * self.layout.blocks
    }

    pub(crate) fn window(&self) -> &Arc<PacketWindow> {
        &self.window
    }

    pub(crate) fn layout(&self) -> &RingLayout {
        &self.layout
    }

    /// The block after `block`.
    pub(crate) fn next(&self, block: usize) -> usize {
        if block + 1 < self.layout.blocks { block + 1 } else { 0 }
    }

    /// The status at an offset of the ring, which must be a multiple of four.
    fn status(&self, offset: usize) -> &AtomicU32 {
        let mapping = self.window.mapping();
        let offset = self.start + offset;
        assert!(offset.is_multiple_of(4) && offset + 4 <= mapping.len());
        // SAFETY: inside the mapping by the assertion, which the window keeps while `self` is borrowed. The mapping is
        // page-aligned, so the status is aligned for a u32. Kernel and program access it atomically.
        unsafe { AtomicU32::from_ptr(mapping.base().as_ptr().add(offset).cast()) }
    }

    /// Takes a block that the kernel has filled; with TPACKET_V2, a block whose first frame the kernel has filled. Returns
    /// `None` if the kernel has not filled it yet, or if the program still has the block from an earlier call.
    ///
    /// Only the ring's reader calls this method.
    pub(crate) fn take(self: &Arc<Self>, block: usize) -> Option<RingHold> {
        let owner = self.owners.get(block)?;
        // Acquire: synchronises with the release of the last hold.
        if owner.is_program.load(Ordering::Acquire) || !self.is_filled(self.layout.first_status(block)) {
            return None;
        }
        owner.is_program.store(true, Ordering::Relaxed);
        let mut hold = RingHold::empty(self);
        hold.add(block);
        Some(hold)
    }

    /// Returns true if the kernel has handed over the frame or block whose status is at this offset. The kernel's writes
    /// to it happen before.
    #[inline]
    fn is_filled(&self, offset: usize) -> bool {
        self.status(offset).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// The status of a frame of a block that the program has taken, if the kernel has handed over the frame.
    #[inline]
    pub(crate) fn frame_status(&self, offset: u64) -> Option<u32> {
        let status = self.status(usize::try_from(offset).ok()?).load(Ordering::Acquire);
        (status & libc::TP_STATUS_USER != 0).then_some(status)
    }

    /// Returns true if the block is in use.
    pub(crate) fn is_held(&self, block: usize) -> bool {
        self.owners.get(block).is_some_and(|owner| owner.is_program.load(Ordering::Acquire))
    }

    fn release(&self, block: usize) {
        let Some(owner) = self.owners.get(block) else { return };
        // AcqRel: all reads of the block happen before its last hold is released.
        if owner.holds.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        let first = self.layout.first_status(block);
        let FrameLayout { bytes, count } = self.layout.frames.unwrap_or(FrameLayout { bytes: 0, count: 1 });
        for frame in 0..count {
            self.status(first + frame * bytes).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        }
        owner.is_program.store(false, Ordering::Release);
    }
}

impl RingHold {
    /// Creates an empty hold.
    pub(crate) fn empty(ring: &Arc<PacketRing>) -> Self {
        Self { ring: Arc::clone(ring), first: 0, count: 0 }
    }

    /// Returns true if the block is held.
    fn contains(&self, block: usize) -> bool {
        let blocks = self.ring.layout.blocks;
        block < blocks && (block + blocks - self.first) % blocks < self.count
    }

    /// Adds a block that the program has taken. It must be the block behind the last one of this hold. A block that is part
    /// of this hold already is not added again.
    pub(crate) fn add(&mut self, block: usize) {
        if self.contains(block) {
            return;
        }
        let blocks = self.ring.layout.blocks;
        if self.count == 0 {
            self.first = block;
        }
        assert!(block < blocks && (self.first + self.count) % blocks == block, "blocks follow each other");
        if let Some(owner) = self.ring.owners.get(block) {
            owner.holds.fetch_add(1, Ordering::Relaxed);
        }
        self.count += 1;
    }

    /// Writes into held blocks at an offset of the ring. Does nothing if the range is not inside one of them.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) {
        let ring = &self.ring;
        let Ok(offset) = usize::try_from(offset) else { return };
        let block = offset / ring.layout.block_bytes;
        let end = offset.saturating_add(bytes.len());
        if !self.contains(block) || end > (block + 1) * ring.layout.block_bytes {
            return;
        }
        // SAFETY: inside a block of the ring, which is inside the mapping, by the check above; the program has the block
        // while it is held. The program has no references to its bytes; sandboxes may see them change.
        unsafe {
            let to = ring.window.mapping().base().as_ptr().add(ring.start + offset);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }
}

impl Drop for RingHold {
    fn drop(&mut self) {
        for place in 0..self.count {
            self.ring.release((self.first + place) % self.ring.layout.blocks);
        }
    }
}
