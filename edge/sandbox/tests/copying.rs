//! `memory.copy` out of packets and descriptors: what a module has afterwards is what the bytes were, and nothing is written where not all can be.

use crate::support::*;
use weir_admission::{AdmissionTerms, Admitted, Profile, Tier};
use weir_sandbox::{BatchInput, Control, Engine, EngineOptions, FaultKind, Instance, LoadedModule};
use weir_units::{Nanos, Timestamp};

/// Where the tests copy to, and how many bytes around it are looked at.
const TO: usize = 1024;
const AROUND: usize = 64;

const TIERS: [Control; 3] =
    [Control::As(Tier::Proved), Control::As(Tier::Supervised), Control::As(Tier::Metered)];

fn engine_of(control: Control) -> Engine {
    Engine::new(EngineOptions { control, ..EngineOptions::default() }, None).unwrap()
}

/// Packets whose bytes are all different from their neighbours.
fn packets() -> Packets {
    Packets::of(|packet| (0..PACKET_BYTES).map(|at| byte(packet, at)).collect(), |_, _| ())
}

fn byte(packet: usize, at: usize) -> u8 {
    u8::try_from((packet * 7 + at * 3 + 1) % 251).unwrap()
}

#[test]
fn what_is_copied_out_of_a_packet_is_what_was_there() {
    // Packet n has n bytes copied, from its place n % 17 on; then a sum of all around it that tells the place of each byte.
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
    for control in TIERS {
        let engine = engine_of(control);
        for program in [program(&engine, &body), suspendable(&engine, &body)] {
            let mut instance = Instance::start(&engine, &program).unwrap();
            packets().map(&mut instance);
            instance.run(all());
            assert_eq!(instance.incidents(), [], "{control:?}");
            assert_eq!(values(&mut instance), expected, "{control:?}");
        }
    }
}

fn suspendable(engine: &Engine, body: &str) -> LoadedModule {
    engine.load_suspendable(Admitted::admit(bytes(&wat(body), MANIFEST), &[]).unwrap()).unwrap()
}

#[test]
fn a_descriptor_can_be_copied_as_a_whole() {
    let number = "(block (result i64)
        (memory.copy (i32.const 512) (local.get $d) (i32.const 64)) (i64.load32_u offset=60 (i32.const 512)))";
    let mut instance = started(&engine(), &emitting(number));
    instance.run(all());
    assert_eq!(values(&mut instance), (0..64).collect::<Vec<u64>>());
}

#[test]
fn a_length_of_nothing_copies_nothing() {
    let act = "(memory.copy (i32.const 0) (i32.load offset=8 (local.get $d)) (i32.const 0))
        (memory.copy (i32.const 0) (i32.const -1) (i32.const 0))";
    let mut instance = started(&engine(), &at_packet(20, act));
    instance.run(all());
    assert_eq!(instance.incidents(), []);
}

#[test]
fn what_cannot_be_copied_whole_is_a_trap_and_changes_nothing() {
    // The memory has 64 KiB and the arena 8 KiB. What is emitted at the end is what was there at the beginning.
    let data = "(i32.load offset=8 (local.get $d))";
    for (to, from, length) in [
        // Beyond the end of the memory, by a byte, by much, by all.
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
        // Out of more than the packets, of what is between them and the descriptors, of what wraps around to the module's own.
        ("(i32.const 65000)", data, "(i32.const 8192)"),
        ("(i32.const 65000)", "(i32.const 0x41000000)", "(i32.const 16)"),
        ("(i32.const 65000)", "(i32.const -16)", "(i32.const 32)"),
        ("(i32.const 65000)", "(i32.const -16)", "(i32.const 16)"),
        ("(i32.const 65000)", "(i32.const 0x3ffffff0)", "(i32.const 32)"),
    ] {
        let act = format!("(memory.copy {to} {from} {length})");
        for control in TIERS {
            let engine = engine_of(control);
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
            assert_eq!(incidents, [FaultKind::OutOfBounds], "{act} {control:?}");
            instance.stop(Timestamp(0));
            assert_eq!(values(&mut instance), [0x5a * 536], "{act} {control:?}");
        }
    }
}

#[test]
fn a_trap_in_a_copy_is_in_the_function_that_copies() {
    let body = r#"(func $bad (export "weir_packet") (param $d i32) (result i32)
        (memory.copy (i32.const 0) (i32.const 0x41000000) (i32.const 16)) (i32.const 0))"#;
    for control in TIERS {
        let mut instance = started(&engine_of(control), body);
        instance.run(BatchInput { mask: 1, ..all() });
        assert_eq!(instance.incidents()[0].fault.function.as_deref(), Some("bad"), "{control:?}");
    }
}

#[test]
fn what_is_copied_out_of_packets_is_charged_for() {
    // A thousand bytes for each of the packet's number, from the arena's 8 KiB; allowances for five thousand units of fuel.
    let act = "(memory.copy (i32.const 128) (i32.const 0x40000000) (i32.mul (i32.const 1000) (i32.load offset=60 (local.get $d))))";
    let body = at_packet(99, "").replace("(if ", &format!("{act} (if "));
    let profile = Profile {
        tiers: vec![Tier::Metered],
        packet: Nanos(1_250),
        per_byte: Nanos(0),
        strikes: 100,
        ..Profile::default()
    };
    let terms = AdmissionTerms { profile, ..AdmissionTerms::default() };
    let engine = engine_of(Control::Admitted);
    let program =
        engine.load(Admitted::admit_by(bytes(&wat(&body), MANIFEST), &[], &terms).unwrap()).unwrap();
    let mut instance = Instance::start(&engine, &program).unwrap();
    packets().map(&mut instance);
    instance.run(all());
    let seen = instance.counters().packets;
    assert!((3..=5).contains(&seen), "{seen} of 5");
    assert!(instance.incidents().iter().all(|incident| incident.fault.kind == FaultKind::Limit));
}
