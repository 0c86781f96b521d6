//! Compiles rewritten modules in a child process.
//!
//! A module determines how much time and memory its compilation takes. Untrusted modules are therefore compiled in a
//! [child](weir_os::child) that is killed when it exceeds its limits of time and memory. The child is this same program
//! with the argument `compile-cranelift`. It reads the module from standard input and writes the code and a digest of the code to
//! standard output. Before it reads, the child gives up all other rights. An attacker who takes over the compiler can only
//! compute until the time is over, and answer with other code.

use sha2::{Digest, Sha256};
use std::io::{self, Read, Write};
use weir_os::child::{self, ChildError, ChildLimits, ChildReply, Cores};
use weir_os::{Launcher, ProcessorBudget};
use weir_units::{Bytes, Nanos};

const DIGEST_BYTES: usize = 32;

/// Largest code that is accepted from a child, in bytes.
const CODE_MAX: usize = 256 << 20;

/// The wall-clock time limit as a multiple of the limit of processor time. It is large, because a compiler has the lowest
/// priority on its cores.
const WALL_TIME_FACTOR: u64 = 30;

/// The limits of a compiler child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompileLimits {
    /// Limit of processor time, rounded up to whole seconds.
    pub time: Nanos,
    /// Limit of address space.
    pub memory: Bytes,
    /// The cores that the child may run on; `None` for those of the calling thread.
    pub cores: Option<Cores>,
}

impl Default for CompileLimits {
    /// Limits of about a thousand times the needs of the shipped modules.
    fn default() -> Self {
        Self { time: Nanos(10 * Nanos::SECOND.0), memory: Bytes(2 << 30), cores: None }
    }
}

/// The reason why a compilation failed.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// The module cannot be compiled.
    #[error("{0}")]
    Module(String),
    /// Compiling the module takes more time or memory than the limits.
    #[error("compiling it takes more than {} of processor time or {} of memory, and was stopped; smaller functions would help", .0.time, .0.memory)]
    Limits(CompileLimits),
    /// All compilations of one request together exceed their budget of processor time.
    #[error(
        "the modules of this request take more than {0} of processor time to compile: load fewer modules in one request, or use smaller functions"
    )]
    Budget(Nanos),
    /// The compilation was preempted by other requests.
    #[error("the compilation was preempted by others with larger or less used CPU shares: try again")]
    Preempted,
    /// The child process failed. The cause is the machine, not the module.
    #[error("no process to compile in: {0}")]
    Process(#[from] io::Error),
}

/// The first byte of a child's input if functions may be inlined; otherwise it is 0.
const INLINING: u8 = 1;

/// Compiles a rewritten module in a child process. Charges the child's processor time to the budget, also on failure.
pub(crate) fn in_child(
    bytes: &[u8],
    inlining: bool,
    limits: CompileLimits,
    budget: &mut dyn ProcessorBudget,
) -> Result<Vec<u8>, CompileError> {
    let question = [&[u8::from(inlining) * INLINING], bytes].concat();
    let answer = ask(&Launcher::of_process(), &["compile-cranelift"], &question, limits, budget)?;
    if !answer.has_succeeded {
        return Err(CompileError::Module(answer.stderr));
    }
    let mut code = answer.bytes;
    let end = code.len().saturating_sub(DIGEST_BYTES);
    if code.len() < DIGEST_BYTES || Sha256::digest(&code[..end]).as_slice() != &code[end..] {
        return Err(CompileError::Process(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the compiler's answer is incomplete",
        )));
    }
    code.truncate(end);
    Ok(code)
}

/// Asks a compiler in a child process. Charges the child's processor time to the budget, also on failure.
pub(crate) fn ask(
    launcher: &Launcher,
    arguments: &[&str],
    question: &[u8],
    limits: CompileLimits,
    budget: &mut dyn ProcessorBudget,
) -> Result<ChildReply, CompileError> {
    let (left, limit) = (budget.left(), budget.limit());
    if left == Nanos(0) {
        return Err(CompileError::Budget(limit));
    }
    let child_limits = ChildLimits {
        processor: limits.time.min(left),
        time: Nanos(limits.time.0.saturating_mul(WALL_TIME_FACTOR)),
        memory: limits.memory,
        answer: CODE_MAX,
        cores: limits.cores,
    };
    let asked = child::request(launcher, arguments, question, &child_limits, budget);
    asked.answer.map_err(|error| match error {
        ChildError::TimeLimit(_) if left < limits.time => CompileError::Budget(limit),
        // A child that gets no further memory is killed by a signal.
        ChildError::TimeLimit(_) | ChildError::Killed(_) => CompileError::Limits(limits),
        ChildError::Preempted => CompileError::Preempted,
        ChildError::Process(error) => CompileError::Process(error),
        ChildError::AnswerTooLong(_) => CompileError::Process(io::Error::other(error)),
    })
}

/// Runs the compiler child. `config` returns the configuration of wasmtime; its argument is true if functions may be
/// inlined. See [`crate::compile_child`].
pub(crate) fn run_child(config: impl FnOnce(bool) -> wasmtime::Config) -> Result<(), CompileError> {
    child::confine_or_exit(weir_os::confine_compiler);
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    let module = |e: wasmtime::Error| CompileError::Module(format!("{e:#}"));
    let (inlining, bytes) =
        bytes.split_first().ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
    let engine = wasmtime::Engine::new(&config(*inlining == INLINING)).map_err(module)?;
    let code = engine.precompile_module(bytes).map_err(module)?;
    let mut out = io::stdout().lock();
    out.write_all(&code)?;
    out.write_all(&Sha256::digest(&code))?;
    Ok(out.flush()?)
}
