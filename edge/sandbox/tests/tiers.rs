//! The effect of exceeded limits in each tier.

use crate::support::*;
use weir_abi::{ARENA_BASE, lost};
use weir_sandbox::{BatchInput, CheckMode, During, Engine, EngineOptions, FaultKind, Instance};
use weir_units::{Nanos, Timestamp};
use {
    weir_admission::{Admitted, CalibratedProfile, Profile, Tier},
    weir_session::{RecordOrder, Records},
};

/// A profile that allows this tier only, with this limit for a packet in nanoseconds. Without a calibration a
/// nanosecond is four units of fuel.
fn profile(tier: Tier, packet: u64) -> Profile {
    Profile { tiers: vec![tier], packet: Nanos(packet), per_byte: Nanos(0), ..Profile::default() }
}

const FUEL_PER_NANOSECOND: u64 = 4;

fn admitted(body: &str, profile: Profile) -> Admitted {
    let terms = CalibratedProfile::from(profile);
    Admitted::admit_by(bytes(&wat(body), MANIFEST), &[], &terms).unwrap_or_else(|e| panic!("{e}"))
}

fn start(engine: &Engine, body: &str, profile: Profile) -> Instance {
    let mut instance = Instance::start(engine, &engine.load(admitted(body, profile)).unwrap()).unwrap();
    assert!(!instance.has_ended(), "{:?}", instance.incidents());
    Packets::new().map(&mut instance);
    instance
}

/// An engine for another check mode than that of the admission.
fn engine_as(mode: CheckMode) -> Engine {
    Engine::new(EngineOptions { check_mode: mode, ..options() }, None).unwrap()
}

/// The emitted records: position in the block, and value.
fn emitted(instance: &mut Instance) -> Vec<(RecordOrder, u64)> {
    let records = instance.take_records(Records::default());
    records.iter().map(|r| (r.order, u64::from_le_bytes(r.row.try_into().unwrap()))).collect()
}

fn kinds(instance: &Instance) -> Vec<(FaultKind, During)> {
    instance.incidents().iter().map(|incident| (incident.fault.kind, incident.during)).collect()
}

/// Emits the packet's number, patches it, and then does `act`.
fn busy(act: &str) -> String {
    emitting("(i64.load32_u offset=60 (local.get $d))").replace(
        "(i32.const 0))",
        &format!("(drop (call $patch (local.get $d) (i32.const 6) (i32.const 64) (i32.const 1))) {act} (i32.const 0))"),
    )
}

/// Code that does `act` if a condition on the packet's number holds.
fn when(condition: &str, act: &str) -> String {
    format!("(if ({condition} (i32.load offset=60 (local.get $d))) (then {act}))")
}

/// A bounded loop of `count` trips, of about ten units of fuel each.
fn trips(count: u32) -> String {
    format!(
        "(local.set $n (i32.const 0))
         (loop $l (br_if $l (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const {count}))))"
    )
}

fn with_counter(body: &str) -> String {
    body.replace("(result i32)\n", "(result i32) (local $n i32)\n")
}

#[test]
fn a_packet_over_its_limit_is_lost_with_all_its_output() {
    let engine = engine();
    let mut instance =
        start(&engine, &busy(&when("i32.eq (i32.const 3)", "(loop (br 0))")), profile(Tier::Metered, 10_000));
    assert_eq!(instance.run(all()), 0);
    assert_eq!(
        (instance.counters().packets, instance.counters().lost, instance.counters().faults),
        (63, 1, 1)
    );
    assert_eq!(kinds(&instance), [(FaultKind::Limit, During::Packet(3))]);
    let numbers: Vec<u64> = (0..64).filter(|number| *number != 3).collect();
    assert_eq!(values(&mut instance), numbers);
    // Further packets of these tests have headers that cannot be patched there.
    assert_eq!(instance.take_patches().iter().map(|p| p.packet).collect::<Vec<_>>(), [0, 1, 2, 4, 5]);
    // The next batch begins with full allowances.
    assert_eq!(instance.run(BatchInput { mask: 0b11, ..all() }), 0);
    assert_eq!((values(&mut instance), instance.counters().lost), (vec![0, 1], 1));
}

#[test]
fn each_packet_has_an_allowance_of_its_own() {
    // Each uses most of its limit: together far more than one may.
    let engine = engine();
    let body = with_counter(&busy(&trips(3_000)));
    let mut instance = start(&engine, &body, profile(Tier::Metered, 12_000));
    instance.run(all());
    assert_eq!(
        (instance.counters().packets, instance.counters().lost),
        (64, 0),
        "{:?}",
        instance.incidents()
    );
    let mut instance = start(&engine, &body, profile(Tier::Metered, 4_000));
    instance.run(BatchInput { mask: 0b11, ..all() });
    assert_eq!((instance.counters().packets, instance.counters().lost), (0, 2));
    // With an allowance by length: packets have a hundred bytes.
    let by_length = Profile { per_byte: Nanos(100), ..profile(Tier::Metered, 2_000) };
    let mut instance = start(&engine, &body, by_length);
    instance.run(all());
    assert_eq!(
        (instance.counters().packets, instance.counters().lost),
        (64, 0),
        "{:?}",
        instance.incidents()
    );
}

