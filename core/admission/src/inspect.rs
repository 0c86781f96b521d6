//! What is checked about a module's bytes before anything else looks at them.

use crate::complexity::{Complexity, ComplexityLimit};
use crate::{Excess, ManifestError, ValueError, shown as shown_text};
use wasmparser::{ExternalKind, FuncType, Payload, TypeRef, ValType, Validator, WasmFeatures};
use weir_abi::entry::{self, ENTRY_POINTS, EntryLocation, EntryPoint, EntryPoints, EntryPresence};
use weir_abi::host::{self, HostFunction, ValueType};
use weir_abi::{MANIFEST_SECTION, PRIVATE_MAX, RESERVED_PREFIX, export};
use weir_bounds::{Import, ParsedModule, Sections};
use weir_units::{Bytes, Nanos, beside};

/// The largest module, in bytes.
pub const MODULE_BYTES_MAX: usize = 8 << 20;
/// The most elements of all tables of a module together.
pub const TABLE_ELEMENTS_MAX: usize = 65_536;
const MODULE_MAX: Bytes = Bytes(MODULE_BYTES_MAX as u64);
const WASM_PAGE: u64 = 65_536;

/// How a module takes packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// One at a time; weir adds the loop over a batch.
    Packet,
    /// A batch at a time.
    Batch,
}

/// What the loader needs to know about a valid module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleInfo {
    /// The entry points that it has. Of those for packets it has exactly one.
    pub entries: EntryPoints,
    /// Index of the entry function.
    pub entry_function: u32,
    /// Index of the mutable global that is the shadow stack pointer, if the module has one.
    pub stack_pointer: Option<u32>,
    /// Number of types, of globals and of functions, imported ones included: where what the loader adds begins.
    pub types: u32,
    /// See `types`.
    pub globals: u32,
    /// See `types`.
    pub functions: u32,
    /// Private memory at the start.
    pub memory: Bytes,
    /// Where in the module's bytes that is declared.
    pub memory_declared: u64,
    /// The host functions that it imports, each once.
    pub imports: Vec<&'static str>,
    /// The compiler may put functions in place of calls, and does not become slow by it.
    pub may_be_inlined: bool,
}

