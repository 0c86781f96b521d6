//! Frames that a module sends, and the limits.

use crate::support;
use crate::support::{all, at_packet, engine, program, started};
use weir_abi::{ARENA_BASE, DESCRIPTORS_BASE, code, limit};
use weir_sandbox::{BatchInput, Call, CallStep, FaultKind, Instance};
use weir_units::Timestamp;
use {
    weir_admission::{Admitted, Profile, Tier},
    weir_session::Records,
};

/// A packet function that sends `len` bytes from `address` to `output`, and emits the result in the first word of a
/// record.
fn sends(output: i64, address: i64, len: i64) -> String {
    support::emitting(&format!(
        "(i64.extend_i32_s (call $send (i32.const {output}) (i32.const {address}) (i32.const {len})))"
    ))
}

fn first_only() -> BatchInput {
    BatchInput { mask: 1, ..all() }
}

/// Output, packet and bytes of each frame.
fn frames(instance: &mut Instance) -> Vec<(u16, usize, Vec<u8>)> {
    let frames = instance.take_frames(Records::default());
    frames.iter().map(|frame| (frame.stream, frame.order.index(), frame.row.to_vec())).collect()
}

fn answer(output: i64, address: i64, len: i64) -> (i64, usize) {
    let mut instance = started(&engine(), &sends(output, address, len));
    instance.run(first_only());
    assert!(instance.incidents().is_empty());
    let answers = support::values(&mut instance);
    (answers[0].cast_signed(), frames(&mut instance).len())
}

#[test]
fn a_sent_frame_has_the_bytes_at_the_time_of_sending() {
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
            (memory.fill (i32.const 64) (i32.load offset=60 (local.get $d)) (i32.const 60))
            (drop (call $send (i32.const 1) (i32.const 64) (i32.const 60)))
            (memory.fill (i32.const 64) (i32.const 255) (i32.const 60))
            (drop (call $send (i32.const 0) (i32.load offset=8 (local.get $d)) (i32.const 14)))
            (i32.const 0))"#;
    let mut instance = started(&engine(), body);
    instance.run(BatchInput { mask: 0b101, ..all() });
    let expected = [0u8, 2].map(|n| [(1, n.into(), vec![n; 60]), (0, n.into(), vec![n; 14])]).concat();
    assert_eq!(frames(&mut instance), expected);
    assert!(!instance.has_frames() && instance.counters().faults == 0);
}

#[test]
fn a_refused_frame_is_answered_with_the_reason() {
    let ok = (i64::from(code::OK), 1);
    let no = |code: i32| (i64::from(code), 0);
    let most = i64::from(limit::FRAME_BYTES);
    assert_eq!(answer(0, 0, 14), ok);
    assert_eq!(answer(1, 0, most), ok);
    assert_eq!(answer(0, i64::from(ARENA_BASE.cast_signed()), 100), ok);
    assert_eq!(answer(0, 0, 13), no(code::RANGE));
    assert_eq!(answer(0, 0, 0), no(code::RANGE));
    assert_eq!(answer(0, 0, most + 1), no(code::RANGE));
    assert_eq!(answer(0, 0, -1), no(code::RANGE));
    for output in [2, 65_536, 65_537, -1] {
        assert_eq!(answer(output, 0, 60), no(code::UNKNOWN));
    }
}

#[test]
fn a_wild_pointer_sends_nothing_and_ends_the_call() {
    let ends = |address: i64, len: i64| {
        let act = format!("(drop (call $send (i32.const 0) (i32.const {address}) (i32.const {len})))");
        let mut instance = started(&engine(), &at_packet(20, &act));
        instance.run(all());
        let faults: Vec<_> = instance.incidents().iter().map(|incident| incident.fault.kind).collect();
        assert_eq!(faults, [FaultKind::WildPointer { function: "send" }], "{address} + {len}");
        assert!(frames(&mut instance).is_empty());
    };
    ends(65_536 - 59, 60);
    ends(-30, 60);
    let batch = u32::try_from(weir_abi::BATCH_BYTES).unwrap();
    // The end of the packets, and beyond that of the descriptors.
    ends(i64::from((ARENA_BASE + 8192 - 59).cast_signed()), 60);
    ends(i64::from((DESCRIPTORS_BASE + batch - 59).cast_signed()), 60);
    ends(i64::from((ARENA_BASE - 30).cast_signed()), 60);
}