#[test]
fn a_batch_has_the_allowance_of_its_packets() {
    let body = |act: &str| {
        format!(
            r#"(func (export "weir_batch") (param $d i32) (param $m i64) (result i64) (local $n i32) {act} (i64.const 0))"#
        )
    };
    let engine = engine();
    for (count, per_byte, lost) in [(60_000, 0, 0), (400_000, 0, 64), (400_000, 200, 0)] {
        let profile = Profile { per_byte: Nanos(per_byte), ..profile(Tier::Metered, 4_000) };
        let mut instance = start(&engine, &body(&trips(count)), profile);
        instance.run(all());
        assert_eq!((instance.counters().lost, instance.counters().packets), (lost, 64 - lost), "{count}");
    }
}

#[test]
fn a_module_is_told_why_its_last_call_was_lost() {
    let tell = r#"(func (export "weir_lost") (param i32)
        (i64.store (i32.const 72) (i64.extend_i32_u (local.get 0))) (drop (call $emit (i32.const 0) (i32.const 72) (i32.const 8))))
        (func (export "weir_stop") (param i64))"#;
    let act = when("i32.eq (i32.const 5)", "(unreachable)") + &when("i32.eq (i32.const 63)", "(loop (br 0))");
    let engine = engine();
    let mut instance = start(&engine, &(busy(&act) + tell), profile(Tier::Metered, 10_000));
    instance.run(all());
    let (trap, limit) = (u64::try_from(lost::TRAP).unwrap(), u64::try_from(lost::LIMIT).unwrap());
    let mut expected: Vec<(RecordOrder, u64)> = Vec::new();
    for number in (0..63).filter(|number| *number != 5) {
        if number == 6 {
            expected.push((RecordOrder::tick(6), trap));
        }
        expected.push((RecordOrder::packet(number), number.into()));
    }
    assert_eq!(emitted(&mut instance), expected);
    // Before the next call, and once.
    instance.stop(Timestamp(0));
    assert_eq!(emitted(&mut instance), [(RecordOrder::tick(0), limit)]);
    instance.stop(Timestamp(0));
    assert_eq!(emitted(&mut instance), []);
}

