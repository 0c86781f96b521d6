//! Builds Rust modules with cargo.

use crate::BuildError;
use crate::build::{BuildOptions, LinkedModule};
use crate::folder::{GENERATED, ModuleFolder};
use crate::tools::{Tools, run, version_line};
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_units::Escape as _;

/// The targets for modules. The first installed one is used.
const TARGETS: [&str; 2] = ["wasm32-unknown-unknown", "wasm32v1-none"];

/// Linker arguments. The stack is below the data, so that a stack overflow traps instead of overwriting data.
const LINK: [&str; 2] = ["-zstack-size=32768", "--export=__stack_pointer"];

/// The name that replaces the path of the compiler's library sources in file names.
pub(crate) const LIBRARY: &str = "rust";

/// The minor version of the first Rust 1 release with `-Cdwarf-version`.
const DWARF_VERSION_MINOR: u32 = 88;

/// Variables that would change a build.
const VARIABLES: [&str; 5] =
    ["RUSTFLAGS", "CARGO_BUILD_RUSTFLAGS", "CARGO_BUILD_TARGET", "CARGO_TARGET_DIR", "RUSTC_WRAPPER"];

/// The variable by which cargo tells modules of one name apart, which share a target folder (guest/sdk-rust/src/lib.rs).
const FOLDER_VARIABLE: &str = "WEIR_MODULE_FOLDER";

/// A Rust compiler with a WebAssembly target.
struct Toolchain {
    rustc: PathBuf,
    cargo: PathBuf,
    version: String,
    /// The target of this machine.
    host: String,
    /// The major version of the compiler's LLVM.
    llvm: Option<u32>,
    target: &'static str,
    /// True if the core library for the target must be compiled from source.
    from_source: bool,
    sysroot: PathBuf,
    /// The linker, if the compiler includes none.
    linker: Option<PathBuf>,
}

/// Compiles and links a module.
pub(crate) fn compile(
    folder: &ModuleFolder,
    cargo_toml: &Path,
    options: &BuildOptions,
) -> Result<LinkedModule, BuildError> {
    let toolchain = Toolchain::find(&options.tools, &folder.dir)?;
    let target_dir = options.target_dir.clone().unwrap_or_else(|| folder.generated().join("target"));
    // Until the module's file is read, no other build of a module with this name may write it.
    let _lock = lock(&target_dir)?;
    let mut cargo = Command::new(&toolchain.cargo);
    cargo
        .args(["build", "--release", "--lib", "--target", toolchain.target])
        .arg("--manifest-path")
        .arg(cargo_toml)
        .arg("--target-dir")
        .arg(&target_dir)
        .arg(if options.color {
            "--message-format=json-diagnostic-rendered-ansi,json-render-diagnostics"
        } else {
            "--message-format=json-render-diagnostics"
        })
        .env("CARGO_ENCODED_RUSTFLAGS", toolchain.flags())
        .env("RUSTC", &toolchain.rustc)
        .env(FOLDER_VARIABLE, canonical(&folder.dir)?)
        // Line tables are for `weir check`.
        .env("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only")
        .env("CARGO_PROFILE_RELEASE_STRIP", "none");
    if options.color {
        cargo.env("CARGO_TERM_COLOR", "always");
    }
    if let Some(level) = options.level {
        // This variable overrides the profile in the package's Cargo.toml.
        cargo.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", level.name());
    }
    for variable in VARIABLES {
        cargo.env_remove(variable);
    }
    if toolchain.from_source {
        // `-Zbuild-std` is unstable; RUSTC_BOOTSTRAP lets a release compiler accept it.
        cargo.env("RUSTC_BOOTSTRAP", "1").arg("-Zbuild-std=core,alloc,panic_abort");
    }
    let output = run(&mut cargo)?;
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(BuildError::Compiler {
            tool: "cargo".to_owned(),
            dir: folder.dir.clone(),
            output: messages,
        });
    }
    let path = artifact(&output.stdout, cargo_toml, "wasm")
        .ok_or_else(|| BuildError::NoCdylib(cargo_toml.to_owned()))?;
    let bytes = std::fs::read(&path).map_err(BuildError::file(&path))?;
    Ok(LinkedModule { bytes, messages: warnings(&messages), toolchain: toolchain.describe()? })
}

