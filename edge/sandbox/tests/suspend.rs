//! Calls that are suspended and resumed have the same effects as calls that are not.

use crate::oracle::generate;
use crate::soundness_exact::loops_module;
use crate::support::{MANIFEST, Packets, all, alone, at_packet, bytes, emitting, values, wat};
use crate::support::{options, tests_llvm};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::time::Duration;
use weir_sandbox::{
    Area, BackEnd, BatchInput, Call, CallStep, CheckMode, During, Engine, EngineOptions, FaultKind,
    FuelSlice, Instance, InstanceCounters, LoadedModule,
};
use weir_units::{Nanos, Timestamp};
use {
    weir_admission::{Admitted, CalibratedProfile, Profile, Tier},
    weir_session::{RecordOrder, Records},
};

/// Fuel per nanosecond without a calibration.
const FUEL_PER_NANOSECOND: u64 = 4;

/// The limit of each packet, tick, start and stop, in nanoseconds.
const LIMIT: u64 = 50_000;

/// The limit of a call in fuel, with exact counting.
const EXACT: u64 = LIMIT * FUEL_PER_NANOSECOND;

fn profile(tier: Tier) -> Profile {
    let most = Nanos(LIMIT);
    Profile {
        tiers: vec![tier],
        packet: most,
        per_byte: Nanos(0),
        tick: most,
        start: most,
        stop: most,
        ..Profile::default()
    }
}

fn admitted(bytes: Vec<u8>, tier: Tier) -> Option<Admitted> {
    Admitted::admit_by(bytes, &[], &CalibratedProfile::from(profile(tier))).ok()
}

/// An engine that runs every module as in this tier. Its time limit does not matter.
fn engine(tier: Tier) -> Engine {
    let call_limit = Duration::from_secs(60);
    Engine::new(EngineOptions { check_mode: CheckMode::As(tier), call_limit, ..options() }, None).unwrap()
}

fn loaded(engine: &Engine, body: &str) -> LoadedModule {
    engine.load_suspendable(admitted(bytes(&wat(body), MANIFEST), Tier::Metered).unwrap()).unwrap()
}

/// A module whose calls cannot be suspended.
fn plain(engine: &Engine, body: &str) -> LoadedModule {
    engine.load(admitted(bytes(&wat(body), MANIFEST), Tier::Metered).unwrap()).unwrap()
}

fn started(engine: &Engine, body: &str) -> Instance {
    on_packets(engine, &loaded(engine, body))
}

fn on_packets(engine: &Engine, program: &LoadedModule) -> Instance {
    let mut instance = Instance::start(engine, program).unwrap();
    assert!(!instance.has_ended(), "{:?}", instance.incidents());
    Packets::new().map(&mut instance);
    instance
}

fn exact() -> Engine {
    Engine::new(
        EngineOptions {
            check_mode: CheckMode::Exact(EXACT),
            call_limit: Duration::from_secs(60),
            ..options()
        },
        None,
    )
    .unwrap()
}

fn fuel(fuel: u64) -> FuelSlice {
    FuelSlice { fuel, until: None }
}

/// Makes a call in slices of the given sizes. Returns the dropped packets and the number of suspensions.
fn in_slices(instance: &mut Instance, call: Call, mut size: impl FnMut() -> u64) -> (u64, usize) {
    let mut step = instance.begin(call, fuel(size()));
    for suspended in 0.. {
        match step {
            CallStep::Done(drops) => return (drops, suspended),
            CallStep::Suspended => step = instance.resume(fuel(size())),
        }
    }
    unreachable!("the numbers do not end")
}

fn tick() -> Call {
    Call::Tick { now: Timestamp(5), periods: 1, before: 0 }
}

/// The emitted records: position in the block, stream and bytes.
fn emitted(instance: &mut Instance) -> Vec<(RecordOrder, u16, Vec<u8>)> {
    let records = instance.take_records(Records::default());
    records.iter().map(|r| (r.order, r.stream, [r.row, r.tail].concat())).collect()
}

fn kinds(instance: &Instance) -> Vec<(FaultKind, During)> {
    instance.incidents().iter().map(|incident| (incident.fault.kind, incident.during)).collect()
}

