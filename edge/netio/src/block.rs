//! Packets on their way to the modules.

use crate::arena::Hold;
use crate::left::{ChecksumStatus, Checksums};
use crate::live::{FrameHold, RingHold};
use crate::memory::page_bytes;
use crate::ring::{DescriptorRing, Slot};
use crate::window::PacketWindow;
use std::ops::Range;
use std::sync::Arc;
use weir_abi::{ARENA_BASE, BATCH_PACKETS, Descriptor};
use weir_os::memory::copy_once;
use weir_units::Timestamp;

/// How many batches a block has at most.
pub(crate) const BATCHES: usize = crate::BLOCK_PACKETS / BATCH_PACKETS;

/// What keeps the bytes of a block's packets as they are, until it is dropped.
#[derive(Debug)]
pub(crate) enum Keep {
    /// Chunks of an arena.
    Chunks { hold: Hold },
    /// Blocks of a packet socket's ring.
    Ring { hold: RingHold },
    /// Frames of an XDP socket.
    Frames { hold: Box<FrameHold> },
}

impl From<Hold> for Keep {
    fn from(hold: Hold) -> Self {
        Self::Chunks { hold }
    }
}

impl From<RingHold> for Keep {
    fn from(hold: RingHold) -> Self {
        Self::Ring { hold }
    }
}

impl From<FrameHold> for Keep {
    fn from(hold: FrameHold) -> Self {
        Self::Frames { hold: Box::new(hold) }
    }
}

/// Up to [`crate::BLOCK_PACKETS`] packets in a row, all in one [`PacketWindow`].
///
/// Dropping it gives back the room of its descriptors and packets.
#[derive(Debug)]
pub struct Block {
    pub(crate) slot: Slot,
    /// Places in the slot of its first packet, and behind its last one; at most [`crate::BLOCK_PACKETS`].
    pub(crate) start: u16,
    pub(crate) end: u16,
    pub(crate) window: Arc<PacketWindow>,
    /// Keeps the packets' bytes as they are, where they are not a file's.
    pub(crate) _hold: Keep,
    pub(crate) number: u64,
    pub(crate) first_packet: u64,
    pub(crate) latest: [Timestamp; BATCHES],
    pub(crate) checksums: Checksums,
}

/// Up to 64 packets of a block: what one call of a module handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketBatch {
    /// Guest address of the first descriptor: the begin of a page.
    pub guest_address: u32,
    /// Descriptors in it; only a block's last batch has fewer than 64.
    pub count: usize,
    /// Bit i: there is a packet i. Of the lowest `count` bits all, but those of a first batch that are of [earlier blocks](Block::lead).
    pub mask: u64,
    /// Number of its first packet in the block.
    pub first: usize,
    /// The latest time stamp of the capture up to the end of this batch. It never goes backwards.
    pub latest: Timestamp,
}

impl Block {
    /// Number of the block in the capture, from 0.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Its descriptors, with those of its [lead](Self::lead); at least 1.
    pub fn len(&self) -> usize {
        usize::from(self.end) - self.base()
    }

    /// Place of its first batch in the slot.
    fn base(&self) -> usize {
        usize::from(self.start) / BATCH_PACKETS * BATCH_PACKETS
    }

    /// Descriptors before its first packet, of earlier blocks of this source: blocks of few packets share a page of descriptors. None where
    /// each block has [its own](crate::LiveOptions::dense).
    pub fn lead(&self) -> usize {
        usize::from(self.start) % BATCH_PACKETS
    }

    /// Packets in it; at least 1.
    pub fn packets(&self) -> usize {
        usize::from(self.end - self.start)
    }

    /// True where its descriptors are in this ring.
    pub fn is_of(&self, ring: &DescriptorRing) -> bool {
        self.slot.is_of(ring)
    }

    /// The ring of its descriptors.
    pub fn ring(&self) -> DescriptorRing {
        self.slot.ring()
    }

    /// Always false: there are no blocks without packets.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Keeps its first `len` descriptors, one packet at least: the others are as if they had never come. Nothing that reads it may have begun.
    pub fn truncate(&mut self, len: usize) {
        let len = len.max(self.lead() + 1);
        if len >= self.len() {
            return;
        }
        let base = self.base();
        for i in len..self.len() {
            *self.slot.descriptor(base + i) = Descriptor::default();
        }
        self.end = u16::try_from(base + len).unwrap_or(self.end);
        let last = self.batch_count() - 1;
        let before = last.checked_sub(1).and_then(|i| self.latest.get(i)).copied().unwrap_or_default();
        let rest = self.descriptors().iter().skip(last * BATCH_PACKETS);
        let latest = rest.map(|descriptor| Timestamp(descriptor.ts_ns)).fold(before, Timestamp::max);
        if let Some(slot) = self.latest.get_mut(last) {
            *slot = latest;
        }
    }

    /// Number of its first packet in the capture, from 0.
    pub fn first_packet(&self) -> u64 {
        self.first_packet
    }

    /// Where its packets' bytes are.
    pub fn window(&self) -> &Arc<PacketWindow> {
        &self.window
    }

