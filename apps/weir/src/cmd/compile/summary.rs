//! The summary of `weir compile`: the back end, the sizes and counts of the machine code, and a table of functions.

use super::facts::{CompiledFunctionFacts, CompiledModuleFacts};
use super::reason::{InstructionPurpose, PlaceKind};
use crate::cmd::check::paint::{Paint, TextStyle, wrapped};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use weir_sandbox::ExplainedCode;
use weir_units::{Bytes, Escape as _};
use weir_verify::Callee;

/// The indent of the text after a heading.
const INDENT: usize = 10;
/// The most rejections that the summary lists.
const REJECTIONS_SHOWN: usize = 8;

/// Prints the summary. `output` is the object file that was written.
pub(super) fn print(
    out: &mut impl Write,
    facts: &CompiledModuleFacts<'_>,
    output: Option<&Path>,
    paint: Paint,
) -> io::Result<()> {
    let manifest = facts.admitted.manifest();
    let title = format!("{} {}", manifest.name, manifest.version);
    writeln!(out, "{}: {}", paint.paint(TextStyle::Strong, &title), manifest.summary)?;
    let line = |name: &str, text: &str| wrapped(&format!("{name:<INDENT$}"), INDENT, text);
    let back_end = match facts.cranelift_reason() {
        None => format!(
            "{}: the verifier has proved that the code accesses only the module's memory, stack and constants",
            paint.paint(TextStyle::Good, "LLVM")
        ),
        Some(why) => format!("{}: {why}", paint.paint(TextStyle::Warm, "Cranelift")),
    };
    writeln!(out, "{}", line("Back end:", &back_end))?;
    let Some(code) = facts.code() else { return Ok(()) };
    let sizes = format!(
        "{} of machine code in {}, {} instructions; {} of constants",
        Bytes(code.code.len() as u64),
        count(code.functions.len(), "function"),
        facts.functions.iter().map(CompiledFunctionFacts::instruction_count).sum::<usize>(),
        Bytes(code.constants_bytes as u64),
    );
    writeln!(out, "{}", line("Code:", &sizes))?;
    let compiler = if facts.explanation.is_from_cache {
        "from the cache".to_owned()
    } else {
        format!("clang took {} of processor time", facts.explanation.compiler_time)
    };
    writeln!(out, "{}", line("Compiled:", &format!("{compiler}; the verifier took {}", code.verifier_time)))?;
    if code.verdict.is_ok() {
        writeln!(out, "{}", line("Stack:", &stack_text(code)))?;
    }
    writeln!(out, "{}", line("Accesses:", &accesses_text(facts)))?;
    writeln!(out, "{}", line("Host:", &host_calls_text(facts)))?;
    if let Some(path) = output {
        writeln!(out, "{}", line("Written:", &path.escaped().to_string()))?;
    }
    print_rejections(out, facts, paint)?;
    print_functions(out, facts, paint)
}

/// Returns a number with its noun, in the plural unless the number is 1.
pub(super) fn count(number: usize, noun: &str) -> String {
    let end = if number == 1 {
        ""
    } else if noun.ends_with("ss") {
        "es"
    } else {
        "s"
    };
    format!("{number} {noun}{end}")
}

fn stack_text(code: &ExplainedCode) -> String {
    let bound = match code.verdict.as_ref() {
        Ok(Some(bytes)) => format!("at most {} for any call", Bytes(*bytes)),
        _ => "no bound, because functions call themselves; its end is an inaccessible page".to_owned(),
    };
    let frames = code.functions.iter().filter_map(|function| function.facts.as_ref());
    let largest = frames.map(|facts| facts.frame_bytes).max().unwrap_or(0);
    format!("{bound}; the largest frame has {}", Bytes(largest.into()))
}

/// Returns the numbers of accesses by place, for a row of text.
fn accesses_text(facts: &CompiledModuleFacts<'_>) -> String {
    let of = |kind| facts.functions.iter().filter_map(|function| function.accesses.get(&kind)).sum::<u64>();
    let all: u64 = PlaceKind::ALL.into_iter().map(of).sum();
    let memory = of(PlaceKind::Memory) + of(PlaceKind::CheckedMemory);
    let checked = match of(PlaceKind::CheckedMemory) {
        0 => "none with a check at run time".to_owned(),
        checked => format!("{checked} with a check at run time"),
    };
    let isolated = facts.code().into_iter().flat_map(|code| &code.instructions).filter(|one| one.is_isolated);
    let again = match isolated.count() {
        0 => String::new(),
        number => format!(", {number} compiled again after a rejection"),
    };
    let others = [
        (PlaceKind::Global, "globals"),
        (PlaceKind::Frame, "frames"),
        (PlaceKind::Constants, "constants"),
        (PlaceKind::Arguments, "arguments on the stack"),
    ];
    let others = others.map(|(kind, noun)| (of(kind), noun)).into_iter().filter(|(number, _)| *number > 0);
    let others: String = others.map(|(number, noun)| format!(", {number} to {noun}")).collect();
    format!("{all}: {memory} to the module's memory ({checked}{again}){others}")
}

