//! FLAME, figure 5: the cycles that are available per packet, by the rate of packets.

use super::monitor::{BUFFER, Calls, Monitor, MonitorReceiving, Trial, Wakeup, search, shipped, whole};
use super::network::{Cable, Traffic, datagram_of};
use super::watch::{DISTURBED, PauseWatcher};
use super::{Chart, ChartAxis, Criterion, Csv, Figure, Mark, Mechanism, Outcome, synthetic};
use crate::comparison::Clock;
use crate::error::LabError;
use crate::machine::{CORE, OTHER_CORE, bind};
use crate::module::Module;
use std::fmt::Write as _;
use std::time::Duration;
use weir_netio::SocketKind;
use weir_units::Bytes;

pub const FIGURE: Figure = Figure {
    name: "flame-5",
    title: "FLAME, figure 5: cycles available for each packet, by the rate without loss",
    here: "UDP packets of 60 bytes over a veth pair, to a thread on its own core that receives them and runs a module with a loop, whose number of \
iterations stands in the packet. For each rate a search finds the largest number with which no packet is lost and at most one in 20 is \
still queued at the end. The chart shows the cycles of the median of five rounds, or of three for *blocking* and *AF_PACKET*. \
*AF_PACKET* sleeps until it is woken, as tcpdump does; so does *blocking*, with AF_XDP; *polling* asks for packets all the time. In all \
three the sender's core does the kernel's part of receiving. In each round the line a·r^b is fitted to *polling* by least squares in \
logarithms. The fit, and the cost of one of 400 instances of `trajectory`, which are too many for the rate, predict the number of \
instances that can run without loss. A search for that number follows at once. The median round is judged. Trials with losses in which \
the machine took a core away for more than 1 ms are repeated.",
    paper: "on a 1 GHz Pentium III, polling leaves about 2.5 times the cycles of interrupts. The fit is 3·10⁹ r^-1.1216, with 1310 cycles measured \
at 500,004 packets/s. The framework takes 60 cycles per packet and module, and a module 210 on average, which predicts 5 modules at \
500,000 packets/s.",
    without: "modules are called for one packet at a time, not for batches",
    run,
};

const RATES: [u64; 5] = [40_000, 70_000, 110_000, 160_000, 220_000];
/// The packet rate of the search for the number of modules.
const COUNTED: u64 = 160_000;
const TRIAL: Duration = Duration::from_millis(200);
/// A rate counts as without loss if one of these trials has no loss, as the machine itself may take the core away.
const TRIES: usize = 2;
/// The cost of a module is the least of these trials. While other users of the machine fill the shared caches, hundreds
/// of instances cost half as much again for seconds.
const COSTS: usize = 10;
/// Halvings of the range in which a number is searched.
const STEPS: usize = 6;
/// Repetitions of all searches in turn, because the speed of the machine varies over minutes.
const ROUNDS: usize = 5;
/// The ways that are not judged are searched only in every second round.
const BESIDE: usize = 2;
/// The largest number of repetitions of a trial with losses in which the machine took a core away.
const REPEATS: usize = 6;
const ITERATIONS_MAX: u32 = 1 << 20;
/// Cycles of FLAME's framework for each packet and module.
const FRAMEWORK: f64 = 60.0;
/// Instances over which the cost of one is measured.
const MANY: usize = 64;
/// More instances than can run.
const TOO_MANY: usize = 400;
/// The tolerance of the predicted number of modules. The paper calls its model rough.
const TOLERANCE: f64 = 0.2;

/// A buffer for some ten thousand short packets. AF_XDP frames have a fixed size, whereas AF_PACKET's ring is compact.
/// With buffers of equal size AF_XDP would lose packets in a pause of the machine that AF_PACKET survives.
const FRAMES: Bytes = Bytes(BUFFER.0 * 8);

const WAYS: [(&str, MonitorReceiving); 3] = [
    ("polling", MonitorReceiving { kind: SocketKind::Xdp, wakeup: Wakeup::Always, buffer: FRAMES }),
    ("blocking", MonitorReceiving { kind: SocketKind::Xdp, wakeup: Wakeup::Woken, buffer: FRAMES }),
    ("AF_PACKET", MonitorReceiving { kind: SocketKind::Packet, wakeup: Wakeup::Woken, buffer: BUFFER }),
];

/// The cycles available at a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    rate: f64,
    cycles: f64,
}

