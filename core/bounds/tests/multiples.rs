//! Loops in steps of a power of two over numbers whose lowest bits are known, as compilers make them from loops over
//! words or by unrolling. The trip count is found, and nothing is proved of loops that only look like them.

use crate::support::analysed;
use weir_bounds::{Analysis, EntryPoint, Linear};

fn packet(body: &str) -> Analysis {
    analysed(&format!(
        r#"(func (export "weir_packet") (param $p i32) (result i32)
            (local $a i32) (local $b i32) (local $c i32) (local $d i32) (local $x i64)
            {body}
            (i32.const 0))"#
    ))
}

/// The trips of each loop, in code order.
fn trips(body: &str) -> Vec<Linear> {
    packet(body).loops.iter().map(|found| found.trips).collect()
}

fn times<const N: usize>(all: [u64; N]) -> [Linear; N] {
    all.map(Linear::constant)
}

/// Asserts that the entry point, which can use `least` fuel, has a bound of at least that, or none.
fn can_run(least: u64, body: &str) {
    let analysis = packet(body);
    let found = analysis.entry(EntryPoint::Packet).expect("it has the entry point");
    let fuel = found.usage.fuel;
    assert!(!found.is_bounded() || fuel.at(60) >= least, "{fuel}, and it can use {least}:\n{body}");
}

fn never_ends(body: &str) {
    can_run(u64::MAX, body);
}

const ENDLESS: &str = "(loop $ever (br $ever))";
const BYTE: &str = "(i32.load8_u (i32.const 0))";
const OTHER_BYTE: &str = "(i32.load8_u (i32.const 1))";
const WORD: &str = "(i32.load (i32.const 0))";
/// The iterations after which a 32-bit counter has wrapped around, in steps of four.
const AROUND: u64 = 1 << 30;

/// A loop that takes `step` from `$a` until it is 0. `more` is further code in its body.
fn down(step: i32, more: &str) -> String {
    format!("(loop $l {more} (br_if $l (local.tee $a (i32.sub (local.get $a) (i32.const {step})))))")
}

/// The length of an IPv4 header in bytes, `(x & 15) * 4`, as compilers emit it.
fn header(more: &str) -> String {
    format!("(local.set $a (i32.and (i32.shl {BYTE} (i32.const 2)) (i32.const 60))) {more}")
}

const UNLESS_ZERO: &str = "(br_if $out (i32.eqz (local.get $a)))";

#[test]
fn a_loop_over_the_words_of_a_header_is_bounded() {
    let body = format!("(block $out {} {})", header(UNLESS_ZERO), down(4, ""));
    assert_eq!(trips(&body), times([15]));
    let body = format!(
        "(block $out {} (loop $l (br_if $out (i32.eqz (local.get $a)))
            (local.set $a (i32.sub (local.get $a) (i32.const 4))) (br $l)))",
        header("")
    );
    assert_eq!(trips(&body), times([16]));
    // In steps of less than a word, and in 64 bits.
    let body = format!("(block $out {} {})", header(UNLESS_ZERO), down(2, ""));
    assert_eq!(trips(&body), times([30]));
    let body = "(block $out (local.set $x (i64.and (i64.shl (i64.load8_u (i32.const 0)) (i64.const 2)) (i64.const 60)))
            (br_if $out (i64.eqz (local.get $x)))
            (loop $l (br_if $l (i64.ne (local.tee $x (i64.sub (local.get $x) (i64.const 4))) (i64.const 0)))))";
    assert_eq!(trips(body), times([15]));
    // More is known than that the length is not 0.
    let body = format!(
        "(block $out {} {})",
        header("(br_if $out (i32.lt_u (local.get $a) (i32.const 17)))"),
        down(4, "")
    );
    assert_eq!(trips(&body), times([15]));
    let body = format!(
        "(block $out {} {})",
        header("(br_if $out (i32.gt_u (local.get $a) (i32.const 23)))"),
        down(4, "")
    );
    assert!(!packet(&body).is_bounded(), "it can be 0");
}

