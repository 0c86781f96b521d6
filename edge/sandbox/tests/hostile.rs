//! Hostile modules. Each loses its call, or ends; the process and the next call continue.

use crate::support::*;
use std::sync::Arc;
use std::time::Duration;
use weir_sandbox::{
    BatchInput, Cache, During, Engine, EngineOptions, FaultKind, Instance, InstanceContext, LoadError,
    WriteRights, thread_time,
};
use weir_units::{Nanos, Timestamp};
use weir_wire::{WriteField, WriteFields};
use {weir_admission::Admitted, weir_admission::Profile, weir_session::Records};

/// Runs a batch in which packet 20 does `act`. Exactly that packet is lost, for the reason given, and the rest is counted.
fn loses_packet_20(act: &str, kind: FaultKind) {
    let engine = engine();
    let mut instance = started(&engine, &at_packet(20, act));
    assert_eq!(instance.run(all()), 0);
    let counters = instance.counters();
    assert_eq!(
        (counters.packets, counters.lost, counters.over_limit, counters.faults),
        (63, 1, 0, 1),
        "{act}"
    );
    let incident = &instance.incidents()[0];
    assert_eq!((incident.fault.kind, incident.during), (kind, During::Packet(20)), "{act}");
    assert!(!instance.has_ended());
    instance.stop(Timestamp(0));
    assert_eq!(values(&mut instance), [63], "{act}");
}

#[test]
fn a_trap_loses_exactly_its_packet() {
    loses_packet_20("(unreachable)", FaultKind::Unreachable);
    loses_packet_20("(drop (i32.div_u (i32.const 1) (i32.const 0)))", FaultKind::Arithmetic);
}

#[test]
fn a_lost_call_discards_no_output_of_earlier_calls() {
    // Packet 0 of a block emits and sends; packet 0 of the next block traps before it does. The output is not taken
    // between the two.
    let body = r#"(global $calls (mut i32) (i32.const 0))
        (func (export "weir_packet") (param $d i32) (result i32)
            (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
            (if (i32.eq (global.get $calls) (i32.const 2)) (then (unreachable)))
            (i64.store (i32.const 64) (i64.extend_i32_u (global.get $calls)))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
            (drop (call $send (i32.const 0) (i32.const 64) (i32.const 60)))
            (i32.const 0))"#;
    let engine = engine();
    let mut instance = started(&engine, body);
    for _ in 0..3 {
        instance.begin_block();
        instance.run(BatchInput { mask: 1, ..all() });
    }
    assert_eq!(instance.counters().lost, 1);
    assert_eq!(instance.take_frames(Records::default()).len(), 2);
    assert_eq!(values(&mut instance), [1, 3]);
}

#[test]
fn a_store_into_packets_or_descriptors_is_a_trap() {
    loses_packet_20("(i32.store (i32.load offset=8 (local.get $d)) (i32.const 1))", FaultKind::OutOfBounds);
    loses_packet_20("(i32.store (local.get $d) (i32.const 1))", FaultKind::OutOfBounds);
    loses_packet_20(
        "(v128.store (i32.load offset=8 (local.get $d)) (v128.const i64x2 1 1))",
        FaultKind::OutOfBounds,
    );
}

#[test]
fn bulk_operations_on_packets_trap_without_a_crash() {
    for act in [
        "(memory.copy (i32.load offset=8 (local.get $d)) (i32.const 0) (i32.const 64))",
        "(memory.fill (i32.load offset=8 (local.get $d)) (i32.const 0) (i32.const 64))",
        "(memory.copy (i32.load offset=8 (local.get $d)) (local.get $d) (i32.const 64))",
        "(memory.copy (local.get $d) (i32.const 0) (i32.const 64))",
        "(memory.fill (i32.const 0) (i32.const 0) (i32.const -1))",
    ] {
        loses_packet_20(act, FaultKind::OutOfBounds);
    }
}

#[test]
fn reads_past_the_packets_or_the_memory_are_traps() {
    for act in [
        // The arena of these tests is two pages.
        "(drop (i32.load (i32.add (i32.const 8192) (i32.and (i32.load offset=8 (local.get $d)) (i32.const 0xfffff000)))))",
        "(drop (i32.load (i32.const 65533)))",
        "(drop (i32.load (i32.sub (local.get $d) (i32.const 8192))))",
        "(drop (i64.load offset=4294967295 (i32.const -1)))",
        "(drop (i64.load offset=33554424 (i32.const -1)))",
        "(drop (i32.load8_u offset=31 (i32.const -1)))",
    ] {
        loses_packet_20(act, FaultKind::OutOfBounds);
    }
}

#[test]
fn constant_addresses_in_the_packets_behave_like_others() {
    // Stores trap, whether the address is an operand or an offset beyond the guard; so do accesses beyond 4 GiB.
    loses_packet_20("(i32.store offset=0x40000000 (i32.const 0) (i32.const 0))", FaultKind::OutOfBounds);
    loses_packet_20("(i32.store (i32.const 0x40000000) (i32.const 0))", FaultKind::OutOfBounds);
    loses_packet_20("(drop (i32.load offset=0x40000000 (i32.const 0xc0000000)))", FaultKind::OutOfBounds);
    // Loads read the packet, though the memory's declared maximum is below it: the loader removes the maximum,
    // because the compiler would turn such loads into unconditional traps.
    for value in ["(i64.load32_u (i32.const 0x400001f4))", "(i64.load32_u offset=0x400001f4 (i32.const 0))"] {
        let engine = engine();
        let text = wat(&emitting(value))
            .replace("(memory (export \"memory\") 1)", "(memory (export \"memory\") 1 1)");
        let admitted = Admitted::admit(bytes(&text, MANIFEST), &[]).unwrap();
        let mut instance = Instance::start(&engine, &engine.load(admitted).unwrap()).unwrap();
        Packets::new().map(&mut instance);
        instance.run(BatchInput { mask: 1, ..all() });
        assert_eq!(values(&mut instance), [0x0505_0505], "{value}");
    }
}

#[test]
fn endless_recursion_is_a_trap() {
    let body = at_packet(20, "(call $again)").replace(
        "(func (export \"weir_stop\")",
        "(func $again (call $again) (call $again))\n(func (export \"weir_stop\")",
    );
    let engine = engine();
    let mut instance = started(&engine, &body);
    instance.run(all());
    assert_eq!(instance.incidents()[0].fault.kind, FaultKind::StackOverflow);
    assert_eq!((instance.counters().packets, instance.counters().lost), (63, 1));
}

#[test]
fn the_shadow_stack_is_reset_after_a_trap() {
    let engine = engine();
    // Takes 1 KiB of shadow stack and traps before it returns it; the other packets emit the stack pointer.
    let body = emitting(
            "(if (result i64) (i32.lt_u (i32.load offset=60 (local.get $d)) (i32.const 60))
               (then (global.set $__stack_pointer (i32.sub (global.get $__stack_pointer) (i32.const 1024))) (unreachable))
               (else (i64.extend_i32_u (global.get $__stack_pointer))))"
        );
    let mut instance = started(&engine, &body);
    instance.run(all());
    assert_eq!(instance.counters().lost, 60);
    assert_eq!(values(&mut instance), [4096; 4]);
}

