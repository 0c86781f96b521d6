//! Trip counts of loops as compilers emit them: a bound is found, and it is close.

use weir_bounds::{
    Analysis, CostTable, Environment, Linear, ParamBound, ParsedModule, TripCountFormula, analyse,
};

/// The packet function with locals $a to $f (i32) and $x, $y (i64), and `body`.
fn module(body: &str) -> Vec<u8> {
    let text = format!(
        r#"(module
            (import "weir" "param_int" (func $param_int (param i32) (result i64)))
            (memory (export "memory") 1)
            (global $sp (export "__stack_pointer") (mut i32) (i32.const 65536))
            (func (export "weir_packet") (param $p i32) (result i32)
                (local $a i32) (local $b i32) (local $c i32) (local $d i32) (local $e i32) (local $f i32)
                (local $x i64) (local $y i64)
                {body}
                (i32.const 0))
            (func $helper (param $n i32)
                (local $i i32)
                (block (br_if 0 (i32.eqz (local.get $n)))
                    (loop (br_if 0 (i32.ne (local.tee $i (i32.add (local.get $i) (i32.const 1))) (local.get $n)))))))"#
    );
    wat::parse_str(text).expect("the test's module")
}

fn analysed(body: &str) -> Analysis {
    let environment = Environment {
        parameters: vec![ParamBound::Int { min: 3, max: 12 }, ParamBound::Bytes { min: 0, max: 40 }],
        string_bytes: Vec::new(),
        packet_max: 16 << 20,
        pages_max: 16,
    };
    ParsedModule::parse(module(body))
        .and_then(|module| analyse(&module, &environment, &CostTable::standard()))
        .expect("the test's module is valid")
}

/// The trips of each loop, in code order.
fn trips(body: &str) -> Vec<Linear> {
    analysed(body).loops.iter().map(|found| found.trips).collect()
}

fn times(constant: u64) -> Linear {
    Linear::constant(constant)
}

/// The packet's length, read from its descriptor.
const LEN: &str = "(i32.load offset=12 (local.get $p))";

#[test]
fn loops_that_count_up_or_down_are_bounded() {
    let up = "(loop (br_if 0 (i32.ne (local.tee $a (i32.add (local.get $a) (i32.const 1))) (i32.const 10))))";
    assert_eq!(trips(up), [times(10)]);
    let tested_first = "(block (loop (br_if 1 (i32.ge_u (local.get $a) (i32.const 10)))
        (local.set $a (i32.add (local.get $a) (i32.const 1))) (br 0)))";
    assert_eq!(trips(tested_first), [times(11)]);
    let down = "(local.set $a (i32.const 10))
        (loop (br_if 0 (local.tee $a (i32.add (local.get $a) (i32.const -1)))))";
    assert_eq!(trips(down), [times(10)]);
    let signed = "(local.set $a (i32.const 9))
        (loop (br_if 0 (i32.ge_s (local.tee $a (i32.sub (local.get $a) (i32.const 1))) (i32.const 0))))";
    assert_eq!(trips(signed), [times(10)]);
    let wide =
        "(loop (br_if 0 (i64.lt_u (local.tee $x (i64.add (local.get $x) (i64.const 3))) (i64.const 30))))";
    assert_eq!(trips(wide), [times(10)]);
}

