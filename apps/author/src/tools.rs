//! Finds compilers and linkers in the search path, and runs them.

use crate::BuildError;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use weir_units::Escape as _;

/// The settings that choose compilers and linkers.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    /// Folders to search, separated as in the variable PATH.
    pub path: OsString,
    /// The C compiler to use: a path, or a name to search for in `path`. `None` searches for clang.
    pub clang: Option<OsString>,
    /// The Rust compiler to use: a path, or a name to search for in `path`. `None` searches for rustc.
    pub rustc: Option<OsString>,
}

/// A C compiler with a WebAssembly target, and the first line of its `--version`.
pub(crate) struct Clang {
    pub(crate) program: PathBuf,
    pub(crate) version: String,
}

impl Tools {
    /// Reads the settings from the environment variables PATH, WEIR_CC and WEIR_RUSTC.
    pub fn from_environment() -> Self {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Self { path: set("PATH").unwrap_or_default(), clang: set("WEIR_CC"), rustc: set("WEIR_RUSTC") }
    }

    /// Finds the C compiler that the settings name. Without a name, finds the first compiler with a WebAssembly target,
    /// in this order: clang-19 (it builds the shipped modules); clang; clang-N, newest first.
    pub(crate) fn clang(&self) -> Result<Clang, BuildError> {
        let candidates = match &self.clang {
            Some(named) => self.find(named).into_iter().collect(),
            None => self.candidates("clang", 19),
        };
        let mut tried = Vec::new();
        for program in candidates {
            let targets = Command::new(&program).arg("--print-targets").output();
            if targets.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("wasm32")) {
                let version = version_line(&program)?;
                return Ok(Clang { program, version });
            }
            tried.push(format!("{} has no WebAssembly target", program.escaped()));
        }
        if tried.is_empty() {
            tried.push(match &self.clang {
                Some(named) => format!("there is no {}", named.escaped()),
                None => "clang was not found".to_owned(),
            });
        }
        Err(BuildError::NoClang { tried: tried.join(", ") })
    }

    /// Finds the first linker that exists, in this order: wasm-ld-19 (it links the shipped modules); wasm-ld;
    /// wasm-ld-N, newest first; wasm-ld in the folder of the compiler `clang`.
    pub(crate) fn wasm_ld(&self, clang: Option<&Path>) -> Result<PathBuf, BuildError> {
        let beside =
            || Some(clang?.canonicalize().ok()?.parent()?.join("wasm-ld")).filter(|path| path.is_file());
        self.candidates("wasm-ld", 19).into_iter().next().or_else(beside).ok_or(BuildError::NoLinker)
    }

    /// Returns those of the programs `name-PREFERRED`, `name`, and `name-N`, newest first, that exist in the search path.
    fn candidates(&self, name: &str, preferred: u32) -> Vec<PathBuf> {
        let mut numbered: Vec<u32> = self
            .folders()
            .filter_map(|folder| std::fs::read_dir(folder).ok())
            .flatten()
            .filter_map(|entry| {
                entry.ok()?.file_name().to_str()?.strip_prefix(name)?.strip_prefix('-')?.parse().ok()
            })
            .filter(|version| *version != preferred)
            .collect();
        numbered.sort_unstable();
        numbered.dedup();
        let numbered = numbered.into_iter().rev().map(|version| format!("{name}-{version}"));
        [format!("{name}-{preferred}"), name.to_owned()]
            .into_iter()
            .chain(numbered)
            .filter_map(|name| self.find(name.as_ref()))
            .collect()
    }

    /// Finds the first program with this name in the search path. A name with several components is a path.
    pub(crate) fn find(&self, name: &OsStr) -> Option<PathBuf> {
        if Path::new(name).components().count() > 1 {
            return Some(PathBuf::from(name)).filter(|path| path.is_file());
        }
        self.find_all(name).into_iter().next()
    }

    /// Finds all programs with this name in the search path, each once.
    pub(crate) fn find_all(&self, name: &OsStr) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = Vec::new();
        for folder in self.folders() {
            // Symbolic links in the folder's path are resolved. A link to the program is not, because the behaviour of a program
            // can depend on the name by which it is called.
            let Ok(folder) = folder.canonicalize() else { continue };
            let program = folder.join(name);
            if program.is_file() && !found.contains(&program) {
                found.push(program);
            }
        }
        found
    }

    fn folders(&self) -> impl Iterator<Item = PathBuf> {
        std::env::split_paths(&self.path).filter(|folder| !folder.as_os_str().is_empty())
    }
}

/// Runs a command and waits for its end.
pub(crate) fn run(command: &mut Command) -> Result<Output, BuildError> {
    let program = PathBuf::from(command.get_program());
    command.output().map_err(|source| BuildError::Run { program, source })
}

/// Returns the first line of a program's `--version`.
pub(crate) fn version_line(program: &Path) -> Result<String, BuildError> {
    let output = run(Command::new(program).arg("--version"))?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().trim().to_owned())
}