#[test]
fn an_endless_loop_loses_its_call_and_three_end_the_module() {
    let engine = engine();
    let mut instance = started(&engine, &at_packet(20, "(loop (br 0))"));
    for strike in 1..=3 {
        assert!(!instance.has_ended());
        instance.run(all());
        assert_eq!(
            (instance.counters().packets, instance.counters().lost),
            (63 * strike - u64::from(strike == 3) * 43, strike)
        );
    }
    assert!(instance.has_ended());
    assert_eq!(instance.run(all()), 0);
    assert_eq!(instance.counters().faults, 3);
    assert!(instance.incidents().iter().all(|i| i.fault.kind == FaultKind::Limit));
}

#[test]
fn no_shape_of_endless_code_escapes_the_meter() {
    let engine = engine();
    for (act, functions) in [
        ("(loop (br 0))", ""),
        // Only reads in the loop, after a read of the poll page.
        (
            "(call $f) (drop (i32.load (i32.const 0x3fff0000))) (loop (drop (i32.load (i32.const 0x3fff0000))) (br 0))",
            "(func $f)",
        ),
        ("(loop (br_if 0 (i64.eqz (i64.load (i32.const 8)))))", ""),
        ("(loop (i64.store (i32.const 8) (i64.const 0)) (br_if 0 (i64.eqz (i64.load (i32.const 8)))))", ""),
        ("(loop $a (loop $b (br_if $a (i32.const 1)) (br $b)))", ""),
        // No loop: calls that double at each step, 2^60 of them, and never deep.
        (
            "(call $f (i32.const 60))",
            "(func $f (param i32) (if (local.get 0) (then (call $f (i32.sub (local.get 0) (i32.const 1))) (call $f (i32.sub (local.get 0) (i32.const 1))))))",
        ),
        (
            "(call_indirect $t (param i32) (i32.const 60) (i32.const 0))",
            "(table $t funcref (elem $f)) (func $f (param i32) (if (local.get 0) (then
                (call_indirect $t (param i32) (i32.sub (local.get 0) (i32.const 1)) (i32.const 0))
                (call_indirect $t (param i32) (i32.sub (local.get 0) (i32.const 1)) (i32.const 0)))))",
        ),
        // Work of the host counts too.
        ("(loop (drop (call $hash (i32.const 0) (i32.const 65536) (i64.const 0))) (br 0))", ""),
        (
            "(loop (drop (memory.grow (i32.const 0))) (memory.fill (i32.const 0) (i32.const 0) (i32.const 60000)) (br 0))",
            "",
        ),
    ] {
        let body = format!("{functions} {}", at_packet(20, act));
        let mut instance = started(&engine, &body);
        instance.run(all());
        let kinds: Vec<_> = instance.incidents().iter().map(|i| (i.fault.kind, i.during)).collect();
        assert_eq!(kinds, [(FaultKind::Limit, During::Packet(20))], "{act}");
        assert_eq!((instance.counters().lost, instance.counters().over_limit), (1, 1), "{act}");
        assert_eq!((instance.counters().packets, instance.counters().lost), (63, 1), "{act}");
    }
}