#[test]
fn loops_over_the_packet_are_linear_in_its_length() {
    let bytes = format!(
        "(block (br_if 0 (i32.eqz (local.tee $b {LEN})))
            (loop (br_if 0 (i32.ne (local.tee $a (i32.add (local.get $a) (i32.const 1))) (local.get $b)))))"
    );
    assert_eq!(trips(&bytes), [Linear { constant: 1, per_kib: 1024 }]);
    let pointers = format!(
        "(local.set $a (i32.load offset=8 (local.get $p)))
        (local.set $b (i32.add (local.get $a) {LEN}))
        (block (br_if 0 (i32.eq (local.get $a) (local.get $b)))
            (loop (br_if 0 (i32.ne (local.tee $a (i32.add (local.get $a) (i32.const 1))) (local.get $b)))))"
    );
    assert_eq!(trips(&pointers), [Linear { constant: 1, per_kib: 1024 }]);
    // Eight bytes at a time, then the rest byte by byte, as compilers unroll.
    let unrolled = format!(
        "(local.set $b {LEN})
        (block (br_if 0 (i32.lt_u (local.get $b) (i32.const 8)))
            (local.set $c (i32.and (local.get $b) (i32.const -8)))
            (loop (br_if 0 (i32.ne (local.tee $a (i32.add (local.get $a) (i32.const 8))) (local.get $c)))))
        (block (br_if 0 (i32.eqz (local.tee $d (i32.and (local.get $b) (i32.const 7)))))
            (loop (br_if 0 (local.tee $d (i32.sub (local.get $d) (i32.const 1))))))"
    );
    assert_eq!(trips(&unrolled), [Linear { constant: 1, per_kib: 128 }, times(7)]);
    // The rest as the difference between the rounded end and the end.
    let remainder = format!(
        "(local.set $b {LEN})
        (block (br_if 0 (i32.lt_u (local.get $b) (i32.const 4)))
            (local.set $c (i32.and (local.get $b) (i32.const -4)))
            (br_if 0 (i32.eq (local.get $b) (local.get $c)))
            (loop (br_if 0 (i32.ne (local.tee $c (i32.add (local.get $c) (i32.const 1))) (local.get $b)))))"
    );
    assert_eq!(trips(&remainder), [times(3)]);
}

#[test]
fn narrow_masked_and_minimum_limits_are_bounded() {
    for (limit, most) in [
        ("(i32.load8_u (i32.const 0))", 255),
        ("(i32.load16_u (i32.const 0))", 65_535),
        ("(i32.and (i32.load (i32.const 0)) (i32.const 31))", 31),
        ("(i32.shr_u (i32.load (i32.const 0)) (i32.const 28))", 15),
        ("(i32.rem_u (i32.load (i32.const 0)) (i32.const 100))", 99),
        (
            "(select (local.tee $f (i32.load (i32.const 0))) (i32.const 20) (i32.lt_u (local.get $f) (i32.const 20)))",
            20,
        ),
        ("(i32.popcnt (i32.load (i32.const 0)))", 32),
        ("(i32.clz (i32.or (i32.load8_u (i32.const 0)) (i32.const 256)))", 23),
        ("(i32.sub (i32.const 32) (i32.clz (i32.load8_u (i32.const 0))))", 8),
    ] {
        let body = format!(
            "(local.set $b {limit})
            (block (loop (br_if 1 (i32.ge_u (local.get $a) (local.get $b)))
                (local.set $a (i32.add (local.get $a) (i32.const 1))) (br 0)))"
        );
        assert_eq!(trips(&body), [times(most + 1)], "{limit}");
    }
}

#[test]
fn limits_compared_before_the_loop_are_bounded() {
    let guarded = "(local.set $b (i32.load (i32.const 0)))
        (block (br_if 0 (i32.gt_u (local.get $b) (i32.const 50)))
            (loop (br_if 1 (i32.ge_u (local.get $a) (local.get $b)))
                (local.set $a (i32.add (local.get $a) (i32.const 1))) (br 0)))";
    assert_eq!(trips(guarded), [times(51)]);
    // Between two numbers of which only the order and the upper end are known.
    let between = "(local.set $a (i32.load8_u (i32.const 0))) (local.set $b (i32.load8_u (i32.const 1)))
        (block (br_if 0 (i32.ge_u (local.get $a) (local.get $b)))
            (loop (br_if 0 (i32.ne (local.tee $a (i32.add (local.get $a) (i32.const 1))) (local.get $b)))))";
    assert_eq!(trips(between), [times(255)]);
}

#[test]
fn parameters_have_the_limits_of_the_manifest() {
    let body = "(local.set $b (i32.wrap_i64 (call $param_int (i32.const 0))))
        (loop (br_if 0 (i32.lt_u (local.tee $a (i32.add (local.get $a) (i32.const 1))) (local.get $b))))";
    assert_eq!(trips(body), [times(12)]);
}

