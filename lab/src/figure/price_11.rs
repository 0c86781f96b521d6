//! Price of Safety, figure 11: the share of a core that each of four greedy sessions gets.

use super::network::{Traffic, create_veth_pair, datagram_of};
use super::node::{NodeProcess, find_session, parse_module, used_ns};
use super::{Chart, ChartAxis, Criterion, Csv, Figure, Mark, Mechanism, Outcome, synthetic};
use crate::error::LabError;
use crate::machine::{OTHER_CORE, bind};
use std::fmt::Write as _;
use std::time::{Duration, Instant};
use weir_node::control::protocol::Snapshot;

pub const FIGURE: Figure = Figure {
    name: "price-11",
    title: "Price of Safety, figure 11: shares of a core",
    experiment: "Four sessions, each of which could use the whole core: their queues always have packets, and each packet takes about a millisecond. A \
has no reservation. B, C and D start at intervals of 3 s with 10, 20 and 30 % of the core, in periods of 4 ms and without spare time. \
The chart shows the processor time of each session per 20 ms (five periods), in percent of the time that the core's thread had. Each \
whole second is judged. Seconds in which the thread had less than 97 % of the core, because of other programs or the hypervisor, are not \
judged, as reservations are in wall-clock time.",
    paper: "on a 300 MHz Pentium II, B, C and D get their 10, 20 and 30 % in each period of 4 ms from their start on. A gets the rest: first all, \
then 90, 70 and 40 %.",
    without: "all four share the core as best effort",
    run,
};

/// The sessions: name, and reserved share of the core in percent.
const SESSIONS: [(&str, Option<f64>); 4] =
    [("a", None), ("b", Some(10.0)), ("c", Some(20.0)), ("d", Some(30.0))];
/// The interval of the starts of sessions.
const INTERVAL: Duration = Duration::from_secs(3);
/// The time from the start of the last session to the end of the experiment.
const LAST_PART: Duration = Duration::from_secs(5);
/// The sampling interval.
const STEP: Duration = Duration::from_millis(20);
/// The period of the reservations.
const PERIOD_MS: f64 = 4.0;
/// A second is judged if the core thread had at least this fraction of it.
const UNDISTURBED_MIN: f64 = 0.97;
/// The least number of judged seconds of each session.
const SECONDS_MIN: usize = 2;
/// The tolerance of a share, in percentage points.
const TOLERANCE: f64 = 1.0;
/// The share of the core that the node may use itself, in percentage points.
const OVERHEAD_MAX: f64 = 2.0;

/// The processor times at a time. All values are in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct CoreSample {
    at: f64,
    /// The processor time of the core thread so far.
    core: f64,
    /// The processor time of each session so far.
    used: [f64; 4],
}

#[derive(Clone, Debug, Default)]
struct Record {
    samples: Vec<CoreSample>,
    /// The times from which each session had work.
    starts: [f64; 4],
    /// The missed periods of each session.
    missed: [u64; 4],
}

fn run(mechanism: Mechanism) -> Result<Outcome, LabError> {
    let record = record(mechanism)?;
    let criteria = judge(&record)?;
    let mut csv = Csv::new(&["time_s", "core_s", "a_s", "b_s", "c_s", "d_s"]);
    for sample in &record.samples {
        let values = [sample.at, sample.core].into_iter().chain(sample.used);
        csv.row(values.map(Into::into));
    }
    let mut remarks = String::from("Missed periods (work throughout, but not the whole slice):");
    for ((name, share), (missed, start)) in
        SESSIONS.iter().zip(record.missed.iter().zip(record.starts)).filter(|((_, share), _)| share.is_some())
    {
        let end = record.samples.last().map_or(0.0, |sample| sample.at);
        let periods = (end - start) * 1e3 / PERIOD_MS;
        let share = share.unwrap_or_default();
        _ = write!(remarks, " {} {missed} of {periods:.0} ({share:.0} %),", name.to_uppercase());
    }
    let unjudged: Vec<String> =
        disturbed_seconds(&record).iter().map(|second| format!("{second:.0}")).collect();
    let unjudged = if unjudged.is_empty() { "none".to_owned() } else { unjudged.join(", ") };
    remarks.pop();
    _ = write!(remarks, ". Seconds not judged: {unjudged}.");
    Ok(Outcome::new(&FIGURE, csv, chart(&record), criteria, remarks))
}

