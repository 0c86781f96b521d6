//! Price of Safety, figure 15: a cache that asks for more memory when it answers too few requests.

use super::monitor::open;
use super::network::{cable, datagram};
use super::node::{NodeProcess, module, session};
use super::{Chart, ChartAxis, Criterion, Csv, Figure, Mark, Mechanism, Outcome};
use crate::error::LabError;
use crate::machine::{OTHER_CORE, bind};
use crate::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use weir_netio::{LivePoll, LiveSink, SocketKind};
use weir_node::control::protocol::SessionStatus;
use weir_units::{Bytes, Nanos};

pub const FIGURE: Figure = Figure {
    name: "price-15",
    title: "Price of Safety, figure 15: memory and answered requests of active reliable multicast",
    here: "The shipped module `arm` on a running node, between a sender of 1,000 packets of 1,000 bytes per second and a receiver that loses 25 % \
of the packets, and 50 % from 10 s on, repairs included. The experiment makes the losses itself, from a generator with a fixed seed. The \
receiver requests a packet 40 ms after its loss, and again every 40 ms. A request that arm does not answer reaches the sender, which \
sends the packet again. So requests are for packets of 40, 80, 120 … packets ago: to answer nine of ten, arm needs 80 copies at 25 % \
loss and 160 at 50 %. It starts with 32, and asks its session for another 64 KiB after each second in which it had a copy for less than \
90 % of the requests. The experiment counts requests at the receiver and at the sender. Memory is the reserved memory of the session. \
The stream and the requests come in by one interface, as on a shared segment; forwarded packets and repairs leave by another.",
    paper: "ARM's heap grows to about 180 KB, with which it answers over 90 % of requests at 25 % loss. At 90 s loss is doubled, and noticeably less \
than 90 % are answered. ARM asks for more memory, up to about 370 KB after 40 s, with which it reaches 90 % again.",
    without: "the memory of the session cannot grow beyond its initial size",
    run,
};

/// Loss rates: the start in seconds, and the lost fraction.
const LOSSES: [(f64, f64); 2] = [(0.0, 0.25), (10.0, 0.5)];
const END: f64 = 24.0;
/// Packets of the stream each second, and their length.
const RATE: f64 = 1000.0;
const LENGTH: usize = 1000;
/// The interval of requests for a lost packet.
const PATIENCE: Duration = Duration::from_millis(40);
/// The percentage of requests that arm must answer.
const TARGET: f64 = 90.0;
/// Seconds for arm to reach the needed memory after a change of loss.
const FOUND: f64 = 6.0;
/// The sampling interval of the node's state.
const STEP: Duration = Duration::from_millis(100);
/// Bytes that the session may reserve in addition to its initial memory.
const MORE: u64 = 2 << 20;
/// More than the initial memory.
const PLENTY: u64 = 16 << 20;
/// The least ratio of memory at doubled loss.
const DOUBLED: f64 = 1.5;

/// The format of arm's packets, as in its README.
const PORT: u16 = 5350;
const DATA: u8 = 1;
const NACK: u8 = 2;
const VERSION: u8 = 1;
const STREAM: u32 = 7;
/// The offset of the UDP payload in a frame.
const PAYLOAD: usize = 42;

/// An event, with its time in seconds since the first packet.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    /// The receiver requested a packet.
    Asked(f64),
    /// The request reached the sender, unanswered by arm.
    WentOn(f64),
    /// The session had reserved this number of bytes.
    Reserved(f64, f64),
}

fn run(mechanism: Mechanism) -> Result<Outcome, LabError> {
    let events = record(mechanism)?;
    let mut csv = Csv::new(&["time_s", "asked", "went_on", "answered_percent", "reserved_kib"]);
    for second in seconds(&events) {
        let Second { begin, asked, went_on, reserved } = second;
        csv.row([begin, asked, went_on, second.answered(), reserved / 1024.0].map(Into::into));
    }
    let name = FIGURE.name.to_owned();
    Ok(Outcome {
        records: vec![(name.clone(), csv)],
        charts: vec![(name.clone(), answers(&events)), (format!("{name}-memory"), memory(&events))],
        criteria: judge(&events)?,
        found: String::new(),
    })
}

