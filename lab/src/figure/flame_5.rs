//! FLAME, figure 5: the cycles that are available per packet, by the rate of packets.

use super::monitor::{
    BUFFER, Monitor, MonitorReceiving, PacketsPerCall, Trial, Wakeup, largest_good, shipped_modules,
    to_integer,
};
use super::network::{Traffic, VethPair, datagram_of};
use super::watch::{PAUSE_MAX, PauseWatcher};
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
    experiment: "UDP packets of 60 bytes over a veth pair, to a thread on its own core that receives them and runs a module with a loop, whose number of \
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

/// The rates for which the available cycles are searched, in packets/s.
const RATES: [u64; 5] = [40_000, 70_000, 110_000, 160_000, 220_000];
/// The packet rate of the search for the number of modules.
const MODULES_RATE: u64 = 160_000;
/// The duration of a trial.
const TRIAL: Duration = Duration::from_millis(200);
/// The number of trials with the same rate and number of iterations or modules. These values count as free of loss if one
/// trial has no loss, because the machine may take the core away during the others.
const TRIES: usize = 2;
/// The number of trials for the cost of a module, which is the least of them. While other users of the machine fill the
/// shared caches, hundreds of instances cost half as much again for seconds.
const COST_TRIALS: usize = 10;
/// The number of times that the range of a search is halved.
const STEPS: usize = 6;
/// The number of repetitions of all searches, because the speed of the machine varies over minutes.
const ROUNDS: usize = 5;
/// *blocking* and *AF_PACKET*, which are not judged, are searched once in this number of rounds.
const UNJUDGED_EVERY: usize = 2;
/// The largest number of repetitions of a trial with losses in which the machine took a core away.
const REPEATS: usize = 6;
/// The highest number of iterations that the module with the loop executes.
const ITERATIONS_MAX: u32 = 1 << 20;
/// The cycles of FLAME's framework for each packet and module, which weir must not exceed.
const FRAMEWORK_CYCLES_MAX: f64 = 60.0;
/// The number of instances of a module that does nothing with which the framework is measured.
const MANY: usize = 64;
/// A number of instances of `trajectory` that is too large for the rate.
const TOO_MANY: usize = 400;
/// The tolerance of the predicted number of modules. The paper calls its model rough.
const TOLERANCE: f64 = 0.2;

/// The size of AF_XDP's buffer, for some ten thousand short packets. AF_XDP's frames have a fixed size, whereas
/// AF_PACKET's ring is compact. With buffers of equal size AF_XDP would lose packets in a pause of the machine that
/// AF_PACKET survives.
const XDP_BUFFER: Bytes = Bytes(BUFFER.0 * 8);

/// The ways of receiving, with their names in the figure.
const WAYS: [(&str, MonitorReceiving); 3] = [
    ("polling", MonitorReceiving { kind: SocketKind::Xdp, wakeup: Wakeup::Always, buffer: XDP_BUFFER }),
    ("blocking", MonitorReceiving { kind: SocketKind::Xdp, wakeup: Wakeup::Woken, buffer: XDP_BUFFER }),
    ("AF_PACKET", MonitorReceiving { kind: SocketKind::Packet, wakeup: Wakeup::Woken, buffer: BUFFER }),
];

/// The cycles available at a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    rate: f64,
    cycles: f64,
}

/// The measured values of the experiment.
#[derive(Clone, Debug, Default)]
struct Record {
    /// For each way of receiving, the medians of the rounds.
    ways: Vec<(&'static str, Vec<Point>)>,
    /// Cycles per packet and module, measured with many modules that do nothing.
    framework: f64,
    /// The predicted and measured numbers of instances of `trajectory`.
    rounds: Vec<Round>,
    /// The packet rate for which these numbers hold.
    rate: f64,
}

/// Values that are measured directly after each other, so that the machine has about the same speed.
#[derive(Clone, Debug, Default)]
struct Round {
    /// The cycles that polling leaves at each rate.
    polling: Vec<Point>,
    /// Cycles per packet and instance of `trajectory`, of which there are many.
    module: f64,
    /// The number of instances that ran without loss.
    measured: f64,
}

impl Round {
    /// The number of instances that the fit predicts for a rate, or `None` without a fit.
    fn predicted(&self, rate: f64) -> Option<f64> {
        Some((Fit::through(&self.polling)?.cycles_at(rate) / self.module).floor())
    }