/// Locks a target folder until the result is dropped.
fn lock(target_dir: &Path) -> Result<File, BuildError> {
    let path = target_dir.join("weir.lock");
    std::fs::create_dir_all(target_dir).map_err(BuildError::file(target_dir))?;
    let file = File::create(&path).map_err(BuildError::file(&path))?;
    file.lock().map_err(BuildError::file(&path))?;
    Ok(file)
}

/// Returns the absolute path of a module's folder.
fn canonical(dir: &Path) -> Result<PathBuf, BuildError> {
    dir.canonicalize().map_err(BuildError::file(dir))
}

/// A library of a module for this machine.
pub(crate) struct NativeLibrary {
    pub(crate) path: PathBuf,
    /// The compiler's version.
    pub(crate) version: String,
    /// The parts for counting lines; or the reason why the library does not count them.
    pub(crate) coverage: Result<RustCoverage, String>,
    /// The compiler's warnings.
    pub(crate) messages: String,
}

/// The parts of the compiler's installation that coverage needs.
pub(crate) struct RustCoverage {
    /// llvm-profdata and llvm-cov of the compiler's LLVM.
    pub(crate) programs: [PathBuf; 2],
    /// The library that writes the profile at the program's end. A static library does not contain it.
    pub(crate) profiler: PathBuf,
}

/// Compiles a module for this machine, with the checks that a stable compiler has: overflow, debug assertions, and coverage. Returns
/// the reason if the compiler has no library for this machine.
pub(crate) fn compile_native(
    dir: &Path,
    cargo_toml: &Path,
    options: &BuildOptions,
) -> Result<Result<NativeLibrary, String>, BuildError> {
    let toolchain = Toolchain::find(&options.tools, dir)?;
    if !has_core(&toolchain.sysroot, &toolchain.host) {
        return Ok(Err(format!("{} has no library for {}", toolchain.rustc.escaped(), toolchain.host)));
    }
    let coverage = toolchain.coverage(&options.tools);
    let mut flags = vec!["--cfg=weir_native"];
    if coverage.is_ok() {
        flags.push("-Cinstrument-coverage");
    }
    let target_dir = options.target_dir.clone().unwrap_or_else(|| dir.join(GENERATED).join("target"));
    let mut cargo = Command::new(&toolchain.cargo);
    cargo
        .args(["rustc", "--release", "--lib", "--crate-type", "staticlib", "--target", &toolchain.host])
        .arg("--manifest-path")
        .arg(cargo_toml.canonicalize().map_err(BuildError::file(cargo_toml))?)
        .arg("--target-dir")
        .arg(target_dir.join("native"))
        .arg("--message-format=json-render-diagnostics")
        // Reports name the files as the author does.
        .current_dir(dir)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .env("RUSTC", &toolchain.rustc)
        .env(FOLDER_VARIABLE, canonical(dir)?);
    for (key, value) in [
        ("DEBUG", "line-tables-only"),
        ("STRIP", "none"),
        ("OPT_LEVEL", "1"),
        ("LTO", "off"),
        ("PANIC", "abort"),
        ("OVERFLOW_CHECKS", "true"),
        ("DEBUG_ASSERTIONS", "true"),
    ] {
        cargo.env(format!("CARGO_PROFILE_RELEASE_{key}"), value);
    }
    for variable in VARIABLES {
        cargo.env_remove(variable);
    }
    let output = run(&mut cargo)?;
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(BuildError::Compiler { tool: "cargo".to_owned(), dir: dir.to_owned(), output: messages });
    }
    let path = artifact(&output.stdout, cargo_toml, "a")
        .ok_or_else(|| BuildError::NoCdylib(cargo_toml.to_owned()))?;
    Ok(Ok(NativeLibrary { path, version: toolchain.version, coverage, messages: warnings(&messages) }))
}