#[test]
fn a_step_that_does_not_divide_the_distance_gets_no_small_bound() {
    for step in [3, 8, 12, 64] {
        never_ends(&format!("(block $out {} {})", header(UNLESS_ZERO), down(step, "")));
    }
    // Counting up, it wraps around, but not soon.
    can_run(AROUND - 16, &format!("(block $out {} {})", header(UNLESS_ZERO), down(-4, "")));
}

#[test]
fn a_distance_that_is_not_a_multiple_of_the_step_is_not_proved() {
    for more in
        ["(i32.const 1)", "(i32.const 2)", OTHER_BYTE, "(i32.shl (i32.load8_u (i32.const 1)) (i32.const 1))"]
    {
        let changed = format!("(local.set $a (i32.add (local.get $a) {more}))");
        never_ends(&format!("(block $out {} {})", header(&format!("{UNLESS_ZERO} {changed}")), down(4, "")));
        never_ends(&format!("(block $out {} {})", header(&format!("{changed} {UNLESS_ZERO}")), down(4, "")));
    }
    never_ends(&format!(
        "(block $out (local.set $a (i32.and {WORD} (i32.const 62))) {UNLESS_ZERO} {})",
        down(4, "")
    ));
}

#[test]
fn a_distance_that_can_be_0_gets_no_small_bound() {
    can_run(AROUND, &format!("(block $out {} {})", header(""), down(4, "")));
    // The test was on an earlier value, or on another one.
    for changed in [
        "(local.set $a (i32.and (local.get $a) (i32.const 48)))",
        "(local.set $a (i32.sub (local.get $a) (i32.const 4)))",
        "(local.set $a (i32.shl (local.get $a) (i32.const 28)))",
    ] {
        can_run(
            AROUND / 4,
            &format!("(block $out {} {})", header(&format!("{UNLESS_ZERO} {changed}")), down(4, "")),
        );
    }
    let other = format!("(br_if $out (i32.eqz (i32.and (i32.shl {BYTE} (i32.const 2)) (i32.const 60))))");
    can_run(AROUND, &format!("(block $out {} {})", header(&other), down(4, "")));
    // Tested on one of two paths only.
    let one = format!("(if {OTHER_BYTE} (then {UNLESS_ZERO}))");
    can_run(AROUND, &format!("(block $out {} {})", header(&one), down(4, "")));
    // The upper half of 64 bits is nonzero; the lower half can be 0.
    let half = "(local.set $x (i64.and (i64.load (i32.const 0)) (i64.const 0xF00000000)))
        (br_if $out (i64.eqz (local.get $x))) (local.set $a (i32.wrap_i64 (local.get $x)))";
    can_run(AROUND, &format!("(block $out {half} {})", down(4, "")));
}

#[test]
fn a_negative_multiple_gets_no_small_bound() {
    for guard in ["i32.lt_u", "i32.gt_s", "i32.ge_s"] {
        can_run(
            AROUND / 4,
            &format!(
                "(block $out (local.set $a (i32.and {WORD} (i32.const -4)))
                    {UNLESS_ZERO} (br_if $out ({guard} (local.get $a) (i32.const 64))) {})",
                down(4, "")
            ),
        );
    }
    let signed = "(local.set $a (i32.shl (i32.load8_s (i32.const 0)) (i32.const 2)))";
    can_run(AROUND - 1024, &format!("(block $out {signed} {UNLESS_ZERO} {})", down(4, "")));
}

#[test]
fn a_multiple_that_the_loop_changes_is_not_proved() {
    let less = format!("(if {OTHER_BYTE} (then (local.set $a (i32.sub (local.get $a) (i32.const 2)))))");
    let more = format!("(if {OTHER_BYTE} (then (local.set $a (i32.add (local.get $a) (i32.const 4)))))");
    let anew = format!("(if {OTHER_BYTE} (then {}))", header(""));
    let masked = "(local.set $a (i32.or (local.get $a) (i32.const 1)))".to_owned();
    for changed in [less, more, anew, masked] {
        never_ends(&format!("(block $out {} {})", header(UNLESS_ZERO), down(4, &changed)));
    }
    // Two back edges, only one of which makes a whole step.
    let two = format!(
        "(loop $l (if {OTHER_BYTE} (then (br_if $l (local.tee $a (i32.sub (local.get $a) (i32.const 2)))) (br $out)))
            (br_if $l (local.tee $a (i32.sub (local.get $a) (i32.const 4)))))"
    );
    never_ends(&format!("(block $out {} {two})", header(UNLESS_ZERO)));
}

