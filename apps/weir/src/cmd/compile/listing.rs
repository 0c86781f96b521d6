//! The output of `weir compile --explain`: machine code below the source lines that it comes from, with the reason for each access.

use super::facts::{CompiledFunctionFacts, CompiledModuleFacts, FunctionFilter};
use super::loops::MachineLoop;
use super::reason::{InstructionPurpose, ReasonedInstruction};
use super::summary::count;
use crate::cmd::check::paint::{Paint, TextStyle, plain_line, wrapped};
use crate::cmd::check::source::{SourceText, Sources};
use iced_x86::{Formatter, Instruction, IntelFormatter, Mnemonic, Register};
use std::collections::BTreeMap;
use std::io::{self, Write};
use weir_bounds::SourceLine;
use weir_sandbox::{CodeOrigin, ModuleFunction};
use weir_units::Bytes;

/// The columns of an instruction, before the reason.
const INSTRUCTION_COLUMNS: usize = 44;
/// The most columns of a source line.
const SOURCE_COLUMNS_MAX: usize = 88;
/// The largest module that is printed as WebAssembly text. The text is many times larger than the module.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// The lines of sources, and of the WebAssembly text where there is no source.
struct SourceLines<'a> {
    sources: &'a Sources,
    files: BTreeMap<String, Option<SourceText>>,
    /// The lines of the WebAssembly text by offset.
    text: BTreeMap<u32, String>,
}

impl<'a> SourceLines<'a> {
    fn new(sources: &'a Sources, module: &[u8]) -> Self {
        let (mut storage, mut text) = (String::new(), BTreeMap::new());
        if module.len() <= TEXT_BYTES_MAX
            && let Ok(lines) = wasmprinter::Config::new().offsets_and_lines(module, &mut storage)
        {
            let placed = lines.filter_map(|(offset, line)| Some((u32::try_from(offset?).ok()?, line)));
            text.extend(placed.map(|(offset, line)| (offset, line.trim().to_owned())));
        }
        Self { sources, files: BTreeMap::new(), text }
    }

    /// Returns the heading of the code from an origin.
    fn heading(&mut self, origin: CodeOrigin, line: Option<&SourceLine>) -> [String; 2] {
        match (line, origin) {
            (Some(SourceLine { file, line }), _) => {
                let sources = self.sources;
                let source = self.files.entry(file.clone()).or_insert_with(|| sources.read(file));
                let text = source.as_ref().and_then(|source| source.text.lines().nth(*line as usize - 1));
                [format!("{file}:{line}"), text.unwrap_or_default().trim().to_owned()]
            }
            (None, CodeOrigin::Module(offset)) => {
                [format!("{offset:#x}"), self.text.get(&offset).cloned().unwrap_or_default()]
            }
            (None, CodeOrigin::Loader) => ["(added by weir)".to_owned(), String::new()],
            (None, CodeOrigin::Unknown) => ["(no source position)".to_owned(), String::new()],
        }
    }
}

/// Prints the machine code of functions.
pub(super) fn print(
    out: &mut impl Write,
    facts: &CompiledModuleFacts<'_>,
    filter: &FunctionFilter,
    sources: &Sources,
    paint: Paint,
) -> io::Result<()> {
    let mut lines = SourceLines::new(sources, facts.admitted.bytes());
    let mut formatter = formatter();
    for (_, function) in facts.functions.iter().enumerate().filter(|(index, _)| filter.has(*index)) {
        print_function(out, facts, function, &mut lines, &mut formatter, paint)?;
    }
    Ok(())
}

fn print_function(
    out: &mut impl Write,
    facts: &CompiledModuleFacts<'_>,
    function: &CompiledFunctionFacts<'_>,
    lines: &mut SourceLines<'_>,
    formatter: &mut IntelFormatter,
    paint: Paint,
) -> io::Result<()> {
    writeln!(out, "\n{}: {}", paint.paint(TextStyle::Strong, &function.name), heading(function))?;
    let mut last = None;
    let is_padding = |instruction: &&ReasonedInstruction<'_>| {
        let is_empty = matches!(instruction.decoded.mnemonic(), Mnemonic::Int3 | Mnemonic::Nop);
        is_empty && !instruction.explained.facts.is_reached && instruction.broken.is_none()
    };
    for instruction in function.instructions.iter().filter(|instruction| !is_padding(instruction)) {
        let at = instruction.explained.facts.offset;
        let origin = instruction.explained.origin;
        let line = facts.line(origin);
        let key = (line.clone(), if line.is_some() { CodeOrigin::Unknown } else { origin });
        if last.as_ref() != Some(&key) {
            let [place, text] = lines.heading(origin, line.as_ref());
            let text = plain_line(&text, SOURCE_COLUMNS_MAX);
            let place = paint.paint(TextStyle::Faint, &place);
            writeln!(out, "{}", format!("  {place}  {}", paint.paint(TextStyle::Strong, &text)).trim_end())?;
            last = Some(key);
        }
        if let Some(found) = function.loops.iter().find(|found| found.head == at) {
            writeln!(out, "{}", paint.paint(TextStyle::Warm, &wrapped("        ", 10, &loop_text(found))))?;
        }
        print_instruction(out, facts, instruction, formatter, paint)?;
    }
    Ok(())
}

