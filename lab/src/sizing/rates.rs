//! Processor time and losses by the rate of traffic and the number of sessions.

use super::footprint::NodeProcesses;
use super::{CORES, INTERFACE, MODULE, Place, add_session, wait_for_modules};
use crate::error::LabError;
use crate::figure::network::{Traffic, VethPair, segment};
use crate::figure::node::{NodeProcess, check_no_faults};
use crate::statistics::{Action, Sample, to_f64, values_in_turn};
use crate::table::Table;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use weir_node::control::protocol::Snapshot;

/// The two rates in Mbit/s between which the cost of a further packet is computed, by a straight line.
const LINE: [f64; 2] = [100.0, 500.0];
/// The numbers of sessions, each of which gets every packet.
const SESSIONS: [usize; 2] = [1, 10];
/// An offered rate in Mbit/s that the sender never reaches, so that it sends as fast as it can.
const FULL: f64 = 1e6;
/// The offered rates in Mbit/s, by the place of the modules.
const RATES: [(Place, &[f64]); 2] =
    [(Place::Node, &[10.0, 100.0, 500.0, 1000.0, FULL]), (Place::Own, &[10.0, 100.0, 500.0])];
/// The lengths of packets in bytes: the simple Internet mix, 7 to 4 to 1.
const LENGTHS: [usize; 12] = [60, 590, 60, 60, 590, 60, 60, 590, 60, 1514, 590, 60];
/// The number of connections among which packets alternate.
const CONNECTIONS: u16 = 1024;
/// The memory of a session, which suffices for the module and its queue.
const MEMORY: &str = "32 MiB";
/// The wait for a node to adapt to a rate, and for packets under way.
const SETTLE: Duration = Duration::from_millis(150);
/// The duration of a measurement.
const TIME: Duration = Duration::from_millis(500);
/// A trial with a larger share of lost packets, in percent, shows no working point.
const LOST_MAX: f64 = 0.01;

/// Names of losses that no channel counts: packets for which the kernel had no memory, and packets that did not reach the
/// interface's memory at all.
const MISSED: &str = "missed";
const UNCOUNTED: &str = "before the node";

/// The values of a node at a rate.
#[derive(Clone, Debug)]
struct Trial {
    /// Sent packets per second.
    packets: f64,
    /// Processor time of the node, and of its sandbox processes, in percent of a core.
    own: f64,
    sandboxes: f64,
    /// The part of the time in which the core that runs modules was busy with them, also waiting for sandbox processes, in
    /// percent.
    busy: f64,
    /// Resident memory (PSS) in MiB after the packets.
    resident: f64,
    /// The time in which the node's threads for packets were ready and other programs had their core, in percent of the
    /// trial.
    stolen: f64,
    /// The share of packets that a session did not get, in percent, as a mean of the sessions.
    lost: f64,
    /// The most frequent cause of these losses; empty without losses.
    cause: String,
}

