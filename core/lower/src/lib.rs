//! Lowers WebAssembly modules to LLVM IR.
//!
//! ```text
//! module ──lower──► Lowered { ir, … } ──clang──► object ──link──► CodeImage ──verify──► machine code
//! ```
//!
//! The input is a module that the loader has rewritten, with its meter and batch loop. The output is the text of an LLVM
//! module (LLVM 19). Nothing of this crate is trusted for safety: the machine code that clang makes of the text is verified before it runs.
//!
//! The semantics are those of WebAssembly. The memory begins at the base of the segment GS. Mutable globals are below it, at
//! fixed places. Function N of the module is `fN`. Function N of the host is the external function `hN`, the thunk.

#![forbid(unsafe_code)]

mod function;
mod memory;
mod module;
mod numeric;
mod object;
mod operand;
mod positions;
mod thunk;
mod trap;
mod vector;

use function::{FIRST_SUBPROGRAM, FunctionLowering, result_type, subprogram};
use module::{GlobalPlace, LoweredModule};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use thunk::GUEST_THUNKS;
use wasmparser::ValType;
use weir_verify::CpuFeatures;

pub use module::Constant;
pub use object::{LinkedObject, ObjectError, link};
pub use positions::{CodePosition, CodePositions, positions};
pub use thunk::{GuestThunk, Thunk};
pub use trap::TrapCode;

/// A module in the form of LLVM IR, with what the host needs to run its machine code.
#[derive(Debug)]
pub struct Lowered {
    /// The text of the LLVM module.
    pub ir: String,
    /// The number of imported functions. Function N of the module is `fN` in the text, from this number on.
    pub imported: u32,
    /// For each function of the module that is not imported, the bytes of its arguments on the stack.
    pub stack_arguments: Vec<u32>,
    /// The functions of the host, by their number: `hN` in the text.
    pub thunks: Vec<Thunk>,
    /// The module and name of each import.
    pub imports: Vec<(String, String)>,
    /// The exported functions, by name.
    pub exports: BTreeMap<String, u32>,
    /// The mutable globals: index, bytes below the memory, and first value.
    pub globals: BTreeMap<u32, (u32, Constant)>,
    /// The exported globals, by name.
    pub global_exports: BTreeMap<String, u32>,
    /// The number of bytes below the memory that globals take.
    pub globals_bytes: u32,
    /// The names of functions, by index.
    pub names: BTreeMap<u32, String>,
    /// For each function of the module that is not imported, the offset behind its code in the module.
    pub body_ends: Vec<u32>,
    /// The offsets of the accesses to memory before which the code compares the address, sorted. All others need no check.
    pub checked: Vec<u32>,
}

/// The reason why a module cannot be lowered.
#[derive(Debug, thiserror::Error)]
pub enum LowerError {
    /// The module is not valid.
    #[error("the module is not valid: {0}")]
    Invalid(String),
    /// The module has something that the lowering does not support.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
}

/// A part of a module that the lowering does not support. Such a module is compiled by Cranelift.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// An instruction.
    #[error("`{instruction}` in function {function}, at offset {offset:#x} of the rewritten module")]
    Instruction {
        /// The index of the function.
        function: u32,
        /// The offset of the instruction in the module.
        offset: u32,
        /// The instruction.
        instruction: String,
    },
    /// The text is too long.
    #[error("its text for LLVM has more than {} MiB", TEXT_MAX >> 20)]
    Text,
    /// Something outside the code.
    #[error("{0}")]
    Section(&'static str),
}

/// The inaccessible bytes that must be behind the 4 GiB of the memory, for offsets that the code adds to addresses.
pub const GUARD: u32 = 32 << 20;

/// The longest text of a module, in bytes. An instruction can become many bytes of text, such as an indirect call of a large
/// table. The limit keeps a hostile module from taking the memory of its host.
pub const TEXT_MAX: usize = 64 << 20;

