//! Short ways to make an image and to verify it.

use iced_x86::code_asm::CodeAssembler;
use iced_x86::{Code, Instruction, MemoryOperand, Register};
use weir_verify::{
    CodeImage, CpuFeatures, ImageFunction, Rejection, Rule, VerifiedCode, VerifyLimits, verify,
};

pub const GLOBALS_BYTES: u32 = 4096;
pub const GUARD_BYTES: u32 = 32 << 20;
pub const FRAME_MAX: u32 = 64 << 10;

/// A page with constants begins here if the code has at most as many bytes.
pub const CONSTANTS: i64 = 4096;

pub fn limits() -> VerifyLimits {
    VerifyLimits {
        thunks: vec![0, 16],
        globals_bytes: GLOBALS_BYTES,
        guard_bytes: GUARD_BYTES,
        frame_max: FRAME_MAX,
        code_max: 16 << 20,
        functions_max: 50_000,
        features: CpuFeatures::Baseline,
    }
}

pub fn limits_v3() -> VerifyLimits {
    VerifyLimits { features: CpuFeatures::V3, ..limits() }
}

/// An image of one function, with 64 bytes of constants.
pub fn image(code: &[u8]) -> CodeImage {
    image_of(code, &[(0, 0)])
}

/// An image of functions, each an offset and its bytes of stack arguments.
pub fn image_of(code: &[u8], functions: &[(u32, u32)]) -> CodeImage {
    let functions = functions.iter().map(|(offset, stack_arguments)| ImageFunction {
        offset: *offset,
        stack_arguments: *stack_arguments,
    });
    CodeImage { code: code.to_vec(), constants: vec![7; 64], functions: functions.collect() }
}

pub fn rejections(image: CodeImage, limits: &VerifyLimits) -> Vec<Rejection> {
    match verify(image, limits) {
        Ok(_) => Vec::new(),
        Err(rejections) => rejections.list().to_vec(),
    }
}

/// The rules that a function breaks, in the order of its instructions.
pub fn rules(code: &[u8]) -> Vec<Rule> {
    rejections(image(code), &limits()).into_iter().map(|rejection| rejection.rule).collect()
}

/// The rules that an image breaks, each with its function.
pub fn rules_of(image: CodeImage) -> Vec<(u32, Rule)> {
    rejections(image, &limits()).into_iter().map(|rejection| (rejection.function, rejection.rule)).collect()
}

#[track_caller]
pub fn accept(code: &[u8]) -> VerifiedCode {
    accept_image(image(code))
}

#[track_caller]
pub fn accept_image(image: CodeImage) -> VerifiedCode {
    match verify(image, &limits()) {
        Ok(verified) => verified,
        Err(rejections) => {
            panic!("{:#?}", rejections.list().iter().map(ToString::to_string).collect::<Vec<_>>())
        }
    }
}

/// Bytes in hexadecimal, separated by blanks.
pub fn hex(text: &str) -> Vec<u8> {
    text.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("two digits")).collect()
}

/// Assembles instructions from address 0.
pub fn assemble(assembler: &mut CodeAssembler) -> Vec<u8> {
    assembler.assemble(0).expect("the instructions can be encoded")
}

/// Assembles a list of instructions: `code!(mov(eax, ecx); ret())`.
macro_rules! code {
    ($($name:ident($($argument:expr),* $(,)?));* $(;)?) => {{
        let mut assembler = iced_x86::code_asm::CodeAssembler::new(64).expect("64 is a bitness");
        $(assembler.$name($($argument),*).expect("the operands are valid");)*
        $crate::support::assemble(&mut assembler)
    }};
}
pub(crate) use code;

/// `lea register, [rip + ...]` with this target.
pub fn lea_rip(register: Register, target: i64) -> Instruction {
    Instruction::with2(Code::Lea_r64_m, register, rip(target)).expect("the operands are valid")
}

/// An operand at an image address.
pub fn rip(target: i64) -> MemoryOperand {
    MemoryOperand::with_base_displ(Register::RIP, target)
}

/// Code of a function that begins at `offset` and is padded there with `int3`.
pub fn pad_to(code: &mut Vec<u8>, offset: u32) {
    code.resize(offset as usize, 0xcc);
}
