//! Collects results: records for files and the report, packets for the output capture or another interface, and log lines.
//!
//! Blocks are collected in order. The records of a module's instances are merged into one order first.

use super::block_task::{BlockTask, InstanceOutput, WorkInput};
use super::capture_file::CaptureFile;
use super::forward::Forwarder;
use super::outputs::Outputs;
use crate::output::exports::{ExportOutputs, ExportsError};
use crate::output::record_files::RecordFiles;
use crate::output::rows::RowOutput;
use std::io::Write;
use std::time::Instant;
use weir_abi::BATCH_PACKETS;
use weir_datapath::effects::Patches;
use weir_datapath::egress::{CopyBuffers, Egress};
use weir_netio::{Block, WriteError};
use weir_records::{Durability, FLUSH, RecordsError};
use weir_report::RunReport;
use weir_session::{Record, Records};
use weir_units::Timestamp;

/// Errors of writing results.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// Records cannot be written.
    #[error("{0} (the folder is that of --out)")]
    Records(#[from] RecordsError),
    /// Rows in another format cannot be written.
    #[error(transparent)]
    Exports(#[from] ExportsError),
    /// Packets cannot be written.
    #[error(transparent)]
    Packets(#[from] WriteError),
    /// Rows cannot be written to standard output.
    #[error("standard output: {0}")]
    Rows(std::io::Error),
}

/// The destinations of one module's results.
#[derive(Debug)]
pub struct ResultSink {
    /// The module's label in this run.
    pub label: String,
    /// The files of its records.
    pub files: RecordFiles,
    /// The outputs of its frames.
    pub outputs: Outputs,
    /// The indices of its instances among all.
    pub instances: std::ops::Range<usize>,
    /// The index of the module in the report.
    pub in_report: usize,
    /// True once the module has changed or dropped a packet.
    pub has_changed_packets: bool,
    /// True if the module may have several instances, whose rows without a packet have no order of their own.
    pub is_parallel: bool,
}

/// Writes the results of all modules.
#[derive(Debug)]
pub struct Collector {
    /// The destinations for each module, in the order of the command line, which is the order of patches.
    pub sinks: Vec<ResultSink>,
    /// The destinations of packets.
    pub packet_outputs: PacketOutputs,
    /// The report, of which only the overview is used if no page is written.
    pub report: RunReport,
    /// The rows on standard output.
    pub rows: RowOutput,
    /// The rows in the formats of other tools.
    pub exports: ExportOutputs,
    /// Patches that could not be applied to packets that were written.
    pub unpatched: u64,
    /// The time of the last packet or clock reading.
    pub now: Timestamp,
    /// The last flush of the results, if they must survive crashes.
    flushed: Option<Instant>,
    failed: bool,
    /// The first bytes of a packet, for the report.
    head: Vec<u8>,
}

impl Collector {
    /// Creates a collector with these destinations.
    pub fn new(
        sinks: Vec<ResultSink>,
        packet_outputs: PacketOutputs,
        report: RunReport,
        rows: RowOutput,
        exports: ExportOutputs,
        durability: Durability,
    ) -> Self {
        let flushed = (durability == Durability::Seconds).then(Instant::now);
        Self {
            sinks,
            packet_outputs,
            report,
            rows,
            exports,
            unpatched: 0,
            now: Timestamp(0),
            flushed,
            failed: false,
            head: Vec::new(),
        }
    }

    /// Writes the output of a finished task. After an error, nothing more is written, so that the files stay consistent.
    pub fn collect(&mut self, task: &BlockTask) -> Result<(), CollectError> {
        let outputs = task.take_outputs();
        self.log(&outputs);
        if self.failed {
            return Ok(());
        }
        let result = self.write(task, &outputs).and_then(|()| self.flush());
        self.failed = result.is_err();
        result
    }

    fn write(&mut self, task: &BlockTask, outputs: &[InstanceOutput]) -> Result<(), CollectError> {
        match &task.input {
            WorkInput::Block(block) => {
                let last = block.descriptors().last().map(|last| Timestamp(last.ts_ns));
                self.now = last.map_or(self.now, |last| self.now.max(last));
            }
            WorkInput::Clock(at) => self.now = self.now.max(at.wall),
            WorkInput::End => {}
        }
        for (module, sink) in self.sinks.iter_mut().enumerate() {
            let outputs = &outputs[sink.instances.clone()];
            let has_changed = |output: &InstanceOutput| {
                !output.patches.is_empty() || output.drops.iter().any(|mask| *mask != 0)
            };
            sink.has_changed_packets |= outputs.iter().any(has_changed);
            for record in in_order(outputs, sink.is_parallel, |output| &output.records) {
                sink.files.write(&record)?;
                self.exports.push(module, &record, self.now)?;
                self.report.add_record(sink.in_report, &record);
                self.rows.push(module, &record);
            }
            for frame in in_order(outputs, sink.is_parallel, |output| &output.frames) {
                let packet = task.block().and_then(|block| block.descriptors().get(frame.order.index()));
                let ts = packet.map_or(self.now, |packet| Timestamp(packet.ts_ns));
                sink.files.count(&frame);
                sink.outputs.send(&frame, ts, self.packet_outputs.forwarder.as_ref());
            }
            sink.outputs.check()?;
        }
        self.rows.flush().map_err(CollectError::Rows)?;
        if let Some(block) = task.block() {
            if self.report.has_page() {
                // Bytes that a file has lost while it was read would be zeros.
                let intact = block.descriptors().iter().enumerate().take(block.intact());
                for (index, descriptor) in intact.skip(block.lead()) {
                    block.copy_head(index, RunReport::head_bytes(descriptor), &mut self.head);
                    self.report.add_packet(descriptor, &self.head);
                }
            }
            self.unpatched += self.packet_outputs.send(block, outputs)?;
        }
        Ok(())
    }

    /// Writes gathered results, and rotates the files, if it is due.
    fn flush(&mut self) -> Result<(), CollectError> {
        let Some(flushed) = self.flushed.as_mut().filter(|flushed| flushed.elapsed() >= FLUSH) else {
            return Ok(());
        };
        *flushed = Instant::now();
        for sink in &mut self.sinks {
            sink.files.flush()?;
            sink.outputs.sync()?;
            if sink.files.is_full() {
                sink.files.rotate()?;
                sink.outputs.rotate(sink.files.dir(), &sink.files.folder())?;
            }
        }
        self.exports.flush(self.now)?;
        if let Some(file) = &mut self.packet_outputs.file {
            file.sync()?;
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

/// Merges the records or frames of a module's instances, in the order of the packets. If the module is parallel, rows of one tick are
/// ordered by their bytes, because its instances have no order.
fn in_order(
    outputs: &[InstanceOutput],
    is_parallel: bool,
    records_of: fn(&InstanceOutput) -> &Records,
) -> Vec<Record<'_>> {
    if outputs.iter().all(|output| records_of(output).is_empty()) {
        return Vec::new();
    }
    let mut records: Vec<Record<'_>> = outputs
        .iter()
        .filter(|output| output.part == 0)
        .flat_map(|output| records_of(output).iter())
        .collect();
    let others = outputs.iter().filter(|output| output.part != 0);
    records.extend(others.flat_map(|output| records_of(output).iter()));
    if is_parallel {
        records.sort_by(|a, b| {
            let has_no_packet = |record: &Record<'_>| !record.order.is_packet();
            a.order.cmp(&b.order).then_with(|| {
                if has_no_packet(a) {
                    (a.stream, a.row, a.tail).cmp(&(b.stream, b.row, b.tail))
                } else {
                    std::cmp::Ordering::Equal
                }
            })
        });
    }
    records
}

/// The destinations of packets that no module dropped.
#[derive(Debug, Default)]
pub struct PacketOutputs {
    /// The output capture.
    pub file: Option<CaptureFile>,
    /// The forwarder to another interface.
    pub forwarder: Option<Forwarder>,
    /// The egresses of both.
    all: Vec<Egress>,
    copies: CopyBuffers,
}

impl PacketOutputs {
    /// Creates the egresses of a capture and a forwarder.
    pub fn new(file: Option<CaptureFile>, forwarder: Option<Forwarder>) -> Self {
        let link = forwarder.as_ref().map(|forwarder| forwarder.egress().clone());
        let all = link.into_iter().chain(file.as_ref().map(CaptureFile::egress)).collect();
        Self { file, forwarder, all, copies: CopyBuffers::default() }
    }

    /// Sends the packets that no module dropped, with the patches of all modules, applied in the order of the modules. Returns the number
    /// of patches that could not be applied.
    fn send(&mut self, block: &Block, outputs: &[InstanceOutput]) -> Result<u64, CollectError> {
        if self.all.is_empty() {
            return Ok(0);
        }
        // Patches of one packet keep the order of the modules, and each module's own order.
        let mut patches = Patches::new(outputs.iter().flat_map(|output| &output.patches));
        // Packets that some module did not process, because their bytes are lost, have no verdict and are not sent.
        let processed = outputs.iter().filter_map(|output| output.seen).min().unwrap_or(block.len());
        let mut unapplied = 0;
        for (number, batch) in block.batches().enumerate().take_while(|(_, batch)| batch.first < processed) {
            let drops = outputs.iter().filter_map(|output| output.drops.get(number));
            let dropped = drops.fold(0, |all, drops| all | drops);
            let processed_mask = u64::MAX >> BATCH_PACKETS.saturating_sub(processed - batch.first);
            let mask = batch.mask & processed_mask & !dropped;
            unapplied += self.copies.forward(&self.all, block, number, mask, &mut patches);
        }
        if let Some(file) = &mut self.file {
            file.check()?;
        }
        Ok(unapplied)
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
    fn one_instance_and_two_instances_give_the_same_record_order() {
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
