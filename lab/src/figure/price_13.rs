//! Price of Safety, figure 13: the part of the traffic that a receiver gets, by its queue length and its period.

use super::network::{Traffic, create_veth_pair, datagram_of, received_counters};
use super::node::{NodeProcess, find_session, parse_module};
use super::watch::PauseWatcher;
use super::{Chart, ChartAxis, Criterion, Csv, Figure, Mark, Mechanism, Outcome, synthetic};
use crate::error::LabError;
use crate::machine::{OTHER_CORE, bind};
use crate::namespace::use_real_time_priority;
use std::time::{Duration, Instant};
use weir_netio::{LiveSink, SocketKind};
use weir_node::control::protocol::Snapshot;

pub const FIGURE: Figure = Figure {
    name: "price-13",
    title: "Price of Safety, figure 13: received packets, by queue length and period",
    experiment: "A session with 10 % of a core receives bursts of 8 packets of full length every 1.02 ms, 96.5 Mbit/s. The interval does not divide the \
other session's period of 10 ms, so bursts come at all phases of it. The receiver's module takes about a microsecond per packet and \
forwards it to an interface, at whose other end the kernel counts it. Receiving and copying a packet is charged to the receiver as well. \
The other session on the same core could use the whole core, and has 4 ms in each 10 ms. The receiver's queue holds 4 to 58 packets, and \
its period is 1 to 20 ms. Each point is the median of three trials of 400 ms. Other programs of the machine have to wait meanwhile \
(`SCHED_RR`). Trials in which the machine itself took a core away for more than 1 ms are repeated, whatever their result. Thin lines are \
the prediction for earliest deadline first. The other session's deadline is 10 ms after its 4 ms have begun, the receiver's a period \
after a packet has woken it. With a period of up to 6 ms the receiver never waits longer than one run of the other, with 10 ms and more \
it waits for all 4 ms, and in between for the part of its period beyond 6 ms. In each 10 ms the packets that come during such a wait and \
exceed the queue are lost, as are the packets of a burst that exceed the queue.",
    paper: "at about 97 Mbit/s, all packets are received with a short period even from a short queue, and with a long queue even at a long period. \
With a medium queue fewer are received as the period grows, because the receiver waits longer for the core; well beyond the other's 4 ms \
it gets no worse. With the shortest queue many are lost at any period, on the way from the driver.",
    without: "the receiver has no reservation, and gets the time that the other leaves",
    run,
};

/// The measured queue lengths of the receiver, in packets.
const QUEUES: [u32; 6] = [4, 8, 16, 24, 32, 58];
/// The measured periods of the receiver.
const PERIODS_MS: [f64; 8] = [1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 14.0, 20.0];
/// The receiver's share of the core.
const SHARE: f64 = 0.1;
/// The largest processor time of the receiver in percent of the core: less than its slice, so that no packet is lost
/// for lack of processor time.
const USED_PERCENT_MAX: f64 = 9.0;
/// The slice and the period of the other session, in ms.
const OTHER_MS: (f64, f64) = (4.0, 10.0);
/// The number of packets of a burst.
const BURST: u32 = 8;
/// The interval of bursts. It does not divide the other session's period, so bursts come at all phases of that period.
const BURST_INTERVAL: Duration = Duration::from_micros(1020);
/// The length of a packet in bytes.
const FRAME: usize = 1514;
/// The duration of a trial.
const TRIAL: Duration = Duration::from_millis(400);
/// The time after a trial in which the last packets arrive.
const DRAIN_TIME: Duration = Duration::from_millis(60);
/// The number of judged trials of a point.
const TRIALS: usize = 3;
/// The largest number of trials of a point, including those that the machine disturbed.
const TRIALS_MAX: usize = 12;
/// The cores that must not pause: that of the sender, and that of the modules.
const CORES: [u16; 2] = [OTHER_CORE, 1];
/// Iterations of the other session's loop per packet. At 1,000 packets per second this is more than a core can do.
const OTHER_ITERATIONS: u32 = 8_000_000;
/// Iterations of the receiver's loop per packet.
const ITERATIONS: u32 = 2_000;
/// The percentage of received packets that counts as all packets.
const ALL_PERCENT: f64 = 98.0;
/// The length of a queue that suffices with a short period.
const MODEST_QUEUE: u32 = 16;
/// A short period: the receiver never waits longer than one run of the other session.
const SHORT_MS: f64 = 4.0;
/// A period longer than that of the other session.
const LONG_MS: f64 = 12.0;
/// The tolerance of the prediction in percentage points: each end of a wait can shift by a run of 200 us in 10 ms.
const TOLERANCE: f64 = 6.0;
/// The largest permitted difference between long periods, in percentage points.
const SPREAD_MAX: f64 = 4.0;

