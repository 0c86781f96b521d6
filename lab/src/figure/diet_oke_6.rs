//! Diet-OKE, figure 6: the activity of each core while packets are received and four applications run.

use super::monitor::{driver, open, shipped, whole};
use super::network::{cable, datagram, received};
use super::{Chart, ChartAxis, Criterion, Csv, Figure, Mark, Mechanism, Outcome};
use crate::comparison::Clock;
use crate::error::{Context, DebugContext, LabError};
use crate::machine::{CORE, OTHER_CORE, bind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use weir_datapath::driver::BatchDriver;
use weir_netio::{Block, LivePoll, LiveSink, LiveSource, SocketKind};
use weir_sandbox::{Cycles, Engine, EngineOptions};
use weir_units::{Bytes, Nanos};
use {weir_admission::Admitted, weir_session::Records};

pub const FIGURE: Figure = Figure {
    name: "diet-oke-6",
    title: "Diet-OKE, figure 6: the activity of each core",
    here: "One core receives packets by AF_XDP with polling, passes them on without copying, and sends them on a link after the modules. The other \
core runs the four modules of figure 5 on them. The first core also makes the traffic, in bursts of 16 packets of 1,000 bytes at its \
full rate, which includes the kernel's part of receiving. The chart shows the activities by the processor's time stamp counter, in the \
first 0.3 ms after the middle of the experiment in which every activity occurs at least three times. Gaps are polling. Lost packets are \
those that were sent at one end and did not arrive at the other, as counted by the kernel.",
    paper: "threads 0 and 1 of the first microengine receive, one waiting for the bus while the other updates the state of the buffer. An \
application's thread reads a header while three others ask for their next packet. The latencies of the hardware are hidden by the work \
of other threads.",
    without: "one thread receives, runs the modules, and sends, in sequence",
    run,
};

const MODULES: [&str; 4] = ["syn-flood", "port-count", "payload-match", "dscp-mark"];
/// Packets of a burst, and bytes of a packet.
const BURST: u16 = 16;
const LENGTH: usize = 1000;
const TIME: Duration = Duration::from_millis(400);
/// The time for the last packets to arrive.
const DRAINED: Duration = Duration::from_millis(50);
/// The longest pause of the other core.
const PATIENCE: Duration = Duration::from_secs(2);
/// The length of the drawn part.
const DRAWN_MS: f64 = 0.3;
/// The least number of activities of each row in the drawn part.
const TIMES: usize = 3;
/// The largest number of attempts to send a block.
const LOOKS_MAX: usize = 10_000;
/// The largest number of blocks that wait for the modules or for the link.
const WAITING: usize = 64;
/// The least percentage of the time of receiving and sending during which modules run.
const OVERLAP: f64 = 1.0;
/// Rows from the top: the traffic, receiving, sending, and the modules.
const TRAFFIC: usize = 0;
const RECEIVING: usize = 1;
const SENDING: usize = 2;
const FIRST_MODULE: usize = 3;

/// An activity of a row, in cycles.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Span {
    row: usize,
    from: u64,
    to: u64,
}

fn run(mechanism: Mechanism) -> Result<Outcome, LabError> {
    let nanos_per_cycle = Clock::calibrate().nanos_per_cycle;
    let (spans, lost) = record(mechanism)?;
    let names = rows();
    let window = whole(DRAWN_MS * 1e6 / nanos_per_cycle) as u64;
    let begin = busy_window(&spans, window, names.len());
    let mut csv = Csv::new(&["row", "from_us", "to_us"]);
    let mut lines = vec![Vec::new(); names.len()];
    let microseconds = |cycles: u64| cycles as f64 * nanos_per_cycle / 1e3;
    for span in spans.iter().filter(|span| span.from >= begin && span.to <= begin + window) {
        let (from, to) = (microseconds(span.from - begin), microseconds(span.to - begin));
        csv.row([names[span.row].as_str().into(), from.into(), to.into()]);
        let place = f64::from(u32::try_from(names.len() - 1 - span.row).unwrap_or(0));
        lines[span.row].push((from / 1e3, to / 1e3, place));
    }
    let titles: Vec<&str> = names.iter().rev().map(String::as_str).collect();
    let mut chart = Chart::new(ChartAxis::linear("time, ms", 0.0, DRAWN_MS), ChartAxis::rows(&titles));
    for (row, spans) in lines.into_iter().enumerate() {
        // The traffic is not part of weir.
        let colour = if row == TRAFFIC { 5 } else { row - RECEIVING };
        chart.add("", colour, Mark::Spans(spans));
    }
    Ok(Outcome::new(&FIGURE, csv, chart, judge(&spans, lost)?, String::new()))
}

fn rows() -> Vec<String> {
    let first = ["traffic", "receiving", "sending"].map(|what| format!("core {OTHER_CORE}: {what}"));
    first.into_iter().chain(MODULES.iter().map(|name| format!("core {CORE}: {name}"))).collect()
}