/// The sender and the receiver, with arm between them.
struct Peers {
    random: Random,
    begin: Instant,
    next: u32,
    /// Packets that the receiver lacks, with the times of their next requests.
    lacks: BTreeMap<u32, Instant>,
    /// The same packets in order of time.
    due: BTreeSet<(Instant, u32)>,
    events: Vec<Event>,
}

impl Peers {
    fn new() -> Self {
        Self {
            random: Random::new(15),
            begin: Instant::now(),
            next: 0,
            lacks: BTreeMap::new(),
            due: BTreeSet::new(),
            events: Vec::new(),
        }
    }

    fn at(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    /// Decides whether the next packet is lost.
    fn is_lost(&mut self) -> bool {
        let at = self.at();
        let loss = LOSSES.iter().rev().find(|(from, _)| *from <= at).map_or(0.0, |(_, loss)| *loss);
        (self.random.word() as f64 / u64::MAX as f64) < loss
    }

    /// The frames that are due: packets of the stream, and requests.
    fn due_frames(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while f64::from(self.next) < self.at() * RATE {
            frames.push(packet(DATA, self.next));
            self.next += 1;
        }
        let now = Instant::now();
        while let Some(&(_, number)) = self.due.first().filter(|(at, _)| *at <= now) {
            frames.push(packet(NACK, number));
            self.events.push(Event::Asked(self.at()));
            self.ask_at(number, now + PATIENCE);
        }
        frames
    }

    fn ask_at(&mut self, number: u32, at: Instant) {
        if let Some(old) = self.lacks.insert(number, at) {
            self.due.remove(&(old, number));
        }
        self.due.insert((at, number));
    }

    /// Processes a frame from the node. Returns the sender's answer.
    fn handle(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let (kind, number) = read(frame)?;
        if kind == NACK {
            self.events.push(Event::WentOn(self.at()));
            return Some(packet(DATA, number));
        }
        if !self.is_lost() {
            if let Some(at) = self.lacks.remove(&number) {
                self.due.remove(&(at, number));
            }
        } else if !self.lacks.contains_key(&number) {
            self.ask_at(number, Instant::now() + PATIENCE);
        }
        None
    }
}

/// A packet of the stream, or a request for one.
fn packet(kind: u8, number: u32) -> Vec<u8> {
    let mut frame = datagram((PORT, PORT), if kind == DATA { LENGTH } else { 60 });
    frame[PAYLOAD..PAYLOAD + 4].copy_from_slice(&[kind, VERSION, 0, 0]);
    let [count, wanted] = [1u32, number].map(u32::to_be_bytes);
    let words = if kind == DATA { [wanted, [0; 4]] } else { [count, wanted] };
    frame[PAYLOAD + 4..PAYLOAD + 8].copy_from_slice(&STREAM.to_be_bytes());
    frame[PAYLOAD + 8..PAYLOAD + 16].copy_from_slice(words.as_flattened());
    frame
}

/// The kind and the number of a packet.
fn read(frame: &[u8]) -> Option<(u8, u32)> {
    let payload = frame.get(PAYLOAD..PAYLOAD + 16)?;
    let kind = *payload.first()?;
    let place = if kind == DATA { 8..12 } else { 12..16 };
    let number = payload.get(place)?.try_into().ok()?;
    matches!(kind, DATA | NACK).then_some((kind, u32::from_be_bytes(number)))
}

fn record(mechanism: Mechanism) -> Result<Vec<Event>, LabError> {
    bind(OTHER_CORE)?;
    cable("a", "b")?;
    cable("c", "d")?;
    let mut node = NodeProcess::start(
        "[[interface]]\nname = \"b\"\narena = \"8 MiB\"\noutgoing = false\n\
         [[link]]\ninterface = \"c\"\nrate = \"1 Gbit/s\"",
    )?;
    // The initial memory: that of the started module, and buffers for frames.
    start(&mut node, PLENTY, PLENTY)?;
    let used = state(&mut node)?.memory_used;
    node.close("arm")?;
    start(&mut node, used, if mechanism == Mechanism::On { used + MORE } else { used })?;
    let mut far = open("d", SocketKind::Packet, Bytes(8 << 20))?;
    let mut near = LiveSink::open("a", SocketKind::Packet)?;
    let mut peers = Peers::new();
    let (mut look, mut frame) = (Instant::now(), Vec::new());
    while peers.at() < END {
        let mut frames = peers.due_frames();
        if let LivePoll::Block(block) = far.next_block(Nanos(500_000))? {
            for place in 0..block.len() {
                block.copy_packet(place, &mut frame);
                frames.extend(peers.handle(&frame));
            }
        }
        // Packets that the interface does not take are lost, and requested again.
        for burst in frames.chunks(64) {
            near.send(&burst.iter().map(Vec::as_slice).collect::<Vec<_>>());
        }
        if look <= Instant::now() {
            look += STEP;
            let reserved = state(&mut node)?.memory_reserved;
            peers.events.push(reserved_at(peers.at(), reserved));
        }
    }
    Ok(peers.events)
}

fn reserved_at(at: f64, bytes: u64) -> Event {
    Event::Reserved(at, bytes as f64)
}

fn start(node: &mut NodeProcess, memory: u64, most: u64) -> Result<(), LabError> {
    node.create(&format!(
        "name = \"arm\"\nmemory = \"{memory}\"\nmemory_max = \"{most}\"\n\
         cpu = [{{ period = \"10ms\", slice = \"4ms\" }}]\n\
         channel = [{{ interface = \"b\", filter = \"udp port {PORT}\", forward = \"repairs\" }}]\n\
         output = [{{ name = \"repairs\", link = \"c\" }}]\n"
    ))?;
    node.load("arm", module("module = \"arm\"")?, &[])
}

fn state(node: &mut NodeProcess) -> Result<SessionStatus, LabError> {
    let snapshot = node.snapshot()?;
    let gone = || LabError::NoData("the session is gone".to_owned());
    session(&snapshot, "arm").cloned().ok_or_else(gone)
}

/// The counts of a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Second {
    begin: f64,
    asked: f64,
    went_on: f64,
    /// At the end of the second.
    reserved: f64,
}

