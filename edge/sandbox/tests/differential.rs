//! Cranelift's code, LLVM's verified code and an interpreter compute the same: results, memory, globals, traps and fuel.
//!
//! The modules are arbitrary ones of wasm-smith. They are rewritten as suspendable ones, so that no call is endless:
//! it ends with its first slice.

use crate::llvm::{LlvmInstance, LlvmModule, kind};
use crate::oracle::generate;
use crate::oracle::space::{Creator, GUARD, RESERVED};
use crate::suite::adapters::{Adapters, adapter_name, value_name, with_adapters};
use crate::suite::{as_module_of_weir, bits};
use arbitrary::Unstructured;
use std::collections::BTreeMap;
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wasmparser::{FuncType, ValType};
use wasmtime::{Config, Engine, Instance, Linker, Module, ResourceLimiter, Store, Val};
use weir_admission::{Admitted, Tier};
use weir_lower::IsolatedAccesses;
use weir_sandbox::{CheckMode, EngineOptions};

/// The fuel of a call.
const FUEL: i64 = 100_000;
/// The calls of each function.
const CALLS: usize = 6;
/// The most memory of a module.
const MEMORY: u64 = 1 << 20;

/// The end of a call, with the state that it leaves.
#[derive(Debug, PartialEq)]
struct State {
    /// The results, or the kind of the trap.
    outcome: Result<Vec<String>, String>,
    /// The mutable globals by index: values bit by bit. Of vectors the low half.
    globals: BTreeMap<u32, u64>,
    /// The size of the memory, and a hash of its contents.
    memory: (usize, u64),
}

/// A module that runs somewhere.
trait Running {
    /// Sets a global, by its export.
    fn set(&mut self, global: &str, value: &Val);
    /// Calls a function without parameters and results, by its export. An error is the kind of the trap.
    fn enter(&mut self, function: &str) -> Result<(), String>;
    /// The value of a mutable global of this type, by its export.
    fn get(&mut self, global: &str, ty: ValType) -> Val;
    /// The words of the mutable globals.
    fn globals(&mut self) -> BTreeMap<u32, u64>;
    fn memory(&mut self) -> (usize, u64);
}

/// Calls a function through its adapter.
fn call(running: &mut dyn Running, name: &str, ty: &FuncType, arguments: &[Val]) -> State {
    running.set("weir_fuel", &Val::I64(FUEL));
    for (index, (argument, ty)) in (1..).zip(arguments.iter().zip(ty.params())) {
        running.set(&value_name(index, *ty), argument);
    }
    let outcome = running.enter(&adapter_name(name));
    let outcome = outcome
        .map(|()| ty.results().iter().map(|ty| bits(&running.get(&value_name(0, *ty), *ty))).collect());
    State { outcome, globals: running.globals(), memory: running.memory() }
}

fn hash(memory: &[u8]) -> (usize, u64) {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(memory);
    (memory.len(), hasher.finish())
}

/// The name under which the loader exports a mutable global.
fn global_name(index: u32) -> String {
    format!("weir_global_{index}")
}

struct Ceiling;

impl ResourceLimiter for Ceiling {
    fn memory_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired as u64 <= MEMORY)
    }

    fn table_growing(&mut self, _: usize, _: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(true)
    }
}

struct InCranelift {
    store: Store<Ceiling>,
    instance: Instance,
    globals: Vec<u32>,
}

impl Running for InCranelift {
    fn set(&mut self, global: &str, value: &Val) {
        let Self { store, instance, .. } = self;
        instance.get_global(&mut *store, global).unwrap().set(&mut *store, *value).unwrap();
    }

    fn enter(&mut self, function: &str) -> Result<(), String> {
        let function = self.instance.get_func(&mut self.store, function).unwrap();
        function.call(&mut self.store, &[], &mut []).map_err(|error| kind(&error).to_owned())
    }

    fn get(&mut self, global: &str, _: ValType) -> Val {
        let Self { store, instance, .. } = self;
        instance.get_global(&mut *store, global).unwrap().get(&mut *store)
    }

    fn globals(&mut self) -> BTreeMap<u32, u64> {
        let indices = self.globals.clone();
        indices
            .into_iter()
            .map(|index| (index, word_of(&self.get(&global_name(index), ValType::I32))))
            .collect()
    }

    fn memory(&mut self) -> (usize, u64) {
        hash(self.instance.get_memory(&mut self.store, "memory").unwrap().data(&self.store))
    }
}

