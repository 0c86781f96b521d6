//! The loader's rewriting pass between admission and compilation, which writes a new module from an admitted one:
//!
//! - The loop over a batch is put inside the module, so that one host-to-guest call handles 64 packets. The loop keeps the
//!   mask of remaining packets in a global that the host reads and the module cannot name. From this mask weir knows after
//!   a trap exactly which packet was lost.
//! - A supervised or metered module gets code that charges for its work. `weir_bounds::charge` plans the place and the
//!   amount of each charge, and `meter.rs` writes the code. A proved module has charges only if its calls can be suspended.
//! - The meter ends endless loops, because every iteration is charged. A second defence covers errors in the plan: a
//!   supervised or metered module also reads a byte of the poll page after each packet and each host call. When the time of
//!   a call is over, the watchdog makes the poll page inaccessible, and the next read traps.
//! - Reads of the module's parameters are replaced by the parameters' values.
//! - `memory.copy` becomes a call of a function that can also copy out of packets and descriptors.
//! - The start function, if there is one, becomes an export, so that it is called when the sandbox is complete, under the
//!   same limits as other calls.
//! - Host functions that concern the current packet, such as `emit`, `patch` and `find`, get one more argument, the mask of
//!   remaining packets (`gets_packet_mask`). Reading the global through wasmtime instead would take a large part of the time
//!   of these host functions. The module cannot influence the argument.
//! - Custom sections are removed, except branch hints and function names. The valid part of these is written anew, because
//!   WebAssembly also accepts modules with invalid custom sections.
//! - The declared maximum is removed from the memory's type. With a maximum of 1 GiB or less the compiler would assume that
//!   accesses above it trap, and packets are mapped there. The host enforces the module's ceiling when memory grows.

use crate::load::batch::{BatchLayout, LoopCharges, StreamLayout};
use crate::load::copy;
use crate::load::meter::{ALLOWANCE_MAX, ExcessGlobals, FuelMeter, MeteredBody, OnExhausted, Scratch};
use crate::load::origin::{FunctionOrigins, RewrittenModule};
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
fn functions_with_packet_mask() -> impl Iterator<Item = &'static HostDefinition> {
    HOST_FUNCTIONS.iter().filter(|function| function.gets_packet_mask)
}

/// The name of the host function that the meter calls when an allowance is used up. Modules cannot import this function
/// themselves, because admission refuses unknown imports.
pub(crate) const LIMIT: &str = "limit";

/// The name of the host function that the meter calls when its counter is used up, in a module whose calls can be
/// suspended. The argument is the counter, which is below zero; the result is the new counter.
pub(crate) const SUSPEND: &str = "suspend";

/// The name of the host function that gives the next event of a TCP stream. The first argument is the address of a packet's
/// descriptor, or 0 for events without a packet. The second one is the module's reply to the event before; 0 if there was
/// none. The result is an [`answer`](super::batch::answer); the event is in the window.
pub(crate) const NEXT_EVENT: &str = "next_event";

// The exports that the pass adds. The prefix `weir_` is reserved, so modules cannot have exports of these names.
/// The export of the batch function.
pub(crate) const RUN: &str = "weir_run";
/// The export of the function that gives events of TCP streams without a packet.
pub(crate) const RUN_EVENTS: &str = "weir_run_events";
/// The export of the global with the mask of remaining packets.
pub(crate) const REMAINING: &str = "weir_remaining";
/// The export of the global with the mask of packets to drop.
pub(crate) const DROPS: &str = "weir_drops";
/// The export of the global with the mask of packets that may have events of TCP streams.
pub(crate) const EVENT_MASK: &str = "weir_event_mask";
/// The export of the global with the meter's counter.
pub(crate) const FUEL: &str = "weir_fuel";
/// The export of the global [`ExcessGlobals::slice_excess`].
pub(crate) const SLICE_EXCESS: &str = "weir_slice_excess";
/// The export of the global [`ExcessGlobals::allowance_excess`].
pub(crate) const ALLOWANCE_EXCESS: &str = "weir_allowance_excess";
/// The export of the global with the module's own stack pointer.
pub(crate) const STACK_POINTER: &str = "weir_stack_pointer";

