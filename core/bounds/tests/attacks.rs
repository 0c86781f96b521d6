//! Modules made to break a proof: each runs longer than a careless analysis says. The comment above each states its
//! true behaviour.

use crate::support::analysed;
use weir_bounds::EntryPoint;

/// The fuel bound of `weir_packet` with this body, for a packet of 60 bytes; `None` if it has no bound.
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

/// Asserts that the bound is at least `fuel`, which the module can use, or that there is none.
fn can_use(fuel: u64, body: &str) {
    let found = bound_with("", body);
    assert!(found.is_none_or(|found| found >= fuel), "{found:?}, and it can use {fuel}:\n{body}");
}

fn never_ends(body: &str) {
    assert_eq!(bound_with("", body), None, "{body}");
}

const ENDLESS: &str = "(loop $ever (br $ever))";

/// A load from memory that the module may have written: any value of its width.
const WORD: &str = "(i32.load (i32.const 0))";
const HALF: &str = "(i32.load16_u (i32.const 0))";

/// `b + 1` is at most 10 at the comparison, because of an earlier comparison; but not where the body begins, for
/// example with b = 20.
#[test]
fn a_condition_at_the_end_of_a_body_need_not_hold_at_its_begin() {
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

/// Both edges have the same test, but only on the first one is b + 1 at most 10.
#[test]
fn a_condition_on_a_limit_on_one_edge_does_not_hold_on_another() {
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

/// c is b + 1 on both paths, but only on the first one it is at most 10.
#[test]
fn a_condition_on_a_value_on_one_path_does_not_hold_on_another() {
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

/// The counter is compared with a value that moves along with it.
#[test]
fn a_counter_that_equals_a_limit_moving_with_it_never_ends() {
    never_ends(&format!(
        "(block $out (loop $l
            (br_if $out (i32.ne (local.get $a) {WORD}))
            (local.set $a (i32.add (local.get $a) (i32.const 1)))
            (i32.store (i32.const 0) (local.get $a))
            (br $l)))"
    ));
}

/// Two terms of 2^63 times a loaded value exceed 128 bits; their wrapped sum is 0 or 2^63.
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

/// An index that is too large leads from the descriptor to the module's own memory, where the module has stored a
/// value.
#[test]
fn an_index_beyond_the_descriptors_reads_unknown_memory() {
    can_use(
        1 << 34,
        &format!(
            "(local.set $b (i32.load offset=12 (i32.add (local.get $p) (i32.shl {WORD} (i32.const 7)))))
            (loop $l (br_if $l (i32.lt_u
                (local.tee $a (i32.add (local.get $a) (i32.const 1))) (local.get $b))))"
        ),
    );
}

/// The function is in no element segment and no export. The initial value of a global refers to it, and the module
/// copies it to a table.
#[test]
fn an_indirect_call_can_reach_a_function_from_a_global() {
    let found = bound_with(
        &format!(
            "(type $t (func)) (table 1 funcref) (global $g funcref (ref.func $ever)) (func $ever {ENDLESS})"
        ),
        "(table.set 0 (i32.const 0) (global.get $g)) (call_indirect (type $t) (i32.const 0))",
    );
    assert_eq!(found, None);
}

/// The length minus a negative number is more than the length.
#[test]
fn a_length_minus_a_negative_number_exceeds_the_length() {
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

/// Each iteration brings a new limit, and the counter always just misses it.
#[test]
fn an_operand_of_a_loop_differs_in_each_iteration() {
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

/// The compared amount is x - 2^31, from 0 to 100; the amount that is taken is 200 less. So the remainder grows in each
/// iteration.
#[test]
fn a_negative_amount_taken_from_a_remainder_never_ends() {
    never_ends(&format!(
        "(local.set $a (i32.load8_u (i32.const 4)))
        (block $out (loop $l
            (local.set $b {WORD})
            (br_if $out (i32.lt_u (local.get $b) (i32.const 0x80000000)))
            (br_if $out (i32.gt_u (local.get $b) (i32.const 0x80000064)))
            (local.set $c (i32.sub (local.get $b) (i32.const 0x80000000)))
            (br_if $out (i32.gt_u (local.get $c) (local.get $a)))
            (local.set $a (i32.sub (local.get $a) (i32.sub (local.get $c) (i32.const 200))))
            (br $l)))"
    ));
}

/// A function's loop is short with the arguments from outside, and endless with those of the recursive call; the same
/// for another function that contains the loop. So such a loop has no known bound, and must be charged while it runs.
#[test]
fn a_recursive_call_has_unknown_arguments() {
    let counts = "(local $i i64)
        (loop $l (br_if $l (i64.lt_u
            (local.tee $i (i64.add (local.get $i) (i64.const 1))) (local.get $n))))";
    for functions in [
        format!(
            "(func $f (param $n i64) {counts}
                (if (i64.lt_u (local.get $n) (i64.const 100)) (then (call $f (i64.const -1)))))"
        ),
        format!(
            "(func $g (param $n i64) {counts})
            (func $f (param $n i64) (call $g (local.get $n))
                (if (i64.lt_u (local.get $n) (i64.const 100)) (then (call $f (i64.const -1)))))"
        ),
        format!(
            "(type $t (func (param i64))) (table 2 funcref) (elem (i32.const 0) func $g)
            (func $g (param $n i64) {counts})
            (func $f (param $n i64) (call_indirect (type $t) (local.get $n) (i32.const 0))
                (if (i64.lt_u (local.get $n) (i64.const 100)) (then (call $f (i64.const -1)))))"
        ),
    ] {
        let analysis = analysed(&format!(
            r#"{functions}
            (func (export "weir_packet") (param $p i32) (result i32) (call $f (i64.const 3)) (i32.const 0))"#
        ));
        assert!(!analysis.is_bounded());
        assert!(analysis.loops.iter().all(|found| !found.total.is_bounded()), "{:?}", analysis.loops);
    }
}

/// Up to n in steps of two: one more iteration where n is odd.
#[test]
fn the_last_step_of_a_loop_can_be_partial() {
    let analysis = analysed(
        r#"(func (export "weir_packet") (param $p i32) (result i32)
            (local $a i32) (local $n i32)
            (local.set $n (i32.load8_u (i32.const 0)))
            (block (br_if 0 (i32.lt_u (local.get $n) (i32.const 2)))
                (loop $l (br_if $l (i32.lt_u
                    (local.tee $a (i32.add (local.get $a) (i32.const 2))) (local.get $n)))))
            (i32.const 0))"#,
    );
    let found = analysis.loops.first().expect("it has a loop");
    for n in [2u32, 3, 4, 5, 254, 255] {
        let trips = (2..n).step_by(2).fold(1, |trips, _| trips + 1);
        if let Some(trip_formula) = &found.trip_formula {
            assert_eq!(trip_formula.terms, [(2, 1)]);
            assert!(
                1 + n.wrapping_add_signed(trip_formula.constant) / trip_formula.step >= trips,
                "{n}: {trip_formula:?}"
            );
        }
        assert!(found.trips.constant >= trips.into());
    }
}

/// A loop that is entered with n = 0 runs once; n - 1 is not its trip count.
#[test]
fn a_condition_on_the_back_edge_need_not_hold_on_entry() {
    let analysis = analysed(
        r#"(func (export "weir_packet") (param $p i32) (result i32)
            (local $a i32) (local $n i32)
            (local.set $n (i32.load8_u (i32.const 0)))
            (loop $l (br_if $l (i32.lt_u
                (local.tee $a (i32.add (local.get $a) (i32.const 1))) (local.get $n))))
            (i32.const 0))"#,
    );
    let found = analysis.loops.first().expect("it has a loop");
    assert_eq!((found.trips.constant, found.trip_formula.as_ref()), (255, None));
}

