//! Modules with the instrumentation of `finite-wasm`, the prior art for limits on work and stack. It charges by imported functions, which become functions
//! of the module here: the compiler can inline them, whereas a call of the host for each block would cost far more.

use crate::appended::Appended;
use finite_wasm::prefix_sum_vec::PrefixSumVec;
use finite_wasm::wasmparser::{self as theirs, VisitOperator, VisitSimdOperator};
use finite_wasm::{Analysis, Fee, max_stack};
use std::convert::Infallible;
use wasm_encoder::reencode::Error;
use wasm_encoder::{BlockType, Function};
use wasmparser::{Parser, TypeRef};

/// The module of the imports.
const ENVIRONMENT: &str = "finite";
/// More than a run uses: the benchmark measures charges, not limits.
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

/// Each instruction costs one, except those that must be free.
struct One;

/// The cost of an instruction, by the name of its method.
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

/// Replaces the imports by functions.
fn joined(instrumented: &[u8]) -> Result<Vec<u8>, Error<Infallible>> {
    let (mut charges, mut imported, mut functions_before, mut globals) = (Vec::new(), 0, 0, 0);
    for payload in Parser::new(0).parse_all(instrumented) {
        match payload? {
            wasmparser::Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    let import = import?;
                    imported += u32::from(matches!(import.ty, TypeRef::Func(_)));
                    if let (ENVIRONMENT, TypeRef::Func(ty)) = (import.module, import.ty) {
                        charges.push((import.name.to_owned(), ty));
                    }
                }
            }
            wasmparser::Payload::FunctionSection(section) => functions_before = imported + section.count(),
            wasmparser::Payload::GlobalSection(section) => globals = section.count(),
            _ => {}
        }
    }
    let functions = charges.iter().map(|(name, ty)| (*ty, charge(name, globals))).collect();
    let imports = Some(ENVIRONMENT);
    Appended { functions, globals: ENOUGH, imports, functions_before, ..Appended::default() }.to(instrumented)
}

/// The function for an import. The remaining work and the remaining stack are in the globals from `first` on.
fn charge(name: &str, first: u32) -> Function {
    let mut function = Function::new([]);
    let mut code = function.instructions();
    let global = if name.ends_with("stack") { first + 1 } else { first };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::Module as Shipped;

    #[test]
    fn instrumented_modules_are_valid_and_import_nothing_new() {
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
