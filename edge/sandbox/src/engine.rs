//! The engine: rewrites and compiles admitted modules, prepares them for instantiation, and has the watchdog that limits
//! the time of their calls.

use crate::back_end::{LlvmUse, NEVER, NativeSlot, UNSUPPORTED};
use crate::given_object::{GivenObject, ObjectRefusal};
use crate::load::cache::Cache;
use crate::load::clang::{self, LlvmCompiler};
use crate::load::compile::{CompileError, CompileLimits};
#[cfg(feature = "cranelift")]
use crate::load::cranelift;
use crate::load::initial_memory::InitialMemory;
use crate::load::meter::ALLOWANCE_MAX;
use crate::load::origin::RewrittenModule;
use crate::load::rewrite::{self, Checks, RewriteTask};
use crate::run::fault::FunctionIndices;
use crate::run::host::{self, HostState};
use crate::run::interrupt::CodeMap;
use crate::run::source_lines::SourceLines;
use crate::run::space::{GUARD, RESERVED, SpaceCreator, Spaces};
use crate::run::strikes::StrikeCounter;
use crate::watchdog::Watchdog;
use std::convert::Infallible;
use std::io;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use wasmtime::{Config, InstanceAllocationStrategy, InstancePre, Linker, Module};
use weir_admission::{Admitted, STACK_MAX, Tier};
use weir_bounds::CostTable;
use weir_bounds::charge::{self, ChargeRules};
use weir_lower::CLANG_ARGUMENTS;
use weir_os::ProcessorBudget;
use weir_units::{Bytes, Nanos, display_among};

/// The settings of an engine.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// Processor time after which the watchdog ends a call of a supervised or metered module. A call of a proved module is
    /// ended at ten times this time or ten times the time that its profile allows, whichever is more. The watchdog is a
    /// second defence, in case an error in a bound or the meter lets a call run too long.
    pub call_limit: Duration,
    /// The run-time checks of modules.
    pub check_mode: CheckMode,
    /// Limits of the compiler children. The program must answer the argument `compile-cranelift` with
    /// [`crate::compile_child`], `compile-llvm` with [`crate::compile_llvm_child`], and `version-llvm` with
    /// [`crate::llvm_version_child`]. With `None`, Cranelift runs in this process without a time limit, and clang without
    /// confinement: only for trusted modules and tests.
    pub compile_in_child: Option<CompileLimits>,
    /// The use of LLVM beside Cranelift.
    pub llvm: LlvmUse,
    /// False if this engine never compiles a module, and runs only [object files of others](GivenObject). Always so in a program
    /// that was built without the feature `cranelift`.
    pub compiles: bool,
    /// wasmtime's own checks, with limits that no call reaches: only for measuring the cost of the checks. No effect
    /// together with [`compile_in_child`](Self::compile_in_child), because the compiler child does not apply them.
    pub wasmtime_check: Option<WasmtimeCheck>,
    /// True if instances note the steps of their calls, for [`Instance::take_trace`](crate::Instance::take_trace). Only code of
    /// Cranelift is traced.
    pub traces: bool,
}

/// wasmtime's own checks for arbitrary modules, for comparison with the checks of weir.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WasmtimeCheck {
    /// wasmtime's fuel: each basic block is charged.
    Fuel,
    /// wasmtime's epochs: each loop iteration and function entry reads a number that another thread can increment.
    Epochs,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            call_limit: Duration::from_millis(200),
            check_mode: CheckMode::Admitted,
            compile_in_child: None,
            llvm: LlvmUse::Never,
            compiles: true,
            wasmtime_check: None,
            traces: false,
        }
    }
}

/// The choice of run-time checks for all modules of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckMode {
    /// The checks of the tier that the module was admitted in.
    #[default]
    Admitted,
    /// The checks of this tier for every module, for measuring the cost of checks. With the proved tier only the watchdog
    /// ends an endless loop, after a long time.
    As(Tier),
    /// Charges every basic block separately, so that [`Instance::fuel_used`](crate::Instance::fuel_used) returns the
    /// exact use of a call. A call that uses more than the given fuel is aborted. For tests, and for the search for the
    /// most expensive packet.
    Exact(u64),
}