/// Finds the file of this package with an extension in cargo's messages.
fn artifact(stdout: &[u8], cargo_toml: &Path, extension: &str) -> Option<PathBuf> {
    let own_manifest = cargo_toml.canonicalize().ok()?;
    String::from_utf8_lossy(stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["reason"] == "compiler-artifact")
        .filter(|message| {
            message["manifest_path"].as_str().and_then(|path| Path::new(path).canonicalize().ok()).as_deref()
                == Some(&own_manifest)
        })
        .flat_map(|message| message["filenames"].as_array().cloned().unwrap_or_default())
        .filter_map(|path| path.as_str().map(PathBuf::from))
        .find(|path| path.extension().is_some_and(|found| found == extension))
}

/// Removes cargo's progress lines from its messages.
fn warnings(messages: &str) -> String {
    let progress =
        ["Compiling ", "Finished ", "Blocking ", "Updating ", "Locking ", "Downloading ", "Downloaded "];
    messages
        .lines()
        .filter(|line| {
            !(line.starts_with(' ') && progress.iter().any(|word| line.trim_start().starts_with(word)))
        })
        .flat_map(|line| [line, "\n"])
        .collect()
}

impl Toolchain {
    /// Finds the first compiler whose core library for WebAssembly is installed, or else the first compiler with the source of
    /// the core library.
    fn find(tools: &Tools, dir: &Path) -> Result<Self, BuildError> {
        let compilers = match &tools.rustc {
            Some(named) => tools.find(named).into_iter().collect(),
            None => tools.find_all("rustc".as_ref()),
        };
        let mut tried = Vec::new();
        let mut with_source = None;
        for rustc in compilers {
            let query = |arguments: &[&str]| {
                // The compiler runs in the module's folder, where a rust-toolchain.toml may select its version.
                let output = Command::new(&rustc).args(arguments).current_dir(dir).output().ok()?;
                output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
            };
            let (Some(sysroot), Some(verbose_version)) = (query(&["--print", "sysroot"]), query(&["-vV"]))
            else {
                tried.push(format!("{} cannot be run", rustc.escaped()));
                continue;
            };
            let sysroot = PathBuf::from(sysroot);
            let installed = TARGETS.into_iter().find(|target| has_core(&sysroot, target));
            let has_source = sysroot.join("lib/rustlib/src/rust/library/core/src/lib.rs").is_file();
            if installed.is_none() && !has_source {
                let version = verbose_version.lines().next().unwrap_or_default();
                tried.push(format!("{} ({version}) has no library for WebAssembly", rustc.escaped()));
                continue;
            }
            let Some(cargo) = rustc.parent().map(|folder| folder.join("cargo")).filter(|path| path.is_file())
            else {
                tried.push(format!("there is no cargo beside {}", rustc.escaped()));
                continue;
            };
            let host =
                verbose_version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
            let has_linker = sysroot.join("lib/rustlib").join(host).join("bin/rust-lld").is_file();
            let linker = if has_linker { None } else { Some(tools.wasm_ld(None)?) };
            let toolchain = Self {
                version: verbose_version.lines().next().unwrap_or_default().to_owned(),
                host: host.to_owned(),
                llvm: verbose_version
                    .lines()
                    .find_map(|line| line.strip_prefix("LLVM version: ")?.split('.').next()?.parse().ok()),
                target: installed.unwrap_or(TARGETS[0]),
                from_source: installed.is_none(),
                rustc,
                cargo,
                sysroot,
                linker,
            };
            if !toolchain.from_source {
                return Ok(toolchain);
            }
            with_source = with_source.or(Some(toolchain));
        }
        if tried.is_empty() {
            tried.push(match &tools.rustc {
                Some(named) => format!("there is no {}", named.escaped()),
                None => "rustc was not found".to_owned(),
            });
        }
        with_source.ok_or(BuildError::NoRust { tried: tried.join(", ") })
    }

