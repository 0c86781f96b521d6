//! `memory.copy` out of packets and descriptors: the copy equals the source, and nothing is written unless everything
//! can be.

use crate::support::*;
use weir_admission::{Admitted, CalibratedProfile, Profile, Tier};
use weir_sandbox::{BatchInput, CheckMode, Engine, EngineOptions, FaultKind, Instance, LoadedModule};
use weir_units::{Nanos, Timestamp};

/// The destination of the copies, and the number of bytes around it that are compared.
const TO: usize = 1024;
const AROUND: usize = 64;

const TIERS: [CheckMode; 3] =
    [CheckMode::As(Tier::Proved), CheckMode::As(Tier::Supervised), CheckMode::As(Tier::Metered)];

fn engine_of(mode: CheckMode) -> Engine {
    Engine::new(EngineOptions { check_mode: mode, ..options() }, None).unwrap()
}

/// Packets whose bytes are all different from their neighbours.
fn packets() -> Packets {
    Packets::of(|packet| (0..PACKET_BYTES).map(|at| byte(packet, at)).collect(), |_, _| ())
}

fn byte(packet: usize, at: usize) -> u8 {
    u8::try_from((packet * 7 + at * 3 + 1) % 251).unwrap()
}

#[test]
fn a_copy_out_of_a_packet_equals_the_packet() {
    // Packet n has n bytes copied, from offset n % 17 on; then a sum of all bytes around it that depends on each
    // byte's position.
    let body = format!(
        r#"(func (export "weir_packet") (param $d i32) (result i32) (local $i i32) (local $n i32) (local $sum i64)
            (local.set $n (i32.load offset=60 (local.get $d)))
            (memory.fill (i32.const {from}) (i32.const 0xee) (i32.const {all}))
            (memory.copy (i32.const {TO})
                (i32.add (i32.load offset=8 (local.get $d)) (i32.rem_u (local.get $n) (i32.const 17))) (local.get $n))
            (local.set $i (i32.const {from}))
            (loop $next
                (local.set $sum (i64.add (i64.mul (local.get $sum) (i64.const 1099511628211)) (i64.load8_u (local.get $i))))
                (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const {to}))))
            (i64.store (i32.const 64) (local.get $sum))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
            (i32.const 0))"#,
        from = TO - AROUND,
        to = TO + 2 * AROUND,
        all = 3 * AROUND,
    );
    let expected: Vec<u64> = (0..64)
        .map(|packet| {
            let mut memory = [0xee; 3 * AROUND];
            for at in 0..packet {
                memory[AROUND + at] = byte(packet, packet % 17 + at);
            }
            let step = |sum: u64, byte: &u8| sum.wrapping_mul(1_099_511_628_211).wrapping_add((*byte).into());
            memory.iter().fold(0, step)
        })
        .collect();
    for mode in TIERS {
        let engine = engine_of(mode);
        for program in [program(&engine, &body), suspendable(&engine, &body)] {
            let mut instance = Instance::start(&engine, &program).unwrap();
            packets().map(&mut instance);
            instance.run(all());
            assert_eq!(instance.incidents(), [], "{mode:?}");
            assert_eq!(values(&mut instance), expected, "{mode:?}");
        }
    }
}

fn suspendable(engine: &Engine, body: &str) -> LoadedModule {
    engine.load_suspendable(Admitted::admit(bytes(&wat(body), MANIFEST), &[]).unwrap()).unwrap()
}

#[test]
fn a_whole_descriptor_can_be_copied() {
    let number = "(block (result i64)
        (memory.copy (i32.const 512) (local.get $d) (i32.const 64)) (i64.load32_u offset=60 (i32.const 512)))";
    let mut instance = started(&engine(), &emitting(number));
    instance.run(all());
    assert_eq!(values(&mut instance), (0..64).collect::<Vec<u64>>());
}

#[test]
fn a_copy_of_length_zero_copies_nothing() {
    let act = "(memory.copy (i32.const 0) (i32.load offset=8 (local.get $d)) (i32.const 0))
        (memory.copy (i32.const 0) (i32.const -1) (i32.const 0))";
    let mut instance = started(&engine(), &at_packet(20, act));
    instance.run(all());
    assert_eq!(instance.incidents(), []);
}