/// The smaller of a number and 64, at least 1: in steps of four, then the rest one by one.
fn clamped(guard: &str, mask: i32, rest: &str) -> String {
    format!(
        "(local.set $a (i32.sub (i32.load16_u offset=36 (local.get $p)) (i32.load16_u offset=34 (local.get $p))))
        (local.set $b (select (local.get $a) (i32.const 64) (i32.lt_u (local.get $a) (i32.const 64))))
        (local.set $c (select (local.get $b) (i32.const 1) (i32.gt_u (local.get $b) (i32.const 1))))
        (block $out
            (block $few
                (br_if $few (i32.le_u {guard}))
                (local.set $a (local.tee $d (i32.and (local.get $c) (i32.const {mask}))))
                {}
                (br_if $out (i32.eq {rest})))
            (loop $l (br_if $l (i32.ne (local.get $c) (local.tee $d (i32.add (local.get $d) (i32.const 1)))))))",
        down(4, "")
    )
}

const ALL_DONE: &str = "(local.get $b) (local.get $d)";

#[test]
fn the_smaller_of_two_numbers_in_fours_and_the_rest_is_bounded() {
    let body = clamped("(local.get $a) (i32.const 3)", 124, ALL_DONE);
    assert_eq!(trips(&body), times([16, 64]));
    let body = clamped("(local.get $b) (i32.const 3)", 124, ALL_DONE);
    assert_eq!(trips(&body), times([16, 3]));
}

#[test]
fn a_minimum_with_missing_or_wrong_guards_gets_no_small_bound() {
    // Numbers from 1 to 3 contain no step of four.
    can_run(AROUND, &clamped("(local.get $a) (i32.const 2)", 124, ALL_DONE));
    can_run(AROUND, &clamped("(local.get $b) (i32.const 1)", 124, ALL_DONE));
    // The comparison is of another number.
    can_run(AROUND, &clamped(&format!("{BYTE} (i32.const 3)"), 124, ALL_DONE));
    // The mask clears 64.
    can_run(AROUND, &clamped("(local.get $a) (i32.const 3)", 60, ALL_DONE));
    // Without a guard for an empty rest, the second loop wraps around.
    for rest in ["(local.get $b) (i32.const 64)", "(local.get $a) (local.get $d)"] {
        can_run(1 << 32, &clamped("(local.get $a) (i32.const 3)", 124, rest));
    }
    // The number is not rounded to a multiple of four.
    never_ends(&format!(
        "(local.set $b (select (local.tee $a {BYTE}) (i32.const 1) (i32.gt_u (local.get $a) (i32.const 1))))
        (block $out
            (br_if $out (i32.le_u (local.get $a) (i32.const 3)))
            (local.set $a (local.get $b)) {})",
        down(4, "")
    ));
}

/// A choice by an earlier value of a local says nothing of a later value.
#[test]
fn a_choice_by_a_replaced_value_says_nothing_of_the_new_value() {
    can_run(
        AROUND,
        &format!(
            "(local.set $b (select (local.tee $a {BYTE}) (i32.const 1) (i32.gt_u (local.get $a) (i32.const 1))))
            (local.set $a {BYTE})
            (block $out
                (br_if $out (i32.le_u (local.get $a) (i32.const 3)))
                (local.set $a (i32.and (local.get $b) (i32.const 124))) {})",
            down(4, "")
        ),
    );
    // The choice was made in the previous iteration.
    can_run(
        AROUND,
        &format!(
            "(local.set $b (i32.const 1))
            (loop $each
                (local.set $c {BYTE})
                (if (i32.gt_u (local.get $c) (i32.const 3)) (then
                    (local.set $a (i32.and (local.get $b) (i32.const 124))) {}))
                (local.set $b (select (local.get $c) (i32.const 1) (i32.gt_u (local.get $c) (i32.const 1))))
                (br_if $each (i32.lt_u (local.tee $d (i32.add (local.get $d) (i32.const 1))) (i32.const 9))))",
            down(4, "")
        ),
    );
}