#[test]
fn a_lost_call_sends_nothing() {
    let send = "(drop (call $send (i32.const 0) (i32.const 64) (i32.const 60)))";
    let body = format!(
        r#"(func (export "weir_packet") (param $d i32) (result i32)
            {send} {send}
            (if (i32.eq (i32.load offset=60 (local.get $d)) (i32.const 1)) (then (unreachable)))
            (i32.const 0))
          (func (export "weir_tick") (param i64 i64) {send} (if (i64.eq (local.get 0) (i64.const 7)) (then (unreachable))))"#
    );
    let mut instance = started(&engine(), &body);
    instance.run(BatchInput { mask: 0b111, ..all() });
    instance.tick(Timestamp(1), 1, 3);
    instance.tick(Timestamp(7), 1, 4);
    let sent: Vec<usize> = frames(&mut instance).iter().map(|frame| frame.1).collect();
    assert_eq!(sent, [0, 0, 2, 2, 3]);
    assert_eq!(instance.counters().faults, 2);
}

#[test]
fn an_aborted_call_sends_nothing() {
    let engine = engine();
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
            (drop (call $send (i32.const 0) (i32.const 64) (i32.const 60)))
            (if (i32.eq (i32.load offset=60 (local.get $d)) (i32.const 2)) (then (loop (br 0))))
            (i32.const 0))"#;
    let admitted = Admitted::admit(support::bytes(&support::wat(body), support::MANIFEST), &[]).unwrap();
    let mut instance = Instance::make(&engine, &engine.load_suspendable(admitted).unwrap()).unwrap();
    support::Packets::new().map(&mut instance);
    let budget = weir_sandbox::FuelSlice { fuel: 1_000_000, until: None };
    assert_eq!(instance.begin(Call::Start, budget), CallStep::Done(0));
    assert_eq!(instance.begin(Call::Batch(BatchInput { mask: 0b111, ..all() }), budget), CallStep::Suspended);
    assert!(!instance.has_frames(), "nothing can be taken while it is suspended");
    instance.abort();
    let sent: Vec<usize> = frames(&mut instance).iter().map(|frame| frame.1).collect();
    assert_eq!(sent, [0, 1]);
}

#[test]
fn excess_frames_are_dropped_and_counted() {
    let flood = |len: u32| {
        let body = format!(
            r#"(func $flood (param $n i32)
                (loop (drop (call $send (i32.const 0) (i32.const 0) (i32.const {len})))
                      (br_if 0 (local.tee $n (i32.sub (local.get $n) (i32.const 1))))))
            (func (export "weir_packet") (param i32) (result i32) (call $flood (i32.const 1000)) (i32.const 0))
            (func (export "weir_tick") (param i64 i64) (call $flood (i32.const 3000)))
            (func (export "weir_stop") (param i64) (call $flood (i32.const 10000)))"#
        );
        started(&engine(), &body)
    };
    let mut short = flood(60);
    short.run(BatchInput { mask: 0b11, ..all() });
    assert_eq!((frames(&mut short).len(), short.counters().frames_dropped), (2 * 64, 2 * 936));
    short.begin_block();
    short.tick(Timestamp(1), 1, 0);
    short.tick(Timestamp(2), 1, 1);
    assert_eq!(frames(&mut short).len(), 4096, "the ticks of a block share an allowance");
    short.stop(Timestamp(3));
    assert_eq!(frames(&mut short).len(), 4096);

    // Bytes are limited too.
    let mut long = flood(limit::FRAME_BYTES);
    long.run(first_only());
    assert_eq!(frames(&mut long).len(), (limit::FRAME_BYTES_PER_PACKET / limit::FRAME_BYTES) as usize);
    long.stop(Timestamp(3));
    assert_eq!(frames(&mut long).len(), (limit::FRAME_BYTES_PER_CALL / limit::FRAME_BYTES) as usize);
}

