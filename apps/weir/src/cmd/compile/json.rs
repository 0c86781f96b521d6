//! The results of `weir compile` as one JSON document. The field names are stable; `docs/COMPILE.md` documents them.

use super::facts::{CompiledFunctionFacts, CompiledModuleFacts, FunctionFilter};
use super::listing;
use super::reason::{InstructionPurpose, PlaceKind, ReasonedInstruction};
use super::summary::host_calls;
use iced_x86::IntelFormatter;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};
use weir_sandbox::{CodeOrigin, ModuleFunction, WithoutMachineCode};
use weir_verify::{ObservedAccess, Place};

#[derive(Serialize)]
struct Document<'a> {
    module: &'a str,
    version: &'a str,
    back_end: String,
    /// The reason why the module does not run in LLVM's code.
    reason: Option<String>,
    unsupported: Option<UnsupportedPart>,
    rejections: Vec<RejectedPlace>,
    code_bytes: Option<usize>,
    constants_bytes: Option<usize>,
    stack_bound_bytes: Option<u64>,
    frame_max_bytes: Option<u32>,
    from_cache: bool,
    compiler_ns: Option<u64>,
    verifier_ns: Option<u64>,
    accesses: BTreeMap<&'static str, u64>,
    host_calls: BTreeMap<&'a str, usize>,
    functions: Vec<Function<'a>>,
}

/// The part of the module that the lowering does not support.
#[derive(Serialize)]
struct UnsupportedPart {
    part: String,
    function: Option<String>,
    offset: Option<u32>,
    file: Option<String>,
    line: Option<u32>,
}

#[derive(Serialize)]
struct RejectedPlace {
    function: Option<String>,
    offset: u32,
    instruction: Option<String>,
    rule: String,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    /// `None` for a function of the loader.
    index: Option<u32>,
    offset: u32,
    bytes: u32,
    instructions: usize,
    frame_bytes: Option<u32>,
    stack_bound_bytes: Option<u64>,
    accesses: BTreeMap<&'static str, u64>,
    spills: usize,
    reloads: usize,
    calls: usize,
    host_calls: usize,
    charges: usize,
    poll_points: usize,
    loops: Vec<Loop>,
    /// The instructions, if the function is explained.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<Vec<Line>>,
}

/// A loop of the machine code, with the bound of the loop of the module.
#[derive(Serialize)]
struct Loop {
    offset: u32,
    end: u32,
    /// The most iterations, as text; `None` if no loop of the module belongs to it.
    trips: Option<String>,
    file: Option<String>,
    line: Option<u32>,
}

#[derive(Serialize)]
struct Line {
    offset: u32,
    text: String,
    file: Option<String>,
    line: Option<u32>,
    module_offset: Option<u32>,
    reached: bool,
    access: Option<Access>,
    stack: Option<Access>,
    callee: Option<String>,
    purpose: Option<&'static str>,
    reason: Option<String>,
    rejected: Option<String>,
}

#[derive(Serialize)]
struct Access {
    place: Option<&'static str>,
    write: bool,
    bytes: u32,
    lo: Option<i64>,
    hi: Option<i64>,
}

/// Prints the document. The functions of `filter` have their instructions.
pub(super) fn print(
    out: &mut impl Write,
    facts: &CompiledModuleFacts<'_>,
    filter: Option<&FunctionFilter>,
) -> io::Result<()> {
    crate::json::document(out, &document(facts, filter))
}

fn document<'a>(facts: &'a CompiledModuleFacts<'_>, filter: Option<&FunctionFilter>) -> Document<'a> {
    let manifest = facts.admitted.manifest();
    let code = facts.code();
    let proved = code.filter(|code| code.verdict.is_ok());
    let mut accesses = PlaceKind::ALL.map(|kind| (kind.key(), 0)).into_iter().collect::<BTreeMap<_, _>>();
    for (kind, number) in facts.functions.iter().flat_map(|function| &function.accesses) {
        *accesses.entry(kind.key()).or_insert(0) += number;
    }
    let mut formatter = listing::formatter();
    Document {
        module: manifest.name.as_str(),
        version: &manifest.version,
        back_end: facts.back_end().to_string(),
        reason: facts.cranelift_reason(),
        unsupported: unsupported(facts),
        rejections: rejections(facts),
        code_bytes: code.map(|code| code.code.len()),
        constants_bytes: code.map(|code| code.constants_bytes),
        stack_bound_bytes: proved.and_then(|code| code.verdict.as_ref().ok().copied().flatten()),
        frame_max_bytes: proved.map(|code| {
            let frames = code.functions.iter().filter_map(|function| function.facts.as_ref());
            frames.map(|facts| facts.frame_bytes).max().unwrap_or(0)
        }),
        from_cache: facts.explanation.is_from_cache,
        compiler_ns: code
            .filter(|_| !facts.explanation.is_from_cache)
            .map(|_| facts.explanation.compiler_time.0),
        verifier_ns: code.map(|code| code.verifier_time.0),
        accesses,
        host_calls: host_calls(facts),
        functions: facts
            .functions
            .iter()
            .enumerate()
            .map(|(index, function)| {
                let is_explained = filter.is_some_and(|filter| filter.has(index));
                let lines = is_explained.then(|| {
                    function.instructions.iter().map(|at| line(facts, at, &mut formatter)).collect()
                });
                function_of(function, lines)
            })
            .collect(),
    }
}