    /// Finds llvm-profdata and llvm-cov of the version of the compiler's LLVM: others cannot read its profiles. Returns what to
    /// install if they are missing.
    fn coverage(&self, tools: &Tools) -> Result<RustCoverage, String> {
        let installation = self.sysroot.join("lib/rustlib").join(&self.host);
        let entries = std::fs::read_dir(installation.join("lib")).into_iter().flatten().flatten();
        let is_profiler = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("libprofiler_builtins-") && name.ends_with(".rlib")
        };
        let Some(profiler) = entries.map(|entry| entry.path()).find(is_profiler) else {
            return Err(format!("{} has no library for profiles", self.rustc.escaped()));
        };
        let component = installation.join("bin");
        let llvm = self.llvm.unwrap_or(0);
        let find = |name: &str| {
            Some(component.join(name))
                .filter(|path| path.is_file())
                .or_else(|| tools.find(format!("{name}-{llvm}").as_ref()))
        };
        match ["llvm-profdata", "llvm-cov"].map(find) {
            [Some(profdata), Some(cov)] => Ok(RustCoverage { programs: [profdata, cov], profiler }),
            _ => Err(format!(
                "llvm-profdata and llvm-cov of LLVM {llvm} are missing; run `rustup component add llvm-tools`, or install llvm-{llvm}"
            )),
        }
    }

    /// Returns the value of CARGO_ENCODED_RUSTFLAGS: flags separated by 0x1f, so that paths may contain spaces.
    fn flags(&self) -> OsString {
        let mut flags: Vec<OsString> = vec!["-Ctarget-feature=+simd128,+bulk-memory".into()];
        flags.extend(LINK.iter().map(|argument| format!("-Clink-arg={argument}").into()));
        if let Some(linker) = &self.linker {
            let mut flag = OsString::from("-Clinker=");
            flag.push(linker);
            flags.push(flag);
        }
        // Panic locations in the library's source must not contain paths of this machine.
        let source = self.sysroot.join("lib/rustlib/src/rust");
        for folder in [source.canonicalize().ok(), Some(source)].into_iter().flatten() {
            let mut flag = OsString::from("--remap-path-prefix=");
            flag.push(folder);
            flag.push("=");
            flag.push(LIBRARY);
            flags.push(flag);
        }
        // In DWARF 4 tables, library files would appear without their folders, as if they were the module's files.
        if self.minor_version().is_some_and(|minor| minor >= DWARF_VERSION_MINOR) {
            flags.push("-Cdwarf-version=5".into());
        }
        flags.join("\u{1f}".as_ref())
    }

    /// Returns the minor version: 88 for "rustc 1.88.0 (6b00bc388 2025-06-23)".
    fn minor_version(&self) -> Option<u32> {
        self.version.strip_prefix("rustc 1.")?.split('.').next()?.parse().ok()
    }

    /// Describes the compiler, target, library and linker with their versions, in one line.
    fn describe(&self) -> Result<String, BuildError> {
        let library = if self.from_source { "library from source" } else { "library installed" };
        Ok(match &self.linker {
            Some(linker) => {
                format!("{}, {}, {library}; {}", self.version, self.target, version_line(linker)?)
            }
            None => format!("{}, {}, {library}; rust-lld", self.version, self.target),
        })
    }
}

/// Returns true if the core library for a target is installed.
fn has_core(sysroot: &Path, target: &str) -> bool {
    let Ok(entries) = std::fs::read_dir(sysroot.join("lib/rustlib").join(target).join("lib")) else {
        return false;
    };
    entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("libcore-"))
}
