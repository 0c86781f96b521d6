//! Descriptor rings: the memory of packet descriptors, in slots for one or more blocks each.

use crate::BLOCK_PACKETS;
use crate::memory::{Mapping, sealed_file};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_abi::{BATCH_BYTES, BATCH_PACKETS, DESCRIPTOR_BYTES, DESCRIPTORS_BASE, DESCRIPTORS_MAX, Descriptor};
use weir_units::Bytes;

/// The number of blocks of a capture that can be in use at once.
const SLOTS: usize = 16;
/// The number of blocks of live traffic that can be in use at once. It is larger than that of a capture, because some
/// blocks have few packets, and readers may lag.
const SLOTS_LIVE: usize = 256;
/// The length of a slot in bytes.
pub(crate) const SLOT_BYTES: usize = BLOCK_PACKETS * DESCRIPTOR_BYTES;
/// The number of slots whose use one word records.
const WORD: usize = 64;

const _: () = assert!(SLOTS_LIVE * SLOT_BYTES <= DESCRIPTORS_MAX as usize);
const _: () = assert!(SLOT_BYTES == BLOCK_PACKETS / BATCH_PACKETS * BATCH_BYTES);
// A slot is page-aligned, whatever the page size.
const _: () = assert!(SLOT_BYTES.is_multiple_of(65_536));

/// The descriptors of all blocks in use: a sealed memory file that sandboxes map read-only, as a whole, at
/// [`weir_abi::DESCRIPTORS_BASE`].
#[derive(Clone, Debug)]
pub struct DescriptorRing {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    file: File,
    mapping: Mapping,
    slots: usize,
    /// Bit i % 64 of word i / 64 is set while slot i is in use.
    in_use: Box<[AtomicU64]>,
}

impl DescriptorRing {
    /// The length of a capture's ring.
    pub const SIZE: Bytes = Bytes((SLOTS * SLOT_BYTES) as u64);
    /// The length of a ring for live traffic.
    pub const SIZE_LIVE: Bytes = Bytes((SLOTS_LIVE * SLOT_BYTES) as u64);

    /// Creates a ring for live traffic.
    pub(crate) fn live() -> io::Result<Self> {
        Self::with_slots(SLOTS_LIVE)
    }

    /// Creates a ring for a capture.
    pub(crate) fn new() -> io::Result<Self> {
        Self::with_slots(SLOTS)
    }

    /// Creates a ring for `slots` blocks. Memory is allocated on first use, lowest slots first.
    pub(crate) fn with_slots(slots: usize) -> io::Result<Self> {
        let (file, mapping) = sealed_file(c"weir-descriptors", slots * SLOT_BYTES)?;
        let in_use = (0..slots.div_ceil(WORD)).map(|_| AtomicU64::new(0)).collect();
        Ok(Self { shared: Arc::new(Shared { file, mapping, slots, in_use }) })
    }

    /// The memory file.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.shared.file.as_fd()
    }

    /// The length of the memory file.
    pub fn len(&self) -> Bytes {
        // usize is at most 64 bits wide on all supported platforms.
        Bytes(u64::try_from(self.shared.mapping.len()).unwrap_or(u64::MAX))
    }

    /// Always false: a ring has slots.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The number of handles of this ring, slots in use included.
    pub(crate) fn handles(&self) -> usize {
        Arc::strong_count(&self.shared)
    }

    /// Takes the lowest free slot, which is the most likely to be in the CPU's cache.
    pub(crate) fn take(&self) -> Option<Slot> {
        for (word, in_use) in self.shared.in_use.iter().enumerate() {
            let mut seen = in_use.load(Ordering::Relaxed);
            while seen != u64::MAX {
                let bit = seen.trailing_ones();
                let index = word * WORD + bit as usize;
                if index >= self.shared.slots {
                    break;
                }
                // Acquire: the reads of the slot's last owner happen before it is written again.
                match in_use.compare_exchange_weak(
                    seen,
                    seen | 1 << bit,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => {
                        let owner = SlotOwner { shared: Arc::clone(&self.shared), index };
                        return Some(Slot(Arc::new(owner)));
                    }
                    Err(now) => seen = now,
                }
            }
        }
        None
    }
}

/// A slot of a [`DescriptorRing`]: memory for the descriptors of one or more blocks. The slot is in use until all of
/// its handles are dropped.
///
/// One handle fills the slot from the beginning. Blocks have the other handles and read filled descriptors.
#[derive(Debug)]
pub(crate) struct Slot(Arc<SlotOwner>);