/// The arguments of clang 19 for the text: it reads standard input, and writes an object file to standard output.
pub const CLANG_ARGUMENTS: &[&str] = &[
    "-cc1",
    "-triple",
    "x86_64-unknown-linux-gnu",
    "-O3",
    "-emit-obj",
    "-mrelocation-model",
    "pic",
    "-pic-level",
    "2",
    "-ffp-contract=off",
    // A call that does not return is followed by a trap, and not by the next function.
    "-mllvm",
    "-trap-unreachable",
    "-x",
    "ir",
    "-o",
    "-",
    "-",
];

/// The processor that the code is for: SSE4.2 is enough for all instructions without calls of a mathematical library.
const CPU: &str = "x86-64-v2";
/// The features of [`CpuFeatures::BitManipulation`], in the words of LLVM.
const BIT_MANIPULATION: &str = "+bmi,+bmi2,+lzcnt,+movbe";

/// The choices of a lowering.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LowerOptions {
    /// The CPU features that the code may use. Of a level with AVX, the code uses no vectors beyond SSE4.2.
    pub features: CpuFeatures,
    /// The accesses that are isolated from the optimiser.
    pub isolated: IsolatedAccesses,
    /// Lets LLVM compute addresses as it likes. The verifier then rejects accesses in loops, unless they are isolated.
    pub plain_addresses: bool,
}

/// The accesses to memory that are written in assembler code together with the computation of their address. The verifier
/// accepts this form wherever it stands, but LLVM cannot fold or share its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum IsolatedAccesses {
    /// No access.
    #[default]
    None,
    /// The accesses at these offsets in the module.
    At(BTreeSet<u32>),
    /// All accesses.
    All,
}

impl IsolatedAccesses {
    /// Returns true if the access at this offset in the module is isolated.
    pub fn contains(&self, offset: u32) -> bool {
        match self {
            Self::None => false,
            Self::At(offsets) => offsets.contains(&offset),
            Self::All => true,
        }
    }
}

/// Lowers a valid module for any CPU of the level x86-64-v2.
///
/// # Errors
/// [`LowerError::Unsupported`] for a module that cannot be lowered; [`LowerError::Invalid`] for one that is not valid.
pub fn lower(bytes: &[u8]) -> Result<Lowered, LowerError> {
    lower_with(bytes, &LowerOptions::default())
}

/// Lowers a valid module with these choices. Apart from the text, the result does not depend on them.
///
/// # Errors
/// As [`lower()`].
pub fn lower_with(bytes: &[u8], options: &LowerOptions) -> Result<Lowered, LowerError> {
    let module = LoweredModule::read(bytes)?;
    let mut ir = String::new();
    header(&mut ir, &module)?;
    let (mut stack_arguments, mut checked) = (Vec::new(), Vec::new());
    let mut body_ends = Vec::new();
    for (index, body) in (module.imported()..).zip(&module.bodies) {
        body_ends.push(u32::try_from(body.range().end).unwrap_or(u32::MAX));
        let left = TEXT_MAX.saturating_sub(ir.len());
        ir.push_str(&FunctionLowering::lower(&module, index, body, options, left, &mut checked)?);
        stack_arguments.push(stack_argument_bytes(module.function_type(index)?.params()));
    }
    footer(&mut ir, &module, options.features);
    let globals = (0..).zip(&module.globals).filter_map(|(index, global)| match global.place {
        GlobalPlace::Constant(_) => None,
        GlobalPlace::Below(bytes, value) => Some((index, (bytes, value))),
    });
    Ok(Lowered {
        ir,
        imported: module.imported(),
        stack_arguments,
        thunks: module.thunks(),
        imports: module.imports.iter().map(|import| (import.module.clone(), import.name.clone())).collect(),
        exports: module.exports.iter().cloned().collect(),
        globals: globals.collect(),
        global_exports: module.global_exports.iter().cloned().collect(),
        globals_bytes: module.globals_bytes,
        names: module.names,
        body_ends,
        checked,
    })
}

