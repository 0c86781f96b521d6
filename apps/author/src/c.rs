//! Modules in C, through clang and wasm-ld.

use crate::BuildError;
use crate::build::{BuildOptions, Level, Linked};
use crate::folder::ModuleFolder;
use crate::tools::{run, version_line};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What decides about the code. The features are named one by one, so that newer compilers do not add any.
///
/// Measured on the shipped modules: jump tables and vectors made of straight-line code cost more in the sandbox than they bring.
/// Without contraction, floating point gives the same results as a native build does.
const COMPILE: &[&str] = &[
    "--target=wasm32",
    "-std=c11",
    "-mcpu=mvp",
    "-mmutable-globals",
    "-msign-ext",
    "-mnontrapping-fptoint",
    "-mbulk-memory",
    "-msimd128",
    "-fno-jump-tables",
    "-fno-slp-vectorize",
    "-ffp-contract=off",
    // So that `weir check` can name lines. The code is the same with and without.
    "-gline-tables-only",
    "-ffile-compilation-dir=.",
    "-ffreestanding",
    "-nostdlib",
    "-Wall",
    "-Wextra",
    // Half of the stack.
    "-Wframe-larger-than=8192",
];

/// The stack lies below the data, so that one that overflows traps instead of overwriting the module's state. 16 KiB leave the rest of the
/// first page to the data.
const LINK: &[&str] = &["--no-entry", "--export=__stack_pointer", "-z", "stack-size=16384", "--stack-first"];

/// Compiles and links.
pub(crate) fn compile(
    folder: &ModuleFolder,
    sources: &[PathBuf],
    options: &BuildOptions,
) -> Result<Linked, BuildError> {
    let clang = options.tools.clang()?;
    let linker = options.tools.wasm_ld(Some(&clang.program))?;
    let generated = folder.generated();
    let scratch = tempfile::Builder::new()
        .prefix("build-")
        .tempdir_in(&generated)
        .map_err(BuildError::file(&generated))?;
    let mut prefix_map = std::ffi::OsString::from("-ffile-prefix-map=");
    // Without a slash at its end, which would be taken out of the middle of paths.
    prefix_map.push(folder.dir.components().as_path());
    prefix_map.push("=.");

    let level = format!("-O{}", options.level.unwrap_or(Level::Three).name());
    let mut messages = String::new();
    let mut link = Command::new(&linker);
    link.args(LINK);
    for source in sources {
        let object = scratch.path().join(source.file_stem().unwrap_or_default()).with_extension("o");
        let mut compile = Command::new(&clang.program);
        compile.args(COMPILE).arg(&level).arg(&prefix_map).arg("-I").arg(&generated);
        if options.color {
            compile.arg("-fdiagnostics-color=always");
        }
        let output = run(compile.arg("-c").arg(source).arg("-o").arg(&object))?;
        messages.push_str(&String::from_utf8_lossy(&output.stderr));
        if !output.status.success() {
            return Err(BuildError::Compiler {
                tool: "clang".to_owned(),
                dir: folder.dir.clone(),
                output: messages,
            });
        }
        link.arg(object);
    }
    let wasm = scratch.path().join("linked.wasm");
    let output = run(link.arg("-o").arg(&wasm))?;
    let said = said_by_linker(&output, scratch.path());
    if !output.status.success() {
        return Err(link_error(&folder.dir, said));
    }
    messages.push_str(&said);
    let bytes = std::fs::read(&wasm).map_err(BuildError::file(&wasm))?;
    Ok(Linked { bytes, messages, toolchain: format!("{}; {}", clang.version, version_line(&linker)?) })
}

/// Without the temporary folder, which says nothing to anybody.
fn said_by_linker(output: &Output, scratch: &Path) -> String {
    String::from_utf8_lossy(&output.stderr).replace(&format!("{}/", scratch.to_string_lossy()), "")
}

fn link_error(dir: &Path, output: String) -> BuildError {
    let mut names: Vec<String> = output
        .lines()
        .filter_map(|line| line.split_once("undefined symbol: "))
        .map(|(_, name)| name.trim().to_owned())
        .collect();
    names.sort();
    names.dedup();
    if names.is_empty() {
        BuildError::Compiler { tool: "wasm-ld".to_owned(), dir: dir.to_owned(), output }
    } else {
        BuildError::Undefined { dir: dir.to_owned(), names, output }
    }
}
