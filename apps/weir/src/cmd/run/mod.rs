//! `weir run`: modules over a capture or a live interface.

mod collect;
mod crew;
mod forward;
mod origin;
mod outputs;
mod page;
pub mod progress;
mod shard;
mod signals;
mod source;
mod summary;
mod tables;
mod work;

use crate::cli::Run;
use crate::hint;
use crate::shipped;
use crate::spec::{ModuleSpecError, Spec};
use crate::terms::{TermsError, terms};
use collect::{Collector, OutputHandles, ResultSink};
use crew::{WorkerPool, WorkerPoolError};
use forward::{ForwardError, Forwarder};
use origin::PacketSourceError;
use outputs::Outputs;
use page::Page;
use progress::RunProgress;
use shard::{PARTS_MAX, Shard, Trouble};
use signals::Signals;
use source::{RunLimits, RunSource};
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use summary::{ModuleSummary, RunSummary};
use tables::{TableArgError, Tables};
use weir_admission::{ModuleKind, Parallel};
use weir_datapath::seat::BatchError;
use weir_datapath::source::PacketSource;
use weir_netio::{CaptureFilter, CaptureFilterError, PacketWriter, WriteError};
use weir_records::{Durability, FLUSH, ModuleFiles, RecordsError};
use weir_report::RunReport;
use weir_sandbox::{
    Cache, ClockCheck, CompileLimits, Engine, EngineOptions, Instance, LoadError, LoadedModule,
};
use weir_units::{Nanos, Shown as _};

/// The period at which rows are brought to their logs, as a period of ticks.
const FLUSH_NANOS: u64 = FLUSH.as_secs() * 1_000_000_000;
/// Threads at most where nobody says how many: more cost more memory than they gain time.
const JOBS_DEFAULT_MAX: usize = 16;