#[test]
fn a_fault_in_weir_lost_is_not_reported_again() {
    let engine = engine();
    let act = when("i32.eq (i32.const 5)", "(unreachable)");
    let with_lost_handler =
        |what: &str| format!(r#"{} (func (export "weir_lost") (param i32) {what})"#, busy(&act));
    let mut instance = start(&engine, &with_lost_handler("(unreachable)"), profile(Tier::Metered, 10_000));
    instance.run(all());
    assert_eq!(
        kinds(&instance),
        [(FaultKind::Unreachable, During::Packet(5)), (FaultKind::Unreachable, During::Lost)]
    );
    assert_eq!(
        (instance.counters().packets, instance.counters().lost, instance.counters().faults),
        (63, 1, 2)
    );
    // The call has a limit of its own, and exceeding it is a strike.
    let mut instance = start(
        &engine,
        &with_lost_handler("(loop (br 0))"),
        Profile { strikes: 2, ..profile(Tier::Metered, 10_000) },
    );
    instance.run(all());
    assert_eq!(kinds(&instance)[1], (FaultKind::Limit, During::Lost));
    assert!(!instance.has_ended());
    instance.run(all());
    assert!(instance.has_ended(), "two strikes");
}

#[test]
fn a_module_ends_after_its_strikes() {
    let engine = engine();
    for strikes in [1, 3, 5] {
        let profile = Profile { strikes, ..profile(Tier::Metered, 1_000) };
        let mut instance = start(&engine, &busy("(loop (br 0))"), profile);
        assert_eq!(instance.run(all()), 0);
        assert!(instance.has_ended());
        assert_eq!((instance.counters().lost, instance.counters().packets), (strikes.into(), 0));
        assert!(values(&mut instance).is_empty());
    }
}

#[test]
fn ticks_starts_and_stops_have_limits_too() {
    let engine = engine();
    let endless = |name: &str, parameters: &str| {
        format!(r#"{} (func (export "{name}") {parameters} (loop (br 0)))"#, busy(""))
    };
    let profile = || Profile {
        tick: Nanos(1_000),
        stop: Nanos(1_000),
        start: Nanos(1_000),
        ..profile(Tier::Metered, 10_000)
    };
    let mut instance = start(&engine, &endless("weir_tick", "(param i64 i64)"), profile());
    instance.tick(Timestamp(1), 1, 0);
    assert_eq!(kinds(&instance), [(FaultKind::Limit, During::Tick)]);
    let mut instance = start(&engine, &endless("weir_stop", "(param i64)"), profile());
    instance.stop(Timestamp(1));
    assert_eq!(kinds(&instance), [(FaultKind::Limit, During::Stop)]);
    for body in [endless("_initialize", ""), format!("{} (func $s (loop (br 0))) (start $s)", busy(""))] {
        let program = engine.load(admitted(&body, profile())).unwrap();
        let instance = Instance::start(&engine, &program).unwrap();
        assert!(instance.has_ended());
        assert_eq!(kinds(&instance), [(FaultKind::Limit, During::Start)]);
    }
}

/// Over the limit of a supervised module in packets whose number meets the condition; never lost.
fn supervised(engine: &Engine, condition: &str) -> Instance {
    let stop = r#"(func (export "weir_stop") (param i64)
        (i64.store (i32.const 72) (i64.const 99)) (drop (call $emit (i32.const 0) (i32.const 72) (i32.const 8))))"#;
    let body = with_counter(&busy(&when(condition, &trips(30_000)))) + stop;
    // The bound is some 300,000 units: over the limit, but not forty times.
    start(engine, &body, profile(Tier::Supervised, 10_000))
}

#[test]
fn a_supervised_module_that_keeps_exceeding_is_unloaded_between_batches() {
    let engine = engine();
    let mut instance = supervised(&engine, "i32.ge_u (i32.const 100)");
    instance.run(all());
    // The whole batch was processed, and nothing of it is lost.
    assert_eq!(
        (instance.counters().packets, instance.counters().lost, instance.counters().faults),
        (64, 0, 0)
    );
    assert_eq!(values(&mut instance), (0..64).collect::<Vec<u64>>());
    assert_eq!(instance.take_patches().len(), 6);
    assert!(instance.has_ended());
    assert_eq!(kinds(&instance), [(FaultKind::Unloaded, During::Idle)]);
    // It sees no further packets, but the output of its stop is taken.
    instance.run(all());
    assert_eq!(instance.counters().packets, 64);
    instance.stop(Timestamp(0));
    assert_eq!(values(&mut instance), [99]);
}

#[test]
fn a_supervised_module_may_exceed_its_limit_occasionally() {
    let engine = engine();
    // One in each batch of 64, without end.
    let mut instance = supervised(&engine, "i32.eq (i32.const 7)");
    for _ in 0..20 {
        instance.run(all());
    }
    assert!(!instance.has_ended());
    assert_eq!((instance.counters().packets, instance.counters().exceeded), (20 * 64, 20));
    // Two in each: unloaded in the end.
    let mut instance = supervised(&engine, "i32.gt_u (i32.const 2)");
    let batches = (1..=20).find(|_| {
        instance.run(all());
        instance.has_ended()
    });
    assert!(matches!(batches, Some(2..=5)), "{batches:?}");
    assert_eq!(instance.counters().lost, 0);
    // Other calls count as packets do.
    let tick = format!(
        r#"{} (func (export "weir_tick") (param i64 i64) (local $n i32) {})"#,
        busy(""),
        trips(30_000)
    );
    let profile = Profile { tick: Nanos(10_000), ..profile(Tier::Supervised, 10_000) };
    let mut instance = start(&engine, &tick, profile);
    for _ in 0..4 {
        assert!(!instance.has_ended());
        instance.tick(Timestamp(1), 1, 0);
    }
    assert!(instance.has_ended() && instance.counters().faults == 0);
}

#[test]
fn strikes_are_counted_for_all_instances_of_a_module() {
    let engine = engine();
    let body = busy("(loop (br 0))");
    let limits = Profile { strikes: 3, ..profile(Tier::Metered, 1_000) };
    let program = engine.load(admitted(&body, limits.clone())).unwrap();
    let mut instances: Vec<_> = (0..3).map(|_| Instance::start(&engine, &program).unwrap()).collect();
    for (n, instance) in instances.iter_mut().enumerate() {
        Packets::new().map(instance);
        instance.run(BatchInput { mask: 1, ..all() });
        assert_eq!((instance.counters().lost, instance.counters().strikes), (1, n as u64 + 1));
    }
    assert!(instances.iter().all(Instance::has_ended));
    for instance in &mut instances {
        instance.run(all());
        assert_eq!((instance.counters().faults, instance.counters().exceeded), (1, 1));
    }
    // Another module of the same bytes has its own strikes, and the excess of a start ends only that instance.
    let mut another = start(&engine, &body, limits.clone());
    another.run(BatchInput { mask: 1, ..all() });
    assert!(!another.has_ended());
    let body =
        format!(r#"{} (func (export "weir_start") (result i32) (loop (br 0)) (i32.const 0))"#, busy(""));
    let short = Profile { start: Nanos(1_000), ..limits };
    let program = engine.load(admitted(&body, short)).unwrap();
    for _ in 0..5 {
        let instance = Instance::start(&engine, &program).unwrap();
        assert_eq!(kinds(&instance), [(FaultKind::Limit, During::Start)]);
    }
}

#[test]
fn excess_of_a_supervised_module_is_counted_over_all_instances() {
    // Each of four instances makes a quarter of the excess that would unload one of them.
    let engine = engine_as(CheckMode::As(Tier::Supervised));
    let body = busy(&when("i32.eq (i32.const 1)", &trips(20_000)));
    let body = with_counter(&body);
    let limits = Profile { strikes: 3, ..profile(Tier::Metered, 1_000) };
    let over = |programs: usize| {
        let loaded = || engine.load(admitted(&body, limits.clone())).unwrap();
        let shared = loaded();
        let program = |n: usize| if n < programs { loaded() } else { shared.clone() };
        let mut instances: Vec<_> = (0..4).map(|n| Instance::start(&engine, &program(n)).unwrap()).collect();
        for instance in &mut instances {
            Packets::new().map(instance);
            instance.run(BatchInput { mask: 0b10, ..all() });
            assert_eq!((instance.counters().exceeded, instance.counters().lost), (1, 0));
        }
        instances.iter().filter(|instance| instance.has_ended()).count()
    };
    assert_eq!((over(4), over(0)), (0, 4));
}

#[test]
fn the_host_can_end_a_supervised_module_at_a_poll_point() {
    // It has no bound, so admission would not supervise it: as if the analysis had been wrong.
    let options = EngineOptions {
        check_mode: CheckMode::As(Tier::Supervised),
        call_limit: std::time::Duration::from_millis(30),
        ..options()
    };
    let engine = Engine::new(options, None).unwrap();
    for act in
        ["(loop (br 0))", "(loop (drop (call $hash (i32.const 0) (i32.const 4096) (i64.const 0))) (br 0))"]
    {
        let mut instance =
            start(&engine, &busy(&when("i32.eq (i32.const 20)", act)), profile(Tier::Metered, 1_000));
        instance.run(all());
        assert_eq!(kinds(&instance), [(FaultKind::TimeOut, During::Packet(20))]);
        assert_eq!((instance.counters().packets, instance.counters().lost), (63, 1));
    }
}

#[test]
fn every_reference_to_a_function_survives_the_meter() {
    // Functions in tables, by reference, as a start function, exported though imported, and by index in a table's
    // initial values.
    let body = r#"
        (type $three (func (param i32 i32 i32) (result i32)))
        (type $one (func (param i64) (result i64)))
        (table $t 4 funcref) (table $u funcref (elem $own $emit))
        (elem (table $t) (i32.const 0) func $emit $own $patch $double)
        (elem declare func $emit $double)
        (global $count (mut i64) (i64.const 0))
        (export "mine" (func $emit)) (export "also mine" (func $own))
        (func $own (type $three) (i32.add (local.get 0) (i32.add (local.get 1) (local.get 2))))
        (func $double (type $one) (i64.add (local.get 0) (local.get 0)))
        (func $begin (global.set $count (i64.const 1000))
            (table.set $t (i32.const 2) (ref.func $double)))
        (start $begin)
        (func $say (param i64)
            (i64.store (i32.const 64) (local.get 0))
            (drop (call_indirect $t (type $three) (i32.const 0) (i32.const 64) (i32.const 8) (i32.const 0))))
        (func (export "weir_packet") (param $d i32) (result i32)
            (global.set $count (i64.add (global.get $count) (i64.load32_u offset=60 (local.get $d))))
            (call $say (call_indirect $t (type $one) (global.get $count) (i32.const 2)))
            (call $say (i64.extend_i32_u (call_indirect $u (type $three) (i32.const 1) (i32.const 2) (i32.const 3) (i32.const 0))))
            (drop (ref.is_null (ref.func $emit)))
            (i32.const 0))"#;
    let of = |mode: CheckMode| {
        let mut instance = start(&engine_as(mode), body, profile(Tier::Metered, 100_000));
        instance.run(all());
        assert_eq!(instance.counters().faults, 0, "{mode:?}: {:?}", instance.incidents());
        emitted(&mut instance)
    };
    let plain = of(CheckMode::As(Tier::Proved));
    assert_eq!(plain.len(), 128);
    assert_eq!(plain[..2], [(RecordOrder::packet(0), 2000), (RecordOrder::packet(0), 6)]);
    for mode in [CheckMode::As(Tier::Supervised), CheckMode::As(Tier::Metered), CheckMode::Exact(1 << 40)] {
        assert_eq!(of(mode), plain, "{mode:?}");
    }
}

#[test]
fn a_fault_names_the_function_as_in_the_module() {
    // Through a table, so that it is not inlined into its caller.
    let body =
        busy("(call_indirect $t (i32.const 0))") + "(table $t funcref (elem $bad)) (func $bad (unreachable))";
    let text = wat(&body);
    let named = bytes(&text, MANIFEST);
    // Without names the fault has the index among all functions of the module, after the imports and the packet
    // function.
    let function_bad = format!("function {}", text.matches("(import ").count() + 1);
    let mut nameless = named.clone();
    let at = nameless.windows(5).position(|part| part == b"\x04name").unwrap();
    nameless[at + 1] = b'N';
    for mode in [CheckMode::As(Tier::Proved), CheckMode::As(Tier::Supervised), CheckMode::As(Tier::Metered)] {
        let engine = engine_as(mode);
        for (module, function) in [(&named, "bad"), (&nameless, function_bad.as_str())] {
            let terms = CalibratedProfile::from(profile(Tier::Metered, 10_000));
            let program = engine.load(Admitted::admit_by(module.clone(), &[], &terms).unwrap()).unwrap();
            let mut instance = Instance::start(&engine, &program).unwrap();
            Packets::new().map(&mut instance);
            instance.run(BatchInput { mask: 1, ..all() });
            assert_eq!(instance.incidents()[0].fault.function.as_deref(), Some(function), "{mode:?}");
        }
    }
}

#[test]
fn lengths_known_only_at_run_time_are_charged() {
    let engine = engine();
    // A thousand bytes times the packet's number; allowances for ten thousand units of fuel, or as many host calls.
    let length = "(i32.mul (i32.const 1000) (i32.load offset=60 (local.get $d)))";
    for (act, per_byte) in [
        (format!("(memory.fill (i32.const 128) (i32.const 0) {length})"), 1),
        (format!("(memory.copy (i32.const 128) (i32.const 0) {length})"), 1),
        (format!("(drop (call $hash (i32.const 128) {length} (i64.const 7)))"), 1),
        (format!("(drop (call $find (i32.const 0) (i32.const 128) {length}))"), 4),
        (
            format!(
                "(drop (call_indirect $t (param i32 i32 i64) (result i64) (i32.const 128) {length} (i64.const 0) (i32.const 0)))"
            ),
            1,
        ),
    ] {
        let table = "(table $t funcref (elem $hash))";
        let body = format!("{table} {}", at_packet(99, "").replace("(if ", &format!("{act} (if ")));
        let mut instance = start(&engine, &body, Profile { strikes: 100, ..profile(Tier::Metered, 5_000) });
        instance.run(all());
        let fits = 20_000 / 1000 / per_byte;
        let seen = instance.counters().packets;
        assert!((fits - 3..=fits).contains(&seen), "{act}: {seen} of {fits}");
        assert!(instance.incidents().iter().all(|incident| incident.fault.kind == FaultKind::Limit));
        instance.stop(Timestamp(0));
        assert_eq!(values(&mut instance), [seen]);
    }
    // A length beyond the memory costs nothing, because nothing is done: it traps as ever.
    for act in [
        "(memory.fill (i32.const 0) (i32.const 0) (i32.sub (i32.const 0) (local.get $d)))",
        "(drop (call $hash (i32.const 0) (i32.sub (i32.const 0) (i32.const 9)) (i64.const 0)))",
    ] {
        let mut instance = start(&engine, &busy(act), profile(Tier::Metered, 10_000));
        instance.run(BatchInput { mask: 1, ..all() });
        assert!(
            matches!(
                instance.incidents()[0].fault.kind,
                FaultKind::OutOfBounds | FaultKind::WildPointer { .. }
            ),
            "{:?}",
            instance.incidents()
        );
    }
}

#[test]
fn memory_growth_in_a_loop_is_charged_by_the_page() {
    let engine = engine();
    let grow = "(loop (drop (memory.grow (i32.const 1))) (br 0))";
    let mut instance = start(&engine, &busy(grow), profile(Tier::Metered, 100_000));
    instance.run(BatchInput { mask: 1, ..all() });
    assert_eq!(kinds(&instance), [(FaultKind::Limit, During::Packet(0))]);
    // 60,000 units each: six or seven pages, beside the first.
    assert!((6..=8).contains(&(instance.memory().0 >> 16)), "{}", instance.memory());
    // A refused growth is not charged like a granted one.
    let refused = "(drop (memory.grow (i32.const 50000))) (drop (memory.grow (i32.const 50000)))";
    let mut instance = start(&engine, &busy(refused), profile(Tier::Metered, 100_000));
    instance.run(BatchInput { mask: 1, ..all() });
    assert_eq!(
        (instance.counters().packets, instance.counters().faults),
        (1, 0),
        "{:?}",
        instance.incidents()
    );
}

#[test]
fn a_module_cannot_reach_its_allowance() {
    let refused = |body: &str| {
        let text = wat(body);
        let module = wat::parse_str(&text).map(|_| bytes(&text, MANIFEST));
        module.map_or_else(|e| e.to_string(), |bytes| Admitted::admit(bytes, &[]).unwrap_err().to_string())
    };
    // The module has one global; those of the loader come after it.
    for index in 1..5 {
        assert!(
            refused(&busy(&format!("(global.set {index} (i64.const 0x7fffffff))"))).contains("global"),
            "{index}"
        );
    }
    for name in ["weir_fuel", "weir_enter_tick", "weir_run"] {
        let own = format!(r#"{} (global $g (export "{name}") (mut i64) (i64.const 0))"#, busy(""));
        assert!(refused(&own).contains("has a name that belongs to weir"), "{name}");
    }
    let import = wat(&busy("")).replace("(module", r#"(module (import "weir" "limit" (func $limit))"#);
    let error = Admitted::admit(bytes(&import, MANIFEST), &[]).unwrap_err().to_string();
    assert!(error.contains("imports `weir.limit`, which weir does not offer"), "{error}");
    // A global of the module with the largest number in it changes nothing.
    let body = format!(
        r#"(global $fuel (export "fuel") (mut i64) (i64.const 0)) {}"#,
        busy("(loop (global.set $fuel (i64.const 0x7fffffffffffffff)) (br 0))")
    );
    let mut instance = start(&engine(), &body, profile(Tier::Metered, 10_000));
    instance.run(BatchInput { mask: 1, ..all() });
    assert_eq!(kinds(&instance), [(FaultKind::Limit, During::Packet(0))]);
}

#[test]
fn recursion_is_charged_at_each_step() {
    let again = "(func $again (param i32) (if (local.get 0) (then (call $again (i32.sub (local.get 0) (i32.const 1))))))";
    let engine = engine();
    let deep = |depth: u32, packet: u64| {
        let body = format!("{again} {}", busy(&format!("(call $again (i32.const {depth}))")));
        let mut instance = start(&engine, &body, profile(Tier::Metered, packet));
        instance.run(BatchInput { mask: 1, ..all() });
        instance.incidents().first().map(|incident| incident.fault.kind)
    };
    assert_eq!(deep(100, 10_000), None);
    assert_eq!(deep(4_000, 10_000), Some(FaultKind::Limit));
    assert_eq!(deep(100_000_000, 1_000_000_000), Some(FaultKind::StackOverflow));
    // Two calls at each step, through a table too.
    let twice = "(table $t funcref (elem $f)) (func $f (param i32) (if (local.get 0) (then
        (call $f (i32.sub (local.get 0) (i32.const 1)))
        (call_indirect $t (param i32) (i32.sub (local.get 0) (i32.const 1)) (i32.const 0)))))";
    let mut instance = start(
        &engine,
        &format!("{twice} {}", busy("(call $f (i32.const 60))")),
        profile(Tier::Metered, 10_000),
    );
    instance.run(BatchInput { mask: 1, ..all() });
    assert_eq!(kinds(&instance), [(FaultKind::Limit, During::Packet(0))]);
}

#[test]
fn no_number_of_charges_wraps_an_allowance_around() {
    // The most expensive charges that a loop can make cheaply: for a search of a mebibyte that does not take place,
    // again and again.
    let charges = |go_on: &str| {
        let body = format!(
            "(local.set $n (i32.const 0))
             (loop $l (drop (call $find (i32.const 0) (i32.const 0) (i32.const 0x100000)))
                (local.set $n (i32.add (local.get $n) (i32.const 1))) (br_if $l {go_on}))"
        );
        let start = "(func $page (drop (memory.grow (i32.const 16)))) (start $page)";
        format!("{start} {}", with_counter(&busy(&body)))
    };
    let endless = charges("(i32.const 1)");
    for packet in [1, 1_000, 50_000_000] {
        let mut instance = start(&engine(), &endless, profile(Tier::Metered, packet));
        instance.run(BatchInput { mask: 1, ..all() });
        assert_eq!(kinds(&instance), [(FaultKind::Limit, During::Packet(0))], "{packet}");
    }
    let mut instance = start(&engine_as(CheckMode::Exact(1 << 30)), &endless, profile(Tier::Metered, 1_000));
    instance.run(BatchInput { mask: 1, ..all() });
    assert_eq!(kinds(&instance), [(FaultKind::Limit, During::Packet(0))]);
    assert!(instance.fuel_used().unwrap() > 1 << 30);
    // The largest possible allowance, which no call uses up, does not overflow when it is set, and decreases by each
    // charge.
    let some = |count: u32| charges(&format!("(i32.lt_u (local.get $n) (i32.const {count}))"));
    let largest = Profile { per_byte: Nanos(u64::MAX), ..profile(Tier::Metered, u64::MAX) };
    for mode in [CheckMode::As(Tier::Metered), CheckMode::As(Tier::Supervised)] {
        let mut instance = start(&engine_as(mode), &some(50), largest.clone());
        instance.run(all());
        let counters = instance.counters();
        assert_eq!((counters.packets, counters.exceeded), (64, 0), "{mode:?}: {:?}", instance.incidents());
    }
    let used = |count: u32| {
        let mut instance = start(&engine_as(CheckMode::Exact(u64::MAX)), &some(count), largest.clone());
        instance.run(BatchInput { mask: 1, ..all() });
        assert_eq!(instance.counters().packets, 1);
        instance.fuel_used().unwrap()
    };
    let (few, more, most) = (used(1), used(1_001), used(2_001));
    assert_eq!(most - more, more - few);
    assert!(more - few > 1_000 << 20, "a unit for each byte: {}", more - few);
}

/// Packet functions that do different things for different packets; `$n` is a local.
const WORK: [&str; 10] = [
    "(drop (i32.div_u (local.get $d) (i32.const 3)))",
    "(if (i32.and (local.get $n) (i32.const 1)) (then (drop (i32.mul (local.get $n) (local.get $n)))) (else (drop (f64.sqrt (f64.const 2)))))",
    "(loop $l (br_if $l (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))",
    "(block $out (loop $l (br_if $out (i32.eqz (local.get $n))) (local.set $n (i32.shr_u (local.get $n) (i32.const 1)))
        (loop $m (br_if $l (i32.and (local.get $n) (i32.const 1))) (br_if $out (i32.eqz (local.get $n)))
            (local.set $n (i32.shr_u (local.get $n) (i32.const 1))) (br $m))))",
    "(block $a (block $b (block $c (br_table $a $b $c (i32.and (local.get $n) (i32.const 3)))) (drop (i64.div_u (i64.const 9) (i64.const 2))))
        (drop (call $hash (i32.const 0) (local.get $n) (i64.const 1))))",
    "(call $leaf) (call $leaf) (call $some (local.get $n))",
    "(call_indirect $t (param i32) (local.get $n) (i32.and (local.get $n) (i32.const 1)))",
    "(memory.fill (i32.const 128) (i32.const 1) (i32.mul (local.get $n) (i32.const 20)))",
    "(drop (memory.grow (i32.and (local.get $n) (i32.const 3))))",
    "(i32.store (i32.const 64) (i32.const 0)) (i32.store (i32.const 68) (local.get $n))
        (drop (call $emit (i32.const 1) (i32.const 64) (i32.const 8)))",
];

