//! Names of functions, and lines of the author's source for instructions.
//!
//! Both come from custom sections: WebAssembly's name section and DWARF's line tables. These sections do not affect
//! execution and may contain anything. So the sections are read only when a message needs a name or a line, the
//! work is bounded, and unreadable parts are ignored.

use crate::ParsedModule;
use crate::report::SourceLine;
use gimli::{DebugLine, DebugLineOffset, EndianSlice, LineInstruction, LineRow, LittleEndian, Reader as _};
use std::cell::OnceCell;
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use wasmparser::{ExternalKind, TypeRef};
use weir_units::escaped;

/// The most function names that are read from the name section; the same limit applies to imports and to exports.
const NAMES_MAX: usize = 1 << 18;
/// The most line-program instructions that are executed, over all line programs.
const INSTRUCTIONS_MAX: usize = 1 << 20;
/// The most rows of the line table.
const ROWS_MAX: usize = 1 << 18;
/// The most source files, over all line programs.
const FILES_MAX: usize = 4096;
/// The longest header of a line program, in bytes: a list of directories and files.
const HEADER_MAX: usize = 1 << 16;
/// The longest component of a file's path, in bytes.
const PATH_MAX: usize = 512;
/// The most characters of a name.
const NAME_MAX: usize = 200;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Function names and source lines of a module, read on first use.
#[derive(Debug)]
pub struct Lines<'a> {
    module: &'a ParsedModule,
    /// Names with their function's index, sorted by index. If a function has several names, the first one is used.
    names: OnceCell<Vec<(u32, &'a str)>>,
    table: OnceCell<LineTable>,
}

/// The line tables of all line programs, in one.
#[derive(Debug, Default)]
struct LineTable {
    rows: Vec<Row>,
    /// Paths of source files. A file is in the list once for each line program that names it.
    files: Vec<String>,
}

/// A row of the line table. It applies to the code from its address up to the address of the next row.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// An offset in the contents of the code section.
    address: u32,
    /// File index and line; line 0 for code without a source line; `None` where a sequence of code ends, or where its file
    /// is unknown. Within a sequence, rows with line 0 are never adjacent.
    line: Option<(u32, u32)>,
}

impl<'a> Lines<'a> {
    /// Creates the names and lines of a module. Nothing is read yet.
    pub const fn new(module: &'a ParsedModule) -> Self {
        Self { module, names: OnceCell::new(), table: OnceCell::new() }
    }

    /// The name of a function from the name section, or else the name under which the function is imported or exported.
    /// Unprintable characters are escaped.
    pub fn name(&self, function: u32) -> Option<String> {
        let names = self.names.get_or_init(|| names(self.module));
        let first = names.partition_point(|(index, _)| *index < function);
        let (_, name) = names.get(first).filter(|(index, _)| *index == function)?;
        Some(escaped(&demangled(name))).filter(|name| !name.is_empty())
    }

    /// The source line of the instruction at this offset in the module's bytes; for inlined code, the line of the
    /// inlined function. Unprintable characters in the file's name are escaped.
    pub fn line(&self, offset: u64) -> Option<SourceLine> {
        let table = self.table();
        let address = offset.checked_sub(self.module.code_range().start)?;
        let after = table.rows.partition_point(|row| u64::from(row.address) <= address);
        let line_of = |rows_back: usize| table.rows.get(after.checked_sub(rows_back)?)?.line;
        // Code without a source line has the line of the row before it. That row can have no line either if sequences
        // overlap.
        let found = line_of(1).filter(|(_, line)| *line > 0).or_else(|| line_of(1).and(line_of(2)));
        let (file, line) = found.filter(|(_, line)| *line > 0)?;
        Some(SourceLine { file: table.files.get(file as usize)?.clone(), line })
    }

    /// The rows of the line table, ascending by offset in the contents of the code section. A row's file and line apply
    /// from its offset up to that of the next row. Line 0 stands for code without a source line; a row without file and
    /// line ends a sequence of code, or begins a part whose file is unknown.
    pub fn rows(&self) -> impl Iterator<Item = (u32, Option<(&str, u32)>)> {
        let table = self.table();
        table.rows.iter().map(|row| {
            let line =
                row.line.and_then(|(file, line)| Some((table.files.get(file as usize)?.as_str(), line)));
            (row.address, line)
        })
    }

    fn table(&self) -> &LineTable {
        self.table.get_or_init(|| LineTable::read(self.module))
    }
}

/// The names of all functions, sorted by function. For each function, names of the name section come before import and
/// export names.
fn names(module: &ParsedModule) -> Vec<(u32, &str)> {
    let mut names: Vec<_> = module.function_names().take(NAMES_MAX).collect();
    let imports = module.imports.iter().filter(|import| matches!(import.ty, TypeRef::Func(_)));
    names.extend((0..).zip(imports.map(|import| import.name.as_str())).take(NAMES_MAX));
    let exports = module.exports.iter().filter(|export| export.kind == ExternalKind::Func);
    names.extend(exports.map(|export| (export.index, export.name.as_str())).take(NAMES_MAX));
    // A stable sort keeps the order of the names of one function.
    names.sort_by_key(|(index, _)| *index);
    names
}