/// All observable effects of a module.
#[derive(Debug, PartialEq)]
struct Shown {
    drops: Vec<u64>,
    records: Vec<(RecordOrder, u16, Vec<u8>)>,
    patches: Vec<weir_sandbox::Patch>,
    counters: InstanceCounters,
    faults: Vec<(FaultKind, During)>,
    fuel: Vec<Option<u64>>,
    memory: u64,
}

/// Makes a call that is not suspended.
fn to_completion(instance: &mut Instance, call: Call) -> u64 {
    match instance.begin(call, FuelSlice::UNLIMITED) {
        CallStep::Done(drops) => drops,
        CallStep::Suspended => panic!("suspended"),
    }
}

/// Starts a module, gives it two batches and two ticks, and stops it. `act` makes the calls.
fn life(
    engine: &Engine,
    program: &LoadedModule,
    packets: &Packets,
    mut act: impl FnMut(&mut Instance, Call) -> u64,
) -> Shown {
    let mut instance = Instance::make(engine, program).unwrap();
    packets.map(&mut instance);
    let mut shown = Shown {
        drops: Vec::new(),
        records: Vec::new(),
        patches: Vec::new(),
        counters: InstanceCounters::default(),
        faults: Vec::new(),
        fuel: Vec::new(),
        memory: 0,
    };
    let some = BatchInput { mask: 0x8000_0000_0f0f_0005, first: 64, ..all() };
    for call in
        [Call::Start, Call::Batch(all()), tick(), Call::Batch(some), tick(), Call::Stop { now: Timestamp(9) }]
    {
        shown.drops.push(act(&mut instance, call));
        let is_lost = instance.counters().faults > shown.counters.faults;
        // Memory after a trap is not compared, nor that of a module that never ran.
        shown.fuel.push(instance.fuel_used().filter(|_| !is_lost && !instance.has_ended()));
        shown.counters = instance.counters();
    }
    shown.records = emitted(&mut instance);
    shown.patches = instance.take_patches();
    shown.faults = kinds(&instance);
    shown.memory = instance.memory().0;
    shown
}

#[test]
fn an_endless_loop_is_aborted_at_its_limit_however_often_it_is_suspended() {
    // A loop with the counter in a local, one with a call in it, and one that calls the host.
    for act in [
        "(loop (br 0))",
        "(loop (call $twice) (br 0))",
        "(loop (drop (call $hash (i32.const 0) (i32.const 8) (i64.const 1))) (br 0))",
    ] {
        let body = format!("(func $twice (drop (i32.const 1)))\n{}", at_packet(20, act));
        for engine in [engine(Tier::Metered), exact()] {
            let mut unsuspended = on_packets(&engine, &plain(&engine, &body));
            assert_eq!(unsuspended.run(all()), 0);
            assert_eq!(kinds(&unsuspended), [(FaultKind::Limit, During::Packet(20))]);
            let used = unsuspended.fuel_used();
            let mut instance = started(&engine, &body);
            let (drops, suspended) = in_slices(&mut instance, Call::Batch(all()), || 20);
            assert_eq!(drops, 0);
            assert!(suspended > 1_000, "{suspended}");
            assert_eq!(
                (kinds(&instance), instance.counters()),
                (kinds(&unsuspended), unsuspended.counters()),
                "{act}"
            );
            assert_eq!(instance.fuel_used(), used);
            instance.stop(Timestamp(0));
            assert_eq!(values(&mut instance), [63]);
        }
    }
}

#[test]
fn a_suspended_call_is_aborted_after_as_many_trips_as_an_unsuspended_one() {
    // The count in memory shows the trips before the abort.
    let body = r#"(func (export "weir_packet") (param i32) (result i32)
            (loop (i64.store (i32.const 0) (i64.add (i64.load (i32.const 0)) (i64.const 1))) (br 0)) (i32.const 0))
        (func (export "weir_tick") (param i64 i64) (drop (call $emit (i32.const 0) (i32.const 0) (i32.const 8))))"#;
    let engine = engine(Tier::Metered);
    let one = Call::Batch(BatchInput { mask: 1, ..all() });
    let trips = |size: u64| {
        let mut instance = started(&engine, body);
        let (_, suspended) = in_slices(&mut instance, one, || size);
        instance.tick(Timestamp(0), 1, 1);
        assert_eq!(kinds(&instance), [(FaultKind::Limit, During::Packet(0))]);
        (values(&mut instance), suspended)
    };
    let (unsuspended, never) = trips(u64::MAX);
    assert_eq!(never, 0);
    assert!(unsuspended[0] > 1_000);
    for size in [1, 7, 100, 9_999] {
        let (counted, suspended) = trips(size);
        assert_eq!(counted, unsuspended, "{size}");
        assert!(suspended as u64 >= EXACT / size.max(100) / 2, "{size}: {suspended}");
    }
}

