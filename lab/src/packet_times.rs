//! The time of single packets in a sandbox, for comparison with the bounds in time.

use crate::comparison::{Clock, ModuleBuild};
use crate::error::LabError;
use crate::module::Module;
use crate::packets::{BLOCK_BATCHES, Packets, ReadyBatch, ticks};
use crate::sandboxed::{self, Sandboxed};
use weir_admission::Tier;
use weir_sandbox::{BackEnd, BatchInput, CheckMode, Cycles, Engine};
use weir_session::Records;

/// A set of packets, and the number of measurements of each. The shortest counts, because other programs can only make one
/// longer.
#[derive(Clone, Copy, Debug)]
pub struct TimedPackets<'a> {
    /// The packets.
    pub batches: &'a [ReadyBatch],
    /// The number of measurements.
    pub measurements: usize,
}

/// An engine that runs modules without run-time checks, one packet a call, in the code of one back end.
#[derive(Debug)]
pub struct PacketTimer<'a> {
    engine: Engine,
    back_end: BackEnd,
    packets: &'a Packets,
    clock: Clock,
}

impl<'a> PacketTimer<'a> {
    /// Starts the engine of a back end.
    pub fn new(back_end: BackEnd, packets: &'a Packets) -> Result<Self, LabError> {
        let engine = sandboxed::start_engine(back_end, CheckMode::As(Tier::Proved))?;
        Ok(Self { engine, back_end, packets, clock: Clock::calibrate() })
    }

    /// A quantile (0 to 1) of the time of packets, in ns. The time includes the call.
    ///
    /// # Errors
    /// The module does not run, or not in the code of this back end.
    pub fn nanos(&self, module: &Module, timed: TimedPackets<'_>, quantile: f64) -> Result<f64, LabError> {
        let mut build = Sandboxed::start(&self.engine, module, self.packets)?;
        if self.back_end == BackEnd::Llvm {
            build = build.in_verified_code()?;
        }
        let period = module.admit()?.tick_period();
        let mut cycles_min: Vec<u64> = Vec::new();
        for pass in 0..=timed.measurements {
            // The first pass is not counted, because of the page faults of the module's memory.
            self.pass(&mut build, timed.batches, period, |packet, taken| match cycles_min.get_mut(packet) {
                Some(least) if pass > 0 => *least = taken.min(*least),
                Some(_) => {}
                None => cycles_min.push(u64::MAX),
            })?;
        }
        cycles_min.sort_unstable();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index of the list")]
        let index = ((cycles_min.len().saturating_sub(1)) as f64 * quantile) as usize;
        Ok(cycles_min.get(index).copied().unwrap_or(0) as f64 * self.clock.nanos_per_cycle)
    }

    /// Runs the packets once, each in a separate call. Gives `record` each packet's index and cycles.
    fn pass(
        &self,
        build: &mut Sandboxed,
        batches: &[ReadyBatch],
        period: Option<weir_units::Nanos>,
        mut record: impl FnMut(usize, u64),
    ) -> Result<(), LabError> {
        let ticks = ticks(batches, period);
        let mut ticks = ticks.iter().peekable();
        let mut index_of_packet = 0;
        for (index, ready) in batches.iter().enumerate() {
            if index.is_multiple_of(BLOCK_BATCHES) {
                self.packets.write_descriptors(index / BLOCK_BATCHES)?;
            }
            for packet in (0..weir_abi::BATCH_PACKETS).filter(|packet| ready.batch.mask >> packet & 1 == 1) {
                let one = BatchInput { mask: 1 << packet, ..ready.batch };
                let begin = Cycles::now();
                build.run(one);
                record(index_of_packet, Cycles::now().since(begin).0);
                index_of_packet += 1;
            }
            while let Some(tick) = ticks.next_if(|tick| tick.before <= index + 1) {
                build.tick(*tick);
            }
            build.take_output(Records::default());
        }
        Ok(())
    }
}
