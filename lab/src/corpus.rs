//! A corpus of small functions in the shapes of common packet code, not written for the analyser: lab/corpus. Each is a module, built as by
//! `weir build`, but at every optimisation level, as each level compiles the same source to other loops.

use crate::error::{Context, LabError};
use crate::module::{Class, Module};
use crate::paths;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use weir_admission::Manifest;
use weir_author::{BuildError, BuildOptions, ModuleLanguage, OptLevel};
use xxhash_rust::xxh3::xxh3_128;

/// A source of the corpus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The file name without its extension.
    pub name: String,
    /// The language.
    pub lang: ModuleLanguage,
    text: String,
}

/// A source of the corpus, built at one optimisation level.
#[derive(Clone, Debug)]
pub struct CorpusModule {
    /// The name of the source.
    pub shape: String,
    /// The language.
    pub lang: ModuleLanguage,
    /// The optimisation level.
    pub level: OptLevel,
    /// The module.
    pub module: Module,
}

impl fmt::Display for CorpusModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -O{}", self.shape, self.level.name())
    }
}

/// The built modules, and the reasons for missing languages.
#[derive(Debug, Default)]
pub struct Corpus {
    /// The modules, by language, name and level.
    pub samples: Vec<CorpusModule>,
    /// Languages that were not built, each with the missing tool.
    pub skipped: Vec<String>,
}

/// The manifest of every module of the corpus.
const MANIFEST: &str = include_str!("../corpus/weir.toml");

const CARGO: &str = "[package]\nname = \"{{name}}\"\nversion = \"0.1.0\"\nedition = \"2021\"\npublish = false\n\n\
    [lib]\ncrate-type = [\"cdylib\"]\n\n[dependencies]\nweir-guest = { path = \".weir/weir-guest\" }\n\n\
    [profile.release]\nopt-level = 3\nlto = \"fat\"\ncodegen-units = 1\npanic = \"abort\"\n\n[workspace]\n";

impl Shape {
    /// All sources: C first, each language by name.
    pub fn all() -> Result<Vec<Self>, LabError> {
        let mut all = Vec::new();
        for (lang, folder, ending) in [(ModuleLanguage::C, "c", "c"), (ModuleLanguage::Rust, "rust", "rs")] {
            let folder = paths::root().join("lab/corpus").join(folder);
            let mut paths = files(&folder)?;
            paths.retain(|path| path.extension().is_some_and(|found| found == ending));
            for path in paths {
                let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                let text = std::fs::read_to_string(&path).map_err(LabError::file(&path))?;
                all.push(Self { name, lang, text });
            }
        }
        Ok(all)
    }

    /// The name of the module that a level compiles it to.
    fn module_name(&self, level: OptLevel) -> String {
        format!("{}-o{}", self.name.replace('_', "-"), level.name())
    }

    /// Builds it at a level, ignoring the cache. Returns the module and the compiler's version.
    fn build(&self, level: OptLevel, options: &BuildOptions) -> Result<(Vec<u8>, String), LabError> {
        let name = self.module_name(level);
        let folder = paths::scratch().join("corpus/folders").join(&name);
        let write = |file: &str, text: &str| {
            let path = folder.join(file);
            std::fs::create_dir_all(path.parent().unwrap_or(&folder))
                .and_then(|()| std::fs::write(&path, text))
                .map_err(LabError::file(&path))
        };
        write("weir.toml", &MANIFEST.replace("{{name}}", &name))?;
        match self.lang {
            ModuleLanguage::C => write(&format!("{}.c", self.name), &self.text)?,
            ModuleLanguage::Rust => {
                write("src/lib.rs", &self.text)?;
                write("Cargo.toml", &CARGO.replace("{{name}}", &name))?;
            }
        }
        let options = BuildOptions { level: Some(level), ..options.clone() };
        let built = weir_author::build(&folder, &options)
            .map_err(|error| LabError::Build { module: name, error: Box::new(error) })?;
        let bytes = std::fs::read(&built.path).map_err(LabError::file(&built.path))?;
        Ok((bytes, built.toolchain))
    }
}

