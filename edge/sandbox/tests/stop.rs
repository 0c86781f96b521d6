//! The stop of a module in parts: `weir_stop`, and `weir_rest` for the records that are too many for one call.

use crate::support::options;
use crate::support::{MANIFEST, bytes, engine, started, values, wat};
use std::time::Duration;
use weir_abi::limit;
use weir_admission::{Admitted, CalibratedProfile, Profile, Tier};
use weir_sandbox::{Call, CallStep, CheckMode, Engine, EngineOptions, FuelSlice, Instance};
use weir_session::Records;
use weir_units::{Nanos, Timestamp};

const STOP: Call = Call::Stop { now: Timestamp(7) };

/// A module that counts its calls of `weir_rest` in a global, and does `act` in each. `act` leaves the reply.
fn rest(act: &str) -> String {
    format!(
        r#"(global $calls (mut i64) (i64.const 0))
        (func $emit_value (param $value i64)
            (i64.store (i32.const 64) (local.get $value))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8))))
        (func $emit_many (param $n i32)
            (loop $next (call $emit_value (i64.extend_i32_u (local.get $n)))
                (br_if $next (local.tee $n (i32.sub (local.get $n) (i32.const 1))))))
        (func (export "weir_packet") (param i32) (result i32) (i32.const 0))
        (func (export "weir_rest") (param $now i64) (result i32)
            (global.set $calls (i64.add (global.get $calls) (i64.const 1)))
            {act})"#
    )
}

/// Runs all parts of the stop. Returns the number of records of each part.
fn parts(instance: &mut Instance) -> Vec<usize> {
    let mut parts = Vec::new();
    while !instance.is_stopped() {
        assert_eq!(instance.begin(STOP, FuelSlice::UNLIMITED), CallStep::Done(0));
        parts.push(instance.take_records(Records::default()).len());
    }
    parts
}

#[test]
fn each_call_for_the_rest_has_an_allowance_of_its_own() {
    let engine = engine();
    let body = rest(
        "(if (i64.lt_u (global.get $calls) (i64.const 4)) (then (call $emit_many (i32.const 60000))))
        (i64.lt_u (global.get $calls) (i64.const 4))",
    ) + r#"(func (export "weir_stop") (param i64) (call $emit_many (i32.const 50000)))"#;
    let mut instance = started(&engine, &body);
    assert!(!instance.is_stopped());
    assert_eq!(parts(&mut instance), [50_000, 60_000, 60_000, 60_000, 0]);
    assert_eq!(instance.counters().records_dropped, 0);
    assert!(instance.incidents().is_empty(), "{:?}", instance.incidents());
    // A further call does nothing.
    instance.stop(Timestamp(9));
    assert!(!instance.has_records());
}

#[test]
fn the_rest_gets_the_time_of_the_stop_and_is_called_without_a_stop_function() {
    let engine = engine();
    let mut instance = started(&engine, &rest("(call $emit_value (local.get $now)) (i32.const 0)"));
    instance.stop(Timestamp(7));
    assert_eq!(values(&mut instance), [7]);
}

#[test]
fn each_call_for_the_rest_is_a_part() {
    let engine = engine();
    let body = rest("(call $emit_value (global.get $calls)) (i64.lt_u (global.get $calls) (i64.const 3))");
    assert_eq!(parts(&mut started(&engine, &body)), [1, 1, 1]);
    let body = rest("(i64.lt_u (global.get $calls) (i64.const 4))");
    assert_eq!(parts(&mut started(&engine, &body)), [0, 0, 0, 0]);
}

#[test]
fn a_module_that_never_finishes_its_stop_is_not_called_for_ever() {
    let engine = engine();
    let body = rest(
        "(if (i64.eq (global.get $calls) (i64.const 512)) (then (call $emit_value (global.get $calls))))
        (if (i64.gt_u (global.get $calls) (i64.const 512)) (then unreachable))
        (i32.const -1)",
    );
    assert_eq!(limit::REST_CALLS, 512);
    let mut instance = started(&engine, &body);
    instance.stop(Timestamp(7));
    assert_eq!(values(&mut instance), [512]);
    assert!(instance.incidents().is_empty(), "{:?}", instance.incidents());
}

#[test]
fn a_trap_ends_the_rest_and_its_records_are_discarded() {
    let engine = engine();
    let body = rest(
        "(call $emit_value (global.get $calls)) (i64.eq (global.get $calls) (i64.const 1)) (br_if 0 (i64.eq (global.get $calls) (i64.const 1))) unreachable",
    );
    let mut instance = started(&engine, &body);
    instance.stop(Timestamp(7));
    assert_eq!(values(&mut instance), [1]);
    assert_eq!((instance.counters().faults, instance.counters().records_discarded), (1, 1));
    assert!(instance.is_stopped());
}

#[test]
fn an_aborted_stop_is_not_called_again() {
    let options = EngineOptions {
        check_mode: CheckMode::As(Tier::Metered),
        call_limit: Duration::from_secs(60),
        ..options()
    };
    let engine = Engine::new(options, None).unwrap();
    let profile = Profile {
        tiers: vec![Tier::Metered],
        stop: Nanos(1_000_000),
        tick: Nanos(1_000_000),
        ..Profile::default()
    };
    let terms = CalibratedProfile::from(profile);
    let body = rest("(call $emit_many (i32.const 1000)) (i32.const 1)")
        + r#"(func (export "weir_stop") (param i64) (call $emit_many (i32.const 1000)))"#;
    let admitted = Admitted::admit_by(bytes(&wat(&body), MANIFEST), &[], &terms).unwrap();
    let program = engine.load_suspendable(admitted).unwrap();
    let mut instance = Instance::start(&engine, &program).unwrap();
    for _ in 0..2 {
        assert_eq!(instance.begin(STOP, FuelSlice { fuel: 100, until: None }), CallStep::Suspended);
        assert!(!instance.is_stopped());
        instance.abort();
    }
    assert!(instance.is_stopped(), "neither `weir_stop` nor `weir_rest` is called a second time");
    assert!(!instance.has_records());
}