impl CheckMode {
    /// Returns the checks for an admitted module, with or without suspendable calls.
    fn checks(self, admitted: &Admitted, is_suspendable: bool) -> Checks {
        let tier = match self {
            Self::Admitted => admitted.tier(),
            Self::As(tier) => tier,
            Self::Exact(fuel_max) => {
                let allowance = Some(fuel_max.min(ALLOWANCE_MAX));
                return Checks::Charged { allowance, refill: None, exact: true, is_suspendable };
            }
        };
        match tier {
            Tier::Proved | Tier::Unmetered if is_suspendable => Checks::SliceOnly,
            Tier::Proved | Tier::Unmetered => Checks::None,
            Tier::Supervised => Checks::Charged {
                allowance: None,
                refill: Some(admitted.limits().check_interval),
                exact: false,
                is_suspendable,
            },
            Tier::Metered => Checks::Charged { allowance: None, refill: None, exact: false, is_suspendable },
        }
    }
}

/// Bytes that a suspendable call's stack has for host functions, in addition to the module's stack. Only pages that are
/// touched take memory.
const HOST_STACK: usize = 512 << 10;

/// A packet's allowance divided by this number is the most fuel that is charged before the packet uses it.
const AHEAD_DIVISOR: u64 = 8;
/// The least cost of an instruction, in fuel, that is charged separately: a hundred times the cost of a charge. Calls of
/// host functions have such costs.
const EXPENSIVE_MIN: u64 = 128;

/// The reason why an admitted module cannot be loaded or instantiated.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The engine cannot start. The cause is the machine, not the module.
    #[error("the WebAssembly engine does not start: {0}")]
    Engine(String),
    /// The module cannot be rewritten or compiled.
    #[error("the module cannot be compiled: {0}")]
    Compile(CompileError),
    /// The profile allows verified code alone, or the module runs without a meter, and there is none of this module.
    #[error(
        "{} verified machine code{}, and the module has none: {why}",
        if *.is_unmetered { "a run without a meter needs" } else { "the profile demands" },
        if *.is_unmetered { "" } else { " (`verified = \"only\"`)" }
    )]
    NotVerified {
        /// The reason why the module has no verified code.
        why: String,
        /// True if the module runs without a meter.
        is_unmetered: bool,
    },
    /// The module is to run without a meter in this process.
    #[error("a module without a meter runs only in a process of its own")]
    UnmeteredHere,
    /// The engine has no compiler, and there is no object file of the module that it can use.
    #[error("{NO_COMPILER}")]
    NoCompiler,
    /// An object file of others is not used.
    #[error(transparent)]
    Object(#[from] ObjectRefusal),
    /// The session lacks the memory that the module starts with.
    #[error("the module starts with {wanted} of memory, and its session has {left} left", wanted = display_among(*wanted, &[*left]), left = display_among(*left, &[*wanted]))]
    Memory {
        /// The module's initial memory.
        wanted: Bytes,
        /// The session's free memory.
        left: Bytes,
    },
    /// There is no memory or address space for a sandbox, or the sandbox process cannot be started. The cause is the machine,
    /// not the module.
    #[error("no sandbox can be created: {0}")]
    Sandbox(String),
}

impl LoadError {
    /// Returns the error for a module that may run in verified code alone, and has none.
    pub(crate) fn not_verified(admitted: &Admitted, why: &str) -> Self {
        Self::NotVerified { why: why.to_owned(), is_unmetered: admitted.tier() == Tier::Unmetered }
    }
}

/// The reason why an engine without a compiler does not load a module.
pub(crate) const NO_COMPILER: &str = "this weir has no compiler: it runs only modules in bundles with machine code of a \
     compiler whose key it trusts";

/// A wasmtime engine with one compiler configuration, and the host functions for it.
struct Runtime {
    wasm: wasmtime::Engine,
    linker: Linker<HostState>,
}

