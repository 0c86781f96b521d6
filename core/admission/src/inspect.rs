//! The first check of a module's bytes: validity, imports, exports, and limits on size and complexity.

use crate::complexity::{Complexity, ComplexityLimit};
use crate::{DeclaredState, Excess, ManifestError, Name, ValueError, escaped};
use core::ops::Range;
use wasmparser::{ExternalKind, FuncType, Payload, TypeRef, ValType, Validator, WasmFeatures};
use weir_abi::entry::{self, ENTRY_POINTS, EntryLocation, EntryPoint, EntryPoints, EntryPresence};
use weir_abi::host::{self, HostFunction, ValueType};
use weir_abi::{MANIFEST_SECTION, PRIVATE_MAX, RESERVED_PREFIX, export};
use weir_bounds::{CodeLocation, Import, ParsedModule, Sections};
use weir_units::{Bytes, Nanos, display_among};

/// The largest module, in bytes.
pub const MODULE_BYTES_MAX: usize = 8 << 20;
/// The most elements of all tables of a module together.
pub const TABLE_ELEMENTS_MAX: usize = 65_536;
const MODULE_MAX: Bytes = Bytes(MODULE_BYTES_MAX as u64);
const WASM_PAGE: u64 = 65_536;

/// The way in which a module gets packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// One packet in a call; weir adds the loop over a batch.
    Packet,
    /// A batch in a call.
    Batch,
    /// No packets, but the events of TCP streams.
    Stream,
}

/// The facts about a valid module that the loader needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleInfo {
    /// The entry points of the module. One of them gets packets or events of TCP streams, or one gets packets and another one events.
    pub entries: EntryPoints,
    /// The index of the function that gets packets; in a module without one, of the function that gets events of TCP
    /// streams.
    pub entry_function: u32,
    /// The index of the function that gets events of TCP streams, if there is one.
    pub stream_function: Option<u32>,
    /// The index of the mutable global that is the shadow stack pointer, if the module has one.
    pub stack_pointer: Option<u32>,
    /// The number of types: the first index for types that the loader adds.
    pub types: u32,
    /// The number of globals, including imported ones: the first index for globals that the loader adds.
    pub globals: u32,
    /// The number of functions, including imported ones: the first index for functions that the loader adds.
    pub functions: u32,
    /// The private memory at the start.
    pub memory: Bytes,
    /// The addresses of the manifest's blocks of state, in the manifest's order; all lie in the private memory at the start.
    pub states: Vec<Range<u32>>,
    /// The offset of the memory's declaration in the module's bytes.
    pub memory_declared: u64,
    /// The imported host functions, each once.
    pub imports: Vec<&'static str>,
    /// True if the compiler may inline functions: the result is not too large to compile.
    pub may_be_inlined: bool,
}

impl ModuleInfo {
    /// Returns the way in which the module gets packets.
    pub const fn entry(&self) -> EntryKind {
        match (self.entries.has(EntryPoint::Batch), self.entries.has(EntryPoint::Packet)) {
            (true, _) => EntryKind::Batch,
            (false, true) => EntryKind::Packet,
            (false, false) => EntryKind::Stream,
        }
    }
}

/// Returns bytes as hexadecimal digits with spaces between them, or `nothing` without bytes.
fn hex_or_nothing(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    if digits.is_empty() { "nothing".to_owned() } else { digits.join(" ") }
}

/// Returns the name of an entry point for messages.
fn entry_in_words(entry: EntryPoint) -> String {
    match entry.definition().location {
        EntryLocation::Export => format!("the export `{entry}`"),
        EntryLocation::StartSection => "the start function".to_owned(),
    }
}

/// Returns the names of the entry points for packets, of which a module has exactly one.
fn packet_entry_points() -> String {
    let names = ENTRY_POINTS.iter().filter(|known| known.presence == EntryPresence::ExactlyOne);
    names.map(|known| format!("`{}`", known.name)).collect::<Vec<_>>().join(", ")
}

/// Returns the places of calls as text, and the number of further calls.
fn places_in_words(places: &[CodeLocation], calls: usize) -> String {
    let mut words: Vec<String> = places.iter().map(CodeLocation::to_string).collect();
    match calls.saturating_sub(places.len()) {
        0 => {}
        1 => words.push("1 more place".to_owned()),
        more => words.push(format!("{more} more places")),
    }
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => "no place".to_owned(),
    }
}

