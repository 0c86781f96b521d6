//! Kept packets: what a module can do with them, and the limits.

use crate::support;
use crate::support::{MANIFEST, Packets, all, emitting, engine, started};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use weir_abi::{ARENA_BASE, DESCRIPTORS_BASE, code};
use weir_sandbox::{
    BatchInput, Call, CallStep, Engine, FuelSlice, Instance, InstanceContext, NotPinned, Pinned,
};
use weir_units::{Bytes, Timestamp};
use {
    weir_admission::{Admitted, CalibratedProfile, Profile},
    weir_session::KeptPackets,
};

/// Packet memory in pieces of 250 bytes, of which `MOST` can be pinned; and the number pinned now.
#[derive(Clone, Default)]
struct Memory {
    pins: Arc<AtomicUsize>,
    asked: Arc<Mutex<Vec<(u32, u32)>>>,
}

const PIECE: u32 = 250;
const MOST: u32 = 8;

struct Hold(Arc<AtomicUsize>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Memory {
    fn now(&self) -> usize {
        self.pins.load(Ordering::Relaxed)
    }

    fn keep_for(&self, instance: &mut Instance) {
        let memory = self.clone();
        let pinner = move |address: u32, len: u32| {
            memory.asked.lock().unwrap().push((address, len));
            let from = (address - ARENA_BASE) / PIECE;
            let pieces = from..(address - ARENA_BASE + len - 1) / PIECE + 1;
            if pieces.end > 20 {
                return Err(NotPinned::Full);
            }
            memory.pins.fetch_add(1, Ordering::Relaxed);
            let hold = Box::new(Hold(Arc::clone(&memory.pins)));
            Ok(Pinned { guard: hold, pieces, piece_size: Bytes(PIECE.into()), pieces_max: MOST })
        };
        instance.set_packet_pinner(Some(Box::new(pinner))).unwrap();
    }
}

fn with_memory(body: &str) -> (Instance, Memory) {
    let (mut instance, memory) = (started(&engine(), body), Memory::default());
    memory.keep_for(&mut instance);
    (instance, memory)
}

fn only(packet: u32) -> BatchInput {
    BatchInput { mask: 1 << packet, ..all() }
}

fn answers(instance: &mut Instance) -> Vec<i64> {
    support::values(instance).into_iter().map(u64::cast_signed).collect()
}

const KEEP: &str = "(i64.extend_i32_s (call $keep (local.get $d)))";

/// Keeps packets 0 and 1, and releases in packet 2 the packet of `handle`.
fn releasing(handle: &str) -> String {
    emitting(&format!(
        r#"(if (result i64) (i32.lt_u (i32.load offset=60 (local.get $d)) (i32.const 2))
            (then (i32.store (i32.add (i32.const 128) (i32.mul (i32.const 4) (i32.load offset=60 (local.get $d))))
                             (call $keep (local.get $d)))
                  (i64.load32_s (i32.add (i32.const 128) (i32.mul (i32.const 4) (i32.load offset=60 (local.get $d))))))
            (else (i64.extend_i32_s (call $release {handle}))))"#
    ))
}

#[test]
fn a_packet_is_kept_until_it_is_released_once() {
    let (mut instance, memory) = with_memory(&releasing("(i32.load (i32.const 128))"));
    for packet in [0, 1] {
        instance.run(only(packet));
    }
    assert_eq!(memory.asked.lock().unwrap().as_slice(), [(ARENA_BASE, 100), (ARENA_BASE + 100, 100)]);
    assert_eq!((memory.now(), instance.kept()), (2, Bytes(250)), "both lie in one piece");
    for packet in [2, 3, 4] {
        instance.run(only(packet));
    }
    let unknown = i64::from(code::UNKNOWN);
    let all = answers(&mut instance);
    assert_ne!(all[0], all[1]);
    assert_eq!(all[2..], [0, unknown, unknown], "a second time there is nothing to let go of");
    assert_eq!((memory.now(), instance.kept()), (1, Bytes(250)));
    drop(instance);
    assert_eq!(memory.now(), 0);
}