#[test]
fn nested_loops_are_bounded() {
    let triangle = "(loop $outer
            (local.set $b (local.get $a))
            (block (loop $inner (br_if 1 (i32.ge_u (local.get $b) (i32.const 10)))
                (local.set $b (i32.add (local.get $b) (i32.const 1))) (br $inner)))
            (br_if $outer (i32.ne (local.tee $a (i32.add (local.get $a) (i32.const 1))) (i32.const 10))))";
    assert_eq!(trips(triangle), [times(10), times(11)]);
    // The test is at the end: a condition that holds whenever the body begins has to be found.
    let rotated = format!(
        "(block (br_if 0 (i32.eqz (local.tee $b {LEN})))
            (loop $outer
                (local.set $c (i32.sub (local.get $b) (local.get $a)))
                (loop $inner (br_if $inner (local.tee $c (i32.sub (local.get $c) (i32.const 1)))))
                (br_if $outer (i32.lt_u (local.tee $a (i32.add (local.get $a) (i32.const 16))) (local.get $b)))))"
    );
    let found = trips(&rotated);
    assert_eq!(found, [Linear { constant: 2, per_kib: 64 }, Linear { constant: 1, per_kib: 1024 }]);
}

/// A loop that tests a bit and does more if the bit is 0, as clang splits it: the inner loop repeats as long as the
/// bits are set. `$x` goes up to `limit`.
fn split(first: &str, inner: &str, outer: &str) -> String {
    format!(
        "(local.set $x {first})
        (block $out (loop $outer
            (block $rare
                (loop $inner
                    (br_if $rare (i32.eqz (i32.load8_u (i32.const 0))))
                    {inner})
                (br $out))
            {outer}))"
    )
}

#[test]
fn a_loop_that_a_compiler_split_in_two_is_bounded() {
    let test = |label: &str, cmp: &str, limit: &str| {
        format!("(br_if {label} (i64.{cmp} (local.tee $x (i64.add (local.get $x) (i64.const 1))) {limit}))")
    };
    const PARAMETER: &str = "(call $param_int (i32.const 0))";
    let both = |first, cmp, limit| split(first, &test("$inner", cmp, limit), &test("$outer", cmp, limit));
    // The parameter is at most 12.
    assert_eq!(trips(&both("(i64.const 0)", "lt_s", PARAMETER)), [times(13), times(12)]);
    assert_eq!(trips(&both("(i64.const 0)", "lt_u", PARAMETER)), [times(13), times(12)]);
    assert_eq!(trips(&both("(i64.const -5)", "le_s", PARAMETER)), [times(19), times(18)]);
    assert_eq!(
        trips(&both("(i64.const 0)", "lt_s", "(i64.load16_s (i32.const 0))")),
        [times(32_768), times(32_767)]
    );
    assert_eq!(trips(&both("(i64.load8_u (i32.const 0))", "lt_s", PARAMETER)), [times(257), times(12)]);
    // The bounded loop of the SDK: its count goes up before the paths part.
    let bounded = "(block $past (block $out (loop $outer
        (block $rare
            (loop $inner
                (br_if $past (i32.ge_u (local.get $a) (i32.const 16)))
                (local.set $a (i32.add (local.get $a) (i32.const 1)))
                (br_if $rare (i32.eqz (i32.load8_u (i32.const 0))))
                (br_if $inner (i32.load (i32.const 4))))
            (br $out))
        (br_if $outer (i32.load (i32.const 4)))))
        (return (i32.const 0))) unreachable";
    assert_eq!(trips(bounded), [times(18), times(17)]);
    // Counting down.
    let down = both("(i64.const 40)", "gt_s", PARAMETER).replace("i64.add", "i64.sub");
    assert_eq!(trips(&down), [times(38), times(37)]);
    // To a limit that was read before, or down to 0, with the tests that compilers make from `<` and `> 0`.
    let once = format!(
        "(local.set $y (call $param_int (i32.const 0))) {}",
        both("(i64.const 0)", "ne", "(local.get $y)")
    );
    assert_eq!(trips(&once), [times(13), times(12)]);
    let to_zero = both(PARAMETER, "ne", "(i64.const 0)").replace("i64.add", "i64.sub");
    assert_eq!(trips(&to_zero), [times(13), times(12)]);
    // The paths differ in their steps and limits.
    let unlike = split(
        "(i64.const 0)",
        &test("$inner", "lt_s", PARAMETER).replace("(i64.const 1)", "(i64.const 3)"),
        &test("$outer", "lt_s", "(i64.const 20)").replace("(i64.const 1)", "(i64.const 2)"),
    );
    assert!(analysed(&unlike).is_bounded());
}

