//! Selections: copies of selected packets of a source in an arena that holds no other packets.

use crate::BLOCK_PACKETS;
use crate::arena::{Arena, CHUNKS, Hold};
use crate::block::Block;
use crate::format::CaptureRecord;
use crate::mapped_bytes::{MappedBytes, PacketPrefix};
use crate::queue_memory::{WAITING_BYTES, chunk_bytes, heap_bytes, slots};
use crate::quota::{MemoryQuota, QuotaUse};
use crate::reader::UnfinishedBlock;
use crate::ring::{DescriptorRing, SLOT_BYTES, Slot};
use crate::totals::PacketCounts;
use crate::view_stage::{ViewStage, ViewStages};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use weir_abi::{ARENA_BASE, BATCH_PACKETS, Descriptor};
use weir_units::Bytes;
use weir_wire::{LinkType, PEEK};

/// Memory for copies of selected packets of a source. It has never held other packets, so its readers cannot see any
/// other packet. Each packet is copied once for all readers, and its descriptor describes the copy.
///
/// With [view stages](Self::with_views), hidden bytes never enter this memory: packets are transformed elsewhere, and
/// only the view is copied.
///
/// Packets are numbered within the selection, so the numbers do not reveal other packets.
#[derive(Debug)]
pub struct Selection {
    arena: Arena,
    ring: DescriptorRing,
    /// The chunk that is being filled.
    chunk: usize,
    /// The number of used bytes of that chunk.
    filled: usize,
    hold: Hold,
    counts: PacketCounts,
    blocks: u64,
    /// The view stages; `None` if packets are copied unchanged.
    stages: Option<Box<ViewStages>>,
    /// The quota's memory for chunks. The lowest free chunk is used first.
    chunks: QuotaUse,
    /// The quota's memory for descriptor slots. The lowest free slot is used first.
    slots: QuotaUse,
    /// The quota's memory for the blocks of a queue, on the heap.
    heap: QuotaUse,
    /// True for a selection of a queue, whose copies keep the descriptors of the packets.
    is_of_queue: bool,
    /// The slot that the next block continues, and the number of descriptors in it. If each block of few packets had a
    /// slot of its own, all slots would soon be in use.
    open_slot: Option<(Slot, usize)>,
}

/// The outcome of selecting packets of a block.
#[derive(Debug)]
pub struct Selected {
    /// The copied packets, in order; `None` if there are none.
    pub block: Option<Block>,
    /// The number of packets that were not copied because readers hold all of the memory.
    pub lost: u64,
    /// The selected packets that were not copied, from the first one that did not fit on: one mask for each batch. Empty
    /// if all packets fit.
    pub rest: Vec<u64>,
    /// The number of packets whose view a filter refused.
    pub unwanted: u64,
    /// The bytes on the link of the copied packets.
    pub bytes: u64,
}

/// The outcome of adding a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// The packet was copied.
    Copied,
    /// A filter refused the packet's view.
    Unwanted,
    /// No memory is free for the packet.
    NoMemory,
}

/// A block that is built packet by packet.
#[derive(Debug)]
pub struct BlockBuilder(UnfinishedBlock<Hold>);

impl Selection {
    /// Creates a selection whose packets are copied unchanged.
    ///
    /// # Errors
    ///
    /// [`io::Error`] if there is no memory.
    pub fn new() -> io::Result<Self> {
        Self::from_parts(Arena::new()?, DescriptorRing::live()?)
    }

    /// Creates a selection for the packets of one queue, at most `packets`, that are copied because they wait too long in
    /// the memory where they arrived. The selection's memory is limited to [`memory`](Self::memory), and taken from
    /// `quota` if given. Its packets cannot be pinned.
    ///
    /// # Errors
    ///
    /// [`io::Error`] if there is no memory.
    pub fn of_queue(packets: u32, quota: Option<&Arc<MemoryQuota>>) -> io::Result<Self> {
        let memory_max = Self::memory(packets);
        let part = quota.map_or_else(|| MemoryQuota::new(memory_max), |quota| quota.part(memory_max));
        let ring = DescriptorRing::with_slots(slots(packets))?;
        let selection = Self::from_parts(Arena::with_chunks(chunk_bytes(packets))?, ring)?;
        let selection = Self { is_of_queue: true, heap: QuotaUse::new(heap_bytes(packets)), ..selection };
        let mut selection = selection.with_quota(&part)?;
        selection.heap.set_quota(&part)?;
        if selection.heap.charge_up_to(0) { Ok(selection) } else { Err(io::ErrorKind::OutOfMemory.into()) }
    }

