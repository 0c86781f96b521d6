//! `weir run`: runs modules on a capture or a live interface.

mod background_compiler;
mod block_task;
mod capture_file;
mod captures;
mod collector;
mod forward;
mod instance_times;
mod load;
mod outputs;
mod packet_source;
mod perf_map;
mod shard;
mod source;
mod summary;
pub(crate) mod tables;
mod worker_pool;

use crate::calibrated_profile::ProfileFileError;
use crate::cli::Run;
use crate::module_arg::ModuleArgError;
use crate::output::exports::{self, ExportOutputs, ExportsError};
use crate::output::out_folder::{OutFolder, OutFolderError};
use crate::output::progress::RunProgress;
use crate::output::record_files::RecordFiles;
use crate::output::report_file::{ReportFile, ReportFileError};
use crate::output::rows::{RowOutput, StreamArgError};
use crate::output::signals::Signals;
use crate::usage_hint;
use background_compiler::compile_during;
use block_task::PARTS_MAX;
use capture_file::CaptureFile;
use captures::CaptureArgError;
use collector::{CollectError, Collector, PacketOutputs, ResultSink};
use forward::{ForwardError, Forwarder};
use load::{UnusedCode, load};
use outputs::Outputs;
use packet_source::{PacketSourceError, ReadMode};
use shard::{PacketFault, Shard};
use source::{RunLimits, RunSource};
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use summary::{ModuleSummary, RunSummary, WrittenCapture};
use tables::{TableArgError, Tables};
use weir_admission::{Admitted, ModuleKind, Parallel};
use weir_datapath::driver::BatchError;
use weir_datapath::source::PacketSource;
use weir_netio::{CaptureFilter, CaptureFilterError, OpenError, WriteError};
use weir_os::private::NamedOutput;
use weir_records::{Durability, FLUSH, RecordsError};
use weir_report::RunReport;
use weir_sandbox::{ClockCheck, Engine, Instance, LoadError, LoadedModule};
use weir_trust::grant::ModuleHash;
use weir_units::{Escape as _, Nanos};
use worker_pool::{WorkerPool, WorkerPoolError};

/// The flush interval of record logs in ns, used as a tick period.
const FLUSH_NANOS: u64 = FLUSH.as_secs() * 1_000_000_000;
/// Maximum number of threads without `--jobs`. Further threads would save little time and cost memory.
const JOBS_DEFAULT_MAX: usize = 16;

