//! The benchmark: `make bench`.

#![forbid(unsafe_code)]

use clap::{Parser, ValueEnum};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weir_author::Level;
use weir_lab::contest::Effort;
use weir_lab::corpus::{self, Shape};
use weir_lab::document::{self, Section};
use weir_lab::figure::FigureError;
use weir_lab::instructions::{self, Exercise};
use weir_lab::module::Module;
use weir_lab::packets::{Packets, packets_of};
use weir_lab::price::{self, Workshop};
use weir_lab::table::Table;
use weir_lab::worst::Search;
use weir_lab::{
    BenchError, analysis, authorising, compiling, demultiplexing, descriptors, floods, handshake, idle, live,
    looped, machine, memory, place, ratios, run, scheduling, shares, start, suspending, versus, views, wards,
};

/// Measures what docs/SPECIFICATION.md promises, and prints it as tables.
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Cli {
    /// What to measure
    #[arg(value_enum, default_value = "all")]
    parts: Vec<Part>,
    /// Fewer rounds: for a first look
    #[arg(long)]
    quick: bool,
    /// Only these modules
    #[arg(short, long = "module", value_name = "NAME")]
    modules: Vec<String>,
    /// The trace: a classic pcap file [default: a mixed one beside the repository, else the sample capture]
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// The large capture for whole runs; made by looping the trace where it is not there
    #[arg(long, value_name = "FILE")]
    big: Option<PathBuf>,
    /// The earlier program `weir` of `bench versus`, in the checkout that it was built in; the `bench` beside it counts its instructions
    #[arg(long, value_name = "FILE")]
    old: Option<PathBuf>,
    /// Write the tables to this file too
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write the tables into docs/SPECIFICATION.md
    #[arg(long)]
    update: bool,
    /// Run one build of a module over the trace: what is run under callgrind
    #[arg(long, hide = true, value_name = "MODULE:BUILD:PACKETS:PASSES")]
    exercise: Option<String>,
    /// Analyse a module once, and say what it took: what is run in a process of its own
    #[arg(long, hide = true, value_name = "FILE")]
    analyse: Option<PathBuf>,
    /// Say what idle sessions take of a core: what is run in a network namespace of its own
    #[arg(long, hide = true)]
    idle: bool,
    /// Measure access under floods: likewise
    #[arg(long, hide = true)]
    floods: bool,
    /// Measure the live path so often: likewise
    #[arg(long, hide = true, value_name = "ROUNDS")]
    live: Option<usize>,
}

/// The parts of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// All of them
    All,
    /// Sandboxed against native modules: time
    Price,
    /// Modules over descriptors of several sizes
    Descriptor,
    /// Sandboxed against native modules: instructions
    Instructions,
    /// Whole runs against a bare loop and tcpdump
    Run,
    /// Memory of whole runs
    Memory,
    /// From start to first packet
    Start,
    /// Other ways of compiling than the one that is kept
    Compiling,
    /// The share of the corpus that gets a bound
    Corpus,
    /// Bounds against the dearest packets that a search finds
    Bounds,
    /// Time and memory of analyses
    Analysis,
    /// Who wants a packet: joined filters against libpcap's
    Demux,
    /// What it costs to show a packet as a view allows
    View,
    /// A decision of the schedulers
    Schedule,
    /// A call that can be suspended, and a suspension
    Suspend,
    /// Modules in processes of their own
    Ward,
    /// Both sides of a handshake
    Handshake,
    /// What somebody may do: credentials, and requests held against them
    Authorise,
    /// Valid clients, and the node's processor time, under floods of other peers (root)
    Floods,
    /// Receiving from an interface, and calling modules (root)
    Live,
    /// A node whose sessions have nothing to do (root)
    Idle,
    /// An earlier weir (`--old`) against this one; part of `all` where one is named
    Versus,
    /// Only make the large capture
    MakeBig,
}

