//! The knowledge about registers and spilled values, and its limits.

use iced_x86::code_asm::*;
use weir_verify::{Rule, VerifyLimits};

use crate::support::*;

const WORD_MAX: i128 = u32::MAX as i128;
const ANYTHING: (i128, i128) = (i64::MIN as i128, i64::MAX as i128);

/// The interval of RAX after instructions, as a rejected access through it shows.
#[track_caller]
fn rax_after(instructions: &[u8]) -> (i128, i128) {
    rax_within(instructions, &limits())
}

#[track_caller]
fn rax_within(instructions: &[u8], limits: &VerifyLimits) -> (i128, i128) {
    const BELOW: i32 = 0x7000_0000;
    let mut code = instructions.to_vec();
    code.extend(code!(mov(cl, byte_ptr(rax - BELOW).gs()); ud2()));
    let rejections = rejections(image(&code), limits);
    match rejections.first().map(|rejection| rejection.rule) {
        // The sum is any value if it could overflow.
        Some(Rule::OutsideRegion { lo, hi, .. }) if lo == ANYTHING.0 => (lo, hi),
        Some(Rule::OutsideRegion { lo, hi, .. }) => (lo + i128::from(BELOW), hi + i128::from(BELOW)),
        rule => panic!("{rule:?}"),
    }
}

#[test]
fn arguments_are_arbitrary_64_bit_values() {
    assert_eq!(rax_after(&code!(mov(rax, rdi))), ANYTHING);
    assert_eq!(rax_after(&[]), ANYTHING);
}

#[test]
fn a_write_to_32_bits_clears_the_upper_half() {
    for code in [
        code!(mov(eax, edi)),
        code!(mov(eax, dword_ptr(0).gs())),
        code!(movd(eax, xmm0)),
        code!(lea(eax, ptr(rdi + rsi * 4))),
        code!(bswap(eax)),
        code!(rol(eax, 5)),
        code!(adc(eax, edi)),
        code!(sbb(eax, eax)),
        code!(shl(eax, cl)),
        code!(shld(eax, edi, 5)),
        code!(mul(edi)),
        code!(imul(edi)),
        code!(div(edi)),
        code!(idiv(edi)),
        code!(mul(edi); mov(rax, rdx)),
        code!(div(edi); mov(rax, rdx)),
        code!(cdq(); mov(rax, rdx)),
        code!(cwde()),
        code!(cmove(eax, edi)),
        code!(xchg(eax, edi)),
        code!(xchg(edi, eax)),
        code!(imul_2(eax, edi)),
        code!(neg(eax)),
        code!(not(eax)),
        code!(movmskps(eax, xmm0)),
        code!(pmovmskb(eax, xmm0)),
        code!(cvttsd2si(eax, xmm0)),
        code!(pextrd(eax, xmm0, 1)),
        code!(btr(eax, edi)),
    ] {
        assert_eq!(rax_after(&code), (0, WORD_MAX), "{code:02x?}");
    }
}

#[test]
fn the_carry_is_0_or_1() {
    assert_eq!(rax_after(&code!(mov(eax, edi); adc(rax, rax))), (0, 2 * WORD_MAX + 1));
    assert_eq!(rax_after(&code!(mov(eax, 100); adc(eax, 5))), (105, 106));
    assert_eq!(rax_after(&code!(mov(eax, 100); sbb(eax, 5))), (94, 95));
    assert_eq!(rax_after(&code!(mov(eax, 100); sbb(rax, 0))), (99, 100));
    // The difference wraps, so nothing but the width is known.
    assert_eq!(rax_after(&code!(mov(eax, 5); sbb(eax, 5))), (0, WORD_MAX));
    assert_eq!(rax_after(&code!(mov(eax, -1); adc(eax, 0))), (0, WORD_MAX));
}

