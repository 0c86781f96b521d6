//! The facts about a compiled module, for all forms of the output.

use super::CompileCommandError;
use super::charges::mark_charges;
use super::loops::{MachineLoop, SourceLoops};
use super::reason::{InstructionPurpose, PlaceKind, ReasonedInstruction};
use iced_x86::{Decoder, DecoderOptions};
use std::collections::BTreeMap;
use weir_admission::Admitted;
use weir_bounds::{Lines, SourceLine};
use weir_sandbox::{
    BackEnd, CodeOrigin, ExplainedCode, ExplainedFunction, LlvmExplanation, ModuleFunction,
    WithoutMachineCode,
};
use weir_units::Escape as _;
use weir_verify::{Callee, Rejection, Rule};

/// The most similar names in the error about an unknown function.
const SIMILAR_MAX: usize = 5;

/// A compiled module, and the facts that are printed about it.
pub(super) struct CompiledModuleFacts<'a> {
    pub(super) admitted: &'a Admitted,
    pub(super) explanation: &'a LlvmExplanation,
    lines: &'a Lines<'a>,
    pub(super) functions: Vec<CompiledFunctionFacts<'a>>,
}

/// A function in machine code, with its counts.
pub(super) struct CompiledFunctionFacts<'a> {
    pub(super) function: &'a ExplainedFunction,
    pub(super) name: String,
    pub(super) instructions: Vec<ReasonedInstruction<'a>>,
    pub(super) loops: Vec<MachineLoop<'a>>,
    pub(super) accesses: BTreeMap<PlaceKind, u64>,
}

impl CompiledFunctionFacts<'_> {
    /// Returns the number of instructions with a purpose.
    pub(super) fn count(&self, purpose: InstructionPurpose) -> usize {
        self.instructions.iter().filter(|instruction| instruction.purpose == Some(purpose)).count()
    }

    /// Returns the number of accesses.
    pub(super) fn access_count(&self) -> u64 {
        self.accesses.values().sum()
    }

    /// Returns the number of instructions without padding.
    pub(super) fn instruction_count(&self) -> usize {
        self.instructions.iter().filter(|instruction| instruction.explained.facts.is_reached).count()
    }
}

/// The functions that are explained.
pub(super) struct FunctionFilter(Option<Vec<usize>>);

impl FunctionFilter {
    /// Explains all functions.
    pub(super) fn all() -> Self {
        Self(None)
    }

    /// Returns true if the function at this place in [`CompiledModuleFacts::functions`] is explained.
    pub(super) fn has(&self, index: usize) -> bool {
        self.0.as_ref().is_none_or(|chosen| chosen.contains(&index))
    }
}

impl<'a> CompiledModuleFacts<'a> {
    /// Collects the facts about a module.
    pub(super) fn new(
        admitted: &'a Admitted,
        explanation: &'a LlvmExplanation,
        lines: &'a Lines<'a>,
    ) -> Self {
        let mut facts = Self { admitted, explanation, lines, functions: Vec::new() };
        let Ok(code) = &explanation.code else { return facts };
        let source_loops = SourceLoops::new(admitted);
        let mut rest = code.instructions.as_slice();
        for (index, function) in (0u32..).zip(&code.functions) {
            let count = rest.partition_point(|instruction| instruction.facts.function <= index);
            let (own, later) = rest.split_at(count);
            rest = later;
            let mut instructions: Vec<ReasonedInstruction<'a>> = own
                .iter()
                .map(|explained| {
                    let start = explained.facts.offset as usize;
                    let bytes = code.code.get(start..).unwrap_or_default();
                    let mut decoder =
                        Decoder::with_ip(64, bytes, explained.facts.offset.into(), DecoderOptions::NONE);
                    let broken = facts.broken_rule(explained.facts.offset);
                    ReasonedInstruction::new(explained, decoder.decode(), code, broken, |callee| {
                        facts.callee(callee)
                    })
                })
                .collect();
            mark_charges(&mut instructions, code);
            let mut accesses = BTreeMap::new();
            for kind in instructions.iter().filter_map(|instruction| instruction.kind) {
                *accesses.entry(kind).or_insert(0) += 1;
            }
            facts.functions.push(CompiledFunctionFacts {
                name: facts.function_name(&function.function),
                loops: source_loops.machine_loops(&function.function, &instructions),
                function,
                instructions,
                accesses,
            });
        }
        facts
    }

