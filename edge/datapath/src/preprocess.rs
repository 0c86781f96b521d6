//! Preprocessing of a channel's packets before a module reads them: checksum validation, reassembly, and views.
//!
//! Preprocessing runs on the module's core and in the budget of its virtual CPU, so it costs other sessions nothing.
//! Datagrams are reassembled in memory of the host, and only complete ones are copied to memory that the module can
//! read.
//!
//! Views come last, because checksums cover packets as they were received, and because a view needs the headers of the
//! whole datagram, which later fragments do not have. With reassembly or a view, the module reads copies in an arena of
//! its own, and cannot access the channel's memory.

use crate::plan::ChannelPlanCounters;
use crate::queue::{PacketQueue, QueueEntry};
use std::any::Any;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_abi::{BATCH_PACKETS, Descriptor};
use weir_netio::{Added, BlockBuilder, DescriptorRing, MemoryQuota, Selection, ViewStage};
use weir_units::{Bytes, Nanos};
use weir_wire::{Reassembled, Reassembler, ReassemblyCounters, ReassemblyLimits, verify};

/// The greatest cost of preprocessing one packet, in fuel. Each byte of the longest packet is copied three or four
/// times and summed twice, in uncached memory. This takes about four units of fuel a byte.
const PACKET_FUEL_MAX: u64 = 4 << 16;
/// The greatest cost of one packet for each view stage, in fuel: each byte is copied once more and summed.
const STAGE_FUEL_MAX: u64 = 2 << 16;

/// The reassembler of a channel's packets, and its counters.
#[derive(Debug)]
struct ReassemblyState {
    reassembler: Reassembler,
    /// The reassembler's counters when they were last added to the channel's.
    counted: ReassemblyCounters,
}

/// The preprocessing of a channel's packets for one module.
#[derive(Debug)]
pub struct Preprocessor {
    /// True if checksums are validated.
    verifies: bool,
    /// The reassembler; `None` if datagrams are not reassembled.
    reassembly: Option<Box<ReassemblyState>>,
    /// The module's own copies of packets: a selection with one reader. `None` if packets are neither reassembled nor
    /// shown through a view; then the module reads the memory of the channel.
    own_copies: Option<Box<Selection>>,
    /// The reservations of the memory used here, held for its lifetime.
    _reserved: Box<dyn Any + Send>,
    counters: Arc<ChannelPlanCounters>,
    /// A buffer for the packet in progress.
    packet: Vec<u8>,
    /// Packets taken from the queue and not processed yet.
    unprocessed: Option<QueueEntry>,
    /// Packets processed and not passed to the module yet.
    ready: Option<QueueEntry>,
}

/// The preprocessing that a channel requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PreprocessConfig {
    /// True if packets with a wrong checksum are dropped and counted.
    pub verifies: bool,
    /// The memory for waiting fragments; `None` without reassembly.
    pub fragments: Option<Bytes>,
}

impl Preprocessor {
    /// Creates the preprocessing that a channel requests, followed by the view stages `stages`. The memory of the
    /// module's own copies is taken from `packet_quota`, if there is one. The preprocessor holds `reserved`, the
    /// reservations of other memory, for its lifetime.
    ///
    /// # Errors
    ///
    /// [`io::Error`] if there is no memory for the module's packets.
    pub fn new(
        config: PreprocessConfig,
        counters: &Arc<ChannelPlanCounters>,
        stages: &[ViewStage],
        packet_quota: Option<&Arc<MemoryQuota>>,
        reserved: Box<dyn Any + Send>,
    ) -> io::Result<Self> {
        let has_own_memory = config.fragments.is_some() || !stages.is_empty();
        let own_copies =
            if has_own_memory { Some(Box::new(Self::selection(stages, packet_quota)?)) } else { None };
        let reassembly = config.fragments.map(|bytes| {
            let limits = ReassemblyLimits { bytes, ..ReassemblyLimits::default() };
            let (reassembler, counted) = (Reassembler::new(limits), ReassemblyCounters::default());
            Box::new(ReassemblyState { reassembler, counted })
        });
        let (verifies, counters, packet) = (config.verifies, Arc::clone(counters), Vec::new());
        Ok(Self {
            verifies,
            reassembly,
            own_copies,
            _reserved: reserved,
            counters,
            packet,
            unprocessed: None,
            ready: None,
        })
    }

    fn selection(stages: &[ViewStage], packet_quota: Option<&Arc<MemoryQuota>>) -> io::Result<Selection> {
        let selection = Selection::with_views(stages.to_vec())?;
        match packet_quota {
            Some(quota) => selection.with_quota(quota),
            None => Ok(selection),
        }
    }

    /// The greatest cost of preprocessing one packet with `stages` view stages, in fuel.
    pub fn packet_fuel_max(stages: usize) -> u64 {
        PACKET_FUEL_MAX.saturating_add(STAGE_FUEL_MAX.saturating_mul(stages as u64))
    }

    /// The number of packets transformed so far; `None` if there is no view.
    pub fn transformed(&self) -> Option<Arc<AtomicU64>> {
        self.own_copies.as_ref()?.transformed().cloned()
    }

    /// The ring of descriptors that the module maps; `None` if it is the channel's.
    pub fn descriptors(&self) -> Option<&DescriptorRing> {
        self.own_copies.as_ref().map(|memory| memory.descriptors())
    }

    /// Returns true if packets were taken from the queue and not passed to the module yet.
    pub fn has_packets(&self) -> bool {
        self.unprocessed.is_some() || self.ready.is_some()
    }

