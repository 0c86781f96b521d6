//! A capture in memory, and runs of graphs over it.

use crate::error::{Context, LabError};
use crate::statistics::{processor_time, to_f64};
use std::path::Path;
use std::rc::Rc;
use weir_elements::AllElements;
use weir_graph::engine::{
    BlockPacket, CaptureReader, CaptureWriter, CapturedBlock, GraphClock, NoFiles, Router, RunOptions,
    SourceBlock, System, TextOutput,
};
use weir_graph::language::{ConfigurationSource, parse};
use weir_graph_io::SystemClock;
use weir_units::Timestamp;

/// The bytes of the head of a capture file, and of each record in it.
const FILE_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;

/// The packets of a pcap file, in memory.
#[derive(Clone)]
pub struct MemoryCapture {
    bytes: Rc<SourceBlock>,
    packets: Rc<Vec<BlockPacket>>,
}

impl MemoryCapture {
    /// Reads a file in the byte order of this processor.
    pub fn read(path: &Path) -> Result<Self, LabError> {
        let file = std::fs::read(path).map_err(LabError::file(path))?;
        let mut packets = Vec::new();
        let mut at = FILE_HEADER;
        while let Some(length) = file.get(at + 8..at + 12).and_then(|bytes| bytes.try_into().ok()) {
            let length = u32::from_le_bytes(length);
            let start = u32::try_from(at + RECORD_HEADER).context(path.display())?;
            let end = start.saturating_add(length);
            if end as usize > file.len() {
                break;
            }
            packets.push(BlockPacket { start, end, wire_length: length, link_type: 1, time: Timestamp(0) });
            at = end as usize;
        }
        Ok(Self { bytes: Rc::new(file.into()), packets: Rc::new(packets) })
    }

    /// The number of packets.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// The bytes of each packet.
    pub fn frames(&self) -> impl Iterator<Item = &[u8]> {
        self.packets.iter().map(|it| &self.bytes.bytes()[it.start as usize..it.end as usize])
    }
}

/// The packets of a block that a graph gets.
const BLOCK_PACKETS: usize = 1024;

/// A reader that goes through a capture several times.
struct MemoryReader {
    capture: MemoryCapture,
    next: usize,
    passes: usize,
}

impl CaptureReader for MemoryReader {
    fn next_block(&mut self, block: &mut CapturedBlock) -> Result<(), String> {
        block.packets.clear();
        if self.passes > 0 {
            let end = (self.next + BLOCK_PACKETS).min(self.capture.len());
            block.packets.extend(&self.capture.packets[self.next..end]);
            block.source = Some(Rc::clone(&self.capture.bytes));
            let is_end = end == self.capture.len();
            self.passes -= usize::from(is_end);
            self.next = if is_end { 0 } else { end };
        }
        Ok(())
    }
}

struct MemorySystem {
    capture: MemoryCapture,
    passes: usize,
}

impl System for MemorySystem {
    fn open_capture(&mut self, _: &str) -> Result<Box<dyn CaptureReader>, String> {
        Ok(Box::new(MemoryReader { capture: self.capture.clone(), next: 0, passes: self.passes }))
    }

    fn create_capture(&mut self, _: &str, _: u32, _: u32) -> Result<Box<dyn CaptureWriter>, String> {
        Ok(Box::new(NoFiles))
    }

    fn read_file(&mut self, name: &str) -> Result<Vec<u8>, String> {
        Err(format!("{name}: there are no files"))
    }

    fn write_text(&mut self, _: TextOutput, text: &str) {
        eprint!("{text}");
    }
}

/// A graph that is measured.
pub struct MeasuredGraph {
    /// The configuration. Its source is `FromDump(in)`.
    pub text: String,
    /// The write handlers that are called before the run.
    pub writes: Vec<String>,
    /// The read handlers of counts.
    pub counts: Vec<&'static str>,
    /// The most packets that go through an element before the next.
    pub batch: usize,
}

impl MeasuredGraph {
    /// A graph with the default number of packets in a batch.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), writes: Vec::new(), counts: Vec::new(), batch: RunOptions::default().batch }
    }

    /// Makes the graph on a system.
    pub fn build(&self, system: Box<dyn System>) -> Result<Router, LabError> {
        let source = ConfigurationSource { name: "graph", bytes: self.text.as_bytes() };
        let flat = parse(&source, &[], &AllElements).context("a graph")?;
        let options = RunOptions { batch: self.batch, quantum: self.batch.max(1), ..RunOptions::default() };
        // In simulated time, tasks alternate packet by packet.
        let mut clock = Box::<SystemClock>::default();
        // Write handlers get the time of their call, and what they set does not expire at once.
        clock.now();
        let mut router = Router::new(flat, &AllElements, system, clock, options).map_err(|errors| {
            LabError::failed("a graph", errors.iter().map(|it| format!("{it}\n")).collect::<String>())
        })?;
        for call in &self.writes {
            router.write_handler(call).context(call)?;
        }
        Ok(router)
    }

    /// The processor time of a packet in nanoseconds, over this number of passes, and the counts.
    pub fn run(&self, capture: &MemoryCapture, passes: usize) -> Result<(f64, Vec<u64>), LabError> {
        let system = MemorySystem { capture: capture.clone(), passes };
        let mut router = self.build(Box::new(system))?;
        let time = processor_time(|| router.run());
        let counts = self.counts.iter().map(|handler| {
            let value = router.read_handler(handler).context(handler)?;
            value.trim().parse::<u64>().context(handler)
        });
        let counts = counts.collect::<Result<_, LabError>>()?;
        Ok((time.as_secs_f64() * 1e9 / to_f64(passes * capture.len().max(1)), counts))
    }
}
