//! Modules with functions and globals of the benchmark's own behind those that they have.

use std::convert::Infallible;
use wasm_encoder::reencode::{Error, Reencode, utils};
use wasm_encoder::{
    CodeSection, ConstExpr, ExportKind, ExportSection, Function, FunctionSection, GlobalSection, GlobalType,
    ImportSection, Module, SectionId, TypeSection, ValType,
};
use wasmparser::Parser;

type Result<T> = std::result::Result<T, Error<Infallible>>;

/// The appended parts of a module, and the replaced ones.
#[derive(Default)]
pub struct Appended {
    /// Functions with their types.
    pub functions: Vec<(u32, Function)>,
    /// The initial value of two globals of type i64.
    pub globals: i64,
    /// A type from (i32, i64) to i64 is appended, too.
    pub has_batch_type: bool,
    /// An export that the first appended function replaces: the old name, the new name, and the function's number.
    pub export: Option<(&'static str, &'static str, u32)>,
    /// Imports from this module are the first ones. The appended functions replace them.
    pub imports: Option<&'static str>,
    /// The number of functions before, with imports; only for replaced imports.
    pub functions_before: u32,
}

impl Appended {
    /// A module with the parts appended. Custom sections but the manifest are left out, because they describe the earlier functions.
    pub fn to(self, wasm: &[u8]) -> Result<Vec<u8>> {
        let mut module = Module::new();
        let mut writer = Writer { parts: self, globals_written: false };
        writer.parse_core_module(&mut module, Parser::new(0), wasm)?;
        Ok(module.finish())
    }
}

struct Writer {
    parts: Appended,
    globals_written: bool,
}

impl Writer {
    fn write_globals(&mut self, globals: &mut GlobalSection) {
        for _ in 0..2 {
            let ty = GlobalType { val_type: ValType::I64, mutable: true, shared: false };
            globals.global(ty, &ConstExpr::i64_const(self.parts.globals));
        }
        self.globals_written = true;
    }
}

impl Reencode for Writer {
    type Error = Infallible;

    fn function_index(&mut self, index: u32) -> Result<u32> {
        let replaced = u32::try_from(self.parts.functions.len()).unwrap_or(u32::MAX);
        Ok(match self.parts.imports {
            None => index,
            Some(_) if index < replaced => self.parts.functions_before - replaced + index,
            Some(_) => index - replaced,
        })
    }

    fn parse_type_section(
        &mut self,
        types: &mut TypeSection,
        section: wasmparser::TypeSectionReader<'_>,
    ) -> Result<()> {
        utils::parse_type_section(self, types, section)?;
        if self.parts.has_batch_type {
            types.ty().function([ValType::I32, ValType::I64], [ValType::I64]);
        }
        Ok(())
    }

    fn parse_import_section(
        &mut self,
        imports: &mut ImportSection,
        section: wasmparser::ImportSectionReader<'_>,
    ) -> Result<()> {
        for import in section.into_imports() {
            let import = import?;
            if Some(import.module) != self.parts.imports {
                imports.import(import.module, import.name, self.entity_type(import.ty)?);
            }
        }
        Ok(())
    }

    fn parse_function_section(
        &mut self,
        functions: &mut FunctionSection,
        section: wasmparser::FunctionSectionReader<'_>,
    ) -> Result<()> {
        utils::parse_function_section(self, functions, section)?;
        for (ty, _) in &self.parts.functions {
            functions.function(*ty);
        }
        Ok(())
    }

    fn parse_global_section(
        &mut self,
        globals: &mut GlobalSection,
        section: wasmparser::GlobalSectionReader<'_>,
    ) -> Result<()> {
        utils::parse_global_section(self, globals, section)?;
        self.write_globals(globals);
        Ok(())
    }

    fn parse_export_section(
        &mut self,
        exports: &mut ExportSection,
        section: wasmparser::ExportSectionReader<'_>,
    ) -> Result<()> {
        for exported in section {
            let exported = exported?;
            if self.parts.export.is_none_or(|(old, ..)| old != exported.name) {
                utils::parse_export(self, exports, exported)?;
            }
        }
        if let Some((_, new, function)) = self.parts.export {
            exports.export(new, ExportKind::Func, function);
        }
        Ok(())
    }

    fn parse_code_section(
        &mut self,
        code: &mut CodeSection,
        section: wasmparser::CodeSectionReader<'_>,
    ) -> Result<()> {
        utils::parse_code_section(self, code, section)?;
        for (_, function) in &self.parts.functions {
            code.function(function);
        }
        Ok(())
    }

    fn parse_custom_section(
        &mut self,
        module: &mut Module,
        section: wasmparser::CustomSectionReader<'_>,
    ) -> Result<()> {
        if section.name() == weir_abi::MANIFEST_SECTION {
            utils::parse_custom_section(self, module, section)?;
        }
        Ok(())
    }

    /// Puts a section of globals before the exports of a module without globals.
    fn intersperse_section_hook(
        &mut self,
        module: &mut Module,
        _after: Option<SectionId>,
        before: Option<SectionId>,
    ) -> Result<()> {
        if before == Some(SectionId::Export) && !self.globals_written {
            let mut globals = GlobalSection::new();
            self.write_globals(&mut globals);
            module.section(&globals);
        }
        Ok(())
    }
}