/// The sections that the line tables refer to.
struct DebugSections<'a> {
    /// The length of the code section's contents.
    code_len: u64,
    debug_line_str: &'a [u8],
    debug_str: &'a [u8],
}

impl LineTable {
    /// Reads all line programs, one after the other: each begins where the program before it ends. Compilation units are
    /// not read, because many of them could refer to the same program.
    fn read(module: &ParsedModule) -> Self {
        let [debug_line, debug_line_str, debug_str] = module.debug_sections();
        let code = module.code_range();
        let sections = &DebugSections { code_len: code.end - code.start, debug_line_str, debug_str };
        let mut table = Self::default();
        let mut instructions = INSTRUCTIONS_MAX;
        let mut rest = EndianSlice::new(debug_line, LittleEndian);
        while !rest.is_empty() && instructions > 0 && table.rows.len() < ROWS_MAX {
            let from_program = rest;
            let Ok((length, format)) = rest.read_initial_length() else { break };
            let Ok(program) = rest.split(length) else { break };
            if header_length(program, format).is_ok_and(|length| length <= HEADER_MAX) {
                // An error ends the program; the rows before it are kept.
                let _ = table.add_program(from_program, sections, &mut instructions);
            }
        }
        // Where one sequence ends and another begins at the same address, the row that begins a sequence comes last, so
        // that its line applies.
        table.rows.sort_by_key(|row| (row.address, row.line.is_some()));
        table
    }

    /// Adds the rows of the line program with which `from_program` begins. `budget` is the number of instructions that may
    /// still be executed.
    fn add_program(
        &mut self,
        from_program: Slice<'_>,
        sections: &DebugSections<'_>,
        budget: &mut usize,
    ) -> gimli::Result<()> {
        let mut program = DebugLine::from(from_program).program(DebugLineOffset(0), 4, None, None)?;
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
                // Ignored: a file that is defined among the rows, which compilers do not emit and which could let the
                // list grow without limit; and a line advance whose absolute value overflows.
                LineInstruction::DefineFile(_) | LineInstruction::AdvanceLine(i64::MIN) => continue,
                // Functions that the linker removed have address 0, or an address beyond the code.
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
                    let file = files.entry(index).or_insert_with(|| self.add_file(&program, index, sections));
                    let line = row.line().and_then(|line| u32::try_from(line.get()).ok()).unwrap_or(0);
                    (*file).map(|file| (file, line))
                };
                let is_still_without_line = matches!((last, line), (Some(Some((_, 0))), Some((_, 0))));
                if last != Some(line) && !is_still_without_line {
                    self.rows.push(Row { address, line });
                    last = Some(line);
                }
            }
            if row.end_sequence() {
                (is_live, last) = (None, None);
            }
            row.reset(program.header());
        }
        // Without an end, the sequence would apply to all code after it.
        if let (Some(Some(_)), Ok(address)) = (last, u32::try_from(row.address())) {
            self.rows.push(Row { address, line: None });
        }
        Ok(())
    }

    /// Adds the path of a file of a line program. Returns its index in `files`.
    fn add_file<'a>(
        &mut self,
        program: &gimli::IncompleteLineProgram<Slice<'a>>,
        index: u64,
        sections: &DebugSections<'a>,
    ) -> Option<u32> {
        if self.files.len() >= FILES_MAX {
            return None;
        }
        let header = program.header();
        let entry = header.file(index)?;
        let name = text(&entry.path_name(), sections)?;
        let folder = entry.directory(header).and_then(|folder| text(&folder, sections));
        // Directory 0 is the compiler's working directory, which other directories are relative to. Before DWARF
        // version 5 the table does not contain it.
        let first = header.include_directories().first().filter(|_| header.version() >= 5);
        let first = first.filter(|_| entry.directory_index() != 0).and_then(|first| text(first, sections));
        let path = [first, folder].into_iter().flatten().rfold(name, |path, folder| {
            if folder.is_empty() || path.starts_with('/') { path } else { format!("{folder}/{path}") }
        });
        self.files.push(escaped(path.trim_start_matches("./")));
        u32::try_from(self.files.len() - 1).ok()
    }
}

/// The length of a line program's header, which contains all directories and files. `program` is the program after its
/// own length.
fn header_length(mut program: Slice<'_>, format: gimli::Format) -> gimli::Result<usize> {
    if program.read_u16()? >= 5 {
        // Sizes of addresses and of segment selectors.
        program.skip(2)?;
    }
    program.read_length(format)
}

/// A string in a line program's header, which may be in one of the string sections.
fn text(value: &gimli::AttributeValue<Slice<'_>>, sections: &DebugSections<'_>) -> Option<String> {
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

/// The demangled name of a Rust function, without the hash at its end; other names unchanged.
fn demangled(name: &str) -> String {
    /// A writer that stops after [`NAME_MAX`] characters: a short mangled name can expand to a very long one.
    struct Truncating(String);
    impl fmt::Write for Truncating {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let remaining = NAME_MAX.saturating_sub(self.0.chars().count());
            self.0.extend(text.chars().take(remaining));
            if text.chars().count() > remaining { Err(fmt::Error) } else { Ok(()) }
        }
    }
    let mut truncated = Truncating(String::new());
    // The only error is a name that is too long.
    let _ = write!(truncated, "{:#}", rustc_demangle::demangle(name));
    truncated.0
}
