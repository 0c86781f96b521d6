//! The cost of modules in sandbox processes: of calls, and of starts. The part `process` of the benchmark.

use crate::error::{Context, LabError};
use crate::module::Module;
use crate::packets::blank_batch;
use crate::paths;
use crate::statistics::measure_all_in_turn;
use crate::table::{Table, yes_or_no};
use std::hint::black_box;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Instant;
use weir_abi::{BATCH_BYTES, BATCH_PACKETS, DESCRIPTORS_BASE};
use weir_sandbox::{
    Area, BatchInput, Call, CallStep, Engine, EngineOptions, FuelSlice, GroupSetting, Instance, Launcher,
    RemoteInstance, Settings, Spawner, WriteRights,
};
use weir_units::Nanos;
use weir_wire::WriteFields;

/// The number of calls in a round.
const CALLS: u32 = 500;
/// The least number of starts of each kind.
const STARTS_MIN: usize = 40;
/// The promised limit, in milliseconds, of the time that namespaces, a user, an empty root and a control group add to a start.
const ISOLATION_MILLIS_MAX: f64 = 5.0;

/// The tables of the wall-clock time of calls and starts. Wall-clock time is measured because processor time does not
/// include waiting for the other process.
pub fn table(rounds: usize) -> Result<String, LabError> {
    let engine = Engine::new(EngineOptions::default(), None)?;
    let descriptors = blank_batch()?;
    let area = Area { fd: descriptors.as_fd(), offset: 0, len: BATCH_BYTES, is_fixed: false };
    let launcher = Launcher::Direct(paths::built_weir()?);
    let mut table = Table::new(
        "a call for | in this process, ns | in a sandbox process, ns | quartiles | more, ns a packet",
    );
    for (what, packets) in [("one packet", 1), ("64 packets", BATCH_PACKETS)] {
        let mask = u64::MAX >> (BATCH_PACKETS - packets);
        let call = Call::Batch(BatchInput { descriptors: DESCRIPTORS_BASE, mask, first: 0 });
        let loaded = engine.load_suspendable(Module::empty()?.admit()?)?;
        let mut local = Instance::start(&engine, &loaded)?;
        local.map_descriptors(area).context("mapping descriptors")?;
        let mut remote = start(&launcher, &engine)?;
        remote.map_descriptors(area).context("mapping descriptors")?;
        let [local_ns, remote_ns] = measure_all_in_turn(
            rounds,
            [
                Box::new(|| Ok(wall_nanos_per_call(|| local.begin(call, FuelSlice::UNLIMITED)))),
                Box::new(|| Ok(wall_nanos_per_call(|| remote.begin(call, FuelSlice::UNLIMITED)))),
            ],
        )?;
        if let Some(fault) = remote.faults().first() {
            return Err(LabError::failed("bench process", fault.clone()));
        }
        let packets = u32::try_from(packets).map_or(1.0, f64::from);
        let more = (remote_ns.median() - local_ns.median()) / packets;
        table.row(format_args!("{what} | {:.0} | {} | {more:.0}", local_ns.median(), remote_ns.cells(0)));
    }
    Ok(format!(
        "Medians of {rounds} rounds of {CALLS} calls of an empty module.\n\n{table}\n{}",
        starts(rounds, &engine)?
    ))
}

/// The table of the milliseconds to start a process with a module, with namespaces and without.
fn starts(rounds: usize, engine: &Engine) -> Result<Table, LabError> {
    let program = paths::built_weir()?;
    // The users of sandbox processes are in an unused range, the default of a node's configuration.
    let settings = Settings {
        first_user: 1_900_000_000,
        group: GroupSetting::Delegated,
        label: "bench".to_owned(),
        key: None,
    };
    let spawner = Arc::new(Spawner::start(&program, &settings).map_err(LabError::file(&program))?);
    let isolation = spawner.isolation();
    let [direct, isolated] = [Launcher::Direct(program), Launcher::Spawner(spawner)];
    let timed = |launcher: &Launcher| {
        let begin = Instant::now();
        let process = start(launcher, engine)?;
        let taken = begin.elapsed().as_secs_f64() * 1e3;
        drop(process);
        Ok(taken)
    };
    let [without, with] = measure_all_in_turn(
        rounds.max(STARTS_MIN),
        [Box::new(|| timed(&direct)), Box::new(|| timed(&isolated))],
    )?;
    let more = with.median() - without.median();
    let mut table = Table::new("a start, isolated by | ms | quartiles | more, ms | at most 5 ms more");
    table.row(format_args!("seccomp | {}", without.cells(1)));
    table.row(format_args!(
        "{isolation} | {} | {more:.1} | {}",
        with.cells(1),
        yes_or_no(more <= ISOLATION_MILLIS_MAX)
    ));
    Ok(table)
}

/// Starts a sandbox process with an empty module.
fn start(launcher: &Launcher, engine: &Engine) -> Result<RemoteInstance, LabError> {
    let writes = Arc::new(WriteRights::new(WriteFields::ALL));
    let admitted = Module::empty()?.admit()?;
    let code = engine.compile(admitted, true, &mut Nanos(0))?;
    Ok(RemoteInstance::start(launcher, engine, code, &[], (None, &writes), &mut Nanos(0))?)
}

/// The mean wall-clock time of a call, in nanoseconds.
fn wall_nanos_per_call(mut call: impl FnMut() -> CallStep) -> f64 {
    let begin = Instant::now();
    for _ in 0..CALLS {
        _ = black_box(call());
    }
    begin.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
}
