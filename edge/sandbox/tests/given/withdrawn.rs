//! The withdrawal of given code: instances go on in Cranelift's code, or end.

use super::{Effects, Engines, admit, in_slices, load_given, start};
use crate::native::engines;
use crate::support::{MANIFEST, Packets, all, alone, bytes, values, wat};
use std::time::Duration;
use weir_admission::{Admitted, CalibratedProfile, Profile, Tier, VerifiedUse};
use weir_sandbox::{
    BackEnd, BatchInput, Call, CallStep, CheckMode, CodeWithdrawal, During, Engine, EngineOptions, FaultKind,
    FuelSlice, Instance, LoadError, LoadedModule, ObjectRefusal,
};
use weir_units::{Nanos, Timestamp};

const EMIT: &str = "(drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))";

/// A module whose state is in its memory, which grows, and in globals of all types. Packets and ticks change and emit all of it.
/// Every fifth packet fails with its shadow stack in use.
fn stateful() -> Admitted {
    let emitted = [
        "(global.get $long)",
        "(i64.extend_i32_s (global.get $short))",
        "(i64.reinterpret_f64 (global.get $double))",
        "(i64.extend_i32_u (i32.reinterpret_f32 (global.get $single)))",
        "(i64.extend_i32_u (i32.reinterpret_f32 (global.get $not)))",
        "(i64x2.extract_lane 0 (global.get $vector))",
        "(i64x2.extract_lane 1 (global.get $vector))",
        "(i64.extend_i32_u (global.get $__stack_pointer))",
        "(i64.extend_i32_u (memory.size))",
        "(i64.load (i32.const 200))",
        "(i64.load (i32.sub (i32.shl (memory.size) (i32.const 16)) (i32.const 8)))",
    ];
    let emits: String =
        emitted.iter().map(|value| format!("(i64.store (i32.const 64) {value}) {EMIT}\n")).collect();
    admit(&wat(&format!(
        r#"(global $long (mut i64) (i64.const -5))
        (global $short (mut i32) (i32.const -7))
        (global $double (mut f64) (f64.const -0.5))
        (global $single (mut f32) (f32.const 2.5))
        (global $not (mut f32) (f32.const nan:0x200001))
        (global $vector (mut v128) (v128.const i64x2 1 -2))
        (data (i32.const 200) "\07")
        (func $change (param $by i64)
            (global.set $long (i64.mul (global.get $long) (i64.add (local.get $by) (i64.const 3))))
            (global.set $short (i32.sub (global.get $short) (i32.wrap_i64 (local.get $by))))
            (global.set $double (f64.mul (global.get $double) (f64.const 1.25)))
            (global.set $single (f32.add (global.get $single) (f32.const 0.25)))
            (global.set $not (f32.reinterpret_i32 (i32.xor (i32.reinterpret_f32 (global.get $not)) (i32.const 6))))
            (global.set $vector (i64x2.add (global.get $vector) (v128.const i64x2 0x100000001 20)))
            (i64.store (i32.const 200) (i64.add (i64.load (i32.const 200)) (local.get $by)))
            (i64.store (i32.sub (i32.shl (memory.size) (i32.const 16)) (i32.const 8)) (global.get $long))
            {emits})
        (func (export "weir_packet") (param $d i32) (result i32) (local $number i32)
            (local.set $number (i32.load offset=60 (local.get $d)))
            (call $change (i64.extend_i32_u (local.get $number)))
            (if (i32.eq (i32.rem_u (local.get $number) (i32.const 5)) (i32.const 4)) (then
                (global.set $__stack_pointer (i32.sub (global.get $__stack_pointer) (i32.const 32)))
                (unreachable)))
            (i32.eq (local.get $number) (i32.const 2)))
        (func (export "weir_tick") (param i64 i64)
            (drop (memory.grow (i32.const 1)))
            (call $change (i64.const 100)))
        (func (export "weir_stop") (param i64) (call $change (i64.const 1000)))"#
    )))
}

