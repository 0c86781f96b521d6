//! Some packets of a source, copied into memory of their own.

use crate::BLOCK_PACKETS;
use crate::arena::{Arena, CHUNKS, Hold};
use crate::block::Block;
use crate::format::CaptureRecord;
use crate::reader::Filling;
use crate::ring::{DescriptorRing, SLOT_BYTES, Slot};
use crate::room::{PacketBuffers, UsedSlots};
use crate::screen::{ViewStage, ViewStages};
use crate::totals::PacketCounts;
use crate::view::{BytesView, PacketPrefix};
use crate::waiting::{WAITING_BYTES, chunk_bytes, heap_bytes, slots};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use weir_abi::{ARENA_BASE, BATCH_PACKETS, Descriptor};
use weir_units::Bytes;
use weir_wire::{LinkType, PEEK};

/// Memory that contains the packets of one selection and has never contained others, so that whoever reads it sees nothing else, wherever
/// they look. Each packet is copied into it once, for all of its readers, and its descriptor says what is in the copy.
///
/// Where packets are shown through [screens](Self::through), what is hidden of them never comes into this memory: they are transformed elsewhere, and only what is shown is copied.
///
/// Packets are numbered in the order of the selection: that others lie between them cannot be seen.
#[derive(Debug)]
pub struct Selection {
    arena: Arena,
    ring: DescriptorRing,
    /// The chunk that is being filled, and how far.
    chunk: usize,
    filled: usize,
    hold: Hold,
    counts: PacketCounts,
    blocks: u64,
    /// Through what packets are shown; nothing where they are shown as they are.
    screens: Option<Box<ViewStages>>,
    /// Chunks and slots that were used so far: the lowest that are free come first.
    chunks: UsedSlots,
    slots: UsedSlots,
    /// The heap for the blocks of a queue.
    heap: UsedSlots,
    /// The packets were described for their readers before: they keep their descriptors.
    is_of_queue: bool,
    /// The slot that the next block goes on with, and how far it is filled: blocks of few packets would soon have used up all slots.
    open: Option<(Slot, usize)>,
}

/// What became of a block's packets.
#[derive(Debug)]
pub struct Selected {
    /// Those that were copied, in their order; none where there are none.
    pub block: Option<Block>,
    /// How many were not, because their readers hold all of the memory.
    pub lost: u64,
    /// Which: from the first one on for which there was no room. One mask for each batch; empty where there was room for all.
    pub rest: Vec<u64>,
    /// How many were not, because a filter does not want what is shown of them.
    pub unwanted: u64,
    /// How many bytes those that were copied had on the link.
    pub bytes: u64,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is there.
    There,
    /// A filter does not want what is shown of it.
    Unwanted,
    /// There is no room for it.
    NoRoom,
}

/// A block that is put together packet by packet.
#[derive(Debug)]
pub struct Portion(Filling<Hold>);

impl Selection {
    /// An empty one, whose packets are shown as they are.
    ///
    /// # Errors
    ///
    /// There is no memory.
    pub fn new() -> io::Result<Self> {
        Self::of(Arena::new()?, DescriptorRing::live()?)
    }

    /// An empty one for the packets of one queue, so many at most, that lie elsewhere and wait for too long. It has no more memory than
    /// [`memory`](Self::memory) says, as a part of this room if there is one, and none of it is kept after its block is gone.
    ///
    /// # Errors
    ///
    /// There is no memory.
    pub fn of_queue(packets: u32, part_of: Option<&Arc<PacketBuffers>>) -> io::Result<Self> {
        let most = Self::memory(packets);
        let room = part_of.map_or_else(|| PacketBuffers::new(most), |room| room.part(most));
        let ring = DescriptorRing::with_slots(slots(packets))?;
        let selection = Self::of(Arena::with_chunks(chunk_bytes(packets))?, ring)?;
        let selection = Self { is_of_queue: true, heap: UsedSlots::of(heap_bytes(packets)), ..selection };
        let mut selection = selection.within(&room)?;
        selection.heap.within(&room)?;
        if selection.heap.reaches(0) { Ok(selection) } else { Err(io::ErrorKind::OutOfMemory.into()) }
    }

