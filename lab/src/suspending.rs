//! The cost of suspendable calls, and of a suspension. The part `suspend` of the benchmark.

use crate::comparison::Clock;
use crate::error::{Context, LabError};
use crate::figure::synthetic;
use crate::module::Module;
use crate::packets::blank_batch;
use crate::statistics::{measure_all_in_turn, nanos_per_call};
use crate::table::Table;
use std::fs::File;
use std::hint::black_box;
use std::os::fd::AsFd as _;
use weir_abi::BATCH_BYTES;
use weir_admission::Admitted;
use weir_sandbox::{Area, BatchInput, Call, CallStep, Engine, EngineOptions, FuelSlice, Instance};

/// The number of iterations of the suspended loop. They stay within the time limit of a packet.
const ITERATIONS: u32 = 400_000;
/// The fuel after which the loop is suspended.
const SLICE: FuelSlice = FuelSlice { fuel: 20_000, until: None };
/// The number of calls in a round.
const CALLS: u32 = 20_000;
/// The batch of a call for one packet.
const ONE_PACKET: BatchInput = BatchInput { descriptors: weir_abi::DESCRIPTORS_BASE, mask: 1, first: 0 };

/// The table of nanoseconds per call and per suspension.
pub fn tables(rounds: usize) -> Result<String, LabError> {
    let engine = Engine::new(EngineOptions::default(), None)?;
    let descriptors = blank_batch()?;
    let start = |wasm: &[u8], is_suspendable| start(&engine, &descriptors, wasm, is_suspendable);
    let (empty, busy) = (Module::empty()?.wasm, synthetic::busy(ITERATIONS)?);
    let (mut plain, mut suspendable) = (start(&empty, false)?, start(&empty, true)?);
    let (mut whole, mut sliced) = (start(&busy, true)?, start(&busy, true)?);
    let mut suspensions = 0u32;
    let [plain_ns, suspendable_ns, suspension_ns] = measure_all_in_turn(
        rounds,
        [
            Box::new(|| Ok(nanos_per_call(CALLS, || _ = plain.run(ONE_PACKET)))),
            Box::new(|| {
                Ok(nanos_per_call(CALLS, || {
                    _ = black_box(suspendable.begin(Call::Batch(ONE_PACKET), FuelSlice::UNLIMITED))
                }))
            }),
            Box::new(|| {
                let whole = nanos_per_call(1, || {
                    _ = black_box(whole.begin(Call::Batch(ONE_PACKET), FuelSlice::UNLIMITED))
                });
                suspensions = 0;
                let sliced = nanos_per_call(1, || {
                    let mut step = sliced.begin(Call::Batch(ONE_PACKET), SLICE);
                    while step == CallStep::Suspended {
                        suspensions += 1;
                        step = sliced.resume(SLICE);
                    }
                });
                Ok((sliced - whole) / f64::from(suspensions.max(1)))
            }),
        ],
    )?;
    for instance in [&plain, &suspendable, &whole, &sliced] {
        if let Some(incident) = instance.incidents().first() {
            return Err(LabError::failed("bench suspend", incident.fault.to_string()));
        }
    }
    let cycle = Clock::calibrate().nanos_per_cycle;
    let mut table = Table::new("operation | ns | quartiles | cycles");
    for (what, sample) in [
        ("a call for one packet", plain_ns),
        ("a suspendable call for one packet", suspendable_ns),
        ("to suspend a call and resume it", suspension_ns),
    ] {
        table.row(format_args!("{what} | {} | {:.0}", sample.cells(0), sample.median() / cycle));
    }
    Ok(format!(
        "Medians of {rounds} rounds; a call of a loop was suspended {suspensions} times in each, and compared with the same call in one slice.\n\n{table}"
    ))
}

/// Starts an instance of a module with the descriptors mapped.
fn start(
    engine: &Engine,
    descriptors: &File,
    wasm: &[u8],
    is_suspendable: bool,
) -> Result<Instance, LabError> {
    let admitted = Admitted::admit(wasm.to_vec(), &[]).context("bench suspend")?;
    let program = if is_suspendable { engine.load_suspendable(admitted)? } else { engine.load(admitted)? };
    let mut instance = Instance::start(engine, &program)?;
    let area = Area { fd: descriptors.as_fd(), offset: 0, len: BATCH_BYTES, is_fixed: false };
    instance.map_descriptors(area).context("mapping descriptors")?;
    Ok(instance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspended_call_is_resumed_until_its_end() {
        let text = tables(1).unwrap();
        let suspended = text.split("was suspended ").nth(1).and_then(|rest| rest.split(' ').next());
        let times: u32 = suspended.unwrap().parse().unwrap();
        assert!(times > 10, "{text}");
        assert!(text.contains("to suspend a call and resume it"));
    }
}
