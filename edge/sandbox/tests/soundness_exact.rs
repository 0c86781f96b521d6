//! Soundness in the sandbox: the use of a call, counted to the unit while it runs, never exceeds its bound; and
//! run-time checks do not change a module's results.

use crate::oracle::exact::{NOW, Tally, batch, change_table, map, run, start};
use crate::oracle::generate::{self, loops, smith};
use crate::oracle::plain::{PACKETS, fill, packet_bytes};
use crate::oracle::space::Shown;
use crate::support::{lowerable, options, tests_llvm};
use std::io::Write;
use weir_bounds::{EntryPoint, Linear};
use weir_sandbox::{CheckMode, Engine, EngineOptions, Instance, LlvmUse};
use {
    weir_admission::{Admitted, Tier},
    weir_session::Records,
};

/// Fuel after which a call is aborted.
const FUEL: u64 = 4_000_000;

fn engine(mode: CheckMode) -> Engine {
    Engine::new(EngineOptions { check_mode: mode, ..options() }, None).unwrap()
}

fn seeds(usual: u64) -> std::ops::Range<u64> {
    let given = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first = given("WEIR_FIRST_SEED").unwrap_or(0);
    first..first + given("WEIR_SEEDS").unwrap_or(usual)
}

/// A module of [`loops`], which can be lowered if the tests are to run in verified code of LLVM.
pub fn loops_module(choices: &[u8]) -> String {
    let text = loops::module(choices);
    if tests_llvm() { lowerable(&text) } else { text }
}

#[test]
fn loops_use_no_more_than_their_bound() {
    let (engine, shown, mut tally) = (engine(CheckMode::Exact(FUEL)), Shown::new(), Tally::default());
    for seed in seeds(500) {
        let text = loops_module(&generate::bytes(seed, 400));
        run((&engine, FUEL), &shown, (generate::assembled(&text), true), seed, &mut tally)
            .unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"));
    }
    println!("{tally:?}");
    assert!(tally.bounded > tally.calls / 4 && tally.tight > tally.calls / 50, "{tally:?}");
    if tests_llvm() {
        assert!(tally.in_llvm * 10 > tally.modules * 9, "{tally:?}");
        return;
    }
    assert!(tally.with_known_contents > 20 && tally.published > tally.with_known_contents, "{tally:?}");
}

#[test]
fn arbitrary_modules_use_no_more_than_their_bound() {
    let (engine, shown, mut tally) = (engine(CheckMode::Exact(FUEL)), Shown::new(), Tally::default());
    for seed in seeds(200) {
        let Some(module) = smith::module(&generate::bytes(seed, 2_500)) else { continue };
        run((&engine, FUEL), &shown, (module.clone(), false), seed, &mut tally).unwrap_or_else(|error| {
            panic!("seed {seed}: {error}\n{}", wasmprinter::print_bytes(&module).unwrap_or_default())
        });
    }
    println!("{tally:?}");
    assert!(tally.bounded > tally.calls / 4, "{tally:?}");
}

/// Loops in verified code of LLVM, also where the other tests run in Cranelift's code.
#[test]
fn in_verified_code_of_llvm_modules_use_no_more_than_their_bound() {
    let llvm = EngineOptions {
        check_mode: CheckMode::Exact(FUEL),
        llvm: LlvmUse::AtLoad,
        ..EngineOptions::default()
    };
    let engine = Engine::new(llvm, None).unwrap();
    if let Some(why) = engine.why_not_llvm() {
        _ = writeln!(std::io::stderr(), "SKIPPED: no verified code of LLVM here: {why}");
        return;
    }
    let (shown, mut tally) = (Shown::new(), Tally::default());
    for seed in 0..40 {
        let text = lowerable(&loops::module(&generate::bytes(seed, 400)));
        run((&engine, FUEL), &shown, (generate::assembled(&text), true), seed, &mut tally)
            .unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"));
    }
    println!("{tally:?}");
    assert!(tally.modules > 30 && tally.in_llvm == tally.modules, "{tally:?}");
    assert!(tally.bounded > tally.calls / 4 && tally.tight > tally.calls / 50, "{tally:?}");
}

/// All observable effects of a module.
#[derive(Debug, PartialEq)]
struct Done {
    drops: Vec<u64>,
    records: Vec<(u16, Vec<u8>, Vec<u8>)>,
    patches: Vec<weir_sandbox::Patch>,
    log: Vec<weir_sandbox::LogLine>,
    counters: weir_sandbox::InstanceCounters,
    faults: Vec<weir_sandbox::FaultKind>,
    published: Vec<(u32, Vec<u8>)>,
    memory: u64,
}

fn done(mode: CheckMode, shown: &Shown, bytes: &[u8], seed: u64) -> Option<Done> {
    let engine = engine(mode);
    let program = engine.load(Admitted::admit(bytes.to_vec(), &[]).ok()?).ok()?;
    fill(shown, seed);
    let (mut instance, taken) = start(&engine, &program).unwrap();
    map(&mut instance, shown);
    let mut drops = Vec::new();
    for round in 0..3 {
        change_table(&mut instance, seed + round);
        instance.begin_block();
        drops.push(instance.run(batch(0x0fff_ffff_ffff_fffe >> round)));
        instance.tick(NOW, 1, 0);
    }
    instance.stop(NOW);
    let records = instance.take_records(Records::default());
    Some(Done {
        drops,
        records: records.iter().map(|r| (r.stream, r.row.to_vec(), r.tail.to_vec())).collect(),
        patches: instance.take_patches(),
        log: instance.take_log(),
        counters: instance.counters(),
        faults: instance.incidents().iter().map(|incident| incident.fault.kind).collect(),
        published: taken.take(),
        memory: instance.memory().0,
    })
}

