//! Compiling in a process of its own.
//!
//! How long a compiler takes and how much memory it wants is up to the module, so a stranger's module is compiled in a [child](weir_os::child)
//! with limits on both, which is killed when it passes them. The child is this same program with the argument `compile`; it reads the module from standard input
//! and writes the code and a digest of it to standard output. Before it reads, it gives up everything else: whoever gets the compiler to run code of
//! theirs can compute, until the time is up, and answer with other code than asked for.

use sha2::{Digest, Sha256};
use std::io::{self, Read, Write};
use weir_os::child::{self, ChildError, ChildLimits, Cores};
use weir_os::{CpuMeter, Launcher};
use weir_units::{Bytes, Nanos};

const DIGEST_BYTES: usize = 32;

/// The most code that is taken from a child, in bytes.
const CODE_MAX: usize = 256 << 20;

/// The time by the clock for each second of processor time: a compiler runs behind everything else on its cores.
const PATIENCE: u64 = 30;

/// What a child may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompileLimits {
    /// Processor time, in whole seconds.
    pub time: Nanos,
    /// Address space.
    pub memory: Bytes,
    /// Its cores; those of the thread that wants it compiled where there are none.
    pub cores: Option<Cores>,
}

impl Default for CompileLimits {
    /// A thousand times what the shipped modules take.
    fn default() -> Self {
        Self { time: Nanos(10 * Nanos::SECOND.0), memory: Bytes(2 << 30), cores: None }
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
    /// To blame is the request: all that is compiled for it takes too long together.
    #[error(
        "all that this request has to have compiled takes more than {0} of processor time, and was given up; ask for less in one request, or for smaller functions"
    )]
    Budget(Nanos),
    /// To blame is the load of the node.
    #[error(
        "compiling it gave way to others, whose shares of the processor are larger or less used: try again"
    )]
    GaveWay,
    /// To blame is the node.
    #[error("no process to compile in: {0}")]
    Process(#[from] io::Error),
}

/// The first byte of what a child is sent: functions may be put in place of calls.
const INLINING: u8 = 1;

/// Has a child compile a rewritten module. Takes the processor time that it used off the meter, also where there is no code.
pub(crate) fn in_child(
    bytes: &[u8],
    inlining: bool,
    limits: CompileLimits,
    meter: &mut dyn CpuMeter,
) -> Result<Vec<u8>, CompileError> {
    let (left, all) = (meter.left(), meter.limit());
    if left == Nanos(0) {
        return Err(CompileError::Budget(all));
    }
    let most = ChildLimits {
        processor: limits.time.min(left),
        time: Nanos(limits.time.0.saturating_mul(PATIENCE)),
        memory: limits.memory,
        answer: CODE_MAX,
        cores: limits.cores,
    };
    let question = [&[u8::from(inlining) * INLINING], bytes].concat();
    let asked = child::ask(&Launcher::of_process(), "compile", &question, &most, meter);
    let answer = asked.answer.map_err(|error| match error {
        ChildError::Time(_) if left < limits.time => CompileError::Budget(all),
        // Without memory it ends itself by a signal.
        ChildError::Time(_) | ChildError::Killed(_) => CompileError::Limits(limits),
        ChildError::GaveWay => CompileError::GaveWay,
        ChildError::Process(error) => CompileError::Process(error),
        ChildError::Answer(_) => CompileError::Process(io::Error::other(error)),
    })?;
    if !answer.is_done {
        return Err(CompileError::Module(answer.said));
    }
    let mut code = answer.bytes;
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

/// Runs the compiler child: it gives up what it does not need, reads a byte that says whether functions may be inlined and a rewritten module from standard input, and writes its code to standard output.
///
/// # Errors
/// What the compiler says, or that a stream failed.
pub fn compile_child() -> Result<(), CompileError> {
    child::confined(weir_os::compiler);
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    let module = |e: wasmtime::Error| CompileError::Module(format!("{e:#}"));
    let (inlining, bytes) =
        bytes.split_first().ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
    let config = crate::load::engine::config(&std::sync::Arc::default(), *inlining == INLINING);
    let engine = wasmtime::Engine::new(&config).map_err(module)?;
    let code = engine.precompile_module(bytes).map_err(module)?;
    let mut out = io::stdout().lock();
    out.write_all(&code)?;
    out.write_all(&Sha256::digest(&code))?;
    Ok(out.flush()?)
}