#[test]
fn straight_line_code_is_limited_too() {
    // Neither a loop nor a call of a function, but seconds of work: a module may have megabytes of such code.
    let engine = engine();
    let long = "(drop (memory.grow (i32.const 31)))";
    for step in [
        "(memory.fill (i32.const 64) (i32.const 0) (i32.const 0xff000))",
        "(memory.copy (i32.const 64) (i32.const 128) (i32.const 0xff000))",
        "(drop (call $hash (i32.const 64) (i32.const 0xff000) (i64.const 0)))",
        "(drop (call_indirect $t (param i32 i32 i64) (result i64) (i32.const 64) (i32.const 0xff000) (i64.const 0) (i32.const 0)))",
    ] {
        let body = format!(
            "(table $t funcref (elem $hash)) {}",
            at_packet(20, &(long.to_owned() + &step.repeat(3_000)))
        );
        let mut instance = started(&engine, &body);
        let begin = thread_time();
        instance.run(all());
        let kinds: Vec<_> = instance.incidents().iter().map(|i| (i.fault.kind, i.during)).collect();
        assert_eq!(
            kinds,
            [(FaultKind::Limit, During::Packet(20))],
            "{step} {} ns",
            thread_time().0 - begin.0
        );
    }
}

#[test]
fn long_series_of_short_calls_are_not_ended() {
    // Many calls, each far below the limit, for longer than the limit together.
    let engine = engine();
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32) (local $n i32)
        (loop (br_if 0 (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 50000)))) (i32.const 0))"#;
    let mut instance = started(&engine, body);
    let begin = thread_time();
    while thread_time().0 - begin.0 < 300 * Nanos::MILLISECOND.0 {
        instance.run(all());
    }
    assert_eq!(instance.counters().faults, 0);
}