fn word_of(value: &Val) -> u64 {
    match value {
        Val::I32(value) => value.cast_unsigned().into(),
        Val::I64(value) => value.cast_unsigned(),
        Val::F32(bits) => (*bits).into(),
        Val::F64(bits) => *bits,
        #[expect(clippy::cast_possible_truncation, reason = "the low half")]
        Val::V128(value) => value.as_u128() as u64,
        other => panic!("{other:?}"),
    }
}

/// The instance is dropped before its memory's store.
struct InLlvm {
    instance: LlvmInstance,
    store: Store<Ceiling>,
    in_wasmtime: Instance,
}

impl Running for InLlvm {
    fn set(&mut self, global: &str, value: &Val) {
        self.instance.set(global, value);
    }

    fn enter(&mut self, function: &str) -> Result<(), String> {
        self.instance.enter(&mut self.store, function, None).unwrap()
    }

    fn get(&mut self, global: &str, ty: ValType) -> Val {
        self.instance.get(global, ty).unwrap()
    }

    fn globals(&mut self) -> BTreeMap<u32, u64> {
        self.instance.globals()
    }

    fn memory(&mut self) -> (usize, u64) {
        hash(self.in_wasmtime.get_memory(&mut self.store, "memory").unwrap().data(&self.store))
    }
}

struct Interpreted {
    store: wasmi::Store<wasmi::StoreLimits>,
    instance: wasmi::Instance,
    globals: Vec<u32>,
}

/// The error of the host function that is called when a slice is used up.
#[derive(Debug, thiserror::Error)]
#[error("limit")]
struct Limit;

impl wasmi::errors::HostError for Limit {}

impl Interpreted {
    fn new(bytes: &[u8], globals: Vec<u32>) -> Self {
        let engine = wasmi::Engine::default();
        let module = wasmi::Module::new(&engine, bytes).unwrap_or_else(|error| panic!("{error}"));
        let memory = usize::try_from(MEMORY).unwrap();
        let limits = wasmi::StoreLimitsBuilder::new().memory_size(memory).build();
        let mut store = wasmi::Store::new(&engine, limits);
        store.limiter(|limits| limits);
        let mut linker = wasmi::Linker::new(&engine);
        linker
            .func_wrap("weir", "suspend", |_: i64| -> Result<i64, wasmi::Error> {
                Err(wasmi::Error::host(Limit))
            })
            .unwrap();
        let instance = linker.instantiate_and_start(&mut store, &module).unwrap();
        Self { store, instance, globals }
    }
}

impl Running for Interpreted {
    fn set(&mut self, global: &str, value: &Val) {
        let global = self.instance.get_global(&self.store, global).unwrap();
        global.set(&mut self.store, to_wasmi(value)).unwrap();
    }

    fn enter(&mut self, function: &str) -> Result<(), String> {
        let function = self.instance.get_func(&self.store, function).unwrap();
        function.call(&mut self.store, &[], &mut []).map_err(|error| trap_of(&error).to_owned())
    }

    fn get(&mut self, global: &str, _: ValType) -> Val {
        from_wasmi(&self.instance.get_global(&self.store, global).unwrap().get(&self.store))
    }

    fn globals(&mut self) -> BTreeMap<u32, u64> {
        let indices = self.globals.clone();
        indices
            .into_iter()
            .map(|index| (index, word_of(&self.get(&global_name(index), ValType::I32))))
            .collect()
    }

    fn memory(&mut self) -> (usize, u64) {
        hash(self.instance.get_memory(&self.store, "memory").unwrap().data(&self.store))
    }
}

fn to_wasmi(value: &Val) -> wasmi::Val {
    match value {
        Val::I32(value) => wasmi::Val::I32(*value),
        Val::I64(value) => wasmi::Val::I64(*value),
        Val::F32(bits) => wasmi::Val::F32(wasmi::F32::from_bits(*bits)),
        Val::F64(bits) => wasmi::Val::F64(wasmi::F64::from_bits(*bits)),
        Val::V128(value) => wasmi::Val::V128(value.as_u128().into()),
        other => panic!("{other:?}"),
    }
}

fn from_wasmi(value: &wasmi::Val) -> Val {
    match value {
        wasmi::Val::I32(value) => Val::I32(*value),
        wasmi::Val::I64(value) => Val::I64(*value),
        wasmi::Val::F32(value) => Val::F32(value.to_bits()),
        wasmi::Val::F64(value) => Val::F64(value.to_bits()),
        wasmi::Val::V128(value) => Val::V128(value.as_u128().into()),
        other => panic!("{other:?}"),
    }
}

