//! The line table of a module: the compiler's lines, without any information about the machine of the build.
//!
//! Code inlined into the author's code gets the author's line of the call.
//!
//! The debug information of compilers contains paths of the machine, and columns, types and scopes, which line numbers do not need. The
//! table is therefore rewritten as one line program of DWARF 4 (section 6.2), without paths of the machine.

use crate::folder::GENERATED;
use crate::inlined_calls::InlinedCalls;
use crate::rust::LIBRARY;
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use wasm_encoder::Encode;
use wasmparser::Operator;
use weir_bounds::{Lines, ParsedModule};

/// The name of the custom section.
pub(crate) const SECTION: &str = ".debug_line";

/// The smallest line advance of a special opcode (DWARF 4, section 6.2.5.1).
const LINE_BASE: i64 = -5;
/// The number of line advances of special opcodes.
const LINE_RANGE: i64 = 14;
/// The number of arguments of the standard opcodes 1 to 12.
const ARGUMENTS: [u8; 12] = [0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1];
/// The first special opcode.
const OPCODE_BASE: i64 = 13;
// Standard opcodes.
const COPY: u8 = 1;
const ADVANCE_PC: u8 = 2;
const ADVANCE_LINE: u8 = 3;
const SET_FILE: u8 = 4;

/// Returns the contents of the section for the linked module in this folder; empty if the linker left no lines.
pub(crate) fn line_table(linked: &[u8], dir: &Path) -> Vec<u8> {
    let Ok(module) = ParsedModule::parse(linked.to_vec()) else { return Vec::new() };
    let lines = Lines::new(&module);
    let calls = InlinedCalls::read(linked);
    let folders = [Some(dir.to_owned()), dir.canonicalize().ok(), std::path::absolute(dir).ok()];
    let mut files =
        SourceFiles { folders: folders.into_iter().flatten().collect(), ..SourceFiles::default() };
    let debug = DebugLines { rows: lines.rows().collect(), calls: &calls };
    let loops = loops(&module);
    let edges = loops.iter().flat_map(|body| [body.start, body.start + LOOP_BYTES]);
    let mut addresses: Vec<u32> =
        debug.rows.iter().map(|(address, _)| *address).chain(calls.edges()).chain(edges).collect();
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
        // The author's own line is preferred. Code without a line (line 0) gets the line of the code before it.
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

    /// Returns the line of the code at an address, then those of the enclosing inlined calls, innermost first. Empty without code.
    fn frames(&self, address: u32) -> Vec<(&'a str, u32)> {
        let Some(line) = self.line(address) else { return Vec::new() };
        let enclosing = self.calls.containing(address);
        std::iter::once(line)
            .chain(enclosing.iter().rev().filter_map(|call| self.calls.site(*call)))
            .collect()
    }

    /// Returns the line of a whole loop, then those of the enclosing inlined calls: the first line of the loop in the function that
    /// contains it in the source. The `loop` instruction itself mostly has the line of code that the compiler put before the loop.
    fn frames_of_loop(&self, body: &Range<u32>) -> Vec<(&'a str, u32)> {
        let first = self.rows.partition_point(|(address, _)| *address <= body.start);
        let inside = self.rows.get(first..).unwrap_or_default().iter();
        let inside = inside.take_while(|(address, _)| *address < body.end);
        // A row that begins before the loop is not counted, as its line is that of code before the loop.
        let has_line = |line: &Option<(&str, u32)>| line.is_some_and(|(_, line)| line > 0);
        let chains: Vec<(u32, Vec<usize>)> = inside
            .filter(|(_, line)| has_line(line))
            .map(|(address, _)| (*address, self.calls.containing(*address)))
            .collect();
        // The calls common to the whole loop; the innermost is the function that contains the loop in the source.
        let Some((_, shared)) = chains.first() else { return self.frames(body.start) };
        let len = (0..shared.len())
            .find(|depth| chains.iter().any(|(_, chain)| chain.get(*depth) != shared.get(*depth)))
            .unwrap_or(shared.len());
        let line = |(address, chain): &(u32, Vec<usize>)| match chain.get(len) {
            Some(call) => self.calls.site(*call),
            None => self.line(*address),
        };
        let lines: Vec<_> = chains.iter().filter_map(line).filter(|(_, line)| *line > 0).collect();
        let Some((file, _)) = lines.first() else { return self.frames(body.start) };
        let least = lines.iter().filter(|(other, _)| other == file).min_by_key(|(_, line)| *line).copied();
        let around = shared.get(..len).unwrap_or_default().iter().rev();
        least.into_iter().chain(around.filter_map(|call| self.calls.site(*call))).collect()
    }
}

/// Length of a `loop` instruction with its block type.
const LOOP_BYTES: u32 = 2;

/// Returns the loops of a module, each from its `loop` instruction to its `end`, as offsets in the code section's contents.
fn loops(module: &ParsedModule) -> Vec<Range<u32>> {
    let mut found = Vec::new();
    let code = module.code().start;
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

/// The files of the table, numbered from 1.
#[derive(Default)]
struct SourceFiles {
    folders: Vec<PathBuf>,
    names: Vec<String>,
    numbers: HashMap<String, u64>,
}

impl SourceFiles {
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

    /// Returns true for the author's files: those in the module's folder, except generated ones.
    fn is_author_file(&self, recorded: &str) -> bool {
        let path = normalize(Path::new(recorded));
        let inside = self.folders.iter().find_map(|folder| path.strip_prefix(folder).ok()).unwrap_or(&path);
        inside.is_relative() && !inside.starts_with(GENERATED) && !inside.starts_with(LIBRARY)
    }

    /// Returns the path of a source relative to the module's folder. For a file elsewhere, returns only the part that does not depend on the
    /// machine: the path from its crate's folder, or else its name.
    fn name(&self, recorded: &str) -> String {
        let path = normalize(Path::new(recorded));
        let inside = self.folders.iter().find_map(|folder| path.strip_prefix(folder).ok()).unwrap_or(&path);
        if inside.is_relative() {
            return inside.to_string_lossy().into_owned();
        }
        let parts: Vec<_> = inside.iter().skip(1).map(|part| part.to_string_lossy()).collect();
        // A generated file of another module's folder, if both share cargo's target folder.
        let generated = parts.iter().rposition(|part| part == GENERATED);
        let of_crate = || parts.iter().rposition(|part| part == "src")?.checked_sub(1);
        let first = generated.or_else(of_crate).unwrap_or(parts.len().saturating_sub(1));
        parts.get(first..).unwrap_or_default().join("/")
    }
}

/// Removes `.` and resolves `..` in a path.
fn normalize(path: &Path) -> PathBuf {
    let mut direct = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(direct.components().next_back(), Some(Component::Normal(_))) => {
                direct.pop();
            }
            part => direct.push(part),
        }
    }
    direct
}

/// Encodes a row of the table by the advances of its address and line from the last row.
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
    let mut lists = vec![1, 1, 1];
    lists.extend(LINE_BASE.to_le_bytes().first());
    lists.extend(LINE_RANGE.to_le_bytes().first());
    lists.extend(OPCODE_BASE.to_le_bytes().first());
    lists.extend(ARGUMENTS);
    // No folders; the folder, time and length of files are unknown.
    lists.push(0);
    for file in files {
        lists.extend(file.bytes().filter(|byte| *byte != 0));
        lists.extend([0, 0, 0, 0]);
    }
    lists.push(0);
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes();
    let mut unit = 4u16.to_le_bytes().to_vec();
    unit.extend(length(lists.len()));
    unit.extend(lists);
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