/// Calls of a module, in turn: batches and ticks.
fn call(step: u32) -> Call {
    match step % 2 {
        0 => Call::Batch(BatchInput { mask: 0b1_0110 << (step / 2), first: 64 * step, ..all() }),
        _ => Call::Tick { now: Timestamp(u64::from(step)), periods: 1, before: 64 * step },
    }
}

const STEPS: u32 = 8;

/// The effects of all calls and of the stop. The code is withdrawn before one of them; after the last one it never is.
fn effects(engine: &Engine, (module, code): (&LoadedModule, Option<&CodeWithdrawal>), at: u32) -> Effects {
    let mut instance = start(engine, module);
    let mut effects = Effects::default();
    for step in 0..STEPS {
        if step == at {
            code.unwrap().withdraw();
        }
        effects.drops.push(in_slices(&mut instance, call(step), 50).0);
        effects.take(&mut instance);
        let expected = if code.is_some() && step < at { BackEnd::Llvm } else { BackEnd::Cranelift };
        assert_eq!(instance.back_end(), expected, "step {step}, withdrawn at {at}");
    }
    instance.stop(Timestamp(100));
    effects.take(&mut instance);
    effects
}

#[test]
fn a_module_goes_on_in_cranelifts_code_with_all_its_state() {
    let Some(engines) = Engines::new() else { return };
    let admitted = stateful();
    for is_suspendable in [false, true] {
        let [cranelift, _] = engines.load(&admitted, is_suspendable);
        let expected = effects(&engines.cranelift, (&cranelift, None), STEPS);
        assert_eq!(expected.counters.faults, expected.counters.lost);
        assert!(expected.counters.faults > 1 && expected.rows.len() > 100, "{:?}", expected.counters);
        let given = engines.compile(&admitted, is_suspendable);
        for at in 0..=STEPS {
            let (module, code) = load_given(&engines.cranelift, &admitted, is_suspendable, &given);
            assert_eq!((module.back_end(), code.is_withdrawn()), (BackEnd::Llvm, false));
            let found = effects(&engines.cranelift, (&module, Some(&code)), at);
            assert_eq!(found, expected, "withdrawn before step {at}, {is_suspendable}");
            if at < STEPS {
                // Instances that start later are in Cranelift's code from the beginning.
                assert!(code.is_withdrawn() && module.back_end() == BackEnd::Cranelift);
                assert!(module.why_not_llvm().unwrap().contains("not trusted any more"));
                let later = effects(&engines.cranelift, (&module, None), STEPS);
                assert_eq!(later, expected);
            }
        }
    }
}

#[test]
fn all_instances_of_a_module_leave_its_code() {
    let Some(engines) = Engines::new() else { return };
    let admitted = stateful();
    let (module, code) = load_given(&engines.cranelift, &admitted, false, &engines.compile(&admitted, false));
    let mut instances: Vec<Instance> = (0..3).map(|_| start(&engines.cranelift, &module)).collect();
    code.withdraw();
    for instance in &mut instances {
        assert_eq!(instance.back_end(), BackEnd::Llvm, "an instance moves with its next call");
        in_slices(instance, call(0), 50);
        assert_eq!(instance.back_end(), BackEnd::Cranelift);
        assert!(!instance.has_ended());
    }
    // A module that was never given has no code to withdraw.
    let code = engines.cranelift.compile(admitted, false, &mut Nanos(0)).unwrap();
    assert!(code.withdrawal().is_none() && code.has_other_code());
}

/// A module that counts to 1,000 for each packet, and to 500 in ticks and in the stop.
fn long() -> Admitted {
    admit(&wat(&format!(
        r#"(global $sum (mut i64) (i64.const 3))
        (func $count (param $to i32) (local $n i32)
            (loop $again
                (global.set $sum (i64.add (i64.mul (global.get $sum) (i64.const 7)) (i64.extend_i32_u (local.get $n))))
                (br_if $again (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (local.get $to))))
            (i64.store (i32.const 64) (global.get $sum)) {EMIT})
        (func (export "weir_packet") (param $d i32) (result i32) (call $count (i32.const 1000)) (i32.const 1))
        (func (export "weir_tick") (param i64 i64) (call $count (i32.const 500)))
        (func (export "weir_stop") (param i64) (call $count (i32.const 500)))"#
    )))
}