#[test]
fn an_invalid_handle_releases_nothing() {
    for handle in
        ["(i32.const -1)", "(i32.const 2)", "(i32.const 1023)", "(i32.const 1024)", "(i32.const 0x7fffffff)"]
    {
        let (mut instance, memory) = with_memory(&releasing(handle));
        for packet in [0, 1, 2] {
            instance.run(only(packet));
        }
        assert_eq!((answers(&mut instance)[2], memory.now()), (code::UNKNOWN.into(), 2), "{handle}");
    }
}

#[test]
fn a_released_handle_is_not_reused_for_the_next_packet() {
    let body = emitting(
        r#"(block (result i64)
            (i32.store (i32.const 128) (call $keep (local.get $d)))
            (drop (call $release (i32.load (i32.const 128))))
            (i32.store (i32.const 132) (call $keep (local.get $d)))
            (drop (call $release (i32.load (i32.const 128))))
            (drop (call $release (i32.load (i32.const 128))))
            (i64.extend_i32_s (i32.ne (i32.load (i32.const 128)) (i32.load (i32.const 132)))))"#,
    );
    let (mut instance, memory) = with_memory(&body);
    instance.run(only(0));
    assert_eq!((answers(&mut instance), memory.now()), (vec![1], 1));
}

#[test]
fn kept_packets_are_limited_in_number() {
    // The manifest asks for 4.
    let (mut instance, memory) = with_memory(&emitting(KEEP));
    instance.run(BatchInput { mask: 0xff, ..all() });
    let all = answers(&mut instance);
    assert!(all[..4].iter().all(|handle| *handle >= 0));
    assert_eq!((&all[4..], memory.now()), (&[i64::from(code::FULL); 4][..], 4));
    assert_eq!(instance.kept(), Bytes(2 * 250));
}

fn admitted(body: &str, manifest: &str, profile: &str) -> Admitted {
    let terms = CalibratedProfile::from(Profile::parse(profile).unwrap());
    Admitted::admit_by(support::bytes(&support::wat(body), manifest), &[], &terms).unwrap()
}

fn started_as(engine: &Engine, manifest: &str, profile: &str) -> (Instance, Memory) {
    let program = engine.load(admitted(&emitting(KEEP), manifest, profile)).unwrap();
    let (mut instance, memory) = (Instance::start(engine, &program).unwrap(), Memory::default());
    Packets::new().map(&mut instance);
    memory.keep_for(&mut instance);
    (instance, memory)
}

#[test]
fn profile_and_manifest_limit_kept_packets_and_no_module_has_more_than_half() {
    let engine = engine();
    let (mut instance, memory) = started_as(&engine, MANIFEST, "keep = 1");
    instance.run(BatchInput { mask: 0b11, ..all() });
    assert_eq!((answers(&mut instance)[1], memory.now()), (code::FULL.into(), 1));

    for (manifest, profile) in [(MANIFEST, "keep = 0"), (&MANIFEST.replace("keep = 4", "keep = 0"), "")] {
        let (mut instance, memory) = started_as(&engine, manifest, profile);
        instance.run(only(0));
        assert_eq!((answers(&mut instance), memory.now()), (vec![code::DENIED.into()], 0));
    }

    // Half of the 8 pieces, each with two and a half packets.
    let (mut instance, memory) = started_as(&engine, &MANIFEST.replace("keep = 4", "keep = 1000"), "");
    instance.run(all());
    assert_eq!((memory.now(), instance.kept()), (10, Bytes(4 * 250)));
    assert!(answers(&mut instance)[10..].iter().all(|answer| *answer == i64::from(code::FULL)));
}

#[test]
fn the_modules_of_a_session_share_its_limit_of_kept_packets() {
    let engine = engine();
    let together = KeptPackets::new(Some(3));
    let memory = Memory::default();
    let mut instances: Vec<Instance> = (0..2)
        .map(|_| {
            let program = engine.load(admitted(&emitting(KEEP), MANIFEST, "")).unwrap();
            let context = InstanceContext { kept: Some(Arc::clone(&together)), ..InstanceContext::default() };
            let mut instance = Instance::start_with(&engine, &program, context).unwrap();
            Packets::new().map(&mut instance);
            memory.keep_for(&mut instance);
            instance
        })
        .collect();
    // Each may keep 4.
    for instance in &mut instances {
        instance.run(BatchInput { mask: 0b11, ..all() });
    }
    let full = i64::from(code::FULL);
    assert!(answers(&mut instances[0]).iter().all(|handle| *handle >= 0));
    assert_eq!(answers(&mut instances[1])[1], full);
    assert_eq!((together.state().kept, together.state().refused, memory.now()), (3, 1, 3));
    // Packets of a dropped module are released for others.
    drop(instances.remove(0));
    assert_eq!((together.state().kept, memory.now()), (1, 1));
    instances[0].run(BatchInput { mask: 0b1111, ..all() });
    assert_eq!(answers(&mut instances[0])[2..], [full; 2]);
    // So they are when the pinner is replaced.
    memory.keep_for(&mut instances[0]);
    assert_eq!((together.state().kept, memory.now()), (0, 0));
}

