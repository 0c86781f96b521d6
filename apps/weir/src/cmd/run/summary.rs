//! The summary of a run: a table for people, a JSON document for programs, and the input of the report.

mod document;
mod overview_document;

use super::RunError;
use super::forward::Forwarded;
use super::outputs::OutputSent;
use super::shard::{PacketFault, Shard};
use std::io::Write;
use std::path::{Path, PathBuf};
use weir_admission::Tier;
use weir_export_files::{CollectorAddress, CollectorTotals};
use weir_netio::{EndReason, LiveTotals, Totals, WriteSummary};
use weir_records::StreamRows;
use weir_report::{CaptureInfo, OverviewDigest, RunModuleInfo, StreamInfo};
use weir_rows::UtcOffset;
use weir_sandbox::{BackEnd, During, Instance, LoadedModule};
use weir_units::{Bytes, Escape as _, Nanos};
use weir_wire::stream::TcpStreamCounters;

/// Maximum number of faults in the messages about a module. The messages count further faults; the JSON document can
/// describe more.
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
    pub written: Option<WrittenCapture>,
    /// Texts that were cut in files of IPFIX.
    pub cut_texts: u64,
    /// The collector of `--collector`.
    pub collector: Option<(CollectorAddress, CollectorTotals)>,
    /// Patches that could not be applied to packets that were written.
    pub unpatched: u64,
    /// True if a signal left a part of the capture unread.
    pub is_interrupted: bool,
    /// The first error of the run.
    pub failure: Option<String>,
    /// The files that could not be written.
    pub failed_files: Vec<FailedFile>,
    /// The report, once it is written.
    pub report: Option<PathBuf>,
    /// The file of the summary itself.
    pub summary: Option<PathBuf>,
    /// The services and hosts of the capture; `None` if no module of the run feeds the overview.
    pub overview: Option<OverviewDigest>,
    /// The offset of the times of the overview from UTC.
    pub utc_offset: UtcOffset,
}

/// The output capture of `-w`.
#[derive(Debug)]
pub struct WrittenCapture {
    /// The path on the command line.
    pub path: PathBuf,
    /// True if the capture is rotated: then no file has this path.
    pub is_rotated: bool,
    /// The files, in the order of their packets.
    pub files: Vec<WriteSummary>,
}

impl WrittenCapture {
    /// Returns the path of the only file, or for a rotated capture the path on the command line.
    fn present_path(&self) -> &Path {
        self.files.first().filter(|_| !self.is_rotated).map_or(&self.path, |file| &file.path)
    }

    fn sum(&self, of: fn(&WriteSummary) -> u64) -> u64 {
        self.files.iter().map(of).sum()
    }
}

/// A file that could not be written.
#[derive(Debug)]
pub struct FailedFile {
    path: PathBuf,
    error: String,
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
    /// The counters of its TCP streams; `None` if it follows none.
    tcp_streams: Option<TcpStreamCounters>,
    /// Calls that exceeded their limit.
    exceeded: u64,
    strikes: u64,
    memory: Bytes,
    time: Nanos,
    nanos_per_cycle: f64,
    ended: bool,
    /// True for a module of the kind `filter` that neither changed nor dropped a packet, if the run writes or sends
    /// packets.
    pub without_effect: bool,
    tier: Tier,
    back_end: BackEnd,
    /// A short reason why the module is not proved.
    why: Option<String>,
    first_faults: Vec<PacketFault>,
    /// Packets processed before the module read zeros in place of lost bytes.
    packets_before_zeros: Option<u64>,
    streams: Vec<StreamRows>,
    outputs: Vec<OutputSent>,
}

