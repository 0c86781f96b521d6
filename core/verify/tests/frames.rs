//! The stack pointer, and accesses to the stack.

use iced_x86::code_asm::*;
use weir_verify::Rule;

use crate::support::*;

#[test]
fn writes_at_and_above_the_return_address_are_refused() {
    for offset in [-4, 0, 4, 8, 16] {
        let code = code!(mov(qword_ptr(rsp + offset), rax); ret());
        let lo = i64::from(offset);
        assert_eq!(rules(&code), [Rule::OutsideFrame { lo, hi: lo + 8 }], "{offset}");
    }
    let in_frame = code!(push(rcx); mov(qword_ptr(rsp + 8), rax); pop(rcx); ret());
    assert_eq!(rules(&in_frame), [Rule::OutsideFrame { lo: 0, hi: 8 }]);
    // Through another register, and across the edge by one byte.
    let through = code!(lea(rax, ptr(rsp + 0)); mov(byte_ptr(rax), cl); ret());
    assert_eq!(rules(&through), [Rule::OutsideFrame { lo: 0, hi: 1 }]);
    let across = code!(sub(rsp, 24); movups(xmmword_ptr(rsp + 9), xmm0); add(rsp, 24); ret());
    assert_eq!(rules(&across), [Rule::OutsideFrame { lo: -15, hi: 1 }]);
    accept(&code!(sub(rsp, 24); movups(xmmword_ptr(rsp + 8), xmm0); add(rsp, 24); ret()));
}

#[test]
fn the_return_address_is_not_read() {
    assert_eq!(rules(&code!(mov(rax, qword_ptr(rsp)); ret())), [Rule::OutsideFrame { lo: 0, hi: 8 }]);
    assert_eq!(rules(&code!(mov(al, byte_ptr(rsp + 7)); ret())), [Rule::OutsideFrame { lo: 7, hi: 8 }]);
}

#[test]
fn accesses_below_the_stack_pointer_are_refused() {
    let write = code!(mov(qword_ptr(rsp - 8), rax); ret());
    assert_eq!(rules(&write), [Rule::OutsideFrame { lo: -8, hi: 0 }]);
    let read = code!(sub(rsp, 8); mov(al, byte_ptr(rsp - 1)); add(rsp, 8); ret());
    assert_eq!(rules(&read), [Rule::OutsideFrame { lo: -9, hi: -8 }]);
    // A pointer to a frame that has been released.
    let stale = code!(push(rax); mov(rcx, rsp); pop(rax); mov(dword_ptr(rcx), eax); ret());
    assert_eq!(rules(&stale), [Rule::OutsideFrame { lo: -8, hi: -4 }]);
}

#[test]
fn a_frame_over_the_limit_is_refused() {
    let max = FRAME_MAX;
    let fits = i32::try_from(max).unwrap();
    accept(&code!(sub(rsp, fits); add(rsp, fits); ret()));
    let code = code!(sub(rsp, fits + 8); add(rsp, fits + 8); ret());
    assert_eq!(rules(&code), [Rule::FrameTooLarge { bytes: u64::from(max) + 8, max }]);
    let pushed = code!(sub(rsp, fits); push(rax); add(rsp, fits + 8); ret());
    assert_eq!(rules(&pushed), [Rule::FrameTooLarge { bytes: u64::from(max) + 8, max }]);
    // The return address of a call is in the frame.
    let called = code!(sub(rsp, fits - 8); call(0u64.wrapping_sub(16)); add(rsp, fits - 8); ret());
    assert_eq!(accept(&called).facts()[0].frame_bytes, max);
    // In one step far beyond the inaccessible bytes.
    let far = code!(lea(rsp, ptr(rsp - 0x4000_0000)); lea(rsp, ptr(rsp + 0x4000_0000)); ret());
    assert_eq!(rules(&far), [Rule::FrameTooLarge { bytes: 0x4000_0000, max }]);
}

#[test]
fn the_stack_pointer_does_not_rise_above_its_entry_value() {
    assert_eq!(rules(&code!(add(rsp, 8); sub(rsp, 8); ret())), [Rule::StackPointerAbove { above: 8 }]);
    assert_eq!(rules(&code!(pop(rax); push(rax); ret())), [Rule::StackPointerAbove { above: 8 }]);
    assert_eq!(rules(&code!(inc(rsp); dec(rsp); ret())), [Rule::StackPointerAbove { above: 1 }]);
}

#[test]
fn an_unknown_stack_pointer_is_refused() {
    let unknown = [Rule::StackPointerUnknown];
    assert_eq!(rules(&code!(mov(rsp, rax); ret())), unknown);
    assert_eq!(rules(&code!(and(rsp, -32); ret())), unknown);
    assert_eq!(rules(&code!(sub(rsp, rax); ret())), unknown);
    assert_eq!(rules(&code!(xchg(rsp, rax); ret())), unknown);
    assert_eq!(rules(&code!(mov(esp, esp); ret())), unknown);
    assert_eq!(rules(&code!(push(rax); pop(rsp); ret())), unknown);
    assert_eq!(rules(&code!(cmove(rsp, rax); ret())), unknown);
    assert_eq!(rules(&code!(mov(spl, al); ret())), unknown);
    assert_eq!(rules(&code!(lea(rsp, ptr(rsp + rax)); ret())), unknown);
    assert_eq!(rules(&code!(mov(rsp, qword_ptr(0).gs()); ret())), unknown);
    // A copy in a callee-saved register is known.
    let saved = code!(push(rbp); mov(rbp, rsp); sub(rsp, 64); mov(rsp, rbp); pop(rbp); ret());
    accept(&saved);
    accept(&code!(push(rbp); mov(rbp, rsp); sub(rsp, 64); lea(rsp, ptr(rbp + 0)); pop(rbp); ret()));
}

