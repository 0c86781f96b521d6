//! Graphs of elements beside the same work in plain C, and beside Click. The part `graph` of the benchmark.

mod click;
mod configurations;
mod memory;

use crate::criterion::{self, Criterion};
use crate::error::{Context, LabError};
use crate::native::{Compiler, compile_program, run_measured};
use crate::paths;
use crate::statistics::{Action, Sample, measure_in_turn, nanos_per_call, processor_time, to_f64};
use crate::table::Table;
use configurations::Rules;
use memory::{MeasuredGraph, MemoryCapture};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_demux::{ChannelSet, Demux, FilterProgram, JoinLimits, Packet};
use weir_elements::classification::{PacketParts, RuleSet, ip_filter};
use weir_graph::language::{AnyClass, ConfigurationSource, parse};
use weir_graph_io::GraphSystem;
use weir_netio::compile_filter;
use weir_wire::LinkType;

/// The promised limits.
const ROUTER_RATIO_MAX: f64 = 0.5;
const RULES_RATIO_MAX: f64 = 0.5;
const FLOWS_RATIO_MAX: f64 = 1.5;
const ROUTES_RATIO_MAX: f64 = 1.3;
const NAT_RATIO_MAX: f64 = 1.5;
const CAPTURE_RATIO_MAX: f64 = 1.3;
const PARSE_MILLISECONDS_MAX: f64 = 100.0;

/// The packets that stay in the processor's cache, and the passes of a measurement over them.
const CACHED: usize = 4096;
const PASSES: usize = 50;
const NULLS: usize = 20;
const ROUTES: usize = 100_000;
/// The packets for the routes, to as many different addresses.
const ROUTED: usize = 65_536;
/// The flows whose addresses are translated, and their packets.
const NAT_FLOWS: usize = 10_000;
const NAT_PACKETS: usize = 40_000;
/// The ends of the processor's longest Ethernet and IPv4 headers in a frame without tags and options.
const NETWORK: usize = 14;
const TRANSPORT: usize = 34;

/// A measurement: its name, and the time of a packet in nanoseconds.
struct Measurement<'a> {
    name: String,
    action: Action<'a>,
}

/// The measurements of one run, which are made in turn.
#[derive(Default)]
struct Measurements<'a>(Vec<Measurement<'a>>);

/// The results by name.
struct Results(Vec<(String, Sample)>);

impl<'a> Measurements<'a> {
    fn add(&mut self, name: impl Into<String>, action: impl FnMut() -> Result<f64, LabError> + 'a) {
        self.0.push(Measurement { name: name.into(), action: Box::new(action) });
    }

    /// Adds runs of a graph over a capture.
    fn graph(&mut self, name: impl Into<String>, graph: MeasuredGraph, capture: &'a MemoryCapture) {
        let passes = (PASSES * CACHED).div_ceil(capture.len().max(1));
        self.add(name, move || Ok(graph.run(capture, passes)?.0));
    }

    fn measure(self, rounds: usize) -> Result<Results, LabError> {
        let (names, mut actions): (Vec<String>, Vec<Action<'a>>) =
            self.0.into_iter().map(|Measurement { name, action }| (name, action)).unzip();
        let samples = measure_in_turn(rounds, &mut actions)?;
        Ok(Results(names.into_iter().zip(samples).collect()))
    }
}

impl Results {
    fn get(&self, name: &str) -> Sample {
        self.0.iter().find(|(found, _)| found == name).map(|(_, sample)| sample.clone()).unwrap_or_default()
    }