    /// The most memory that the packets of a queue need if their mean length is at most [`WAITING_BYTES`]. Longer packets
    /// need more.
    pub fn memory(packets: u32) -> Bytes {
        let (chunk, packets_bytes) = (chunk_bytes(packets), packets as usize * WAITING_BYTES);
        // The first and the last chunk in use can be partly empty.
        let chunks = (packets_bytes.div_ceil(chunk) + 2).min(CHUNKS);
        Bytes((chunks * chunk + slots(packets) * SLOT_BYTES + heap_bytes(packets)) as u64)
    }

    fn from_parts(arena: Arena, ring: DescriptorRing) -> io::Result<Self> {
        let mut hold = Hold::default();
        arena.hold(0..1, &mut hold);
        let (mut chunks, slots) = (QuotaUse::new(arena.chunk_bytes()), QuotaUse::new(SLOT_BYTES));
        chunks.charge_up_to(0);
        Ok(Self {
            chunks,
            slots,
            heap: QuotaUse::new(0),
            arena,
            ring,
            chunk: 0,
            filled: 0,
            hold,
            counts: PacketCounts::new(),
            blocks: 0,
            stages: None,
            open_slot: None,
            is_of_queue: false,
        })
    }

    /// Creates a selection of the packets that all of these view stages accept, with the view of the last stage.
    /// Without stages, packets are copied unchanged.
    ///
    /// # Errors
    ///
    /// [`io::Error`] if there is no memory.
    pub fn with_views(stages: Vec<ViewStage>) -> io::Result<Self> {
        let stages = if stages.is_empty() { None } else { Some(Box::new(ViewStages::new(stages))) };
        Ok(Self { stages, ..Self::new()? })
    }

    /// Takes the memory of packets and descriptors from `quota`. If the quota is used up, packets do not fit.
    ///
    /// # Errors
    ///
    /// [`io::Error`] if the quota does not suffice for the memory in use.
    pub fn with_quota(mut self, quota: &Arc<MemoryQuota>) -> io::Result<Self> {
        self.chunks.set_quota(quota)?;
        self.slots.set_quota(quota)?;
        Ok(self)
    }

    /// Returns true if the selection holds no packet, and no other code holds its memory.
    pub fn is_unused(&self) -> bool {
        let open = usize::from(self.open_slot.is_some());
        Arc::strong_count(self.arena.window()) == 1 && self.ring.handles() == 1 + open
    }

    /// The counter of transformed packets; `None` without view stages.
    pub fn transformed(&self) -> Option<&Arc<AtomicU64>> {
        self.stages.as_ref().map(|stages| stages.transformed())
    }

    /// The ring of descriptors that its blocks share.
    pub fn descriptors(&self) -> &DescriptorRing {
        &self.ring
    }

    /// Copies the packets that the masks select, one mask for each batch of the block.
    pub fn select(&mut self, from: &Block, masks: &[u64]) -> Selected {
        let count = |masks: &[u64]| masks.iter().map(|mask| u64::from(mask.count_ones())).sum();
        let wanted: u64 = count(masks);
        if wanted == 0 {
            return Selected { block: None, lost: 0, rest: Vec::new(), unwanted: 0, bytes: 0 };
        }
        let Some(mut builder) = self.begin(usize::try_from(wanted).unwrap_or(BLOCK_PACKETS)) else {
            return Selected { block: None, lost: wanted, rest: masks.to_vec(), unwanted: 0, bytes: 0 };
        };
        let (mut rest, mut unwanted, mut bytes) = (Vec::new(), 0, 0);
        for (number, (batch, &mask)) in from.batches().zip(masks).enumerate() {
            let mut left = mask & batch.mask;
            while left != 0 {
                let index = batch.first + left.trailing_zeros() as usize;
                match self.copy(from, index, &mut builder) {
                    Added::Copied => bytes += wire_len(from, index),
                    Added::Unwanted => unwanted += 1,
                    Added::NoMemory => break,
                }
                left &= left - 1;
            }
            if left != 0 {
                // Later packets are not copied before earlier ones.
                rest = masks.to_vec();
                rest.iter_mut().take(number).for_each(|mask| *mask = 0);
                rest.iter_mut().skip(number).take(1).for_each(|mask| *mask = left);
                break;
            }
        }
        Selected { block: self.end(builder), lost: count(&rest), rest, unwanted, bytes }
    }

    /// Returns true if a filter reads the view.
    pub fn filters_view(&self) -> bool {
        self.stages.as_ref().is_some_and(|stages| stages.has_filter())
    }