    /// The memory that the packets of a queue take at most, if they are of [`WAITING_BYTES`] on average. Longer ones take as much as they are long.
    pub fn memory(packets: u32) -> Bytes {
        let (chunk, packets_bytes) = (chunk_bytes(packets), packets as usize * WAITING_BYTES);
        // The first one and the last one that are in use have room that is not.
        let chunks = (packets_bytes.div_ceil(chunk) + 2).min(CHUNKS);
        Bytes((chunks * chunk + slots(packets) * SLOT_BYTES + heap_bytes(packets)) as u64)
    }

    fn of(arena: Arena, ring: DescriptorRing) -> io::Result<Self> {
        let mut hold = Hold::default();
        arena.hold(0..1, &mut hold);
        let (mut chunks, slots) = (UsedSlots::of(arena.chunk_bytes()), UsedSlots::of(SLOT_BYTES));
        chunks.reaches(0);
        Ok(Self {
            chunks,
            slots,
            heap: UsedSlots::of(0),
            arena,
            ring,
            chunk: 0,
            filled: 0,
            hold,
            counts: PacketCounts::new(),
            blocks: 0,
            screens: None,
            open: None,
            is_of_queue: false,
        })
    }

    /// An empty one of packets that all these screens let through. They are shown as the last one shows them; as they are, where there is none.
    ///
    /// # Errors
    ///
    /// There is no memory.
    pub fn through(screens: Vec<ViewStage>) -> io::Result<Self> {
        let screens = if screens.is_empty() { None } else { Some(Box::new(ViewStages::new(screens))) };
        Ok(Self { screens, ..Self::new()? })
    }

    /// The same, which takes of this room the memory that its packets and their descriptors come to lie in. Where there is none left, packets find no room.
    ///
    /// # Errors
    ///
    /// There is none for the first of them.
    pub fn within(mut self, room: &Arc<PacketBuffers>) -> io::Result<Self> {
        self.chunks.within(room)?;
        self.slots.within(room)?;
        Ok(self)
    }

    /// Returns true where no packet is in its memory, and nothing else has the memory.
    pub fn is_unused(&self) -> bool {
        let open = usize::from(self.open.is_some());
        Arc::strong_count(self.arena.window()) == 1 && self.ring.holders() == 1 + open
    }

    /// How many packets have been transformed for it so far; nothing where they are shown as they are.
    pub fn transformed(&self) -> Option<&Arc<AtomicU64>> {
        self.screens.as_ref().map(|screens| screens.transformed())
    }