impl Runtime {
    fn new(options: &EngineOptions, spaces: &Arc<Spaces>, inlining: bool) -> Result<Self, LoadError> {
        let failed = |e: wasmtime::Error| LoadError::Engine(format!("{e:#}"));
        let mut config = config(spaces, inlining);
        match options.wasmtime_check {
            Some(WasmtimeCheck::Fuel) => _ = config.consume_fuel(true),
            Some(WasmtimeCheck::Epochs) => _ = config.epoch_interruption(true),
            None => {}
        }
        let wasm = wasmtime::Engine::new(&config).map_err(failed)?;
        let mut linker = Linker::new(&wasm);
        host::define(&mut linker, options.traces).map_err(failed)?;
        Ok(Self { wasm, linker })
    }
}

/// Compiles modules and prepares them for instantiation.
pub struct Engine {
    /// The runtime of modules whose functions may be inlined, which are almost all modules.
    with_inlining: Runtime,
    /// The runtime of other modules, created on first use. It is a separate one, because a wasmtime engine takes no code
    /// that was compiled with another configuration.
    without_inlining: OnceLock<Runtime>,
    spaces: Arc<Spaces>,
    cache: Option<Cache>,
    options: EngineOptions,
    watchdog: Watchdog,
    /// The compiler clang 19, or the reason why there is none.
    clang: Result<LlvmCompiler, String>,
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
    /// Starts an engine, with or without a cache of compiled modules.
    pub fn new(mut options: EngineOptions, cache: Option<Cache>) -> Result<Self, LoadError> {
        options.compiles &= cfg!(feature = "cranelift");
        let spaces = Arc::new(Spaces::default());
        let with_inlining = Runtime::new(&options, &spaces, true)?;
        let watchdog = Watchdog::start(options.call_limit).map_err(|e| LoadError::Engine(e.to_string()))?;
        let clang = match options.llvm {
            _ if !options.compiles => Err(NO_COMPILER.to_owned()),
            LlvmUse::Never => Err(NEVER.to_owned()),
            LlvmUse::Later | LlvmUse::AtLoad => LlvmCompiler::find(),
        };
        Ok(Self { with_inlining, without_inlining: OnceLock::new(), spaces, cache, options, watchdog, clang })
    }

    /// Replaces clang by the program at this path, for tests with a compiler that fails.
    ///
    /// # Errors
    /// There is no such file.
    pub fn with_clang(mut self, path: &Path) -> io::Result<Self> {
        self.clang = Ok(LlvmCompiler::at(path)?);
        Ok(self)
    }

    /// Returns true if the engine compiles modules.
    pub fn compiles(&self) -> bool {
        self.options.compiles
    }

    pub(crate) fn options(&self) -> &EngineOptions {
        &self.options
    }

    pub(crate) fn cache(&self) -> Option<&Cache> {
        self.cache.as_ref()
    }

    pub(crate) fn clang(&self) -> Result<&LlvmCompiler, &String> {
        self.clang.as_ref()
    }

    /// Returns the runtime that compiles and runs a module.
    fn runtime(&self, admitted: &Admitted) -> Result<&Runtime, LoadError> {
        if admitted.info().may_be_inlined {
            return Ok(&self.with_inlining);
        }
        match self.without_inlining.get() {
            Some(runtime) => Ok(runtime),
            // If two threads create a runtime at the same time, the first one is used.
            None => {
                let runtime = Runtime::new(&self.options, &self.spaces, false)?;
                Ok(self.without_inlining.get_or_init(|| runtime))
            }
        }
    }

    /// Loads an admitted module: compiles it, or takes its code from the cache. The module's calls run to completion.
    pub fn load(&self, admitted: Admitted) -> Result<LoadedModule, LoadError> {
        self.load_counting(admitted, false, &mut Nanos(0))
    }