impl Second {
    /// The percentage of requests that arm answered.
    fn answered(self) -> f64 {
        (1.0 - self.went_on / self.asked) * 100.0
    }
}

fn seconds(events: &[Event]) -> Vec<Second> {
    let begins = (0..1000u32).map(f64::from).take_while(|begin| begin + 1.0 <= END);
    begins.map(|begin| sum(events, begin, begin + 1.0)).collect()
}

fn sum(events: &[Event], begin: f64, end: f64) -> Second {
    let mut second = Second { begin, ..Second::default() };
    let is_in = |at: f64| at >= begin && at < end;
    for event in events {
        match *event {
            Event::Asked(at) if is_in(at) => second.asked += 1.0,
            Event::WentOn(at) if is_in(at) => second.went_on += 1.0,
            Event::Reserved(at, bytes) if at < end => second.reserved = bytes,
            _ => {}
        }
    }
    second
}

fn judge(events: &[Event]) -> Result<Vec<Criterion>, LabError> {
    let change = LOSSES[1].0;
    let (first, then, last) =
        (sum(events, FOUND, change), sum(events, change, change + 1.0), sum(events, change + FOUND, END));
    if [first, then, last].iter().any(|part| part.asked < 100.0) {
        return Err(LabError::NoData("there were fewer than 100 requests".to_owned()));
    }
    let begin = events.iter().find_map(|event| match event {
        Event::Reserved(_, bytes) => Some(*bytes),
        _ => None,
    });
    let begin = begin.unwrap_or(f64::NAN);
    let (before, after) = (first.reserved - begin, last.reserved - begin);
    Ok(vec![
        Criterion::at_least(
            format!("answered at 25 % loss, from {FOUND:.0} s on"),
            first.answered(),
            TARGET,
            "%",
        ),
        Criterion::at_most("answered in the second after loss was doubled", then.answered(), TARGET, "%"),
        Criterion::at_least(
            format!("answered at 50 % loss, from {FOUND:.0} s later on"),
            last.answered(),
            TARGET,
            "%",
        ),
        Criterion::at_least("requested memory at 50 % loss ÷ that at 25 %", after / before, DOUBLED, "×"),
    ])
}

fn answers(events: &[Event]) -> Chart {
    let mut chart = Chart::new(
        ChartAxis::linear("time, s", 0.0, END),
        ChartAxis::linear("requests answered by arm, % in a second", 0.0, 105.0),
    );
    chart.add("", 5, Mark::Expected(vec![(0.0, TARGET), (END, TARGET)]));
    let points = seconds(events).into_iter().filter(|second| second.asked > 0.0);
    chart.add(
        "answered",
        0,
        Mark::Dotted(points.map(|second| (second.begin + 0.5, second.answered())).collect()),
    );
    let change = LOSSES[1].0;
    chart.add("loss 25 %, then 50 %", 3, Mark::Expected(vec![(change, 0.0), (change, 105.0)]));
    chart
}

