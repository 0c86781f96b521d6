//! Price of Safety, figure 13: the part of the traffic that a receiver gets, by its queue length and its period.

use super::network::{Traffic, cable, datagram_of, received};
use super::node::{NodeProcess, module, session};
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
    here: "A session with 10 % of a core receives bursts of 8 packets of full length every 1.02 ms, 96.5 Mbit/s. The interval does not divide the \
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

/// Queue lengths in packets, and periods in ms.
const ROOMS: [u32; 6] = [4, 8, 16, 24, 32, 58];
const PERIODS_MS: [f64; 8] = [1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 14.0, 20.0];
/// The receiver's share of the core.
const SHARE: f64 = 0.1;
/// The largest processor time of the receiver in percent of the core: less than its slice, so that no packet is lost
/// for lack of processor time.
const ENOUGH: f64 = 9.0;
/// The slice and the period of the other session.
const OTHER_MS: (f64, f64) = (4.0, 10.0);
/// Packets of a burst, and the interval of bursts. The interval does not divide the other session's period, so bursts
/// come at all phases of it.
const BURST: u32 = 8;
const EVERY: Duration = Duration::from_micros(1020);
const FRAME: usize = 1514;
const TRIAL: Duration = Duration::from_millis(400);
/// The time for the last packets to arrive.
const DRAINED: Duration = Duration::from_millis(60);
const TRIALS: usize = 3;
/// The largest number of trials of a point, with those that the machine disturbed.
const TRIALS_MAX: usize = 12;
/// The cores that must not pause: the node's, and that of the sender.
const CORES: [u16; 2] = [OTHER_CORE, 1];
/// Iterations of the other session's loop per packet, of which 1,000 come per second: more than a core can do.
const OTHER_LOOP: u32 = 8_000_000;
/// Iterations of the receiver's loop.
const ITERATIONS: u32 = 2_000;
/// The percentage of received packets that counts as all.
const ALL: f64 = 98.0;
/// A queue that outlasts one run of the other session, so that a short period suffices; and a short period.
const MODEST: u32 = 16;
const SHORT_MS: f64 = 4.0;
/// A period longer than that of the other session.
const LONG_MS: f64 = 12.0;
/// The tolerance of the prediction in percentage points: each end of a wait can shift by a run of 200 us in 10 ms.
const TOLERANCE: f64 = 6.0;
/// The tolerance between long periods, in percentage points.
const LEVEL: f64 = 4.0;

/// The part of the traffic that was received with a queue and a period.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    room: u32,
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
        let room = f64::from(point.room);
        csv.row(
            [room, kilobytes(point.room), point.period_ms, point.offered, point.received, point.used]
                .map(Into::into),
        );
    }
    let found = format!(
        "{repeated} trials were repeated because the machine had taken a core away; {} are judged.",
        points.len() * TRIALS
    );
    Ok(Outcome::new(&FIGURE, csv, chart(&points), judge(&points)?, found))
}

fn kilobytes(room: u32) -> f64 {
    f64::from(room) * 1.514
}

/// The predicted part of the traffic that is received, in percent.
fn predicted(room: u32, period_ms: f64) -> f64 {
    let (slice, period) = OTHER_MS;
    let wait = (period_ms - (period - slice)).clamp(0.0, slice);
    let covered = f64::from(room) / f64::from(BURST) * EVERY.as_secs_f64() * 1e3;
    // The part of a burst that fits into the queue.
    let part = (f64::from(room) / f64::from(BURST)).min(1.0);
    100.0 * (part * (1.0 - wait / period) + wait.min(covered) / period).min(part)
}

