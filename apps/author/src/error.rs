//! [`BuildError`], the error of a build.

use std::io;
use std::path::{Path, PathBuf};
use weir_admission::{ManifestError, ModuleRefusal};
use weir_units::Escape as _;

/// The reason why a module cannot be built. An older .wasm file is left unchanged.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The folder does not exist or has no weir.toml.
    #[error(
        "{}: there is no weir.toml here; give the folder of a module, or create one with `weir new NAME --lang c`",
        .0.escaped()
    )]
    NoManifest(PathBuf),
    /// The manifest is not valid.
    #[error("{}: {error}", .path.escaped())]
    Manifest {
        /// Path of weir.toml.
        path: PathBuf,
        /// The error in the manifest.
        error: Box<ManifestError>,
    },
    /// The folder has no sources.
    #[error(
        "{}: there is nothing to compile: put a .c file beside weir.toml, or for Rust a Cargo.toml and src/lib.rs; `weir pack` makes a module of the .wasm file of another compiler",
        .0.escaped()
    )]
    NoSource(PathBuf),
    /// The folder has src/lib.rs, but no Cargo.toml.
    #[error(
        "{}: there is src/lib.rs, but no Cargo.toml; `weir new` creates a suitable one in a new folder",
        .0.escaped()
    )]
    NoCargoManifest(PathBuf),
    /// The folder has sources in both C and Rust.
    #[error(
        "{}: there is a Cargo.toml and also `{}`: a module is written in one language; move one of them away",
        .dir.escaped(), .c.escaped()
    )]
    TwoLanguages {
        /// The module's folder.
        dir: PathBuf,
        /// One of the C sources.
        c: PathBuf,
    },
    /// No C compiler for WebAssembly was found.
    #[error(
        "no C compiler for WebAssembly: {tried}. Install one with `apt-get install clang-19 lld-19` (or `clang lld`), or name one in WEIR_CC"
    )]
    NoClang {
        /// The compilers tried, and why they are unsuitable.
        tried: String,
    },
    /// No linker was found.
    #[error(
        "no linker for WebAssembly: neither wasm-ld-19 nor wasm-ld nor another version was found. Install one with `apt-get install lld-19` (or `lld`)"
    )]
    NoLinker,
    /// No Rust compiler for WebAssembly was found.
    #[error(
        "no Rust compiler for WebAssembly: {tried}. With rustup: `rustup target add wasm32-unknown-unknown`. On Debian or Ubuntu: `apt-get install rustc-web cargo-web libstd-rust-web-dev rust-web-src lld-19` (or `rustc cargo libstd-rust-dev-wasm32 lld`). Another compiler can be named in WEIR_RUSTC"
    )]
    NoRust {
        /// The compilers tried, and why they are unsuitable.
        tried: String,
    },
    /// The compiler or linker failed.
    #[error("{output}\n{tool} could not build {}{}", .dir.escaped(), library_advice(.output))]
    Compiler {
        /// Name of the compiler or linker.
        tool: String,
        /// The module's folder.
        dir: PathBuf,
        /// The messages of the compiler or linker, unchanged.
        output: String,
    },
    /// The linker found undefined symbols.
    #[error(
        "{output}\n{}: undefined: {}. There is no C library in a module: the available functions are in weir.h, weir_copy, weir_fill and weir_equal among them. A function of your own may be misspelt, or its .c file may not be beside weir.toml",
        .dir.escaped(), list(.names)
    )]
    Undefined {
        /// The module's folder.
        dir: PathBuf,
        /// The undefined symbols.
        names: Vec<String>,
        /// The linker's messages, unchanged.
        output: String,
    },
    /// The compiler has no sanitizers for native builds.
    #[error(
        "{output}\n{}: this compiler has no sanitizers, in which `weir test` runs a module natively. Install libclang-rt-19-dev (or libclang-rt-dev), or run the tests in the sandbox alone, with --no-native",
        .clang.escaped()
    )]
    NoSanitizers {
        /// The compiler.
        clang: PathBuf,
        /// The linker's messages, unchanged.
        output: String,
    },
    /// The replay of a sandbox's calls in a native build failed for another reason than the module.
    #[error("the native replay failed: {0}")]
    Replay(String),
    /// Cargo produced no .wasm file.
    #[error(
        "{}: cargo made no .wasm file; a module is a `[lib]` with `crate-type = [\"cdylib\"]`",
        .0.escaped()
    )]
    NoCdylib(PathBuf),
    /// The folder has neither a source nor a packed module.
    #[error(
        "{}: there is no source in C or Rust, and no {}: `weir pack FILE.wasm {}` makes it of the .wasm file of another compiler",
        .dir.escaped(), .path.escaped(), .dir.join("weir.toml").escaped()
    )]
    NoPackedModule {
        /// The module's folder.
        dir: PathBuf,
        /// The path of the packed module.
        path: PathBuf,
    },
    /// A packed module has another manifest than the folder.
    #[error("{}: weir.toml has changed since the module was packed: run `weir pack` again", .0.escaped())]
    OldManifest(PathBuf),
    /// The module was compiled, but `weir run` would refuse it.
    #[error("{}: compiled, but not a module: {error}", .dir.escaped())]
    Refused {
        /// The module's folder.
        dir: PathBuf,
        /// The reason of the refusal.
        error: Box<ModuleRefusal>,
    },
    /// A WebAssembly file is no module for weir.
    #[error("{}: {error}", .wasm.escaped())]
    NotPacked {
        /// The file.
        wasm: PathBuf,
        /// The reason.
        error: Box<ModuleRefusal>,
    },
    /// A program exists, but cannot be run.
    #[error("cannot run {}: {source}", .program.escaped())]
    Run {
        /// The program.
        program: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The folder of generated files contains a symbolic link or a special file.
    #[error(
        "{} is neither a file nor a folder: weir writes there, and follows no links; remove it", .0.escaped()
    )]
    NotRegular(PathBuf),
    /// A file cannot be read or written.
    #[error("{}: {source}", .path.escaped())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl BuildError {
    /// Returns a function for `map_err` that adds this path to a system error.
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { path: path.to_owned(), source }
    }
}

/// Returns what stands for functions of <string.h>, if a compiler's messages are about one of them.
fn library_advice(output: &str) -> &'static str {
    let is_missing = |name: &&str| output.contains(&format!("function '{name}'"));
    let functions = ["memcpy", "memset", "memcmp"];
    if output.contains("'string.h' file not found") || functions.iter().any(is_missing) {
        ". There is no C library in a module: weir_copy, weir_fill and weir_equal of weir.h stand for memcpy, memset and memcmp"
    } else {
        ""
    }
}

fn list(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