/// The shared part of a slot's handles. Dropping it frees the slot.
#[derive(Debug)]
struct SlotOwner {
    shared: Arc<Shared>,
    index: usize,
}

impl Slot {
    /// The slot's number in the ring.
    pub(crate) fn index(&self) -> usize {
        self.0.index
    }

    /// Creates another handle, which fills the rest of the slot. Nothing more may be filled through this handle.
    pub(crate) fn share(&self) -> Self {
        Self(Arc::clone(&self.0))
    }

    /// The ring of the slot.
    pub(crate) fn ring(&self) -> DescriptorRing {
        DescriptorRing { shared: Arc::clone(&self.0.shared) }
    }

    /// Returns true if the slot belongs to this ring.
    pub(crate) fn is_in_ring(&self, ring: &DescriptorRing) -> bool {
        Arc::ptr_eq(&self.0.shared, &ring.shared)
    }

    fn base(&self) -> *mut Descriptor {
        // Mappings and slots are page-aligned, so descriptors are aligned.
        let base = self.0.shared.mapping.base().as_ptr();
        // SAFETY: `take` returns only indices below the number of slots, so the slot is inside the ring.
        unsafe { base.add(self.0.index * SLOT_BYTES).cast() }
    }

    /// Descriptor `i`, which must be below [`BLOCK_PACKETS`].
    #[inline(always)]
    pub(crate) fn descriptor(&mut self, i: usize) -> &mut Descriptor {
        assert!(i < BLOCK_PACKETS);
        // SAFETY: inside the slot by the assertion, and aligned. A memory file starts as zeros, and any bytes are a
        // valid Descriptor. Only the handle that fills the slot writes, behind the descriptors of all blocks; those
        // read only what was filled before they were made. Other mappings of the file are read-only, since it is
        // sealed.
        unsafe { &mut *self.base().add(i) }
    }

    /// The `len` descriptors from `first` on, which must be filled.
    pub(crate) fn descriptors(&self, first: usize, len: usize) -> &[Descriptor] {
        let first = first.min(BLOCK_PACKETS);
        let len = len.min(BLOCK_PACKETS - first);
        // SAFETY: inside the slot. A memory file starts as zeros, and any bytes are a valid Descriptor. Filled
        // descriptors are never written again: see `descriptor`.
        unsafe { std::slice::from_raw_parts(self.base().add(first), len) }
    }

    /// The guest address of descriptor `i`.
    pub(crate) fn guest_address(&self, i: usize) -> u32 {
        let offset = self.0.index * SLOT_BYTES + i.min(BLOCK_PACKETS) * DESCRIPTOR_BYTES;
        DESCRIPTORS_BASE.saturating_add(u32::try_from(offset).unwrap_or(u32::MAX))
    }
}

impl Drop for SlotOwner {
    fn drop(&mut self) {
        let (word, bit) = (self.index / WORD, self.index % WORD);
        self.shared.in_use[word].fetch_and(!(1 << bit), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_taken_once_and_becomes_free_when_dropped() {
        let ring = DescriptorRing::new().unwrap();
        let mut slots: Vec<Slot> = (0..SLOTS).map(|_| ring.take().unwrap()).collect();
        assert!(ring.take().is_none());

        slots[3].descriptor(1023).ts_ns = 7;
        assert_eq!(slots[3].descriptors(0, 1024)[1023].ts_ns, 7);
        let address = |slot: usize, batch: usize| {
            DESCRIPTORS_BASE + u32::try_from(slot * SLOT_BYTES + batch * BATCH_BYTES).unwrap()
        };
        assert_eq!(slots[3].guest_address(64), address(3, 1));

        drop(slots.remove(5));
        assert_eq!(ring.take().unwrap().guest_address(0), address(5, 0));
    }

    #[test]
    fn a_ring_has_the_requested_number_of_slots() {
        for count in [1, 63, 64, 65, SLOTS_LIVE] {
            let ring = DescriptorRing::with_slots(count).unwrap();
            let mut slots: Vec<Slot> = std::iter::from_fn(|| ring.take()).collect();
            assert_eq!(slots.len(), count);
            let last = slots.pop().unwrap().guest_address(0);
            assert_eq!(u64::from(last - DESCRIPTORS_BASE), ((count - 1) * SLOT_BYTES) as u64);
            assert_eq!(ring.take().unwrap().guest_address(0), last);
        }
    }
}