impl ModuleSummary {
    /// Adds up the results of a module's instances.
    pub fn new(
        name: String,
        module: &LoadedModule,
        shards: &[Shard],
        (streams, outputs): (Vec<StreamRows>, Vec<OutputSent>),
        nanos_per_cycle: f64,
    ) -> Self {
        let admitted = module.admitted();
        let manifest = admitted.manifest();
        let counters = || shards.iter().map(|shard| shard.instance().counters());
        let mut first_faults: Vec<PacketFault> =
            shards.iter().flat_map(|shard| shard.first_faults.iter().cloned()).collect();
        first_faults.sort_by_key(|fault| fault.packet);
        for fault in first_faults.iter_mut().take(FAULTS_SHOWN) {
            fault.line = module.source_line(&fault.incident.fault);
        }
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
            tcp_streams: tcp_streams(shards),
            exceeded: counters().map(|c| c.exceeded).sum(),
            // The instances share one counter of strikes.
            strikes: counters().map(|c| c.strikes).max().unwrap_or(0),
            memory: Bytes(shards.iter().map(|shard| shard.instance().memory().0).sum()),
            time: Nanos(shards.iter().map(|shard| shard.time.0).sum()),
            nanos_per_cycle,
            ended: shards.iter().any(|shard| Instance::has_ended(shard.instance())),
            without_effect: false,
            tier: admitted.tier(),
            // All instances move to LLVM's code at about the same time, so one of them stands for all.
            back_end: shards
                .iter()
                .map(|shard| shard.instance().back_end())
                .max()
                .unwrap_or(BackEnd::Cranelift),
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

    /// Returns the name under which the module runs.
    pub fn name(&self) -> &str {
        &self.name
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
                Tier::Proved | Tier::Metered | Tier::Unmetered => {
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
        for (name, count) in self.tcp_streams.unwrap_or_default().named().filter(|(_, count)| *count > 0) {
            messages.extend(tcp_stream_loss(name).map(|what| format!("{count} {what}")));
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
        let late_files = self.written.iter().flat_map(|written| &written.files).filter(|file| file.late > 0);
        for WriteSummary { late, path, .. } in late_files {
            let path = path.escaped();
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
        if let Some((address, totals)) = &self.collector {
            warnings.extend(totals.warnings().map(|warning| format!("{address}: {warning}")));
        }
        if self.cut_texts > 0 {
            warnings.push(format!("{} texts were cut to the length of an IPFIX message", self.cut_texts));
        }
        if self.totals.out_of_order > 0 {
            warnings.push(format!(
                "time goes backwards {} times; ticks follow the latest time seen",
                self.totals.out_of_order
            ));
        }
        warnings
    }

    /// Sets the errors of the run, the first of which is its failure.
    pub fn set_errors(&mut self, errors: &[RunError]) {
        self.failure = errors.first().map(RunError::to_string);
        let failed = |error: &RunError| {
            Some(FailedFile { path: error.failed_file()?.to_owned(), error: error.to_string() })
        };
        self.failed_files = errors.iter().filter_map(failed).collect();
    }

    /// Prints the warnings to standard error, and the errors after the first. The caller reports the first error.
    pub fn warn(&self) {
        let mut err = std::io::stderr().lock();
        let further = self.failed_files.iter().map(|failed| &failed.error);
        for error in further.filter(|error| self.failure.as_ref() != Some(error)) {
            let _ = writeln!(err, "weir: warning: {error}");
        }
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

    fn print_table(&self, out: &mut impl Write) -> std::io::Result<()> {
        if let Some(overview) = &self.overview {
            out.write_all(overview.text(self.utc_offset).as_bytes())?;
        }
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
        let streams = |module: &ModuleSummary| tcp_streams_line(&module.name, module.tcp_streams.as_ref()?);
        for (i, line) in self.modules.iter().filter_map(streams).enumerate() {
            let gap = if i == 0 { "\n" } else { "" };
            writeln!(out, "{gap}{line}")?;
        }
        let files = self.modules.iter().flat_map(|module| &module.streams);
        // Several streams can share a file.
        let mut rows_of: Vec<(&PathBuf, u64)> = Vec::new();
        for (path, rows) in files.filter_map(|stream| Some((stream.path.as_ref()?, stream.rows))) {
            match rows_of.iter_mut().find(|(known, _)| *known == path) {
                Some((_, sum)) => *sum += rows,
                None => rows_of.push((path, rows)),
            }
        }
        let files = rows_of;
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
        let written = self.written.iter().flat_map(|written| &written.files);
        for (i, WriteSummary { path, packets, bytes, .. }) in written.enumerate() {
            let gap = if i == 0 { "\n" } else { "" };
            writeln!(out, "{gap}{}: {packets} packets written, {bytes}", path.escaped())?;
        }
        if let Some(forwarded) = &self.forwarded {
            let (interface, packets, bytes) =
                (forwarded.interface.escaped(), forwarded.packets, forwarded.bytes);
            writeln!(out, "\n{interface}: {packets} packets sent, {bytes}; {}", forwarded.losses())?;
        }
        if let Some((address, totals)) = &self.collector {
            writeln!(out, "\n{address}: {} records sent", totals.sent)?;
        }
        let documents = [(&self.report, "report"), (&self.summary, "summary")];
        let documents = documents.iter().filter_map(|(path, name)| Some((path.as_ref()?, name)));
        for (i, (path, name)) in documents.enumerate() {
            let gap = if i == 0 { "\n" } else { "" };
            writeln!(out, "{gap}{} ({name})", path.escaped())?;
        }
        for (i, failed) in self.failed_files.iter().enumerate() {
            let gap = if i == 0 { "\n" } else { "" };
            writeln!(out, "{gap}not complete: {}", failed.error)?;
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

/// Adds up the counters of the TCP streams of a module's instances; `None` if it follows none.
fn tcp_streams(shards: &[Shard]) -> Option<TcpStreamCounters> {
    let mut counters = shards
        .iter()
        .filter(|shard| shard.instance().has_streams())
        .map(|shard| shard.instance().stream_counters());
    let first = counters.next()?;
    Some(counters.fold(first, |mut sum, counters| {
        sum.add(&counters);
        sum
    }))
}

/// Returns the text of a warning for a counter of captured stream data that the module did not get. Returns `None` for
/// other counters of TCP streams.
fn tcp_stream_loss(counter: &str) -> Option<&'static str> {
    match counter {
        "evicted" => Some("TCP streams were evicted, as their table was full"),
        "no_memory" => Some("times waiting bytes of TCP streams were given up, as their buffer was full"),
        "fragments" => Some("TCP segments in IP fragments were left out of their streams"),
        "bad_checksum" => Some("TCP segments with a wrong checksum were left out of their streams"),
        _ => None,
    }
}

/// Describes the TCP streams of a module, without the counters of [`tcp_stream_loss`]; `None` if it followed none.
fn tcp_streams_line(name: &str, counters: &TcpStreamCounters) -> Option<String> {
    let others: Vec<String> = counters
        .named()
        .filter(|(name, count)| *name != "opened" && *count > 0 && tcp_stream_loss(name).is_none())
        .map(|(name, count)| format!("{} {count}", name.replace('_', " ")))
        .collect();
    let others = if others.is_empty() { String::new() } else { format!(": {}", others.join(", ")) };
    (counters.opened > 0).then(|| format!("{name} followed {} TCP streams{others}", counters.opened))
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
