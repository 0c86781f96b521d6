//! Shards of a module: instances that process disjoint sets of flows.

use super::block_task::{BlockTask, InstanceOutput, WorkInput};
use std::fmt;
use weir_bounds::SourceLine;
use weir_datapath::driver::{BatchDriver, BatchError};
use weir_netio::{Block, DescriptorRing};
use weir_sandbox::{Cycles, During, Incident, Instance};
use weir_session::Records;
use weir_units::{Nanos, Timestamp};
use weir_wire::stream::StreamLayer;

/// A fault of an instance, with the packet's number in the capture.
#[derive(Clone, Debug)]
pub struct PacketFault {
    /// The fault and the entry point.
    pub incident: Incident,
    /// The number of the packet in the capture, from 1 as in Wireshark, for a fault while handling one.
    pub packet: Option<u64>,
    /// The line of the module's source, if it is known.
    pub line: Option<SourceLine>,
}

impl fmt::Display for PacketFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.incident.during, self.packet) {
            (During::Packet(_), Some(packet)) => write!(f, "packet {packet}")?,
            (During::Start | During::Packet(_), _) => f.write_str("start")?,
            (During::Tick, _) => f.write_str("tick")?,
            (During::StreamEvents, _) => f.write_str("weir_stream")?,
            (During::Stop, _) => f.write_str("stop")?,
            (During::Event(entry), _) => f.write_str(entry.name())?,
            (During::Lost, _) => f.write_str("weir_lost")?,
            (During::Idle, _) => f.write_str("between two batches")?,
        }
        write!(f, ": {}", self.incident.fault)?;
        match &self.line {
            Some(SourceLine { file, line }) => write!(f, " ({file}:{line})"),
            None => Ok(()),
        }
    }
}

/// The point at which an instance stopped, in a capture that lost bytes while it was read.
#[derive(Clone, Copy, Debug)]
pub struct Cutoff {
    /// The number of packets of the capture before this point.
    pub packets: u64,
    /// True if the module read zeros in place of lost bytes; its later output is discarded.
    pub has_read_zeros: bool,
}

/// One instance of a module, which processes all packets or a share of the flows.
#[derive(Debug)]
pub struct Shard {
    driver: BatchDriver,
    /// Processor time in the module and its calls.
    pub time: Nanos,
    /// Cycles in the module and its calls whose time is not in `time` yet.
    cycles: Cycles,
    /// The first faults of the instance.
    pub first_faults: Vec<PacketFault>,
    /// The point at which the instance stopped, if the capture lost bytes.
    pub cutoff: Option<Cutoff>,
    /// Packets of the capture up to the end of the last block.
    seen: u64,
    /// The index of this instance among the instances of its module.
    part: u64,
    /// The number of instances of the module.
    parts: u64,
    /// The layer whose flows the instances share.
    layer: StreamLayer,
}

impl Shard {
    /// Creates the instance with index `part` of the `parts` instances of a module. `tick` is the tick period in ns; `ring` is the
    /// descriptor ring of the packet source.
    pub fn new(
        mut instance: Instance,
        (part, parts): (u64, u64),
        ring: &DescriptorRing,
        tick: Option<u64>,
    ) -> Result<Self, BatchError> {
        if part != 0 {
            // Every instance logs and emits the same at its start, so only the output of part 0 is kept.
            instance.forget_start();
        }
        let layer = instance.layer();
        let driver = BatchDriver::new(instance, ring, tick)?;
        let mut shard = Self {
            driver,
            time: Nanos(0),
            cycles: Cycles(0),
            first_faults: Vec::new(),
            cutoff: None,
            seen: 0,
            part,
            parts,
            layer,
        };
        shard.record_faults(0);
        Ok(shard)
    }

    /// Returns the sandbox instance.
    pub fn instance(&self) -> &Instance {
        &self.driver.instance
    }

    /// Returns true if the module's stop is complete, or the module is not called any more.
    pub fn is_stopped(&self) -> bool {
        self.is_cut_off() || self.driver.instance.is_stopped()
    }

    /// Returns true if the module has read zeros in place of bytes that the capture has lost, so that it is not called any
    /// more.
    fn is_cut_off(&self) -> bool {
        self.cutoff.is_some_and(|cutoff| cutoff.has_read_zeros)
    }

    /// Takes the cycles in the module and its calls since the last time.
    pub fn take_cycles(&mut self) -> Cycles {
        std::mem::take(&mut self.cycles)
    }

