//! Native builds of the modules' C sources, against which sandboxed modules are measured.

use crate::error::{Context, LabError};
use crate::module::Module;
use crate::paths;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A C compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiler {
    /// The program.
    pub program: &'static str,
    /// The first line of `--version`.
    pub version: String,
}

impl Compiler {
    /// clang-19, which also compiles the modules to WebAssembly.
    pub fn clang() -> Option<Self> {
        Self::find("clang-19")
    }

    /// gcc, in the version that is installed.
    pub fn gcc() -> Option<Self> {
        Self::find("gcc")
    }

    fn find(program: &'static str) -> Option<Self> {
        let output = Command::new(program).arg("--version").output().ok()?;
        let version = String::from_utf8_lossy(&output.stdout).lines().next()?.trim().to_owned();
        output.status.success().then_some(Self { program, version })
    }
}

/// A way to build a module natively.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Build {
    /// Compile for this machine's processor (`-march=native`), as the sandbox's compiler does.
    pub this_processor: bool,
    /// Compile the module and the loop over the batch as one unit, so that the module can be inlined into the loop.
    pub one_unit: bool,
    /// Use byte loops in place of search libraries.
    pub naive_find: bool,
}

impl Build {
    /// The compiler flags of this build.
    pub fn flags(self) -> Vec<&'static str> {
        let mut flags = vec!["-O3"];
        if self.this_processor {
            flags.push("-march=native");
        }
        if self.naive_find {
            flags.extend(["-DWEIR_NAIVE_FIND", "-DLAB_NAIVE_FIND"]);
        }
        flags
    }

    /// Compiles a module to a shared object in the scratch folder.
    pub fn compile(self, module: &Module, compiler: &Compiler) -> Result<PathBuf, LabError> {
        let folder = paths::scratch().join("native").join(&module.name);
        std::fs::create_dir_all(&folder).map_err(LabError::file(&folder))?;
        let header = folder.join("module.h");
        replace(&header, module.header().as_bytes())?;
        let letters: String = [(self.this_processor, 'n'), (self.one_unit, 'u'), (self.naive_find, 'b')]
            .iter()
            .filter_map(|(is_set, letter)| is_set.then_some(*letter))
            .collect();
        let library = folder.join(format!("{}-{letters}.so", compiler.program));
        let mut command = Command::new(compiler.program);
        command
            .args([
                "-std=c11",
                "-fPIC",
                "-shared",
                "-DWEIR_NATIVE",
                "-ffp-contract=off",
                "-fno-math-errno",
                "-Wall",
                "-Wextra",
            ])
            // Calls between module and loop are direct, as in a program, and do not go through the PLT.
            .args(["-fno-semantic-interposition", "-Wl,-Bsymbolic", "-Wl,-z,defs"])
            .args(self.flags())
            .arg("-I")
            .arg(paths::root().join("guest/sdk-c"))
            .arg("-I")
            .arg(&folder)
            .arg(paths::root().join("lab/native/host.c"));
        if self.one_unit {
            command.arg(format!("-DLAB_MODULE=\"{}\"", module.source.display()));
        } else {
            command.arg(&module.source);
        }
        compile(command, &library)?;
        Ok(library)
    }
}

/// Compiles a program of one file into the scratch folder.
pub fn compile_program(source: &Path, compiler: &Compiler) -> Result<PathBuf, LabError> {
    let folder = paths::scratch().join("native");
    std::fs::create_dir_all(&folder).map_err(LabError::file(&folder))?;
    let name = source.file_stem().unwrap_or_default().to_string_lossy();
    let program = folder.join(format!("{name}-{}", compiler.program));
    let mut command = Command::new(compiler.program);
    command.args(["-std=c11", "-O3", "-Wall", "-Wextra"]).arg(source);
    compile(command, &program)?;
    Ok(program)
}

/// Runs the compiler. Its output gets the name `to` when it is complete, so that no incomplete file is loaded.
fn compile(mut command: Command, to: &Path) -> Result<(), LabError> {
    let temporary = PathBuf::from(format!("{}.{}", to.display(), std::process::id()));
    let output =
        command.arg("-o").arg(&temporary).output().context(command.get_program().to_string_lossy())?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(LabError::failed(format_args!("{command:?}"), errors));
    }
    std::fs::rename(&temporary, to).map_err(LabError::file(to))
}

/// Writes a file under a temporary name, and then gives it its name.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), LabError> {
    let temporary = PathBuf::from(format!("{}.{}", path.display(), std::process::id()));
    std::fs::write(&temporary, bytes)
        .and_then(|()| std::fs::rename(&temporary, path))
        .map_err(LabError::file(path))
}