/// Why a run did not go to its end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The capture or the interface cannot be opened.
    #[error(transparent)]
    Open(#[from] PacketSourceError),
    /// Nothing can be sent.
    #[error(transparent)]
    Forward(#[from] ForwardError),
    /// Signals cannot be noticed.
    #[error("signals cannot be caught: {0}")]
    Signals(std::io::Error),
    /// The filter expression is wrong.
    #[error(transparent)]
    Filter(#[from] CaptureFilterError),
    /// The filter expression is wrong, maybe because an option is in it.
    #[error("{error}; options such as `{}` come before the filter", option.escape_debug())]
    OptionInFilter {
        /// The fault.
        error: CaptureFilterError,
        /// The option.
        option: String,
    },
    /// The filter makes no sense for these packets.
    #[error("{0}")]
    FilterOfCapture(String),
    /// There is nothing to admit modules by.
    #[error(transparent)]
    Terms(#[from] TermsError),
    /// A table cannot be shown.
    #[error(transparent)]
    Table(TableArgError),
    /// A module cannot be used.
    #[error(transparent)]
    Spec(#[from] ModuleSpecError),
    /// A module cannot be compiled, or the engine does not start.
    #[error("{}: {error}", module.shown())]
    Load {
        /// The module.
        module: String,
        /// Why.
        error: LoadError,
    },
    /// A sandbox cannot be prepared.
    #[error(transparent)]
    Shard(#[from] BatchError),
    /// Reading, running or writing failed under way.
    #[error(transparent)]
    WorkerPool(#[from] WorkerPoolError),
    /// Records cannot be written.
    #[error("{0} (the folder is that of --out)")]
    Records(#[from] RecordsError),
    /// Packets cannot be written.
    #[error(transparent)]
    Packets(#[from] WriteError),
    /// The report cannot be written.
    #[error("{}: the report cannot be written: {source}", path.shown())]
    Report {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Another run is about to write the report's file.
    #[error("{}: another run writes its report to this file: name another one, or wait until that run has ended", .0.shown())]
    ReportBusy(PathBuf),
    /// The report would take the place of the capture.
    #[error("{} is the capture that is being read: write the report to another file", .0.shown())]
    ReportOntoCapture(PathBuf),
    /// Packets and report would go to one file.
    #[error("{}: named by both -w and --report; the report would replace the packets", .0.shown())]
    SameFile(PathBuf),
    /// The run went to its end, but not all modules did.
    #[error("not all modules saw all packets: {0}")]
    Modules(String),
    /// The run was ended by the first fault of a module.
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
    /// Returns true where modules failed, rather than the run.
    pub fn is_of_modules(&self) -> bool {
        matches!(self, Self::Modules(_) | Self::Strict { .. })
    }

    /// Whether the command line is wrong.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Filter(_)
            | Self::OptionInFilter { .. }
            | Self::FilterOfCapture(_)
            | Self::SameFile(_)
            | Self::Table(_)
            | Self::Terms(_) => true,
            Self::Spec(error) => error.is_usage(),
            Self::Forward(error) => error.is_usage(),
            _ => false,
        }
    }
}

/// Runs, prints the summary, and writes what was asked for.
pub fn run(args: &Run) -> Result<(), RunError> {
    let begin = Instant::now();
    let calibration = ClockCheck::begin();
    let processors =
        || std::thread::available_parallelism().map_or(1, NonZeroUsize::get).min(JOBS_DEFAULT_MAX);
    let jobs = args.jobs.map_or_else(processors, usize::from);
    if let Some(path) = args.report.as_ref().filter(|path| args.write.as_ref() == Some(path)) {
        return Err(RunError::SameFile(path.clone()));
    }
    let filter = filter(&args.filter)?;
    let tables = Tables::read(&args.tables)?;
    let (engine, programs) = load(args, &tables)?;
    let mut signals = Signals::default();
    if args.read.as_ref().is_some_and(|path| !path.is_file()) {
        // Opening a FIFO waits for its first bytes.
        signals.catch().map_err(RunError::Signals)?;
    }
    let origin = origin::open(args, &signals.interrupted)?;
    if let Some(filter) = &filter {
        for link_type in origin.link_types() {
            filter.check(link_type).map_err(|error| RunError::FilterOfCapture(error.to_string()))?;
        }
    }
    let (crew, page) =
        assemble(args, jobs, &engine, &programs, &tables, Reading { origin, filter, signals })?;
    let (crew, result) = crew.run(jobs, args.strict);

    let WorkerPool { mut source, shards, mut collector } = crew;
    let (totals, live, is_cut) = (source.totals(), source.live_totals(), source.is_cut());
    let (report, ways) = (collector.report.take(), std::mem::take(&mut collector.ways));
    let forwarded = ways.forwarder.map(Forwarder::finish);
    let mut failure = result.err().map(|error| match error {
        WorkerPoolError::Fault(shard) => strict_failure(&collector.sinks, &shards, shard),
        error => RunError::from(error),
    });
    let writer = ways.file.and_then(|file| file.close());
    let written = writer.map(|writer| writer.finish().map_err(RunError::from)).transpose();
    let written = written.unwrap_or_else(|error| {
        failure.get_or_insert(error);
        None
    });
    let processed = shards.iter().filter_map(|shard| shard.cut.map(|cut| cut.packets)).min();
    let mut modules = Vec::new();
    let nanos_per_cycle = calibration.nanos_per_cycle();
    let is_complete = failure.is_none();
    for (sink, program) in collector.sinks.into_iter().zip(&programs) {
        let unfinished = sink.files.so_far();
        // What is called complete has to be: the records of a failed run are kept beside those of an earlier one.
        let streams = if is_complete { sink.files.finish() } else { Ok(sink.files.keep()) };
        let streams = match streams {
            Ok(streams) => streams,
            Err(error) => {
                failure.get_or_insert(error.into());
                unfinished
            }
        };
        let sent = sink.outputs.finish(is_complete).unwrap_or_else(|error| {
            failure.get_or_insert(error.into());
            Vec::new()
        });
        let shards = &shards[sink.instances];
        let written = (streams, sent);
        modules.push(ModuleSummary::new(sink.label, program.admitted(), shards, written, nanos_per_cycle));
    }
    let summary = RunSummary {
        name: match (&args.interface, &args.read) {
            (Some(interface), _) => interface.clone(),
            (None, path) => {
                path.as_deref().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default()
            }
        },
        filter: (!args.filter.is_empty()).then(|| args.filter.join(" ")),
        totals,
        processed,
        live,
        forwarded,
        modules,
        elapsed: Nanos(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX)),
        jobs,
        written: args.write.clone().zip(written),
        unpatched: collector.unpatched,
        is_cut: is_cut && failure.is_none(),
        failure: failure.as_ref().map(RunError::to_string),
    };
    let report_written = report.zip(page).map_or(Ok(()), |(report, page)| {
        page.write(&report.render(&summary.capture_facts(), &summary.module_facts()))
    });
    if let Err(error) = report_written {
        failure.get_or_insert(error);
    }
    summary.warn();
    // The packets themselves may be on their way through standard output.
    let result = if args.write.as_ref().is_some_and(|path| path.as_os_str() == "-") {
        summary.print(&mut std::io::stderr().lock(), args.json)
    } else {
        summary.print(&mut std::io::stdout().lock(), args.json)
    };
    if failure.is_none() {
        let failed: Vec<String> = summary.modules.iter().filter_map(ModuleSummary::failure).collect();
        failure = (!failed.is_empty()).then(|| RunError::Modules(failed.join(", ")));
    }
    match (failure, result) {
        (Some(failure), _) => Err(failure),
        (None, Err(error)) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(RunError::Print(error)),
        _ => Ok(()),
    }
}

/// Names the module of an instance that ended a strict run, and the instance's first fault.
fn strict_failure(sinks: &[ResultSink], shards: &[Shard], shard: usize) -> RunError {
    let sink = sinks.iter().find(|sink| sink.instances.contains(&shard));
    let trouble = shards.get(shard).and_then(|shard| shard.troubles.first());
    RunError::Strict {
        module: sink.map(|sink| sink.label.clone()).unwrap_or_default(),
        fault: trouble.map(Trouble::to_string).unwrap_or_default(),
    }
}

/// The filter that these words make.
fn filter(words: &[String]) -> Result<Option<CaptureFilter>, RunError> {
    if words.is_empty() {
        return Ok(None);
    }
    CaptureFilter::looking_up(&words.join(" ")).map(Some).map_err(|error| {
        match hint::option_in_filter(words) {
            Some(option) => RunError::OptionInFilter { error, option: option.clone() },
            None => RunError::Filter(error),
        }
    })
}

/// Admits and compiles what was asked for, or all shipped monitors.
fn load(args: &Run, tables: &Tables) -> Result<(Engine, Vec<LoadedModule>), RunError> {
    let terms = terms(args.profile.as_deref())?;
    let mut admitted = Vec::new();
    if args.modules.is_empty() {
        for shipped in shipped::ALL {
            let module = Spec { name: shipped.name.to_owned(), settings: Vec::new() };
            // The others change packets, or send some, so they run only where they are named.
            if weir_admission::manifest_of(shipped.wasm)
                .is_ok_and(|(manifest, _)| manifest.kind == ModuleKind::Monitor)
            {
                admitted.push((shipped.name.to_owned(), module.admit(&terms)?));
            }
        }
    }
    for text in &args.modules {
        let spec = Spec::parse(text)?;
        admitted.push((spec.name.clone(), spec.admit(&terms)?));
    }
    tables.check(admitted.iter().map(|(_, admitted)| admitted))?;
    admitted.iter().for_each(|(name, admitted)| tables.warn(name, admitted));
    let cache = if args.no_cache {
        None
    } else {
        Cache::of_user()
            .map_err(|error| {
                let _ = writeln!(std::io::stderr(), "weir: warning: compiled modules are not kept: {error}");
            })
            .ok()
    };
    let options = EngineOptions {
        call_limit: Duration::from_nanos(args.call_limit.0),
        compile_in_child: Some(CompileLimits::default()),
        ..EngineOptions::default()
    };
    let failed = |module: &str| {
        let module = module.to_owned();
        move |error| RunError::Load { module, error }
    };
    if !goes_on(args) {
        for (name, admitted) in &admitted {
            if admitted.manifest().kind == ModuleKind::Filter {
                let _ = writeln!(
                    std::io::stderr(),
                    "weir: warning: {}: what it changes or drops is not written anywhere; -w FILE writes the packets, --send IFACE sends those of an interface",
                    name.shown()
                );
            }
        }
    }
    let engine = Engine::new(options, cache).map_err(failed("weir"))?;
    let load = |(name, admitted): (String, _)| engine.load(admitted).map_err(failed(&name));
    let programs = admitted.into_iter().map(load).collect::<Result<_, _>>()?;
    Ok((engine, programs))
}

/// Packets to read.
struct Reading {
    origin: PacketSource,
    /// Selects those that modules are called for.
    filter: Option<CaptureFilter>,
    /// End the run.
    signals: Signals,
}

/// Starts the instances and opens everything that is written.
fn assemble(
    args: &Run,
    jobs: usize,
    engine: &Engine,
    programs: &[LoadedModule],
    tables: &Tables,
    reading: Reading,
) -> Result<(WorkerPool, Option<Page>), RunError> {
    let Reading { origin, filter, mut signals } = reading;
    if let Some(report) =
        args.report.as_ref().filter(|report| origin.capture().is_some_and(|capture| capture.reads(report)))
    {
        return Err(RunError::ReportOntoCapture(report.clone()));
    }
    let mut shards: Vec<Shard> = Vec::new();
    let mut labels: Vec<String> = Vec::new();
    let mut instances = Vec::new();
    for program in programs {
        let admitted = program.admitted();
        let label = label(admitted.manifest().name.as_str(), &labels);
        let parts = if is_parallel(program) { jobs.min(PARTS_MAX) } else { 1 };
        let first = shards.len();
        for part in 0..parts {
            let mut instance = Instance::start_with(engine, program, tables.means(admitted))
                .map_err(|error| RunError::Load { module: label.clone(), error })?;
            if !goes_on(args) {
                instance.ignore_patches();
            }
            let tick = admitted.tick().map(|period| period.0);
            shards.push(Shard::new(instance, (part as u64, parts as u64), origin.descriptors(), tick)?);
        }
        labels.push(label);
        instances.push(first..shards.len());
    }
    // Records last: where something else cannot be opened, those of an earlier run are not touched.
    let page = args.report.as_deref().map(Page::open).transpose()?;
    let forwarder = match (&args.live.send, &args.interface, origin.link_types().first()) {
        (Some(to), Some(from), Some(link_type)) => {
            Some(Forwarder::start(to, from, *link_type, args.live.rate)?)
        }
        _ => None,
    };
    let writer = args.write.as_ref().map(|path| PacketWriter::create(path, origin.capture())).transpose()?;
    let mut report = args.report.is_some().then(RunReport::new);
    // Packets of an interface do not come again.
    let durability = if args.interface.is_some() { Durability::Seconds } else { Durability::AtEnd };
    let mut sinks: Vec<ResultSink> = Vec::new();
    for ((program, label), instances) in programs.iter().zip(labels).zip(instances) {
        let manifest = program.admitted().manifest();
        let files = ModuleFiles::create(args.out.as_deref(), &label, manifest, durability)?;
        for found in files.recovered() {
            // A closed standard error must not end the run.
            let _ = writeln!(
                std::io::stderr(),
                "weir: {label}: an earlier run ended without warning; its {} rows are in {}",
                found.rows,
                found.path.shown()
            );
        }
        let in_report = report.as_mut().map_or(0, |report| report.module(&label, manifest));
        let outputs = Outputs::create(args.out.as_deref(), &label, manifest)?;
        sinks.push(ResultSink {
            label,
            files,
            outputs,
            instances,
            in_report,
            is_parallel: is_parallel(program),
        });
    }
    let progress = RunProgress::new(!args.quiet);
    // Now that everything is open: until here a signal ends the process, which has nothing to lose.
    signals.catch().map_err(RunError::Signals)?;
    let interrupted = Arc::clone(&signals.interrupted);
    let duration = args.live.duration.map(|duration| Duration::from_nanos(duration.0));
    let limits = RunLimits { count: args.count, duration, interrupted };
    let ticks = programs.iter().filter_map(|program| program.admitted().tick()).map(|period| period.0);
    // Rows are brought to their logs also while no packets come.
    let flushes = (durability == Durability::Seconds).then_some(FLUSH_NANOS);
    let ticks = ticks.chain(flushes).collect();
    let source = RunSource::new(origin, filter, limits, shards.len(), ticks, progress);
    let collector = Collector::new(sinks, OutputHandles::new(writer, forwarder), report, durability);
    Ok((WorkerPool { source, shards, collector }, page))
}

/// Whether packets go anywhere after the modules.
fn goes_on(args: &Run) -> bool {
    args.write.is_some() || args.live.send.is_some()
}

fn is_parallel(program: &LoadedModule) -> bool {
    program.admitted().manifest().parallel == Parallel::Flow
}

/// What a module is called in this run: its name, or with a number where it runs more than once.
fn label(name: &str, labels: &[String]) -> String {
    let taken = |label: &str| labels.iter().any(|other| other == label);
    let numbered = (2..).map(|n| format!("{name}-{n}"));
    std::iter::once(name.to_owned()).chain(numbered).find(|label| !taken(label)).unwrap_or_default()
}
