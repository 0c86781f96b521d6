//! Calls of native code, and the ways in which they end.

use crate::support::{Calls, Native, no_calls};
use weir_lower::TrapCode;
use weir_native::{HostAnswer, NativeExit, TrapKind};

#[test]
fn a_function_returns_its_result() {
    let text = r#"(module (memory 1) (func (export "add") (param i32 i32) (result i32)
        (i32.add (local.get 0) (local.get 1)))
        (func (export "sum") (param i32) (result i64) (local i64)
            (loop $next
                (local.set 1 (i64.add (local.get 1) (i64.extend_i32_u (local.get 0))))
                (br_if $next (local.tee 0 (i32.sub (local.get 0) (i32.const 1)))))
            (local.get 1)))"#;
    let Some(mut native) = Native::new(text) else { return };
    assert_eq!(native.call("add", &[3, u64::MAX], &mut no_calls()), NativeExit::Returned(2));
    assert_eq!(native.call("sum", &[1000], &mut no_calls()), NativeExit::Returned(500_500));
}

#[test]
fn memory_and_globals_are_those_of_the_sandbox() {
    let text = r#"(module (memory 1) (global $g (mut i64) (i64.const 7))
        (func (export "swap") (param i32 i64) (result i64)
            (i64.store offset=8 (local.get 0) (local.get 1))
            (global.set $g (i64.add (global.get $g) (i64.const 1)))
            (global.get $g)))"#;
    let Some(mut native) = Native::new(text) else { return };
    assert_eq!(native.call("swap", &[100, 0x0102_0304_0506_0708], &mut no_calls()), NativeExit::Returned(8));
    assert_eq!(native.memory()[108..116], [8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(native.sandbox.globals().get(native.lowered.globals[&0].0), 8);
}

fn trap(native: &mut Native, export: &str, arguments: &[u64]) -> TrapKind {
    match native.call(export, arguments, &mut no_calls()) {
        NativeExit::Trapped(trap) => trap.kind,
        other => panic!("{other:?}"),
    }
}

#[test]
fn traps_have_their_causes() {
    let text = r#"(module (memory 1) (type $t (func (result i32)))
        (table 4 funcref) (elem (i32.const 1) $one $nothing)
        (func $one (type $t) (i32.const 1))
        (func $nothing)
        (func (export "unreachable") (unreachable))
        (func (export "divide") (param i32 i32) (result i32) (i32.div_s (local.get 0) (local.get 1)))
        (func (export "truncate") (param i32) (result i32)
            (i32.trunc_f32_s (f32.convert_i32_u (local.get 0))))
        (func (export "load") (param i32) (drop (i32.load (local.get 0))))
        (func (export "far") (param i32) (drop (i32.load offset=0xfffffff0 (local.get 0))))
        (func (export "indirect") (param i32) (result i32) (call_indirect (type $t) (local.get 0)))
        (func $deep (export "deep") (param i32) (result i32)
            (i32.add (i32.const 1) (call $deep (i32.add (local.get 0) (i32.const 1))))))"#;
    let Some(mut native) = Native::new(text) else { return };
    assert_eq!(trap(&mut native, "unreachable", &[]), TrapKind::Code(TrapCode::Unreachable));
    assert_eq!(trap(&mut native, "divide", &[1, 0]), TrapKind::Code(TrapCode::Arithmetic));
    let least = u64::from(i32::MIN.cast_unsigned());
    assert_eq!(trap(&mut native, "divide", &[least, u64::MAX]), TrapKind::Code(TrapCode::Arithmetic));
    assert_eq!(trap(&mut native, "truncate", &[0x8000_0000]), TrapKind::Code(TrapCode::Arithmetic));
    // A load whose value is not used traps, too.
    let base = native.memory().as_ptr().addr();
    assert_eq!(trap(&mut native, "load", &[65_536]), TrapKind::Access(base + 65_536));
    assert_eq!(trap(&mut native, "load", &[0xffff_ffff]), TrapKind::Access(base + 0xffff_ffff));
    assert_eq!(trap(&mut native, "far", &[16]), TrapKind::Code(TrapCode::OutOfBounds));
    for element in [0, 2, 3, 4, 0xffff_ffff] {
        assert_eq!(trap(&mut native, "indirect", &[element]), TrapKind::Code(TrapCode::IndirectCall));
    }
    assert_eq!(native.call("indirect", &[1], &mut no_calls()), NativeExit::Returned(1));
    assert_eq!(trap(&mut native, "deep", &[0]), TrapKind::StackOverflow);
    // After a trap, the sandbox works as before.
    assert_eq!(native.call("divide", &[7, 2], &mut no_calls()), NativeExit::Returned(3));
}

