//! The summary of a run: a table for people, a JSON document for programs, and the input of the report.

use super::forward::Forwarded;
use super::outputs::OutputSent;
use super::shard::{PacketFault, Shard};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use weir_admission::{Admitted, Tier};
use weir_netio::{EndReason, LiveTotals, Totals, WriteSummary};
use weir_records::StreamRows;
use weir_report::{CaptureInfo, RunModuleInfo, StreamInfo};
use weir_sandbox::{During, Instance};
use weir_units::{Bytes, Escape as _, Nanos};

/// Maximum number of faults described for each module; further ones are counted.
const FAULTS_SHOWN: usize = 3;

/// The headings of the table. The first [`COLUMNS_LEFT`] columns hold words, the others numbers.
const HEADINGS: [&str; 9] =
    ["MODULE", "TIER", "PACKETS", "RECORDS", "NOT TAKEN", "FAULTS", "NS/PACKET", "CYCLES/PACKET", "MEMORY"];
const COLUMNS_LEFT: usize = 2;

/// The end of a warning about packets whose time classic pcap cannot hold.
const LATE_IN_PCAP: &str =
    "are later than 2106-02-07, and have the last time that a pcap file can hold instead";

/// The results of a finished run.
#[derive(Debug)]
pub struct RunSummary {
    /// The capture or interface, as on the command line.
    pub name: String,
    /// The captures that were read; empty for an interface.
    pub captures: Vec<PathBuf>,
    /// The truncated ones of several captures, each with the place and the reason.
    pub truncated_captures: Vec<String>,
    /// The filter expression.
    pub filter: Option<String>,
    /// The number of packets that the filter selected; `None` without a filter.
    pub selected: Option<u64>,
    /// The packets read.
    pub totals: Totals,
    /// Packets that all modules processed, if the capture lost bytes during the run.
    pub processed: Option<u64>,
    /// The losses of an interface.
    pub live: Option<LiveTotals>,
    /// The statistics of forwarded packets.
    pub forwarded: Option<Forwarded>,
    /// The results of the modules.
    pub modules: Vec<ModuleSummary>,
    /// The time that the run took.
    pub elapsed: Nanos,
    /// The number of threads.
    pub jobs: usize,
    /// The output capture of `-w`.
    pub written: Option<(PathBuf, WriteSummary)>,
    /// Patches that could not be applied to packets that were written.
    pub unpatched: u64,
    /// True if a signal left a part of the capture unread.
    pub is_interrupted: bool,
    /// The error that ended the run early.
    pub failure: Option<String>,
    /// The report, once it is written.
    pub report: Option<PathBuf>,
}

/// The results of a module.
#[derive(Debug)]
pub struct ModuleSummary {
    name: String,
    version: String,
    summary: String,
    parameters: Vec<(String, String)>,
    packets: u64,
    /// Packets lost for this module only.
    lost: u64,
    faults: u64,
    dropped_records: u64,
    dropped_frames: u64,
    log_dropped: u64,
    /// Calls that exceeded their limit.
    exceeded: u64,
    strikes: u64,
    memory: Bytes,
    time: Nanos,
    nanos_per_cycle: f64,
    ended: bool,
    /// True for a filter that has changed and dropped no packet of those that are written or sent.
    pub without_effect: bool,
    tier: Tier,
    /// A short reason why the module is not proved.
    why: Option<String>,
    first_faults: Vec<PacketFault>,
    /// Packets processed before the module read zeros in place of lost bytes.
    packets_before_zeros: Option<u64>,
    streams: Vec<StreamRows>,
    outputs: Vec<OutputSent>,
}

/// The version of the JSON document, which docs/reference/summary.schema.json describes. A field that is removed or changes its meaning
/// raises it; a new field does not.
const SCHEMA_VERSION: u32 = 1;

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
    report: Option<String>,
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
}

#[derive(Serialize)]
struct ModuleDocument<'a> {
    name: &'a str,
    tier: &'static str,
    tier_reason: Option<&'a str>,
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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    outputs: Vec<OutputDocument<'a>>,
    /// Absent if the module has no outputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped_frames: Option<u64>,
}

