//! What a decision of the schedulers costs: who runs next on a core, and who sends next on a link.

use crate::BenchError;
use crate::native::thread_time;
use crate::statistics::Sample;
use crate::table::{Table, yes_or_no};
use std::hint::black_box;
use weir_sched::cpu;
use weir_sched::cpu::{Config, Core, Outcome, Ppm, Share, Terms, Weight};
use weir_sched::link::{
    ChannelId, ChannelTerms, Decision, Framing, Link, LinkConfig, Pacing, QueueLimit, Reservation,
};
use weir_units::{BitsPerSecond, Bytes, Nanos};

/// How many there are, and how long a decision may take then, in ns.
const PROMISES: [(u32, f64); 2] = [(10, 200.0), (1000, 1000.0)];
/// Decisions of a round.
const DECISIONS: u32 = 50_000;
/// The shortest period of a virtual processor.
const PERIOD: Nanos = Nanos(10_000_000);
/// Packets that each channel has waiting.
const WAITING: u32 = 4;
const FRAME: u32 = 1514;

/// Nanoseconds of a decision, by the number of virtual processors and of channels that all have work.
///
/// # Errors
/// A scheduler refuses what it is to be measured with.
pub fn tables(rounds: usize) -> Result<String, BenchError> {
    let mut table =
        Table::new(&["what decides", "over", "ns for a decision", "quartiles", "promised", "kept"]);
    for (count, promise) in PROMISES {
        let mut core = BusyCore::new(count)?;
        let mut port = Port::new(count)?;
        let (mut core_ns, mut link_ns) = (Sample::default(), Sample::default());
        for round in 0..=rounds {
            let core_time = nanos(|| {
                // Short runs: what is there is taken turn by turn, and periods begin and end meanwhile.
                core.step(Nanos(5_000));
            });
            let link_time = nanos(|| port.step());
            // The first round only warms up.
            if round > 0 {
                core_ns.push(core_time);
                link_ns.push(link_time);
            }
        }
        for (what, over, sample) in [
            ("core: next and charge", format!("{count} virtual processors"), core_ns),
            ("link: next and enqueue", format!("{count} channels"), link_ns),
        ] {
            let quartiles = sample.quartiles();
            table.row([
                what.to_owned(),
                over,
                format!("{:.0}", quartiles.median),
                quartiles.spread(0),
                format!("under {promise:.0}"),
                yes_or_no(quartiles.median < promise),
            ]);
        }
    }
    Ok(format!("Medians of {rounds} rounds of {DECISIONS} decisions; all have work all the time.\n\n{table}"))
}

/// Processor time of each of many steps.
fn nanos(mut step: impl FnMut()) -> f64 {
    let begin = thread_time();
    for _ in 0..DECISIONS {
        step();
    }
    thread_time().saturating_sub(begin).as_secs_f64() * 1e9 / f64::from(DECISIONS)
}

fn failed(error: &dyn std::fmt::Display) -> BenchError {
    BenchError::Failed { command: "bench schedule".to_owned(), said: error.to_string() }
}

/// A core whose virtual processors all have work, and a reservation; every other one takes spare time.
struct BusyCore {
    core: Core,
    now: Nanos,
}

impl BusyCore {
    fn new(count: u32) -> Result<Self, BenchError> {
        let mut core = Core::new(Config { cap: Ppm(950_000), ..Config::default() });
        for number in 0..count {
            // Periods from one to almost two times the shortest, so that they do not begin together.
            let period = Nanos(PERIOD.0 + u64::from(number) * 7919 % PERIOD.0);
            let slice = Nanos(PERIOD.0 / u64::from(count) * 9 / 10);
            let spare = Weight::new(100).filter(|_| number.is_multiple_of(2));
            let share = Share::Reserved(cpu::Reservation { period, slice, spare });
            let terms = Terms { share, overrun: Nanos(0) };
            let vp = core.create(terms, Nanos(0)).map_err(|error| failed(&error))?;
            core.wake(vp, Nanos(u64::from(number))).map_err(|error| failed(&error))?;
        }
        Ok(Self { core, now: Nanos(0) })
    }

    /// A decision, and the charge for the run that it leads to: the whole budget, but at most `run`.
    fn step(&mut self, run: Nanos) {
        match black_box(self.core.next(self.now)) {
            cpu::Decision::Run { budget, .. } => {
                let used = budget.min(run);
                self.now.0 += used.0;
                _ = black_box(self.core.charge(used, self.now, Outcome::Ready).is_ok());
            }
            cpu::Decision::Idle { until } => self.now = until.unwrap_or(self.now),
        }
    }
}

/// A link on which all channels always have packets: every other one is reserved, all share the rest.
struct Port {
    link: Link<ChannelId>,
    now: Nanos,
}

impl Port {
    fn new(channels: u32) -> Result<Self, BenchError> {
        let rate = BitsPerSecond(10_000_000_000);
        let config = LinkConfig {
            framing: Framing::ETHERNET,
            pacing: Pacing::Link { catch_up: Nanos(0) },
            channels_max: channels,
            ..LinkConfig::ethernet(rate)
        };
        let mut link = Link::new(config).map_err(|error| failed(&error))?;
        let share = BitsPerSecond(rate.0 / u64::from(channels));
        for number in 0..channels {
            let terms = ChannelTerms {
                reservation: Reservation::rate(share).filter(|_| number % 2 == 0),
                cap: None,
                weight: 1,
                queue: QueueLimit { packets: WAITING, bytes: Bytes(1 << 20) },
            };
            let id = link.open(terms, Nanos(0)).map_err(|error| failed(&error))?;
            for _ in 0..WAITING {
                link.enqueue(id, id, FRAME, Nanos(0))
                    .map_err(|dropped| failed(&format!("{:?}", dropped.cause)))?;
            }
        }
        Ok(Self { link, now: Nanos(0) })
    }

    /// A decision, and another packet for whom it was made.
    fn step(&mut self) {
        match self.link.next(self.now) {
            Decision::Send { packet, .. } => {
                _ = black_box(self.link.enqueue(packet, packet, FRAME, self.now).is_ok())
            }
            Decision::Wait { until } => {
                self.now = until;
                // The wait is over: this is the decision that counts.
                if let Decision::Send { packet, .. } = self.link.next(self.now) {
                    _ = black_box(self.link.enqueue(packet, packet, FRAME, self.now).is_ok());
                }
            }
            Decision::Idle => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_sends_with_every_step_and_its_queues_stay_full() {
        let mut port = Port::new(10).unwrap();
        for _ in 0..1000 {
            port.step();
        }
        // A thousand frames of 1538 bytes on the wire take 1.23 us each, and none was sent before the one before had ended.
        assert!((1_200_000..1_300_000).contains(&port.now.0), "{}", port.now);
    }

    #[test]
    fn everything_promised_is_measured() {
        let text = tables(1).unwrap();
        for row in ["10 virtual processors", "1000 virtual processors", "10 channels", "1000 channels"] {
            assert!(text.contains(row), "{row}: {text}");
        }
    }
}