    /// Discards the packets that were taken from the queue and not passed to the module yet. Returns their number.
    pub fn discard(&mut self) -> u64 {
        [self.unprocessed.take(), self.ready.take()]
            .iter()
            .flatten()
            .map(|entry| u64::from(entry.packets()))
            .sum()
    }

    /// Moves the packets that this preprocessor holds to memory of the queue, because the memory where they arrived is
    /// needed. Packets that do not fit are lost. Returns the number of lost packets.
    pub fn move_to_overflow(&mut self, queue: &PacketQueue) -> u64 {
        let mut lost = 0;
        for held in [&mut self.unprocessed, &mut self.ready] {
            if let Some(entry) = held.take() {
                *held = queue.copy_to_own_memory(&entry);
                lost += if held.is_some() { 0 } else { u64::from(entry.packets()) };
            }
        }
        lost
    }

    /// The next packets for the module, at most `packets_max`. If an earlier call left packets that are ready, returns
    /// them. Otherwise processes at least one packet, and further packets while `time_left` returns more than zero.
    /// `None` if the queue is empty or the time is used up.
    pub fn next(
        &mut self,
        queue: &PacketQueue,
        packets_max: u32,
        time_left: &dyn Fn() -> Nanos,
    ) -> Option<QueueEntry> {
        loop {
            if let Some(ready) = self.ready.take() {
                return Some(ready);
            }
            let entry = self.unprocessed.take().or_else(|| queue.take(packets_max))?;
            self.ready = self.prepare(entry, time_left);
            if time_left().0 == 0 {
                return None;
            }
        }
    }

    /// Processes packets of an entry while there is time, and keeps the others.
    fn prepare(&mut self, mut entry: QueueEntry, time_left: &dyn Fn() -> Nanos) -> Option<QueueEntry> {
        let mut builder = self.own_copies.as_mut().and_then(|memory| memory.begin(entry.packets() as usize));
        let (block, position, is_moved) = (Arc::clone(&entry.block), entry.position, entry.is_moved);
        let mut valid = 0_u64;
        while entry.mask != 0 {
            let bit = entry.mask.trailing_zeros();
            entry.mask &= entry.mask - 1;
            let index = entry.batch * BATCH_PACKETS + bit as usize;
            let Some(descriptor) = block.descriptors().get(index).copied() else { break };
            block.copy_packet(index, &mut self.packet);
            if self.has_valid_checksums(&descriptor) {
                valid |= 1 << bit;
                if self.own_copies.is_some() {
                    self.copy_to_module(&descriptor, builder.as_mut());
                }
            }
            if time_left().0 == 0 {
                break;
            }
        }
        let batch = entry.batch;
        self.unprocessed = Some(entry).filter(|rest| rest.mask != 0);
        if let Some(reassembly) = &mut self.reassembly {
            let counted = std::mem::replace(&mut reassembly.counted, reassembly.reassembler.counters());
            self.counters.reassembly.add(&counted, &reassembly.counted);
        }
        let Some(memory) = &mut self.own_copies else {
            return (valid != 0).then_some(QueueEntry { block, batch, mask: valid, position, is_moved });
        };
        let block = Arc::new(memory.end(builder?)?);
        let mask = block.batch(0).mask;
        Some(QueueEntry { block, batch: 0, mask, position, is_moved: true })
    }

    /// Returns true if the packet's checksums are right, or the channel does not validate checksums. Counts a wrong
    /// one.
    fn has_valid_checksums(&self, descriptor: &Descriptor) -> bool {
        let bad = if self.verifies { verify(&self.packet, descriptor).err() } else { None };
        if let Some(bad) = bad {
            self.counters.bad_checksum(bad).fetch_add(1, Ordering::Relaxed);
        }
        bad.is_none()
    }

    /// Copies a complete packet, or a datagram that this packet completes, for the module.
    fn copy_to_module(&mut self, descriptor: &Descriptor, builder: Option<&mut BlockBuilder>) {
        let Some(memory) = &mut self.own_copies else { return };
        let reassembled = match &mut self.reassembly {
            Some(reassembly) => reassembly.reassembler.put(&self.packet, descriptor),
            None => Reassembled::NoFragment,
        };
        let (datagram, descriptor) = match reassembled {
            Reassembled::NoFragment => (None, *descriptor),
            Reassembled::Nothing => return,
            Reassembled::Whole(packet) => {
                let len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
                // Checksums above IP are in the first fragment and cover the whole datagram, so they are validated
                // after reassembly.
                let whole = Descriptor { cap_len: len, wire_len: len, ..*descriptor };
                let bad = if self.verifies { verify(&packet, &whole).err() } else { None };
                if let Some(bad) = bad {
                    self.counters.bad_checksum(bad).fetch_add(1, Ordering::Relaxed);
                    return;
                }
                (Some(packet), whole)
            }
        };
        let packet = datagram.as_deref().unwrap_or(&self.packet);
        let lost = match builder.map_or(Added::NoMemory, |builder| memory.add(builder, packet, &descriptor)) {
            Added::Copied => return,
            Added::Unwanted => &self.counters.unwanted,
            Added::NoMemory => &self.counters.no_memory,
        };
        lost.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Preprocessor {
    /// Counts the held packets as lost.
    fn drop(&mut self) {
        let packets = self.discard();
        let fragments = self.reassembly.as_ref().map_or(0, |reassembly| reassembly.reassembler.waiting());
        self.counters.closed.fetch_add(packets + fragments, Ordering::Relaxed);
    }
}