/// Packets of the large capture, at least.
const BIG_PACKETS: u64 = 5_000_000;
/// Packets that stay in the processor's cache with their descriptors, and packets whose instructions are counted.
const CACHED: usize = 4096;
/// Packets of a block: so many descriptors are written before modules look at them.
const BLOCK: usize = weir_netio::BLOCK_PACKETS;
const COUNTED: usize = 8192;
/// The exit status where a row of `versus` is outside.
const OUTSIDE: u8 = 3;
/// A trace with fewer packets is looped, so that it does not stay in the cache.
const TRACE_PACKETS: u64 = 65_536;

fn main() -> ExitCode {
    match measure(&Cli::parse()) {
        Ok(outside) if outside.is_empty() => ExitCode::SUCCESS,
        Ok(outside) => {
            eprintln!("bench: more than with the earlier program: {}", outside.join(", "));
            ExitCode::from(OUTSIDE)
        }
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures, and returns the modules that are outside of an earlier program's measures.
fn measure(cli: &Cli) -> Result<Vec<String>, BenchError> {
    let source = cli.capture.clone().or_else(place::shared_trace).unwrap_or_else(place::sample);
    if let Some(exercise) = &cli.exercise {
        let exercise =
            Exercise::from_argument(exercise).ok_or_else(|| BenchError::NoModule(exercise.clone()))?;
        return exercise.run(&source).map(|()| Vec::new());
    }
    if let Some(path) = &cli.analyse {
        println!("{}", analysis::child(path)?);
        return Ok(Vec::new());
    }
    let failed = |error: FigureError| BenchError::Failed {
        command: "in a network namespace".to_owned(),
        said: error.to_string(),
    };
    if cli.idle {
        let costs = idle::child().map_err(failed)?;
        println!("{} {}", costs.setting_up, costs.idle);
        return Ok(Vec::new());
    }
    if cli.floods {
        print!("{}", floods::child().map_err(failed)?);
        return Ok(Vec::new());
    }
    if let Some(rounds) = cli.live {
        print!("{}", live::child(rounds).map_err(failed)?);
        return Ok(Vec::new());
    }
    let wants = |part| {
        cli.parts.contains(&part)
            || cli.parts.contains(&Part::All)
                && (part != Part::Versus || cli.old.is_some())
                && part != Part::MakeBig
    };
    let modules = modules(cli)?;
    let shipped: Vec<String> =
        modules.iter().map(|m| m.name.clone()).filter(|name| name != "empty").collect();
    let trace = trace(&source)?;
    let mut sections = vec![Section { name: "machine", text: machine::facts() }];
    print!("{}", sections[0].text);
    let mut add = |name, text: String| {
        println!("\n## {name}\n\n{text}");
        sections.push(Section { name, text });
    };
    if wants(Part::Price) {
        add("price", prices(&modules, &trace, cli.quick)?);
    }
    if wants(Part::Descriptor) {
        add("descriptor", descriptors(&modules, &trace, cli.quick)?);
    }
    if wants(Part::Compiling) {
        let packets = Packets::read(&trace, CACHED)?;
        let effort = Effort { rounds: if cli.quick { 21 } else { 101 }, warm: true, passes: 4 };
        let table = compiling::table(&modules, &packets, packets.batches(), effort)?;
        let rounds = effort.rounds;
        add(
            "compiling",
            format!(
                "{CACHED} packets of `{}`, in the processor's cache; medians of {rounds} rounds.\n\n{table}",
                place::shown(&trace)
            ),
        );
    }
    if wants(Part::Instructions) {
        let table = instructions::table(&modules, &trace, COUNTED)?;
        let text = table.map_or_else(|| "valgrind is not installed.\n".to_owned(), |table| table.to_string());
        add("instructions", format!("The first {COUNTED} packets of `{}`.\n\n{text}", place::shown(&source)));
    }
    if wants(Part::Run) || wants(Part::Memory) || wants(Part::MakeBig) {
        let big = cli.big.clone().unwrap_or_else(|| {
            place::scratch().join(format!("big-{}", source.file_name().unwrap_or_default().to_string_lossy()))
        });
        looped::make_if_missing(&source, &big, BIG_PACKETS)?;
        if wants(Part::Run) {
            add("run", run::tables(&big, &shipped, if cli.quick { 3 } else { 9 })?);
        }
        if wants(Part::Memory) {
            add("memory", memory::table(&trace, &big, &shipped)?);
        }
    }
    if wants(Part::Start) {
        add("start", start::table(&shipped, if cli.quick { 5 } else { 20 })?);
    }
    if wants(Part::Corpus) {
        let corpus = corpus::build(&Shape::all()?, &Level::ALL)?;
        add("corpus", shares::tables(&corpus, &Level::ALL)?);
    }
    if wants(Part::Bounds) {
        add("bounds", bounds(&modules, &source, &trace, cli)?);
    }
    if wants(Part::Analysis) {
        add("analysis", analysis::tables(&modules, if cli.quick { 21 } else { 201 })?);
    }
    if wants(Part::Demux) {
        add("demux", demultiplexing::tables(&trace, if cli.quick { 21 } else { 101 })?);
    }
    if wants(Part::View) {
        add("view", views::tables(&trace, if cli.quick { 5 } else { 41 })?);
    }
    if wants(Part::Schedule) {
        add("schedule", scheduling::tables(if cli.quick { 11 } else { 101 })?);
    }
    if wants(Part::Suspend) {
        add("suspend", suspending::tables(if cli.quick { 11 } else { 51 })?);
    }
    if wants(Part::Ward) {
        add("ward", wards::table(if cli.quick { 11 } else { 101 })?);
    }
    if wants(Part::Handshake) {
        add("handshake", handshake::tables(if cli.quick { 11 } else { 101 })?);
    }
    if wants(Part::Authorise) {
        add("authorise", authorising::table(if cli.quick { 11 } else { 101 })?);
    }
    if wants(Part::Floods) {
        add("floods", floods::table()?);
    }
    if wants(Part::Live) {
        let rounds = if cli.quick { 5 } else { 15 };
        add("live", format!("{}\n{}", live::table(rounds)?, weir_lab::durable::table(rounds)?));
    }
    if wants(Part::Idle) {
        add("idle", idle::table()?);
    }
    let mut outside = Vec::new();
    if wants(Part::Versus) {
        let verdict = versus(cli, &shipped, &trace, &source)?;
        add("versus", verdict.text);
        outside = verdict.outside;
    }
    if let Some(path) = &cli.markdown {
        let text: String = sections.iter().map(|s| format!("## {}\n\n{}\n", s.name, s.text)).collect();
        std::fs::write(path, text).map_err(BenchError::file(path))?;
    }
    if cli.update {
        document::update(&place::root().join("docs/SPECIFICATION.md"), &sections)?;
    }
    Ok(outside)
}

fn versus(
    cli: &Cli,
    modules: &[String],
    trace: &Path,
    counted: &Path,
) -> Result<versus::Verdict, BenchError> {
    let old = cli.old.clone().unwrap_or_default();
    let (rounds, packets) = if cli.quick { (9, COUNTED / 4) } else { (21, COUNTED) };
    versus::Versus { old: &old, capture: trace, counted, modules, rounds, packets }.measure()
}

fn modules(cli: &Cli) -> Result<Vec<Module>, BenchError> {
    if cli.modules.is_empty() {
        let mut all = vec![Module::empty()?];
        all.extend(Module::shipped()?);
        return Ok(all);
    }
    cli.modules.iter().map(|name| Module::named(name)).collect()
}

/// The trace itself, or where it is short, a longer one made of it.
fn trace(source: &Path) -> Result<PathBuf, BenchError> {
    if packets_of(Packets::read(source, usize::MAX)?.batches()) >= TRACE_PACKETS {
        return Ok(source.to_owned());
    }
    let name = source.file_name().unwrap_or_default().to_string_lossy();
    let longer = place::scratch().join(format!("looped-{name}"));
    looped::make_if_missing(source, &longer, TRACE_PACKETS)?;
    Ok(longer)
}

fn bounds(modules: &[Module], sample: &Path, trace: &Path, cli: &Cli) -> Result<String, BenchError> {
    let quick = cli.quick;
    let packets = Packets::read(trace, usize::MAX)?;
    let search = Search { seed: 1, times: if quick { 8 } else { 60 }, batches: 150 };
    let text = ratios::shipped(modules, sample, &packets, search)?;
    if !cli.modules.is_empty() {
        return Ok(text);
    }
    let corpus = corpus::build(&Shape::all()?, &Level::ALL)?;
    let search = Search { seed: 2, times: if quick { 4 } else { 20 }, batches: 40 };
    Ok(format!("{text}\n{}", ratios::corpus(&shares::bounded(&corpus)?, sample, search)?))
}

fn descriptors(modules: &[Module], trace: &Path, quick: bool) -> Result<String, BenchError> {
    let cached = Effort { rounds: if quick { 31 } else { 151 }, warm: true, passes: 4 };
    let streamed = Effort { rounds: if quick { 9 } else { 41 }, warm: false, passes: 1 };
    let mut text = String::new();
    for (title, most, effort) in [
        (format!("{BLOCK} packets again and again, as a block"), BLOCK, cached),
        (format!("{CACHED} packets again and again"), CACHED, cached),
        ("the whole trace".to_owned(), usize::MAX, streamed),
    ] {
        let table = descriptors::table(modules, trace, most, effort)?;
        let rounds = effort.rounds;
        _ = writeln!(text, "`{}`: {title}; medians of {rounds} rounds.\n\n{table}", place::shown(trace));
    }
    Ok(text)
}

fn prices(modules: &[Module], trace: &Path, quick: bool) -> Result<String, BenchError> {
    let packets = Packets::read(trace, usize::MAX)?;
    let workshop = Workshop::open(&packets)?;
    let cached = Effort { rounds: if quick { 31 } else { 151 }, warm: true, passes: 4 };
    let streamed = Effort { rounds: if quick { 9 } else { 41 }, warm: false, passes: 1 };
    let sets = [
        (
            "cached",
            format!("{CACHED} packets again and again, in the processor's cache"),
            packets.first(CACHED),
            cached,
        ),
        ("trace", "the whole trace".to_owned(), packets.batches(), streamed),
    ];
    let mut text = String::new();
    let mut verdicts: Option<Table> = None;
    for (set, title, batches, effort) in sets {
        let mut prices = Vec::new();
        for module in modules {
            prices.push(workshop.measure(module, batches, effort)?);
        }
        let table = price::table(&prices);
        let rounds = effort.rounds;
        _ = writeln!(
            text,
            "`{}`, {} packets: {title}; medians of {rounds} rounds.\n\n{table}",
            place::shown(trace),
            packets_of(batches)
        );
        _ = writeln!(
            text,
            "What each way to be safe costs, and times as much as without checks:\n\n{}",
            price::safety(&prices)
        );
        let mut kept = price::verdicts(&prices, set);
        kept.extend(price::meter_verdicts(&prices, set));
        match &mut verdicts {
            Some(all) => all.extend(kept),
            None => verdicts = Some(kept),
        }
        let mut deeds = Table::new(&["module", "records", "patches"]);
        for price in &prices {
            deeds.row([
                price.module.name.clone(),
                price.deeds.records.to_string(),
                price.deeds.patches.to_string(),
            ]);
        }
        _ = writeln!(text, "The same in all builds, row by row, while this was measured:\n\n{deeds}");
    }
    Ok(format!("{}\n{text}", verdicts.unwrap_or_default()))
}