fn unsupported(facts: &CompiledModuleFacts<'_>) -> Option<UnsupportedPart> {
    let Err(WithoutMachineCode::Unsupported { part, function, offset }) = &facts.explanation.code else {
        return None;
    };
    let place = offset.and_then(|offset| facts.line(CodeOrigin::Module(offset)));
    Some(UnsupportedPart {
        part: part.clone(),
        function: function.as_ref().map(|function| facts.function_name(function)),
        offset: *offset,
        file: place.as_ref().map(|place| place.file.clone()),
        line: place.as_ref().map(|place| place.line),
    })
}

fn rejections(facts: &CompiledModuleFacts<'_>) -> Vec<RejectedPlace> {
    let places = facts.rejections().iter().map(|rejection| {
        let function = facts.functions.get(rejection.function as usize);
        let mut instructions = function.into_iter().flat_map(|function| &function.instructions);
        let at = instructions.find(|at| at.explained.facts.offset == rejection.offset);
        RejectedPlace {
            function: function.map(|function| function.name.clone()),
            offset: rejection.offset,
            instruction: at.map(|at| listing::plain_text(&at.decoded)),
            rule: rejection.rule.to_string(),
        }
    });
    places.collect()
}

fn function_of<'a>(function: &'a CompiledFunctionFacts<'_>, code: Option<Vec<Line>>) -> Function<'a> {
    let proved = function.function.facts.as_ref();
    Function {
        name: &function.name,
        index: match function.function.function {
            ModuleFunction::Own(index) => Some(index),
            ModuleFunction::Loader(_) => None,
        },
        offset: function.function.offset,
        bytes: function.function.bytes,
        instructions: function.instruction_count(),
        frame_bytes: proved.map(|facts| facts.frame_bytes),
        stack_bound_bytes: proved.and_then(|facts| facts.stack_bound).map(|bytes| bytes + 8),
        accesses: PlaceKind::ALL
            .map(|kind| (kind.key(), function.accesses.get(&kind).copied().unwrap_or(0)))
            .into_iter()
            .collect(),
        spills: function.count(InstructionPurpose::Spill),
        reloads: function.count(InstructionPurpose::Reload),
        calls: function.count(InstructionPurpose::Call),
        host_calls: function.count(InstructionPurpose::HostCall),
        charges: function.count(InstructionPurpose::Charge),
        poll_points: function.count(InstructionPurpose::Poll),
        loops: function
            .loops
            .iter()
            .map(|found| {
                let place = found.bound.and_then(|bound| bound.place.line.as_ref());
                Loop {
                    offset: found.head,
                    end: found.end,
                    trips: found.bound.map(|bound| bound.trips.to_string()),
                    file: place.map(|place| place.file.clone()),
                    line: place.map(|place| place.line),
                }
            })
            .collect(),
        code,
    }
}

fn line(
    facts: &CompiledModuleFacts<'_>,
    at: &ReasonedInstruction<'_>,
    formatter: &mut IntelFormatter,
) -> Line {
    let observed = &at.explained.facts;
    let place = facts.line(at.explained.origin);
    let callee = observed.callee.map(|callee| facts.callee(callee));
    Line {
        offset: observed.offset,
        text: listing::text(&at.decoded, callee.clone(), formatter),
        file: place.as_ref().map(|place| place.file.clone()),
        line: place.as_ref().map(|place| place.line),
        module_offset: match at.explained.origin {
            CodeOrigin::Module(offset) => Some(offset),
            CodeOrigin::Loader | CodeOrigin::Unknown => None,
        },
        reached: observed.is_reached,
        access: observed.operand.map(|operand| access(operand, at.kind)),
        stack: observed.stack.map(|stack| access(stack, Some(PlaceKind::Frame))),
        callee,
        purpose: at.purpose.map(|purpose| match purpose {
            InstructionPurpose::Spill => "spill",
            InstructionPurpose::Reload => "reload",
            InstructionPurpose::Charge => "charge",
            InstructionPurpose::Poll => "poll",
            InstructionPurpose::Call => "call",
            InstructionPurpose::HostCall => "host_call",
        }),
        reason: at.reason.clone(),
        rejected: at.broken.map(|rule| rule.to_string()),
    }
}

fn access(access: ObservedAccess, kind: Option<PlaceKind>) -> Access {
    let (lo, hi) = match access.place {
        Ok(
            Place::Frame { lo, hi }
            | Place::StackArguments { lo, hi }
            | Place::Region { lo, hi }
            | Place::Constants { lo, hi },
        ) => (Some(lo), Some(hi)),
        Ok(Place::ReturnAddress) | Err(_) => (None, None),
    };
    Access {
        place: kind.filter(|_| access.place.is_ok()).map(PlaceKind::key),
        write: access.is_write,
        bytes: access.bytes,
        lo,
        hi,
    }
}
