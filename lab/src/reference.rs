//! A module as it is, with nothing but a loop over the batch of its own: what a module that is proved must not cost more than.

use std::convert::Infallible;
use wasm_encoder::reencode::{Error, Reencode, utils};
use wasm_encoder::{
    BlockType, CodeSection, ConstExpr, ExportKind, ExportSection, Function, FunctionSection, GlobalSection,
    GlobalType, Module, SectionId, TypeSection, ValType,
};
use wasmparser::Parser;
use weir_bounds::EntryPoint;
use weir_session::Facts;

/// Adds a function that takes a batch, and exports it in place of the one that takes a packet. Like the loader's, it keeps in a global which packets
/// are still to do. A descriptor is at each multiple of `size` bytes.
pub fn with_batch(wasm: &[u8], facts: &Facts, size: usize) -> Result<Vec<u8>, Error<Infallible>> {
    let mut module = Module::new();
    Pass { facts, size, globals_written: false }.parse_core_module(&mut module, Parser::new(0), wasm)?;
    Ok(module.finish())
}

struct Pass<'a> {
    facts: &'a Facts,
    size: usize,
    globals_written: bool,
}

impl Pass<'_> {
    /// The packets still to do, and those to drop.
    fn write_globals(&mut self, globals: &mut GlobalSection) {
        for _ in 0..2 {
            let ty = GlobalType { val_type: ValType::I64, mutable: true, shared: false };
            globals.global(ty, &ConstExpr::i64_const(0));
        }
        self.globals_written = true;
    }
}

impl Reencode for Pass<'_> {
    type Error = Infallible;

    fn parse_type_section(
        &mut self,
        types: &mut TypeSection,
        section: wasmparser::TypeSectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        utils::parse_type_section(self, types, section)?;
        types.ty().function([ValType::I32, ValType::I64], [ValType::I64]);
        Ok(())
    }

    fn parse_function_section(
        &mut self,
        functions: &mut FunctionSection,
        section: wasmparser::FunctionSectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        utils::parse_function_section(self, functions, section)?;
        functions.function(self.facts.types);
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
        for exported in section {
            let exported = exported?;
            if exported.name != EntryPoint::Packet.name() {
                utils::parse_export(self, exports, exported)?;
            }
        }
        exports.export(EntryPoint::Batch.name(), ExportKind::Func, self.facts.functions);
        Ok(())
    }

    fn parse_code_section(
        &mut self,
        code: &mut CodeSection,
        section: wasmparser::CodeSectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        const DESCRIPTORS: u32 = 0;
        const MASK: u32 = 1;
        utils::parse_code_section(self, code, section)?;
        let (rest, drops) = (self.facts.globals, self.facts.globals + 1);
        let mut function = Function::new([]);
        let mut body = function.instructions();
        body.i64_const(0).global_set(drops).local_get(MASK).global_set(rest);
        body.loop_(BlockType::Empty);
        body.local_get(DESCRIPTORS).local_get(MASK).i64_ctz().i32_wrap_i64();
        if self.size.is_power_of_two() {
            body.i32_const(self.size.trailing_zeros().cast_signed()).i32_shl();
        } else {
            body.i32_const(i32::try_from(self.size).unwrap_or(i32::MAX)).i32_mul();
        }
        body.i32_add().call(self.facts.entry_function);
        body.if_(BlockType::Empty);
        body.global_get(drops).i64_const(0).local_get(MASK).i64_sub().local_get(MASK).i64_and().i64_or();
        body.global_set(drops).end();
        body.local_get(MASK)
            .i64_const(1)
            .i64_sub()
            .local_get(MASK)
            .i64_and()
            .local_tee(MASK)
            .global_set(rest);
        body.local_get(MASK).i64_eqz().i32_eqz().br_if(0).end();
        body.global_get(drops).end();
        code.function(&function);
        Ok(())
    }

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
