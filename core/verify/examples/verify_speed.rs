//! The time that verification takes: `cargo run --release -p weir-verify --example verify_speed`.

#![forbid(unsafe_code)]

use std::hint::black_box;
use std::time::Instant;

use iced_x86::code_asm::{CodeAssembler, dword_ptr, eax, ecx, edi, qword_ptr, rax, rsp};
use iced_x86::{Decoder, OpKind, Register};
use weir_verify::{CodeImage, CpuFeatures, ImageFunction, VerifyLimits, verify};

fn main() {
    let limits = VerifyLimits {
        thunks: vec![0, 16],
        globals_bytes: 4096,
        guard_bytes: 32 << 20,
        frame_max: 64 << 10,
        code_max: 16 << 20,
        functions_max: 50_000,
        features: CpuFeatures::Baseline,
    };
    let once = compiled();
    let copies = |bytes: usize| repeat(&once, bytes.div_ceil(once.code.len()));
    let megabyte = 1 << 20;
    for (name, image) in [
        ("compiled module, 3 KiB", once.clone()),
        ("compiled functions, 10 KiB", copies(10 << 10)),
        ("compiled functions, 60 KiB", copies(60 << 10)),
        ("compiled functions, 1 MiB", copies(megabyte)),
        ("one function without jumps, 1 MiB", one_function(megabyte, false)),
        ("one function with a branch in 8 instructions, 1 MiB", one_function(megabyte, true)),
    ] {
        let mut least = f64::INFINITY;
        let mut instructions = 0;
        for instruction in &mut Decoder::new(64, &image.code, 0) {
            black_box(instruction);
            instructions += 1;
        }
        for _ in 0..15 {
            let image = image.clone();
            let start = Instant::now();
            let verified = verify(image, &limits);
            least = least.min(start.elapsed().as_secs_f64());
            assert!(verified.is_ok(), "{name}: {verified:?}");
        }
        println!(
            "{name}: {} bytes, {instructions} instructions, {:.3} ms, {:.0} ns an instruction",
            image.code.len(),
            least * 1e3,
            least * 1e9 / f64::from(instructions)
        );
    }
}

/// The module of the tests, compiled for the baseline.
fn compiled() -> CodeImage {
    let bytes = include_bytes!("../tests/compiled/module-v2.bin");
    let mut functions = Vec::new();
    let mut end = 0;
    for line in include_str!("../tests/compiled/module-v2.txt").lines() {
        let (offset, name) = line.split_once(' ').expect("offset and name");
        let offset = u32::from_str_radix(offset, 16).expect("digits");
        let stack_arguments =
            name.split_once("_stack").map_or(0, |(_, bytes)| bytes.parse().expect("digits"));
        match name {
            "code_end" => end = offset as usize,
            _ => functions.push(ImageFunction { offset, stack_arguments }),
        }
    }
    let constants = bytes[end.next_multiple_of(4096)..].to_vec();
    CodeImage { code: bytes[..end].to_vec(), constants, functions }
}

/// Copies of an image, one after the other, with the same thunks and constants.
fn repeat(image: &CodeImage, count: usize) -> CodeImage {
    let stride = image.code.len().next_multiple_of(16);
    let constants = |code: usize| i64::try_from(code.next_multiple_of(4096)).expect("small");
    let moved = constants(stride * count) - constants(image.code.len());
    let mut code = Vec::new();
    let mut functions = Vec::new();
    for copy in 0..count {
        let start = copy * stride;
        let shift = i64::try_from(start).expect("small");
        let start32 = u32::try_from(start).expect("small");
        functions.extend(image.functions.iter().map(|f| ImageFunction { offset: f.offset + start32, ..*f }));
        code.extend(&image.code);
        code.resize(start + stride, 0xcc);
        let mut decoder = Decoder::new(64, &image.code, 0);
        while decoder.can_decode() {
            let at = start + decoder.position();
            let instruction = decoder.decode();
            let offsets = decoder.get_constant_offsets(&instruction);
            let is_thunk = instruction.op0_kind() == OpKind::NearBranch64
                && instruction.near_branch64().cast_signed() < 0;
            if is_thunk {
                add(&mut code, at + offsets.immediate_offset(), -shift);
            } else if instruction.memory_base() == Register::RIP {
                add(&mut code, at + offsets.displacement_offset(), moved - shift);
            }
        }
    }
    CodeImage { code, constants: image.constants.clone(), functions }
}

/// Adds to a 32-bit displacement in the code.
fn add(code: &mut [u8], at: usize, difference: i64) {
    let field: &mut [u8; 4] = (&mut code[at..at + 4]).try_into().expect("four bytes");
    let moved = i64::from(i32::from_le_bytes(*field)) + difference;
    *field = i32::try_from(moved).expect("a displacement").to_le_bytes();
}

/// A function that computes, spills and accesses memory.
fn one_function(bytes: usize, branches: bool) -> CodeImage {
    let mut a = CodeAssembler::new(64).expect("64 is a bitness");
    let mut write = || -> Result<(), iced_x86::IcedError> {
        a.sub(rsp, 1032)?;
        for round in 0..bytes / 32 {
            let slot = i32::try_from(8 * (round % 100)).expect("small");
            let mut skip = a.create_label();
            a.mov(eax, edi)?;
            a.add(eax, 5)?;
            if branches {
                a.test(edi, ecx)?;
                a.je(skip)?;
            }
            a.mov(qword_ptr(rsp + slot), rax)?;
            a.mov(ecx, dword_ptr(rax + 8).gs())?;
            a.imul_2(ecx, eax)?;
            a.set_label(&mut skip)?;
            a.mov(rax, qword_ptr(rsp + slot))?;
            a.add(dword_ptr(64).gs(), eax)?;
        }
        a.add(rsp, 1032)?;
        a.ret()
    };
    write().expect("the instructions are valid");
    let code = a.assemble(0).expect("the labels are near");
    CodeImage {
        code,
        constants: Vec::new(),
        functions: vec![ImageFunction { offset: 0, stack_arguments: 0 }],
    }
}
