//! The loop over packets: from a record to a descriptor.

use crate::BLOCK_PACKETS;
use crate::arena::Hold;
use crate::block::{BATCHES, Block, Keep};
use crate::format::{CaptureFormat, CaptureRecord, FormatStep};
use crate::left::{ChecksumStatus, Checksums};
use crate::ring::Slot;
use crate::totals::{EndReason, PacketCounts};
use crate::view::{BytesView, PacketPrefix};
use crate::window::PacketWindow;
use std::sync::Arc;
use weir_abi::{BATCH_PACKETS, Descriptor, flag};
use weir_units::Timestamp;
use weir_wire::{Meta, PEEK, PEEK_MAX, UnknownLinkType, classify_into};

/// The most bytes of records in a block, unless it has one packet only. It keeps the arena from being one block's.
const BLOCK_BYTES: u64 = 4 << 20;
/// A record larger than this begins a block, so that the arena's chunks in a row that it needs are not in its own block's way.
pub(crate) const LARGE_RECORD: u64 = 256 << 10;

/// How far ahead of the reader memory is fetched into the processor's cache. A record's header has to be there before the next
/// record can be found, so without this the loop waits for memory once a packet: it cost a third more.
const PREFETCH_AHEAD: u64 = 4096;
/// Cache lines fetched for each record at most. Larger records are mostly payload, which costs memory bandwidth.
const PREFETCH_LINES: u64 = 8;
const CACHE_LINE: u64 = 64;

/// A block that is being filled, with what keeps its packets' bytes as they are.
#[derive(Debug)]
pub(crate) struct Filling<H> {
    pub(crate) slot: Slot,
    pub(crate) hold: H,
    /// Place of its first packet in the slot.
    start: usize,
    /// Its packets.
    pub(crate) count: usize,
    pub(crate) bytes: u64,
    pub(crate) latest: [Timestamp; BATCHES],
    checksums: Checksums,
    /// As they were before it.
    pub(crate) before: PacketCounts,
}

impl<H> Filling<H> {
    /// An empty one, after the packets that `before` counts.
    pub(crate) fn new(slot: Slot, hold: H, before: PacketCounts) -> Self {
        Self::behind(slot, 0, hold, before)
    }

    /// The same behind descriptors of earlier blocks.
    pub(crate) fn behind(slot: Slot, start: usize, hold: H, before: PacketCounts) -> Self {
        Self {
            slot,
            hold,
            start,
            count: 0,
            bytes: 0,
            latest: [Timestamp(0); BATCHES],
            checksums: Checksums::default(),
            before,
        }
    }

    /// True where no more descriptors fit.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.end() >= BLOCK_PACKETS
    }

    /// Place of the next packet in the slot.
    #[inline(always)]
    pub(crate) fn end(&self) -> usize {
        self.start + self.count
    }

    /// The next descriptor is written; `latest` is the time up to there.
    #[inline(always)]
    fn noted(&mut self, latest: u64) {
        let batch = self.end() / BATCH_PACKETS - self.start / BATCH_PACKETS;
        if let Some(slot) = self.latest.get_mut(batch) {
            *slot = Timestamp(latest);
        }
        self.count += 1;
    }

    /// Notes the kernel's word on the checksum of the packet that was added last.
    #[inline(always)]
    pub(crate) fn tell(&mut self, checksum: ChecksumStatus) {
        let base = self.start / BATCH_PACKETS * BATCH_PACKETS;
        self.checksums.note((self.end() - base).saturating_sub(1), checksum);
    }

    /// Makes block `number` of it, unless it is empty.
    pub(crate) fn into_block(mut self, window: &Arc<PacketWindow>, number: u64) -> Option<Block>
    where
        Keep: From<H>,
    {
        if self.count == 0 {
            return None;
        }
        // What is left of the last batch's page says nothing of packets that were there before.
        for i in self.end()..self.end().next_multiple_of(BATCH_PACKETS) {
            *self.slot.descriptor(i) = Descriptor::default();
        }
        let place = |at: usize| u16::try_from(at).unwrap_or(0);
        let (start, end) = (place(self.start), place(self.end()));
        Some(Block {
            slot: self.slot,
            start,
            end,
            window: Arc::clone(window),
            _hold: self.hold.into(),
            number,
            first_packet: self.before.packets,
            latest: self.latest,
            checksums: self.checksums,
        })
    }

    /// Adds the packet of a record whose captured bytes are all in the view. There is room for it.
    #[inline(always)]
    pub(crate) fn add(
        &mut self,
        view: &BytesView<'_>,
        counts: &mut PacketCounts,
        record: &CaptureRecord,
        head: &mut PacketPrefix<PEEK>,
    ) {
        let meta = Meta {
            // A packet without a time gets that of the packet before it, so that packet time goes on.
            ts: Timestamp(record.ts.unwrap_or(counts.last)),
            cap_len: record.cap_len,
            wire_len: record.wire_len,
            link_type: record.link_type,
            interface: record.interface,
            number: counts.packets,
            data: view.guest_address(record.data),
        };
        let wanted = usize::try_from(record.cap_len).unwrap_or(usize::MAX);
        let len = view.peek(record.data, wanted, head);
        let i = self.end();
        let descriptor = self.slot.descriptor(i);
        if classify_into(head.bytes(len), &meta, descriptor).is_err() {
            long_headers(view, record, &meta, descriptor);
        }
        counts.add(descriptor);
        self.noted(counts.latest);
    }

    /// Adds a packet that is described already. There is room for it.
    pub(crate) fn put(&mut self, descriptor: Descriptor, counts: &mut PacketCounts) {
        counts.add(&descriptor);
        let i = self.end();
        *self.slot.descriptor(i) = descriptor;
        self.noted(counts.latest);
    }
}