#[derive(Clone, Debug, Default)]
struct Record {
    /// The medians of the rounds.
    ways: Vec<(&'static str, Vec<Point>)>,
    /// Cycles for a packet in each of many modules that do nothing.
    framework: f64,
    /// The predicted and measured numbers of modules.
    rounds: Vec<Round>,
    /// The rate of these numbers.
    rate: f64,
}

/// Values that are measured directly after each other.
#[derive(Clone, Debug, Default)]
struct Round {
    /// The cycles that polling leaves.
    polling: Vec<Point>,
    /// Cycles for a packet in each of many instances of a module.
    module: f64,
    /// Instances that ran without loss.
    measured: f64,
}

impl Round {
    /// The predicted number of modules at a rate, or `None` without a fit.
    fn predicted(&self, rate: f64) -> Option<f64> {
        Some((Fit::of(&self.polling)?.at(rate) / self.module).floor())
    }

    /// The difference of the measured number to the predicted one, in percent.
    fn off(&self, rate: f64) -> Option<f64> {
        Some((self.measured / self.predicted(rate)? - 1.0) * 100.0)
    }
}

fn run(mechanism: Mechanism) -> Result<Outcome, LabError> {
    let calls = if mechanism == Mechanism::On { Calls::Batches } else { Calls::Single };
    bind(OTHER_CORE)?;
    let record = record(calls)?;
    let (criteria, found) = judge(&record)?;
    let mut csv = Csv::new(&["way", "rate_per_s", "cycles_per_packet"]);
    let (from, to) = (RATES[0] as f64 * 0.9, RATES[RATES.len() - 1] as f64 * 1.2);
    let mut chart = Chart::new(
        ChartAxis::logarithmic("packets/s without loss", from, to),
        ChartAxis::logarithmic("cycles available for a packet", 1e3, 1e5),
    );
    for (number, (name, points)) in record.ways.iter().enumerate() {
        points.iter().for_each(|point| csv.row([(*name).into(), point.rate.into(), point.cycles.into()]));
        chart.add(
            name,
            number,
            Mark::Dotted(points.iter().map(|point| (point.rate, point.cycles)).collect()),
        );
    }
    if let Some(fit) = record.ways.first().and_then(|(_, points)| Fit::of(points)) {
        let line = [from, to].map(|rate| (rate, fit.at(rate))).to_vec();
        chart.add("fit to polling", 5, Mark::Expected(line));
    }
    let mut modules = Csv::new(&[
        "round",
        "module_cycles",
        "modules_predicted",
        "modules_measured",
        "rate_per_s",
        "framework_cycles",
    ]);
    for (number, round) in (1_u32..).zip(&record.rounds) {
        let predicted = round.predicted(record.rate).unwrap_or(f64::NAN);
        let values = [round.module, predicted, round.measured, record.rate, record.framework];
        modules.row(std::iter::once(f64::from(number)).chain(values).map(Into::into));
    }
    let name = FIGURE.name.to_owned();
    Ok(Outcome {
        records: vec![(name.clone(), csv), (format!("{name}-modules"), modules)],
        charts: vec![(name, chart)],
        criteria,
        found,
    })
}

fn record(calls: Calls) -> Result<Record, LabError> {
    let watch = PauseWatcher::start(&[OTHER_CORE, CORE])?;
    let looping = vec![synthetic::looping(ITERATIONS_MAX)?];
    let cycles_a_second = 1e9 / Clock::calibrate().nanos_per_cycle;
    let (polling, gathering) = (WAYS[0].1, WAYS[1].1);
    let many = |way: MonitorReceiving, module: &[u8], count: usize| -> Result<f64, LabError> {
        let mut cable = MonitoredCable::new(way, &vec![module.to_vec(); count], calls, &watch)?;
        Ok(cable.cost(COUNTED)? / count as f64)
    };
    let module = shipped(&["trajectory"])?.remove(0);
    let mut record = Record { rate: COUNTED as f64, ..Record::default() };
    record.framework = many(gathering, &Module::empty()?.wasm, MANY)?;
    // The results of each round, by way and rate.
    let mut found = vec![[const { Vec::new() }; RATES.len()]; WAYS.len()];
    for number in 0..ROUNDS {
        let mut round = Round::default();
        let mut iteration = None;
        let ways = if number % BESIDE == 0 { WAYS.len() } else { 1 };
        for ((_, way), found) in WAYS.iter().zip(&mut found).take(ways) {
            let mut cable = MonitoredCable::new(*way, &looping, calls, &watch)?;
            // The cost of an iteration does not depend on the way. It is measured with one packet at a time.
            let iteration = match iteration {
                Some(iteration) => iteration,
                None => *iteration.insert(cable.cost_of_an_iteration()?),
            };
            for (rate, found) in RATES.into_iter().zip(found) {
                let most = (1.2 * cycles_a_second / rate as f64 / iteration).min(f64::from(ITERATIONS_MAX));
                let most = search(most, STEPS, |iterations| cable.is_loss_free(iterations, rate))?;
                found.push(most.map(|iterations| iterations * iteration));
            }
        }
        let latest = |(rate, found): (u64, &Vec<Option<f64>>)| {
            Some(Point { rate: rate as f64, cycles: found.last().copied().flatten()? })
        };
        round.polling = RATES.into_iter().zip(&found[0]).filter_map(latest).collect();
        // So many instances are always behind, so that batches are full, as at the largest rate without loss.
        round.module = many(polling, &module, TOO_MANY)?;
        // 1.5 times as many as could run without other work, so that the prediction is well inside the range.
        let most = 1.5 * cycles_a_second / record.rate / round.module;
        let measured = search(most, STEPS, |count| {
            let mut cable = MonitoredCable::new(polling, &vec![module.clone(); whole(count)], calls, &watch)?;
            cable.is_loss_free(0.0, COUNTED)
        })?;
        round.measured = measured.map_or(0.0, f64::floor);
        record.rounds.push(round);
    }
    for ((name, _), found) in WAYS.into_iter().zip(found) {
        let points = RATES
            .into_iter()
            .zip(found)
            .filter_map(|(rate, found)| Some(Point { rate: rate as f64, cycles: middle(found)? }));
        record.ways.push((name, points.collect()));
    }
    Ok(record)
}

/// The median of searches, or `None` if most found nothing.
fn middle(mut found: Vec<Option<f64>>) -> Option<f64> {
    found.sort_by(|a, b| a.unwrap_or(-1.0).total_cmp(&b.unwrap_or(-1.0)));
    found.get(found.len() / 2).copied().flatten()
}

/// A veth pair with a monitor at its end.
struct MonitoredCable<'a> {
    monitor: Monitor,
    _cable: Cable,
    watch: &'a PauseWatcher,
}