/// Each packet emits its number three times, with long work between; odd ones are dropped.
fn emitter(between: &str) -> String {
    format!(
        r#"(func (export "weir_packet") (param $d i32) (result i32) (local $n i32) (local $k i32)
            (loop $again
                (i64.store (i32.const 64) (i64.load32_u offset=60 (local.get $d)))
                (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
                {between}
                (br_if $again (i32.lt_u (local.tee $k (i32.add (local.get $k) (i32.const 1))) (i32.const 3))))
            (i32.and (i32.load offset=60 (local.get $d)) (i32.const 1)))"#
    )
}

const SOME_TRIPS: &str = "(local.set $n (i32.const 0))
    (loop $l (br_if $l (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.load (i32.const 128)))))";

#[test]
fn suspension_neither_loses_nor_repeats_records() {
    let body = format!("(data (i32.const 128) \"\\40\")\n{}", emitter(SOME_TRIPS));
    for tier in [Tier::Metered, Tier::Supervised, Tier::Proved] {
        let engine = engine(tier);
        let mut instance = started(&engine, &body);
        let (drops, suspended) = in_slices(&mut instance, Call::Batch(all()), || 50);
        assert_eq!(drops, 0xaaaa_aaaa_aaaa_aaaa);
        assert!(suspended > 500, "{suspended}");
        let expected: Vec<u64> = (0..64).flat_map(|n| [n; 3]).collect();
        assert_eq!(values(&mut instance), expected);
        assert_eq!((instance.counters().packets, instance.counters().exceeded), (64, 0));
    }
}

#[test]
fn suspension_does_not_change_how_often_a_supervised_module_exceeds_its_limit() {
    let engine = engine(Tier::Supervised);
    // Packet 20 makes a hundred times the allowed trips.
    let body = at_packet(
        20,
        "(loop $l (i64.store (i32.const 128) (i64.add (i64.load (i32.const 128)) (i64.const 1)))
            (br_if $l (i64.lt_u (i64.load (i32.const 128)) (i64.const 1000000))))",
    );
    let mut unsuspended = on_packets(&engine, &plain(&engine, &body));
    unsuspended.run(all());
    assert_eq!((unsuspended.counters().packets, unsuspended.counters().exceeded), (64, 1));
    for size in [3_000, 100_000] {
        let mut instance = started(&engine, &body);
        let (_, suspended) = in_slices(&mut instance, Call::Batch(all()), || size);
        assert!(suspended > 30, "{suspended}");
        assert_eq!(instance.counters(), unsuspended.counters());
        instance.stop(Timestamp(0));
        assert_eq!(values(&mut instance), [64]);
    }
}

#[test]
fn many_short_packets_use_up_a_slice() {
    for tier in [Tier::Metered, Tier::Supervised, Tier::Proved] {
        let engine = engine(tier);
        // Only the entry is charged in these.
        let mut instance = started(&engine, &at_packet(99, ""));
        let (_, suspended) = in_slices(&mut instance, Call::Batch(all()), || 1);
        assert_eq!(suspended, 64, "{tier:?}: once for each packet");
        instance.stop(Timestamp(0));
        assert_eq!(values(&mut instance), [64]);
    }
}

