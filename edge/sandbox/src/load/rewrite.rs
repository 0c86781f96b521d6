//! The loader's rewriting pass, between admission and compilation.
//!
//! - The loop over a batch is put inside the module, so that one host-to-guest call serves 64 packets. The loop keeps the
//!   mask of remaining packets in a global that the host reads and the module cannot name. By it weir knows after a trap
//!   exactly which packet was lost.
//! - A module that is not proved is charged for its work: `weir_bounds::charge` plans where and how much, `meter.rs`
//!   writes the code. A proved module is not charged.
//! - The meter ends endless loops, because every iteration is charged. There is a second defence, should the plan have
//!   an error: modules that are not proved read a byte of the poll page after each packet and each host call. When the
//!   time of a call is over, the watchdog makes that page inaccessible, and the next read traps.
//! - Reads of the module's parameters are replaced by the parameters' values.
//! - `memory.copy` becomes a call of a function that can also copy out of packets and descriptors.
//! - The start function, if there is one, becomes an export: it is called when the sandbox is complete, under the
//!   same limits as any call.
//! - `emit`, `patch`, `send` and `keep` get one more argument, the mask of remaining packets. Otherwise these host
//!   functions would have to read the global through wasmtime, which takes a large part of their time. The module cannot
//!   influence the argument.
//! - Custom sections are removed, except branch hints and function names. These are read as far as they are valid and
//!   written anew, because a module with an invalid custom section is valid.
//! - The declared maximum is removed from the memory's type: with a maximum of 1 GiB or less the compiler turns
//!   constant addresses in the packet arena into unconditional traps, and folds bounds that are not the sandbox's.
//!   The ceiling is enforced when memory grows.

use crate::load::batch::{BatchLayout, LoopCharges};
use crate::load::copy;
use crate::load::meter::{ALLOWANCE_MAX, FuelMeter, MeteredBody, OnExhausted, Scratch, SliceGlobals};
use crate::load::writer::FunctionWriter;
use std::collections::BTreeMap;
use std::convert::Infallible;
use wasm_encoder::reencode::{Error, Reencode, RoundtripReencoder};
use wasm_encoder::{
    BlockType, BranchHints, CodeSection, ConstExpr, DataCountSection, DataSection, ElementSection,
    EntityType, ExportKind, ExportSection, FunctionSection, GlobalSection, GlobalType, ImportSection,
    MemorySection, MemoryType, Module, NameMap, NameSection, SectionId, TableSection, TypeSection, ValType,
};
use wasmparser::{
    DataSectionReader, ElementSectionReader, FuncType, GlobalSectionReader, TableSectionReader,
};
use weir_abi::code;
use weir_abi::host::{self, HOST_FUNCTIONS, HostDefinition, HostFunction, ValueType};
use weir_admission::{EntryKind, FuelLimits, ModuleInfo, ParameterValue};
use weir_bounds::charge::{ChargePlan, ReplacedCall, host_call_cost};
use weir_bounds::{CostTable, EntryPoint, Environment, Export, InjectedValue, Linear};

/// The most characters of a function's name.
const NAME_MAX: usize = 200;

/// Returns the host functions that get the mask of remaining packets as one more argument.
fn widened() -> impl Iterator<Item = &'static HostDefinition> {
    HOST_FUNCTIONS.iter().filter(|function| function.gets_packet_mask)
}

/// The host function that the meter calls when an allowance is used up. Modules cannot import it themselves, because
/// admission refuses unknown imports.
pub(crate) const LIMIT: &str = "limit";

/// The host function that the meter calls when its counter is used up, in a module whose calls can be suspended. The
/// argument is the counter, which is below zero; the result is the new counter.
pub(crate) const SUSPEND: &str = "suspend";

