//! Random modules never use more fuel than their bound. An interpreter runs them and invents the values that they load,
//! so it needs no sandbox and searches for the worst case. The values of a run are also compared with the ranges of the
//! analysis.

mod machine;
mod program;

use crate::generate;
use machine::{Halt, Program};
use program::Probe;
use std::time::{Duration, Instant};
use weir_bounds::{CostTable, EntryPoint, Environment, ParsedModule, analyse};

/// The number of runs of each module.
const RUNS: u64 = 16;
/// The fuel limit of all runs of a module together.
const STEPS: u64 = 60_000;
/// The largest bound up to which a run that does not seem to end is repeated.
const REPEATED_BOUND_MAX: u64 = 3_000_000;

#[derive(Debug, Default)]
struct Counters {
    modules: u64,
    /// Modules with a bound.
    bounded: u64,
    runs: u64,
    /// Runs that used more than half of their bound.
    tight: u64,
    /// Runs that were repeated with their whole bound as the limit.
    long: u64,
    /// Checks that the analysis allows a value which a run has shown.
    probes: u64,
}

fn environment() -> Environment {
    Environment { parameters: Vec::new(), string_bytes: Vec::new(), packet_max: 16 << 20, pages_max: 16 }
}

/// The violation that a module shows, if there is one.
fn violation(choices: &[u8], seed: u64, counters: &mut Counters) -> Option<String> {
    let text = program::module(choices, Probe::Show);
    let bytes = wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let costs = CostTable::unit();
    let analysis = ParsedModule::parse(bytes.clone())
        .and_then(|module| analyse(&module, &environment(), &costs))
        .unwrap_or_else(|error| panic!("{error}"));
    let found = analysis.entry(EntryPoint::Packet)?;
    counters.modules += 1;
    if !found.is_bounded() {
        return None;
    }
    counters.bounded += 1;
    let program = Program::new(&bytes, &costs);
    let (mut steps_left, mut was_long) = (STEPS, false);
    let mut shown_values: Vec<u64> = Vec::new();
    for run in 0..RUNS {
        let mut machine = program.machine(seed.wrapping_mul(1000).wrapping_add(run), 0);
        let bound = found.usage.fuel.at(machine.captured.into());
        // The run ends early if its bound is far out of reach.
        machine.fuel_max = bound.min(STEPS / 4);
        let mut fuel_max = machine.fuel_max;
        counters.runs += 1;
        let mut halt = machine.run();
        if halt == Halt::Spent && fuel_max < bound && bound < REPEATED_BOUND_MAX && !was_long {
            was_long = true;
            fuel_max = bound;
            machine = program.machine(seed.wrapping_mul(1000).wrapping_add(run), bound);
            halt = machine.run();
            counters.long += 1;
        }
        counters.tight += u64::from(machine.used > bound / 2);
        if halt == Halt::Spent && fuel_max == bound {
            return Some(format!(
                "more than {bound} in run {run}, of a packet of {} bytes",
                machine.captured
            ));
        }
        shown_values.extend(machine.shown_values.iter().take(8));
        if let [.., last] = machine.shown_values.as_slice() {
            shown_values.push(*last);
        }
        steps_left = steps_left.saturating_sub(machine.used);
        if steps_left == 0 {
            break;
        }
    }
    shown_values.sort_unstable();
    shown_values.dedup();
    let last = shown_values.len().saturating_sub(1);
    let mut chosen = vec![0, last, last / 2, last / 3];
    chosen.dedup();
    for value in chosen.into_iter().filter_map(|place| shown_values.get(place)) {
        counters.probes += 1;
        let text = program::module(choices, Probe::Equal(*value));
        let bytes = wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let analysis = ParsedModule::parse(bytes.clone())
            .and_then(|module| analyse(&module, &environment(), &costs))
            .unwrap_or_else(|error| panic!("{error}"));
        if analysis.is_bounded() {
            return Some(format!("a value is {value}, but the analysis proves that it never is"));
        }
    }
    None
}

