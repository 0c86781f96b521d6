//! What the work grows with: also where the value that it grows with was given, and the analysis counts with that one.

mod support;

use support::module;
use weir_bounds::{Analysis, Class, Costs, EntryPoint, Environment, Given, analyse};

fn with_given(min: i64, max: i64, functions: &str, body: &str) -> Analysis {
    let text = format!(
        r#"{functions}
        (func (export "weir_packet") (param $p i32) (result i32)
            (local $a i32) (local $n i32) (local $x i64) {body} (i32.const 0))"#
    );
    let environment = Environment {
        parameters: vec![Given::Int { min, max }],
        string_bytes: Vec::new(),
        packet_max: 16 << 20,
        pages_max: 16,
    };
    analyse(&module(&text), &environment, &Costs::standard()).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_value_that_was_given_is_a_configuration_value_still() {
    const SIZE: &str = "(i32.wrap_i64 (call $param_int (i32.const 0)))";
    let up = "(loop $l (br_if $l (i32.lt_u (local.tee $a (i32.add (local.get $a) (i32.const 1))) (local.get $n))))";
    let down = "(loop $l (br_if $l (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))";
    let count = format!("(func $count (param $n i32) (local $a i32) {up})");
    let table = "(func $unused)";
    for (functions, body) in [
        (table, format!("(local.set $n {SIZE}) {up}")),
        (table, format!("(local.set $n (i32.shl (i32.add {SIZE} (i32.const 3)) (i32.const 2))) {up}")),
        (table, format!("(local.set $n (i32.and (i32.sub (i32.const 90) {SIZE}) (i32.const 255))) {up}")),
        (table, format!("(local.set $n {SIZE}) {down}")),
        (&count, format!("(call $count (i32.mul {SIZE} (i32.const 12)))")),
        (table, format!("(memory.fill (i32.const 0) (i32.const 0) (i32.mul {SIZE} (i32.const 16)))")),
        (
            table,
            "(loop $l (br_if $l (i64.lt_u (local.tee $x (i64.add (local.get $x) (i64.const 1)))
                (i64.extend_i32_u (i32.wrap_i64 (call $param_int (i32.const 0)))))))"
                .to_owned(),
        ),
    ] {
        let of = |min, max| {
            let analysis = with_given(min, max, functions, &body);
            let found = analysis.entry(EntryPoint::Packet).expect("it has the entry point");
            assert!(found.is_bounded(), "{body}");
            (found.class, found.usage.fuel)
        };
        assert_eq!(of(8, 8).0, Class::ConfigurationValue, "{body}");
        assert_eq!(of(4, 8).0, Class::ConfigurationValue, "{body}");
    }
    let plain = with_given(8, 8, "", &format!("(drop {SIZE}) (local.set $n (i32.const 8)) {up}"));
    assert_eq!(plain.entry(EntryPoint::Packet).map(|found| found.class), Some(Class::Constant));
}
