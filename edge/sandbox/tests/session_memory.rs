//! A module's memory, and its session's memory reservation.

use crate::support::{MANIFEST, Packets, all, bytes, engine, values, wat};
use std::sync::Arc;
use weir_bounds::EntryPoint;
use weir_sandbox::{
    Call, CallStep, During, Engine, FaultKind, FuelSlice, Instance, InstanceContext, LoadError, ModuleEvent,
};
use weir_units::Bytes;
use {
    weir_admission::{Admitted, CalibratedProfile, Profile, Tier},
    weir_session::{MemoryReservation, NodeMemory},
};

const PAGE: u64 = 65_536;

/// Grows by a page with each packet and emits the result of `memory.grow`; on the low-memory event it does `act` and
/// emits the rest.
fn grower(act: &str) -> String {
    let body = format!(
        r#"(func (export "weir_packet") (param $d i32) (result i32)
            (i64.store (i32.const 64) (i64.extend_i32_s (memory.grow (i32.const 1))))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
            (i32.const 0))
        (func (export "weir_low_memory") (param $left i64)
            {act}
            (i64.store (i32.const 64) (i64.add (i64.const 1000000000) (local.get $left)))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8))))"#
    );
    let import = r#"(import "weir" "reserve" (func $reserve (param i64) (result i64)))
            (memory (export "memory") 1)"#;
    wat(&body).replace("(memory (export \"memory\") 1)", import)
}

fn admitted(text: &str, profile: &str) -> Admitted {
    let manifest = MANIFEST.replace("2 MiB", "64 MiB");
    let terms = CalibratedProfile::from(Profile::parse(profile).unwrap());
    Admitted::admit_by(bytes(text, &manifest), &[], &terms).unwrap_or_else(|e| panic!("{e}"))
}

fn reservation(of: u64, pages: u64, ceiling: u64) -> Arc<MemoryReservation> {
    MemoryReservation::new(&NodeMemory::new(Bytes(of * PAGE)), Bytes(pages * PAGE), Bytes(ceiling * PAGE))
        .unwrap()
}

fn start(engine: &Engine, admitted: Admitted, memory: &Arc<MemoryReservation>) -> Instance {
    let program = match admitted.tier() {
        Tier::Proved => engine.load(admitted),
        _ => engine.load_suspendable(admitted),
    };
    let context = InstanceContext { memory: Some(Arc::clone(memory)), ..InstanceContext::default() };
    let mut instance = Instance::start_with(engine, &program.unwrap(), context).unwrap();
    Packets::new().map(&mut instance);
    instance
}

/// Runs one packet.
fn packet(instance: &mut Instance) -> u64 {
    instance.run(weir_sandbox::BatchInput { mask: 1, ..all() });
    values(instance)[0]
}

const FAILED: u64 = u64::MAX;

#[test]
fn growth_past_the_reservation_fails_and_a_changed_one_applies_at_once() {
    let engine = engine();
    let memory = reservation(100, 4, 4);
    let mut instance = start(&engine, admitted(&grower(""), ""), &memory);
    assert_eq!((0..5).map(|_| packet(&mut instance)).collect::<Vec<_>>(), [1, 2, 3, FAILED, FAILED]);
    assert_eq!(instance.counters().faults, 0);
    assert_eq!((memory.state().used, instance.memory()), (Bytes(4 * PAGE), Bytes(4 * PAGE)));
    assert!(memory.change(Bytes(3 * PAGE), Bytes(3 * PAGE)).is_err());
    memory.change(Bytes(5 * PAGE), Bytes(5 * PAGE)).unwrap();
    assert_eq!([packet(&mut instance), packet(&mut instance)], [4, FAILED]);
    drop(instance);
    assert_eq!(memory.state().used, Bytes(0));
}

#[test]
fn two_modules_of_a_session_share_its_memory() {
    let engine = engine();
    let memory = reservation(100, 5, 5);
    let program = engine.load(admitted(&grower(""), "")).unwrap();
    let mut both: Vec<_> = (0..2)
        .map(|_| {
            let context = InstanceContext { memory: Some(Arc::clone(&memory)), ..InstanceContext::default() };
            let mut instance = Instance::start_with(&engine, &program, context).unwrap();
            Packets::new().map(&mut instance);
            instance
        })
        .collect();
    assert_eq!([packet(&mut both[0]), packet(&mut both[0]), packet(&mut both[1])], [1, 2, 1]);
    assert_eq!([packet(&mut both[0]), packet(&mut both[1])], [FAILED, FAILED]);
    // A third module gets none.
    let context = InstanceContext { memory: Some(Arc::clone(&memory)), ..InstanceContext::default() };
    let error = Instance::start_with(&engine, &program, context).unwrap_err();
    assert!(matches!(error, LoadError::Memory { wanted: Bytes(PAGE), left: Bytes(0) }), "{error}");
    // Pages that one module frees are available to the other.
    drop(both.remove(0));
    assert_eq!(packet(&mut both[0]), 2);
}

