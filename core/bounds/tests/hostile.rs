//! Modules that try to look cheaper than they are, and a module for each cause of a missing bound.
//!
//! The first line of each file of `hostile_modules` states the expected answer:
//!
//! ```text
//! ;; ENTRY: bounded
//! ;; ENTRY: bounded, at most FUEL         by the standard table, for a packet of 1500 bytes
//! ;; ENTRY: bounded, at least FUEL
//! ;; ENTRY: unbounded
//! ;; ENTRY: unbounded: PLACE: REASON      all of it, with `byte ..` for the offset in the module
//! ```
//!
//! Each file follows the common prelude: all imports, a memory of one page, and a shadow stack of 4 KiB. The soundness
//! oracle runs the modules as well.

use crate::support::{analysed, environment, module, texts};
use std::collections::BTreeSet;
use weir_bounds::{
    Analysis, CostTable, CounterProblem, EntryBound, EntryPoint, ParsedModule, UnboundedCause, analyse,
};

/// The answer that a module's first line expects.
#[derive(Debug)]
enum Expected {
    AtMost(u64),
    AtLeast(u64),
    Unbounded(String),
}

fn expected(name: &str, text: &str) -> (String, Expected) {
    let line = text.lines().next().unwrap_or_default().trim_start_matches(";; ");
    let (entry, answer) = line.split_once(": ").unwrap_or_else(|| panic!("{name}: `{line}`"));
    let number = |text: &str| text.trim().parse().unwrap_or_else(|_| panic!("{name}: `{text}` is no number"));
    let answer = match answer.split_once([',', ':']) {
        None if answer == "bounded" => Expected::AtMost(u64::MAX - 1),
        None if answer == "unbounded" => Expected::Unbounded(String::new()),
        Some(("bounded", rest)) => match rest.trim().split_once("at most") {
            Some((_, most)) => Expected::AtMost(number(most)),
            None => Expected::AtLeast(number(rest.trim().trim_start_matches("at least"))),
        },
        Some(("unbounded", why)) => Expected::Unbounded(why.trim().to_owned()),
        _ => panic!("{name}: `{answer}`"),
    };
    (entry.to_owned(), answer)
}

/// The text of a cause without the offset, which changes with every edit of the module.
fn without_offset(reason: &str) -> String {
    match reason.split_once("(byte ") {
        Some((before, after)) => {
            format!("{before}(byte ..{}", after.trim_start_matches(|c: char| c.is_ascii_digit()))
        }
        None => reason.to_owned(),
    }
}

fn entry<'a>(analysis: &'a Analysis, name: &str) -> Option<&'a EntryBound> {
    analysis.entries.iter().find(|found| found.entry.name() == name)
}