/// The part of the traffic that was received with one queue length and one period.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    queue: u32,
    period_ms: f64,
    /// Incoming Mbit/s, as counted by the kernel.
    offered: f64,
    /// The forwarded part, in percent.
    received: f64,
    /// Processor time charged to the receiver, in percent of the core.
    used: f64,
}

fn run(mechanism: Mechanism) -> Result<Outcome, LabError> {
    let (points, repeated) = record(mechanism)?;
    let mut csv = Csv::new(&[
        "room_packets",
        "room_kb",
        "period_ms",
        "offered_mbit",
        "received_percent",
        "cpu_percent",
    ]);
    for point in &points {
        let queue = f64::from(point.queue);
        csv.row(
            [queue, kilobytes(point.queue), point.period_ms, point.offered, point.received, point.used]
                .map(Into::into),
        );
    }
    let remarks = format!(
        "{repeated} trials were repeated because the machine had taken a core away; {} are judged.",
        points.len() * TRIALS
    );
    Ok(Outcome::new(&FIGURE, csv, chart(&points), judge(&points)?, remarks))
}

fn kilobytes(queue: u32) -> f64 {
    f64::from(queue) * 1.514
}

/// The predicted part of the traffic that is received, in percent.
fn predicted(queue: u32, period_ms: f64) -> f64 {
    let (slice, period) = OTHER_MS;
    // The longest wait of the receiver in each period of the other session.
    let wait_ms = (period_ms - (period - slice)).clamp(0.0, slice);
    // The time until the queue is full.
    let covered_ms = f64::from(queue) / f64::from(BURST) * BURST_INTERVAL.as_secs_f64() * 1e3;
    // The part of a burst that fits into the queue.
    let part = (f64::from(queue) / f64::from(BURST)).min(1.0);
    100.0 * (part * (1.0 - wait_ms / period) + wait_ms.min(covered_ms) / period).min(part)
}

/// Measures all points. Also returns the number of repeated trials.
fn record(mechanism: Mechanism) -> Result<(Vec<Point>, usize), LabError> {
    use_real_time_priority();
    bind(OTHER_CORE)?;
    // To the receiver, from the receiver, and to the other session.
    for (one, other) in [("a", "b"), ("c", "d"), ("e", "f")] {
        create_veth_pair(one, other)?;
    }
    let mut node = NodeProcess::start(
        "blocking = \"200us\"\n\
         [[interface]]\nname = \"b\"\nkind = \"xdp\"\narena = \"8 MiB\"\n\
         [[interface]]\nname = \"f\"\narena = \"8 MiB\"\n\
         [[link]]\ninterface = \"c\"\nrate = \"1 Gbit/s\"",
    )?;
    let (slice, period) = OTHER_MS;
    node.create(&format!(
        "name = \"other\"\nprofile = \"long\"\ncpu = [{{ period = \"{period}ms\", slice = \"{slice}ms\" }}]\n\
         channel = [{{ interface = \"f\", queue = 256 }}]\n"
    ))?;
    node.load("other", parse_module("module = \"busy.wasm\"")?, &synthetic::busy(OTHER_ITERATIONS)?)?;
    let other_traffic = Traffic::start("e", vec![datagram_of(60)])?;
    other_traffic.set_rate(1000);
    let mut sink = LiveSink::open("a", SocketKind::Packet)?;
    let work = synthetic::busy(ITERATIONS)?;
    let (mut points, mut repeated) = (Vec::new(), 0);
    let watch = PauseWatcher::start(&CORES)?;
    for queue in QUEUES {
        for period_ms in PERIODS_MS {
            let cpu = match mechanism {
                Mechanism::On => {
                    format!(
                        "cpu = [{{ period = \"{period_ms}ms\", slice = \"{:.0}us\" }}]\n",
                        period_ms * SHARE * 1e3
                    )
                }
                Mechanism::Off => String::new(),
            };
            node.create(&format!(
                "name = \"receiver\"\nprofile = \"long\"\n{cpu}\
                 channel = [{{ interface = \"b\", queue = {queue}, forward = \"up\" }}]\n\
                 output = [{{ name = \"up\", link = \"c\", queue = 1024 }}]\n"
            ))?;
            node.load("receiver", parse_module("module = \"busy.wasm\"")?, &work)?;
            let (trials, left_out) = watch.undisturbed(TRIALS, TRIALS_MAX, || trial(&mut sink, &mut node))?;
            repeated += left_out;
            let median = |value: fn(&Trial) -> f64| {
                let mut values: Vec<f64> = trials.iter().map(value).collect();
                values.sort_by(f64::total_cmp);
                values[values.len() / 2]
            };
            points.push(Point {
                queue,
                period_ms,
                offered: median(|trial| trial.offered),
                received: median(|trial| trial.received),
                used: median(|trial| trial.used),
            });
            node.close("receiver")?;
        }
    }
    Ok((points, repeated))
}