/// Returns the sizes and counts of a function.
fn heading(function: &CompiledFunctionFacts<'_>) -> String {
    let index = match function.function.function {
        ModuleFunction::Own(index) => format!("function {index}, "),
        ModuleFunction::Loader(_) => "added by weir, ".to_owned(),
    };
    let instructions = count(function.instruction_count(), "instruction");
    let stack = match &function.function.facts {
        Some(facts) => {
            let bound = facts.stack_bound.map_or("no stack bound, as it is recursive".to_owned(), |bytes| {
                format!("at most {} of stack with its callees", Bytes(bytes + 8))
            });
            format!(", frame of {}, {bound}", Bytes(facts.frame_bytes.into()))
        }
        None => String::new(),
    };
    let purposes = [
        (InstructionPurpose::Spill, "spill"),
        (InstructionPurpose::Reload, "reload"),
        (InstructionPurpose::Charge, "charge"),
        (InstructionPurpose::Poll, "poll point"),
    ];
    let counts: String = purposes
        .into_iter()
        .map(|(purpose, noun)| (function.count(purpose), noun))
        .filter(|(number, _)| *number > 0)
        .map(|(number, noun)| format!(", {}", count(number, noun)))
        .collect();
    format!("{index}{} in {instructions}{stack}{counts}", Bytes(function.function.bytes.into()))
}

/// Returns the text at the first instruction of a loop.
fn loop_text(found: &MachineLoop<'_>) -> String {
    match found.bound {
        None => format!("loop; the last jump back is at {:x}", found.end),
        Some(bound) => {
            let trips = if bound.trips.is_bounded() {
                format!("at most {} iterations", bound.trips)
            } else {
                "no bound on the iterations".to_owned()
            };
            let place = match &bound.place.line {
                Some(SourceLine { file, line }) => format!("{file}:{line}"),
                None => format!("{:#x}", bound.place.offset),
            };
            format!("loop; the last jump back is at {:x}; the loop at {place} has {trips}", found.end)
        }
    }
}

fn print_instruction(
    out: &mut impl Write,
    facts: &CompiledModuleFacts<'_>,
    instruction: &ReasonedInstruction<'_>,
    formatter: &mut IntelFormatter,
    paint: Paint,
) -> io::Result<()> {
    let at = instruction.explained.facts.offset;
    let text = text(
        &instruction.decoded,
        instruction.explained.facts.callee.map(|callee| facts.callee(callee)),
        formatter,
    );
    let padding = " ".repeat(INSTRUCTION_COLUMNS.saturating_sub(text.chars().count()));
    let (style, reason) = match (&instruction.broken, &instruction.reason) {
        (Some(rule), _) => (TextStyle::Bad, format!("REJECTED: {rule}")),
        (None, Some(reason)) => (style(instruction.purpose), reason.clone()),
        (None, None) if !instruction.explained.facts.is_reached && facts.rejections().is_empty() => {
            (TextStyle::Faint, "never executed".to_owned())
        }
        (None, None) => (TextStyle::Plain, String::new()),
    };
    let row = format!(
        "    {}  {text}{padding}  {}",
        paint.paint(TextStyle::Faint, &format!("{at:>6x}")),
        paint.paint(style, &reason)
    );
    writeln!(out, "{}", row.trim_end())
}

fn style(purpose: Option<InstructionPurpose>) -> TextStyle {
    match purpose {
        Some(
            InstructionPurpose::Spill
            | InstructionPurpose::Reload
            | InstructionPurpose::Charge
            | InstructionPurpose::Poll,
        ) => TextStyle::Warm,
        Some(InstructionPurpose::Call | InstructionPurpose::HostCall) => TextStyle::Strong,
        None => TextStyle::Good,
    }
}

/// Returns a formatter for Intel syntax.
pub(super) fn formatter() -> IntelFormatter {
    let mut formatter = IntelFormatter::new();
    let options = formatter.options_mut();
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_uppercase_hex(false);
    options.set_leading_zeros(false);
    options.set_branch_leading_zeros(false);
    options.set_show_branch_size(false);
    options.set_space_after_operand_separator(true);
    options.set_space_between_memory_add_operators(true);
    options.set_rip_relative_addresses(true);
    options.set_small_hex_numbers_in_decimal(true);
    options.set_signed_immediate_operands(true);
    formatter
}

/// Returns an instruction in Intel syntax. The target of a call is the name of the callee.
pub(super) fn text(
    instruction: &Instruction,
    callee: Option<String>,
    formatter: &mut IntelFormatter,
) -> String {
    match callee {
        Some(name) => format!("call {name}"),
        None => {
            let mut text = String::new();
            formatter.format(instruction, &mut text);
            // An address without a register is shown as a number below 2^64 otherwise.
            let displacement = instruction.memory_displacement64();
            let is_absolute =
                instruction.memory_base() == Register::None && instruction.memory_index() == Register::None;
            if is_absolute && displacement.cast_signed() < 0 {
                let magnitude = displacement.cast_signed().unsigned_abs();
                text = text.replace(&format!("[{displacement:#x}]"), &format!("[-{magnitude}]"));
            }
            text
        }
    }
}

/// Returns an instruction in Intel syntax, without the name of a callee.
pub(super) fn plain_text(instruction: &Instruction) -> String {
    text(instruction, None, &mut formatter())
}
