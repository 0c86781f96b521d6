//! Diet-OKE, figure 4: the largest rate without loss, by the size of packets.

use super::monitor::{
    BUFFER, Monitor, MonitorReceiving, PacketsPerCall, Wakeup, largest_good, shipped_modules, to_integer,
};
use super::network::{Traffic, VethPair, datagram_of};
use super::{Chart, ChartAxis, Criterion, Csv, Figure, Mark, Mechanism, Outcome};
use crate::error::LabError;
use crate::machine::{OTHER_CORE, bind};
use std::time::Duration;
use weir_netio::SocketKind;
use weir_units::Bytes;

pub const FIGURE: Figure = Figure {
    name: "diet-oke-4",
    title: "Diet-OKE, figure 4: the rate without loss, by the size of packets",
    experiment: "UDP packets over a veth pair, by AF_XDP, to a thread that asks for packets once per millisecond, like a thread that shares its core, and \
runs the four modules of figure 5 on them in place. For each size a search finds the largest rate at which no packet is lost. The \
sender, on the other core, also does the kernel's part of receiving, and does not exceed the rate that it can sustain. Its rate without \
a receiver is shown for comparison. The receive buffer has 4 MiB.",
    paper: "two receiving threads on a microengine of an IXP1200 (simulated, 1 Gbit/s) receive 600 to 700 Mbit/s without loss for most sizes, and \
less for small packets, as the work is per packet. Packets wait in a circular buffer in SDRAM.",
    without: "the buffer has 256 KiB, the minimum",
    run,
};

/// The sizes of packets in bytes.
const SIZES: [u16; 5] = [60, 124, 252, 508, 1514];
/// The highest rate that is tried, in packets/s.
const RATE_MAX: f64 = 480_000.0;
/// The duration of a trial.
const TRIAL: Duration = Duration::from_millis(200);
/// The number of trials of a rate. The rate counts as free of loss if one trial has no loss, because the machine may take
/// the core away during the others.
const TRIES: usize = 3;
/// The buffer without the examined mechanism: the minimum.
const BUFFER_MIN: Bytes = Bytes(256 << 10);
/// The number of times that the range of a search is halved.
const STEPS: usize = 5;
const MODULES: [&str; 4] = ["syn-flood", "port-count", "payload-match", "dscp-mark"];
/// The interval at which the thread asks for packets.
const PERIOD: Duration = Duration::from_millis(1);
/// The least permitted ratio of the rate without loss to the sender's own rate. The sender also does the kernel's part of
/// receiving.
const RATIO_MIN: f64 = 0.5;

/// The rates for a packet size in packets/s: the largest without loss (`weir`), and the sender's without a receiver.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    size: f64,
    weir: f64,
    sender_only: f64,
}

fn run(mechanism: Mechanism) -> Result<Outcome, LabError> {
    bind(OTHER_CORE)?;
    let mut points = Vec::new();
    for size in SIZES {
        points.push(Point {
            size: size.into(),
            weir: loss_free_rate(size, mechanism)?,
            sender_only: sender_only(size)?,
        });
    }
    let mut csv =
        Csv::new(&["size_bytes", "received_per_s", "sent_per_s", "received_mbit_per_s", "sent_mbit_per_s"]);
    let mbit = |size: f64, rate: f64| size * 8.0 * rate / 1e6;
    for Point { size, weir, sender_only } in &points {
        csv.row([*size, *weir, *sender_only, mbit(*size, *weir), mbit(*size, *sender_only)].map(Into::into));
    }
    let line_of = |rate: fn(&Point) -> f64| {
        points.iter().map(|point| (point.size, mbit(point.size, rate(point)))).collect::<Vec<_>>()
    };
    let (weir, sender_only) = (line_of(|point| point.weir), line_of(|point| point.sender_only));
    let mbit_max = weir.iter().chain(&sender_only).map(|(_, mbit)| *mbit).fold(1.0, f64::max);
    let mut chart = Chart::new(
        ChartAxis::linear("size of packets, bytes", 0.0, 1600.0),
        ChartAxis::linear("Mbit/s", 0.0, mbit_max * 1.15),
    );
    chart.add("without loss, four modules", 0, Mark::Dotted(weir));
    chart.add("sent without a receiver", 5, Mark::Dotted(sender_only));
    Ok(Outcome::new(&FIGURE, csv, chart, judge(&points)?, String::new()))
}

