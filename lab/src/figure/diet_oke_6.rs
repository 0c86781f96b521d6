//! Diet-OKE, figure 6: the activity of each core while packets are received and four applications run.

use super::monitor::{new_driver, open_incoming, shipped_modules, to_integer};
use super::network::{create_veth_pair, datagram, received_counters};
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
    experiment: "One core receives packets by AF_XDP with polling, passes them on without copying, and sends them on a link after the modules. The other \
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
/// The number of packets of a burst.
const BURST: u16 = 16;
/// The length of a packet in bytes.
const LENGTH: usize = 1000;
/// The duration of the traffic.
const TIME: Duration = Duration::from_millis(400);
/// The time after the traffic in which the last packets arrive.
const DRAIN_TIME: Duration = Duration::from_millis(50);
/// The longest time that the first core waits for blocks from the other core after the traffic.
const RETURN_TIME_MAX: Duration = Duration::from_secs(2);
/// The length of the drawn part.
const DRAWN_MS: f64 = 0.3;
/// The least number of activities of each row in the drawn part.
const ACTIVITIES_MIN: usize = 3;
/// The largest number of attempts to send a block.
const ATTEMPTS_MAX: usize = 10_000;
/// The capacity of the queue of blocks for the modules, and of that of returned blocks.
const QUEUE: usize = 64;
/// The least percentage of the time of receiving and sending during which modules run.
const OVERLAP_PERCENT_MIN: f64 = 1.0;
/// The rows of the chart from the top: the traffic, receiving, sending, and one row for each module.
const TRAFFIC: usize = 0;
const RECEIVING: usize = 1;
const SENDING: usize = 2;
const FIRST_MODULE: usize = 3;

/// A time span of activity in a row, in cycles.
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
    let window = to_integer(DRAWN_MS * 1e6 / nanos_per_cycle) as u64;
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

/// The names of the rows.
fn rows() -> Vec<String> {
    let first = ["traffic", "receiving", "sending"].map(|what| format!("core {OTHER_CORE}: {what}"));
    first.into_iter().chain(MODULES.iter().map(|name| format!("core {CORE}: {name}"))).collect()
}

/// The start of the first window of this length after the middle of the experiment in which all rows were active, or the
/// middle if there is none.
fn busy_window(spans: &[Span], length: u64, rows: usize) -> u64 {
    let first = spans.iter().map(|span| span.from).min().unwrap_or(0);
    let last = spans.iter().map(|span| span.to).max().unwrap_or(0);
    let middle = first + (last - first) / 2;
    let is_busy = |begin: u64| {
        let mut counts = vec![0; rows];
        for span in spans.iter().filter(|span| span.from >= begin && span.to <= begin + length) {
            counts[span.row] += 1;
        }
        counts.iter().all(|count| *count >= ACTIVITIES_MIN)
    };
    let step = usize::try_from(length.max(1)).unwrap_or(usize::MAX);
    (middle..last).step_by(step).find(|begin| is_busy(*begin)).unwrap_or(middle)
}

