//! Makes the linker's output a module for weir, by adding its manifest and line table.

use crate::line_table;
use std::path::Path;
use wasm_encoder::RawSection;
use wasmparser::{Parser, Payload};
use weir_abi::MANIFEST_SECTION;

/// Adds the manifest and a line table to a linked module, as custom sections. Removes all custom sections of the linker but
/// `name`: they depend on the compiler and the machine, so that two builds of one source would differ.
///
/// `dir` is the module's folder, to which paths in the line table are relative.
///
/// # Errors
///
/// The bytes are not a WebAssembly module.
pub(crate) fn pack(
    linked: &[u8],
    manifest: &[u8],
    dir: &Path,
) -> Result<Vec<u8>, wasmparser::BinaryReaderError> {
    let mut module = wasm_encoder::Module::new();
    for payload in Parser::new(0).parse_all(linked) {
        let payload = payload?;
        if matches!(&payload, Payload::CustomSection(section) if section.name() != "name") {
            continue;
        }
        if let Some((id, range)) = payload.as_section() {
            let start = usize::try_from(range.start).unwrap_or(usize::MAX);
            let end = usize::try_from(range.end).unwrap_or(usize::MAX);
            module.section(&RawSection { id, data: linked.get(start..end).unwrap_or_default() });
        }
    }
    let lines = line_table::line_table(linked, dir);
    if !lines.is_empty() {
        module.section(&wasm_encoder::CustomSection { name: line_table::SECTION.into(), data: lines.into() });
    }
    module.section(&wasm_encoder::CustomSection { name: MANIFEST_SECTION.into(), data: manifest.into() });
    Ok(module.finish())
}