#[test]
fn a_module_gets_a_low_memory_event_and_can_reserve_more() {
    let engine = engine();
    let ask = format!("(drop (call $reserve (i64.const {})))", 40 * PAGE);
    // Proved; and metered, suspended at every check.
    for profile in ["", "tiers = ['metered']\ncheck-interval = '1us'"] {
        let memory = reservation(100, 16, 40);
        let mut instance = start(&engine, admitted(&grower(&ask), profile), &memory);
        for page in 1..14 {
            assert_eq!(packet(&mut instance), page);
            assert_eq!(instance.low_memory(), None, "{page}");
        }
        assert_eq!(packet(&mut instance), 14);
        assert_eq!(packet(&mut instance), 15, "it is low, and not yet used up");
        // The event has the current state, and comes once.
        let event = instance.low_memory().unwrap();
        assert_eq!(event, ModuleEvent::LowMemory { left: Bytes(0) });
        assert_eq!(instance.low_memory(), None);
        let mut step = instance.begin(Call::Event(event), FuelSlice { fuel: 1, until: None });
        while step == CallStep::Suspended {
            step = instance.resume(FuelSlice { fuel: 1, until: None });
        }
        assert_eq!(values(&mut instance), [1_000_000_000]);
        assert_eq!(memory.state().reserved, Bytes(40 * PAGE));
        assert_eq!(packet(&mut instance), 16);
        assert_eq!(instance.counters().faults, 0);
    }
}

#[test]
fn a_refused_reservation_changes_nothing() {
    let engine = engine();
    let asks = |bytes: &str| {
        let emit = "(drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))";
        let body = format!(
            r#"(func (export "weir_packet") (param $d i32) (result i32)
                (i64.store (i32.const 64) (call $reserve (i64.const {bytes}))) {emit} (i32.const 0))"#
        );
        let import = r#"(import "weir" "reserve" (func $reserve (param i64) (result i64)))
            (memory (export "memory") 2)"#;
        wat(&body).replace("(memory (export \"memory\") 1)", import)
    };
    let denied = i64::from(weir_abi::code::DENIED).cast_unsigned();
    for (bytes, gives) in [
        ("0", 4 * PAGE),
        ("65536", denied),
        ("131072", 2 * PAGE),
        ("524288", 8 * PAGE),
        ("524289", denied),
        ("655360", denied),
        ("-1", denied),
        ("0x7fffffffffffffff", denied),
        ("-0x8000000000000000", denied),
    ] {
        // The node has 8 pages left for the session, whose ceiling is 10.
        let node = NodeMemory::new(Bytes(20 * PAGE));
        let _other = MemoryReservation::new(&node, Bytes(12 * PAGE), Bytes(12 * PAGE)).unwrap();
        let memory = MemoryReservation::new(&node, Bytes(4 * PAGE), Bytes(10 * PAGE)).unwrap();
        let mut instance = start(&engine, admitted(&asks(bytes), ""), &memory);
        assert_eq!(packet(&mut instance), gives, "{bytes}");
        let now = if gives == denied { 4 * PAGE } else { gives };
        assert_eq!((memory.state().reserved, instance.counters().faults), (Bytes(now), 0), "{bytes}");
    }
    // Outside of a session the ceiling is the module's own.
    for (bytes, gives) in [("0", 64 << 20), ("67108864", 64 << 20), ("67108865", denied)] {
        let program = engine.load(admitted(&asks(bytes), "")).unwrap();
        let mut instance = Instance::start(&engine, &program).unwrap();
        Packets::new().map(&mut instance);
        assert_eq!(packet(&mut instance), gives);
    }
}

#[test]
fn events_have_their_own_bounds_and_limits() {
    let engine = engine();
    let endless = admitted(&grower("(loop $l (br $l))"), "tick = '1ms'");
    assert_eq!(endless.tier(), Tier::Metered);
    let bound = endless.analysis().entry(EntryPoint::LowMemory).unwrap();
    assert!(!bound.is_bounded());
    assert!(endless.analysis().entry(EntryPoint::Packet).unwrap().is_bounded());
    let memory = reservation(100, 1, 1);
    let mut instance = start(&engine, endless, &memory);
    instance.run(all());
    let event = instance.low_memory().unwrap();
    instance.handle_event(event);
    let incidents: Vec<_> = instance.incidents().iter().map(|i| (i.fault.kind, i.during)).collect();
    assert_eq!(incidents, [(FaultKind::Limit, During::Event(EntryPoint::LowMemory))]);
    // Output of a lost call is gone; packets continue.
    assert!(values(&mut instance).iter().all(|value| *value == FAILED));
    assert_eq!(packet(&mut instance), FAILED);
    let trap = admitted(&grower("unreachable"), "");
    assert_eq!(trap.tier(), Tier::Proved);
    let memory = reservation(100, 1, 1);
    let mut instance = start(&engine, trap, &memory);
    instance.run(all());
    let event = instance.low_memory().unwrap();
    instance.handle_event(event);
    assert_eq!(instance.incidents()[0].fault.kind, FaultKind::Unreachable);
}