impl ModuleInfo {
    /// How it takes packets.
    pub const fn entry(&self) -> EntryKind {
        if self.entries.has(EntryPoint::Batch) { EntryKind::Batch } else { EntryKind::Packet }
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    if digits.is_empty() { "nothing".to_owned() } else { digits.join(" ") }
}

/// An entry point, as a message names it.
fn named(entry: EntryPoint) -> String {
    match entry.definition().place {
        EntryLocation::Export => format!("the export `{entry}`"),
        EntryLocation::StartSection => "the start function".to_owned(),
    }
}

/// The entry points of which a module has exactly one, as a message names them.
fn either() -> String {
    let names = ENTRY_POINTS.iter().filter(|known| known.presence == EntryPresence::Either);
    names.map(|known| format!("`{}`", known.name)).collect::<Vec<_>>().join(" and ")
}

/// Why a module does not run. Everything here is to blame on the module, but for [`ModuleRefusal::Setting`]; where a profile is named, another one may
/// admit it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ModuleRefusal {
    /// Not WebAssembly at all.
    #[error("this is not a WebAssembly module: it begins with {}, not with 00 61 73 6d", hex(.0))]
    NotWasm(Vec<u8>),
    /// Too large.
    #[error("the module has {}; {} is the most", beside(*.0, &[MODULE_MAX]), beside(MODULE_MAX, &[*.0]))]
    TooLarge(Bytes),
    /// Not valid, or uses a feature that weir does not have.
    #[error("the module is not valid WebAssembly at byte {offset}: {reason}")]
    Invalid {
        /// Offset in the module's bytes.
        offset: u64,
        /// What the validator says.
        reason: String,
    },
    /// It wants something that weir does not offer.
    #[error("the module imports `{module}.{name}`, which weir does not offer; there is {known}")]
    UnknownImport {
        /// Import module.
        module: String,
        /// Import name.
        name: String,
        /// What there is.
        known: String,
    },
    /// It wants a host function with another type.
    #[error("the module imports `weir.{name}` as {given}, but it is {wanted}")]
    ImportType {
        /// The function.
        name: &'static str,
        /// As imported.
        given: String,
        /// As it is.
        wanted: String,
    },
    /// An export has the wrong type.
    #[error("the export `{name}` is {given}, but must be {wanted}")]
    ExportType {
        /// The export.
        name: &'static str,
        /// As exported.
        given: String,
        /// As it must be.
        wanted: String,
    },
    /// No entry point for packets, or two.
    #[error("the module exports {given}; it must export exactly one of {}", either())]
    Entry {
        /// What it exports.
        given: &'static str,
    },
    /// No memory to work with.
    #[error("the module must have one memory of its own, exported as `memory`")]
    Memory,
    /// Memory or table larger than allowed from the start.
    #[error("the module begins with {given} of memory, but its manifest allows {max}", given = beside(*given, &[*max]), max = beside(*max, &[*given]))]
    MemorySize {
        /// At the start.
        given: Bytes,
        /// At most.
        max: Bytes,
    },
    /// A table larger than allowed.
    #[error("the module's tables have {0} elements; {TABLE_ELEMENTS_MAX} is the most")]
    TableSize(u64),
    /// More of something than the compiler is sure to manage.
    #[error(
        "the module has {given} {}, counted up to byte {at}; {} is the most that is sure to compile", .shape.name(), .shape.most()
    )]
    Shape {
        /// The thing that it has too many of.
        shape: ComplexityLimit,
        /// As many as were counted.
        given: u64,
        /// The byte of the module at which the limit was passed.
        at: u64,
    },
    /// An entry point that is a function of weir.
    #[error(
        "{} is the imported function `weir.{name}`; it must be a function of the module's own, which may call that one", named(*.entry)
    )]
    ImportedEntry {
        /// The entry point.
        entry: EntryPoint,
        /// The imported function.
        name: &'static str,
    },
    /// A name that belongs to weir.
    #[error("the export `{}` has a name that belongs to weir; leave out the prefix `weir_`", .0.escape_debug())]
    ReservedExport(String),
    /// No manifest.
    #[error(
        "the module has no manifest: build it with `weir build`, which adds weir.toml as the custom section `weir.manifest`"
    )]
    NoManifest,
    /// Two manifests: which one would hold?
    #[error("the module has two manifests (custom sections `weir.manifest`), the second at byte {0}")]
    TwoManifests(u64),
    /// A manifest that cannot be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A parameter that does not fit. To blame is the operator.
    #[error(transparent)]
    Setting(#[from] ValueError),
    /// It imports what the profile does not allow.
    #[error(
        "the module imports `weir.{name}`, which the profile does not allow: its `imports` are {allowed}"
    )]
    Import {
        /// The function.
        name: &'static str,
        /// What is allowed.
        allowed: String,
    },
    /// It has more memory at its start than the profile allows, whatever it does later.
    #[error(
        "the module begins with {given} of memory, declared at byte {at}, for its static variables and its stack; the profile allows {max} (`memory`)",
        given = beside(*given, &[*max]), max = beside(*max, &[*given])
    )]
    MemoryLimit {
        /// At the start.
        given: Bytes,
        /// Where in the module's bytes it is declared.
        at: u64,
        /// At most.
        max: Bytes,
    },
    /// Its ticks come faster than the profile allows.
    #[error("the module asks for a tick every {given}; the profile allows one every {min} (`tick-period`)", given = beside(*given, &[*min]), min = beside(*min, &[*given]))]
    TickPeriod {
        /// Its period.
        given: Nanos,
        /// At least.
        min: Nanos,
    },
    /// It may use more than the profile allows, and the profile allows no tier that would keep it from doing so.
    #[error(transparent)]
    Excess(#[from] Box<Excess>),
}

/// The WebAssembly that weir runs: what LLVM makes of C and Rust, and nothing whose cost or reach is hard to bound.
fn features() -> WasmFeatures {
    WasmFeatures::MUTABLE_GLOBAL
        | WasmFeatures::SATURATING_FLOAT_TO_INT
        | WasmFeatures::SIGN_EXTENSION
        | WasmFeatures::REFERENCE_TYPES
        | WasmFeatures::CALL_INDIRECT_OVERLONG
        | WasmFeatures::MULTI_VALUE
        | WasmFeatures::BULK_MEMORY
        | WasmFeatures::BULK_MEMORY_OPT
        | WasmFeatures::SIMD
        | WasmFeatures::FLOATS
}

/// Refuses what is longer than any module may be.
pub(crate) fn check_size(bytes: &[u8]) -> Result<(), ModuleRefusal> {
    if bytes.len() > MODULE_BYTES_MAX {
        return Err(ModuleRefusal::TooLarge(Bytes(bytes.len() as u64)));
    }
    Ok(())
}

