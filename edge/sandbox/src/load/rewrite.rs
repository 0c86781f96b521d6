//! The loader's rewriting pass: what a module becomes before it is compiled.
//!
//! - The loop over a batch is put inside the module, so that a host-to-guest call is paid once for 64 packets. It keeps the mask of
//!   packets still to do in a global that the host reads and the module cannot name: after a trap, weir knows exactly which packet was lost.
//! - A module that is not proved is charged for what it does: where and how much is planned in `weir_bounds::charge`, the code is in `meter.rs`.
//!   In a proved module nothing is checked.
//! - Whoever runs for ever is charged again and again, so that is what ends it. Should the plan have an error, there is a last line of defence:
//!   in modules that are not proved, a byte of the poll page is read after each packet and each call of the host. When the time of a call is
//!   over, the watchdog makes that page inaccessible, and the next such read is a trap.
//! - Reads of parameters are replaced by their values.
//! - `memory.copy` becomes a call of a function that can copy out of packets and descriptors too.
//! - The start function, if there is one, becomes an export: it is called when the sandbox is complete, under the same limits as any call.
//! - `emit`, `patch`, `send` and `keep` get one more argument, the mask of packets still to do: the host would pay a good part of the call's time for asking
//!   the engine for the global. The module has no say in it.
//! - Custom sections are left out, but for branch hints and the names of functions, which are read as far as they can be and written anew: nothing that
//!   is wrong in one keeps a module from being loaded.
//! - The declared maximum is taken out of the memory's type: with one of 1 GiB or less the compiler turns constant addresses in the packet
//!   arena into unconditional traps, and folds bounds that are not the sandbox's. The ceiling is enforced when memory grows.

use crate::load::batch::{BatchLayout, Loop};
use crate::load::copy;
use crate::load::meter::{ALLOWANCE_MAX, FuelMeter, MeteredBody, Scratch, Slice, Then};
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
use weir_bounds::charge::{ChargePlan, Replaced, of_host};
use weir_bounds::{CostTable, EntryPoint, Environment, Export, InjectedValue, Linear};

/// The most characters of a function's name.
const NAME_MAX: usize = 200;

/// The host functions that get one more argument.
fn widened() -> impl Iterator<Item = &'static HostDefinition> {
    HOST_FUNCTIONS.iter().filter(|known| known.is_told_packets)
}

/// The host function that the pass imports, for whoever has used up an allowance. Modules cannot import it: admission does not know it.
pub(crate) const LIMIT: &str = "limit";

/// The same, of a module whose calls can be suspended. It is given the counter, which is below zero, and gives what it is from then on.
pub(crate) const SUSPEND: &str = "suspend";

/// Exports that the pass adds. Modules cannot have them: the prefix is reserved.
pub(crate) const RUN: &str = "weir_run";
pub(crate) const REST: &str = "weir_rest";
pub(crate) const DROPS: &str = "weir_drops";
pub(crate) const FUEL: &str = "weir_fuel";
pub(crate) const BEYOND: &str = "weir_beyond";
pub(crate) const HELD: &str = "weir_held";
pub(crate) const STACK_POINTER: &str = "weir_stack_pointer";

/// The export by which weir calls an entry point that takes no packets.
pub(crate) fn enter(entry: EntryPoint) -> String {
    format!("weir_enter_{}", entry.definition().key)
}

/// What is checked while a module runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checks {
    /// Nothing.
    None,
    /// Whoever has used up its slice is suspended. There is no allowance.
    Sliced,
    /// Whoever has used up its allowance: is abandoned, or goes on.
    Charged {
        /// What any call may use; without it, what the limits say.
        most: Option<u64>,
        /// Whoever has used it up goes on with so much more; without it, the call is abandoned.
        piece: Option<u64>,
        /// Whether what is charged is to be what was used, to the unit.
        exact: bool,
        /// Whoever has used up its slice is suspended.
        sliced: bool,
    },
}

impl Checks {
    /// Whether calls can be suspended.
    pub(crate) const fn is_sliced(self) -> bool {
        matches!(self, Self::Sliced | Self::Charged { sliced: true, .. })
    }

    /// Whether there are allowances, and the poll page is read.
    pub(crate) const fn is_charged(self) -> bool {
        matches!(self, Self::Charged { .. })
    }

    /// What a call is given beyond its allowance, where it goes on then.
    pub(crate) const fn piece(self) -> Option<u64> {
        match self {
            Self::Charged { piece, .. } => piece,
            _ => None,
        }
    }
}

/// What the pass needs to know.
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