const CALLED: &str = r#"(table $t funcref (elem $some $other))
    (func $leaf (drop (i32.div_u (i32.const 7) (i32.const 3))))
    (func $some (param i32) (loop $l (br_if $l (i32.gt_s (local.tee 0 (i32.sub (local.get 0) (i32.const 3))) (i32.const 0)))) (call $leaf))
    (func $other (param i32) (drop (f64.div (f64.const 1) (f64.const 3))))"#;

fn working(act: &str) -> String {
    format!(
        r#"{CALLED} (func (export "weir_packet") (param $d i32) (result i32) (local $n i32)
            (local.set $n (i32.add (i32.const 1) (i32.load offset=60 (local.get $d)))) {act} (i32.const 0))"#
    )
}

#[test]
fn charges_are_never_less_than_the_use() {
    let all_of_it = WORK.concat();
    for act in WORK.into_iter().chain([all_of_it.as_str()]) {
        let body = working(act);
        let exact = engine_as(CheckMode::Exact(1 << 40));
        let mut instance = start(&exact, &body, profile(Tier::Metered, 1_000_000));
        let mut used = Vec::new();
        for packet in 0..64 {
            instance.run(BatchInput { mask: 1 << packet, ..all() });
            used.push(instance.fuel_used().unwrap());
        }
        assert_eq!(instance.counters().faults, 0, "{act}: {:?}", instance.incidents());
        // With a unit less than it uses, no packet is completed, wherever the charges stand for such a limit.
        for packet in [0, 1, 2, 31, 63] {
            let nanoseconds = (used[packet] - 1) / FUEL_PER_NANOSECOND;
            let mut instance = start(&engine(), &body, profile(Tier::Metered, nanoseconds.max(1)));
            // Memory grows in the same order, so that it can be granted.
            instance.run(BatchInput { mask: 1 << packet, ..all() });
            assert_eq!(instance.counters().lost, 1, "{act}: packet {packet} used {}", used[packet]);
        }
        // And the charge is not much higher: the packet completes with twice as much and a piece.
        let most = used.iter().max().unwrap();
        let mut instance =
            start(&engine(), &body, profile(Tier::Metered, most / FUEL_PER_NANOSECOND * 2 + 5_000));
        instance.run(all());
        assert_eq!(instance.counters().lost, 0, "{act}: {most}");
    }
}