// The exports that the pass adds. The prefix `weir_` is reserved, so modules cannot have exports of these names.
/// The batch function.
pub(crate) const RUN: &str = "weir_run";
/// The global with the mask of remaining packets.
pub(crate) const REST: &str = "weir_rest";
/// The global with the mask of packets to drop.
pub(crate) const DROPS: &str = "weir_drops";
/// The meter's counter.
pub(crate) const FUEL: &str = "weir_fuel";
/// The global `beyond` of [`SliceGlobals`].
pub(crate) const BEYOND: &str = "weir_beyond";
/// The global `held` of [`SliceGlobals`].
pub(crate) const HELD: &str = "weir_held";
/// The module's own stack pointer.
pub(crate) const STACK_POINTER: &str = "weir_stack_pointer";

/// Returns the name of the export that calls an entry point without packets.
pub(crate) fn export_name(entry: EntryPoint) -> String {
    format!("weir_enter_{}", entry.definition().key)
}

/// The run-time checks of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checks {
    /// No checks.
    None,
    /// A call is suspended when its slice is used up. There is no allowance.
    Sliced,
    /// A call that has used up its allowance is aborted or gets more.
    Charged {
        /// The allowance of every call. `None` for the limits of the profile.
        most: Option<u64>,
        /// Fuel that is added when the allowance is used up. `None` if the call is aborted then.
        piece: Option<u64>,
        /// True if the charges of a call are exactly the fuel that it uses.
        exact: bool,
        /// True if a call is suspended when its slice is used up.
        sliced: bool,
    },
}

impl Checks {
    /// Returns whether calls can be suspended.
    pub(crate) const fn is_sliced(self) -> bool {
        matches!(self, Self::Sliced | Self::Charged { sliced: true, .. })
    }

    /// Returns whether there are allowances, and the poll page is read.
    pub(crate) const fn is_charged(self) -> bool {
        matches!(self, Self::Charged { .. })
    }

    /// Returns the fuel added when the allowance is used up, if the call continues.
    pub(crate) const fn piece(self) -> Option<u64> {
        match self {
            Self::Charged { piece, .. } => piece,
            _ => None,
        }
    }
}

/// The input of the pass.
pub(crate) struct RewriteTask<'a> {
    pub(crate) module: &'a weir_bounds::ParsedModule,
    pub(crate) facts: &'a ModuleInfo,
    pub(crate) values: &'a [ParameterValue],
    pub(crate) plan: &'a ChargePlan,
    pub(crate) limits: &'a FuelLimits,
    pub(crate) costs: &'a CostTable,
    pub(crate) environment: &'a Environment,
    pub(crate) checks: Checks,
}

/// Rewrites a module that admission has validated, section by section in their standard order. The start section is left
/// out.
pub(crate) fn rewrite(task: &RewriteTask<'_>) -> Result<Vec<u8>, Error<Infallible>> {
    let mut pass = Pass::new(task);
    let (parsed, mut module) = (task.module, Module::new());
    module.section(&pass.types()?).section(&pass.imports()).section(&pass.functions());
    if let Some(reader) = parsed.section(SectionId::Table.into()) {
        let mut tables = TableSection::new();
        pass.parse_table_section(&mut tables, TableSectionReader::new(reader)?)?;
        module.section(&tables);
    }
    module.section(&pass.memory()).section(&pass.globals()?).section(&pass.exports()?);
    if let Some(reader) = parsed.section(SectionId::Element.into()) {
        let mut elements = ElementSection::new();
        pass.parse_element_section(&mut elements, ElementSectionReader::new(reader)?)?;
        module.section(&elements);
    }
    if let Some(count) = parsed.data_count {
        module.section(&DataCountSection { count });
    }
    let code = pass.code()?;
    if !pass.hints.is_empty() {
        module.section(&pass.hints);
    }
    module.section(&code);
    if let Some(reader) = parsed.section(SectionId::Data.into()) {
        let mut data = DataSection::new();
        pass.parse_data_section(&mut data, DataSectionReader::new(reader)?)?;
        module.section(&data);
    }
    module.section(&pass.names()?);
    Ok(module.finish())
}

