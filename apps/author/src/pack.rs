//! Makes the linker's output a module for weir, by adding its manifest and line table; `weir pack` for modules that other
//! compilers made.

use crate::BuildError;
use crate::build::{BuiltModule, mismatch_warnings};
use crate::folder::{ModuleFolder, read_manifest, read_regular, write_atomic};
use crate::line_table;
use std::path::{Path, PathBuf};
use wasm_encoder::RawSection;
use wasmparser::{Parser, Payload};
use weir_abi::MANIFEST_SECTION;
use weir_admission::{MODULE_BYTES_MAX, ModuleRefusal, manifest_of};
use weir_units::Bytes;

/// Makes a module for weir of a WebAssembly file of any compiler and of a manifest, and writes it to `output`; with `None`, to
/// NAME.wasm beside the manifest. A manifest that the file has already is replaced.
///
/// # Errors
/// See [`BuildError`]. A module that `weir run` would refuse is an error, too, and is not written.
pub fn pack_file(wasm: &Path, manifest: &Path, output: Option<&Path>) -> Result<BuiltModule, BuildError> {
    let linked = read_regular(wasm).map_err(BuildError::file(wasm))?;
    let (described, manifest_bytes) = read_manifest(manifest)?;
    let folder = manifest.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let refused = |error| BuildError::NotPacked { wasm: wasm.to_owned(), error: Box::new(error) };
    if linked.len() > MODULE_BYTES_MAX {
        let error = std::io::Error::other(format!(
            "larger than {}, the most for a module",
            Bytes(MODULE_BYTES_MAX as u64)
        ));
        return Err(BuildError::file(wasm)(error));
    }
    let module = pack(&linked, &manifest_bytes, folder).map_err(|error| {
        refused(ModuleRefusal::Invalid { offset: error.offset(), reason: error.message().to_owned() })
    })?;
    let (manifest, facts) = manifest_of(&module).map_err(refused)?;
    let path = output
        .map_or_else(|| folder.join(described.name.as_str()).with_added_extension("wasm"), PathBuf::from);
    write_atomic(&path, &module)?;
    let messages = mismatch_warnings(&manifest, &facts);
    let toolchain = producers(&linked);
    Ok(BuiltModule { path, manifest, size: Bytes(module.len() as u64), messages, toolchain })
}

/// Returns the packed module of a folder that has no source which weir builds; `None` for a folder with one.
///
/// # Errors
/// See [`BuildError`]. The folder has no packed module, or its manifest has changed since the module was packed.
pub fn packed(dir: &Path) -> Result<Option<BuiltModule>, BuildError> {
    match ModuleFolder::open(dir) {
        Ok(_) => return Ok(None),
        Err(BuildError::NoSource(_)) => {}
        Err(error) => return Err(error),
    }
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let (described, manifest_bytes) = read_manifest(&dir.join("weir.toml"))?;
    let path = dir.join(described.name.as_str()).with_added_extension("wasm");
    if !path.is_file() {
        return Err(BuildError::NoPackedModule { dir: dir.to_owned(), path });
    }
    let built = module_file(&path)?;
    let module = read_regular(&path).map_err(BuildError::file(&path))?;
    if manifest_section(&module) != Some(manifest_bytes.as_slice()) {
        return Err(BuildError::OldManifest(path));
    }
    Ok(Some(built))
}

/// Reads a module that exists already.
///
/// # Errors
/// See [`BuildError`]. The file is no module.
pub fn module_file(path: &Path) -> Result<BuiltModule, BuildError> {
    let module = read_regular(path).map_err(BuildError::file(path))?;
    let not_packed = |error| BuildError::NotPacked { wasm: path.to_owned(), error: Box::new(error) };
    let (manifest, facts) = manifest_of(&module).map_err(not_packed)?;
    let messages = mismatch_warnings(&manifest, &facts);
    let size = Bytes(module.len() as u64);
    Ok(BuiltModule { path: path.to_owned(), manifest, size, messages, toolchain: producers(&module) })
}

/// Returns the bytes of a module's manifest.
fn manifest_section(module: &[u8]) -> Option<&[u8]> {
    Parser::new(0).parse_all(module).find_map(|payload| match payload {
        Ok(Payload::CustomSection(section)) if section.name() == MANIFEST_SECTION => Some(section.data()),
        _ => None,
    })
}

/// Returns the compilers that a module's section `producers` names, separated by commas; nothing without the section.
fn producers(linked: &[u8]) -> String {
    let sections = Parser::new(0).parse_all(linked).filter_map(|payload| match payload {
        Ok(Payload::CustomSection(section)) => Some(section),
        _ => None,
    });
    let mut names: Vec<String> = Vec::new();
    for section in sections {
        let wasmparser::KnownCustom::Producers(fields) = section.as_known() else { continue };
        let fields = fields.into_iter().flatten().filter(|field| field.name == "processed-by");
        for value in fields.flat_map(|field| field.values).flatten() {
            names.push(format!("{} {}", value.name, value.version));
        }
    }
    names.join(", ")
}

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