#[test]
fn an_endless_start_ends_the_module_but_not_the_run() {
    let engine = engine();
    let packet = r#"(func (export "weir_packet") (param i32) (result i32) (i32.const 0))"#;
    for body in [
        format!(r#"{packet} (func (export "weir_start") (result i32) (loop (br 0)) (i32.const 0))"#),
        format!(r#"{packet} (func (export "_initialize") (loop (br 0)))"#),
        format!("{packet} (func $s (loop (br 0))) (start $s)"),
        format!("{packet} (func $s (unreachable)) (start $s)"),
        format!(r#"{packet} (func (export "weir_start") (result i32) (i32.const 7))"#),
    ] {
        let mut instance = started(&engine, &body);
        assert!(instance.has_ended(), "{body}");
        assert_eq!(instance.run(all()), 0);
        instance.tick(Timestamp(1), 1, 0);
        instance.stop(Timestamp(1));
        assert_eq!((instance.counters().packets, instance.counters().faults), (0, 1), "{body}");
        assert_eq!(instance.incidents()[0].during, During::Start);
    }
}

#[test]
fn a_memory_bomb_is_refused_at_the_ceiling() {
    let engine = engine();
    let grow = r#"(func (export "weir_packet") (param $d i32) (result i32)
            (loop (br_if 0 (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
            (i64.store (i32.const 64) (i64.extend_i32_u (memory.size)))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
            (drop (memory.grow (i32.const 60000)))
            (i32.const 0))"#;
    let mut instance = started(&engine, grow);
    instance.run(BatchInput { mask: 1, ..all() });
    assert_eq!(values(&mut instance), [32]);
    assert_eq!((instance.memory().0, instance.counters().faults), (2 << 20, 0));
    let table = r#"(table $t 1 funcref) (func (export "weir_packet") (param $d i32) (result i32)
            (loop (br_if 0 (i32.ne (table.grow $t (ref.null func) (i32.const 1000)) (i32.const -1))))
            (i64.store (i32.const 64) (i64.extend_i32_u (table.size $t)))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8))) (i32.const 0))"#;
    let mut instance = started(&engine, table);
    instance.run(BatchInput { mask: 1, ..all() });
    assert_eq!(values(&mut instance), [65_001]);
}

#[test]
fn a_data_segment_outside_the_memory_ends_the_module() {
    let engine = engine();
    let body = r#"(data (i32.const 0x40000000) "x") (func (export "weir_packet") (param i32) (result i32) (i32.const 0))"#;
    let instance = started(&engine, body);
    assert!(instance.has_ended());
    assert_eq!(instance.incidents()[0].fault.kind, FaultKind::OutOfBounds);
}

#[test]
fn a_wild_pointer_in_a_host_call_loses_the_call() {
    for (act, function) in [
        ("(drop (call $emit (i32.const 0) (i32.const -8) (i32.const 8)))", "emit"),
        ("(drop (call $emit (i32.const 0) (i32.const 65529) (i32.const 8)))", "emit"),
        // From the memory's end into the gap, and from the last packet on.
        ("(drop (call $hash (i32.const 0) (i32.const 65537) (i64.const 0)))", "hash"),
        ("(drop (call $hash (i32.load offset=8 (local.get $d)) (i32.const 8192) (i64.const 0)))", "hash"),
        ("(drop (call $hash (i32.const 0) (i32.const -1) (i64.const 0)))", "hash"),
        // The input of a digest and its output: beyond the memory, across its end, and where a module cannot write.
        ("(drop (call $digest (i32.const 2) (i32.const -8) (i32.const 8) (i32.const 0)))", "digest"),
        ("(drop (call $digest (i32.const 2) (i32.const 65526) (i32.const 20) (i32.const 0)))", "digest"),
        ("(drop (call $digest (i32.const 2) (i32.const 0) (i32.const 8) (i32.const 65505)))", "digest"),
        ("(drop (call $digest (i32.const 1) (i32.const 0) (i32.const 8) (i32.const 65517)))", "digest"),
        ("(drop (call $digest (i32.const 1) (i32.const 0) (i32.const 0) (i32.const -1)))", "digest"),
        (
            "(drop (call $digest (i32.const 1) (i32.const 0) (i32.const 8) (i32.load offset=8 (local.get $d))))",
            "digest",
        ),
        ("(drop (call $digest (i32.const 1) (i32.const 0) (i32.const 8) (local.get $d)))", "digest"),
        ("(drop (call $find (i32.const 0) (i32.const 0x20000000) (i32.const 1)))", "find"),
        ("(drop (call $log (i32.const 0) (i32.const -1) (i32.const -1)))", "log"),
        (
            "(drop (call $param_bytes (i32.const 1) (i32.load offset=8 (local.get $d)) (i32.const 8)))",
            "param_bytes",
        ),
        ("(drop (call $param_bytes (i32.const 1) (i32.const 65535) (i32.const 8)))", "param_bytes"),
        ("(drop (call $patch (local.get $d) (i32.const 0) (i32.const -1) (i32.const 8)))", "patch"),
        // A string that the row points to: no incomplete record may stay.
        (
            "(i64.store (i32.const 64) (i64.const 0x10_ffffff00)) (drop (call $emit (i32.const 1) (i32.const 64) (i32.const 8)))",
            "emit",
        ),
    ] {
        loses_packet_20(act, FaultKind::WildPointer { function });
    }
    loses_packet_20("(drop (call $emit (i32.const 0) (i32.const 0) (i32.const 9)))", FaultKind::RowSize);
}

#[test]
fn a_lost_call_leaves_no_records_and_no_patches() {
    let engine = engine();
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
        (i64.store (i32.const 64) (i64.load32_u offset=60 (local.get $d)))
        (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
        (drop (call $patch (local.get $d) (i32.const 0) (i32.const 64) (i32.const 1)))
        (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
        (if (i32.eq (i32.load offset=60 (local.get $d)) (i32.const 1)) (then (unreachable)))
        (i32.const 1))
      (func (export "weir_tick") (param i64 i64) (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8))) (unreachable))"#;
    let mut instance = started(&engine, body);
    assert_eq!(instance.run(BatchInput { mask: 0b111, ..all() }), 0b101);
    assert_eq!(values(&mut instance), [0, 0, 2, 2]);
    assert_eq!(instance.take_patches().iter().map(|p| p.packet).collect::<Vec<_>>(), [0, 2]);
    instance.tick(Timestamp(1), 1, 3);
    assert!(values(&mut instance).is_empty());
    assert_eq!(instance.incidents()[1].during, During::Tick);
}

