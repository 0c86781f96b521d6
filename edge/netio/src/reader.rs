//! Filling of blocks: the loop over the records of a capture, and the descriptors that are written for packets.

use crate::BLOCK_PACKETS;
use crate::arena::Hold;
use crate::arrival::PacketArrival;
use crate::block::{BATCHES, Block, MemoryHold};
use crate::checksum::{ChecksumStatus, Checksums};
use crate::format::{CaptureFormat, CaptureRecord, FormatStep};
use crate::mapped_bytes::{MappedBytes, PREFETCH_BYTES, PacketPrefix};
use crate::ring::Slot;
use crate::totals::{EndReason, PacketCounts};
use crate::window::PacketWindow;
use std::sync::Arc;
use weir_abi::{BATCH_PACKETS, Descriptor, flag};
use weir_units::Timestamp;
use weir_wire::{Meta, PEEK, PEEK_MAX, UnknownLinkType, classify_into};

/// The most bytes of records in a block of several packets, so that one block cannot fill the arena.
const BLOCK_BYTES: u64 = 4 << 20;
/// The length in bytes above which a record starts a new block. Such a record needs contiguous chunks, which must not
/// be held for packets before it in the same block.
pub(crate) const LARGE_RECORD: u64 = 256 << 10;

/// The distance by which memory is prefetched ahead of the reader. The next record is found only by the header of the
/// present one, so the loop would otherwise wait for memory at each packet and take three times the time.
const PREFETCH_AHEAD: u64 = 4096;

/// A block that is being filled, with a hold on its packets' memory.
#[derive(Debug)]
pub(crate) struct UnfinishedBlock<H> {
    /// The slot of the descriptor ring that the packets' descriptors are written to.
    pub(crate) slot: Slot,
    /// The hold on the packets' memory.
    pub(crate) hold: H,
    /// The index of the block's first packet in the slot.
    start: usize,
    /// The number of packets so far.
    pub(crate) count: usize,
    /// The bytes of the packets' records.
    pub(crate) bytes: u64,
    /// For each batch, the latest time stamp of the capture up to its end.
    pub(crate) latest: [Timestamp; BATCHES],
    /// The checksum states of the packets.
    checksums: Checksums,
    /// The arrivals of the packets, if the source reports them.
    arrivals: Vec<PacketArrival>,
    /// The counters before this block.
    pub(crate) before: PacketCounts,
}

impl<H> UnfinishedBlock<H> {
    /// Creates an empty block after the packets that `before` counts.
    pub(crate) fn new(slot: Slot, hold: H, before: PacketCounts) -> Self {
        Self::after_others(slot, 0, hold, before)
    }

    /// Creates an empty block in a slot of the descriptor ring whose first `start` descriptors belong to earlier blocks.
    pub(crate) fn after_others(slot: Slot, start: usize, hold: H, before: PacketCounts) -> Self {
        Self {
            slot,
            hold,
            start,
            count: 0,
            bytes: 0,
            latest: [Timestamp(0); BATCHES],
            checksums: Checksums::default(),
            arrivals: Vec::new(),
            before,
        }
    }

