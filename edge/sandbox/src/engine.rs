//! The engine: how modules are compiled, and what ends a call that runs too long.

use crate::load::cache::{Cache, KeyHasher};
use crate::load::compile::{self, CompileError, CompileLimits};
use crate::load::meter::ALLOWANCE_MAX;
use crate::load::rewrite::{self, Checks, RewriteTask};
use crate::run::fault::Indices;
use crate::run::host::{self, HostState};
use crate::run::interrupt::CodeMap;
use crate::run::space::{Creator, GUARD, RESERVED, Spaces};
use crate::run::tally::StrikeCounter;
use crate::watchdog::Watchdog;
use std::hash::{Hash, Hasher};
use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use wasmtime::{
    Config, Inlining, InstanceAllocationStrategy, InstancePre, Linker, Module, OptLevel, RegallocAlgorithm,
};
use weir_admission::{Admitted, STACK_MAX, Tier};
use weir_bounds::CostTable;
use weir_bounds::charge::{self, ChargeRules};
use weir_os::CpuMeter;
use weir_units::{Bytes, Nanos, beside};

/// How an engine works.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// Processor time after which a call is ended, should its other limits fail. A call of a proved module is given ten times that, or ten times what
    /// its profile grants it.
    pub call_limit: Duration,
    /// What is checked while a module runs.
    pub control: Control,
    /// Compile in a child process with these limits; the program must answer the argument `compile` with [`crate::compile_child`]. Without them
    /// modules are compiled in this process, however long that takes: for modules that one trusts, and tests.
    pub compile_in_child: Option<CompileLimits>,
    /// Have wasmtime put checks of its own into modules, which never end a call: only for measuring what they cost. Not together with
    /// [`compile_in_child`](Self::compile_in_child), whose compiler does not know of them.
    pub foreign: Option<Foreign>,
    /// Compile in another way than the one that is kept: only for measuring. Not together with [`compile_in_child`](Self::compile_in_child).
    pub compiling: Option<Compiling>,
}

/// Other ways of compiling. [`config`] has the one that was measured to be the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compiling {
    /// The branch hints of the module and of the loader are not looked at.
    WithoutHints,
    /// A function stays a function, also where it is small and called in one place.
    WithoutInlining,
    /// Code is kept small too.
    SmallToo,
    /// Code is not optimised.
    NotOptimised,
    /// Registers are given out in one pass.
    OnePassRegisters,
    /// Functions begin at multiples of 64 bytes.
    Aligned,
}

impl Compiling {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::WithoutHints,
        Self::WithoutInlining,
        Self::SmallToo,
        Self::NotOptimised,
        Self::OnePassRegisters,
        Self::Aligned,
    ];

    fn apply(self, config: &mut Config) {
        match self {
            Self::WithoutHints => _ = config.wasm_branch_hinting(false),
            Self::WithoutInlining => _ = config.compiler_inlining(Inlining::No),
            Self::SmallToo => _ = config.cranelift_opt_level(OptLevel::SpeedAndSize),
            Self::NotOptimised => _ = config.cranelift_opt_level(OptLevel::None),
            Self::OnePassRegisters => {
                _ = config.cranelift_regalloc_algorithm(RegallocAlgorithm::SinglePass);
            }
            // SAFETY: it says where code is put, and nothing about what the code does.
            Self::Aligned => unsafe { _ = config.cranelift_flag_set("log2_min_function_alignment", "6") },
        }
    }
}

/// Checks that wasmtime has for modules that nothing is known about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// Its fuel: each basic block is charged for.
    Fuel,
    /// Its epochs: a number that another thread counts up is looked at in loops and functions.
    Epochs,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            call_limit: Duration::from_millis(200),
            control: Control::Admitted,
            compile_in_child: None,
            foreign: None,
            compiling: None,
        }
    }
}

/// What is checked while a module runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Control {
    /// What the tier says that it was admitted in.
    #[default]
    Admitted,
    /// What this tier says, whatever it was admitted in. In the proved one nothing but the watchdog ends an endless loop, after a long time: only for
    /// measuring what checks cost.
    As(Tier),
    /// Every basic block is charged for by itself, so that [`Instance::fuel_used`](crate::Instance::fuel_used) says to the unit what a call used; and
    /// any call that uses more than this is abandoned. For tests, and for whoever searches for the dearest packet.
    Exact(u64),
}

impl Control {
    /// What is put into a module that was admitted with these limits. `sliced`: its calls can be suspended.
    fn checks(self, admitted: &Admitted, sliced: bool) -> Checks {
        let tier = match self {
            Self::Admitted => admitted.tier(),
            Self::As(tier) => tier,
            Self::Exact(most) => {
                let most = Some(most.min(ALLOWANCE_MAX));
                return Checks::Charged { most, piece: None, exact: true, sliced };
            }
        };
        match tier {
            Tier::Proved if sliced => Checks::Sliced,
            Tier::Proved => Checks::None,
            Tier::Supervised => {
                Checks::Charged { most: None, piece: Some(admitted.limits().piece), exact: false, sliced }
            }
            Tier::Metered => Checks::Charged { most: None, piece: None, exact: false, sliced },
        }
    }
}