#[test]
fn excess_records_are_dropped_and_counted() {
    let engine = engine();
    let body = r#"(func $flood (param $n i32)
            (loop (drop (call $emit (i32.const 0) (i32.const 0) (i32.const 8)))
                  (br_if 0 (local.tee $n (i32.sub (local.get $n) (i32.const 1))))))
        (func (export "weir_packet") (param i32) (result i32) (call $flood (i32.const 1000)) (i32.const 0))
        (func (export "weir_stop") (param i64) (call $flood (i32.const 100000)))"#;
    let mut instance = started(&engine, body);
    instance.run(BatchInput { mask: 0b11, ..all() });
    assert_eq!(
        (instance.take_records(Records::default()).len(), instance.counters().records_dropped),
        (128, 2 * 936)
    );
    instance.stop(Timestamp(0));
    assert_eq!(instance.take_records(Records::default()).len(), 65_536);
    // Rows of 4 KiB: the bytes are limited too.
    let body = r#"(func (export "weir_packet") (param i32) (result i32) (local $n i32)
        (i64.store (i32.const 64) (i64.const 0x1000_00000000))
        (loop (drop (call $emit (i32.const 1) (i32.const 64) (i32.const 8)))
              (br_if 0 (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 64)))) (i32.const 0))"#;
    let mut instance = started(&engine, body);
    instance.run(BatchInput { mask: 1, ..all() });
    assert_eq!(instance.take_records(Records::default()).len(), 3);
}

#[test]
fn records_of_ticks_are_limited_per_block() {
    let engine = engine();
    let body = r#"(func (export "weir_packet") (param i32) (result i32) (i32.const 0))
        (func (export "weir_tick") (param i64 i64) (local $n i32)
            (local.set $n (i32.const 1000))
            (loop (drop (call $emit (i32.const 0) (i32.const 0) (i32.const 8)))
                  (br_if 0 (local.tee $n (i32.sub (local.get $n) (i32.const 1))))))"#;
    let mut instance = started(&engine, body);
    for block in 1..=2 {
        instance.begin_block();
        for packet in 0..100 {
            instance.tick(Timestamp(u64::from(packet)), 1, packet);
        }
        assert_eq!(instance.take_records(Records::default()).len(), 65_536);
        assert_eq!(instance.counters().records_dropped, block * (100_000 - 65_536));
    }
}

#[test]
fn a_batch_function_has_one_allowance() {
    // A patch of no bytes, for another packet each time, must not reset the allowance of records; nor a record that
    // of patches.
    let engine = engine();
    let body = r#"(func (export "weir_batch") (param $d i32) (param i64) (result i64) (local $n i32)
            (loop (drop (call $emit (i32.const 0) (i32.const 0) (i32.const 8)))
                  (drop (call $patch (i32.add (local.get $d) (i32.shl (i32.and (local.get $n) (i32.const 1)) (i32.const 7)))
                                     (i32.const 0) (i32.const 0) (i32.const 1)))
                  (br_if 0 (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 10000))))
            (i64.const 0))"#;
    let mut instance = started(&engine, body);
    instance.run(BatchInput { mask: 0b11, ..all() });
    assert_eq!(instance.take_records(Records::default()).len(), 2 * 64);
    assert_eq!(instance.take_patches().len(), 2 * 32);
    assert_eq!((instance.counters().faults, instance.counters().records_dropped), (0, 10_000 - 128));
}

