//! The engine: how modules are compiled, and what ends a call that runs too long.

use crate::cache::{Cache, KeyHasher};
use crate::compile::{self, CompileError, CompileLimits};
use crate::host::{self, Host};
use crate::rewrite;
use crate::space::{Creator, GUARD, RESERVED, Spaces};
use crate::watchdog::Watchdog;
use std::hash::{Hash, Hasher};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;
use wasmtime::{Config, Inlining, InstanceAllocationStrategy, InstancePre, Linker, Module, OptLevel};
use weir_session::Admitted;

/// How an engine works.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Processor time after which a call is ended.
    pub call_limit: Duration,
    /// Time-outs after which a module is ended.
    pub strikes: u32,
    /// Put checks into modules by which a call that runs too long is ended. Without them an endless loop is endless: only for measuring
    /// what the checks cost.
    pub interruptible: bool,
    /// Compile in a child process with these limits; the program must answer the argument `compile` with [`crate::compile_child`]. Without them
    /// modules are compiled in this process, however long that takes: for modules that one trusts, and tests.
    pub compile_in_child: Option<CompileLimits>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            call_limit: Duration::from_millis(200),
            strikes: 3,
            interruptible: true,
            compile_in_child: None,
        }
    }
}

/// Why a module that was admitted cannot be loaded or instantiated.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The engine does not start: to blame is the node.
    #[error("the WebAssembly engine does not start: {0}")]
    Engine(String),
    /// The module cannot be rewritten or compiled.
    #[error("the module cannot be compiled: {0}")]
    Compile(CompileError),
    /// No memory or addresses for a sandbox: to blame is the node.
    #[error("no sandbox can be made: {0}")]
    Sandbox(String),
}

/// Compiles modules, and makes sandboxes of them.
pub struct Engine {
    wasm: wasmtime::Engine,
    linker: Linker<Host>,
    spaces: Arc<Spaces>,
    cache: Option<Cache>,
    options: Options,
    watchdog: Option<Watchdog>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("options", &self.options)
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// Starts an engine, with a cache for compiled modules or without.
    pub fn new(options: Options, cache: Option<Cache>) -> Result<Self, LoadError> {
        let spaces = Arc::new(Spaces::default());
        let failed = |e: wasmtime::Error| LoadError::Engine(format!("{e:#}"));
        let wasm = wasmtime::Engine::new(&config(&spaces)).map_err(failed)?;
        let mut linker = Linker::new(&wasm);
        host::define(&mut linker).map_err(failed)?;
        let start = || Watchdog::start(options.call_limit).map_err(|e| LoadError::Engine(e.to_string()));
        let watchdog = options.interruptible.then(start).transpose()?;
        Ok(Self { wasm, linker, spaces, cache, options, watchdog })
    }

    /// Compiles an admitted module, or takes it from the cache.
    pub fn load(&self, admitted: Admitted) -> Result<Program, LoadError> {
        let failed = |e: wasmtime::Error| LoadError::Compile(CompileError::Module(format!("{e:#}")));
        let bytes = rewrite::rewrite(admitted.bytes(), admitted.facts(), self.options.interruptible)
            .map_err(|e| LoadError::Compile(CompileError::Module(e.to_string())))?;
        let key = self.key(&bytes);
        let kept = self.cache.as_ref().and_then(|cache| cache.read(&key));
        let from_cache = kept.is_some();
        let code = match kept {
            Some(code) => code,
            None => {
                let code = match self.options.compile_in_child {
                    Some(limits) => compile::in_child(&bytes, limits).map_err(LoadError::Compile)?,
                    None => self.wasm.precompile_module(&bytes).map_err(failed)?,
                };
                if let Some(cache) = &self.cache {
                    // A full disk or a second process with the same module: the code is used all the same.
                    let _ = cache.write(&key, &code);
                }
                code
            }
        };
        // SAFETY: the bytes are this engine's own output: just compiled, or kept in a folder that only the effective user can write, under
        // a key of everything that shaped them and with a digest of their contents.
        let module = unsafe { Module::deserialize(&self.wasm, &code) }.map_err(failed)?;
        let ready = self.linker.instantiate_pre(&module).map_err(failed)?;
        Ok(Program { ready, admitted: Arc::new(admitted), from_cache })
    }