/// The reason for refusing a module. If the message mentions the profile, another profile may admit the module.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ModuleRefusal {
    /// Bytes that do not begin with the magic number of WebAssembly; holds the first four.
    #[error("this is not a WebAssembly module: it begins with {}, not with 00 61 73 6d", hex_or_nothing(.0))]
    NotWasm(Vec<u8>),
    /// A module larger than [`MODULE_BYTES_MAX`].
    #[error("the module has {}; {} is the most", display_among(*.0, &[MODULE_MAX]), display_among(MODULE_MAX, &[*.0]))]
    TooLarge(Bytes),
    /// A module that is not valid, or that uses a WebAssembly feature that weir does not support.
    #[error("the module is not valid WebAssembly at byte {offset}: {reason}")]
    Invalid {
        /// The offset in the module's bytes.
        offset: u64,
        /// The validator's message.
        reason: String,
    },
    /// An import that weir does not offer.
    #[error("the module imports `{module}.{name}`, which weir does not offer; there is {known}")]
    UnknownImport {
        /// The module name of the import.
        module: String,
        /// The name of the import.
        name: String,
        /// The imports that weir offers.
        known: String,
    },
    /// A host function that is imported with another type.
    #[error("the module imports `weir.{name}` as {given}, but it is {wanted}")]
    ImportType {
        /// The function.
        name: &'static str,
        /// The imported type.
        given: String,
        /// The function's type.
        wanted: String,
    },
    /// An export with the wrong type.
    #[error("the export `{name}` is {given}, but must be {wanted}")]
    ExportType {
        /// The export.
        name: &'static str,
        /// The exported type.
        given: String,
        /// The required type.
        wanted: String,
    },
    /// A module without an entry point for packets, or with two.
    #[error(
        "the module exports {given}; it must export exactly one of {}, or `weir_packet` and `weir_stream`",
        packet_entry_points()
    )]
    Entry {
        /// The exported entry points for packets, in words.
        given: &'static str,
    },
    /// A module without a memory of its own that is exported.
    #[error("the module must have one memory of its own, exported as `memory`")]
    Memory,
    /// An initial memory that is larger than the manifest or weir allows.
    #[error("the module begins with {given} of memory, but its manifest allows {max}", given = display_among(*given, &[*max]), max = display_among(*max, &[*given]))]
    MemorySize {
        /// The initial memory.
        given: Bytes,
        /// The maximum.
        max: Bytes,
    },
    /// Tables that are too large; holds the number of elements.
    #[error("the module's tables have {0} elements; {TABLE_ELEMENTS_MAX} is the most")]
    TableSize(u64),
    /// A complexity that may exceed the limits of the compiler process.
    #[error(
        "the module has {count} {}, counted up to byte {at}; {} is the most that is sure to compile", .limit.name(), .limit.maximum()
    )]
    Complexity {
        /// The limit that was exceeded.
        limit: ComplexityLimit,
        /// The count when the limit was exceeded.
        count: u64,
        /// The offset in the module's bytes at which the limit was exceeded.
        at: u64,
    },
    /// An entry point that is an imported function.
    #[error(
        "{} is the imported function `weir.{name}`; it must be a function of the module's own, which may call `weir.{name}`", entry_in_words(*.entry)
    )]
    ImportedEntry {
        /// The entry point.
        entry: EntryPoint,
        /// The imported function.
        name: &'static str,
    },
    /// An export whose name has weir's prefix but is no entry point.
    #[error("the export `{}` has a name that belongs to weir; leave out the prefix `weir_`", .0.escape_debug())]
    ReservedExport(String),
    /// A block of state that the module does not export as its manifest declares it.
    #[error("the state `{state}` of the manifest: {reason}")]
    State {
        /// The block's name.
        state: Name,
        /// The difference.
        reason: &'static str,
    },
    /// No manifest.
    #[error(
        "the module has no manifest: build it with `weir build`, which adds weir.toml as the custom section `weir.manifest`"
    )]
    NoManifest,
    /// Two manifests, which could contradict each other; holds the offset of the second.
    #[error("the module has two manifests (custom sections `weir.manifest`), the second at byte {0}")]
    TwoManifests(u64),
    /// A function for the events of TCP streams without a table `tcp` in the manifest, or such a table without the function.
    #[error(
        "the module {}: it needs both, or neither",
        if *.has_function { "exports `weir_stream`, but its manifest has no table [tcp]" } else { "has a table [tcp] in its manifest, but does not export `weir_stream`" }
    )]
    Streams {
        /// True if the function is there.
        has_function: bool,
    },
    /// TCP streams that need more memory than the manifest leaves.
    #[error(
        "the module's TCP streams take {streams}, and its own memory begins with {own}: its manifest allows {max} (`memory`)",
        streams = display_among(*streams, &[*max, *own]), own = display_among(*own, &[*max]), max = display_among(*max, &[*streams])
    )]
    StreamMemory {
        /// The memory of the streams.
        streams: Bytes,
        /// The memory with which the module begins.
        own: Bytes,
        /// The manifest's maximum.
        max: Bytes,
    },
    /// A manifest that is not legal.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A parameter's value, set by the operator, that is missing or not legal.
    #[error(transparent)]
    Setting(#[from] ValueError),
    /// An import that the profile does not allow.
    #[error(
        "the module imports `weir.{name}`, which the profile does not allow: its `imports` are {allowed}"
    )]
    Import {
        /// The function.
        name: &'static str,
        /// The imports that the profile allows.
        allowed: String,
    },
    /// Calls that write packets, with a profile that allows no field to be written.
    #[error(
        "the module can write packets: it calls `weir.patch` in {}; the profile lets modules write no field (`writes`): name the fields there, or remove the calls",
        places_in_words(.places, *.calls)
    )]
    Writes {
        /// The first calls that an entry point can reach.
        places: Vec<CodeLocation>,
        /// The number of all such calls.
        calls: usize,
    },
    /// More initial memory than the profile allows, so that no tier can limit it.
    #[error(
        "the module begins with {given} of memory, declared at byte {at}, for its static variables and its stack; the profile allows {max} (`memory`)",
        given = display_among(*given, &[*max]), max = display_among(*max, &[*given])
    )]
    MemoryLimit {
        /// The initial memory.
        given: Bytes,
        /// The offset of the memory's declaration in the module's bytes.
        at: u64,
        /// The maximum.
        max: Bytes,
    },
    /// Ticks that are more frequent than the profile allows.
    #[error("the module asks for a tick every {given}; the profile allows one every {min} (`tick-period`)", given = display_among(*given, &[*min]), min = display_among(*min, &[*given]))]
    TickPeriod {
        /// The period of the module's ticks.
        given: Nanos,
        /// The shortest period that the profile allows.
        min: Nanos,
    },
    /// A bound over its limit, with a profile that allows no tier in which the limit would be enforced.
    #[error(transparent)]
    Excess(#[from] Box<Excess>),
}

