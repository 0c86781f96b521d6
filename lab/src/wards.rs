//! What it costs that a module is in a process of its own.

use crate::module::Module;
use crate::native::bytes_of;
use crate::statistics::Sample;
use crate::table::Table;
use crate::{BenchError, place};
use std::fs::File;
use std::hint::black_box;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_abi::{BATCH_BYTES, BATCH_PACKETS, DESCRIPTORS_BASE, Descriptor};
use weir_sandbox::{Area, Batch, Budget, Call, Engine, Instance, Options, Step, Ward, WriteRights};
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
    let program = place::built()?;
    let writes = Arc::new(WriteRights::new(WriteFields::ALL));
    let mut table = Table::new(&[
        "a call for",
        "in this process, ns",
        "in its own, ns",
        "quartiles",
        "more, ns a packet",
    ]);
    let mut started = Sample::default();
    for (what, packets) in [("one packet", 1), ("64 packets", BATCH_PACKETS)] {
        let mask = u64::MAX >> (BATCH_PACKETS - packets);
        let call = Call::Batch(Batch { descriptors: DESCRIPTORS_BASE, mask, first: 0 });
        let loaded = engine.load_suspendable(admitted()?)?;
        let mut here = Instance::start(&engine, &loaded)?;
        here.map_descriptors(area).map_err(BenchError::Map)?;
        let begin = Instant::now();
        let mut apart =
            Ward::start(&program, &engine, admitted()?, &[], true, (None, &writes), &mut Nanos(0))?;
        started.push(begin.elapsed().as_secs_f64() * 1e3);
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
            format!("{:.0}–{:.0}", quartiles.lower, quartiles.upper),
            format!("{:.0}", (quartiles.median - in_this.median()) / packets),
        ]);
    }
    Ok(format!(
        "Medians of {rounds} rounds of {CALLS} calls of an empty module. To start such a process, admit its module and start it there took {:.0} ms.\n\n{table}",
        started.median()
    ))
}

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
