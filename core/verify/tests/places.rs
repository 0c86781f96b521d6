//! Accesses to the region and to the constants.

use iced_x86::code_asm::*;
use iced_x86::{Code, Instruction, Register};
use weir_verify::Rule;

use crate::support::*;

const MEMORY: i128 = 1 << 32;
const MIN: i128 = -(GLOBALS_BYTES as i128);
const MAX: i128 = MEMORY + GUARD_BYTES as i128 - 1;

#[track_caller]
fn assert_outside(code: &[u8], lo: i128, hi: i128) {
    assert_eq!(rules(code), [Rule::OutsideRegion { lo, hi, min: MIN, max: MAX }]);
}

#[test]
fn an_access_without_gs_is_refused() {
    assert_eq!(rules(&code!(mov(eax, dword_ptr(rdi)); ret())), [Rule::UnknownAddress]);
    assert_eq!(rules(&code!(mov(edi, edi); mov(dword_ptr(rdi + 8), eax); ret())), [Rule::UnknownAddress]);
    // The entry value of a callee-saved register may be anything.
    assert_eq!(rules(&code!(mov(eax, dword_ptr(rbx)); ret())), [Rule::UnknownAddress]);
    assert_eq!(rules(&hex("8b 04 25 10 00 00 00 c3")), [Rule::UnknownAddress]);
    assert_eq!(rules(&hex("a1 10 00 00 00 00 00 00 00 c3")), [Rule::UnknownAddress]);
}

#[test]
fn a_zero_extended_index_is_accepted() {
    accept(&code!(mov(eax, edi); mov(eax, dword_ptr(rax).gs()); ret()));
    accept(&code!(mov(edi, edi); mov(byte_ptr(rdi + 0x01ff_ffff).gs(), al); ret()));
    accept(&code!(mov(edi, edi); movups(xmm0, xmmword_ptr(rdi + 16).gs()); ret()));
    accept(&code!(mov(eax, dword_ptr(0x1234).gs()); mov(qword_ptr(-8).gs(), rax); ret()));
    accept(&code!(movzx(eax, dil); mov(rax, qword_ptr(rax * 8 + 0x1000).gs()); ret()));
}

#[test]
fn a_64_bit_register_without_bound_is_refused() {
    let everything = (i64::MIN.into(), i128::from(i64::MAX) + 3);
    assert_outside(&code!(mov(eax, dword_ptr(rdi).gs()); ret()), everything.0, everything.1);
    assert_outside(&code!(mov(eax, dword_ptr(rdi + 4).gs()); ret()), everything.0, everything.1);
    // Bounded and unbounded: the sum may wrap.
    let sum = code!(mov(eax, eax); mov(eax, dword_ptr(rax + rdi).gs()); ret());
    assert_outside(&sum, everything.0, everything.1);
    // Through a callee-saved register.
    assert_eq!(rules(&code!(mov(eax, dword_ptr(rbx).gs()); ret())), [Rule::UnknownAddress]);
}

#[test]
fn a_displacement_beyond_the_guard_is_refused() {
    let guard = i32::try_from(GUARD_BYTES).unwrap();
    accept(&code!(mov(edi, edi); mov(eax, dword_ptr(rdi + (guard - 3)).gs()); ret()));
    let code = code!(mov(edi, edi); mov(eax, dword_ptr(rdi + (guard - 2)).gs()); ret());
    assert_outside(&code, i128::from(guard) - 2, MAX + 1);
    // A wider access at the same place.
    let code = code!(mov(edi, edi); mov(rax, qword_ptr(rdi + (guard - 3)).gs()); ret());
    assert_outside(&code, i128::from(guard) - 3, MAX + 4);
    // A constant address may be anywhere in the memory.
    accept(&code!(mov(eax, dword_ptr(0x7fff_ffff).gs()); ret()));
}

#[test]
fn a_negative_displacement_beyond_the_globals_is_refused() {
    let globals = i32::try_from(GLOBALS_BYTES).unwrap();
    accept(&code!(mov(rax, qword_ptr(-globals).gs()); ret()));
    let code = code!(mov(rax, qword_ptr(-globals - 1).gs()); ret());
    assert_outside(&code, MIN - 1, MIN + 6);
    accept(&code!(mov(edi, edi); mov(al, byte_ptr(rdi - globals).gs()); ret()));
    let code = code!(mov(edi, edi); mov(al, byte_ptr(rdi - globals - 1).gs()); ret());
    assert_outside(&code, MIN - 1, MEMORY - 1 + MIN - 1);
    // A sign-extended index.
    let code = code!(movsxd(rax, edi); mov(al, byte_ptr(rax).gs()); ret());
    assert_outside(&code, -(1 << 31), (1 << 31) - 1);
}

#[test]
fn a_scaled_index_out_of_range_is_refused() {
    let code = code!(mov(edi, edi); mov(rax, qword_ptr(rdi * 8).gs()); ret());
    assert_outside(&code, 0, 8 * (MEMORY - 1) + 7);
    let code = code!(mov(edi, edi); mov(eax, eax); mov(cl, byte_ptr(rdi + rax).gs()); ret());
    assert_outside(&code, 0, 2 * (MEMORY - 1));
    accept(&code!(mov(edi, edi); shr(edi, 3); mov(rax, qword_ptr(rdi * 8).gs()); ret()));
}