#[test]
fn every_call_can_be_suspended_at_every_charge() {
    let busy = |value: u32| {
        format!(
            "(local.set $n (i32.const 0))
            (loop $l (br_if $l (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.load (i32.const 128)))))
            (i64.store (i32.const 64) (i64.const {value})) (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))"
        )
    };
    // Recursion, nested calls with loops in them, bulk operations, memory that grows between; start, stop, and the
    // calls for lost packets.
    let body = format!(
        r#"(data (i32.const 128) "\20")
        (func $down (param $k i32) (result i32) (local $n i32)
            {}
            (if (result i32) (local.get $k)
                (then (i32.add (i32.const 1) (call $down (i32.sub (local.get $k) (i32.const 1)))))
                (else (i32.const 0))))
        (func $start (export "weir_start") (result i32) (local $n i32) {} (i32.const 0))
        (func (export "weir_packet") (param $d i32) (result i32) (local $n i32)
            (if (i32.eq (i32.load offset=60 (local.get $d)) (i32.const 9)) (then {} (unreachable)))
            (memory.fill (i32.const 1024) (i32.load offset=60 (local.get $d)) (i32.const 3000))
            (if (i32.eqz (i32.load offset=60 (local.get $d)))
                (then (drop (memory.grow (i32.const 1))) (i64.store (i32.const 65536) (i64.const 7))))
            (drop (call $down (i32.const 3)))
            (i64.store (i32.const 64) (i64.add (i64.load (i32.const 65536)) (i64.load (i32.const 1024))))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
            (i32.const 0))
        (func (export "weir_tick") (param i64 i64) (local $n i32) {})
        (func (export "weir_lost") (param i32) (local $n i32) {})
        (func (export "weir_stop") (param i64) (local $n i32) {})"#,
        busy(1),
        busy(2),
        busy(3),
        busy(4),
        busy(5),
        busy(6)
    );
    for tier in [Tier::Metered, Tier::Supervised, Tier::Proved] {
        let engine = engine(tier);
        let program = loaded(&engine, &body);
        let packets = Packets::new();
        let unsuspended = life(&engine, &plain(&engine, &body), &packets, to_completion);
        assert_eq!(life(&engine, &program, &packets, to_completion), unsuspended);
        assert_eq!(
            (unsuspended.counters.lost, unsuspended.counters.faults),
            (1, 1),
            "{:?}",
            unsuspended.faults
        );
        assert_eq!(unsuspended.memory, 3 << 16);
        for size in [1, 40, 333] {
            let mut times = Vec::new();
            let sliced = life(&engine, &program, &packets, |instance, call| {
                let (drops, suspended) = in_slices(instance, call, || size);
                times.push(suspended);
                drops
            });
            assert_eq!(sliced, unsuspended, "{tier:?}, {size}");
            assert!(size > 1 || times.iter().all(|suspended| *suspended > 3), "{times:?}");
        }
    }
}

#[test]
fn a_trap_after_a_resume_loses_exactly_its_packet() {
    let engine = engine(Tier::Metered);
    let act = format!("{SOME_TRIPS} (unreachable)").replace("$n", "$d").replace("$l", "$m");
    let body = format!("(data (i32.const 128) \"\\40\\1f\")\n{}", at_packet(20, &act));
    let mut instance = started(&engine, &body);
    let (_, suspended) = in_slices(&mut instance, Call::Batch(all()), || 1_000);
    assert!(suspended > 3, "{suspended}");
    assert_eq!(kinds(&instance), [(FaultKind::Unreachable, During::Packet(20))]);
    instance.stop(Timestamp(0));
    assert_eq!(values(&mut instance), [63]);
}

#[test]
fn a_stack_overflow_is_detected_on_a_fiber_too() {
    let engine = engine(Tier::Metered);
    let body = format!(
        "(func $deep (param i32) (result i32) (i32.add (i32.const 1) (call $deep (local.get 0))))\n{}",
        at_packet(20, "(drop (call $deep (i32.const 0)))")
    );
    let profile = Profile { packet: Nanos(100_000_000), ..profile(Tier::Metered) };
    let terms = CalibratedProfile::from(profile);
    let admitted = Admitted::admit_by(bytes(&wat(&body), MANIFEST), &[], &terms).unwrap();
    let mut instance = on_packets(&engine, &engine.load_suspendable(admitted).unwrap());
    let (_, suspended) = in_slices(&mut instance, Call::Batch(all()), || 1_000);
    assert!(suspended > 3, "{suspended}");
    assert_eq!(kinds(&instance), [(FaultKind::StackOverflow, During::Packet(20))]);
    assert_eq!((instance.counters().packets, instance.counters().lost), (63, 1));
}

