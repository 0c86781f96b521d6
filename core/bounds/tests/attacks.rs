//! Modules that were made to break a proof: each runs longer than a careless analysis says. What it does in truth is written above it.

use crate::support::analysed;
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
            "(local.set $b (i32.load offset=12 (i32.add (local.get $p) (i32.shl {WORD} (i32.const 7)))))
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

/// What is taken is compared as x - 2^31, from 0 to 100, and is 200 less: so there is more left each time.
#[test]
fn what_is_taken_is_below_zero() {
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

/// A function's loop is short with what it is called with, and endless with what it calls itself with, or another one that has the loop. So
/// nothing is known of such a loop: least of all that it need not be charged for while it runs.
#[test]
fn a_recursive_call_has_other_arguments() {
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

/// Up to n by twos: one trip more where n is odd.
#[test]
fn the_last_step_can_be_a_part_of_one() {
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
        if let Some(on_entry) = &found.on_entry {
            assert_eq!(on_entry.terms, [(2, 1)]);
            assert!(
                1 + n.wrapping_add_signed(on_entry.constant) / on_entry.step >= trips,
                "{n}: {on_entry:?}"
            );
        }
        assert!(found.trips.constant >= trips.into());
    }
}

/// Where the loop is entered with n = 0, it runs once: n - 1 is no number of trips then.
#[test]
fn what_the_way_back_knows_is_not_known_on_entry() {
    let analysis = analysed(
        r#"(func (export "weir_packet") (param $p i32) (result i32)
            (local $a i32) (local $n i32)
            (local.set $n (i32.load8_u (i32.const 0)))
            (loop $l (br_if $l (i32.lt_u
                (local.tee $a (i32.add (local.get $a) (i32.const 1))) (local.get $n))))
            (i32.const 0))"#,
    );
    let found = analysis.loops.first().expect("it has a loop");
    assert_eq!((found.trips.constant, found.on_entry.as_ref()), (255, None));
}

/// Through the table it may call itself, or another function: what it returns afterwards is what it began with, -1, and not 3.
#[test]
fn operands_stay_in_their_places_after_a_recursive_call() {
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

/// What is left is counted from the start of the buffer on one way and from its end on the other: forth and back for ever.
#[test]
fn what_is_left_is_compared_in_both_directions() {
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

/// The first call's argument is at most 5 because of what is known of the packet's length, the second one's is not; of the sums themselves the same
/// is known.
#[test]
fn a_callee_sees_no_more_of_a_length_than_its_key_says() {
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

/// Each element of a table is looked up by the runtime: far more work than a byte of memory.
#[test]
fn elements_of_tables_are_not_as_cheap_as_bytes() {
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

/// A vector takes 16 bytes wherever it is kept: as an operand, a parameter, a local, or a result.
#[test]
fn vectors_are_wider_than_numbers_on_the_stack() {
    let stack = |functions: &str, body: &str| {
        let analysis = analysed(&format!(
            r#"{functions} (func (export "weir_packet") (param $p i32) (result i32) {body} (i32.const 0))"#
        ));
        analysis.entry(EntryPoint::Packet).and_then(|found| found.stack).expect("it has a bound")
    };
    let of = |one: &str, ty: &str, count: usize| {
        let call = format!("{} (call $f)", one.repeat(count));
        let params = format!("(func $f (param {}))", format!("{ty} ").repeat(count));
        let operands = format!("{} {}", one.repeat(count), "(drop) ".repeat(count));
        let locals = format!("(func $f (local {}))", format!("{ty} ").repeat(count));
        [stack(&params, &call), stack("", &operands), stack(&locals, "(call $f)")]
    };
    let wide = of("(v128.const i64x2 0 0) ", "v128", 100);
    let narrow = of("(i64.const 0) ", "i64", 100);
    for (least, (wide, narrow)) in [3200, 1600, 1600].into_iter().zip(wide.into_iter().zip(narrow)) {
        assert!(wide >= least && wide >= narrow + least / 2, "{wide}, {narrow}");
    }
    // Without a vector instruction in the function that has them.
    let results = format!(
        "(global $v v128 (v128.const i64x2 0 0)) (func $f (result {}) {})",
        "v128 ".repeat(100),
        "(global.get $v) ".repeat(100)
    );
    assert!(stack(&results, &format!("(call $f) {}", "(drop) ".repeat(100))) >= 3200);
}
