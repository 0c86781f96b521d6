//! A module whose sections are read once, for all that ask about them: admission, the analysis, the plan of charges, messages, and the loader.

use crate::analyse::Malformed;
use crate::code::width_of;
use crate::range::BitWidth;
use std::ops::{Deref, Range};
use wasmparser::{
    BinaryReader, BinaryReaderError, BranchHintSectionReader, ConstExpr, CustomSectionReader, ElementItems,
    ExternalKind, FuncType, FunctionBody, Name, NameSectionReader, Operator, Parser, Payload, TypeRef,
    ValType,
};
use weir_abi::entry::{ENTRY_POINTS, EntryLocation, EntryPoint};
use weir_abi::host::HostFunction;
use weir_abi::{MANIFEST_SECTION, export};

/// How many kinds of sections have a number of their own.
const KINDS: usize = 14;
const CODE: u8 = 10;

/// An import.
#[derive(Clone, Debug)]
pub struct Import {
    /// Its module.
    pub module: String,
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: TypeRef,
}

/// An export.
#[derive(Clone, Debug)]
pub struct Export {
    /// Its name.
    pub name: String,
    /// The kind of thing that is exported.
    pub kind: ExternalKind,
    /// The thing, among those of its kind.
    pub index: u32,
}

impl Export {
    /// Returns true if this is exported under this name.
    pub fn is(&self, name: &str, kind: ExternalKind) -> bool {
        self.kind == kind && self.name == name
    }
}

/// A global of the module's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Global {
    pub(crate) width: BitWidth,
    pub(crate) is_vector: bool,
    pub(crate) mutable: bool,
    /// Its value, if it is an integer that never changes.
    pub(crate) constant: Option<i64>,
}

/// The contents of a module's sections, but for code and data, which stay in the bytes.
#[derive(Clone, Debug, Default)]
pub struct Sections {
    /// The types, each with its offset; `None` for one that is not of functions.
    pub types: Vec<(u64, Option<FuncType>)>,
    /// All imports.
    pub imports: Vec<Import>,
    /// The imported functions; `None` for one that weir does not have.
    pub imported: Vec<Option<HostFunction>>,
    /// The type of each function, the imported ones first.
    pub functions: Vec<u32>,
    /// The elements that each table begins with.
    pub tables: Vec<u64>,
    /// The pages that the last memory begins with, and its offset.
    pub memory: Option<(u64, u64)>,
    /// All exports.
    pub exports: Vec<Export>,
    /// The start function.
    pub start: Option<u32>,
    /// The number of data segments, as the data count section has it.
    pub data_count: Option<u32>,
    /// The functions that weir calls, the start function first.
    pub entries: Vec<(EntryPoint, u32)>,
    /// Functions in element segments and in the first values of globals.
    pub indirect: Vec<u32>,
    /// The global that LLVM keeps its shadow stack's pointer in: exported under its name, or named so, or the only mutable i32.
    pub stack_pointer: Option<u32>,
    pub(crate) globals: Vec<Global>,
    /// Functions that an indirect call can reach: those of `indirect` and the exported ones, in order.
    pub(crate) referenced: Vec<u32>,
    /// The contents of each section that is no custom one, by its number.
    ranges: [Option<Range<u64>>; KINDS],
    bodies: Vec<Range<u64>>,
    manifest: Option<Range<u64>>,
    names: Vec<Range<u64>>,
    hints: Vec<Range<u64>>,
    /// The contents of `.debug_line`, `.debug_line_str` and `.debug_str`.
    debug: [Option<Range<u64>>; DEBUG.len()],
}

/// The custom sections with lines.
const DEBUG: [&str; 3] = [".debug_line", ".debug_line_str", ".debug_str"];