/// The measurement of a trial.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// Incoming Mbit/s on the wire, as counted by the kernel.
    offered: f64,
    /// The forwarded part as counted by the kernel, in percent.
    received: f64,
    /// Processor time charged to the receiver, in percent of the core.
    used: f64,
}

/// Processor time charged to the receiver in seconds: its own, and that of other threads on its behalf.
fn charged(snapshot: &Snapshot) -> f64 {
    let used = find_session(snapshot, "receiver")
        .map_or(0, |session| session.cpu.iter().map(|cpu| cpu.used_ns + cpu.debited_ns).sum());
    used as f64 / 1e9
}

/// Runs a trial: sends bursts, and counts the packets that arrive and that are forwarded.
fn trial(sink: &mut LiveSink, node: &mut NodeProcess) -> Result<Trial, LabError> {
    let before = (received_counters("b")?.0, received_counters("d")?.0, charged(&node.snapshot()?));
    let frame = datagram_of(FRAME);
    let burst = vec![frame.as_slice(); BURST as usize];
    let begin = Instant::now();
    let mut due = begin;
    while begin.elapsed() < TRIAL {
        sink.send(&burst);
        // A late burst delays the following bursts, because catching up would make a larger burst.
        due = (due + BURST_INTERVAL).max(Instant::now());
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    let time = begin.elapsed().as_secs_f64();
    std::thread::sleep(DRAIN_TIME);
    let (arrived, forwarded) = (received_counters("b")?.0 - before.0, received_counters("d")?.0 - before.1);
    let bits = (FRAME + 24) as f64 * 8.0;
    Ok(Trial {
        offered: arrived as f64 * bits / time / 1e6,
        received: forwarded as f64 / arrived as f64 * 100.0,
        used: (charged(&node.snapshot()?) - before.2) / time * 100.0,
    })
}

fn judge(points: &[Point]) -> Result<Vec<Criterion>, LabError> {
    let points_where = |condition: &dyn Fn(&Point) -> bool| -> Result<Vec<Point>, LabError> {
        let found: Vec<Point> = points.iter().filter(|point| condition(point)).copied().collect();
        if found.is_empty() {
            return Err(LabError::NoData("not all queue lengths and periods were tried".to_owned()));
        }
        Ok(found)
    };
    let least = |points: &[Point]| points.iter().map(|point| point.received).fold(f64::INFINITY, f64::min);
    let short_period = points_where(&|point| point.period_ms <= SHORT_MS && point.queue >= MODEST_QUEUE)?;
    let longest_queue = points_where(&|point| Some(&point.queue) == QUEUES.last())?;
    // Points at which the queue is full before the wait ends.
    let lossy = points_where(&|point| {
        let has_losses = predicted(point.queue, point.period_ms) < 100.0;
        point.period_ms >= LONG_MS && point.queue >= BURST && has_losses
    })?;
    let deviations =
        lossy.iter().map(|point| (point.received - predicted(point.queue, point.period_ms)).abs());
    let spread = QUEUES.iter().map(|queue| {
        let these = lossy.iter().filter(|point| point.queue == *queue).map(|point| point.received);
        these.clone().fold(0.0, f64::max) - these.fold(f64::INFINITY, f64::min)
    });
    let modest_lossy = points_where(&|point| point.queue == MODEST_QUEUE && point.period_ms >= LONG_MS)?;
    let received_max = modest_lossy.iter().map(|point| point.received).fold(0.0, f64::max);
    let used = points.iter().map(|point| point.used).fold(0.0, f64::max);
    Ok(vec![
        Criterion::at_most("processor time charged to the receiver", used, USED_PERCENT_MAX, "%"),
        Criterion::at_least(
            format!(
                "with {:.0} KB or more, period of up to {SHORT_MS:.0} ms: received",
                kilobytes(MODEST_QUEUE)
            ),
            least(&short_period),
            ALL_PERCENT,
            "%",
        ),
        Criterion::at_least(
            format!("with {:.0} KB, all periods: received", kilobytes(QUEUES[QUEUES.len() - 1])),
            least(&longest_queue),
            ALL_PERCENT,
            "%",
        ),
        Criterion::at_most(
            format!("with {:.0} KB, period of {LONG_MS:.0} ms or more: received", kilobytes(MODEST_QUEUE)),
            received_max,
            predicted(MODEST_QUEUE, LONG_MS) + TOLERANCE,
            "%",
        ),
        Criterion::at_most(
            format!(
                "periods of {LONG_MS:.0} ms or more, {:.0} KB or more: largest deviation from the prediction",
                kilobytes(BURST)
            ),
            deviations.fold(0.0, f64::max),
            TOLERANCE,
            "points",
        ),
        Criterion::at_most(
            format!("periods of {LONG_MS:.0} ms or more: largest difference for the same queue"),
            spread.fold(0.0, f64::max),
            SPREAD_MAX,
            "points",
        ),
    ])
}

fn chart(points: &[Point]) -> Chart {
    let mut chart = Chart::new(
        ChartAxis::linear("period of the receiver, ms", 0.0, 25.0),
        ChartAxis::linear("received, % of the traffic", 0.0, 105.0),
    );
    for (number, queue) in QUEUES.into_iter().enumerate() {
        let expected = PERIODS_MS.map(|period| (period, predicted(queue, period)));
        chart.add("", 5, Mark::Expected(expected.to_vec()));
        let these = points.iter().filter(|point| point.queue == queue);
        let line = these.map(|point| (point.period_ms, point.received)).collect();
        chart.add(&format!("{:.1} KB", kilobytes(queue)), number, Mark::Dotted(line));
    }
    chart
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(received: impl Fn(u32, f64) -> f64) -> Vec<Point> {
        let all = QUEUES.iter().flat_map(|queue| PERIODS_MS.map(|period| (*queue, period)));
        all.map(|(queue, period_ms)| Point {
            queue,
            period_ms,
            offered: 97.0,
            received: received(queue, period_ms),
            used: 5.0,
        })
        .collect()
    }

    fn kept(points: &[Point]) -> Vec<bool> {
        judge(points).unwrap().iter().map(|criterion| criterion.is_kept).collect()
    }

    #[test]
    fn the_predicted_part_follows_from_the_deadlines() {
        for (queue, period, wanted) in [
            (4, 1.0, 50.0),
            (8, 6.0, 100.0),
            (16, 8.0, 100.0),
            (8, 8.0, 90.2),
            (8, 10.0, 70.2),
            (16, 20.0, 80.4),
        ] {
            let found = predicted(queue, period);
            assert!((found - wanted).abs() < 0.2, "{queue} {period} {found}");
        }
        assert!((predicted(58, 20.0) - 100.0).abs() < 1e-9 && predicted(4, 20.0) < 40.0);
    }

    #[test]
    fn only_a_surface_as_predicted_keeps_all_criteria() {
        assert_eq!(kept(&made(predicted)), [true; 6]);
        // With the shortest queue more packets may be lost.
        let extra_loss = |queue| if queue < BURST { 25.0 } else { 0.5 };
        assert_eq!(kept(&made(|queue, period| predicted(queue, period) - extra_loss(queue))), [true; 6]);
        // Without a reservation the wait is the same with each period.
        assert_eq!(kept(&made(|queue, _| predicted(queue, 20.0))), [true, false, true, true, true, true]);
        // If no packet is lost, or more the longer the period is, criteria are broken.
        assert_eq!(kept(&made(|_, _| 100.0)), [true, true, true, false, false, true]);
        assert!(!kept(&made(|queue, period| predicted(queue, period) - period))[5]);
        let mut costly = made(predicted);
        costly[3].used = 9.5;
        assert_eq!(kept(&costly), [false, true, true, true, true, true]);
        // A long queue must help.
        assert!(!kept(&made(|_, period| predicted(16, period)))[2]);
        assert!(matches!(judge(&[]), Err(LabError::NoData(_))));
    }
}
