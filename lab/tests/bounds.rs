//! No packet uses more than its bound: the shipped modules, and functions that were not written for the analyser, as compilers make them at every level.
//! `bench bounds` does the same with the whole corpus and many more packets.

use weir_author::{Level, ModuleLanguage};
use weir_lab::corpus::{self, Shape};
use weir_lab::gauge::Counter;
use weir_lab::module::Module;
use weir_lab::worst::{Search, WorstOutcome, search};
use weir_lab::{place, ratios, shares};

/// A few of each kind: over the packet's length, over a header, over a table, over bits, with state.
const SHAPES: [&str; 8] = [
    "checksum32",
    "tcp_options",
    "hash_probe_limit",
    "crc32_bitwise",
    "shift_loops",
    "insertion_sort",
    "port_scan",
    "two_counters",
];

/// The bound of a module and what packets used, none of them more.
fn searched(module: &Module, counter: &Counter, recorded: &[Vec<u8>], how: Search) -> WorstOutcome {
    let counted = counter.load(module).unwrap_or_else(|error| panic!("{error}"));
    let found = search(module, &counted, recorded, how).unwrap_or_else(|error| panic!("{error}"));
    assert!(found.worst.fuel > 0, "{}: nothing was counted", module.name);
    assert_eq!(found.over, None, "{}: the bound is {}", module.name, found.bound);
    found
}

#[test]
fn no_packet_uses_more_than_the_bound_of_a_shipped_module() {
    let counter = Counter::new().unwrap();
    let recorded = ratios::recorded(&place::sample()).unwrap();
    let mut bounded = 0;
    for module in Module::shipped().unwrap() {
        let found = searched(&module, &counter, &recorded, Search { seed: 3, times: 6, batches: 40 });
        bounded += u32::from(found.bound.is_bounded());
    }
    assert!(bounded >= 7, "only {bounded} of the eight have a bound");
}

#[test]
fn no_packet_uses_more_than_the_bound_of_code_that_was_not_written_for_the_analyser() {
    let mut shapes = Shape::all().unwrap();
    shapes.retain(|shape| shape.lang == ModuleLanguage::C && SHAPES.contains(&shape.name.as_str()));
    assert_eq!(shapes.len(), SHAPES.len());
    let corpus = corpus::build(&shapes, &Level::ALL).unwrap_or_else(|error| panic!("{error}"));
    if let [skipped, ..] = corpus.skipped.as_slice() {
        eprintln!("SKIPPED: {skipped}");
        return;
    }
    let counter = Counter::new().unwrap();
    let recorded = ratios::recorded(&place::sample()).unwrap();
    let bounded = shares::bounded(&corpus).unwrap();
    for sample in &bounded {
        searched(&sample.module, &counter, &recorded, Search { seed: 4, times: 2, batches: 10 });
    }
    // At -O2, -O3 and -Os most of them are, so that what was tried above is not nothing.
    assert!(bounded.len() >= SHAPES.len() * 2, "{} of {} are bounded", bounded.len(), corpus.samples.len());
}

#[test]
fn a_search_finds_more_than_a_capture_has_and_the_same_each_time() {
    let counter = Counter::new().unwrap();
    let recorded = ratios::recorded(&place::sample()).unwrap();
    let module = Module::named("worm").unwrap();
    let how = Search { seed: 5, times: 3, batches: 35 };
    let found = searched(&module, &counter, &recorded, how);
    assert_eq!(searched(&module, &counter, &recorded, how), found);

    let mut gauge = counter.load(&module).unwrap().start().unwrap();
    let replayed: Vec<_> = recorded
        .iter()
        .map(|bytes| weir_lab::crafted::Crafted { bytes: bytes.clone(), gap_ns: 1000, flow_hash: None })
        .collect();
    let (mut fuel, mut most) = (Vec::new(), 0);
    for batch in replayed.chunks(weir_abi::BATCH_PACKETS) {
        gauge.measure(batch, &mut fuel).unwrap();
        most = most.max(fuel.iter().copied().max().unwrap_or(0));
    }
    assert!(found.worst.fuel > most, "{} found, {most} in the capture", found.worst.fuel);
}
