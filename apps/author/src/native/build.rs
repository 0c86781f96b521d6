//! Builds modules natively with sanitizers and coverage, and runs scripts in them.

use super::coverage::Coverage;
use super::script::NativeScript;
use super::stubs::host_calls;
use crate::BuildError;
use crate::folder::{ModuleFolder, ModuleSource, write_atomic};
use crate::tools::{Tools, run};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

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
    /// The compiler, which knows the place of other programs of LLVM.
    clang: PathBuf,
    /// The compiler's first line of `--version`.
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
    /// Builds the module in the folder `dir`. Returns `None` for a module in Rust, which has no native build.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn new(dir: &Path, tools: &Tools, color: bool) -> Result<Option<Self>, BuildError> {
        let folder = ModuleFolder::open(dir)?;
        folder.generate()?;
        let ModuleSource::C(sources) = &folder.source else { return Ok(None) };
        let clang = tools.clang()?;
        // The compiler runs in the module's folder, where relative paths would name other files.
        let dir = folder.dir.canonicalize().map_err(BuildError::file(&folder.dir))?;
        let generated = dir.join(crate::folder::GENERATED);
        let scratch = tempfile::Builder::new()
            .prefix("native-")
            .tempdir_in(&generated)
            .map_err(BuildError::file(&generated))?;
        let player = scratch.path().join("player.c");
        write_atomic(&player, PLAYER.as_bytes())?;
        write_atomic(&scratch.path().join("host_calls.h"), host_calls().as_bytes())?;
        let mut messages = String::new();
        let mut link = Command::new(&clang.program);
        link.args(COMPILE).args(COVERAGE);
        for (number, source) in sources.iter().map(PathBuf::as_path).chain([player.as_path()]).enumerate() {
            let is_player = source == player;
            let object = scratch.path().join(format!("{number}.o"));
            let mut compile = Command::new(&clang.program);
            compile.current_dir(&dir).args(COMPILE).arg("-I").arg(crate::folder::GENERATED);
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
        Ok(Some(Self { scratch, dir, program, clang: clang.program, toolchain: clang.version, messages }))
    }

    /// Replays a script. The program has all rights of the user who runs weir: it is the module's source, without a sandbox.
    ///
    /// # Errors
    /// The program cannot be run, or its files cannot be written or read.
    pub fn play(&self, script: &NativeScript, limit: Duration) -> Result<Played, BuildError> {
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
            .env("LLVM_PROFILE_FILE", file("run-%p.profraw"))
            // Memory of weir_alloc lives until the end.
            .env("ASAN_OPTIONS", "detect_leaks=0:allocator_may_return_null=1:handle_sigill=1:color=never")
            .env("UBSAN_OPTIONS", "print_stacktrace=1:halt_on_error=1:color=never");
        if let Some(symbolizer) = self.llvm_program("llvm-symbolizer") {
            command.env("ASAN_SYMBOLIZER_PATH", &symbolizer).env("UBSAN_SYMBOLIZER_PATH", symbolizer);
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

    /// Returns the coverage of the module's source by all replays so far; an explanation if programs of LLVM are missing.
    ///
    /// # Errors
    /// A program of LLVM fails.
    pub fn coverage(&self) -> Result<Result<Coverage, String>, BuildError> {
        let tools = ["llvm-profdata", "llvm-cov"].map(|name| self.llvm_program(name));
        let [Some(profdata), Some(cov)] = tools else {
            return Ok(Err("llvm-profdata and llvm-cov are missing; install llvm-19, or llvm".to_owned()));
        };
        Coverage::read([&profdata, &cov], &self.program, self.scratch.path(), &self.dir).map(Ok)
    }

    /// Finds a program of the compiler's own installation of LLVM.
    fn llvm_program(&self, name: &str) -> Option<PathBuf> {
        let output = Command::new(&self.clang).arg(format!("-print-prog-name={name}")).output().ok()?;
        let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        path.is_file().then_some(path)
    }
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
        let is_foreign = ["player.c:", "/libc", " in _start"].iter().any(|part| text.contains(part));
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