pub(super) fn table(rounds: usize) -> Result<String, LabError> {
    let cases = RATES.iter().flat_map(|(place, rates)| SESSIONS.map(|sessions| (*place, sessions, *rates)));
    let cases: Vec<_> = cases.collect();
    let mut actions: Vec<Action<'_, Vec<Trial>>> = Vec::new();
    for &(place, sessions, rates) in &cases {
        actions.push(Box::new(move || trials(place, sessions, rates)));
    }
    let values = values_in_turn(rounds, &mut actions)?;
    let mut table = Table::new(
        "modules in | sessions | Mbit/s | packets/s | node, % of a core | quartiles | sandbox processes, % of a core | quartiles | core busy, % | ns a packet and session | PSS after, MiB | lost, % | most lost, % | most stolen, % | a working point",
    );
    for ((place, sessions, rates), rounds) in cases.iter().zip(&values) {
        for index in 0..rates.len() {
            let trials: Vec<&Trial> = rounds.iter().filter_map(|trials| trials.get(index)).collect();
            table.row(format_args!("{place} | {sessions} | {}", cells(*place, *sessions, &trials)));
        }
    }
    let sentences: Vec<String> = RATES
        .iter()
        .map(|(place, rates)| {
            let of_place = cases.iter().zip(&values).filter(|((other, ..), _)| other == place);
            sentence(*place, &of_place.map(|(_, rounds)| line(rates, rounds)).collect::<Vec<_>>())
        })
        .collect();
    Ok(format!(
        "**Traffic.** Each session runs `{MODULE}` and gets every packet: TCP of {CONNECTIONS} connections in packets of 60, 590 and 1514 bytes, 7 to 4 to 1, {:.0} bytes in the mean. Mbit/s are of these bytes. One sending thread and the kernel's work for it are on one core, all threads of the node on the other; \
the kernel's work of receiving is not the node's time. PSS: of all processes. Core busy: `BUSY%` of `weir top`, which includes the wait for sandbox processes; a core that is always busy loses packets. It is also given for a packet and session. In the rows with the most Mbit/s of modules in `node`, the sender sends as fast as it can. Lost: packets that a session did not get, for any cause. Stolen: the time in which the threads that receive and run modules were ready and other programs had their core, so losses beside it are not the node's. \
A rate is a working point if most rounds lost at most {LOST_MAX} %. Processor time is that of these rounds only, since the node did not do all of the work in the others. Medians of {rounds} rounds in turn of {} ms each.\n\n{table}\n{}",
        mean_length(),
        TIME.as_millis(),
        sentences.join("\n")
    ))
}

/// Processor time as a straight line over packets/s, with one value a round.
#[derive(Clone, Debug, Default)]
struct Line {
    /// The time of a further packet, in ns.
    slope: Sample,
    /// The part of a core that does not grow with packets while some arrive, in percent.
    base: Sample,
}

/// The line through the values at the two rates of [`LINE`]. It has no values if packets were lost at one of them.
fn line(rates: &[f64], rounds: &[Vec<Trial>]) -> Line {
    let place = |wanted: f64| rates.iter().position(|rate| (rate - wanted).abs() < 0.5);
    let (Some(low), Some(high)) = (place(LINE[0]), place(LINE[1])) else { return Line::default() };
    let at = |index: usize| rounds.iter().filter_map(|trials| trials.get(index)).collect::<Vec<_>>();
    let pairs: Vec<_> = at(low).into_iter().zip(at(high)).collect();
    let kept: Vec<_> = pairs.iter().filter(|(low, high)| low.is_lossless() && high.is_lossless()).collect();
    let mut line = Line::default();
    if 2 * kept.len() <= pairs.len() {
        return line;
    }
    for (low, high) in kept {
        let percent = (high.percent() - low.percent()) / (high.packets - low.packets);
        line.slope.push(percent / 100.0 * 1e9);
        line.base.push(low.percent() - percent * low.packets);
    }
    line
}

/// The sentence about the cost of a packet with each number of sessions.
fn sentence(place: Place, lines: &[Line]) -> String {
    let text = |name: String, line: &Line| match line.slope.median() {
        median if median.is_nan() => format!("with {name} unknown, since packets were lost"),
        median => format!(
            "with {name} {median:.0} ns ({}) beside {:.2} % of a core ({})",
            line.slope.quartiles().spread(0),
            line.base.median(),
            line.base.quartiles().spread(2)
        ),
    };
    let mut parts: Vec<String> = SESSIONS
        .iter()
        .zip(lines)
        .map(|(sessions, line)| text(format!("{sessions} sessions"), line))
        .collect();
    if let [one, many] = lines {
        let each =
            |many: &Sample, one: &Sample| many.less(one).scaled(1.0 / to_f64(SESSIONS[1] - SESSIONS[0]));
        let each = Line { slope: each(&many.slope, &one.slope), base: each(&many.base, &one.base) };
        parts.push(text("each session beyond the first".to_owned(), &each));
    }
    format!(
        "Between {:.0} and {:.0} Mbit/s, a further packet costs, with modules in {place}: {}.\n",
        LINE[0],
        LINE[1],
        parts.join("; ").replace("with 1 sessions", "with 1 session")
    )
}

