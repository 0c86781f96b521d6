//! Builds modules natively, those in C with sanitizers, and runs scripts in them.

use super::coverage::Coverage;
use super::script::NativeScript;
use super::stubs::host_calls;
use crate::BuildError;
use crate::build::BuildOptions;
use crate::folder::{GENERATED, ModuleFolder, ModuleSource, write_atomic};
use crate::tools::run;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use weir_abi::entry::ENTRY_POINTS;

/// The file that takes the place of weir.
const PLAYER: &str = include_str!("../../native/player.c");
/// Options for the module's source and for the player. Contraction into
/// fused multiply-adds is off, so that floating-point results equal those in the sandbox.
const COMPILE: &[&str] = &[
    "-std=gnu11",
    "-O1",
    "-g",
    "-DWEIR_NATIVE",
    "-ffp-contract=off",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
];
/// Further options for the module's source.
const COVERAGE: &[&str] = &["-fprofile-instr-generate", "-fcoverage-mapping"];
/// Options for the player of a module in Rust. Its space begins at address 0.
const PLAYER_OF_RUST: &[&str] = &[
    "-std=gnu11",
    "-O1",
    "-g",
    "-fPIE",
    "-pie",
    "-DWEIR_NATIVE",
    "-DWEIR_NATIVE_RUST",
    "-fno-delete-null-pointer-checks",
    "-I",
    ".",
];
/// The exit statuses of the player.
const EXIT_PLAYER: i32 = 90;
const EXIT_OTHER_WAY: i32 = 91;
const EXIT_SANDBOX_FAULT: i32 = 92;

/// A native build of a module. Its files are in the module's folder `.weir`, and are removed with this value.
#[derive(Debug)]
pub struct NativeBuild {
    scratch: tempfile::TempDir,
    /// The module's folder.
    dir: PathBuf,
    program: PathBuf,
    /// The programs of LLVM that read coverage, as old as the compiler: llvm-profdata and llvm-cov; or the reason why there are none.
    coverage: Result<[PathBuf; 2], String>,
    /// The program that finds the lines of a sanitizer's report.
    symbolizer: Option<PathBuf>,
    /// The checks in the build, and the compiler.
    pub toolchain: String,
    /// The compiler's warnings.
    pub messages: String,
}

/// The end of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NativeEnd {
    /// The module took the same way as in the sandbox; what it passed to host functions is to be compared.
    Done,
    /// The module called other host functions than in the sandbox.
    OtherWay,
    /// The module faulted: the report of the sanitizer, or the signal.
    Fault(String),
    /// The replay took longer than its limit.
    TimeOut(Duration),
}

/// A replay.
#[derive(Clone, Debug)]
pub struct Played {
    /// The output, for [`ReplaySteps`](super::ReplaySteps).
    pub output: Vec<u8>,
    /// The end.
    pub end: NativeEnd,
}

