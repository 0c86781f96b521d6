//! The memory that holds packet descriptors.

use crate::BLOCK_PACKETS;
use crate::memory::{Mapping, sealed};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use weir_abi::{BATCH_BYTES, BATCH_PACKETS, DESCRIPTOR_BYTES, DESCRIPTORS_BASE, DESCRIPTORS_MAX, Descriptor};
use weir_units::Bytes;

/// How many blocks can be in use at once.
const SLOTS: usize = 16;
const SLOT_BYTES: usize = BLOCK_PACKETS * DESCRIPTOR_BYTES;
const RING_BYTES: usize = SLOTS * SLOT_BYTES;
const ALL_IN_USE: u32 = (1 << SLOTS) - 1;

const _: () = assert!(RING_BYTES <= DESCRIPTORS_MAX as usize);
const _: () = assert!(SLOT_BYTES == BLOCK_PACKETS / BATCH_PACKETS * BATCH_BYTES);
const _: () = assert!(SLOTS < 32);

/// The descriptors of all blocks in use: a sealed memory file that sandboxes map read-only at
/// [`weir_abi::DESCRIPTORS_BASE`], whole, once.
#[derive(Debug)]
pub struct DescriptorRing {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    file: File,
    mapping: Mapping,
    /// Bit i: slot i belongs to a `Slot`.
    in_use: AtomicU32,
}

impl DescriptorRing {
    /// Length of every ring.
    pub const SIZE: Bytes = Bytes(RING_BYTES as u64);

    pub(crate) fn new() -> io::Result<Self> {
        let (file, mapping) = sealed(c"weir-descriptors", RING_BYTES)?;
        Ok(Self { shared: Arc::new(Shared { file, mapping, in_use: AtomicU32::new(0) }) })
    }

    /// The memory file.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.shared.file.as_fd()
    }

    /// Its length.
    pub fn len(&self) -> Bytes {
        Self::SIZE
    }

    /// Always false: a ring has slots.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Takes the lowest free slot, which is the likeliest to be in the processor's cache.
    pub(crate) fn take(&self) -> Option<Slot> {
        let mut in_use = self.shared.in_use.load(Ordering::Relaxed);
        loop {
            if in_use & ALL_IN_USE == ALL_IN_USE {
                return None;
            }
            let index = in_use.trailing_ones();
            let taken = in_use | 1 << index;
            // Acquire: what the slot's last owner read, it read before we write.
            match self.shared.in_use.compare_exchange_weak(
                in_use,
                taken,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(Slot { shared: Arc::clone(&self.shared), index }),
                Err(now) => in_use = now,
            }
        }
    }
}

/// Room for the descriptors of one block, owned until it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    shared: Arc<Shared>,
    index: u32,
}

impl Slot {
    fn base(&self) -> *mut Descriptor {
        // Mappings are page aligned, and so are slots: aligned for a descriptor.
        let base = self.shared.mapping.base().as_ptr();
        // SAFETY: `take` gives indices below SLOTS only, so the slot is inside the ring.
        unsafe { base.add(self.index as usize * SLOT_BYTES).cast() }
    }

    /// Descriptor `i`, which is below [`BLOCK_PACKETS`].
    #[inline(always)]
    pub(crate) fn descriptor(&mut self, i: usize) -> &mut Descriptor {
        assert!(i < BLOCK_PACKETS);
        // SAFETY: inside the slot, by the assertion, and aligned; a memory file begins as zeros, and any bytes are a Descriptor.
        // Only the slot's owner writes it, and `&mut self` is that; other mappings of the file are read-only, since it is sealed.
        unsafe { &mut *self.base().add(i) }
    }

    /// The first `len` descriptors.
    pub(crate) fn descriptors(&self, len: usize) -> &[Descriptor] {
        let len = len.min(BLOCK_PACKETS);
        // SAFETY: inside the slot; a memory file begins as zeros, and any bytes are a Descriptor. Nobody writes while `self`
        // is borrowed: see `descriptor`.
        unsafe { std::slice::from_raw_parts(self.base(), len) }
    }

    /// Where sandboxes see descriptor `i`.
    pub(crate) fn guest_address(&self, i: usize) -> u32 {
        let offset = self.index as usize * SLOT_BYTES + i.min(BLOCK_PACKETS) * DESCRIPTOR_BYTES;
        DESCRIPTORS_BASE.saturating_add(u32::try_from(offset).unwrap_or(u32::MAX))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.shared.in_use.fetch_and(!(1 << self.index), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_handed_out_once_and_come_back_when_dropped() {
        let ring = DescriptorRing::new().unwrap();
        let mut slots: Vec<Slot> = (0..SLOTS).map(|_| ring.take().unwrap()).collect();
        assert!(ring.take().is_none());

        slots[3].descriptor(1023).ts_ns = 7;
        assert_eq!(slots[3].descriptors(1024)[1023].ts_ns, 7);
        assert_eq!(slots[3].guest_address(64), DESCRIPTORS_BASE + 3 * 65_536 + 4096);

        drop(slots.remove(5));
        assert_eq!(ring.take().unwrap().guest_address(0), DESCRIPTORS_BASE + 5 * 65_536);
    }
}