    fn key(&self, bytes: &[u8]) -> [u8; 32] {
        let mut hasher = KeyHasher::default();
        self.wasm.precompile_compatibility_hash().hash(&mut hasher);
        hasher.write(env!("CARGO_PKG_VERSION").as_bytes());
        hasher.write_usize(bytes.len());
        hasher.write(bytes);
        hasher.key()
    }

    pub(crate) fn wasm(&self) -> &wasmtime::Engine {
        &self.wasm
    }

    pub(crate) fn spaces(&self) -> &Spaces {
        &self.spaces
    }

    pub(crate) fn watchdog(&self) -> Option<&Watchdog> {
        self.watchdog.as_ref()
    }

    pub(crate) fn options(&self) -> Options {
        self.options
    }
}

/// A module that is ready to be instantiated, any number of times.
#[derive(Clone)]
pub struct Program {
    pub(crate) ready: InstancePre<Host>,
    pub(crate) admitted: Arc<Admitted>,
    from_cache: bool,
}

impl Program {
    /// What was admitted.
    pub fn admitted(&self) -> &Admitted {
        &self.admitted
    }

    /// Whether its code came from the cache.
    pub fn is_from_cache(&self) -> bool {
        self.from_cache
    }
}

pub(crate) fn config(spaces: &Arc<Spaces>) -> Config {
    let mut config = Config::new();
    config
        .with_host_memory(Arc::new(Creator(Arc::clone(spaces))))
        .allocation_strategy(InstanceAllocationStrategy::OnDemand)
        .memory_reservation(RESERVED as u64)
        .memory_guard_size(GUARD as u64)
        .memory_may_move(false)
        .guard_before_linear_memory(false)
        .memory_init_cow(false)
        .signals_based_traps(true)
        .cranelift_opt_level(OptLevel::Speed)
        .wasm_branch_hinting(true)
        .wasm_backtrace_max_frames(NonZeroUsize::new(1))
        .native_unwind_info(false)
        .wasm_memory64(false)
        .wasm_multi_memory(false)
        .wasm_relaxed_simd(false)
        .wasm_tail_call(false)
        // For the loader's own checks; admission refuses them in modules.
        .wasm_threads(true)
        // The packet function becomes part of the batch loop.
        .compiler_inlining(Inlining::Yes)
        .wasm_multi_value(true)
        .max_wasm_stack(512 << 10);
    config
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Instance;

    /// wasmtime ignores a memory creator in places without a word; mapping packets into such a memory would be a write into memory that is not
    /// ours. So an instance whose memory weir did not make is refused.
    #[test]
    fn an_engine_that_does_not_use_weirs_address_space_is_noticed() {
        let mut engine = Engine::new(Options::default(), None).unwrap();
        engine.wasm = wasmtime::Engine::new(config(&Arc::default()).memory_guard_size(GUARD as u64)).unwrap();
        engine.linker = Linker::new(&engine.wasm);
        let text = r#"(module (memory (export "memory") 1) (func (export "weir_packet") (param i32) (result i32) i32.const 0))"#;
        let mut bytes = wat::parse_str(text).unwrap();
        let manifest = b"\x0dweir.manifestname='m'\nversion='1'\nabi=1\nlicense='MIT'\nsummary='s'";
        bytes.extend([0, u8::try_from(manifest.len()).unwrap()]);
        bytes.extend_from_slice(manifest);
        let program = engine.load(Admitted::admit(bytes, &[]).unwrap()).unwrap();
        let error = Instance::start(&engine, &program).unwrap_err();
        assert!(error.to_string().contains("did not use weir's address space"), "{error}");
    }
}
