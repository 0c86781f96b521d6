//! Images that are large, or expensive to analyse.

use iced_x86::code_asm::*;
use weir_verify::{Rule, VerifyLimits};

use crate::support::*;

#[test]
fn a_hundred_megabytes_are_refused_before_any_work() {
    let found = rejections(image(&vec![0x90; 100 << 20]), &limits());
    assert_eq!(found[0].rule, Rule::ImageTooLarge { bytes: 100 << 20, max: 16 << 20 });
}

#[test]
fn fifty_thousand_functions_are_verified() {
    let functions: Vec<(u32, u32)> = (0..50_000).map(|index| (16 * index, 0)).collect();
    let mut code = code!(push(rbx); mov(ebx, edi); mov(eax, dword_ptr(rbx).gs()); pop(rbx); ret());
    pad_to(&mut code, 16);
    let verified = accept_image(image_of(&code.repeat(50_000), &functions));
    assert_eq!(verified.facts().len(), 50_000);
    let limits = VerifyLimits { functions_max: 49_999, ..limits() };
    let found = rejections(image_of(&code.repeat(50_000), &functions), &limits);
    assert_eq!(found[0].rule, Rule::TooManyFunctions { functions: 50_000, max: 49_999 });
}

#[test]
fn a_megabyte_of_straight_line_code_is_verified() {
    let line = code!(mov(eax, edi); add(eax, 5); mov(ecx, dword_ptr(rax + 8).gs()); imul_2(ecx, eax));
    let code = [line.repeat((1 << 20) / line.len()), vec![0xc3]].concat();
    accept(&code);
}

/// A load with a different slot in each instruction.
fn spills(count: i32) -> Vec<u8> {
    let mut assembler = CodeAssembler::new(64).unwrap();
    for slot in 0..count {
        assembler.mov(qword_ptr(rsp + 8 * slot), slot).unwrap();
    }
    assemble(&mut assembler)
}

#[test]
fn slots_beyond_the_tracked_ones_are_unknown() {
    let reload = |slot: i32| {
        let end =
            code!(mov(rax, qword_ptr(rsp + 8 * slot)); mov(al, byte_ptr(rax).gs()); add(rsp, 8000); ret());
        [code!(sub(rsp, 8000)), spills(900), end].concat()
    };
    accept(&reload(0));
    assert!(matches!(rules(&reload(899))[..], [Rule::OutsideRegion { .. }]));
}

#[test]
fn many_joins_of_many_slots_stay_within_the_budget() {
    // Each of the blocks has 256 known slots, so that their states do not fit.
    let blocks = hex("75 00").repeat(200_000);
    let code = [code!(sub(rsp, 8000)), spills(300), blocks, code!(add(rsp, 8000); ret())].concat();
    assert_eq!(rules(&code), [Rule::TooComplex]);
    // A moderate number is accepted.
    let blocks = hex("75 00").repeat(2_000);
    accept(&[code!(sub(rsp, 8000)), spills(300), blocks, code!(add(rsp, 8000); ret())].concat());
}

/// Blocks that each move an unknown value on by one of 250 slots, and jump to eight earlier blocks.
fn tower(blocks: usize) -> Vec<u8> {
    let mut assembler = CodeAssembler::new(64).unwrap();
    let mut heads = Vec::new();
    assembler.sub(rsp, 8000).unwrap();
    assembler.db(&spills(250)).unwrap();
    for block in 0..blocks {
        let mut head = assembler.create_label();
        assembler.set_label(&mut head).unwrap();
        heads.push(head);
        let slot = |index: usize| i32::try_from(8 * (index % 250)).unwrap();
        assembler.mov(rax, qword_ptr(rsp + slot(block))).unwrap();
        assembler.inc(rax).unwrap();
        assembler.mov(qword_ptr(rsp + slot(block + 1)), rax).unwrap();
        for distance in [0, 2, 10, 22, 40, 62, 90, 122] {
            assembler.jne(heads[block.saturating_sub(distance)]).unwrap();
        }
    }
    assembler.add(rsp, 8000).unwrap();
    assembler.ret().unwrap();
    assemble(&mut assembler)
}

#[test]
fn the_work_for_nested_loops_is_bounded() {
    accept(&tower(20));
    assert_eq!(rules(&tower(1000)), [Rule::TooComplex]);
}

#[test]
fn chains_of_backward_jumps_are_visited_once() {
    // The entry jumps to the end; each block jumps to the one before it, and the first returns.
    let mut code = hex("e9 00 00 00 00 c3 90");
    code.extend(hex("eb fc").repeat(100_000));
    let distance = i32::try_from(code.len() - 2 - 5).unwrap();
    code[1..5].copy_from_slice(&distance.to_le_bytes());
    accept(&code);
}
