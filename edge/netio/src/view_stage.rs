//! What is shown of packets, and of which.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_abi::Descriptor;
use weir_demux::{FilterProgram, Packet};
use weir_wire::view::Transform;

/// What somebody is shown of a packet, and which packets of those that he is shown he wants. His filter looks at what is shown and at nothing else: else what it selects would tell
/// him of what is hidden.
#[derive(Clone, Debug)]
pub struct ViewStage {
    transform: Transform,
    program: Option<Arc<FilterProgram>>,
}

impl ViewStage {
    /// What this transform shows, as far as this program accepts it; all of it, where there is none.
    pub fn new(transform: Transform, program: Option<Arc<FilterProgram>>) -> Self {
        Self { transform, program }
    }
}

/// Screens, and private memory to work in, of which nobody ever sees anything.
#[derive(Debug)]
pub(crate) struct ViewStages {
    list: Vec<ViewStage>,
    /// What the source has of a packet.
    packet: Vec<u8>,
    /// What the last screen shows of it, from the first byte on, and how much.
    shown: Vec<u8>,
    len: usize,
    transformed: Arc<AtomicU64>,
}

impl ViewStages {
    /// At least one.
    pub(crate) fn new(list: Vec<ViewStage>) -> Self {
        Self { list, packet: Vec::new(), shown: Vec::new(), len: 0, transformed: Arc::default() }
    }

    /// Whether there are packets that one of them does not let through.
    pub(crate) fn selects(&self) -> bool {
        self.list.iter().any(|screen| screen.program.is_some())
    }

    pub(crate) fn transformed(&self) -> &Arc<AtomicU64> {
        &self.transformed
    }

    /// Room for a packet, which is [given back](Self::give_back).
    pub(crate) fn room(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.packet)
    }

    pub(crate) fn give_back(&mut self, room: Vec<u8>) {
        self.packet = room;
    }

    /// What is shown of a packet; nothing where a filter does not want it.
    pub(crate) fn show(&mut self, packet: &[u8], like: &Descriptor) -> Option<&[u8]> {
        if self.shown.len() < packet.len() {
            self.shown.resize(packet.len(), 0);
        }
        // One thread counts.
        self.transformed.store(self.transformed.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        for ViewStage { transform, program } in &mut self.list {
            let shown = transform.apply(packet, like, &mut self.shown);
            self.len = shown.len;
            let head = self.shown.get(..shown.len).unwrap_or_default();
            let cap_len = u32::try_from(head.len()).unwrap_or(u32::MAX);
            let looked_at = Packet { head, cap_len, wire_len: shown.wire_len };
            // All that is shown is at hand, so it never asks for more.
            if program.as_ref().is_some_and(|program| program.accepts(&looked_at) != Ok(true)) {
                return None;
            }
        }
        self.shown.get(..self.len)
    }

    /// Describes what was shown last, with everything besides as `like` has it.
    pub(crate) fn describe(&self, like: &Descriptor) -> Descriptor {
        let shown = self.shown.get(..self.len).unwrap_or_default();
        self.list.last().map_or_else(Descriptor::default, |screen| screen.transform.describe(shown, like))
    }
}