/// The kind of a trap, with the same names as in machine code.
fn trap_of(error: &wasmi::Error) -> &'static str {
    use wasmi::TrapCode;
    match error.as_trap_code() {
        None => "limit",
        Some(TrapCode::UnreachableCodeReached) => "unreachable",
        Some(TrapCode::MemoryOutOfBounds) => "out of bounds",
        Some(
            TrapCode::IntegerDivisionByZero | TrapCode::IntegerOverflow | TrapCode::BadConversionToInteger,
        ) => "arithmetic",
        Some(TrapCode::TableOutOfBounds | TrapCode::IndirectCallToNull | TrapCode::BadSignature) => {
            "indirect call"
        }
        Some(TrapCode::StackOverflow) => STACK_OVERFLOW,
        Some(other) => panic!("{other:?}"),
    }
}

const STACK_OVERFLOW: &str = "stack overflow";

/// A module without imports, all of whose functions are exported; `None` if the choices do not suffice.
fn generated(input: &[u8]) -> Option<(Vec<u8>, Adapters)> {
    let mut choices = Unstructured::new(input);
    let has_vectors = choices.ratio(1_u8, 2).ok()?;
    let has_bulk_memory = choices.ratio(1_u8, 8).ok()?;
    // Functions with several results are not lowered, but blocks are.
    let has_multi_value = choices.ratio(1_u8, 6).ok()?;
    // Functions that trap at once show little.
    let disallow_traps = choices.ratio(1_u8, 2).ok()?;
    let config = wasm_smith::Config {
        max_imports: 0,
        min_funcs: 5,
        min_types: 4,
        max_memories: 1,
        min_memories: 1,
        max_memory32_bytes: MEMORY,
        max_tables: 1,
        max_table_elements: 100,
        max_instructions: 200,
        export_everything: true,
        allow_start_export: false,
        bulk_memory_enabled: has_bulk_memory,
        disallow_traps,
        // Results are compared bit by bit.
        canonicalize_nans: true,
        reference_types_enabled: false,
        simd_enabled: has_vectors,
        multi_value_enabled: has_multi_value,
        saturating_float_to_int_enabled: true,
        sign_extension_ops_enabled: true,
        exceptions_enabled: false,
        gc_enabled: false,
        memory64_enabled: false,
        custom_page_sizes_enabled: false,
        relaxed_simd_enabled: false,
        shared_everything_threads_enabled: false,
        tail_call_enabled: false,
        threads_enabled: false,
        wide_arithmetic_enabled: false,
        extended_const_enabled: false,
        compact_imports_enabled: false,
        ..wasm_smith::Config::default()
    };
    let module = wasm_smith::Module::new(config, &mut choices).ok()?;
    with_adapters(&as_module_of_weir(&module.to_bytes())?)
}

#[derive(Debug, Default)]
struct Tally {
    modules: u64,
    refused: u64,
    /// Modules that cannot be lowered.
    unsupported: u64,
    calls: u64,
    traps: BTreeMap<String, u64>,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.modules += other.modules;
        self.refused += other.refused;
        self.unsupported += other.unsupported;
        self.calls += other.calls;
        other.traps.into_iter().for_each(|(trap, count)| *self.traps.entry(trap).or_default() += count);
    }
}

struct Runner {
    engine: Engine,
    linker: Linker<Ceiling>,
    loader: weir_sandbox::Engine,
    tally: Tally,
}

impl Runner {
    fn new() -> Self {
        let mut config = Config::new();
        config
            .with_host_memory(Arc::new(Creator { shown: None, most: usize::try_from(MEMORY).unwrap() }))
            .memory_reservation(RESERVED as u64)
            .memory_guard_size(GUARD as u64)
            .memory_may_move(false)
            .guard_before_linear_memory(false)
            .memory_init_cow(false);
        let engine = Engine::new(&config).unwrap();
        let mut linker = Linker::new(&engine);
        let limit = |_: i64| -> wasmtime::Result<i64> { Err(wasmtime::Error::msg("limit")) };
        linker.func_wrap("weir", "suspend", limit).unwrap();
        let options = EngineOptions { check_mode: CheckMode::As(Tier::Proved), ..EngineOptions::default() };
        let loader = weir_sandbox::Engine::new(options, None).unwrap();
        Self { engine, linker, loader, tally: Tally::default() }
    }

    fn instantiate(&self, bytes: &[u8]) -> Option<(Store<Ceiling>, Instance)> {
        let module = Module::new(&self.engine, bytes).unwrap();
        let mut store = Store::new(&self.engine, Ceiling);
        store.limiter(|ceiling| ceiling);
        let instance = self.linker.instantiate(&mut store, &module).ok()?;
        Some((store, instance))
    }

