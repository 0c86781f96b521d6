//! What a channel has done with its packets before a module sees them: checksums validated, datagrams put together from their fragments.
//!
//! It is done on the module's own core, in the slices of its virtual processor, so nobody else pays for it. Datagrams are put together in
//! memory of the module's own; of the fragments it sees nothing.
//!
//! Where a view shows packets it does so last: checksums are of packets as they came, and what a fragment carries cannot be shown until the datagram is whole. Then the module has memory
//! of its own for what it is shown, and never sees the channel's.

use crate::plan::ChannelPlanCounters;
use crate::queue::{BatchTicket, PacketQueue};
use std::any::Any;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_abi::{BATCH_PACKETS, Descriptor};
use weir_netio::{Added, DescriptorRing, PacketBuffers, Portion, Selection, ViewStage};
use weir_units::{Bytes, Nanos};
use weir_wire::{Reassembled, Reassembler, ReassemblyCounters, ReassemblyLimits, verify};

/// What is done with one packet at most, in fuel: a byte of the longest is copied three or four times and summed up twice, in memory that no cache holds
/// yet, and that takes about four units.
const LONGEST: u64 = 4 << 16;
/// What each screen does with one packet beside that: a byte is copied once more, and summed up.
const LONGEST_SHOWN: u64 = 2 << 16;

/// Datagrams that are put together.
#[derive(Debug)]
struct ReassembledPacket {
    reassembler: Reassembler,
    /// What was counted so far.
    counted: ReassemblyCounters,
}

/// What is done with the packets of a channel for one module.
#[derive(Debug)]
pub struct Preprocessor {
    verifies: bool,
    whole: Option<Box<ReassembledPacket>>,
    /// Memory of the module's own, where it does not see the channel's.
    own: Option<Box<Selection>>,
    /// The reservations of the memory that it takes.
    _reserved: Box<dyn Any + Send>,
    tally: Arc<ChannelPlanCounters>,
    packet: Vec<u8>,
    /// Taken out of the queue, and not yet looked at.
    rest: Option<BatchTicket>,
    /// Looked at, and not yet shown to the module.
    ready: Option<BatchTicket>,
}

/// The preprocessing that a channel asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PreprocessConfig {
    /// Packets with a wrong checksum are dropped and counted.
    pub verifies: bool,
    /// The room for fragments that wait, where datagrams are put together.
    pub fragments: Option<Bytes>,
}

impl Preprocessor {
    /// Does what a channel asks for, and then shows packets through these screens. Memory for what is shown is a part of `waiting`, where there is such a limit. `reserved` is kept as long as this.
    ///
    /// # Errors
    ///
    /// There is no memory for what the module sees.
    pub fn new(
        asked: PreprocessConfig,
        tally: &Arc<ChannelPlanCounters>,
        screens: &[ViewStage],
        waiting: Option<&Arc<PacketBuffers>>,
        reserved: Box<dyn Any + Send>,
    ) -> io::Result<Self> {
        let sees_own = asked.fragments.is_some() || !screens.is_empty();
        let own = if sees_own { Some(Box::new(Self::selection(screens, waiting)?)) } else { None };
        let whole = asked.fragments.map(|bytes| {
            let limits = ReassemblyLimits { bytes, ..ReassemblyLimits::default() };
            let (reassembler, counted) = (Reassembler::new(limits), ReassemblyCounters::default());
            Box::new(ReassembledPacket { reassembler, counted })
        });
        let (verifies, tally, packet) = (asked.verifies, Arc::clone(tally), Vec::new());
        Ok(Self { verifies, whole, own, _reserved: reserved, tally, packet, rest: None, ready: None })
    }

    fn selection(screens: &[ViewStage], waiting: Option<&Arc<PacketBuffers>>) -> io::Result<Selection> {
        let selection = Selection::through(screens.to_vec())?;
        match waiting {
            Some(room) => selection.within(room),
            None => Ok(selection),
        }
    }

    /// The most fuel that one packet takes, shown through so many screens.
    pub fn longest(screens: usize) -> u64 {
        LONGEST.saturating_add(LONGEST_SHOWN.saturating_mul(screens as u64))
    }

    /// How many packets it has transformed so far; nothing where it shows them as they are.
    pub fn transformed(&self) -> Option<Arc<AtomicU64>> {
        self.own.as_ref()?.transformed().cloned()
    }

    /// Where the descriptors of its packets are, where they are not those of the channel.
    pub fn descriptors(&self) -> Option<&DescriptorRing> {
        self.own.as_ref().map(|own| own.descriptors())
    }

    /// Packets that have been taken out of the queue, and that the module has not seen.
    pub fn has_packets(&self) -> bool {
        self.rest.is_some() || self.ready.is_some()
    }

