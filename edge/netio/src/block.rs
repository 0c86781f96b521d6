//! Blocks of packets, and the holds on the memory of their packets.

use crate::arena::Hold;
use crate::arrival::PacketArrival;
use crate::checksum::{ChecksumStatus, Checksums};
use crate::live::{FrameHold, RingHold};
use crate::ring::{DescriptorRing, Slot};
use crate::window::PacketWindow;
use std::ops::Range;
use std::sync::Arc;
use weir_abi::{ARENA_BASE, BATCH_PACKETS, Descriptor};
use weir_os::memory::{copy_once, page_bytes};
use weir_units::Timestamp;

/// The most batches of a block.
pub(crate) const BATCHES: usize = crate::BLOCK_PACKETS / BATCH_PACKETS;

/// A hold on the memory of a block's packets, which keeps it from being reused.
#[derive(Debug)]
pub(crate) enum MemoryHold {
    /// Chunks of an arena.
    Chunks { hold: Hold },
    /// Blocks of a packet socket's ring.
    Ring { hold: RingHold },
    /// Frames of an XDP socket.
    Frames { hold: Box<FrameHold> },
}

impl From<Hold> for MemoryHold {
    fn from(hold: Hold) -> Self {
        Self::Chunks { hold }
    }
}

impl From<RingHold> for MemoryHold {
    fn from(hold: RingHold) -> Self {
        Self::Ring { hold }
    }
}

impl From<FrameHold> for MemoryHold {
    fn from(hold: FrameHold) -> Self {
        Self::Frames { hold: Box::new(hold) }
    }
}

/// Up to [`crate::BLOCK_PACKETS`] contiguous packets, all in one [`PacketWindow`]: a range of a capture file or of shared
/// memory, which sandboxes map.
///
/// Dropping a block releases the memory of its descriptors and packets.
#[derive(Debug)]
pub struct Block {
    pub(crate) slot: Slot,
    /// The index of the block's first packet in the slot.
    pub(crate) start: u16,
    /// The index behind the block's last packet in the slot; at most [`crate::BLOCK_PACKETS`].
    pub(crate) end: u16,
    pub(crate) window: Arc<PacketWindow>,
    /// Holds the memory of the packets, unless they are in a mapped file.
    pub(crate) hold: MemoryHold,
    /// The number of the block in the capture, from 0.
    pub(crate) number: u64,
    /// The number of the block's first packet in the capture, from 0.
    pub(crate) first_packet: u64,
    /// For each batch, the latest time stamp of the capture up to its end.
    pub(crate) latest: [Timestamp; BATCHES],
    pub(crate) checksums: Checksums,
    /// The arrivals of the packets, if the source reports them.
    pub(crate) arrivals: Vec<PacketArrival>,
}

/// Up to 64 packets of a block. A module handles them with one call of `weir_batch`, or one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketBatch {
    /// The guest address of the first descriptor, which is page-aligned.
    pub guest_address: u32,
    /// The number of descriptors. Only the last batch of a block has fewer than 64.
    pub count: usize,
    /// Bit i is set if packet i belongs to the block. The lowest `count` bits are set; in the first batch of a block, the
    /// lowest bits are 0, one for each descriptor of the [lead](Block::lead).
    pub mask: u64,
    /// The index in the block of the batch's first packet.
    pub first: usize,
    /// The latest time stamp of the capture up to the end of this batch. It never decreases.
    pub latest: Timestamp,
}

impl Block {
    /// The number of the block in the capture, from 0.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The number of the block's descriptors, including its [lead](Self::lead); at least 1.
    pub fn len(&self) -> usize {
        usize::from(self.end) - self.base()
    }

    /// The index in the slot of the first descriptor of the block's first batch.
    fn base(&self) -> usize {
        usize::from(self.start) / BATCH_PACKETS * BATCH_PACKETS
    }

    /// The number of descriptors at the beginning of the block's first batch that belong to earlier blocks of this
    /// source, because blocks of few packets can share a batch of descriptors. Zero unless the source is a selection, or
    /// [`LiveOptions::dense`](crate::LiveOptions::dense) is set.
    pub fn lead(&self) -> usize {
        usize::from(self.start) % BATCH_PACKETS
    }

    /// The number of the block's packets; at least 1.
    pub fn packets(&self) -> usize {
        usize::from(self.end - self.start)
    }

    /// Returns true if the block's descriptors are in this ring.
    pub fn is_in_ring(&self, ring: &DescriptorRing) -> bool {
        self.slot.is_in_ring(ring)
    }

    /// The ring of the block's descriptors.
    pub fn ring(&self) -> DescriptorRing {
        self.slot.ring()
    }

    /// Always false: every block has a packet.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Drops all descriptors after the first `len`, but keeps one packet at least. The block must not be in use yet.
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

    /// The number of the block's first packet in the capture, from 0.
    pub fn first_packet(&self) -> u64 {
        self.first_packet
    }

    /// The window that contains the block's packets.
    pub fn window(&self) -> &Arc<PacketWindow> {
        &self.window
    }

    /// The number of the block's batches.
    pub fn batch_count(&self) -> usize {
        self.len().div_ceil(BATCH_PACKETS)
    }

    /// Batch `i`; empty if there is no such batch.
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