fn record(mechanism: Mechanism) -> Result<(Vec<Span>, u64), LabError> {
    create_veth_pair("a", "b")?;
    create_veth_pair("c", "d")?;
    let live = open_incoming("b", SocketKind::Xdp, Bytes(8 << 20))?;
    let engine = Engine::new(EngineOptions::default(), None)?;
    let mut drivers = Vec::new();
    for (name, wasm) in MODULES.iter().zip(shipped_modules(&MODULES)?) {
        let program = engine.load(Admitted::admit(wasm, &[]).context(name)?)?;
        drivers.push(new_driver(&engine, &program, &live)?);
    }
    let interfaces = Interfaces {
        incoming: live,
        traffic: LiveSink::open("a", SocketKind::Packet)?,
        outgoing: LiveSink::open("c", SocketKind::Packet)?,
    };
    let before = received_counters("d")?.0;
    let is_over = AtomicBool::new(false);
    let is_over = &is_over;
    let (spans, sent) = std::thread::scope(|scope| {
        let (to_modules, blocks) = sync_channel(QUEUE);
        let (processed, from_modules) = sync_channel(QUEUE);
        let mut module_thread = None;
        let next = match mechanism {
            Mechanism::On => {
                module_thread = Some(scope.spawn(move || run_modules(&blocks, &processed, drivers, is_over)));
                Next::HandOver(to_modules, from_modules)
            }
            Mechanism::Off => Next::RunHere(drivers),
        };
        let packet_thread = scope.spawn(move || {
            let done = serve(interfaces, next);
            is_over.store(true, Ordering::Release);
            done
        });
        let panicked = || LabError::NoData("a thread panicked".to_owned());
        let (mut spans, sent) = packet_thread.join().map_err(|_| panicked())??;
        if let Some(module_thread) = module_thread {
            spans.extend(module_thread.join().map_err(|_| panicked())??);
        }
        Ok::<_, LabError>((spans, sent))
    })?;
    Ok((spans, sent.saturating_sub(received_counters("d")?.0 - before)))
}

/// The interfaces: that at which packets arrive, that on which the traffic is sent, and that on which processed packets
/// are sent.
struct Interfaces {
    incoming: LiveSource,
    traffic: LiveSink,
    outgoing: LiveSink,
}

/// The next step for received packets.
enum Next {
    /// The thread on the other core runs the modules on the blocks of one channel, and returns the blocks by the other.
    HandOver(SyncSender<Arc<Block>>, Receiver<Arc<Block>>),
    /// This thread runs the modules.
    RunHere(Vec<BatchDriver>),
}

/// The work of the first core: makes traffic, receives, and sends processed packets on. Returns the activities, and the
/// number of packets of the traffic.
fn serve(interfaces: Interfaces, mut next: Next) -> Result<(Vec<Span>, u64), LabError> {
    bind(OTHER_CORE)?;
    let Interfaces { mut incoming, mut traffic, mut outgoing } = interfaces;
    let frames: Vec<Vec<u8>> = (0..BURST).map(|i| datagram((1000 + i, 53), LENGTH)).collect();
    let burst: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    let (mut spans, mut sent) = (Vec::new(), 0);
    let begin = Instant::now();
    // The number of blocks that the other core has not returned yet.
    let mut outstanding = 0;
    while begin.elapsed() < TIME + DRAIN_TIME || outstanding > 0 && begin.elapsed() < TIME + RETURN_TIME_MAX {
        // The traffic stops before the queue is full: a pause of the other core must not lose packets.
        if begin.elapsed() < TIME && outstanding < QUEUE / 2 {
            let from = Cycles::now().0;
            sent += traffic.send(&burst).sent as u64;
            spans.push(Span { row: TRAFFIC, from, to: Cycles::now().0 });
        }
        let from = Cycles::now().0;
        if let LivePoll::Block(block) = incoming.next_block(Nanos(0))? {
            let block = Arc::new(block);
            spans.push(Span { row: RECEIVING, from, to: Cycles::now().0 });
            match &mut next {
                // If the queue is full, the packets of the block are lost, and are missing at the receiver.
                Next::HandOver(to_modules, _) => {
                    outstanding += usize::from(to_modules.try_send(block).is_ok())
                }
                Next::RunHere(drivers) => {
                    run_on_block(&block, drivers, &mut spans)?;
                    send(&mut outgoing, &block, &mut spans);
                }
            }
        }
        if let Next::HandOver(_, from_modules) = &next {
            while let Ok(block) = from_modules.try_recv() {
                outstanding -= 1;
                send(&mut outgoing, &block, &mut spans);
            }
        }
    }
    Ok((spans, sent))
}

