//! Work classes: the quantity that the work grows with, also where the analysis knows its value.

use crate::support::module;
use weir_bounds::{
    Analysis, CostTable, EntryPoint, Environment, ParamBound, ParsedModule, WorkClass, analyse,
};

/// The analysis of a packet function with this body, where the module's only parameter is from `min` to `max`.
fn analysed_with_parameter(min: i64, max: i64, functions: &str, body: &str) -> Analysis {
    let text = format!(
        r#"{functions}
        (func (export "weir_packet") (param $p i32) (result i32)
            (local $a i32) (local $n i32) (local $x i64) {body} (i32.const 0))"#
    );
    let environment = Environment {
        parameters: vec![ParamBound::Int { min, max }],
        string_bytes: Vec::new(),
        packet_max: 16 << 20,
        pages_max: 16,
    };
    ParsedModule::parse(module(&text))
        .and_then(|module| analyse(&module, &environment, &CostTable::standard()))
        .unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_fixed_parameter_value_is_still_a_configuration_value() {
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
        let class_and_fuel = |min, max| {
            let analysis = analysed_with_parameter(min, max, functions, &body);
            let found = analysis.entry(EntryPoint::Packet).expect("it has the entry point");
            assert!(found.is_bounded(), "{body}");
            (found.class, found.usage.fuel)
        };
        assert_eq!(class_and_fuel(8, 8).0, WorkClass::ConfigurationValue, "{body}");
        assert_eq!(class_and_fuel(4, 8).0, WorkClass::ConfigurationValue, "{body}");
    }
    let plain =
        analysed_with_parameter(8, 8, "", &format!("(drop {SIZE}) (local.set $n (i32.const 8)) {up}"));
    assert_eq!(plain.entry(EntryPoint::Packet).map(|found| found.class), Some(WorkClass::Constant));
}

/// One module for each class, by the limit of its only loop.
#[test]
fn each_work_class_has_a_module() {
    let up_to = |limit: &str| {
        format!(
            "(local.set $n {limit})
            (block $out (loop $l (br_if $out (i32.ge_u (local.get $a) (local.get $n)))
                (local.set $a (i32.add (local.get $a) (i32.const 1))) (br $l)))"
        )
    };
    let class = |body: &str| {
        let text = format!(
            r#"(func (export "weir_packet") (param $p i32) (result i32) (local $a i32) (local $n i32) {body} (i32.const 0))"#
        );
        let environment = Environment {
            parameters: vec![ParamBound::Int { min: 1, max: 8 }, ParamBound::Bytes { min: 0, max: 40 }],
            string_bytes: Vec::new(),
            packet_max: 16 << 20,
            pages_max: 16,
        };
        let analysis = ParsedModule::parse(module(&text))
            .and_then(|module| analyse(&module, &environment, &CostTable::standard()))
            .expect("it is valid");
        let found = analysis.entry(EntryPoint::Packet).expect("it has the entry point");
        assert_eq!(found.is_bounded(), found.class != WorkClass::Unbounded, "{body}");
        assert_eq!(analysis.loops.len(), 1, "{body}");
        assert_eq!(analysis.loops[0].class, found.class, "{body}");
        found.class
    };
    const PACKET: &str = "(i32.load offset=8 (local.get $p))";
    let first = format!("(i32.load8_u {PACKET})");
    for (limit, expected) in [
        ("(i32.const 8)".to_owned(), WorkClass::Constant),
        // cap_len, wire_len and payload_len.
        ("(i32.load offset=12 (local.get $p))".to_owned(), WorkClass::PacketLength),
        (
            "(i32.and (i32.load offset=16 (local.get $p)) (i32.const 2047))".to_owned(),
            WorkClass::PacketLength,
        ),
        ("(i32.load offset=40 (local.get $p))".to_owned(), WorkClass::PacketLength),
        // The offset of a header; and the four bits of IPv4's first byte and of TCP's thirteenth that hold the header
        // length.
        ("(i32.load16_u offset=34 (local.get $p))".to_owned(), WorkClass::HeaderLength),
        ("(i32.load16_u offset=80 (local.get $p))".to_owned(), WorkClass::HeaderLength),
        (format!("(i32.shl (i32.and {first} (i32.const 15)) (i32.const 2))"), WorkClass::HeaderLength),
        (format!("(i32.shr_u (i32.load8_u offset=12 {PACKET}) (i32.const 4))"), WorkClass::HeaderLength),
        (
            "(call $param_bytes (i32.const 1) (i32.const 0) (i32.const 40))".to_owned(),
            WorkClass::ConfigurationLength,
        ),
        ("(i32.wrap_i64 (call $param_int (i32.const 0)))".to_owned(), WorkClass::ConfigurationValue),
        // Fields of the packet's contents and of its descriptor.
        (first, WorkClass::HeaderField),
        ("(i32.load16_u offset=44 (local.get $p))".to_owned(), WorkClass::HeaderField),
        ("(i32.load8_u offset=83 (local.get $p))".to_owned(), WorkClass::HeaderField),
        ("(i32.load (i32.const 0))".to_owned(), WorkClass::Unbounded),
    ] {
        assert_eq!(class(&up_to(&limit)), expected, "{limit}");
    }
}