impl Sections {
    /// Reads a section.
    ///
    /// # Errors
    /// The parser's, which a section that was validated does not have.
    pub fn take(&mut self, payload: Payload<'_>) -> Result<(), BinaryReaderError> {
        if let Some((id, range)) = payload.as_section()
            && let Some(place) = self.ranges.get_mut(usize::from(id))
        {
            *place = Some(range);
        }
        match payload {
            Payload::TypeSection(reader) => {
                for group in reader.into_iter_with_offsets() {
                    let (at, group) = group?;
                    self.types.extend(group.into_types().map(|ty| match ty.composite_type.inner {
                        wasmparser::CompositeInnerType::Func(ty) => (at, Some(ty)),
                        _ => (at, None),
                    }));
                }
            }
            Payload::ImportSection(reader) => {
                for import in reader.into_imports() {
                    let import = import?;
                    if let TypeRef::Func(ty) = import.ty {
                        self.functions.push(ty);
                        self.imported.push(HostFunction::named(import.name));
                    }
                    let (module, name) = (import.module.to_owned(), import.name.to_owned());
                    self.imports.push(Import { module, name, ty: import.ty });
                }
            }
            Payload::FunctionSection(reader) => {
                for ty in reader {
                    self.functions.push(ty?);
                }
            }
            Payload::TableSection(reader) => {
                for table in reader {
                    self.tables.push(table?.ty.initial);
                }
            }
            Payload::MemorySection(reader) => {
                for memory in reader.into_iter_with_offsets() {
                    let (at, memory) = memory?;
                    self.memory = Some((memory.initial, at));
                }
            }
            Payload::GlobalSection(reader) => {
                for global in reader {
                    let global = global?;
                    let constant = self.first_value(&global.init_expr)?.filter(|_| !global.ty.mutable);
                    let ty = global.ty.content_type;
                    let (width, is_vector) = (width_of(ty), ty == ValType::V128);
                    self.globals.push(Global { width, is_vector, mutable: global.ty.mutable, constant });
                }
            }
            Payload::ExportSection(reader) => {
                for export in reader {
                    let wasmparser::Export { name, kind, index } = export?;
                    self.exports.push(Export { name: name.to_owned(), kind, index });
                }
            }
            Payload::StartSection { func, .. } => self.start = Some(func),
            Payload::ElementSection(reader) => self.elements(reader)?,
            Payload::DataCountSection { count, .. } => self.data_count = Some(count),
            Payload::CodeSectionEntry(body) => self.bodies.push(body.range()),
            Payload::CustomSection(reader) => self.custom(&reader),
            _ => {}
        }
        Ok(())
    }