/// Returns the name of the export of the global with this index, from which a call's values are copied to another back end.
pub(crate) fn global_export_name(index: u32) -> String {
    format!("weir_global_{index}")
}

/// Returns the name of the export that calls an entry point which gets no packets.
pub(crate) fn export_name(entry: EntryPoint) -> String {
    format!("weir_enter_{}", entry.definition().key)
}

/// The run-time checks of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checks {
    /// No checks.
    None,
    /// A call is suspended when its slice is used up. It has no allowance.
    SliceOnly,
    /// A call that has used up its allowance is aborted, or gets a refill.
    Charged {
        /// The allowance of every call, in fuel. `None` for the limits of the profile.
        allowance: Option<u64>,
        /// The fuel that a call gets when it has used up its allowance. `None` if the call is aborted.
        refill: Option<u64>,
        /// True if the charges of a call are exactly the fuel that it uses.
        exact: bool,
        /// True if a call is suspended when its slice is used up.
        is_suspendable: bool,
    },
}

impl Checks {
    /// Returns whether calls can be suspended.
    pub(crate) const fn has_suspendable_calls(self) -> bool {
        matches!(self, Self::SliceOnly | Self::Charged { is_suspendable: true, .. })
    }

    /// Returns whether calls have allowances, and the module reads the poll page.
    pub(crate) const fn is_charged(self) -> bool {
        matches!(self, Self::Charged { .. })
    }

    /// Returns the fuel that a call gets when it has used up its allowance. `None` if the call does not continue.
    pub(crate) const fn refill(self) -> Option<u64> {
        match self {
            Self::Charged { refill, .. } => refill,
            _ => None,
        }
    }
}

/// The input of [`rewrite`].
pub(crate) struct RewriteTask<'a> {
    pub(crate) module: &'a weir_bounds::ParsedModule,
    pub(crate) facts: &'a ModuleInfo,
    /// The values of the module's parameters, by their index in the manifest.
    pub(crate) values: &'a [ParameterValue],
    /// The places and amounts of all charges.
    pub(crate) plan: &'a ChargePlan,
    /// The allowances of the entry points.
    pub(crate) limits: &'a FuelLimits,
    pub(crate) costs: &'a CostTable,
    pub(crate) environment: &'a Environment,
    pub(crate) checks: Checks,
}

/// Rewrites a module that admission has validated, section by section in their standard order. The start section is left
/// out.
pub(crate) fn rewrite(task: &RewriteTask<'_>) -> Result<RewrittenModule, Error<Infallible>> {
    let mut pass = RewritePass::new(task);
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
    let copy_function = task.plan.has_memory_copy.then(|| pass.copy_function());
    Ok(RewrittenModule { bytes: module.finish(), origins: pass.origins, copy_function })
}

/// The state of the rewriting pass.
pub(crate) struct RewritePass<'a> {
    pub(crate) task: &'a RewriteTask<'a>,
    /// The meter; `None` if no charges are made.
    pub(crate) meter: Option<FuelMeter>,
    /// The imported functions that the module also uses in element segments, exports or references, by rising index. There
    /// a small function of the loader, the stand-in, replaces each of them.
    stand_ins: Vec<u32>,
    hints: BranchHints,
    origins: Vec<FunctionOrigins>,
}

/// The part of a function's type that the pass uses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FunctionSignature {
    parameters: u32,
    /// The type of a block with the same results, if there is at most one.
    pub(crate) result: Option<BlockType>,
}

