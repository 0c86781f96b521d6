//! What the places of a module are called: functions by its names, instructions by the lines of the author's source.
//!
//! Both come from custom sections (the name section of WebAssembly, DWARF's line tables), which say nothing about what the module does and may
//! hold anything. So they are read only when a place has to be named, what cannot be read gives no names and no lines, and the work is bounded.

use crate::ParsedModule;
use crate::report::SourceLine;
use gimli::{DebugLine, DebugLineOffset, EndianSlice, LineInstruction, LineRow, LittleEndian, Reader as _};
use std::cell::OnceCell;
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use wasmparser::{ExternalKind, TypeRef};
use weir_units::shown;

/// The most functions that have a name.
const NAMES_MAX: usize = 1 << 18;
/// The most instructions of line programs that are carried out, those of all compilation units together.
const INSTRUCTIONS_MAX: usize = 1 << 20;
/// The most places in the code at which the line changes.
const ROWS_MAX: usize = 1 << 18;
/// The most source files, those of all compilation units together.
const FILES_MAX: usize = 4096;
/// The longest header of a line program, in bytes: a list of folders and files.
const HEADER_MAX: usize = 1 << 16;
/// The longest part of a file's path, in bytes.
const PATH_MAX: usize = 512;
/// The most characters of a name.
const NAME_MAX: usize = 200;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Names and lines of a module.
#[derive(Debug)]
pub struct Lines<'a> {
    module: &'a ParsedModule,
    /// By the index of the function; the first name counts.
    names: OnceCell<Vec<(u32, &'a str)>>,
    table: OnceCell<Table>,
}

/// The line tables of all compilation units.
#[derive(Debug, Default)]
struct Table {
    rows: Vec<Row>,
    /// Each once for each compilation unit that names it.
    files: Vec<String>,
}

/// From this address on, until the next one.
#[derive(Clone, Copy, Debug)]
struct Row {
    address: u32,
    /// File and line, 0 for code that no line has to answer for; nothing where a sequence of code ends. Two rows with line 0 do not follow each other.
    line: Option<(u32, u32)>,
}

impl<'a> Lines<'a> {
    /// Of this module, of whose names and tables nothing is read yet.
    pub const fn new(module: &'a ParsedModule) -> Self {
        Self { module, names: OnceCell::new(), table: OnceCell::new() }
    }

    /// What the author calls a function; failing that, what it is exported as. What does not show as itself is escaped.
    pub fn name(&self, function: u32) -> Option<String> {
        let names = self.names.get_or_init(|| names(self.module));
        let first = names.partition_point(|(index, _)| *index < function);
        let (_, name) = names.get(first).filter(|(index, _)| *index == function)?;
        Some(shown(&demangled(name))).filter(|name| !name.is_empty())
    }

    /// The line that the instruction at this offset in the module's bytes was made from; of inlined code, its own. What does not show as itself
    /// in the file's name is escaped.
    pub fn line(&self, offset: u64) -> Option<SourceLine> {
        let table = self.table();
        let address = offset.checked_sub(self.module.code().start)?;
        let after = table.rows.partition_point(|row| u64::from(row.address) <= address);
        let at = |before: usize| table.rows.get(after.checked_sub(before)?)?.line;
        // What no line has to answer for counts as what was before it.
        let (file, line) = at(1).filter(|(_, line)| *line > 0).or_else(|| at(1).and(at(2)))?;
        Some(SourceLine { file: table.files.get(file as usize)?.clone(), line })
    }

    /// From which offset in the contents of the code section on which line holds, or none; ascending. Line 0 is code that no line has to answer for.
    pub fn rows(&self) -> impl Iterator<Item = (u32, Option<(&str, u32)>)> {
        let table = self.table();
        table.rows.iter().map(|row| {
            let line =
                row.line.and_then(|(file, line)| Some((table.files.get(file as usize)?.as_str(), line)));
            (row.address, line)
        })
    }

    fn table(&self) -> &Table {
        self.table.get_or_init(|| Table::read(self.module))
    }
}

/// The names of functions: those that the author gave go before those of imports and exports.
fn names(module: &ParsedModule) -> Vec<(u32, &str)> {
    let mut names: Vec<_> = module.function_names().take(NAMES_MAX).collect();
    let imports = module.imports.iter().filter(|import| matches!(import.ty, TypeRef::Func(_)));
    names.extend((0..).zip(imports.map(|import| import.name.as_str())).take(NAMES_MAX));
    let exports = module.exports.iter().filter(|export| export.kind == ExternalKind::Func);
    names.extend(exports.map(|export| (export.index, export.name.as_str())).take(NAMES_MAX));
    // The sort keeps the order of equals.
    names.sort_by_key(|(index, _)| *index);
    names
}

/// The sections that lines are read from.
struct Sections<'a> {
    code_len: u64,
    debug_line_str: &'a [u8],
    debug_str: &'a [u8],
}

