//! Diet-OKE, figure 6: what each core does while packets are received and four applications run.

use super::monitor::{CORE, shipped};
use super::scene::{ANYBODY, ASIDE, Traffic, bind, cable, datagram};
use super::{Axis, Chart, Csv, Figure, FigureError, Mark, Mechanism, Outcome, Verdict};
use crate::BenchError;
use crate::contest::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use weir_netio::{Block, Direction, Kind, Live, LiveNext, LiveOptions};
use weir_node::seat::Seat;
use weir_sandbox::{Cycles, Engine, Instance, Options};
use weir_session::{Admitted, Records};
use weir_units::{Bytes, Nanos};

/// The experiment.
pub const FIGURE: Figure = Figure {
    name: "diet-oke-6",
    title: "Diet-OKE, figure 6: what each core does",
    here: "One core receives packets by AF_XDP, asking all the time, and hands them on where they lie; the other runs the four modules of figure 5 on them. \
Drawn is what each did in 3 ms, by the processor's time stamp counter. Receiving is from when packets are found to when they are handed on: their headers are \
parsed there. Sending, which the same core does here as well, is the white between.",
    paper: "threads 0 and 1 of the first microengine receive, one waiting for the bus while the other updates the state of the buffer; an application's \
thread reads a header while three others ask for their next packet. Latencies of the hardware are hidden by the others' work.",
    without: "one thread receives and runs the modules, one after the other",
    run,
};

const MODULES: [&str; 4] = ["syn-flood", "port-count", "payload-match", "dscp-mark"];
const RATE: u64 = 100_000;
const TIME: Duration = Duration::from_millis(400);
/// What is drawn, from the middle of it.
const DRAWN_MS: f64 = 3.0;
/// Blocks that wait for the modules at most.
const WAITING: usize = 64;
/// Of the time in which packets are received, modules run in at least so much.
const OVERLAP: f64 = 1.0;
const RECEIVING: usize = 0;

/// Somebody did something: which row, from when to when, in cycles.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Span {
    row: usize,
    from: u64,
    to: u64,
}

fn run(mechanism: Mechanism) -> Result<Outcome, FigureError> {
    let nanos_per_cycle = Clock::calibrate().nanos_per_cycle;
    let (spans, lost) = record(mechanism)?;
    let first = spans.iter().map(|span| span.from).min().unwrap_or(0);
    let last = spans.iter().map(|span| span.to).max().unwrap_or(0);
    let milliseconds = |cycles: u64| cycles.saturating_sub(first) as f64 * nanos_per_cycle / 1e6;
    let begin = milliseconds(last) / 2.0;
    let drawn = spans.iter().filter(|span| {
        let from = milliseconds(span.from);
        from >= begin && milliseconds(span.to) <= begin + DRAWN_MS
    });
    let names = rows();
    let mut csv = Csv::new(&["row", "from_us", "to_us"]);
    let mut lines = vec![Vec::new(); names.len()];
    for span in drawn {
        let (from, to) = (milliseconds(span.from) - begin, milliseconds(span.to) - begin);
        csv.row([names[span.row].as_str().into(), (from * 1e3).into(), (to * 1e3).into()]);
        let place = f64::from(u32::try_from(names.len() - 1 - span.row).unwrap_or(0));
        lines[span.row].push((from, to, place));
    }
    let titles: Vec<&str> = names.iter().rev().map(String::as_str).collect();
    let mut chart = Chart::new(Axis::linear("time, ms", 0.0, DRAWN_MS), Axis::rows(&titles));
    for (row, spans) in lines.into_iter().enumerate() {
        chart.add("", row, Mark::Spans(spans));
    }
    let name = FIGURE.name.to_owned();
    Ok(Outcome {
        records: vec![(name.clone(), csv)],
        charts: vec![(name, chart)],
        verdicts: judge(&spans, lost)?,
        found: String::new(),
    })
}

fn rows() -> Vec<String> {
    let modules = MODULES.iter().map(|name| format!("core {CORE}: {name}"));
    std::iter::once(format!("core {ASIDE}: receiving")).chain(modules).collect()
}

fn record(mechanism: Mechanism) -> Result<(Vec<Span>, u64), FigureError> {
    cable("a", "b")?;
    let options = LiveOptions {
        kind: Kind::Xdp,
        ring: Bytes(8 << 20),
        direction: Direction::Incoming,
        ..LiveOptions::default()
    };
    let live = Live::open("b", options)?;
    let engine = Engine::new(Options::default(), None).map_err(BenchError::from)?;
    let mut seats = Vec::new();
    for (name, wasm) in MODULES.iter().zip(shipped(&MODULES)?) {
        let refused =
            |refusal| BenchError::Refused { module: (*name).to_owned(), refusal: Box::new(refusal) };
        let program = engine.load(Admitted::admit(wasm, &[]).map_err(refused)?).map_err(BenchError::from)?;
        let instance = Instance::start(&engine, &program).map_err(BenchError::from)?;
        let seat = Seat::new(instance, live.descriptors(), None);
        seats.push(seat.map_err(|error| FigureError::Nothing(error.to_string()))?);
    }
    let traffic = Traffic::start("a", (0..16).map(|i| datagram(ANYBODY, (1000 + i, 53), 1000)).collect())?;
    let is_over = AtomicBool::new(false);
    let is_over = &is_over;
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        match mechanism {
            Mechanism::On => {
                let (hands, takes) = sync_channel(WAITING);
                threads.push(scope.spawn(move || receive(live, is_over, Next::Hand(hands))));
                threads.push(scope.spawn(move || take(&takes, seats)));
            }
            Mechanism::Off => threads.push(scope.spawn(move || receive(live, is_over, Next::Run(seats)))),
        }
        traffic.set(RATE);
        std::thread::sleep(TIME);
        traffic.set(0);
        std::thread::sleep(Duration::from_millis(50));
        is_over.store(true, Ordering::Release);
        let (mut spans, mut seen) = (Vec::new(), 0);
        for thread in threads {
            let gone = |_| FigureError::Nothing("a thread panicked".to_owned());
            let (theirs, packets) = thread.join().map_err(gone)??;
            spans.extend(theirs);
            seen += packets;
        }
        Ok((spans, traffic.sent().saturating_sub(seen)))
    })
}

