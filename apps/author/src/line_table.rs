//! Writes the line table of a module, by which `weir check` names lines of the source. [`pack`](crate::pack::pack) adds it to
//! the module.
//!
//! The debug information of compilers contains paths of the machine of the build, and columns, types and scopes, which line
//! numbers do not need. The table is therefore rewritten as one line program of DWARF 4 (section 6.2), without such paths.
//! Library code that is inlined into the author's code gets the line of the call in the author's code.

use crate::folder::GENERATED;
use crate::inlined_calls::InlinedCalls;
use crate::rust::LIBRARY;
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use wasm_encoder::Encode;
use wasmparser::Operator;
use weir_bounds::{Lines, ParsedModule};

/// The name of the custom section with the line table.
pub(crate) const SECTION: &str = ".debug_line";

/// The smallest line advance of a special opcode (DWARF 4, section 6.2.5.1).
const LINE_BASE: i64 = -5;
/// The number of different line advances of special opcodes.
const LINE_RANGE: i64 = 14;
/// The numbers of arguments of the standard opcodes 1 to 12.
const ARGUMENT_COUNTS: [u8; 12] = [0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1];
/// The first special opcode.
const OPCODE_BASE: i64 = 13;
// Standard opcodes.
const COPY: u8 = 1;
const ADVANCE_PC: u8 = 2;
const ADVANCE_LINE: u8 = 3;
const SET_FILE: u8 = 4;

/// Returns the line table of a linked module. The table is empty if the module has no lines. `dir` is the module's folder.
pub(crate) fn line_table(linked: &[u8], dir: &Path) -> Vec<u8> {
    let Ok(module) = ParsedModule::parse(linked.to_vec()) else { return Vec::new() };
    let lines = Lines::new(&module);
    let calls = InlinedCalls::read(linked);
    let folders = [Some(dir.to_owned()), dir.canonicalize().ok(), std::path::absolute(dir).ok()];
    let mut files =
        SourceFiles { folders: folders.into_iter().flatten().collect(), ..SourceFiles::default() };
    let debug = DebugLines { rows: lines.rows().collect(), calls: &calls };
    let loops = loops(&module);
    // Each `loop` instruction gets a row of its own.
    let loop_boundaries = loops.iter().flat_map(|body| [body.start, body.start + LOOP_BYTES]);
    let mut addresses: Vec<u32> = debug
        .rows
        .iter()
        .map(|(address, _)| *address)
        .chain(calls.boundaries())
        .chain(loop_boundaries)
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    let mut program = Vec::new();
    // Address, file and line of the last row of the open sequence.
    let mut last: Option<(u32, u64, i64)> = None;
    for address in &addresses {
        let address = *address;
        let frames = match loops.iter().find(|body| body.start == address) {
            Some(body) => debug.frames_of_loop(body),
            None => debug.frames(address),
        };
        // A line of the author's files is preferred. Code without a line (line 0) gets the line of the code before it.
        let innermost = frames.first().copied();
        let author_line = frames.into_iter().find(|(file, line)| *line > 0 && files.is_author_file(file));
        let to = match (author_line.or(innermost), last) {
            (Some((_, 0)), Some((_, file, line))) => Some((file, line)),
            (Some((_, 0)) | None, _) => None,
            (Some((file, line)), _) => Some((files.number(file), i64::from(line))),
        };
        if last.map(|(_, file, line)| (file, line)) == to {
            continue;
        }
        let (from, file, line) = last.unwrap_or_else(|| {
            program.extend([0, 5, 2]);
            program.extend(address.to_le_bytes());
            (address, 1, 1)
        });
        let advance = i64::from(address) - i64::from(from);
        last = match to {
            Some((next_file, next_line)) => {
                if next_file != file {
                    program.push(SET_FILE);
                    next_file.encode(&mut program);
                }
                encode_row(&mut program, advance, next_line - line);
                Some((address, next_file, next_line))
            }
            None => {
                program.push(ADVANCE_PC);
                advance.unsigned_abs().encode(&mut program);
                program.extend([0, 1, 1]);
                None
            }
        };
    }
    if program.is_empty() { program } else { encode_unit(&files.names, &program) }
}