/// One iteration where the number is odd, and the rest in steps of two.
fn odd_one_first(condition: &str, first: &str, guard: &str) -> String {
    format!(
        "(local.set $b (i32.and {BYTE} (i32.const 7)))
        (block $out
            (local.set $a (local.get $b))
            (if (i32.and (local.get $b) (i32.const 1)) {condition} (local.set $a (i32.sub (local.get $b) {first}))))
            (br_if $out {guard})
            {})",
        down(2, "")
    )
}

#[test]
fn one_iteration_for_an_odd_number_and_the_rest_in_twos_is_bounded() {
    let found = trips(&odd_one_first("(then", "(i32.const 1)", "(i32.lt_u (local.get $b) (i32.const 2))"));
    assert_eq!(found, times([3]));
    let found = trips(&odd_one_first("(then", "(i32.const 3)", "(i32.lt_u (local.get $b) (i32.const 4))"));
    assert_eq!(found, times([3]));
    for (condition, first) in [
        ("(then) (else", "(i32.const 1)"),
        ("(then", "(i32.const 2)"),
        ("(then", OTHER_BYTE),
        ("(then) (else", "(i32.const 3)"),
    ] {
        never_ends(&odd_one_first(condition, first, "(i32.lt_u (local.get $b) (i32.const 2))"));
    }
    // The number can be 1: then nothing is left.
    for guard in ["(i32.eqz (local.get $b))", "(i32.gt_u (local.get $b) (i32.const 5))"] {
        can_run(1 << 31, &odd_one_first("(then", "(i32.const 1)", guard));
    }
    // If the number is 1, 3 are taken: more than there is.
    can_run(1 << 31, &odd_one_first("(then", "(i32.const 3)", "(i32.lt_u (local.get $b) (i32.const 1))"));
}

/// Conditions on a number's lowest bits, which are masked twice.
#[test]
fn the_same_mask_applied_twice_gives_the_same_value() {
    let body = format!(
        "(local.set $b {WORD})
        (block $out
            (br_if $out (i32.lt_u (i32.and (local.get $b) (i32.const 255)) (i32.const 5)))
            (local.set $a (i32.sub (i32.and (local.get $b) (i32.const 255)) (i32.const 4)))
            {})",
        down(1, "")
    );
    assert_eq!(trips(&body), times([251]));
    // Not for another number, another mask, or an earlier value.
    for (first, second) in [
        (WORD, "(i32.and (local.get $b) (i32.const 255))"),
        ("(local.get $b)", "(i32.and (local.get $b) (i32.const 127))"),
        ("(local.get $b)", "(i32.and (i32.add (local.get $b) (i32.const 1)) (i32.const 255))"),
        (
            "(local.tee $b (i32.add (local.get $b) (i32.const 8)))",
            "(i32.and (i32.sub (local.get $b) (i32.const 8)) (i32.const 255))",
        ),
    ] {
        can_run(
            1 << 31,
            &format!(
                "(local.set $b {WORD})
                (block $out
                    (br_if $out (i32.lt_u (i32.and {first} (i32.const 255)) (i32.const 5)))
                    (local.set $a (i32.sub {second} (i32.const 4)))
                    {})",
                down(1, "")
            ),
        );
    }
}

/// The same mask is applied where the number is known to be small, and where it is not.
#[test]
fn a_mask_made_under_stronger_conditions_is_not_reused() {
    let up = "(local.set $a (i32.const 0))
        (block $o (loop $l (br_if $o (i32.ge_u (local.get $a) (i32.and (local.get $b) (i32.const 255))))
            (local.set $a (i32.add (local.get $a) (i32.const 1))) (br $l)))";
    let masked = "(drop (i32.and (local.get $b) (i32.const 255)))";
    let small = |then: &str| format!("(if (i32.lt_u (local.get $b) (i32.const 4)) (then {then}))");
    let masked_small =
        format!("(if (i32.lt_u (i32.and (local.get $b) (i32.const 255)) (i32.const 4)) (then {masked}))");
    for before in [small(masked), small(up), masked_small, format!("{masked} {}", small(masked))] {
        let found = trips(&format!("(local.set $b {WORD}) {before} {up}"));
        assert_eq!(found.last(), times([256]).last(), "{before}");
    }
    // A condition on each back edge need not hold on entry: with 20 for both, the loop reaches the expensive place at
    // once.
    never_ends(&format!(
        "(local.set $b {BYTE}) (local.set $a (local.get $b))
        (block $out (block $dear
            (loop $l
                (br_if $dear (i32.ge_u (local.get $a) (i32.const 16)))
                (br_if $out (i32.ge_u (local.get $b) (i32.const 16)))
                (br_if $l (i32.lt_u (local.tee $a (i32.add (local.get $a) (i32.const 1)))
                    (i32.and (local.get $b) (i32.const 15)))))
            (br $out))
            {ENDLESS})"
    ));
}

