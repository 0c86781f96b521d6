//! Calls, and the bound of the stack.

use iced_x86::code_asm::*;
use weir_verify::{Callee, Rule};

use crate::support::*;

/// The address of a thunk, as an assembler takes it.
const fn thunk(index: u64) -> u64 {
    0u64.wrapping_sub(16 * (index + 1))
}

/// A function that calls each address with an aligned stack, padded to 64 bytes.
fn caller(offset: u32, targets: &[u64]) -> Vec<u8> {
    let mut assembler = CodeAssembler::new(64).unwrap();
    assembler.sub(rsp, 24).unwrap();
    for target in targets {
        assembler.call(*target).unwrap();
    }
    assembler.add(rsp, 24).unwrap();
    assembler.ret().unwrap();
    let mut code = assembler.assemble(offset.into()).unwrap();
    assert!(code.len() <= 64);
    code.resize(64, 0xcc);
    code
}

/// An image of functions at multiples of 64, each with the list of its callees.
fn graph(functions: &[&[u64]]) -> weir_verify::CodeImage {
    let offsets: Vec<(u32, u32)> = (0..).zip(functions).map(|(index, _)| (64 * index, 0)).collect();
    let code: Vec<u8> =
        offsets.iter().zip(functions).flat_map(|((offset, _), targets)| caller(*offset, targets)).collect();
    image_of(&code, &offsets)
}

#[test]
fn a_call_of_a_function_or_a_granted_thunk_is_accepted() {
    let verified = accept_image(graph(&[&[64, thunk(1), 64, thunk(0)], &[]]));
    let callees = [Callee::Function(1), Callee::Thunk(0), Callee::Thunk(1)];
    assert_eq!(verified.facts()[0].callees, callees);
    assert_eq!(verified.facts()[1].callees, []);
}

#[test]
fn a_call_into_a_function_is_refused() {
    let target = 68;
    assert_eq!(rules_of(graph(&[&[68], &[]])), [(0, Rule::CallTarget { target })]);
    // Also into itself, and behind the code.
    assert_eq!(rules_of(graph(&[&[4]])), [(0, Rule::CallTarget { target: 4 })]);
    assert_eq!(rules_of(graph(&[&[64]])), [(0, Rule::CallTarget { target: 64 })]);
    assert_eq!(rules_of(graph(&[&[4096]])), [(0, Rule::CallTarget { target: 4096 })]);
}

#[test]
fn a_call_of_a_thunk_that_is_not_granted_is_refused() {
    assert_eq!(rules_of(graph(&[&[thunk(2)]])), [(0, Rule::CallTarget { target: -48 })]);
    assert_eq!(rules_of(graph(&[&[thunk(1_000_000)]])), [(0, Rule::CallTarget { target: -16_000_016 })]);
    // Not at its start.
    for target in [-1, -8, -15, -17, -31] {
        let address = i64::cast_unsigned(target);
        assert_eq!(rules_of(graph(&[&[address]])), [(0, Rule::CallTarget { target })], "{target}");
    }
}

#[test]
fn unreachable_calls_are_checked() {
    let mut code = hex("c3");
    code.extend(hex("e8 00 00 00 00 c3"));
    assert_eq!(rules(&code), [Rule::CallTarget { target: 6 }]);
}

#[test]
fn the_stack_is_aligned_at_calls() {
    assert_eq!(rules(&code!(call(thunk(0)); ret())), [Rule::CallAlignment]);
    assert_eq!(rules(&code!(sub(rsp, 16); call(thunk(0)); add(rsp, 16); ret())), [Rule::CallAlignment]);
    assert_eq!(rules(&code!(sub(rsp, 4); call(thunk(0)); add(rsp, 4); ret())), [Rule::CallAlignment]);
    accept(&code!(push(rax); call(thunk(0)); pop(rcx); ret()));
}

