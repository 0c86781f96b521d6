//! The cost of a decision of the schedulers: the next virtual CPU on a core, and the next packet on a link. The part
//! `schedule` of the benchmark.

use crate::error::{DebugContext, LabError};
use crate::statistics::{measure_all_in_turn, nanos_per_call};
use crate::table::{Table, under};
use std::hint::black_box;
use weir_sched::cpu;
use weir_sched::cpu::{CoreConfig, CoreScheduler, CpuAllocation, CpuTerms, Ppm, RunOutcome, Weight};
use weir_sched::link::{
    ChannelId, ChannelTerms, Framing, LinkDecision, LinkReservation, LinkScheduler, LinkSchedulerConfig,
    Pacing, QueueLimit,
};
use weir_units::{BitsPerSecond, Bytes, Nanos};

/// The measured numbers of virtual CPUs or channels, each with the promised limit of a decision in nanoseconds.
const PROMISES: [(u32, f64); 2] = [(10, 200.0), (1000, 1000.0)];
/// The number of decisions in a round.
const DECISIONS: u32 = 50_000;
/// The shortest period of a virtual CPU.
const PERIOD: Nanos = Nanos(10_000_000);
/// The number of queued packets of each channel.
const QUEUED: u32 = 4;
/// The length of a packet in bytes.
const FRAME: u32 = 1514;

/// The table of nanoseconds per decision, by the number of virtual CPUs or channels, which all have work.
pub fn tables(rounds: usize) -> Result<String, LabError> {
    let mut table = Table::new("decision | among | ns per decision | quartiles | promised | kept");
    for (count, promise) in PROMISES {
        let mut core = BusyCore::new(count)?;
        let mut link = BusyLink::new(count)?;
        let [core, link] = measure_all_in_turn(
            rounds,
            [
                // Runs are short, so that virtual CPUs alternate, and periods begin and end during a round.
                Box::new(|| Ok(nanos_per_call(DECISIONS, || core.step(Nanos(5_000))))),
                Box::new(|| Ok(nanos_per_call(DECISIONS, || link.step()))),
            ],
        )?;
        for (what, unit, sample) in
            [("core: next and charge", "virtual CPUs", core), ("link: next and enqueue", "channels", link)]
        {
            let promised = under(promise, sample.median());
            table.row(format_args!("{what} | {count} {unit} | {} | {promised}", sample.cells(0)));
        }
    }
    Ok(format!("Medians of {rounds} rounds of {DECISIONS} decisions; all have work all the time.\n\n{table}"))
}

/// A core with virtual CPUs that all have work and a reservation. Those with even numbers also take spare time.
struct BusyCore {
    core: CoreScheduler,
    now: Nanos,
}

impl BusyCore {
    fn new(count: u32) -> Result<Self, LabError> {
        let mut core = CoreScheduler::new(CoreConfig { cap: Ppm(950_000), ..CoreConfig::default() });
        for number in 0..count {
            // Periods differ, up to twice the shortest, so that they do not begin together.
            let period = Nanos(PERIOD.0 + u64::from(number) * 7919 % PERIOD.0);
            let slice = Nanos(PERIOD.0 / u64::from(count) * 9 / 10);
            let spare = Weight::new(100).filter(|_| number.is_multiple_of(2));
            let share = CpuAllocation::Reserved(cpu::CpuReservation { period, slice, spare });
            let terms = CpuTerms { share, overrun: Nanos(0) };
            let vcpu_id = core.create(terms, Nanos(0)).debug_context("bench schedule")?;
            core.wake(vcpu_id, Nanos(u64::from(number))).debug_context("bench schedule")?;
        }
        Ok(Self { core, now: Nanos(0) })
    }

    /// Makes a decision, and charges the run that follows: the whole budget, at most `run`.
    fn step(&mut self, run: Nanos) {
        match black_box(self.core.next(self.now)) {
            cpu::CpuDecision::Run { budget, .. } => {
                let used = budget.min(run);
                self.now.0 += used.0;
                _ = black_box(self.core.charge(used, self.now, RunOutcome::Ready).is_ok());
            }
            cpu::CpuDecision::Idle { until } => self.now = until.unwrap_or(self.now),
        }
    }
}

/// A link with channels that always have packets. Those with even numbers have a reservation. All share the rest of the
/// bandwidth.
struct BusyLink {
    link: LinkScheduler<ChannelId>,
    now: Nanos,
}

impl BusyLink {
    fn new(channels: u32) -> Result<Self, LabError> {
        let rate = BitsPerSecond(10_000_000_000);
        let config = LinkSchedulerConfig {
            framing: Framing::ETHERNET,
            pacing: Pacing::Link { catch_up: Nanos(0) },
            channels_max: channels,
            ..LinkSchedulerConfig::ethernet(rate)
        };
        let mut link = LinkScheduler::new(config).debug_context("bench schedule")?;
        let share = BitsPerSecond(rate.0 / u64::from(channels));
        for number in 0..channels {
            let terms = ChannelTerms {
                reservation: LinkReservation::rate(share).filter(|_| number % 2 == 0),
                cap: None,
                weight: 1,
                queue: QueueLimit { packets: QUEUED, bytes: Bytes(1 << 20) },
            };
            let id = link.open(terms, Nanos(0)).debug_context("bench schedule")?;
            for _ in 0..QUEUED {
                link.enqueue(id, id, FRAME, Nanos(0))
                    .map_err(|dropped| dropped.cause)
                    .debug_context("bench schedule")?;
            }
        }
        Ok(Self { link, now: Nanos(0) })
    }

    /// Makes a decision, and queues another packet of the chosen channel.
    fn step(&mut self) {
        match self.link.next(self.now) {
            LinkDecision::Send { packet, .. } => {
                _ = black_box(self.link.enqueue(packet, packet, FRAME, self.now).is_ok())
            }
            LinkDecision::Wait { until } => {
                self.now = until;
                // The step includes the decision after the wait, so that each step sends a packet.
                if let LinkDecision::Send { packet, .. } = self.link.next(self.now) {
                    _ = black_box(self.link.enqueue(packet, packet, FRAME, self.now).is_ok());
                }
            }
            LinkDecision::Idle => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_sends_with_every_step_and_its_queues_stay_full() {
        let mut link = BusyLink::new(10).unwrap();
        for _ in 0..1000 {
            link.step();
        }
        // A thousand frames of 1538 bytes on the wire take 1.23 us each, one after the other.
        assert!((1_200_000..1_300_000).contains(&link.now.0), "{}", link.now);
    }

    #[test]
    fn decisions_with_each_promise_are_measured() {
        let text = tables(1).unwrap();
        for row in ["10 virtual CPUs", "1000 virtual CPUs", "10 channels", "1000 channels"] {
            assert!(text.contains(row), "{row}: {text}");
        }
    }
}