const SLICE: FuelSlice = FuelSlice { fuel: 1, until: None };

fn batch() -> Call {
    Call::Batch(BatchInput { mask: 0b111, ..all() })
}

fn tick() -> Call {
    Call::Tick { now: Timestamp(1), periods: 1, before: 64 }
}

#[test]
fn a_suspended_call_of_withdrawn_code_is_aborted() {
    let Some(engines) = Engines::new() else { return };
    let admitted = long();
    let given = engines.compile(&admitted, true);
    for is_ended_by_next in [false, true] {
        let (module, code) = load_given(&engines.cranelift, &admitted, true, &given);
        let mut instance = start(&engines.cranelift, &module);
        assert_eq!(instance.begin(batch(), SLICE), CallStep::Suspended);
        code.withdraw();
        if !is_ended_by_next {
            assert_eq!((instance.resume(SLICE), instance.is_suspended()), (CallStep::Done(0), false));
        }
        let (_, suspensions) = in_slices(&mut instance, tick(), 1);
        assert!(suspensions > 1, "{suspensions}");
        assert_eq!(instance.back_end(), BackEnd::Cranelift);
        let mut effects = Effects::default();
        effects.take(&mut instance);
        // The packets of the aborted call are lost. It has no other effect, and is no fault.
        assert_eq!((effects.rows.len(), effects.counters.packets, effects.counters.lost), (1, 0, 3));
        assert_eq!(effects.counters.faults, 0);
    }
    // A suspended call that is aborted is over, too.
    let (module, code) = load_given(&engines.cranelift, &admitted, true, &given);
    let mut instance = start(&engines.cranelift, &module);
    assert_eq!(instance.begin(batch(), SLICE), CallStep::Suspended);
    code.withdraw();
    assert_eq!((instance.abort(), instance.back_end()), (0, BackEnd::Llvm));
    in_slices(&mut instance, batch(), 1);
    assert_eq!((instance.back_end(), instance.counters().packets), (BackEnd::Cranelift, 3));
    assert_eq!(instance.counters().lost, 3);
}

/// The effects of calls that an ended module does not get any more.
fn further(instance: &mut Instance) -> Effects {
    assert!(instance.has_ended());
    let mut effects = Effects::default();
    for call in [Call::Batch(BatchInput { mask: 0b1011, ..all() }), tick()] {
        assert_eq!(instance.begin(call, SLICE), CallStep::Done(0));
    }
    instance.stop(Timestamp(1));
    assert!(instance.is_stopped());
    effects.take(instance);
    effects
}

#[test]
fn without_other_code_a_module_ends() {
    let Some(engines) = Engines::new() else { return };
    let admitted = stateful();
    for is_suspendable in [false, true] {
        let given = engines.compile(&admitted, is_suspendable);
        for at in [0, 1] {
            let (module, code) = load_given(&engines.bare, &admitted, is_suspendable, &given);
            let mut both = [start(&engines.bare, &module), start(&engines.bare, &module)];
            for instance in &mut both {
                in_slices(instance, Call::Batch(BatchInput { mask: 0b111, ..all() }), 50);
                let mut effects = Effects::default();
                effects.take(instance);
                assert_eq!((effects.rows.len(), effects.unserved), (3 * 11, 0));
            }
            code.withdraw();
            for instance in &mut both {
                // The withdrawal is noticed before a batch or before a tick.
                let (first, unserved) = match at {
                    0 => (Call::Batch(BatchInput { mask: 0b110, ..all() }), 0b110),
                    _ => (tick(), 0),
                };
                assert_eq!(instance.begin(first, SLICE), CallStep::Done(0));
                assert_eq!(instance.take_unserved(), unserved);
                let effects = further(instance);
                assert_eq!(effects.unserved, 0b1011);
                assert!(effects.rows.is_empty(), "{:?}", effects.rows);
                assert_eq!(effects.faults, [(FaultKind::Withdrawn, During::Idle)]);
                assert_eq!((effects.counters.packets, effects.counters.lost), (3, 0));
                let says = instance.fault_messages(0);
                assert_eq!(
                    says,
                    [
                        "the key that vouched for its machine code is not trusted any more, and it has no other code"
                    ]
                );
            }
        }
    }
}