    /// How many batches it has.
    pub fn batch_count(&self) -> usize {
        self.len().div_ceil(BATCH_PACKETS)
    }

    /// Batch `i`; an empty one at or beyond [`batch_count`](Self::batch_count).
    pub fn batch(&self, i: usize) -> PacketBatch {
        let first = i.saturating_mul(BATCH_PACKETS).min(self.len());
        let count = (self.len() - first).min(BATCH_PACKETS);
        let mask = if count == 64 { u64::MAX } else { (1u64 << count) - 1 };
        let mask = if first == 0 { mask & (u64::MAX << self.lead()) } else { mask };
        let latest = self.latest.get(i).copied().unwrap_or_default();
        PacketBatch {
            guest_address: self.slot.guest_address(self.base() + first),
            count,
            mask,
            first,
            latest,
        }
    }

    /// Its batches, in order.
    pub fn batches(&self) -> impl Iterator<Item = PacketBatch> + '_ {
        (0..self.batch_count()).map(|i| self.batch(i))
    }

    /// What the classifier found out about its packets.
    pub fn descriptors(&self) -> &[Descriptor] {
        self.slot.descriptors(self.base(), self.len())
    }

    /// The kernel's word on the checksum of packet `i`.
    pub fn checksum(&self, i: usize) -> ChecksumStatus {
        self.checksums.of(i)
    }

    /// The number of its first packets that have all their bytes in the file now. That is all of them, unless the capture is a mapped file that has
    /// lost bytes since. Others may read as zeros.
    pub fn whole(&self) -> usize {
        let Some(end) = self.window.end() else { return self.len() };
        let last = self.descriptors().last().map(|descriptor| self.file_range(descriptor).end);
        if last.is_none_or(|last| last <= end) {
            return self.len();
        }
        self.descriptors().iter().take_while(|descriptor| self.file_range(descriptor).end <= end).count()
    }

    /// Returns true if one of packets `from..to` has bytes in the file's last page, of which a part is gone. That part reads as zeros, and
    /// nothing shows that it was read.
    pub fn touches_last_page(&self, from: usize, to: usize) -> bool {
        let Some(end) = self.window.end() else { return false };
        let last_page = end..end.next_multiple_of(page_bytes());
        let packets = self.descriptors().get(from..to).unwrap_or_default();
        packets
            .iter()
            .map(|descriptor| self.file_range(descriptor))
            .any(|range| range.start < last_page.end && range.end > last_page.start)
    }

    /// The bytes of the window's file that a packet takes.
    fn file_range(&self, descriptor: &Descriptor) -> Range<u64> {
        let start = self.window.file_offset() + u64::from(descriptor.data.saturating_sub(ARENA_BASE));
        start..start + u64::from(descriptor.cap_len)
    }

    /// Copies the captured bytes of packet `i` into `to`, whose contents are replaced; nothing beyond [`len`](Self::len).
    ///
    /// The copy is the only one that trusted code should look at: a mapped file can change between two looks.
    pub fn copy_packet(&self, i: usize, to: &mut Vec<u8>) {
        self.copy_head(i, usize::MAX, to);
    }

    /// Copies at most `most` of the captured bytes of packet `i`, the first ones, as [`copy_packet`](Self::copy_packet) does.
    #[inline]
    pub fn copy_head(&self, i: usize, most: usize, to: &mut Vec<u8>) {
        to.clear();
        let Some((from, len)) = self.place(i) else { return };
        let len = len.min(most);
        to.reserve(len);
        // SAFETY: the bytes are inside the window's mapping, as `place` says; `to` has room for them. They are initialised when the length
        // is set.
        unsafe {
            copy_once(from, to.as_mut_ptr(), len);
            to.set_len(len);
        }
    }

    /// Copies the captured bytes of packet `i` to `to`, and says how many; nothing where there are more than `room`.
    ///
    /// # Safety
    ///
    /// `to` is writable for `room` bytes, which are none of the packet's.
    pub(crate) unsafe fn copy_to(&self, i: usize, to: *mut u8, room: usize) -> Option<usize> {
        let (from, len) = self.place(i).filter(|(_, len)| *len <= room)?;
        // SAFETY: the bytes are inside the window's mapping, as `place` says; there is room for them, by the check above.
        unsafe { copy_once(from, to, len) };
        Some(len)
    }

    /// Where the captured bytes of packet `i` are, and how many: all inside the window's mapping, which the window keeps and watches.
    #[inline]
    fn place(&self, i: usize) -> Option<(*const u8, usize)> {
        let descriptor = self.descriptors().get(i)?;
        let mapping = self.window.mapping();
        let from = usize::try_from(descriptor.data.saturating_sub(ARENA_BASE)).ok()?;
        let len = usize::try_from(descriptor.cap_len).ok()?;
        if from.checked_add(len).is_none_or(|end| end > mapping.len()) {
            return None;
        }
        // SAFETY: inside the mapping, by the check above.
        Some((unsafe { mapping.base().as_ptr().add(from).cast_const() }, len))
    }
}
