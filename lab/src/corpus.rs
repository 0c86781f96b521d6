//! The corpus of lab/corpus: small modules with the loops of common packet code, which were not written for the analyser.
//! They are built as by `weir build`, but at every optimisation level, because each level compiles a source to different
//! loops. [`crate::shares`] and [`crate::ratios`] measure their bounds.

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
pub struct CorpusSource {
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
    pub source: String,
    /// The language.
    pub lang: ModuleLanguage,
    /// The optimisation level.
    pub level: OptLevel,
    /// The module.
    pub module: Module,
}

impl fmt::Display for CorpusModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -O{}", self.source, self.level.name())
    }
}

/// The built modules of the corpus, and the languages that could not be built.
#[derive(Debug, Default)]
pub struct Corpus {
    /// The modules, by language, name and level.
    pub modules: Vec<CorpusModule>,
    /// Languages that were not built, each with the missing tool.
    pub skipped: Vec<String>,
}

/// The manifest of every module of the corpus.
const MANIFEST: &str = include_str!("../corpus/weir.toml");

/// The `Cargo.toml` of every Rust module of the corpus.
const CARGO: &str = "[package]\nname = \"{{name}}\"\nversion = \"0.1.0\"\nedition = \"2021\"\npublish = false\n\n\
    [lib]\ncrate-type = [\"cdylib\"]\n\n[dependencies]\nweir-guest = { path = \".weir/weir-guest\" }\n\n\
    [profile.release]\nopt-level = 3\nlto = \"fat\"\ncodegen-units = 1\npanic = \"abort\"\n\n[workspace]\n";

impl CorpusSource {
    /// All sources: those in C, then those in Rust, each sorted by name.
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

    /// The name of the module that the source becomes at a level.
    fn module_name(&self, level: OptLevel) -> String {
        format!("{}-o{}", self.name.replace('_', "-"), level.name())
    }

    /// Builds the source at a level, without the cache. Returns the module and the compiler's version.
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

/// Builds sources at optimisation levels. A module that was built before from the same source, library, flags and
/// compiler comes from the scratch folder.
pub fn build(sources: &[CorpusSource], levels: &[OptLevel]) -> Result<Corpus, LabError> {
    let options =
        BuildOptions { target_dir: Some(paths::scratch().join("corpus/target")), ..BuildOptions::default() };
    let recipe = recipe()?;
    let mut corpus = Corpus::default();
    let mut jobs: Vec<(&CorpusSource, OptLevel, String)> = Vec::new();
    for lang in [ModuleLanguage::C, ModuleLanguage::Rust] {
        let of_lang: Vec<&CorpusSource> = sources.iter().filter(|source| source.lang == lang).collect();
        // The first source is always built, to find the compiler and its version.
        let (Some(probe), Some(level)) = (of_lang.first(), levels.first()) else { continue };
        let toolchain = match probe.build(*level, &options) {
            Ok((_, toolchain)) => toolchain,
            Err(LabError::Build { error, .. }) if is_missing_tool(&error) => {
                corpus.skipped.push(format!("{lang:?}: {error}"));
                continue;
            }
            Err(error) => return Err(error),
        };
        for source in of_lang {
            jobs.extend(levels.iter().map(|level| (source, *level, toolchain.clone())));
        }
    }
    let built = Mutex::new(Vec::new());
    let next = [AtomicUsize::new(0), AtomicUsize::new(0)];
    std::thread::scope(|scope| {
        // Rust has one thread: cargo locks its target folder.
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        for (lang, threads) in [(ModuleLanguage::C, threads), (ModuleLanguage::Rust, 1)] {
            let jobs: Vec<_> = jobs.iter().filter(|(source, ..)| source.lang == lang).cloned().collect();
            for _ in 0..threads {
                let (jobs, built, next, recipe, options) = (
                    jobs.clone(),
                    &built,
                    &next[usize::from(lang == ModuleLanguage::Rust)],
                    &recipe,
                    &options,
                );
                scope.spawn(move || {
                    while let Some((source, level, toolchain)) =
                        jobs.get(next.fetch_add(1, Ordering::Relaxed))
                    {
                        let module = build_cached(source, *level, &format!("{recipe}{toolchain}"), options);
                        built.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(module);
                    }
                });
            }
        }
    });
    let built = built.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    corpus.modules = built.into_iter().collect::<Result<_, _>>()?;
    corpus.modules.sort_by(|a, b| {
        (a.lang == ModuleLanguage::Rust, &a.source, a.level).cmp(&(
            b.lang == ModuleLanguage::Rust,
            &b.source,
            b.level,
        ))
    });
    Ok(corpus)
}

/// The module of a source at a level, from the scratch folder if it was built before from the same `inputs`:
/// the recipe and the toolchain.
fn build_cached(
    source: &CorpusSource,
    level: OptLevel,
    inputs: &str,
    options: &BuildOptions,
) -> Result<CorpusModule, LabError> {
    let name = source.module_name(level);
    let folder = paths::scratch().join("corpus/cache");
    let key = xxh3_128(format!("{inputs}\n{MANIFEST}{CARGO}\n{name}\n{}", source.text).as_bytes());
    let path = folder.join(format!("{key:032x}.wasm"));
    let wasm = match std::fs::read(&path) {
        Ok(wasm) => wasm,
        Err(_) => {
            let (wasm, _) = source.build(level, options)?;
            std::fs::create_dir_all(&folder).map_err(LabError::file(&folder))?;
            // The file has a temporary name until it is complete, because another process may read it.
            let part = path.with_extension(format!("{}.part", std::process::id()));
            std::fs::write(&part, &wasm)
                .and_then(|()| std::fs::rename(&part, &path))
                .map_err(LabError::file(&path))?;
            wasm
        }
    };
    let manifest = Manifest::parse(MANIFEST.replace("{{name}}", &name).as_bytes()).context(&name)?;
    // The class matters only for prices, which are not measured for the corpus.
    let module =
        Module { name, source: PathBuf::new(), wasm, manifest, class: Class::Header, tables: Vec::new() };
    Ok(CorpusModule { source: source.name.clone(), lang: source.lang, level, module })
}

/// Returns true if a build failed because a compiler or linker is not installed.
fn is_missing_tool(error: &BuildError) -> bool {
    matches!(error, BuildError::NoClang { .. } | BuildError::NoLinker | BuildError::NoRust { .. })
}

/// A digest of the inputs that all builds share, without the compiler: the SDKs, and the code with the compiler flags.
fn recipe() -> Result<String, LabError> {
    let mut all = Vec::new();
    for folder in ["guest/sdk-c", "guest/sdk-rust", "guest/sdk-rust/src", "apps/author/src"] {
        for path in files(&paths::root().join(folder))? {
            all.extend(std::fs::read(&path).map_err(LabError::file(&path))?);
        }
    }
    Ok(format!("{:032x}", xxh3_128(&all)))
}

/// The files of a folder, sorted by name.
fn files(folder: &Path) -> Result<Vec<PathBuf>, LabError> {
    let entries = std::fs::read_dir(folder).map_err(LabError::file(folder))?;
    let paths: Result<Vec<_>, _> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut paths = paths.map_err(LabError::file(folder))?;
    paths.retain(|path| path.is_file());
    paths.sort();
    Ok(paths)
}