    /// The deviation of the measured number from the predicted one, in percent.
    fn deviation(&self, rate: f64) -> Option<f64> {
        Some((self.measured / self.predicted(rate)? - 1.0) * 100.0)
    }
}

fn run(mechanism: Mechanism) -> Result<Outcome, LabError> {
    let packets_per_call =
        if mechanism == Mechanism::On { PacketsPerCall::Batch } else { PacketsPerCall::One };
    bind(OTHER_CORE)?;
    let record = record(packets_per_call)?;
    let (criteria, remarks) = judge(&record)?;
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
    if let Some(fit) = record.ways.first().and_then(|(_, points)| Fit::through(points)) {
        let line = [from, to].map(|rate| (rate, fit.cycles_at(rate))).to_vec();
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
        remarks,
    })
}

fn record(packets_per_call: PacketsPerCall) -> Result<Record, LabError> {
    let watch = PauseWatcher::start(&[OTHER_CORE, CORE])?;
    let looping = vec![synthetic::looping(ITERATIONS_MAX)?];
    let cycles_a_second = 1e9 / Clock::calibrate().nanos_per_cycle;
    let (polling, gathering) = (WAYS[0].1, WAYS[1].1);
    let cost_of_one = |way: MonitorReceiving, module: &[u8], count: usize| -> Result<f64, LabError> {
        let mut veth_pair =
            MonitoredVethPair::new(way, &vec![module.to_vec(); count], packets_per_call, &watch)?;
        Ok(veth_pair.cost(MODULES_RATE)? / count as f64)
    };
    let module = shipped_modules(&["trajectory"])?.remove(0);
    let mut record = Record { rate: MODULES_RATE as f64, ..Record::default() };
    record.framework = cost_of_one(gathering, &Module::empty()?.wasm, MANY)?;
    // The results of all rounds, by way of receiving and by rate.
    let mut found = vec![[const { Vec::new() }; RATES.len()]; WAYS.len()];
    for number in 0..ROUNDS {
        let mut round = Round::default();
        let mut iteration = None;
        let ways = if number % UNJUDGED_EVERY == 0 { WAYS.len() } else { 1 };
        for ((_, way), found) in WAYS.iter().zip(&mut found).take(ways) {
            let mut veth_pair = MonitoredVethPair::new(*way, &looping, packets_per_call, &watch)?;
            // The cost of an iteration is the same for all ways of receiving, so it is measured once.
            let iteration = match iteration {
                Some(iteration) => iteration,
                None => *iteration.insert(veth_pair.cost_of_an_iteration()?),
            };
            for (rate, found) in RATES.into_iter().zip(found) {
                let limit = (1.2 * cycles_a_second / rate as f64 / iteration).min(f64::from(ITERATIONS_MAX));
                let iterations =
                    largest_good(limit, STEPS, |iterations| veth_pair.is_loss_free(iterations, rate))?;
                found.push(iterations.map(|iterations| iterations * iteration));
            }
        }
        let latest = |(rate, found): (u64, &Vec<Option<f64>>)| {
            Some(Point { rate: rate as f64, cycles: found.last().copied().flatten()? })
        };
        round.polling = RATES.into_iter().zip(&found[0]).filter_map(latest).collect();
        // This many instances cannot keep up, so batches are full, as they are at the largest rate without loss.
        round.module = cost_of_one(polling, &module, TOO_MANY)?;
        // The range ends at 1.5 times the number that could run without other work, so the prediction is well inside.
        let limit = 1.5 * cycles_a_second / record.rate / round.module;
        let measured = largest_good(limit, STEPS, |count| {
            let mut veth_pair = MonitoredVethPair::new(
                polling,
                &vec![module.clone(); to_integer(count)],
                packets_per_call,
                &watch,
            )?;
            veth_pair.is_loss_free(0.0, MODULES_RATE)
        })?;
        round.measured = measured.map_or(0.0, f64::floor);
        record.rounds.push(round);
    }
    for ((name, _), found) in WAYS.into_iter().zip(found) {
        let points = RATES
            .into_iter()
            .zip(found)
            .filter_map(|(rate, found)| Some(Point { rate: rate as f64, cycles: median(found)? }));
        record.ways.push((name, points.collect()));
    }
    Ok(record)
}

