//! View stages: the part of a packet that a module may see, and the filter that reads that part.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_abi::Descriptor;
use weir_demux::{FilterProgram, Packet};
use weir_wire::view::Transform;

/// A transformation of packets to a view, followed by a filter. The filter reads only the view, since its result
/// would otherwise reveal hidden bytes.
#[derive(Clone, Debug)]
pub struct ViewStage {
    transform: Transform,
    program: Option<Arc<FilterProgram>>,
}

impl ViewStage {
    /// Creates a stage that transforms packets, and keeps those whose view `program` accepts; all of them without a
    /// program.
    pub fn new(transform: Transform, program: Option<Arc<FilterProgram>>) -> Self {
        Self { transform, program }
    }
}

/// A sequence of view stages with private buffers, which no module can access.
#[derive(Debug)]
pub(crate) struct ViewStages {
    list: Vec<ViewStage>,
    /// The buffer for the source packet.
    packet: Vec<u8>,
    /// The buffer for the view of the last stage, whose first `view_len` bytes are the view.
    view_buffer: Vec<u8>,
    view_len: usize,
    transformed: Arc<AtomicU64>,
}

impl ViewStages {
    /// Creates a sequence of at least one stage.
    pub(crate) fn new(list: Vec<ViewStage>) -> Self {
        Self { list, packet: Vec::new(), view_buffer: Vec::new(), view_len: 0, transformed: Arc::default() }
    }

    /// Returns true if a stage has a filter.
    pub(crate) fn has_filter(&self) -> bool {
        self.list.iter().any(|stage| stage.program.is_some())
    }

    /// The counter of transformed packets.
    pub(crate) fn transformed(&self) -> &Arc<AtomicU64> {
        &self.transformed
    }

    /// Takes the buffer for a packet, to be [returned](Self::return_buffer).
    pub(crate) fn take_buffer(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.packet)
    }

    /// Returns a [taken](Self::take_buffer) buffer.
    pub(crate) fn return_buffer(&mut self, buffer: Vec<u8>) {
        self.packet = buffer;
    }

    /// Makes the view of a packet that has the descriptor `original`. Returns `None` if a filter refuses the view.
    pub(crate) fn apply(&mut self, packet: &[u8], original: &Descriptor) -> Option<&[u8]> {
        if self.view_buffer.len() < packet.len() {
            self.view_buffer.resize(packet.len(), 0);
        }
        // Only one thread writes the counter.
        self.transformed.store(self.transformed.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        for ViewStage { transform, program } in &mut self.list {
            let shown = transform.apply(packet, original, &mut self.view_buffer);
            self.view_len = shown.len;
            let head = self.view_buffer.get(..shown.len).unwrap_or_default();
            let cap_len = u32::try_from(head.len()).unwrap_or(u32::MAX);
            let view = Packet { head, cap_len, wire_len: shown.wire_len };
            // The view is complete, so the filter cannot ask for more.
            if program.as_ref().is_some_and(|program| program.accepts(&view) != Ok(true)) {
                return None;
            }
        }
        self.view_buffer.get(..self.view_len)
    }

    /// The descriptor of the last view. Fields that do not depend on the bytes are those of `original`.
    pub(crate) fn describe(&self, original: &Descriptor) -> Descriptor {
        let shown = self.view_buffer.get(..self.view_len).unwrap_or_default();
        self.list.last().map_or_else(Descriptor::default, |stage| stage.transform.describe(shown, original))
    }
}