    /// The block's batches, in order.
    pub fn batches(&self) -> impl Iterator<Item = PacketBatch> + '_ {
        (0..self.batch_count()).map(|i| self.batch(i))
    }

    /// The descriptors, as the classifier wrote them.
    pub fn descriptors(&self) -> &[Descriptor] {
        self.slot.descriptors(self.base(), self.len())
    }

    /// The checksum state of packet `i`, as the kernel reported it.
    pub fn checksum(&self, i: usize) -> ChecksumStatus {
        self.checksums.get(i)
    }

    /// The arrival of packet `i`, as the kernel reported it. Known only with
    /// [`LiveOptions::arrivals`](crate::LiveOptions::arrivals).
    pub fn arrival(&self, i: usize) -> PacketArrival {
        let index = i.checked_sub(self.lead());
        index.and_then(|index| self.arrivals.get(index)).copied().unwrap_or_default()
    }

    /// The number of packets at the beginning of the block whose bytes are all in the file now. It is less than
    /// [`len`](Self::len) after a mapped file has lost bytes; the bytes of the other packets may then read as zeros.
    pub fn intact(&self) -> usize {
        self.window.lost_from().map_or(self.len(), |lost_from| self.intact_before(lost_from))
    }

    /// Returns true if one of packets `from..to` had bytes in a part of the file's last page that the file has lost. A read
    /// of that part returns zeros. Unlike a read of a lost page, it causes no fault, so it is not recorded in the window.
    pub fn touches_last_page(&self, from: usize, to: usize) -> bool {
        self.window.lost_from().is_some_and(|lost_from| self.touches_page_behind(lost_from, from, to))
    }

    /// The number of packets at the beginning of the first `processed` ones that are [intact](Self::intact), and true if
    /// one of the rest of these [touches the last page](Self::touches_last_page). Asks the system once for both.
    pub fn intact_of(&self, processed: usize) -> (usize, bool) {
        let Some(lost_from) = self.window.lost_from() else { return (processed.min(self.len()), false) };
        let intact = self.intact_before(lost_from).min(processed);
        (intact, self.touches_page_behind(lost_from, intact, processed))
    }

    /// Returns true if one of packets `from..to` has bytes between `end` and the next page.
    fn touches_page_behind(&self, end: u64, from: usize, to: usize) -> bool {
        let last_page = end..end.next_multiple_of(page_bytes() as u64);
        let packets = self.descriptors().get(from..to).unwrap_or_default();
        packets
            .iter()
            .map(|descriptor| self.file_range(descriptor))
            .any(|range| range.start < last_page.end && range.end > last_page.start)
    }

    /// The number of packets at the beginning of the block that are in the first `end` bytes of the window's file.
    fn intact_before(&self, end: u64) -> usize {
        let last = self.descriptors().last().map(|descriptor| self.file_range(descriptor).end);
        if last.is_none_or(|last| last <= end) {
            return self.len();
        }
        self.descriptors().iter().take_while(|descriptor| self.file_range(descriptor).end <= end).count()
    }

    /// The byte range of a packet in the window's file.
    fn file_range(&self, descriptor: &Descriptor) -> Range<u64> {
        let start = self.window.file_offset() + u64::from(descriptor.data.saturating_sub(ARENA_BASE));
        start..start + u64::from(descriptor.cap_len)
    }

    /// Replaces the contents of `to` by the captured bytes of packet `i`; by nothing if there is no such packet.
    ///
    /// Trusted code must look only at this copy, because a mapped file can change between two reads.
    pub fn copy_packet(&self, i: usize, to: &mut Vec<u8>) {
        self.copy_head(i, usize::MAX, to);
    }

    /// Replaces the contents of `to` by at most the first `bytes_max` captured bytes of packet `i`, as
    /// [`copy_packet`](Self::copy_packet) does.
    #[inline]
    pub fn copy_head(&self, i: usize, bytes_max: usize, to: &mut Vec<u8>) {
        to.clear();
        self.append_head(i, bytes_max, to);
    }

    /// Appends the captured bytes of packet `i` to `to`; nothing if there is no such packet.
    pub fn append_packet(&self, i: usize, to: &mut Vec<u8>) {
        self.append_head(i, usize::MAX, to);
    }

    #[inline]
    fn append_head(&self, i: usize, bytes_max: usize, to: &mut Vec<u8>) {
        let Some((from, len)) = self.packet_bytes(i) else { return };
        let len = len.min(bytes_max);
        let before = to.len();
        to.reserve(len);
        // SAFETY: `packet_bytes` returns bytes inside the window's mapping; `to` has capacity for them behind its first
        // `before` bytes, and they are initialised when the length is set.
        unsafe {
            copy_once(from, to.as_mut_ptr().add(before), len);
            to.set_len(before + len);
        }
    }

    /// Copies the captured bytes of packet `i` to `to`. Returns their number, or `None` if there are more than `room`.
    ///
    /// # Safety
    ///
    /// `to` must be writable for `room` bytes that do not overlap the packet.
    pub(crate) unsafe fn copy_to(&self, i: usize, to: *mut u8, room: usize) -> Option<usize> {
        let (from, len) = self.packet_bytes(i).filter(|(_, len)| *len <= room)?;
        // SAFETY: `packet_bytes` returns bytes inside the window's mapping, and the check above leaves enough space for
        // them.
        unsafe { copy_once(from, to, len) };
        Some(len)
    }

    /// The address and number of the captured bytes of packet `i`. All are inside the window's mapping, which the
    /// window keeps and watches.
    #[inline]
    fn packet_bytes(&self, i: usize) -> Option<(*const u8, usize)> {
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
