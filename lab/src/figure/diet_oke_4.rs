//! Diet-OKE, figure 4: the largest rate without loss, by the size of packets.

use super::monitor::{Calls, Monitor, Way, search, shipped, whole};
use super::scene::{ANYBODY, ASIDE, Traffic, bind, cable, datagram, unplug};
use super::{Axis, Chart, Csv, Figure, FigureError, Mark, Mechanism, Outcome, Verdict};
use std::time::Duration;
use weir_netio::Kind;

/// The experiment.
pub const FIGURE: Figure = Figure {
    name: "diet-oke-4",
    title: "Diet-OKE, figure 4: the rate without loss, by the size of packets",
    here: "UDP packets over a veth cable, to a thread on a core of its own that receives them by AF_XDP, asking all the time, and gives them to the four modules \
of figure 5. Beside it a thread that takes each packet by recv(2) and does nothing with it. For each size the largest rate is searched at which not one packet is \
lost. The sender, on the other core, does the kernel's part of receiving as well, and does not go beyond what it can keep up.",
    paper: "with two receiving threads on a microengine of an IXP1200 (simulated, 1 Gbit/s), 600 to 700 Mbit/s without loss for most sizes, less for \
small packets, for which there is work too.",
    without: "packets are taken by recv(2), with the modules' work left out",
    run,
};

const SIZES: [u16; 5] = [60, 124, 252, 508, 1514];
const RATE_MAX: f64 = 480_000.0;
const TRIAL: Duration = Duration::from_millis(200);
/// A rate is without loss where one of so many trials is: the machine itself may take the core away.
const TRIES: usize = 3;
/// Halvings of the range in which a rate is searched.
const STEPS: usize = 5;
const MODULES: [&str; 4] = ["syn-flood", "port-count", "payload-match", "dscp-mark"];
/// With four modules at work, at least so many times the rate of recv(2) alone.
const PROMISE: f64 = 1.05;

/// The largest rate without loss for a size, in packets/s.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    size: f64,
    weir: f64,
    bare: f64,
}

fn run(mechanism: Mechanism) -> Result<Outcome, FigureError> {
    bind(ASIDE)?;
    let mut points = Vec::new();
    for size in SIZES {
        let bare = rate(size, Mechanism::Off)?;
        points.push(Point { size: size.into(), weir: rate(size, mechanism)?, bare });
    }
    let mut csv = Csv::new(&["size_bytes", "weir_per_s", "recv_per_s", "weir_mbit_per_s", "recv_mbit_per_s"]);
    let mbit = |size: f64, rate: f64| size * 8.0 * rate / 1e6;
    for Point { size, weir, bare } in &points {
        csv.row([*size, *weir, *bare, mbit(*size, *weir), mbit(*size, *bare)].map(Into::into));
    }
    let of =
        |rate: fn(&Point) -> f64| points.iter().map(|p| (p.size, mbit(p.size, rate(p)))).collect::<Vec<_>>();
    let (weir, bare) = (of(|point| point.weir), of(|point| point.bare));
    let most = weir.iter().chain(&bare).map(|(_, mbit)| *mbit).fold(1.0, f64::max);
    let mut chart = Chart::new(
        Axis::linear("size of packets, bytes", 0.0, 1600.0),
        Axis::linear("received without loss, Mbit/s", 0.0, most * 1.15),
    );
    chart.add("weir, four modules", 0, Mark::Dotted(weir));
    chart.add("recv(2) alone", 1, Mark::Dotted(bare));
    let name = FIGURE.name.to_owned();
    Ok(Outcome {
        records: vec![(name.clone(), csv)],
        charts: vec![(name, chart)],
        verdicts: judge(&points)?,
        found: String::new(),
    })
}

/// The largest rate without loss: with modules on packets where they lie, or by recv(2).
fn rate(size: u16, mechanism: Mechanism) -> Result<f64, FigureError> {
    cable("a", "b")?;
    let way = Way { kind: Kind::Xdp, polls: true };
    let found = match mechanism {
        Mechanism::On => {
            shipped(&MODULES).and_then(|modules| Monitor::start("b", way, &modules, Calls::Batches))
        }
        Mechanism::Off => Monitor::bare("b"),
    };
    let found =
        found.and_then(|mut monitor| search(RATE_MAX, STEPS, |rate| is_loss_free(&mut monitor, size, rate)));
    unplug("a")?;
    Ok(found?.unwrap_or(0.0))
}

fn is_loss_free(monitor: &mut Monitor, size: u16, rate: f64) -> Result<bool, FigureError> {
    // Where even nothing is too much, there is nothing to search.
    let rate = rate.max(1000.0);
    let frame = datagram(ANYBODY, (1000, 53), size.into());
    let traffic = Traffic::start("a", vec![frame])?;
    for _ in 0..TRIES {
        let trial = monitor.trial(&traffic, whole(rate) as u64, TRIAL)?;
        if trial.is_loss_free() && trial.rate > 0.97 * rate {
            return Ok(true);
        }
    }
    Ok(false)
}

fn judge(points: &[Point]) -> Result<Vec<Verdict>, FigureError> {
    let least = points.iter().map(|point| point.weir / point.bare).fold(f64::INFINITY, f64::min);
    let (Some(small), Some(large)) = (points.first(), points.last()) else {
        return Err(FigureError::Nothing("no size was tried".to_owned()));
    };
    Ok(vec![
        Verdict::at_least(
            "rate with four modules, times that of recv(2) alone, least of all sizes",
            least,
            PROMISE,
            "×",
        ),
        Verdict::at_least(
            "Mbit/s with the largest packets, times those with the smallest: work is for packets, not bytes",
            large.size * large.weir / (small.size * small.weir),
            5.0,
            "×",
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(weir: [f64; 2], bare: [f64; 2]) -> Vec<bool> {
        let points = [0, 1].map(|i| Point { size: [60.0, 1514.0][i], weir: weir[i], bare: bare[i] });
        judge(&points).unwrap().iter().map(|verdict| verdict.is_kept).collect()
    }

    #[test]
    fn what_is_faster_is_seen_and_what_is_not_is_not() {
        assert_eq!(kept([300e3, 250e3], [250e3, 200e3]), [true, true]);
        assert_eq!(kept([250e3, 200e3], [250e3, 200e3]), [false, true]);
        assert_eq!(kept([300e3, 20e3], [250e3, 10e3]), [true, false]);
        assert_eq!(kept([0.0, 0.0], [0.0, 0.0]), [false, false]);
        assert!(matches!(judge(&[]), Err(FigureError::Nothing(_))));
    }
}
