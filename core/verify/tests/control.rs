//! Jumps, returns, and the ends of functions.

use iced_x86::code_asm::*;
use weir_verify::Rule;

use crate::support::*;

#[test]
fn an_instruction_across_the_end_of_a_function_is_refused() {
    // mov eax, imm32, of which the last two bytes belong to the next function.
    let code = hex("b8 00 00 c3 c3 c3");
    assert_eq!(rules_of(image_of(&code, &[(0, 0), (3, 0)])), [(0, Rule::Undecodable)]);
    assert_eq!(rules(&hex("c3 b8 00 00")), [Rule::Undecodable]);
}

#[test]
fn a_jump_into_an_instruction_is_refused() {
    // The immediate of `mov eax` is `syscall`.
    assert_eq!(rules(&hex("eb 01 b8 0f 05 c3 c3 c3")), [Rule::JumpTarget { target: 3 }]);
    assert_eq!(rules(&hex("74 fe c3")), []);
    assert_eq!(rules(&hex("74 ff c3")), [Rule::JumpTarget { target: 1 }]);
}

#[test]
fn a_jump_out_of_the_function_is_refused() {
    // To the start of another function, to its inside, before the image, and behind it.
    for (bytes, target) in [("eb 06", 8), ("eb 07", 9), ("eb f0", -14), ("eb 7e", 128), ("75 06", 8)] {
        let mut code = hex(bytes);
        code.push(0xc3);
        pad_to(&mut code, 8);
        code.extend(hex("90 c3"));
        let found = rules_of(image_of(&code, &[(0, 0), (8, 0)]));
        assert_eq!(found, [(0, Rule::JumpTarget { target })], "{bytes}");
    }
}

#[test]
fn a_jump_to_a_thunk_is_refused() {
    let code = code!(jmp(0u64.wrapping_sub(16)));
    assert_eq!(rules(&code), [Rule::JumpTarget { target: -16 }]);
}

#[test]
fn unreachable_jumps_are_checked() {
    assert_eq!(rules(&hex("c3 eb 7f")), [Rule::JumpTarget { target: 130 }]);
}

#[test]
fn unreachable_instructions_are_checked() {
    assert_eq!(rules(&hex("c3 0f 05")), [Rule::Forbidden]);
    assert_eq!(rules(&hex("c3 06")), [Rule::Undecodable]);
}

#[test]
fn indirect_jumps_and_calls_are_refused() {
    for (name, bytes) in [
        ("jmp rax", "ff e0"),
        ("jmp gs:[rax]", "65 ff 20"),
        ("jmp [rip]", "ff 25 00 00 00 00"),
        ("jmp far [rax]", "ff 28"),
        ("call rax", "ff d0"),
        ("call [rsp]", "ff 14 24"),
        ("call [rip]", "ff 15 00 00 00 00"),
        ("call far [rax]", "ff 18"),
    ] {
        let mut code = hex(bytes);
        code.push(0xc3);
        assert_eq!(rules(&code), [Rule::Indirect], "{name}");
    }
    assert_eq!(rules(&hex("3e ff e0 c3")), [Rule::Indirect]);
}

#[test]
fn execution_must_not_pass_the_end_of_a_function() {
    assert_eq!(rules_of(image_of(&hex("90 c3"), &[(0, 0), (1, 0)])), [(0, Rule::FallsThrough)]);
    assert_eq!(rules(&hex("90")), [Rule::FallsThrough]);
    // The branch that is not taken.
    assert_eq!(rules(&hex("75 fe")), [Rule::FallsThrough]);
    // After a call, even of a function that does not return.
    let code = code!(sub(rsp, 8); call(16u64));
    let mut padded = code;
    assert_eq!(padded.len(), 9);
    padded.splice(4..4, hex("0f 1f 80 00 00 00 00"));
    padded.truncate(16);
    padded[12..16].copy_from_slice(&0i32.to_le_bytes());
    padded.extend(hex("0f 0b"));
    assert_eq!(rules_of(image_of(&padded, &[(0, 0), (16, 0)])), [(0, Rule::FallsThrough)]);
    accept(&hex("eb fe"));
    accept(&hex("0f 0b"));
}

#[test]
fn padding_must_not_be_reached() {
    assert_eq!(rules(&hex("cc c3")), [Rule::PaddingReached]);
    assert_eq!(rules(&hex("75 01 cc c3")), [Rule::PaddingReached]);
    accept(&hex("eb 01 cc c3 cc"));
}