#[derive(Serialize)]
struct FaultDocument {
    /// The number of the packet, for a fault while handling one.
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

impl ModuleSummary {
    /// Adds up the results of a module's instances.
    pub fn new(
        name: String,
        admitted: &Admitted,
        shards: &[Shard],
        (streams, outputs): (Vec<StreamRows>, Vec<OutputSent>),
        nanos_per_cycle: f64,
    ) -> Self {
        let manifest = admitted.manifest();
        let counters = || shards.iter().map(|shard| shard.instance().counters());
        let mut first_faults: Vec<PacketFault> =
            shards.iter().flat_map(|shard| shard.first_faults.iter().cloned()).collect();
        first_faults.sort_by_key(|fault| fault.packet);
        let parameters = manifest.parameters.iter().zip(admitted.values());
        Self {
            name,
            version: manifest.version.clone(),
            summary: manifest.summary.clone(),
            parameters: parameters.map(|(p, value)| (p.name.to_string(), value.to_string())).collect(),
            packets: counters().map(|c| c.packets).sum(),
            lost: counters().map(|c| c.lost).sum(),
            faults: counters().map(|c| c.faults).sum(),
            dropped_records: counters().map(|c| c.records_dropped).sum(),
            dropped_frames: counters().map(|c| c.frames_dropped).sum(),
            log_dropped: counters().map(|c| c.log_dropped).sum(),
            exceeded: counters().map(|c| c.exceeded).sum(),
            // The instances share one counter of strikes.
            strikes: counters().map(|c| c.strikes).max().unwrap_or(0),
            memory: Bytes(shards.iter().map(|shard| shard.instance().memory().0).sum()),
            time: Nanos(shards.iter().map(|shard| shard.time.0).sum()),
            nanos_per_cycle,
            ended: shards.iter().any(|shard| Instance::has_ended(shard.instance())),
            without_effect: false,
            tier: admitted.tier(),
            why: admitted.reason_for_tier(),
            first_faults,
            packets_before_zeros: shards
                .iter()
                .filter_map(|shard| shard.cutoff)
                .filter(|cutoff| cutoff.has_read_zeros)
                .map(|cutoff| cutoff.packets)
                .min(),
            streams,
            outputs,
        }
    }

    fn records(&self) -> u64 {
        self.streams.iter().map(|stream| stream.rows).sum()
    }

    #[expect(clippy::cast_precision_loss, reason = "a ratio for people to read")]
    fn ns_per_packet(&self) -> Option<f64> {
        (self.packets > 0).then(|| self.time.0 as f64 / self.packets as f64)
    }

    fn cycles_per_packet(&self) -> Option<f64> {
        Some(self.ns_per_packet()? / self.nanos_per_cycle)
    }

    /// Returns the module's name and the reason if it did not process all packets.
    pub fn failure(&self) -> Option<String> {
        let has_started = !self.first_faults.iter().any(|fault| fault.incident.during == During::Start);
        let why = if has_started { "was ended" } else { "did not start" };
        self.ended.then(|| format!("{} {why}", self.name))
    }

