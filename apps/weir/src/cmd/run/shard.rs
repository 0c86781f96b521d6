//! A module's instance and its place in the run.

use super::work::{BlockTask, InstanceOutput, WorkInput};
use std::fmt;
use weir_datapath::seat::{BatchDriver, BatchError};
use weir_netio::{Block, DescriptorRing};
use weir_sandbox::{During, Incident, Instance, thread_time};
use weir_session::Records;
use weir_units::{Nanos, Timestamp};

/// Flows are spread over instances by the upper bits of their hash, in whole 64ths: a table that a module indexes with more bits
/// than these never has two instances write to one of its sets, whatever their number.
const SHARE_BITS: u32 = 6;
const SHARES: u64 = 1 << SHARE_BITS;
/// Instances of one module at most: one for each share.
pub const PARTS_MAX: usize = 1 << SHARE_BITS;

/// A fault, with the number of its packet in the capture.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// What happened.
    pub incident: Incident,
    /// The packet, if it was in one.
    pub packet: Option<u64>,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.incident.during, self.packet) {
            (During::Packet(_), Some(packet)) => write!(f, "packet {packet}")?,
            (During::Start | During::Packet(_), _) => f.write_str("start")?,
            (During::Tick, _) => f.write_str("tick")?,
            (During::Stop, _) => f.write_str("stop")?,
            (During::News(entry), _) => f.write_str(entry.name())?,
            (During::Lost, _) => f.write_str("weir_lost")?,
            (During::Idle, _) => f.write_str("between two batches")?,
        }
        write!(f, ": {}", self.incident.fault)
    }
}

/// The end of what an instance saw of a capture that lost bytes while it was read.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Packets of the capture before it.
    pub packets: u64,
    /// True if the module read zeros in place of lost bytes: then nothing that it emits afterwards counts.
    pub is_spoilt: bool,
}

/// One instance of a module: all its packets, or the flows of its share.
#[derive(Debug)]
pub struct Shard {
    seat: BatchDriver,
    /// Processor time in the module and on calling it: what others, or the hypervisor, took meanwhile is not charged.
    pub time: Nanos,
    /// Its first faults.
    pub troubles: Vec<Trouble>,
    /// The end of what it saw, if the capture lost bytes.
    pub cut: Option<Cut>,
    /// Packets of the capture up to the last one of the last block.
    seen: u64,
    part: u64,
    parts: u64,
}

impl Shard {
    /// Part `part` of `parts` of a module whose ticks come every `tick` nanoseconds, before the source of this ring.
    pub fn new(
        mut instance: Instance,
        (part, parts): (u64, u64),
        ring: &DescriptorRing,
        tick: Option<u64>,
    ) -> Result<Self, BatchError> {
        if part != 0 {
            // Every instance says and emits the same at its start; one of them is heard.
            instance.forget_start();
        }
        let seat = BatchDriver::new(instance, ring, tick)?;
        let mut shard = Self { seat, time: Nanos(0), troubles: Vec::new(), cut: None, seen: 0, part, parts };
        shard.note_troubles(0);
        Ok(shard)
    }

    /// The sandbox.
    pub fn instance(&self) -> &Instance {
        &self.seat.instance
    }

    /// Has the module see a block, the time where there are no packets, or its stop, and leaves what came out with the work.
    pub fn process(&mut self, work: &BlockTask, slot: usize) -> Result<(), BatchError> {
        if self.cut.is_some_and(|cut| cut.is_spoilt) {
            work.leave(slot, InstanceOutput { part: self.part, seen: Some(0), ..InstanceOutput::default() });
            return Ok(());
        }
        let mut drops = Vec::new();
        let kept = match &work.matter {
            WorkInput::Block(block) => self.see(block, work, &mut drops)?,
            WorkInput::Quiet(at) => {
                self.seat.instance.begin_block();
                let begin = thread_time();
                self.seat.pass(*at);
                self.time.0 += thread_time().0.saturating_sub(begin.0);
                self.note_troubles(0);
                self.unless_spoilt()
            }
            WorkInput::End => {
                self.seat.stop();
                self.note_troubles(0);
                self.unless_spoilt()
            }
        };
        let instance = &mut self.seat.instance;
        let records = if instance.has_records() {
            instance.take_records(Records::default())
        } else {
            Records::default()
        };
        let frames =
            if instance.has_frames() { instance.take_frames(Records::default()) } else { Records::default() };
        let (patches, log) = (instance.take_patches(), instance.take_log());
        let mut output = InstanceOutput { records, frames, drops, patches, log, part: self.part, seen: None };
        if let Some(kept) = kept {
            output.cut(kept);
            if self.cut.is_some_and(|cut| cut.is_spoilt) && work.block().is_none() {
                (output.records, output.frames) = (Records::default(), Records::default());
            }
        }
        work.leave(slot, output);
        Ok(())
    }