fn record(mechanism: Mechanism) -> Result<Record, LabError> {
    bind(OTHER_CORE)?;
    create_veth_pair("a", "b")?;
    let mut node =
        NodeProcess::start("blocking = \"200us\"\n[[interface]]\nname = \"b\"\narena = \"8 MiB\"")?;
    let traffic = Traffic::start("a", vec![datagram_of(60)])?;
    traffic.set_rate(3000);
    let busy = synthetic::busy(600_000)?;
    let mut record = Record::default();
    let (mut begin, mut next) = (None, 0);
    let total = INTERVAL * 3 + LAST_PART;
    let mut due = Instant::now();
    loop {
        let snapshot = node.snapshot()?;
        let begin = *begin.get_or_insert(snapshot.at_ns);
        let sample = sample(&snapshot, begin);
        record.samples.push(sample);
        for (missed, (name, _)) in record.missed.iter_mut().zip(SESSIONS) {
            let cpu = find_session(&snapshot, name).and_then(|session| session.cpu.first());
            *missed = cpu.map_or(0, |cpu| cpu.periods_missed);
        }
        if sample.at >= total.as_secs_f64() {
            return Ok(record);
        }
        if let Some((name, share)) = SESSIONS.get(next)
            && sample.at >= INTERVAL.as_secs_f64() * f64::from(u32::try_from(next).unwrap_or(0))
        {
            let cpu = match share.filter(|_| mechanism == Mechanism::On) {
                Some(percent) => format!(
                    "cpu = [{{ period = \"{PERIOD_MS}ms\", slice = \"{}us\" }}]\n",
                    PERIOD_MS * percent * 10.0
                ),
                None => String::new(),
            };
            node.create(&format!(
                "name = \"{name}\"\nprofile = \"long\"\n{cpu}channel = [{{ interface = \"b\", filter = \"udp\", queue = 256 }}]\n"
            ))?;
            node.load(name, parse_module("module = \"busy.wasm\"")?, &busy)?;
            let started = node.snapshot()?;
            record.starts[next] = self::sample(&started, begin).at;
            next += 1;
        }
        due += STEP;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}

/// The processor times of a snapshot, at its time since `begin`.
fn sample(snapshot: &Snapshot, begin: u64) -> CoreSample {
    let core = snapshot.cores.first().map_or(0, |core| core.busy_ns + core.overhead_ns);
    CoreSample {
        at: snapshot.at_ns.saturating_sub(begin) as f64 / 1e9,
        core: core as f64 / 1e9,
        used: SESSIONS.map(|(name, _)| used_ns(snapshot, name) as f64 / 1e9),
    }
}

/// The processor times at a time, interpolated between two samples.
fn interpolate(samples: &[CoreSample], at: f64) -> Option<CoreSample> {
    let after = samples.iter().position(|sample| sample.at >= at)?;
    let (first, last) = (samples.get(after.checked_sub(1)?)?, samples.get(after)?);
    let part = (at - first.at) / (last.at - first.at);
    let mix = |a: f64, b: f64| a + (b - a) * part;
    let used = std::array::from_fn(|i| mix(first.used[i], last.used[i]));
    Some(CoreSample { at, core: mix(first.core, last.core), used })
}

/// A whole second: its start, the processor time of the core thread, and the sessions' shares of that time in percent.
struct Second {
    begin: f64,
    core_time: f64,
    shares: [f64; 4],
}

fn seconds(record: &Record) -> impl Iterator<Item = Second> + '_ {
    let end = record.samples.last().map_or(0.0, |sample| sample.at);
    let begins = (0..1000u32).map(f64::from).take_while(move |begin| begin + 1.0 <= end);
    begins.filter_map(|begin| {
        let (one, other) = (interpolate(&record.samples, begin)?, interpolate(&record.samples, begin + 1.0)?);
        let core_time = other.core - one.core;
        let shares = std::array::from_fn(|i| (other.used[i] - one.used[i]) / core_time * 100.0);
        Some(Second { begin, core_time, shares })
    })
}

/// The seconds after the first session's start in which other programs used the core.
fn disturbed_seconds(record: &Record) -> Vec<f64> {
    let after = seconds(record).filter(|second| second.begin > record.starts[0]);
    after.filter(|second| second.core_time < UNDISTURBED_MIN).map(|second| second.begin).collect()
}