#[test]
fn a_patch_of_a_field_without_write_right_is_denied_and_counted() {
    let engine = engine();
    // The first byte of the hardware addresses.
    let body = emitting(
        "(i64.extend_i32_s (call $patch (local.get $d) (i32.const 0) (i32.const 64) (i32.const 1)))",
    );
    let rights = Arc::new(WriteRights::new(WriteFields::NONE));
    let context = InstanceContext { writes: Some(Arc::clone(&rights)), ..InstanceContext::default() };
    let mut instance = Instance::start_with(&engine, &program(&engine, &body), context).unwrap();
    Packets::new().map(&mut instance);
    let answer = |instance: &mut Instance| {
        instance.run(BatchInput { mask: 0b11, ..all() });
        let answers = values(instance).into_iter().map(u64::cast_signed).collect::<Vec<_>>();
        (answers, instance.take_patches().iter().map(|patch| patch.fields).collect::<Vec<_>>())
    };
    let denied = i64::from(weir_abi::code::DENIED);
    assert_eq!(answer(&mut instance), (vec![denied; 2], Vec::new()));
    let macs = WriteFields::from(WriteField::Macs);
    rights.change(macs);
    assert_eq!(answer(&mut instance), (vec![0; 2], vec![macs; 2]));
    rights.change(WriteField::Ttl.into());
    assert_eq!(answer(&mut instance), (vec![denied; 2], Vec::new()));
    assert_eq!((rights.refused(), instance.counters().faults), (4, 0));
}

#[test]
fn a_patch_needs_the_profile_and_the_session_to_allow_its_field() {
    let engine = engine();
    // The first byte of the hardware addresses.
    let body = emitting(
        "(i64.extend_i32_s (call $patch (local.get $d) (i32.const 0) (i32.const 64) (i32.const 1)))",
    );
    let denied = i64::from(weir_abi::code::DENIED);
    let (macs, ttl) = (WriteFields::from(WriteField::Macs), WriteFields::from(WriteField::Ttl));
    for (profile, session, answer, fields, refused) in [
        ("writes = ['ttl']", Some(WriteFields::ALL), denied, None, 2),
        ("writes = ['ttl']", Some(macs), denied, None, 2),
        ("writes = ['macs']", Some(ttl), denied, None, 2),
        ("writes = ['macs', 'ttl']", Some(macs), 0, Some(macs), 0),
        ("writes = ['macs', 'ttl']", Some(WriteFields::ALL), 0, Some(macs | ttl), 0),
        // A run without sessions has the profile alone.
        ("writes = ['ttl']", None, denied, None, 0),
        ("writes = ['macs']", None, 0, Some(macs), 0),
        ("", None, 0, Some(WriteFields::ALL), 0),
    ] {
        let rights = session.map(|fields| Arc::new(WriteRights::new(fields)));
        let admitted =
            Admitted::admit_by(bytes(&wat(&body), MANIFEST), &[], &Profile::parse(profile).unwrap().into());
        let loaded = engine.load(admitted.unwrap()).unwrap();
        let context = InstanceContext { writes: rights.clone(), ..InstanceContext::default() };
        let mut instance = Instance::start_with(&engine, &loaded, context).unwrap();
        Packets::new().map(&mut instance);
        instance.run(BatchInput { mask: 0b11, ..all() });
        assert_eq!(values(&mut instance), [answer.cast_unsigned(); 2], "{profile} {session:?}");
        let allowed: Vec<_> = instance.take_patches().iter().map(|patch| patch.fields).collect();
        assert_eq!(allowed, fields.map_or(vec![], |fields| vec![fields; 2]), "{profile} {session:?}");
        assert_eq!(rights.map_or(0, |rights| rights.refused()), refused, "{profile} {session:?}");
    }
}

#[test]
fn a_fault_in_a_batch_discards_only_its_own_patches() {
    let engine = engine();
    let body = r#"(func (export "weir_batch") (param $d i32) (param $m i64) (result i64)
            (local.set $d (i32.add (local.get $d) (i32.shl (i32.wrap_i64 (i64.ctz (local.get $m))) (i32.const 7))))
            (drop (call $patch (local.get $d) (i32.const 0) (i32.const 0) (i32.const 1)))
            (if (i64.ne (i64.and (local.get $m) (i64.const 2)) (i64.const 0)) (then (unreachable)))
            (i64.const 0))"#;
    let mut instance = started(&engine, body);
    for mask in [0b1, 0b110, 0b11000] {
        instance.run(BatchInput { mask, ..all() });
    }
    assert_eq!(instance.take_patches().iter().map(|p| p.packet).collect::<Vec<_>>(), [0, 3]);
}

#[test]
fn a_failed_start_leaves_no_output() {
    let engine = engine();
    let body = r#"(func (export "weir_start") (result i32)
            (drop (call $emit (i32.const 0) (i32.const 0) (i32.const 8)))
            (i64.store (i32.const 64) (i64.const 0x10_ffffff00))
            (drop (call $emit (i32.const 1) (i32.const 64) (i32.const 8)))
            (i32.const 0))
        (func (export "weir_packet") (param i32) (result i32) (i32.const 0))"#;
    let instance = started(&engine, body);
    assert_eq!(instance.incidents()[0].fault.kind, FaultKind::WildPointer { function: "emit" });
    assert!(instance.has_ended() && !instance.has_records());
}