impl<'a> RewritePass<'a> {
    fn new(task: &'a RewriteTask<'a>) -> Self {
        let imported = task.plan.imports.len();
        let (fuel_global, next) = (task.facts.globals + 2, task.facts.globals + 3);
        let on_exhausted = match task.checks {
            Checks::None => None,
            Checks::SliceOnly => Some(OnExhausted::CallHost { globals: None }),
            Checks::Charged { is_suspendable: true, .. } => Some(OnExhausted::CallHost {
                globals: Some(ExcessGlobals { slice_excess: next, allowance_excess: next + 1 }),
            }),
            Checks::Charged { refill: Some(amount), .. } => {
                Some(OnExhausted::Refill { amount, over_limit: next })
            }
            Checks::Charged { refill: None, .. } => Some(OnExhausted::Abort),
        };
        let limit_function = u32::try_from(imported).unwrap_or(u32::MAX);
        let meter = on_exhausted.map(|on_exhausted| FuelMeter {
            fuel_global,
            limit_function,
            on_exhausted,
            reads_poll_page: task.checks.is_charged(),
        });
        let needs_stand_in = |function: &Option<HostFunction>| {
            meter.is_some() || function.is_some_and(|function| function.definition().gets_packet_mask)
        };
        let stand_ins = (0..)
            .zip(&task.plan.imports)
            .filter(|(index, function)| task.plan.is_referenced(*index) && needs_stand_in(function))
            .map(|(index, _)| index)
            .collect();
        Self { task, meter, stand_ins, hints: BranchHints::new(), origins: Vec::new() }
    }

    pub(crate) fn imported_count(&self) -> u32 {
        u32::try_from(self.task.plan.imports.len()).unwrap_or(u32::MAX)
    }

    /// Returns the index of the global with the mask of remaining packets. The loader's globals follow the module's own
    /// globals, so no instruction of the module can name them.
    fn remaining_global(&self) -> u32 {
        self.task.facts.globals
    }

    /// Returns the index of the global with the mask of packets to drop.
    fn drops_global(&self) -> u32 {
        self.task.facts.globals + 1
    }

    /// Returns the index of the global with the mask of packets that may have events of TCP streams: the last one that the
    /// loader adds.
    fn event_mask_global(&self) -> u32 {
        self.task.facts.globals + self.added_globals() - 1
    }

    /// Returns the number of globals that the loader adds.
    fn added_globals(&self) -> u32 {
        let count = match self.meter.map(|meter| meter.on_exhausted) {
            None => 2,
            Some(OnExhausted::Abort | OnExhausted::CallHost { globals: None }) => 3,
            Some(OnExhausted::Refill { .. }) => 4,
            Some(OnExhausted::CallHost { globals: Some(_) }) => 5,
        };
        count + u32::from(self.has_streams())
    }

    /// Returns the new index of a function of the module, for direct calls. Functions after the module's imports move by one
    /// if the loader adds an import there.
    pub(crate) fn direct_index(&self, index: u32) -> u32 {
        if index < self.imported_count() { index } else { index + self.added_imports() }
    }

    /// Returns the number of imports that the loader adds: the meter's host function, and the one for events of TCP streams.
    fn added_imports(&self) -> u32 {
        u32::from(self.meter.is_some()) + u32::from(self.has_streams())
    }

    fn has_streams(&self) -> bool {
        self.task.facts.stream_function.is_some()
    }

    /// Returns the index of the first function that the loader adds.
    fn first_added_function(&self) -> u32 {
        self.direct_index(self.task.facts.functions)
    }

    /// Returns true if the code of this function is inlined into the batch loop. The loader inlines a packet function that no
    /// function of the module calls.
    pub(crate) fn is_in_loop(&self, index: u32) -> bool {
        let facts = self.task.facts;
        let is_entry = facts.entry() == EntryKind::Packet && index == facts.entry_function;
        let is_called_twice = self.has_streams();
        is_entry && !is_called_twice && self.task.plan.function(index).is_some_and(|entry| !entry.is_called)
    }