/// The start of the first window of this length after the middle in which all rows were active, or the middle if there is none.
fn busy_window(spans: &[Span], length: u64, rows: usize) -> u64 {
    let first = spans.iter().map(|span| span.from).min().unwrap_or(0);
    let last = spans.iter().map(|span| span.to).max().unwrap_or(0);
    let middle = first + (last - first) / 2;
    let is_busy = |begin: u64| {
        let mut times = vec![0; rows];
        for span in spans.iter().filter(|span| span.from >= begin && span.to <= begin + length) {
            times[span.row] += 1;
        }
        times.iter().all(|count| *count >= TIMES)
    };
    let step = usize::try_from(length.max(1)).unwrap_or(usize::MAX);
    (middle..last).step_by(step).find(|begin| is_busy(*begin)).unwrap_or(middle)
}

fn record(mechanism: Mechanism) -> Result<(Vec<Span>, u64), LabError> {
    cable("a", "b")?;
    cable("c", "d")?;
    let live = open("b", SocketKind::Xdp, Bytes(8 << 20))?;
    let engine = Engine::new(EngineOptions::default(), None)?;
    let mut drivers = Vec::new();
    for (name, wasm) in MODULES.iter().zip(shipped(&MODULES)?) {
        let program = engine.load(Admitted::admit(wasm, &[]).context(name)?)?;
        drivers.push(driver(&engine, &program, &live)?);
    }
    let ends = Ends {
        live,
        near: LiveSink::open("a", SocketKind::Packet)?,
        far: LiveSink::open("c", SocketKind::Packet)?,
    };
    let before = received("d")?.0;
    let is_over = AtomicBool::new(false);
    let is_over = &is_over;
    let (spans, sent) = std::thread::scope(|scope| {
        let (hands, takes) = sync_channel(WAITING);
        let (gives, back) = sync_channel(WAITING);
        let mut aside = None;
        let next = match mechanism {
            Mechanism::On => {
                aside = Some(scope.spawn(move || take(&takes, &gives, drivers, is_over)));
                Next::Hand(hands, back)
            }
            Mechanism::Off => Next::Run(drivers),
        };
        let core = scope.spawn(move || {
            let done = serve(ends, next);
            is_over.store(true, Ordering::Release);
            done
        });
        let gone = || LabError::NoData("a thread panicked".to_owned());
        let (mut spans, sent) = core.join().map_err(|_| gone())??;
        if let Some(aside) = aside {
            spans.extend(aside.join().map_err(|_| gone())??);
        }
        Ok::<_, LabError>((spans, sent))
    })?;
    Ok((spans, sent.saturating_sub(received("d")?.0 - before)))
}

/// The interfaces for incoming packets, for the traffic, and for outgoing packets.
struct Ends {
    live: LiveSource,
    near: LiveSink,
    far: LiveSink,
}

/// The next step for received packets.
enum Next {
    /// The other core's thread processes packets and returns them.
    Hand(SyncSender<Arc<Block>>, Receiver<Arc<Block>>),
    /// This thread runs the modules.
    Run(Vec<BatchDriver>),
}

/// Makes traffic, receives, and sends processed packets on. Returns the activities, and the number of sent packets.
fn serve(ends: Ends, mut next: Next) -> Result<(Vec<Span>, u64), LabError> {
    bind(OTHER_CORE)?;
    let Ends { mut live, mut near, mut far } = ends;
    let frames: Vec<Vec<u8>> = (0..BURST).map(|i| datagram((1000 + i, 53), LENGTH)).collect();
    let burst: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    let (mut spans, mut sent) = (Vec::new(), 0);
    let begin = Instant::now();
    // Blocks that are with the modules.
    let mut away = 0;
    while begin.elapsed() < TIME + DRAINED || away > 0 && begin.elapsed() < TIME + PATIENCE {
        // The traffic stops before the queue is full: a pause of the other core must not lose packets.
        if begin.elapsed() < TIME && away < WAITING / 2 {
            let from = Cycles::now().0;
            sent += near.send(&burst).sent as u64;
            spans.push(Span { row: TRAFFIC, from, to: Cycles::now().0 });
        }
        let from = Cycles::now().0;
        if let LivePoll::Block(block) = live.next_block(Nanos(0))? {
            let block = Arc::new(block);
            spans.push(Span { row: RECEIVING, from, to: Cycles::now().0 });
            match &mut next {
                // A full queue loses the packets, which then do not arrive.
                Next::Hand(hands, _) => away += usize::from(hands.try_send(block).is_ok()),
                Next::Run(drivers) => {
                    work(&block, drivers, &mut spans)?;
                    send(&mut far, &block, &mut spans);
                }
            }
        }
        if let Next::Hand(_, back) = &next {
            while let Ok(block) = back.try_recv() {
                away -= 1;
                send(&mut far, &block, &mut spans);
            }
        }
    }
    Ok((spans, sent))
}

fn send(far: &mut LiveSink, block: &Block, spans: &mut Vec<Span>) {
    let from = Cycles::now().0;
    let all: Vec<usize> = (0..block.len()).collect();
    let (mut rest, mut looks) = (&all[..], 0);
    // Packets wait for the link, up to a limit.
    while !rest.is_empty() && looks < LOOKS_MAX {
        rest = &rest[far.forward(block, rest).taken.min(rest.len())..];
        looks += 1;
    }
    spans.push(Span { row: SENDING, from, to: Cycles::now().0 });
}