/// The cells of a row after the number of sessions.
fn cells(place: Place, sessions: usize, trials: &[&Trial]) -> String {
    let of_all = |value: fn(&Trial) -> f64| trials.iter().map(|trial| value(trial)).collect::<Sample>();
    let lossless = || trials.iter().filter(|trial| trial.is_lossless());
    let sample = |value: fn(&Trial) -> f64| lossless().map(|trial| value(trial)).collect::<Sample>();
    let (packets, lost) = (of_all(|trial| trial.packets).median(), of_all(|trial| trial.lost));
    let megabits = packets * mean_length() * 8.0 / 1e6;
    let (rounds, kept) = (trials.len(), lossless().count());
    let works = 2 * kept > rounds;
    let [own, sandboxes, nanos] = if works {
        let sandboxes = sample(|trial| trial.sandboxes).cells(1);
        [
            sample(|trial| trial.own).cells(1),
            if place == Place::Own { sandboxes } else { "– | –".to_owned() },
            format!("{:.0}", sample(|trial| trial.busy).median() / 100.0 * 1e9 / packets / to_f64(sessions)),
        ]
    } else {
        ["– | –", "– | –", "–"].map(str::to_owned)
    };
    let worst = trials.iter().max_by(|one, other| one.lost.total_cmp(&other.lost));
    let cause = worst.map_or("no data", |trial| &trial.cause);
    let verdict = match works {
        true if kept == rounds => "yes".to_owned(),
        true => format!("in {kept} of {rounds} rounds, else {cause}"),
        false => format!("**no**: {cause}"),
    };
    format!(
        "{megabits:.0} | {packets:.0} | {own} | {sandboxes} | {:.0} | {nanos} | {:.0} | {:.2} | {:.2} | {:.1} | {verdict}",
        of_all(|trial| trial.busy).median(),
        of_all(|trial| trial.resident).median(),
        lost.median(),
        lost.max(),
        of_all(|trial| trial.stolen).max()
    )
}

impl Trial {
    /// Returns true if no packets were lost, or a negligible share.
    fn is_lossless(&self) -> bool {
        self.lost <= LOST_MAX
    }

    /// Processor time of all processes, in percent of a core.
    fn percent(&self) -> f64 {
        self.own + self.sandboxes
    }
}

/// The mean length of packets in bytes.
fn mean_length() -> f64 {
    LENGTHS.iter().map(|length| to_f64(*length)).sum::<f64>() / to_f64(LENGTHS.len())
}

/// The packets that are sent in turn. Each connection has three lengths; each four connections have the whole mix.
fn frames() -> Vec<Vec<u8>> {
    let of_connection = |connection: u16| {
        (0..3).map(move |turn| {
            segment(connection, LENGTHS[(usize::from(connection) + 4 * turn) % LENGTHS.len()])
        })
    };
    (0..CONNECTIONS).flat_map(of_connection).collect()
}

/// Packets per second at a rate in Mbit/s.
fn packets_per_second(megabits: f64) -> u64 {
    Duration::from_secs_f64(megabits * 1e6 / 8.0 / mean_length()).as_secs()
}