/// Bytes of the stack of a call that can be suspended which are for host functions, beside what the module may use. Only what is used of them costs memory.
const HOST_STACK: usize = 512 << 10;

/// A charge takes at most this part of what a packet may use before it is used.
const AHEAD: u64 = 8;
/// Fuel of an instruction, such as the call of a host function, that is charged for by itself: a hundred times what the charge takes.
const DEAR: u64 = 128;

/// Why a module that was admitted cannot be loaded or instantiated.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The engine does not start: to blame is the node.
    #[error("the WebAssembly engine does not start: {0}")]
    Engine(String),
    /// The module cannot be rewritten or compiled.
    #[error("the module cannot be compiled: {0}")]
    Compile(CompileError),
    /// The session has not the memory that the module begins with.
    #[error("the module begins with {wanted} of memory, and its session has {left} left", wanted = beside(*wanted, &[*left]), left = beside(*left, &[*wanted]))]
    Memory {
        /// What it begins with.
        wanted: Bytes,
        /// What is left.
        left: Bytes,
    },
    /// No memory or addresses for a sandbox: to blame is the node.
    #[error("no sandbox can be made: {0}")]
    Sandbox(String),
}

/// The WebAssembly runtime with one way of compiling, and the host functions for it.
struct Runtime {
    wasm: wasmtime::Engine,
    linker: Linker<HostState>,
}

impl Runtime {
    fn new(options: &EngineOptions, spaces: &Arc<Spaces>, inlining: bool) -> Result<Self, LoadError> {
        let failed = |e: wasmtime::Error| LoadError::Engine(format!("{e:#}"));
        let mut config = config(spaces, inlining);
        match options.foreign {
            Some(Foreign::Fuel) => _ = config.consume_fuel(true),
            Some(Foreign::Epochs) => _ = config.epoch_interruption(true),
            None => {}
        }
        if let Some(compiling) = options.compiling {
            compiling.apply(&mut config);
        }
        let wasm = wasmtime::Engine::new(&config).map_err(failed)?;
        let mut linker = Linker::new(&wasm);
        host::define(&mut linker).map_err(failed)?;
        Ok(Self { wasm, linker })
    }
}

/// Compiles modules, and makes sandboxes of them.
pub struct Engine {
    /// For modules whose functions may be inlined, which is nearly all.
    inlining: Runtime,
    /// For the others, from the first one on: a runtime takes no code that was compiled in another way.
    plain: OnceLock<Runtime>,
    spaces: Arc<Spaces>,
    cache: Option<Cache>,
    options: EngineOptions,
    watchdog: Watchdog,
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
    pub fn new(options: EngineOptions, cache: Option<Cache>) -> Result<Self, LoadError> {
        let spaces = Arc::new(Spaces::default());
        let inlining = Runtime::new(&options, &spaces, true)?;
        let watchdog = Watchdog::start(options.call_limit).map_err(|e| LoadError::Engine(e.to_string()))?;
        Ok(Self { inlining, plain: OnceLock::new(), spaces, cache, options, watchdog })
    }

    /// The runtime for a module.
    fn runtime(&self, admitted: &Admitted) -> Result<&Runtime, LoadError> {
        if admitted.facts().may_be_inlined {
            return Ok(&self.inlining);
        }
        match self.plain.get() {
            Some(plain) => Ok(plain),
            // Where two threads make one at a time, the first one stays.
            None => {
                let plain = Runtime::new(&self.options, &self.spaces, false)?;
                Ok(self.plain.get_or_init(|| plain))
            }
        }
    }

    /// Compiles an admitted module, or takes it from the cache.
    pub fn load(&self, admitted: Admitted) -> Result<LoadedModule, LoadError> {
        self.load_counting(admitted, false, &mut Nanos(0))
    }