#[test]
fn a_write_to_64_bits_is_unknown_where_the_value_is() {
    for code in [
        code!(mov(eax, edi); bswap(rax)),
        code!(mov(eax, edi); mov(rax, qword_ptr(0).gs())),
        code!(mov(eax, edi); movq(rax, xmm0)),
        code!(mov(eax, edi); rol(rax, 5)),
        code!(mov(eax, edi); cvttsd2si(rax, xmm0)),
        code!(mov(eax, edi); mul(rdi)),
        code!(mov(eax, edi); div(rdi)),
        code!(mov(eax, edi); imul(rdi)),
        code!(mov(eax, edi); mov(edx, edi); div(rdi); mov(rax, rdx)),
        code!(mov(eax, edi); cqo(); mov(rax, rdx)),
        code!(mov(eax, edi); xchg(rax, rdi)),
        code!(mov(eax, edi); xchg(rdi, rax)),
        code!(mov(eax, edi); bts(rax, 63)),
        code!(mov(eax, edi); shl(rax, 32)),
        code!(mov(eax, edi); shl(rax, cl)),
        code!(mov(eax, edi); imul_2(rax, rax)),
        code!(mov(eax, edi); or(rax, rsi)),
        code!(mov(eax, edi); xor(rax, rsi)),
        code!(mov(eax, edi); add(rax, rsi)),
        code!(mov(eax, edi); sub(rax, rsi)),
        code!(mov(eax, edi); cmove(rax, rsi)),
    ] {
        assert_eq!(rax_after(&code), ANYTHING, "{code:02x?}");
    }
}

#[test]
fn a_partial_write_keeps_the_upper_bits() {
    assert_eq!(rax_after(&code!(mov(al, cl))), ANYTHING);
    assert_eq!(rax_after(&code!(mov(ax, cx))), ANYTHING);
    assert_eq!(rax_after(&code!(mov(ah, cl))), ANYTHING);
    assert_eq!(rax_after(&code!(sete(al))), ANYTHING);
    assert_eq!(rax_after(&code!(div(cl))), ANYTHING);
    assert_eq!(rax_after(&code!(xor(eax, eax); sete(al))), (0, 1));
    assert_eq!(rax_after(&code!(xor(eax, eax); mov(al, cl))), (0, 255));
    assert_eq!(rax_after(&code!(mov(eax, 0x1234); mov(al, cl))), (0, 0x12ff));
    assert_eq!(rax_after(&code!(mov(eax, edi); mov(ax, cx))), (0, WORD_MAX));
    // The upper byte of AX changes.
    assert_eq!(rax_after(&code!(xor(eax, eax); mov(ah, cl))), ANYTHING);
    assert_eq!(rax_after(&code!(mov(eax, 5); xchg(ah, al))), ANYTHING);
    assert_eq!(rax_after(&code!(mov(eax, 5); xchg(al, ah))), ANYTHING);
    assert_eq!(rax_after(&code!(mov(eax, 0x500); movzx(eax, ah))), (0, 255));
}

#[test]
fn extensions_are_precise() {
    assert_eq!(rax_after(&code!(movzx(eax, dil))), (0, 255));
    assert_eq!(rax_after(&code!(movzx(rax, di))), (0, 65535));
    assert_eq!(rax_after(&code!(movzx(eax, byte_ptr(0).gs()))), (0, 255));
    assert_eq!(rax_after(&code!(movsx(rax, dil))), (-128, 127));
    assert_eq!(rax_after(&code!(movsx(eax, dil))), (0, WORD_MAX));
    assert_eq!(rax_after(&code!(movsxd(rax, edi))), (-(1 << 31), (1 << 31) - 1));
    assert_eq!(rax_after(&code!(mov(eax, edi); shr(eax, 1); movsxd(rax, eax))), (0, (1 << 31) - 1));
    assert_eq!(rax_after(&code!(mov(eax, edi); shr(eax, 1); cdqe())), (0, (1 << 31) - 1));
    assert_eq!(rax_after(&code!(cdqe())), (-(1 << 31), (1 << 31) - 1));
    assert_eq!(rax_after(&code!(mov(eax, 7); cwde())), (7, 7));
}

