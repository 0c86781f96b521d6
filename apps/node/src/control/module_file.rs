//! The file of a module: the module itself, or a bundle that contains it.

use weir_compilation::bundle::{Bundle, BundleError};
use weir_trust::grant::ModuleHash;

/// The file of a module.
#[derive(Clone, Debug)]
pub(crate) struct ModuleFile {
    /// The bytes of the module.
    pub(crate) module: Vec<u8>,
    /// The bundle that contains the module, if the file is one.
    pub(crate) bundle: Option<Bundle>,
}

impl ModuleFile {
    /// Reads the bytes of a file.
    ///
    /// # Errors
    ///
    /// The file begins like a bundle, and is none.
    pub(crate) fn read(bytes: Vec<u8>) -> Result<Self, BundleError> {
        if !Bundle::is_bundle(&bytes) {
            return Ok(Self { module: bytes, bundle: None });
        }
        let bundle = Bundle::parse(&bytes)?;
        Ok(Self { module: bundle.module().to_vec(), bundle: Some(bundle) })
    }
}

/// Returns the bytes of the module in a file. Signatures and grants are for these bytes. A file that begins like a bundle and is
/// none counts as a module, which is refused later.
pub(crate) fn module_bytes(file: &[u8]) -> &[u8] {
    if Bundle::is_bundle(file) { Bundle::module_of(file).unwrap_or(file) } else { file }
}

/// Returns the hash of the module in a file. `of_file` is the hash of the file.
pub(crate) fn module_hash(file: &[u8], of_file: ModuleHash) -> ModuleHash {
    let module = module_bytes(file);
    if module.len() == file.len() { of_file } else { ModuleHash::of_bytes(module) }
}