/// The state of the rewriting pass.
pub(crate) struct Pass<'a> {
    pub(crate) task: &'a RewriteTask<'a>,
    /// The meter; `None` if no charges are made.
    pub(crate) meter: Option<FuelMeter>,
    /// The imported functions that the module does not only call directly, by rising index. In element segments, exports
    /// and references, a small stand-in function replaces each of them.
    stand_ins: Vec<u32>,
    hints: BranchHints,
}

/// The relevant part of a function's type.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FunctionSignature {
    parameters: u32,
    /// The type of a block with the same results, if there is at most one.
    pub(crate) result: Option<BlockType>,
}

impl<'a> Pass<'a> {
    fn new(task: &'a RewriteTask<'a>) -> Self {
        let imported = task.plan.imports.len();
        let (fuel, next) = (task.facts.globals + 2, task.facts.globals + 3);
        let on_exhausted = match task.checks {
            Checks::None => None,
            Checks::Sliced => Some(OnExhausted::AskHost { slice: None }),
            Checks::Charged { sliced: true, .. } => {
                Some(OnExhausted::AskHost { slice: Some(SliceGlobals { beyond: next, held: next + 1 }) })
            }
            Checks::Charged { piece: Some(piece), .. } => Some(OnExhausted::Refill { piece, over: next }),
            Checks::Charged { piece: None, .. } => Some(OnExhausted::Abort),
        };
        let limit = u32::try_from(imported).unwrap_or(u32::MAX);
        let meter = on_exhausted.map(|on_exhausted| FuelMeter {
            fuel,
            limit,
            on_exhausted,
            polls: task.checks.is_charged(),
        });
        let needs_stand_in = |function: &Option<HostFunction>| {
            meter.is_some() || function.is_some_and(|function| function.definition().gets_packet_mask)
        };
        let stand_ins = (0..)
            .zip(&task.plan.imports)
            .filter(|(index, function)| task.plan.is_referenced(*index) && needs_stand_in(function))
            .map(|(index, _)| index)
            .collect();
        Self { task, meter, stand_ins, hints: BranchHints::new() }
    }

    pub(crate) fn imported(&self) -> u32 {
        u32::try_from(self.task.plan.imports.len()).unwrap_or(u32::MAX)
    }

    /// Returns the index of the global with the mask of remaining packets. The loader's globals follow the module's own
    /// ones, so no instruction of the module can name them.
    fn rest(&self) -> u32 {
        self.task.facts.globals
    }

    /// Returns the index of the global with the mask of packets to drop.
    fn drops(&self) -> u32 {
        self.task.facts.globals + 1
    }

    /// Returns the new index of a function of the module, for direct calls. The loader's import, if there is one, comes
    /// after the module's imports.
    pub(crate) fn direct_index(&self, index: u32) -> u32 {
        if index < self.imported() { index } else { index + u32::from(self.meter.is_some()) }
    }

    /// Returns the index of the first function that the loader adds.
    fn added(&self) -> u32 {
        self.direct_index(self.task.facts.functions)
    }

    /// Returns true if the code of this function is inlined into the batch loop. This is so for a packet function that no
    /// function of the module calls.
    pub(crate) fn is_in_loop(&self, index: u32) -> bool {
        let facts = self.task.facts;
        let is_entry = facts.entry() == EntryKind::Packet && index == facts.entry_function;
        is_entry && self.task.plan.function(index).is_some_and(|entry| !entry.is_called)
    }

    /// Returns whether the loader adds a function that processes a batch.
    fn adds_batch_function(&self) -> bool {
        let entry = self.task.facts.entry_function;
        match self.task.facts.entry() {
            EntryKind::Packet => !self.is_in_loop(entry),
            EntryKind::Batch => self.meter.is_some(),
        }
    }

    /// Returns the index of the replacement of `memory.copy`. If the module needs one, it is the last function.
    pub(crate) fn copier(&self) -> u32 {
        let stand_ins = u32::try_from(self.stand_ins.len()).unwrap_or(u32::MAX);
        self.first_entry_wrapper() + self.entry_count() + stand_ins
    }