/// Runs the modules on incoming blocks, and returns the blocks.
fn take(
    takes: &Receiver<Arc<Block>>,
    gives: &SyncSender<Arc<Block>>,
    mut drivers: Vec<BatchDriver>,
    is_over: &AtomicBool,
) -> Result<Vec<Span>, LabError> {
    bind(CORE)?;
    let mut spans = Vec::new();
    while !is_over.load(Ordering::Acquire) {
        match takes.try_recv() {
            Ok(block) => {
                work(&block, &mut drivers, &mut spans)?;
                // A full queue loses the block.
                _ = gives.try_send(block);
            }
            Err(_) => std::hint::spin_loop(),
        }
    }
    Ok(spans)
}

/// Runs all modules on a block.
fn work(block: &Block, drivers: &mut [BatchDriver], spans: &mut Vec<Span>) -> Result<(), LabError> {
    for (module, driver) in drivers.iter_mut().enumerate() {
        let from = Cycles::now().0;
        driver.map_block(block).debug_context("a block of packets")?;
        driver.instance.begin_block();
        for batch in 0..block.batch_count() {
            driver.run(block, batch, u64::MAX);
        }
        driver.instance.take_records(Records::default());
        driver.instance.take_patches();
        spans.push(Span { row: FIRST_MODULE + module, from, to: Cycles::now().0 });
    }
    Ok(())
}

/// The cycles of spans that other spans cover. Spans of each list do not overlap.
fn overlap(of: &[Span], with: &[Span]) -> u64 {
    let (mut sum, mut first) = (0, 0);
    for span in of {
        while with.get(first).is_some_and(|other| other.to <= span.from) {
            first += 1;
        }
        let during = with[first..].iter().take_while(|other| other.from < span.to);
        sum += during.map(|other| other.to.min(span.to) - other.from.max(span.from)).sum::<u64>();
    }
    sum
}

fn judge(spans: &[Span], lost: u64) -> Result<Vec<Criterion>, LabError> {
    let of = |is: fn(&Span) -> bool| {
        let mut found: Vec<Span> = spans.iter().copied().filter(is).collect();
        found.sort_by_key(|span| span.from);
        found
    };
    let way = of(|span| span.row == RECEIVING || span.row == SENDING);
    let modules = of(|span| span.row >= FIRST_MODULE);
    let total: u64 = way.iter().map(|span| span.to - span.from).sum();
    if total == 0 || modules.is_empty() {
        return Err(LabError::NoData("nothing was received, or no module ran".to_owned()));
    }
    let both = overlap(&way, &modules) as f64 / total as f64 * 100.0;
    Ok(vec![
        Criterion::at_least("part of receiving and sending during which modules run", both, OVERLAP, "%"),
        Criterion::at_most("lost packets", lost as f64, 0.0, ""),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(row: usize, from: u64, to: u64) -> Span {
        Span { row, from, to }
    }

    #[test]
    fn simultaneous_work_is_told_from_work_in_turn() {
        let at_once = [
            span(RECEIVING, 0, 100),
            span(FIRST_MODULE, 50, 90),
            span(FIRST_MODULE + 1, 90, 120),
            span(SENDING, 200, 300),
            span(FIRST_MODULE, 190, 400),
        ];
        let kept =
            |spans: &[Span], lost| judge(spans, lost).unwrap().iter().map(|v| v.is_kept).collect::<Vec<_>>();
        assert_eq!(kept(&at_once, 0), [true, true]);
        assert_eq!(kept(&at_once, 1), [true, false]);
        let in_turn = [
            span(TRAFFIC, 0, 190),
            span(RECEIVING, 0, 100),
            span(FIRST_MODULE, 100, 150),
            span(FIRST_MODULE + 1, 150, 200),
            span(SENDING, 200, 300),
        ];
        assert_eq!(kept(&in_turn, 0), [false, true]);
        assert!(matches!(judge(&[span(RECEIVING, 0, 1)], 0), Err(LabError::NoData(_))));
        let (of, with) = (&at_once[..1], &at_once[1..3]);
        assert_eq!(overlap(of, with), 50);
    }

    #[test]
    fn the_drawn_part_has_all_rows_at_work() {
        // Ten windows of 100; in the second half only the eighth has both rows, often enough.
        let mut spans = vec![span(0, 0, 1), span(1, 999, 1000)];
        for n in 0..5 {
            spans.push(span(0, 500 + n * 90, 510 + n * 90));
            spans.push(span(0, 700 + n * 9, 702 + n * 9));
            spans.push(span(1, 750 + n * 9, 752 + n * 9));
        }
        assert_eq!(busy_window(&spans, 100, 2), 700);
        assert_eq!(busy_window(&spans, 100, 3), 500, "the third row never is");
        assert_eq!(busy_window(&[], 100, 2), 0);
    }
}
