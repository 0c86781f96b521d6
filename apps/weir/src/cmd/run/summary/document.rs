//! The summary of a run as a JSON document, which docs/reference/summary.schema.json describes.

use super::overview_document::{OverviewDocument, overview_document};
use super::{ModuleSummary, RunSummary, WrittenCapture};
use crate::cmd::run::outputs::OutputSent;
use crate::cmd::run::shard::PacketFault;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use weir_netio::WriteSummary;

/// The version of the JSON document, which docs/reference/summary.schema.json describes. A field that is removed or changes its meaning
/// raises it; a new field does not.
const SCHEMA_VERSION: u32 = 2;

#[derive(Serialize)]
struct Document<'a> {
    schema_version: u32,
    weir_version: &'static str,
    /// The error that ended the run early.
    failure: Option<&'a str>,
    capture: CaptureDocument,
    #[serde(skip_serializing_if = "Option::is_none")]
    interface: Option<InterfaceDocument<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sent: Option<SentDocument<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    written: Option<WrittenDocument>,
    #[serde(skip_serializing_if = "Option::is_none")]
    collector: Option<CollectorDocument>,
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<String>,
    /// The file of this document.
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failed_files: Vec<FailedFileDocument<'a>>,
    /// Absent if no module of the run feeds the overview.
    #[serde(skip_serializing_if = "Option::is_none")]
    overview: Option<OverviewDocument<'a>>,
    modules: Vec<ModuleDocument<'a>>,
}

#[derive(Serialize)]
struct CaptureDocument {
    /// The files that were read; empty for an interface.
    files: Vec<String>,
    packets: u64,
    bytes: u64,
    duration_ns: u64,
    truncated: bool,
    interrupted: bool,
    /// Packets that the filter selected.
    #[serde(skip_serializing_if = "Option::is_none")]
    selected: Option<u64>,
    tcp: u64,
    udp: u64,
    ipv6: u64,
    tcp_syn: u64,
}

/// Losses in the kernel, before weir received the packets.
#[derive(Serialize)]
struct InterfaceDocument<'a> {
    name: &'a str,
    lost_ring_full: u64,
    lost_invalid: u64,
    freezes: u64,
}

#[derive(Serialize)]
struct SentDocument<'a> {
    interface: &'a str,
    packets: u64,
    bytes: u64,
    lost: BTreeMap<&'static str, u64>,
}

/// The output capture of `-w`.
#[derive(Serialize)]
struct WrittenDocument {
    path: String,
    packets: u64,
    bytes: u64,
    times_out_of_range: u64,
    files: Vec<WrittenFileDocument>,
}

/// A file of the output capture.
#[derive(Serialize)]
struct WrittenFileDocument {
    path: String,
    packets: u64,
    bytes: u64,
}

/// The collector of `--collector`.
#[derive(Serialize)]
struct CollectorDocument {
    address: String,
    records: u64,
    lost: u64,
    refused_datagrams: u64,
    cut_texts: u64,
}

#[derive(Serialize)]
struct FailedFileDocument<'a> {
    path: String,
    error: &'a str,
}

#[derive(Serialize)]
struct ModuleDocument<'a> {
    name: &'a str,
    tier: &'static str,
    tier_reason: Option<&'a str>,
    /// The back end at the end of the run: the compiler of the module's code.
    back_end: String,
    packets: u64,
    records: u64,
    dropped_records: u64,
    faults: u64,
    /// The first faults of each instance of the module, in the order of the packets.
    first_faults: Vec<FaultDocument>,
    lost_packets: u64,
    exceeded: u64,
    strikes: u64,
    ns_per_packet: Option<f64>,
    cycles_per_packet: Option<f64>,
    memory_bytes: u64,
    ended: bool,
    streams: Vec<StreamDocument<'a>>,
    /// Absent if the module follows no TCP streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp_streams: Option<BTreeMap<&'static str, u64>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    outputs: Vec<OutputDocument<'a>>,
    /// Absent if the module has no outputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped_frames: Option<u64>,
}

#[derive(Serialize)]
struct FaultDocument {
    /// The number of the packet in the capture, from 1 as in Wireshark, for a fault while handling one.
    packet: Option<u64>,
    message: String,
}

#[derive(Serialize)]
struct OutputDocument<'a> {
    name: &'a str,
    frames: u64,
    bytes: u64,
    times_out_of_range: u64,
    path: Option<String>,
    interface: Option<&'a str>,
}