/// Errors that end a run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// `-r` names no captures that can be read together.
    #[error(transparent)]
    Captures(#[from] CaptureArgError),
    /// The capture or the interface cannot be opened.
    #[error(transparent)]
    Open(#[from] PacketSourceError),
    /// Packets cannot be forwarded.
    #[error(transparent)]
    Forward(#[from] ForwardError),
    /// Signals cannot be caught.
    #[error("signals cannot be caught: {0}")]
    Signals(std::io::Error),
    /// The filter expression is wrong.
    #[error("{error}\n{marked}")]
    Filter {
        /// The parser's error.
        error: CaptureFilterError,
        /// The expression, with its faulty part marked.
        marked: String,
    },
    /// The filter expression is wrong, maybe because an option is in it.
    #[error("{error}; options such as `{}` come before the filter\n{marked}", option.escape_debug())]
    OptionInFilter {
        /// The parser's error.
        error: CaptureFilterError,
        /// The option.
        option: String,
        /// The expression, with its faulty part marked.
        marked: String,
    },
    /// The filter does not apply to the link type of the packets.
    #[error("{0}")]
    FilterOfCapture(String),
    /// The profile cannot be used.
    #[error(transparent)]
    Terms(#[from] ProfileFileError),
    /// A stream of `--stream` cannot be printed.
    #[error(transparent)]
    Stream(#[from] StreamArgError),
    /// Rows in the format of another tool cannot be written, or have no destination.
    #[error(transparent)]
    Exports(#[from] ExportsError),
    /// `-w -` and `--format` both use standard output.
    #[error(
        "-w - writes packets to standard output, and --format writes rows there: write one of them to a file, with -w FILE or --out DIR"
    )]
    PacketsAndRows,
    /// A table of `--table` cannot be used.
    #[error(transparent)]
    Table(TableArgError),
    /// A module cannot be used.
    #[error(transparent)]
    Spec(#[from] ModuleArgError),
    /// A module cannot be compiled, or the engine does not start.
    #[error("{}: {error}", module.escaped())]
    Load {
        /// The module.
        module: String,
        /// The cause.
        error: LoadError,
    },
    /// This weir has no compiler, and no key that vouches for the machine code of a bundle.
    #[error("{}: this weir has no compiler: it runs bundles, which `weir compile -o` makes, in their machine code; --compiler-key names the key of the compiler that you trust", module.escaped())]
    NoCompiler {
        /// The module.
        module: String,
    },
    /// This weir has no compiler, and does not use the machine code of a bundle.
    #[error("{}: {why}", module.escaped())]
    Bundle {
        /// The module.
        module: String,
        /// The reason.
        why: UnusedCode,
    },
    /// A sandbox cannot be prepared.
    #[error(transparent)]
    Shard(#[from] BatchError),
    /// Reading, processing or writing failed during the run.
    #[error(transparent)]
    WorkerPool(#[from] WorkerPoolError),
    /// The folder of `--out` cannot be used.
    #[error(transparent)]
    Out(#[from] OutFolderError),
    /// Records cannot be written.
    #[error("{0} (the folder is that of --out)")]
    Records(#[from] RecordsError),
    /// Packets cannot be written.
    #[error(transparent)]
    Packets(#[from] WriteError),
    /// The report or the summary cannot be written.
    #[error(transparent)]
    Report(#[from] ReportFileError),
    /// The report or the summary would replace the capture.
    #[error("{} is the capture that is being read: name another file for {option}", path.escaped())]
    ReportOntoCapture {
        /// The capture.
        path: PathBuf,
        /// The option that names it.
        option: &'static str,
    },
    /// Two options name the same file.
    #[error("{}: named by both {first} and {second}: each needs a file of its own", path.escaped())]
    SameFile {
        /// The file.
        path: PathBuf,
        /// One of the options.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// A report or summary that would go to standard output.
    #[error(
        "{0} - would write to standard output, where rows are: name a file; --json prints the summary alone"
    )]
    NoStandardOutput(&'static str),
    /// `--rotate` without a file that can be rotated.
    #[error("{}: --rotate applies to files, and this is a pipe or a device: write to a file, with -w FILE or --out DIR", .0.escaped())]
    NothingToRotate(PathBuf),
    /// The run finished, but some modules did not process all packets.
    #[error("not all modules saw all packets: {0}")]
    Modules(String),
    /// The first fault of a module ended a strict run.
    #[error("{module}: {fault}; the run ended there, as --strict asks")]
    Strict {
        /// The module.
        module: String,
        /// Its first fault.
        fault: String,
    },
    /// The summary cannot be printed.
    #[error("standard output: {0}")]
    Print(std::io::Error),
}

impl RunError {
    /// Returns true if modules failed, rather than the run.
    pub fn is_of_modules(&self) -> bool {
        matches!(self, Self::Modules(_) | Self::Strict { .. })
    }

    /// Returns the output file that could not be written, if that is the error.
    fn failed_file(&self) -> Option<&Path> {
        match self {
            Self::Records(error)
            | Self::WorkerPool(WorkerPoolError::Collect(CollectError::Records(error))) => error.path(),
            Self::Packets(error)
            | Self::WorkerPool(WorkerPoolError::Collect(CollectError::Packets(error))) => error.path(),
            Self::Exports(error)
            | Self::WorkerPool(WorkerPoolError::Collect(CollectError::Exports(error))) => error.path(),
            Self::Report(error) => Some(error.path()),
            _ => None,
        }
    }

    /// Returns true if the command line is wrong.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Captures(error) => error.is_usage(),
            Self::Filter { .. }
            | Self::OptionInFilter { .. }
            | Self::FilterOfCapture(_)
            | Self::SameFile { .. }
            | Self::NothingToRotate(_)
            | Self::NoStandardOutput(_)
            | Self::Stream(_)
            | Self::PacketsAndRows
            | Self::Table(_)
            | Self::Terms(_) => true,
            Self::Spec(error) => error.is_usage(),
            Self::Exports(error) => error.is_usage(),
            Self::Forward(error) => error.is_usage(),
            _ => false,
        }
    }
}

/// Runs the modules, writes the requested files and prints the summary.
pub fn run(args: &Run) -> Result<(), RunError> {
    let begin = Instant::now();
    let calibration = ClockCheck::begin();
    let processors =
        || std::thread::available_parallelism().map_or(1, NonZeroUsize::get).min(JOBS_DEFAULT_MAX);
    let jobs = args.jobs.map_or_else(processors, usize::from);
    check_outputs(args)?;
    let filter = filter(&args.filter)?;
    let tables = Tables::read(&args.tables)?;
    let (engine, programs) = load(args, &tables)?;
    let mut signals = Signals::default();
    let captures = captures::expand(&args.read)?;
    if captures.iter().any(|path| !path.is_file()) {
        // Opening a FIFO waits for its first bytes.
        signals.catch().map_err(RunError::Signals)?;
    }
    // A run of which nothing else is left ends when the reader of its rows does.
    let ends_with_reader = prints_only_rows(args)
        && programs.iter().any(|program| !program.admitted().manifest().streams.is_empty());
    let mode = ReadMode {
        ends_with_reader,
        jobs,
        keeps_packets: programs.iter().any(|program| program.admitted().manifest().keep > 0),
    };
    let packet_source = match packet_source::open(args, &captures, &signals.interrupted, mode) {
        // The reader has ended the run.
        Err(PacketSourceError::Capture(OpenError::OutputClosed { .. })) => return Ok(()),
        opened => opened?,
    };
    if let Some(filter) = &filter {
        for link_type in packet_source.link_types() {
            filter.check(link_type).map_err(|error| RunError::FilterOfCapture(error.to_string()))?;
        }
    }
    let (pool, files) = assemble(
        args,
        jobs,
        &engine,
        &programs,
        &tables,
        &captures,
        PacketInput { packet_source, filter, signals, ends_with_reader },
    )?;
    let (pool, result) = compile_during(&engine, &programs, || pool.run(jobs, args.strict));

    let WorkerPool { mut source, shards, mut collector } = pool;
    let (totals, live, is_interrupted) = (source.totals(), source.live_totals(), source.is_interrupted());
    let selected = source.selected_packets();
    let (report, packet_outputs) =
        (std::mem::take(&mut collector.report), std::mem::take(&mut collector.packet_outputs));
    let rows_printed = collector.rows.finish();
    let has_rows = collector.rows.has_printed();
    let forwarded = packet_outputs.forwarder.map(Forwarder::finish);
    let result = result.map_err(|error| match error {
        WorkerPoolError::Fault(shard) => strict_failure(&collector.sinks, &shards, shard),
        error => RunError::from(error),
    });
    // Only a run that has read everything gets the final file names: the files of a failed run stay beside those of an earlier run.
    let is_complete = result.is_ok();
    let mut errors: Vec<RunError> = result.err().into_iter().collect();
    let written = args.write.clone().zip(packet_outputs.file).map(|(path, file)| {
        let is_rotated = file.is_rotated();
        let (files, error) = file.end(is_complete);
        errors.extend(error.map(RunError::from));
        WrittenCapture { path, is_rotated, files }
    });
    let processed = shards.iter().filter_map(|shard| shard.cutoff.map(|cutoff| cutoff.packets)).min();
    let mut modules = Vec::new();
    let nanos_per_cycle = calibration.nanos_per_cycle();
    let mut exported = std::mem::take(&mut collector.exports).end(is_complete, collector.now);
    errors.extend(exported.errors.drain(..).map(|error| ExportsError::from(error).into()));
    for (index, (sink, program)) in collector.sinks.into_iter().zip(&programs).enumerate() {
        let (streams, of_records) = sink.files.end(is_complete);
        let streams = exported.streams_of(index, program.admitted().manifest(), streams);
        errors.extend(of_records.into_iter().map(RunError::from));
        let (sent, of_frames) = sink.outputs.end(is_complete);
        errors.extend(of_frames.into_iter().map(RunError::from));
        let shards = &shards[sink.instances];
        let results = (streams, sent);
        let without_effect = has_packet_output(args) && !sink.has_changed_packets;
        let mut module = ModuleSummary::new(sink.label, program, shards, results, nanos_per_cycle);
        module.without_effect = without_effect && program.admitted().manifest().kind == ModuleKind::Filter;
        modules.push(module);
    }
    let mut summary = RunSummary {
        name: source_name(args, &captures),
        captures,
        truncated_captures: source.truncated_captures(),
        filter: (!args.filter.is_empty()).then(|| args.filter.join(" ")),
        selected,
        totals,
        processed,
        live,
        forwarded,
        modules,
        elapsed: Nanos(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX)),
        jobs,
        written,
        cut_texts: exported.cut,
        collector: exported.collector,
        unpatched: collector.unpatched,
        is_interrupted: is_interrupted && errors.is_empty(),
        failure: None,
        failed_files: Vec::new(),
        report: None,
        summary: None,
        overview: report.overview(),
        utc_offset: args.printing.utc_offset(),
    };
    if args.perf_map {
        let labels = summary.modules.iter().map(ModuleSummary::name);
        let written = perf_map::write(labels.zip(&programs));
        let _ = match written {
            Ok(path) => writeln!(std::io::stderr(), "weir: names of functions for perf: {}", path.escaped()),
            Err(error) => {
                writeln!(std::io::stderr(), "weir: warning: no names of functions for perf: {error}")
            }
        };
    }
    summary.set_errors(&errors);
    let report_written = files.report.map_or(Ok(None), |file| {
        let mut capture = summary.capture_facts();
        if let Some(title) = &args.title {
            capture.name = title.escaped().to_string();
        }
        file.write(&report.render(&capture, &summary.module_facts())).map(Some)
    });
    match report_written {
        Ok(path) => summary.report = path,
        Err(error) => errors.push(error.into()),
    }
    summary.set_errors(&errors);
    if let Some(file) = files.summary {
        summary.summary = Some(file.path().to_owned());
        if let Err(error) = file.write(&summary.json()) {
            summary.summary = None;
            errors.push(error.into());
            summary.set_errors(&errors);
        }
    }
    summary.warn();
    let result = rows_printed.and_then(|()| print_summary(args, &summary, has_rows));
    if errors.is_empty() {
        let failed: Vec<String> = summary.modules.iter().filter_map(ModuleSummary::failure).collect();
        errors.extend((!failed.is_empty()).then(|| RunError::Modules(failed.join(", "))));
    }
    match (errors.into_iter().next(), result) {
        (Some(failure), _) => Err(failure),
        (None, Err(error)) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(RunError::Print(error)),
        _ => Ok(()),
    }
}

/// Checks that the outputs of the command line can exist side by side.
fn check_outputs(args: &Run) -> Result<(), RunError> {
    let named = [("-w", &args.write), ("--report", &args.report), ("--summary", &args.summary)];
    for (i, (first, path)) in named.iter().enumerate() {
        let Some(path) = path else { continue };
        if *first != "-w" && path.as_os_str() == "-" {
            return Err(RunError::NoStandardOutput(first));
        }
        let is_same = |(_, other): &&(&'static str, &Option<PathBuf>)| other.as_ref() == Some(path);
        if let Some((second, _)) = named.iter().skip(i + 1).find(is_same) {
            return Err(RunError::SameFile { path: path.clone(), first, second });
        }
    }
    exports::check(&args.printing, args.out.as_deref())?;
    if prints_all_rows(args) && writes_packets_to_stdout(args) {
        return Err(RunError::PacketsAndRows);
    }
    match &args.write {
        Some(path) if args.live.rotate.is_some() && args.out.is_none() && capture_file::is_in_place(path) => {
            Err(RunError::NothingToRotate(path.clone()))
        }
        _ => Ok(()),
    }
}

/// Returns true if the run has no results but rows on standard output.
fn prints_only_rows(args: &Run) -> bool {
    !args.json
        && args.out.is_none()
        && args.printing.collector.is_none()
        && args.report.is_none()
        && args.summary.is_none()
        && !has_packet_output(args)
}

/// Prints the summary: to standard output, or to standard error if standard output has packets or all rows. With `--format`, it
/// is not printed if it goes to a file, or if the reader of the rows has ended the run.
fn print_summary(args: &Run, summary: &RunSummary, has_rows: bool) -> std::io::Result<()> {
    if prints_all_rows(args) && (args.summary.is_some() || !crate::output::rows::has_reader()) {
        return Ok(());
    }
    if prints_all_rows(args) || writes_packets_to_stdout(args) {
        return summary.print(&mut std::io::stderr().lock(), args.json);
    }
    let mut out = std::io::stdout().lock();
    if has_rows {
        writeln!(out)?;
    }
    summary.print(&mut out, args.json)
}

/// Returns true if standard output has all rows, in the format of `--format`.
fn prints_all_rows(args: &Run) -> bool {
    args.printing.for_standard_output(args.out.is_some()).format.is_some()
}

/// Returns the name of the packet source, for people.
fn source_name(args: &Run, captures: &[PathBuf]) -> String {
    match (&args.interface, captures) {
        (Some(interface), _) => interface.clone(),
        (None, [path]) => path.to_string_lossy().into_owned(),
        (None, captures) => format!("{} captures", captures.len()),
    }
}

/// Returns true if standard output carries packets.
fn writes_packets_to_stdout(args: &Run) -> bool {
    args.write.as_ref().is_some_and(|path| path.as_os_str() == "-")
}

/// The error of a strict run: the module of the instance that ended it, and the instance's first fault.
fn strict_failure(sinks: &[ResultSink], shards: &[Shard], shard: usize) -> RunError {
    let sink = sinks.iter().find(|sink| sink.instances.contains(&shard));
    let fault = shards.get(shard).and_then(|shard| shard.first_faults.first());
    RunError::Strict {
        module: sink.map(|sink| sink.label.clone()).unwrap_or_default(),
        fault: fault.map(PacketFault::to_string).unwrap_or_default(),
    }
}

/// Parses the filter expression, given as words.
pub(crate) fn filter(words: &[String]) -> Result<Option<CaptureFilter>, RunError> {
    if words.is_empty() {
        return Ok(None);
    }
    if let Some(capture) =
        words.iter().map(Path::new).find(|path| captures::is_capture_name(path) && path.is_file())
    {
        return Err(CaptureArgError::InFilter(capture.to_owned()).into());
    }
    let expression = words.join(" ");
    CaptureFilter::with_name_lookup(&expression).map(Some).map_err(|error| {
        let marked = usage_hint::mark_fault(&expression, error.error.at, error.error.len);
        match usage_hint::option_in_filter(words) {
            Some(option) => RunError::OptionInFilter { error, option: option.clone(), marked },
            None => RunError::Filter { error, marked },
        }
    })
}

/// The input of a run.
struct PacketInput {
    packet_source: PacketSource,
    /// Selects the packets that modules are called for.
    filter: Option<CaptureFilter>,
    signals: Signals,
    /// Ends the run when the reader of standard output has closed it.
    ends_with_reader: bool,
}

/// The files that are opened before a run and complete after it.
struct RunFiles {
    /// The lock of the folder of `--out`.
    _out: Option<OutFolder>,
    report: Option<ReportFile>,
    summary: Option<ReportFile>,
}

/// Starts the instances and opens all output files.
fn assemble(
    args: &Run,
    jobs: usize,
    engine: &Engine,
    programs: &[LoadedModule],
    tables: &Tables,
    captures: &[PathBuf],
    input: PacketInput,
) -> Result<(WorkerPool, RunFiles), RunError> {
    let PacketInput { packet_source, filter, mut signals, ends_with_reader } = input;
    for (option, path) in [("--report", &args.report), ("--summary", &args.summary)] {
        let Some(path) = path else { continue };
        let is_read = |path: &PathBuf| packet_source.capture().is_some_and(|capture| capture.reads(path));
        if let Some(path) = [path.clone(), NamedOutput::part_of(path)].into_iter().find(is_read) {
            return Err(RunError::ReportOntoCapture { path, option });
        }
    }
    let mut labels: Vec<String> = Vec::new();
    for program in programs {
        labels.push(label(program.admitted().manifest().name.as_str(), &labels));
    }
    let progress = RunProgress::new(!args.quiet);
    let printed: Vec<_> =
        labels.iter().cloned().zip(programs.iter().map(|program| program.admitted().manifest())).collect();
    let prints = !args.json && !writes_packets_to_stdout(args);
    let mut report = if args.report.is_some() { RunReport::new() } else { RunReport::without_page() };
    let in_report: Vec<usize> =
        printed.iter().map(|(label, manifest)| report.add_module(label, manifest)).collect();
    let kind = (args.interface.is_some(), report.has_overview());
    let printing = args.printing.for_standard_output(args.out.is_some());
    let rows = RowOutput::for_run(&printing, prints, kind, &printed, progress.bar())?;
    let mut shards: Vec<Shard> = Vec::new();
    let mut instances = Vec::new();
    for (program, label) in programs.iter().zip(&labels) {
        let admitted = program.admitted();
        let parts = instances_of(program, programs.len(), jobs);
        let first = shards.len();
        for part in 0..parts {
            let mut instance = Instance::start_with(engine, program, tables.instance_context(admitted))
                .map_err(|error| RunError::Load { module: label.clone(), error })?;
            if !has_packet_output(args) {
                instance.ignore_patches();
            }
            let tick = admitted.tick_period().map(|period| period.0);
            shards.push(Shard::new(
                instance,
                (part as u64, parts as u64),
                packet_source.descriptors(),
                tick,
            )?);
        }
        instances.push(first..shards.len());
    }
    // Files of records are opened last, so that a run that fails earlier leaves none.
    let files = RunFiles {
        _out: args
            .out
            .as_deref()
            .map(|path| OutFolder::open(path, &labels, args.live.rotate.is_some()))
            .transpose()?,
        report: args.report.as_deref().map(ReportFile::open).transpose()?,
        summary: args.summary.as_deref().map(ReportFile::open).transpose()?,
    };
    let forwarder = match (&args.live.send, &args.interface, packet_source.link_types().first()) {
        (Some(to), Some(from), Some(link_type)) => {
            Some(Forwarder::start(to, from, *link_type, args.live.rate)?)
        }
        _ => None,
    };
    let rotation = args.live.rotate;
    let exports = ExportOutputs::open(&args.printing, args.out.as_deref(), rotation, &printed)?;
    let is_parquet = args.printing.export_format(args.out.is_some()).is_none();
    let capture_file = args
        .write
        .as_ref()
        .map(|path| CaptureFile::create(path, packet_source.capture(), rotation))
        .transpose()?;
    // Packets of an interface cannot be read again, so their records must survive a crash.
    let durability = if args.interface.is_some() { Durability::Seconds } else { Durability::AtEnd };
    let mut sinks: Vec<ResultSink> = Vec::new();
    for (((program, label), instances), in_report) in
        programs.iter().zip(labels).zip(instances).zip(in_report)
    {
        let manifest = program.admitted().manifest();
        let facts = origin_facts(args, captures, program.admitted());
        let files = RecordFiles::create(
            args.out.as_deref(),
            (&label, manifest),
            facts,
            durability,
            (rotation, is_parquet),
        )?;
        for found in files.recovered() {
            // A closed standard error must not end the run.
            let _ = writeln!(
                std::io::stderr(),
                "weir: {label}: an earlier run ended without warning; its {} rows are in {}",
                found.rows,
                found.path.escaped()
            );
        }
        let outputs = Outputs::create(args.out.as_deref(), &files.folder(), manifest)?;
        sinks.push(ResultSink {
            label,
            files,
            outputs,
            instances,
            in_report,
            has_changed_packets: false,
            is_parallel: is_parallel(program),
        });
    }
    // Until here, a signal may end the process at once: no results exist yet.
    signals.catch().map_err(RunError::Signals)?;
    let interrupted = Arc::clone(&signals.interrupted);
    let duration = args.live.duration.map(|duration| Duration::from_nanos(duration.0));
    let limits = RunLimits { count: args.count, duration, interrupted, ends_with_reader };
    let ticks = programs.iter().filter_map(|program| program.admitted().tick_period()).map(|period| period.0);
    // Logs are flushed also while no packets arrive.
    let flushes = (durability == Durability::Seconds).then_some(FLUSH_NANOS);
    let ticks = ticks.chain(flushes).collect();
    let source = RunSource::new(packet_source, filter, limits, shards.len(), ticks, progress);
    let collector =
        Collector::new(sinks, PacketOutputs::new(capture_file, forwarder), report, rows, exports, durability);
    Ok((WorkerPool { source, shards, collector }, files))
}

/// Returns the facts by which the rows of a module can be made again, as metadata of its files.
fn origin_facts(args: &Run, captures: &[PathBuf], admitted: &Admitted) -> Vec<(&'static str, String)> {
    let json = |value: &serde_json::Value| value.to_string();
    let parameters: serde_json::Map<_, _> = admitted
        .manifest()
        .parameters
        .iter()
        .zip(admitted.values())
        .map(|(parameter, value)| (parameter.name.to_string(), value.to_string().into()))
        .collect();
    let captures: Vec<_> = captures.iter().map(|path| path.to_string_lossy()).collect();
    let mut facts = vec![
        ("weir.module_digest", ModuleHash::of_bytes(admitted.bytes()).to_string()),
        ("weir.parameters", json(&parameters.into())),
    ];
    match &args.interface {
        Some(interface) => facts.push(("weir.interface", interface.clone())),
        None => facts.push(("weir.captures", json(&captures.into()))),
    }
    if !args.filter.is_empty() {
        facts.push(("weir.filter", args.filter.join(" ")));
    }
    if let Some(profile) = &args.profile {
        facts.push(("weir.profile", profile.to_string_lossy().into_owned()));
    }
    facts
}

/// Returns true if packets are written or sent after the modules.
fn has_packet_output(args: &Run) -> bool {
    args.write.is_some() || args.live.send.is_some()
}

/// The number of instances for each thread from which no module is split. Each instance of a module visits each batch, and threads
/// with several instances are busy without further ones.
const INSTANCES_PER_THREAD: usize = 2;

/// Returns the number of instances of a module, one of `modules`.
fn instances_of(program: &LoadedModule, modules: usize, jobs: usize) -> usize {
    let parts = (INSTANCES_PER_THREAD * jobs).div_ceil(modules.max(1)).min(jobs);
    if is_parallel(program) { parts.clamp(1, PARTS_MAX) } else { 1 }
}

/// Returns true if a module may have several instances, each for a share of the flows.
fn is_parallel(program: &LoadedModule) -> bool {
    program.admitted().manifest().parallel == Parallel::Flow
}

/// Returns the label of a module in this run: its name, with a number if an earlier module has that label.
fn label(name: &str, labels: &[String]) -> String {
    let is_taken = |label: &str| labels.iter().any(|other| other == label);
    let numbered = (2..).map(|n| format!("{name}-{n}"));
    std::iter::once(name.to_owned()).chain(numbered).find(|label| !is_taken(label)).unwrap_or_default()
}