/// A tick that sweeps a table and emits what it finds: proved, and long.
const SWEEP: &str = r#"(func (export "weir_packet") (param i32) (result i32) (i32.const 0))
    (func (export "weir_tick") (param i64 i64) (local $n i32)
        (loop $l
            (if (i32.eqz (i32.and (local.get $n) (i32.const 0x1fff)))
                (then (i64.store (i32.const 64) (i64.extend_i32_u (local.get $n)))
                    (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))))
            (i32.store offset=4096 (i32.and (i32.shl (local.get $n) (i32.const 2)) (i32.const 0xfff)) (local.get $n))
            (br_if $l (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 65536)))))"#;

#[test]
fn a_long_proved_tick_can_be_suspended_with_the_same_result() {
    let engine = Engine::new(options(), None).unwrap();
    let long = Profile { tick: Nanos(100_000_000), ..profile(Tier::Proved) };
    let terms = CalibratedProfile::from(long);
    let admitted = || Admitted::admit_by(bytes(&wat(SWEEP), MANIFEST), &[], &terms).unwrap();
    assert_eq!(admitted().tier(), Tier::Proved);
    let mut plain = Instance::start(&engine, &engine.load(admitted()).unwrap()).unwrap();
    plain.tick(Timestamp(5), 1, 0);
    let program = engine.load_suspendable(admitted()).unwrap();
    assert!(program.is_suspendable());
    let mut instance = Instance::start(&engine, &program).unwrap();
    let (_, suspended) = in_slices(&mut instance, tick(), || 10_000);
    assert!(suspended > 20, "{suspended}");
    let records = emitted(&mut plain);
    assert_eq!(records.len(), 8);
    assert_eq!(emitted(&mut instance), records);
    assert_eq!(instance.counters(), plain.counters());
    // It is not charged, so it does not read the poll page.
    let text = String::from_utf8_lossy(&engine.rewritten_suspendable(&admitted()).unwrap()).into_owned();
    assert!(text.contains("suspend") && !text.contains("weir_allowance_excess"));
}

#[test]
fn an_endless_proved_call_is_interrupted_though_it_is_suspended() {
    let options = EngineOptions {
        check_mode: CheckMode::As(Tier::Proved),
        call_limit: Duration::from_millis(2),
        ..options()
    };
    let engine = Engine::new(options, None).unwrap();
    let little = Nanos(1_000);
    let profile = Profile { packet: little, per_byte: Nanos(0), ..Profile::default() };
    let terms = CalibratedProfile::from(profile);
    let body = at_packet(20, "(loop (br 0))");
    let admitted = Admitted::admit_by(bytes(&wat(&body), MANIFEST), &[], &terms).unwrap();
    let mut instance = on_packets(&engine, &engine.load_suspendable(admitted).unwrap());
    let (_, suspended) = in_slices(&mut instance, Call::Batch(all()), || 100_000);
    assert!(suspended > 10, "{suspended}");
    assert_eq!(kinds(&instance), [(FaultKind::TimeOverrun, During::Packet(20))]);
    assert!(instance.has_ended());
}

#[test]
fn a_call_that_takes_too_long_in_slices_is_aborted_and_later_packets_get_slices() {
    let call_limit = Duration::from_millis(2);
    let engine = Engine::new(EngineOptions { call_limit, ..options() }, None).unwrap();
    let profile = Profile { packet: Nanos(1 << 40), ..profile(Tier::Metered) };
    let terms = CalibratedProfile::from(profile);
    let body = at_packet(20, "(loop (br 0))");
    let admitted = Admitted::admit_by(bytes(&wat(&body), MANIFEST), &[], &terms).unwrap();
    let mut instance = on_packets(&engine, &engine.load_suspendable(admitted).unwrap());
    let (mut before, mut after) = (0, 0);
    let mut step = instance.begin(Call::Batch(all()), fuel(1 << 17));
    while step == CallStep::Suspended {
        let is_lost = !instance.incidents().is_empty();
        *(if is_lost { &mut after } else { &mut before }) += 1;
        step = instance.resume(fuel(if is_lost { 1 } else { 1 << 17 }));
    }
    assert_eq!(kinds(&instance), [(FaultKind::TimeOut, During::Packet(20))]);
    assert!(before > 3 && after == 44, "{before}, {after}");
    assert_eq!(instance.counters().packets, 63);
}