/// The largest rate without loss, in packets/s.
fn loss_free_rate(size: u16, mechanism: Mechanism) -> Result<f64, LabError> {
    let buffer = if mechanism == Mechanism::On { BUFFER } else { BUFFER_MIN };
    let receiving = MonitorReceiving { kind: SocketKind::Xdp, wakeup: Wakeup::Every(PERIOD), buffer };
    let _veth_pair = VethPair::new("a", "b")?;
    let mut monitor = Monitor::start("b", receiving, &shipped_modules(&MODULES)?, PacketsPerCall::Batch)?;
    Ok(largest_good(RATE_MAX, STEPS, |rate| is_loss_free(&mut monitor, size, rate))?.unwrap_or(0.0))
}

/// The sender's rate without a receiver, in packets/s, at most [`RATE_MAX`].
fn sender_only(size: u16) -> Result<f64, LabError> {
    let _veth_pair = VethPair::new("a", "b")?;
    let traffic = Traffic::start("a", vec![datagram_of(size.into())])?;
    traffic.set_rate(to_integer(RATE_MAX) as u64);
    std::thread::sleep(TRIAL);
    Ok(traffic.sent() as f64 / TRIAL.as_secs_f64())
}

fn is_loss_free(monitor: &mut Monitor, size: u16, rate: f64) -> Result<bool, LabError> {
    // The search begins at 0, where there would be no traffic.
    let rate = rate.max(1000.0);
    let traffic = Traffic::start("a", vec![datagram_of(size.into())])?;
    for _ in 0..TRIES {
        let trial = monitor.trial(&traffic, to_integer(rate) as u64, TRIAL)?;
        if trial.is_loss_free() && trial.rate > 0.97 * rate {
            return Ok(true);
        }
    }
    Ok(false)
}

fn judge(points: &[Point]) -> Result<Vec<Criterion>, LabError> {
    // A NaN makes the result NaN, which breaks the criterion.
    let ratios = points.iter().map(|point| point.weir / point.sender_only);
    let least = ratios.fold(f64::INFINITY, |a, b| if a.is_nan() || a <= b { a } else { b });
    let (Some(small), Some(large)) = (points.first(), points.last()) else {
        return Err(LabError::NoData("no size was tried".to_owned()));
    };
    let throughput = |point: &Point| point.size * point.weir;
    let least_ratio = "rate without loss, of the sender's rate without a receiver, minimum over the sizes";
    let size_ratio = "Mbit/s with the largest packets ÷ Mbit/s with the smallest: work is per packet";
    Ok(vec![
        Criterion::at_least(least_ratio, least * 100.0, RATIO_MIN * 100.0, "%"),
        Criterion::at_least(size_ratio, throughput(large) / throughput(small), 5.0, "×"),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(weir: [f64; 2], sender_only: [f64; 2]) -> Vec<bool> {
        let points =
            [0, 1].map(|i| Point { size: [60.0, 1514.0][i], weir: weir[i], sender_only: sender_only[i] });
        judge(&points).unwrap().iter().map(|criterion| criterion.is_kept).collect()
    }

    #[test]
    fn losses_of_a_small_buffer_break_a_criterion() {
        assert_eq!(kept([300e3, 250e3], [400e3, 400e3]), [true, true]);
        assert_eq!(kept([300e3, 120e3], [400e3, 400e3]), [false, true]);
        assert_eq!(kept([300e3, 20e3], [400e3, 30e3]), [true, false]);
        assert_eq!(kept([0.0, 0.0], [0.0, 0.0]), [false, false]);
        assert!(matches!(judge(&[]), Err(LabError::NoData(_))));
    }
}