/// Measures all points. Also returns the number of repeated trials.
fn record(mechanism: Mechanism) -> Result<(Vec<Point>, usize), LabError> {
    use_real_time_priority();
    bind(OTHER_CORE)?;
    // To the receiver, from the receiver, and to the other session.
    for (one, other) in [("a", "b"), ("c", "d"), ("e", "f")] {
        cable(one, other)?;
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
    node.load("other", module("module = \"busy.wasm\"")?, &synthetic::busy(OTHER_LOOP)?)?;
    let load = Traffic::start("e", vec![datagram_of(60)])?;
    load.set(1000);
    let mut sink = LiveSink::open("a", SocketKind::Packet)?;
    let work = synthetic::busy(ITERATIONS)?;
    let (mut points, mut repeated) = (Vec::new(), 0);
    let watch = PauseWatcher::start(&CORES)?;
    for room in ROOMS {
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
                 channel = [{{ interface = \"b\", queue = {room}, forward = \"up\" }}]\n\
                 output = [{{ name = \"up\", link = \"c\", queue = 1024 }}]\n"
            ))?;
            node.load("receiver", module("module = \"busy.wasm\"")?, &work)?;
            let (trials, left_out) = watch.undisturbed(TRIALS, TRIALS_MAX, || trial(&mut sink, &mut node))?;
            repeated += left_out;
            let middle = |of: fn(&Trial) -> f64| {
                let mut values: Vec<f64> = trials.iter().map(of).collect();
                values.sort_by(f64::total_cmp);
                values[values.len() / 2]
            };
            points.push(Point {
                room,
                period_ms,
                offered: middle(|trial| trial.offered),
                received: middle(|trial| trial.received),
                used: middle(|trial| trial.used),
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
    let used = session(snapshot, "receiver")
        .map_or(0, |session| session.cpu.iter().map(|cpu| cpu.used_ns + cpu.debited_ns).sum());
    used as f64 / 1e9
}

/// Sends for the time of a trial.
fn trial(sink: &mut LiveSink, node: &mut NodeProcess) -> Result<Trial, LabError> {
    let before = (received("b")?.0, received("d")?.0, charged(&node.snapshot()?));
    let frame = datagram_of(FRAME);
    let burst = vec![frame.as_slice(); BURST as usize];
    let begin = Instant::now();
    let mut due = begin;
    while begin.elapsed() < TRIAL {
        sink.send(&burst);
        // A late burst delays the following ones, as catching up would make a larger burst.
        due = (due + EVERY).max(Instant::now());
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    let time = begin.elapsed().as_secs_f64();
    std::thread::sleep(DRAINED);
    let (came, went) = (received("b")?.0 - before.0, received("d")?.0 - before.1);
    let bits = (FRAME + 24) as f64 * 8.0;
    Ok(Trial {
        offered: came as f64 * bits / time / 1e6,
        received: went as f64 / came as f64 * 100.0,
        used: (charged(&node.snapshot()?) - before.2) / time * 100.0,
    })
}

fn judge(points: &[Point]) -> Result<Vec<Criterion>, LabError> {
    let some = |is: &dyn Fn(&Point) -> bool| -> Result<Vec<Point>, LabError> {
        let found: Vec<Point> = points.iter().filter(|point| is(point)).copied().collect();
        if found.is_empty() {
            return Err(LabError::NoData("not all rooms and periods were tried".to_owned()));
        }
        Ok(found)
    };
    let least = |points: &[Point]| points.iter().map(|point| point.received).fold(f64::INFINITY, f64::min);
    let quick = some(&|point| point.period_ms <= SHORT_MS && point.room >= MODEST)?;
    let roomy = some(&|point| Some(&point.room) == ROOMS.last())?;
    // Points whose wait is longer than the queue lasts.
    let lossy = some(&|point| {
        let is_short_of_room = predicted(point.room, point.period_ms) < 100.0;
        point.period_ms >= LONG_MS && point.room >= BURST && is_short_of_room
    })?;
    let off = lossy.iter().map(|point| (point.received - predicted(point.room, point.period_ms)).abs());
    let spread = ROOMS.iter().map(|room| {
        let these = lossy.iter().filter(|point| point.room == *room).map(|point| point.received);
        these.clone().fold(0.0, f64::max) - these.fold(f64::INFINITY, f64::min)
    });
    let loses = some(&|point| point.room == MODEST && point.period_ms >= LONG_MS)?;
    let most = loses.iter().map(|point| point.received).fold(0.0, f64::max);
    let used = points.iter().map(|point| point.used).fold(0.0, f64::max);
    Ok(vec![
        Criterion::at_most("processor time charged to the receiver", used, ENOUGH, "%"),
        Criterion::at_least(
            format!("with {:.0} KB or more, period of up to {SHORT_MS:.0} ms: received", kilobytes(MODEST)),
            least(&quick),
            ALL,
            "%",
        ),
        Criterion::at_least(
            format!("with {:.0} KB, all periods: received", kilobytes(ROOMS[ROOMS.len() - 1])),
            least(&roomy),
            ALL,
            "%",
        ),
        Criterion::at_most(
            format!("with {:.0} KB, period of {LONG_MS:.0} ms or more: received", kilobytes(MODEST)),
            most,
            predicted(MODEST, LONG_MS) + TOLERANCE,
            "%",
        ),
        Criterion::at_most(
            format!(
                "periods of {LONG_MS:.0} ms or more, {:.0} KB or more: largest deviation from the prediction",
                kilobytes(BURST)
            ),
            off.fold(0.0, f64::max),
            TOLERANCE,
            "points",
        ),
        Criterion::at_most(
            format!("periods of {LONG_MS:.0} ms or more: largest difference for the same queue"),
            spread.fold(0.0, f64::max),
            LEVEL,
            "points",
        ),
    ])
}

fn chart(points: &[Point]) -> Chart {
    let mut chart = Chart::new(
        ChartAxis::linear("period of the receiver, ms", 0.0, 25.0),
        ChartAxis::linear("received, % of the traffic", 0.0, 105.0),
    );
    for (number, room) in ROOMS.into_iter().enumerate() {
        let expected = PERIODS_MS.map(|period| (period, predicted(room, period)));
        chart.add("", 5, Mark::Expected(expected.to_vec()));
        let these = points.iter().filter(|point| point.room == room);
        let line = these.map(|point| (point.period_ms, point.received)).collect();
        chart.add(&format!("{:.1} KB", kilobytes(room)), number, Mark::Dotted(line));
    }
    chart
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(received: impl Fn(u32, f64) -> f64) -> Vec<Point> {
        let all = ROOMS.iter().flat_map(|room| PERIODS_MS.map(|period| (*room, period)));
        all.map(|(room, period_ms)| Point {
            room,
            period_ms,
            offered: 97.0,
            received: received(room, period_ms),
            used: 5.0,
        })
        .collect()
    }

    fn kept(points: &[Point]) -> Vec<bool> {
        judge(points).unwrap().iter().map(|criterion| criterion.is_kept).collect()
    }

    #[test]
    fn the_received_part_follows_from_deadlines() {
        for (room, period, wanted) in [
            (4, 1.0, 50.0),
            (8, 6.0, 100.0),
            (16, 8.0, 100.0),
            (8, 8.0, 90.2),
            (8, 10.0, 70.2),
            (16, 20.0, 80.4),
        ] {
            let found = predicted(room, period);
            assert!((found - wanted).abs() < 0.2, "{room} {period} {found}");
        }
        assert!((predicted(58, 20.0) - 100.0).abs() < 1e-9 && predicted(4, 20.0) < 40.0);
    }

    #[test]
    fn the_surface_is_told_from_others() {
        assert_eq!(kept(&made(predicted)), [true; 6]);
        // At the least room more is lost, on the way from the driver.
        let at_least_room = |room| if room < BURST { 25.0 } else { 0.5 };
        assert_eq!(kept(&made(|room, period| predicted(room, period) - at_least_room(room))), [true; 6]);
        // Without a reservation the wait is the same with each period.
        assert_eq!(kept(&made(|room, _| predicted(room, 20.0))), [true, false, true, true, true, true]);
        // Nothing is ever lost, or more the longer the period.
        assert_eq!(kept(&made(|_, _| 100.0)), [true, true, true, false, false, true]);
        assert!(!kept(&made(|room, period| predicted(room, period) - period))[5]);
        let mut dear = made(predicted);
        dear[3].used = 9.5;
        assert_eq!(kept(&dear), [false, true, true, true, true, true]);
        // Much room does not help.
        assert!(!kept(&made(|_, period| predicted(16, period)))[2]);
        assert!(matches!(judge(&[]), Err(LabError::NoData(_))));
    }
}