#[test]
fn host_functions_get_arguments_and_their_result_arrives() {
    let text = r#"(module (import "weir" "six" (func $six (param i32 i64 i32 i32 i64 i32) (result i64)))
        (import "weir" "float" (func $float (result f64)))
        (memory 1)
        (func (export "run") (param i64) (result i64)
            (i64.add (local.get 0)
                (call $six (i32.const 1) (local.get 0) (i32.const 3) (i32.const 4) (i64.const 5) (i32.const 6))))
        (func (export "bits") (result i64) (i64.reinterpret_f64 (call $float))))"#;
    let Some(mut native) = Native::new(text) else { return };
    let mut seen = Vec::new();
    let mut host = Calls(|thunk, arguments: &[u64; 6]| {
        seen.push((thunk, *arguments));
        HostAnswer::Value(if thunk == 0 { 100 } else { 2.5_f64.to_bits() })
    });
    assert_eq!(native.call("run", &[2], &mut host), NativeExit::Returned(102));
    assert_eq!(native.call("bits", &[], &mut host), NativeExit::Returned(2.5_f64.to_bits()));
    let (thunk, arguments) = seen[0];
    assert_eq!(thunk, 0);
    let low = |index: usize| arguments[index] & u64::from(u32::MAX);
    assert_eq!((low(0), arguments[1], low(2), low(3), arguments[4], low(5)), (1, 2, 3, 4, 5, 6));
    assert_eq!(seen[1].0, 1);
}

#[test]
fn a_host_function_suspends_or_aborts_a_call() {
    let text = r#"(module (import "weir" "next" (func $next (param i32) (result i32))) (memory 1)
        (func (export "run") (param i32 i32) (result i32)
            (local $sum i32)
            (loop $again
                (local.set $sum (i32.add (local.get $sum) (i32.mul (call $next (local.get 0)) (local.get 1))))
                (br_if $again (local.tee 0 (i32.sub (local.get 0) (i32.const 1)))))
            (local.get $sum)))"#;
    let Some(mut native) = Native::new(text) else { return };
    let mut suspend = Calls(|_, _: &[u64; 6]| HostAnswer::Suspend);
    assert_eq!(native.call("run", &[3, 10], &mut suspend), NativeExit::Suspended);
    assert_eq!(native.sandbox.resume(1, &mut suspend), NativeExit::Suspended);
    // The call continues on another thread.
    let exit = std::thread::scope(|scope| {
        let sandbox = &mut native.sandbox;
        let other = scope.spawn(move || {
            let mut last = Calls(|_, _: &[u64; 6]| HostAnswer::Value(5));
            sandbox.resume(2, &mut last)
        });
        other.join().unwrap()
    });
    assert_eq!(exit, NativeExit::Returned(80));
    let mut abort = Calls(|_, _: &[u64; 6]| HostAnswer::Abort);
    let aborted = native.call("run", &[3, 10], &mut abort);
    assert!(matches!(aborted, NativeExit::Aborted { offset: 1..100 }), "{aborted:?}");
    let mut one = Calls(|_, _: &[u64; 6]| HostAnswer::Value(1));
    assert_eq!(native.call("run", &[3, 10], &mut one), NativeExit::Returned(30));
}
