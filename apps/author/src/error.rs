//! What can go wrong in a build.

use std::io;
use std::path::{Path, PathBuf};
use weir_admission::{ManifestError, ModuleRefusal};
use weir_units::Shown as _;

/// Why there is no module. Nothing that was there before is touched: an older .wasm file stays as it is.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// No such folder, or no weir.toml in it.
    #[error(
        "{}: there is no weir.toml here; give the folder of a module, or make one with `weir new NAME --lang c`",
        .0.shown()
    )]
    NoManifest(PathBuf),
    /// A weir.toml that cannot be used.
    #[error("{}: {error}", .path.shown())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: Box<ManifestError>,
    },
    /// Nothing to compile.
    #[error(
        "{}: there is nothing to compile: put a .c file beside weir.toml, or for Rust a Cargo.toml and src/lib.rs",
        .0.shown()
    )]
    NoSource(PathBuf),
    /// Rust without a Cargo.toml.
    #[error(
        "{}: there is src/lib.rs, but no Cargo.toml; `weir new` makes one that fits, in a new folder",
        .0.shown()
    )]
    NoCargoManifest(PathBuf),
    /// Both C and Rust.
    #[error(
        "{}: there is a Cargo.toml and also `{}`: a module is written in one language; move one of them away",
        .dir.shown(), .c.shown()
    )]
    TwoLanguages {
        /// The module's folder.
        dir: PathBuf,
        /// A C source.
        c: PathBuf,
    },
    /// No compiler for C.
    #[error(
        "no C compiler for WebAssembly: {tried}. Install one with `apt-get install clang-19 lld-19` (or `clang lld`), or name one in WEIR_CC"
    )]
    NoClang {
        /// What was tried, and what was wrong with it.
        tried: String,
    },
    /// No linker.
    #[error(
        "no linker for WebAssembly: neither wasm-ld-19 nor wasm-ld nor another version was found. Install one with `apt-get install lld-19` (or `lld`)"
    )]
    NoLinker,
    /// No compiler for Rust.
    #[error(
        "no Rust compiler for WebAssembly: {tried}. With rustup: `rustup target add wasm32-unknown-unknown`. On Debian or Ubuntu: `apt-get install rustc-web libstd-rust-web-dev rust-web-src lld-19` (or `rustc libstd-rust-dev-wasm32 lld`). Another compiler can be named in WEIR_RUSTC"
    )]
    NoRust {
        /// What was tried, and what was wrong with it.
        tried: String,
    },
    /// The compiler or linker refused the source.
    #[error("{output}\n{tool} could not build {}", .dir.shown())]
    Compiler {
        /// Which program.
        tool: String,
        /// The module's folder.
        dir: PathBuf,
        /// What it said, as it is.
        output: String,
    },
    /// Names that are used and nowhere defined.
    #[error(
        "{output}\n{}: nobody defines {}. There is no C library in a module: what weir offers is in weir.h. A function of your own may be misspelt, or its .c file may not be beside weir.toml",
        .dir.shown(), list(.names)
    )]
    Undefined {
        /// The module's folder.
        dir: PathBuf,
        /// The names.
        names: Vec<String>,
        /// What the linker said, as it is.
        output: String,
    },
    /// Cargo made no .wasm file.
    #[error(
        "{}: cargo made no .wasm file; a module is a `[lib]` with `crate-type = [\"cdylib\"]`",
        .0.shown()
    )]
    NoCdylib(PathBuf),
    /// The module was compiled, and would be refused by `weir run`.
    #[error("{}: compiled, but not a module: {error}", .dir.shown())]
    Refused {
        /// The module's folder.
        dir: PathBuf,
        /// What is wrong with it.
        error: Box<ModuleRefusal>,
    },
    /// A program that is there and cannot be run.
    #[error("cannot run {}: {source}", .program.shown())]
    Run {
        /// The program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something in the folder of generated files that leads elsewhere.
    #[error(
        "{} is neither a file nor a folder: weir writes there, and follows no links; remove it", .0.shown()
    )]
    Strange(PathBuf),
    /// A file that cannot be read or written.
    #[error("{}: {source}", .path.shown())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl BuildError {
    /// For `map_err` after something was done with a file.
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { path: path.to_owned(), source }
    }
}

fn list(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