#[test]
fn kept_packets_count_as_memory() {
    let engine = engine();
    let manifest = MANIFEST.replace("memory = '2 MiB'", "memory = '65786'").replace("keep = 4", "keep = 9");
    // A page and one piece.
    let (mut instance, memory) = started_as(&engine, &manifest, "");
    instance.run(BatchInput { mask: 0xf, ..all() });
    assert_eq!((memory.now(), instance.kept()), (2, Bytes(250)));
    assert_eq!(answers(&mut instance)[2..], [i64::from(code::FULL); 2]);

    // A module with two pages and 100 bytes can keep a piece or have the second page.
    let body = format!(
        r#"{} (func (export "weir_tick") (param i64 i64)
            (i64.store (i32.const 64) (i64.extend_i32_s (memory.grow (i32.const 1))))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8))))"#,
        emitting(KEEP)
    );
    let manifest = MANIFEST.replace("memory = '2 MiB'", "memory = '131172'");
    let mut grown = Vec::new();
    for keeps in [true, false] {
        let program = engine.load(admitted(&body, &manifest, "")).unwrap();
        let (mut instance, memory) = (Instance::start(&engine, &program).unwrap(), Memory::default());
        Packets::new().map(&mut instance);
        memory.keep_for(&mut instance);
        if keeps {
            instance.run(only(0));
            assert_eq!((answers(&mut instance), memory.now()), (vec![0], 1));
        }
        instance.tick(Timestamp(1), 1, 0);
        grown.push(answers(&mut instance)[0]);
    }
    assert_eq!(grown, [-1, 1]);
}

#[test]
fn a_lost_call_keeps_nothing() {
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
            (drop (call $keep (local.get $d)))
            (if (i32.eq (i32.load offset=60 (local.get $d)) (i32.const 1)) (then (unreachable)))
            (i32.const 0))"#;
    let (mut instance, memory) = with_memory(body);
    instance.run(BatchInput { mask: 0b111, ..all() });
    assert_eq!((memory.now(), instance.counters().lost), (2, 1));

    // Packets that it released before the loss stay released.
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
            (if (i32.eq (i32.load offset=60 (local.get $d)) (i32.const 1))
                (then (drop (call $release (i32.load (i32.const 128)))) (unreachable)))
            (i32.store (i32.const 128) (call $keep (local.get $d)))
            (i32.const 0))"#;
    let (mut instance, memory) = with_memory(body);
    instance.run(BatchInput { mask: 0b11, ..all() });
    assert_eq!((memory.now(), instance.kept()), (0, Bytes(0)));
}

#[test]
fn an_aborted_call_keeps_nothing() {
    let engine = engine();
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
            (drop (call $keep (local.get $d)))
            (if (i32.eq (i32.load offset=60 (local.get $d)) (i32.const 1)) (then (loop (br 0))))
            (i32.const 0))"#;
    let program = engine.load_suspendable(admitted(body, MANIFEST, "")).unwrap();
    let (mut instance, memory) = (Instance::make(&engine, &program).unwrap(), Memory::default());
    Packets::new().map(&mut instance);
    memory.keep_for(&mut instance);
    let budget = FuelSlice { fuel: 1_000_000, until: None };
    assert_eq!(instance.begin(Call::Start, budget), CallStep::Done(0));
    assert_eq!(instance.begin(Call::Batch(BatchInput { mask: 0b11, ..all() }), budget), CallStep::Suspended);
    assert!(instance.set_packet_pinner(None).is_err(), "nothing changes under a suspended call");
    assert_eq!((memory.now(), instance.kept()), (2, Bytes(250)), "that is seen from outside, too");
    instance.abort();
    assert_eq!(memory.now(), 1);
    drop(instance);
    assert_eq!(memory.now(), 0);
}

