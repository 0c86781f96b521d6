//! Modules that were made to break a proof: each runs longer than a careless analysis says. What it does in truth is written above it.

mod support;

use support::analysed;
use weir_bounds::EntryPoint;

/// What the analysis says about `weir_packet` with this body, for a packet of 60 bytes; nothing if it has no bound.
fn bound_with(rest: &str, body: &str) -> Option<u64> {
    let analysis = analysed(&format!(
        r#"{rest}
        (func (export "weir_packet") (param $p i32) (result i32)
            (local $a i32) (local $b i32) (local $c i32) (local $d i32)
            (local $x i64) (local $y i64)
            {body}
            (i32.const 0))"#
    ));
    let found = analysis.entry(EntryPoint::Packet).expect("it has the entry point");
    found.is_bounded().then(|| found.usage.fuel.at(60))
}

/// The module can use as much: then its bound is at least that, or there is none.
fn can_use(fuel: u64, body: &str) {
    let found = bound_with("", body);
    assert!(found.is_none_or(|found| found >= fuel), "{found:?}, and it can use {fuel}:\n{body}");
}

fn never_ends(body: &str) {
    assert_eq!(bound_with("", body), None, "{body}");
}

const ENDLESS: &str = "(loop $ever (br $ever))";

/// A number that the module may have written there: it can be any of its width.
const WORD: &str = "(i32.load (i32.const 0))";
const HALF: &str = "(i32.load16_u (i32.const 0))";

/// `b + 1` is at most 10 where it is compared with, because of what was compared before; not so where the loop begins, with b = 20, say.
#[test]
fn what_holds_whenever_a_body_begins_is_not_what_its_end_knows() {
    never_ends(&format!(
        "(local.set $b {HALF}) (local.set $a (local.get $b))
        (block $out (block $dear
            (loop $l
                (br_if $dear (i32.ge_u (local.get $a) (i32.const 10)))
                (br_if $out (i32.ge_u (local.get $b) (i32.const 10)))
                (br_if $l (i32.lt_u (local.tee $a (i32.add (local.get $a) (i32.const 1)))
                    (i32.add (local.get $b) (i32.const 1)))))
            (br $out))
            {ENDLESS})"
    ));
}

/// The same test on both edges, but only on the first one b + 1 is at most 10.
#[test]
fn the_same_limit_on_two_edges_is_known_differently() {
    let test = "(br_if $l (i32.lt_u (local.tee $a (i32.add (local.get $a) (i32.const 1)))
        (i32.add (local.get $b) (i32.const 1))))";
    can_use(
        1 << 16,
        &format!(
            "(local.set $b {HALF})
            (loop $l (if (i32.lt_u (local.get $b) (i32.const 10)) (then {test}) (else {test})))"
        ),
    );
}

/// c is b + 1 on both ways, but only on the first one it is at most 10.
#[test]
fn the_same_value_from_two_ways_is_known_differently() {
    let limit = "(local.set $c (i32.add (local.get $b) (i32.const 1)))";
    for (then, other) in [("i32.lt_u", "i32.ge_u"), ("i32.ge_u", "i32.lt_u")] {
        for (first, second) in [(then, limit), (other, limit)] {
            can_use(
                1 << 16,
                &format!(
                    "(local.set $b {HALF})
                    (if ({first} (local.get $b) (i32.const 10)) (then {second}) (else {limit}))
                    (loop $l (br_if $l (i32.lt_u
                        (local.tee $a (i32.add (local.get $a) (i32.const 1))) (local.get $c))))"
                ),
            );
        }
    }
}

/// What the counter equals moves along with it.
#[test]
fn a_counter_that_equals_what_moves_with_it() {
    never_ends(&format!(
        "(block $out (loop $l
            (br_if $out (i32.ne (local.get $a) {WORD}))
            (local.set $a (i32.add (local.get $a) (i32.const 1)))
            (i32.store (i32.const 0) (local.get $a))
            (br $l)))"
    ));
}

/// Two terms of 2^63 times what was read are more together than 128 bits hold; the sum is 0 or 2^63.
#[test]
fn the_largest_coefficients_do_not_overflow() {
    never_ends(&format!(
        "(local.set $x (i64.load (i32.const 0))) (local.set $y (i64.load (i32.const 8)))
        (block $out
            (br_if $out (i64.eqz (i64.add
                (i64.shl (local.get $x) (i64.const 63)) (i64.shl (local.get $y) (i64.const 63)))))
            {ENDLESS})"
    ));
}

/// An index that is too large leads from the descriptor to the module's own memory, where it finds what it put there.
#[test]
fn what_lies_at_an_index_is_not_always_a_descriptor() {
    can_use(
        1 << 34,
        &format!(
            "(local.set $b (i32.load offset=12 (i32.add (local.get $p) (i32.shl {WORD} (i32.const 6)))))
            (loop $l (br_if $l (i32.lt_u
                (local.tee $a (i32.add (local.get $a) (i32.const 1))) (local.get $b))))"
        ),
    );
}

/// No element segment and no export has the function; a global's first value has it, and a table gets it from there.
#[test]
fn a_function_comes_into_the_table_from_a_global() {
    let found = bound_with(
        &format!(
            "(type $t (func)) (table 1 funcref) (global $g funcref (ref.func $ever)) (func $ever {ENDLESS})"
        ),
        "(table.set 0 (i32.const 0) (global.get $g)) (call_indirect (type $t) (i32.const 0))",
    );
    assert_eq!(found, None);
}

/// The length less a number below zero is more than the length.
#[test]
fn a_length_less_a_negative_number() {
    can_use(
        999_000,
        &format!(
            "(local.set $b (i32.rem_s {WORD} (i32.const 1000000)))
            (block $out
                (br_if $out (i32.gt_s (local.get $b) (i32.const 0)))
                (local.set $c (i32.sub (i32.load offset=12 (local.get $p)) (local.get $b)))
                (loop $l (br_if $l (i32.lt_u
                    (local.tee $a (i32.add (local.get $a) (i32.const 1))) (local.get $c)))))"
        ),
    );
}

/// The limit comes with each iteration, and the counter always just misses it.
#[test]
fn an_operand_of_a_loop_is_another_one_in_each_iteration() {
    never_ends(
        "(i32.const 5)
        (loop $l (param i32)
            (local.set $c (i32.and (i32.const 15)))
            (if (i32.ne (local.get $a) (local.get $c)) (then
                (local.set $a (i32.add (local.get $a) (i32.const 1)))
                (i32.add (local.get $a) (i32.const 3))
                (br $l))))",
    );
}