#[test]
fn the_stack_pointer_is_the_same_on_all_paths() {
    let mut a = CodeAssembler::new(64).unwrap();
    let mut merge = a.create_label();
    a.test(edi, edi).unwrap();
    a.je(merge).unwrap();
    a.push(rax).unwrap();
    a.set_label(&mut merge).unwrap();
    a.ret().unwrap();
    assert_eq!(rules(&assemble(&mut a)), [Rule::StackPointerDiffers]);
}

#[test]
fn a_trap_may_be_reached_with_any_stack_pointer() {
    let merged = |before_trap: bool| {
        let mut a = CodeAssembler::new(64).unwrap();
        let mut merge = a.create_label();
        a.test(edi, edi).unwrap();
        a.je(merge).unwrap();
        a.push(rax).unwrap();
        a.set_label(&mut merge).unwrap();
        if before_trap {
            a.mov(eax, edi).unwrap();
        }
        a.ud2().unwrap();
        rules(&assemble(&mut a))
    };
    assert_eq!(merged(false), []);
    assert_eq!(merged(true), [Rule::StackPointerDiffers]);
}

#[test]
fn a_loop_that_moves_the_stack_pointer_is_refused() {
    let mut a = CodeAssembler::new(64).unwrap();
    let mut head = a.create_label();
    a.set_label(&mut head).unwrap();
    a.push(rax).unwrap();
    a.dec(edi).unwrap();
    a.jne(head).unwrap();
    a.pop(rax).unwrap();
    a.ret().unwrap();
    assert_eq!(rules(&assemble(&mut a)), [Rule::StackPointerDiffers]);
}

#[test]
fn stack_arguments_are_read_only() {
    let with_arguments = |code: &[u8]| rules_of(image_of(code, &[(0, 16)]));
    assert_eq!(
        with_arguments(&code!(mov(rax, qword_ptr(rsp + 8)); mov(ecx, dword_ptr(rsp + 20)); ret())),
        []
    );
    let behind = code!(mov(rax, qword_ptr(rsp + 17)); ret());
    assert_eq!(with_arguments(&behind), [(0, Rule::OutsideFrame { lo: 17, hi: 25 })]);
    let write = code!(mov(qword_ptr(rsp + 8), rax); ret());
    assert_eq!(with_arguments(&write), [(0, Rule::OutsideFrame { lo: 8, hi: 16 })]);
    let changed = code!(add(qword_ptr(rsp + 8), 1); ret());
    assert_eq!(with_arguments(&changed), [(0, Rule::OutsideFrame { lo: 8, hi: 16 })]);
    let across = code!(mov(rax, qword_ptr(rsp + 4)); ret());
    assert_eq!(with_arguments(&across), [(0, Rule::OutsideFrame { lo: 4, hi: 12 })]);
    // Without arguments nothing is there.
    assert_eq!(rules(&code!(mov(al, byte_ptr(rsp + 8)); ret())), [Rule::OutsideFrame { lo: 8, hi: 9 }]);
}

#[test]
fn an_unknown_offset_into_the_frame_is_refused() {
    let unbounded = code!(sub(rsp, 24); mov(al, byte_ptr(rsp + rdi)); add(rsp, 24); ret());
    assert_eq!(rules(&unbounded), [Rule::UnknownAddress]);
    let bounded = code!(sub(rsp, 24); mov(eax, edi); mov(byte_ptr(rsp + rax), cl); add(rsp, 24); ret());
    assert_eq!(rules(&bounded), [Rule::OutsideFrame { lo: -24, hi: -24 + 0xffff_ffff + 1 }]);
    let array = |last: i32| {
        code!(
            sub(rsp, 24); mov(eax, edi); and(eax, last); mov(byte_ptr(rsp + rax), cl);
            add(rsp, 24); ret()
        )
    };
    accept(&array(23));
    assert_eq!(rules(&array(24)), [Rule::OutsideFrame { lo: -24, hi: 1 }]);
}

#[test]
fn a_write_at_an_unknown_place_of_the_frame_destroys_what_is_spilled_there() {
    let code = |last: i32| {
        code!(
            push(rbx); sub(rsp, 16); mov(eax, edi); and(eax, last); mov(byte_ptr(rsp + rax), cl);
            add(rsp, 16); pop(rbx); ret()
        )
    };
    accept(&code(15));
    assert_eq!(rules(&code(16)), [Rule::CalleeSaved { register: 3 }]);
}

#[test]
fn accesses_through_gs_do_not_use_stack_addresses() {
    assert_eq!(rules(&code!(mov(eax, dword_ptr(rsp).gs()); ret())), [Rule::UnknownAddress]);
}
