//! What contributes most to what a module uses, of each resource: the place is named, and it is the right one of several.

use crate::support::analysed;
use weir_bounds::{EntryBound, EntryPoint, PathStep, TopContributor, What};

/// Three functions, each of which uses a different amount of everything; the packet function calls them one after the other.
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

fn holds(step: Option<&PathStep>, what: &What, amount: u64) {
    let step = step.unwrap_or_else(|| panic!("no place for {what:?}"));
    assert_eq!((step.place.name.as_deref(), &step.what), (Some("much"), what));
    assert_eq!(step.amount.constant, amount, "{step:?}");
    assert!(step.place.offset > 0);
}

const EMIT: &str = "(drop (call $emit (i32.const 0) (i32.const 0) (i32.const 8)))";
const PATCH: &str = "(drop (call $patch (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 1)))";
const SEND: &str = "(drop (call $send (i32.const 0) (i32.const 0) (i32.const 60)))";

#[test]
fn records_patches_frames_and_pages() {
    let grow = |pages: u32| format!("(drop (memory.grow (i32.const {pages})))");
    let found = three(EMIT, &times(4, EMIT), &times(2, EMIT));
    holds(found.most.records.as_ref(), &What::Host("emit"), 4);
    let found = three(&times(2, PATCH), &times(3, PATCH), PATCH);
    holds(found.most.patches.as_ref(), &What::Host("patch"), 3);
    let found = three(SEND, &times(5, SEND), &times(4, SEND));
    holds(found.most.frames.as_ref(), &What::Host("send"), 5);
    let found = three(&grow(1), &grow(3), &grow(2));
    holds(found.most.pages.as_ref(), &What::Grow, 3);
    // The dearest is another one: what costs most time need not be what makes the records.
    let found = three(&times(1000, "(nop)"), EMIT, "");
    holds(found.most.records.as_ref(), &What::Host("emit"), 1);
    assert_eq!(found.dearest().and_then(|step| step.place.name.as_deref()), Some("little"));
    // What a module does not use has no place.
    let TopContributor { records, patches, frames, pages, stack, shadow_stack } = three("", "", "").most;
    assert_eq!((records, patches, frames, pages, shadow_stack), (None, None, None, None, None));
    assert!(stack.is_some(), "every function has a frame");
}

#[test]
fn stacks() {
    let wide = |locals: usize| format!("(local i64) {}", "(local i64)".repeat(locals));
    let found = three(&wide(10), &wide(300), &wide(100));
    let amount = found.most.stack.as_ref().map_or(0, |step| step.amount.constant);
    assert!((300 * 8..300 * 24).contains(&amount), "{amount}");
    holds(found.most.stack.as_ref(), &What::Frame, amount);
    let takes = |bytes: u32| {
        format!(
            "(global.set $__stack_pointer (i32.sub (global.get $__stack_pointer) (i32.const {bytes})))
        (global.set $__stack_pointer (i32.add (global.get $__stack_pointer) (i32.const {bytes})))"
        )
    };
    let found = three(&takes(16), &takes(400), &takes(32));
    holds(found.most.shadow_stack.as_ref(), &What::Locals, 400);
    // Who calls another one has more of it than the other, or less.
    let calls = |more: u32| {
        format!(
            "(global.set $__stack_pointer (i32.sub (global.get $__stack_pointer) (i32.const 400))) (call $some (i32.const {more}))
            (global.set $__stack_pointer (i32.add (global.get $__stack_pointer) (i32.const 400)))"
        )
    };
    holds(three("", &calls(1), &takes(300)).most.shadow_stack.as_ref(), &What::Locals, 400);
    let found = three("", &calls(1), &takes(500)).most.shadow_stack.expect("it has a place");
    assert_eq!((found.place.name.as_deref(), found.amount.constant), (Some("some"), 500));
    // By an amount that only the run knows.
    let unknown =
        "(global.set $__stack_pointer (i32.sub (global.get $__stack_pointer) (i32.load (i32.const 0))))";
    let found = three(&takes(16), unknown, &takes(32));
    assert_eq!(found.shadow_stack, None);
    holds(found.most.shadow_stack.as_ref(), &What::Locals, u64::MAX);
}

#[test]
fn a_function_that_calls_itself_is_named_for_everything() {
    let found = three("", "(call $much (i32.const 1))", "");
    for step in [
        &found.most.records,
        &found.most.patches,
        &found.most.pages,
        &found.most.stack,
        &found.most.shadow_stack,
    ] {
        assert_eq!(step.as_ref().and_then(|step| step.place.name.as_deref()), Some("much"));
    }
}
