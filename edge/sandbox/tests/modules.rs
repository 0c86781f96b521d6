//! Abilities of modules, observed through the sandbox.

use crate::support::*;
use weir_abi::DESCRIPTORS_BASE;
use weir_abi::host::HostFunction;
use weir_sandbox::{
    BatchInput, Call, CallStep, CheckMode, Engine, EngineOptions, FuelSlice, Instance, LogLine,
};
use weir_units::Timestamp;
use {
    weir_admission::{Admitted, Tier},
    weir_session::{RecordOrder, Records},
};

#[test]
fn a_module_reads_packets_and_descriptors_in_place() {
    let engine = engine();
    // The last byte of the packet, and its number from the descriptor.
    let last = "(i64.add (i64.mul (i64.const 1000) (i64.load8_u (i32.add (i32.load offset=8 (local.get $d)) (i32.const 99))))
                         (i64.load32_u offset=60 (local.get $d)))";
    let mut instance = started(&engine, &emitting(last));
    assert_eq!(instance.run(all()), 0);
    let expected: Vec<u64> = (0..64).map(|i| i * 1001).collect();
    assert_eq!(values(&mut instance), expected);
    assert_eq!((instance.counters().packets, instance.counters().faults), (64, 0));
}

#[test]
fn a_module_sees_the_packets_of_the_mask_in_order() {
    let engine = engine();
    let mut instance = started(&engine, &emitting("(i64.load32_u offset=60 (local.get $d))"));
    instance.run(BatchInput { mask: 1 << 63 | 1 << 40 | 0b101, ..all() });
    assert_eq!(values(&mut instance), [0, 2, 40, 63]);
    instance.run(BatchInput { mask: 0, ..all() });
    assert!(values(&mut instance).is_empty());
}

#[test]
fn verdicts_become_the_mask_of_dropped_packets() {
    let engine = engine();
    let odd = r#"(func (export "weir_packet") (param $d i32) (result i32)
        (i32.and (i32.load offset=60 (local.get $d)) (i32.const 1)))"#;
    let mut instance = started(&engine, odd);
    assert_eq!(instance.run(all()), 0xaaaa_aaaa_aaaa_aaaa);
    assert_eq!(instance.run(BatchInput { mask: 0xff, ..all() }), 0xaa);
    // A module with a batch function cannot drop packets outside the mask.
    let batch = r#"(func (export "weir_batch") (param i32 i64) (result i64) (i64.const -1))"#;
    let mut instance = started(&engine, batch);
    assert_eq!(instance.run(BatchInput { mask: 0xf0, ..all() }), 0xf0);
    assert_eq!(instance.counters().packets, 4);
}

#[test]
fn start_tick_and_stop_come_with_their_arguments() {
    let engine = engine();
    let body = r#"
        (func $say (param i64) (i64.store (i32.const 64) (local.get 0)) (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8))))
        (func (export "_initialize") (call $say (i64.const 1)))
        (func (export "weir_start") (result i32) (call $say (call $param_int (i32.const 0))) (i32.const 0))
        (func (export "weir_packet") (param i32) (result i32) (i32.const 0))
        (func (export "weir_tick") (param i64 i64) (call $say (local.get 0)) (call $say (local.get 1)))
        (func (export "weir_stop") (param i64) (call $say (local.get 0)))"#;
    let mut instance = started(&engine, body);
    assert_eq!(values(&mut instance), [1, 8]);
    instance.tick(Timestamp(5), 3, 7);
    instance.stop(Timestamp(9));
    assert_eq!(values(&mut instance), [5, 3, 9]);
}

#[test]
fn parameters_arrive_by_type() {
    let engine = engine();
    let body = r#"
        (func (export "weir_start") (result i32)
            ;; The string's length, with room for two bytes of it only.
            (i64.store (i32.const 64) (i64.extend_i32_u (call $param_bytes (i32.const 1) (i32.const 100) (i32.const 2))))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
            (i64.store (i32.const 64) (i64.load32_u (i32.const 100)))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
            (i64.store (i32.const 64) (i64.trunc_f64_u (f64.mul (f64.const 100) (call $param_float (i32.const 2)))))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
            (i64.store (i32.const 64) (i64.extend_i32_s (call $param_bytes (i32.const 99) (i32.const 100) (i32.const 2))))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
            (i32.const 0))
        (func (export "weir_packet") (param i32) (result i32) (i32.const 0))"#;
    let mut instance = started(&engine, body);
    assert_eq!(
        values(&mut instance),
        [3, u64::from(b'a') | u64::from(b'b') << 8, 50, (-5i64).cast_unsigned()]
    );
}

