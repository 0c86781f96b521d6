//! A parsed module: its bytes and the contents of its sections. The sections are read once for all users: admission,
//! analysis, charge plan, error messages and loader.

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

/// The number of section ids of WebAssembly.
const SECTION_IDS: usize = 14;
/// The id of the code section.
const CODE_SECTION: u8 = 10;
/// The id of the table section.
const TABLE_SECTION: u8 = 4;

/// An import of the module.
#[derive(Clone, Debug)]
pub struct Import {
    /// The name of the module that provides the import.
    pub module: String,
    /// The name of the import in that module.
    pub name: String,
    /// The type of the import; for a memory or table, with its limits.
    pub ty: TypeRef,
}

/// An export of the module.
#[derive(Clone, Debug)]
pub struct Export {
    /// The name under which the item is exported.
    pub name: String,
    /// The kind of the exported item.
    pub kind: ExternalKind,
    /// The index of the item among those of its kind.
    pub index: u32,
}

impl Export {
    /// Returns true if the export has this name and kind.
    pub fn matches(&self, name: &str, kind: ExternalKind) -> bool {
        self.kind == kind && self.name == name
    }
}

/// A global that the module defines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Global {
    pub(crate) width: BitWidth,
    pub(crate) is_vector: bool,
    pub(crate) mutable: bool,
    /// The value, if it is an integer that never changes.
    pub(crate) constant: Option<i64>,
}

/// The contents of a module's sections. Of code and data, only the positions in the module's bytes are kept.
#[derive(Clone, Debug, Default)]
pub struct Sections {
    /// The types, each with its offset in the module's bytes; `None` for a type that is not a function type.
    pub types: Vec<(u64, Option<FuncType>)>,
    /// All imports, in order.
    pub imports: Vec<Import>,
    /// The imported functions; `None` for an import that weir does not provide.
    pub imported: Vec<Option<HostFunction>>,
    /// The type index of each function, imported functions first.
    pub functions: Vec<u32>,
    /// The initial number of elements of each table.
    pub tables: Vec<u64>,
    /// The initial number of pages of the last memory, and the offset of its definition in the module's bytes.
    pub memory: Option<(u64, u64)>,
    /// All exports, in order.
    pub exports: Vec<Export>,
    /// The index of the start function.
    pub start: Option<u32>,
    /// The number of data segments, as the data count section gives it.
    pub data_count: Option<u32>,
    /// The entry points that the module has and the indices of their functions, the start function first.
    pub entries: Vec<(EntryPoint, u32)>,
    /// The functions in element segments and in the initial values of globals.
    pub indirect: Vec<u32>,
    /// The index of the global that holds LLVM's shadow stack pointer. It is found by the name of an export, or else by
    /// a name in the name section, or else as the only mutable global of type i32.
    pub stack_pointer: Option<u32>,
    pub(crate) globals: Vec<Global>,
    /// The functions that an indirect call can reach: those of `indirect`, and those that `ref.func` names in code, sorted by
    /// index.
    pub(crate) referenced: Vec<u32>,
    /// The byte range of each section's contents, by section id, without custom sections.
    ranges: [Option<Range<u64>>; SECTION_IDS],
    /// The byte ranges of the function bodies.
    bodies: Vec<Range<u64>>,
    /// The byte range of the manifest.
    manifest: Option<Range<u64>>,
    /// The byte ranges of the name sections.
    names: Vec<Range<u64>>,
    /// The byte ranges of the sections with branch hints.
    hints: Vec<Range<u64>>,
    /// The byte ranges of `.debug_line`, `.debug_line_str` and `.debug_str`.
    debug: [Option<Range<u64>>; DEBUG_SECTIONS.len()],
}

/// The custom sections of DWARF's line tables.
const DEBUG_SECTIONS: [&str; 3] = [".debug_line", ".debug_line_str", ".debug_str"];

impl Sections {
    /// Adds the contents of one section.
    ///
    /// # Errors
    /// The parser's errors. A validated section has none.
    pub fn add(&mut self, payload: Payload<'_>) -> Result<(), BinaryReaderError> {
        if let Some((id, range)) = payload.as_section()
            && let Some(kept) = self.ranges.get_mut(usize::from(id))
        {
            *kept = Some(range);
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
                        self.imported.push(HostFunction::from_import_name(import.name));
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
                    let constant = self.constant_value(&global.init_expr)?.filter(|_| !global.ty.mutable);
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
            Payload::ElementSection(reader) => self.add_element_functions(reader)?,
            Payload::DataCountSection { count, .. } => self.data_count = Some(count),
            Payload::CodeSectionEntry(body) => self.bodies.push(body.range()),
            Payload::CustomSection(reader) => self.keep_custom_section(&reader),
            _ => {}
        }
        Ok(())
    }

