//! Explains the machine code that LLVM makes of a module: each instruction with its place in the module, and the reason why the
//! verifier allows each access.

use crate::back_end::UNSUPPORTED;
use crate::engine::{Engine, LoadError, rewritten};
use crate::load::compile::CompileError;
use crate::load::machine_code::{MachineCode, MachineCodeError};
use crate::load::origin::RewrittenModule;
use crate::load::rewrite::{DROPS, FUEL, REMAINING, RUN, RUN_EVENTS, STACK_POINTER, export_name};
use crate::run::clock::thread_time;
use crate::run::fault::FunctionIndices;
use std::collections::BTreeMap;
use weir_abi::entry::ENTRY_POINTS;
use weir_admission::Admitted;
use weir_lower::{GuestThunk, LowerError, Lowered, ObjectError, Thunk, Unsupported};
use weir_native::{CODE_MAX, verify_limits};
use weir_units::Nanos;
use weir_verify::{FunctionFacts, ObservedInstruction, Rejections};

/// The machine code that LLVM makes of a module, or the reason why there is none.
#[derive(Debug)]
pub struct LlvmExplanation {
    /// The code.
    pub code: Result<ExplainedCode, WithoutMachineCode>,
    /// True if the object file comes from the cache.
    pub is_from_cache: bool,
    /// The processor time of clang; 0 if the object file comes from the cache.
    pub compiler_time: Nanos,
}

/// The reason why LLVM makes no machine code of a module.
#[derive(Debug)]
pub enum WithoutMachineCode {
    /// Machine code of LLVM cannot be made or cannot run on this machine.
    Machine(String),
    /// The module has something that the lowering does not support.
    Unsupported {
        /// The instruction, or the part of the module.
        part: String,
        /// The function, if the part is an instruction.
        function: Option<ModuleFunction>,
        /// The offset of the instruction in the module, if it is the module's own.
        offset: Option<u32>,
    },
    /// The compilation has failed.
    Failed(CompileError),
}

/// A function of the rewritten module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModuleFunction {
    /// A function of the module, by its index.
    Own(u32),
    /// A function that the loader adds, with its purpose.
    Loader(String),
}

/// Machine code of a module, with the facts that the verifier has found about it.
#[derive(Debug)]
pub struct ExplainedCode {
    /// The most stack in bytes that a call of any function uses, `None` with recursion; or the rules that the code breaks.
    pub verdict: Result<Option<u64>, Rejections>,
    /// The functions, in the order of the code.
    pub functions: Vec<ExplainedFunction>,
    /// The instructions, in the order of the code. Rejected code is listed up to the function with the last rejection.
    pub instructions: Vec<ExplainedInstruction>,
    /// The bytes of the code.
    pub code: Vec<u8>,
    /// The number of bytes of constants.
    pub constants_bytes: usize,
    /// The functions of the host that the code calls, by the number of their thunk.
    pub thunks: Vec<String>,
    /// The globals, by their offset from the base of the memory, which is negative.
    pub globals: BTreeMap<i64, ExplainedGlobal>,
    /// The processor time of the verifier.
    pub verifier_time: Nanos,
    /// The object file.
    pub object: Vec<u8>,
}

/// A function in machine code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedFunction {
    /// The function of the module.
    pub function: ModuleFunction,
    /// The offset in the code.
    pub offset: u32,
    /// The number of bytes up to the next function.
    pub bytes: u32,
    /// The verifier's facts; `None` if the code was rejected.
    pub facts: Option<FunctionFacts>,
}

/// An instruction in machine code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedInstruction {
    /// The verifier's facts.
    pub facts: ObservedInstruction,
    /// The origin, as the compiler states it.
    pub origin: CodeOrigin,
    /// True if the code compares the address with the end of the memory before this access.
    pub is_checked: bool,
    /// True if the verifier had rejected the access, so that it was compiled again, isolated from the optimiser.
    pub is_isolated: bool,
}

/// The origin of an instruction in machine code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CodeOrigin {
    /// The instruction of the module at this offset.
    Module(u32),
    /// Code that the loader adds.
    Loader,
    /// The compiler states none.
    Unknown,
}

/// A global of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedGlobal {
    /// The name or index.
    pub name: String,
    /// True for the counter of the meter.
    pub is_fuel: bool,
}