    /// Returns true if no more descriptors fit.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.end() >= BLOCK_PACKETS
    }

    /// The index of the next packet in the slot.
    #[inline(always)]
    pub(crate) fn end(&self) -> usize {
        self.start + self.count
    }

    /// Counts a packet whose descriptor was written. `latest` is the latest time stamp up to this packet.
    #[inline(always)]
    fn count_written(&mut self, latest: u64) {
        let batch = self.end() / BATCH_PACKETS - self.start / BATCH_PACKETS;
        if let Some(latest_of_batch) = self.latest.get_mut(batch) {
            *latest_of_batch = Timestamp(latest);
        }
        self.count += 1;
    }

    /// Sets the checksum state of the packet that was added last.
    #[inline(always)]
    pub(crate) fn set_checksum(&mut self, checksum: ChecksumStatus) {
        let base = self.start / BATCH_PACKETS * BATCH_PACKETS;
        self.checksums.set((self.end() - base).saturating_sub(1), checksum);
    }

    /// Adds the arrival of the packet that was added last. Either all packets of a block have one, or none has.
    #[inline(always)]
    pub(crate) fn add_arrival(&mut self, arrival: Option<PacketArrival>) {
        self.arrivals.extend(arrival);
    }

    /// Turns the unfinished block into block `number`, unless it is empty.
    pub(crate) fn into_block(mut self, window: &Arc<PacketWindow>, number: u64) -> Option<Block>
    where
        MemoryHold: From<H>,
    {
        if self.count == 0 {
            return None;
        }
        // Clears the unused descriptors of the last batch, so that they reveal nothing about earlier packets.
        for i in self.end()..self.end().next_multiple_of(BATCH_PACKETS) {
            *self.slot.descriptor(i) = Descriptor::default();
        }
        let to_u16 = |index: usize| u16::try_from(index).unwrap_or(0);
        let (start, end) = (to_u16(self.start), to_u16(self.end()));
        Some(Block {
            slot: self.slot,
            start,
            end,
            window: Arc::clone(window),
            hold: self.hold.into(),
            number,
            first_packet: self.before.packets,
            latest: self.latest,
            checksums: self.checksums,
            arrivals: self.arrivals,
        })
    }

    /// Adds the packet of a record whose captured bytes are all mapped. The block must not be full.
    #[inline(always)]
    pub(crate) fn add(
        &mut self,
        mapped: &MappedBytes<'_>,
        counts: &mut PacketCounts,
        record: &CaptureRecord,
        head: &mut PacketPrefix<PEEK>,
    ) {
        let meta = meta_of(mapped, counts, record);
        let wanted = usize::try_from(record.cap_len).unwrap_or(usize::MAX);
        let len = mapped.peek(record.data, wanted, head);
        let i = self.end();
        let descriptor = self.slot.descriptor(i);
        if classify_into(head.bytes(len), &meta, descriptor).is_err() {
            classify_long_headers(mapped, record, &meta, descriptor);
        }
        counts.add(descriptor);
        self.count_written(counts.latest);
    }

    /// Adds a packet without looking at its bytes: its descriptor has no headers. The block must not be full.
    #[inline(always)]
    fn add_unclassified(
        &mut self,
        mapped: &MappedBytes<'_>,
        counts: &mut PacketCounts,
        record: &CaptureRecord,
    ) {
        let i = self.end();
        let descriptor = self.slot.descriptor(i);
        *descriptor = without_headers(&meta_of(mapped, counts, record));
        counts.add(descriptor);
        self.count_written(counts.latest);
    }

    /// Numbers the block's packets anew, from `first` on. The sources of a group share one sequence of numbers.
    pub(crate) fn renumber(&mut self, first: u64) {
        for (number, i) in (first..).zip(self.start..self.end()) {
            self.slot.descriptor(i).number = u32::try_from(number & u64::from(u32::MAX)).unwrap_or(0);
        }
    }

    /// Adds a packet that has a descriptor already. The block must not be full.
    pub(crate) fn add_described(&mut self, descriptor: Descriptor, counts: &mut PacketCounts) {
        counts.add(&descriptor);
        let i = self.end();
        *self.slot.descriptor(i) = descriptor;
        self.count_written(counts.latest);
    }
}

/// The facts about a packet that its record states.
#[inline(always)]
fn meta_of(mapped: &MappedBytes<'_>, counts: &PacketCounts, record: &CaptureRecord) -> Meta {
    Meta {
        // A packet without a time gets the time of the packet before it, so that packet time does not jump.
        ts: Timestamp(record.ts.unwrap_or(counts.last)),
        cap_len: record.cap_len,
        wire_len: record.wire_len,
        link_type: record.link_type,
        interface: record.interface,
        number: counts.packets,
        data: mapped.guest_address(record.data),
    }
}

