//! `weir build` and `weir pack`: make modules.

use std::io::{self, Write};
use std::path::Path;
use weir_author::{BuildError, BuildOptions, BuiltModule};
use weir_units::{Escape as _, escaped_lines};

/// Errors of the commands.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// The module cannot be made.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// Standard output cannot be written.
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
}

/// Returns the options of builds. All modules in Rust share a target folder in the user's cache, so that only the first build
/// compiles Rust's core library.
pub fn options(color: bool) -> BuildOptions {
    let cache = weir_sandbox::user_folder("XDG_CACHE_HOME", ".cache");
    let target_dir = cache.map(|cache| cache.join("weir").join("rust-target"));
    BuildOptions { target_dir, color, ..BuildOptions::default() }
}

/// Builds the module in a folder, and prints what was made.
pub fn build(out: &mut impl Write, dir: &Path) -> Result<(), MakeError> {
    print(out, &weir_author::build(dir, &options(false))?)
}

/// Makes a module of a WebAssembly file and of a manifest, and prints what was made.
pub fn pack(out: &mut impl Write, wasm: &Path, manifest: &Path, to: Option<&Path>) -> Result<(), MakeError> {
    print(out, &weir_author::pack_file(wasm, manifest, to)?)
}

fn print(out: &mut impl Write, built: &BuiltModule) -> Result<(), MakeError> {
    write!(io::stderr(), "{}", escaped_lines(&built.messages))?;
    let BuiltModule { path, manifest, size, toolchain, .. } = built;
    writeln!(out, "{}: {} {}, {size}", path.escaped(), manifest.name, manifest.version)?;
    if !toolchain.is_empty() {
        writeln!(out, "built with {}", toolchain.escaped())?;
    }
    Ok(())
}