    /// Loads a module as [`Self::load`], with calls that can be [suspended](crate::Instance::begin) at charges. Charges in a
    /// proved module serve only suspension: it has no allowance, and no charge aborts its calls.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_suspendable(&self, admitted: Admitted) -> Result<LoadedModule, LoadError> {
        self.load_counting(admitted, true, &mut Nanos(0))
    }

    /// Loads a module, with or without suspendable calls. Charges `budget` for the processor time of the compiler child, also
    /// on failure; the calling thread's own time is not charged.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_counting(
        &self,
        admitted: Admitted,
        suspendable: bool,
        budget: &mut dyn ProcessorBudget,
    ) -> Result<LoadedModule, LoadError> {
        self.load_code(self.compile(admitted, suspendable, budget)?)
    }

    /// Compiles a module, or takes its code from the cache, as [`load_counting`](Self::load_counting) does.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn compile(
        &self,
        admitted: Admitted,
        suspendable: bool,
        budget: &mut dyn ProcessorBudget,
    ) -> Result<ModuleCode, LoadError> {
        if !self.options.compiles {
            return Err(LoadError::NoCompiler);
        }
        let checks = self.checks(&admitted, suspendable);
        let (RewrittenModule { bytes, .. }, indices) = rewritten(&admitted, checks)?;
        if admitted.needs_verified_code() {
            let native = self.verified_code(&admitted, &bytes, budget)?;
            let compiled =
                CompiledModule { code: None, rewritten: bytes, native, checks, indices, from_cache: false };
            return Ok(ModuleCode { admitted, compiled, is_given: false });
        }
        let (code, from_cache) = self.cranelift_code(&admitted, &bytes, budget)?;
        let native = self.native_slot(&bytes, budget);
        let compiled =
            CompiledModule { code: Some(code), rewritten: bytes, native, checks, indices, from_cache };
        Ok(ModuleCode { admitted, compiled, is_given: false })
    }

    /// Takes an object file of others as the code of a module, after verifying it. An engine that compiles also compiles the
    /// module with Cranelift, so that the module can go on when its [code is withdrawn](crate::CodeWithdrawal), unless its profile
    /// allows verified code alone.
    ///
    /// # Errors
    /// [`LoadError::Object`] with the reason why the object file is not used, and as [`Self::load`].
    pub fn take_object(
        &self,
        admitted: Admitted,
        suspendable: bool,
        given: &GivenObject,
        budget: &mut dyn ProcessorBudget,
    ) -> Result<ModuleCode, LoadError> {
        if !weir_native::is_supported() {
            return Err(ObjectRefusal::Machine(UNSUPPORTED).into());
        }
        let checks = self.checks(&admitted, suspendable);
        let (RewrittenModule { bytes, .. }, indices) = rewritten(&admitted, checks)?;
        let native = NativeSlot::filled(Ok(Arc::new(given.verified(&bytes)?)));
        let code = match self.options.compiles && !admitted.needs_verified_code() {
            true => Some(self.cranelift_code(&admitted, &bytes, budget)?.0),
            false => None,
        };
        let compiled = CompiledModule { code, rewritten: bytes, native, checks, indices, from_cache: false };
        Ok(ModuleCode { admitted, compiled, is_given: true })
    }

    /// Loads the code of a module.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_code(&self, code: ModuleCode) -> Result<LoadedModule, LoadError> {
        let ModuleCode { admitted, compiled, is_given } = code;
        if admitted.tier() == Tier::Unmetered {
            return Err(LoadError::UnmeteredHere);
        }
        // SAFETY: only `compile` and `take_object` make such a value, which cannot be changed.
        unsafe { self.assemble(admitted, compiled, is_given) }
    }

    /// Returns the checks for an admitted module, with or without suspendable calls.
    pub(crate) fn checks(&self, admitted: &Admitted, is_suspendable: bool) -> Checks {
        self.options.check_mode.checks(admitted, is_suspendable)
    }

    /// Returns Cranelift's code of a rewritten module, and whether it comes from the cache: an engine with the same options has
    /// compiled the same bytes before. Charges `budget` as [`load_counting`](Self::load_counting) does.
    #[cfg(feature = "cranelift")]
    fn cranelift_code(
        &self,
        admitted: &Admitted,
        bytes: &[u8],
        budget: &mut dyn ProcessorBudget,
    ) -> Result<(Vec<u8>, bool), LoadError> {
        let failed = |e: wasmtime::Error| LoadError::Compile(CompileError::Module(format!("{e:#}")));
        let runtime = self.runtime(admitted)?;
        let key = cranelift::cache_key(&runtime.wasm, bytes);
        if let Some(code) = self.cache.as_ref().and_then(|cache| cache.read(&key)) {
            return Ok((code, true));
        }
        let code = match self.options.compile_in_child {
            Some(limits) => cranelift::in_child(bytes, admitted.info().may_be_inlined, limits, budget)
                .map_err(LoadError::Compile)?,
            None => runtime.wasm.precompile_module(bytes).map_err(failed)?,
        };
        if let Some(cache) = &self.cache {
            // An error, such as a full disk or another process that writes the same entry, does not matter: the code is used
            // anyway.
            let _ = cache.write(&key, &code);
        }
        Ok((code, false))
    }

    #[cfg(not(feature = "cranelift"))]
    fn cranelift_code(
        &self,
        _: &Admitted,
        _: &[u8],
        _: &mut dyn ProcessorBudget,
    ) -> Result<(Vec<u8>, bool), LoadError> {
        Err(LoadError::NoCompiler)
    }

    /// Prepares a compiled module for instantiation.
    ///
    /// # Safety
    /// Cranelift's code, if there is any, is the result of [`compile`](Self::compile) or [`take_object`](Self::take_object) for
    /// this module, by this engine, or by an engine with the same options in another process of this program. It was just compiled, or comes from a folder that only the effective
    /// user can write, from an entry whose key covers all inputs and which has a digest of its contents.
    pub(crate) unsafe fn assemble(
        &self,
        admitted: Admitted,
        compiled: CompiledModule,
        can_be_withdrawn: bool,
    ) -> Result<LoadedModule, LoadError> {
        let CompiledModule { code, rewritten, native, checks, indices, from_cache } = compiled;
        if (admitted.needs_verified_code() || code.is_none())
            && let Some(refusal) = native.refusal(&admitted)
        {
            return Err(refusal);
        }
        let failed = |e: wasmtime::Error| LoadError::Compile(CompileError::Module(format!("{e:#}")));
        let runtime = self.runtime(&admitted)?;
        let (instantiation, code_map) = match code {
            Some(code) => {
                // SAFETY: by this function's contract.
                let module = unsafe { Module::deserialize(&runtime.wasm, &code) }.map_err(failed)?;
                let instance_pre = runtime.linker.instantiate_pre(&module).map_err(failed)?;
                (Instantiation::Wasmtime(instance_pre), CodeMap::new(&module))
            }
            None => {
                let initial = InitialMemory::read(&rewritten)
                    .map_err(|error| LoadError::Compile(CompileError::Module(error)))?;
                (Instantiation::OwnMemory(Arc::new(initial)), CodeMap::default())
            }
        };
        Ok(LoadedModule {
            instantiation,
            wasm: runtime.wasm.clone(),
            can_be_withdrawn,
            rewritten: rewritten.into(),
            native,
            admitted: Arc::new(admitted),
            checks,
            indices,
            code_map: Arc::new(code_map),
            strike_counter: Arc::default(),
            lines: Arc::default(),
            from_cache,
        })
    }

    /// Returns the bytes of the rewritten module that [`Self::load`] compiles, with its run-time checks.
    ///
    /// # Errors
    /// The module cannot be rewritten.
    pub fn rewritten(&self, admitted: &Admitted) -> Result<Vec<u8>, LoadError> {
        rewritten(admitted, self.checks(admitted, false)).map(|(module, _)| module.bytes)
    }

    /// Returns the bytes of the rewritten module that [`Self::load_suspendable`] compiles.
    ///
    /// # Errors
    /// The module cannot be rewritten.
    pub fn rewritten_suspendable(&self, admitted: &Admitted) -> Result<Vec<u8>, LoadError> {
        rewritten(admitted, self.checks(admitted, true)).map(|(module, _)| module.bytes)
    }

    pub(crate) fn spaces(&self) -> &Arc<Spaces> {
        &self.spaces
    }

    /// Sets wasmtime's own checks so that they never end a call.
    pub(crate) fn disable_wasmtime_checks<T>(&self, store: &mut wasmtime::Store<T>) -> wasmtime::Result<()> {
        match self.options.wasmtime_check {
            Some(WasmtimeCheck::Fuel) => store.set_fuel(u64::MAX)?,
            // The epoch is never incremented.
            Some(WasmtimeCheck::Epochs) => store.set_epoch_deadline(1),
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

/// Rewrites a module: adds the loop over a batch, and the checks if there are any. Returns the new module and the
/// layout of its function indices.
pub(crate) fn rewritten(
    admitted: &Admitted,
    checks: Checks,
) -> Result<(RewrittenModule, FunctionIndices), LoadError> {
    let failed = |error: &dyn std::fmt::Display| LoadError::Compile(CompileError::Module(error.to_string()));
    let limits = admitted.limits();
    // With slices only there is no allowance, so more fuel can be charged before it is used.
    let ahead = if checks == Checks::SliceOnly {
        limits.check_interval
    } else {
        limits.packet.constant / AHEAD_DIVISOR
    };
    let rules = ChargeRules {
        exact: matches!(checks, Checks::Charged { exact: true, .. }),
        ahead_max: limits.check_interval.min(ahead).max(1),
        loop_max: limits.check_interval,
        expensive_min: EXPENSIVE_MIN,
    };
    let (costs, environment) = (CostTable::standard(), admitted.environment());
    let plan = charge::plan(admitted.module(), admitted.analysis(), &costs, &environment, rules)
        .map_err(|error| failed(&error))?;
    let task = RewriteTask {
        module: admitted.module(),
        facts: admitted.info(),
        values: admitted.values(),
        plan: &plan,
        limits,
        costs: &costs,
        environment: &environment,
        checks,
    };
    let module = rewrite::rewrite(&task).map_err(|error| failed(&error))?;
    let imported = u32::try_from(plan.imports.len()).unwrap_or(u32::MAX);
    let functions = admitted.info().functions;
    let added = u32::from(checks != Checks::None) + u32::from(admitted.info().stream_function.is_some());
    Ok((module, FunctionIndices { imported, functions, added }))
}

/// An admitted module with its code, which is not loaded yet.
pub struct ModuleCode {
    pub(crate) admitted: Admitted,
    pub(crate) compiled: CompiledModule,
    /// True if the verified code is that of an object file of others.
    pub(crate) is_given: bool,
}

impl std::fmt::Debug for ModuleCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModuleCode").field("is_given", &self.is_given).finish_non_exhaustive()
    }
}

