//! Modules in verified code of LLVM, beside the same modules in Cranelift's code. All other tests of this program run in LLVM's
//! code, too, with `WEIR_TEST_BACK_END=llvm`.

use crate::llvm::compile::{Compiled, clang, compile};
use crate::support::{MANIFEST, Packets, all, bytes, values, wat};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_admission::{Admitted, CalibratedProfile, Profile, Tier, VerifiedUse};
use weir_os::StoppableBudget;
use weir_sandbox::{
    BackEnd, BatchInput, Cache, Call, CallFault, CallStep, CheckMode, CodeOrigin, Engine, EngineOptions,
    ExplainedInstruction, FaultKind, FuelSlice, Instance, LlvmUse, LoadError, LoadedModule,
};
use weir_verify::{Place, Rule};

/// Engines of both back ends with the same checks; `None` if LLVM's code cannot be made or run here.
pub fn engines(check_mode: CheckMode) -> Option<[Engine; 2]> {
    let engines = [LlvmUse::Never, LlvmUse::AtLoad].map(|llvm| {
        let call_limit = Duration::from_millis(30);
        Engine::new(EngineOptions { check_mode, call_limit, llvm, ..EngineOptions::default() }, None).unwrap()
    });
    let plain = r#"(func (export "weir_packet") (param i32) (result i32) (i32.const 0))"#;
    let module = load(&engines[1], plain);
    let missing = |why: &str| why.contains("clang 19") || why.contains("FSGSBASE");
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

/// Runs a batch in both back ends. Returns the effects, which are the same but for the places of faults.
fn both(check_mode: CheckMode, body: &str) -> Option<Effects> {
    let engines = engines(check_mode)?;
    let effects = [(0, BackEnd::Cranelift), (1, BackEnd::Llvm)].map(|(index, back_end): (usize, _)| {
        let mut instance = start(&engines[index], body, back_end);
        let drops = instance.run(BatchInput { mask: 0xff, ..all() });
        let faults = instance.incidents().iter();
        // Cranelift's code does not tell inlined functions apart.
        let place = |fault: &CallFault| (fault.function.clone(), fault.offset);
        assert!(
            back_end == BackEnd::Cranelift
                || faults.clone().all(|incident| {
                    let (function, offset) = place(&incident.fault);
                    function.is_some_and(|name| !name.starts_with("function ")) && offset.is_some()
                }),
            "{:?}",
            instance.incidents()
        );
        let faults = faults
            .map(|incident| CallFault { function: None, offset: None, ..incident.fault.clone() })
            .collect();
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

/// A module whose rows depend on its globals of all types and on its memory.
const COUNTER: &str = r#"(global $calls (mut i64) (i64.const 5))
    (global $small (mut i32) (i32.const -7))
    (global $ratio (mut f64) (f64.const 0.5))
    (global $single (mut f32) (f32.const 2.5))
    (global $vector (mut v128) (v128.const i64x2 1 2))
    (func (export "weir_packet") (param $d i32) (result i32)
        (global.set $calls (i64.add (global.get $calls) (i64.const 3)))
        (global.set $small (i32.sub (global.get $small) (i32.const 2)))
        (global.set $ratio (f64.mul (global.get $ratio) (f64.const 1.25)))
        (global.set $single (f32.add (global.get $single) (f32.const 0.25)))
        (global.set $vector (i64x2.add (global.get $vector) (v128.const i64x2 10 20)))
        (i32.store (i32.const 200) (i32.add (i32.load (i32.const 200)) (i32.const 1)))
        (i64.store (i32.const 64) (i64.xor
            (i64.xor (global.get $calls) (i64.extend_i32_u (global.get $small)))
            (i64.xor (i64.reinterpret_f64 (global.get $ratio)) (i64.xor
                (i64.extend_i32_u (i32.reinterpret_f32 (global.get $single)))
                (i64.xor (i64x2.extract_lane 1 (global.get $vector)) (i64.load (i32.const 200)))))))
        (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))"#;

fn later_engine() -> Engine {
    Engine::new(EngineOptions { llvm: LlvmUse::Later, ..EngineOptions::default() }, None).unwrap()
}

#[test]
fn a_module_moves_to_verified_code_between_any_two_batches_with_the_same_rows() {
    if engines(CheckMode::Admitted).is_none() {
        return;
    }
    const BATCHES: usize = 5;
    let rows = |moves_before: usize, is_suspendable: bool| {
        let engine = later_engine();
        let admitted = Admitted::admit(bytes(&wat(COUNTER), MANIFEST), &[]).unwrap();
        let module = match is_suspendable {
            true => engine.load_suspendable(admitted).unwrap(),
            false => engine.load(admitted).unwrap(),
        };
        assert!(module.waits_for_llvm());
        let mut instance = Instance::start(&engine, &module).unwrap();
        Packets::new().map(&mut instance);
        let mut rows = Vec::new();
        for batch in 0..BATCHES {
            if batch == moves_before {
                engine.compile_with_llvm(&module, &mut weir_units::Nanos(0));
                assert_eq!(module.why_not_llvm(), None);
            }
            assert_eq!(instance.run(BatchInput { mask: 0b1011, ..all() }), 0);
            let expected = if batch >= moves_before { BackEnd::Llvm } else { BackEnd::Cranelift };
            assert_eq!(instance.back_end(), expected);
            rows.push(values(&mut instance));
        }
        assert!(instance.incidents().is_empty(), "{:?}", instance.incidents());
        rows
    };
    let expected = rows(BATCHES, false);
    assert_eq!(expected.concat().len(), 3 * BATCHES);
    for moves_before in 0..BATCHES {
        assert_eq!(rows(moves_before, false), expected, "moved before batch {moves_before}");
        assert_eq!(rows(moves_before, true), expected, "moved before batch {moves_before}, suspendable");
    }
}

#[test]
fn a_suspended_call_stays_in_its_code_until_it_is_complete() {
    if engines(CheckMode::Admitted).is_none() {
        return;
    }
    let engine = later_engine();
    let admitted = Admitted::admit(bytes(&wat(&long()), MANIFEST), &[]).unwrap();
    let module = engine.load_suspendable(admitted).unwrap();
    let mut instance = Instance::start(&engine, &module).unwrap();
    Packets::new().map(&mut instance);
    let slice = FuelSlice { fuel: 1, until: None };
    let batch = BatchInput { mask: 0b11, ..all() };
    assert_eq!(instance.begin(Call::Batch(batch), slice), CallStep::Suspended);
    engine.compile_with_llvm(&module, &mut weir_units::Nanos(0));
    let (mut slices, mut step) = (0, CallStep::Suspended);
    while step == CallStep::Suspended {
        assert_eq!(instance.back_end(), BackEnd::Cranelift);
        (slices, step) = (slices + 1, instance.resume(slice));
    }
    assert!(slices > 3, "{slices}");
    let first = values(&mut instance);
    // The next call is suspended in the new code as often.
    let (mut slices_of_next, mut step) = (0, instance.begin(Call::Batch(batch), slice));
    assert_eq!((step, instance.back_end()), (CallStep::Suspended, BackEnd::Llvm));
    while step == CallStep::Suspended {
        (slices_of_next, step) = (slices_of_next + 1, instance.resume(slice));
    }
    assert_eq!(slices_of_next, slices);
    assert_eq!(values(&mut instance), first);
}

#[test]
fn a_compilation_that_its_budget_ends_can_be_tried_again() {
    if engines(CheckMode::Admitted).is_none() {
        return;
    }
    let engine = later_engine();
    let module = load(&engine, COUNTER);
    let (mut used, must_stop) = (weir_units::Nanos(0), AtomicBool::new(true));
    engine.compile_with_llvm(&module, &mut StoppableBudget { budget: &mut used, must_stop: &must_stop });
    assert!(module.waits_for_llvm(), "{:?}", module.why_not_llvm());
    must_stop.store(false, Ordering::Release);
    engine.compile_with_llvm(&module, &mut StoppableBudget { budget: &mut used, must_stop: &must_stop });
    assert_eq!(module.back_end(), BackEnd::Llvm);
    assert!(used.0 > 0, "the compiler's time is charged");
}

/// A module that counts to 1,000 for each packet, and emits the sum.
fn long() -> String {
    r#"(func (export "weir_packet") (param $d i32) (result i32) (local $n i32) (local $sum i64)
        (loop $again
            (local.set $sum (i64.add (local.get $sum) (i64.extend_i32_u (local.get $n))))
            (br_if $again (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 1000))))
        (i64.store (i32.const 64) (local.get $sum))
        (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))"#
        .to_owned()
}

/// An engine whose compiler is a shell script, which states the version of clang that weir uses.
fn engine_with(folder: &Path, script: &str) -> Engine {
    let version = r#"case "$*" in *-version*) echo "LLVM version 19.1.7"; exit;; esac"#;
    engine_with_program(folder, &format!("{version}\n{script}"))
}

/// An engine whose compiler is a shell script.
fn engine_with_program(folder: &Path, script: &str) -> Engine {
    let path = folder.join("clang");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    let options = EngineOptions { llvm: LlvmUse::AtLoad, ..EngineOptions::default() };
    Engine::new(options, None).unwrap().with_clang(&path).unwrap()
}

#[test]
fn a_compiler_that_fails_leaves_the_module_in_cranelifts_code() {
    if engines(CheckMode::Admitted).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (script, expected) in [
        ("echo it is broken >&2; exit 3", "it is broken"),
        ("exit 0", "not an object file"),
        ("cat", "not an object file"),
        ("head -c 4096 /dev/zero", "not an object file"),
        ("kill -SEGV $$", "was stopped"),
        ("kill -KILL $$", "was stopped"),
    ] {
        let engine = engine_with(folder.path(), script);
        let module = load(&engine, COUNTER);
        assert_eq!(module.back_end(), BackEnd::Cranelift, "{script}");
        let why = module.why_not_llvm().unwrap_or_default();
        assert!(why.contains(expected), "{script}: {why}");
        let mut instance = Instance::start(&engine, &module).unwrap();
        Packets::new().map(&mut instance);
        instance.run(BatchInput { mask: 0b1, ..all() });
        assert_eq!(values(&mut instance).len(), 1, "{script}");
    }
    let missing = folder.path().join("none");
    let error = Engine::new(EngineOptions::default(), None).unwrap().with_clang(&missing).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn a_compiler_of_another_version_compiles_nothing() {
    if engines(CheckMode::Admitted).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let compiled = folder.path().join("compiled");
    for (answer, expected) in [
        ("echo 'Debian LLVM version 18.1.8'", "is clang 18; weir uses clang 19"),
        ("echo 'LLVM version 190.1.0'", "is clang 190; weir uses clang 19"),
        ("echo 'LLVM version nineteen'", "does not state a version"),
        ("cat", "does not state a version"),
        ("echo 'no such option' >&2; exit 1", "does not state a version: no such option"),
        ("head -c 100000 /dev/zero", "does not state a version"),
        ("kill -SEGV $$", "was stopped"),
    ] {
        let script = format!("case \"$*\" in *-version*) {answer};; *) touch {};; esac", compiled.display());
        let engine = engine_with_program(folder.path(), &script);
        let module = load(&engine, COUNTER);
        assert_eq!(module.back_end(), BackEnd::Cranelift, "{answer}");
        let why = module.why_not_llvm().unwrap_or_default();
        assert!(why.contains(expected), "{answer}: {why}");
        assert!(!compiled.exists(), "{answer}");
    }
}

#[test]
fn objects_come_from_the_cache_and_a_changed_one_is_compiled_again_or_rejected() {
    if engines(CheckMode::Admitted).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let cache = || Some(Cache::open(&folder.path().join("cache")).unwrap());
    let later =
        |cache| Engine::new(EngineOptions { llvm: LlvmUse::Later, ..EngineOptions::default() }, cache);
    let engine = later(cache()).unwrap();
    let module = load(&engine, COUNTER);
    assert!(module.waits_for_llvm());
    engine.compile_with_llvm(&module, &mut weir_units::Nanos(0));
    assert_eq!(module.back_end(), BackEnd::Llvm);
    // The next engine has the code at once.
    assert_eq!(load(&later(cache()).unwrap(), COUNTER).back_end(), BackEnd::Llvm);
    // Of a damaged entry nothing is used.
    for entry in std::fs::read_dir(folder.path().join("cache")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
    assert!(load(&later(cache()).unwrap(), COUNTER).waits_for_llvm());
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

/// Writes the objects that edge/native tests.
#[test]
#[ignore = "writes files of the repository"]
fn prebuilt_objects_are_written() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for name in ["rtt", "http"] {
        let shipped = root.join(format!("guest/modules/{name}/{name}.wasm"));
        let admitted = Admitted::admit(std::fs::read(shipped).unwrap(), &[]).unwrap();
        let engine = Engine::new(EngineOptions::default(), None).unwrap();
        let rewritten = engine.rewritten(&admitted).unwrap();
        let object = clang(&weir_lower::lower(&rewritten).unwrap().ir).expect("clang 19 is needed");
        let objects = root.join("edge/native/tests/objects");
        std::fs::write(objects.join(format!("{name}.wasm")), rewritten).unwrap();
        std::fs::write(objects.join(format!("{name}.o")), object).unwrap();
    }
}

/// Admits a module under a profile that allows verified code alone.
fn admit_verified_only(body: &str) -> Admitted {
    let profile = Profile { verified: VerifiedUse::Only, ..Profile::default() };
    let terms = CalibratedProfile::from(profile);
    Admitted::admit_by(bytes(&wat(body), MANIFEST), &[], &terms).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn with_verified_code_only_a_module_never_runs_in_cranelifts_code() {
    if engines(CheckMode::Admitted).is_none() {
        return;
    }
    // A start function, data, a table and globals of all types.
    let body = format!(
        r#"(data (i32.const 200) "\07") (table 2 funcref) (elem (i32.const 1) $begin)
        (func $begin (global.set $calls (i64.add (global.get $calls) (i64.const 100)))) (start $begin) {COUNTER}"#
    );
    let batch = BatchInput { mask: 0b1011, ..all() };
    let expected = {
        let engine = Engine::new(EngineOptions::default(), None).unwrap();
        let mut instance = start(&engine, &body, BackEnd::Cranelift);
        instance.run(batch);
        values(&mut instance)
    };
    assert_eq!(expected.len(), 3);
    for llvm in [LlvmUse::Later, LlvmUse::AtLoad] {
        let engine = Engine::new(EngineOptions { llvm, ..EngineOptions::default() }, None).unwrap();
        for is_suspendable in [false, true] {
            let admitted = admit_verified_only(&body);
            let mut used = weir_units::Nanos(0);
            let module = engine.load_counting(admitted, is_suspendable, &mut used).unwrap();
            assert!(!module.waits_for_llvm() && module.back_end() == BackEnd::Llvm && used.0 > 0);
            let mut instance = Instance::start(&engine, &module).unwrap();
            Packets::new().map(&mut instance);
            instance.run(batch);
            // All functions of Cranelift's code would trap.
            assert!(instance.incidents().is_empty(), "{:?}", instance.incidents());
            assert_eq!(values(&mut instance), expected);
        }
    }
}

#[test]
fn with_verified_code_only_a_module_without_such_code_is_refused() {
    let refusal = |engine: &Engine, body: &str| match engine.load(admit_verified_only(body)) {
        Err(error @ LoadError::NotVerified { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let never = Engine::new(EngineOptions::default(), None).unwrap();
    let why = refusal(&never, COUNTER);
    assert!(why.contains("verified = \"only\"") && why.ends_with("it runs without LLVM"), "{why}");
    if engines(CheckMode::Admitted).is_none() {
        return;
    }
    let later = later_engine();
    let unsupported = r#"(table 1 funcref)
        (func (export "weir_packet") (param $d i32) (result i32) (ref.is_null (ref.null func)))"#;
    assert!(refusal(&later, unsupported).contains("`RefNull` in function"));
    let folder = tempfile::tempdir().unwrap();
    assert!(
        refusal(&engine_with(folder.path(), "echo it is broken >&2; exit 3"), COUNTER)
            .contains("it is broken")
    );
    assert!(refusal(&engine_with(folder.path(), "cat"), COUNTER).contains("not an object file"));
    // A compilation that is preempted is no refusal.
    let (mut used, must_stop) = (weir_units::Nanos(0), AtomicBool::new(true));
    let mut budget = StoppableBudget { budget: &mut used, must_stop: &must_stop };
    let error = later.load_counting(admit_verified_only(COUNTER), false, &mut budget).unwrap_err();
    assert!(error.to_string().contains("preempted"), "{error}");
}

#[test]
fn machine_code_is_explained_with_its_origin_also_if_it_is_rejected() {
    if engines(CheckMode::Admitted).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
        (i32.store (i32.const 64) (i32.load offset=40 (local.get $d))) (i32.const 0))"#;
    let wasm = bytes(&wat(body), MANIFEST);
    // `i32.load offset=40` with its alignment.
    let load = wasm.windows(3).position(|code| code == [0x28, 2, 40]).unwrap();
    let explain = |script: &str| {
        let admitted = Admitted::admit(wasm.clone(), &[]).unwrap();
        engine_with(folder.path(), script).explain_llvm(&admitted).unwrap()
    };
    let clang =
        "$(ls /usr/lib/llvm-19/bin/clang /usr/local/bin/clang-19 /usr/bin/clang-19 2>/dev/null | head -1)";
    let explained = explain(&format!(r#"exec {clang} "$@""#));
    let code = explained.code.unwrap();
    assert!(code.verdict.is_ok() && !explained.is_from_cache && explained.compiler_time.0 > 0);
    let origin = CodeOrigin::Module(u32::try_from(load).unwrap());
    let is_load = |at: &&ExplainedInstruction| at.facts.operand.is_some() && at.origin == origin;
    let loads: Vec<_> = code.instructions.iter().filter(is_load).collect();
    let place = loads[0].facts.operand.unwrap().place;
    assert_eq!(place, Ok(Place::Region { lo: 40, hi: i64::from(u32::MAX) + 40 }));
    assert!(code.instructions.iter().any(|at| at.origin == CodeOrigin::Loader));

    // Another segment than GS.
    let explained = explain(&format!(r#"{clang} "$@" | LC_ALL=C sed 's/\x65\x8b/\x3e\x8b/g'"#));
    let code = explained.code.unwrap();
    let rejections = code.verdict.unwrap_err();
    let first = rejections.list()[0];
    assert_eq!(first.rule, Rule::Prefix);
    assert!(code.instructions.iter().any(|at| at.facts.offset == first.offset && !at.facts.is_reached));
    assert!(code.functions.iter().all(|function| function.facts.is_none()));
}

/// With suspension points, as in nodes, the code is larger, and all of it is verified, too.
#[test]
fn all_shipped_modules_run_in_verified_code() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest/modules");
    let engine = Engine::new(EngineOptions::default(), None).unwrap();
    let mut modules = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let Ok(wasm) = std::fs::read(path.join(format!("{name}.wasm"))) else { continue };
        let admitted = Admitted::admit(wasm, &[]).unwrap();
        match compile(&engine.rewritten_suspendable(&admitted).unwrap()) {
            None => return,
            Some(Err(unsupported)) => panic!("{name}: {unsupported}"),
            // `compile` panics for code that is rejected.
            Some(Ok(Compiled { lowered, functions, .. })) => {
                assert_eq!(functions.len(), lowered.stack_arguments.len())
            }
        }
        modules += 1;
    }
    assert!(modules > 20, "{modules}");
}

/// The memory of this process, with its page tables, in KiB.
fn memory_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap()
    };
    field("RssAnon:") + field("VmPTE:")
}

#[test]
#[ignore = "started by further_instances_take_little_more_memory_in_verified_code"]
fn instances_are_made_in_the_code_of_each_back_end() {
    const INSTANCES: usize = 200;
    let Some(engines) = engines(CheckMode::Admitted) else { return };
    let kib = engines.map(|engine| {
        let module = load(&engine, COUNTER);
        let run = || {
            let mut instance = Instance::start(&engine, &module).unwrap();
            Packets::new().map(&mut instance);
            instance.run(BatchInput { mask: 0b1, ..all() });
            instance
        };
        let first = run();
        let before = memory_kib();
        let instances: Vec<Instance> = (0..INSTANCES).map(|_| run()).collect();
        let taken = memory_kib() - before;
        drop((first, instances));
        taken
    });
    println!("KiB for {INSTANCES} instances: {kib:?}");
}

/// The tests of one process share its memory, so the measurement has a process of its own.
#[test]
fn further_instances_take_little_more_memory_in_verified_code() {
    if engines(CheckMode::Admitted).is_none() {
        return;
    }
    let child = "native::instances_are_made_in_the_code_of_each_back_end";
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--ignored", "--exact", "--nocapture", child]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let list = text.split_once("instances: [").unwrap().1.split_once(']').unwrap().0;
    let kib: Vec<usize> = list.split(", ").map(|number| number.parse().unwrap()).collect();
    println!("KiB for 200 instances in the code of Cranelift and of LLVM: {kib:?}");
    assert!(kib[1] <= kib[0] + 200 * 64, "{kib:?}");
}
