//! Measures a graph with a queue in its middle on one thread and on two.
//!
//! ```text
//! cargo run -p weir-graph-io --release --example graph_threads [PACKETS]
//! ```
//!
//! Each line is a graph: nanoseconds a packet of wall time and of processor time, on one thread and on two, the best of
//! five runs of each. Each side of the queue has the given elements. Where both sides do little, the copy of the bytes and
//! the wakes cost more than the second processor gives.

use std::sync::Arc;
use std::time::Instant;
use weir_elements::AllElements;
use weir_graph::engine::{GraphClock, NoFiles, Router, RunOptions, System, ThreadPlacement};
use weir_graph::language::{ConfigurationSource, FlatConfiguration, parse};
use weir_graph_io::{GraphThreads, SystemClock, ThreadSystem};

/// An IPv4 and UDP header behind an Ethernet header, and 18 bytes.
const PACKET: &str = "\\<00a0c99cfd9c 00a0c99cfd9d 0800  4500 002e 0000 0000 4011 8e88 c0000201 c6336402 \
04d2 0035 001a 0000 000102030405060708090a0b0c0d0e0f1011>";

/// Names of graphs, with the elements on each side of the queue.
const SIDES: &[(&str, &str)] = &[
    ("nothing", "Null"),
    ("headers", "Strip(14) -> CheckIPHeader -> Unstrip(14)"),
    ("headers written", "Strip(14) -> CheckIPHeader -> SetUDPChecksum -> SetIPChecksum -> Unstrip(14)"),
    (
        "eight checksums",
        "Strip(14) -> MarkIPHeader -> SetUDPChecksum -> SetUDPChecksum -> SetUDPChecksum -> SetUDPChecksum -> \
SetUDPChecksum -> SetUDPChecksum -> SetUDPChecksum -> SetUDPChecksum -> Unstrip(14)",
    ),
];

fn read(side: &str, packets: u64, capacity: u32) -> FlatConfiguration {
    let text = format!(
        "InfiniteSource(DATA {PACKET}, LIMIT {packets}, TIMESTAMP false) -> {side} -> q :: Queue({capacity})
         -> Unqueue -> {side} -> c :: Counter -> Discard;"
    );
    let source = ConfigurationSource { name: "example", bytes: text.as_bytes() };
    parse(&source, &[], &AllElements).unwrap_or_else(|errors| panic!("{errors}"))
}

/// Returns the processor time of this process, in nanoseconds. Linux counts it in hundredths of a second.
fn processor_time() -> u64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|it| it.parse::<u64>().ok()).unwrap_or(0);
    (ticks(11) + ticks(12)) * 10_000_000
}

/// Runs a graph, and returns the wall time, the processor time, and the packets that passed.
fn run(flat: &FlatConfiguration, threads: usize) -> (u64, u64, u64) {
    let system: Arc<ThreadSystem> = Arc::new(|_| -> (Box<dyn System>, Box<dyn GraphClock>) {
        (Box::new(NoFiles), Box::<SystemClock>::default())
    });
    let options = RunOptions::default();
    let mut value = String::new();
    let (begin, processor) = (Instant::now(), processor_time());
    if threads == 1 {
        let clock = Box::<SystemClock>::default();
        let router = Router::new(flat.clone(), &AllElements, Box::new(NoFiles), clock, options);
        let mut router = router.unwrap_or_else(|errors| panic!("{errors:?}"));
        router.run();
        value += &router.read_handler("c.count").unwrap_or_default();
    } else {
        let placed = Router::for_placement(flat.clone(), &AllElements, Vec::new(), options);
        let placement = placed.map(|mut router| ThreadPlacement::of(&mut router, threads));
        let graph = placement.and_then(|it| GraphThreads::start(flat, &AllElements, it, &system, options));
        let mut graph = graph.unwrap_or_else(|errors| panic!("{errors:?}"));
        graph.run(|| false).unwrap_or_else(|errors| panic!("{errors:?}"));
        value += &graph.read_handler("c.count").unwrap_or_default();
    }
    let wall = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
    (wall, processor_time() - processor, value.trim().parse().unwrap_or(0))
}

fn main() {
    let packets: u64 = std::env::args().nth(1).and_then(|it| it.parse().ok()).unwrap_or(2_000_000);
    println!(
        "{:<18} {:>8} | {:>7} {:>7} | {:>7} {:>7} | wall 2/1",
        "each side", "capacity", "wall 1", "cpu 1", "wall 2", "cpu 2"
    );
    for capacity in [1000, 10_000] {
        for (name, side) in SIDES {
            let flat = read(side, packets, capacity);
            let mut best = [[u64::MAX; 2]; 2];
            for _ in 0..5 {
                for (threads, best) in (1..).zip(&mut best) {
                    let (wall, processor, passed) = run(&flat, threads);
                    assert_eq!(passed, packets, "the source waits for room");
                    *best = [best[0].min(wall), best[1].min(processor)];
                }
            }
            let each = |total: u64| total as f64 / packets as f64;
            let [[wall_1, cpu_1], [wall_2, cpu_2]] = best.map(|it| it.map(each));
            println!(
                "{name:<18} {capacity:>8} | {wall_1:>7.1} {cpu_1:>7.1} | {wall_2:>7.1} {cpu_2:>7.1} | {:.2}",
                wall_2 / wall_1
            );
        }
    }
}