/// The compiler's line table and inlined calls.
struct DebugLines<'a> {
    /// The start address of each row with its file and line, sorted by address; `None` for addresses without code.
    rows: Vec<(u32, Option<(&'a str, u32)>)>,
    calls: &'a InlinedCalls,
}

impl<'a> DebugLines<'a> {
    fn line(&self, address: u32) -> Option<(&'a str, u32)> {
        let after = self.rows.partition_point(|(begin, _)| *begin <= address);
        self.rows.get(after.checked_sub(1)?)?.1
    }

    /// Returns the file and line of the code at an address, and then those of the call sites of the inlined calls around it,
    /// innermost first. Returns no lines for an address without code.
    fn frames(&self, address: u32) -> Vec<(&'a str, u32)> {
        let Some(line) = self.line(address) else { return Vec::new() };
        let enclosing = self.calls.containing(address);
        std::iter::once(line)
            .chain(enclosing.iter().rev().filter_map(|call| self.calls.call_site(*call)))
            .collect()
    }

    /// Returns the file and line of a loop, and then those of the call sites of the inlined calls around it, innermost first.
    ///
    /// The line of the loop is the lowest line number of its code, among the lines in the file of its first row. Code
    /// that was inlined into the loop counts with the line of its call site. The `loop` instruction itself mostly has
    /// the line of other code, which the compiler moved before the loop.
    fn frames_of_loop(&self, body: &Range<u32>) -> Vec<(&'a str, u32)> {
        let first = self.rows.partition_point(|(address, _)| *address <= body.start);
        let inside = self.rows.get(first..).unwrap_or_default().iter();
        let inside = inside.take_while(|(address, _)| *address < body.end);
        // The row of the `loop` instruction and earlier rows are left out: mostly they have lines of code before it.
        let has_line = |line: &Option<(&str, u32)>| line.is_some_and(|(_, line)| line > 0);
        // The address of each row with a line, and the chain of inlined calls around the address, outermost first.
        let chains: Vec<(u32, Vec<usize>)> = inside
            .filter(|(_, line)| has_line(line))
            .map(|(address, _)| (*address, self.calls.containing(*address)))
            .collect();
        // The inlined calls that enclose the whole loop are the common beginning of all chains. The last of them is the call of
        // the function that contains the loop in the source.
        let Some((_, first_chain)) = chains.first() else { return self.frames(body.start) };
        let common_len = (0..first_chain.len())
            .find(|depth| chains.iter().any(|(_, chain)| chain.get(*depth) != first_chain.get(*depth)))
            .unwrap_or(first_chain.len());
        let line = |(address, chain): &(u32, Vec<usize>)| match chain.get(common_len) {
            Some(call) => self.calls.call_site(*call),
            None => self.line(*address),
        };
        let lines: Vec<_> = chains.iter().filter_map(line).filter(|(_, line)| *line > 0).collect();
        let Some((file, _)) = lines.first() else { return self.frames(body.start) };
        let least_line =
            lines.iter().filter(|(other, _)| other == file).min_by_key(|(_, line)| *line).copied();
        let enclosing = first_chain.get(..common_len).unwrap_or_default().iter().rev();
        least_line.into_iter().chain(enclosing.filter_map(|call| self.calls.call_site(*call))).collect()
    }
}

/// Length of a `loop` instruction with its block type.
const LOOP_BYTES: u32 = 2;

/// Returns the loops of a module, each from its `loop` instruction to its `end`, as offsets in the code section's contents.
fn loops(module: &ParsedModule) -> Vec<Range<u32>> {
    let mut found = Vec::new();
    let code = module.code_range().start;
    for body in module.bodies() {
        let mut open = Vec::new();
        let Ok(operators) = body.get_operators_reader() else { continue };
        for (operator, offset) in operators.into_iter_with_offsets().flatten() {
            let at = u32::try_from(offset.saturating_sub(code)).unwrap_or(u32::MAX);
            match operator {
                Operator::Loop { .. } => open.push(Some(at)),
                Operator::Block { .. } | Operator::If { .. } => open.push(None),
                Operator::End => found.extend(open.pop().flatten().map(|begin| begin..at)),
                _ => {}
            }
        }
    }
    found
}

/// The source files of the table, numbered from 1.
#[derive(Default)]
struct SourceFiles {
    /// The paths of the module's folder: as given, canonical and absolute.
    folders: Vec<PathBuf>,
    names: Vec<String>,
    /// The numbers of the files by the paths that the compiler recorded.
    numbers: HashMap<String, u64>,
}

impl SourceFiles {
    /// Returns the number of the file with this recorded path. A new file is added to the table.
    fn number(&mut self, recorded: &str) -> u64 {
        if let Some(known) = self.numbers.get(recorded) {
            return *known;
        }
        let name = self.name(recorded);
        let known = self.names.iter().position(|known| *known == name);
        let index = known.unwrap_or_else(|| {
            self.names.push(name);
            self.names.len() - 1
        });
        let number = index as u64 + 1;
        self.numbers.insert(recorded.to_owned(), number);
        number
    }

    /// Returns true for the files of the module's author: those in the module's folder, except generated ones.
    fn is_author_file(&self, recorded: &str) -> bool {
        let path = normalize(Path::new(recorded));
        let inside = self.folders.iter().find_map(|folder| path.strip_prefix(folder).ok()).unwrap_or(&path);
        inside.is_relative() && !inside.starts_with(GENERATED) && !inside.starts_with(LIBRARY)
    }

    /// Returns a file's name in the table. `recorded` is the path of the file that the compiler recorded. The name does
    /// not depend on the machine of the build. For a file in the module's folder, the name is the path relative to that
    /// folder. For another file, the name is the path from its crate's folder, or else only the file name.
    fn name(&self, recorded: &str) -> String {
        let path = normalize(Path::new(recorded));
        let inside = self.folders.iter().find_map(|folder| path.strip_prefix(folder).ok()).unwrap_or(&path);
        if inside.is_relative() {
            return inside.to_string_lossy().into_owned();
        }
        let parts: Vec<_> = inside.iter().skip(1).map(|part| part.to_string_lossy()).collect();
        // The file can be a generated file of another module's folder, if both modules share cargo's target folder.
        let generated = parts.iter().rposition(|part| part == GENERATED);
        let of_crate = || parts.iter().rposition(|part| part == "src")?.checked_sub(1);
        let first = generated.or_else(of_crate).unwrap_or(parts.len().saturating_sub(1));
        parts.get(first..).unwrap_or_default().join("/")
    }
}

/// Removes `.` and resolves `..` in a path.
fn normalize(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(normal.components().next_back(), Some(Component::Normal(_))) => {
                normal.pop();
            }
            part => normal.push(part),
        }
    }
    normal
}