#[test]
fn a_host_function_behaves_the_same_through_a_table_and_an_export() {
    let engine = engine();
    let body = r#"(table $t funcref (elem $emit $patch)) (export "mine" (func $emit)) (elem declare func $emit)
        (func (export "weir_packet") (param $d i32) (result i32)
            (i64.store (i32.const 64) (i64.load32_u offset=60 (local.get $d)))
            (drop (call_indirect $t (param i32 i32 i32) (result i32) (i32.const 0) (i32.const 64) (i32.const 8) (i32.const 0)))
            (drop (ref.func $emit))
            (call_indirect $t (param i32 i32 i32 i32) (result i32)
                (local.get $d) (i32.const 6) (i32.const 64) (i32.const 2) (i32.const 1)))"#;
    let mut instance = started(&engine, body);
    assert_eq!(instance.run(BatchInput { mask: 0b1010, first: 64, ..all() }), 0, "patch returned 0");
    let records = instance.take_records(Records::default());
    let orders: Vec<RecordOrder> = records.iter().map(|record| record.order).collect();
    assert_eq!(orders, [RecordOrder::packet(65), RecordOrder::packet(67)]);
    assert_eq!(instance.take_patches().iter().map(|p| p.packet).collect::<Vec<_>>(), [65, 67]);
}

#[test]
fn strings_are_copied_from_every_readable_area() {
    let engine = engine();
    // A string in the packet itself: bytes 10..13.
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
        (i32.store (i32.const 64) (i32.add (i32.load offset=8 (local.get $d)) (i32.const 10)))
        (i32.store (i32.const 68) (i32.const 3))
        (call $emit (i32.const 1) (i32.const 64) (i32.const 8)))"#;
    let mut instance = started(&engine, body);
    instance.run(BatchInput { mask: 1 << 63 | 1 << 33, ..all() });
    let records = instance.take_records(Records::default());
    let tails: Vec<&[u8]> = records.iter().map(|r| r.tail).collect();
    assert_eq!(tails, [[33u8; 3].as_slice(), [63; 3].as_slice()]);
}

#[test]
fn patterns_are_found_in_packets_and_hashes_are_xxh3() {
    let engine = engine();
    let body = format!(
        r#"(data (i32.const 200) "\02\00\00\00\05\05\03\00\00\00\05\05\05")
        (global $handle (mut i32) (i32.const 0))
        (func (export "weir_start") (result i32)
            (global.set $handle (call $find_compile (i32.const 200) (i32.const 13) (i32.const 0))) (i32.const 0))
        {}"#,
        emitting(
            "(i64.xor (call $find (global.get $handle) (i32.load offset=8 (local.get $d)) (i32.const 100))
                      (call $hash (i32.load offset=8 (local.get $d)) (i32.const 100) (i64.const 7)))"
        )
    );
    let mut instance = started(&engine, &body);
    instance.run(BatchInput { mask: 0b110_0000, ..all() });
    let hash = |byte: u8| xxhash_rust::xxh3::xxh3_64_with_seed(&[byte; 100], 7);
    // Packet 5 holds the longer pattern at 0; packet 6 holds none.
    assert_eq!(values(&mut instance), [(1 << 32) ^ hash(5), u64::MAX ^ hash(6)]);
}

#[test]
fn log_lines_cannot_forge_others() {
    let engine = engine();
    let body = r#"(data (i32.const 200) "a\0a\1b[31mb")
        (func (export "weir_start") (result i32) (drop (call $log (i32.const 1) (i32.const 200) (i32.const 8))) (i32.const 0))
        (func (export "weir_packet") (param i32) (result i32) (drop (call $log (i32.const 9) (i32.const 200) (i32.const 1))) (i32.const 0))"#;
    let mut instance = started(&engine, body);
    assert_eq!(instance.take_log(), [LogLine { level: 1, text: r"a\n\u{1b}[31mb".into() }]);
    instance.run(all());
    instance.run(all());
    assert_eq!((instance.take_log().len(), instance.counters().log_dropped), (99, 29));
}