#[test]
fn a_module_that_has_ended_keeps_nothing_on_any_thread() {
    let engine = engine();
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
            (drop (call $keep (local.get $d)))
            (if (i32.ge_u (i32.load offset=60 (local.get $d)) (i32.const 60)) (then (loop (br 0))))
            (i32.const 0))"#;
    let program = engine.load(admitted(body, MANIFEST, "packet = '10us'\nstrikes = 2")).unwrap();
    let memory = Memory::default();
    let [mut one, mut other] = [0, 1].map(|_| {
        let mut instance = Instance::start(&engine, &program).unwrap();
        Packets::new().map(&mut instance);
        memory.keep_for(&mut instance);
        instance.run(only(0));
        instance
    });
    assert_eq!(memory.now(), 2);
    one.run(BatchInput { mask: 0b11 << 60, ..all() });
    assert!(one.has_ended() && other.has_ended());
    assert_eq!(memory.now(), 1);
    other.run(only(0));
    assert_eq!(memory.now(), 0);
}

#[test]
fn only_the_current_packet_can_be_kept_and_only_with_a_pinner() {
    let at = |descriptor: u32| {
        let keep = format!("(i64.extend_i32_s (call $keep (i32.const {})))", descriptor.cast_signed());
        let (mut instance, memory) = with_memory(&emitting(&keep));
        instance.run(BatchInput { mask: 0b11, ..all() });
        (answers(&mut instance), memory.now())
    };
    let when = i64::from(code::WHEN);
    assert_eq!(at(DESCRIPTORS_BASE), (vec![0, when], 1));
    let bytes = u32::try_from(weir_abi::DESCRIPTOR_BYTES).unwrap();
    let beside =
        [DESCRIPTORS_BASE + 2 * bytes, DESCRIPTORS_BASE + 1, DESCRIPTORS_BASE + 64, DESCRIPTORS_BASE - bytes];
    for forged in [0, 64, u32::MAX - 63].into_iter().chain(beside) {
        assert_eq!(at(forged), (vec![when, when], 0), "{forged:#x}");
    }

    let mut nobody = started(&engine(), &emitting(KEEP));
    nobody.run(only(0));
    assert_eq!(answers(&mut nobody), [i64::from(code::DENIED)]);

    let body = format!(
        r#"{} (func (export "weir_tick") (param i64 i64)
            (i64.store (i32.const 64) (i64.extend_i32_s (call $keep (i32.const {}))))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8))))"#,
        emitting(KEEP),
        DESCRIPTORS_BASE.cast_signed()
    );
    let (mut instance, memory) = with_memory(&body);
    instance.tick(Timestamp(1), 1, 0);
    assert_eq!((answers(&mut instance), memory.now()), (vec![when], 0));
}

#[test]
fn a_new_mapping_releases_packets_kept_of_the_old_one() {
    let (mut instance, memory) = with_memory(&releasing("(i32.load (i32.const 128))"));
    instance.run(only(0));
    assert_eq!(memory.now(), 1);
    let packets = Packets::new();
    packets.map(&mut instance);
    assert_eq!((memory.now(), instance.kept()), (0, Bytes(0)));
    instance.run(only(2));
    assert_eq!(answers(&mut instance)[1], i64::from(code::UNKNOWN));
    // No packet of the new mapping is kept before a pinner is set.
    instance.run(only(1));
    assert_eq!(answers(&mut instance), [i64::from(code::DENIED)]);
}

#[test]
fn a_module_that_keeps_and_releases_for_ever_holds_only_its_kept_packets() {
    let body = emitting(
        "(i64.extend_i32_s (i32.or (call $release (call $keep (local.get $d))) (call $release (i32.const 7))))",
    );
    let (mut instance, memory) = with_memory(&body);
    for _ in 0..5_000 {
        instance.run(BatchInput { mask: 0xffff, ..all() });
        assert_eq!(memory.now(), 0);
        support::values(&mut instance);
    }
    assert_eq!(instance.counters().faults, 0);
}