/// Encodes a row of the table. `address` and `line` are the row's advances from the previous row.
fn encode_row(program: &mut Vec<u8>, address: i64, line: i64) {
    let special_opcode = |address: i64, line: i64| {
        let is_in_range = (LINE_BASE..LINE_BASE + LINE_RANGE).contains(&line);
        is_in_range.then_some(line - LINE_BASE + LINE_RANGE * address + OPCODE_BASE)
    };
    if let Some(opcode) = special_opcode(address, line).and_then(|opcode| u8::try_from(opcode).ok()) {
        program.push(opcode);
        return;
    }
    program.push(ADVANCE_PC);
    address.unsigned_abs().encode(program);
    match special_opcode(0, line).and_then(|opcode| u8::try_from(opcode).ok()) {
        Some(opcode) => program.push(opcode),
        None => {
            program.push(ADVANCE_LINE);
            line.encode(program);
            program.push(COPY);
        }
    }
}

/// Encodes a line program with its header.
fn encode_unit(files: &[String], program: &[u8]) -> Vec<u8> {
    // The fields minimum_instruction_length, maximum_operations_per_instruction and default_is_stmt.
    let mut header = vec![1, 1, 1];
    header.extend(LINE_BASE.to_le_bytes().first());
    header.extend(LINE_RANGE.to_le_bytes().first());
    header.extend(OPCODE_BASE.to_le_bytes().first());
    header.extend(ARGUMENT_COUNTS);
    // No folders; the folder, time and length of files are unknown.
    header.push(0);
    for file in files {
        header.extend(file.bytes().filter(|byte| *byte != 0));
        header.extend([0, 0, 0, 0]);
    }
    header.push(0);
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes();
    let mut unit = 4u16.to_le_bytes().to_vec();
    unit.extend(length(header.len()));
    unit.extend(header);
    unit.extend(program);
    let mut whole = length(unit.len()).to_vec();
    whole.extend(unit);
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_do_not_depend_on_the_machine() {
        let files = SourceFiles { folders: vec![PathBuf::from("/home/user/mine")], ..SourceFiles::default() };
        let name = |recorded: &str| files.name(recorded);
        assert_eq!(name("/home/user/mine/.weir/weir-guest/src/ip.rs"), ".weir/weir-guest/src/ip.rs");
        assert_eq!(name("src/lib.rs"), "src/lib.rs");
        assert_eq!(name("/rustc/0123/library/core/src/slice/iter.rs"), "core/src/slice/iter.rs");
        assert_eq!(name("/home/user/.cargo/registry/src/index/sha-1.0/src/lib.rs"), "sha-1.0/src/lib.rs");
        assert_eq!(name("/usr/lib/clang/19/include/wasm_simd128.h"), "wasm_simd128.h");
        assert_eq!(name("/src/x.c"), "x.c");
        assert_eq!(name("src/../.weir/./module.rs"), ".weir/module.rs");
        assert_eq!(name("/tmp/other/.weir/weir-guest/src/ip.rs"), ".weir/weir-guest/src/ip.rs");
        assert_eq!(name("/"), "");
        for own in ["/home/user/mine/src/lib.rs", "mine.c", "./a/b.h"] {
            assert!(files.is_author_file(own), "{own}");
        }
        for other in [".weir/weir.h", "src/../.weir/module.rs", "rust/library/core/src/cmp.rs", "/usr/x.h"] {
            assert!(!files.is_author_file(other), "{other}");
        }
    }
}