#[test]
fn a_patch_is_checked_and_kept_for_the_output() {
    let engine = engine();
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
        (i64.store (i32.const 64) (i64.extend_i32_s (call $patch (local.get $d) (i32.load offset=64 (i32.const 0)) (i32.const 8) (i32.const 2))))
        (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
        (i32.const 0))"#;
    // Source MAC: allowed. EtherType and beyond the end: refused.
    for (offset, code) in [(6i32, 0i64), (12, -3), (99, -2)] {
        let body = body.replace("(i32.load offset=64 (i32.const 0))", &format!("(i32.const {offset})"));
        let mut instance = started(&engine, &body);
        instance.run(BatchInput { mask: 0b100, first: 64, ..all() });
        assert_eq!(values(&mut instance), [code.cast_unsigned()], "offset {offset}");
        let patches = instance.take_patches();
        assert_eq!(patches.len(), usize::from(code == 0));
        if let [patch] = patches.as_slice() {
            assert_eq!((patch.packet, patch.offset, patch.bytes.as_slice()), (66, 6, [0u8; 2].as_slice()));
        }
    }
    // Another packet than the current one, or no descriptor at all: refused at this time.
    for other in
        ["(i32.add (local.get $d) (i32.const 64))", "(i32.add (local.get $d) (i32.const 1))", "(i32.const 0)"]
    {
        let body = body
            .replace("(i32.load offset=64 (i32.const 0))", "(i32.const 6)")
            .replace("(call $patch (local.get $d)", &format!("(call $patch {other}"));
        let mut instance = started(&engine, &body);
        instance.run(BatchInput { mask: 1, ..all() });
        assert_eq!(values(&mut instance), [(-4i64).cast_unsigned()], "{other}");
    }
}

#[test]
fn instances_of_one_module_share_nothing() {
    let engine = engine();
    let program = program(&engine, &at_packet(99, ""));
    let packets = Packets::new();
    let mut instances: Vec<Instance> = (0..50).map(|_| Instance::start(&engine, &program).unwrap()).collect();
    for (i, instance) in instances.iter_mut().enumerate() {
        packets.map(instance);
        instance.run(BatchInput { mask: (1 << i) - 1, descriptors: DESCRIPTORS_BASE, first: 0 });
        instance.stop(Timestamp(0));
    }
    let counts: Vec<u64> = instances.iter_mut().flat_map(values).collect();
    assert_eq!(counts, (0..50).collect::<Vec<u64>>());
}

/// Examples of FIPS 180-4 and RFC 6234, section 8.5: the bytes, their SHA-1 and their SHA-256; digests that are not
/// printed there are from Python's hashlib.
const DIGESTS: [(&[u8], usize, &str, &str); 6] = [
    (
        b"",
        1,
        "da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    ),
    (
        b"abc",
        1,
        "a9993e364706816aba3e25717850c26c9cd0d89d",
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    ),
    (
        b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
        1,
        "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
    ),
    (
        b"01234567",
        80,
        "dea356a2cddd90c7a7ecedc5ebb563934f460452",
        "594847328451bdfa85056225462cc1d867d877fb388df0ce35f25ab5562bfbb5",
    ),
    (
        b"\x9a\x7d\xfd\xf1\xec\xea\xd0\x6e\xd6\x46\xaa\x55\xfe\x75\x71\x46",
        1,
        "82abff6605dbe1c17def12a394fa22a82b544a35",
        "803eb30a976d7846cecb0a661d8d807b102b104de5b146ab8433371e4394315f",
    ),
    (
        b"\xe3\xd7\x25\x70\xdc\xdd\x78\x7c\xe3\x88\x7a\xb2\xcd\x68\x46\x52",
        1,
        "edbad43ddb1b6e54d9cac57a69e1d994188f9e07",
        "175ee69b02ba9b58e2b0a5fd13819cea573f3940a94f825128cf4209beabb4e8",
    ),
];

/// Emits both digests of the packet in place, and the SHA-256 of a copy of it written over that copy.
const DIGESTING: &str = r#"
    (func $say (param $at i32) (param $len i32)
        (i32.store (i32.const 80) (local.get $at)) (i32.store (i32.const 84) (local.get $len))
        (drop (call $emit (i32.const 1) (i32.const 80) (i32.const 8))))
    (func (export "weir_packet") (param $d i32) (result i32) (local $p i32) (local $n i32)
        (local.set $p (i32.load offset=8 (local.get $d))) (local.set $n (i32.load offset=12 (local.get $d)))
        (call $say (i32.const 1024) (call $digest (i32.const 1) (local.get $p) (local.get $n) (i32.const 1024)))
        (call $say (i32.const 1024) (call $digest (i32.const 2) (local.get $p) (local.get $n) (i32.const 1024)))
        (memory.copy (i32.const 2048) (local.get $p) (local.get $n))
        (call $say (i32.const 2048) (call $digest (i32.const 2) (i32.const 2048) (local.get $n) (i32.const 2048)))
        (i32.const 0))"#;

/// A packet for each of the examples, and the expected records.
fn digested() -> (Packets, Vec<Vec<u8>>) {
    let message = |i: usize| DIGESTS.get(i).map_or(vec![0; 100], |(bytes, times, ..)| bytes.repeat(*times));
    let bytes = |hex: &str| -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    };
    let all = DIGESTS.iter().flat_map(|(_, _, sha1, sha256)| [bytes(sha1), bytes(sha256), bytes(sha256)]);
    (Packets::of(message, |_, _| ()), all.collect())
}