    /// Returns the index of a type that the loader adds, by its place in this order: the types of the batch function, the
    /// replacement of `memory.copy`, the widened imports, and [`LIMIT`] or [`SUSPEND`].
    fn added_type(&self, place: usize) -> u32 {
        self.task.facts.types.saturating_add(u32::try_from(place).unwrap_or(u32::MAX))
    }

    fn type_of(&self, function: u32) -> u32 {
        self.task.module.functions.get(function as usize).copied().unwrap_or_default()
    }

    pub(crate) fn signature(&self, function: u32) -> FunctionSignature {
        let Some(ty) = self.task.module.type_of(function) else { return FunctionSignature::default() };
        let result = match ty.results() {
            [] => Some(BlockType::Empty),
            [one] => RoundtripReencoder.val_type(*one).ok().map(BlockType::Result),
            _ => None,
        };
        FunctionSignature { parameters: u32::try_from(ty.params().len()).unwrap_or(u32::MAX), result }
    }

    pub(crate) fn is_exact(&self) -> bool {
        matches!(self.task.checks, Checks::Charged { exact: true, .. })
    }

    /// Appends a function to the code section, and its branch hints to theirs.
    fn write(&mut self, code: &mut CodeSection, index: u32, body: MeteredBody) {
        if !body.hints.is_empty() {
            self.hints.function_hints(index, body.hints);
        }
        code.function(&body.code);
    }

    /// Builds the section with the names of functions, by which a fault names its function.
    fn names(&mut self) -> Result<NameSection, Error<Infallible>> {
        let mut by_index = BTreeMap::new();
        for (index, name) in self.task.module.function_names() {
            if index < self.task.facts.functions {
                by_index.entry(self.function_index(index)?).or_insert(name);
            }
        }
        let mut names = NameMap::new();
        for (index, name) in by_index {
            names.append(index, &name.chars().take(NAME_MAX).collect::<String>());
        }
        let mut section = NameSection::new();
        section.functions(&names);
        Ok(section)
    }

    /// Returns the index of the first function that sets the allowance of an entry point. There are
    /// [`Self::entry_count`] of them.
    fn first_entry_wrapper(&self) -> u32 {
        self.added() + u32::from(self.adds_batch_function())
    }

