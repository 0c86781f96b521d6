//! The last line of defence: endless calls of modules treated as proved, so that nothing is checked in them.

use crate::support::*;
use std::io::Write;
use std::process::{Command, Output};
use std::time::Duration;
use weir_admission::{Admitted, CalibratedProfile, Profile, Tier};
use weir_sandbox::{
    BatchInput, CheckMode, During, EXIT_STUCK, Engine, EngineOptions, FaultKind, Instance, LlvmUse,
    thread_time,
};
use weir_units::{Nanos, Timestamp};

/// Treats every module as proved. A call may take a hundred milliseconds: ten times this limit.
fn engine() -> Engine {
    engine_with(options().llvm)
}

fn engine_with(llvm: LlvmUse) -> Engine {
    let options = EngineOptions {
        check_mode: CheckMode::As(Tier::Proved),
        call_limit: Duration::from_millis(10),
        llvm,
        ..EngineOptions::default()
    };
    Engine::new(options, None).unwrap()
}

/// Grants less than that limit.
fn profile() -> Profile {
    let little = Nanos(1_000);
    Profile {
        packet: little,
        per_byte: Nanos(0),
        tick: little,
        start: little,
        stop: little,
        ..Profile::default()
    }
}

fn start(engine: &Engine, text: &str, manifest: &str, profile: Profile) -> Instance {
    let terms = CalibratedProfile::from(profile);
    let admitted = Admitted::admit_by(bytes(text, manifest), &[], &terms).unwrap_or_else(|e| panic!("{e}"));
    let mut instance = Instance::start(engine, &engine.load(admitted).unwrap()).unwrap();
    Packets::new().map(&mut instance);
    instance
}

/// Functions that run for ever: `$spin` is reached through a table, so that it is not inlined.
const FUNCTIONS: &str = r#"(table $t funcref (elem $spin $leaf $down))
    (func $spin (loop (br 0)))
    (func $leaf (param i32) (result i32) (i32.add (local.get 0) (i32.const 1)))
    (func $down (param i32) (result i32)
        (if (result i32) (local.get 0)
            (then (i32.add (i32.const 1) (call_indirect $t (param i32) (result i32) (i32.sub (local.get 0) (i32.const 1)) (i32.const 2))))
            (else (i32.const 0))))"#;

/// Loops without a memory access; with loads; with stores; with calls, whose frames come and go; with host calls,
/// long and short; and with bulk operations.
const ENDLESS: [&str; 9] = [
    "(loop (br 0))",
    "(loop $l (local.set $n (i32.add (i32.mul (local.get $n) (i32.const 5)) (i32.const 1))) (br_if $l (i32.or (local.get $n) (i32.const 1))))",
    "(loop $l (drop (i32.load (i32.and (local.get $d) (i32.const 0xfff)))) (drop (i32.load (local.get $d))) (br $l))",
    "(loop $l (i32.store (i32.const 128) (i32.add (i32.const 1) (i32.load (i32.const 128)))) (br $l))",
    "(loop $l (local.set $n (call_indirect $t (param i32) (result i32) (local.get $n) (i32.const 1))) (br $l))",
    "(loop $l (local.set $n (call_indirect $t (param i32) (result i32) (i32.const 300) (i32.const 2))) (br $l))",
    "(loop $l (drop (call $hash (i32.const 0) (i32.const 60000) (i64.const 0))) (br $l))",
    "(loop $l (drop (call $param_int (local.get $n))) (br $l))",
    "(loop $l (memory.fill (i32.const 256) (i32.const 1) (i32.const 40)) (br $l))",
];

fn endless_at_20(act: &str) -> String {
    let packet = at_packet(20, act).replace("(result i32)\n", "(result i32) (local $n i32)\n");
    wat(&format!("{FUNCTIONS} {packet}"))
}