    /// The number of the packets in `masks` whose views the filters accept, and their bytes on the link. It counts packets
    /// that were lost before they could be copied: counting all packets would reveal how many a filter refuses.
    pub fn wanted(&mut self, from: &Block, masks: &[u64]) -> (u64, u64) {
        let (mut packets, mut bytes) = (0, 0);
        for (batch, &mask) in from.batches().zip(masks) {
            let mut left = mask & batch.mask;
            while left != 0 {
                let index = batch.first + left.trailing_zeros() as usize;
                left &= left - 1;
                if self.accepts(from, index) {
                    (packets, bytes) = (packets + 1, bytes + wire_len(from, index));
                }
            }
        }
        (packets, bytes)
    }

    /// Returns true if the filters accept the view of a packet.
    fn accepts(&mut self, from: &Block, index: usize) -> bool {
        let (Some(stages), Some(descriptor)) = (&mut self.stages, from.descriptors().get(index)) else {
            return true;
        };
        let mut packet = stages.take_buffer();
        from.copy_packet(index, &mut packet);
        let is_accepted = stages.apply(&packet, descriptor).is_some();
        stages.return_buffer(packet);
        is_accepted
    }

    /// Starts a block of at most `packets_max` packets, and at most [`BLOCK_PACKETS`], which are [added](Self::add) one by
    /// one. Returns `None` if blocks in use hold all descriptor slots. A block of at most 64 packets is one batch, and a
    /// longer block has no [lead](Block::lead).
    pub fn begin(&mut self, packets_max: usize) -> Option<BlockBuilder> {
        let packets_max = packets_max.min(BLOCK_PACKETS);
        let find_start = |(slot, filled): (Slot, usize)| {
            let is_split = filled % BATCH_PACKETS + packets_max > BATCH_PACKETS;
            let start = if is_split { filled.next_multiple_of(BATCH_PACKETS) } else { filled };
            (start + packets_max <= BLOCK_PACKETS).then_some((slot, start))
        };
        let (slot, start) = match self.open_slot.take().and_then(find_start) {
            Some(open) => open,
            None => (self.ring.take().filter(|slot| self.slots.charge_up_to(slot.index()))?, 0),
        };
        Some(BlockBuilder(UnfinishedBlock::after_others(slot, start, Hold::default(), self.counts)))
    }

    /// Adds a packet of these bytes, or its view. Its time, interface, link type and length on the link are those of
    /// `original`.
    pub fn add(&mut self, builder: &mut BlockBuilder, packet: &[u8], original: &Descriptor) -> Added {
        // The stages are taken out because `self` is borrowed below.
        let Some(mut stages) = self.stages.take() else {
            return self.put(builder, packet.len(), original, |to, room| {
                if packet.len() > room {
                    return None;
                }
                // SAFETY: there is space by the check above, and no other code reads it yet.
                unsafe { to.copy_from_nonoverlapping(packet.as_ptr(), packet.len()) };
                Some(packet.len())
            });
        };
        let added = self.put_view(builder, packet, original, &mut stages);
        self.stages = Some(stages);
        added
    }

    /// Finishes the block; `None` if nothing was added.
    pub fn end(&mut self, builder: BlockBuilder) -> Option<Block> {
        let filling = builder.0;
        self.open_slot = (!filling.is_full()).then(|| (filling.slot.share(), filling.end()));
        let block = filling.into_block(self.arena.window(), self.blocks);
        self.blocks += u64::from(block.is_some());
        block
    }

    /// Copies one packet, or its view.
    fn copy(&mut self, from: &Block, index: usize, builder: &mut BlockBuilder) -> Added {
        let Some(descriptor) = from.descriptors().get(index) else { return Added::NoMemory };
        if let Some(mut stages) = self.stages.take() {
            let mut packet = stages.take_buffer();
            // A private copy, read once from the source: the view is derived from these bytes only.
            from.copy_packet(index, &mut packet);
            let added = self.put_view(builder, &packet, descriptor, &mut stages);
            stages.return_buffer(packet);
            self.stages = Some(stages);
            return added;
        }
        let len = usize::try_from(descriptor.cap_len).unwrap_or(usize::MAX);
        // The classifier would find the same in the copy, unless the packet has changed since it was classified.
        if self.is_of_queue || from.window().is_fixed() {
            // SAFETY: `write` provides `room` bytes of the arena, which overlap no packet of another window.
            let written = self.write(builder, len, |to, room| unsafe { from.copy_to(index, to, room) });
            let Some((start, _)) = written else { return Added::NoMemory };
            let number = match self.is_of_queue {
                true => descriptor.number,
                false => self.next_number(),
            };
            let copied = Descriptor { data: self.guest_address(start), number, ..*descriptor };
            builder.0.add_described(copied, &mut self.counts);
            builder.0.set_checksum(from.checksum(index));
            return Added::Copied;
        }
        // SAFETY: `put` provides `room` bytes of the arena, which overlap no packet of another window.
        let added = self.put(builder, len, descriptor, |to, room| unsafe { from.copy_to(index, to, room) });
        if matches!(added, Added::Copied) {
            builder.0.set_checksum(from.checksum(index));
        }
        added
    }