/// Builds these sources at these levels. Modules that were built before from the same source, library, flags and
/// compiler come from the scratch folder.
pub fn build(shapes: &[Shape], levels: &[OptLevel]) -> Result<Corpus, LabError> {
    let options =
        BuildOptions { target_dir: Some(paths::scratch().join("corpus/target")), ..BuildOptions::default() };
    let recipe = recipe()?;
    let mut corpus = Corpus::default();
    let mut jobs: Vec<(&Shape, OptLevel, String)> = Vec::new();
    for lang in [ModuleLanguage::C, ModuleLanguage::Rust] {
        let of_lang: Vec<&Shape> = shapes.iter().filter(|shape| shape.lang == lang).collect();
        // The first source is always built, to find the compiler and its version.
        let (Some(probe), Some(level)) = (of_lang.first(), levels.first()) else { continue };
        let toolchain = match probe.build(*level, &options) {
            Ok((_, toolchain)) => toolchain,
            Err(LabError::Build { error, .. }) if is_missing(&error) => {
                corpus.skipped.push(format!("{lang:?}: {error}"));
                continue;
            }
            Err(error) => return Err(error),
        };
        for shape in of_lang {
            jobs.extend(levels.iter().map(|level| (shape, *level, toolchain.clone())));
        }
    }
    let made = Mutex::new(Vec::new());
    let next = [AtomicUsize::new(0), AtomicUsize::new(0)];
    std::thread::scope(|scope| {
        // Rust has one thread: cargo locks its target folder.
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        for (lang, threads) in [(ModuleLanguage::C, threads), (ModuleLanguage::Rust, 1)] {
            let jobs: Vec<_> = jobs.iter().filter(|(shape, ..)| shape.lang == lang).cloned().collect();
            for _ in 0..threads {
                let (jobs, made, next, recipe, options) = (
                    jobs.clone(),
                    &made,
                    &next[usize::from(lang == ModuleLanguage::Rust)],
                    &recipe,
                    &options,
                );
                scope.spawn(move || {
                    while let Some((shape, level, toolchain)) = jobs.get(next.fetch_add(1, Ordering::Relaxed))
                    {
                        let sample = cached(shape, *level, &format!("{recipe}{toolchain}"), options);
                        made.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(sample);
                    }
                });
            }
        }
    });
    let made = made.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    corpus.samples = made.into_iter().collect::<Result<_, _>>()?;
    corpus.samples.sort_by(|a, b| {
        (a.lang == ModuleLanguage::Rust, &a.shape, a.level).cmp(&(
            b.lang == ModuleLanguage::Rust,
            &b.shape,
            b.level,
        ))
    });
    Ok(corpus)
}

fn cached(
    shape: &Shape,
    level: OptLevel,
    recipe: &str,
    options: &BuildOptions,
) -> Result<CorpusModule, LabError> {
    let name = shape.module_name(level);
    let folder = paths::scratch().join("corpus/cache");
    let key = xxh3_128(format!("{recipe}\n{MANIFEST}{CARGO}\n{name}\n{}", shape.text).as_bytes());
    let kept = folder.join(format!("{key:032x}.wasm"));
    let wasm = match std::fs::read(&kept) {
        Ok(wasm) => wasm,
        Err(_) => {
            let (wasm, _) = shape.build(level, options)?;
            std::fs::create_dir_all(&folder).map_err(LabError::file(&folder))?;
            // Under a temporary name until it is complete: another test may read it meanwhile.
            let part = kept.with_extension(format!("{}.part", std::process::id()));
            std::fs::write(&part, &wasm)
                .and_then(|()| std::fs::rename(&part, &kept))
                .map_err(LabError::file(&kept))?;
            wasm
        }
    };
    let manifest = Manifest::parse(MANIFEST.replace("{{name}}", &name).as_bytes()).context(&name)?;
    let module =
        Module { name, source: PathBuf::new(), wasm, manifest, class: Class::Header, tables: Vec::new() };
    Ok(CorpusModule { shape: shape.name.clone(), lang: shape.lang, level, module })
}

fn is_missing(error: &BuildError) -> bool {
    matches!(error, BuildError::NoClang { .. } | BuildError::NoLinker | BuildError::NoRust { .. })
}

/// A digest of the inputs of every build but the compiler: the SDKs, and the code with the compiler flags.
fn recipe() -> Result<String, LabError> {
    let mut all = Vec::new();
    for folder in ["guest/sdk-c", "guest/sdk-rust", "guest/sdk-rust/src", "apps/author/src"] {
        for path in files(&paths::root().join(folder))? {
            all.extend(std::fs::read(&path).map_err(LabError::file(&path))?);
        }
    }
    Ok(format!("{:032x}", xxh3_128(&all)))
}

/// The files of a folder, by name.
fn files(folder: &Path) -> Result<Vec<PathBuf>, LabError> {
    let entries = std::fs::read_dir(folder).map_err(LabError::file(folder))?;
    let paths: Result<Vec<_>, _> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut paths = paths.map_err(LabError::file(folder))?;
    paths.retain(|path| path.is_file());
    paths.sort();
    Ok(paths)
}
