//! Compiling in a process of its own.
//!
//! How long a compiler takes and how much memory it wants is up to the module, so a stranger's module is compiled in a child with limits on
//! both, which is killed when it passes them. The child is this same program with the argument `compile`; it reads the module from standard input
//! and writes the code and a digest of it to standard output. Before it reads, it gives up everything else: whoever gets the compiler to run code of
//! theirs can compute, until the time is up, and answer with other code than asked for.

use sha2::{Digest, Sha256};
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use weir_units::{Bytes, Nanos};

const DIGEST_BYTES: usize = 32;

/// The most code that is taken from a child, in bytes.
const CODE_MAX: u64 = 256 << 20;

/// How a child ends that could not be confined (EX_OSERR of sysexits.h).
const NOT_CONFINED: i32 = 71;

/// What a child may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompileLimits {
    /// Processor time, in whole seconds.
    pub time: Nanos,
    /// Address space.
    pub memory: Bytes,
}

impl Default for CompileLimits {
    /// A thousand times what the shipped modules take.
    fn default() -> Self {
        Self { time: Nanos(10 * Nanos::SECOND.0), memory: Bytes(2 << 30) }
    }
}

/// Why there is no code.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// To blame is the module.
    #[error("{0}")]
    Module(String),
    /// To blame is the module: it is small, or admission would have refused it, but hard to compile.
    #[error("compiling it takes more than {} of processor time or {} of memory, and was given up; smaller functions would help", .0.time, .0.memory)]
    Limits(CompileLimits),
    /// To blame is the node.
    #[error("no process to compile in: {0}")]
    Process(#[from] io::Error),
}

/// Has a child compile a rewritten module.
pub(crate) fn in_child(bytes: &[u8], limits: CompileLimits) -> Result<Vec<u8>, CompileError> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("compile").env_clear().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // SAFETY: between fork and exec only system calls that are safe there are made.
    unsafe { command.pre_exec(move || limit(limits)) };
    let mut child = command.spawn()?;
    // A child that is killed stops reading: its exit says more than the broken pipe.
    let sent = child.stdin.take().map(|mut stdin| stdin.write_all(bytes));
    let mut code = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(CODE_MAX).read_to_end(&mut code)?;
    }
    let output = child.wait_with_output()?;
    if output.status.signal().is_some() {
        return Err(CompileError::Limits(limits));
    }
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said: String = said.trim().chars().take(500).flat_map(char::escape_debug).collect();
        return Err(match output.status.code() {
            Some(NOT_CONFINED) => CompileError::Process(io::Error::other(said)),
            _ => CompileError::Module(said),
        });
    }
    sent.transpose()?;
    let end = code.len().saturating_sub(DIGEST_BYTES);
    if code.len() < DIGEST_BYTES || Sha256::digest(&code[..end]).as_slice() != &code[end..] {
        return Err(CompileError::Process(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "its answer is not whole",
        )));
    }
    code.truncate(end);
    Ok(code)
}

/// What the child does: gives up what it does not need, reads a rewritten module from standard input, and writes its code to standard output.
///
/// # Errors
/// What the compiler says, or that a stream failed.
pub fn compile_child() -> Result<(), CompileError> {
    if let Err(why) = weir_confine::compiler() {
        // Nothing has been read yet. The parent must not take this for a fault of the module.
        eprintln!("{why}");
        std::process::exit(NOT_CONFINED);
    }
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    let module = |e: wasmtime::Error| CompileError::Module(format!("{e:#}"));
    let engine = wasmtime::Engine::new(&crate::engine::config(&std::sync::Arc::default())).map_err(module)?;
    let code = engine.precompile_module(&bytes).map_err(module)?;
    let mut out = io::stdout().lock();
    out.write_all(&code)?;
    out.write_all(&Sha256::digest(&code))?;
    Ok(out.flush()?)
}

/// Limits the calling process, and has it die with its parent.
fn limit(limits: CompileLimits) -> io::Result<()> {
    let seconds = limits.time.0.div_ceil(Nanos::SECOND.0);
    for (resource, most) in [
        (libc::RLIMIT_CPU, seconds),
        (libc::RLIMIT_AS, limits.memory.0),
        (libc::RLIMIT_CORE, 0),
        (libc::RLIMIT_FSIZE, 0),
    ] {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: the pointer is to a live local.
        if unsafe { libc::setrlimit(resource, &raw const limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: takes no pointers.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
