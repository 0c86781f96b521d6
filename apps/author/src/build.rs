//! `weir build`: builds a module from its folder.

use crate::folder::{ModuleFolder, ModuleSource, write_atomic};
use crate::pack::pack;
use crate::{BuildError, Tools, c, rust};
use std::path::{Path, PathBuf};
use weir_admission::{Manifest, ModuleInfo, ModuleRefusal, manifest_of, sources};
use weir_bounds::EntryPoint;
use weir_units::Bytes;

/// Options of a build.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// The settings that choose compilers and linkers.
    pub tools: Tools,
    /// The output file; `None` for NAME.wasm in the module's folder.
    pub output: Option<PathBuf>,
    /// Cargo's target folder; `None` for `.weir/target` in the module's folder. Modules can share a target folder.
    pub target_dir: Option<PathBuf>,
    /// True for coloured compiler messages.
    pub color: bool,
    /// The optimisation level. `None` means -O3 for C, and for Rust the level in the module's Cargo.toml. Shipped modules are
    /// built with `None`; other values serve measurements.
    pub level: Option<OptLevel>,
}

/// An optimisation level of a compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OptLevel {
    /// `-O0`: no optimisation.
    Zero,
    /// `-O1`: some optimisation.
    One,
    /// `-O2`: optimised for speed.
    Two,
    /// `-O3`: optimised for speed at the expense of size.
    Three,
    /// `-Os`: optimised for size.
    Size,
}

impl OptLevel {
    /// All levels.
    pub const ALL: [Self; 5] = [Self::Zero, Self::One, Self::Two, Self::Three, Self::Size];

    /// Returns the level as an argument of the options `-O` and `opt-level=`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zero => "0",
            Self::One => "1",
            Self::Two => "2",
            Self::Three => "3",
            Self::Size => "s",
        }
    }
}

impl Default for BuildOptions {
    /// Options with the compilers of the environment, NAME.wasm in the module's folder, no colours, and the default optimisation
    /// level.
    fn default() -> Self {
        Self { tools: Tools::from_environment(), output: None, target_dir: None, color: false, level: None }
    }
}

/// A built module, which `weir run` accepts.
#[derive(Clone, Debug)]
pub struct BuiltModule {
    /// Path of the .wasm file.
    pub path: PathBuf,
    /// The manifest in the file.
    pub manifest: Manifest,
    /// Size of the file.
    pub size: Bytes,
    /// Warnings of the compilers and of weir.
    pub messages: String,
    /// Compiler and linker with their versions, in one line. Two builds of the same source are identical if this text is the
    /// same, whatever the path of the folder.
    pub toolchain: String,
}

/// The output of a compiler and linker.
pub(crate) struct LinkedModule {
    pub(crate) bytes: Vec<u8>,
    pub(crate) messages: String,
    pub(crate) toolchain: String,
}

/// Builds the module in the folder `dir` from weir.toml and its sources, `*.c` or a Cargo package. First writes the files that
/// the sources include into `dir/.weir`, where they stay for editors. Replaces the .wasm file atomically at the end.
///
/// # Errors
///
/// See [`BuildError`]. A built module that `weir run` would refuse is an error, too.
pub fn build(dir: &Path, options: &BuildOptions) -> Result<BuiltModule, BuildError> {
    let folder = ModuleFolder::open(dir)?;
    folder.generate()?;
    let LinkedModule { bytes, mut messages, toolchain } = match &folder.source {
        ModuleSource::C(sources) => c::compile(&folder, sources, options)?,
        ModuleSource::Rust(cargo_toml) => rust::compile(&folder, cargo_toml, options)?,
    };
    let refused = |error| BuildError::Refused { dir: folder.dir.clone(), error: Box::new(error) };
    let module = pack(&bytes, &folder.manifest_bytes, &folder.dir).map_err(|error| {
        refused(ModuleRefusal::Invalid { offset: error.offset(), reason: error.message().to_owned() })
    })?;
    let (manifest, facts) = manifest_of(&module).map_err(refused)?;
    messages.push_str(&mismatch_warnings(&manifest, &facts));
    let path = options
        .output
        .clone()
        .unwrap_or_else(|| folder.dir.join(folder.manifest.name.as_str()).with_added_extension("wasm"));
    write_atomic(&path, &module)?;
    Ok(BuiltModule { path, manifest, size: Bytes(module.len() as u64), messages, toolchain })
}

/// Writes the files that the sources in `dir` include into `dir/.weir`, as [`build`] does, for editors.
///
/// # Errors
///
/// See [`BuildError`].
pub fn generate_includes(dir: &Path) -> Result<(), BuildError> {
    ModuleFolder::open(dir)?.generate()
}

/// Returns the text of `module.h` of the module in `dir`.
///
/// # Errors
///
/// See [`BuildError`].
pub fn c_header(dir: &Path) -> Result<String, BuildError> {
    Ok(sources::c_header(&ModuleFolder::open(dir)?.manifest))
}

/// Returns warnings about a valid manifest that does not match the module's exports.
pub(crate) fn mismatch_warnings(manifest: &Manifest, facts: &ModuleInfo) -> String {
    match (manifest.tick, facts.entries.has(EntryPoint::Tick)) {
        (Some(_), false) => {
            "weir.toml: warning: there is a `tick`, but the module exports no weir_tick\n".to_owned()
        }
        (None, true) => {
            "weir.toml: warning: weir_tick is never called; set its period, as in `tick = \"1s\"`\n"
                .to_owned()
        }
        _ => String::new(),
    }
}