impl<'a> MonitoredCable<'a> {
    fn new(
        way: MonitorReceiving,
        modules: &[Vec<u8>],
        calls: Calls,
        watch: &'a PauseWatcher,
    ) -> Result<Self, LabError> {
        let cable = Cable::new("a", "b")?;
        Ok(Self { monitor: Monitor::start("b", way, modules, calls)?, _cable: cable, watch })
    }

    fn trial(&mut self, iterations: u32, rate: u64) -> Result<Trial, LabError> {
        let mut frame = datagram_of(60);
        frame[synthetic::PAYLOAD_AT..synthetic::PAYLOAD_AT + 4].copy_from_slice(&iterations.to_le_bytes());
        let traffic = Traffic::start("a", vec![frame])?;
        self.monitor.trial(&traffic, rate, TRIAL)
    }

    /// Cycles per packet: the least of some trials, as other programs can only add to them.
    fn cost(&mut self, rate: u64) -> Result<f64, LabError> {
        let mut least = f64::INFINITY;
        for _ in 0..COSTS {
            least = least.min(self.trial(0, rate)?.cycles_a_packet());
        }
        Ok(least)
    }

    fn cost_of_an_iteration(&mut self) -> Result<f64, LabError> {
        let iterations = 20_000;
        Ok(self.trial(iterations, 5_000)?.least as f64 / f64::from(iterations))
    }

    fn is_loss_free(&mut self, iterations: f64, rate: u64) -> Result<bool, LabError> {
        let (mut tries, mut repeats) = (0, 0);
        while tries < TRIES {
            self.watch.longest();
            let trial = self.trial(u32::try_from(whole(iterations)).unwrap_or(ITERATIONS_MAX), rate)?;
            if trial.is_loss_free() && trial.rate > 0.97 * rate as f64 {
                return Ok(true);
            }
            let is_disturbed = self.watch.longest() > DISTURBED && repeats < REPEATS;
            *(if is_disturbed { &mut repeats } else { &mut tries }) += 1;
        }
        Ok(false)
    }
}

/// A line in logarithms: cycles = a · rate^b.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fit {
    a: f64,
    b: f64,
}

impl Fit {
    /// The fit by least squares, or `None` for fewer than two rates.
    fn of(points: &[Point]) -> Option<Self> {
        let places: Vec<(f64, f64)> =
            points.iter().map(|point| (point.rate.ln(), point.cycles.max(1.0).ln())).collect();
        let count = f64::from(u32::try_from(places.len()).ok()?);
        let mean = |of: fn(&(f64, f64)) -> f64| places.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|place| place.0), mean(|place| place.1));
        let square: f64 = places.iter().map(|place| (place.0 - x).powi(2)).sum();
        let product: f64 = places.iter().map(|place| (place.0 - x) * (place.1 - y)).sum();
        let b = product / square;
        b.is_finite().then(|| Self { a: (y - b * x).exp(), b })
    }

    fn at(self, rate: f64) -> f64 {
        self.a * rate.powf(self.b)
    }
}

