//! The rings between the kernel and an XDP socket. Each has a producer and a consumer.

use crate::memory::Mapping;
use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// The program's side of a ring of `T`.
#[derive(Debug)]
pub(super) struct XdpRing<T> {
    mapping: Mapping,
    offsets: libc::xdp_ring_offset,
    size: u32,
    /// The program's own index, of the next entry to produce or consume.
    ours: u32,
    entry: PhantomData<T>,
}

impl<T: Copy> XdpRing<T> {
    /// Maps a ring of `size` (a power of two) entries, whose size the socket knows already.
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        page_offset: u64,
        offsets: libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<Self> {
        let index = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
        let len = index(offsets.desc).saturating_add(size_of::<T>().saturating_mul(size as usize));
        let fits = [offsets.producer, offsets.consumer, offsets.flags]
            .iter()
            .all(|&offset| offset % 4 == 0 && index(offset) <= len - 4);
        if !size.is_power_of_two() || !fits || index(offsets.desc) % align_of::<T>() != 0 {
            return Err(io::Error::from_raw_os_error(libc::EPROTO));
        }
        let mapping = Mapping::shared(socket, page_offset, len, true)?;
        Ok(Self { mapping, offsets, size, ours: 0, entry: PhantomData })
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
        // SAFETY: slots below `size` are inside the mapping, which has that length.
        unsafe { self.mapping.base().as_ptr().add(self.offsets.desc as usize).cast::<T>().add(slot) }
    }

    /// Returns true if the kernel has to be woken up to continue.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.word(self.offsets.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// For a produced ring: the number of entries that can be added.
    pub(super) fn room(&self) -> u32 {
        // Acquire: the kernel's reads of an entry happen before.
        let theirs = self.word(self.offsets.consumer).load(Ordering::Acquire);
        self.size.saturating_sub(self.ours.wrapping_sub(theirs))
    }

    /// For a produced ring: the number of entries that the kernel has not taken yet.
    pub(super) fn waiting(&self) -> u32 {
        self.size.saturating_sub(self.room())
    }

    /// Adds an entry; the ring must not be full. The kernel sees it after [`publish`](Self::publish).
    pub(super) fn add(&mut self, entry: T) {
        // SAFETY: the slot belongs to the program until `publish`, since the ring is not full.
        unsafe { self.entry(self.ours).write_volatile(entry) };
        self.ours = self.ours.wrapping_add(1);
    }

    /// Shows the added entries to the kernel.
    pub(super) fn publish(&self) {
        self.word(self.offsets.producer).store(self.ours, Ordering::Release);
    }

    /// For a consumed ring: the number of entries that can be taken.
    pub(super) fn available(&self) -> u32 {
        // Acquire: the kernel's writes to an entry happen before.
        let theirs = self.word(self.offsets.producer).load(Ordering::Acquire);
        theirs.wrapping_sub(self.ours).min(self.size)
    }

    /// For a consumed ring: the entry that is taken after `ahead` others. Arbitrary if fewer entries are
    /// [available](Self::available).
    pub(super) fn peek(&self, ahead: u32) -> T {
        // SAFETY: a slot inside the mapping. The kernel may write it meanwhile, and any value read is just numbers.
        unsafe { self.entry(self.ours.wrapping_add(ahead)).read_volatile() }
    }

    /// Takes an available entry. The kernel may reuse its slot after [`done`](Self::done).
    pub(super) fn take(&mut self) -> T {
        // SAFETY: the entry is available, so the kernel has written the slot and leaves it unchanged until `done`.
        let entry = unsafe { self.entry(self.ours).read_volatile() };
        self.ours = self.ours.wrapping_add(1);
        entry
    }

    /// Returns the slots of taken entries to the kernel.
    pub(super) fn done(&self) {
        self.word(self.offsets.consumer).store(self.ours, Ordering::Release);
    }
}
