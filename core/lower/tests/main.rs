//! Tests of the lowering without a compiler. edge/native and edge/sandbox compile, verify and run what it writes.

use weir_lower::{IsolatedAccesses, LowerOptions, ObjectError, link, lower, lower_with, positions};

fn error_of(text: &str) -> String {
    lower(&wat::parse_str(text).unwrap()).unwrap_err().to_string()
}

#[test]
fn what_is_not_lowered_is_named() {
    let reference = error_of("(module (func) (func (drop (ref.null func))))");
    assert!(reference.starts_with("`RefNull` in function 1, at offset 0x"), "{reference}");
    let results = error_of("(module (func (result i32 i32) i32.const 1 i32.const 2))");
    assert!(results.contains("several results"), "{results}");
    // Also if no function of the type is in the table.
    let indirect = error_of(
        "(module (type $t (func (result i32 i32))) (table 1 funcref) (func (drop (drop (call_indirect (type $t) (i32.const 0))))))",
    );
    assert!(indirect.contains("several results"), "{indirect}");
    let float = error_of(r#"(module (import "weir" "f" (func (param f64))))"#);
    assert!(float.contains("six integers"), "{float}");
}

#[test]
fn a_small_module_whose_text_would_be_huge_is_refused() {
    let table = "(type $t (func)) (table 4096 funcref) (func $f (type $t))";
    let elements = format!("(elem (i32.const 0) {})", "$f ".repeat(4096));
    let module = |calls: usize| {
        let call = "(call_indirect (type $t) (i32.const 7))";
        wat::parse_str(format!("(module {table} {elements} (func {}))", call.repeat(calls))).unwrap()
    };
    assert!(lower(&module(1)).is_ok());
    let bytes = module(2000);
    assert!(bytes.len() < 20_000);
    let error = lower(&bytes).unwrap_err().to_string();
    assert_eq!(error, format!("its text for LLVM has more than {} MiB", weir_lower::TEXT_MAX >> 20));
}

#[test]
fn bytes_that_are_no_module_or_no_object_are_refused() {
    assert!(lower(b"\0asm\x01\0\0\0\x01\x7f").is_err());
    let lowered = lower(&wat::parse_str("(module (func))").unwrap()).unwrap();
    assert!(matches!(link(b"\x7fELF", &lowered, 1 << 20), Err(ObjectError::Format(_))));
    // An object file without sections has no function.
    let mut empty = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x01\0\x3e\0\x01\0\0\0".to_vec();
    empty.resize(64, 0);
    empty[52] = 64;
    assert!(matches!(link(&empty, &lowered, 1 << 20), Err(ObjectError::Function(0))));
    empty[18] = 0xb7;
    assert!(matches!(link(&empty, &lowered, 1 << 20), Err(ObjectError::Machine)));
}

#[test]
fn an_object_without_debug_information_has_no_positions() {
    assert!(matches!(positions(b"\x7fELF", 1 << 20), Err(ObjectError::Format(_))));
    let mut empty = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x01\0\x3e\0\x01\0\0\0".to_vec();
    empty.resize(64, 0);
    empty[52] = 64;
    assert_eq!(positions(&empty, 1 << 20).unwrap().list(), []);
}

#[test]
fn accesses_with_large_offsets_are_checked_and_others_are_not() {
    let module = |offset: u64| {
        wat::parse_str(format!(
            "(module (memory 1) (func (param i32) (drop (i32.load offset={offset} (local.get 0)))))"
        ))
        .unwrap()
    };
    assert_eq!(lower(&module(16)).unwrap().checked, []);
    let bytes = module(1 << 30);
    // The first byte of `i32.load`.
    let at = u32::try_from(bytes.iter().rposition(|byte| *byte == 0x28).unwrap()).unwrap();
    assert_eq!(lower(&bytes).unwrap().checked, [at]);
}

/// Returns the text of a function that loads from an address, with these choices.
fn load_from(address: &str, offset: u32, options: &LowerOptions) -> String {
    let text = format!(
        "(module (memory 1) (func (param i32 i32) (result i32) (local i32) (i32.load offset={offset} {address})))"
    );
    lower_with(&wat::parse_str(text).unwrap(), options).unwrap().ir
}

#[test]
fn an_address_is_widened_as_far_as_its_bound_is_known() {
    let widened = |address: &str, offset| {
        let ir = load_from(address, offset, &LowerOptions::default());
        match () {
            () if ir.contains("movl %gs:") => "sum",
            () if ir.contains("asm \"movl $1, ${0:k}\"") => "opaque",
            () if ir.contains("zext i32") => "bounded",
            () => "constant",
        }
    };
    assert_eq!(widened("(i32.const 64)", 4), "constant");
    assert_eq!(widened("(local.get 0)", 0), "opaque");
    let bounded = "(i32.and (local.get 0) (i32.const 255))";
    assert_eq!(widened(bounded, 4), "bounded");
    assert_eq!(
        widened(&format!("(i32.add (i32.shl {bounded} (i32.const 3)) (i32.const 4096))"), 0),
        "bounded"
    );
    assert_eq!(widened("(i32.add (i32.const -1) (i32.const 5))", 0), "opaque");
    // The sum of a bounded number and a negative one can wrap.
    assert_eq!(widened(&format!("(i32.add {bounded} (i32.const -256))"), 4), "opaque");
    assert_eq!(widened(&format!("(i32.mul {bounded} (i32.const 16843010))"), 4), "opaque");
    // A sum with an offset can exceed 32 bits.
    let sum = "(i32.add (local.get 0) (i32.shl (local.get 1) (i32.const 2)))";
    assert_eq!((widened(sum, 0), widened(sum, 4)), ("sum", "opaque"));
    // The bound of a local holds until code from another place continues.
    let set = format!("(local.set 2 {bounded})");
    assert_eq!(widened(&format!("{set} (local.get 2)"), 4), "bounded");
    assert_eq!(
        widened(&format!("{set} (br_if 0 (i32.const 7) (local.get 1)) drop (local.get 2)"), 4),
        "bounded"
    );
    let join = "(block (br_if 0 (local.get 1)) (local.set 2 (i32.const 1)))";
    assert_eq!(widened(&format!("(local.set 2 (local.get 0)) {join} (local.get 2)"), 4), "opaque");
    let turn = "(loop (local.set 2 (i32.sub (local.get 2) (i32.const 1))) (br_if 0 (local.get 1)))";
    assert_eq!(widened(&format!("{set} {turn} (local.get 2)"), 4), "opaque");
    // Operands of code that cannot be reached say nothing about those below them.
    assert_eq!(widened("(local.get 0) (block (br 0) (drop (i32.and (i32.const 1))))", 4), "opaque");
}

#[test]
fn isolated_accesses_contain_their_widening() {
    let isolated = |isolated| LowerOptions { isolated, ..LowerOptions::default() };
    let address = "(i32.add (local.get 0) (local.get 1))";
    let all = load_from(address, 0, &isolated(IsolatedAccesses::All));
    assert!(all.contains("movl ${1:k}, %eax; movl %gs:0(%rax), ${0:k}"), "{all}");
    let other = load_from(address, 0, &isolated(IsolatedAccesses::At([1].into())));
    assert_eq!(other, load_from(address, 0, &LowerOptions::default()));
}