    fn elements(&mut self, reader: wasmparser::ElementSectionReader<'_>) -> Result<(), BinaryReaderError> {
        for segment in reader {
            let segment = segment?;
            match segment.items {
                ElementItems::Functions(items) => {
                    for item in items {
                        self.indirect.push(item?);
                    }
                }
                ElementItems::Expressions(_, items) => {
                    for item in items {
                        self.first_value(&item?)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The integer that an expression is; a function that it refers to can get into a table from there.
    fn first_value(&mut self, expression: &ConstExpr<'_>) -> Result<Option<i64>, BinaryReaderError> {
        Ok(match expression.get_operators_reader().read()? {
            Operator::I32Const { value } => Some(value.into()),
            Operator::I64Const { value } => Some(value),
            Operator::RefFunc { function_index } => {
                self.indirect.push(function_index);
                None
            }
            _ => None,
        })
    }

    /// Notes where the contents are. What is wrong in them is the module's own loss.
    fn custom(&mut self, reader: &CustomSectionReader<'_>) {
        let range = reader.data_range();
        match reader.name() {
            MANIFEST_SECTION => self.manifest = Some(range),
            "metadata.code.branch_hint" => keep(&mut self.hints, range),
            "name" => {
                let globals = NameSectionReader::new(reader.data_reader()).flatten();
                for map in
                    globals.filter_map(|part| if let Name::Global(map) = part { Some(map) } else { None })
                {
                    let mut named = map.into_iter().flatten();
                    self.stack_pointer =
                        named.find(|named| named.name == export::STACK_POINTER).map(|named| named.index);
                }
                keep(&mut self.names, range);
            }
            name => {
                if let Some(place) = DEBUG.iter().position(|known| *known == name) {
                    self.debug[place] = Some(range);
                }
            }
        }
    }

    /// Finds what follows from all sections together.
    fn conclude(&mut self) {
        let exports = &self.exports;
        let exported =
            |name: &str, kind| exports.iter().find(|export| export.is(name, kind)).map(|export| export.index);
        let named = ENTRY_POINTS.iter().filter(|known| matches!(known.place, EntryLocation::Export));
        let entries =
            named.filter_map(|known| Some((known.entry, exported(known.name, ExternalKind::Func)?)));
        self.entries =
            self.start.map(|start| (EntryPoint::Begin, start)).into_iter().chain(entries).collect();
        let is_candidate = |global: Option<&Global>| {
            global.is_some_and(|global| global.mutable && global.width == BitWidth::W32)
        };
        let by_name = exported(export::STACK_POINTER, ExternalKind::Global).or(self.stack_pointer);
        let mut only = (0..)
            .zip(&self.globals)
            .filter(|(_, global)| is_candidate(Some(*global)))
            .map(|(index, _)| index);
        self.stack_pointer = by_name
            .filter(|index| is_candidate(self.globals.get(*index as usize)))
            .or_else(|| only.next().filter(|_| only.next().is_none()));
        // `ref.func` in code can also name a function, but the validator wants it in an element segment, an export, or a global's first value.
        let functions = exports.iter().filter(|export| export.kind == ExternalKind::Func);
        self.referenced = self.indirect.iter().copied().chain(functions.map(|export| export.index)).collect();
        self.referenced.sort_unstable();
        self.referenced.dedup();
    }

    /// The type of a function.
    pub fn type_of(&self, function: u32) -> Option<&FuncType> {
        self.type_at(*self.functions.get(function as usize)?)
    }

    /// The type with this index, if it is one of functions.
    pub fn type_at(&self, index: u32) -> Option<&FuncType> {
        self.types.get(index as usize)?.1.as_ref()
    }

    /// The place of a function among the module's own.
    pub fn own(&self, function: u32) -> Option<usize> {
        (function as usize).checked_sub(self.imported.len()).filter(|place| *place < self.bodies.len())
    }

    /// The number of globals of the module's own.
    pub fn globals(&self) -> usize {
        self.globals.len()
    }

    /// Whether a manifest was found.
    pub fn has_manifest(&self) -> bool {
        self.manifest.is_some()
    }
}

/// A module's bytes with what their sections say.
#[derive(Clone, Debug)]
pub struct ParsedModule {
    bytes: Vec<u8>,
    sections: Sections,
}

impl Deref for ParsedModule {
    type Target = Sections;

    fn deref(&self) -> &Sections {
        &self.sections
    }
}

impl ParsedModule {
    /// Reads the sections of a module that another program validates, or has validated.
    ///
    /// # Errors
    /// [`Malformed`] where the sections cannot be parsed.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, Malformed> {
        Self::read(bytes, |payload, sections| Ok(sections.take(payload)?))
    }

    /// Walks through the sections once. `look` is given each of them, checks it, and lets it be [taken](Sections::take).
    ///
    /// # Errors
    /// Those of `look`, and the parser's.
    pub fn read<E: From<BinaryReaderError>>(
        bytes: Vec<u8>,
        mut look: impl FnMut(Payload<'_>, &mut Sections) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut sections = Sections::default();
        for payload in Parser::new(0).parse_all(&bytes) {
            look(payload?, &mut sections)?;
        }
        sections.conclude();
        Ok(Self { bytes, sections })
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The manifest's bytes.
    pub fn manifest(&self) -> Option<&[u8]> {
        self.manifest.as_ref().map(|range| self.at(range))
    }

    /// The contents of a section that is no custom one, by its number.
    pub fn section(&self, id: u8) -> Option<BinaryReader<'_>> {
        self.ranges.get(usize::from(id))?.as_ref().map(|range| self.reader(range))
    }

    /// The functions of the module's own.
    pub fn bodies(&self) -> impl ExactSizeIterator<Item = FunctionBody<'_>> {
        self.bodies.iter().map(|range| FunctionBody::new(self.reader(range)))
    }

    /// A function of the module's own.
    pub fn body(&self, function: u32) -> Option<FunctionBody<'_>> {
        Some(FunctionBody::new(self.reader(self.bodies.get(self.own(function)?)?)))
    }

    /// The names that the author gave functions, as far as they can be read.
    pub fn function_names(&self) -> impl Iterator<Item = (u32, &str)> {
        let parts = self.names.iter().flat_map(|range| NameSectionReader::new(self.reader(range)).flatten());
        let maps = parts.filter_map(|part| if let Name::Function(map) = part { Some(map) } else { None });
        maps.flat_map(|map| map.into_iter().flatten()).map(|named| (named.index, named.name))
    }

    /// Branches that the author expects to be taken or not, by function and offset in its body, as far as they can be read.
    pub fn branch_hints(&self) -> impl Iterator<Item = ((u32, u32), bool)> {
        let sections =
            self.hints.iter().filter_map(|range| BranchHintSectionReader::new(self.reader(range)).ok());
        sections.flat_map(|section| section.into_iter().flatten()).flat_map(|function| {
            let hints = function.hints.into_iter().flatten();
            hints.map(move |hint| ((function.func, hint.func_offset), hint.taken))
        })
    }

    /// Where the contents of the code section are: DWARF counts from their begin.
    pub fn code(&self) -> Range<u64> {
        self.ranges[usize::from(CODE)].clone().unwrap_or_default()
    }

    /// The contents of `.debug_line`, `.debug_line_str` and `.debug_str`.
    pub(crate) fn debug(&self) -> [&[u8]; DEBUG.len()] {
        self.debug.each_ref().map(|range| range.as_ref().map_or(&[][..], |range| self.at(range)))
    }

    fn at(&self, range: &Range<u64>) -> &[u8] {
        let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        self.bytes.get(index(range.start)..index(range.end)).unwrap_or_default()
    }

    fn reader(&self, range: &Range<u64>) -> BinaryReader<'_> {
        BinaryReader::new(self.at(range), range.start)
    }
}

/// Keeps the place of a section, for as many as there are in any module that a compiler makes. What is in these sections are hints: one more is ignored.
fn keep(sections: &mut Vec<Range<u64>>, range: Range<u64>) {
    if sections.len() < 16 {
        sections.push(range);
    }
}