#[test]
fn without_other_code_a_suspended_call_is_the_last_one() {
    let Some(engines) = Engines::new() else { return };
    let admitted = long();
    let (module, code) = load_given(&engines.bare, &admitted, true, &engines.compile(&admitted, true));
    let mut instance = start(&engines.bare, &module);
    assert_eq!(instance.begin(batch(), SLICE), CallStep::Suspended);
    code.withdraw();
    assert_eq!(instance.resume(SLICE), CallStep::Done(0));
    assert_eq!((instance.counters().packets, instance.counters().lost), (0, 3));
    // It has not been called since, so the stop is what notices.
    instance.stop(Timestamp(1));
    let effects = further(&mut instance);
    // The packets of the aborted call, and those of the batch after it.
    assert_eq!((effects.rows.len(), effects.unserved), (0, 0b1111));
    assert_eq!(effects.faults, [(FaultKind::Withdrawn, During::Idle)]);
    // A module whose code is withdrawn before its start is not started.
    let (module, code) = load_given(&engines.bare, &admitted, true, &engines.compile(&admitted, true));
    let mut instance = Instance::make(&engines.bare, &module).unwrap();
    code.withdraw();
    assert_eq!(instance.begin(Call::Start, SLICE), CallStep::Done(0));
    assert_eq!(further(&mut instance).faults, [(FaultKind::Withdrawn, During::Idle)]);
}

#[test]
fn withdrawn_code_makes_no_new_instances() {
    let Some(engines) = Engines::new() else { return };
    let admitted = long();
    let given = engines.compile(&admitted, false);
    let (module, code) = load_given(&engines.bare, &admitted, false, &given);
    code.withdraw();
    let error = Instance::start(&engines.bare, &module).unwrap_err();
    assert!(matches!(error, LoadError::Object(ObjectRefusal::Withdrawn)), "{error}");
    assert_eq!(error.to_string(), "the key that vouched for its machine code is not trusted any more");
    // Nor can it be loaded.
    let code = engines.bare.take_object(admitted, false, &given, &mut Nanos(0)).unwrap();
    code.withdrawal().unwrap().withdraw();
    let error = engines.bare.load_code(code).unwrap_err();
    assert!(matches!(error, LoadError::Object(ObjectRefusal::Withdrawn)), "{error}");
}