    /// Runs the module on the input of a task and stores the output in the task.
    pub fn process(&mut self, task: &BlockTask, slot: usize) -> Result<(), BatchError> {
        if self.is_cut_off() {
            task.store_output(
                slot,
                InstanceOutput { part: self.part, seen: Some(0), ..InstanceOutput::default() },
            );
            return Ok(());
        }
        let mut drops = Vec::new();
        let kept = match &task.input {
            WorkInput::Block(block) => self.process_block(block, task, &mut drops)?,
            WorkInput::Clock(at) => {
                self.driver.instance.begin_block();
                let begin = Cycles::now();
                self.driver.tick(*at);
                self.cycles.0 += Cycles::now().since(begin).0;
                self.record_faults(0);
                self.check_zeros()
            }
            WorkInput::End => {
                if !self.is_stopped() {
                    self.driver.stop();
                }
                self.record_faults(0);
                self.check_zeros()
            }
        };
        let instance = &mut self.driver.instance;
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
            output.truncate(kept);
            if self.is_cut_off() && task.block().is_none() {
                (output.records, output.frames) = (Records::default(), Records::default());
            }
        }
        task.store_output(slot, output);
        Ok(())
    }

    /// Runs the module on a block. If the capture has lost bytes, only packets that are still whole are processed, and the number of
    /// packets that the output covers is returned.
    ///
    /// A file can lose bytes at any time, so the whole packets are counted before and after the module runs.
    fn process_block(
        &mut self,
        block: &Block,
        task: &BlockTask,
        drops: &mut Vec<u64>,
    ) -> Result<Option<usize>, BatchError> {
        self.driver.instance.begin_block();
        if self.cutoff.is_some() {
            return Ok(Some(0));
        }
        self.driver.map_block(block)?;
        self.driver.instance.set_first_packet(block.first_packet());
        let intact = block.intact();
        let mut processed = 0;
        let begin = Cycles::now();
        if let (Some(at), Some(first)) = (task.at, block.descriptors().first()) {
            self.driver.catch_up(at, Timestamp(first.ts_ns));
        }
        for index in 0..block.batch_count() {
            let batch = block.batch(index);
            let intact_in_batch = intact.saturating_sub(batch.first).min(batch.count);
            if intact_in_batch == 0 || self.driver.has_lost_bytes() {
                break;
            }
            let selected = task.selected(index);
            let mut mask = selected;
            if self.parts > 1 {
                mask &= task.share(block, index, self.layer, self.part, self.parts);
            }
            if intact_in_batch < batch.count {
                mask &= (1 << intact_in_batch) - 1;
            }
            let dropped = self.driver.run(block, index, mask);
            if dropped != 0 {
                drops.resize(block.batch_count(), 0);
                drops[index] = dropped;
            }
            processed = batch.first + intact_in_batch;
        }
        self.cycles.0 += Cycles::now().since(begin).0;
        self.record_faults(block.first_packet());
        let (still_intact, touches_last_page) = block.intact_of(processed);
        let has_read_zeros = self.driver.has_lost_bytes() || touches_last_page;
        let kept = if has_read_zeros { still_intact } else { processed };
        self.seen = block.first_packet() + kept as u64;
        if kept < block.len() || has_read_zeros {
            self.cutoff = Some(Cutoff { packets: self.seen, has_read_zeros });
            return Ok(Some(kept));
        }
        Ok(None)
    }

    /// After a call without packets, discards the output if the module has read zeros in place of lost bytes of earlier packets.
    /// Returns the number of packets that the output covers in this case.
    fn check_zeros(&mut self) -> Option<usize> {
        if !self.driver.has_lost_bytes() {
            return None;
        }
        self.cutoff = Some(Cutoff { packets: self.seen, has_read_zeros: true });
        Some(0)
    }

    /// Adds the new incidents of the instance to [`first_faults`](Self::first_faults).
    fn record_faults(&mut self, first_packet: u64) {
        let known = self.first_faults.len();
        let new = self.driver.instance.incidents().iter().skip(known);
        let faults = new.map(|incident| PacketFault {
            incident: incident.clone(),
            packet: match incident.during {
                During::Packet(index) => {
                    Some(first_packet.saturating_add(u64::from(index)).saturating_add(1))
                }
                _ => None,
            },
            line: None,
        });
        self.first_faults.extend(faults);
    }
}
