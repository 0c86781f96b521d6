//! Hostile modules for the part `analysis` of the benchmark: valid, as large as admission permits, and hard to analyse.

/// All modules, with their descriptions.
pub fn all() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("1 MB of functions with loops", module_of((0..2370).map(function_with_loops))),
        ("50,000 functions, each calling the next", module_of((0..50_000).map(calling_function))),
        (
            "40 functions, each calling the next twice with other arguments",
            module_of((0..40).map(doubly_calling_function)),
        ),
        (
            "one function with 4,000 locals, all changed in a loop",
            module_of_one(4_000, &changed_locals(4_000)),
        ),
        ("5,000 nested blocks", module_of_one(1, &nested_blocks(5_000, "block"))),
        ("1,000 nested loops", module_of_one(1, &nested_blocks(1_000, "loop"))),
        ("60 nested loops, each with a counter", module_of_one(60, &nested_counting_loops(60))),
        ("20,000 loops in a row", module_of_one(1, &(sequential_loops(20_000) + "local.get 0"))),
        (
            "50,000 decisions in a row, each with its own value",
            module_of_one(1, &(sequential_decisions(50_000) + "local.get 1")),
        ),
        ("br_table with 100,000 targets in a loop", module_of_one(1, &branch_table_in_loop(100_000))),
        (
            "1 MB of stores to constant addresses",
            module_of_one(0, &(constant_stores(123_000) + "local.get 0")),
        ),
    ]
}

/// A module of these functions. The last one is `weir_packet`.
fn module_of(functions: impl Iterator<Item = String>) -> Vec<u8> {
    let functions: Vec<String> = functions.collect();
    let (last, text) = (functions.len() - 1, functions.concat());
    let text =
        format!(r#"(module (memory (export "memory") 4) {text} (export "weir_packet" (func {last})))"#);
    wat::parse_str(text).unwrap_or_default()
}

/// A module whose `weir_packet` is its only function.
fn module_of_one(locals: usize, body: &str) -> Vec<u8> {
    module_of(std::iter::once(function(locals, body)))
}

/// A function from i32 to i32, with more locals of type i32.
fn function(locals: usize, body: &str) -> String {
    format!("(func (param i32) (result i32) (local {}) {body})\n", "i32 ".repeat(locals))
}

/// `for (local = 0; local < end; local += 1) body`, as LLVM compiles it: the test is at the end.
fn counting_loop(local: usize, end: usize, body: &str) -> String {
    format!(
        "i32.const 0 local.set {local} loop {body} \
         local.get {local} i32.const 1 i32.add local.tee {local} i32.const {end} i32.ne br_if 0 end "
    )
}

/// The function with this index: eight loops with loads, and a call of the previous function.
fn function_with_loops(index: usize) -> String {
    let body = "local.get 0 local.get 1 i32.add i32.const 0xFF00 i32.and i32.load \
                local.get 2 i32.add local.tee 2 i32.const 7 i32.xor local.set 3 \
                local.get 3 if local.get 2 i32.const 1 i32.shr_u local.set 2 end";
    let rounds: String = (0..8).map(|round| counting_loop(1, 10 + round, body)).collect();
    let call = if index.is_multiple_of(50) { String::new() } else { format!("call {}", index - 1) };
    function(4, &format!("{rounds} local.get 2 {call}"))
}

/// The function with this index, which calls the previous one.
fn calling_function(index: usize) -> String {
    let call = if index == 0 { String::new() } else { format!("i32.const 1 i32.add call {}", index - 1) };
    function(0, &format!("local.get 0 {call}"))
}

/// The function with this index, which calls the previous one twice.
fn doubly_calling_function(index: usize) -> String {
    if index == 0 {
        return function(0, "local.get 0");
    }
    let next = index - 1;
    function(
        0,
        &format!(
            "local.get 0 i32.const 1 i32.add call {next} local.get 0 i32.const 2 i32.mul call {next} i32.add"
        ),
    )
}

/// A loop in which each local is added to the next.
fn changed_locals(locals: usize) -> String {
    let add = |local| format!("local.get {} local.get {local} i32.add local.set {local} ", local - 1);
    let body: String = (2..locals).map(add).collect();
    format!("{} local.get {}", counting_loop(1, 100, &body), locals - 1)
}

/// Nested `block`s or `loop`s with a branch out of half of them.
fn nested_blocks(depth: usize, kind: &str) -> String {
    let (begin, end) = (format!("{kind} ").repeat(depth), "local.get 0 local.set 1 end ".repeat(depth));
    format!("{begin} local.get 0 br_if {} {end} local.get 1", depth / 2)
}

fn nested_counting_loops(depth: usize) -> String {
    let innermost = "local.get 0 i32.const 1 i32.add local.set 0".to_owned();
    (1..=depth).rev().fold(innermost, |body, local| counting_loop(local, 3, &body)) + "local.get 0"
}

fn sequential_loops(loops: usize) -> String {
    (1..=loops).map(|end| counting_loop(1, end, "local.get 0 local.get 1 i32.add local.set 0")).collect()
}

fn sequential_decisions(decisions: usize) -> String {
    let decide = |value| {
        format!(
            "local.get 0 i32.const {value} i32.and if local.get 1 i32.const {value} i32.add local.set 1 end "
        )
    };
    (0..decisions).map(decide).collect()
}

fn branch_table_in_loop(targets: usize) -> String {
    let targets: String = (0..targets).map(|target| format!("{} ", target % 3)).collect();
    let body = format!(
        "block block local.get 1 br_table {targets} 0 end local.get 0 i32.const 1 i32.add local.set 0 end"
    );
    counting_loop(1, 50, &body) + "local.get 0"
}

fn constant_stores(stores: usize) -> String {
    let store = |number| format!("i32.const {} local.get 0 i32.store ", number * 4 % 200_000);
    (0..stores).map(store).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_them_are_valid_modules() {
        for (name, bytes) in all() {
            assert!(
                name.split(' ').next() != Some("1") || bytes.len() >= 1 << 20,
                "{name}: {} bytes",
                bytes.len()
            );
            if let Err(error) = wasmparser::validate(&bytes) {
                panic!("{name}: {error}");
            }
        }
    }
}