    /// Returns the number of functions that set the allowance of an entry point.
    fn entry_count(&self) -> u32 {
        let count = self.meter.map_or(0, |_| self.task.plan.entries.len());
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    fn globals(&mut self) -> Result<GlobalSection, Error<Infallible>> {
        let mut globals = GlobalSection::new();
        if let Some(reader) = self.task.module.section(SectionId::Global.into()) {
            self.parse_global_section(&mut globals, GlobalSectionReader::new(reader)?)?;
        }
        let count = match self.meter.map(|meter| meter.on_exhausted) {
            None => 2,
            Some(OnExhausted::Abort | OnExhausted::AskHost { slice: None }) => 3,
            Some(OnExhausted::Refill { .. }) => 4,
            Some(OnExhausted::AskHost { slice: Some(_) }) => 5,
        };
        for _ in 0..count {
            let ty = GlobalType { val_type: ValType::I64, mutable: true, shared: false };
            globals.global(ty, &ConstExpr::i64_const(0));
        }
        Ok(globals)
    }

    /// Returns the indices that the batch function uses.
    pub(crate) fn batch_layout(&self) -> BatchLayout {
        let entry = self.direct_index(self.task.facts.entry_function);
        BatchLayout { entry, rest: self.rest(), drops: self.drops() }
    }

    /// Returns the charges of the batch function; `None` if no charges are made.
    pub(crate) fn loop_charges(&self) -> Option<LoopCharges> {
        let (meter, entry) = (self.meter?, self.task.plan.function(self.task.facts.entry_function)?);
        let packets = if self.is_exact() { 1 } else { weir_abi::BATCH_PACKETS as u64 };
        let charged = self.is_charged_outside(self.task.facts.entry_function).then_some(entry.entry);
        let packet = self.allowance(EntryPoint::Packet);
        Some(LoopCharges {
            meter,
            packet,
            packets,
            charged,
            has_only_entry_charge: entry.has_only_entry_charge,
        })
    }

    /// Builds the batch function, if the packet function is not inlined into it.
    fn run(&self) -> MeteredBody {
        match self.loop_charges() {
            Some(checked) if self.task.facts.entry() == EntryKind::Batch => {
                self.batch_layout().batch(&checked)
            }
            checked => self.batch_layout().packets(checked.as_ref()),
        }
    }

    /// Returns the allowance of one call of an entry point.
    fn allowance(&self, entry: EntryPoint) -> Linear {
        let limit = match self.task.checks {
            Checks::Charged { most: Some(most), .. } => Linear::constant(most),
            // No allowance can be used up.
            Checks::Sliced => Linear::constant(ALLOWANCE_MAX),
            _ => self.task.limits.of(entry),
        };
        Linear { constant: limit.constant.min(ALLOWANCE_MAX), ..limit }
    }

    /// Returns true if the callers of a function charge for its entry. This is so for an entry point that only weir
    /// calls, unless its allowance is too small for the charge or charges are exact. Other functions charge for their
    /// entry themselves.
    pub(crate) fn is_charged_outside(&self, index: u32) -> bool {
        let Some(plan) = self.task.plan.function(index) else { return false };
        let facts = self.task.facts;
        let packet = (EntryPoint::Packet, facts.entry_function);
        let is_packet = facts.entry() == EntryKind::Packet;
        let entries = self.task.plan.entries.iter().copied().chain(is_packet.then_some(packet));
        let mut limits = entries
            .filter(|(_, function)| *function == index)
            .map(|(entry, _)| self.allowance(entry).constant);
        let is_entry = limits.next().is_some_and(|first| limits.fold(first, u64::min) >= plan.entry);
        is_entry && !plan.is_called && !self.is_exact()
    }

    /// Builds a function that sets the allowance of a call of an entry point, and calls the entry point.
    fn entry_wrapper(&self, meter: FuelMeter, entry: EntryPoint, index: u32) -> MeteredBody {
        let plan = self.task.plan.function(index);
        let taken = plan.map_or(0, |plan| plan.entry) * u64::from(self.is_charged_outside(index));
        let allowance = self.allowance(entry).constant.saturating_sub(taken);
        let arguments = self.signature(index).parameters;
        let locals = if meter.asks_host() { Scratch::TYPES.to_vec() } else { Vec::new() };
        let mut body = MeteredBody::new(locals, Scratch::after(arguments));
        body.code.instructions().i64_const(allowance.cast_signed());
        meter.set_allowance(&mut body, taken);
        let mut code = body.code.instructions();
        for argument in 0..arguments {
            code.local_get(argument);
        }
        code.call(self.direct_index(index));
        meter.report_excess(&mut body);
        body.code.instructions().end();
        body
    }

    /// Builds the stand-in of an imported function: it charges for the call as a direct call does, and calls the host
    /// function.
    fn stand_in(&self, import: u32) -> MeteredBody {
        let arguments = self.signature(import).parameters;
        let locals = if self.meter.is_some() { Scratch::TYPES.to_vec() } else { Vec::new() };
        let mut body = MeteredBody::new(locals, Scratch::after(arguments));
        for argument in 0..arguments {
            body.code.instructions().local_get(argument);
        }
        if let Some((meter, function)) = self.meter.zip(self.host_function(import)) {
            let (constant, length) =
                host_call_cost(function, self.task.costs, self.task.environment, self.is_exact());
            meter.charge_constant(&mut body, constant);
            if let Some((length, each)) = length {
                meter.charge_length(&mut body, length, each);
            }
        }
        self.call_host(&mut body, import);
        body.code.instructions().end();
        body
    }

    fn host_function(&self, import: u32) -> Option<HostFunction> {
        self.task.plan.imports.get(import as usize).copied().flatten()
    }

    /// Writes a direct call of a host function, with the additional argument if the function gets it.
    pub(crate) fn call_host(&self, body: &mut MeteredBody, import: u32) {
        if self.host_function(import).is_some_and(|function| function.definition().gets_packet_mask) {
            body.code.instructions().global_get(self.rest());
        }
        body.code.instructions().call(import);
        if self.meter.is_some_and(|meter| meter.polls) {
            body.poll();
        }
    }

    /// Writes the replacement of a read of a parameter.
    pub(crate) fn inject(&self, body: &mut MeteredBody, replaced: &ReplacedCall) {
        let value = self.task.values.get(replaced.injected.parameter as usize);
        let mut out = body.code.instructions();
        match replaced.injected.kind {
            InjectedValue::Int => out.i64_const(value.and_then(ParameterValue::as_int).unwrap_or(0)),
            InjectedValue::Float => {
                out.f64_const(value.and_then(ParameterValue::as_float).unwrap_or(0.0).into())
            }
            InjectedValue::Length => out.i32_const(
                value.map_or(code::UNKNOWN, |value| i32::try_from(value.encoded().len()).unwrap_or(i32::MAX)),
            ),
        };
    }
}

impl Pass<'_> {
    fn types(&mut self) -> Result<TypeSection, Error<Infallible>> {
        let mut types = TypeSection::new();
        for (_, ty) in &self.task.module.types {
            // Admission admits no other types.
            types.ty().func_type(&self.func_type(ty.clone().unwrap_or_else(|| FuncType::new([], [])))?);
        }
        types.ty().function([ValType::I32, ValType::I64], [ValType::I64]);
        types.ty().function([ValType::I32; 3], []);
        for function in widened() {
            let parameters = function.parameter_types().map(value_type);
            let wide: Vec<ValType> = parameters.chain([ValType::I64]).collect();
            types.ty().function(wide, [value_type(function.result.value_type())]);
        }
        match self.meter {
            Some(meter) if meter.asks_host() => types.ty().function([ValType::I64], [ValType::I64]),
            Some(_) => types.ty().function([], []),
            None => {}
        }
        Ok(types)
    }