#[test]
fn an_endless_call_in_given_code_is_ended() {
    // Without a meter only the watchdog ends the call, by an interruption in the middle of the machine code.
    for (tier, kind) in [(Tier::Proved, FaultKind::TimeOverrun), (Tier::Metered, FaultKind::Limit)] {
        let check_mode = CheckMode::As(tier);
        let Some([cranelift, clang]) = engines(check_mode) else { return };
        let call_limit = Duration::from_millis(30);
        let options = EngineOptions { compiles: false, check_mode, call_limit, ..EngineOptions::default() };
        let engines = Engines { cranelift, clang, bare: Engine::new(options, None).unwrap() };
        let admitted = admit(&wat(r#"(func (export "weir_packet") (param $d i32) (result i32)
            (if (i32.load offset=60 (local.get $d)) (then (loop $again (br $again))))
            (i32.const 1))"#));
        let given = engines.compile(&admitted, false);
        for engine in [&engines.bare, &engines.cranelift] {
            let (module, _) = load_given(engine, &admitted, false, &given);
            let mut instance = start(engine, &module);
            assert_eq!(instance.run(BatchInput { mask: 0b11, ..all() }), 1);
            let faults: Vec<_> = instance.incidents().iter().map(|incident| incident.fault.kind).collect();
            assert_eq!(faults, [kind]);
            assert_eq!(instance.has_ended(), tier == Tier::Proved);
        }
    }
}

#[test]
fn with_verified_code_only_a_module_ends_though_there_is_a_compiler() {
    let Some(engines) = Engines::new() else { return };
    let profile = Profile { verified: VerifiedUse::Only, ..Profile::default() };
    let body = r#"(func (export "weir_packet") (param i32) (result i32) (i32.const 1))"#;
    let terms = CalibratedProfile::from(profile);
    let admitted = Admitted::admit_by(bytes(&wat(body), MANIFEST), &[], &terms).unwrap();
    let given = engines.compile(&admitted, true);
    let code = engines.cranelift.take_object(admitted, true, &given, &mut Nanos(0)).unwrap();
    let withdrawal = code.withdrawal().unwrap();
    assert!(!code.has_other_code());
    let mut instance = start(&engines.cranelift, &engines.cranelift.load_code(code).unwrap());
    assert_eq!(instance.begin(batch(), FuelSlice::UNLIMITED), CallStep::Done(0b111));
    withdrawal.withdraw();
    assert_eq!(instance.begin(batch(), FuelSlice::UNLIMITED), CallStep::Done(0));
    let effects = further(&mut instance);
    assert_eq!((effects.unserved, effects.counters.packets), (0b1111, 3));
    assert_eq!(effects.faults, [(FaultKind::Withdrawn, During::Idle)]);
}

#[test]
fn code_may_be_withdrawn_while_other_threads_call_it() {
    const CALLS: u64 = 3000;
    let Some(engines) = Engines::new() else { return };
    let body = format!(
        r#"(global $calls (mut i64) (i64.const 0))
        (func (export "weir_packet") (param i32) (result i32) (i32.const 0))
        (func (export "weir_tick") (param i64 i64)
            (global.set $calls (i64.add (global.get $calls) (i64.const 1))))
        (func (export "weir_stop") (param i64) (i64.store (i32.const 64) (global.get $calls)) {EMIT})"#
    );
    let admitted = admit(&wat(&body));
    for is_suspendable in [false, true] {
        let given = engines.compile(&admitted, is_suspendable);
        let (module, code) = load_given(&engines.cranelift, &admitted, is_suspendable, &given);
        let count = || {
            let mut instance = start(&engines.cranelift, &module);
            (0..CALLS / 2).for_each(|_| instance.tick(Timestamp(1), 1, 0));
            code.withdraw();
            (0..CALLS / 2).for_each(|_| instance.tick(Timestamp(1), 1, 0));
            instance.stop(Timestamp(1));
            (values(&mut instance), instance.back_end())
        };
        std::thread::scope(|scope| {
            let threads = [scope.spawn(count), scope.spawn(count)];
            for thread in threads {
                assert_eq!(thread.join().unwrap(), (vec![CALLS], BackEnd::Cranelift));
            }
        });
    }
}

/// The mappings of this process.
fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().count()
}

#[test]
fn instances_in_given_code_leave_no_mappings_behind() {
    const ROUNDS: usize = 200;
    if !alone("given::withdrawn::instances_in_given_code_leave_no_mappings_behind") {
        return;
    }
    let Some(engines) = Engines::new() else { return };
    let admitted = stateful();
    let misfit = admit(&wat(r#"(data (i32.const 65535) "ab")
        (func (export "weir_packet") (param i32) (result i32) (i32.const 0))"#));
    for is_suspendable in [false, true] {
        let given = engines.compile(&admitted, is_suspendable);
        let [_, misfit] = engines.load(&misfit, is_suspendable);
        let packets = Packets::new();
        let round = || {
            // Without and with Cranelift's code, and with a withdrawal half of the times.
            for engine in [&engines.bare, &engines.cranelift] {
                let (module, code) = load_given(engine, &admitted, is_suspendable, &given);
                for withdraws in [false, true] {
                    let mut instance = Instance::start(engine, &module).unwrap();
                    packets.map(&mut instance);
                    in_slices(&mut instance, call(0), 50);
                    // A call may be suspended when its instance is dropped.
                    _ = instance.begin(call(1), SLICE);
                    if withdraws {
                        code.withdraw();
                        in_slices(&mut instance, call(2), 50);
                    }
                }
            }
            assert!(Instance::start(&engines.bare, &misfit).unwrap().has_ended());
        };
        (0..10).for_each(|_| round());
        let before = mappings();
        (0..ROUNDS).for_each(|_| round());
        let after = mappings();
        assert!(after < before + 20, "{before} mappings before, {after} after {ROUNDS} rounds");
    }
}