/// Returns the WebAssembly features that weir accepts: the features that LLVM uses for C and Rust, except those whose
/// cost or effects are hard to bound.
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

/// Refuses bytes that are longer than [`MODULE_BYTES_MAX`].
pub(crate) fn check_size(bytes: &[u8]) -> Result<(), ModuleRefusal> {
    if bytes.len() > MODULE_BYTES_MAX {
        return Err(ModuleRefusal::TooLarge(Bytes(bytes.len() as u64)));
    }
    Ok(())
}

/// Checks a module's bytes, and reads their sections.
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
        let check = check_count(&payload, sections)?;
        sections.add(payload)?;
        check(sections)
    })?;
    let mut allocations = wasmparser::FuncValidatorAllocations::default();
    let mut complexity = Complexity::default();
    for (function, body) in functions.into_iter().zip(module.bodies()) {
        let mut function = function.into_validator(allocations);
        complexity.count_function(&mut function, &body, features())?;
        allocations = function.into_allocations();
    }
    let info = module_info(&module, &complexity)?;
    Ok((module, info))
}

impl From<wasmparser::BinaryReaderError> for ModuleRefusal {
    fn from(error: wasmparser::BinaryReaderError) -> Self {
        Self::Invalid { offset: error.offset(), reason: escaped(error.message()) }
    }
}

/// A check of a section's contents. It is made after the section was read.
type ContentsCheck = fn(&Sections) -> Result<(), ModuleRefusal>;