    /// The time that an element adds to a graph.
    fn added(&self, with: &str, without: &str) -> Sample {
        self.get(with).less(&self.get(without))
    }
}

/// The program `chain`, built.
struct Chain(PathBuf);

impl Chain {
    /// Runs a work over a capture. Returns the nanoseconds of a packet, the packets, and the sum of the results.
    fn run(
        &self,
        work: &str,
        capture: &Path,
        passes: usize,
        file: Option<&Path>,
    ) -> Result<(f64, u64, u64), LabError> {
        let mut command = Command::new(&self.0);
        command.arg(work).arg(capture).arg(passes.to_string()).args(file);
        let output = command.output().context("chain")?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let words: Vec<&str> = printed.split_whitespace().collect();
        let wrong = || LabError::failed(format_args!("chain {work}"), format!("the output is `{printed}`"));
        let [nanos, packets, sum] = words[..] else { return Err(wrong()) };
        match (nanos.parse(), packets.parse(), sum.parse()) {
            (Ok(nanos), Ok(packets), Ok(sum)) => Ok((nanos, packets, sum)),
            _ => Err(wrong()),
        }
    }

    fn action<'a>(
        &'a self,
        work: &'static str,
        capture: &'a Path,
        passes: usize,
        file: Option<PathBuf>,
    ) -> impl FnMut() -> Result<f64, LabError> + 'a {
        move || Ok(self.run(work, capture, passes, file.as_deref())?.0)
    }
}

/// Fails if a graph and the C program give different results.
fn same(what: &str, graph: u64, chain: u64) -> Result<(), LabError> {
    if graph == chain {
        return Ok(());
    }
    Err(LabError::Differ {
        module: what.to_owned(),
        round: 0,
        one: "the graph".to_owned(),
        other: "the C program".to_owned(),
        details: format!("{graph} and {chain}"),
    })
}

fn write_scratch(name: &str, text: &str) -> Result<PathBuf, LabError> {
    let path = paths::scratch().join(name);
    std::fs::write(&path, text).map_err(LabError::file(&path))?;
    Ok(path)
}

const SOURCE: &str = "FromDump(in)";
const BEFORE_RULES: &str = "FromDump(in) -> MarkIPHeader(14)";

/// The tables of a graph's time for a packet, and the promises about it. `trace` is a capture of real traffic, and `large`
/// one for whole runs.
pub fn tables(trace: &Path, large: &Path, rounds: usize) -> Result<String, LabError> {
    let compiler = Compiler::clang().or_else(Compiler::gcc).ok_or_else(|| {
        LabError::failed("lab/native/chain.c", "a C compiler is needed: clang-19 or gcc".to_owned())
    })?;
    let chain = Chain(compile_program(&paths::root().join("lab/native/chain.c"), &compiler)?);
    let frames = configurations::make_frames("frames.pcap", CACHED)?;
    let cached = MemoryCapture::read(&frames)?;
    let routes = configurations::routes(ROUTES);
    let routed = configurations::make_routed_frames("routed.pcap", ROUTED, &routes)?;
    let traffic = MemoryCapture::read(&routed)?;
    let flow_frames = configurations::make_flow_frames("flows.pcap", NAT_PACKETS, NAT_FLOWS)?;
    let flow_packets = MemoryCapture::read(&flow_frames)?;
    let trace_packets = MemoryCapture::read(trace)?;
    let filter = configurations::filter(50);
    let classifier = configurations::classifier(10);
    let sets: Vec<(&str, Rules)> =
        vec![("IPFilter, 50 rules", filter), ("IPClassifier, 10 rules", classifier)];
    let compiled = ip_filter(&sets[0].1.arguments.iter().map(String::as_str).collect::<Vec<_>>(), 1)
        .context("the rules of IPFilter")?;
    let joined = join(&sets[0].1.expressions)?;
    let text = configurations::large(1_000_000);
    let mut all = Measurements::default();
    add_routers(&mut all, &chain, &frames, &cached)?;
    for (name, rules) in &sets {
        add_rules(&mut all, name, rules, &chain, &frames, &cached)?;
    }
    add_decisions(&mut all, &compiled, &joined, sets[0].1.expressions.len(), &cached)?;
    add_flows(&mut all, &chain, trace, &trace_packets);
    add_translation(&mut all, &chain, &flow_frames, &flow_packets)?;
    add_routes(&mut all, &routes, &chain, &routed, &traffic)?;
    let limit = compile_program(&paths::root().join("lab/native/limit.c"), &compiler)?;
    add_capture(&mut all, &limit, large)?;
    all.add(PARSE, || Ok(parse_milliseconds(&text)));
    let results = all.measure(rounds)?;
    let criteria = criteria(&results);
    let click = click::table(rounds, trace, &routes, &sets)?;
    Ok(format!(
        "Processor time of a packet; medians of {rounds} rounds in turn. The router and the rules get {CACHED} frames of 64 bytes in the processor's cache, the routes {ROUTED} frames to random addresses within them. The time of rules and routes is that of a graph with them, less that of the graph without them. The results are equal to those of the C program, but for flows, where AggregateIPFlows tracks connections and fragments as well.\n\n{}\n{}\n{click}",
        criterion::table(&criteria),
        costs(&results),
    ))
}

