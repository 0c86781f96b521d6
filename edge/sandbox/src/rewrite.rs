//! The loader's rewriting pass: what a module becomes before it is compiled.
//!
//! - The loop over a batch is put inside the module, so that a host-to-guest call is paid once for 64 packets. It keeps the mask of
//!   packets still to do in a global that the host reads and the module cannot name: after a trap, weir knows exactly which packet was lost.
//! - At every loop, and at the entry of every function that is long or calls others, a byte of the poll page is read. When the time of a call is
//!   over, the watchdog makes that page inaccessible, and the next such read is a trap. Whatever runs for ever passes one of these again and
//!   again. Between two of them there is only straight code; a module may have megabytes of it, so a byte is read in it too: every
//!   [`UNCHECKED_CODE`] instructions, after each bulk operation, after each call of the host, and after each packet. That costs a load, where a
//!   counter or an epoch costs a compare and a branch too. The read is atomic because the compiler would otherwise take one of two reads for superfluous.
//! - The start function, if there is one, becomes an export: it is called when the sandbox is complete, under the same time limit as any call.
//! - `emit` and `patch` get one more argument, the mask of packets still to do, through a function of a few instructions in their place: the host
//!   would pay a good part of the call's time for asking the engine for the global. The module has no say in it.
//! - The declared maximum is taken out of the memory's type: with one of 1 GiB or less the compiler turns constant addresses in the packet
//!   arena into unconditional traps, and folds bounds that are not the sandbox's. The ceiling is enforced when memory grows.

use std::convert::Infallible;
use wasm_encoder::Section as _;
use wasm_encoder::reencode::{Error, Reencode, utils};
use wasm_encoder::{
    BlockType, CodeSection, ConstExpr, EntityType, ExportKind, ExportSection, Function, FunctionSection,
    GlobalSection, GlobalType, ImportSection, MemArg, MemArgTarget, MemoryType, Module, SectionId,
    TypeSection, ValType,
};
use wasmparser::{Operator, Parser};
use weir_abi::POLL_PAGE;
use weir_session::{Entry, Facts};

/// Functions of no more instructions, which call nothing, have no check at their entry.
const UNCHECKED_CALL: usize = 64;

/// Straight code of so many instructions has a check.
const UNCHECKED_CODE: usize = 1024;

/// Imports that get one more argument, and how many `i32` they have for the module.
const WIDENED: [(&str, u32); 2] = [("emit", 3), ("patch", 4)];

/// Exports that the pass adds. Modules cannot have them: the prefix is reserved.
pub(crate) const RUN: &str = "weir_run";
pub(crate) const REST: &str = "weir_rest";
pub(crate) const DROPS: &str = "weir_drops";
pub(crate) const BEGIN: &str = "weir_begin";
pub(crate) const STACK_POINTER: &str = "weir_stack_pointer";

/// Rewrites a module that admission has validated; with checks that a watchdog can end it by, or without.
pub(crate) fn rewrite(
    bytes: &[u8],
    facts: &Facts,
    interruptible: bool,
) -> Result<Vec<u8>, Error<Infallible>> {
    let mut module = Module::new();
    let mut pass = Pass { facts, interruptible, imported: 0, widened: Vec::new(), globals_written: false };
    pass.parse_core_module(&mut module, Parser::new(0), bytes)?;
    Ok(without_start(&module.finish())?)
}

/// The module without its start section.
fn without_start(bytes: &[u8]) -> Result<Vec<u8>, wasmparser::BinaryReaderError> {
    const HEADER: usize = 8;
    let mut out = bytes.get(..HEADER).unwrap_or_default().to_vec();
    for payload in Parser::new(0).parse_all(bytes) {
        let Some((id, range)) = payload?.as_section() else { continue };
        let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        let contents = bytes.get(index(range.start)..index(range.end)).unwrap_or_default();
        if id != u8::from(SectionId::Start) {
            wasm_encoder::RawSection { id, data: contents }.append_to(&mut out);
        }
    }
    Ok(out)
}

struct Pass<'a> {
    facts: &'a Facts,
    interruptible: bool,
    /// Functions below this are the host's.
    imported: u32,
    /// Imports that get one more argument: function index and number of arguments as the module knows it.
    widened: Vec<(u32, u32)>,
    globals_written: bool,
}

