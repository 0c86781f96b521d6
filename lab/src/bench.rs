//! The program `bench`, run by `make bench`: its command line, and the list of its parts. Each part measures promises of
//! docs/SPECIFICATION.md.

use crate::corpus::{self, CorpusSource};
use crate::document::{self, Section};
use crate::error::LabError;
use crate::instructions::{self, CountedRun};
use crate::module::Module;
use crate::packets::{Packets, packets_of};
use crate::worst_case::Search;
use crate::{
    analysis, authorising, compiling, demultiplexing, durable, floods, graphs, handshake, idle, imix, live,
    looped, machine, memory, namespace, no_compiler, paths, price, processes, ratios, rivals, rows, run,
    scheduling, session, shares, sizing, start, suspending, versus, views, xdp,
};
use clap::Parser;
use clap::builder::{PossibleValue, PossibleValuesParser};
use std::path::PathBuf;
use std::process::ExitCode;
use weir_author::OptLevel;

/// Measures the targets of docs/SPECIFICATION.md, and prints them as tables.
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Cli {
    /// Parts to measure
    #[arg(value_parser = parts(), default_value = ALL)]
    parts: Vec<String>,
    /// Use fewer rounds
    #[arg(long)]
    quick: bool,
    /// Measure only this module; can be repeated
    #[arg(short, long = "module", value_name = "NAME")]
    modules: Vec<String>,
    /// Trace, a classic pcap file [default: a mixed one beside the repository, else the sample capture]
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Large capture for whole runs [default: a generated one for `run` and `memory`, the repeated trace for `rows`]
    #[arg(long, value_name = "FILE")]
    big: Option<PathBuf>,
    /// Earlier build of `weir` for `versus`, in its own checkout; the `bench` in its folder counts instructions
    #[arg(long, value_name = "FILE")]
    old: Option<PathBuf>,
    /// Also write the tables to this file
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write the tables into docs/SPECIFICATION.md
    #[arg(long)]
    update: bool,
    /// Run one build of a module over the trace, under callgrind
    #[arg(long, hide = true, value_name = "MODULE:BUILD:PACKETS:PASSES")]
    exercise: Option<String>,
    /// Analyse a module once, in this process
    #[arg(long, hide = true, value_name = "FILE")]
    analyse: Option<PathBuf>,
}

