//! Modules in verified code of LLVM, beside the same modules in Cranelift's code. All other tests of this program run in LLVM's
//! code, too, with `WEIR_TEST_BACK_END=llvm`.

use crate::support::{MANIFEST, Packets, all, bytes, values, wat};
use std::io::Write;
use std::time::Duration;
use weir_admission::{Admitted, Tier};
use weir_sandbox::{
    BackEnd, BatchInput, CallFault, CheckMode, Engine, EngineOptions, FaultKind, Instance, LlvmUse,
    LoadedModule,
};

/// Engines of both back ends with the same checks; `None` if LLVM's code cannot be made or run here.
fn engines(check_mode: CheckMode) -> Option<[Engine; 2]> {
    let engines = [LlvmUse::Never, LlvmUse::AtLoad].map(|llvm| {
        let call_limit = Duration::from_millis(30);
        Engine::new(EngineOptions { check_mode, call_limit, llvm, ..EngineOptions::default() }, None).unwrap()
    });
    let plain = r#"(func (export "weir_packet") (param i32) (result i32) (i32.const 0))"#;
    let module = load(&engines[1], plain);
    let missing = |why: &str| why.contains("clang-19") || why.contains("FSGSBASE");
    match module.why_not_llvm() {
        None => Some(engines),
        Some(why) if missing(why) => {
            _ = writeln!(std::io::stderr(), "SKIPPED: no verified code of LLVM here: {why}");
            None
        }
        Some(why) => panic!("{why}"),
    }
}

fn load(engine: &Engine, body: &str) -> LoadedModule {
    let admitted = Admitted::admit(bytes(&wat(body), MANIFEST), &[]).unwrap_or_else(|e| panic!("{e}"));
    engine.load(admitted).unwrap()
}

fn start(engine: &Engine, body: &str, back_end: BackEnd) -> Instance {
    let module = load(engine, body);
    assert_eq!(module.back_end(), back_end, "{:?}", module.why_not_llvm());
    let mut instance = Instance::start(engine, &module).unwrap();
    Packets::new().map(&mut instance);
    instance
}

/// The observable effects of a batch: drops, rows, counters and faults.
#[derive(Debug, PartialEq)]
struct Effects {
    drops: u64,
    values: Vec<u64>,
    packets: u64,
    lost: u64,
    faults: Vec<CallFault>,
}

/// Runs a batch in both back ends. Returns the effects, which are the same but for the offsets of faults.
fn both(check_mode: CheckMode, body: &str) -> Option<Effects> {
    let engines = engines(check_mode)?;
    let effects = [(0, BackEnd::Cranelift), (1, BackEnd::Llvm)].map(|(index, back_end): (usize, _)| {
        let mut instance = start(&engines[index], body, back_end);
        let drops = instance.run(BatchInput { mask: 0xff, ..all() });
        let faults = instance.incidents().iter();
        let faults = faults.map(|incident| CallFault { offset: None, ..incident.fault.clone() }).collect();
        let counters = instance.counters();
        Effects {
            drops,
            values: values(&mut instance),
            packets: counters.packets,
            lost: counters.lost,
            faults,
        }
    });
    let [cranelift, llvm] = effects;
    assert_eq!(cranelift, llvm);
    Some(llvm)
}

/// A module that emits the packet's number, and executes `code` for packets with odd numbers.
fn odd(code: &str) -> String {
    format!(
        r#"(func $fails (param $d i32) (result i32) {code})
        (func (export "weir_packet") (param $d i32) (result i32) (local $number i32)
            (local.set $number (i32.load offset=60 (local.get $d)))
            (i64.store (i32.const 64) (i64.extend_i32_u (local.get $number)))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
            (if (i32.and (local.get $number) (i32.const 1)) (then (drop (call $fails (local.get $d)))))
            (i32.eq (local.get $number) (i32.const 4)))"#
    )
}

