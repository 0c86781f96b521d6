//! Compiles LLVM IR to machine code with clang, which is not part of weir.
//!
//! clang runs in a child process with limits of time and memory. The child is this same program with the argument
//! `compile-llvm`, or `version-llvm` for clang's version. It gives up all rights but reading and executing clang's own
//! files, and then executes clang. An attacker who takes over clang can only compute until the time is over, and answer
//! with other code. That code is verified.

use crate::load::cache::KeyHasher;
use crate::load::compile::{CompileError, CompileLimits, ask};
use std::convert::Infallible;
use std::fs;
use std::hash::Hasher;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use weir_lower::CLANG_ARGUMENTS;
use weir_os::child;
use weir_os::{Launcher, ProcessorBudget};
use weir_units::Escape as _;

/// The places of the compiler. The first one that exists is used.
const PLACES: [&str; 3] = ["/usr/lib/llvm-19/bin/clang", "/usr/local/bin/clang-19", "/usr/bin/clang-19"];
/// The places of the libraries of programs, and the dynamic linker's index of libraries.
const LIBRARIES: [&str; 6] =
    ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache"];
/// The beginnings of the names of LLVM's libraries that clang loads.
const LLVM_LIBRARIES: [&str; 2] = ["libLLVM", "libclang-cpp"];
/// The program's argument by which a child becomes clang.
const ARGUMENT: &str = "compile-llvm";
/// The program's argument by which a child becomes clang, which writes its version.
const VERSION_ARGUMENT: &str = "version-llvm";
/// clang's arguments with which it writes its version, such as `Debian LLVM version 19.1.7`.
pub(crate) const VERSION_ARGUMENTS: &[&str] = &["-cc1", "-version"];
/// The version of LLVM whose code the lowering is made for. Other versions may change the meaning of the IR's text.
const VERSION: &str = "19";

/// clang 19 on this machine.
#[derive(Clone, Debug)]
pub(crate) struct LlvmCompiler {
    path: PathBuf,
    /// The size and the time of the last change, which another version does not share.
    identity: [i64; 2],
    /// The version's major number, once it is known.
    version: OnceLock<String>,
}

impl LlvmCompiler {
    /// Finds the compiler of this machine.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn find() -> Result<Self, String> {
        PLACES.iter().find_map(|place| Self::at(Path::new(place)).ok()).ok_or_else(|| {
            format!(
                "clang 19 is not installed (looked for {}); Debian has it in the package clang-19",
                PLACES.join(", ")
            )
        })
    }

    /// Returns the compiler at this path.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        let path = fs::canonicalize(path)?;
        let meta = fs::metadata(&path)?;
        Ok(Self { path, identity: [meta.size().cast_signed(), meta.mtime()], version: OnceLock::new() })
    }

    /// Returns the files of the compiler: the program, and the libraries beside it that it loads.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let folder = self.path.parent().and_then(Path::parent).map(|own| own.join("lib"));
        let entries = folder.and_then(|folder| fs::read_dir(folder).ok());
        let is_library = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            LLVM_LIBRARIES.iter().any(|library| name.starts_with(library)) && name.contains(".so")
        };
        let libraries = entries.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
        let libraries = libraries.filter(is_library).filter_map(|path| fs::canonicalize(path).ok());
        let mut libraries: Vec<PathBuf> = libraries.collect();
        libraries.sort();
        libraries.dedup();
        std::iter::once(self.path.clone()).chain(libraries).collect()
    }

    /// Returns the cache key of the object that the compiler makes of a text.
    pub(crate) fn cache_key(&self, ir: &str) -> [u8; 32] {
        let mut hasher = KeyHasher::default();
        hasher.write(b"object of LLVM");
        hasher.write(env!("CARGO_PKG_VERSION").as_bytes());
        for word in self.identity {
            hasher.write_i64(word);
        }
        for argument in CLANG_ARGUMENTS {
            hasher.write(argument.as_bytes());
            hasher.write_u8(0);
        }
        hasher.write(ir.as_bytes());
        hasher.key()
    }

    /// Compiles the text of an LLVM module to an object file, in a child process with limits. The child is confined, if
    /// `is_confined`; the program must answer the argument `compile-llvm` with [`crate::compile_llvm_child`] then. Charges the
    /// budget for the child's processor time, also on failure.
    ///
    /// # Errors
    /// [`CompileError`].
    pub(crate) fn compile(
        &self,
        ir: &str,
        is_confined: bool,
        limits: CompileLimits,
        budget: &mut dyn ProcessorBudget,
    ) -> Result<Vec<u8>, CompileError> {
        let version = self.version(is_confined, limits, budget)?;
        if version != VERSION {
            let path = self.path.escaped();
            return Err(CompileError::Module(format!(
                "{path} is clang {version}; weir uses clang {VERSION}"
            )));
        }
        let reply = match is_confined {
            true => ask(&Launcher::of_process(), &[ARGUMENT], ir.as_bytes(), limits, budget),
            false => ask(&self.launcher(), CLANG_ARGUMENTS, ir.as_bytes(), limits, budget),
        }?;
        if reply.has_succeeded {
            Ok(reply.bytes)
        } else {
            Err(CompileError::Module(format!(
                "clang has refused the text of the module: {}",
                first_line(&reply.stderr)
            )))
        }
    }

    /// Returns the version's major number as clang states it. clang is asked once.
    fn version(
        &self,
        is_confined: bool,
        limits: CompileLimits,
        budget: &mut dyn ProcessorBudget,
    ) -> Result<&str, CompileError> {
        if let Some(version) = self.version.get() {
            return Ok(version);
        }
        let reply = match is_confined {
            true => ask(&Launcher::of_process(), &[VERSION_ARGUMENT], &[], limits, budget),
            false => ask(&self.launcher(), VERSION_ARGUMENTS, &[], limits, budget),
        }?;
        let version = stated_version(&String::from_utf8_lossy(&reply.bytes)).ok_or_else(|| {
            let path = self.path.escaped();
            CompileError::Module(format!("{path} does not state a version: {}", first_line(&reply.stderr)))
        })?;
        Ok(self.version.get_or_init(|| version))
    }

    /// Returns the launcher of clang without confinement.
    fn launcher(&self) -> Launcher {
        Launcher::from(self.path.as_path())
    }
}

/// Returns the major number of the version in clang's answer, such as `Debian LLVM version 19.1.7`.
fn stated_version(answer: &str) -> Option<String> {
    let (_, version) = answer.split_once("version ")?;
    let major: String = version.chars().take_while(char::is_ascii_digit).take(6).collect();
    (!major.is_empty()).then_some(major)
}

/// Returns the first line of a message whose line ends are escaped.
fn first_line(message: &str) -> &str {
    message.split("\\n").next().unwrap_or_default()
}

/// Confines the calling process, and replaces it by clang with these arguments. clang reads standard input and writes to
/// standard output.
///
/// # Errors
/// There is no clang, or it cannot be executed. A process that cannot be confined exits.
pub(crate) fn run_child(arguments: &[&str]) -> Result<Infallible, CompileError> {
    let clang = LlvmCompiler::find().map_err(CompileError::Module)?;
    let own = clang.path.parent().and_then(Path::parent);
    let readable: Vec<&Path> = LIBRARIES.iter().map(Path::new).chain(own).collect();
    child::confine_or_exit(|| weir_os::confine_external_compiler(&readable));
    let error = Command::new(&clang.path).args(arguments).env_clear().exec();
    Err(CompileError::Process(error))
}
