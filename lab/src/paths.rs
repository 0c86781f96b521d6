//! Paths of the repository, of built programs, and of captures.

use crate::error::LabError;
use std::path::{Path, PathBuf};

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The folder for builds and captures of the benchmark, ignored by git.
pub fn scratch() -> PathBuf {
    target().join("lab")
}

/// The path of the program `weir`, built for release.
pub fn weir() -> PathBuf {
    target().join("release/weir")
}

/// The path of the program `weir` without a compiler, which `make no-compiler` builds.
pub fn without_compiler() -> PathBuf {
    target().join("weir-no-compiler")
}

/// The path of the program `weir`, or an error if it has not been built.
pub fn built_weir() -> Result<PathBuf, LabError> {
    let program = weir();
    if program.is_file() {
        return Ok(program);
    }
    Err(LabError::failed(program.display(), "build it first: cargo build --release -p weir"))
}

/// Cargo's target folder.
fn target() -> PathBuf {
    let configured = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    configured.unwrap_or_else(|| root().join("target"))
}

/// A trace that is larger than the sample, if a collection of traces lies beside the repository.
pub fn shared_trace() -> Option<PathBuf> {
    Some(root().join("../shared/traces/mixed/composite-mixed-a.pcap")).filter(|path| path.is_file())
}

/// The sample capture of the repository.
pub fn sample() -> PathBuf {
    root().join("lab/sample/sample.pcap")
}

/// A path as text: relative to the repository for paths inside it, otherwise only the file name.
pub fn display(path: &Path) -> String {
    let absolute = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    match absolute(path).strip_prefix(absolute(&root())) {
        Ok(inside) => inside.display().to_string(),
        Err(_) => {
            path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned())
        }
    }
}