/// The indirect call may reach the function itself or another one. The function returns its first operand, -1, and not
/// 3.
#[test]
fn operands_keep_their_positions_after_a_recursive_call() {
    let analysis = analysed(
        r#"(type $t (func (result i32))) (table 2 funcref) (elem (i32.const 0) func $f $one)
        (func $one (result i32) (i32.const 1))
        (func $f (result i32)
            (i32.const -1) (i32.const 3) (call_indirect (type $t) (i32.const 1)) (drop) (drop))
        (func $count (param $n i32) (local $a i32)
            (loop $l (br_if $l (i32.lt_u
                (local.tee $a (i32.add (local.get $a) (i32.const 1))) (local.get $n)))))
        (func (export "weir_packet") (param $p i32) (result i32) (call $count (call $f)) (i32.const 0))"#,
    );
    let found = analysis.loops.first().expect("it has a loop");
    assert!(!found.total.is_bounded(), "{found:?}");
}

/// One path counts the remainder from the start of the buffer, the other from its end: back and forth for ever.
#[test]
fn a_remainder_counted_in_both_directions_never_ends() {
    never_ends(&format!(
        "(local.set $b {HALF})
        (block $out (loop $l
            (if (i32.and {WORD} (i32.const 1)) (then
                (br_if $out (i32.gt_u (i32.const 1) (i32.add (local.get $b) (local.get $a))))
                (local.set $a (i32.sub (local.get $a) (i32.const 1)))
                (br $l)))
            (br_if $out (i32.gt_u (i32.const 1) (i32.sub (local.get $b) (local.get $a))))
            (local.set $a (i32.add (local.get $a) (i32.const 1)))
            (br $l)))"
    ));
}