/// A module's compiled code, and the facts that are needed to run it.
pub(crate) struct CompiledModule {
    /// Cranelift's code; `None` for a module that runs in verified code alone.
    pub(crate) code: Option<Vec<u8>>,
    /// The rewritten module, which LLVM can compile later.
    pub(crate) rewritten: Vec<u8>,
    pub(crate) native: NativeSlot,
    pub(crate) checks: Checks,
    pub(crate) indices: FunctionIndices,
    pub(crate) from_cache: bool,
}

/// The way in which instances of a module get their memory.
#[derive(Clone)]
pub(crate) enum Instantiation {
    /// wasmtime makes an instance with Cranelift's code.
    Wasmtime(InstancePre<HostState>),
    /// The host makes the memory, for a module that runs in verified code alone.
    OwnMemory(Arc<InitialMemory>),
}

/// A compiled module that can be instantiated any number of times. All of its instances share one count of strikes.
#[derive(Clone)]
pub struct LoadedModule {
    pub(crate) instantiation: Instantiation,
    wasm: wasmtime::Engine,
    /// True if the verified code [can be withdrawn](crate::CodeWithdrawal).
    pub(crate) can_be_withdrawn: bool,
    pub(crate) rewritten: Arc<[u8]>,
    pub(crate) native: NativeSlot,
    pub(crate) admitted: Arc<Admitted>,
    pub(crate) checks: Checks,
    pub(crate) indices: FunctionIndices,
    pub(crate) code_map: Arc<CodeMap>,
    pub(crate) strike_counter: Arc<StrikeCounter>,
    /// The lines of the author's source, once they have been read.
    pub(crate) lines: Arc<OnceLock<SourceLines>>,
    from_cache: bool,
}