    /// Returns the machine code, if LLVM has made any.
    pub(super) fn code(&self) -> Option<&'a ExplainedCode> {
        self.explanation.code.as_ref().ok()
    }

    /// Returns the places at which the code breaks rules.
    pub(super) fn rejections(&self) -> &'a [Rejection] {
        let verdict = self.code().map(|code| &code.verdict);
        verdict.and_then(|verdict| verdict.as_ref().err()).map_or(&[], |rejections| rejections.list())
    }

    fn broken_rule(&self, offset: u32) -> Option<Rule> {
        self.rejections().iter().find(|rejection| rejection.offset == offset).map(|rejection| rejection.rule)
    }

    /// Returns the compiler of the code in which the module runs.
    pub(super) fn back_end(&self) -> BackEnd {
        if self.cranelift_reason().is_none() { BackEnd::Llvm } else { BackEnd::Cranelift }
    }

    /// Returns the reason why the module runs in Cranelift's code; `None` if it runs in LLVM's.
    pub(super) fn cranelift_reason(&self) -> Option<String> {
        match &self.explanation.code {
            Err(WithoutMachineCode::Machine(why)) => Some(why.clone()),
            Err(WithoutMachineCode::Unsupported { part, function: Some(function), offset }) => {
                let line = offset.and_then(|offset| self.lines.line(offset.into()));
                let place = match (line, offset) {
                    (Some(SourceLine { file, line }), _) => format!(" ({file}:{line})"),
                    (None, Some(offset)) => format!(" (byte {offset:#x} of the module)"),
                    (None, None) => String::new(),
                };
                let function = self.function_name(function);
                Some(format!("the lowering to LLVM does not support `{part}` in {function}{place}"))
            }
            Err(WithoutMachineCode::Unsupported { part, function: None, .. }) => {
                Some(format!("the lowering to LLVM does not support this: {part}"))
            }
            Err(WithoutMachineCode::Failed(error)) => {
                Some(format!("LLVM could not compile it: {}", error.to_string().escaped()))
            }
            Ok(code) => {
                let rejections = code.verdict.as_ref().err()?;
                let first = rejections.list().first()?;
                let count = rejections.list().len();
                let function = code.functions.get(first.function as usize);
                let function =
                    function.map_or(String::new(), |function| self.function_name(&function.function));
                let places = if count == 1 { "one place".to_owned() } else { format!("{count} places") };
                Some(format!(
                    "the verifier rejects the code of LLVM in {places}; the first is {function}+{:#x}: {}",
                    first.offset - code.functions.get(first.function as usize).map_or(0, |f| f.offset),
                    first.rule
                ))
            }
        }
    }

    /// Returns the object file of verified code, or the reason why there is none.
    pub(super) fn verified_object(&self) -> Result<&'a [u8], String> {
        match (self.cranelift_reason(), self.code()) {
            (None, Some(code)) => Ok(&code.object),
            (reason, _) => Err(reason.unwrap_or_default()),
        }
    }

    /// Returns the source line of an instruction.
    pub(super) fn line(&self, origin: CodeOrigin) -> Option<SourceLine> {
        match origin {
            CodeOrigin::Module(offset) => self.lines.line(offset.into()),
            CodeOrigin::Loader | CodeOrigin::Unknown => None,
        }
    }

    /// Returns the name of a function, escaped for a terminal.
    pub(super) fn function_name(&self, function: &ModuleFunction) -> String {
        match function {
            ModuleFunction::Own(index) => {
                self.lines.name(*index).unwrap_or_else(|| format!("function {index}"))
            }
            ModuleFunction::Loader(purpose) => format!("({purpose})"),
        }
    }

    /// Returns the name of a called function.
    pub(super) fn callee(&self, callee: Callee) -> String {
        let code = self.code();
        let name = match callee {
            Callee::Function(index) => code
                .and_then(|code| code.functions.get(index as usize))
                .map(|function| self.function_name(&function.function)),
            Callee::Thunk(index) => code.and_then(|code| code.thunks.get(index as usize).cloned()),
        };
        name.unwrap_or_else(|| "an unknown function".to_owned())
    }

    /// Returns the functions with this name. A number stands for the function with this index.
    pub(super) fn find(&self, name: &str) -> Result<FunctionFilter, CompileCommandError> {
        let has_index = |function: &ModuleFunction| matches!((function, name.parse::<u32>()), (ModuleFunction::Own(index), Ok(number)) if *index == number);
        let is_meant = |function: &CompiledFunctionFacts<'_>| {
            function.name == name
                || function.name.trim_matches(['(', ')']) == name
                || has_index(&function.function.function)
        };
        let chosen: Vec<usize> = self
            .functions
            .iter()
            .enumerate()
            .filter(|(_, function)| is_meant(function))
            .map(|(index, _)| index)
            .collect();
        // Without machine code there are no functions, and the summary states the reason.
        if !chosen.is_empty() || self.code().is_none() {
            return Ok(FunctionFilter(Some(chosen)));
        }
        let mut similar: Vec<&str> = self.functions.iter().map(|function| function.name.as_str()).collect();
        similar.sort_by_key(|known| (!known.contains(name), strsim::osa_distance(name, known)));
        similar.dedup();
        Err(CompileCommandError::UnknownFunction {
            name: name.to_owned(),
            similar: similar.into_iter().take(SIMILAR_MAX).map(str::to_owned).collect(),
        })
    }
}