#[derive(Serialize)]
struct StreamDocument<'a> {
    name: &'a str,
    rows: u64,
    times_out_of_range: u64,
    path: Option<String>,
}

impl RunSummary {
    /// Returns the summary as a JSON document.
    pub fn json(&self) -> String {
        let totals = &self.totals;
        let document = Document {
            schema_version: SCHEMA_VERSION,
            weir_version: env!("CARGO_PKG_VERSION"),
            failure: self.failure.as_deref(),
            capture: CaptureDocument {
                files: self.captures.iter().map(|path| path.to_string_lossy().into_owned()).collect(),
                packets: totals.packets,
                bytes: totals.bytes.0,
                duration_ns: self.duration().0,
                truncated: self.truncation().is_some() || !self.truncated_captures.is_empty(),
                interrupted: self.is_interrupted,
                selected: self.selected,
                tcp: totals.tcp,
                udp: totals.udp,
                ipv6: totals.ipv6,
                tcp_syn: totals.tcp_syn,
            },
            interface: self.live.as_ref().map(|live| InterfaceDocument {
                name: &self.name,
                lost_ring_full: live.drops.ring_full,
                lost_invalid: live.drops.invalid,
                freezes: live.drops.freezes,
            }),
            sent: self.forwarded.as_ref().map(|forwarded| SentDocument {
                interface: &forwarded.interface,
                packets: forwarded.packets,
                bytes: forwarded.bytes.0,
                lost: forwarded.lost.into_iter().collect(),
            }),
            written: self.written.as_ref().map(written_document),
            collector: self.collector.as_ref().map(|(address, totals)| CollectorDocument {
                address: address.to_string(),
                records: totals.sent,
                lost: totals.lost,
                refused_datagrams: totals.refused,
                cut_texts: totals.cut,
            }),
            report: self.report.as_deref().map(path_text),
            summary: self.summary.as_deref().map(path_text),
            failed_files: self
                .failed_files
                .iter()
                .map(|file| FailedFileDocument { path: path_text(&file.path), error: &file.error })
                .collect(),
            overview: self.overview.as_ref().map(overview_document),
            modules: self.modules.iter().map(ModuleSummary::document).collect(),
        };
        crate::json::document_text(&document)
    }
}

impl ModuleSummary {
    fn document(&self) -> ModuleDocument<'_> {
        let streams = self.streams.iter().map(|stream| StreamDocument {
            name: stream.name.as_str(),
            rows: stream.rows,
            times_out_of_range: stream.late,
            path: stream.path.as_ref().map(|path| path.to_string_lossy().into_owned()),
        });
        ModuleDocument {
            name: &self.name,
            tier: self.tier.name(),
            tier_reason: self.why.as_deref(),
            back_end: self.back_end.to_string(),
            packets: self.packets,
            records: self.records(),
            dropped_records: self.dropped_records,
            faults: self.faults,
            first_faults: self.first_faults.iter().map(fault_document).collect(),
            lost_packets: self.lost,
            exceeded: self.exceeded,
            strikes: self.strikes,
            ns_per_packet: self.ns_per_packet(),
            cycles_per_packet: self.cycles_per_packet(),
            memory_bytes: self.memory.0,
            ended: self.ended,
            streams: streams.collect(),
            tcp_streams: self.tcp_streams.map(|counters| counters.named().collect()),
            outputs: self.outputs.iter().map(output_document).collect(),
            dropped_frames: (!self.outputs.is_empty()).then_some(self.dropped_frames),
        }
    }
}

fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn written_document(written: &WrittenCapture) -> WrittenDocument {
    let file = |file: &WriteSummary| WrittenFileDocument {
        path: path_text(&file.path),
        packets: file.packets,
        bytes: file.bytes.0,
    };
    WrittenDocument {
        path: path_text(written.present_path()),
        packets: written.sum(|file| file.packets),
        bytes: written.sum(|file| file.bytes.0),
        times_out_of_range: written.sum(|file| file.late),
        files: written.files.iter().map(file).collect(),
    }
}

fn fault_document(fault: &PacketFault) -> FaultDocument {
    FaultDocument { packet: fault.packet, message: fault.to_string() }
}

fn output_document(sent: &OutputSent) -> OutputDocument<'_> {
    OutputDocument {
        name: sent.name.as_str(),
        frames: sent.frames,
        bytes: sent.bytes.0,
        times_out_of_range: sent.late,
        path: sent.path.as_ref().map(|path| path.to_string_lossy().into_owned()),
        interface: sent.interface.as_deref(),
    }
}