/// Checks that the modules of a folder get the expected answers. Returns their number.
fn check_folder(folder: &str) -> usize {
    let (mut count, mut wrong) = (0, Vec::new());
    for (name, text) in texts(folder) {
        count += 1;
        let (wanted, answer) = expected(&name, &text);
        let analysis = analysed(&text);
        let Some(found) = entry(&analysis, &wanted) else { panic!("{name}: no entry point `{wanted}`") };
        let fuel = found.usage.fuel.at(1500);
        let reasons: Vec<String> =
            found.unbounded.iter().map(|reason| without_offset(&reason.to_string())).collect();
        let holds = match &answer {
            Expected::AtMost(most) => found.is_bounded() && fuel <= *most,
            Expected::AtLeast(least) => found.is_bounded() && fuel >= *least,
            Expected::Unbounded(why) => {
                !found.is_bounded()
                    && !reasons.is_empty()
                    && (why.is_empty() || reasons.iter().any(|reason| reason.contains(why)))
            }
        };
        if !holds {
            wrong.push(format!("{name}: {answer:?}, but found {fuel} of fuel, and {reasons:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {count} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    count
}

#[test]
fn hostile_modules_get_the_expected_answer() {
    assert!(check_folder("hostile_modules") >= 30);
}

/// Every message has a module that provokes it, with its location and whole text in the module's first line. Messages that
/// need a large module are tested below.
#[test]
fn every_unbounded_cause_has_a_module() {
    let all = [
        UnboundedCause::MayMiss,
        UnboundedCause::LimitUnknown,
        UnboundedCause::Endless,
        UnboundedCause::Recursion(vec!["walk".into()]),
        UnboundedCause::Overflow,
    ];
    let provoked: BTreeSet<String> = texts("hostile_modules")
        .iter()
        .filter_map(|(name, text)| match expected(name, text).1 {
            Expected::Unbounded(why) => Some(why),
            _ => None,
        })
        .collect();
    for why in CounterProblem::ALL.map(UnboundedCause::NoCounter).into_iter().chain(all) {
        let whole = format!("walk (byte ..): {why}");
        assert!(
            provoked.contains(&whole),
            "no module has the first line `;; weir_packet: unbounded: {whole}`"
        );
    }
}

/// The location is that of the `loop` instruction.
#[test]
fn an_unbounded_cause_names_the_location_of_its_loop() {
    let text =
        texts("hostile_modules").into_iter().find(|(name, _)| name == "endless.wat").expect("it is there").1;
    let bytes = module(&text);
    let analysis = analysed(&text);
    let reason = &entry(&analysis, "weir_packet").expect("it is there").unbounded[0];
    const LOOP: u8 = 0x03;
    assert_eq!(bytes[usize::try_from(reason.place.offset).unwrap()], LOOP);
    assert_eq!(reason.place.name.as_deref(), Some("walk"));
}

fn packet_of(text: &str) -> EntryBound {
    entry(&analysed(text), "weir_packet").expect("it is there").clone()
}

fn is_too_large(found: &EntryBound) -> bool {
    found.unbounded.iter().any(|reason| reason.cause == UnboundedCause::TooLarge)
}

const TOO_LARGE: &str = "unbounded: too large: the module has more code on its paths than is analysed; split it, or have less of it inlined";

fn packet(body: &str) -> String {
    format!(
        "(func $walk (export \"weir_packet\") (param $d i32) (result i32) (local $i i32) {body} (i32.const 0))"
    )
}

/// A mebibyte of code is either analysed as a whole or reported as too large. The limit counts instructions, so the
/// time is bounded and the answer is the same on every machine.
#[test]
fn a_mebibyte_of_code_of_any_shape_is_analysed_or_too_large() {
    let count = "(local.set $i (i32.const 0)) (loop (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 9))))";
    let nested = |depth: usize| {
        let mut text = String::new();
        for _ in 0..depth {
            text += "(loop (br_if 0 (i32.load (i32.const 0))) ";
        }
        text + &")".repeat(depth)
    };
    let straight = packet(&"(i32.store (i32.const 0) (i32.load (i32.const 4)))".repeat(100_000));
    let loops = packet(&count.repeat(30_000));
    let branches = packet(
        &"(if (i32.load (local.get $i)) (then (local.set $i (i32.load (i32.const 4)))))".repeat(50_000),
    );
    let unbounded = packet(&nested(8).repeat(4_000));
    let calls = format!(
        "(func $small (param i32) (result i32) {} (local.get 0)) {}",
        "(i32.store (i32.const 0) (i32.const 1))".repeat(2_000),
        packet(&"(local.set $i (call $small (i32.add (local.get $i) (i32.const 1))))".repeat(50_000))
    );
    for (name, text, least) in [
        ("straight", straight, 1_000_000),
        ("loops", loops, 500_000),
        ("branches", branches, 500_000),
        ("unbounded", unbounded, 300_000),
        ("calls", calls, 350_000),
    ] {
        let bytes = module(&text);
        assert!(bytes.len() > least, "{name}: {} bytes", bytes.len());
        let found = packet_of(&text);
        assert!(
            found.is_bounded() == found.unbounded.is_empty(),
            "{name}: no bound and no reason, or both: {found:?}"
        );
    }
}

#[test]
fn a_module_that_is_too_large_is_reported_with_a_location() {
    let text = packet(&"(i32.store (i32.const 0) (i32.load (i32.const 4)))".repeat(600_000));
    let found = packet_of(&text);
    assert!(is_too_large(&found), "{:?}", found.unbounded);
    assert!(found.unbounded[0].to_string().starts_with("walk (byte "), "{}", found.unbounded[0]);
    assert!(found.unbounded[0].to_string().ends_with(TOO_LARGE), "{}", found.unbounded[0]);
    assert!(!found.is_bounded() && found.stack.is_none());
}

/// The bytes of a module whose packet function is one construct nested `depth` times. As text it would be too deep for
/// the assembler.
fn nested(open: &[u8], depth: usize) -> Vec<u8> {
    let number = |mut value: usize| {
        let mut out = Vec::new();
        while value >= 0x80 {
            out.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
            value >>= 7;
        }
        out.push(u8::try_from(value).unwrap());
        out
    };
    let mut code = vec![0];
    code.extend(open.repeat(depth));
    code.extend(vec![0x0b; depth]);
    code.extend([0x41, 0, 0x0b]);
    let body = [number(code.len()), code].concat();
    let section = |id: u8, contents: Vec<u8>| [vec![id], number(contents.len()), contents].concat();
    let exports = [b"\x02\x0bweir_packet\x00\x00".as_slice(), b"\x06memory\x02\x00"].concat();
    [
        b"\0asm\x01\0\0\0".to_vec(),
        section(1, vec![1, 0x60, 1, 0x7f, 1, 0x7f]),
        section(3, vec![1, 0]),
        section(5, vec![1, 0, 1]),
        section(7, exports),
        section(10, [vec![1], body].concat()),
    ]
    .concat()
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    // `block`, `loop`, `local.get 0 if`.
    for open in [[0x02, 0x40].as_slice(), &[0x03, 0x40], &[0x20, 0, 0x04, 0x40]] {
        for depth in [15, 1_000, 100_000] {
            let bytes = nested(open, depth);
            wasmparser::validate(&bytes).expect("it is valid");
            let analysis = ParsedModule::parse(bytes.clone())
                .and_then(|module| analyse(&module, &environment(), &CostTable::standard()))
                .expect("it is valid");
            let found = entry(&analysis, "weir_packet").expect("it is there");
            assert!(found.is_bounded() != is_too_large(found), "{open:?} {depth}: {found:?}");
            assert!(depth > 15 || found.is_bounded(), "{open:?} {depth}: {found:?}");
        }
    }
}

#[test]
fn thousands_of_changing_globals_and_many_back_edges_are_analysed_in_bounded_time() {
    // Guesses are checked on each back edge for each local and global that changes.
    let globals = "(global (mut i32) (i32.const 0))".repeat(10_000);
    let back_edges =
        "(br_if $l (i32.eq (i32.load8_u (i32.const 1)) (i32.load8_u (i32.const 2))))".repeat(230);
    for inner in ["", "(loop (br_if 0 (i32.load8_u (i32.const 3))))"] {
        let body =
            format!("{globals}(func $f){}", packet(&format!("(loop $l (call $f) {inner} {back_edges})")));
        let begin = std::time::Instant::now();
        let found = packet_of(&body);
        let took = begin.elapsed();
        assert!(!found.is_bounded() && took < std::time::Duration::from_secs(10), "{took:?}: {found:?}");
    }
}

#[test]
fn fifty_thousand_functions_are_analysed_or_too_large() {
    // Each function calls the next, so the deepest path contains all of them.
    let mut text = String::new();
    for i in 0..50_000 {
        text += &if i < 49_999 {
            format!("(func $f{i} (call $f{}))\n", i + 1)
        } else {
            format!("(func $f{i})\n")
        };
    }
    let chain = packet_of(&format!("{text}{}", packet("(call $f0)")));
    assert!(is_too_large(&chain) && !chain.is_bounded(), "{chain:?}");
    // One function calls all others: wide, not deep.
    let mut text = String::new();
    let mut calls = String::new();
    for i in 0..50_000 {
        text += &format!("(func $f{i} (i32.store (i32.const 0) (i32.const {i})))\n");
        calls += &format!("(call $f{i})");
    }
    let wide = packet_of(&format!("{text}{}", packet(&calls)));
    assert!(wide.is_bounded() || is_too_large(&wide), "{wide:?}");
    // A table of all functions, and one indirect call.
    let names: String = (0..50_000).map(|i| format!(" $f{i}")).collect();
    let table = format!(
        "(table funcref (elem {names})) {text} {}",
        packet("(call_indirect (i32.load (i32.const 4)))")
    );
    let table = packet_of(&table);
    assert!(table.is_bounded() || is_too_large(&table), "{table:?}");
}

#[test]
fn four_thousand_locals_are_analysed_or_too_large() {
    let locals = "(local i64)".repeat(4_000);
    let sets: String = (3..4_000)
        .map(|i| format!("(local.set {i} (i64.add (local.get {}) (i64.const 1)))", i - 1))
        .collect();
    let text = format!(
        "(func $walk (export \"weir_packet\") (param $d i32) (result i32) (local $i i32) {locals}
           (loop {sets} (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 9)))) (i32.const 0))"
    );
    let found = packet_of(&text);
    assert!(is_too_large(&found) || (found.is_bounded() && found.usage.fuel.at(0) > 9 * 4_000), "{found:?}");
    if let Some(stack) = found.stack {
        assert!(stack >= 4_000 * 8, "{stack}");
    }
}

#[test]
fn a_huge_branch_table_is_analysed_or_too_large() {
    let blocks = 100;
    let labels: String = (0..100_000).map(|i| format!(" {}", i % blocks)).collect();
    let text = packet(&format!(
        "{} (br_table {labels} 0 (i32.load (i32.const 64))) {}",
        "(block ".repeat(blocks),
        ")".repeat(blocks)
    ));
    let found = packet_of(&text);
    assert!(found.is_bounded() || is_too_large(&found), "{found:?}");
    // In a loop, with the loop's header among the targets: endless.
    let text = packet(&format!(
        "(loop {} (br_table {labels} 100 (i32.load (i32.const 64))) {})",
        "(block ".repeat(blocks),
        ")".repeat(blocks)
    ));
    assert!(!packet_of(&text).is_bounded());
}

/// Arithmetic saturates: an overflow gives no bound, and never a small one.
#[test]
fn a_bound_that_overflows_counts_as_no_bound() {
    for depth in 3..8 {
        let mut text = "(nop)".to_owned();
        for level in 0..depth {
            text = format!(
                "(local.set {level} (i64.const 0))
                 (loop {text} (local.set {level} (i64.add (local.get {level}) (i64.const 1)))
                   (br_if 0 (i64.lt_u (local.get {level}) (i64.const 200000000))))"
            );
        }
        let locals = "(local i64)".repeat(depth);
        let body = format!("(func $deep {locals} {text})");
        let found = packet_of(&format!("{body} {}", packet("(call $deep)")));
        assert!(!found.is_bounded() && !found.unbounded.is_empty(), "{depth}: {:?}", found.usage);
    }
}

/// The analysis uses the parameter values that the host returns. Unused imports and unknown exports change nothing.
#[test]
fn every_entry_point_is_analysed() {
    let text = r#"
        (func $nothing)
        (start $nothing)
        (func (export "_initialize"))
        (func (export "weir_start") (result i32) (i32.const 0))
        (func (export "weir_packet") (param i32) (result i32) (i32.const 0))
        (func (export "weir_tick") (param i64 i64))
        (func (export "weir_lost") (param i32))
        (func (export "weir_low_memory") (param i64))
        (func (export "weir_serve") (param i64 i32 i32))
        (func (export "weir_answer") (param i64 i32 i32))
        (func (export "weir_stop") (param i64))"#;
    let found: BTreeSet<EntryPoint> = analysed(text).entries.iter().map(|entry| entry.entry).collect();
    let all = [
        EntryPoint::StartFunction,
        EntryPoint::Initialize,
        EntryPoint::Start,
        EntryPoint::Packet,
        EntryPoint::Tick,
        EntryPoint::Lost,
        EntryPoint::LowMemory,
        EntryPoint::Serve,
        EntryPoint::Answer,
        EntryPoint::Stop,
    ];
    assert_eq!(found, BTreeSet::from(all));
}