#[test]
fn time_during_suspension_is_not_counted() {
    let options = EngineOptions { call_limit: Duration::from_millis(30), ..options() };
    let engine = Engine::new(options, None).unwrap();
    let body = format!("(data (i32.const 128) \"\\00\\04\")\n{}", emitter(SOME_TRIPS));
    let mut instance = started(&engine, &body);
    let mut step = instance.begin(Call::Batch(BatchInput { mask: 1, ..all() }), fuel(1_000));
    let mut suspended = 0;
    while step == CallStep::Suspended {
        if suspended < 5 {
            std::thread::sleep(Duration::from_millis(20));
        }
        suspended += 1;
        step = instance.resume(fuel(1_000));
    }
    assert!(suspended > 10, "{suspended}");
    assert_eq!((kinds(&instance), values(&mut instance)), (vec![], vec![0, 0, 0]));
}

#[test]
fn a_slice_with_an_end_time_ends_by_the_clock() {
    let engine = engine(Tier::Metered);
    let body = format!("(data (i32.const 128) \"\\00\\04\")\n{}", emitter(SOME_TRIPS));
    let batch = Call::Batch(BatchInput { mask: 1, ..all() });
    let mut instance = started(&engine, &body);
    let far = weir_sandbox::Cycles(u64::MAX);
    assert_eq!(instance.begin(batch, FuelSlice { fuel: 100, until: Some(far) }), CallStep::Done(0));
    let now = weir_sandbox::Cycles::now();
    assert_eq!(instance.begin(batch, FuelSlice { fuel: 100, until: Some(now) }), CallStep::Suspended);
    assert_eq!(instance.resume(FuelSlice { fuel: 100, until: Some(far) }), CallStep::Done(0));
    assert_eq!(values(&mut instance).len(), 6);
}

/// An instance whose packet 20 is suspended.
fn suspended(engine: &Engine, program: &LoadedModule) -> Instance {
    let mut instance = Instance::start(engine, program).unwrap();
    Packets::new().map(&mut instance);
    assert_eq!(instance.begin(Call::Batch(all()), fuel(50_000)), CallStep::Suspended);
    instance
}

fn endless_at_20() -> String {
    emitting("(i64.load32_u offset=60 (local.get $d))")
        .replace("(i32.const 0))", "(if (i32.eq (i32.load offset=60 (local.get $d)) (i32.const 20)) (then (loop (br 0)))) (i32.const 0))")
}

#[test]
fn an_aborted_call_loses_its_packet_and_those_after_it() {
    let engine = engine(Tier::Metered);
    let program = loaded(&engine, &endless_at_20());
    let mut instance = suspended(&engine, &program);
    assert!(instance.is_suspended());
    // Nothing can be changed or taken meanwhile, but the past effects are visible.
    let file = std::fs::File::open("/dev/zero").unwrap();
    let area = Area { fd: file.as_fd(), offset: 0, len: 4096, is_fixed: false };
    assert_eq!(instance.map_packets(area).unwrap_err().kind(), ErrorKind::ResourceBusy);
    assert_eq!(instance.map_descriptors(area).unwrap_err().kind(), ErrorKind::ResourceBusy);
    assert!(values(&mut instance).is_empty());
    assert_eq!(instance.memory().0, 1 << 16);
    assert_eq!(instance.abort(), 0);
    assert!(!instance.is_suspended() && !instance.has_ended());
    let counters = instance.counters();
    assert_eq!((counters.packets, counters.lost, counters.faults, counters.strikes), (20, 44, 0, 0));
    assert_eq!(values(&mut instance), (0..20).collect::<Vec<_>>());
    assert_eq!(instance.abort(), 0);
    // The sandbox is in the state after any lost call.
    instance.run(BatchInput { mask: 0b11, ..all() });
    assert_eq!(values(&mut instance), [0, 1]);
}

#[test]
fn a_suspended_call_is_completed_before_another_begins() {
    let engine = engine(Tier::Metered);
    let program = loaded(&engine, &endless_at_20());
    let mut instance = suspended(&engine, &program);
    assert_eq!(instance.run(BatchInput { mask: 0b11, ..all() }), 0);
    assert_eq!(kinds(&instance), [(FaultKind::Limit, During::Packet(20))]);
    let expected: Vec<u64> = (0..64).filter(|n| *n != 20).chain([0, 1]).collect();
    assert_eq!(values(&mut instance), expected);
}

