//! Where results go: records to their files and the report, packets to the output capture or another interface, log lines to the operator.
//!
//! Blocks come in order, and what several instances of a module emitted is put into one order before anything else sees it.

use super::forward::Forwarder;
use super::outputs::Outputs;
use super::work::{BlockTask, InstanceOutput, WorkInput};
use std::io::Write;
use std::sync::Arc;
use std::time::Instant;
use weir_abi::BATCH_PACKETS;
use weir_datapath::effects::Patches;
use weir_datapath::egress::{Copies, Egress, FileEnd};
use weir_netio::{Block, PacketWriter, WriteError};
use weir_records::{Durability, FLUSH, ModuleFiles, RecordsError};
use weir_report::RunReport;
use weir_session::{Record, Records};
use weir_units::Timestamp;

/// Why results could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// Records.
    #[error("{0} (the folder is that of --out)")]
    Records(#[from] RecordsError),
    /// Packets.
    #[error(transparent)]
    Packets(#[from] WriteError),
}

/// Where one module's results go.
#[derive(Debug)]
pub struct ResultSink {
    /// What it is called in this run.
    pub label: String,
    /// Its records.
    pub files: ModuleFiles,
    /// The frames that it sends.
    pub outputs: Outputs,
    /// Its instances' places among all.
    pub instances: std::ops::Range<usize>,
    /// Its number in the report.
    pub in_report: usize,
    /// Whether it may have several instances: then rows that are not a packet's have no order of their own.
    pub is_parallel: bool,
}

/// Where results go.
#[derive(Debug)]
pub struct Collector {
    /// In the order of the command line, which is the order of patches.
    pub sinks: Vec<ResultSink>,
    /// Where packets go.
    pub ways: OutputHandles,
    /// The report.
    pub report: Option<RunReport>,
    /// Patches that could not be made to packets that went on.
    pub unpatched: u64,
    /// The time of the last packet, or what the clock said since.
    now: Timestamp,
    /// When rows were last brought to their logs, where they have to survive crashes.
    flushed: Option<Instant>,
    failed: bool,
}

impl Collector {
    /// Collects into these.
    pub fn new(
        sinks: Vec<ResultSink>,
        ways: OutputHandles,
        report: Option<RunReport>,
        durability: Durability,
    ) -> Self {
        let flushed = (durability == Durability::Seconds).then(Instant::now);
        Self { sinks, ways, report, unpatched: 0, now: Timestamp(0), flushed, failed: false }
    }

    /// Takes what the instances made of a block. After an error nothing more is written, so that what was written stays.
    pub fn collect(&mut self, work: &BlockTask) -> Result<(), CollectError> {
        let outputs = work.take();
        self.log(&outputs);
        if self.failed {
            return Ok(());
        }
        let result = self.write(work, &outputs).and_then(|()| self.flush());
        self.failed = result.is_err();
        result
    }

    fn write(&mut self, work: &BlockTask, outputs: &[InstanceOutput]) -> Result<(), CollectError> {
        match &work.matter {
            WorkInput::Block(block) => {
                let last = block.descriptors().last().map(|last| Timestamp(last.ts_ns));
                self.now = last.map_or(self.now, |last| self.now.max(last));
            }
            WorkInput::Quiet(at) => self.now = self.now.max(at.wall),
            WorkInput::End => {}
        }
        for sink in &mut self.sinks {
            let outputs = &outputs[sink.instances.clone()];
            for record in in_order(outputs, sink.is_parallel, |output| &output.records) {
                sink.files.write(&record)?;
                if let Some(report) = &mut self.report {
                    report.record(sink.in_report, &record);
                }
            }
            for frame in in_order(outputs, sink.is_parallel, |output| &output.frames) {
                let at = work.block().and_then(|block| block.descriptors().get(frame.order.index()));
                let ts = at.map_or(self.now, |packet| Timestamp(packet.ts_ns));
                sink.outputs.take(&frame, ts, self.ways.forwarder.as_ref());
            }
            sink.outputs.check()?;
        }
        if let Some(block) = work.block() {
            if let Some(report) = &mut self.report {
                for descriptor in block.descriptors() {
                    report.traffic(Timestamp(descriptor.ts_ns), 1, u64::from(descriptor.wire_len));
                }
            }
            self.unpatched += self.ways.pass(block, outputs)?;
        }
        Ok(())
    }

    /// Brings rows to their logs where that is due.
    fn flush(&mut self) -> Result<(), CollectError> {
        if let Some(flushed) = self.flushed.as_mut().filter(|flushed| flushed.elapsed() >= FLUSH) {
            *flushed = Instant::now();
            self.sinks.iter_mut().try_for_each(|sink| sink.files.flush())?;
        }
        Ok(())
    }

    fn log(&self, outputs: &[InstanceOutput]) {
        for sink in &self.sinks {
            for line in outputs[sink.instances.clone()].iter().flat_map(|output| &output.log) {
                let level = ["error", "warning", "info"][usize::from(line.level.min(2))];
                // A closed standard error must not end the run.
                let _ = writeln!(std::io::stderr(), "weir: {} {level}: {}", sink.label, line.text);
            }
        }
    }
}

/// The records, or frames, of a module's instances in one order, that of the packets; rows of ticks by their bytes, because instances have no order.
fn in_order(
    outputs: &[InstanceOutput],
    is_parallel: bool,
    of: fn(&InstanceOutput) -> &Records,
) -> Vec<Record<'_>> {
    if outputs.iter().all(|output| of(output).is_empty()) {
        return Vec::new();
    }
    let mut records: Vec<Record<'_>> =
        outputs.iter().filter(|output| output.part == 0).flat_map(|output| of(output).iter()).collect();
    let others = outputs.iter().filter(|output| output.part != 0);
    records.extend(others.flat_map(|output| of(output).iter()));
    if is_parallel {
        records.sort_by(|a, b| {
            let periodic = |record: &Record<'_>| !record.order.is_packet();
            a.order.cmp(&b.order).then_with(|| {
                if periodic(a) {
                    (a.stream, a.row, a.tail).cmp(&(b.stream, b.row, b.tail))
                } else {
                    std::cmp::Ordering::Equal
                }
            })
        });
    }
    records
}