/// Writes the part of the text before the functions.
fn header(ir: &mut String, module: &LoweredModule<'_>) -> Result<(), LowerError> {
    ir.push_str(
        "target datalayout = \"e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128\"\n\
         target triple = \"x86_64-unknown-linux-gnu\"\n",
    );
    _ = numeric::declarations(ir).and_then(|()| vector::declarations(ir));
    for import in 0..module.imported() {
        let ty = module.function_type(import)?;
        let has_registers = ty.params().len() <= REGISTER_ARGUMENTS
            && ty.params().iter().all(|ty| matches!(ty, ValType::I32 | ValType::I64));
        if !has_registers {
            return Err(Unsupported::Section("a host function with other arguments than six integers").into());
        }
        let parameters: Vec<_> =
            ty.params().iter().map(|ty| function::ir_type(*ty)).collect::<Result<_, _>>()?;
        _ = writeln!(ir, "declare {} @h{import}({}) #2", result_type(ty.results())?, parameters.join(", "));
    }
    for definition in &GUEST_THUNKS {
        let result = if definition.has_result { "i32" } else { "void" };
        let parameters = vec!["i32"; definition.parameters].join(", ");
        _ = writeln!(ir, "declare {result} @h{}({parameters}) #2", module.guest_thunk(definition.thunk));
    }
    Ok(())
}

/// Writes the part of the text after the functions: attributes and metadata.
fn footer(ir: &mut String, module: &LoweredModule<'_>, features: CpuFeatures) {
    let features = if features == CpuFeatures::Baseline { "" } else { BIT_MANIPULATION };
    _ = write!(
        ir,
        "attributes #0 = {{ nounwind noredzone null_pointer_is_valid \"target-cpu\"=\"{CPU}\" \
         \"tune-cpu\"=\"generic\" \"target-features\"=\"{features}\" \
         \"prefer-vector-width\"=\"128\" \"no-jump-tables\"=\"true\" \"no-builtins\" \"disable-tail-calls\"=\"true\" \
         \"frame-pointer\"=\"none\" }}\n\
         attributes #1 = {{ nomerge noreturn nounwind cold }}\n\
         attributes #2 = {{ nounwind }}\n\
         attributes #3 = {{ nounwind willreturn memory(none) }}\n\
         !llvm.module.flags = !{{!2, !3}}\n\
         !llvm.dbg.cu = !{{!4}}\n\
         !0 = !{{!\"branch_weights\", i32 1, i32 2000}}\n\
         !1 = !{{!\"branch_weights\", i32 2000, i32 1}}\n\
         !2 = !{{i32 2, !\"Debug Info Version\", i32 3}}\n\
         !3 = !{{i32 7, !\"Dwarf Version\", i32 4}}\n\
         !4 = distinct !DICompileUnit(language: DW_LANG_C, file: !5, emissionKind: LineTablesOnly)\n\
         !5 = !DIFile(filename: \"module\", directory: \"\")\n\
         !6 = !DISubroutineType(types: !7)\n\
         !7 = !{{}}\n"
    );
    const { assert!(FIRST_SUBPROGRAM == 8) };
    for (index, _) in (module.imported()..).zip(&module.bodies) {
        _ = writeln!(
            ir,
            "!{} = distinct !DISubprogram(name: \"f{index}\", scope: !5, file: !5, line: 1, type: !6, \
             spFlags: DISPFlagDefinition, unit: !4)",
            subprogram(index)
        );
    }
}

/// The number of integer arguments in registers, by the System V calling convention for x86-64.
const REGISTER_ARGUMENTS: usize = 6;
/// The number of float and vector arguments in registers.
const VECTOR_REGISTER_ARGUMENTS: usize = 8;

/// Returns the number of bytes of the arguments on the stack, by the System V calling convention for x86-64.
fn stack_argument_bytes(parameters: &[ValType]) -> u32 {
    let (mut integers, mut vectors, mut bytes) = (0, 0, 0_u32);
    for ty in parameters {
        let (used, registers, size) = match ty {
            ValType::I32 | ValType::I64 | ValType::Ref(_) => (&mut integers, REGISTER_ARGUMENTS, 8),
            ValType::F32 | ValType::F64 => (&mut vectors, VECTOR_REGISTER_ARGUMENTS, 8),
            ValType::V128 => (&mut vectors, VECTOR_REGISTER_ARGUMENTS, 16),
        };
        *used += 1;
        if *used > registers {
            bytes = bytes.next_multiple_of(size) + size;
        }
    }
    bytes
}