/// So many square roots, one of the other.
fn root(n: usize) -> String {
    format!("{}(f64.load (i32.const 256)){}", "(f64.sqrt ".repeat(n), ")".repeat(n))
}

#[test]
fn long_straight_line_code_is_ended_in_its_packet() {
    // A leaf without loop or call, called many times in a row: seconds of work without a loop.
    let leaf = format!("(func $leaf (f64.store (i32.const 256) {}))", root(3_000));
    let calls = "(call $leaf)".repeat(200_000);
    let engine = engine();
    let mut instance =
        started(&engine, &format!("{leaf} (func $many {calls}) {}", at_packet(20, "(call $many)")));
    let begin = thread_time();
    instance.run(all());
    let incident = instance.incidents().first().map(|i| (i.fault.kind, i.during));
    assert_eq!(incident, Some((FaultKind::Limit, During::Packet(20))));
    assert_eq!((instance.counters().packets, instance.counters().lost), (63, 1));
    assert!(thread_time().0 - begin.0 < 30 * Nanos::SECOND.0, "not ended in time");
}

#[test]
fn compiling_patterns_is_bounded_in_time_and_number() {
    // The test is about its fuel, not about the watchdog's limit of the other tests.
    let options = EngineOptions { call_limit: Duration::from_secs(60), ..options() };
    let engine = Engine::new(options, None).unwrap();
    // 64 KiB of one letter, without regard to case, many times: compiled in the time that a start has, until there
    // are enough.
    let body = r#"
        (func (export "weir_start") (result i32) (local $n i32)
            (drop (memory.grow (i32.const 2)))
            (memory.fill (i32.const 4) (i32.const 97) (i32.const 65536))
            (i32.store (i32.const 0) (i32.const 65536))
            (loop (i64.store (i32.const 70000) (i64.extend_i32_s (call $find_compile (i32.const 0) (i32.const 65540) (i32.const 1))))
                  (drop (call $emit (i32.const 0) (i32.const 70000) (i32.const 8)))
                  (br_if 0 (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 20))))
            (i32.const 0))
        (func (export "weir_packet") (param i32) (result i32) (call $find_compile (i32.const 0) (i32.const 65540) (i32.const 1)))"#;
    let begin = thread_time();
    let mut instance = started(&engine, body);
    assert!(!instance.has_ended(), "{:?}", instance.incidents());
    let handles = values(&mut instance);
    assert_eq!(handles[..16], (0..16).collect::<Vec<u64>>());
    assert_eq!(handles[16..], [u64::MAX; 4], "FULL after sixteen sets");
    assert!(thread_time().0 - begin.0 < 60 * Nanos::SECOND.0, "hangs");
}

#[test]
fn ten_thousand_traps_in_a_row_are_handled() {
    let engine = engine();
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32) (i32.store (local.get $d) (i32.const 0)) (i32.const 0))"#;
    let mut instance = started(&engine, body);
    for _ in 0..157 {
        instance.run(all());
    }
    assert_eq!((instance.counters().lost, instance.counters().packets), (157 * 64, 0));
    assert_eq!(instance.incidents().len(), 8, "only the first are described");
    assert!(!instance.has_ended());
}

#[test]
fn a_remapped_window_shows_no_bytes_of_the_last_one() {
    use std::io::Write;
    use std::os::fd::AsFd;
    let engine = engine();
    let body = emitting("(i64.load32_u (i32.add (i32.const 0x40000000) (i32.const 4096)))");
    let mut instance = started(&engine, &body);
    instance.run(BatchInput { mask: 1, ..all() });
    assert_eq!(values(&mut instance).len(), 1);
    let path = std::env::temp_dir().join(format!("weir-window-{}", std::process::id()));
    let mut file = std::fs::File::create_new(&path).unwrap();
    file.write_all(&[9; 4096]).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    instance
        .map_packets(weir_sandbox::Area { fd: file.as_fd(), offset: 0, len: 4096, is_fixed: false })
        .unwrap();
    instance.run(BatchInput { mask: 1, ..all() });
    assert!(values(&mut instance).is_empty());
    assert_eq!(instance.incidents()[0].fault.kind, FaultKind::OutOfBounds);
}