fn search(seeds: impl Iterator<Item = u64>, until: Option<Instant>) -> Counters {
    let mut counters = Counters::default();
    for seed in seeds {
        let choices = generate::bytes(seed, 60 + usize::try_from(seed % 5).unwrap_or(0) * 60);
        if violation(&choices, seed, &mut counters).is_some() {
            let mut nothing = Counters::default();
            let least = smallest(&choices, |choices| violation(choices, seed, &mut nothing).is_some());
            let what = violation(&least, seed, &mut nothing).expect("the smaller input still fails");
            panic!("seed {seed} of {counters:?}: {what}\n{}", program::module(&least, Probe::Show));
        }
        if until.is_some_and(|until| Instant::now() > until) {
            break;
        }
    }
    counters
}

/// Shrinks the choices while `fails` holds.
fn smallest(choices: &[u8], mut fails: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
    let mut best = choices.to_vec();
    let mut size = best.len() / 2;
    while size > 0 {
        let mut at = 0;
        while at < best.len() {
            let end = (at + size).min(best.len());
            let without = [&best[..at], &best[end..]].concat();
            let mut zeroed = best.clone();
            zeroed[at..end].fill(0);
            if fails(&without) {
                best = without;
            } else {
                if zeroed != best && fails(&zeroed) {
                    best = zeroed;
                }
                at = end;
            }
        }
        size /= 2;
    }
    best
}

#[test]
fn random_loops_use_no_more_than_their_bound() {
    let number_from_environment =
        |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let until = number_from_environment("WEIR_MINUTES")
        .map(|minutes| Instant::now() + Duration::from_secs(60 * minutes));
    let first = number_from_environment("WEIR_FIRST_SEED").unwrap_or(0);
    let count =
        number_from_environment("WEIR_SEEDS").unwrap_or(if until.is_some() { u64::MAX / 2 } else { 1000 });
    let counters = search(first..first.saturating_add(count), until);
    println!("{counters:?}");
    assert!(
        counters.bounded * 20 > counters.modules
            && counters.tight * 20 > counters.runs
            && counters.probes > 0,
        "{counters:?}"
    );
}

/// Two loops that an earlier version proved to be short. The interpreter finds a run of each that does not end.
#[test]
fn the_search_finds_loops_that_broke_an_earlier_proof() {
    const COIN: &str = "(i32.and (i32.load8_u (i32.const 0x80000000)) (i32.const 1))";
    let there_and_back = format!(
        "(local.set $b (i32.load16_u (i32.const 0x80000000)))
        (block $out (loop $l
            (if {COIN} (then
                (br_if $out (i32.gt_u (i32.const 1) (i32.add (local.get $b) (local.get $a))))
                (local.set $a (i32.sub (local.get $a) (i32.const 1)))
                (br $l)))
            (br_if $out (i32.gt_u (i32.const 1) (i32.sub (local.get $b) (local.get $a))))
            (local.set $a (i32.add (local.get $a) (i32.const 1)))
            (br $l)))"
    );
    let test = "(br_if $l (i32.lt_u (local.tee $a (i32.add (local.get $a) (i32.const 1)))
        (i32.add (local.get $b) (i32.const 1))))";
    let known_on_one_edge = format!(
        "(local.set $b (i32.load16_u (i32.const 0x80000000)))
        (loop $l (if (i32.lt_u (local.get $b) (i32.const 10)) (then {test}) (else {test})))"
    );
    for (body, wrong) in [(there_and_back, 100_000), (known_on_one_edge, 1000)] {
        let text = format!(
            "(module (memory (export \"memory\") 1) (func (export \"weir_packet\") (param $p i32) (result i32)
                (local $a i32) (local $b i32) {body} (i32.const 0)))"
        );
        let bytes = wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}"));
        let program = Program::new(&bytes, &CostTable::unit());
        assert!((0..64).any(|seed| program.machine(seed, wrong).run() == Halt::Spent), "{text}");
    }
}