const ROUTER: &str = "IP router with 4 routes";
const ROUTER_COMBINED: &str = "the same router, with combined elements";
const ROUTER_CHAIN: &str = "C: the router, one indirect call for each element and packet";
const NOTHING: &str = "capture in memory to Discard";
const NOTHING_CHAIN: &str = "C: capture in memory to discard";
/// The measured numbers of packets in a batch, beside the default.
const BATCHES: [usize; 4] = [1, 8, 32, 256];

fn add_routers<'a>(
    all: &mut Measurements<'a>,
    chain: &'a Chain,
    frames: &'a Path,
    cached: &'a MemoryCapture,
) -> Result<(), LabError> {
    let router = |text: String| MeasuredGraph {
        writes: configurations::neighbours(),
        counts: vec!["sent.count"],
        ..MeasuredGraph::new(text)
    };
    // The C program counts the bytes that it sends, 60 of each frame.
    let (_, _, sent_bytes) = chain.run("router", frames, 1, None)?;
    for text in [configurations::router(SOURCE), configurations::combined_router(SOURCE)] {
        let (_, counts) = router(text).run(cached, 1)?;
        same(ROUTER, counts.iter().sum::<u64>() * 60, sent_bytes)?;
    }
    all.graph(ROUTER, router(configurations::router(SOURCE)), cached);
    all.graph(ROUTER_COMBINED, router(configurations::combined_router(SOURCE)), cached);
    for batch in BATCHES {
        let graph = MeasuredGraph { batch, ..router(configurations::router(SOURCE)) };
        all.graph(format!("{ROUTER}, batches of {batch}"), graph, cached);
    }
    all.add(ROUTER_CHAIN, chain.action("router", frames, PASSES, None));
    all.graph(NOTHING, MeasuredGraph::new(configurations::nulls(0)), cached);
    all.add(NOTHING_CHAIN, chain.action("source", frames, PASSES, None));
    for batch in [1, MeasuredGraph::new("").batch] {
        for count in [0, NULLS] {
            let graph = MeasuredGraph { batch, ..MeasuredGraph::new(configurations::nulls(count)) };
            all.graph(nulls_name(count, batch), graph, cached);
        }
    }
    Ok(())
}

fn nulls_name(count: usize, batch: usize) -> String {
    format!("{count} Nulls, batches of {batch}")
}

fn without_rules() -> &'static str {
    "the graph without rules"
}

fn add_rules<'a>(
    all: &mut Measurements<'a>,
    name: &str,
    rules: &Rules,
    chain: &'a Chain,
    frames: &'a Path,
    cached: &'a MemoryCapture,
) -> Result<(), LabError> {
    let graph = |text: String| MeasuredGraph { counts: vec!["passed.count"], ..MeasuredGraph::new(text) };
    let with = graph(format!("{BEFORE_RULES} -> {}", rules.element));
    let file = write_scratch(&format!("{}.rules", name.replace([' ', ','], "-")), &rules.lines)?;
    let (_, counts) = with.run(cached, 1)?;
    let (_, packets, sum) = chain.run("rules", frames, 1, Some(&file))?;
    // Each packet matches the last rule.
    let last: u64 = rules.lines.split_whitespace().next_back().and_then(|it| it.parse().ok()).unwrap_or(0);
    same(name, counts.iter().sum::<u64>() * last, sum)?;
    same(name, counts.iter().sum(), packets)?;
    all.graph(name, with, cached);
    if all.0.iter().all(|it| it.name != without_rules()) {
        all.graph(without_rules(), graph(format!("{BEFORE_RULES} -> passed :: Discard")), cached);
    }
    all.add(format!("C: {name}"), chain.action("rules", frames, PASSES, Some(file)));
    Ok(())
}