#[test]
fn returns_with_a_number_are_refused() {
    assert_eq!(rules(&hex("c2 08 00")), [Rule::Operand]);
    assert_eq!(rules(&hex("c2 00 00")), [Rule::Operand]);
    assert_eq!(rules(&hex("cb")), [Rule::Forbidden]);
}

#[test]
fn a_return_with_another_stack_pointer_is_refused() {
    assert_eq!(rules(&code!(push(rax); ret())), [Rule::ReturnStackPointer]);
    assert_eq!(rules(&code!(sub(rsp, 16); add(rsp, 8); ret())), [Rule::ReturnStackPointer]);
    accept(&code!(sub(rsp, 16); add(rsp, 16); ret()));
}

#[test]
fn a_callee_saved_register_must_be_restored() {
    let number = |register| vec![Rule::CalleeSaved { register }];
    assert_eq!(rules(&code!(mov(rbx, rax); ret())), number(3));
    assert_eq!(rules(&code!(xor(ebp, ebp); ret())), number(5));
    assert_eq!(rules(&code!(mov(r12d, r12d); ret())), number(12));
    assert_eq!(rules(&code!(mov(r13b, al); ret())), number(13));
    assert_eq!(rules(&code!(inc(r14); ret())), number(14));
    assert_eq!(rules(&code!(cmove(r15, rax); ret())), number(15));
    // Each writes its register implicitly or as a second operand.
    assert_eq!(rules(&code!(xchg(rax, rbx); ret())), number(3));
    let mulx = code!(mulx(rax, rbx, rcx); ret());
    let rejected = rejections(image(&mulx), &limits_v3());
    assert_eq!(rejected[0].rule, Rule::CalleeSaved { register: 3 });
    accept(&code!(push(rbx); mov(rbx, rax); pop(rbx); ret()));
    accept(&code!(mov(rax, r12); mov(r12, rcx); mov(r12, rax); ret()));
}

#[test]
fn a_register_restored_from_another_place_is_not_its_entry_value() {
    // The two are exchanged.
    let swapped = code!(push(rbx); push(rbp); mov(ebx, eax); mov(ebp, eax); pop(rbx); pop(rbp); ret());
    assert_eq!(rules(&swapped), [Rule::CalleeSaved { register: 3 }]);
    let wrong_slot = code!(
        push(rbx); push(rax); mov(ebx, eax);
        mov(rbx, qword_ptr(rsp)); add(rsp, 16); ret()
    );
    assert_eq!(rules(&wrong_slot), [Rule::CalleeSaved { register: 3 }]);
    // The slot is overwritten in part.
    let overwritten = code!(push(rbx); mov(byte_ptr(rsp + 7), al); pop(rbx); ret());
    assert_eq!(rules(&overwritten), [Rule::CalleeSaved { register: 3 }]);
    let overlapped = code!(push(rbx); push(rax); movups(xmmword_ptr(rsp), xmm0); pop(rax); pop(rbx); ret());
    assert_eq!(rules(&overlapped), [Rule::CalleeSaved { register: 3 }]);
    // Only half of it is loaded.
    let half = code!(push(rbx); mov(ebx, dword_ptr(rsp)); add(rsp, 8); ret());
    assert_eq!(rules(&half), [Rule::CalleeSaved { register: 3 }]);
    // The slot has been below the stack pointer, where callees write.
    let released = code!(push(rbx); add(rsp, 8); mov(ebx, eax); sub(rsp, 8); pop(rbx); ret());
    assert_eq!(rules(&released), [Rule::CalleeSaved { register: 3 }]);
}

#[test]
fn a_register_restored_on_one_path_only_is_refused() {
    let mut a = CodeAssembler::new(64).unwrap();
    let mut skip = a.create_label();
    a.push(rbx).unwrap();
    a.mov(ebx, edi).unwrap();
    a.test(edi, edi).unwrap();
    a.je(skip).unwrap();
    a.mov(rbx, qword_ptr(rsp)).unwrap();
    a.set_label(&mut skip).unwrap();
    a.add(rsp, 8).unwrap();
    a.ret().unwrap();
    assert_eq!(rules(&assemble(&mut a)), [Rule::CalleeSaved { register: 3 }]);
}

#[test]
fn each_rejection_names_the_function_and_the_offset() {
    let code = hex("c3 cc 0f 05 90 0f 05 c3");
    let found = rejections(image_of(&code, &[(0, 0), (2, 0)]), &limits());
    let places: Vec<_> = found.iter().map(|rejection| (rejection.function, rejection.offset)).collect();
    assert_eq!(places, [(1, 2), (1, 5)]);
    assert_eq!(found[0].to_string(), "function 1, offset 0x2: the instruction is not on the allow-list");
}