#[test]
fn exact_counting_is_exact_to_the_unit() {
    let used = |act: &str, packet: u32| {
        let mut instance =
            start(&engine_as(CheckMode::Exact(1 << 40)), &working(act), profile(Tier::Metered, 1_000_000));
        instance.run(BatchInput { mask: 1 << packet, ..all() });
        instance.fuel_used().unwrap()
    };
    let nothing = used("", 5);
    // By the cost table: a constant or local 1, addition 2, division 40, a load or store 4, a branch 2.
    assert_eq!(nothing, 1 + 1 + 4 + 2 + 1 + 1);
    assert_eq!(used(WORK[0], 5) - nothing, 1 + 1 + 40);
    assert_eq!(used(WORK[2], 5) - nothing, 6 * (1 + 1 + 2 + 1 + 2));
    assert_eq!(used(WORK[2], 60) - nothing, 61 * 7);
    // Three bytes of a string, which only the host sees: packet 2 has $n = 3.
    assert_eq!(used(WORK[9], 2) - used(WORK[9], 0), 2 * 2);
    // Other calls too.
    let body = format!(
        r#"{} (func (export "weir_tick") (param i64 i64) (drop (i32.div_u (i32.const 1) (i32.const 1))))"#,
        busy("")
    );
    let mut instance = start(&engine_as(CheckMode::Exact(1 << 40)), &body, profile(Tier::Metered, 1_000));
    instance.tick(Timestamp(1), 1, 0);
    assert_eq!(instance.fuel_used(), Some(42));
    // Without exact counting there is no result.
    let mut instance = start(&engine(), &body, profile(Tier::Metered, 1_000));
    instance.run(all());
    assert_eq!(instance.fuel_used(), None);
}

