//! The rings between the kernel and an XDP socket: each has one side that produces and one that consumes.

use crate::memory::Mapping;
use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// Our side of a ring of `T`.
#[derive(Debug)]
pub(super) struct XdpRing<T> {
    mapping: Mapping,
    offsets: libc::xdp_ring_offset,
    size: u32,
    /// Our own index: of what we produce or consume next.
    ours: u32,
    entry: PhantomData<T>,
}

impl<T: Copy> XdpRing<T> {
    /// Maps a ring of `size` (a power of two) entries, which the socket has been told of before.
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
        // SAFETY: slots below `size` are inside the mapping, which was made that long.
        unsafe { self.mapping.base().as_ptr().add(self.offsets.desc as usize).cast::<T>().add(slot) }
    }

    /// Whether the kernel wants to be woken up to go on.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.word(self.offsets.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// Of a ring that we produce: entries that can be added.
    pub(super) fn room(&self) -> u32 {
        // Acquire: what the kernel read of an entry, it read before.
        let theirs = self.word(self.offsets.consumer).load(Ordering::Acquire);
        self.size.saturating_sub(self.ours.wrapping_sub(theirs))
    }

    /// Of a ring that we produce: entries that the kernel has not taken yet.
    pub(super) fn waiting(&self) -> u32 {
        self.size.saturating_sub(self.room())
    }

    /// Adds an entry, for which there is room; the kernel sees it after [`publish`](Self::publish).
    pub(super) fn add(&mut self, entry: T) {
        // SAFETY: the slot is ours until `publish`, since there is room for it.
        unsafe { self.entry(self.ours).write_volatile(entry) };
        self.ours = self.ours.wrapping_add(1);
    }

    /// Shows the kernel what was added.
    pub(super) fn publish(&self) {
        self.word(self.offsets.producer).store(self.ours, Ordering::Release);
    }

    /// Of a ring that we consume: entries there are.
    pub(super) fn available(&self) -> u32 {
        // Acquire: what the kernel wrote into an entry, it wrote before.
        let theirs = self.word(self.offsets.producer).load(Ordering::Acquire);
        theirs.wrapping_sub(self.ours).min(self.size)
    }

    /// Of a ring that we consume: the entry that is taken after `ahead` others. Where so many are not [available](Self::available), it is anything.
    pub(super) fn peek(&self, ahead: u32) -> T {
        // SAFETY: a slot inside the mapping. The kernel may write it meanwhile: whatever is read there is no more than numbers.
        unsafe { self.entry(self.ours.wrapping_add(ahead)).read_volatile() }
    }

    /// Takes an entry, of those available. The kernel may use its slot again after [`done`](Self::done).
    pub(super) fn take(&mut self) -> T {
        // SAFETY: the kernel has written the slot, since it is available, and leaves it alone until `done`.
        let entry = unsafe { self.entry(self.ours).read_volatile() };
        self.ours = self.ours.wrapping_add(1);
        entry
    }

    /// Gives the slots back of what was taken.
    pub(super) fn done(&self) {
        self.word(self.offsets.consumer).store(self.ours, Ordering::Release);
    }
}