/// Checks the number of a section's items before the section is read, and returns the check of the contents.
fn check_count(payload: &Payload<'_>, so_far: &Sections) -> Result<ContentsCheck, ModuleRefusal> {
    let (limit, count, check_contents): (_, _, ContentsCheck) = match payload {
        Payload::TypeSection(reader) => (ComplexityLimit::Types, reader.count(), check_signatures),
        Payload::ImportSection(reader) => (ComplexityLimit::Functions, reader.count(), check_imports),
        Payload::FunctionSection(reader) => {
            let imported = u32::try_from(so_far.functions.len()).unwrap_or(u32::MAX);
            (ComplexityLimit::Functions, reader.count().saturating_add(imported), |_| Ok(()))
        }
        Payload::TableSection(reader) => (ComplexityLimit::Tables, reader.count(), check_tables),
        Payload::GlobalSection(reader) => (ComplexityLimit::Globals, reader.count(), |_| Ok(())),
        Payload::ExportSection(reader) => (ComplexityLimit::Exports, reader.count(), |_| Ok(())),
        Payload::DataSection(reader) => (ComplexityLimit::DataSegments, reader.count(), |_| Ok(())),
        Payload::ElementSection(reader) => {
            check_elements(reader)?;
            return Ok(|_| Ok(()));
        }
        Payload::CustomSection(reader) if reader.name() == MANIFEST_SECTION && so_far.has_manifest() => {
            return Err(ModuleRefusal::TwoManifests(reader.range().start));
        }
        _ => return Ok(|_| Ok(())),
    };
    limit.check(count.into(), payload.as_section().map_or(0, |(_, range)| range.start))?;
    Ok(check_contents)
}

fn check_signatures(sections: &Sections) -> Result<(), ModuleRefusal> {
    let functions = sections.types.iter().filter_map(|(at, ty)| Some((at, ty.as_ref()?)));
    let mut sizes = functions.map(|(at, ty)| (ty.params().len() + ty.results().len(), *at));
    sizes.try_for_each(|(size, at)| ComplexityLimit::Signature.check(size as u64, at))
}

fn check_tables(sections: &Sections) -> Result<(), ModuleRefusal> {
    let mut elements = 0u64;
    for table in &sections.tables {
        elements = elements.saturating_add(*table);
        if elements > TABLE_ELEMENTS_MAX as u64 {
            return Err(ModuleRefusal::TableSize(elements));
        }
    }
    Ok(())
}

/// Checks the number of elements of all element segments, before any element is copied.
fn check_elements(reader: &wasmparser::ElementSectionReader<'_>) -> Result<(), ModuleRefusal> {
    let mut elements = 0u64;
    for segment in reader.clone() {
        let segment = segment?;
        let count = match &segment.items {
            wasmparser::ElementItems::Functions(items) => items.count(),
            wasmparser::ElementItems::Expressions(_, items) => items.count(),
        };
        // An empty segment takes memory too.
        elements = elements.saturating_add(u64::from(count).max(1));
        ComplexityLimit::Elements.check(elements, segment.range.start)?;
    }
    Ok(())
}

fn check_imports(sections: &Sections) -> Result<(), ModuleRefusal> {
    sections.imports.iter().try_for_each(|given| check_import(sections, given))
}

fn check_import(sections: &Sections, Import { module, name, ty }: &Import) -> Result<(), ModuleRefusal> {
    let known =
        HostFunction::from_import_name(name).filter(|_| module == host::MODULE).map(HostFunction::definition);
    let (Some(known), TypeRef::Func(index)) = (known, ty) else {
        let shortened = |name: &str| name.escape_debug().take(80).collect();
        let known = host::HOST_FUNCTIONS.iter().map(|known| format!("`weir.{}`", known.name));
        let known = known.collect::<Vec<_>>().join(", ");
        return Err(ModuleRefusal::UnknownImport { module: shortened(module), name: shortened(name), known });
    };
    let given = sections.type_at(*index);
    let wanted =
        FuncType::new(known.parameter_types().map(value_type), [value_type(known.result.value_type())]);
    if given == Some(&wanted) {
        return Ok(());
    }
    Err(ModuleRefusal::ImportType {
        name: known.name,
        given: type_text(given),
        wanted: type_text(Some(&wanted)),
    })
}