/// The descriptor of a packet whose headers are not known.
#[inline(always)]
fn without_headers(meta: &Meta) -> Descriptor {
    Descriptor {
        ts_ns: meta.ts.0,
        data: meta.data,
        cap_len: meta.cap_len,
        wire_len: meta.wire_len,
        number: u32::try_from(meta.number & u64::from(u32::MAX)).unwrap_or(0),
        interface: meta.interface,
        link_type: meta.link_type.number(),
        ..Descriptor::default()
    }
}

/// The reason why filling a block pauses.
#[derive(Debug)]
pub(crate) enum FillPause {
    /// The block has room for no further record.
    BlockFull,
    /// The next record extends at least to this offset, beyond the mapped bytes.
    More(u64),
    /// Invalid data follow; reading ends.
    Corrupt(EndReason),
    /// The next packet has an unsupported link type.
    LinkType { unknown: UnknownLinkType, interface: u32 },
}

/// The state of the loop over packets. It is a separate type, so that the fields stay in registers.
pub(crate) struct PacketReader<'a, 'b> {
    pub(crate) mapped: MappedBytes<'a>,
    /// The offset of the next record.
    pub(crate) offset: u64,
    /// The offset of the last skipped record.
    pub(crate) skipped: u64,
    /// The counters up to the last packet.
    pub(crate) counts: PacketCounts,
    /// The block that is being filled.
    pub(crate) filling: &'b mut UnfinishedBlock<Hold>,
}

impl PacketReader<'_, '_> {
    /// Reads records until another action is needed. Without `HEADERS`, descriptors tell nothing about headers.
    pub(crate) fn read<F: CaptureFormat, const HEADERS: bool>(&mut self, format: &mut F) -> FillPause {
        let mut head = PacketPrefix::<PEEK>::new();
        // The bytes up to this offset were prefetched by an earlier call.
        let mut prefetched = self.offset.saturating_add(PREFETCH_AHEAD);
        loop {
            match format.step(&self.mapped, self.offset) {
                FormatStep::Packet(record) => {
                    let bytes = record.next - self.offset;
                    let filling = &*self.filling;
                    let is_block_full =
                        bytes > LARGE_RECORD || filling.bytes.saturating_add(bytes) > BLOCK_BYTES;
                    if filling.count == BLOCK_PACKETS || (is_block_full && filling.count > 0) {
                        return FillPause::BlockFull;
                    }
                    // Each piece is prefetched once. The part of a long record that is behind already is left out.
                    prefetched = prefetched.max(self.offset);
                    while HEADERS && prefetched < self.offset.saturating_add(PREFETCH_AHEAD) {
                        self.mapped.prefetch_piece(prefetched);
                        prefetched = prefetched.saturating_add(PREFETCH_BYTES);
                    }
                    if HEADERS {
                        self.filling.add(&self.mapped, &mut self.counts, &record, &mut head);
                    } else {
                        self.filling.add_unclassified(&self.mapped, &mut self.counts, &record);
                    }
                    self.filling.bytes += bytes;
                    self.offset = record.next;
                }
                FormatStep::Skip(next) => {
                    self.skipped = self.offset;
                    self.offset = next;
                }
                FormatStep::More(need) => return FillPause::More(need),
                FormatStep::Corrupt(reason) => return FillPause::Corrupt(reason),
                FormatStep::LinkType { unknown, interface } => {
                    return FillPause::LinkType { unknown, interface };
                }
            }
        }
    }
}

/// Classifies a packet whose headers are longer than the first bytes read. The packet is read again, up to the longest
/// headers, and the descriptor follows from this second copy only.
#[cold]
#[inline(never)]
fn classify_long_headers(
    mapped: &MappedBytes<'_>,
    record: &CaptureRecord,
    meta: &Meta,
    descriptor: &mut Descriptor,
) {
    let mut head = PacketPrefix::<PEEK_MAX>::new();
    let len = mapped.peek(record.data, usize::try_from(record.cap_len).unwrap_or(usize::MAX), &mut head);
    if classify_into(head.bytes(len), meta, descriptor).is_err() {
        // The classifier guarantees that this many bytes suffice. If that guarantee were broken, the packet would
        // count as one without headers.
        *descriptor = Descriptor { flags: flag::MALFORMED, ..without_headers(meta) };
    }
}