/// Sends the packets of a block.
fn send(outgoing: &mut LiveSink, block: &Block, spans: &mut Vec<Span>) {
    let from = Cycles::now().0;
    let all: Vec<usize> = (0..block.len()).collect();
    let (mut rest, mut attempts) = (&all[..], 0);
    // Sending is attempted again if the link has no space, up to a limit.
    while !rest.is_empty() && attempts < ATTEMPTS_MAX {
        rest = &rest[outgoing.forward(block, rest).consumed.min(rest.len())..];
        attempts += 1;
    }
    spans.push(Span { row: SENDING, from, to: Cycles::now().0 });
}

/// The work of the other core: runs the modules on blocks, and returns the blocks. Returns the activities.
fn run_modules(
    blocks: &Receiver<Arc<Block>>,
    processed: &SyncSender<Arc<Block>>,
    mut drivers: Vec<BatchDriver>,
    is_over: &AtomicBool,
) -> Result<Vec<Span>, LabError> {
    bind(CORE)?;
    let mut spans = Vec::new();
    while !is_over.load(Ordering::Acquire) {
        match blocks.try_recv() {
            Ok(block) => {
                run_on_block(&block, &mut drivers, &mut spans)?;
                // A full queue loses the block.
                _ = processed.try_send(block);
            }
            Err(_) => std::hint::spin_loop(),
        }
    }
    Ok(spans)
}

/// Runs all modules on a block.
fn run_on_block(block: &Block, drivers: &mut [BatchDriver], spans: &mut Vec<Span>) -> Result<(), LabError> {
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

/// The cycles of `spans` that `others` cover. The spans of each list must not overlap each other.
fn overlap(spans: &[Span], others: &[Span]) -> u64 {
    let (mut sum, mut first) = (0, 0);
    for span in spans {
        while others.get(first).is_some_and(|other| other.to <= span.from) {
            first += 1;
        }
        let during = others[first..].iter().take_while(|other| other.from < span.to);
        sum += during.map(|other| other.to.min(span.to) - other.from.max(span.from)).sum::<u64>();
    }
    sum
}

fn judge(spans: &[Span], lost: u64) -> Result<Vec<Criterion>, LabError> {
    let spans_where = |condition: fn(&Span) -> bool| {
        let mut found: Vec<Span> = spans.iter().copied().filter(condition).collect();
        found.sort_by_key(|span| span.from);
        found
    };
    let input_output = spans_where(|span| span.row == RECEIVING || span.row == SENDING);
    let modules = spans_where(|span| span.row >= FIRST_MODULE);
    let total: u64 = input_output.iter().map(|span| span.to - span.from).sum();
    if total == 0 || modules.is_empty() {
        return Err(LabError::NoData("nothing was received, or no module ran".to_owned()));
    }
    let both = overlap(&input_output, &modules) as f64 / total as f64 * 100.0;
    Ok(vec![
        Criterion::at_least(
            "part of receiving and sending during which modules run",
            both,
            OVERLAP_PERCENT_MIN,
            "%",
        ),
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
    fn simultaneous_work_keeps_the_overlap_criterion_and_work_in_turn_breaks_it() {
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
        let (spans, others) = (&at_once[..1], &at_once[1..3]);
        assert_eq!(overlap(spans, others), 50);
    }

    #[test]
    fn all_rows_are_active_in_the_drawn_part() {
        // Ten windows of 100; in the second half only the eighth has both rows, often enough.
        let mut spans = vec![span(0, 0, 1), span(1, 999, 1000)];
        for n in 0..5 {
            spans.push(span(0, 500 + n * 90, 510 + n * 90));
            spans.push(span(0, 700 + n * 9, 702 + n * 9));
            spans.push(span(1, 750 + n * 9, 752 + n * 9));
        }
        assert_eq!(busy_window(&spans, 100, 2), 700);
        assert_eq!(busy_window(&spans, 100, 3), 500, "the third row is never active");
        assert_eq!(busy_window(&[], 100, 2), 0);
    }
}