fn judge(record: &Record) -> Result<(Vec<Criterion>, String), LabError> {
    let polling = record.ways.first().map_or(&[][..], |(_, points)| points);
    let nothing = || LabError::NoData("there are not two rates without loss to fit a line to".to_owned());
    let fit = Fit::of(polling).ok_or_else(nothing)?;
    let mut rounds: Vec<(f64, f64, &Round)> = Vec::new();
    for round in &record.rounds {
        let (off, predicted) =
            round.off(record.rate).zip(round.predicted(record.rate)).ok_or_else(nothing)?;
        rounds.push((off, predicted, round));
    }
    rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
    let &(off, predicted, round) = rounds.get(rounds.len() / 2).ok_or_else(nothing)?;
    let cycles = |name: &str| -> Vec<f64> {
        let found = record.ways.iter().find(|(way, _)| *way == name);
        found.map_or_else(Vec::new, |(_, points)| points.iter().map(|point| point.cycles).collect())
    };
    let criteria = vec![
        Criterion::at_most("framework, cycles a packet and module", record.framework, FRAMEWORK, ""),
        Criterion::at_most("exponent b of the fit", fit.b, -0.8, ""),
        Criterion::at_most(
            "modules: deviation of the measured number from the predicted one",
            off.abs(),
            TOLERANCE * 100.0,
            "%",
        ),
    ];
    let mut found = format!(
        "The fit is {:.2e}·r^{:.3}. In the middle round an instance of `trajectory`, one of {TOO_MANY}, takes {:.0} cycles a packet, the framework {:.1} for a module that does nothing, one of \
{MANY}. At {:.0} packets/s that predicts {predicted:.0} instances; {:.0} ran without loss, {off:+.0} %. In all rounds: {} %.",
        fit.a,
        fit.b,
        round.module,
        record.framework,
        record.rate,
        round.measured,
        rounds.iter().map(|(off, _, _)| format!("{off:+.0}")).collect::<Vec<_>>().join(", ")
    );
    let polled = cycles("polling");
    for name in ["blocking", "AF_PACKET"] {
        let ratios: Vec<String> =
            polled.iter().zip(cycles(name)).map(|(polled, other)| format!("{:.2}", polled / other)).collect();
        _ = write!(
            found,
            " Polling leaves {} times the cycles of {name} (from the lowest rate on).",
            ratios.join(", ")
        );
    }
    Ok((criteria, found))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(framework: f64, module: f64, measured: f64) -> Record {
        let points = [5e4, 1e5, 2e5].map(|rate: f64| Point { rate, cycles: 3e9 * rate.powf(-1.1216) });
        let ways = vec![("polling", points.to_vec()), ("blocking", points.to_vec())];
        // One round in which the machine was slow when modules were counted, and one in which it was when cycles were.
        let rounds = [0.5, 1.0, 1.7].map(|factor| Round {
            polling: points.to_vec(),
            module,
            measured: measured * factor,
        });
        Record { ways, framework, rounds: rounds.to_vec(), rate: 500_000.0 }
    }

    fn kept(record: &Record) -> Vec<bool> {
        judge(record).unwrap().0.iter().map(|criterion| criterion.is_kept).collect()
    }

    #[test]
    fn a_fit_finds_the_constants_that_the_paper_found() {
        let fit = Fit::of(&made(1.0, 1.0, 1.0).ways[0].1).unwrap();
        assert!((fit.b + 1.1216).abs() < 1e-9 && (fit.a / 3e9 - 1.0).abs() < 1e-9, "{fit:?}");
        assert_eq!(Fit::of(&[Point { rate: 1.0, cycles: 1.0 }]), None);
        assert!(matches!(judge(&Record::default()), Err(LabError::NoData(_))));
    }

    #[test]
    fn one_failed_search_does_not_count() {
        for (found, expected) in [
            ([Some(7.0), Some(2.0), Some(8.0)], Some(7.0)),
            ([None, Some(5.0), Some(6.0)], Some(5.0)),
            ([None, Some(5.0), None], None),
        ] {
            assert_eq!(middle(found.to_vec()), expected);
        }
        assert_eq!(middle(Vec::new()), None);
    }

    #[test]
    fn kept_criteria_are_told_from_others() {
        // The paper's own: 60 cycles of framework, 270 a module, 5 predicted (4.5, as it rounds).
        assert_eq!(kept(&made(60.0, 240.0, 5.0)), [true; 3]);
        assert_eq!(kept(&made(61.0, 240.0, 5.0)), [false, true, true]);
        assert_eq!(kept(&made(60.0, 240.0, 3.0)), [true, true, false]);
        let mut flat = made(60.0, 240.0, 5.0);
        flat.ways[0].1.iter_mut().for_each(|point| point.cycles = 1200.0);
        assert_eq!(kept(&flat), [true, false, true]);
    }
}
