//! The largest contributor to each resource: the right one of several code locations is named.

use crate::support::analysed;
use weir_bounds::{EntryBound, EntryPoint, PathStep, StepKind, TopContributors};

/// An entry point that calls three functions in turn, each with a different usage.
fn three(little: &str, much: &str, some: &str) -> EntryBound {
    let analysis = analysed(&format!(
        r#"(func $little (param $a i32) (local $i i32) {little})
        (func $much (param $a i32) (local $i i32) {much})
        (func $some (param $a i32) (local $i i32) {some})
        (func $packet (export "weir_packet") (param $p i32) (result i32)
            (call $little (i32.const 0)) (call $much (i32.const 0)) (call $some (i32.const 0)) (i32.const 0))"#
    ));
    analysis.entry(EntryPoint::Packet).expect("it has the entry point").clone()
}

fn times(count: u32, what: &str) -> String {
    format!(
        "(loop $l {what} (br_if $l (i32.ne (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const {count}))))"
    )
}

/// Asserts that a contributor is in the function `$much`, of this kind and amount.
fn assert_contributor(step: Option<&PathStep>, what: &StepKind, amount: u64) {
    let step = step.unwrap_or_else(|| panic!("no place for {what:?}"));
    assert_eq!((step.place.name.as_deref(), &step.kind), (Some("much"), what));
    assert_eq!(step.amount.constant, amount, "{step:?}");
    assert!(step.place.offset > 0);
}

const EMIT: &str = "(drop (call $emit (i32.const 0) (i32.const 0) (i32.const 8)))";
const PATCH: &str = "(drop (call $patch (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 1)))";
const SEND: &str = "(drop (call $send (i32.const 0) (i32.const 0) (i32.const 60)))";

#[test]
fn the_largest_contributors_of_records_patches_frames_and_pages_are_named() {
    let grow = |pages: u32| format!("(drop (memory.grow (i32.const {pages})))");
    let found = three(EMIT, &times(4, EMIT), &times(2, EMIT));
    assert_contributor(found.top.records.as_ref(), &StepKind::Host("emit"), 4);
    let found = three(&times(2, PATCH), &times(3, PATCH), PATCH);
    assert_contributor(found.top.patches.as_ref(), &StepKind::Host("patch"), 3);
    let found = three(SEND, &times(5, SEND), &times(4, SEND));
    assert_contributor(found.top.frames.as_ref(), &StepKind::Host("send"), 5);
    let found = three(&grow(1), &grow(3), &grow(2));
    assert_contributor(found.top.pages.as_ref(), &StepKind::Grow, 3);
    // The function that uses most fuel need not be the one that emits the records.
    let found = three(&times(1000, "(nop)"), EMIT, "");
    assert_contributor(found.top.records.as_ref(), &StepKind::Host("emit"), 1);
    assert_eq!(found.top_contributor().and_then(|step| step.place.name.as_deref()), Some("little"));
    // A resource that a module does not use has no contributor.
    let TopContributors { records, patches, frames, pages, stack, shadow_stack } = three("", "", "").top;
    assert_eq!((records, patches, frames, pages, shadow_stack), (None, None, None, None, None));
    assert!(stack.is_some(), "every function has a frame");
}

#[test]
fn the_largest_stack_frames_are_named() {
    let wide = |locals: usize| format!("(local i64) {}", "(local i64)".repeat(locals));
    let found = three(&wide(10), &wide(300), &wide(100));
    let amount = found.top.stack.as_ref().map_or(0, |step| step.amount.constant);
    assert!((300 * 8..300 * 24).contains(&amount), "{amount}");
    assert_contributor(found.top.stack.as_ref(), &StepKind::StackFrame, amount);
    let takes = |bytes: u32| {
        format!(
            "(global.set $__stack_pointer (i32.sub (global.get $__stack_pointer) (i32.const {bytes})))
        (global.set $__stack_pointer (i32.add (global.get $__stack_pointer) (i32.const {bytes})))"
        )
    };
    let found = three(&takes(16), &takes(400), &takes(32));
    assert_contributor(found.top.shadow_stack.as_ref(), &StepKind::ShadowStackFrame, 400);
    // The caller's part of the shadow stack is larger than the callee's, or smaller.
    let calls = |more: u32| {
        format!(
            "(global.set $__stack_pointer (i32.sub (global.get $__stack_pointer) (i32.const 400))) (call $some (i32.const {more}))
            (global.set $__stack_pointer (i32.add (global.get $__stack_pointer) (i32.const 400)))"
        )
    };
    assert_contributor(
        three("", &calls(1), &takes(300)).top.shadow_stack.as_ref(),
        &StepKind::ShadowStackFrame,
        400,
    );
    let found = three("", &calls(1), &takes(500)).top.shadow_stack.expect("it has a place");
    assert_eq!((found.place.name.as_deref(), found.amount.constant), (Some("some"), 500));
    // By an amount that is known only at run time.
    let unknown =
        "(global.set $__stack_pointer (i32.sub (global.get $__stack_pointer) (i32.load (i32.const 0))))";
    let found = three(&takes(16), unknown, &takes(32));
    assert_eq!(found.shadow_stack, None);
    assert_contributor(found.top.shadow_stack.as_ref(), &StepKind::ShadowStackFrame, u64::MAX);
}

#[test]
fn a_recursive_function_is_the_contributor_of_every_resource() {
    let found = three("", "(call $much (i32.const 1))", "");
    for step in
        [&found.top.records, &found.top.patches, &found.top.pages, &found.top.stack, &found.top.shadow_stack]
    {
        assert_eq!(step.as_ref().and_then(|step| step.place.name.as_deref()), Some("much"));
    }
}