#[test]
fn an_endless_proved_call_is_interrupted_and_its_module_ends() {
    let engine = engine();
    for act in ENDLESS {
        let mut instance = start(&engine, &endless_at_20(act), MANIFEST, profile());
        let mut other = start(&engine, &wat(&emitting("(i64.const 7)")), MANIFEST, profile());
        instance.run(all());
        let incidents: Vec<_> = instance.incidents().iter().map(|i| (i.fault.kind, i.during)).collect();
        assert_eq!(incidents, [(FaultKind::TimeOverrun, During::Packet(20))], "{act}");
        // Earlier effects are kept, and no function of the module is called any more.
        assert_eq!((instance.counters().packets, instance.counters().lost), (20, 1), "{act}");
        assert!(instance.has_ended(), "{act}");
        instance.run(all());
        instance.stop(Timestamp(0));
        assert_eq!((values(&mut instance), instance.counters().packets), (vec![], 20), "{act}");
        // Other modules on this thread are not affected.
        other.run(all());
        assert_eq!((values(&mut other), other.counters().faults), (vec![7; 64], 0), "{act}");
    }
}

#[test]
fn an_interrupted_call_names_its_function() {
    let engine = engine();
    let text = endless_at_20("(call_indirect $t (i32.const 0))");
    let mut instance = start(&engine, &text, MANIFEST, profile());
    instance.run(all());
    let fault = &instance.incidents()[0].fault;
    assert_eq!((fault.kind, fault.function.as_deref()), (FaultKind::TimeOverrun, Some("spin")));
    assert!(fault.to_string().contains("a fault in weir, please report it"), "{fault}");
}

#[test]
fn every_entry_point_is_watched() {
    let engine = engine();
    let packet = r#"(func (export "weir_packet") (param i32) (result i32) (i32.const 0))"#;
    for (entry, during) in [
        (r#"(func (export "weir_start") (result i32) (loop (br 0)) (i32.const 0))"#, During::Start),
        (r"(func $begin (loop (br 0))) (start $begin)", During::Start),
        (r#"(func (export "weir_tick") (param i64 i64) (loop (br 0)))"#, During::Tick),
        (r#"(func (export "weir_stop") (param i64) (loop (br 0)))"#, During::Stop),
    ] {
        let mut instance = start(&engine, &wat(&format!("{entry} {packet}")), MANIFEST, profile());
        instance.tick(Timestamp(1), 1, 0);
        instance.stop(Timestamp(2));
        let incidents: Vec<_> = instance.incidents().iter().map(|i| (i.fault.kind, i.during)).collect();
        assert_eq!(incidents, [(FaultKind::TimeOverrun, during)], "{entry}");
    }
    let batch = r#"(func (export "weir_batch") (param i32 i64) (result i64) (loop (br 0)) (i64.const 0))"#;
    let mut instance = start(&engine, &wat(batch), MANIFEST, profile());
    instance.run(BatchInput { mask: 0b1100, ..all() });
    assert_eq!(instance.incidents()[0].fault.kind, FaultKind::TimeOverrun);
    assert_eq!(instance.counters().lost, 2);
}

#[test]
fn a_call_can_be_interrupted_at_any_instruction() {
    // The signal arrives at a random instruction: often in the prologues and epilogues of the functions.
    let engine = engine();
    let text = endless_at_20(
        "(loop $l (local.set $n (call_indirect $t (param i32) (result i32) (local.get $n) (i32.const 1)))
            (local.set $n (call_indirect $t (param i32) (result i32) (i32.const 3) (i32.const 2))) (br $l))",
    );
    let run = || {
        for _ in 0..15 {
            let mut instance = start(&engine, &text, MANIFEST, profile());
            instance.run(all());
            assert_eq!(instance.incidents()[0].fault.kind, FaultKind::TimeOverrun);
            assert_eq!(instance.counters().packets, 20);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(run);
        }
    });
}

#[test]
fn a_call_that_ends_within_the_grace_is_left_alone() {
    // Longer than the limit, but the profile grants it.
    let engine = engine();
    let text = endless_at_20(
        "(loop $l (i32.store (i32.const 200) (local.get $n))
            (br_if $l (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 300000000))))",
    );
    let granted = Profile { packet: Nanos(1_000_000_000), ..profile() };
    let mut instance = start(&engine, &text, MANIFEST, granted);
    let begin = thread_time();
    instance.run(all());
    let took = thread_time().0 - begin.0;
    assert!(took > 10_000_000, "{took} ns are no test");
    assert_eq!(
        (instance.counters().packets, instance.counters().faults),
        (64, 0),
        "{:?}",
        instance.incidents()
    );
}