    /// The same, so that calls of the module can be [suspended](crate::Instance::begin) where it is charged for what it does. A proved module gets
    /// such places for this alone: it has no allowance, and none of its calls is abandoned.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_suspendable(&self, admitted: Admitted) -> Result<LoadedModule, LoadError> {
        self.load_counting(admitted, true, &mut Nanos(0))
    }

    /// One or the other, and takes off `meter` the processor time that a compiler's child took, also where it failed. The calling thread's own is not taken off.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_counting(
        &self,
        admitted: Admitted,
        suspendable: bool,
        meter: &mut dyn CpuMeter,
    ) -> Result<LoadedModule, LoadError> {
        let checks = self.checks(&admitted, suspendable);
        let compiled = self.compile(&admitted, checks, meter)?;
        // SAFETY: the code is this engine's own output, as `compile` gives it.
        unsafe { self.assemble(admitted, compiled) }
    }

    /// What is checked while a module runs that was admitted like this, and whose calls can be suspended or not.
    pub(crate) fn checks(&self, admitted: &Admitted, is_suspendable: bool) -> Checks {
        self.options.control.checks(admitted, is_suspendable)
    }

    /// Compiles a module, or takes its code from the cache: code that this engine has made, or one like it in a child, from these very bytes. Counts as
    /// [`load_counting`](Self::load_counting) does.
    pub(crate) fn compile(
        &self,
        admitted: &Admitted,
        checks: Checks,
        meter: &mut dyn CpuMeter,
    ) -> Result<CompiledModule, LoadError> {
        let failed = |e: wasmtime::Error| LoadError::Compile(CompileError::Module(format!("{e:#}")));
        let (bytes, indices) =
            rewritten(admitted, checks).map_err(|e| LoadError::Compile(CompileError::Module(e)))?;
        let runtime = self.runtime(admitted)?;
        let key = key(runtime, &bytes);
        let kept = self.cache.as_ref().and_then(|cache| cache.read(&key));
        let from_cache = kept.is_some();
        let code = match kept {
            Some(code) => code,
            None => {
                let code = match self.options.compile_in_child {
                    Some(limits) => compile::in_child(&bytes, admitted.facts().may_be_inlined, limits, meter)
                        .map_err(LoadError::Compile)?,
                    None => runtime.wasm.precompile_module(&bytes).map_err(failed)?,
                };
                if let Some(cache) = &self.cache {
                    // A full disk or a second process with the same module: the code is used all the same.
                    let _ = cache.write(&key, &code);
                }
                code
            }
        };
        Ok(CompiledModule { code, checks, indices, from_cache })
    }

    /// Makes a module ready to be instantiated.
    ///
    /// # Safety
    /// The code is what [`compile`](Self::compile) gave for this module, of this engine or of one with the same options in another process of this program:
    /// just compiled, or kept in a folder that only the effective user can write, under a key of everything that shaped it and with a digest of its contents.
    pub(crate) unsafe fn assemble(
        &self,
        admitted: Admitted,
        compiled: CompiledModule,
    ) -> Result<LoadedModule, LoadError> {
        let CompiledModule { code, checks, indices, from_cache } = compiled;
        let failed = |e: wasmtime::Error| LoadError::Compile(CompileError::Module(format!("{e:#}")));
        let runtime = self.runtime(&admitted)?;
        // SAFETY: the caller's promise.
        let module = unsafe { Module::deserialize(&runtime.wasm, &code) }.map_err(failed)?;
        let ready = runtime.linker.instantiate_pre(&module).map_err(failed)?;
        let (code, tally) = (Arc::new(CodeMap::of(&module)), Arc::default());
        Ok(LoadedModule { ready, admitted: Arc::new(admitted), checks, indices, code, tally, from_cache })
    }

    /// What [`Self::load`] compiles: the module with what is checked while it runs.
    ///
    /// # Errors
    /// Where it cannot be rewritten.
    pub fn rewritten(&self, admitted: &Admitted) -> Result<Vec<u8>, LoadError> {
        rewritten(admitted, self.options.control.checks(admitted, false))
            .map(|(bytes, _)| bytes)
            .map_err(|e| LoadError::Compile(CompileError::Module(e)))
    }

    /// The same for [`Self::load_suspendable`].
    ///
    /// # Errors
    /// Where it cannot be rewritten.
    pub fn rewritten_suspendable(&self, admitted: &Admitted) -> Result<Vec<u8>, LoadError> {
        rewritten(admitted, self.options.control.checks(admitted, true))
            .map(|(bytes, _)| bytes)
            .map_err(|e| LoadError::Compile(CompileError::Module(e)))
    }

    pub(crate) fn spaces(&self) -> &Spaces {
        &self.spaces
    }

    /// Sees to it that wasmtime's own checks do not end a call.
    pub(crate) fn satisfy<T>(&self, store: &mut wasmtime::Store<T>) -> wasmtime::Result<()> {
        match self.options.foreign {
            Some(Foreign::Fuel) => store.set_fuel(u64::MAX)?,
            // Nobody counts it up.
            Some(Foreign::Epochs) => store.set_epoch_deadline(1),
            None => {}
        }
        Ok(())
    }

    pub(crate) fn call_limit(&self) -> Duration {
        self.options.call_limit
    }

    pub(crate) fn watchdog(&self) -> &Watchdog {
        &self.watchdog
    }
}