impl Pass<'_> {
    /// `weir_rest` and `weir_drops` follow the module's own globals, so no index in its code can mean them.
    fn rest(&self) -> u32 {
        self.facts.globals
    }

    fn drops(&self) -> u32 {
        self.facts.globals + 1
    }

    fn write_globals(&mut self, globals: &mut GlobalSection) {
        for _ in [REST, DROPS] {
            let ty = GlobalType { val_type: ValType::I64, mutable: true, shared: false };
            globals.global(ty, &ConstExpr::i64_const(0));
        }
        self.globals_written = true;
    }

    /// `weir_run(descriptors: i32, mask: i64) -> i64`: calls the packet function for each bit of the mask, in order; returns the mask of
    /// the packets that it wants dropped. The mask is not 0.
    fn batch_loop(&self) -> Function {
        const DESCRIPTORS: u32 = 0;
        const MASK: u32 = 1;
        let packet_shift = i32::try_from(weir_abi::DESCRIPTOR_BYTES.trailing_zeros()).unwrap_or(6);
        let mut body = Function::new([]);
        let mut code = body.instructions();
        code.i64_const(0).global_set(self.drops());
        code.local_get(MASK).global_set(self.rest());
        code.loop_(BlockType::Empty);
        code.local_get(DESCRIPTORS).local_get(MASK).i64_ctz().i32_wrap_i64();
        code.i32_const(packet_shift).i32_shl().i32_add().call(self.facts.entry_function);
        if self.interruptible {
            // Before the packet counts as done: the one that took the time is the one that is lost.
            Self::poll(&mut body);
        }
        let mut code = body.instructions();
        code.if_(BlockType::Empty);
        // The lowest bit of the mask is the packet that was just seen.
        code.global_get(self.drops())
            .i64_const(0)
            .local_get(MASK)
            .i64_sub()
            .local_get(MASK)
            .i64_and()
            .i64_or();
        code.global_set(self.drops()).end();
        code.local_get(MASK)
            .i64_const(1)
            .i64_sub()
            .local_get(MASK)
            .i64_and()
            .local_tee(MASK)
            .global_set(self.rest());
        code.local_get(MASK).i64_eqz().i32_eqz().br_if(0).end();
        code.global_get(self.drops()).end();
        body
    }

    fn adds_loop(&self) -> bool {
        self.facts.entry == Entry::Packet
    }

    /// Whether one instruction can take more than a few cycles: it works on as much memory as it is told to, or it may call the host.
    fn is_long(&self, operator: &Operator<'_>) -> bool {
        match operator {
            Operator::Call { function_index } => *function_index < self.imported,
            Operator::CallIndirect { .. }
            | Operator::MemoryCopy { .. }
            | Operator::MemoryFill { .. }
            | Operator::MemoryGrow { .. }
            | Operator::MemoryInit { .. }
            | Operator::TableCopy { .. }
            | Operator::TableFill { .. }
            | Operator::TableGrow { .. }
            | Operator::TableInit { .. } => true,
            _ => false,
        }
    }

    /// Index of the type that a widened import with so many arguments has for the module; the next one is its type for the host.
    fn widened_type(&self, arguments: u32) -> u32 {
        let place =
            (0..).zip(WIDENED).find(|(_, (_, known))| *known == arguments).map_or(0, |(place, _)| place);
        self.facts.types + 1 + 2 * place
    }

    fn poll(body: &mut Function) {
        let page = MemArg { offset: 0, align: 0, target: MemArgTarget::Memory(0), ordering: None };
        body.instructions().i32_const(POLL_PAGE.cast_signed()).i32_atomic_load8_u(page).drop();
    }
}

