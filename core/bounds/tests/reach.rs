//! Calls of a host function that an entry point can reach.

use crate::support::module;
use weir_abi::host::HostFunction;
use weir_bounds::{ParsedModule, reachable_host_calls};

const PATCH: &str = "(drop (call $patch (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 1)))";

/// The functions with the first two calls of `patch`, and the number of all.
fn patching(text: &str) -> (Vec<String>, usize) {
    let module = ParsedModule::parse(module(text)).expect("it is a module");
    let (places, calls) = reachable_host_calls(&module, HostFunction::Patch, 2).expect("it has been parsed");
    assert!(places.is_sorted_by_key(|place| place.offset));
    (places.into_iter().map(|place| place.name.expect("it has a name")).collect(), calls)
}

fn packet(body: &str) -> String {
    format!(r#"(func $packet (export "weir_packet") (param i32) (result i32) {body} (i32.const 0))"#)
}

#[test]
fn calls_are_found_in_all_functions_that_an_entry_point_leads_to() {
    assert_eq!(patching(&packet("")), (vec![], 0));
    assert_eq!(patching(&packet(PATCH)), (vec!["packet".to_owned()], 1));
    // Also under a condition that never holds, in recursive functions, and from each entry point.
    let more = format!(
        r#"(func $one (if (i32.const 0) (then (call $two))))
        (func $two {PATCH} {PATCH} (call $one))
        (func $tick (export "weir_tick") (param i64 i64) {PATCH})"#
    );
    assert_eq!(patching(&(packet("(call $one)") + &more)), (vec!["two".to_owned(); 2], 3));
    assert_eq!(patching(&(packet("") + &more)), (vec!["tick".to_owned()], 1));
    // A function that no entry point leads to does not count, although it is exported: weir does not call it.
    let unused = format!(r#"(func $unused (export "unused") {PATCH})"#);
    assert_eq!(patching(&(packet("") + &unused)), (vec![], 0));
}

#[test]
fn a_call_by_a_pointer_counts_for_every_function_of_its_type() {
    let table =
        "(table 2 funcref) (type $none (func)) (type $four (func (param i32 i32 i32 i32) (result i32)))";
    let by_pointer = "(call_indirect (type $none) (i32.const 0))";
    let held = format!("{table} (elem (i32.const 0) $held) (func $held {PATCH})");
    assert_eq!(patching(&(packet(by_pointer) + &held)), (vec!["held".to_owned()], 1));
    assert_eq!(patching(&(packet("") + &held)), (vec![], 0));
    // The host function itself can be in a table. The call by the pointer is then the place.
    let patch_by_pointer = "(drop (call_indirect (type $four) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 0)))";
    let held = format!("{table} (elem (i32.const 0) $patch)");
    assert_eq!(patching(&(packet(patch_by_pointer) + &held)), (vec!["packet".to_owned()], 1));
    assert_eq!(patching(&(packet(by_pointer) + &held)), (vec![], 0));
    assert_eq!(patching(&(packet(patch_by_pointer) + table)), (vec![], 0), "no pointer leads to `patch`");
}
