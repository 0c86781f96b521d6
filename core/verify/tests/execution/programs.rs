//! Random programs of which a good part is safe.

use iced_x86::IcedError;
use iced_x86::code_asm::*;

use super::source::Source;
use crate::support::assemble;

/// The registers that programs use, with their lower parts.
const REGISTERS: [(AsmRegister64, AsmRegister32, AsmRegister8); 7] = [
    (rax, eax, al),
    (rcx, ecx, cl),
    (rdx, edx, dl),
    (rbx, ebx, bl),
    (rsi, esi, sil),
    (rdi, edi, dil),
    (r12, r12d, r12b),
];

/// The size of the frame below the saved registers.
const FRAME: i32 = 56;

/// A function with a frame, loops, spills, and accesses to the region, through registers that are often bounded.
pub fn random(source: &mut Source) -> Vec<u8> {
    let mut a = CodeAssembler::new(64).expect("64 is a bitness");
    write(&mut a, source).expect("the operands are valid");
    assemble(&mut a)
}

fn write(a: &mut CodeAssembler, source: &mut Source) -> Result<(), IcedError> {
    a.push(rbx)?;
    a.push(r12)?;
    a.sub(rsp, FRAME)?;
    let count = 3 + source.below(14);
    let mut labels: Vec<CodeLabel> = (0..count).map(|_| a.create_label()).collect();
    for place in 0..count {
        a.set_label(&mut labels[place])?;
        // A label needs an instruction, and a branch at its end.
        instruction(a, source)?;
        if source.one_in(5) {
            a.jne(labels[source.below(count)])?;
        }
    }
    // Sometimes the frame or the registers are not restored.
    a.add(rsp, if source.one_in(20) { FRAME - 8 } else { FRAME })?;
    let (first, second) = if source.one_in(20) { (rbx, r12) } else { (r12, rbx) };
    a.pop(first)?;
    a.pop(second)?;
    a.ret()
}

fn instruction(a: &mut CodeAssembler, source: &mut Source) -> Result<(), IcedError> {
    let (to, to32, to8) = source.choose(&REGISTERS);
    let (from, from32, from8) = source.choose(&REGISTERS);
    let wide = source.one_in(2);
    let small = i32::try_from(source.below(256)).expect("small");
    let count = u32::try_from(source.below(40)).expect("small");
    let slot = i32::try_from(source.below(60)).expect("small") - if source.one_in(30) { 8 } else { 0 };
    match source.below(31) {
        0 => a.mov(to32, from32),
        1 => a.mov(to, from),
        2 => a.mov(to32, small),
        3 => a.movzx(to32, from8),
        4 => a.movsxd(to, from32),
        5 if wide => a.add(to, from),
        5 => a.add(to32, from32),
        6 if wide => a.add(to, small - 128),
        6 => a.add(to32, small - 128),
        7 if wide => a.sub(to, from),
        7 => a.sub(to32, from32),
        8 if wide => a.and(to, small),
        8 => a.and(to32, small),
        9 if wide => a.and(to, from),
        9 => a.or(to32, from32),
        10 if wide => a.or(to, from),
        10 => a.xor(to32, from32),
        11 if wide => a.shl(to, count),
        11 => a.shl(to32, count),
        12 if wide => a.shr(to, count),
        12 => a.shr(to32, count),
        13 if wide => a.sar(to, count),
        13 => a.sar(to32, count),
        14 if wide => a.lea(to, ptr(from + to * 4 + small)),
        14 => a.lea(to32, ptr(from + to * 2 - small)),
        15 if wide => a.imul_2(to, from),
        15 => a.imul_3(to32, from32, small),
        16 if wide => a.neg(to),
        16 => a.not(to32),
        17 if wide => a.inc(to),
        17 => a.dec(to32),
        18 if wide => a.cmove(to, from),
        18 => a.cmove(to32, from32),
        19 => a.sete(to8),
        20 => a.mov(to8, from8),
        21 | 22 if wide => a.mov(qword_ptr(rsp + slot), from),
        21 => a.mov(dword_ptr(rsp + slot), from32),
        22 => a.mov(byte_ptr(rsp + slot), from8),
        23 if wide => a.mov(to, qword_ptr(rsp + slot)),
        23 => a.mov(to32, dword_ptr(rsp + slot)),
        24 if wide => a.add(qword_ptr(rsp + slot), small),
        24 => a.inc(dword_ptr(rsp + slot)),
        25 => bounded(a, source, |a| a.mov(byte_ptr(rsp + to), from8), to32, 31),
        26 => bounded(a, source, |a| a.mov(to, qword_ptr(to * 8 + small).gs()), to32, 0x0fff_ffff),
        27 => bounded(a, source, |a| a.add(dword_ptr(to + small).gs(), from32), to32, -1),
        28 => bounded(a, source, |a| a.mov(byte_ptr(to + from - small).gs(), from8), to32, 0xffff),
        29 if wide => a.mov(to, qword_ptr(from32 + to32 * 4 - small).gs()),
        29 => a.add(dword_ptr(to32 + small).gs(), from32),
        _ => a.call(0u64.wrapping_sub(16)),
    }
}

/// An access through a register, in most cases after an instruction that bounds it.
fn bounded(
    a: &mut CodeAssembler,
    source: &mut Source,
    access: impl FnOnce(&mut CodeAssembler) -> Result<(), IcedError>,
    register: AsmRegister32,
    mask: i32,
) -> Result<(), IcedError> {
    match source.below(10) {
        0 => {}
        1 => a.mov(register, register)?,
        _ => a.and(register, mask)?,
    }
    access(a)
}