impl Engine {
    /// Compiles a module with LLVM for calls that run to completion, verifies the code and explains it.
    ///
    /// # Errors
    /// The module cannot be rewritten.
    pub fn explain_llvm(&self, admitted: &Admitted) -> Result<LlvmExplanation, LoadError> {
        let (module, indices) = rewritten(admitted, self.checks(admitted, false))?;
        let (mut compiler_time, mut is_from_cache) = (Nanos(0), false);
        let code = self.explained_code(&module, indices, &mut compiler_time, &mut is_from_cache);
        Ok(LlvmExplanation { code, is_from_cache, compiler_time })
    }

    fn explained_code(
        &self,
        module: &RewrittenModule,
        indices: FunctionIndices,
        compiler_time: &mut Nanos,
        is_from_cache: &mut bool,
    ) -> Result<ExplainedCode, WithoutMachineCode> {
        if !weir_native::is_supported() {
            return Err(WithoutMachineCode::Machine(UNSUPPORTED.to_owned()));
        }
        let clang = self.clang().map_err(|why| WithoutMachineCode::Machine(why.clone()))?;
        let names = FunctionNames { indices, origins: module.origins(), copy_function: module.copy_function };
        *is_from_cache = true;
        let code = MachineCode::new(&module.bytes, MachineCode::options(), |ir| {
            let object = self.object(clang, ir, true, compiler_time)?;
            *is_from_cache &= object.is_from_cache;
            Ok(object.bytes)
        });
        let code = code.map_err(|error| match error {
            MachineCodeError::Lower(error) => names.unsupported(error),
            MachineCodeError::Host(part) => {
                WithoutMachineCode::Unsupported { part: part.to_owned(), function: None, offset: None }
            }
            MachineCodeError::Compile(error) => WithoutMachineCode::Failed(error),
            error => WithoutMachineCode::Failed(CompileError::Module(error.to_string())),
        })?;
        explain_code(code, &names)
            .map_err(|error| WithoutMachineCode::Failed(CompileError::Module(error.to_string())))
    }
}

/// The functions and offsets of a rewritten module, from which those of the module follow.
struct FunctionNames {
    indices: FunctionIndices,
    /// The origins of the code by offset in the rewritten module.
    origins: Vec<(u32, Option<u32>)>,
    copy_function: Option<u32>,
}

impl FunctionNames {
    /// Returns the offset in the module of an instruction of the rewritten module.
    fn origin(&self, offset: u32) -> Option<u32> {
        let after = self.origins.partition_point(|(start, _)| *start <= offset);
        self.origins.get(after.checked_sub(1)?)?.1
    }

    fn function(&self, index: u32, lowered: Option<&Lowered>) -> ModuleFunction {
        if self.indices.is_original(index) {
            return ModuleFunction::Own(self.indices.original_index(index));
        }
        if self.copy_function == Some(index) {
            return ModuleFunction::Loader("copy of memory".to_owned());
        }
        let exports = lowered.into_iter().flat_map(|lowered| &lowered.exports);
        let exported = exports.filter(|(_, function)| **function == index).map(|(name, _)| name.as_str());
        let purpose = exported.into_iter().find_map(|name| match name {
            RUN => Some("loop over a batch".to_owned()),
            RUN_EVENTS => Some("loop over stream events".to_owned()),
            name => {
                let entry = ENTRY_POINTS.iter().find(|entry| export_name(entry.entry) == name)?;
                Some(format!("entry of {}", entry.name))
            }
        });
        ModuleFunction::Loader(purpose.unwrap_or_else(|| "call of a host function".to_owned()))
    }

    fn unsupported(&self, error: LowerError) -> WithoutMachineCode {
        match error {
            LowerError::Unsupported(Unsupported::Instruction { function, offset, instruction }) => {
                WithoutMachineCode::Unsupported {
                    part: instruction,
                    function: Some(self.function(function, None)),
                    offset: self.origin(offset),
                }
            }
            LowerError::Unsupported(other) => {
                WithoutMachineCode::Unsupported { part: other.to_string(), function: None, offset: None }
            }
            LowerError::Invalid(why) => WithoutMachineCode::Failed(CompileError::Module(why)),
        }
    }
}