#[test]
fn a_trap_loses_the_same_packets_in_both_back_ends() {
    let causes = [
        ("(unreachable)", FaultKind::Unreachable),
        ("(i32.load (i32.const 0x30000000))", FaultKind::OutOfBounds),
        ("(i32.load offset=0xfffffff0 (local.get $d))", FaultKind::OutOfBounds),
        ("(drop (i32.load (i32.const 0x30000000))) (i32.const 0)", FaultKind::OutOfBounds),
        ("(i32.store (local.get $d) (i32.const 1)) (i32.const 0)", FaultKind::OutOfBounds),
        ("(memory.fill (i32.const 65535) (i32.const 1) (i32.const 2)) (i32.const 0)", FaultKind::OutOfBounds),
        ("(i32.div_u (i32.const 1) (i32.load8_u (i32.const 9000)))", FaultKind::Arithmetic),
        ("(i32.trunc_f64_s (f64.const inf))", FaultKind::Arithmetic),
        (
            "(call $emit (i32.const 0) (i32.const 0x30000000) (i32.const 8))",
            FaultKind::WildPointer { function: "emit" },
        ),
    ];
    for (code, kind) in causes {
        let Some(effects) = both(CheckMode::Admitted, &odd(code)) else { return };
        assert_eq!((effects.packets, effects.lost, effects.drops), (4, 4, 1 << 4), "{code}");
        assert_eq!(effects.values, [0, 2, 4, 6], "{code}");
        assert!(effects.faults.iter().all(|fault| fault.kind == kind), "{code}: {:?}", effects.faults);
    }
}

#[test]
fn deep_recursion_overflows_the_stack_in_both_back_ends() {
    let body = r#"(func $deep (param i32) (result i32)
            (if (result i32) (i32.eqz (local.get 0)) (then (i32.const 0)) (else
                (i32.add (i32.const 1) (call $deep (i32.sub (local.get 0) (i32.const 1)))))))
        (func (export "weir_packet") (param $d i32) (result i32)
            (i64.store (i32.const 64) (i64.extend_i32_u (call $deep
                (i32.mul (i32.const 100000000) (i32.and (i32.const 1) (i32.load offset=60 (local.get $d)))))))
            (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))"#;
    let Some(effects) = both(CheckMode::As(Tier::Proved), body) else { return };
    assert_eq!((effects.packets, effects.lost), (4, 4));
    assert!(
        effects.faults.iter().all(|fault| fault.kind == FaultKind::StackOverflow),
        "{:?}",
        effects.faults
    );
}

#[test]
fn an_endless_loop_ends_in_both_back_ends() {
    let endless = "(loop $again (br $again)) (unreachable)";
    let Some(effects) = both(CheckMode::As(Tier::Metered), &odd(endless)) else { return };
    assert!(effects.faults.iter().all(|fault| fault.kind == FaultKind::Limit), "{:?}", effects.faults);
    // Without a meter, the watchdog interrupts the call in the middle of the machine code, and the module ends.
    let Some(engines) = engines(CheckMode::As(Tier::Proved)) else { return };
    let mut instance = start(&engines[1], &odd(endless), BackEnd::Llvm);
    instance.run(BatchInput { mask: 0b111, ..all() });
    let faults: Vec<_> = instance.incidents().iter().map(|incident| &incident.fault).collect();
    assert_eq!(faults.len(), 1);
    assert_eq!(faults[0].kind, FaultKind::TimeOverrun);
    // The function is the one into which LLVM has inlined the loop.
    assert!(faults[0].function.is_some());
    assert!(instance.has_ended());
}

#[test]
fn memory_grows_and_keeps_its_contents_in_verified_code() {
    let body = r#"(global $calls (mut i64) (i64.const 5))
        (func (export "weir_packet") (param $d i32) (result i32)
            (drop (memory.grow (i32.const 1)))
            (i32.store8 (i32.sub (i32.mul (memory.size) (i32.const 65536)) (i32.const 1)) (i32.const 7))
            (memory.copy (i32.const 100) (i32.sub (i32.mul (memory.size) (i32.const 65536)) (i32.const 1)) (i32.const 1))
            (global.set $calls (i64.add (global.get $calls) (i64.load8_u (i32.const 100))))
            (i64.store (i32.const 64) (i64.add (i64.mul (global.get $calls) (i64.const 1000)) (i64.extend_i32_u (memory.size))))
            (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))"#;
    let Some(effects) = both(CheckMode::Admitted, body) else { return };
    assert_eq!(effects.values[..3], [12_002, 19_003, 26_004]);
}

#[test]
fn a_module_that_cannot_be_lowered_runs_in_cranelifts_code() {
    let Some([_, engine]) = engines(CheckMode::Admitted) else { return };
    let body = r#"(table 1 funcref)
        (func (export "weir_packet") (param $d i32) (result i32) (ref.is_null (ref.null func)))"#;
    let module = load(&engine, body);
    assert_eq!(module.back_end(), BackEnd::Cranelift);
    let why = module.why_not_llvm().unwrap();
    assert!(why.starts_with("`RefNull` in function"), "{why}");
    assert_eq!(Instance::start(&engine, &module).unwrap().run(BatchInput { mask: 0b11, ..all() }), 0b11);
}