impl Reencode for Pass<'_> {
    type Error = Infallible;

    fn memory_type(&mut self, ty: wasmparser::MemoryType) -> Result<MemoryType, Error<Infallible>> {
        Ok(MemoryType { maximum: None, ..utils::memory_type(self, ty) })
    }

    fn parse_type_section(
        &mut self,
        types: &mut TypeSection,
        section: wasmparser::TypeSectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        utils::parse_type_section(self, types, section)?;
        types.ty().function([ValType::I32, ValType::I64], [ValType::I64]);
        for (_, arguments) in WIDENED {
            let given = vec![ValType::I32; arguments as usize];
            types.ty().function(given.clone(), [ValType::I32]);
            types.ty().function([given, vec![ValType::I64]].concat(), [ValType::I32]);
        }
        Ok(())
    }

    fn parse_import_section(
        &mut self,
        imports: &mut ImportSection,
        section: wasmparser::ImportSectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        // Admission lets only functions through, so their number is their index.
        for (index, import) in (0..).zip(section.into_imports()) {
            let import = import?;
            let mut ty = self.entity_type(import.ty)?;
            if let Some(place) = WIDENED.iter().position(|(name, _)| *name == import.name) {
                self.widened.push((index, WIDENED[place].1));
                ty = EntityType::Function(self.widened_type(WIDENED[place].1) + 1);
            }
            imports.import(import.module, import.name, ty);
        }
        Ok(())
    }

    /// Whatever in the module means a widened import now means the function in its place.
    fn function_index(&mut self, index: u32) -> Result<u32, Error<Infallible>> {
        let place =
            (0..).zip(&self.widened).find(|(_, (import, _))| *import == index).map(|(place, _)| place);
        Ok(place.map_or(index, |place: u32| self.facts.functions + u32::from(self.adds_loop()) + place))
    }

    fn parse_function_section(
        &mut self,
        functions: &mut FunctionSection,
        section: wasmparser::FunctionSectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        self.imported = self.facts.functions.saturating_sub(section.count());
        utils::parse_function_section(self, functions, section)?;
        if self.adds_loop() {
            functions.function(self.facts.types);
        }
        for (_, arguments) in &self.widened {
            functions.function(self.widened_type(*arguments));
        }
        Ok(())
    }

    fn parse_global_section(
        &mut self,
        globals: &mut GlobalSection,
        section: wasmparser::GlobalSectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        utils::parse_global_section(self, globals, section)?;
        self.write_globals(globals);
        Ok(())
    }

    fn parse_export_section(
        &mut self,
        exports: &mut ExportSection,
        section: wasmparser::ExportSectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        utils::parse_export_section(self, exports, section)?;
        exports.export(REST, ExportKind::Global, self.rest());
        exports.export(DROPS, ExportKind::Global, self.drops());
        let run = if self.adds_loop() { self.facts.functions } else { self.facts.entry_function };
        exports.export(RUN, ExportKind::Func, run);
        if let Some(index) = self.facts.start_function {
            exports.export(BEGIN, ExportKind::Func, index);
        }
        if let Some(index) = self.facts.stack_pointer {
            exports.export(STACK_POINTER, ExportKind::Global, index);
        }
        Ok(())
    }

    fn parse_code_section(
        &mut self,
        code: &mut CodeSection,
        section: wasmparser::CodeSectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        utils::parse_code_section(self, code, section)?;
        if self.adds_loop() {
            code.function(&self.batch_loop());
        }
        for (import, arguments) in &self.widened {
            let mut body = Function::new([]);
            let mut instructions = body.instructions();
            for argument in 0..*arguments {
                instructions.local_get(argument);
            }
            instructions.global_get(self.rest()).call(*import).end();
            code.function(&body);
        }
        Ok(())
    }

    fn parse_function_body(
        &mut self,
        code: &mut CodeSection,
        function: wasmparser::FunctionBody<'_>,
    ) -> Result<(), Error<Infallible>> {
        let mut body = self.new_function_with_parsed_locals(&function)?;
        let operators = || function.get_operators_reader();
        let is_call = |operator: &Operator<'_>| {
            matches!(operator, Operator::Call { .. } | Operator::CallIndirect { .. })
        };
        let mut size = 0;
        let mut calls = false;
        for operator in operators()? {
            size += 1;
            calls |= is_call(&operator?);
        }
        if self.interruptible && (calls || size > UNCHECKED_CALL) {
            Self::poll(&mut body);
        }
        let mut straight = 0;
        for operator in operators()? {
            let operator = operator?;
            // What a call leads to without a check is at most this long.
            straight += if is_call(&operator) { UNCHECKED_CALL } else { 1 };
            let is_due = straight >= UNCHECKED_CODE;
            let is_checked = matches!(operator, Operator::Loop { .. }) || self.is_long(&operator) || is_due;
            body.instruction(&self.instruction(operator)?);
            if self.interruptible && is_checked {
                Self::poll(&mut body);
                straight = 0;
            }
        }
        code.function(&body);
        Ok(())
    }

    /// A module without globals has no section to append to; one is put before the exports, which every admitted module has.
    fn intersperse_section_hook(
        &mut self,
        module: &mut Module,
        _after: Option<SectionId>,
        before: Option<SectionId>,
    ) -> Result<(), Error<Infallible>> {
        if before == Some(SectionId::Export) && !self.globals_written {
            let mut globals = GlobalSection::new();
            self.write_globals(&mut globals);
            module.section(&globals);
        }
        Ok(())
    }
}