/// Proved modules have the same effects in any mode: charges never stop one.
#[test]
fn checks_do_not_change_the_results_of_a_proved_module() {
    let shown = Shown::new();
    let (mut proved, mut with_faults) = (0, 0);
    for seed in seeds(400) {
        let bytes = if seed % 3 == 0 {
            let Some(module) = smith::module(&generate::bytes(seed, 2_500)) else { continue };
            module
        } else {
            generate::assembled(&loops_module(&generate::bytes(seed, 200)))
        };
        let Ok(admitted) = Admitted::admit(bytes.clone(), &[]) else { continue };
        if admitted.tier() != Tier::Proved {
            continue;
        }
        proved += 1;
        let plain = done(CheckMode::Admitted, &shown, &bytes, seed).unwrap();
        with_faults += usize::from(!plain.faults.is_empty());
        for mode in [CheckMode::As(Tier::Supervised), CheckMode::As(Tier::Metered), CheckMode::Exact(1 << 50)]
        {
            let checked = done(mode, &shown, &bytes, seed).unwrap();
            assert_eq!(plain, checked, "seed {seed}: {mode:?}");
        }
    }
    println!("{proved} proved modules, {with_faults} with faults");
    assert!(proved > 50 && with_faults > 10, "{proved}, {with_faults}");
}

/// A module that traps in the middle of every batch loses exactly that packet of each, and is told about it, in every
/// tier.
#[test]
fn a_trap_in_every_batch_loses_only_its_packet() {
    let text = format!(
        "(module {} {})",
        include_str!("../../../core/bounds/tests/support/prelude.wat"),
        r#"(func (export "weir_packet") (param $d i32) (result i32)
             (if (i32.eq (i32.load offset=60 (local.get $d)) (i32.const 31)) (then (unreachable)))
             (i64.store (i32.const 0) (i64.add (i64.load (i32.const 0)) (i64.const 1)))
             (i32.const 0))
           (func (export "weir_lost") (param i32)
             (i64.store (i32.const 8) (i64.add (i64.load (i32.const 8)) (i64.const 1))))
           (func (export "weir_stop") (param i64)
             (drop (call $emit (i32.const 0) (i32.const 0) (i32.const 8)))
             (drop (call $emit (i32.const 0) (i32.const 8) (i32.const 8))))"#
    );
    let bytes = generate::assembled(&text);
    let shown = Shown::new();
    for tier in Tier::ALL {
        let engine = engine(CheckMode::As(*tier));
        let program = engine.load(Admitted::admit(bytes.clone(), &[]).unwrap()).unwrap();
        fill(&shown, 1);
        let mut instance = Instance::start(&engine, &program).unwrap();
        map(&mut instance, &shown);
        for _ in 0..100 {
            assert_eq!(instance.run(batch(u64::MAX)), 0);
        }
        let counters = instance.counters();
        assert_eq!((counters.packets, counters.lost, counters.faults), (6_300, 100, 100), "{tier}");
        assert!(!instance.has_ended(), "{tier}");
        instance.stop(NOW);
        let values: Vec<u64> = instance
            .take_records(Records::default())
            .iter()
            .map(|record| u64::from_le_bytes(record.row.try_into().unwrap()))
            .collect();
        assert_eq!(values, [6_300, 100], "{tier}");
    }
}

/// A packet's bound is for its own length, not for the longest packet.
#[test]
fn a_bound_by_length_follows_the_packet() {
    let text = r#"
        (module (memory (export "memory") 1)
          (func (export "weir_packet") (param $d i32) (result i32)
            (local $i i32)
            (block (br_if 0 (i32.eqz (i32.load offset=12 (local.get $d))))
              (loop
                (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.load offset=12 (local.get $d))))))
            (i32.const 0)))"#;
    let admitted = Admitted::admit(generate::assembled(text), &[]).unwrap();
    let fuel = admitted.analysis().entry(EntryPoint::Packet).unwrap().usage.fuel;
    assert!(fuel.is_bounded() && fuel.per_kib > 0 && fuel != Linear::UNBOUNDED, "{fuel}");
    let (engine, shown) = (engine(CheckMode::Exact(FUEL)), Shown::new());
    let program = engine.load(admitted).unwrap();
    fill(&shown, 5);
    let mut instance = Instance::start(&engine, &program).unwrap();
    map(&mut instance, &shown);
    for packet in 0..PACKETS {
        instance.run(batch(1 << packet));
        let (used, bound) = (instance.fuel_used().unwrap(), fuel.at(packet_bytes(&shown, packet)));
        assert!(used <= bound && bound <= used + used / 4 + 64, "packet {packet}: {used} of {bound}");
    }
}