/// What becomes of packets that were received.
enum Next {
    /// The other core's thread has them.
    Hand(SyncSender<Arc<Block>>),
    /// This thread runs the modules.
    Run(Vec<Seat>),
}

type Seen = Result<(Vec<Span>, u64), FigureError>;

fn receive(mut live: Live, is_over: &AtomicBool, mut next: Next) -> Seen {
    bind(ASIDE)?;
    let (mut spans, mut seen) = (Vec::new(), 0);
    while !is_over.load(Ordering::Acquire) {
        let from = Cycles::now().0;
        let LiveNext::Block(block) = live.next_block(Nanos(0))? else {
            std::thread::yield_now();
            continue;
        };
        let block = Arc::new(block);
        spans.push(Span { row: RECEIVING, from, to: Cycles::now().0 });
        match &mut next {
            // Without room the packets are lost, and counted as what was sent and not seen.
            Next::Hand(hands) => _ = hands.try_send(block),
            Next::Run(seats) => seen += work(&block, seats, &mut spans)?,
        }
    }
    Ok((spans, seen))
}

fn take(takes: &Receiver<Arc<Block>>, mut seats: Vec<Seat>) -> Seen {
    bind(CORE)?;
    let (mut spans, mut seen) = (Vec::new(), 0);
    while let Ok(block) = takes.recv() {
        seen += work(&block, &mut seats, &mut spans)?;
    }
    Ok((spans, seen))
}

/// Has all modules see a block; how many packets that are.
fn work(block: &Block, seats: &mut [Seat], spans: &mut Vec<Span>) -> Result<u64, FigureError> {
    for (module, seat) in seats.iter_mut().enumerate() {
        let from = Cycles::now().0;
        seat.face(block).map_err(|error| FigureError::Nothing(error.to_string()))?;
        seat.instance.begin_block();
        for batch in 0..block.batch_count() {
            seat.run(block, batch, u64::MAX);
        }
        seat.instance.take_records(Records::default());
        seat.instance.take_patches();
        spans.push(Span { row: RECEIVING + 1 + module, from, to: Cycles::now().0 });
    }
    Ok(block.len() as u64)
}

/// How many cycles of these spans, each of which ends before the next begins, others of that kind cover.
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

fn judge(spans: &[Span], lost: u64) -> Result<Vec<Verdict>, FigureError> {
    let of = |is: fn(&Span) -> bool| {
        let mut found: Vec<Span> = spans.iter().copied().filter(is).collect();
        found.sort_by_key(|span| span.from);
        found
    };
    let (receiving, modules) = (of(|span| span.row == RECEIVING), of(|span| span.row != RECEIVING));
    let total: u64 = receiving.iter().map(|span| span.to - span.from).sum();
    if total == 0 || modules.is_empty() {
        return Err(FigureError::Nothing("nothing was received, or no module ran".to_owned()));
    }
    let both = overlap(&receiving, &modules) as f64 / total as f64 * 100.0;
    Ok(vec![
        Verdict::at_least(
            "modules run while packets are received: of the time of receiving",
            both,
            OVERLAP,
            "%",
        ),
        Verdict::at_most("packets lost", lost as f64, 0.0, ""),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(row: usize, from: u64, to: u64) -> Span {
        Span { row, from, to }
    }

    #[test]
    fn what_happens_at_once_is_told_from_what_happens_in_turn() {
        let at_once =
            [span(0, 0, 100), span(1, 50, 90), span(2, 90, 120), span(0, 200, 300), span(1, 190, 400)];
        let kept =
            |spans: &[Span], lost| judge(spans, lost).unwrap().iter().map(|v| v.is_kept).collect::<Vec<_>>();
        assert_eq!(kept(&at_once, 0), [true, true]);
        assert_eq!(kept(&at_once, 1), [true, false]);
        let in_turn = [span(0, 0, 100), span(1, 100, 150), span(2, 150, 200), span(0, 200, 300)];
        assert_eq!(kept(&in_turn, 0), [false, true]);
        assert!(matches!(judge(&[span(0, 0, 1)], 0), Err(FigureError::Nothing(_))));
        let (of, with) = (&at_once[..1], &at_once[1..3]);
        assert_eq!(overlap(of, with), 50);
    }
}
