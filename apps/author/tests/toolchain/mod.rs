//! Detects the compilers of this machine. Tests without a compiler print a message and pass.

use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;
use weir_author::{BuildError, BuildOptions, ModuleLanguage, build, new};

/// Options with the compilers of the environment.
pub fn options() -> BuildOptions {
    BuildOptions::default()
}

/// Options with a shared target folder for cargo, so that the library is compiled once.
pub fn rust_options() -> BuildOptions {
    let target_dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("modules");
    BuildOptions { target_dir: Some(target_dir), ..BuildOptions::default() }
}

/// Returns true if C modules can be built.
pub fn has_c() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| can_build(ModuleLanguage::C, &options()))
}

/// Returns true if Rust modules can be built.
pub fn has_rust() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| can_build(ModuleLanguage::Rust, &rust_options()))
}

fn can_build(lang: ModuleLanguage, options: &BuildOptions) -> bool {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("probe");
    new(&dir, lang).unwrap();
    match build(&dir, options) {
        Err(error @ (BuildError::NoClang { .. } | BuildError::NoLinker | BuildError::NoRust { .. })) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED: modules in {lang:?} are not built here: {error}");
            false
        }
        // Tests report other errors.
        _ => true,
    }
}