    /// Compares the three with a generated module. Returns false without clang.
    fn check(&mut self, seed: u64) -> bool {
        let input = generate::bytes(seed, 6_000);
        let Some((bytes, adapters)) = generated(&input) else { return true };
        let admitted = match Admitted::admit(bytes, &[]) {
            Ok(admitted) => admitted,
            Err(_) => {
                self.tally.refused += 1;
                return true;
            }
        };
        let rewritten = self.loader.rewritten_suspendable(&admitted).unwrap();
        // Isolated accesses are rare in practice, so every other module has only such.
        let isolated = if seed.is_multiple_of(2) { IsolatedAccesses::None } else { IsolatedAccesses::All };
        let Some(module) = LlvmModule::new(&rewritten, &adapters, isolated) else { return false };
        let Ok(module) = module else {
            self.tally.unsupported += 1;
            return true;
        };
        let globals = module.mutable_globals();
        // Active data segments may be out of bounds.
        let Some((store, instance)) = self.instantiate(&rewritten) else { return true };
        let cranelift = InCranelift { store, instance, globals: globals.clone() };
        let Some((mut store, in_wasmtime)) = self.instantiate(&rewritten) else { return true };
        let instance = LlvmInstance::new(module, &mut store, &in_wasmtime);
        let llvm = InLlvm { instance, store, in_wasmtime };
        let mut running: [(&str, Box<dyn Running>); 3] = [
            ("Cranelift's code", Box::new(cranelift)),
            ("LLVM's code", Box::new(llvm)),
            ("the interpreter", Box::new(Interpreted::new(&rewritten, globals))),
        ];
        self.tally.modules += 1;
        let mut choices = Unstructured::new(&input);
        for (name, ty) in adapters.iter().filter(|(name, _)| name.as_str() != "weir_packet") {
            for _ in 0..CALLS {
                let arguments: Vec<Val> = ty.params().iter().map(|ty| argument(*ty, &mut choices)).collect();
                let states: Vec<(&str, State)> = running
                    .iter_mut()
                    .map(|(place, running)| (*place, call(running.as_mut(), name, ty, &arguments)))
                    .collect();
                self.tally.calls += 1;
                let first = &states[0].1;
                if let Err(trap) = &first.outcome {
                    *self.tally.traps.entry(trap.clone()).or_default() += 1;
                }
                // The stacks have different sizes.
                let overflows = |(_, state): &(_, State)| state.outcome == Err(STACK_OVERFLOW.to_owned());
                if states.iter().any(overflows) {
                    return true;
                }
                assert!(
                    states.iter().all(|(_, state)| state == first),
                    "seed {seed}, {name}({arguments:?}): {states:#?}"
                );
            }
        }
        true
    }
}

/// An argument: often one of the values at which results change.
fn argument(ty: ValType, choices: &mut Unstructured<'_>) -> Val {
    let word: u64 = choices.arbitrary().unwrap_or(0);
    let special = [0, 1, u64::MAX, 1 << 31, 1 << 63, 0x7fc0_0000, 0x7fa0_0000, 0x7ff8 << 48, 0x3f80_0000];
    let word = match word % 3 {
        0 => special[(word >> 8) as usize % special.len()],
        1 => word >> 40,
        _ => word,
    };
    #[expect(clippy::cast_possible_truncation, reason = "the low half")]
    let low = word as u32;
    match ty {
        ValType::I32 => Val::I32(low.cast_signed()),
        ValType::I64 => Val::I64(word.cast_signed()),
        ValType::F32 => Val::F32(low),
        ValType::F64 => Val::F64(word),
        ValType::V128 => Val::V128((u128::from(word) << 64 | u128::from(word.rotate_left(17))).into()),
        ValType::Ref(_) => unreachable!("functions with references have no adapters"),
    }
}

/// A number from the environment, for a long run.
fn given(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn both_back_ends_and_an_interpreter_compute_the_same() {
    let (first, seconds) = (given("WEIR_FIRST_SEED").unwrap_or(0), given("WEIR_SECONDS"));
    let next = AtomicU64::new(first);
    let begin = Instant::now();
    let is_over = |seed: u64| match seconds {
        Some(seconds) => begin.elapsed() > Duration::from_secs(seconds),
        None => seed >= first + 250,
    };
    let work = || {
        let mut runner = Runner::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if is_over(seed) || !runner.check(seed) {
                return runner.tally;
            }
        }
    };
    let mut tally = Tally::default();
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().for_each(|worker| tally.add(worker.join().unwrap()));
    });
    println!("{tally:?}");
    // Without clang there are none.
    let Tally { modules, calls, traps, .. } = &tally;
    assert!(*modules == 0 || *modules > 120 && *calls > 3_000 && traps.len() > 3, "{tally:?}");
}