/// Measures a node with sessions at each of the rates.
fn trials(place: Place, sessions: usize, rates: &[f64]) -> Result<Vec<Trial>, LabError> {
    let _veth_pair = VethPair::new("a", "b")?;
    let mut node = NodeProcess::start_on(CORES, INTERFACE)?;
    for number in 0..sessions {
        add_session(&mut node, number, place, MEMORY)?;
    }
    wait_for_modules(&mut node, sessions)?;
    let processes = NodeProcesses::of(node.pid())?;
    let traffic = Traffic::start("a", frames())?;
    let mut trials = Vec::new();
    for &rate in rates {
        let (all_before, sent_before_all, all_begin) = (node.snapshot()?, traffic.sent(), Instant::now());
        traffic.set_rate(packets_per_second(rate));
        std::thread::sleep(SETTLE);
        let busy_before = busy(&node.snapshot()?);
        let (before, sent_before, begin) = (processes.time()?, traffic.sent(), Instant::now());
        std::thread::sleep(TIME);
        let (after, sent, time) = (processes.time()?, traffic.sent() - sent_before, begin.elapsed());
        let busy = busy(&node.snapshot()?).saturating_sub(busy_before);
        traffic.set_rate(0);
        std::thread::sleep(SETTLE);
        let snapshot = node.snapshot()?;
        check_no_faults(&snapshot)?;
        let stolen = stolen(&snapshot).saturating_sub(stolen(&all_before)).as_secs_f64();
        let stolen = stolen * 100.0 / all_begin.elapsed().as_secs_f64();
        let all = (traffic.sent() - sent_before_all) * u64::try_from(sessions).unwrap_or(1);
        let lost = all.saturating_sub(delivered(&snapshot) - delivered(&all_before));
        let [own, sandboxes] = after.percent_since(before, time);
        trials.push(Trial {
            packets: sent as f64 / time.as_secs_f64(),
            own,
            sandboxes,
            busy: busy.as_secs_f64() * 100.0 / time.as_secs_f64(),
            lost: lost as f64 * 100.0 / all.max(1) as f64,
            resident: processes.resident()?.pss,
            stolen,
            cause: cause(lost, &losses(&snapshot), &losses(&all_before)),
        });
    }
    node.stop()?;
    Ok(trials)
}

/// The packets that modules have got, summed over all sessions.
fn delivered(snapshot: &Snapshot) -> u64 {
    snapshot.sessions.iter().flat_map(|session| &session.modules).map(|module| module.packets).sum()
}

/// The time that cores have spent in modules and on their behalf.
fn busy(snapshot: &Snapshot) -> Duration {
    Duration::from_nanos(snapshot.cores.iter().map(|core| core.busy_ns).sum())
}

/// The time in which threads for packets were ready and other programs had their core.
fn stolen(snapshot: &Snapshot) -> Duration {
    let cores = snapshot.cores.iter().map(|core| core.stolen_ns);
    let interfaces = snapshot.interfaces.iter().map(|interface| interface.stolen_ns);
    Duration::from_nanos(cores.chain(interfaces).sum())
}

/// Lost packets by cause, summed over all sessions.
fn losses(snapshot: &Snapshot) -> BTreeMap<String, u64> {
    let missed: u64 = snapshot.interfaces.iter().map(|interface| interface.missed).sum();
    let sessions = u64::try_from(snapshot.sessions.len()).unwrap_or(u64::MAX);
    let mut losses = BTreeMap::from([(MISSED.to_owned(), missed * sessions)]);
    for (cause, packets) in
        snapshot.sessions.iter().flat_map(|session| &session.channels).flat_map(|c| &c.drops)
    {
        *losses.entry(cause.clone()).or_default() += packets;
    }
    losses
}

