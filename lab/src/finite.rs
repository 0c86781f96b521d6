//! Modules with the instrumentation of `finite-wasm`, the prior art for limits on work and stack: what it charges with are functions that it
//! imports. Here they become functions of the module, which the compiler can inline, because a call of the host for each block would cost far more.

use finite_wasm::prefix_sum_vec::PrefixSumVec;
use finite_wasm::wasmparser::{self as theirs, VisitOperator, VisitSimdOperator};
use finite_wasm::{Analysis, Fee, max_stack};
use std::convert::Infallible;
use wasm_encoder::reencode::{Error, Reencode, utils};
use wasm_encoder::{
    BlockType, CodeSection, ConstExpr, Function, FunctionSection, GlobalSection, GlobalType, ImportSection,
    Module, SectionId, ValType,
};
use wasmparser::{Parser, TypeRef};

/// What the imports are from.
const ENVIRONMENT: &str = "finite";
/// More than a run uses: what is measured is charging, not running out.
const ENOUGH: i64 = i64::MAX / 2;

/// Instruments a module, with a cost of one for each instruction.
pub fn instrumented(wasm: &[u8]) -> Result<Vec<u8>, String> {
    let told = |error: &dyn std::error::Error| match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    let outcome = Analysis::new().with_stack(Sizes).with_gas(One).analyze(wasm).map_err(|e| told(&e))?;
    let instrumented = outcome.instrument(ENVIRONMENT, wasm).map_err(|e| told(&e))?;
    joined(&instrumented).map_err(|e| e.to_string())
}

struct Sizes;

impl max_stack::SizeConfig for Sizes {
    fn size_of_value(&self, ty: theirs::ValType) -> u8 {
        match ty {
            theirs::ValType::I32 | theirs::ValType::F32 => 4,
            theirs::ValType::I64 | theirs::ValType::F64 => 8,
            theirs::ValType::V128 => 16,
            theirs::ValType::Ref(_) => 32,
        }
    }

    fn size_of_function_activation(&self, locals: &PrefixSumVec<theirs::ValType, u32>) -> u64 {
        u64::from(locals.max_index().map_or(0, |last| last + 1)) * 8
    }
}

/// Each instruction costs one, but for those that it has to count as nothing.
struct One;

/// What an instruction costs, by the name of its method.
fn fee(visit: &str) -> Fee {
    if matches!(visit, "visit_end" | "visit_else") { Fee::ZERO } else { Fee::constant(1) }
}

macro_rules! one_each {
    ($( @$proposal:ident $op:ident $({ $($arg:ident: $argty:ty),* })? => $visit:ident ($($ann:tt)*))*) => {
        $(fn $visit(&mut self $($(,$arg: $argty)*)?) -> Fee {
            $($(let _ = $arg;)*)?
            fee(stringify!($visit))
        })*
    };
}

impl<'a> VisitOperator<'a> for One {
    type Output = Fee;

    fn simd_visitor(&mut self) -> Option<&mut dyn VisitSimdOperator<'a, Output = Fee>> {
        Some(self)
    }

    theirs::for_each_visit_operator!(one_each);
}

impl VisitSimdOperator<'_> for One {
    theirs::for_each_visit_simd_operator!(one_each);
}

/// Puts functions in the place of the imports.
fn joined(instrumented: &[u8]) -> Result<Vec<u8>, Error<Infallible>> {
    let mut join = Join::default();
    for payload in Parser::new(0).parse_all(instrumented) {
        match payload? {
            wasmparser::Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    let import = import?;
                    join.imports += u32::from(matches!(import.ty, TypeRef::Func(_)));
                    if let (ENVIRONMENT, TypeRef::Func(ty)) = (import.module, import.ty) {
                        join.charges.push((import.name.to_owned(), ty));
                    }
                }
            }
            wasmparser::Payload::FunctionSection(section) => join.functions = join.imports + section.count(),
            wasmparser::Payload::GlobalSection(section) => join.globals = section.count(),
            _ => {}
        }
    }
    let mut module = Module::new();
    join.parse_core_module(&mut module, Parser::new(0), instrumented)?;
    Ok(module.finish())
}

