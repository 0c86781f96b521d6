//! Tasks of the worker pool: a block, a clock reading or the end of the packets, and the output of each instance for it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use weir_abi::BATCH_PACKETS;
use weir_datapath::clock::ClockReading;
use weir_netio::Block;
use weir_sandbox::{LogLine, Patch};
use weir_session::Records;
use weir_wire::stream::StreamLayer;

/// The input of a task.
#[derive(Debug)]
pub enum WorkInput {
    /// A block of packets.
    Block(Box<Block>),
    /// The time, when no packets arrive.
    Clock(ClockReading),
    /// The end of all packets.
    End,
}

/// The number of upper bits of the flow hash that assign a flow to an instance. If a module indexes a table by at least these bits, each
/// set of the table is used by one instance only, for any number of instances.
const SHARE_BITS: u32 = 6;
const SHARES: u64 = 1 << SHARE_BITS;
/// Maximum number of instances of one module: one for each value of the [`SHARE_BITS`] bits.
pub const PARTS_MAX: usize = 1 << SHARE_BITS;

/// The packets of a block, divided by flow among the instances of a module.
#[derive(Debug)]
struct FlowShares {
    batches: usize,
    /// For each part, a mask for each batch.
    masks: Vec<u64>,
}

impl FlowShares {
    fn new(block: &Block, layer: StreamLayer, parts: u64) -> Self {
        let batches = block.batch_count();
        let mut masks = vec![0; batches.saturating_mul(usize::try_from(parts).unwrap_or(0))];
        for (i, descriptor) in block.descriptors().iter().enumerate() {
            let share = layer.flow_hash(descriptor) >> (u64::BITS - SHARE_BITS);
            let part = usize::try_from(share * parts / SHARES).unwrap_or(0);
            if let Some(mask) = masks.get_mut(part * batches + i / BATCH_PACKETS) {
                *mask |= 1 << (i % BATCH_PACKETS);
            }
        }
        Self { batches, masks }
    }
}

/// One input for all instances, with their outputs.
#[derive(Debug)]
pub struct BlockTask {
    /// The input.
    pub input: WorkInput,
    /// The time at which the task was created, for an interface; `None` for a capture.
    pub at: Option<ClockReading>,
    /// A mask of selected packets for each batch; empty if all packets are selected.
    selected: Vec<u64>,
    /// The packets of each part of the flows of a layer, once an instance has needed them: the innermost and the outermost.
    shares: [OnceLock<FlowShares>; 2],
    outputs: Vec<Mutex<InstanceOutput>>,
    /// The number of instances that have not stored their output.
    pending: AtomicUsize,
}

/// The output of one instance for one task.
#[derive(Debug, Default)]
pub struct InstanceOutput {
    /// The emitted records.
    pub records: Records,
    /// The sent frames. The stream number of each frame is the index of its output.
    pub frames: Records,
    /// A mask of dropped packets for each batch; empty if none are dropped.
    pub drops: Vec<u64>,
    /// The changes to packets.
    pub patches: Vec<Patch>,
    /// The log lines.
    pub log: Vec<LogLine>,
    /// The number of the instance within its module.
    pub part: u64,
    /// The number of leading packets that this output covers, if the capture lost the bytes of later ones.
    pub seen: Option<usize>,
}

impl InstanceOutput {
    /// Keeps only the output for the first `len` packets and the ticks before them.
    pub fn truncate(&mut self, len: usize) {
        for records in [&mut self.records, &mut self.frames] {
            let kept = records.iter().take_while(|record| {
                let index = record.order.index();
                index < len || (index == len && !record.order.is_packet())
            });
            let kept_count = kept.count();
            records.truncate(kept_count);
        }
        self.patches.retain(|patch| (patch.packet as usize) < len);
        self.seen = Some(len);
    }
}

impl BlockTask {
    /// Creates a task for a number of instances. `selected` has a mask for each batch of a block; if it is empty, all packets are
    /// selected.
    pub fn new(input: WorkInput, at: Option<ClockReading>, selected: Vec<u64>, instances: usize) -> Self {
        let outputs = (0..instances).map(|_| Mutex::default()).collect();
        let (shares, pending) = (Default::default(), AtomicUsize::new(instances));
        Self { input, at, selected, shares, outputs, pending }
    }

    /// Returns the block of packets; `None` for another input.
    pub fn block(&self) -> Option<&Block> {
        match &self.input {
            WorkInput::Block(block) => Some(block),
            WorkInput::Clock(_) | WorkInput::End => None,
        }
    }

    /// Returns the mask of the packets of a batch that the filter selects.
    pub fn selected(&self, batch: usize) -> u64 {
        if self.selected.is_empty() { u64::MAX } else { self.selected.get(batch).copied().unwrap_or(0) }
    }

    /// Returns the mask of the packets of a batch whose flows belong to a part. `parts` is the same in each call: all modules with
    /// several instances have the same number. The masks are found once for all of them.
    pub fn share(&self, block: &Block, batch: usize, layer: StreamLayer, part: u64, parts: u64) -> u64 {
        let [inner, outer] = &self.shares;
        let shares = match layer {
            StreamLayer::Inner => inner,
            StreamLayer::Outer => outer,
        };
        let shares = shares.get_or_init(|| FlowShares::new(block, layer, parts));
        let index = usize::try_from(part).unwrap_or(usize::MAX).saturating_mul(shares.batches);
        shares.masks.get(index.saturating_add(batch)).copied().unwrap_or(0)
    }

    /// Stores the output of an instance. Each instance calls it once.
    pub fn store_output(&self, instance: usize, output: InstanceOutput) {
        if let Some(slot) = self.outputs.get(instance) {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = output;
        }
        self.pending.fetch_sub(1, Ordering::Release);
    }

    /// Returns true once every instance has stored its output.
    pub fn is_done(&self) -> bool {
        self.pending.load(Ordering::Acquire) == 0
    }

    /// Takes the outputs, in the order of the instances.
    pub fn take_outputs(&self) -> Vec<InstanceOutput> {
        let take = |slot: &Mutex<InstanceOutput>| {
            std::mem::take(&mut *slot.lock().unwrap_or_else(PoisonError::into_inner))
        };
        self.outputs.iter().map(take).collect()
    }
}