    /// Builds the import section. Admission admits only imports of functions, so the place of an import is its function's
    /// index.
    fn imports(&self) -> ImportSection {
        let mut imports = ImportSection::new();
        for (index, import) in (0..).zip(&self.task.module.imports) {
            let ty = match widened().position(|function| function.name == import.name) {
                Some(place) => self.added_type(2 + place),
                None => self.type_of(index),
            };
            imports.import(&import.module, &import.name, EntityType::Function(ty));
        }
        if self.meter.is_some() {
            let ty = EntityType::Function(self.added_type(2 + widened().count()));
            let name = if self.task.checks.is_sliced() { SUSPEND } else { LIMIT };
            imports.import(host::MODULE, name, ty);
        }
        imports
    }

    fn functions(&self) -> FunctionSection {
        let mut functions = FunctionSection::new();
        for index in self.imported()..self.task.facts.functions {
            functions.function(if self.is_in_loop(index) { self.added_type(0) } else { self.type_of(index) });
        }
        if self.adds_batch_function() {
            functions.function(self.added_type(0));
        }
        for (_, index) in self.meter.iter().flat_map(|_| &self.task.plan.entries) {
            functions.function(self.type_of(*index));
        }
        for import in &self.stand_ins {
            functions.function(self.type_of(*import));
        }
        if self.task.plan.has_memory_copy {
            functions.function(self.added_type(1));
        }
        functions
    }