#[derive(Default)]
struct Join {
    /// The imports to be replaced, which are the first: name and type.
    charges: Vec<(String, u32)>,
    /// Numbers of imported functions, of all functions, and of globals.
    imports: u32,
    functions: u32,
    globals: u32,
    globals_written: bool,
}

impl Join {
    fn replaced(&self) -> u32 {
        u32::try_from(self.charges.len()).unwrap_or(u32::MAX)
    }

    /// Work left, then stack left.
    fn write_globals(&mut self, globals: &mut GlobalSection) {
        for _ in 0..2 {
            let ty = GlobalType { val_type: ValType::I64, mutable: true, shared: false };
            globals.global(ty, &ConstExpr::i64_const(ENOUGH));
        }
        self.globals_written = true;
    }

    fn charge(&self, name: &str) -> Function {
        let (gas, stack) = (self.globals, self.globals + 1);
        let mut function = Function::new([]);
        let mut code = function.instructions();
        let global = if name.ends_with("stack") { stack } else { gas };
        code.global_get(global);
        match name {
            "finite_wasm_gas" => code.local_get(0).i64_sub(),
            "finite_wasm_stack" => code.local_get(0).i64_sub().local_get(1).i64_sub(),
            "finite_wasm_unstack" => code.local_get(0).i64_add().local_get(1).i64_add(),
            // A bulk instruction, with its length, the cost of each byte, and its own.
            _ => code.local_get(0).i64_extend_i32_u().local_get(1).i64_mul().i64_sub().local_get(2).i64_sub(),
        };
        code.global_set(global);
        if name != "finite_wasm_unstack" {
            code.global_get(global).i64_const(0).i64_lt_s().if_(BlockType::Empty).unreachable().end();
        }
        if !matches!(name, "finite_wasm_gas" | "finite_wasm_stack" | "finite_wasm_unstack") {
            code.local_get(0);
        }
        code.end();
        function
    }
}

impl Reencode for Join {
    type Error = Infallible;

    fn function_index(&mut self, index: u32) -> Result<u32, Error<Infallible>> {
        let replaced = self.replaced();
        Ok(if index < replaced { self.functions - replaced + index } else { index - replaced })
    }

    fn parse_import_section(
        &mut self,
        imports: &mut ImportSection,
        section: wasmparser::ImportSectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        for import in section.into_imports() {
            let import = import?;
            if import.module != ENVIRONMENT {
                imports.import(import.module, import.name, self.entity_type(import.ty)?);
            }
        }
        Ok(())
    }

    fn parse_function_section(
        &mut self,
        functions: &mut FunctionSection,
        section: wasmparser::FunctionSectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        utils::parse_function_section(self, functions, section)?;
        for (_, ty) in &self.charges {
            functions.function(*ty);
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

    fn parse_code_section(
        &mut self,
        code: &mut CodeSection,
        section: wasmparser::CodeSectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        utils::parse_code_section(self, code, section)?;
        for (name, _) in &self.charges {
            code.function(&self.charge(name));
        }
        Ok(())
    }

    /// Names and lines are of what the functions were.
    fn parse_custom_section(
        &mut self,
        module: &mut Module,
        section: wasmparser::CustomSectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        if section.name() == weir_abi::MANIFEST_SECTION {
            utils::parse_custom_section(self, module, section)?;
        }
        Ok(())
    }

    /// A module without globals has no section to append to; one is put before the exports.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::Module as Shipped;

    #[test]
    fn what_it_takes_of_the_shipped_modules_is_valid_afterwards_and_imports_nothing_new() {
        let modules = Shipped::shipped().unwrap();
        let mut taken = 0;
        for module in modules {
            let Ok(wasm) = instrumented(&module.wasm) else { continue };
            taken += 1;
            let error = wasmparser::validate(&wasm).err();
            assert!(error.is_none(), "{}: {error:?}", module.name);
            let joined = Shipped { wasm, ..module };
            joined.admit().unwrap_or_else(|error| panic!("{error}"));
        }
        assert!(taken > 0, "it takes none of them");
    }
}
