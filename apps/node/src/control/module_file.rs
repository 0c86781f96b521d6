//! The file of a module: the module itself, or a bundle that contains it.

use std::borrow::Cow;
use weir_compilation::bundle::{Bundle, BundleError, Member};

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
pub(crate) fn module_bytes(file: &[u8]) -> Cow<'_, [u8]> {
    if !Bundle::is_bundle(file) {
        return Cow::Borrowed(file);
    }
    match Bundle::parse(file) {
        Ok(bundle) => Cow::Owned(bundle.get(Member::Module).unwrap_or_default().to_vec()),
        Err(_) => Cow::Borrowed(file),
    }
}