/// A part of the benchmark.
struct Part {
    name: &'static str,
    about: &'static str,
    /// The number of rounds with `--quick`, and without it.
    rounds: (usize, usize),
    measure: fn(&Bench<'_>, usize) -> Result<String, LabError>,
}

const ALL: &str = "all";
const MAKE_BIG: &str = "make-big";
const VERSUS: &str = "versus";
/// The parts that run in their own network namespace.
const IN_NAMESPACES: [&str; 5] = ["floods", "live", "session", "xdp", "idle"];

const fn part(
    name: &'static str,
    about: &'static str,
    rounds: (usize, usize),
    measure: fn(&Bench<'_>, usize) -> Result<String, LabError>,
) -> Part {
    Part { name, about, rounds, measure }
}

/// All parts, in the order of the output.
const PARTS: &[Part] = &[
    part("price", "Sandboxed against native modules: time", (31, 151), |bench, rounds| {
        price::tables(&bench.modules, &bench.trace, CACHED, rounds)
    }),
    part("instructions", "Sandboxed against native modules: instructions", (1, 1), |bench, _| {
        instructions::table(&bench.modules, &bench.trace, COUNTED)
    }),
    part("run", "Whole runs against a bare loop and tcpdump", (3, 9), |bench, rounds| {
        run::tables(&bench.mixed()?, rounds)
    }),
    part("modules", "The modules for today's traffic against the usual tools", (3, 7), |bench, rounds| {
        rivals::tables(&bench.mixed()?, rounds)
    }),
    part("memory", "Memory of whole runs", (1, 1), |bench, _| {
        memory::table(&bench.trace, &bench.mixed()?, &bench.shipped)
    }),
    part("start", "From start to first packet", (5, 20), |bench, rounds| {
        start::table(&bench.shipped, rounds)
    }),
    part("compile", "Compiling modules with LLVM, and verifying their code", (3, 15), |bench, rounds| {
        compiling::tables(&bench.modules, rounds)
    }),
    part("no-compiler", "weir without a compiler: size and start", (5, 21), |_, rounds| {
        no_compiler::table(rounds)
    }),
    part("rows", "Rows on standard output beside Parquet files", (3, 9), |bench, rounds| {
        rows::tables(&bench.big()?, rounds)
    }),
    part("corpus", "The share of the corpus that gets a bound", (1, 1), |_, _| {
        shares::tables(&corpus::build(&CorpusSource::all()?, &OptLevel::ALL)?, &OptLevel::ALL)
    }),
    part("bounds", "Bounds against the most expensive packets that a search finds", (1, 1), |bench, _| {
        bench.bounds()
    }),
    part("analysis", "Time and memory of analyses", (21, 201), |bench, rounds| {
        analysis::tables(&bench.modules, rounds)
    }),
    part(
        "demux",
        "Finding the channels of a packet: joined filters against libpcap's",
        (21, 101),
        |bench, rounds| demultiplexing::tables(&bench.trace, rounds),
    ),
    part(
        "graph",
        "Graphs of elements beside plain C, and beside Click if `CLICK` names it",
        (5, 21),
        |bench, rounds| graphs::tables(&bench.trace, &bench.mixed()?, rounds),
    ),
    part("view", "Rewriting a packet for a view", (5, 41), |bench, rounds| {
        views::tables(&bench.trace, rounds)
    }),
    part("schedule", "A decision of the schedulers", (11, 101), |_, rounds| scheduling::tables(rounds)),
    part("suspend", "A suspendable call, and a suspension", (11, 51), |_, rounds| suspending::tables(rounds)),
    part("process", "Modules in sandbox processes", (11, 101), |_, rounds| processes::table(rounds)),
    part("handshake", "Both sides of a handshake", (11, 101), |_, rounds| handshake::tables(rounds)),
    part("authorise", "Credentials, and decisions about requests", (11, 101), |_, rounds| {
        authorising::table(rounds)
    }),
    part(
        "floods",
        "Valid clients, and the node's processor time, under floods of other peers (root)",
        (1, 1),
        |_, _| floods::table(),
    ),
    part(
        "live",
        "Receiving from an interface, calling modules, and what a node needs by its sessions, flows and traffic (root)",
        (5, 15),
        |_, rounds| {
            // A round of the sizing takes as long as ten of the others.
            let sizing = sizing::tables(rounds.div_ceil(5))?;
            Ok(format!("{}\n{}\n{sizing}", live::table(rounds)?, durable::table(rounds)?))
        },
    ),
    part(
        "session",
        "A session on an interface: processor time beside tcpdump, and latency of forwarding (root)",
        (3, 5),
        |_, rounds| session::tables(rounds),
    ),
    part("xdp", "Receiving by AF_XDP against a bare loop: time and loss (root)", (3, 11), |_, rounds| {
        xdp::table(rounds)
    }),
    part("idle", "A node whose sessions have no packets (root)", (1, 1), |_, _| idle::table()),
];

fn parts() -> PossibleValuesParser {
    let others = [
        (ALL, "All parts"),
        (VERSUS, "An earlier weir (`--old`) against this one; part of `all` if `--old` is given"),
        (MAKE_BIG, "Make the large captures"),
    ];
    let all = PARTS.iter().map(|part| (part.name, part.about)).chain(others);
    all.map(|(name, about)| PossibleValue::new(name).help(about)).collect::<Vec<_>>().into()
}

/// The least number of packets of the large capture.
const BIG_PACKETS: u64 = 5_000_000;
/// A number of packets that fit into the processor's cache with their descriptors.
const CACHED: usize = 4096;
/// The number of packets whose instructions are counted.
const COUNTED: usize = 8192;
/// A trace with fewer packets is repeated, so that it exceeds the processor's cache.
const TRACE_PACKETS: u64 = 65_536;

/// The exit status if a module is slower than in the earlier program of `versus`.
const SLOWER: u8 = 3;

/// The program `bench`.
pub fn main() -> ExitCode {
    match measure(&Cli::parse()) {
        Ok(slower) if slower.is_empty() => ExitCode::SUCCESS,
        Ok(slower) => {
            eprintln!("bench: modules that are slower than in the earlier program: {}", slower.join(", "));
            ExitCode::from(SLOWER)
        }
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures the requested parts. Returns the modules that are slower than in the earlier program.
fn measure(cli: &Cli) -> Result<Vec<String>, LabError> {
    if let Some(path) = &cli.analyse {
        println!("{}", analysis::analyse_file(path)?);
        return Ok(Vec::new());
    }
    let source = cli.capture.clone().or_else(paths::shared_trace).unwrap_or_else(paths::sample);
    if let Some(exercise) = &cli.exercise {
        CountedRun::from_argument(exercise)?.run(&source)?;
        return Ok(Vec::new());
    }
    let bench = Bench::new(cli, source)?;
    let wants = |name: &str| cli.parts.iter().any(|part| part == name);
    let mut sections = Vec::new();
    let mut add = |name, text: String| {
        println!("\n## {name}\n\n{text}");
        sections.push(Section { name, text });
    };
    if !namespace::is_inside() {
        add("machine", machine::description());
    }
    for part in PARTS.iter().filter(|part| wants(ALL) || wants(part.name)) {
        let rounds = if cli.quick { part.rounds.0 } else { part.rounds.1 };
        if namespace::is_inside() {
            print!("{}", (part.measure)(&bench, rounds)?);
            return Ok(Vec::new());
        }
        let needs_namespace = IN_NAMESPACES.contains(&part.name);
        add(
            part.name,
            if needs_namespace { bench.measure_in_namespace(part)? } else { (part.measure)(&bench, rounds)? },
        );
    }
    if wants(MAKE_BIG) {
        bench.big()?;
        bench.mixed()?;
    }
    let mut slower = Vec::new();
    if wants(VERSUS) || wants(ALL) && cli.old.is_some() {
        let verdict = bench.versus()?;
        add(VERSUS, verdict.text);
        slower = verdict.slower;
    }
    if let Some(path) = &cli.markdown {
        let text: String = sections.iter().map(|s| format!("## {}\n\n{}\n", s.name, s.text)).collect();
        std::fs::write(path, text).map_err(LabError::file(path))?;
    }
    if cli.update {
        document::update(&paths::root().join("docs/SPECIFICATION.md"), &sections)?;
    }
    Ok(slower)
}

/// The modules and captures of the measurements.
struct Bench<'a> {
    cli: &'a Cli,
    modules: Vec<Module>,
    /// The names of the measured modules without `empty`.
    shipped: Vec<String>,
    /// The capture given by `--capture`, or the default one.
    source: PathBuf,
    /// The same capture, repeated if it is short.
    trace: PathBuf,
}

impl<'a> Bench<'a> {
    fn new(cli: &'a Cli, source: PathBuf) -> Result<Self, LabError> {
        let modules: Vec<Module> = if cli.modules.is_empty() {
            [vec![Module::empty()?], Module::shipped()?].concat()
        } else {
            cli.modules.iter().map(|name| Module::named(name)).collect::<Result<_, _>>()?
        };
        let shipped = modules.iter().map(|m| m.name.clone()).filter(|name| name != "empty").collect();
        let mut trace = source.clone();
        if packets_of(Packets::read(&source, usize::MAX)?.batches()) < TRACE_PACKETS {
            trace = looped::make_in_scratch(&source, "looped", TRACE_PACKETS)?;
        }
        Ok(Self { cli, modules, shipped, source, trace })
    }

    /// The large capture, which is made if it does not exist.
    fn big(&self) -> Result<PathBuf, LabError> {
        match &self.cli.big {
            Some(big) => looped::make_if_missing(&self.source, big, BIG_PACKETS).map(|()| big.clone()),
            None => looped::make_in_scratch(&self.source, "big", BIG_PACKETS),
        }
    }

    /// The large capture with the Internet mix of packet lengths, unless `--big` gives another one.
    fn mixed(&self) -> Result<PathBuf, LabError> {
        if self.cli.big.is_some() { self.big() } else { imix::make_if_missing() }
    }

    /// Measures a part by running this program again in a new network namespace. Returns the output.
    fn measure_in_namespace(&self, part: &Part) -> Result<String, LabError> {
        let quick = self.cli.quick.then_some("--quick");
        namespace::output_of(&[part.name].into_iter().chain(quick).map(str::to_owned).collect::<Vec<_>>())
    }

    fn bounds(&self) -> Result<String, LabError> {
        let quick = self.cli.quick;
        let packets = Packets::read(&self.trace, usize::MAX)?;
        let search = Search { seed: 1, phases: if quick { 8 } else { 60 }, batches: 150 };
        let text = ratios::shipped(&self.modules, &self.source, &packets, search)?;
        if !self.cli.modules.is_empty() {
            return Ok(text);
        }
        let corpus = corpus::build(&CorpusSource::all()?, &OptLevel::ALL)?;
        let search = Search { seed: 2, phases: if quick { 4 } else { 20 }, batches: 40 };
        let text = format!("{text}\n{}", ratios::corpus(&shares::bounded(&corpus)?, &self.source, search)?);
        let skipped: Vec<&str> =
            corpus.skipped.iter().filter_map(|skipped| skipped.split(':').next()).collect();
        Ok(if skipped.is_empty() {
            text
        } else {
            format!(
                "{text}\nThe functions in {} were not built: a compiler is missing.\n",
                skipped.join(" and ")
            )
        })
    }

    fn versus(&self) -> Result<versus::Verdict, LabError> {
        let old = self.cli.old.clone().unwrap_or_default();
        let (rounds, packets) = if self.cli.quick { (9, COUNTED / 4) } else { (21, COUNTED) };
        let (capture, counted, modules) = (&self.trace, &self.source, &self.shipped);
        versus::Versus { old: &old, capture, counted, modules, rounds, packets }.measure()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_a_name_of_its_own() {
        let mut names: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
        assert!(IN_NAMESPACES.iter().all(|name| names.contains(name)));
        names.extend([ALL, VERSUS, MAKE_BIG]);
        names.sort_unstable();
        assert!(names.windows(2).all(|two| two[0] != two[1]), "{names:?}");
    }
}