const BY_TABLE: &str = "a decision of the 50 rules: table";
const BY_DEMUX: &str = "a decision of the 50 rules: the tables of core/demux";
const BY_TESTS: &str = "a decision of the 50 rules: graph of tests";
const BY_RULE: &str = "a decision of the 50 rules: one after another";

fn parts(frame: &[u8]) -> PacketParts<'_> {
    PacketParts {
        main: frame.get(NETWORK..).unwrap_or_default(),
        transport: frame.get(TRANSPORT..).unwrap_or_default(),
        link: frame,
    }
}

/// Joins capture filters, one for each rule.
fn join(expressions: &[String]) -> Result<Demux, LabError> {
    let mut programs = Vec::new();
    for expression in expressions {
        programs.push(compile_filter(expression, LinkType::Ethernet).context(expression)?);
    }
    let programs: Vec<Option<&FilterProgram>> = programs.iter().map(Some).collect();
    Demux::new(&programs, &JoinLimits::default()).context("the rules of IPFilter")
}

/// The time of a function of a frame.
fn nanos_per_frame(capture: &MemoryCapture, mut decide: impl FnMut(&[u8])) -> f64 {
    let time = processor_time(|| capture.frames().for_each(|frame| decide(black_box(frame))));
    time.as_secs_f64() * 1e9 / to_f64(capture.len())
}

fn add_decisions<'a>(
    all: &mut Measurements<'a>,
    rules: &'a RuleSet,
    joined: &'a Demux,
    count: usize,
    cached: &'a MemoryCapture,
) -> Result<(), LabError> {
    type Decide = fn(&RuleSet, &PacketParts<'_>) -> u16;
    let ways: [(&str, Decide); 3] = [
        (BY_TABLE, RuleSet::decide),
        (BY_TESTS, RuleSet::decide_by_tests),
        (BY_RULE, RuleSet::decide_one_by_one),
    ];
    for (name, decide) in ways {
        all.add(name, move || {
            Ok(nanos_per_frame(cached, |frame| {
                black_box(decide(rules, &parts(frame)));
            }))
        });
    }
    let mut wanted = ChannelSet::default();
    let mut first = move |frame: &[u8]| {
        let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        let packet = Packet { head: frame, cap_len: length, wire_len: length };
        joined.channels(&packet, &mut wanted).ok().and_then(|()| wanted.iter().next())
    };
    // The last rule passes packets, and all others deny them.
    for frame in cached.frames() {
        let passes = rules.decide(&parts(frame)) == 0;
        same(BY_DEMUX, u64::from(passes), u64::from(first(frame) == Some(count - 1)))?;
    }
    all.add(BY_DEMUX, move || {
        Ok(nanos_per_frame(cached, |frame| {
            black_box(first(frame));
        }))
    });
    Ok(())
}

const FLOWS: &str = "AggregateIPFlows, trace";
const NO_FLOWS: &str = "the graph without flows, trace";
const FLOWS_CHAIN: &str = "C: a hash table of flows, trace";

fn add_flows<'a>(all: &mut Measurements<'a>, chain: &'a Chain, trace: &'a Path, packets: &'a MemoryCapture) {
    const BEFORE: &str = "FromDump(in, FORCE_IP true) ->";
    all.graph(FLOWS, MeasuredGraph::new(format!("{BEFORE} AggregateIPFlows -> Discard")), packets);
    all.graph(NO_FLOWS, MeasuredGraph::new(format!("{BEFORE} Discard")), packets);
    all.add(FLOWS_CHAIN, chain.action("flows", trace, 2, None));
}

