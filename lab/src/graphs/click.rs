//! Whole runs of graphs beside the same configurations in Click, where the variable `CLICK` names a binary.

use super::configurations::{self, GeneratedRoute, Rules};
use super::memory::MeasuredGraph;
use super::{BEST_LOOKUP, LOOKUPS, NAT, write_scratch};
use crate::criterion::{self, Criterion};
use crate::error::LabError;
use crate::native::run_measured;
use crate::statistics::{Action, Sample, measure_in_turn, processor_time};
use crate::table::Table;
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_graph_io::GraphSystem;

/// The packets of a run with generated frames.
const FRAMES: usize = 1_000_000;
const RATIO_MAX: f64 = 0.5;

/// A configuration that both run.
struct SharedGraph {
    name: String,
    text: String,
    /// Write handlers before the run; a Script calls them in Click.
    writes: Vec<String>,
    packets: usize,
    /// The file for Click.
    file: PathBuf,
}

impl SharedGraph {
    fn write(&self, number: usize) -> Result<PathBuf, LabError> {
        let calls: Vec<String> = self.writes.iter().map(|call| format!("write {call}")).collect();
        let script =
            if calls.is_empty() { String::new() } else { format!("Script({});\n", calls.join(", ")) };
        write_scratch(&format!("graph-{number}.click"), &format!("{};\n{script}", self.text))
    }
}

/// The tables, or a sentence if there is no Click.
pub fn table(
    rounds: usize,
    trace: &Path,
    routes: &[GeneratedRoute],
    sets: &[(&str, Rules)],
) -> Result<String, LabError> {
    let Some(click) = std::env::var_os("CLICK") else {
        return Ok("Click is absent: the variable `CLICK` names no binary.\n".to_owned());
    };
    let frames = configurations::make_frames("million.pcap", FRAMES)?;
    let flows = configurations::make_flow_frames("million-flows.pcap", FRAMES, super::NAT_FLOWS)?;
    let trace_packets = super::MemoryCapture::read(trace)?.len();
    let mut graphs = graphs(&frames, &flows, trace, trace_packets, routes, sets);
    for (number, graph) in graphs.iter_mut().enumerate() {
        graph.file = graph.write(number)?;
    }
    // A configuration that Click refuses is left out.
    graphs.retain(|graph| {
        Command::new(&click).arg(&graph.file).arg("-q").output().is_ok_and(|output| output.status.success())
    });
    let mut actions: Vec<Action<'_>> = Vec::new();
    for graph in &graphs {
        actions.push(Box::new(|| run_weir(graph)));
        let mut run = Command::new(&click);
        run.arg(&graph.file);
        let mut start = Command::new(&click);
        start.arg(&graph.file).arg("-q");
        let packets = graph.packets;
        actions.push(Box::new(move || {
            let (whole, start) = (run_measured(&mut run)?.cpu, run_measured(&mut start)?.cpu);
            Ok(whole.saturating_sub(start).as_secs_f64() * 1e9 / packets.max(1) as f64)
        }));
    }
    let samples = measure_in_turn(rounds, &mut actions)?;
    let pairs: Vec<(&SharedGraph, &Sample, &Sample)> =
        graphs.iter().zip(samples.chunks_exact(2)).map(|(graph, pair)| (graph, &pair[0], &pair[1])).collect();
    let mut costs =
        Table::new("whole run | weir, ns a packet | quartiles | Click, ns a packet | quartiles | ratio");
    for (graph, weir, click) in &pairs {
        let ratio = weir.ratio_to(click).median();
        costs.row(format_args!("{} | {} | {} | {ratio:.2}", graph.name, weir.cells(1), click.cells(1)));
    }
    let mut criteria = Vec::new();
    let find = |name: &str| pairs.iter().find(|(graph, ..)| graph.name == name);
    let mut ratio = |what: String, a: &str, b: &str| {
        if let (Some((_, weir, _)), Some((_, _, click))) = (find(a), find(b)) {
            criteria.push(Criterion::at_most(what, weir.ratio_to(click).median(), RATIO_MAX, ""));
        }
    };
    ratio("router with 4 routes ÷ Click's".to_owned(), ROUTER, ROUTER);
    ratio("router with 4 routes ÷ Click's with combined elements".to_owned(), ROUTER, COMBINED);
    for (name, _) in sets {
        ratio(format!("{name} ÷ Click"), name, name);
    }
    ratio(format!("{FLOWS} ÷ Click"), FLOWS, FLOWS);
    ratio(format!("{NAT} ÷ Click"), NAT, NAT);
    let fastest = |it: &&&str| find(it).map_or(f64::INFINITY, |(_, _, click)| click.median());
    if let Some(best) = LOOKUPS.iter().min_by(|a, b| fastest(a).total_cmp(&fastest(b))) {
        ratio(format!("100,000 routes, {BEST_LOOKUP} ÷ Click's {best}"), BEST_LOOKUP, best);
    }
    let alone = |name: &str, without: &str| {
        let ((_, weir, click), (_, weir_less, click_less)) = (find(name)?, find(without)?);
        let ratio = weir.less(weir_less).ratio_to(&click.less(click_less)).median();
        Some(Criterion::at_most(format!("{name} alone ÷ Click's"), ratio, RATIO_MAX, ""))
    };
    criteria.extend(sets.iter().filter_map(|(name, _)| alone(name, NO_RULES)));
    criteria.extend(alone(FLOWS, NO_FLOWS));
    Ok(format!(
        "Whole runs over captures in the page cache, beside Click: {FRAMES} frames of 64 bytes, and the trace for routes. The time for reading the configuration is taken off (Click: a run with `-q`).\n\n{}\n{costs}",
        criterion::table(&criteria)
    ))
}