const LEN: &str = "(i32.load offset=12 (local.get $p))";

/// A search for one byte, and from there on for another. The position that the first loop reached is known where the
/// second one begins.
fn two_searches(from: &str, test: &str, guard: &str, left: &str) -> String {
    format!(
        "(local.set $b {LEN})
        (block $out
            (br_if $out (i32.eqz (local.get $b)))
            (local.set $a (i32.const {from}))
            (block $found
                (loop $l
                    (br_if $found (i32.eq {OTHER_BYTE} (i32.const 32)))
                    (br_if $l {test}))
                (br $out))
            {guard}
            (local.set $c {left})
            (loop $m (br_if $m (local.tee $c (i32.sub (local.get $c) (i32.const 1))))))"
    )
}

const NEXT: &str = "(i32.ne (local.get $b) (local.tee $a (i32.add (local.get $a) (i32.const 1))))";
const ANY_LEFT: &str =
    "(br_if $out (i32.eqz (i32.sub (local.get $b) (i32.add (local.get $a) (i32.const 1)))))";
/// `n - i - 1`, as LLVM emits it.
const LEFT: &str = "(i32.add (i32.xor (local.get $a) (i32.const -1)) (local.get $b))";

#[test]
fn a_search_that_continues_where_another_ended_is_bounded() {
    let found = trips(&two_searches("0", NEXT, ANY_LEFT, LEFT));
    assert_eq!(found, [1, 1].map(|per| Linear { constant: 1, per_kib: 1024 * per }));
    // Without a guard for an empty rest, the loop wraps around.
    let missing = "(br_if $out (i32.eqz (i32.sub (local.get $b) (local.get $a))))";
    for guard in ["", missing] {
        can_run((1 << 32) - 1, &two_searches("0", NEXT, guard, LEFT));
    }
    // The loop begins beyond the end, or steps over it.
    can_run(1 << 31, &two_searches("-2147483648", NEXT, ANY_LEFT, LEFT));
    let next = NEXT.replace("const 1", "const 2");
    can_run(1 << 31, &two_searches("0", &next, ANY_LEFT, LEFT));
    // The second loop counts one less than was tested, or the position was moved after the test.
    let less = format!("(i32.sub {LEFT} (i32.const 1))");
    can_run((1 << 32) - 1, &two_searches("0", NEXT, ANY_LEFT, &less));
    let moved = format!("{ANY_LEFT} (local.set $a (i32.add (local.get $a) {BYTE}))");
    can_run(1 << 31, &two_searches("0", NEXT, &moved, LEFT));
}

/// The iteration number is at most the distance at the loop's entry, not the distance at a later time.
#[test]
fn an_iteration_number_is_limited_by_the_distance_at_the_entry() {
    let after = |then: &str| {
        format!(
            "(local.set $b {BYTE})
            (block $out
                (br_if $out (i32.eqz (local.get $b)))
                (local.set $c (local.get $b))
                (loop $l
                    (br_if $out (i32.eq {OTHER_BYTE} (i32.const 32)))
                    {then}
                    (br_if $l (i32.lt_u (local.tee $a (i32.add (local.get $a) (i32.const 1))) (local.get $c)))))"
        )
    };
    let left = |less: i32| {
        format!(
            "(local.set $d (i32.sub (i32.sub (local.get $c) (local.get $a)) (i32.const {less})))
            (loop $m (br_if $m (local.tee $d (i32.sub (local.get $d) (i32.const 1)))))"
        )
    };
    assert_eq!(trips(&after(&left(0))), times([255, 255]));
    can_run(1 << 32, &after(&left(1)));
    can_run(
        1 << 32,
        &after(&left(0)).replace("(local.set $c (local.get $b))", "(local.set $c (i32.const 0))"),
    );
    // A condition on the limit does not hold for its later value.
    never_ends(&format!(
        "(local.set $b {BYTE})
        (loop $l
            (if (i32.ge_u (local.get $a) (local.get $b)) (then {ENDLESS}))
            (local.set $b {BYTE})
            (br_if $l (i32.lt_u (local.tee $a (i32.add (local.get $a) (i32.const 1))) (i32.const 9))))"
    ));
}

