//! Test modules near and beyond the complexity limits.

use crate::run::module::{MANIFEST, assemble, text};
use weir_admission::ComplexityLimit;

/// Builds a module that is hard to compile in one way: it has `count` of the elements that `shape` names, exactly if
/// possible, and little else.
pub fn module(shape: ComplexityLimit, count: u64) -> Vec<u8> {
    // The text around the body adds a few more.
    let repeat = |part: &dyn Fn(u64) -> String| (0..count).map(part).collect::<String>();
    let own = |body: String| format!("{body}{PASS}");
    let body = match shape {
        ComplexityLimit::Types => own(repeat(&|index| format!("(type (func (param {})))", bits(index)))),
        ComplexityLimit::Signature => {
            let results = vec!["i32"; usize::try_from(count).unwrap()].join(" ");
            let values = "(i32.const 1)".repeat(usize::try_from(count).unwrap());
            let drops = "drop ".repeat(usize::try_from(count).unwrap());
            let calls = format!("call $many {drops}").repeat(1_000);
            own(format!("(func $many (result {results}) {values}) (func {calls})"))
        }
        ComplexityLimit::Functions => {
            // A table makes each function reachable, which makes compilation more expensive.
            let bodies =
                repeat(&|index| format!("(func $f{index} (param i32) (result i32) (i32.const {index}))"));
            let names = repeat(&|index| format!(" $f{index}"));
            own(format!("{bodies} (table {count} funcref) (elem (i32.const 0) func {names})"))
        }
        ComplexityLimit::Globals => {
            own("(global (mut i32) (i32.const 1))".repeat(usize::try_from(count).unwrap()))
        }
        ComplexityLimit::Exports => {
            own(format!("(func $x) {}", repeat(&|index| format!("(export \"e{index}\" (func $x))"))))
        }
        ComplexityLimit::Tables => own("(table 10 funcref)".repeat(usize::try_from(count).unwrap())),
        // Not in a table, because tables have a separate limit.
        ComplexityLimit::Elements => {
            own(format!("(func $x) (elem func {})", " $x".repeat(usize::try_from(count).unwrap())))
        }
        ComplexityLimit::DataSegments => own(repeat(&|index| format!("(data (i32.const {index}) \"x\")"))),
        ComplexityLimit::Body => own(format!("(func (param i32) {})", stores(count / 7))),
        ComplexityLimit::Locals => {
            let set = |index| {
                format!(
                    "(local.set {} (i32.add (local.get {index}) (i32.load (i32.const {index}))))",
                    (index * 7) % count
                )
            };
            own(format!("(func (local {}) {})", "i32 ".repeat(usize::try_from(count).unwrap()), repeat(&set)))
        }
        ComplexityLimit::Targets => own(format!(
            "(func (param i32) (result i32) (local i32) (block $a (block $b (br_table {} $a (local.get 0))) (local.set 1 (i32.const 5))) (local.get 1))",
            repeat(&|index| if index % 2 == 0 { "$a " } else { "$b " }.to_owned())
        )),
        ComplexityLimit::Loops => own(nest(20, count)),
        ComplexityLimit::Blocks => own(format!(
            "(func (param i32) {} {})",
            "block ".repeat(usize::try_from(count).unwrap()),
            "(br_if 0 (local.get 0)) end ".repeat(usize::try_from(count).unwrap())
        )),
        ComplexityLimit::Instructions => {
            // Each store is three instructions. Functions have 30,000 instructions.
            let functions = count.div_ceil(30_000);
            let of_one = count / functions / 3;
            own(format!("(func (param i32) {})", stores(of_one)).repeat(usize::try_from(functions).unwrap()))
        }
        ComplexityLimit::Flow => own(alive(400, count / 401 / 3)),
        ComplexityLimit::Joins => own(nest(1_000, count / 2_000)),
        ComplexityLimit::AllJoins => own(nest(100, 20).repeat(usize::try_from(count / 4_000).unwrap())),
        ComplexityLimit::SquaredJoins => {
            // Two functions of the same size.
            let joins = (count / 2).isqrt();
            own(nest(1_000, joins / 2_000).repeat(2))
        }
    };
    assemble(&text(&body), Some(MANIFEST.replace("NAME", "shape").as_bytes()))
}

/// A packet function that passes every packet.
const PASS: &str = r#"(func (export "weir_packet") (param i32) (result i32) (i32.const 0))"#;

/// The parameter types of a function type that differs for each index.
fn bits(index: u64) -> String {
    (0..16).map(|bit| if index >> bit & 1 == 0 { "i32 " } else { "i64 " }).collect()
}

fn stores(count: u64) -> String {
    "(i32.store (local.get 0) (local.get 0))".repeat(usize::try_from(count).unwrap())
}

/// A function with `loops` nested loops, the innermost of which sets `locals` locals.
fn nest(locals: u64, loops: u64) -> String {
    let sets: String = (0..locals)
        .map(|local| format!("(local.set {local} (i32.add (local.get {local}) (i32.const 1)))"))
        .collect();
    let loops = usize::try_from(loops).unwrap();
    format!(
        "(func (local {}) {} {sets} {})",
        "i32 ".repeat(usize::try_from(locals).unwrap()),
        "loop ".repeat(loops),
        "(br_if 0 (local.get 0)) end ".repeat(loops)
    )
}

/// A function with `loops` loops in sequence, across which `locals` values stay alive.
fn alive(locals: u64, loops: u64) -> String {
    let load = |local| format!("(local.set {local} (i32.load (i32.const {})))", local * 4);
    let store = |local| format!("(i32.store (i32.const {}) (local.get {local}))", local * 4);
    let one = |index: u64| {
        let [a, b, c] = [7, 13, 29].map(|by| index * by % locals);
        format!("(loop (br_if 0 (local.get {a})) (i32.store (local.get {b}) (local.get {c})))")
    };
    format!(
        "(func (local {}) {} {} {})",
        "i32 ".repeat(usize::try_from(locals).unwrap()),
        (0..locals).map(load).collect::<String>(),
        (0..loops).map(one).collect::<String>(),
        (0..locals).map(store).collect::<String>(),
    )
}