/// The median of the results of searches, or `None` if most searches found nothing.
fn median(mut found: Vec<Option<f64>>) -> Option<f64> {
    found.sort_by(|a, b| a.unwrap_or(-1.0).total_cmp(&b.unwrap_or(-1.0)));
    found.get(found.len() / 2).copied().flatten()
}

/// A veth pair with a monitor that receives at its end.
struct MonitoredVethPair<'a> {
    monitor: Monitor,
    _veth_pair: VethPair,
    watch: &'a PauseWatcher,
}

impl<'a> MonitoredVethPair<'a> {
    fn new(
        way: MonitorReceiving,
        modules: &[Vec<u8>],
        packets_per_call: PacketsPerCall,
        watch: &'a PauseWatcher,
    ) -> Result<Self, LabError> {
        let veth_pair = VethPair::new("a", "b")?;
        Ok(Self {
            monitor: Monitor::start("b", way, modules, packets_per_call)?,
            _veth_pair: veth_pair,
            watch,
        })
    }

    /// Sends packets that ask for this number of iterations each, at a rate.
    fn trial(&mut self, iterations: u32, rate: u64) -> Result<Trial, LabError> {
        let mut frame = datagram_of(60);
        frame[synthetic::PAYLOAD_AT..synthetic::PAYLOAD_AT + 4].copy_from_slice(&iterations.to_le_bytes());
        let traffic = Traffic::start("a", vec![frame])?;
        self.monitor.trial(&traffic, rate, TRIAL)
    }

    /// The cycles per packet without iterations: the least of some trials, because other programs can only add to them.
    fn cost(&mut self, rate: u64) -> Result<f64, LabError> {
        let mut least = f64::INFINITY;
        for _ in 0..COST_TRIALS {
            least = least.min(self.trial(0, rate)?.cycles_a_packet());
        }
        Ok(least)
    }

    /// The cycles of one iteration, measured with one packet at a time.
    fn cost_of_an_iteration(&mut self) -> Result<f64, LabError> {
        let iterations = 20_000;
        Ok(self.trial(iterations, 5_000)?.cycles_min as f64 / f64::from(iterations))
    }

    /// Returns true if a trial with these values has no loss.
    fn is_loss_free(&mut self, iterations: f64, rate: u64) -> Result<bool, LabError> {
        let (mut tries, mut repeats) = (0, 0);
        while tries < TRIES {
            self.watch.take_longest();
            let trial = self.trial(u32::try_from(to_integer(iterations)).unwrap_or(ITERATIONS_MAX), rate)?;
            if trial.is_loss_free() && trial.rate > 0.97 * rate as f64 {
                return Ok(true);
            }
            let is_disturbed = self.watch.take_longest() > PAUSE_MAX && repeats < REPEATS;
            *(if is_disturbed { &mut repeats } else { &mut tries }) += 1;
        }
        Ok(false)
    }
}

/// The fit: cycles = a · rate^b, which is a line in logarithms.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fit {
    a: f64,
    b: f64,
}

impl Fit {
    /// The fit by least squares, or `None` for fewer than two rates.
    fn through(points: &[Point]) -> Option<Self> {
        let logarithms: Vec<(f64, f64)> =
            points.iter().map(|point| (point.rate.ln(), point.cycles.max(1.0).ln())).collect();
        let count = f64::from(u32::try_from(logarithms.len()).ok()?);
        let mean = |value: fn(&(f64, f64)) -> f64| logarithms.iter().map(value).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let square: f64 = logarithms.iter().map(|point| (point.0 - x).powi(2)).sum();
        let product: f64 = logarithms.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
        let b = product / square;
        b.is_finite().then(|| Self { a: (y - b * x).exp(), b })
    }

    fn cycles_at(self, rate: f64) -> f64 {
        self.a * rate.powf(self.b)
    }
}