/// Rewrites a module that admission has validated. The start section goes; branch hints stand before the code that they are about.
pub(crate) fn rewrite(task: &RewriteTask<'_>) -> Result<Vec<u8>, Error<Infallible>> {
    let mut pass = Pass::new(task);
    let (given, mut module) = (task.module, Module::new());
    module.section(&pass.types()?).section(&pass.imports()).section(&pass.functions());
    if let Some(reader) = given.section(SectionId::Table.into()) {
        let mut tables = TableSection::new();
        pass.parse_table_section(&mut tables, TableSectionReader::new(reader)?)?;
        module.section(&tables);
    }
    module.section(&pass.memory()).section(&pass.globals()?).section(&pass.exports()?);
    if let Some(reader) = given.section(SectionId::Element.into()) {
        let mut elements = ElementSection::new();
        pass.parse_element_section(&mut elements, ElementSectionReader::new(reader)?)?;
        module.section(&elements);
    }
    if let Some(count) = given.data_count {
        module.section(&DataCountSection { count });
    }
    let code = pass.code()?;
    if !pass.hints.is_empty() {
        module.section(&pass.hints);
    }
    module.section(&code);
    if let Some(reader) = given.section(SectionId::Data.into()) {
        let mut data = DataSection::new();
        pass.parse_data_section(&mut data, DataSectionReader::new(reader)?)?;
        module.section(&data);
    }
    module.section(&pass.names()?);
    Ok(module.finish())
}

pub(crate) struct Pass<'a> {
    pub(crate) task: &'a RewriteTask<'a>,
    /// Where charges go. Nothing where none are made.
    pub(crate) meter: Option<FuelMeter>,
    /// The imported functions, in their order, that are not only called directly: in element segments, exports and references a function of a few instructions
    /// stands in their place.
    stands_in: Vec<u32>,
    hints: BranchHints,
}