/// Checks the bytes, and reads their sections.
pub(crate) fn inspect(bytes: Vec<u8>) -> Result<(ParsedModule, ModuleInfo), ModuleRefusal> {
    check_size(&bytes)?;
    if !bytes.starts_with(b"\0asm") {
        return Err(ModuleRefusal::NotWasm(bytes.iter().take(4).copied().collect()));
    }
    let mut validator = Validator::new_with_features(features());
    let mut functions = Vec::new();
    let module = ParsedModule::read(bytes, |payload, sections| {
        if let wasmparser::ValidPayload::Func(function, _) = validator.payload(&payload)? {
            functions.push(function);
        }
        let check = before(&payload, sections)?;
        sections.take(payload)?;
        check(sections)
    })?;
    let mut allocations = wasmparser::FuncValidatorAllocations::default();
    let mut complexity = Complexity::default();
    for (function, body) in functions.into_iter().zip(module.bodies()) {
        let mut function = function.into_validator(allocations);
        complexity.function(&mut function, &body, features())?;
        allocations = function.into_allocations();
    }
    let facts = facts(&module, &complexity)?;
    Ok((module, facts))
}

impl From<wasmparser::BinaryReaderError> for ModuleRefusal {
    fn from(error: wasmparser::BinaryReaderError) -> Self {
        Self::Invalid { offset: error.offset(), reason: shown_text(error.message()) }
    }
}

/// A check of what a section says.
type Check = fn(&Sections) -> Result<(), ModuleRefusal>;

/// Checks how much a section has before it is read, and gives the check of its contents.
fn before(payload: &Payload<'_>, so_far: &Sections) -> Result<Check, ModuleRefusal> {
    let (shape, count, after): (_, _, Check) = match payload {
        Payload::TypeSection(reader) => (ComplexityLimit::Types, reader.count(), signatures),
        Payload::ImportSection(reader) => (ComplexityLimit::Functions, reader.count(), imports),
        Payload::FunctionSection(reader) => {
            let imported = u32::try_from(so_far.functions.len()).unwrap_or(u32::MAX);
            (ComplexityLimit::Functions, reader.count().saturating_add(imported), |_| Ok(()))
        }
        Payload::TableSection(reader) => (ComplexityLimit::Tables, reader.count(), tables),
        Payload::GlobalSection(reader) => (ComplexityLimit::Globals, reader.count(), |_| Ok(())),
        Payload::ExportSection(reader) => (ComplexityLimit::Exports, reader.count(), |_| Ok(())),
        Payload::DataSection(reader) => (ComplexityLimit::DataSegments, reader.count(), |_| Ok(())),
        Payload::ElementSection(reader) => {
            elements(reader)?;
            return Ok(|_| Ok(()));
        }
        Payload::CustomSection(reader) if reader.name() == MANIFEST_SECTION && so_far.has_manifest() => {
            return Err(ModuleRefusal::TwoManifests(reader.range().start));
        }
        _ => return Ok(|_| Ok(())),
    };
    shape.check(count.into(), payload.as_section().map_or(0, |(_, range)| range.start))?;
    Ok(after)
}

fn signatures(sections: &Sections) -> Result<(), ModuleRefusal> {
    let functions = sections.types.iter().filter_map(|(at, ty)| Some((at, ty.as_ref()?)));
    let mut sizes = functions.map(|(at, ty)| (ty.params().len() + ty.results().len(), *at));
    sizes.try_for_each(|(size, at)| ComplexityLimit::Signature.check(size as u64, at))
}

fn tables(sections: &Sections) -> Result<(), ModuleRefusal> {
    let mut elements = 0u64;
    for table in &sections.tables {
        elements = elements.saturating_add(*table);
        if elements > TABLE_ELEMENTS_MAX as u64 {
            return Err(ModuleRefusal::TableSize(elements));
        }
    }
    Ok(())
}

/// Counts the elements of all segments, before any is copied.
fn elements(reader: &wasmparser::ElementSectionReader<'_>) -> Result<(), ModuleRefusal> {
    let mut elements = 0u64;
    for segment in reader.clone() {
        let segment = segment?;
        let count = match &segment.items {
            wasmparser::ElementItems::Functions(items) => items.count(),
            wasmparser::ElementItems::Expressions(_, items) => items.count(),
        };
        // An empty one takes room too.
        elements = elements.saturating_add(u64::from(count).max(1));
        ComplexityLimit::Elements.check(elements, segment.range.start)?;
    }
    Ok(())
}

fn imports(sections: &Sections) -> Result<(), ModuleRefusal> {
    sections.imports.iter().try_for_each(|given| import(sections, given))
}