/// The instructions of each function, the module's own first; and the names of imports.
fn code_of(module: &[u8]) -> (Vec<Vec<String>>, Vec<String>) {
    let (mut functions, mut imports) = (Vec::new(), Vec::new());
    for payload in wasmparser::Parser::new(0).parse_all(module) {
        match payload.unwrap() {
            wasmparser::Payload::CodeSectionEntry(body) => {
                let operators = body.get_operators_reader().unwrap();
                functions
                    .push(operators.into_iter().map(|operator| format!("{:?}", operator.unwrap())).collect());
            }
            wasmparser::Payload::ImportSection(section) => {
                imports.extend(section.into_imports().map(|import| import.unwrap().name.to_owned()));
            }
            _ => {}
        }
    }
    (functions, imports)
}

#[test]
fn a_proved_module_is_unchanged_except_for_the_loop() {
    let engine = engine();
    let body = format!(
        r#"{CALLED} (func (export "weir_packet") (param i32) (result i32)
            (call $some (i32.const 9)) (memory.fill (i32.const 128) (i32.const 1) (i32.const 20))
            (i32.const 0))"#
    );
    let admitted = admitted(&body, profile(Tier::Proved, 100_000));
    let (given, given_imports) = code_of(admitted.bytes());
    let (made, made_imports) = code_of(&engine.rewritten(&admitted).unwrap());
    assert_eq!(made_imports, given_imports);
    assert_eq!(made.len(), given.len(), "the loop takes the packet function's place");
    let packet = given.len() - 1;
    assert_eq!(made[..packet], given[..packet]);
    let inner = &given[packet][..given[packet].len() - 1];
    assert!(made[packet].windows(inner.len()).any(|part| part == inner), "{:?}", made[packet]);
    let around = made[packet].len() - inner.len();
    assert!(around <= 48, "the loop has {around} instructions");
    // The same holds for every shipped module that is proved.
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest/modules");
    let mut proved = 0;
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        let Ok(module) = std::fs::read(entry.path().join(format!("{name}.wasm"))) else { continue };
        let admitted = Admitted::admit(module, &[]).unwrap();
        let checks = |admitted: &Admitted| {
            let (functions, imports) = code_of(&engine.rewritten(admitted).unwrap());
            let polls = functions.iter().flatten().filter(|operator| operator.contains("Atomic")).count();
            polls + imports.iter().filter(|name| *name == "limit").count()
        };
        if admitted.tier() == Tier::Proved {
            assert_eq!(checks(&admitted), 0, "{name}");
            proved += 1;
        } else {
            assert_ne!(checks(&admitted), 0, "{name}");
        }
    }
    assert!(proved > 0, "none is proved");
}