fn judge(record: &Record) -> Result<(Vec<Criterion>, String), LabError> {
    let polling = record.ways.first().map_or(&[][..], |(_, points)| points);
    let nothing = || LabError::NoData("there are not two rates without loss to fit a line to".to_owned());
    let fit = Fit::through(polling).ok_or_else(nothing)?;
    let mut rounds: Vec<(f64, f64, &Round)> = Vec::new();
    for round in &record.rounds {
        let (deviation, predicted) =
            round.deviation(record.rate).zip(round.predicted(record.rate)).ok_or_else(nothing)?;
        rounds.push((deviation, predicted, round));
    }
    rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
    let &(deviation, predicted, round) = rounds.get(rounds.len() / 2).ok_or_else(nothing)?;
    let cycles = |name: &str| -> Vec<f64> {
        let found = record.ways.iter().find(|(way, _)| *way == name);
        found.map_or_else(Vec::new, |(_, points)| points.iter().map(|point| point.cycles).collect())
    };
    let criteria = vec![
        Criterion::at_most(
            "framework, cycles a packet and module",
            record.framework,
            FRAMEWORK_CYCLES_MAX,
            "",
        ),
        Criterion::at_most("exponent b of the fit", fit.b, -0.8, ""),
        Criterion::at_most(
            "modules: deviation of the measured number from the predicted one",
            deviation.abs(),
            TOLERANCE * 100.0,
            "%",
        ),
    ];
    let mut remarks = format!(
        "The fit is {:.2e}·r^{:.3}. In the median round an instance of `trajectory`, one of {TOO_MANY}, takes {:.0} cycles a packet, and the framework takes {:.1} for a module that does nothing, one of \
{MANY}. At {:.0} packets/s this predicts {predicted:.0} instances; {:.0} ran without loss, {deviation:+.0} %. In all rounds: {} %.",
        fit.a,
        fit.b,
        round.module,
        record.framework,
        record.rate,
        round.measured,
        rounds.iter().map(|(deviation, _, _)| format!("{deviation:+.0}")).collect::<Vec<_>>().join(", ")
    );
    let polled = cycles("polling");
    for name in ["blocking", "AF_PACKET"] {
        let ratios: Vec<String> =
            polled.iter().zip(cycles(name)).map(|(polled, other)| format!("{:.2}", polled / other)).collect();
        _ = write!(
            remarks,
            " Polling leaves {} times the cycles of {name} (from the lowest rate on).",
            ratios.join(", ")
        );
    }
    Ok((criteria, remarks))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(framework: f64, module: f64, measured: f64) -> Record {
        let points = [5e4, 1e5, 2e5].map(|rate: f64| Point { rate, cycles: 3e9 * rate.powf(-1.1216) });
        let ways = vec![("polling", points.to_vec()), ("blocking", points.to_vec())];
        // In the first round the machine was slow while modules were counted, and in the last while cycles were.
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
        let fit = Fit::through(&made(1.0, 1.0, 1.0).ways[0].1).unwrap();
        assert!((fit.b + 1.1216).abs() < 1e-9 && (fit.a / 3e9 - 1.0).abs() < 1e-9, "{fit:?}");
        assert_eq!(Fit::through(&[Point { rate: 1.0, cycles: 1.0 }]), None);
        assert!(matches!(judge(&Record::default()), Err(LabError::NoData(_))));
    }

    #[test]
    fn one_failed_search_does_not_count() {
        for (found, expected) in [
            ([Some(7.0), Some(2.0), Some(8.0)], Some(7.0)),
            ([None, Some(5.0), Some(6.0)], Some(5.0)),
            ([None, Some(5.0), None], None),
        ] {
            assert_eq!(median(found.to_vec()), expected);
        }
        assert_eq!(median(Vec::new()), None);
    }

    #[test]
    fn values_beyond_a_limit_break_its_criterion() {
        // The paper's values: 60 cycles of the framework, 270 per module, and 5 modules predicted (4.5 rounded).
        assert_eq!(kept(&made(60.0, 240.0, 5.0)), [true; 3]);
        assert_eq!(kept(&made(61.0, 240.0, 5.0)), [false, true, true]);
        assert_eq!(kept(&made(60.0, 240.0, 3.0)), [true, true, false]);
        let mut flat = made(60.0, 240.0, 5.0);
        flat.ways[0].1.iter_mut().for_each(|point| point.cycles = 1200.0);
        assert_eq!(kept(&flat), [true, false, true]);
    }
}