fn judge(record: &Record) -> Result<Vec<Criterion>, LabError> {
    let mut criteria = Vec::new();
    let judged: Vec<Second> = seconds(record).filter(|second| second.core_time >= UNDISTURBED_MIN).collect();
    // A session is judged from the first whole second after its start.
    let runs_in = |session: usize, second: &Second| second.begin > record.starts[session] + 0.1;
    for (index, (name, share)) in SESSIONS.iter().enumerate() {
        let own_seconds: Vec<&Second> = judged.iter().filter(|second| runs_in(index, second)).collect();
        if own_seconds.len() < SECONDS_MIN {
            let count = own_seconds.len();
            return Err(LabError::NoData(format!(
                "only {count} seconds of session {name} were undisturbed by other programs: run the experiment again on a quiet machine"
            )));
        }
        let name = name.to_uppercase();
        match share {
            Some(share) => {
                let deviation =
                    own_seconds.iter().map(|second| (second.shares[index] - share).abs()).fold(0.0, f64::max);
                let what = format!(
                    "{name}: largest deviation from {share:.0} % in any of {} seconds",
                    own_seconds.len()
                );
                criteria.push(Criterion::at_most(what, deviation, TOLERANCE, "points"));
            }
            None => {
                // Seconds in which a session starts are left out, because what A may get changes in them.
                let steady = own_seconds.iter().filter(|second| {
                    record
                        .starts
                        .iter()
                        .all(|start| *start + 0.1 < second.begin || *start > second.begin + 1.0)
                });
                let deficits = steady.map(|second| {
                    let others = SESSIONS.iter().enumerate().filter(|(other, _)| runs_in(*other, second));
                    let promised: f64 = others.filter_map(|(_, (_, share))| *share).sum();
                    100.0 - promised - second.shares[index]
                });
                let deficit = deficits.reduce(f64::max).ok_or_else(|| {
                    LabError::NoData("a session started in each second that can be judged".to_owned())
                })?;
                let what = format!("{name}: largest deficit against the rest");
                criteria.push(Criterion::at_most(what, deficit, TOLERANCE + OVERHEAD_MAX, "points"));
            }
        }
    }
    Ok(criteria)
}

fn chart(record: &Record) -> Chart {
    let end = record.samples.last().map_or(1.0, |sample| sample.at);
    let mut chart = Chart::new(
        ChartAxis::linear("time, s", 0.0, end),
        ChartAxis::linear("share of the core's processor time in 20 ms, %", 0.0, 105.0),
    );
    for (index, (name, share)) in SESSIONS.iter().enumerate() {
        let points = record.samples.windows(2).filter_map(|two| {
            let core_time = two[1].core - two[0].core;
            (core_time > 0.0 && two[1].at > record.starts[index])
                .then(|| (two[1].at, (two[1].used[index] - two[0].used[index]) / core_time * 100.0))
        });
        chart.add(&name.to_uppercase(), index, Mark::Line(points.collect()));
        if let Some(share) = share {
            chart.add("", 5, Mark::Expected(vec![(record.starts[index], *share), (end, *share)]));
        }
    }
    chart
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fourteen seconds with these shares of a core of which the core thread had the fraction `core_part`.
    fn made(core_part: f64, shares: [f64; 4]) -> Record {
        let starts = [0.0, 3.0, 6.0, 9.0];
        let mut record = Record { starts, ..Record::default() };
        let mut sample = CoreSample::default();
        for _ in 0..=700 {
            record.samples.push(sample);
            sample.at += 0.02;
            sample.core += 0.02 * core_part;
            let mut rest = 100.0;
            for place in (1..4).filter(|place| sample.at > starts[*place]) {
                sample.used[place] += 0.02 * core_part * shares[place] / 100.0;
                rest -= shares[place];
            }
            sample.used[0] += 0.02 * core_part * rest * shares[0] / 100.0;
        }
        record
    }

    fn kept(record: &Record) -> [bool; 4] {
        judge(record)
            .unwrap()
            .iter()
            .map(|criterion| criterion.is_kept)
            .collect::<Vec<_>>()
            .try_into()
            .unwrap()
    }

    #[test]
    fn a_missed_share_breaks_a_criterion() {
        assert_eq!(kept(&made(0.99, [0.99, 10.4, 19.3, 30.0])), [true; 4]);
        assert_eq!(kept(&made(0.99, [0.99, 11.2, 20.0, 30.0])), [true, false, true, true]);
        assert_eq!(kept(&made(0.99, [0.99, 10.0, 20.0, 27.0])), [true, true, true, false]);
        // Another program has the rest.
        assert_eq!(kept(&made(0.99, [0.8, 10.0, 20.0, 30.0])), [false, true, true, true]);
        // Equal parts, as without reservations.
        assert_eq!(kept(&made(0.99, [1.0, 25.0, 25.0, 25.0]))[1..], [false; 3]);
    }

    #[test]
    fn seconds_without_the_core_are_not_judged() {
        assert!(matches!(judge(&made(0.9, [1.0, 10.0, 20.0, 30.0])), Err(LabError::NoData(_))));
        assert!(matches!(judge(&Record::default()), Err(LabError::NoData(_))));
    }
}
