//! `weir build`.

use crate::folder::{ModuleFolder, ModuleSource, replace};
use crate::pack::pack;
use crate::{BuildError, Tools, c, rust};
use std::path::{Path, PathBuf};
use weir_admission::{Manifest, ModuleInfo, ModuleRefusal, manifest_of, sources};
use weir_bounds::EntryPoint;
use weir_units::Bytes;

/// How to build.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// Where compilers are looked for.
    pub tools: Tools,
    /// Where the module goes; without it NAME.wasm in the module's folder.
    pub output: Option<PathBuf>,
    /// Where cargo keeps what it compiled; without it `.weir/target` in the module's folder. Modules of different names can share one.
    pub target_dir: Option<PathBuf>,
    /// Whether compilers colour their messages.
    pub color: bool,
    /// How hard compilers try; without it -O3 for C, and for Rust what the module's Cargo.toml says. For measuring what compilers make of a source:
    /// modules are shipped without.
    pub level: Option<Level>,
}

/// How hard a compiler tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Not at all.
    Zero,
    /// A little.
    One,
    /// For speed.
    Two,
    /// For speed, whatever the size.
    Three,
    /// For size.
    Size,
}

impl Level {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Zero, Self::One, Self::Two, Self::Three, Self::Size];

    /// As compilers call it, after `-O` or `opt-level=`.
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
    /// The environment's compilers, NAME.wasm in the module's folder, no colours, compiled as modules are shipped.
    fn default() -> Self {
        Self { tools: Tools::from_environment(), output: None, target_dir: None, color: false, level: None }
    }
}

/// A module that was built, and that `weir run` admits.
#[derive(Clone, Debug)]
pub struct Built {
    /// Where it is.
    pub path: PathBuf,
    /// Its manifest.
    pub manifest: Manifest,
    /// Its size.
    pub size: Bytes,
    /// What compilers said that is no error, and what weir has to say.
    pub messages: String,
    /// Compiler and linker with their versions, in a line. The same source and the same line give the same bytes, wherever the folder is.
    pub toolchain: String,
}

/// What a compiler made.
pub(crate) struct Linked {
    pub(crate) bytes: Vec<u8>,
    pub(crate) messages: String,
    pub(crate) toolchain: String,
}

/// Builds the module in `dir`, from weir.toml and `*.c`, or Cargo.toml. What the sources include is put into `dir/.weir` first, and stays there
/// for editors. The module is written at the end and at once.
///
/// # Errors
///
/// See [`BuildError`]. What weir would refuse to run is an error here.
pub fn build(dir: &Path, options: &BuildOptions) -> Result<Built, BuildError> {
    let folder = ModuleFolder::open(dir)?;
    folder.generate()?;
    let Linked { bytes, mut messages, toolchain } = match &folder.source {
        ModuleSource::C(sources) => c::compile(&folder, sources, options)?,
        ModuleSource::Rust(cargo_toml) => rust::compile(&folder, cargo_toml, options)?,
    };
    let refused = |error| BuildError::Refused { dir: folder.dir.clone(), error: Box::new(error) };
    let module = pack(&bytes, &folder.manifest_bytes, &folder.dir).map_err(|error| {
        refused(ModuleRefusal::Invalid { offset: error.offset(), reason: error.message().to_owned() })
    })?;
    let (manifest, facts) = manifest_of(&module).map_err(refused)?;
    messages.push_str(&contradictions(&manifest, &facts));
    let path = options
        .output
        .clone()
        .unwrap_or_else(|| folder.dir.join(folder.manifest.name.as_str()).with_added_extension("wasm"));
    replace(&path, &module)?;
    Ok(Built { path, manifest, size: Bytes(module.len() as u64), messages, toolchain })
}

/// Writes what the sources in `dir` include into `dir/.weir`, as [`build`] does, and nothing else: for editors.
///
/// # Errors
///
/// See [`BuildError`].
pub fn prepare(dir: &Path) -> Result<(), BuildError> {
    ModuleFolder::open(dir)?.generate()
}

/// The `module.h` of the module in `dir`.
///
/// # Errors
///
/// See [`BuildError`].
pub fn c_header(dir: &Path) -> Result<String, BuildError> {
    Ok(sources::c_header(&ModuleFolder::open(dir)?.manifest))
}

/// What is allowed, and hardly meant.
fn contradictions(manifest: &Manifest, facts: &ModuleInfo) -> String {
    match (manifest.tick, facts.entries.has(EntryPoint::Tick)) {
        (Some(_), false) => {
            "weir.toml: warning: there is a `tick`, but the module exports no weir_tick\n".to_owned()
        }
        (None, true) => {
            "weir.toml: warning: weir_tick is never called; say how often, as in `tick = \"1s\"`\n".to_owned()
        }
        _ => String::new(),
    }
}