#[test]
fn a_signal_not_sent_for_this_call_changes_nothing() {
    let engine = engine();
    let mut instance = start(&engine, &wat(&emitting("(i64.const 7)")), MANIFEST, profile());
    // SAFETY: only reads the calling thread's handle.
    let thread = unsafe { libc::pthread_self() };
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || {
            for _ in 0..2_000 {
                // SAFETY: the thread waits for this one, so it exists.
                unsafe { libc::pthread_kill(thread, libc::SIGURG) };
                std::thread::sleep(Duration::from_micros(20));
            }
        });
        while !sender.is_finished() {
            instance.run(all());
            assert_eq!(values(&mut instance), [7; 64]);
        }
    });
    assert_eq!(instance.counters().faults, 0);
}

/// A call whose time goes into bulk operations.
fn run_endless_bulk_operations(engine: &Engine) -> Instance {
    let text = wat(&at_packet(
        20,
        "(loop $l (memory.fill (i32.const 0) (i32.const 1) (i32.const 0x3000000)) (br $l))",
    ))
    .replace("(memory (export \"memory\") 1)", "(memory (export \"memory\") 769)");
    let manifest = MANIFEST.replace("2 MiB", "64 MiB");
    let mut instance = start(engine, &text, &manifest, profile());
    instance.set_first_packet(1_000);
    instance.run(BatchInput { first: 128, ..all() });
    instance
}

/// In a process of its own, because it does not return: in Cranelift's code bulk operations cannot be interrupted.
#[test]
#[ignore = "started by the_process_ends_if_a_call_cannot_be_interrupted"]
fn endless_bulk_operations_end_their_process() {
    let instance = run_endless_bulk_operations(&engine_with(LlvmUse::Never));
    panic!("it came back: {:?}", instance.incidents());
}

#[test]
fn endless_bulk_operations_are_interrupted_in_code_of_llvm() {
    let engine = engine_with(LlvmUse::AtLoad);
    if let Some(why) = engine.why_not_llvm() {
        _ = writeln!(std::io::stderr(), "SKIPPED: no verified code of LLVM here: {why}");
        return;
    }
    let instance = run_endless_bulk_operations(&engine);
    let incidents: Vec<_> = instance.incidents().iter().map(|i| (i.fault.kind, i.during)).collect();
    assert_eq!(incidents, [(FaultKind::TimeOverrun, During::Packet(148))]);
    assert!(instance.has_ended());
}

/// A signal that arrives between two bulk operations interrupts the call after all, which is as good an end. It is
/// rare, so the call is tried again.
#[test]
fn the_process_ends_if_a_call_cannot_be_interrupted() {
    let endless = || {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child
            .args([
                "--ignored",
                "--exact",
                "--nocapture",
                "watchdog::endless_bulk_operations_end_their_process",
            ])
            .output()
            .unwrap()
    };
    let was_broken_off =
        |output: &Output| String::from_utf8_lossy(&output.stderr).contains("it came back: [Incident");
    let output = (0..4).map(|_| endless()).find(|output| !was_broken_off(output));
    let output = output.expect("the call was broken off each time");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(EXIT_STUCK.into()), "{text}");
    assert!(text.contains("weir: m: in one of the packets 1129 to 1192, it has taken"), "{text}");
    assert!(text.contains("a fault in weir: please report it"), "{text}");
}