    /// Adds the functions of element segments to `indirect`.
    fn add_element_functions(
        &mut self,
        reader: wasmparser::ElementSectionReader<'_>,
    ) -> Result<(), BinaryReaderError> {
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
                        self.constant_value(&item?)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The integer value of a constant expression, which its first instruction gives. A function that the expression
    /// refers to can be called indirectly, so it is added to `indirect`.
    fn constant_value(&mut self, expression: &ConstExpr<'_>) -> Result<Option<i64>, BinaryReaderError> {
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

    /// Keeps the byte range of a custom section that is used. Errors in its contents are ignored, because names, hints
    /// and debug information do not affect execution.
    fn keep_custom_section(&mut self, reader: &CustomSectionReader<'_>) {
        let range = reader.data_range();
        match reader.name() {
            MANIFEST_SECTION => self.manifest = Some(range),
            "metadata.code.branch_hint" => keep_section(&mut self.hints, range),
            "name" => {
                let globals = NameSectionReader::new(reader.data_reader()).flatten();
                for map in
                    globals.filter_map(|part| if let Name::Global(map) = part { Some(map) } else { None })
                {
                    let mut named = map.into_iter().flatten();
                    self.stack_pointer =
                        named.find(|named| named.name == export::STACK_POINTER).map(|named| named.index);
                }
                keep_section(&mut self.names, range);
            }
            name => {
                if let Some(index) = DEBUG_SECTIONS.iter().position(|known| *known == name) {
                    self.debug[index] = Some(range);
                }
            }
        }
    }

    /// Fills in the fields that depend on several sections: entry points and shadow stack pointer.
    fn derive_fields(&mut self) {
        let exports = &self.exports;
        let exported = |name: &str, kind| {
            exports.iter().find(|export| export.matches(name, kind)).map(|export| export.index)
        };
        let named = ENTRY_POINTS.iter().filter(|known| matches!(known.location, EntryLocation::Export));
        let entries =
            named.filter_map(|known| Some((known.entry, exported(known.name, ExternalKind::Func)?)));
        self.entries =
            self.start.map(|start| (EntryPoint::StartFunction, start)).into_iter().chain(entries).collect();
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
    }

    /// The exported functions.
    pub(crate) fn exported_functions(&self) -> impl Iterator<Item = u32> {
        let functions = self.exports.iter().filter(|export| export.kind == ExternalKind::Func);
        functions.map(|export| export.index)
    }

    /// The type of the function with this index.
    pub fn type_of(&self, function: u32) -> Option<&FuncType> {
        self.type_at(*self.functions.get(function as usize)?)
    }

    /// The type with this index; `None` if it is not a function type.
    pub fn type_at(&self, index: u32) -> Option<&FuncType> {
        self.types.get(index as usize)?.1.as_ref()
    }

    /// The index of a function among the functions that the module defines; `None` for an imported function.
    pub fn defined_index(&self, function: u32) -> Option<usize> {
        (function as usize).checked_sub(self.imported.len()).filter(|index| *index < self.bodies.len())
    }

    /// Returns the value of an exported global that is an i32 and never changes; `None` if there is no such export.
    pub fn exported_constant(&self, name: &str) -> Option<u32> {
        let export = self.exports.iter().find(|export| export.matches(name, ExternalKind::Global))?;
        let global =
            self.globals.get(export.index as usize).filter(|global| global.width == BitWidth::W32)?;
        u32::try_from(global.constant? & i64::from(u32::MAX)).ok()
    }

    /// The number of globals that the module defines.
    pub fn global_count(&self) -> usize {
        self.globals.len()
    }

    /// Returns true if the module has a manifest section.
    pub fn has_manifest(&self) -> bool {
        self.manifest.is_some()
    }
}

/// A module's bytes and the contents of its sections.
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
    /// Reads the sections of a module, without validating it.
    ///
    /// # Errors
    /// [`Malformed`] where the sections cannot be parsed.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, Malformed> {
        Self::read(bytes, |payload, sections| Ok(sections.add(payload)?))
    }

