//! FLAME, figure 5: cycles that are available for a packet, by the rate at which packets come.

use super::monitor::{Calls, Look, Monitor, ROOM, Trial, Way, search, whole};
use super::scene::{ANYBODY, ASIDE, Traffic, bind, cable, datagram, unplug};
use super::{Axis, Chart, Csv, Figure, FigureError, Mark, Mechanism, Outcome, Verdict, guest, monitor};
use crate::contest::Clock;
use crate::module::Module;
use std::fmt::Write as _;
use std::time::Duration;
use weir_netio::Kind;
use weir_units::Bytes;

/// The experiment.
pub const FIGURE: Figure = Figure {
    name: "flame-5",
    title: "FLAME, figure 5: cycles available for each packet, by the rate without loss",
    here: "UDP packets of 60 bytes over a veth cable, to a thread on a core of its own that receives them and runs a module which is busy for a number of \
turns that stands in the packet. For each rate the largest number is searched with which not one packet is lost, three times; drawn are the cycles of the middle one. *AF_PACKET* waits until it \
is woken, as tcpdump does; so does *blocking*, with AF_XDP; *polling* asks all the time. The kernel's part of receiving is done by the sender's core, in all \
three. The line a·r^b is fitted to *polling* by least squares in logarithms; it and the cost of one of 400 instances of `trajectory`, which are too many, predict how many of \
these can run at a rate without loss, and that number is searched as well.",
    paper: "on a 1 GHz Pentium III, polling leaves about 2.5 times the cycles of interrupts; the fit is 3·10⁹ r^-1.1216, with 1310 cycles measured \
at 500,004 packets/s; the framework takes 60 cycles a packet and module, and a module 210 on average, which predicts 5 modules at 500,000 packets/s.",
    without: "modules are called for each packet alone, not for batches",
    run,
};

const RATES: [u64; 5] = [40_000, 70_000, 110_000, 160_000, 220_000];
/// The rate at which modules are counted.
const COUNTED: u64 = 160_000;
const TRIAL: Duration = Duration::from_millis(200);
/// A rate is without loss where one of so many trials is: the machine itself may take the core away.
const TRIES: usize = 3;
/// Halvings of the range in which a number is searched.
const STEPS: usize = 6;
/// A number is the middle one of so many searches.
const SEARCHES: usize = 3;
const TURNS_MAX: u32 = 1 << 20;
/// What FLAME's framework takes for each packet and module, in cycles.
const FRAMEWORK: f64 = 60.0;
/// Instances over which the cost of one is measured.
const MANY: usize = 64;
/// More instances than can run.
const TOO_MANY: usize = 400;
/// How far the number of modules may be from what was predicted: the paper calls its model a rough one.
const TOLERANCE: f64 = 0.2;

/// Room for some ten thousand short packets. An AF_XDP frame is as large for them as for long ones, where AF_PACKET's ring puts them one behind the other: with
/// as many bytes for both, the one would lose packets in a pause of the machine that the other does not notice.
const FRAMES: Bytes = Bytes(ROOM.0 * 8);

const WAYS: [(&str, Way); 3] = [
    ("polling", Way { kind: Kind::Xdp, look: Look::Always, room: FRAMES }),
    ("blocking", Way { kind: Kind::Xdp, look: Look::Woken, room: FRAMES }),
    ("AF_PACKET", Way { kind: Kind::Packet, look: Look::Woken, room: ROOM }),
];

/// What was found at a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    rate: f64,
    cycles: f64,
}