    /// Has the module see a block; of a capture that has lost bytes, its packets that are still whole. Returns the number of packets that the
    /// output is of, where that is not all.
    ///
    /// A file can lose bytes at any time, so the packets are counted before and after.
    fn see(
        &mut self,
        block: &Block,
        work: &BlockTask,
        drops: &mut Vec<u64>,
    ) -> Result<Option<usize>, BatchError> {
        self.seat.instance.begin_block();
        if self.cut.is_some() {
            return Ok(Some(0));
        }
        self.seat.face(block)?;
        self.seat.instance.set_first_packet(block.first_packet());
        let whole = block.whole();
        let mut seen = 0;
        let begin = thread_time();
        if let (Some(at), Some(first)) = (work.at, block.descriptors().first()) {
            self.seat.catch_up(at, Timestamp(first.ts_ns));
        }
        for index in 0..block.batch_count() {
            let batch = block.batch(index);
            let left = whole.saturating_sub(batch.first).min(batch.count);
            if left == 0 || self.seat.has_lost() {
                break;
            }
            let selected = work.selected(index);
            let mut mask = if self.parts == 1 { selected } else { selected & self.share(block, index) };
            if left < batch.count {
                mask &= (1 << left) - 1;
            }
            let dropped = self.seat.run(block, index, mask);
            if dropped != 0 {
                drops.resize(block.batch_count(), 0);
                drops[index] = dropped;
            }
            seen = batch.first + left;
        }
        self.time.0 += thread_time().0.saturating_sub(begin.0);
        self.note_troubles(block.first_packet());
        let still = block.whole().min(seen);
        let is_spoilt = self.seat.has_lost() || block.touches_last_page(still, seen);
        let kept = if is_spoilt { still } else { seen };
        self.seen = block.first_packet() + kept as u64;
        if kept < block.len() || is_spoilt {
            self.cut = Some(Cut { packets: self.seen, is_spoilt });
            return Ok(Some(kept));
        }
        Ok(None)
    }

    /// After a call without packets: whether the module has read zeros in place of lost bytes, of packets that it keeps.
    fn unless_spoilt(&mut self) -> Option<usize> {
        if !self.seat.has_lost() {
            return None;
        }
        self.cut = Some(Cut { packets: self.seen, is_spoilt: true });
        Some(0)
    }

    /// Which packets of the batch are of this instance's share of flows.
    fn share(&self, block: &Block, batch: usize) -> u64 {
        let mut mask = 0;
        let first = block.batch(batch).first;
        for (i, descriptor) in block.descriptors().iter().skip(first).take(64).enumerate() {
            let share = descriptor.flow_hash >> (u64::BITS - SHARE_BITS);
            mask |= u64::from(share * self.parts / SHARES == self.part) << i;
        }
        mask
    }

    fn note_troubles(&mut self, first_packet: u64) {
        let known = self.troubles.len();
        let new = self.seat.instance.incidents().iter().skip(known);
        let troubles = new.map(|incident| Trouble {
            incident: incident.clone(),
            packet: match incident.during {
                During::Packet(index) => Some(first_packet + u64::from(index)),
                _ => None,
            },
        });
        self.troubles.extend(troubles);
    }
}