    /// Returns whether the loader adds a function that processes a batch.
    fn adds_batch_function(&self) -> bool {
        let entry = self.task.facts.entry_function;
        match self.task.facts.entry() {
            EntryKind::Packet => !self.is_in_loop(entry),
            EntryKind::Batch => self.meter.is_some(),
            EntryKind::Stream => true,
        }
    }

    /// Returns the index of the function that replaces `memory.copy`. If the module uses `memory.copy`, this is the last
    /// function.
    pub(crate) fn copy_function(&self) -> u32 {
        let stand_ins = u32::try_from(self.stand_ins.len()).unwrap_or(u32::MAX);
        self.first_entry_wrapper() + self.entry_count() + stand_ins
    }

    /// Returns the index of a type that the loader adds, by its position in this order: the types of the batch function, of
    /// the replacement of `memory.copy`, of the imports with the mask of packets, and of [`LIMIT`] or [`SUSPEND`].
    fn added_type(&self, position: usize) -> u32 {
        self.task.facts.types.saturating_add(u32::try_from(position).unwrap_or(u32::MAX))
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

    /// Appends a function to the code section, and its branch hints to the section of branch hints.
    fn write_function(&mut self, code: &mut CodeSection, index: u32, body: MeteredBody) {
        if !body.hints.is_empty() {
            self.hints.function_hints(index, body.hints);
        }
        code.function(&body.code);
    }

    /// Builds the section with the names of functions, which messages about faults contain.
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

    /// Returns the index of the first entry wrapper, a function that sets the allowance of an entry point. The module gets
    /// [`Self::entry_count`] wrappers.
    fn first_entry_wrapper(&self) -> u32 {
        let added = u32::from(self.adds_batch_function()) + u32::from(self.has_streams());
        self.first_added_function() + added
    }

    /// Returns the number of entry wrappers.
    fn entry_count(&self) -> u32 {
        let count = self.meter.map_or(0, |_| self.task.plan.entries.len());
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    fn globals(&mut self) -> Result<GlobalSection, Error<Infallible>> {
        let mut globals = GlobalSection::new();
        if let Some(reader) = self.task.module.section(SectionId::Global.into()) {
            self.parse_global_section(&mut globals, GlobalSectionReader::new(reader)?)?;
        }
        for _ in 0..self.added_globals() {
            let ty = GlobalType { val_type: ValType::I64, mutable: true, shared: false };
            globals.global(ty, &ConstExpr::i64_const(0));
        }
        Ok(globals)
    }

    /// Returns the indices that the batch function uses.
    pub(crate) fn batch_layout(&self) -> BatchLayout {
        let entry_function = self.direct_index(self.task.facts.entry_function);
        let streams = self.task.facts.stream_function.map(|function| StreamLayout {
            event_mask_global: self.event_mask_global(),
            next_event: self.imported_count() + u32::from(self.meter.is_some()),
            function: self.direct_index(function),
            event_cost: self.task.costs.stream_event_bound(),
        });
        BatchLayout {
            entry_function,
            remaining_global: self.remaining_global(),
            drops_global: self.drops_global(),
            has_packet_function: self.task.facts.entry() != EntryKind::Stream,
            streams,
        }
    }

    /// Returns the charges of the batch function; `None` if no charges are made.
    pub(crate) fn loop_charges(&self) -> Option<LoopCharges> {
        let (meter, entry) = (self.meter?, self.task.plan.function(self.task.facts.entry_function)?);
        let batch_factor = if self.is_exact() { 1 } else { weir_abi::BATCH_PACKETS as u64 };
        let entry_charge = self.is_charged_outside(self.task.facts.entry_function).then_some(entry.entry);
        let packet_allowance = self.allowance(EntryPoint::Packet);
        Some(LoopCharges {
            meter,
            packet_allowance,
            event_allowance: self.allowance(EntryPoint::Stream),
            batch_factor,
            entry_charge,
            has_only_entry_charge: entry.has_only_entry_charge,
        })
    }

    /// Builds the batch function, if the packet function is not inlined into it.
    fn batch_function(&self) -> MeteredBody {
        match self.loop_charges() {
            Some(charges) if self.task.facts.entry() == EntryKind::Batch => {
                self.batch_layout().batch_wrapper(&charges)
            }
            charges => self.batch_layout().packet_loop(charges.as_ref()),
        }
    }

    /// Returns the allowance of one call of an entry point.
    fn allowance(&self, entry: EntryPoint) -> Linear {
        let limit = match self.task.checks {
            Checks::Charged { allowance: Some(allowance), .. } => Linear::constant(allowance),
            // With slices only, the allowance is so large that no call can use it up.
            Checks::SliceOnly => Linear::constant(ALLOWANCE_MAX),
            _ => self.task.limits.for_entry(entry),
        };
        Linear { constant: limit.constant.min(ALLOWANCE_MAX), ..limit }
    }

    /// Returns true if the callers of a function charge for its entry. The callers charge if the function is an entry point
    /// that only weir calls, its allowance covers the charge, and charges need not be exact. Other functions charge for
    /// their entry themselves.
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

    /// Builds an entry wrapper: a function that sets the allowance of a call of an entry point, and calls the entry point.
    fn entry_wrapper(&self, meter: FuelMeter, entry: EntryPoint, index: u32) -> MeteredBody {
        let plan = self.task.plan.function(index);
        let entry_charge = plan.map_or(0, |plan| plan.entry) * u64::from(self.is_charged_outside(index));
        let allowance = self.allowance(entry).constant.saturating_sub(entry_charge);
        let arguments = self.signature(index).parameters;
        let locals = if meter.has_suspendable_calls() { Scratch::TYPES.to_vec() } else { Vec::new() };
        let mut body = MeteredBody::new(locals, Scratch::after(arguments));
        body.code.instructions().i64_const(allowance.cast_signed());
        meter.set_allowance(&mut body, entry_charge);
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

    /// Writes a direct call of a host function. Adds the mask of remaining packets as an argument if the function gets it.
    pub(crate) fn call_host(&self, body: &mut MeteredBody, import: u32) {
        if self.host_function(import).is_some_and(|function| function.definition().gets_packet_mask) {
            body.code.instructions().global_get(self.remaining_global());
        }
        body.code.instructions().call(import);
        if self.meter.is_some_and(|meter| meter.reads_poll_page) {
            body.poll();
        }
    }

    /// Writes the replacement of a read of a parameter.
    pub(crate) fn write_parameter_value(&self, body: &mut MeteredBody, replaced: &ReplacedCall) {
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

impl RewritePass<'_> {
    fn types(&mut self) -> Result<TypeSection, Error<Infallible>> {
        let mut types = TypeSection::new();
        for (_, ty) in &self.task.module.types {
            // A type that is not a function type cannot occur in an admitted module.
            types.ty().func_type(&self.func_type(ty.clone().unwrap_or_else(|| FuncType::new([], [])))?);
        }
        types.ty().function([ValType::I32, ValType::I64], [ValType::I64]);
        types.ty().function([ValType::I32; 3], []);
        for function in functions_with_packet_mask() {
            let parameters = function.parameter_types().map(value_type);
            let wide: Vec<ValType> = parameters.chain([ValType::I64]).collect();
            types.ty().function(wide, [value_type(function.result.value_type())]);
        }
        match self.meter {
            Some(meter) if meter.has_suspendable_calls() => {
                types.ty().function([ValType::I64], [ValType::I64])
            }
            Some(_) => types.ty().function([], []),
            None => {}
        }
        if self.has_streams() {
            types.ty().function([ValType::I32; 2], [ValType::I32]);
        }
        Ok(types)
    }

    /// Builds the import section. Admission admits only imports of functions, so the position of an import is the index of its
    /// function.
    fn imports(&self) -> ImportSection {
        let mut imports = ImportSection::new();
        for (index, import) in (0..).zip(&self.task.module.imports) {
            let ty = match functions_with_packet_mask().position(|function| function.name == import.name) {
                Some(place) => self.added_type(2 + place),
                None => self.type_of(index),
            };
            imports.import(&import.module, &import.name, EntityType::Function(ty));
        }
        if self.meter.is_some() {
            let ty = EntityType::Function(self.added_type(2 + functions_with_packet_mask().count()));
            let name = if self.task.checks.has_suspendable_calls() { SUSPEND } else { LIMIT };
            imports.import(host::MODULE, name, ty);
        }
        if self.has_streams() {
            let place = 2 + functions_with_packet_mask().count() + usize::from(self.meter.is_some());
            imports.import(host::MODULE, NEXT_EVENT, EntityType::Function(self.added_type(place)));
        }
        imports
    }

    fn functions(&self) -> FunctionSection {
        let mut functions = FunctionSection::new();
        for index in self.imported_count()..self.task.facts.functions {
            functions.function(if self.is_in_loop(index) { self.added_type(0) } else { self.type_of(index) });
        }
        if self.adds_batch_function() {
            functions.function(self.added_type(0));
        }
        if self.has_streams() {
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
        exports.export(REMAINING, ExportKind::Global, self.remaining_global());
        exports.export(DROPS, ExportKind::Global, self.drops_global());
        if let Some(meter) = self.meter {
            exports.export(FUEL, ExportKind::Global, meter.fuel_global);
            if let OnExhausted::CallHost { globals: Some(ExcessGlobals { slice_excess, allowance_excess }) } =
                meter.on_exhausted
            {
                exports.export(SLICE_EXCESS, ExportKind::Global, slice_excess);
                exports.export(ALLOWANCE_EXCESS, ExportKind::Global, allowance_excess);
            }
        }
        let run = if self.adds_batch_function() {
            self.first_added_function()
        } else {
            self.direct_index(facts.entry_function)
        };
        exports.export(RUN, ExportKind::Func, run);
        if self.has_streams() {
            let after_batch = u32::from(self.adds_batch_function());
            exports.export(RUN_EVENTS, ExportKind::Func, self.first_added_function() + after_batch);
            exports.export(EVENT_MASK, ExportKind::Global, self.event_mask_global());
        }
        for (place, (entry, index)) in (self.first_entry_wrapper()..).zip(&self.task.plan.entries) {
            let index = if self.meter.is_some() { place } else { self.direct_index(*index) };
            exports.export(&export_name(*entry), ExportKind::Func, index);
        }
        if let Some(index) = facts.stack_pointer {
            exports.export(STACK_POINTER, ExportKind::Global, index);
        }
        for index in 0..facts.globals + self.added_globals() {
            exports.export(&global_export_name(index), ExportKind::Global, index);
        }
        Ok(exports)
    }

    fn code(&mut self) -> Result<CodeSection, Error<Infallible>> {
        let mut code = CodeSection::new();
        let task = self.task;
        let hints: BTreeMap<(u32, u32), bool> = task.module.branch_hints().collect();
        for ((index, function), plan) in
            (self.imported_count()..).zip(task.module.bodies()).zip(&task.plan.functions)
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
            self.origins.push(writer.origins);
            self.write_function(&mut code, self.direct_index(index), writer.body);
        }
        let mut added = Vec::new();
        if self.adds_batch_function() {
            added.push(self.batch_function());
        }
        if self.has_streams() {
            added.push(self.batch_layout().event_loop(self.loop_charges().as_ref()));
        }
        if let Some(meter) = self.meter {
            added.extend(
                task.plan.entries.iter().map(|(entry, index)| self.entry_wrapper(meter, *entry, *index)),
            );
        }
        added.extend(self.stand_ins.iter().map(|import| self.stand_in(*import)));
        added.extend(task.plan.has_memory_copy.then(copy::function));
        for (index, body) in (self.first_added_function()..).zip(added) {
            self.write_function(&mut code, index, body);
        }
        Ok(code)
    }
}

impl Reencode for RewritePass<'_> {
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