    /// Where the descriptors of its blocks are.
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
        let Some(mut portion) = self.begin(usize::try_from(wanted).unwrap_or(BLOCK_PACKETS)) else {
            return Selected { block: None, lost: wanted, rest: masks.to_vec(), unwanted: 0, bytes: 0 };
        };
        let (mut rest, mut unwanted, mut bytes) = (Vec::new(), 0, 0);
        for (number, (batch, &mask)) in from.batches().zip(masks).enumerate() {
            let mut left = mask & batch.mask;
            while left != 0 {
                let index = batch.first + left.trailing_zeros() as usize;
                match self.copy(from, index, &mut portion) {
                    Added::There => bytes += wire_len(from, index),
                    Added::Unwanted => unwanted += 1,
                    Added::NoRoom => break,
                }
                left &= left - 1;
            }
            if left != 0 {
                // What comes later would have to wait for what has no room.
                rest = masks.to_vec();
                rest.iter_mut().take(number).for_each(|mask| *mask = 0);
                rest.iter_mut().skip(number).take(1).for_each(|mask| *mask = left);
                break;
            }
        }
        Selected { block: self.end(portion), lost: count(&rest), rest, unwanted, bytes }
    }

    /// Whether there are packets that a filter does not want which looks at what is shown of them.
    pub fn is_screened(&self) -> bool {
        self.screens.as_ref().is_some_and(|screens| screens.selects())
    }

    /// How many of these packets filters want that look at what is shown, and how many bytes they have on the link. For what is lost before it could be copied: how many others there
    /// were is not for everybody to know.
    pub fn wanted(&mut self, from: &Block, masks: &[u64]) -> (u64, u64) {
        let (mut packets, mut bytes) = (0, 0);
        for (batch, &mask) in from.batches().zip(masks) {
            let mut left = mask & batch.mask;
            while left != 0 {
                let index = batch.first + left.trailing_zeros() as usize;
                left &= left - 1;
                if self.wants(from, index) {
                    (packets, bytes) = (packets + 1, bytes + wire_len(from, index));
                }
            }
        }
        (packets, bytes)
    }

    fn wants(&mut self, from: &Block, index: usize) -> bool {
        let (Some(screens), Some(descriptor)) = (&mut self.screens, from.descriptors().get(index)) else {
            return true;
        };
        let mut packet = screens.room();
        from.copy_packet(index, &mut packet);
        let is_shown = screens.show(&packet, descriptor).is_some();
        screens.give_back(packet);
        is_shown
    }

    /// Begins a block of packets that are [added](Self::add) one by one, so many at most, and no more than [`BLOCK_PACKETS`]; nothing where blocks in
    /// use take all the room for descriptors. A block of at most 64 packets is one batch, and a longer one has no [lead](Block::lead).
    pub fn begin(&mut self, most: usize) -> Option<Portion> {
        let most = most.min(BLOCK_PACKETS);
        let place = |(slot, filled): (Slot, usize)| {
            let is_split = filled % BATCH_PACKETS + most > BATCH_PACKETS;
            let start = if is_split { filled.next_multiple_of(BATCH_PACKETS) } else { filled };
            (start + most <= BLOCK_PACKETS).then_some((slot, start))
        };
        let (slot, start) = match self.open.take().and_then(place) {
            Some(open) => open,
            None => (self.ring.take().filter(|slot| self.slots.reaches(slot.index()))?, 0),
        };
        Some(Portion(Filling::behind(slot, start, Hold::default(), self.counts)))
    }

    /// Adds what is shown of a packet of these bytes, with time, interface, link type and length on the link as `like` has them.
    pub fn add(&mut self, portion: &mut Portion, packet: &[u8], like: &Descriptor) -> Added {
        // Elsewhere while it is worked with.
        let Some(mut screens) = self.screens.take() else {
            return self.put(portion, packet.len(), like, |to, room| {
                if packet.len() > room {
                    return None;
                }
                // SAFETY: there is room, by the check above; what is written belongs to nobody else yet.
                unsafe { to.copy_from_nonoverlapping(packet.as_ptr(), packet.len()) };
                Some(packet.len())
            });
        };
        let added = self.put_shown(portion, packet, like, &mut screens);
        self.screens = Some(screens);
        added
    }

    /// The block, unless nothing was added.
    pub fn end(&mut self, portion: Portion) -> Option<Block> {
        let filling = portion.0;
        self.open = (!filling.is_full()).then(|| (filling.slot.share(), filling.end()));
        let block = filling.into_block(self.arena.window(), self.blocks);
        self.blocks += u64::from(block.is_some());
        block
    }

    /// Copies one packet, or what is shown of it.
    fn copy(&mut self, from: &Block, index: usize, portion: &mut Portion) -> Added {
        let Some(descriptor) = from.descriptors().get(index) else { return Added::NoRoom };
        if let Some(mut screens) = self.screens.take() {
            let mut packet = screens.room();
            // Private, and read from the source once: what is hidden is decided on these bytes.
            from.copy_packet(index, &mut packet);
            let added = self.put_shown(portion, &packet, descriptor, &mut screens);
            screens.give_back(packet);
            self.screens = Some(screens);
            return added;
        }
        let len = usize::try_from(descriptor.cap_len).unwrap_or(usize::MAX);
        if self.is_of_queue {
            // SAFETY: `write` gives memory with so much room, of the arena, of which no packet of another window is a part.
            let written = self.write(portion, len, |to, room| unsafe { from.copy_to(index, to, room) });
            let Some((start, _)) = written else { return Added::NoRoom };
            portion.0.put(Descriptor { data: self.guest_address(start), ..*descriptor }, &mut self.counts);
            portion.0.tell(from.checksum(index));
            return Added::There;
        }
        // SAFETY: `put` gives memory with so much room, of the arena, of which no packet of another window is a part.
        let added = self.put(portion, len, descriptor, |to, room| unsafe { from.copy_to(index, to, room) });
        if matches!(added, Added::There) {
            portion.0.tell(from.checksum(index));
        }
        added
    }

    /// Puts what is shown of a packet where its readers are, and describes that. Nothing else is written there, also not for a moment.
    fn put_shown(
        &mut self,
        portion: &mut Portion,
        packet: &[u8],
        like: &Descriptor,
        screens: &mut ViewStages,
    ) -> Added {
        let Some(shown) = screens.show(packet, like) else { return Added::Unwanted };
        let Some((start, _)) = self.write(portion, shown.len(), |to, room| {
            if shown.len() > room {
                return None;
            }
            // SAFETY: there is room, by the check above; what is written belongs to nobody else yet.
            unsafe { to.copy_from_nonoverlapping(shown.as_ptr(), shown.len()) };
            Some(shown.len())
        }) else {
            return Added::NoRoom;
        };
        let like = Descriptor {
            data: self.guest_address(start),
            number: u32::try_from(self.counts.packets & u64::from(u32::MAX)).unwrap_or(0),
            ts_ns: like.ts_ns,
            wire_len: like.wire_len,
            link_type: like.link_type,
            interface: like.interface,
            ..Descriptor::default()
        };
        let descriptor = screens.describe(&like);
        portion.0.put(descriptor, &mut self.counts);
        Added::There
    }

    /// Makes room for `len` bytes, has them written, and describes what was written.
    fn put(
        &mut self,
        portion: &mut Portion,
        len: usize,
        like: &Descriptor,
        write: impl FnOnce(*mut u8, usize) -> Option<usize>,
    ) -> Added {
        let Ok(link_type) = LinkType::try_from(u32::from(like.link_type)) else { return Added::NoRoom };
        let Some((start, len)) = self.write(portion, len, write) else { return Added::NoRoom };
        let guest = u32::try_from(self.chunk * self.arena.chunk_bytes()).unwrap_or(0);
        let end = (start + len) as u64;
        // SAFETY: what has been written of a held chunk, inside the arena's mapping, which `self` keeps.
        let view = unsafe {
            BytesView::new(self.arena.address(self.chunk), 0, end, ARENA_BASE.saturating_add(guest))
        };
        let record = CaptureRecord {
            ts: Some(like.ts_ns),
            cap_len: u32::try_from(len).unwrap_or(u32::MAX),
            wire_len: like.wire_len,
            link_type,
            interface: like.interface,
            data: start as u64,
            next: end,
        };
        portion.0.add(&view, &mut self.counts, &record, &mut PacketPrefix::<PEEK>::new());
        Added::There
    }

    /// The address at which modules see this byte of the chunk that is being filled.
    fn guest_address(&self, start: usize) -> u32 {
        let at = u32::try_from(self.chunk * self.arena.chunk_bytes() + start).unwrap_or(0);
        ARENA_BASE.saturating_add(at)
    }

    /// Makes room for `len` bytes, and has them written: where in the chunk, and how many there are. Nothing where there is no room.
    fn write(
        &mut self,
        portion: &mut Portion,
        len: usize,
        write: impl FnOnce(*mut u8, usize) -> Option<usize>,
    ) -> Option<(usize, usize)> {
        let filling = &mut portion.0;
        if filling.is_full()
            || len > self.arena.chunk_bytes()
            || (len > self.arena.chunk_bytes() - self.filled && !self.next_chunk())
        {
            return None;
        }
        let (start, base) = (self.filled, self.arena.address(self.chunk));
        // SAFETY: `start` is in the chunk, which is inside the mapping. This selection holds the chunk and is its only writer, and blocks know
        // only of bytes below `filled`.
        let len = write(unsafe { base.add(start) }, self.arena.chunk_bytes() - start)?;
        // Headers begin at even addresses, as they do in a network card's memory.
        self.filled = (start + len).next_multiple_of(64).min(self.arena.chunk_bytes());
        self.arena.hold(self.chunk..self.chunk + 1, &mut filling.hold);
        Some((start, len))
    }

    /// Goes on in a chunk that nobody else holds.
    fn next_chunk(&mut self) -> bool {
        let found = self.arena.find(1, &self.hold).filter(|found| self.chunks.reaches(found.start));
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
