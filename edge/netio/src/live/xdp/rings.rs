//! The rings of an XDP socket, between the kernel and the program. One side adds entries to a ring, and the other side takes
//! them.

use crate::memory::Mapping;
use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use weir_os::memory::prefetch;

/// The program's side of a ring of `T`. In a *produced* ring the program adds entries and the kernel takes
/// them; in a *consumed* ring the kernel adds entries and the program takes them.
#[derive(Debug)]
pub(super) struct XdpRing<T> {
    mapping: Mapping,
    offsets: libc::xdp_ring_offset,
    size: u32,
    /// The index of the next entry that the program adds (produced ring) or takes (consumed ring).
    next: u32,
    entry: PhantomData<T>,
}

impl<T: Copy> XdpRing<T> {
    /// Maps a ring of `size` entries, a power of two. This size must have been set on the socket before.
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        page_offset: u64,
        offsets: libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<Self> {
        let to_usize = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
        let len = to_usize(offsets.desc).saturating_add(size_of::<T>().saturating_mul(size as usize));
        let fits = [offsets.producer, offsets.consumer, offsets.flags]
            .iter()
            .all(|&offset| offset % 4 == 0 && to_usize(offset) <= len - 4);
        if !size.is_power_of_two() || !fits || to_usize(offsets.desc) % align_of::<T>() != 0 {
            return Err(io::Error::from_raw_os_error(libc::EPROTO));
        }
        let mapping = Mapping::shared(socket, page_offset, len, true)?;
        Ok(Self { mapping, offsets, size, next: 0, entry: PhantomData })
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "an offset inside the mapping, by the check in `map`"
    )]
    fn word(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: inside the mapping and aligned, by the checks in `map`; kernel and program access it atomically.
        unsafe { AtomicU32::from_ptr(self.mapping.base().as_ptr().add(offset as usize).cast()) }
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "an offset inside the mapping, by the check in `map`"
    )]
    fn entry(&self, index: u32) -> *mut T {
        let slot = (index & (self.size - 1)) as usize;
        // SAFETY: `slot` is below `size`, and `map` has mapped `size` slots.
        unsafe { self.mapping.base().as_ptr().add(self.offsets.desc as usize).cast::<T>().add(slot) }
    }

    /// The number of entries.
    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// Returns true if the kernel has to be woken up to continue.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.word(self.offsets.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// Returns the number of entries that the program can add to a produced ring.
    pub(super) fn room(&self) -> u32 {
        // Acquire: the kernel has read an entry before the program overwrites it.
        let kernel_next = self.word(self.offsets.consumer).load(Ordering::Acquire);
        self.size.saturating_sub(self.next.wrapping_sub(kernel_next))
    }

    /// Returns the number of entries of a produced ring that the kernel has not taken yet.
    pub(super) fn waiting(&self) -> u32 {
        self.size.saturating_sub(self.room())
    }

    /// Adds an entry to a produced ring, which must not be full. The kernel sees it after [`publish`](Self::publish).
    pub(super) fn add(&mut self, entry: T) {
        // SAFETY: the slot belongs to the program until `publish`, since the ring is not full.
        unsafe { self.entry(self.next).write_volatile(entry) };
        self.next = self.next.wrapping_add(1);
    }

    /// Shows the added entries of a produced ring to the kernel.
    pub(super) fn publish(&self) {
        self.word(self.offsets.producer).store(self.next, Ordering::Release);
    }

    /// Returns the number of entries that the program can take from a consumed ring.
    pub(super) fn available(&self) -> u32 {
        // Acquire: the kernel has written an entry before the program reads it.
        let kernel_next = self.word(self.offsets.producer).load(Ordering::Acquire);
        kernel_next.wrapping_sub(self.next).min(self.size)
    }

    /// Returns the entry of a consumed ring that is `ahead` entries after the next one, without taking it. The result is
    /// arbitrary unless more than `ahead` entries are [available](Self::available).
    pub(super) fn peek(&self, ahead: u32) -> T {
        // SAFETY: a slot inside the mapping. The kernel may write it meanwhile, and any value read is just numbers.
        unsafe { self.entry(self.next.wrapping_add(ahead)).read_volatile() }
    }

    /// Prefetches the entry of a consumed ring that is `ahead` entries after the next one.
    pub(super) fn prefetch(&self, ahead: u32) {
        prefetch(self.entry(self.next.wrapping_add(ahead)).cast_const().cast());
    }

    /// Takes the next entry from a consumed ring; one must be available. The kernel may reuse its slot after
    /// [`release_taken`](Self::release_taken).
    pub(super) fn take(&mut self) -> T {
        // SAFETY: the entry is available, so the kernel has written the slot and leaves it unchanged until `release_taken`.
        let entry = unsafe { self.entry(self.next).read_volatile() };
        self.next = self.next.wrapping_add(1);
        entry
    }

    /// Gives the slots of all taken entries of a consumed ring back to the kernel.
    pub(super) fn release_taken(&self) {
        self.word(self.offsets.consumer).store(self.next, Ordering::Release);
    }
}