/// The first call's argument is at most 5 because of a condition on the packet's length; the second call's argument is not. The
/// ranges of the sums themselves are the same.
#[test]
fn a_callee_knows_no_more_of_a_length_than_its_key_encodes() {
    for (start, end) in [("", ""), ("(i32.add", "(i32.const 1))")] {
        let argument = format!("{start} (i32.load offset=12 (local.get $p)) {end}");
        let found = bound_with(
            &format!(
                "(func $f (param $n i32)
                    (if (i32.gt_u (local.get $n) (i32.const 10)) (then {ENDLESS})))"
            ),
            &format!(
                "(local.set $a {argument})
                (if (i32.lt_u (local.get $a) (i32.const 1000)) (then
                    (if (i32.lt_u (i32.load offset=12 (local.get $p)) (i32.const 5)) (then (call $f (local.get $a))))
                    (call $f (local.get $a))))"
            ),
        );
        assert_eq!(found, None, "{argument}");
    }
}

/// The runtime looks up each table element: far more work than a byte of memory.
#[test]
fn table_elements_cost_more_than_bytes_of_memory() {
    let table = "(table $t 3000 funcref) (elem $e func $f) (func $f)";
    for body in [
        "(table.init $t $e (i32.const 0) (i32.const 0) (i32.const 1000))",
        "(table.copy $t $t (i32.const 0) (i32.const 1000) (i32.const 1000))",
        "(drop (table.grow $t (ref.null func) (i32.const 1000)))",
    ] {
        let found = bound_with(table, body).expect("it has a bound");
        assert!(found >= 20_000, "{body}: {found}");
    }
    let one = bound_with(table, "(drop (ref.func $f))").zip(bound_with(table, "(drop (ref.null func))"));
    assert!(one.is_some_and(|(made, null)| made >= null + 40), "{one:?}");
}

/// A vector takes 16 bytes as an operand, a parameter, a local, or a result.
#[test]
fn vectors_take_more_stack_than_numbers() {
    let stack = |functions: &str, body: &str| {
        let analysis = analysed(&format!(
            r#"{functions} (func (export "weir_packet") (param $p i32) (result i32) {body} (i32.const 0))"#
        ));
        analysis.entry(EntryPoint::Packet).and_then(|found| found.stack).expect("it has a bound")
    };
    let stacks = |one: &str, ty: &str, count: usize| {
        let call = format!("{} (call $f)", one.repeat(count));
        let params = format!("(func $f (param {}))", format!("{ty} ").repeat(count));
        let operands = format!("{} {}", one.repeat(count), "(drop) ".repeat(count));
        let locals = format!("(func $f (local {}))", format!("{ty} ").repeat(count));
        [stack(&params, &call), stack("", &operands), stack(&locals, "(call $f)")]
    };
    let wide = stacks("(v128.const i64x2 0 0) ", "v128", 100);
    let narrow = stacks("(i64.const 0) ", "i64", 100);
    for (least, (wide, narrow)) in [3200, 1600, 1600].into_iter().zip(wide.into_iter().zip(narrow)) {
        assert!(wide >= least && wide >= narrow + least / 2, "{wide}, {narrow}");
    }
    // The function has vectors but no vector instruction.
    let results = format!(
        "(global $v v128 (v128.const i64x2 0 0)) (func $f (result {}) {})",
        "v128 ".repeat(100),
        "(global.get $v) ".repeat(100)
    );
    assert!(stack(&results, &format!("(call $f) {}", "(drop) ".repeat(100))) >= 3200);
}