const NAT: &str = "IPRewriter, 10,000 flows";
const NO_NAT: &str = "the graph without IPRewriter";
const NAT_CHAIN: &str = "C: a hash table of flows, by which a copy is rewritten, 10,000 flows";

fn add_translation<'a>(
    all: &mut Measurements<'a>,
    chain: &'a Chain,
    frames: &'a Path,
    packets: &'a MemoryCapture,
) -> Result<(), LabError> {
    let graph = MeasuredGraph {
        counts: vec!["nat.table_size"],
        ..MeasuredGraph::new(format!("{SOURCE} -> {} -> Discard", configurations::TRANSLATION))
    };
    let (_, counts) = graph.run(packets, 1)?;
    let (_, _, flows) = chain.run("nat", frames, 1, None)?;
    same(NAT, counts.iter().sum(), flows)?;
    all.graph(NAT, graph, packets);
    all.graph(NO_NAT, MeasuredGraph::new(format!("{BEFORE_RULES} -> Discard")), packets);
    all.add(NAT_CHAIN, chain.action("nat", frames, 5, None));
    Ok(())
}

const LOOKUPS: [&str; 3] = ["DirectIPLookup", "RadixIPLookup", "RangeIPLookup"];
const BEST_LOOKUP: &str = LOOKUPS[0];
const NO_LOOKUP: &str = "the graph without routes";
const LOOKUP_CHAIN: &str = "C: DIR-24-8, 100,000 routes";

fn add_routes<'a>(
    all: &mut Measurements<'a>,
    routes: &[configurations::GeneratedRoute],
    chain: &'a Chain,
    trace: &'a Path,
    traffic: &'a MemoryCapture,
) -> Result<(), LabError> {
    const BEFORE: &str = "FromDump(in) -> MarkIPHeader(14) -> GetIPAddress(30) ->";
    let file = write_scratch("routes.lines", &configurations::route_lines(routes))?;
    let (_, _, sum) = chain.run("routes", trace, 1, Some(&file))?;
    for class in LOOKUPS {
        let graph = MeasuredGraph {
            counts: vec!["d0.count", "d1.count", "d2.count", "d3.count"],
            ..MeasuredGraph::new(format!("{BEFORE} {}", configurations::lookup(class, routes)))
        };
        let (_, counts) = graph.run(traffic, 1)?;
        same(class, (1..).zip(&counts).map(|(hop, count)| hop * count).sum(), sum)?;
        // The measured graph has one output, so that the time is that of the lookup, and not of dividing the packets.
        let lookup = configurations::lookup_of_gateways(class, routes);
        all.graph(class, MeasuredGraph::new(format!("{BEFORE} {lookup} -> Discard")), traffic);
    }
    all.graph(NO_LOOKUP, MeasuredGraph::new(format!("{BEFORE} Discard")), traffic);
    all.add(LOOKUP_CHAIN, chain.action("routes", trace, 2, Some(file)));
    Ok(())
}

const CAPTURE: &str = "capture to Counter and Discard";
const CAPTURE_WALK: &str = "C: bare walk over the mapped capture";
const CAPTURE_READ: &str = "C: bare walk over the capture, with read(2)";

fn add_capture<'a>(all: &mut Measurements<'a>, limit: &Path, large: &'a Path) -> Result<(), LabError> {
    let walk = |mode: &str| {
        let mut walk = Command::new(limit);
        walk.arg(large).arg(mode);
        walk
    };
    let output = walk("populate").output().context("limit")?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let packets: u64 = printed.split(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0);
    let per_packet = move |seconds: f64| seconds * 1e9 / packets.max(1) as f64;
    let graph = MeasuredGraph::new(format!(
        "FromDump(\"{}\", STOP true) -> c :: Counter -> Discard",
        large.display()
    ));
    let mut router = graph.build(Box::<GraphSystem>::default())?;
    router.run();
    let count = router.read_handler("c.count").context("c.count")?;
    same(CAPTURE, count.trim().parse().unwrap_or(0), packets)?;
    all.add(CAPTURE, move || {
        let mut result = Ok(());
        let time = processor_time(|| {
            result = graph.build(Box::<GraphSystem>::default()).map(|mut router| router.run())
        });
        result.map(|()| per_packet(time.as_secs_f64()))
    });
    for (name, mode) in [(CAPTURE_WALK, "populate"), (CAPTURE_READ, "read")] {
        let mut walk = walk(mode);
        all.add(name, move || Ok(per_packet(run_measured(&mut walk)?.cpu.as_secs_f64())));
    }
    Ok(())
}