    /// Loses what has been taken out of the queue, and that the module has not seen. Says how many packets.
    pub fn let_go(&mut self) -> u64 {
        [self.rest.take(), self.ready.take()].iter().flatten().map(|ticket| u64::from(ticket.packets())).sum()
    }

    /// The memory that its packets came in cannot wait for them: those that do not fit into memory of the queue are lost. Says how many packets.
    pub fn make_room(&mut self, queue: &PacketQueue) -> u64 {
        let mut lost = 0;
        for held in [&mut self.rest, &mut self.ready] {
            if let Some(ticket) = held.take() {
                *held = queue.own(&ticket);
                lost += if held.is_some() { 0 } else { u64::from(ticket.packets()) };
            }
        }
        lost
    }

    /// The next packets for the module, at most so many. Looks at packets as long as there is time `left`, but at one at least; nothing where there is
    /// no time left to show them.
    pub fn next(&mut self, queue: &PacketQueue, most: u32, left: &dyn Fn() -> Nanos) -> Option<BatchTicket> {
        loop {
            if let Some(ready) = self.ready.take() {
                return Some(ready);
            }
            let ticket = self.rest.take().or_else(|| queue.take(most))?;
            self.ready = self.prepare(ticket, left);
            if left().0 == 0 {
                return None;
            }
        }
    }

    /// Looks at as many packets as there is time for. What is left of them is kept.
    fn prepare(&mut self, mut ticket: BatchTicket, left: &dyn Fn() -> Nanos) -> Option<BatchTicket> {
        let mut portion = self.own.as_mut().and_then(|own| own.begin(ticket.packets() as usize));
        let (block, position, is_own) = (Arc::clone(&ticket.block), ticket.position, ticket.is_own);
        let mut good = 0_u64;
        while ticket.mask != 0 {
            let bit = ticket.mask.trailing_zeros();
            ticket.mask &= ticket.mask - 1;
            let index = ticket.batch * BATCH_PACKETS + bit as usize;
            let Some(descriptor) = block.descriptors().get(index).copied() else { break };
            block.copy_packet(index, &mut self.packet);
            if self.is_good(&descriptor) {
                good |= 1 << bit;
                if self.own.is_some() {
                    self.join(&descriptor, portion.as_mut());
                }
            }
            if left().0 == 0 {
                break;
            }
        }
        let batch = ticket.batch;
        self.rest = Some(ticket).filter(|rest| rest.mask != 0);
        if let Some(whole) = &mut self.whole {
            let counted = std::mem::replace(&mut whole.counted, whole.reassembler.counters());
            self.tally.reassembly.add(&counted, &whole.counted);
        }
        let Some(own) = &mut self.own else {
            return (good != 0).then_some(BatchTicket { block, batch, mask: good, position, is_own });
        };
        let block = Arc::new(own.end(portion?)?);
        let mask = block.batch(0).mask;
        Some(BatchTicket { block, batch: 0, mask, position, is_own: true })
    }

    /// Whether the packet's checksums are right, or nobody asks.
    fn is_good(&self, descriptor: &Descriptor) -> bool {
        let bad = if self.verifies { verify(&self.packet, descriptor).err() } else { None };
        if let Some(bad) = bad {
            self.tally.bad_checksum(bad).fetch_add(1, Ordering::Relaxed);
        }
        bad.is_none()
    }

    /// Puts a packet that is whole, or that makes one whole, where the module sees it.
    fn join(&mut self, descriptor: &Descriptor, portion: Option<&mut Portion>) {
        let Some(own) = &mut self.own else { return };
        let reassembled = match &mut self.whole {
            Some(whole) => whole.reassembler.put(&self.packet, descriptor),
            None => Reassembled::NoFragment,
        };
        let (made, descriptor) = match reassembled {
            Reassembled::NoFragment => (None, *descriptor),
            Reassembled::Nothing => return,
            Reassembled::Whole(packet) => {
                let len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
                // Checksums above IP are in the first fragment, and over all of them.
                let like = Descriptor { cap_len: len, wire_len: len, ..*descriptor };
                let bad = if self.verifies { verify(&packet, &like).err() } else { None };
                if let Some(bad) = bad {
                    self.tally.bad_checksum(bad).fetch_add(1, Ordering::Relaxed);
                    return;
                }
                (Some(packet), like)
            }
        };
        let packet = made.as_deref().unwrap_or(&self.packet);
        let lost = match portion.map_or(Added::NoRoom, |portion| own.add(portion, packet, &descriptor)) {
            Added::There => return,
            Added::Unwanted => &self.tally.unwanted,
            Added::NoRoom => &self.tally.no_memory,
        };
        lost.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Preprocessor {
    /// What it holds is lost.
    fn drop(&mut self) {
        let packets = self.let_go();
        let fragments = self.whole.as_ref().map_or(0, |whole| whole.reassembler.waiting());
        self.tally.closed.fetch_add(packets + fragments, Ordering::Relaxed);
    }
}
