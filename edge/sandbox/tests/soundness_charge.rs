//! The meter charges at least what ran, also for modules without a bound, which the meter is for.
//!
//! A module is rewritten twice: as a metered module, and with every basic block charged separately. Both versions run
//! side by side, with host functions that return the same.

use crate::oracle::generate::{self, loops};
use crate::oracle::plain::{PACKETS, fill};
use crate::oracle::space::{Creator, GUARD, RESERVED, Shown};
use std::sync::Arc;
use wasmtime::{Config, Engine, Instance, Linker, Module, Store, Val};
use weir_admission::{Admitted, CalibratedProfile, Profile, Tier};
use weir_sandbox::{CheckMode, EngineOptions};
use weir_units::Nanos;

/// The allowance of a call, in fuel; a call that is charged more is aborted.
const FUEL: i64 = 3_000_000;

/// Fuel per nanosecond without a calibration.
const FUEL_PER_NANOSECOND: u64 = 4;

struct Runner {
    engine: Engine,
    linker: Linker<()>,
    shown: Shown,
}

/// The end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// It returned, and was charged this much.
    With(i64),
    /// It was aborted, or trapped.
    Early,
}

impl Runner {
    fn new() -> Self {
        let shown = Shown::new();
        let mut config = Config::new();
        config
            .with_host_memory(Arc::new(Creator { shown: Some(shown.clone()), most: 1 << 20 }))
            .memory_reservation(RESERVED as u64)
            .memory_guard_size(GUARD as u64)
            .memory_may_move(false)
            .guard_before_linear_memory(false)
            .memory_init_cow(false)
            .wasm_threads(true);
        let engine = Engine::new(&config).unwrap();
        let mut linker = Linker::new(&engine);
        linker
            .func_wrap("weir", "limit", || -> wasmtime::Result<()> {
                Err(wasmtime::Error::msg("no fuel left"))
            })
            .unwrap();
        linker.func_wrap("weir", "emit", |_: i32, _: i32, _: i32, _: i64| 0_i32).unwrap();
        linker.func_wrap("weir", "patch", |_: i32, _: i32, _: i32, _: i32, _: i64| 0_i32).unwrap();
        linker.func_wrap("weir", "send", |_: i32, _: i32, _: i32, _: i64| 0_i32).unwrap();
        linker.func_wrap("weir", "keep", |_: i32, _: i64| 0_i32).unwrap();
        linker.func_wrap("weir", "release", |_: i32| 0_i32).unwrap();
        linker.func_wrap("weir", "publish", |_: i32, _: i32, _: i32| 0_i32).unwrap();
        linker.func_wrap("weir", "find", |_: i32, at: i32, len: i32, _: i64| i64::from(at ^ len)).unwrap();
        linker
            .func_wrap("weir", "hash", |at: i32, len: i32, _: i64, _: i64| {
                i64::from(at) * 31 + i64::from(len)
            })
            .unwrap();
        linker.func_wrap("weir", "digest", |_: i32, _: i32, _: i32, _: i32, _: i64| 0_i32).unwrap();
        for name in ["hmac", "hkdf", "aead_open"] {
            linker.func_wrap("weir", name, |_: i32, _: i32| 0_i32).unwrap();
        }
        linker.func_wrap("weir", "aes_block", |_: i32| 0_i32).unwrap();
        linker.func_wrap("weir", "log", |_: i32, _: i32, _: i32| 0_i32).unwrap();
        linker.func_wrap("weir", "param_int", |_: i32| 9_i64).unwrap();
        linker.func_wrap("weir", "param_bytes", |_: i32, _: i32, _: i32| 3_i32).unwrap();
        Self { engine, linker, shown }
    }

    /// Calls the functions that take no packets, one after the other, until one ends early.
    fn run(&self, bytes: &[u8], seed: u64) -> Vec<Ended> {
        fill(&self.shown, seed);
        let module = Module::new(&self.engine, bytes).unwrap();
        let mut store = Store::new(&self.engine, ());
        let instance = self.linker.instantiate(&mut store, &module).unwrap();
        let mut ends = Vec::new();
        let now = Val::I64(1_700_000_000_000_000_000);
        for (name, arguments) in [
            ("weir_enter_start", vec![]),
            ("weir_enter_tick", vec![now, Val::I64(1)]),
            ("weir_enter_tick", vec![now, Val::I64(PACKETS.into())]),
            ("weir_enter_stop", vec![now]),
        ] {
            match Self::call(&mut store, &instance, name, &arguments) {
                Some(Ended::Early) => {
                    ends.push(Ended::Early);
                    break;
                }
                ended => ends.extend(ended),
            }
        }
        ends
    }

    fn call(store: &mut Store<()>, instance: &Instance, name: &str, arguments: &[Val]) -> Option<Ended> {
        let fuel = instance.get_global(&mut *store, "weir_fuel")?;
        let function = instance.get_func(&mut *store, name)?;
        let mut results = vec![Val::I32(0); function.ty(&*store).results().len()];
        if function.call(&mut *store, arguments, &mut results).is_err() {
            return Some(Ended::Early);
        }
        let left = fuel.get(&mut *store).i64()?;
        Some(Ended::With(FUEL - left))
    }
}

#[test]
fn charges_are_never_less_than_the_executed_work() {
    let loader = |mode| {
        weir_sandbox::Engine::new(EngineOptions { check_mode: mode, ..EngineOptions::default() }, None)
            .unwrap()
    };
    let metered = loader(CheckMode::As(Tier::Metered));
    let exact = loader(CheckMode::Exact(FUEL.cast_unsigned()));
    let limit = Nanos(FUEL.cast_unsigned() / FUEL_PER_NANOSECOND);
    let profile = Profile { start: limit, tick: limit, stop: limit, ..Profile::default() };
    let terms = CalibratedProfile::from(profile);
    let runner = Runner::new();
    let (mut calls, mut unbounded, mut equal, mut aborted) = (0, 0, 0, 0);
    for seed in 0..600_u64 {
        let text = loops::module(&generate::bytes(seed, 300));
        let Ok(admitted) = Admitted::admit_by(generate::assembled(&text), &[], &terms) else { continue };
        let is_bounded = admitted.analysis().is_bounded();
        let charged = runner.run(&metered.rewritten(&admitted).unwrap(), seed);
        let used = runner.run(&exact.rewritten(&admitted).unwrap(), seed);
        for (charged, used) in charged.iter().zip(&used) {
            calls += 1;
            unbounded += usize::from(!is_bounded);
            match (charged, used) {
                (Ended::With(charged), Ended::With(used)) => {
                    assert!(charged >= used, "seed {seed}: charged {charged}, and used {used}\n{text}");
                    equal += usize::from(charged == used);
                }
                (Ended::Early, _) => aborted += 1,
                (Ended::With(charged), Ended::Early) => {
                    panic!("seed {seed}: charged {charged}, and by blocks it is aborted\n{text}")
                }
            }
        }
    }
    println!(
        "{calls} calls, {unbounded} of modules without a bound, {equal} charged exactly, {aborted} ended early"
    );
    assert!(calls > 1_000 && unbounded > 500 && equal > 50 && aborted > 20 && aborted < calls / 2);
}
