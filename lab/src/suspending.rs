//! What it costs that a call can be suspended, and what a suspension costs.

use crate::contest::Clock;
use crate::figure::guest;
use crate::module::Module;
use crate::native::{bytes_of, thread_time};
use crate::statistics::Sample;
use crate::table::Table;
use crate::{BenchError, place};
use std::fs::File;
use std::hint::black_box;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use weir_abi::{BATCH_BYTES, BATCH_PACKETS, Descriptor};
use weir_sandbox::{Area, Batch, Budget, Call, Engine, Instance, Options, Step};
use weir_session::Admitted;

/// Turns of the loop that is suspended; a turn is a few units of fuel, and all of them are less than a packet may take.
const TURNS: u32 = 400_000;
/// Fuel of each slice.
const SLICE: u64 = 20_000;
/// Calls of a round.
const CALLS: u32 = 20_000;

/// Nanoseconds of a call and of a suspension.
///
/// # Errors
/// A module cannot be run.
pub fn tables(rounds: usize) -> Result<String, BenchError> {
    let engine = Engine::new(Options::default(), None)?;
    let descriptors = Descriptors::new()?;
    let empty = Module::empty()?.wasm;
    let busy = guest::busy(TURNS).map_err(|error| failed(&error.to_string()))?;
    let mut plain = descriptors.start(&engine, empty.clone(), false)?;
    let mut suspendable = descriptors.start(&engine, empty, true)?;
    let mut whole = descriptors.start(&engine, busy.clone(), true)?;
    let mut sliced = descriptors.start(&engine, busy, true)?;
    let [mut plain_ns, mut suspendable_ns, mut suspension_ns] = std::array::from_fn(|_| Sample::default());
    let mut suspensions = 0;
    for round in 0..=rounds {
        let begin = thread_time();
        for _ in 0..CALLS {
            plain.run(ONE);
        }
        let plain_time = thread_time().saturating_sub(begin);
        let begin = thread_time();
        for _ in 0..CALLS {
            _ = black_box(suspendable.begin(Call::Batch(ONE), Budget::WHOLE));
        }
        let suspendable_time = thread_time().saturating_sub(begin);
        let begin = thread_time();
        _ = black_box(whole.begin(Call::Batch(ONE), Budget::WHOLE));
        let whole_time = thread_time().saturating_sub(begin);
        let begin = thread_time();
        let mut times = 0u32;
        let slice = Budget { fuel: SLICE, until: None };
        let mut step = sliced.begin(Call::Batch(ONE), slice);
        while step == Step::Suspended {
            times += 1;
            step = sliced.resume(slice);
        }
        let sliced_time = thread_time().saturating_sub(begin);
        if round > 0 {
            plain_ns.add(plain_time, CALLS.into());
            suspendable_ns.add(suspendable_time, CALLS.into());
            suspension_ns
                .push((sliced_time.as_secs_f64() - whole_time.as_secs_f64()) * 1e9 / f64::from(times.max(1)));
            suspensions = times;
        }
    }
    for instance in [&plain, &suspendable, &whole, &sliced] {
        if let Some(incident) = instance.incidents().first() {
            return Err(BenchError::Fault {
                module: "bench suspend".to_owned(),
                fault: incident.fault.to_string(),
            });
        }
    }
    let cycle = Clock::calibrate().nanos_per_cycle;
    let mut table = Table::new(&["what", "ns", "quartiles", "cycles"]);
    for (what, sample) in [
        ("a call for one packet", plain_ns),
        ("the same where it can be suspended", suspendable_ns),
        ("to suspend a call and resume it", suspension_ns),
    ] {
        let quartiles = sample.quartiles();
        table.row([
            what.to_owned(),
            format!("{:.0}", quartiles.median),
            quartiles.spread(0),
            format!("{:.0}", quartiles.median / cycle),
        ]);
    }
    Ok(format!(
        "Medians of {rounds} rounds; a call of a loop was suspended {suspensions} times in each, and held against the same call in one slice.\n\n{table}"
    ))
}

fn failed(said: &str) -> BenchError {
    BenchError::Failed { command: "bench suspend".to_owned(), said: said.to_owned() }
}

/// The first packet of the first batch.
const ONE: Batch = Batch { descriptors: weir_abi::DESCRIPTORS_BASE, mask: 1, first: 0 };

/// A batch of descriptors that say nothing.
struct Descriptors(File);

impl Descriptors {
    fn new() -> Result<Self, BenchError> {
        let scratch = place::scratch();
        std::fs::create_dir_all(&scratch).map_err(BenchError::file(&scratch))?;
        let mut file = tempfile::tempfile_in(&scratch).map_err(BenchError::file(&scratch))?;
        let all = [Descriptor::default(); BATCH_PACKETS];
        file.write_all(bytes_of(&all)).map_err(BenchError::file(&scratch))?;
        Ok(Self(file))
    }

    fn start(&self, engine: &Engine, wasm: Vec<u8>, is_suspendable: bool) -> Result<Instance, BenchError> {
        let admitted = Admitted::admit(wasm, &[]).map_err(|refusal| BenchError::Refused {
            module: "bench suspend".to_owned(),
            refusal: Box::new(refusal),
        })?;
        let program =
            if is_suspendable { engine.load_suspendable(admitted)? } else { engine.load(admitted)? };
        let mut instance = Instance::start(engine, &program)?;
        let area = Area { fd: self.0.as_fd(), offset: 0, len: BATCH_BYTES };
        instance.map_descriptors(area).map_err(BenchError::Map)?;
        Ok(instance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_is_suspended_comes_to_its_end() {
        let text = tables(1).unwrap();
        let suspended = text.split("was suspended ").nth(1).and_then(|rest| rest.split(' ').next());
        let times: u32 = suspended.unwrap().parse().unwrap();
        assert!(times > 10, "{text}");
        assert!(text.contains("to suspend a call and resume it"));
    }
}