/// Loops that only look like one split loop: some run never ends, or ends only after the counter wraps around.
#[test]
fn two_loops_that_only_look_like_a_split_loop_are_not_proved() {
    let near = [
        // The outer path takes back the inner one's step.
        (
            "(i64.const 0)",
            "(i64.add (local.get $x) (i64.const 1))",
            "(i64.sub (local.get $x) (i64.const 1))",
            "lt_s",
            "lt_s",
        ),
        // The outer path leaves the counter unchanged, resets it, or replaces it.
        ("(i64.const 0)", "(i64.add (local.get $x) (i64.const 1))", "(local.get $x)", "lt_s", "lt_s"),
        ("(i64.const 0)", "(i64.add (local.get $x) (i64.const 1))", "(i64.const 1)", "lt_s", "lt_s"),
        (
            "(i64.const 0)",
            "(i64.add (local.get $x) (i64.const 1))",
            "(i64.load8_u (i32.const 8))",
            "lt_s",
            "lt_s",
        ),
        // The two paths test in opposite directions, or the counter moves away from the limit.
        (
            "(i64.const 0)",
            "(i64.add (local.get $x) (i64.const 1))",
            "(i64.add (local.get $x) (i64.const 1))",
            "lt_s",
            "gt_s",
        ),
        (
            "(i64.const 0)",
            "(i64.sub (local.get $x) (i64.const 1))",
            "(i64.sub (local.get $x) (i64.const 1))",
            "lt_s",
            "lt_s",
        ),
        // The counter can begin with any value.
        (
            "(i64.load (i32.const 8))",
            "(i64.add (local.get $x) (i64.const 1))",
            "(i64.add (local.get $x) (i64.const 1))",
            "lt_s",
            "lt_s",
        ),
        // A step is long enough to wrap.
        (
            "(i64.const 0)",
            "(i64.add (local.get $x) (i64.const 0x7fffffffffffffff))",
            "(i64.add (local.get $x) (i64.const 1))",
            "lt_s",
            "lt_s",
        ),
        (
            "(i64.const 0)",
            "(i64.add (local.get $x) (i64.load (i32.const 8)))",
            "(i64.add (local.get $x) (i64.const 1))",
            "lt_s",
            "lt_s",
        ),
    ];
    for (first, inner, outer, inner_cmp, outer_cmp) in near {
        let body = split(
            first,
            &format!(
                "(br_if $inner (i64.{inner_cmp} (local.tee $x {inner}) (call $param_int (i32.const 0))))"
            ),
            &format!(
                "(br_if $outer (i64.{outer_cmp} (local.tee $x {outer}) (call $param_int (i32.const 0))))"
            ),
        );
        assert!(!analysed(&body).is_bounded(), "{body}");
    }
    // The outer path repeats without its test, before or after the step.
    for outer in ["(br $outer)", "(local.set $x (i64.add (local.get $x) (i64.const 1))) (br $outer)"] {
        let inner =
            "(br_if $inner (i64.lt_s (local.tee $x (i64.add (local.get $x) (i64.const 1))) (i64.const 9)))";
        assert!(!analysed(&split("(i64.const 0)", inner, outer)).is_bounded(), "{outer}");
    }
}