/// What matters of a function's type.
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
        let then = match task.checks {
            Checks::None => None,
            Checks::Sliced => Some(Then::Ask { slice: None }),
            Checks::Charged { sliced: true, .. } => {
                Some(Then::Ask { slice: Some(Slice { beyond: next, held: next + 1 }) })
            }
            Checks::Charged { piece: Some(piece), .. } => Some(Then::GoOn { piece, over: next }),
            Checks::Charged { piece: None, .. } => Some(Then::Abandon),
        };
        let limit = u32::try_from(imported).unwrap_or(u32::MAX);
        let meter = then.map(|then| FuelMeter { fuel, limit, then, polls: task.checks.is_charged() });
        let needs_one = |function: &Option<HostFunction>| {
            meter.is_some() || function.is_some_and(|function| function.definition().is_told_packets)
        };
        let stands_in = (0..)
            .zip(&task.plan.imports)
            .filter(|(index, function)| task.plan.is_referenced(*index) && needs_one(function))
            .map(|(index, _)| index)
            .collect();
        Self { task, meter, stands_in, hints: BranchHints::new() }
    }

    pub(crate) fn imported(&self) -> u32 {
        u32::try_from(self.task.plan.imports.len()).unwrap_or(u32::MAX)
    }

    /// The globals of the loader follow the module's own, so no index in its code can mean them.
    fn rest(&self) -> u32 {
        self.task.facts.globals
    }

    fn drops(&self) -> u32 {
        self.task.facts.globals + 1
    }

    /// Index of a function when it is called directly. What the loader imports comes after the module's imports.
    pub(crate) fn direct(&self, index: u32) -> u32 {
        if index < self.imported() { index } else { index + u32::from(self.meter.is_some()) }
    }

    /// Where the functions begin that the loader adds.
    fn added(&self) -> u32 {
        self.direct(self.task.facts.functions)
    }

    /// Whether the code of this function stands in the loop over a batch: nothing in the module calls it, so nobody misses it.
    pub(crate) fn is_in_loop(&self, index: u32) -> bool {
        let facts = self.task.facts;
        let is_entry = facts.entry() == EntryKind::Packet && index == facts.entry_function;
        is_entry && self.task.plan.function(index).is_some_and(|entry| !entry.is_called)
    }

    /// Whether the loader adds a function that takes a batch.
    fn adds_run(&self) -> bool {
        let entry = self.task.facts.entry_function;
        match self.task.facts.entry() {
            EntryKind::Packet => !self.is_in_loop(entry),
            EntryKind::Batch => self.meter.is_some(),
        }
    }

    /// Index of the function in place of `memory.copy`, where there is one: the last of all.
    pub(crate) fn copier(&self) -> u32 {
        let stand_ins = u32::try_from(self.stands_in.len()).unwrap_or(u32::MAX);
        self.entered() + self.entries() + stand_ins
    }

    /// Index of a type that the loader adds: that of the batch function, that of `memory.copy`, those of widened imports, that of [`LIMIT`] or
    /// [`SUSPEND`].
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

    /// Appends a function to the code.
    fn write(&mut self, code: &mut CodeSection, index: u32, body: MeteredBody) {
        if !body.hints.is_empty() {
            self.hints.function_hints(index, body.hints);
        }
        code.function(&body.code);
    }

    /// The names of functions: a fault names the function that it was in.
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

    /// Where the functions begin that call entry points, and how many there are.
    fn entered(&self) -> u32 {
        self.added() + u32::from(self.adds_run())
    }

    fn entries(&self) -> u32 {
        let count = self.meter.map_or(0, |_| self.task.plan.entries.len());
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    fn globals(&mut self) -> Result<GlobalSection, Error<Infallible>> {
        let mut globals = GlobalSection::new();
        if let Some(reader) = self.task.module.section(SectionId::Global.into()) {
            self.parse_global_section(&mut globals, GlobalSectionReader::new(reader)?)?;
        }
        let count = match self.meter.map(|meter| meter.then) {
            None => 2,
            Some(Then::Abandon | Then::Ask { slice: None }) => 3,
            Some(Then::GoOn { .. }) => 4,
            Some(Then::Ask { slice: Some(_) }) => 5,
        };
        for _ in 0..count {
            let ty = GlobalType { val_type: ValType::I64, mutable: true, shared: false };
            globals.global(ty, &ConstExpr::i64_const(0));
        }
        Ok(globals)
    }

    /// Where the function that takes a batch finds things.
    pub(crate) fn shared(&self) -> BatchLayout {
        let entry = self.direct(self.task.facts.entry_function);
        BatchLayout { entry, rest: self.rest(), drops: self.drops() }
    }

    /// What that function charges.
    pub(crate) fn in_loop(&self) -> Option<Loop> {
        let (meter, entry) = (self.meter?, self.task.plan.function(self.task.facts.entry_function)?);
        let packets = if self.is_exact() { 1 } else { weir_abi::BATCH_PACKETS as u64 };
        let charged = self.is_charged_outside(self.task.facts.entry_function).then_some(entry.entry);
        let packet = self.allowance(EntryPoint::Packet);
        Some(Loop { meter, packet, packets, charged, is_silent: entry.is_silent })
    }

    /// The function that takes a batch, where it is one of its own.
    fn run(&self) -> MeteredBody {
        match self.in_loop() {
            Some(checked) if self.task.facts.entry() == EntryKind::Batch => self.shared().batch(&checked),
            checked => self.shared().packets(checked.as_ref()),
        }
    }

    /// What one call of an entry point may use.
    fn allowance(&self, entry: EntryPoint) -> Linear {
        let limit = match self.task.checks {
            Checks::Charged { most: Some(most), .. } => Linear::constant(most),
            // Nothing that a call could use up.
            Checks::Sliced => Linear::constant(ALLOWANCE_MAX),
            _ => self.task.limits.of(entry),
        };
        Linear { constant: limit.constant.min(ALLOWANCE_MAX), ..limit }
    }

    /// Whether whatever calls a function takes from its allowance what its entry costs: nothing but weir calls it. Else it does that itself.
    pub(crate) fn is_charged_outside(&self, index: u32) -> bool {
        let Some(plan) = self.task.plan.function(index) else { return false };
        let facts = self.task.facts;
        let packet = (EntryPoint::Packet, facts.entry_function);
        let is_packet = facts.entry() == EntryKind::Packet;
        let entries = self.task.plan.entries.iter().copied().chain(is_packet.then_some(packet));
        let mut limits =
            entries.filter(|(_, of)| *of == index).map(|(entry, _)| self.allowance(entry).constant);
        let is_entry = limits.next().is_some_and(|first| limits.fold(first, u64::min) >= plan.entry);
        is_entry && !plan.is_called && !self.is_exact()
    }

    /// A function that gives a call of an entry point what it may use.
    fn enter(&self, meter: FuelMeter, entry: EntryPoint, index: u32) -> MeteredBody {
        let plan = self.task.plan.function(index);
        let taken = plan.map_or(0, |plan| plan.entry) * u64::from(self.is_charged_outside(index));
        let given = self.allowance(entry).constant.saturating_sub(taken);
        let arguments = self.signature(index).parameters;
        let locals = if meter.asks() { Scratch::TYPES.to_vec() } else { Vec::new() };
        let mut body = MeteredBody::new(locals, Scratch::after(arguments));
        body.code.instructions().i64_const(given.cast_signed());
        meter.allow(&mut body, taken);
        let mut code = body.code.instructions();
        for argument in 0..arguments {
            code.local_get(argument);
        }
        code.call(self.direct(index));
        meter.note(&mut body);
        body.code.instructions().end();
        body
    }

    /// A function that does what the host function does, for the module to refer to.
    fn stand_in(&self, import: u32) -> MeteredBody {
        let arguments = self.signature(import).parameters;
        let locals = if self.meter.is_some() { Scratch::TYPES.to_vec() } else { Vec::new() };
        let mut body = MeteredBody::new(locals, Scratch::after(arguments));
        for argument in 0..arguments {
            body.code.instructions().local_get(argument);
        }
        if let Some((meter, function)) = self.meter.zip(self.host_function(import)) {
            let (constant, length) =
                of_host(function, self.task.costs, self.task.environment, self.is_exact());
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

    pub(crate) fn call_host(&self, body: &mut MeteredBody, import: u32) {
        if self.host_function(import).is_some_and(|function| function.definition().is_told_packets) {
            body.code.instructions().global_get(self.rest());
        }
        body.code.instructions().call(import);
        if self.meter.is_some_and(|meter| meter.polls) {
            body.poll();
        }
    }

    /// Writes what stands in place of a read of a parameter.
    pub(crate) fn inject(&self, body: &mut MeteredBody, replaced: &Replaced) {
        let value = self.task.values.get(replaced.injected.parameter as usize);
        let mut out = body.code.instructions();
        match replaced.injected.what {
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
            // Admission lets no others through.
            types.ty().func_type(&self.func_type(ty.clone().unwrap_or_else(|| FuncType::new([], [])))?);
        }
        types.ty().function([ValType::I32, ValType::I64], [ValType::I64]);
        types.ty().function([ValType::I32; 3], []);
        for known in widened() {
            let given = known.parameter_types().map(value_type);
            let wide: Vec<ValType> = given.chain([ValType::I64]).collect();
            types.ty().function(wide, [value_type(known.result.value_type())]);
        }
        match self.meter {
            Some(meter) if meter.asks() => types.ty().function([ValType::I64], [ValType::I64]),
            Some(_) => types.ty().function([], []),
            None => {}
        }
        Ok(types)
    }

    /// Admission lets only functions through, so their number is their index.
    fn imports(&self) -> ImportSection {
        let mut imports = ImportSection::new();
        for (index, import) in (0..).zip(&self.task.module.imports) {
            let ty = match widened().position(|known| known.name == import.name) {
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
        if self.adds_run() {
            functions.function(self.added_type(0));
        }
        for (_, index) in self.meter.iter().flat_map(|_| &self.task.plan.entries) {
            functions.function(self.type_of(*index));
        }
        for import in &self.stands_in {
            functions.function(self.type_of(*import));
        }
        if self.task.plan.copies {
            functions.function(self.added_type(1));
        }
        functions
    }

    /// The memory, without the maximum that it declares.
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
            if let Then::Ask { slice: Some(Slice { beyond, held }) } = meter.then {
                exports.export(BEYOND, ExportKind::Global, beyond);
                exports.export(HELD, ExportKind::Global, held);
            }
        }
        let run = if self.adds_run() { self.added() } else { self.direct(facts.entry_function) };
        exports.export(RUN, ExportKind::Func, run);
        for (place, (entry, index)) in (self.entered()..).zip(&self.task.plan.entries) {
            let index = if self.meter.is_some() { place } else { self.direct(*index) };
            exports.export(&enter(*entry), ExportKind::Func, index);
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
            self.write(&mut code, self.direct(index), writer.body);
        }
        let mut added = Vec::new();
        if self.adds_run() {
            added.push(self.run());
        }
        if let Some(meter) = self.meter {
            added.extend(task.plan.entries.iter().map(|(entry, index)| self.enter(meter, *entry, *index)));
        }
        added.extend(self.stands_in.iter().map(|import| self.stand_in(*import)));
        added.extend(task.plan.copies.then(copy::function));
        for (index, body) in (self.added()..).zip(added) {
            self.write(&mut code, index, body);
        }
        Ok(code)
    }
}

impl Reencode for Pass<'_> {
    type Error = Infallible;

    /// Whatever in the module refers to an imported function now refers to the one in its place, if there is one.
    fn function_index(&mut self, index: u32) -> Result<u32, Error<Infallible>> {
        let place = self.stands_in.binary_search(&index).ok().and_then(|place| u32::try_from(place).ok());
        Ok(place.map_or(self.direct(index), |place| self.entered() + self.entries() + place))
    }
}

fn value_type(ty: ValueType) -> ValType {
    match ty {
        ValueType::I32 => ValType::I32,
        ValueType::I64 => ValType::I64,
        ValueType::F64 => ValType::F64,
    }
}