impl LoadedModule {
    /// Returns the admitted module.
    pub fn admitted(&self) -> &Admitted {
        &self.admitted
    }

    /// Returns the admitted module, which this value shares with its instances.
    pub fn shared_admitted(&self) -> Arc<Admitted> {
        Arc::clone(&self.admitted)
    }

    /// Returns the wasmtime engine that the code is for.
    pub(crate) fn runtime(&self) -> &wasmtime::Engine {
        &self.wasm
    }

    /// Returns the memory ranges of the code.
    pub(crate) fn code_ranges(&self) -> Vec<std::ops::Range<*const u8>> {
        let native = self.native.code().map(|module| module.code.executable());
        let compiled = match &self.instantiation {
            Instantiation::Wasmtime(pre) => Some(pre.module().image_range()),
            Instantiation::OwnMemory(_) => None,
        };
        compiled.into_iter().chain(native).collect()
    }

    /// Returns true if the module's calls can be suspended.
    pub fn is_suspendable(&self) -> bool {
        self.checks.has_suspendable_calls()
    }

    /// Returns whether the code came from the cache.
    pub fn is_from_cache(&self) -> bool {
        self.from_cache
    }
}

/// Returns the wasmtime configuration for modules whose functions may be inlined, or for other modules.
fn config(spaces: &Arc<Spaces>, inlining: bool) -> Config {
    let mut config = Config::new();
    config
        .with_host_memory(Arc::new(SpaceCreator(Arc::clone(spaces))))
        .allocation_strategy(InstanceAllocationStrategy::OnDemand)
        .memory_reservation(RESERVED as u64)
        .memory_guard_size(GUARD as u64)
        .memory_may_move(false)
        .guard_before_linear_memory(false)
        .memory_init_cow(false)
        .signals_based_traps(true)
        .wasm_branch_hinting(true)
        .wasm_backtrace_max_frames(NonZeroUsize::new(1))
        .native_unwind_info(false)
        .wasm_memory64(false)
        .wasm_multi_memory(false)
        .wasm_relaxed_simd(false)
        .wasm_tail_call(false)
        // The threads proposal has the atomic reads that the loader inserts. Admission refuses modules with its instructions.
        .wasm_threads(true)
        .wasm_multi_value(true)
        .max_wasm_stack(usize::try_from(STACK_MAX.0).unwrap_or(usize::MAX))
        .async_stack_size(usize::try_from(STACK_MAX.0).unwrap_or(usize::MAX).saturating_add(HOST_STACK));
    #[cfg(feature = "cranelift")]
    config.cranelift_opt_level(wasmtime::OptLevel::Speed).compiler_inlining(if inlining {
        wasmtime::Inlining::Yes
    } else {
        wasmtime::Inlining::No
    });
    #[cfg(not(feature = "cranelift"))]
    let _ = inlining;
    config
}