#[test]
fn loops_with_varying_steps_are_bounded() {
    // Type, length, value: each element takes at least two bytes, and never more than are left.
    let options = format!(
        "(local.set $b {LEN})
        (block (loop
            (br_if 1 (i32.lt_u (local.get $b) (i32.const 2)))
            (local.set $c (i32.add (i32.load8_u (local.get $b)) (i32.const 2)))
            (br_if 1 (i32.lt_u (local.get $b) (local.get $c)))
            (local.set $b (i32.sub (local.get $b) (local.get $c)))
            (br 0)))"
    );
    assert_eq!(trips(&options), [Linear { constant: 2, per_kib: 512 }]);
    // In steps of one, or of a loaded value of at least two, up to the packet's end.
    let either = format!(
        "(local.set $b {LEN})
        (block (loop
            (br_if 1 (i32.ge_u (local.get $a) (local.get $b)))
            (local.set $c (i32.load8_u (local.get $a)))
            (if (i32.lt_u (local.get $c) (i32.const 2))
                (then (local.set $a (i32.add (local.get $a) (i32.const 1))))
                (else (local.set $a (i32.add (local.get $a) (local.get $c)))))
            (br 0)))"
    );
    assert_eq!(trips(&either), [Linear { constant: 1, per_kib: 1024 }]);
}

#[test]
fn loops_over_bits_and_digits_are_bounded() {
    let bits = "(local.set $a (i32.and (i32.load (i32.const 0)) (i32.const 0xFFFF)))
        (block (br_if 0 (i32.eqz (local.get $a)))
            (loop (br_if 0 (local.tee $a (i32.and (local.get $a) (i32.sub (local.get $a) (i32.const 1)))))))";
    assert_eq!(trips(bits), [times(17)]);
    let shifts = "(local.set $x (i64.load (i32.const 0)))
        (loop (local.set $x (i64.shr_u (local.get $x) (i64.const 1))) (br_if 0 (i32.eqz (i64.eqz (local.get $x)))))";
    assert_eq!(trips(shifts), [times(64)]);
    let digits = "(local.set $a (i32.load (i32.const 0)))
        (loop (local.set $b (local.get $a)) (local.set $a (i32.div_u (local.get $a) (i32.const 10)))
            (br_if 0 (i32.gt_u (local.get $b) (i32.const 9))))";
    assert_eq!(trips(digits), [times(10)]);
    let powers = "(local.set $a (i32.const 6)) (local.set $b (i32.wrap_i64 (call $param_int (i32.const 0))))
        (block (loop (br_if 1 (i32.ge_u (i32.shl (i32.const 1) (local.get $c)) (local.get $b)))
            (local.set $c (i32.add (local.get $c) (i32.const 1))) (br 0)))";
    assert_eq!(trips(powers), [times(5)]);
}

#[test]
fn a_callee_is_bounded_by_its_arguments() {
    let body = format!("(call $helper (i32.const 20)) (call $helper (i32.and {LEN} (i32.const 7)))");
    assert_eq!(trips(&body), [times(20)]);
}

#[test]
fn the_trips_of_a_loop_follow_from_locals() {
    let body = format!(
        "(block (br_if 0 (i32.eqz (local.tee $b {LEN})))
            (loop (br_if 0 (local.tee $b (i32.sub (local.get $b) (i32.const 1))))))"
    );
    let trip_formula = analysed(&body).loops.first().and_then(|found| found.trip_formula.clone());
    assert_eq!(trip_formula, Some(TripCountFormula { terms: vec![(2, 1)], constant: -1, step: 1 }));
}

#[test]
fn the_cost_of_a_path_that_ends_in_a_trap_counts() {
    let dear = "(if (i32.load8_u (i32.const 0)) (then
            (loop (br_if 0 (i32.ne (local.tee $a (i32.add (local.get $a) (i32.const 1))) (i32.const 1000))))
            unreachable))";
    let fuel = analysed(dear).entries.first().map_or(0, |entry| entry.usage.fuel.constant);
    assert!(fuel > 4000, "{fuel}");
}

#[test]
fn a_call_costs_as_much_as_its_callee_with_these_arguments() {
    let found = analysed("(call $helper (i32.const 10)) (call $helper (i32.const 1000))");
    let called: Vec<&str> = found.calls.iter().map(|call| call.callee.as_str()).collect();
    assert_eq!(called, ["helper", "helper"]);
    let [few, many] = [0, 1].map(|call| found.calls[call].fuel.constant);
    assert!(few >= 10 && (90..=100).contains(&(many / few)), "{few} and {many}");
    let packet = found.entries[0].usage.fuel.constant;
    assert!((few + many..few + many + 20).contains(&packet), "{packet}");
}
