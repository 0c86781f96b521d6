//! Compiles rewritten modules with Cranelift, in a child process or in this one. Absent without the feature `cranelift`.
//!
//! The child is this same program with the argument `compile-cranelift`. It reads the module from standard input and writes the
//! code and a digest of the code to standard output.

use crate::load::cache::KeyHasher;
use crate::load::compile::{CompileError, CompileLimits, ask};
use sha2::{Digest, Sha256};
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write};
use weir_os::{Launcher, ProcessorBudget, child};

const DIGEST_BYTES: usize = 32;

/// Returns the cache key of the code that an engine of wasmtime makes of a module's bytes.
pub(crate) fn cache_key(engine: &wasmtime::Engine, bytes: &[u8]) -> [u8; 32] {
    let mut hasher = KeyHasher::default();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    hasher.write(env!("CARGO_PKG_VERSION").as_bytes());
    hasher.write_usize(bytes.len());
    hasher.write(bytes);
    hasher.key()
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