/// Returns the index of an entry point's function, if the module has the entry point. Fails if the function has the
/// wrong type, or is imported.
fn entry_point(module: &ParsedModule, known: &entry::EntryDefinition) -> Result<Option<u32>, ModuleRefusal> {
    let index = match known.location {
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
                let (given, wanted) = (type_text(ty), type_text(Some(&wanted)));
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

/// Returns the module's entry points, the index of the function that gets packets or events, and that of the function
/// that gets events.
fn entry_points(module: &ParsedModule) -> Result<(EntryPoints, u32, Option<u32>), ModuleRefusal> {
    let (mut entries, mut for_packets) = (EntryPoints::default(), Vec::new());
    for known in &ENTRY_POINTS {
        if let Some(index) = entry_point(module, known)? {
            entries = entries.with(known.entry);
            for_packets.extend((known.presence == EntryPresence::ExactlyOne).then_some(index));
        }
    }
    let is_allowed = |name: &str| {
        EntryPoint::from_export_name(name).is_some()
            || !name.starts_with(RESERVED_PREFIX)
            || name.starts_with(export::STATE_PREFIX)
    };
    let is_legal_pair = entries.has(EntryPoint::Packet) && !entries.has(EntryPoint::Batch);
    let (entry_function, count) = (for_packets.first().copied(), for_packets.len());
    match (entry_function, module.exports.iter().find(|export| !is_allowed(&export.name))) {
        (None, _) => Err(ModuleRefusal::Entry { given: "none of them" }),
        (Some(_), _) if count > 1 && !is_legal_pair => Err(ModuleRefusal::Entry { given: "several of them" }),
        (Some(_), Some(export)) => Err(ModuleRefusal::ReservedExport(export.name.chars().take(80).collect())),
        (Some(entry_function), None) => {
            // The function for streams is the last one of the list, in the order of the entry points.
            let stream_function = for_packets.last().copied().filter(|_| entries.has(EntryPoint::Stream));
            Ok((entries, entry_function, stream_function))
        }
    }
}

fn module_info(module: &ParsedModule, complexity: &Complexity) -> Result<ModuleInfo, ModuleRefusal> {
    let is_exported =
        module.exports.iter().any(|export| export.matches(export::MEMORY, ExternalKind::Memory));
    let (pages, memory_declared) = module.memory.filter(|_| is_exported).ok_or(ModuleRefusal::Memory)?;
    let memory = Bytes(pages.saturating_mul(WASM_PAGE));
    if memory.0 > u64::from(PRIVATE_MAX) {
        return Err(ModuleRefusal::MemorySize { given: memory, max: Bytes(PRIVATE_MAX.into()) });
    }
    let (entries, entry_function, stream_function) = entry_points(module)?;
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
        stream_function,
        stack_pointer: module.stack_pointer,
        types: count(module.types.len()),
        globals: count(module.global_count()),
        functions: count(module.functions.len()),
        memory,
        memory_declared,
        states: Vec::new(),
        imports,
        may_be_inlined: complexity.may_be_inlined(count(module.imported.len())),
    })
}

/// Finds the blocks of state that a manifest declares.
///
/// # Errors
/// [`ModuleRefusal::State`] for a block without an export, and for one outside of the memory at the start;
/// [`ModuleRefusal::ReservedExport`] for an export without a block.
pub(crate) fn state_blocks(
    module: &ParsedModule,
    declared: &[DeclaredState],
    memory: Bytes,
) -> Result<Vec<Range<u32>>, ModuleRefusal> {
    let exported = |state: &DeclaredState| format!("{}{}", export::STATE_PREFIX, state.name.identifier());
    let is_declared = |name: &str| declared.iter().any(|state| exported(state) == name);
    let of_states = module.exports.iter().filter(|export| export.name.starts_with(export::STATE_PREFIX));
    if let Some(other) = of_states.into_iter().find(|export| !is_declared(&export.name)) {
        return Err(ModuleRefusal::ReservedExport(other.name.chars().take(80).collect()));
    }
    let block = |state: &DeclaredState| {
        let refused = |reason| ModuleRefusal::State { state: state.name.clone(), reason };
        let address = module.exported_constant(&exported(state)).ok_or_else(|| {
            refused("the module exports no address of it: write WEIR_STATE(NAME, OBJECT) in C, and `state[...]` in module! in Rust")
        })?;
        let end = address.checked_add(state.bytes).filter(|end| u64::from(*end) <= memory.0);
        Ok(address..end.ok_or_else(|| refused("it lies outside of the module's memory"))?)
    };
    declared.iter().map(block).collect()
}

fn value_type(ty: ValueType) -> ValType {
    match ty {
        ValueType::I32 => ValType::I32,
        ValueType::I64 => ValType::I64,
        ValueType::F64 => ValType::F64,
    }
}

/// Returns a function type as text for messages.
fn type_text(ty: Option<&FuncType>) -> String {
    let Some(ty) = ty else { return "no function".to_owned() };
    let list = |types: &[ValType]| types.iter().map(ValType::to_string).collect::<Vec<_>>().join(", ");
    let results =
        if ty.results().len() == 1 { list(ty.results()) } else { format!("({})", list(ty.results())) };
    format!("({}) -> {results}", list(ty.params()))
}