    /// Returns messages for the operator about faults, losses and limits.
    fn messages(&self) -> Vec<String> {
        let mut messages = Vec::new();
        for fault in self.first_faults.iter().take(FAULTS_SHOWN) {
            messages.push(fault.to_string());
        }
        let shown = self.first_faults.len().min(FAULTS_SHOWN) as u64;
        if self.faults > shown {
            messages.push(format!("{} further calls were lost", self.faults - shown));
        }
        if self.lost > 0 {
            messages.push(format!("{} packets were lost for this module only", self.lost));
        }
        if self.exceeded > 0 {
            messages.push(match self.tier {
                Tier::Supervised => {
                    format!("{} calls exceeded their limit, and were completed", self.exceeded)
                }
                Tier::Proved | Tier::Metered => {
                    format!("{} of the lost calls exceeded their limit", self.exceeded)
                }
            });
        }
        if let Some(packets) = self.packets_before_zeros {
            messages.push(format!(
                "it read zeros where the capture lost bytes: what it emitted after the first {packets} packets is discarded, and its stop was not called"
            ));
        }
        if self.without_effect && self.packets > 0 {
            messages.push(
                "it changed and dropped none of the packets: do its parameters fit this traffic?".to_owned(),
            );
        }
        if self.ended {
            messages.push("the module was ended and saw no further packets".to_owned());
        }
        if self.dropped_records > 0 {
            messages.push(format!("{} records were over a limit and not taken", self.dropped_records));
        }
        if self.dropped_frames > 0 {
            messages.push(format!("{} frames were over a limit and not sent", self.dropped_frames));
        }
        let is_unsent =
            |sent: &&OutputSent| sent.frames > 0 && sent.path.is_none() && sent.interface.is_none();
        let unsent: u64 = self.outputs.iter().filter(is_unsent).map(|sent| sent.frames).sum();
        if unsent > 0 {
            messages.push(format!(
                "{unsent} frames were not sent anywhere: --out DIR writes them to a capture for each output, and for an interface --send IFACE sends them"
            ));
        }
        for stream in self.streams.iter().filter(|stream| stream.late > 0) {
            let (late, name) = (stream.late, &stream.name);
            messages.push(format!(
                "{late} times in the rows of `{name}` are after 2262-04-11: the file has the last time that it can hold instead"
            ));
        }
        for sent in self.outputs.iter().filter(|sent| sent.late > 0) {
            let (late, name) = (sent.late, &sent.name);
            messages.push(format!("{late} frames of output `{name}` {LATE_IN_PCAP}"));
        }
        if self.log_dropped > 0 {
            messages.push(format!("{} log lines were over the limit and not shown", self.log_dropped));
        }
        messages
    }
}

impl RunSummary {
    /// Returns the time from the first packet of the capture to the last; 0 if the last has an earlier timestamp.
    fn duration(&self) -> Nanos {
        match (self.totals.first, self.totals.last) {
            (Some(first), Some(last)) => last.since(first),
            _ => Nanos(0),
        }
    }

    /// Describes the place at which the capture is truncated, and the packets that were processed; `None` for a whole capture.
    fn truncation(&self) -> Option<String> {
        let all_packets = self.totals.packets;
        let packets = self.processed.unwrap_or(all_packets).min(all_packets);
        match (&self.totals.truncated, self.processed) {
            (Some(cut), None) if cut.reason != EndReason::Lost => {
                Some(format!("{cut}; everything before that was processed"))
            }
            (Some(cut), _) => Some(format!("{cut}; the first {packets} packets were processed")),
            (None, Some(_)) => {
                Some(format!("it lost bytes while it was read; the first {packets} packets were processed"))
            }
            (None, None) => None,
        }
    }