/// All that was found.
#[derive(Clone, Debug, Default)]
struct Record {
    ways: Vec<(&'static str, Vec<Point>)>,
    /// Cycles for a packet in each of many modules that do nothing.
    framework: f64,
    /// Cycles for a packet in each of many instances of a module.
    module: f64,
    /// How many of these ran without loss, and at which rate.
    measured: f64,
    rate: f64,
}

fn run(mechanism: Mechanism) -> Result<Outcome, FigureError> {
    let calls = if mechanism == Mechanism::On { Calls::Batches } else { Calls::Single };
    bind(ASIDE)?;
    let record = record(calls)?;
    let (verdicts, found) = judge(&record)?;
    let mut csv = Csv::new(&["way", "rate_per_s", "cycles_per_packet"]);
    let (from, to) = (RATES[0] as f64 * 0.9, RATES[RATES.len() - 1] as f64 * 1.2);
    let mut chart = Chart::new(
        Axis::logarithmic("packets/s without loss", from, to),
        Axis::logarithmic("cycles available for a packet", 1e3, 1e5),
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
    let mut modules = Csv::new(&["what", "value"]);
    for (what, value) in [
        ("framework_cycles", record.framework),
        ("module_cycles", record.module),
        ("modules_measured", record.measured),
        ("rate_per_s", record.rate),
    ] {
        modules.row([what.into(), value.into()]);
    }
    let name = FIGURE.name.to_owned();
    Ok(Outcome {
        records: vec![(name.clone(), csv), (format!("{name}-modules"), modules)],
        charts: vec![(name, chart)],
        verdicts,
        found,
    })
}

#[expect(clippy::cast_precision_loss, reason = "numbers of this file")]
fn record(calls: Calls) -> Result<Record, FigureError> {
    let mut record = Record::default();
    let turning = vec![guest::turning(TURNS_MAX)?];
    let cycles_a_second = 1e9 / Clock::calibrate().nanos_per_cycle;
    let mut turn = None;
    for (name, way) in WAYS {
        let mut points = Vec::new();
        let mut stage = Stage::new(way, &turning, calls)?;
        // What a turn takes does not depend on the way; it is measured where packets come one by one.
        let turn = match turn {
            Some(turn) => turn,
            None => *turn.insert(stage.cost_of_a_turn()?),
        };
        for rate in RATES {
            let most = (1.2 * cycles_a_second / rate as f64 / turn).min(f64::from(TURNS_MAX));
            if let Some(turns) = middle(|| search(most, STEPS, |turns| stage.is_loss_free(turns, rate)))? {
                points.push(Point { rate: rate as f64, cycles: turns * turn });
            }
        }
        record.ways.push((name, points));
    }
    let (polling, gathering) = (WAYS[0].1, WAYS[1].1);
    let many = |way: Way, module: &[u8], count: usize| -> Result<f64, FigureError> {
        let mut stage = Stage::new(way, &vec![module.to_vec(); count], calls)?;
        Ok(stage.cost(COUNTED)? / count as f64)
    };
    record.framework = many(gathering, &Module::empty()?.wasm, MANY)?;
    let module = monitor::shipped(&["trajectory"])?.remove(0);
    // So many that packets always wait for them: batches are full, as they are at the largest rate without loss.
    record.module = many(polling, &module, TOO_MANY)?;
    record.rate = COUNTED as f64;
    // Half as many again as there could be if nothing else were done: the search must not end where the prediction does.
    let most = 1.5 * cycles_a_second / record.rate / record.module;
    let measured = middle(|| {
        search(most, STEPS, |count| {
            let mut stage = Stage::new(polling, &vec![module.clone(); whole(count)], calls)?;
            stage.is_loss_free(0.0, COUNTED)
        })
    })?;
    record.measured = measured.map_or(0.0, f64::floor);
    Ok(record)
}

/// The middle one of what some searches find; none where most find nothing.
fn middle<E>(mut search: impl FnMut() -> Result<Option<f64>, E>) -> Result<Option<f64>, E> {
    let mut found = (0..SEARCHES).map(|_| search()).collect::<Result<Vec<_>, _>>()?;
    found.sort_by(|a, b| a.unwrap_or(-1.0).total_cmp(&b.unwrap_or(-1.0)));
    Ok(found[SEARCHES / 2])
}

/// A cable with a monitor at its end, gone when this is dropped.
struct Stage {
    monitor: Monitor,
}

impl Stage {
    fn new(way: Way, modules: &[Vec<u8>], calls: Calls) -> Result<Self, FigureError> {
        cable("a", "b")?;
        let monitor = Monitor::start("b", way, modules, calls);
        if monitor.is_err() {
            unplug("a")?;
        }
        Ok(Self { monitor: monitor? })
    }

    fn trial(&mut self, turns: u32, rate: u64) -> Result<Trial, FigureError> {
        let mut frame = datagram(ANYBODY, (1000, 53), 60);
        frame[guest::TURNS_AT..guest::TURNS_AT + 4].copy_from_slice(&turns.to_le_bytes());
        let traffic = Traffic::start("a", vec![frame])?;
        self.monitor.trial(&traffic, rate, TRIAL)
    }

    /// Cycles for a packet, the least of some trials: other programs only ever add to it.
    fn cost(&mut self, rate: u64) -> Result<f64, FigureError> {
        let mut least = f64::INFINITY;
        for _ in 0..TRIES {
            least = least.min(self.trial(0, rate)?.cycles_a_packet());
        }
        Ok(least)
    }

    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    fn cost_of_a_turn(&mut self) -> Result<f64, FigureError> {
        let turns = 20_000;
        Ok(self.trial(turns, 5_000)?.least as f64 / f64::from(turns))
    }

    #[expect(clippy::cast_precision_loss, reason = "rates of this file")]
    fn is_loss_free(&mut self, turns: f64, rate: u64) -> Result<bool, FigureError> {
        for _ in 0..TRIES {
            let trial = self.trial(u32::try_from(whole(turns)).unwrap_or(TURNS_MAX), rate)?;
            if trial.is_loss_free() && trial.rate > 0.97 * rate as f64 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Where that fails the namespace takes it away.
        _ = unplug("a");
    }
}

/// A line in logarithms: cycles = a · rate^b.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fit {
    a: f64,
    b: f64,
}

impl Fit {
    /// By least squares; none for less than two rates.
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

fn judge(record: &Record) -> Result<(Vec<Verdict>, String), FigureError> {
    let polling = record.ways.first().map_or(&[][..], |(_, points)| points);
    let fit = Fit::of(polling).ok_or_else(|| {
        FigureError::Nothing("there are not two rates without loss to fit a line to".to_owned())
    })?;
    let predicted = (fit.at(record.rate) / record.module).floor();
    let off = (record.measured / predicted - 1.0).abs() * 100.0;
    let cycles = |name: &str| -> Vec<f64> {
        let found = record.ways.iter().find(|(way, _)| *way == name);
        found.map_or_else(Vec::new, |(_, points)| points.iter().map(|point| point.cycles).collect())
    };
    let verdicts = vec![
        Verdict::at_most("framework, cycles a packet and module", record.framework, FRAMEWORK, ""),
        Verdict::at_most("b, the fit's exponent: more packets, less for each", fit.b, -0.8, ""),
        Verdict::at_most("modules: measured, from what the fit predicts", off, TOLERANCE * 100.0, "%"),
    ];
    let mut found = format!(
        "The fit is {:.2e}·r^{:.3}. An instance of `trajectory`, one of {TOO_MANY}, takes {:.0} cycles a packet, the framework {:.1} for a module that does nothing, one of {MANY}. At {:.0} \
packets/s that predicts {predicted:.0} instances; {:.0} ran without loss.",
        fit.a, fit.b, record.module, record.framework, record.rate, record.measured
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
    Ok((verdicts, found))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(framework: f64, module: f64, measured: f64) -> Record {
        let points = [5e4, 1e5, 2e5].map(|rate: f64| Point { rate, cycles: 3e9 * rate.powf(-1.1216) });
        let ways = vec![("polling", points.to_vec()), ("blocking", points.to_vec())];
        Record { ways, framework, module, measured, rate: 500_000.0 }
    }

    fn kept(record: &Record) -> Vec<bool> {
        judge(record).unwrap().0.iter().map(|verdict| verdict.is_kept).collect()
    }

    #[test]
    fn a_fit_finds_the_constants_that_the_paper_found() {
        let fit = Fit::of(&made(1.0, 1.0, 1.0).ways[0].1).unwrap();
        assert!((fit.b + 1.1216).abs() < 1e-9 && (fit.a / 3e9 - 1.0).abs() < 1e-9, "{fit:?}");
        assert_eq!(Fit::of(&[Point { rate: 1.0, cycles: 1.0 }]), None);
        assert!(matches!(judge(&Record::default()), Err(FigureError::Nothing(_))));
    }

    #[test]
    fn one_search_that_went_wrong_does_not_count() {
        for (found, expected) in [
            ([Some(7.0), Some(2.0), Some(8.0)], Some(7.0)),
            ([None, Some(5.0), Some(6.0)], Some(5.0)),
            ([None, Some(5.0), None], None),
        ] {
            let mut rest = found.into_iter();
            assert_eq!(middle(|| Ok::<_, ()>(rest.next().unwrap())), Ok(expected));
        }
        assert_eq!(middle(|| Err("lost")), Err("lost"));
    }

    #[test]
    fn what_must_be_seen_is_told_from_what_must_not() {
        // The paper's own: 60 cycles of framework, 270 a module, 5 predicted (4.5, as it rounds).
        assert_eq!(kept(&made(60.0, 240.0, 5.0)), [true; 3]);
        assert_eq!(kept(&made(61.0, 240.0, 5.0)), [false, true, true]);
        assert_eq!(kept(&made(60.0, 240.0, 3.0)), [true, true, false]);
        let mut flat = made(60.0, 240.0, 5.0);
        flat.ways[0].1.iter_mut().for_each(|point| point.cycles = 1200.0);
        assert_eq!(kept(&flat), [true, false, true]);
    }
}
