//! What it costs that a module is in a process of its own.

use crate::module::Module;
use crate::native::bytes_of;
use crate::statistics::Sample;
use crate::table::{Table, yes_or_no};
use crate::{BenchError, place};
use std::fs::File;
use std::hint::black_box;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_abi::{BATCH_BYTES, BATCH_PACKETS, DESCRIPTORS_BASE, Descriptor};
use weir_sandbox::{
    Area, Batch, Budget, Call, Engine, GroupSetting, Instance, Launcher, Options, Settings, Spawner, Step,
    Ward, WriteRights,
};
use weir_session::Admitted;
use weir_units::Nanos;
use weir_wire::WriteFields;

/// Calls of a round.
const CALLS: u32 = 500;

/// Nanoseconds of a call, on the clock: the thread that calls waits while another process works.
///
/// # Errors
/// A module cannot be run, or there is no process.
pub fn table(rounds: usize) -> Result<String, BenchError> {
    let engine = Engine::new(Options::default(), None)?;
    let descriptors = descriptors()?;
    let area = Area { fd: descriptors.as_fd(), offset: 0, len: BATCH_BYTES };
    let launcher = Launcher::Direct(place::built()?);
    let writes = Arc::new(WriteRights::new(WriteFields::ALL));
    let mut table = Table::new(&[
        "a call for",
        "in this process, ns",
        "in its own, ns",
        "quartiles",
        "more, ns a packet",
    ]);
    for (what, packets) in [("one packet", 1), ("64 packets", BATCH_PACKETS)] {
        let mask = u64::MAX >> (BATCH_PACKETS - packets);
        let call = Call::Batch(Batch { descriptors: DESCRIPTORS_BASE, mask, first: 0 });
        let loaded = engine.load_suspendable(admitted()?)?;
        let mut here = Instance::start(&engine, &loaded)?;
        here.map_descriptors(area).map_err(BenchError::Map)?;
        let mut apart =
            Ward::start(&launcher, &engine, admitted()?, &[], true, (None, &writes), &mut Nanos(0))?;
        apart.map_descriptors(area).map_err(BenchError::Map)?;
        let [mut in_this, mut in_its_own] = [(); 2].map(|()| Sample::default());
        for round in 0..=rounds {
            let taken = time(&mut || here.begin(call, Budget::WHOLE));
            let taken_apart = time(&mut || apart.begin(call, Budget::WHOLE));
            if round > 0 {
                in_this.add(taken, CALLS.into());
                in_its_own.add(taken_apart, CALLS.into());
            }
        }
        if let Some(fault) = apart.faults().first() {
            return Err(BenchError::Fault { module: "bench ward".to_owned(), fault: fault.clone() });
        }
        let quartiles = in_its_own.quartiles();
        let packets = u32::try_from(packets).map_or(1.0, f64::from);
        table.row([
            what.to_owned(),
            format!("{:.0}", in_this.median()),
            format!("{:.0}", quartiles.median),
            quartiles.spread(0),
            format!("{:.0}", (quartiles.median - in_this.median()) / packets),
        ]);
    }
    Ok(format!(
        "Medians of {rounds} rounds of {CALLS} calls of an empty module.\n\n{table}\n{}",
        starts(rounds, &engine)?
    ))
}

/// The most that namespaces, a user, an empty root and a control group may add to a start, in ms.
const PROMISE: f64 = 5.0;

/// Milliseconds to start a process, admit its module and start it there, with namespaces of its own and without, in turn.
fn starts(rounds: usize, engine: &Engine) -> Result<String, BenchError> {
    let program = place::built()?;
    // A range of users that no one has, as a node's configuration has it where nothing is said.
    let settings = Settings {
        first_user: 1_900_000_000,
        group: GroupSetting::Delegated,
        label: "bench".to_owned(),
        key: None,
    };
    let spawner = Arc::new(Spawner::start(&program, &settings).map_err(BenchError::file(&program))?);
    let isolation = spawner.isolation();
    let ways = [Launcher::Direct(program), Launcher::Spawner(spawner)];
    let writes = Arc::new(WriteRights::new(WriteFields::ALL));
    let mut samples = [(); 2].map(|()| Sample::default());
    for round in 0..=rounds.max(STARTS) {
        for (launcher, sample) in ways.iter().zip(&mut samples) {
            let admitted = admitted()?;
            let begin = Instant::now();
            let ward = Ward::start(launcher, engine, admitted, &[], true, (None, &writes), &mut Nanos(0))?;
            if round > 0 {
                sample.push(begin.elapsed().as_secs_f64() * 1e3);
            }
            drop(ward);
        }
    }
    let [without, with] = samples.map(|sample| sample.quartiles());
    let more = with.median - without.median;
    let kept = yes_or_no(more <= PROMISE);
    let mut table = Table::new(&["a start, isolated by", "ms", "quartiles", "more, ms", "at most 5 ms more"]);
    let row = ["seccomp", &format!("{:.1}", without.median), &without.spread(1), "", ""];
    table.row(row.map(str::to_owned));
    let row = [
        &isolation.to_string(),
        &format!("{:.1}", with.median),
        &with.spread(1),
        &format!("{more:.1}"),
        kept.as_str(),
    ];
    table.row(row.map(str::to_owned));
    Ok(table.to_string())
}

/// Starts of each kind at least.
const STARTS: usize = 40;

fn time(call: &mut dyn FnMut() -> Step) -> Duration {
    let begin = Instant::now();
    for _ in 0..CALLS {
        _ = black_box(call());
    }
    begin.elapsed()
}

fn admitted() -> Result<Admitted, BenchError> {
    Admitted::admit(Module::empty()?.wasm, &[]).map_err(|refusal| BenchError::Refused {
        module: "bench ward".to_owned(),
        refusal: Box::new(refusal),
    })
}

/// A batch of descriptors that say nothing.
fn descriptors() -> Result<File, BenchError> {
    let scratch = place::scratch();
    std::fs::create_dir_all(&scratch).map_err(BenchError::file(&scratch))?;
    let mut file = tempfile::tempfile_in(&scratch).map_err(BenchError::file(&scratch))?;
    let all = [Descriptor::default(); BATCH_PACKETS];
    file.write_all(bytes_of(&all)).map_err(BenchError::file(&scratch))?;
    Ok(file)
}
