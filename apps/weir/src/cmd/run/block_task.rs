//! A block on its way through the modules.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use weir_datapath::moment::Moment;
use weir_netio::Block;
use weir_sandbox::{LogLine, Patch};
use weir_session::Records;

/// What modules are called for.
#[derive(Debug)]
pub enum WorkInput {
    /// Packets.
    Block(Block),
    /// The time, where no packet has come for a while.
    Quiet(Moment),
    /// No more packets come.
    End,
}

/// A block of packets, or what else modules are told; and what they made of it.
#[derive(Debug)]
pub struct BlockTask {
    /// What it is.
    pub matter: WorkInput,
    /// The time at which it came from an interface.
    pub at: Option<Moment>,
    selected: Vec<u64>,
    outputs: Vec<Mutex<InstanceOutput>>,
    open: AtomicUsize,
}

/// What one instance made of a block.
#[derive(Debug, Default)]
pub struct InstanceOutput {
    /// What it emitted.
    pub records: Records,
    /// What it sent; the stream of each frame is its output.
    pub frames: Records,
    /// For each batch the packets that it drops; empty where it drops none.
    pub drops: Vec<u64>,
    /// What it changed.
    pub patches: Vec<Patch>,
    /// What it said.
    pub log: Vec<LogLine>,
    /// Which part of its module it is.
    pub part: u64,
    /// The number of the block's first packets that it is of, where the capture has lost the bytes of others.
    pub seen: Option<usize>,
}

impl InstanceOutput {
    /// Leaves what came of the first `len` packets and of the ticks before them.
    pub fn cut(&mut self, len: usize) {
        for records in [&mut self.records, &mut self.frames] {
            let kept = records.iter().take_while(|record| {
                let index = record.order.index();
                index < len || (index == len && !record.order.is_packet())
            });
            let kept = kept.count();
            records.truncate(kept);
        }
        self.patches.retain(|patch| (patch.packet as usize) < len);
        self.seen = Some(len);
    }
}

impl BlockTask {
    /// For so many instances; of a block, `selected` has a mask for each batch, or is empty where all packets are selected.
    pub fn new(matter: WorkInput, at: Option<Moment>, selected: Vec<u64>, instances: usize) -> Self {
        let outputs = (0..instances).map(|_| Mutex::default()).collect();
        Self { matter, at, selected, outputs, open: AtomicUsize::new(instances) }
    }

    /// The packets, if it has any.
    pub fn block(&self) -> Option<&Block> {
        match &self.matter {
            WorkInput::Block(block) => Some(block),
            WorkInput::Quiet(_) | WorkInput::End => None,
        }
    }

    /// Which packets of a batch modules are called for.
    pub fn selected(&self, batch: usize) -> u64 {
        if self.selected.is_empty() { u64::MAX } else { self.selected.get(batch).copied().unwrap_or(0) }
    }

    /// What an instance made of it. Each says so once.
    pub fn leave(&self, instance: usize, output: InstanceOutput) {
        if let Some(slot) = self.outputs.get(instance) {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = output;
        }
        self.open.fetch_sub(1, Ordering::Release);
    }

    /// Whether every instance is done with it.
    pub fn is_done(&self) -> bool {
        self.open.load(Ordering::Acquire) == 0
    }

    /// Takes what the instances made of it, in their order.
    pub fn take(&self) -> Vec<InstanceOutput> {
        let take = |slot: &Mutex<InstanceOutput>| {
            std::mem::take(&mut *slot.lock().unwrap_or_else(PoisonError::into_inner))
        };
        self.outputs.iter().map(take).collect()
    }
}