#[test]
fn a_suspended_call_may_be_resumed_or_dropped_on_another_thread() {
    let engine = engine(Tier::Metered);
    let body = format!("(data (i32.const 128) \"\\40\")\n{}", emitter(SOME_TRIPS));
    let mut instance = started(&engine, &body);
    let mut step = instance.begin(Call::Batch(all()), fuel(5_000));
    let mut threads = 0;
    while step == CallStep::Suspended {
        threads += 1;
        (instance, step) = std::thread::spawn(move || {
            let step = instance.resume(fuel(5_000));
            (instance, step)
        })
        .join()
        .unwrap();
    }
    assert!(threads > 3, "{threads}");
    assert_eq!(values(&mut instance), (0..64).flat_map(|n| [n; 3]).collect::<Vec<_>>());
    let program = loaded(&engine, &endless_at_20());
    let waiting = suspended(&engine, &program);
    std::thread::spawn(move || drop(waiting)).join().unwrap();
    // Traps are still caught on both threads.
    instance.run(all());
    assert_eq!(instance.counters().packets, 128);
}

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().count()
}

#[test]
fn a_thousand_suspended_calls_take_few_pages_each_and_are_freed() {
    if !alone("suspend::a_thousand_suspended_calls_take_few_pages_each_and_are_freed") {
        return;
    }
    let engine = engine(Tier::Metered);
    let program = loaded(&engine, &endless_at_20());
    let idle: Vec<Instance> = (0..1_000).map(|_| Instance::start(&engine, &program).unwrap()).collect();
    drop(idle);
    let (memory, maps) = (resident(), mappings());
    for _ in 0..2 {
        let all: Vec<Instance> = (0..1_000).map(|_| suspended(&engine, &program)).collect();
        let each = resident().saturating_sub(memory) / 1_000;
        println!("{each} bytes and {} mappings for each", (mappings() - maps) / 1_000);
        assert!(each < 64 << 10, "{each} bytes for each instance");
        drop(all);
    }
    assert!(mappings() < maps + 100, "{} mappings, {maps} before", mappings());
}

#[test]
fn generated_modules_do_the_same_in_slices_of_any_size() {
    let engines = [
        (engine(Tier::Metered), Tier::Metered),
        (engine(Tier::Supervised), Tier::Supervised),
        (engine(Tier::Proved), Tier::Proved),
        (exact(), Tier::Metered),
    ];
    let packets = Packets::new();
    let (mut modules, mut in_llvm, mut times, mut lost, mut records) = (0, 0, 0, 0, 0);
    // Each module is compiled eight times, and LLVM takes longer.
    let seeds = if tests_llvm() { 60 } else { 600_u64 };
    let texts = (0..seeds).map(|seed| (seed, loops_module(&generate::bytes(seed, 300))));
    // Few of those emit records, so more of these do.
    for (seed, text) in texts.filter(|(seed, text)| *seed < 100 || text.contains("(call $emit")) {
        for (engine, tier) in &engines {
            let admitted = || admitted(generate::assembled(&text), *tier);
            let Some(module) = admitted() else { continue };
            let unsuspended = life(engine, &engine.load(module).unwrap(), &packets, to_completion);
            let program = engine.load_suspendable(admitted().unwrap()).unwrap();
            let mut random = generate::bytes(seed, 1 << 12).into_iter().cycle();
            let largest = [10, 200, 10_000][usize::try_from(seed % 3).unwrap()];
            let sliced = life(engine, &program, &packets, |instance, call| {
                let size = || 1 + u64::from(random.next().unwrap()) * largest / 256;
                let (drops, suspended) = in_slices(instance, call, size);
                times += suspended;
                drops
            });
            assert_eq!(sliced, unsuspended, "seed {seed}, {tier:?}\n{text}");
            modules += 1;
            in_llvm += usize::from(program.back_end() == BackEnd::Llvm);
            lost += unsuspended.counters.faults;
            records += unsuspended.records.len();
        }
    }
    println!("{modules} modules, suspended {times} times; {lost} calls lost, {records} records");
    assert!(!tests_llvm() || in_llvm * 10 > modules * 9, "{in_llvm} of {modules} in verified code");
    assert!(
        modules > 100 && times > 10_000 && lost > 50 && (records > 0 || tests_llvm()),
        "{modules}, {times}, {lost}, {records}"
    );
}