#[test]
fn digests_are_those_of_the_standards_in_every_tier() {
    let (packets, wanted) = digested();
    for tier in Tier::ALL {
        let options = EngineOptions { check_mode: CheckMode::As(*tier), ..options() };
        let engine = Engine::new(options, None).unwrap();
        for is_suspendable in [false, true] {
            let admitted = Admitted::admit(bytes(&wat(DIGESTING), MANIFEST), &[]).unwrap();
            let program =
                if is_suspendable { engine.load_suspendable(admitted) } else { engine.load(admitted) };
            let mut instance = Instance::start(&engine, &program.unwrap()).unwrap();
            packets.map(&mut instance);
            let call = Call::Batch(BatchInput { mask: (1 << DIGESTS.len()) - 1, ..all() });
            // With tiny slices, where it can be suspended.
            let mut step = instance.begin(call, FuelSlice { fuel: 1, until: None });
            let mut suspended = 0;
            while step == CallStep::Suspended {
                suspended += 1;
                step = instance.resume(FuelSlice { fuel: 1, until: None });
            }
            assert_eq!(suspended > 0, is_suspendable, "{tier}");
            assert!(instance.incidents().is_empty(), "{tier}: {:?}", instance.incidents());
            let records = instance.take_records(Records::default());
            let digests: Vec<Vec<u8>> = records.iter().map(|record| record.tail.to_vec()).collect();
            assert_eq!(digests, wanted, "{tier}, {is_suspendable}");
        }
    }
}

#[test]
fn a_digest_with_a_bad_length_or_algorithm_is_refused_before_its_address_is_checked() {
    let engine = engine();
    let mut instance = started(&engine, &emitting("(i64.const 0)"));
    for (algorithm, at, len, to, wanted) in [
        (2, 0, 65_536, 65_504, 32),
        (1, 0, 65_536, 65_516, 20),
        (2, 0, 65_537, 0, -2),
        (2, -1, -1, -1, -2),
        (1, 0, i32::MIN, 0, -2),
        (0, -8, 65_536, -8, -5),
        (3, 0, 0, 0, -5),
        (-1, 0, 0, 0, -5),
    ] {
        let call = format!(
            "(i64.extend_i32_s (call $digest (i32.const {algorithm}) (i32.const {at}) (i32.const {len}) (i32.const {to})))"
        );
        instance = started(&engine, &emitting(&call));
        instance.run(BatchInput { mask: 1, ..all() });
        assert_eq!(values(&mut instance), [i64::cast_unsigned(wanted)], "{call}");
    }
    assert!(instance.incidents().is_empty());
}

#[test]
fn a_digest_is_charged_before_any_byte_is_read() {
    let body =
        at_packet(20, "(drop (call $digest (i32.const 2) (i32.const 1024) (i32.const 60000) (i32.const 0)))");
    let price = weir_bounds::CostTable::standard().host(HostFunction::Digest);
    let price = u64::from(price.call) + 60_000 * u64::from(price.per_byte);
    // The rest of the packet costs less than this.
    for (most, lost) in [(price - 1, 1), (price + 1_000, 0)] {
        let options = EngineOptions { check_mode: CheckMode::Exact(most), ..options() };
        let engine = Engine::new(options, None).unwrap();
        let mut instance = started(&engine, &body);
        instance.run(all());
        assert_eq!(instance.counters().lost, lost);
        instance.stop(Timestamp(0));
        // The digest is written over the count of packets.
        let counted = values(&mut instance);
        assert_eq!(counted == [63], lost == 1, "{counted:?}");
    }
}