#[test]
fn a_write_to_the_region_is_checked_like_a_read() {
    for code in [
        code!(mov(dword_ptr(rdi).gs(), eax); ret()),
        code!(add(dword_ptr(rdi).gs(), eax); ret()),
        code!(add(eax, dword_ptr(rdi).gs()); ret()),
        code!(cmp(dword_ptr(rdi).gs(), eax); ret()),
        code!(mov(dword_ptr(rdi).gs(), 5); ret()),
        code!(sete(byte_ptr(rdi).gs()); ret()),
        code!(cmove(eax, dword_ptr(rdi).gs()); ret()),
        code!(movups(xmmword_ptr(rdi).gs(), xmm0); ret()),
        code!(paddd(xmm0, xmmword_ptr(rdi).gs()); ret()),
        code!(cvtsi2sd(xmm0, dword_ptr(rdi).gs()); ret()),
        code!(pextrd(dword_ptr(rdi).gs(), xmm0, 1); ret()),
        code!(mul(dword_ptr(rdi).gs()); ret()),
        code!(shl(dword_ptr(rdi).gs(), cl); ret()),
        code!(bts(dword_ptr(rdi).gs(), 5); ret()),
        code!(push(qword_ptr(rdi).gs()); pop(rax); ret()),
        code!(imul_3(eax, dword_ptr(rdi).gs(), 3); ret()),
        code!(ucomisd(xmm0, qword_ptr(rdi).gs()); ret()),
    ] {
        assert!(matches!(rules(&code)[..], [Rule::OutsideRegion { .. }]), "{code:02x?}");
    }
}

/// `mov eax, [rip + ...]` and `ret`.
fn read_at(target: i64) -> Vec<u8> {
    let load = Instruction::with2(Code::Mov_r32_rm32, Register::EAX, rip(target)).unwrap();
    code!(add_instruction(load); ret())
}

#[test]
fn constants_are_read() {
    accept(&read_at(CONSTANTS));
    accept(&read_at(CONSTANTS + 60));
    // A table, by a bounded index.
    accept(&code!(
        add_instruction(lea_rip(Register::RCX, CONSTANTS));
        and(edi, 15); mov(eax, dword_ptr(rcx + rdi * 4)); ret()
    ));
    // One of two tables.
    accept(&code!(
        add_instruction(lea_rip(Register::RCX, CONSTANTS));
        add_instruction(lea_rip(Register::RAX, CONSTANTS + 32));
        test(edi, edi); cmove(rcx, rax);
        and(esi, 7); mov(eax, dword_ptr(rcx + rsi * 4)); ret()
    ));
}

#[test]
fn reads_past_the_constants_are_refused() {
    let outside = [Rule::OutsideConstants];
    assert_eq!(rules(&read_at(CONSTANTS + 61)), outside);
    assert_eq!(rules(&read_at(CONSTANTS - 1)), outside);
    assert_eq!(rules(&read_at(CONSTANTS + (1 << 20))), outside);
    assert_eq!(rules(&read_at(-16)), outside);
    let table = code!(
        add_instruction(lea_rip(Register::RCX, CONSTANTS));
        and(edi, 16); mov(eax, dword_ptr(rcx + rdi * 4)); ret()
    );
    assert_eq!(rules(&table), outside);
    let unbounded = code!(
        add_instruction(lea_rip(Register::RCX, CONSTANTS));
        mov(eax, dword_ptr(rcx + rdi * 4)); ret()
    );
    assert_eq!(rules(&unbounded), [Rule::UnknownAddress]);
}

#[test]
fn code_is_not_read() {
    assert_eq!(rules(&read_at(0)), [Rule::OutsideConstants]);
}

#[test]
fn constants_are_not_written() {
    let store = Instruction::with2(Code::Mov_rm32_r32, rip(CONSTANTS), Register::EAX).unwrap();
    assert_eq!(rules(&code!(add_instruction(store); ret())), [Rule::OutsideConstants]);
    let add = Instruction::with2(Code::Add_rm32_r32, rip(CONSTANTS), Register::EAX).unwrap();
    assert_eq!(rules(&code!(add_instruction(add); ret())), [Rule::OutsideConstants]);
    let through = code!(
        add_instruction(lea_rip(Register::RCX, CONSTANTS)); mov(byte_ptr(rcx), al); ret()
    );
    assert_eq!(rules(&through), [Rule::OutsideConstants]);
}

#[test]
fn image_addresses_are_not_used_with_gs() {
    let code =
        code!(add_instruction(lea_rip(Register::RCX, CONSTANTS)); mov(eax, dword_ptr(rcx).gs()); ret());
    assert_eq!(rules(&code), [Rule::UnknownAddress]);
    assert_eq!(rules(&hex("65 8b 05 f8 0f 00 00 c3")), [Rule::UnknownAddress]);
}

#[test]
fn rejected_accesses_are_told_apart_from_other_rules() {
    assert!(rules(&code!(mov(eax, dword_ptr(rdi).gs()); ret()))[0].is_access());
    assert!(rules(&code!(mov(eax, dword_ptr(rdi)); ret()))[0].is_access());
    assert!(rules(&code!(mov(dword_ptr(rsp), eax); ret()))[0].is_access());
    assert!(rules(&read_at(0))[0].is_access());
    assert!(!rules(&hex("0f 05 c3"))[0].is_access());
}

#[test]
fn a_rejection_says_what_would_be_allowed() {
    let found = rejections(image(&code!(mov(edi, edi); mov(rax, qword_ptr(rdi * 8).gs()); ret())), &limits());
    assert_eq!(
        found[0].to_string(),
        "function 0, offset 0x2: the access through GS covers 0 to 34359738367, last byte included; allowed are \
         -4096 to 4328521727: use a zero-extended 32-bit index"
    );
}