    /// Builds the memory section, without the memory's declared maximum.
    fn memory(&self) -> MemorySection {
        let minimum = self.task.module.memory.map_or(0, |(pages, _)| pages);
        let mut memory = MemorySection::new();
        memory.memory(MemoryType {
            minimum,
            maximum: None,
            memory64: false,
            shared: false,
            page_size_log2: None,
        });
        memory
    }

    fn exports(&mut self) -> Result<ExportSection, Error<Infallible>> {
        let mut exports = ExportSection::new();
        for Export { name, kind, index } in &self.task.module.exports {
            exports.export(name, self.export_kind(*kind)?, self.external_index(*kind, *index)?);
        }
        let facts = self.task.facts;
        exports.export(REST, ExportKind::Global, self.rest());
        exports.export(DROPS, ExportKind::Global, self.drops());
        if let Some(meter) = self.meter {
            exports.export(FUEL, ExportKind::Global, meter.fuel);
            if let OnExhausted::AskHost { slice: Some(SliceGlobals { beyond, held }) } = meter.on_exhausted {
                exports.export(BEYOND, ExportKind::Global, beyond);
                exports.export(HELD, ExportKind::Global, held);
            }
        }
        let run =
            if self.adds_batch_function() { self.added() } else { self.direct_index(facts.entry_function) };
        exports.export(RUN, ExportKind::Func, run);
        for (place, (entry, index)) in (self.first_entry_wrapper()..).zip(&self.task.plan.entries) {
            let index = if self.meter.is_some() { place } else { self.direct_index(*index) };
            exports.export(&export_name(*entry), ExportKind::Func, index);
        }
        if let Some(index) = facts.stack_pointer {
            exports.export(STACK_POINTER, ExportKind::Global, index);
        }
        Ok(exports)
    }

    fn code(&mut self) -> Result<CodeSection, Error<Infallible>> {
        let mut code = CodeSection::new();
        let task = self.task;
        let hints: BTreeMap<(u32, u32), bool> = task.module.branch_hints().collect();
        for ((index, function), plan) in
            (self.imported()..).zip(task.module.bodies()).zip(&task.plan.functions)
        {
            let parameters = self.signature(index).parameters;
            let mut locals = Vec::new();
            for group in function.get_locals_reader()? {
                let (number, ty) = group?;
                locals.push((number, self.val_type(ty)?));
            }
            let mut writer = FunctionWriter::begin(self, index, plan, parameters, &locals);
            let begin = function.range().start;
            let mut reader = function.get_operators_reader()?;
            while !reader.eof() {
                let (operator, offset) = reader.read_with_offset()?;
                let within = u32::try_from(offset - begin).unwrap_or(u32::MAX);
                writer.write(self, operator, offset, hints.get(&(index, within)).copied())?;
            }
            self.write(&mut code, self.direct_index(index), writer.body);
        }
        let mut added = Vec::new();
        if self.adds_batch_function() {
            added.push(self.run());
        }
        if let Some(meter) = self.meter {
            added.extend(
                task.plan.entries.iter().map(|(entry, index)| self.entry_wrapper(meter, *entry, *index)),
            );
        }
        added.extend(self.stand_ins.iter().map(|import| self.stand_in(*import)));
        added.extend(task.plan.has_memory_copy.then(copy::function));
        for (index, body) in (self.added()..).zip(added) {
            self.write(&mut code, index, body);
        }
        Ok(code)
    }
}

impl Reencode for Pass<'_> {
    type Error = Infallible;

    /// References of the module to an imported function go to its stand-in, if there is one.
    fn function_index(&mut self, index: u32) -> Result<u32, Error<Infallible>> {
        let place = self.stand_ins.binary_search(&index).ok().and_then(|place| u32::try_from(place).ok());
        Ok(place.map_or(self.direct_index(index), |place| {
            self.first_entry_wrapper() + self.entry_count() + place
        }))
    }
}

fn value_type(ty: ValueType) -> ValType {
    match ty {
        ValueType::I32 => ValType::I32,
        ValueType::I64 => ValType::I64,
        ValueType::F64 => ValType::F64,
    }
}