fn host_calls_text(facts: &CompiledModuleFacts<'_>) -> String {
    let calls = host_calls(facts);
    let sum: usize = calls.values().sum();
    if sum == 0 {
        return "no calls of host functions".to_owned();
    }
    let each: Vec<String> = calls.iter().map(|(name, number)| format!("{name} {number}")).collect();
    format!("{} of host functions: {}", count(sum, "call"), each.join(", "))
}

/// Returns the number of call instructions for each host function.
pub(super) fn host_calls<'a>(facts: &CompiledModuleFacts<'a>) -> BTreeMap<&'a str, usize> {
    let mut calls = BTreeMap::new();
    let Some(code) = facts.code() else { return calls };
    for instruction in &code.instructions {
        if let Some(Callee::Thunk(thunk)) = instruction.facts.callee
            && let Some(name) = code.thunks.get(thunk as usize)
        {
            *calls.entry(name.as_str()).or_insert(0) += 1;
        }
    }
    calls
}

fn print_rejections(out: &mut impl Write, facts: &CompiledModuleFacts<'_>, paint: Paint) -> io::Result<()> {
    let rejections = facts.rejections();
    if rejections.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{}", paint.paint(TextStyle::Bad, "Rejected:"))?;
    for rejection in rejections.iter().take(REJECTIONS_SHOWN) {
        let function = facts.functions.get(rejection.function as usize);
        let name = function.map_or("the image", |function| function.name.as_str());
        let at = function.into_iter().flat_map(|function| &function.instructions);
        let at = at.into_iter().find(|at| at.explained.facts.offset == rejection.offset);
        let text = at.map_or(String::new(), |at| format!(", `{}`", super::listing::plain_text(&at.decoded)));
        writeln!(
            out,
            "{}",
            wrapped("  ", 6, &format!("{name}, offset {:x}{text}: {}", rejection.offset, rejection.rule))
        )?;
    }
    if rejections.len() > REJECTIONS_SHOWN {
        writeln!(out, "  and {} more", rejections.len() - REJECTIONS_SHOWN)?;
    }
    Ok(())
}

fn print_functions(out: &mut impl Write, facts: &CompiledModuleFacts<'_>, paint: Paint) -> io::Result<()> {
    let heading = [
        "FUNCTION",
        "BYTES",
        "INSTRUCTIONS",
        "FRAME",
        "STACK",
        "ACCESSES",
        "SPILLS",
        "RELOADS",
        "CALLS",
        "LOOPS",
    ];
    let mut rows = vec![heading.map(str::to_owned)];
    for function in &facts.functions {
        let proved = function.function.facts.as_ref();
        let stack = proved
            .map(|facts| facts.stack_bound.map_or("recursive".to_owned(), |bytes| (bytes + 8).to_string()));
        let calls = function.count(InstructionPurpose::Call) + function.count(InstructionPurpose::HostCall);
        rows.push([
            function.name.clone(),
            function.function.bytes.to_string(),
            function.instruction_count().to_string(),
            proved.map_or("-".to_owned(), |facts| facts.frame_bytes.to_string()),
            stack.unwrap_or_else(|| "-".to_owned()),
            function.access_count().to_string(),
            function.count(InstructionPurpose::Spill).to_string(),
            function.count(InstructionPurpose::Reload).to_string(),
            calls.to_string(),
            function.loops.len().to_string(),
        ]);
    }
    let widths: Vec<usize> = (0..heading.len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    writeln!(out)?;
    for (number, row) in rows.iter().enumerate() {
        let mut line = String::new();
        for (column, (text, width)) in row.iter().zip(&widths).enumerate() {
            let padding = " ".repeat(width - text.chars().count());
            line.push_str(if column == 0 { "" } else { "  " });
            line.push_str(&if column == 0 { format!("{text}{padding}") } else { format!("{padding}{text}") });
        }
        let style = if number == 0 { TextStyle::Strong } else { TextStyle::Plain };
        writeln!(out, "{}", paint.paint(style, line.trim_end()))?;
    }
    Ok(())
}
