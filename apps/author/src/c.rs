//! Builds C modules with clang and wasm-ld.

use crate::BuildError;
use crate::build::{BuildOptions, LinkedModule, OptLevel};
use crate::folder::ModuleFolder;
use crate::tools::{run, version_line};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use weir_abi::export;

/// Compiler options. WebAssembly features are listed one by one, so that newer compilers do not enable others.
///
/// Jump tables and vectorisation of straight-line code are off, because they made the shipped modules slower in the sandbox.
/// Contraction into fused multiply-adds is off, so that floating-point results equal those of a native build.
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
    // Line tables are for `weir check`, and do not change the code.
    "-gline-tables-only",
    "-ffile-compilation-dir=.",
    "-ffreestanding",
    "-nostdlib",
    "-Wall",
    "-Wextra",
    // Warns about a function whose frame takes more than half of the stack.
    "-Wframe-larger-than=8192",
];

/// Linker options. The stack is below the data, so that a stack overflow traps instead of overwriting data. The stack has
/// 16 KiB, so that 48 KiB of the first page remain for data.
const LINK: &[&str] = &["--no-entry", "--export=__stack_pointer", "-z", "stack-size=16384", "--stack-first"];

/// Compiles and links a module.
pub(crate) fn compile(
    folder: &ModuleFolder,
    sources: &[PathBuf],
    options: &BuildOptions,
) -> Result<LinkedModule, BuildError> {
    let clang = options.tools.clang()?;
    let linker = options.tools.wasm_ld(Some(&clang.program))?;
    let generated = folder.generated();
    let scratch = tempfile::Builder::new()
        .prefix("build-")
        .tempdir_in(&generated)
        .map_err(BuildError::file(&generated))?;
    let mut prefix_map = std::ffi::OsString::from("-ffile-prefix-map=");
    // The folder has no trailing slash here: with one, `DIR/x.c` would become `.x.c` instead of `./x.c`.
    prefix_map.push(folder.dir.components().as_path());
    prefix_map.push("=.");

    let level = format!("-O{}", options.level.unwrap_or(OptLevel::Three).name());
    let mut messages = String::new();
    let mut link = Command::new(&linker);
    link.args(LINK);
    let states = folder.manifest.states.iter();
    link.args(
        states
            .map(|state| format!("--export-if-defined={}{}", export::STATE_PREFIX, state.name.identifier())),
    );
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
    let linker_messages = linker_messages(&output, scratch.path());
    if !output.status.success() {
        return Err(link_error(&folder.dir, linker_messages));
    }
    messages.push_str(&linker_messages);
    let bytes = std::fs::read(&wasm).map_err(BuildError::file(&wasm))?;
    Ok(LinkedModule { bytes, messages, toolchain: format!("{}; {}", clang.version, version_line(&linker)?) })
}

/// Returns the linker's messages, without the path of the temporary folder.
fn linker_messages(output: &Output, scratch: &Path) -> String {
    String::from_utf8_lossy(&output.stderr).replace(&format!("{}/", scratch.to_string_lossy()), "")
}

/// Returns the error of a failed link: the undefined symbols if there are any, otherwise the linker's messages.
pub(crate) fn link_error(dir: &Path, output: String) -> BuildError {
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