#[test]
fn arithmetic_is_precise_where_it_does_not_wrap() {
    let byte = code!(movzx(eax, dil));
    let after = |code: Vec<u8>| rax_after(&[byte.clone(), code].concat());
    assert_eq!(after(code!(add(eax, 5))), (5, 260));
    assert_eq!(after(code!(add(rax, rax))), (0, 510));
    assert_eq!(after(code!(add(eax, 256); add(eax, -1))), (255, 510));
    assert_eq!(after(code!(sub(eax, 1))), (0, WORD_MAX));
    assert_eq!(after(code!(sub(rax, 1))), (-1, 254));
    assert_eq!(after(code!(inc(rax); dec(eax))), (0, 255));
    assert_eq!(after(code!(neg(rax))), (-255, 0));
    assert_eq!(after(code!(not(rax))), (-256, -1));
    assert_eq!(after(code!(shl(eax, 4))), (0, 255 << 4));
    assert_eq!(after(code!(shl(eax, 25))), (0, WORD_MAX));
    assert_eq!(after(code!(shl(eax, 33))), (0, 510));
    assert_eq!(after(code!(shr(eax, 4))), (0, 15));
    assert_eq!(after(code!(shr(rax, cl))), (0, 255));
    assert_eq!(after(code!(sub(rax, 128); sar(rax, 3))), (-16, 15));
    assert_eq!(after(code!(imul_3(eax, eax, 100))), (0, 25_500));
    assert_eq!(after(code!(imul_3(rax, rax, -2))), (-510, 0));
    assert_eq!(after(code!(lea(rax, ptr(rax + rax * 8 + 7)))), (7, 9 * 255 + 7));
    assert_eq!(after(code!(and(eax, 0x1f))), (0, 0x1f));
    assert_eq!(after(code!(and(eax, -4))), (0, 255));
    assert_eq!(after(code!(and(eax, eax))), (0, 255));
    assert_eq!(after(code!(or(rax, rax))), (0, 255));
    assert_eq!(after(code!(or(eax, 0x100))), (0, 0x1ff));
    assert_eq!(after(code!(xor(eax, 0x0f))), (0, 255));
    assert_eq!(after(code!(mov(ecx, 300); cmove(eax, ecx))), (0, 300));
    assert_eq!(rax_after(&code!(and(rax, 0xff))), (0, 255));
    assert_eq!(rax_after(&code!(shr(rax, 40))), (0, (1 << 24) - 1));
    assert_eq!(rax_after(&code!(sar(rax, 40))), (-(1 << 23), (1 << 23) - 1));
    assert_eq!(rax_after(&code!(xor(eax, eax))), (0, 0));
    assert_eq!(rax_after(&code!(sub(rax, rax))), (0, 0));
    assert_eq!(rax_after(&code!(mov(rax, -5i64))), (-5, -5));
    assert_eq!(rax_after(&code!(mov(eax, 0x1000))), (0x1000, 0x1000));
    assert_eq!(rax_after(&code!(popcnt(rax, rdi))), (0, 64));
    let shifted = [byte.clone(), code!(mov(ecx, 2); shlx(rax, rax, rcx))].concat();
    assert_eq!(rax_within(&shifted, &limits_v3()), (0, 1020));
    assert_eq!(rax_within(&code!(tzcnt(eax, edi)), &limits_v3()), (0, 32));
    assert_eq!(rax_within(&code!(lzcnt(rax, rdi)), &limits_v3()), (0, 64));
}

#[test]
fn a_bit_scan_may_leave_the_register_unchanged() {
    assert_eq!(rax_after(&code!(bsf(eax, edi))), ANYTHING);
    assert_eq!(rax_after(&code!(bsr(eax, edi))), ANYTHING);
    assert_eq!(rax_after(&code!(mov(eax, 32); bsf(eax, edi))), (0, WORD_MAX));
    assert_eq!(rax_after(&code!(mov(eax, 32); bsf(rax, rdi))), ANYTHING);
    // Without BMI1 the CPU executes `tzcnt` as `bsf`.
    assert_eq!(rax_after(&code!(tzcnt(eax, edi))), ANYTHING);
}

