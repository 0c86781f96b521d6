//! Modules without code, for instances that run in verified code alone.

use wasm_encoder::{CodeSection, Function, Module, RawSection, SectionId};
use wasmparser::{Parser, Payload};

/// Returns a module with functions that only trap, in place of its own, and without custom sections. Its memory, tables,
/// globals and exports are those of the module.
///
/// # Errors
/// The module cannot be read.
pub(crate) fn without_code(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut module = Module::new();
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(|error| error.to_string())? {
            Payload::CodeSectionStart { count, .. } => {
                let mut body = Function::new([]);
                body.instructions().unreachable().end();
                let mut bodies = CodeSection::new();
                (0..count).for_each(|_| _ = bodies.function(&body));
                module.section(&bodies);
            }
            payload => match payload.as_section() {
                Some((id, range)) if id != SectionId::Custom as u8 => {
                    let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
                    let data = bytes.get(index(range.start)..index(range.end)).unwrap_or_default();
                    module.section(&RawSection { id, data });
                }
                _ => {}
            },
        }
    }
    Ok(module.finish())
}