/// The most frequent cause of `lost` packets that were lost between two counts; empty if no packet was lost.
fn cause(lost: u64, after: &BTreeMap<String, u64>, before: &BTreeMap<String, u64>) -> String {
    let mut causes: Vec<(u64, &str)> = after
        .iter()
        .map(|(cause, packets)| {
            (packets.saturating_sub(before.get(cause).copied().unwrap_or(0)), cause.as_str())
        })
        .collect();
    let counted: u64 = causes.iter().map(|(packets, _)| packets).sum();
    causes.push((lost.saturating_sub(counted), UNCOUNTED));
    causes
        .into_iter()
        .max()
        .filter(|(packets, _)| lost > 0 && *packets > 0)
        .map_or("", |(_, cause)| cause)
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(lost: &[f64]) -> String {
        let trial = |lost: &f64| Trial {
            packets: 1e6,
            own: 50.0,
            sandboxes: 10.0,
            busy: 70.0,
            resident: 90.0,
            stolen: 3.0,
            lost: *lost,
            cause: format!("cause of {lost}"),
        };
        let trials: Vec<Trial> = lost.iter().map(trial).collect();
        cells(Place::Own, 7, &trials.iter().collect::<Vec<_>>())
    }

    #[test]
    fn a_rate_with_losses_is_no_working_point_and_has_no_processor_time() {
        let works = row(&[0.0, 0.01, 2.0]);
        assert!(works.contains("| 50.0 | 50.0–50.0 | 10.0 | 10.0–10.0 | 70 | 100 | 90 |"), "{works}");
        assert!(works.ends_with("| 0.01 | 2.00 | 3.0 | in 2 of 3 rounds, else cause of 2"), "{works}");
        assert!(row(&[0.0, 0.01]).ends_with("| yes"));
        for (lost, cause) in
            [(&[1.0, 2.0][..], "cause of 2"), (&[f64::NAN], "cause of NaN"), (&[], "no data")]
        {
            let fails = row(lost);
            assert!(fails.ends_with(&format!("| **no**: {cause}")) && !fails.contains("50.0"), "{fails}");
        }
    }

    #[test]
    fn a_further_packet_costs_the_difference_between_two_rates() {
        let trial = |packets: f64, own: f64, lost: f64| Trial {
            packets,
            own,
            sandboxes: 1.0,
            busy: 0.0,
            resident: 0.0,
            stolen: 0.0,
            lost,
            cause: String::new(),
        };
        let rates = [10.0, LINE[0], LINE[1]];
        let round = |lost: f64| vec![trial(1.0, 9.0, 9.0), trial(1e4, 2.0, 0.0), trial(5e4, 3.0, lost)];
        let kept = line(&rates, &[round(0.0), round(0.0)]);
        assert!((kept.slope.median() - 250.0).abs() < 1e-6, "{kept:?}");
        assert!((kept.base.median() - 2.75).abs() < 1e-6, "{kept:?}");
        let mostly = line(&rates, &[round(0.0), round(1.0), round(0.0)]);
        assert!((mostly.slope.median() - 250.0).abs() < 1e-6, "{mostly:?}");
        assert!(line(&rates, &[round(1.0), round(0.0)]).slope.median().is_nan());
        assert!(line(&rates[..2], &[round(0.0)]).slope.median().is_nan());
        let more = Line { slope: kept.slope.scaled(10.0), base: kept.base.scaled(2.0) };
        let text = sentence(Place::Node, &[kept.clone(), more]);
        let each =
            "with each session beyond the first 250 ns (250–250) beside 0.31 % of a core (0.31–0.31).\n";
        assert!(text.contains("with 1 session 250 ns") && text.ends_with(each), "{text}");
        let text = sentence(Place::Node, &[kept, Line::default()]);
        assert!(text.contains("with 10 sessions unknown, since packets were lost"), "{text}");
        assert!(text.ends_with("the first unknown, since packets were lost.\n"), "{text}");
    }

    #[test]
    fn the_cause_of_a_loss_is_the_most_frequent_one() {
        let [before, after] = [[5, 70], [25, 71]]
            .map(|[full, shed]| BTreeMap::from([("queue-full".to_owned(), full), ("shed".to_owned(), shed)]));
        assert_eq!(cause(21, &after, &before), "queue-full");
        assert_eq!(cause(100, &after, &before), UNCOUNTED);
        assert_eq!(cause(0, &before, &before), "");
    }

    #[test]
    fn offered_packets_have_the_rate_and_the_mix() {
        let frames = frames();
        let count = |length: usize| frames.iter().filter(|frame| frame.len() == length).count();
        assert_eq!([60, 590, 1514].map(count), [7, 4, 1].map(|share| share * frames.len() / 12));
        let bytes: usize = frames.iter().map(Vec::len).sum();
        assert!((to_f64(bytes) / to_f64(frames.len()) - mean_length()).abs() < 1e-9);
        let rate = packets_per_second(100.0) as f64 * mean_length() * 8.0 / 1e6;
        assert!((rate - 100.0).abs() < 0.01, "{rate}");
    }
}