/// The key of the code that this runtime makes of a module.
fn key(runtime: &Runtime, bytes: &[u8]) -> [u8; 32] {
    let mut hasher = KeyHasher::default();
    runtime.wasm.precompile_compatibility_hash().hash(&mut hasher);
    hasher.write(env!("CARGO_PKG_VERSION").as_bytes());
    hasher.write_usize(bytes.len());
    hasher.write(bytes);
    hasher.key()
}

/// Puts checks into a module, or only the loop over a batch. Says how many functions it imports by itself, or what is wrong.
fn rewritten(admitted: &Admitted, checks: Checks) -> Result<(Vec<u8>, Indices), String> {
    let limits = admitted.limits();
    // Where nothing is abandoned, what is charged ahead is not used up too early.
    let ahead = if checks == Checks::Sliced { limits.piece } else { limits.packet.constant / AHEAD };
    let rules = ChargeRules {
        exact: matches!(checks, Checks::Charged { exact: true, .. }),
        ahead: limits.piece.min(ahead).max(1),
        piece: limits.piece,
        dear: DEAR,
    };
    let (costs, environment) = (CostTable::standard(), admitted.environment());
    let plan = charge::plan(admitted.module(), admitted.analysis(), &costs, &environment, rules)
        .map_err(|error| error.to_string())?;
    let task = RewriteTask {
        module: admitted.module(),
        facts: admitted.facts(),
        values: admitted.values(),
        plan: &plan,
        limits,
        costs: &costs,
        environment: &environment,
        checks,
    };
    let bytes = rewrite::rewrite(&task).map_err(|error| error.to_string())?;
    let imported = u32::try_from(plan.imports.len()).unwrap_or(u32::MAX);
    let functions = admitted.facts().functions;
    Ok((bytes, Indices { imported, functions, is_shifted: checks != Checks::None }))
}

/// A module's code, and what has to be known of it beside.
pub(crate) struct CompiledModule {
    pub(crate) code: Vec<u8>,
    pub(crate) checks: Checks,
    pub(crate) indices: Indices,
    pub(crate) from_cache: bool,
}

/// A module that is ready to be instantiated, any number of times. Calls over the limit count against all of its instances together.
#[derive(Clone)]
pub struct LoadedModule {
    pub(crate) ready: InstancePre<HostState>,
    pub(crate) admitted: Arc<Admitted>,
    pub(crate) checks: Checks,
    pub(crate) indices: Indices,
    pub(crate) code: Arc<CodeMap>,
    pub(crate) tally: Arc<StrikeCounter>,
    from_cache: bool,
}

impl LoadedModule {
    /// What was admitted.
    pub fn admitted(&self) -> &Admitted {
        &self.admitted
    }

    /// The same, without the program.
    pub fn into_admitted(self) -> Arc<Admitted> {
        self.admitted
    }

    /// The runtime that it is for.
    pub(crate) fn runtime(&self) -> &wasmtime::Engine {
        self.ready.module().engine()
    }

    /// The memory with its code.
    pub(crate) fn code_range(&self) -> std::ops::Range<*const u8> {
        self.ready.module().image_range()
    }

    /// Whether its calls can be suspended.
    pub fn is_suspendable(&self) -> bool {
        self.checks.is_sliced()
    }

    /// Whether its code came from the cache.
    pub fn is_from_cache(&self) -> bool {
        self.from_cache
    }
}

/// The way in which modules are compiled and run. `inlining`: functions are put in place of calls.
pub(crate) fn config(spaces: &Arc<Spaces>, inlining: bool) -> Config {
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
        .compiler_inlining(if inlining { Inlining::Yes } else { Inlining::No })
        .wasm_multi_value(true)
        .max_wasm_stack(usize::try_from(STACK_MAX.0).unwrap_or(usize::MAX))
        .async_stack_size(usize::try_from(STACK_MAX.0).unwrap_or(usize::MAX).saturating_add(HOST_STACK));
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
        let mut engine = Engine::new(EngineOptions::default(), None).unwrap();
        let wasm =
            wasmtime::Engine::new(config(&Arc::default(), true).memory_guard_size(GUARD as u64)).unwrap();
        engine.inlining = Runtime { linker: Linker::new(&wasm), wasm };
        let text = r#"(module (memory (export "memory") 1) (func (export "weir_packet") (param i32) (result i32) i32.const 0))"#;
        let mut bytes = wat::parse_str(text).unwrap();
        let manifest = b"\x0dweir.manifestname='m'\nversion='1'\nabi=2\nlicense='MIT'\nsummary='s'";
        bytes.extend([0, u8::try_from(manifest.len()).unwrap()]);
        bytes.extend_from_slice(manifest);
        let program = engine.load(Admitted::admit(bytes, &[]).unwrap()).unwrap();
        let error = Instance::start(&engine, &program).unwrap_err();
        assert!(error.to_string().contains("did not use weir's address space"), "{error}");
    }
}