#[test]
fn parameters_with_constant_indices_become_constants() {
    let body = busy(
        "(drop (call $param_int (i32.const 0))) (drop (call $param_float (i32.const 2)))
         (drop (call $param_bytes (i32.const 1) (local.get $d) (i32.const 0)))",
    );
    let admitted = admitted(&body, profile(Tier::Metered, 10_000));
    let (functions, imports) = code_of(&engine().rewritten(&admitted).unwrap());
    for name in ["param_int", "param_float", "param_bytes"] {
        let index = imports.iter().position(|import| import == name).unwrap();
        let call = format!("Call {{ function_index: {index} }}");
        assert!(!functions.iter().flatten().any(|operator| *operator == call), "{name}");
    }
    let has = |operator: &str| functions.iter().flatten().any(|known| known == operator);
    assert!(has("I64Const { value: 8 }") && has("I32Const { value: 3 }"), "{functions:?}");
    let bits = 0.5f64.to_bits();
    assert!(has(&format!("F64Const {{ value: Ieee64({bits}) }}")), "{functions:?}");
}

#[test]
fn the_packet_address_is_unchanged_in_the_loop() {
    // The descriptor's address is a local of the loop if the packet function is inlined there.
    let mut instance =
        start(&engine(), &emitting("(i64.load32_u offset=8 (local.get $d))"), profile(Tier::Metered, 10_000));
    instance.run(BatchInput { mask: 1 << 7 | 1, ..all() });
    let at = |packet: u64| u64::from(ARENA_BASE) + packet * PACKET_BYTES as u64;
    assert_eq!(values(&mut instance), [at(0), at(7)]);
}

#[test]
fn locals_are_zero_for_each_packet() {
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32) (local $a i32) (local $b i64) (local $v v128) (local $r funcref) (local $f f64)
        (i64.store (i32.const 64) (i64.add (i64.extend_i32_u (local.get $a)) (i64.add (local.get $b) (i64.add (i64x2.extract_lane 0 (local.get $v))
            (i64.add (i64.extend_i32_u (i32.eqz (ref.is_null (local.get $r)))) (i64.trunc_f64_u (local.get $f)))))))
        (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
        (local.set $a (i32.const 1)) (local.set $b (i64.const 10)) (local.set $v (v128.const i64x2 100 100))
        (local.set $r (ref.func $emit)) (local.set $f (f64.const 1000))
        (i32.const 0)) (elem declare func $emit)"#;
    for mode in [CheckMode::As(Tier::Proved), CheckMode::As(Tier::Metered), CheckMode::Exact(1 << 40)] {
        let mut instance = start(&engine_as(mode), body, profile(Tier::Metered, 10_000));
        instance.run(BatchInput { mask: 0b111, ..all() });
        assert_eq!(values(&mut instance), [0, 0, 0], "{mode:?}");
    }
}