fn import(sections: &Sections, Import { module, name, ty }: &Import) -> Result<(), ModuleRefusal> {
    let known = HostFunction::named(name).filter(|_| module == host::MODULE).map(HostFunction::definition);
    let (Some(known), TypeRef::Func(index)) = (known, ty) else {
        let short = |name: &str| name.escape_debug().take(80).collect();
        let known = host::HOST_FUNCTIONS.iter().map(|known| format!("`weir.{}`", known.name));
        let known = known.collect::<Vec<_>>().join(", ");
        return Err(ModuleRefusal::UnknownImport { module: short(module), name: short(name), known });
    };
    let given = sections.type_at(*index);
    let wanted =
        FuncType::new(known.parameter_types().map(value_type), [value_type(known.result.value_type())]);
    if given == Some(&wanted) {
        return Ok(());
    }
    Err(ModuleRefusal::ImportType { name: known.name, given: shown(given), wanted: shown(Some(&wanted)) })
}

/// The index of an entry point, if it is there. An error where it has another type than it must, or is no function of the module's own.
fn entry_point(module: &ParsedModule, known: &entry::EntryDefinition) -> Result<Option<u32>, ModuleRefusal> {
    let index = match known.place {
        EntryLocation::StartSection => module.start,
        EntryLocation::Export => {
            let Some(export) = module.exports.iter().find(|export| export.name == known.name) else {
                return Ok(None);
            };
            let ty = Some(export.index).filter(|_| export.kind == ExternalKind::Func);
            let ty = ty.and_then(|index| module.type_of(index));
            let parameters = known.parameters.iter().map(|given| value_type(given.ty.value_type()));
            let wanted = FuncType::new(parameters, known.result.value_type().map(value_type));
            if ty != Some(&wanted) {
                let (given, wanted) = (shown(ty), shown(Some(&wanted)));
                return Err(ModuleRefusal::ExportType { name: known.name, given, wanted });
            }
            Some(export.index)
        }
    };
    match index.and_then(|index| module.imported.get(index as usize).copied().flatten()) {
        Some(host) => Err(ModuleRefusal::ImportedEntry { entry: known.entry, name: host.definition().name }),
        None => Ok(index),
    }
}

/// The entry points that the module has, and the function that takes its packets.
fn entry_points(module: &ParsedModule) -> Result<(EntryPoints, u32), ModuleRefusal> {
    let (mut entries, mut takers) = (EntryPoints::default(), Vec::new());
    for known in &ENTRY_POINTS {
        if let Some(index) = entry_point(module, known)? {
            entries = entries.with(known.entry);
            takers.extend((known.presence == EntryPresence::Either).then_some(index));
        }
    }
    let is_ours = |name: &str| EntryPoint::named(name).is_some() || !name.starts_with(RESERVED_PREFIX);
    match (takers.as_slice(), module.exports.iter().find(|export| !is_ours(&export.name))) {
        ([], _) => Err(ModuleRefusal::Entry { given: "neither of them" }),
        ([_, _, ..], _) => Err(ModuleRefusal::Entry { given: "both of them" }),
        ([_], Some(export)) => Err(ModuleRefusal::ReservedExport(export.name.chars().take(80).collect())),
        ([taker], None) => Ok((entries, *taker)),
    }
}

fn facts(module: &ParsedModule, complexity: &Complexity) -> Result<ModuleInfo, ModuleRefusal> {
    let is_exported = module.exports.iter().any(|export| export.is(export::MEMORY, ExternalKind::Memory));
    let (pages, memory_declared) = module.memory.filter(|_| is_exported).ok_or(ModuleRefusal::Memory)?;
    let memory = Bytes(pages.saturating_mul(WASM_PAGE));
    if memory.0 > u64::from(PRIVATE_MAX) {
        return Err(ModuleRefusal::MemorySize { given: memory, max: Bytes(PRIVATE_MAX.into()) });
    }
    let (entries, entry_function) = entry_points(module)?;
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let mut imports = Vec::new();
    for host in module.imported.iter().flatten() {
        let name = host.definition().name;
        if !imports.contains(&name) {
            imports.push(name);
        }
    }
    Ok(ModuleInfo {
        entries,
        entry_function,
        stack_pointer: module.stack_pointer,
        types: count(module.types.len()),
        globals: count(module.globals()),
        functions: count(module.functions.len()),
        memory,
        memory_declared,
        imports,
        may_be_inlined: complexity.may_be_inlined(count(module.imported.len())),
    })
}

fn value_type(ty: ValueType) -> ValType {
    match ty {
        ValueType::I32 => ValType::I32,
        ValueType::I64 => ValType::I64,
        ValueType::F64 => ValType::F64,
    }
}

fn shown(ty: Option<&FuncType>) -> String {
    let Some(ty) = ty else { return "no function".to_owned() };
    let list = |types: &[ValType]| types.iter().map(ValType::to_string).collect::<Vec<_>>().join(", ");
    let results =
        if ty.results().len() == 1 { list(ty.results()) } else { format!("({})", list(ty.results())) };
    format!("({}) -> {results}", list(ty.params()))
}