const PARSE: &str = "parsing 1 MB of configuration";

fn parse_milliseconds(text: &str) -> f64 {
    let source = ConfigurationSource { name: "large", bytes: text.as_bytes() };
    nanos_per_call(1, || _ = black_box(parse(&source, &[], &AnyClass).map(|flat| flat.elements.len()))) / 1e6
}

fn criteria(results: &Results) -> Vec<Criterion> {
    let mut criteria = Vec::new();
    let mut ratio = |what: String, a: Sample, b: &str, limit: f64| {
        criteria.push(Criterion::at_most(what, a.ratio_to(&results.get(b)).median(), limit, ""));
    };
    ratio(format!("{ROUTER} ÷ chain in C"), results.get(ROUTER), ROUTER_CHAIN, ROUTER_RATIO_MAX);
    for name in ["IPFilter, 50 rules", "IPClassifier, 10 rules"] {
        let added = results.added(name, without_rules());
        ratio(format!("{name} ÷ one after another in C"), added, &format!("C: {name}"), RULES_RATIO_MAX);
    }
    let flows = results.added(FLOWS, NO_FLOWS);
    ratio("AggregateIPFlows ÷ a hash table in C".to_owned(), flows, FLOWS_CHAIN, FLOWS_RATIO_MAX);
    let nat = results.added(NAT, NO_NAT);
    ratio(format!("{NAT} ÷ the same hash table in C"), nat, NAT_CHAIN, NAT_RATIO_MAX);
    let lookup = results.added(BEST_LOOKUP, NO_LOOKUP);
    ratio(format!("{BEST_LOOKUP}, 100,000 routes ÷ DIR-24-8 in C"), lookup, LOOKUP_CHAIN, ROUTES_RATIO_MAX);
    for (rival, walk) in [("mapped", CAPTURE_WALK), ("read(2)", CAPTURE_READ)] {
        let what = format!("{CAPTURE} ÷ bare walk, {rival}");
        ratio(what, results.get(CAPTURE), walk, CAPTURE_RATIO_MAX);
    }
    criteria.push(Criterion::at_most(PARSE, results.get(PARSE).median(), PARSE_MILLISECONDS_MAX, "ms"));
    criteria
}

/// The table of times.
fn costs(results: &Results) -> Table {
    let mut table = Table::new("work | ns a packet | quartiles");
    let default = MeasuredGraph::new("").batch;
    for (name, sample) in &results.0 {
        if name == PARSE || name.contains("Nulls") {
            continue;
        }
        let name = if name == ROUTER { format!("{ROUTER}, batches of {default}") } else { name.clone() };
        table.row(format_args!("{name} | {}", sample.cells(1)));
    }
    let mut added = |name: String, sample: &Sample| table.row(format_args!("{name} | {}", sample.cells(1)));
    for name in ["IPFilter, 50 rules", "IPClassifier, 10 rules"] {
        added(format!("{name}, alone"), &results.added(name, without_rules()));
    }
    added("AggregateIPFlows, alone".to_owned(), &results.added(FLOWS, NO_FLOWS));
    added(format!("{NAT}, alone"), &results.added(NAT, NO_NAT));
    for name in LOOKUPS {
        added(format!("{name}, alone"), &results.added(name, NO_LOOKUP));
    }
    for batch in [1, default] {
        let hop = results.added(&nulls_name(NULLS, batch), &nulls_name(0, batch)).scaled(1.0 / to_f64(NULLS));
        added(format!("one hop in a chain of {NULLS} Nulls, batches of {batch}"), &hop);
    }
    table
}