impl NativeBuild {
    /// Builds the module in the folder `dir`. Returns the reason if a module in Rust cannot have a native build here.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn new(dir: &Path, options: &BuildOptions) -> Result<Result<Self, String>, BuildError> {
        let folder = ModuleFolder::open(dir)?;
        folder.generate()?;
        // The compiler runs in the module's folder, where relative paths would name other files.
        let dir = folder.dir.canonicalize().map_err(BuildError::file(&folder.dir))?;
        let generated = dir.join(GENERATED);
        let scratch = tempfile::Builder::new()
            .prefix("native-")
            .tempdir_in(&generated)
            .map_err(BuildError::file(&generated))?;
        let file = |name: &str| scratch.path().join(name);
        write_atomic(&file("player.c"), PLAYER.as_bytes())?;
        write_atomic(&file("host_calls.h"), host_calls().as_bytes())?;
        match &folder.source {
            ModuleSource::C(sources) => Self::of_c(dir, scratch, sources, options).map(Ok),
            ModuleSource::Rust(cargo_toml) => Self::of_rust(dir, scratch, cargo_toml, options),
        }
    }

    /// Builds a module in Rust: a library with the checks that a stable compiler has, linked with the player.
    fn of_rust(
        dir: PathBuf,
        scratch: tempfile::TempDir,
        cargo_toml: &Path,
        options: &BuildOptions,
    ) -> Result<Result<Self, String>, BuildError> {
        let Ok(clang) = options.tools.clang() else {
            return Ok(Err("a native run needs clang, for the program around the module".to_owned()));
        };
        let library = match crate::rust::compile_native(&dir, cargo_toml, options)? {
            Ok(library) => library,
            Err(why) => return Ok(Err(why)),
        };
        write_atomic(&scratch.path().join("weir.h"), crate::folder::WEIR_H.as_bytes())?;
        let program = scratch.path().join("player");
        let mut link = Command::new(&clang.program);
        link.current_dir(scratch.path()).args(PLAYER_OF_RUST).arg("player.c").arg(&library.path);
        // Otherwise the linker would leave out the functions that the player can do without.
        let archive = std::fs::read(&library.path).map_err(BuildError::file(&library.path))?;
        let names = ENTRY_POINTS.iter().map(|known| known.entry.name());
        let defined = names.filter(|name| has_symbol(&archive, name));
        link.args(defined.map(|name| format!("-Wl,--undefined={name}")));
        if let Ok(coverage) = &library.coverage {
            link.arg(&coverage.profiler).arg("-Wl,--undefined=__llvm_profile_runtime");
        }
        let output = run(link.args(["-lpthread", "-ldl", "-lm", "-lgcc_s", "-o"]).arg(&program))?;
        if !output.status.success() {
            let output = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(BuildError::Compiler { tool: "clang".to_owned(), dir, output });
        }
        let toolchain = format!(
            "with checks of overflow, without sanitizers, which Rust has in nightly compilers only ({})",
            library.version
        );
        let coverage = library.coverage.map(|coverage| coverage.programs);
        Ok(Ok(Self {
            scratch,
            dir,
            program,
            coverage,
            symbolizer: None,
            toolchain,
            messages: library.messages,
        }))
    }

    /// Builds a module in C with sanitizers.
    fn of_c(
        dir: PathBuf,
        scratch: tempfile::TempDir,
        sources: &[PathBuf],
        options: &BuildOptions,
    ) -> Result<Self, BuildError> {
        let (tools, color) = (&options.tools, options.color);
        let clang = tools.clang()?;
        let player = scratch.path().join("player.c");
        let mut messages = String::new();
        let mut link = Command::new(&clang.program);
        link.args(COMPILE).args(COVERAGE);
        for (number, source) in sources.iter().map(PathBuf::as_path).chain([player.as_path()]).enumerate() {
            let is_player = source == player;
            let object = scratch.path().join(format!("{number}.o"));
            let mut compile = Command::new(&clang.program);
            compile.current_dir(&dir).args(COMPILE).arg("-I").arg(GENERATED);
            if !is_player {
                compile.args(COVERAGE).arg("-fdebug-compilation-dir=.");
            }
            if color {
                compile.arg("-fdiagnostics-color=always");
            }
            // A relative path, so that reports name the file as the author does.
            let name = Path::new(".").join(source.file_name().unwrap_or_default());
            let source = if is_player { source } else { &name };
            let output = run(compile.arg("-c").arg(source).arg("-o").arg(&object))?;
            messages.push_str(&String::from_utf8_lossy(&output.stderr));
            if !output.status.success() {
                return Err(BuildError::Compiler { tool: "clang".to_owned(), dir, output: messages });
            }
            link.arg(object);
        }
        let program = scratch.path().join("player");
        let output = run(link.arg("-o").arg(&program))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            if text.contains("clang_rt") {
                return Err(BuildError::NoSanitizers { clang: clang.program, output: text });
            }
            return Err(super::super::c::link_error(&dir, messages + &text));
        }
        let llvm = |name| llvm_program(&clang.program, name);
        let coverage = match ["llvm-profdata", "llvm-cov"].map(llvm) {
            [Some(profdata), Some(cov)] => Ok([profdata, cov]),
            _ => Err("llvm-profdata and llvm-cov are missing; install llvm-19, or llvm".to_owned()),
        };
        let symbolizer = llvm("llvm-symbolizer");
        let toolchain = format!("with sanitizers ({})", clang.version);
        Ok(Self { scratch, dir, program, coverage, symbolizer, toolchain, messages })
    }

    /// Replays a script. The program has all rights of the user who runs weir: it is the module's source, without a sandbox.
    /// The lines that run count for the coverage only if `counts`.
    ///
    /// # Errors
    /// The program cannot be run, or its files cannot be written or read.
    pub fn play(&self, script: &NativeScript, limit: Duration, counts: bool) -> Result<Played, BuildError> {
        let file = |name: &str| self.scratch.path().join(name);
        let (input, output, report) = (file("script"), file("output"), file("report"));
        write_atomic(&input, &script.finished())?;
        write_atomic(&report, b"")?;
        let messages = std::fs::File::create(&report).map_err(BuildError::file(&report))?;
        let mut command = Command::new(&self.program);
        command
            .args([&input, &output])
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(messages)
            .env("LLVM_PROFILE_FILE", file(if counts { "run-%p.profraw" } else { "not-counted" }))
            // Memory of weir_alloc lives until the end.
            .env("ASAN_OPTIONS", "detect_leaks=0:allocator_may_return_null=1:handle_sigill=1:color=never")
            .env("UBSAN_OPTIONS", "print_stacktrace=1:halt_on_error=1:color=never");
        if let Some(symbolizer) = &self.symbolizer {
            command.env("ASAN_SYMBOLIZER_PATH", symbolizer).env("UBSAN_SYMBOLIZER_PATH", symbolizer);
        }
        let failed = |source| BuildError::Run { program: self.program.clone(), source };
        let mut child = command.spawn().map_err(failed)?;
        let begin = Instant::now();
        let status = loop {
            match child.try_wait().map_err(failed)? {
                Some(status) => break Some(status),
                None if begin.elapsed() > limit => {
                    let _ = child.kill();
                    child.wait().map_err(failed)?;
                    break None;
                }
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        let report = std::fs::read(&report).map_err(BuildError::file(&report))?;
        let report = String::from_utf8_lossy(&report).into_owned();
        let end = match status {
            None => NativeEnd::TimeOut(limit),
            Some(status) => end_of(status, report)?,
        };
        // A program that was ended before its start has written nothing.
        let output = std::fs::read(&output).unwrap_or_default();
        Ok(Played { output, end })
    }

    /// Returns the coverage of the module's source by all replays so far that count; an explanation if programs of LLVM are missing.
    ///
    /// # Errors
    /// A program of LLVM fails.
    pub fn coverage(&self) -> Result<Result<Coverage, String>, BuildError> {
        match &self.coverage {
            Ok([profdata, cov]) => {
                Coverage::read([profdata, cov], &self.program, self.scratch.path(), &self.dir).map(Ok)
            }
            Err(why) => Ok(Err(why.clone())),
        }
    }
}

/// Returns true if a table of symbols in an archive has a name: names there are between zeros.
fn has_symbol(archive: &[u8], name: &str) -> bool {
    let bounded = [b"\0", name.as_bytes(), b"\0"].concat();
    archive.windows(bounded.len()).any(|window| window == bounded)
}

/// Finds a program of a compiler's own installation of LLVM.
fn llvm_program(clang: &Path, name: &str) -> Option<PathBuf> {
    let output = Command::new(clang).arg(format!("-print-prog-name={name}")).output().ok()?;
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    path.is_file().then_some(path)
}

/// Returns the end of a replay with this exit status and this text on standard error.
fn end_of(status: ExitStatus, report: String) -> Result<NativeEnd, BuildError> {
    match (status.code(), status.signal()) {
        // After a fault that the sandbox has in a host function, there are no answers for the rest.
        (Some(0 | EXIT_SANDBOX_FAULT), _) => Ok(NativeEnd::Done),
        (Some(EXIT_OTHER_WAY), _) => Ok(NativeEnd::OtherWay),
        (Some(EXIT_PLAYER), _) => Err(BuildError::Replay(report.trim().to_owned())),
        (_, Some(signal)) if report.trim().is_empty() => {
            Ok(NativeEnd::Fault(format!("the program was ended by signal {signal}")))
        }
        (Some(code), _) if report.trim().is_empty() => {
            Ok(NativeEnd::Fault(format!("the program exited with status {code}")))
        }
        _ => Ok(NativeEnd::Fault(shortened(&report))),
    }
}

/// Returns the important lines of a sanitizer's report: the error and the calls that led to it.
fn shortened(report: &str) -> String {
    let mut lines = Vec::new();
    for line in report.lines().map(str::trim_end) {
        let text = line.trim_start_matches('=').trim_start();
        if text.is_empty() && !lines.is_empty() {
            break;
        }
        // Frames of the player and of the C library lead to no line of the author.
        let is_foreign = ["player.c:", "/libc", " in _start", "note: run with `RUST_BACKTRACE=1`"]
            .iter()
            .any(|part| text.contains(part));
        if !text.is_empty() && !is_foreign {
            lines.push(without_number(text).to_owned());
        }
        if lines.len() == 12 {
            break;
        }
    }
    lines.join("\n")
}

/// Removes the process number before a report of AddressSanitizer: `12345==ERROR: …`.
fn without_number(line: &str) -> &str {
    match line.split_once("==") {
        Some((number, rest)) if number.bytes().all(|digit| digit.is_ascii_digit()) => rest,
        _ => line,
    }
}