#[test]
fn a_profile_limits_the_number_and_length_of_frames() {
    let body = r#"(func (export "weir_packet") (param i32) (result i32) (local $n i32)
            (loop (drop (call $send (i32.const 0) (i32.const 0) (i32.const 100)))
                  (drop (call $send (i32.const 0) (i32.const 0) (i32.const 101)))
                  (br_if 0 (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 5))))
            (i32.const 0))"#;
    let bytes = support::bytes(&support::wat(body), support::MANIFEST);
    let profile = Profile::parse("frames = 3\nframe-bytes = '100'").unwrap();
    let terms = weir_admission::CalibratedProfile::from(profile);
    let admitted = Admitted::admit_by(bytes, &[], &terms).unwrap();
    // Ten are more than three, but not ten times as many.
    assert_eq!(admitted.tier(), Tier::Supervised);
    let engine = engine();
    let mut instance = Instance::start(&engine, &engine.load(admitted).unwrap()).unwrap();
    support::Packets::new().map(&mut instance);
    instance.run(first_only());
    let sent = frames(&mut instance);
    assert_eq!((sent.len(), sent[0].2.len()), (3, 100));
    assert_eq!(instance.counters().frames_dropped, 2, "those that are too long are not counted as too many");
}

#[test]
fn nothing_is_sent_at_start_or_to_unconnected_outputs() {
    let engine = engine();
    let body = format!(
        r#"(func (export "weir_start") (result i32)
            (i64.store (i32.const 8) (i64.extend_i32_s (call $send (i32.const 0) (i32.const 64) (i32.const 60)))) (i32.const 0))
          {}
          (func (export "weir_stop") (param i64) (drop (call $emit (i32.const 0) (i32.const 8) (i32.const 8))))"#,
        sends(0, 64, 60)
    );
    let mut instance = Instance::start(&engine, &program(&engine, &body)).unwrap();
    support::Packets::new().map(&mut instance);
    // The other output is connected.
    instance.connect_outputs(0b10);
    instance.run(first_only());
    instance.connect_outputs(0b01);
    instance.run(first_only());
    instance.stop(Timestamp(1));
    let answers: Vec<i64> = support::values(&mut instance).into_iter().map(u64::cast_signed).collect();
    assert_eq!(answers, [code::DENIED, code::OK, code::WHEN].map(i64::from));
    assert_eq!(frames(&mut instance).len(), 1);
}

#[test]
fn a_module_without_outputs_sends_nothing() {
    let engine = engine();
    let manifest = support::MANIFEST.split("[[output]]").next().unwrap();
    let admitted = Admitted::admit(support::bytes(&support::wat(&sends(0, 64, 60)), manifest), &[]).unwrap();
    let mut instance = Instance::start(&engine, &engine.load(admitted).unwrap()).unwrap();
    support::Packets::new().map(&mut instance);
    instance.run(first_only());
    assert_eq!(support::values(&mut instance), [i64::from(code::UNKNOWN).cast_unsigned()]);
    assert!(!instance.has_frames());
}

#[test]
fn a_batch_function_has_one_allowance_of_frames_and_loses_them_together() {
    let body = r#"(func (export "weir_batch") (param $d i32) (param $m i64) (result i64) (local $n i32)
            (loop (drop (call $send (i32.const 0) (i32.const 0) (i32.const 60)))
                  (drop (call $emit (i32.const 0) (i32.const 0) (i32.const 8)))
                  (br_if 0 (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 1000))))
            (if (i64.eq (local.get $m) (i64.const 0xc)) (then (unreachable)))
            (i64.const 0))"#;
    let mut instance = started(&engine(), body);
    instance.run(BatchInput { mask: 0b11, ..all() });
    assert_eq!(frames(&mut instance).len(), 2 * 64);
    instance.run(BatchInput { mask: 0b1100, ..all() });
    assert_eq!((frames(&mut instance).len(), instance.counters().faults), (0, 1));
}