/// Why filling a block pauses.
#[derive(Debug)]
pub(crate) enum FillPause {
    BlockFull,
    More(u64),
    Corrupt(EndReason),
    LinkType { unknown: UnknownLinkType, interface: u32 },
}

/// The state of the loop over packets, apart from everything else so that it stays in registers.
pub(crate) struct PacketReader<'a, 'b> {
    pub(crate) view: BytesView<'a>,
    pub(crate) offset: u64,
    pub(crate) skipped: u64,
    pub(crate) counts: PacketCounts,
    pub(crate) filling: &'b mut Filling<Hold>,
}

impl PacketReader<'_, '_> {
    /// Reads records until something else has to be done.
    pub(crate) fn read<F: CaptureFormat>(&mut self, format: &mut F) -> FillPause {
        let mut head = PacketPrefix::<PEEK>::new();
        loop {
            match format.step(&self.view, self.offset) {
                FormatStep::Packet(record) => {
                    let bytes = record.next - self.offset;
                    let filling = &*self.filling;
                    let crowded = bytes > LARGE_RECORD || filling.bytes.saturating_add(bytes) > BLOCK_BYTES;
                    if filling.count == BLOCK_PACKETS || (crowded && filling.count > 0) {
                        return FillPause::BlockFull;
                    }
                    let ahead = self.offset.saturating_add(PREFETCH_AHEAD);
                    for i in 0..(bytes / CACHE_LINE + 1).min(PREFETCH_LINES) {
                        self.view.prefetch(ahead.saturating_add(CACHE_LINE * i));
                    }
                    self.filling.add(&self.view, &mut self.counts, &record, &mut head);
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

/// Classifies a packet whose headers are longer than usual. Its first bytes are read again, and only these count.
#[cold]
#[inline(never)]
fn long_headers(view: &BytesView<'_>, record: &CaptureRecord, meta: &Meta, descriptor: &mut Descriptor) {
    let mut head = PacketPrefix::<PEEK_MAX>::new();
    let len = view.peek(record.data, usize::try_from(record.cap_len).unwrap_or(usize::MAX), &mut head);
    if classify_into(head.bytes(len), meta, descriptor).is_err() {
        // That many bytes are always enough: the classifier says so. Should it not be true, the packet is one without headers.
        *descriptor = Descriptor {
            ts_ns: meta.ts.0,
            data: meta.data,
            cap_len: meta.cap_len,
            wire_len: meta.wire_len,
            flags: flag::MALFORMED,
            interface: meta.interface,
            link_type: meta.link_type.number(),
            ..Descriptor::default()
        };
    }
}