const ROUTER: &str = "router with 4 routes";
const FLOWS: &str = "AggregateIPFlows";
const COMBINED: &str = "the same, with combined elements";
/// The graphs without the element that is measured alone.
const NO_RULES: &str = "capture to MarkIPHeader and Discard";
const NO_FLOWS: &str = "trace to Discard, IP packets";
const NO_LOOKUP: &str = "trace to GetIPAddress and Discard";

fn graphs(
    frames: &Path,
    flow_frames: &Path,
    trace: &Path,
    trace_packets: usize,
    routes: &[GeneratedRoute],
    sets: &[(&str, Rules)],
) -> Vec<SharedGraph> {
    let source = |path: &Path| format!("FromDump(\"{}\", STOP true)", path.display());
    let graph = |name: &str, text: String| SharedGraph {
        name: name.to_owned(),
        text,
        writes: Vec::new(),
        packets: FRAMES,
        file: PathBuf::new(),
    };
    let router =
        |name: &str, text: String| SharedGraph { writes: configurations::neighbours(), ..graph(name, text) };
    let mut all = vec![
        router(ROUTER, configurations::router(&source(frames))),
        router(COMBINED, configurations::combined_router(&source(frames))),
        graph("capture to Discard", format!("{} -> Discard", source(frames))),
        graph("capture to Counter and Discard", format!("{} -> Counter -> Discard", source(frames))),
    ];
    let flows =
        format!("{} -> AggregateIPFlows -> Discard", source(trace).replace("STOP", "FORCE_IP true, STOP"));
    let no_flows = flows.replace("-> AggregateIPFlows", "");
    all.push(SharedGraph { packets: trace_packets, ..graph(FLOWS, flows) });
    all.push(SharedGraph { packets: trace_packets, ..graph(NO_FLOWS, no_flows) });
    all.push(graph(NO_RULES, format!("{} -> MarkIPHeader(14) -> Discard", source(frames))));
    let translation = format!("{} -> {} -> Discard", source(flow_frames), configurations::TRANSLATION);
    all.push(graph(NAT, translation));
    for (name, rules) in sets {
        all.push(graph(name, format!("{} -> MarkIPHeader(14) -> {}", source(frames), rules.element)));
    }
    let before_lookup = format!(
        "{} -> ip :: Classifier(12/0800, -); ip[1] -> Discard; ip[0] -> MarkIPHeader(14) -> GetIPAddress(30) ->",
        source(trace)
    );
    let no_lookup = format!("{before_lookup} Discard");
    all.push(SharedGraph { packets: trace_packets, ..graph(NO_LOOKUP, no_lookup) });
    for class in LOOKUPS.into_iter().filter(|class| *class != "RangeIPLookup") {
        let text = format!("{before_lookup} {}", configurations::lookup(class, routes));
        all.push(SharedGraph { packets: trace_packets, ..graph(class, text) });
    }
    all
}

/// The processor time of a packet, without that for reading the configuration.
fn run_weir(graph: &SharedGraph) -> Result<f64, LabError> {
    let measured = MeasuredGraph { writes: graph.writes.clone(), ..MeasuredGraph::new(graph.text.as_str()) };
    let mut router = measured.build(Box::<GraphSystem>::default())?;
    let time = processor_time(|| router.run());
    Ok(time.as_secs_f64() * 1e9 / graph.packets.max(1) as f64)
}