/// Each iteration takes one or several from the remainder. The loop ends when nothing is left.
fn one_or_many(before: &str, one: &str, many: &str) -> String {
    format!(
        "(local.set $a (i32.and {BYTE} (i32.const 63)))
        (block $out
            {before}
            (loop $l
                (if {OTHER_BYTE} (then {one} (br $out)))
                (br_if $out (i32.lt_u (local.tee $b {BYTE}) (i32.const 2)))
                (br_if $out (i32.lt_u (local.get $a) (local.get $b)))
                {many}))"
    )
}

const ONE: &str = "(br_if $l (local.tee $a (i32.sub (local.get $a) (i32.const 1))))";
const MANY: &str = "(br_if $l (local.tee $a (i32.sub (local.get $a) (local.get $b))))";

#[test]
fn options_of_one_or_many_bytes_are_bounded() {
    assert_eq!(trips(&one_or_many(UNLESS_ZERO, ONE, MANY)), times([63]));
    // As a position and an end.
    let position = format!(
        "(local.set $c {LEN})
        (block $out
            (br_if $out (i32.eqz (local.get $c)))
            (loop $l
                (if {OTHER_BYTE} (then
                    (br_if $l (i32.ne (local.tee $a (i32.add (local.get $a) (i32.const 1))) (local.get $c)))
                    (br $out)))
                (br_if $out (i32.lt_u (local.tee $b {BYTE}) (i32.const 2)))
                (br_if $out (i32.gt_u (local.get $b) (i32.sub (local.get $c) (local.get $a))))
                (br_if $l (i32.ne (local.tee $a (i32.add (local.get $a) (local.get $b))) (local.get $c)))))"
    );
    assert_eq!(trips(&position), [Linear { constant: 1, per_kib: 1024 }]);
    // The position begins, or can begin, beyond the end.
    for start in ["(i32.const 5)", BYTE] {
        let beyond = format!("(local.set $a (i32.add (local.get $c) {start}))");
        can_run(1 << 31, &position.replace("(br_if $out (i32.eqz (local.get $c)))", &beyond));
    }
}

#[test]
fn taking_one_from_an_empty_remainder_is_not_proved() {
    // The remainder is empty at first.
    never_ends(&one_or_many("", ONE, MANY));
    // Nothing is tested after several were taken, or another amount is taken than was compared.
    let many = "(local.set $a (i32.sub (local.get $a) (local.get $b))) (br $l)";
    never_ends(&one_or_many(UNLESS_ZERO, ONE, many));
    let more = "(br_if $l (local.tee $a (i32.sub (local.get $a) (i32.add (local.get $b) (i32.const 1)))))";
    never_ends(&one_or_many(UNLESS_ZERO, ONE, more));
    let other = "(br_if $l (local.tee $a (i32.sub (local.get $a) (i32.load8_u (i32.const 2)))))";
    never_ends(&one_or_many(UNLESS_ZERO, ONE, other));
    // Two are taken where one may be left; one is given back.
    never_ends(&one_or_many(UNLESS_ZERO, &ONE.replace("const 1", "const 2"), MANY));
    never_ends(&one_or_many(UNLESS_ZERO, &ONE.replace("const 1", "const -1"), MANY));
    // Another value is compared with 0, or the remainder with another number.
    let other = "(local.set $a (i32.sub (local.get $a) (i32.const 1))) (br_if $l (local.get $b))";
    never_ends(&one_or_many(UNLESS_ZERO, other, MANY));
    let other = "(br_if $l (i32.ne (local.tee $a (i32.sub (local.get $a) (i32.const 1))) (i32.const 1)))";
    never_ends(&one_or_many(UNLESS_ZERO, other, MANY));
}
