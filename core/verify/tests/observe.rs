//! The facts that an observer gets: each instruction once, and a place for each access.

use iced_x86::code_asm::{CodeAssembler, dword_ptr, eax, ecx, rax, rbx};
use iced_x86::{Decoder, Instruction, Mnemonic, OpKind, Register};
use weir_verify::{
    CodeImage, ObservedAccess, ObservedInstruction, Place, Rule, VerifyLimits, explain, verify,
};

use crate::compiled::{Compiled, compiled};
use crate::support::*;

fn observed(image: CodeImage, limits: &VerifyLimits) -> Vec<ObservedInstruction> {
    let mut all = Vec::new();
    let _ = explain(image, limits, |instruction| all.push(instruction));
    all
}

fn has_memory_operand(instruction: &Instruction) -> bool {
    let is_memory = |operand| instruction.op_kind(operand) == OpKind::Memory;
    let is_used = !matches!(instruction.mnemonic(), Mnemonic::Lea | Mnemonic::Nop | Mnemonic::Ud1);
    is_used && (0..instruction.op_count()).any(is_memory)
}

#[test]
fn every_instruction_is_observed_once_and_every_access_has_a_place() {
    for Compiled { image, names, limits } in compiled() {
        let mut observed = observed(image.clone(), &limits).into_iter();
        let mut accesses = 0;
        for instruction in &mut Decoder::new(64, &image.code, 0) {
            let seen = observed.next().unwrap();
            assert_eq!((seen.offset, seen.bytes as usize), (instruction.ip32(), instruction.len()));
            let function = image.functions.partition_point(|function| function.offset <= seen.offset) - 1;
            assert_eq!(seen.function as usize, function);
            let text = format!("{} {seen:?}", names[function]);
            if !seen.is_reached {
                assert!(seen.operand.is_none() && seen.stack.is_none(), "{text}");
                continue;
            }
            assert_eq!(seen.operand.is_some(), has_memory_operand(&instruction), "{text}");
            if let Some(ObservedAccess { bytes, place, .. }) = seen.operand {
                accesses += 1;
                assert_eq!(bytes as usize, instruction.memory_size().size(), "{text}");
                let is_expected = match place.unwrap() {
                    Place::Region { .. } => instruction.segment_prefix() == Register::GS,
                    Place::Constants { lo, hi } => 0 < lo && lo <= hi,
                    Place::Frame { lo, hi } => lo <= hi && hi < 0,
                    Place::StackArguments { lo, hi } => lo <= hi && lo >= 8,
                    Place::ReturnAddress => false,
                };
                assert!(is_expected, "{text}");
            }
            let uses_stack = matches!(
                instruction.mnemonic(),
                Mnemonic::Push | Mnemonic::Pop | Mnemonic::Call | Mnemonic::Ret
            );
            assert_eq!(seen.stack.is_some(), uses_stack, "{text}");
            assert!(seen.stack.is_none_or(|stack| stack.place.is_ok()), "{text}");
            assert_eq!(seen.callee.is_some(), instruction.mnemonic() == Mnemonic::Call, "{text}");
        }
        assert_eq!(observed.next(), None);
        assert!(accesses > 100, "{accesses}");
    }
}

#[test]
fn observation_does_not_change_the_verdict() {
    for Compiled { image, limits, .. } in compiled() {
        let explained = explain(image.clone(), &limits, |_| {}).unwrap();
        assert_eq!(explained.facts(), verify(image, &limits).unwrap().facts());
    }
    let outside = code!(mov(eax, dword_ptr(rax).gs()); ret());
    assert_eq!(
        explain(image(&outside), &limits(), |_| {}).unwrap_err(),
        verify(image(&outside), &limits()).unwrap_err()
    );
}

#[test]
fn places_are_those_of_the_final_state() {
    // The counter is 0 at the first visit of the access.
    let mut assembler = CodeAssembler::new(64).unwrap();
    let mut head = assembler.create_label();
    assembler.xor(eax, eax).unwrap();
    assembler.push(rbx).unwrap();
    assembler.set_label(&mut head).unwrap();
    assembler.add(ecx, dword_ptr(rax + 16).gs()).unwrap();
    assembler.add(eax, 4).unwrap();
    assembler.jne(head).unwrap();
    assembler.pop(rbx).unwrap();
    assembler.ret().unwrap();
    let seen = observed(image(&assemble(&mut assembler)), &limits());
    let place = seen[2].operand.unwrap().place;
    assert_eq!(place, Ok(Place::Region { lo: 16, hi: i64::from(u32::MAX) + 16 }));
    assert_eq!(seen[1].stack.unwrap().place, Ok(Place::Frame { lo: -8, hi: -8 }));
    assert_eq!(seen[5].stack.unwrap().place, Ok(Place::Frame { lo: -8, hi: -8 }));
    assert_eq!(seen[6].stack.unwrap().place, Ok(Place::ReturnAddress));
}

#[test]
fn a_rejected_access_is_observed_with_the_rule_that_it_breaks() {
    let seen = observed(
        image(&code!(mov(eax, dword_ptr(rax).gs()); mov(ecx, dword_ptr(64).gs()); ret())),
        &limits(),
    );
    assert!(matches!(seen[0].operand.unwrap().place, Err(Rule::OutsideRegion { .. })));
    assert_eq!(seen[1].operand.unwrap().place, Ok(Place::Region { lo: 64, hi: 64 }));
    // A refused instruction leaves the function without an analysis.
    let seen = observed(image(&code!(mov(ecx, dword_ptr(64).gs()); cpuid(); ret())), &limits());
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|instruction| !instruction.is_reached && instruction.operand.is_none()));
}
