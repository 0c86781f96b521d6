//! No packet uses more fuel than its bound, in the shipped modules and in functions that were not written for the
//! analyser, at every optimisation level, in the code of both back ends. `bench bounds` does the same with the whole corpus
//! and many more packets.

use weir_author::{ModuleLanguage, OptLevel};
use weir_lab::corpus::{self, CorpusSource};
use weir_lab::fuel_meter::{CountedModule, FuelCounter};
use weir_lab::module::Module;
use weir_lab::sandboxed::BACK_ENDS;
use weir_lab::worst_case::{Search, SearchOutcome, search};
use weir_lab::{paths, ratios, shares};

/// The names of the searched sources, with a few loops of each kind: over the packet's length, a header, a table, bits, and
/// with state.
const SOURCES: [&str; 8] = [
    "checksum32",
    "tcp_options",
    "hash_probe_limit",
    "crc32_bitwise",
    "shift_loops",
    "insertion_sort",
    "port_scan",
    "two_counters",
];

/// The fuel counters of the back ends that this machine supports.
fn counters() -> Vec<FuelCounter> {
    let mut counters: Vec<FuelCounter> =
        BACK_ENDS.into_iter().map(|back_end| FuelCounter::new(back_end).unwrap()).collect();
    counters.retain(|counter| {
        let why = counter.why_not_supported();
        if let Some(why) = why {
            eprintln!("SKIPPED: {}: {why}", counter.back_end());
        }
        why.is_none()
    });
    counters
}

fn load<'a>(counter: &'a FuelCounter, module: &Module) -> CountedModule<'a> {
    let loaded = counter.load(module).unwrap_or_else(|error| panic!("{error}"));
    loaded.unwrap_or_else(|why| panic!("{}: not in code of {}: {why}", module.name, counter.back_end()))
}

/// Searches for the most expensive packets of a module in the code of each back end. Asserts that none exceeds its bound, and
/// that the searches are equal: they depend on fuel alone, so each packet uses the same fuel in both.
fn search_within_bound(
    module: &Module,
    counters: &[FuelCounter],
    recorded: &[Vec<u8>],
    plan: Search,
) -> SearchOutcome {
    let mut outcomes = counters.iter().map(|counter| {
        let counted = load(counter, module);
        let found = search(module, &counted, recorded, plan).unwrap_or_else(|error| panic!("{error}"));
        assert!(found.worst.fuel > 0, "{}: no fuel was counted", module.name);
        assert_eq!(found.over, None, "{}: the bound is {}", module.name, found.bound);
        found
    });
    let first = outcomes.next().expect("Cranelift is always supported");
    for other in outcomes {
        assert_eq!(other, first, "{}: the back ends differ in fuel", module.name);
    }
    first
}

#[test]
fn no_packet_uses_more_than_the_bound_of_a_shipped_module() {
    let counters = counters();
    let recorded = ratios::recorded(&paths::sample()).unwrap();
    let mut bounded = 0;
    for module in Module::shipped().unwrap() {
        let found =
            search_within_bound(&module, &counters, &recorded, Search { seed: 3, phases: 6, batches: 40 });
        bounded += u32::from(found.bound.is_bounded());
    }
    assert!(bounded >= 7, "only {bounded} of the eight modules have a bound");
}

#[test]
fn no_packet_uses_more_than_the_bound_of_code_that_was_not_written_for_the_analyser() {
    let mut sources = CorpusSource::all().unwrap();
    sources.retain(|source| source.lang == ModuleLanguage::C && SOURCES.contains(&source.name.as_str()));
    assert_eq!(sources.len(), SOURCES.len());
    let corpus = corpus::build(&sources, &OptLevel::ALL).unwrap_or_else(|error| panic!("{error}"));
    if let [skipped, ..] = corpus.skipped.as_slice() {
        eprintln!("SKIPPED: {skipped}");
        return;
    }
    let counters = counters();
    let recorded = ratios::recorded(&paths::sample()).unwrap();
    let bounded = shares::bounded(&corpus).unwrap();
    for module in &bounded {
        search_within_bound(&module.module, &counters, &recorded, Search { seed: 4, phases: 2, batches: 10 });
    }
    // At -O2, -O3 and -Os most are bounded, so enough modules were searched.
    assert!(bounded.len() >= SOURCES.len() * 2, "{} of {} are bounded", bounded.len(), corpus.modules.len());
}

#[test]
fn a_search_finds_costlier_packets_than_a_capture_has_and_is_reproducible() {
    let counters = counters();
    let recorded = ratios::recorded(&paths::sample()).unwrap();
    let module = Module::named("worm").unwrap();
    let plan = Search { seed: 5, phases: 3, batches: 35 };
    let found = search_within_bound(&module, &counters, &recorded, plan);
    assert_eq!(search_within_bound(&module, &counters, &recorded, plan), found);

    let replayed: Vec<_> = recorded
        .iter()
        .map(|bytes| weir_lab::crafted::CraftedPacket { bytes: bytes.clone(), gap_ns: 1000, flow_hash: None })
        .collect();
    for counter in &counters {
        let mut fuel_meter = load(counter, &module).start().unwrap();
        let (mut fuel, mut recorded_max) = (Vec::new(), 0);
        for batch in replayed.chunks(weir_abi::BATCH_PACKETS) {
            fuel_meter.measure(batch, &mut fuel).unwrap();
            recorded_max = recorded_max.max(fuel.iter().copied().max().unwrap_or(0));
        }
        assert!(found.worst.fuel > recorded_max, "{} found, {recorded_max} in the capture", found.worst.fuel);
    }
}