#[test]
fn an_impossible_copy_traps_and_changes_nothing() {
    // The memory has 64 KiB and the arena 8 KiB. The values emitted at the end are the initial ones.
    let data = "(i32.load offset=8 (local.get $d))";
    for (to, from, length) in [
        // Beyond the end of the memory: by a byte, by much, entirely.
        ("(i32.const 65473)", data, "(i32.const 64)"),
        ("(i32.const 65535)", data, "(i32.const 2)"),
        ("(i32.const 65536)", data, "(i32.const 1)"),
        ("(i32.const 0)", data, "(i32.const 65537)"),
        ("(i32.const 65000)", data, "(i32.const 0x3fffffff)"),
        ("(i32.const 65000)", data, "(i32.const -1)"),
        ("(i32.const 65000)", data, "(i32.const 0x40000000)"),
        ("(i32.const -64)", data, "(i32.const 64)"),
        ("(i32.const -8)", data, "(i32.const 65544)"),
        // Between the memory and the packets, into packets and descriptors.
        ("(i32.const 0x3fffffff)", data, "(i32.const 1)"),
        (data, data, "(i32.const 16)"),
        ("(local.get $d)", data, "(i32.const 16)"),
        // Out of more than the packets, of the gap between them and the descriptors, of a range that wraps around to
        // the module's memory.
        ("(i32.const 65000)", data, "(i32.const 8192)"),
        ("(i32.const 65000)", "(i32.const 0x41000000)", "(i32.const 16)"),
        ("(i32.const 65000)", "(i32.const -16)", "(i32.const 32)"),
        ("(i32.const 65000)", "(i32.const -16)", "(i32.const 16)"),
        ("(i32.const 65000)", "(i32.const 0x3ffffff0)", "(i32.const 32)"),
    ] {
        let act = format!("(memory.copy {to} {from} {length})");
        for mode in TIERS {
            let engine = engine_of(mode);
            let body = format!(
                r#"(func (export "weir_start") (result i32)
                    (memory.fill (i32.const 65000) (i32.const 0x5a) (i32.const 536)) (i32.const 0))
                (func (export "weir_stop") (param i64) (local $i i32) (local $sum i64)
                    (local.set $i (i32.const 65000))
                    (loop $next
                        (local.set $sum (i64.add (local.get $sum) (i64.load8_u (local.get $i))))
                        (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 65536))))
                    (i64.store (i32.const 64) (local.get $sum))
                    (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8))))
                (func (export "weir_packet") (param $d i32) (result i32)
                    (if (i32.eq (i32.load offset=60 (local.get $d)) (i32.const 20)) (then {act}))
                    (i32.const 0))"#
            );
            let mut instance = started(&engine, &body);
            packets().map(&mut instance);
            instance.run(all());
            let incidents: Vec<_> = instance.incidents().iter().map(|i| i.fault.kind).collect();
            assert_eq!(incidents, [FaultKind::OutOfBounds], "{act} {mode:?}");
            instance.stop(Timestamp(0));
            assert_eq!(values(&mut instance), [0x5a * 536], "{act} {mode:?}");
        }
    }
}

#[test]
fn a_trap_in_a_copy_names_the_copying_function() {
    let body = r#"(func $bad (export "weir_packet") (param $d i32) (result i32)
        (memory.copy (i32.const 0) (i32.const 0x41000000) (i32.const 16)) (i32.const 0))"#;
    for mode in TIERS {
        let mut instance = started(&engine_of(mode), body);
        instance.run(BatchInput { mask: 1, ..all() });
        assert_eq!(instance.incidents()[0].fault.function.as_deref(), Some("bad"), "{mode:?}");
    }
}

#[test]
fn copies_out_of_packets_are_charged() {
    // A thousand bytes times the packet's number, from the arena's 8 KiB; allowances for five thousand units of fuel.
    let act = "(memory.copy (i32.const 128) (i32.const 0x40000000) (i32.mul (i32.const 1000) (i32.load offset=60 (local.get $d))))";
    let body = at_packet(99, "").replace("(if ", &format!("{act} (if "));
    let profile = Profile {
        tiers: vec![Tier::Metered],
        packet: Nanos(1_250),
        per_byte: Nanos(0),
        strikes: 100,
        ..Profile::default()
    };
    let terms = CalibratedProfile::from(profile);
    let engine = engine_of(CheckMode::Admitted);
    let program =
        engine.load(Admitted::admit_by(bytes(&wat(&body), MANIFEST), &[], &terms).unwrap()).unwrap();
    let mut instance = Instance::start(&engine, &program).unwrap();
    packets().map(&mut instance);
    instance.run(all());
    let seen = instance.counters().packets;
    assert!((3..=5).contains(&seen), "{seen} of 5");
    assert!(instance.incidents().iter().all(|incident| incident.fault.kind == FaultKind::Limit));
}