/// Verifies the code once more, and collects the facts about it.
fn explain_code(code: MachineCode, names: &FunctionNames) -> Result<ExplainedCode, ObjectError> {
    let MachineCode { lowered, thunks, object, isolated, .. } = code;
    let (lowered, limits) = (&lowered, verify_limits(thunks.len()));
    let linked = weir_lower::link(&object, lowered, CODE_MAX)?;
    let positions = weir_lower::positions(&object, CODE_MAX)?;
    let start = thread_time();
    let verified = weir_verify::verify(linked.image.clone(), &limits);
    let verifier_time = Nanos(thread_time().0.saturating_sub(start.0));
    let mut instructions = Vec::new();
    let code = linked.image.code.clone();
    let constants_bytes = linked.image.constants.len();
    let mut functions = functions(&linked.image, &linked.functions, lowered, names);
    _ = weir_verify::explain(linked.image, &limits, |facts| {
        let position = positions.module_offset(facts.offset);
        let is_access = facts.operand.is_some();
        instructions.push(ExplainedInstruction {
            is_checked: is_access
                && position.is_some_and(|offset| lowered.checked.binary_search(&offset).is_ok()),
            is_isolated: is_access && position.is_some_and(|offset| isolated.contains(offset)),
            origin: match position {
                None => CodeOrigin::Unknown,
                Some(offset) => names.origin(offset).map_or(CodeOrigin::Loader, CodeOrigin::Module),
            },
            facts,
        });
    });
    if let Ok(verified) = &verified {
        for (function, facts) in functions.iter_mut().zip(verified.facts()) {
            function.facts = Some(facts.clone());
        }
    }
    Ok(ExplainedCode {
        verdict: verified.map(|verified| verified.stack_bound()),
        functions,
        instructions,
        code,
        constants_bytes,
        thunks: lowered.thunks.iter().map(|thunk| thunk_name(*thunk, lowered)).collect(),
        globals: globals(lowered),
        verifier_time,
        object,
    })
}

/// Returns the functions of an image in their order, without facts.
fn functions(
    image: &weir_verify::CodeImage,
    places: &[u32],
    lowered: &Lowered,
    names: &FunctionNames,
) -> Vec<ExplainedFunction> {
    let mut numbers: BTreeMap<u32, u32> = BTreeMap::new();
    numbers.extend((lowered.imported..).zip(places).map(|(number, index)| (*index, number)));
    let ends = image.functions.iter().skip(1).map(|next| next.offset);
    let ends = ends.chain([u32::try_from(image.code.len()).unwrap_or(u32::MAX)]);
    (0..)
        .zip(image.functions.iter().zip(ends))
        .map(|(index, (function, end))| ExplainedFunction {
            function: names.function(numbers.get(&index).copied().unwrap_or(u32::MAX), Some(lowered)),
            offset: function.offset,
            bytes: end.saturating_sub(function.offset),
            facts: None,
        })
        .collect()
}

fn thunk_name(thunk: Thunk, lowered: &Lowered) -> String {
    match thunk {
        Thunk::Import(import) => {
            lowered.imports.get(import as usize).map_or(String::new(), |(_, name)| name.clone())
        }
        Thunk::Guest(GuestThunk::MemorySize) => "memory.size".to_owned(),
        Thunk::Guest(GuestThunk::MemoryGrow) => "memory.grow".to_owned(),
        Thunk::Guest(GuestThunk::MemoryFill) => "memory.fill".to_owned(),
        Thunk::Guest(GuestThunk::MemoryCopy) => "memory.copy".to_owned(),
    }
}

fn globals(lowered: &Lowered) -> BTreeMap<i64, ExplainedGlobal> {
    let special = |index: u32| {
        let is_here = |name: &&&str| lowered.global_exports.get(**name) == Some(&index);
        [REMAINING, DROPS, FUEL, STACK_POINTER].iter().find(is_here).copied()
    };
    let named = lowered.globals.iter().map(|(index, (below, _))| {
        let name = match special(*index) {
            Some(FUEL) => "fuel counter".to_owned(),
            Some(REMAINING) => "packets of the batch that remain".to_owned(),
            Some(DROPS) => "packets to drop".to_owned(),
            Some(STACK_POINTER) => "stack pointer of the module".to_owned(),
            _ => format!("global {index}"),
        };
        (-i64::from(*below), ExplainedGlobal { name, is_fuel: special(*index) == Some(FUEL) })
    });
    named.collect()
}