    /// Copies the view of a packet to the readers' memory and describes it. No other bytes are ever written there.
    fn put_view(
        &mut self,
        builder: &mut BlockBuilder,
        packet: &[u8],
        original: &Descriptor,
        stages: &mut ViewStages,
    ) -> Added {
        let Some(view) = stages.apply(packet, original) else { return Added::Unwanted };
        let Some((start, _)) = self.write(builder, view.len(), |to, room| {
            if view.len() > room {
                return None;
            }
            // SAFETY: there is space by the check above, and no other code reads it yet.
            unsafe { to.copy_from_nonoverlapping(view.as_ptr(), view.len()) };
            Some(view.len())
        }) else {
            return Added::NoMemory;
        };
        let original = Descriptor {
            data: self.guest_address(start),
            number: self.next_number(),
            ts_ns: original.ts_ns,
            wire_len: original.wire_len,
            link_type: original.link_type,
            interface: original.interface,
            ..Descriptor::default()
        };
        let descriptor = stages.describe(&original);
        builder.0.add_described(descriptor, &mut self.counts);
        Added::Copied
    }

    /// Allocates space for `len` bytes, has them written, and describes them.
    fn put(
        &mut self,
        builder: &mut BlockBuilder,
        len: usize,
        original: &Descriptor,
        write: impl FnOnce(*mut u8, usize) -> Option<usize>,
    ) -> Added {
        let Ok(link_type) = LinkType::try_from(u32::from(original.link_type)) else { return Added::NoMemory };
        let Some((start, len)) = self.write(builder, len, write) else { return Added::NoMemory };
        let guest = u32::try_from(self.chunk * self.arena.chunk_bytes()).unwrap_or(0);
        let end = (start + len) as u64;
        // SAFETY: the bytes were written to a held chunk, inside the arena's mapping, which `self` keeps.
        let view = unsafe {
            MappedBytes::new(self.arena.address(self.chunk), 0, end, ARENA_BASE.saturating_add(guest))
        };
        let record = CaptureRecord {
            ts: Some(original.ts_ns),
            cap_len: u32::try_from(len).unwrap_or(u32::MAX),
            wire_len: original.wire_len,
            link_type,
            interface: original.interface,
            data: start as u64,
            next: end,
        };
        builder.0.add(&view, &mut self.counts, &record, &mut PacketPrefix::<PEEK>::new());
        Added::Copied
    }

    /// The number of the next packet in this selection.
    fn next_number(&self) -> u32 {
        u32::try_from(self.counts.packets & u64::from(u32::MAX)).unwrap_or(0)
    }

    /// The guest address of byte `start` of the chunk that is being filled.
    fn guest_address(&self, start: usize) -> u32 {
        let at = u32::try_from(self.chunk * self.arena.chunk_bytes() + start).unwrap_or(0);
        ARENA_BASE.saturating_add(at)
    }

    /// Allocates space for `len` bytes and has them written. Returns their offset in the chunk and their number;
    /// `None` if they do not fit.
    fn write(
        &mut self,
        builder: &mut BlockBuilder,
        len: usize,
        write: impl FnOnce(*mut u8, usize) -> Option<usize>,
    ) -> Option<(usize, usize)> {
        let filling = &mut builder.0;
        if filling.is_full()
            || len > self.arena.chunk_bytes()
            || (len > self.arena.chunk_bytes() - self.filled && !self.next_chunk())
        {
            return None;
        }
        let (start, base) = (self.filled, self.arena.address(self.chunk));
        // SAFETY: `start` is in the chunk, which is inside the mapping. This selection holds the chunk and is its
        // only writer, and blocks read only bytes below `filled`.
        let len = write(unsafe { base.add(start) }, self.arena.chunk_bytes() - start)?;
        // Each packet starts in a new cache line.
        self.filled = (start + len).next_multiple_of(64).min(self.arena.chunk_bytes());
        self.arena.hold(self.chunk..self.chunk + 1, &mut filling.hold);
        Some((start, len))
    }

    /// Continues in a chunk that no other code holds.
    fn next_chunk(&mut self) -> bool {
        let found = self.arena.find_free(1, &self.hold).filter(|found| self.chunks.charge_up_to(found.start));
        let Some(found) = found else { return false };
        let mut hold = Hold::default();
        self.arena.hold(found.clone(), &mut hold);
        (self.hold, self.chunk, self.filled) = (hold, found.start, 0);
        true
    }
}

fn wire_len(block: &Block, index: usize) -> u64 {
    block.descriptors().get(index).map_or(0, |descriptor| descriptor.wire_len.into())
}

#[cfg(test)]
mod tests;