/// Runs the compiler child. The child confines itself. It then reads a byte from standard input that states whether
/// functions may be inlined, and after it a rewritten module. It writes the code and a digest of the code to standard
/// output.
///
/// # Errors
/// The compiler's error, or a failed read or write.
#[cfg(feature = "cranelift")]
pub fn compile_child() -> Result<(), CompileError> {
    cranelift::run_child(|inlining| config(&Arc::default(), inlining))
}

/// Fails: this program was built without Cranelift.
///
/// # Errors
/// Always.
#[cfg(not(feature = "cranelift"))]
pub fn compile_child() -> Result<(), CompileError> {
    Err(CompileError::Module(NO_COMPILER.to_owned()))
}

/// Becomes clang: confines the calling process, and replaces it by clang, which reads LLVM IR from standard input and writes
/// an object file to standard output. Returns only if that fails.
///
/// # Errors
/// clang is not installed, or cannot be executed.
pub fn compile_llvm_child() -> Result<Infallible, CompileError> {
    clang::run_child(CLANG_ARGUMENTS)
}

/// Becomes clang, as [`compile_llvm_child`] does, which writes its version to standard output.
///
/// # Errors
/// As [`compile_llvm_child`].
pub fn llvm_version_child() -> Result<Infallible, CompileError> {
    clang::run_child(clang::VERSION_ARGUMENTS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Instance;

    /// wasmtime ignores a memory creator in some configurations without an error. Mapping packets into a memory that weir
    /// did not create would overwrite foreign memory, so an instance with such a memory is refused.
    #[test]
    fn an_engine_that_does_not_use_weirs_address_space_is_refused() {
        let mut engine = Engine::new(EngineOptions::default(), None).unwrap();
        let wasm =
            wasmtime::Engine::new(config(&Arc::default(), true).memory_guard_size(GUARD as u64)).unwrap();
        engine.with_inlining = Runtime { linker: Linker::new(&wasm), wasm };
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