impl Table {
    /// Reads one line program after the other. They are found by their lengths and not by the units that mean them: several units could mean the same
    /// one, again and again.
    fn read(module: &ParsedModule) -> Self {
        let [debug_line, debug_line_str, debug_str] = module.debug();
        let code = module.code();
        let sections = &Sections { code_len: code.end - code.start, debug_line_str, debug_str };
        let mut table = Self::default();
        let mut instructions = INSTRUCTIONS_MAX;
        let mut rest = EndianSlice::new(debug_line, LittleEndian);
        while !rest.is_empty() && instructions > 0 && table.rows.len() < ROWS_MAX {
            let begin = rest;
            let Ok((length, format)) = rest.read_initial_length() else { break };
            let Ok(unit) = rest.split(length) else { break };
            if header_length(unit, format).is_ok_and(|length| length <= HEADER_MAX) {
                // What was read of a broken program is as good as that of a whole one.
                let _ = table.unit(begin, sections, &mut instructions);
            }
        }
        // Where one sequence ends, another may begin.
        table.rows.sort_by_key(|row| (row.address, row.line.is_some()));
        table
    }

    fn unit(&mut self, unit: Slice<'_>, sections: &Sections<'_>, budget: &mut usize) -> gimli::Result<()> {
        let mut program = DebugLine::from(unit).program(DebugLineOffset(0), 4, None, None)?;
        let mut instructions = program.header().instructions();
        let mut row = LineRow::new(program.header());
        let mut files = HashMap::new();
        let mut is_live = None;
        let mut last = None;
        while let Some(instruction) = instructions.next_instruction(program.header())? {
            match budget.checked_sub(1) {
                Some(rest) if self.rows.len() < ROWS_MAX => *budget = rest,
                _ => break,
            }
            match instruction {
                // A file that is named between the lines; nobody does that, and the list could grow without limit. And a number whose absolute
                // value is none.
                LineInstruction::DefineFile(_) | LineInstruction::AdvanceLine(i64::MIN) => continue,
                // Of functions that the linker left out the address is 0 or beyond the code.
                LineInstruction::SetAddress(address) => {
                    is_live = Some(address > 0 && address < sections.code_len);
                }
                _ => {}
            }
            if !row.execute(instruction, &mut program)? {
                continue;
            }
            if let (Some(true), Ok(address)) = (is_live, u32::try_from(row.address())) {
                let line = if row.end_sequence() {
                    None
                } else {
                    let index = row.file_index();
                    let file = files.entry(index).or_insert_with(|| self.file(&program, index, sections));
                    let line = row.line().and_then(|line| u32::try_from(line.get()).ok()).unwrap_or(0);
                    (*file).map(|file| (file, line))
                };
                let is_still_none = matches!((last, line), (Some(Some((_, 0))), Some((_, 0))));
                if last != Some(line) && !is_still_none {
                    self.rows.push(Row { address, line });
                    last = Some(line);
                }
            }
            if row.end_sequence() {
                (is_live, last) = (None, None);
            }
            row.reset(program.header());
        }
        // A sequence that does not end would claim all code behind it.
        if let (Some(Some(_)), Ok(address)) = (last, u32::try_from(row.address())) {
            self.rows.push(Row { address, line: None });
        }
        Ok(())
    }

    /// The path of a file of this unit; its place in `files`.
    fn file<'a>(
        &mut self,
        program: &gimli::IncompleteLineProgram<Slice<'a>>,
        index: u64,
        sections: &Sections<'a>,
    ) -> Option<u32> {
        if self.files.len() >= FILES_MAX {
            return None;
        }
        let header = program.header();
        let entry = header.file(index)?;
        let name = text(&entry.path_name(), sections)?;
        let folder = entry.directory(header).and_then(|folder| text(&folder, sections));
        // Folder 0 is where the compiler was called, and what the others begin from; before version 5 the table does not have it.
        let first = header.include_directories().first().filter(|_| header.version() >= 5);
        let first = first.filter(|_| entry.directory_index() != 0).and_then(|first| text(first, sections));
        let path = [first, folder].into_iter().flatten().rfold(name, |path, folder| {
            if folder.is_empty() || path.starts_with('/') { path } else { format!("{folder}/{path}") }
        });
        self.files.push(shown(path.trim_start_matches("./")));
        u32::try_from(self.files.len() - 1).ok()
    }
}

/// How long the list of folders and files of a line program is, with what else stands before its instructions.
fn header_length(mut unit: Slice<'_>, format: gimli::Format) -> gimli::Result<usize> {
    if unit.read_u16()? >= 5 {
        // Sizes of addresses and of segment selectors.
        unit.skip(2)?;
    }
    unit.read_length(format)
}

/// A text of a line program's header, wherever it is kept.
fn text(value: &gimli::AttributeValue<Slice<'_>>, sections: &Sections<'_>) -> Option<String> {
    let bytes: &[u8] = match value {
        gimli::AttributeValue::String(text) => text.slice(),
        gimli::AttributeValue::DebugLineStrRef(offset) => sections.debug_line_str.get(offset.0..)?,
        gimli::AttributeValue::DebugStrRef(offset) => sections.debug_str.get(offset.0..)?,
        _ => return None,
    };
    let bytes = bytes.get(..PATH_MAX).unwrap_or(bytes);
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    Some(String::from_utf8_lossy(bytes.get(..end)?).into_owned())
}

/// The name as the author wrote it, where it is a mangled one of Rust, without the hash at its end.
fn demangled(name: &str) -> String {
    /// Takes so many characters and no more: a short name can stand for a very long one.
    struct Short(String);
    impl fmt::Write for Short {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let room = NAME_MAX.saturating_sub(self.0.chars().count());
            self.0.extend(text.chars().take(room));
            if text.chars().count() > room { Err(fmt::Error) } else { Ok(()) }
        }
    }
    let mut short = Short(String::new());
    // The only error is that it is too long.
    let _ = write!(short, "{:#}", rustc_demangle::demangle(name));
    short.0
}
