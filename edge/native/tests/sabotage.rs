//! A lowering that has become wrong, or that an attacker controls: the verifier rejects its machine code.
//!
//! Each test changes the text of a module for LLVM in one way, and compiles it with clang. The unchanged text is accepted.

use crate::compile::clang;
use weir_lower::{CLANG_ARGUMENTS, Lowered, link, lower};
use weir_native::{CODE_MAX, verify_limits};
use weir_verify::{Rejection, Rule, verify};

/// A module with loads, stores, globals, host functions, calls and a loop.
const MODULE: &str = r#"(module
    (import "weir" "emit" (func $emit (param i32 i32) (result i32)))
    (memory 1)
    (global $g (mut i64) (i64.const 7))
    (func $add (param i32 i32) (result i32) (i32.add (local.get 0) (local.get 1)))
    (func (export "leaf") (param i32) (result i32) (i32.add (local.get 0) (i32.const 1)))
    (func (export "f") (param $p i32) (param $n i32) (param $w i64) (result i32) (local $sum i32)
        (loop $again
            (local.set $sum (i32.add (local.get $sum) (i32.load offset=16 (i32.wrap_i64 (i64.shr_u (local.get $w) (i64.extend_i32_u (local.get $n)))))))
            (i32.store8 offset=3 (local.get $sum) (local.get $n))
            (br_if $again (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
        (global.set $g (i64.add (global.get $g) (i64.extend_i32_u (local.get $sum))))
        (call $add (local.get $sum) (call $emit (local.get $sum) (local.get $n)))))"#;

fn lowered() -> Lowered {
    lower(&wat::parse_str(MODULE).unwrap()).unwrap()
}

/// The rejections of the code of a text; nothing if it is accepted. `None` without clang.
fn rejections(ir: &str, lowered: &Lowered) -> Option<Vec<Rejection>> {
    let linked = link(&clang(ir)?, lowered, CODE_MAX).unwrap();
    Some(match verify(linked.image, &verify_limits(lowered.thunks.len())) {
        Ok(_) => Vec::new(),
        Err(rejections) => rejections.list().to_vec(),
    })
}

/// Inserts lines at the beginning of an exported function, and more text behind all functions.
fn insert_into(export: &str, ir: &str, lines: &str, behind: &str) -> String {
    let define = format!("@f{}(", lowered().exports[export]);
    let start = ir.find(&define).unwrap();
    let body = start + ir[start..].find("{\n").unwrap() + 2;
    // The first line of a body is a label or an instruction of the entry block.
    let first = body
        + ir[body..]
            .find('\n')
            .map_or(0, |end| if ir[body..body + end].ends_with(':') { end + 1 } else { 0 });
    format!("{}{lines}\n{}\n{behind}\n", &ir[..first], &ir[first..])
}

fn insert(ir: &str, lines: &str, behind: &str) -> String {
    insert_into("f", ir, lines, behind)
}

/// Checks that a sabotaged text is rejected, in one of these ways.
#[track_caller]
fn rejected(ir: &str, expected: impl Fn(Rule) -> bool) {
    let lowered = lowered();
    assert_ne!(ir, lowered.ir, "nothing is changed");
    let Some(found) = rejections(ir, &lowered) else { return };
    assert!(!found.is_empty(), "accepted:\n{ir}");
    assert!(found.iter().any(|rejection| expected(rejection.rule)), "{found:?}");
}

#[track_caller]
fn inserted(lines: &str, behind: &str, expected: impl Fn(Rule) -> bool) {
    rejected(&insert(&lowered().ir, lines, behind), expected);
}

#[test]
fn the_unchanged_text_is_accepted() {
    let lowered = lowered();
    assert!(CLANG_ARGUMENTS.contains(&"-O3"));
    if let Some(found) = rejections(&lowered.ir, &lowered) {
        assert_eq!(found, []);
    }
    if let Some(found) = rejections(&insert(&lowered.ir, " %x0 = add i32 1, 2", ""), &lowered) {
        assert_eq!(found, []);
    }
}

#[test]
fn an_access_without_the_base_is_rejected() {
    let ir = lowered().ir;
    rejected(&ir.replace("ptr addrspace(256)", "ptr"), Rule::is_access);
}

#[test]
fn an_address_that_is_not_zero_extended_is_rejected() {
    let ir = lowered().ir;
    // The upper half of the register is that of the caller, or that of the computation.
    let wide = ir.replace("asm \"movl $1, ${0:k}\"", "asm \"movslq ${1:k}, $0\"");
    rejected(&wide, Rule::is_access);
    let kept = ir.replace("asm \"movl $1, ${0:k}\"", "asm \"movq ${1:q}, $0\"");
    rejected(&kept, Rule::is_access);
}

#[test]
fn an_offset_beyond_the_guard_is_rejected() {
    let ir = lowered().ir;
    let offset = |by: u64| ir.replace(", 16, !dbg", &format!(", {by}, !dbg"));
    assert_eq!(rejections(&offset((32 << 20) - 3), &lowered()).unwrap_or_default(), []);
    // One byte of the access is behind the guard.
    rejected(&offset((32 << 20) - 2), Rule::is_access);
    rejected(&offset(1 << 40), Rule::is_access);
}

#[test]
fn an_address_that_is_scaled_or_added_to_is_rejected() {
    let ir = lowered().ir;
    let twice = ir.replace("asm \"movl $1, ${0:k}\"", "asm \"movl $1, ${0:k}; leaq ($0, $0), $0\"");
    rejected(&twice, Rule::is_access);
    let before = ir.replace("add nuw nsw i64", "sub i64").replace(", 16, !dbg", ", 70000, !dbg");
    rejected(&before, Rule::is_access);
}

#[test]
fn a_global_outside_the_globals_is_rejected() {
    let ir = lowered().ir;
    let place = lowered().globals[&0].0;
    let below =
        |bytes: u32| ir.replace(&format!("inttoptr (i64 -{place} "), &format!("inttoptr (i64 -{bytes} "));
    assert_eq!(rejections(&below(56 << 10), &lowered()).unwrap_or_default(), []);
    rejected(&below((56 << 10) + 1), Rule::is_access);
    // The control of the host is 64 KiB below the memory.
    rejected(&below(64 << 10), Rule::is_access);
}

#[test]
fn writes_to_code_and_constants_are_rejected() {
    inserted(" store volatile i8 0, ptr @f1", "", Rule::is_access);
    let constant = "@c = internal constant [4 x i64] [i64 1, i64 2, i64 3, i64 4]";
    inserted(" store volatile i64 0, ptr @c", constant, Rule::is_access);
    let index = " %x0 = load volatile i64, ptr addrspace(256) null\n %x1 = getelementptr i64, ptr @c, i64 %x0\n %x2 = load volatile i64, ptr %x1";
    inserted(index, constant, Rule::is_access);
}

#[test]
fn frames_that_are_left_are_rejected() {
    let at = |place: i64| {
        let text = format!(" call void asm sideeffect \"movq $$7, {place}(%rsp)\", \"\"()");
        insert_into("leaf", &lowered().ir, &text, "")
    };
    // The return address, what is above it, and what is below the stack pointer.
    for place in [0, 8, 1000, -8, -1000] {
        rejected(&at(place), Rule::is_access);
    }
    let address = " %x0 = call ptr @llvm.addressofreturnaddress.p0()\n store volatile i64 7, ptr %x0";
    inserted(address, "declare ptr @llvm.addressofreturnaddress.p0()", Rule::is_access);
}

#[test]
fn frames_that_are_too_large_or_grow_are_rejected() {
    let local =
        |bytes: u32| format!(" %x0 = alloca [{bytes} x i8]\n call void asm sideeffect \"\", \"r\"(ptr %x0)");
    assert_eq!(rejections(&insert(&lowered().ir, &local(50_000), ""), &lowered()).unwrap_or_default(), []);
    inserted(&local(80_000), "", |rule| matches!(rule, Rule::FrameTooLarge { .. }));
    let growing = " %x1 = load volatile i64, ptr addrspace(256) null\n %x0 = alloca i8, i64 %x1\n store volatile i8 7, ptr %x0";
    inserted(growing, "", |rule| matches!(rule, Rule::StackPointerUnknown));
}

#[test]
fn memory_below_the_stack_pointer_is_rejected() {
    let leaf = " %x0 = alloca i64\n store volatile i64 7, ptr %x0\n %x1 = load volatile i64, ptr %x0\n store volatile i64 %x1, ptr %x0\n ret i32 0\nx9:";
    let ir = insert_into("leaf", &lowered().ir, leaf, "");
    assert_eq!(rejections(&ir, &lowered()).unwrap_or_default(), []);
    rejected(&ir.replace(" noredzone", ""), Rule::is_access);
}

#[test]
fn calls_to_other_places_are_rejected() {
    let calls =
        " %x1 = load volatile i64, ptr addrspace(256) null\n %x0 = inttoptr i64 %x1 to ptr\n call void %x0()";
    inserted(calls, "", |rule| matches!(rule, Rule::Indirect));
    // The first thunk that is not granted.
    let thunk = lowered().thunks.len();
    inserted(&format!(" call void @h{thunk}()"), &format!("declare void @h{thunk}()"), |rule| {
        matches!(rule, Rule::CallTarget { .. })
    });
    inserted(" call void asm \"call 1f; 1: addq $$8, %rsp\", \"\"()", "", |rule| {
        matches!(rule, Rule::CallTarget { .. })
    });
    let table = lowered().ir.replace("\"no-jump-tables\"=\"true\"", "");
    let switch = " %x1 = load volatile i32, ptr addrspace(256) null\n switch i32 %x1, label %x9 [ i32 0, label %x2 \
         i32 1, label %x3 i32 2, label %x4 i32 3, label %x5 i32 4, label %x6 i32 5, label %x7 ]\n";
    let arms: String = (2..8)
        .map(|arm| format!("x{arm}:\n call i32 @h0(i32 {arm}, i32 {arm})\n call i32 @h0(i32 {arm}, i32 1)\n br label %x9\n"))
        .collect();
    rejected(&insert(&table, &format!("{switch}{arms}x9:"), ""), |rule| matches!(rule, Rule::Indirect));
}

#[test]
fn instructions_that_are_not_listed_are_rejected() {
    let refused = [
        "syscall",
        "int3",
        "int $$0x80",
        "sysenter",
        "hlt",
        "cpuid",
        "rdtsc",
        "std",
        "cld",
        "wrgsbase %rax",
        "rdgsbase %rax",
        "wrfsbase %rax",
        "swapgs",
        "ldmxcsr %gs:0",
        "fldcw %gs:0",
        "rep movsb",
        "rep stosq",
        "xgetbv",
        "wrpkru",
        "in %dx, %al",
        "mov %cs, %ax",
        "mov %ax, %gs",
        "popf",
        "pushf",
        "lret",
        "iretq",
        "jmp *%rax",
        "jmp *%gs:0",
        "call *%rax",
        "ret $$8",
        "enter $$8, $$0",
        "btsq %rax, %gs:0",
        "lock cmpxchg16b %gs:0",
        "xbegin 1f; 1:",
        "clflush %gs:0",
        "movnti %eax, %gs:0",
        "emms",
        "vzeroall",
    ];
    for text in refused {
        let Some(found) = rejections(
            &insert(&lowered().ir, &format!(" call void asm sideeffect \"{text}\", \"\"()"), ""),
            &lowered(),
        ) else {
            return;
        };
        assert!(!found.is_empty(), "`{text}` is accepted");
    }
}

#[test]
fn registers_of_the_caller_that_are_not_restored_are_rejected() {
    for register in ["rbx", "rbp", "r12", "r13", "r14", "r15"] {
        let text = format!(" call void asm sideeffect \"xorl %eax, %eax; movq %rax, %{register}\", \"\"()");
        rejected(&insert_into("leaf", &lowered().ir, &text, ""), |rule| {
            matches!(rule, Rule::CalleeSaved { .. })
        });
    }
    let text = |instruction: &str| format!(" call void asm sideeffect \"{instruction}\", \"\"()");
    rejected(&insert_into("leaf", &lowered().ir, &text("pushq %rax"), ""), |rule| {
        matches!(rule, Rule::ReturnStackPointer)
    });
    rejected(&insert_into("leaf", &lowered().ir, &text("popq %rax"), ""), |rule| {
        matches!(rule, Rule::StackPointerAbove { .. })
    });
}