fn memory(events: &[Event]) -> Chart {
    let points: Vec<(f64, f64)> = events
        .iter()
        .filter_map(|event| match event {
            Event::Reserved(at, bytes) => Some((*at, bytes / 1024.0)),
            _ => None,
        })
        .collect();
    let most = points.iter().map(|(_, kib)| *kib).fold(1.0, f64::max);
    let mut chart = Chart::new(
        ChartAxis::linear("time, s", 0.0, END),
        ChartAxis::linear("reserved by the session, KiB", 0.0, most * 1.15),
    );
    chart.add("reserved", 1, Mark::Line(points));
    let change = LOSSES[1].0;
    chart.add("loss 25 %, then 50 %", 3, Mark::Expected(vec![(change, 0.0), (change, most * 1.15)]));
    chart
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts answered before the change, in the second after it and from then on, and memory at the beginning, before and after, in KiB.
    fn made(parts: [f64; 3], kib: [f64; 3]) -> Vec<Event> {
        let change = LOSSES[1].0;
        let mut events = Vec::new();
        for step in 0..24_000u32 {
            let at = f64::from(step) / 1000.0;
            let phase = if at < change {
                0
            } else if at < change + 1.0 {
                1
            } else {
                2
            };
            events.push(Event::Asked(at));
            if f64::from(step % 100) >= parts[phase] {
                events.push(Event::WentOn(at));
            }
            let memory = if at < 0.5 {
                kib[0]
            } else if at < change {
                kib[1]
            } else {
                kib[2]
            };
            events.push(Event::Reserved(at, memory * 1024.0));
        }
        events
    }

    fn kept(events: &[Event]) -> Vec<bool> {
        judge(events).unwrap().iter().map(|criterion| criterion.is_kept).collect()
    }

    #[test]
    fn memory_that_helps_is_told_from_memory_that_is_not_there() {
        assert_eq!(kept(&made([94.0, 75.0, 94.0], [600.0, 728.0, 920.0])), [true; 4]);
        // It may not have more: nothing is answered enough, and nothing has grown.
        assert_eq!(kept(&made([0.0, 0.0, 0.0], [600.0; 3])), [false, true, false, false]);
        assert_eq!(kept(&made([94.0, 75.0, 88.0], [600.0, 728.0, 920.0])), [true, true, false, true]);
        // It had had more than it needed from the beginning.
        assert_eq!(kept(&made([99.0, 94.0, 94.0], [600.0, 920.0, 920.0])), [true, false, true, false]);
        assert!(matches!(judge(&[]), Err(LabError::NoData(_))));
    }

    #[test]
    fn packets_are_what_arm_reads() {
        for (kind, number) in [(DATA, 0), (DATA, 0x0102_0304), (NACK, 7), (NACK, u32::MAX)] {
            assert_eq!(read(&packet(kind, number)), Some((kind, number)));
        }
        assert_eq!(read(&datagram((1, 2), 60)), None);
        assert_eq!(read(&[0; 20]), None);
        let frame = packet(NACK, 9);
        assert_eq!(frame[PAYLOAD..PAYLOAD + 16], [2, 1, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 9]);
        assert_eq!(frame[36..38], PORT.to_be_bytes());
    }

    #[test]
    fn a_lost_packet_is_requested_until_it_comes() {
        let mut peers = Peers::new();
        // At no loss at all nothing is lacking; a request that went on is answered.
        assert_eq!(peers.handle(&packet(NACK, 3)), Some(packet(DATA, 3)));
        let mut lost = 0;
        for number in 0..1000 {
            assert_eq!(peers.handle(&packet(DATA, number)), None);
            lost += usize::from(peers.lacks.contains_key(&number));
        }
        assert!((200..300).contains(&lost), "{lost}");
        assert_eq!((peers.lacks.len(), peers.due.len()), (lost, lost));
        // Received packets are requested no more.
        for _ in 0..100 {
            for number in 0..1000 {
                if peers.lacks.contains_key(&number) {
                    peers.handle(&packet(DATA, number));
                }
            }
        }
        assert!(peers.lacks.is_empty() && peers.due.is_empty());
    }
}