    /// Reads the sections in one pass. `visit` is called with each section; it can check the section, and
    /// [add](Sections::add) it to the sections read so far.
    ///
    /// # Errors
    /// The errors of `visit` and of the parser.
    pub fn read<E: From<BinaryReaderError>>(
        bytes: Vec<u8>,
        mut visit: impl FnMut(Payload<'_>, &mut Sections) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut sections = Sections::default();
        for payload in Parser::new(0).parse_all(&bytes) {
            visit(payload?, &mut sections)?;
        }
        sections.derive_fields();
        let mut this = Self { bytes, sections };
        this.sections.referenced = this.referenced_functions();
        Ok(this)
    }

    /// Finds the functions that an indirect call can reach.
    fn referenced_functions(&self) -> Vec<u32> {
        // A module without a table has no indirect calls.
        let has_table = self.section(TABLE_SECTION).is_some();
        // The validator permits `ref.func` in code for functions in element segments, exports and initial values of globals. So
        // the exported functions are candidates where code cannot be read; such a module is refused anyway.
        let named = if has_table { self.functions_named_in_code() } else { Ok(Vec::new()) };
        let named = named.unwrap_or_else(|_| self.exported_functions().collect());
        let mut referenced = [self.indirect.as_slice(), &named].concat();
        referenced.sort_unstable();
        referenced.dedup();
        referenced
    }

    /// Finds the functions that `ref.func` names in the module's code.
    fn functions_named_in_code(&self) -> Result<Vec<u32>, BinaryReaderError> {
        let mut named = Vec::new();
        for body in self.bodies() {
            let mut reader = body.get_operators_reader()?;
            while !reader.eof() {
                if let Operator::RefFunc { function_index } = reader.read()? {
                    named.push(function_index);
                }
            }
        }
        Ok(named)
    }

    /// The module's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The contents of the manifest section.
    pub fn manifest(&self) -> Option<&[u8]> {
        self.manifest.as_ref().map(|range| self.bytes_in(range))
    }

    /// The contents of the section with this id. Custom sections, whose id is 0, are not found.
    pub fn section(&self, id: u8) -> Option<BinaryReader<'_>> {
        self.ranges.get(usize::from(id))?.as_ref().map(|range| self.reader(range))
    }

    /// The bodies of the functions that the module defines, in order.
    pub fn bodies(&self) -> impl ExactSizeIterator<Item = FunctionBody<'_>> {
        self.bodies.iter().map(|range| FunctionBody::new(self.reader(range)))
    }

    /// The body of a function; `None` for an imported one.
    pub fn body(&self, function: u32) -> Option<FunctionBody<'_>> {
        Some(FunctionBody::new(self.reader(self.bodies.get(self.defined_index(function)?)?)))
    }

    /// The function names of the name section, each with the function's index. Unreadable parts are skipped.
    pub fn function_names(&self) -> impl Iterator<Item = (u32, &str)> {
        let parts = self.names.iter().flat_map(|range| NameSectionReader::new(self.reader(range)).flatten());
        let maps = parts.filter_map(|part| if let Name::Function(map) = part { Some(map) } else { None });
        maps.flat_map(|map| map.into_iter().flatten()).map(|named| (named.index, named.name))
    }

    /// The branch hints of the module: the function's index, the offset of the branch in the function's body, and true
    /// if the branch is likely taken. Unreadable hints are skipped.
    pub fn branch_hints(&self) -> impl Iterator<Item = ((u32, u32), bool)> {
        let sections =
            self.hints.iter().filter_map(|range| BranchHintSectionReader::new(self.reader(range)).ok());
        sections.flat_map(|section| section.into_iter().flatten()).flat_map(|function| {
            let hints = function.hints.into_iter().flatten();
            hints.map(move |hint| ((function.func, hint.func_offset), hint.taken))
        })
    }

    /// The byte range of the code section's contents. DWARF addresses count from its start.
    pub fn code_range(&self) -> Range<u64> {
        self.ranges[usize::from(CODE_SECTION)].clone().unwrap_or_default()
    }

    /// The contents of `.debug_line`, `.debug_line_str` and `.debug_str`.
    pub(crate) fn debug_sections(&self) -> [&[u8]; DEBUG_SECTIONS.len()] {
        self.debug.each_ref().map(|range| range.as_ref().map_or(&[][..], |range| self.bytes_in(range)))
    }

    /// The module's bytes in a range.
    fn bytes_in(&self, range: &Range<u64>) -> &[u8] {
        let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        self.bytes.get(index(range.start)..index(range.end)).unwrap_or_default()
    }

    /// A reader of the module's bytes in a range.
    fn reader(&self, range: &Range<u64>) -> BinaryReader<'_> {
        BinaryReader::new(self.bytes_in(range), range.start)
    }
}

/// Keeps the range of a section, up to 16 sections, which is more than compilers produce. Further sections are ignored,
/// because the contents of such sections do not affect execution.
fn keep_section(sections: &mut Vec<Range<u64>>, range: Range<u64>) {
    if sections.len() < 16 {
        sections.push(range);
    }
}
