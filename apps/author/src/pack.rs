//! From what a linker makes to what `weir run` takes.

use crate::lines;
use std::path::Path;
use wasm_encoder::RawSection;
use wasmparser::{Parser, Payload};
use weir_abi::MANIFEST_SECTION;

/// Adds the manifest. Of the custom sections only the names and the lines of the source in `dir` stay, which messages use: what else there is says
/// with which compiler and where the module was built, and would make two builds of one source differ.
///
/// # Errors
///
/// What the parser says, if these are not the bytes of a module.
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
    let lines = lines::line_table(linked, dir);
    if !lines.is_empty() {
        module.section(&wasm_encoder::CustomSection { name: lines::SECTION.into(), data: lines.into() });
    }
    module.section(&wasm_encoder::CustomSection { name: MANIFEST_SECTION.into(), data: manifest.into() });
    Ok(module.finish())
}