#[test]
fn areas_of_packets_follow_each_other_and_end_in_inaccessible_memory() {
    use std::os::fd::{AsFd, AsRawFd};
    use weir_sandbox::Area;
    let engine = engine();
    // Emits the eight bytes at the address that the packet's time states.
    let body = emitting("(i64.load (i32.wrap_i64 (i64.load (local.get $d))))");
    let files = [1, 2, 3].map(|byte| memfd(&[byte; 8192]));
    let [one, two, three] =
        files.each_ref().map(|file| Area { fd: file.as_fd(), offset: 0, len: 8192, is_fixed: true });
    let read = |instance: &mut Instance, areas: &[Area<'_>], at: u64| {
        let packets = Packets::of(|_| vec![0; 8], |_, d| d.ts_ns = u64::from(weir_abi::ARENA_BASE) + at);
        packets.map(instance);
        let mapped = instance.map_packet_areas(areas);
        instance.run(BatchInput { mask: 1, ..all() });
        (mapped.is_ok(), values(instance).first().map(|value| value.to_le_bytes()))
    };
    let mut instance = started(&engine, &body);
    let all_three = [one, two, three];
    // At a boundary the bytes of the next part of the same window follow.
    for (at, bytes) in [
        (0, [1; 8]),
        (8188, [1, 1, 1, 1, 2, 2, 2, 2]),
        (8192, [2; 8]),
        (16_380, [2, 2, 2, 2, 3, 3, 3, 3]),
        (24_568, [3; 8]),
    ] {
        assert_eq!(read(&mut instance, &all_three, at), (true, Some(bytes)), "{at}");
    }
    // Behind the last part the module traps, also if there were more parts before.
    for (areas, end) in
        [(&all_three[..], 24_576), (&all_three[..2], 16_384), (&all_three[..1], 8192), (&[], 0)]
    {
        for at in [end - 7.min(end), end, end + 4096] {
            assert_eq!(read(&mut instance, areas, at), (true, None), "{end} {at}");
        }
    }
    // If a part cannot be mapped, none is: neither the parts before it nor those of the window before.
    let unreadable = std::fs::OpenOptions::new()
        .write(true)
        .open(format!("/proc/self/fd/{}", files[1].as_raw_fd()))
        .unwrap();
    let unreadable = Area { fd: unreadable.as_fd(), offset: 0, len: 8192, is_fixed: true };
    let gap = Area { len: 8000, ..one };
    let too_long = Area { len: weir_abi::ARENA_MAX as usize, ..three };
    for areas in [[one, unreadable, three], [unreadable, two, three]] {
        for at in [0, 4096, 8192, 16_384] {
            read(&mut instance, &all_three, at);
            assert_eq!(read(&mut instance, &areas, at), (false, None), "{at}");
        }
    }
    for areas in [[gap, two, three], [one, two, too_long]] {
        assert!(instance.map_packet_areas(&areas).is_err());
    }
}

#[test]
fn the_cache_is_used_only_if_no_other_user_can_write_it() {
    use std::os::unix::fs::PermissionsExt;
    let folder = std::env::temp_dir().join(format!("weir-cache-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let load = |body: &str| -> Result<bool, LoadError> {
        let engine = Engine::new(options(), Some(Cache::open(&folder).unwrap()))?;
        let admitted = Admitted::admit(bytes(&wat(body), MANIFEST), &[]).unwrap();
        Ok(engine.load(admitted)?.is_from_cache())
    };
    let (one, two) = (emitting("(i64.const 1)"), emitting("(i64.const 2)"));
    assert!(!load(&one).unwrap());
    assert!(load(&one).unwrap());
    assert!(!load(&two).unwrap(), "another module is another entry");
    // A truncated or changed entry is not used, and is made again.
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let mut contents = std::fs::read(&path).unwrap();
        let middle = contents.len() / 2;
        contents[middle] ^= 1;
        std::fs::write(&path, contents).unwrap();
    }
    assert!(!load(&one).unwrap());
    assert!(load(&one).unwrap());
    // A link in place of an entry is not followed.
    let entry = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let elsewhere = folder.with_extension("elsewhere");
    std::fs::rename(&entry, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &entry).unwrap();
    assert!(!(load(&one).unwrap() && load(&two).unwrap()));
    // A folder that others can write, or a link to one, is refused.
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o770)).unwrap();
    assert!(Cache::open(&folder).unwrap_err().to_string().contains("must belong to user"));
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
    let link = folder.with_extension("link");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(&folder, &link).unwrap();
    assert!(Cache::open(&link).is_err());
    for path in [link, elsewhere] {
        std::fs::remove_file(path).unwrap();
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