    /// Returns warnings about losses and packets that could not be handled.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.is_interrupted {
            warnings.push(format!(
                "ended by a signal after {} packets; the rest of the capture was not read",
                self.totals.packets
            ));
        }
        for truncated in &self.truncated_captures {
            warnings.push(format!("{truncated}; its packets before that were processed"));
        }
        if self.selected == Some(0) && self.totals.packets > 0 && self.failure.is_none() {
            warnings.push(format!(
                "the filter `{}` selects none of the {} packets, so the modules have seen none",
                self.filter.as_deref().unwrap_or_default().escaped(),
                self.totals.packets
            ));
        }
        if self.unpatched > 0 {
            warnings.push(format!(
                "{} changes could not be applied to the written packets, because the capture changed while it was read",
                self.unpatched
            ));
        }
        if let Some(lost) = self.live.as_ref().map(|live| live.drops.packets()).filter(|lost| *lost > 0) {
            warnings.push(format!(
                "{lost} packets were lost before modules could see them; a larger --ring, more --jobs or fewer modules may help"
            ));
        }
        if let Some((path, written)) = self.written.as_ref().filter(|(_, written)| written.late > 0) {
            let (late, path) = (written.late, path.escaped());
            warnings.push(format!(
                "{late} packets in {path} {LATE_IN_PCAP}; a file with the extension .pcapng holds such times"
            ));
        }
        if let Some(forwarded) = self.forwarded.as_ref().filter(|forwarded| forwarded.lost() > 0) {
            warnings.push(format!(
                "packets for {} were lost: {}",
                forwarded.interface.escaped(),
                forwarded.losses()
            ));
            if forwarded.is_too_long() {
                warnings.push(format!(
                    "packets too long for {} were merged on receive, or not yet segmented: turn the first off with `ethtool -K {} gro off lro off`, and for packets of this machine's programs the second with `tso off gso off` on their interface",
                    forwarded.interface.escaped(),
                    self.name.escaped()
                ));
            }
        }
        if self.totals.out_of_order > 0 {
            warnings.push(format!(
                "time goes backwards {} times; ticks follow the latest time seen",
                self.totals.out_of_order
            ));
        }
        warnings
    }

    /// Prints the warnings to standard error.
    pub fn warn(&self) {
        let mut err = std::io::stderr().lock();
        for warning in self.truncation().into_iter().chain(self.warnings()) {
            let _ = writeln!(err, "weir: warning: {}: {warning}", self.name.escaped());
        }
        for module in &self.modules {
            for message in module.messages() {
                let _ = writeln!(err, "weir: warning: {}: {message}", module.name);
            }
        }
    }

    /// Prints the table, or exactly one JSON document.
    pub fn print(&self, out: &mut impl Write, json: bool) -> std::io::Result<()> {
        if json { out.write_all(self.json().as_bytes()) } else { self.print_table(out) }
    }

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
            written: self.written.as_ref().map(|(path, written)| WrittenDocument {
                path: path.to_string_lossy().into_owned(),
                packets: written.packets,
                bytes: written.bytes.0,
                times_out_of_range: written.late,
            }),
            report: self.report.as_ref().map(|path| path.to_string_lossy().into_owned()),
            modules: self.modules.iter().map(ModuleSummary::document).collect(),
        };
        crate::json::document_text(&document)
    }

    fn print_table(&self, out: &mut impl Write) -> std::io::Result<()> {
        let totals = &self.totals;
        writeln!(
            out,
            "{}: {} packets, {}, {} ({} TCP, {} UDP, {} IPv6, {} TCP SYN)",
            self.name.escaped(),
            totals.packets,
            totals.bytes,
            self.duration(),
            totals.tcp,
            totals.udp,
            totals.ipv6,
            totals.tcp_syn
        )?;
        if let Some(live) = &self.live {
            let drops = live.drops;
            writeln!(
                out,
                "lost before that: {} packets without free memory, {} invalid packets",
                drops.ring_full, drops.invalid
            )?;
        }
        let threads = if self.jobs == 1 { "thread" } else { "threads" };
        writeln!(out, "run in {} on {} {threads}\n", self.elapsed, self.jobs)?;
        let mut rows = vec![HEADINGS.map(str::to_owned)];
        for module in &self.modules {
            let ratio = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
            rows.push([
                module.name.clone(),
                module.tier.to_string(),
                module.packets.to_string(),
                module.records().to_string(),
                module.dropped_records.to_string(),
                module.faults.to_string(),
                ratio(module.ns_per_packet()),
                ratio(module.cycles_per_packet()),
                module.memory.to_string(),
            ]);
        }
        write_columns(out, &rows)?;
        for (i, (module, why)) in self.modules.iter().filter_map(|m| Some((m, m.why.as_ref()?))).enumerate() {
            let gap = if i == 0 { "\n" } else { "" };
            writeln!(out, "{gap}{} is {}: {why}", module.name, module.tier)?;
        }
        let files = self.modules.iter().flat_map(|module| &module.streams);
        let files: Vec<_> = files.filter_map(|stream| Some((stream.path.as_ref()?, stream.rows))).collect();
        if !files.is_empty() {
            writeln!(out)?;
        }
        for (path, rows) in files {
            writeln!(out, "{} ({rows} rows)", path.escaped())?;
        }
        for (i, (module, sent)) in
            self.modules.iter().flat_map(|m| m.outputs.iter().map(move |sent| (m, sent))).enumerate()
        {
            let gap = if i == 0 { "\n" } else { "" };
            let interface = sent.interface.as_ref().map(|interface| interface.escaped());
            let destination = match (&sent.path, interface) {
                (Some(path), None) => format!(" in {}", path.escaped()),
                (None, Some(interface)) => format!(" for {interface}"),
                (Some(path), Some(interface)) => format!(" for {interface}, and in {}", path.escaped()),
                (None, None) => String::new(),
            };
            let (frames, bytes) = (sent.frames, sent.bytes);
            writeln!(
                out,
                "{gap}{}, output {}: {frames} frames, {bytes}{destination}",
                module.name, sent.name
            )?;
        }
        if let Some((path, written)) = &self.written {
            writeln!(out, "\n{}: {} packets written, {}", path.escaped(), written.packets, written.bytes)?;
        }
        if let Some(forwarded) = &self.forwarded {
            let (interface, packets, bytes) =
                (forwarded.interface.escaped(), forwarded.packets, forwarded.bytes);
            writeln!(out, "\n{interface}: {packets} packets sent, {bytes}; {}", forwarded.losses())?;
        }
        if let Some(report) = &self.report {
            writeln!(out, "\n{} (report)", report.escaped())?;
        }
        Ok(())
    }

    /// Describes the capture for the report.
    pub fn capture_facts(&self) -> CaptureInfo {
        let totals = &self.totals;
        CaptureInfo {
            name: self.name.escaped().to_string(),
            packets: totals.packets,
            wire_bytes: totals.bytes.0,
            start: totals.first,
            duration: self.duration(),
            truncated: self.truncation(),
            warnings: {
                let failure = self.failure.iter();
                let failed = failure
                    .map(|error| format!("the run failed, and these are the results until then: {error}"));
                failed.chain(self.warnings()).collect()
            },
            filter: self.filter.as_ref().map(|filter| filter.escaped().to_string()),
            tcp: totals.tcp,
            udp: totals.udp,
            ipv6: totals.ipv6,
            tcp_syn: totals.tcp_syn,
            elapsed: self.elapsed,
            jobs: self.jobs,
        }
    }

    /// Describes the modules for the report.
    pub fn module_facts(&self) -> Vec<RunModuleInfo> {
        let facts = |module: &ModuleSummary| RunModuleInfo {
            label: module.name.clone(),
            version: module.version.clone(),
            summary: module.summary.clone(),
            tier: module.tier.to_string(),
            tier_reason: module.why.clone(),
            parameters: module.parameters.clone(),
            packets: module.packets,
            records: module.records(),
            dropped_records: module.dropped_records,
            faults: module.faults,
            ns_per_packet: module.ns_per_packet(),
            cycles_per_packet: module.cycles_per_packet(),
            memory: module.memory,
            streams: module.streams.iter().map(stream_facts).collect(),
            messages: module.messages(),
        };
        self.modules.iter().map(facts).collect()
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
            outputs: self.outputs.iter().map(output_document).collect(),
            dropped_frames: (!self.outputs.is_empty()).then_some(self.dropped_frames),
        }
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

fn stream_facts(stream: &StreamRows) -> StreamInfo {
    StreamInfo {
        name: stream.name.to_string(),
        rows: stream.rows,
        path: stream.path.as_ref().map(|path| path.escaped().to_string()),
    }
}

/// Writes columns as wide as their widest cell, with words aligned left and numbers right.
fn write_columns<const N: usize>(out: &mut impl Write, rows: &[[String; N]]) -> std::io::Result<()> {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for row in rows {
        for (i, (cell, width)) in row.iter().zip(widths).enumerate() {
            let gap = if i == 0 { "" } else { "  " };
            if i < COLUMNS_LEFT {
                write!(out, "{gap}{cell:width$}")?;
            } else {
                write!(out, "{gap}{cell:>width$}")?;
            }
        }
        writeln!(out)?;
    }
    Ok(())
}