/// Where packets go that no module dropped.
#[derive(Debug, Default)]
pub struct OutputHandles {
    /// The output capture.
    pub file: Option<Arc<FileEnd>>,
    /// Another interface.
    pub forwarder: Option<Forwarder>,
    /// Both of them, as far as they are there.
    all: Vec<Egress>,
    copies: Copies,
}

impl OutputHandles {
    /// These.
    pub fn new(writer: Option<PacketWriter>, forwarder: Option<Forwarder>) -> Self {
        let file = writer.map(|writer| Arc::new(FileEnd::new(writer)));
        let link = forwarder.as_ref().map(|forwarder| forwarder.egress().clone());
        let all = link.into_iter().chain(file.clone().map(Egress::File)).collect();
        Self { file, forwarder, all, copies: Copies::default() }
    }

    /// Has the packets go that no module dropped, with every module's patches, those of later modules last. Returns how many patches could
    /// not be made to them.
    fn pass(&mut self, block: &Block, outputs: &[InstanceOutput]) -> Result<u64, CollectError> {
        if self.all.is_empty() {
            return Ok(0);
        }
        // For one packet in the order of the modules, and in each module's own.
        let mut patches = Patches::new(outputs.iter().flat_map(|output| &output.patches));
        // Of packets that a module was not shown, because their bytes are lost, it has not said that they may go on.
        let seen = outputs.iter().filter_map(|output| output.seen).min().unwrap_or(block.len());
        let mut unmade = 0;
        for (number, batch) in block.batches().enumerate().take_while(|(_, batch)| batch.first < seen) {
            let drops = outputs.iter().filter_map(|output| output.drops.get(number));
            let dropped = drops.fold(0, |all, drops| all | drops);
            let shown = u64::MAX >> BATCH_PACKETS.saturating_sub(seen - batch.first);
            let mask = batch.mask & shown & !dropped;
            unmade += self.copies.pass(&self.all, block, number, mask, &mut patches);
        }
        if let Some(file) = &self.file {
            file.check()?;
        }
        Ok(unmade)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_session::RecordOrder;

    fn output(part: u64, rows: &[(RecordOrder, u8)]) -> InstanceOutput {
        let mut records = Records::default();
        for (order, row) in rows {
            records.begin(*order, 0, &[*row]);
        }
        InstanceOutput { records, part, ..InstanceOutput::default() }
    }

    #[test]
    fn one_instance_and_two_give_the_same_order() {
        let (tick, packet) = (RecordOrder::tick, RecordOrder::packet);
        let one = [output(
            0,
            &[(tick(0), 9), (tick(0), 3), (packet(0), 5), (packet(0), 4), (packet(1), 1), (packet(2), 0)],
        )];
        let two = [
            output(0, &[(tick(0), 9), (packet(1), 1)]),
            output(1, &[(tick(0), 3), (packet(0), 5), (packet(0), 4), (packet(2), 0)]),
        ];
        let rows = |outputs: &[InstanceOutput]| {
            in_order(outputs, true, |o| &o.records).iter().map(|r| r.row[0]).collect::<Vec<_>>()
        };
        assert_eq!(rows(&one), [3, 9, 5, 4, 1, 0]);
        assert_eq!(rows(&one), rows(&two));
    }
}