#[test]
fn mulx_narrows_both_of_its_destinations() {
    let first = code!(mulx(eax, edi, esi));
    let second = code!(mulx(edi, eax, esi));
    assert_eq!(rax_within(&first, &limits_v3()), (0, WORD_MAX));
    assert_eq!(rax_within(&second, &limits_v3()), (0, WORD_MAX));
    let wide = code!(mov(eax, eax); mulx(rdi, rax, rsi));
    assert_eq!(rax_within(&wide, &limits_v3()), ANYTHING);
}

#[test]
fn spilled_values_are_known_when_they_are_loaded_again() {
    let spill = |store: Vec<u8>, rest: Vec<u8>| {
        rax_after(&[code!(sub(rsp, 64); movzx(eax, dil)), store, code!(mov(rax, rsi)), rest].concat())
    };
    let store64 = || code!(mov(qword_ptr(rsp + 8), rax));
    let load64 = || code!(mov(rax, qword_ptr(rsp + 8)));
    assert_eq!(spill(store64(), load64()), (0, 255));
    assert_eq!(spill(store64(), code!(mov(eax, dword_ptr(rsp + 8)))), (0, 255));
    assert_eq!(spill(store64(), code!(movsxd(rax, dword_ptr(rsp + 8)))), (0, 255));
    assert_eq!(spill(code!(push(rax)), code!(pop(rax))), (0, 255));
    assert_eq!(spill(code!(mov(dword_ptr(rsp + 8), eax)), code!(mov(eax, dword_ptr(rsp + 8)))), (0, 255));
    assert_eq!(spill(code!(mov(qword_ptr(rsp + 8), 77)), load64()), (77, 77));
    assert_eq!(spill(code!(mov(qword_ptr(rsp + 8), -1)), load64()), (-1, -1));
    // Arithmetic in the slot.
    assert_eq!(spill([store64(), code!(add(qword_ptr(rsp + 8), 5))].concat(), load64()), (5, 260));
    assert_eq!(spill([store64(), code!(inc(dword_ptr(rsp + 8)))].concat(), load64()), ANYTHING);
    // Eight bytes of which four are known.
    assert_eq!(spill(code!(mov(dword_ptr(rsp + 8), eax)), load64()), ANYTHING);
    // Another place.
    assert_eq!(spill(store64(), code!(mov(rax, qword_ptr(rsp + 16)))), ANYTHING);
    assert_eq!(spill(store64(), code!(mov(rax, qword_ptr(rsp + 9)))), ANYTHING);
}

#[test]
fn a_spilled_value_is_lost_where_a_write_overlaps_it() {
    for overwrite in [
        code!(mov(byte_ptr(rsp + 15), al)),
        code!(mov(word_ptr(rsp + 7), ax)),
        code!(mov(dword_ptr(rsp + 5), eax)),
        code!(mov(dword_ptr(rsp + 12), eax)),
        code!(mov(qword_ptr(rsp + 1), rax)),
        code!(mov(qword_ptr(rsp + 15), rax)),
        code!(movups(xmmword_ptr(rsp), xmm0)),
        code!(movsd_2(qword_ptr(rsp + 8), xmm0)),
        code!(pextrb(byte_ptr(rsp + 8), xmm0, 0)),
        code!(sete(byte_ptr(rsp + 8))),
    ] {
        let code = [
            code!(sub(rsp, 64); movzx(eax, dil); mov(qword_ptr(rsp + 8), rax); mov(rax, rsi)),
            overwrite,
            code!(mov(rax, qword_ptr(rsp + 8))),
        ];
        assert_eq!(rax_after(&code.concat()), ANYTHING, "{:02x?}", code[1]);
    }
    for beside in [
        code!(mov(byte_ptr(rsp + 16), al)),
        code!(mov(byte_ptr(rsp + 7), al)),
        code!(mov(qword_ptr(rsp), rax)),
        code!(movups(xmmword_ptr(rsp + 16), xmm0)),
    ] {
        let code = [
            code!(sub(rsp, 64); movzx(eax, dil); mov(qword_ptr(rsp + 8), rax)),
            beside,
            code!(mov(rax, qword_ptr(rsp + 8))),
        ];
        assert_eq!(rax_after(&code.concat()), (0, 255), "{:02x?}", code[1]);
    }
}