#[test]
fn the_stack_arguments_of_a_callee_lie_in_the_callers_frame() {
    // The thunk reads 16 bytes, which would be the slot and the return address.
    let missing = code!(push(rax); call(thunk(1)); pop(rcx); ret());
    assert_eq!(rules(&missing), [Rule::CallArguments { bytes: 16 }]);
    accept(&code!(push(rax); push(rax); push(rax); call(thunk(1)); add(rsp, 24); ret()));
    let mut code = code!(push(rax); call(64u64); pop(rcx); ret());
    pad_to(&mut code, 64);
    code.extend(hex("c3"));
    accept_image(image_of(&code, &[(0, 0), (64, 8)]));
    let found = rules_of(image_of(&code, &[(0, 0), (64, 24)]));
    assert_eq!(found, [(0, Rule::CallArguments { bytes: 24 })]);
}

#[test]
fn the_stack_arguments_of_a_caller_are_not_those_of_its_callee() {
    let code = code!(push(rax); call(thunk(1)); pop(rcx); ret());
    assert_eq!(rules_of(image_of(&code, &[(0, 64)])), [(0, Rule::CallArguments { bytes: 16 })]);
}

#[test]
fn callee_saved_registers_and_spilled_values_survive_a_call() {
    accept(&code!(
        push(rbx); mov(ebx, edi); call(thunk(0)); mov(eax, dword_ptr(rbx).gs());
        pop(rbx); ret()
    ));
    accept(&code!(
        sub(rsp, 24); mov(eax, edi); mov(qword_ptr(rsp + 8), rax); call(thunk(0));
        mov(rax, qword_ptr(rsp + 8)); mov(eax, dword_ptr(rax).gs()); add(rsp, 24); ret()
    ));
}

#[test]
fn caller_saved_registers_do_not_survive_a_call() {
    for (register32, register) in [
        (eax, rax),
        (ecx, rcx),
        (edx, rdx),
        (esi, rsi),
        (edi, rdi),
        (r8d, r8),
        (r9d, r9),
        (r10d, r10),
        (r11d, r11),
    ] {
        let code = code!(
            push(rax); mov(register32, 5); call(thunk(0)); mov(cl, byte_ptr(register).gs()); pop(rcx); ret()
        );
        assert!(matches!(rules(&code)[..], [Rule::OutsideRegion { .. }]), "{register:?}");
    }
}

#[test]
fn stack_arguments_do_not_survive_a_call() {
    let spilled_at = |offset: i32| {
        code!(
            sub(rsp, 24); mov(eax, edi); mov(qword_ptr(rsp + offset), rax); call(thunk(1));
            mov(rax, qword_ptr(rsp + offset)); mov(eax, dword_ptr(rax).gs()); add(rsp, 24); ret()
        )
    };
    for offset in [0, 8] {
        assert!(matches!(rules(&spilled_at(offset))[..], [Rule::OutsideRegion { .. }]), "{offset}");
    }
    accept(&spilled_at(16));
}

#[test]
fn the_stack_bound_is_that_of_the_longest_path() {
    // 24 bytes and the return address of a call.
    let verified = accept_image(graph(&[&[64, 128], &[128, thunk(0)], &[], &[192 - 128]]));
    let bounds: Vec<_> = verified.facts().iter().map(|facts| facts.stack_bound).collect();
    assert_eq!(bounds, [Some(32 + 32 + 24), Some(32 + 24), Some(24), Some(32 + 32 + 24)]);
    assert_eq!(verified.stack_bound(), Some(32 + 32 + 24 + 8));
}

#[test]
fn recursion_has_no_stack_bound() {
    let verified = accept_image(graph(&[&[0]]));
    assert_eq!(verified.stack_bound(), None);
    // A cycle of two, a function that leads to it, and one that does not.
    let verified = accept_image(graph(&[&[64], &[128, 192], &[64], &[]]));
    let bounds: Vec<_> = verified.facts().iter().map(|facts| facts.stack_bound).collect();
    assert_eq!(bounds, [None, None, None, Some(24)]);
    assert_eq!(verified.stack_bound(), None);
}

#[test]
fn the_bound_of_a_long_chain_needs_no_recursion_of_the_verifier() {
    let functions: Vec<Vec<u64>> = (1..=10_000).map(|index| vec![64 * index]).chain([Vec::new()]).collect();
    let functions: Vec<&[u64]> = functions.iter().map(Vec::as_slice).collect();
    assert_eq!(accept_image(graph(&functions)).stack_bound(), Some(10_000 * 32 + 24 + 8));
}