#[test]
fn values_of_two_paths_are_joined() {
    let mut a = CodeAssembler::new(64).unwrap();
    let (mut other, mut merge) = (a.create_label(), a.create_label());
    a.sub(rsp, 24).unwrap();
    a.test(edi, edi).unwrap();
    a.je(other).unwrap();
    a.mov(qword_ptr(rsp), 5).unwrap();
    a.mov(qword_ptr(rsp + 8), 5).unwrap();
    a.jmp(merge).unwrap();
    a.set_label(&mut other).unwrap();
    a.mov(qword_ptr(rsp), 9).unwrap();
    a.mov(dword_ptr(rsp + 8), 9).unwrap();
    a.set_label(&mut merge).unwrap();
    a.mov(rcx, qword_ptr(rsp + 8)).unwrap();
    a.mov(rax, qword_ptr(rsp)).unwrap();
    let code = assemble(&mut a);
    assert_eq!(rax_after(&code), (5, 9));
    // The other slot has two widths.
    assert_eq!(rax_after(&[code, code!(mov(rax, rcx))].concat()), ANYTHING);
}

/// A loop that runs EDI times.
fn looped(before: &[u8], body: &[u8]) -> Vec<u8> {
    let mut a = CodeAssembler::new(64).unwrap();
    let mut head = a.create_label();
    a.db(before).unwrap();
    a.set_label(&mut head).unwrap();
    a.db(body).unwrap();
    a.dec(edi).unwrap();
    a.jne(head).unwrap();
    assemble(&mut a)
}

#[test]
fn loops_are_widened() {
    let zero = code!(xor(eax, eax));
    assert_eq!(rax_after(&looped(&zero, &code!(inc(eax)))), (0, WORD_MAX));
    assert_eq!(rax_after(&looped(&zero, &code!(inc(rax)))), ANYTHING);
    assert_eq!(rax_after(&looped(&zero, &code!(dec(rax)))), ANYTHING);
    assert_eq!(rax_after(&looped(&zero, &code!(lea(eax, ptr(rax + 4)); and(eax, 0xfff)))), (0, 0xfff));
    assert_eq!(rax_after(&looped(&code!(mov(eax, 8)), &code!(mov(cl, byte_ptr(rax).gs())))), (8, 8));
    // In a slot.
    let slot = code!(sub(rsp, 24); mov(qword_ptr(rsp), 0));
    let counted = looped(&slot, &code!(add(qword_ptr(rsp), 1)));
    assert_eq!(rax_after(&[counted, code!(mov(rax, qword_ptr(rsp)))].concat()), ANYTHING);
    let word = looped(&slot, &code!(mov(eax, dword_ptr(rsp)); inc(eax); mov(qword_ptr(rsp), rax)));
    assert_eq!(rax_after(&[word, code!(mov(rax, qword_ptr(rsp)))].concat()), (0, WORD_MAX));
}

#[test]
fn the_state_at_a_loop_head_covers_all_rounds() {
    // In the first round RAX is small; in the second it is RSI.
    let code = looped(&code!(xor(eax, eax)), &code!(mov(cl, byte_ptr(rax).gs()); mov(rax, rsi)));
    let code = [code, code!(ret())].concat();
    assert!(matches!(rules(&code)[..], [Rule::OutsideRegion { .. }]));
    // A chain through several registers needs as many rounds.
    let shift = code!(
        mov(cl, byte_ptr(rax).gs()); mov(rax, rdx); mov(rdx, r8); mov(r8, r9); mov(r9, r10); mov(r10, r11);
        mov(r11, rsi)
    );
    let zeros = code!(
        xor(eax, eax); xor(edx, edx); xor(r8d, r8d); xor(r9d, r9d); xor(r10d, r10d); xor(r11d, r11d)
    );
    let code = [looped(&zeros, &shift), code!(ret())].concat();
    assert!(matches!(rules(&code)[..], [Rule::OutsideRegion { .. }]));
}
